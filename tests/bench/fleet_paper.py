#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many servers as one, on paper: what is full first when clients come to 10, 100 and 1,000 servers behind one balancer with
one state folder, and at how many clients.

    tests/bench/fleet_paper.py [--servers 10,100,1000] [--server-time S] ... [--markdown]

Three parts, all from figures that are options (--help; those in brackets are measured, operations on files are counted in the
code, others are assumptions):

- limits: how many clients each thing carries that they share, by what a step, a session and a server ask of it;
- clients that arrive at random, train and leave (a simulation with a fixed seed), at 80 % of the first limit: the balancer
  gives each to the server that has fewest, and a server's sessions share its time;
- what the folder has to do, by whom it is asked.

Standard Python, the same figures every time, a few seconds.
"""

import argparse
import heapq
import random

OPTIONS = [
    # name, default, what, measured
    ("step-time", 0.122, "seconds of a step of a client that is alone at its server", True),
    ("server-time", 0.104, "seconds of these in which the server's device computes", True),
    ("bytes-up", 0.886e6, "bytes of a step to the server, on the wire", True),
    ("bytes-down", 0.886e6, "bytes of a step from the server", True),
    ("steps", 4690, "steps of a training", False),
    ("checkpoint-bytes", 4.5e6, "bytes of a checkpoint of the body, with its optimizer", True),
    ("checkpoint-every", 100, "steps from one checkpoint to the next", False),
    ("max-sessions", 64, "sessions that a server takes (--max-sessions)", False),
    ("lease", 30.0, "seconds of --lease: a beat is written, and others' are read, every fifth of it", False),
    ("seen", 15, "other servers that one looks at (GP_FLEET_SEEN)", False),
    ("beat-ops", 3, "operations on files that writing a beat costs", False),
    ("look-ops", 4, "the same of reading another one's beat", False),
    ("list-ops", 4, "the same of listing the servers", False),
    ("wants-ops", 4, "the same of reading which runs others want, once a second", False),
    ("probe-ops", 3, "the same of trying whether the folder can be written to, every 10 s", False),
    ("pass-ops", 25, "the same of looking at a run that another server has, in a pass over all runs", False),
    ("pass-every", 30.0, "seconds from one pass to the next, for each server that there is", False),
    ("checkpoint-ops", 60, "the same of a checkpoint", False),
    ("runs", 1000, "runs that a folder may have (GP_STATE_RUNS_MAX)", False),
    ("folder-ops", 20000, "operations a second that the folder's server carries", False),
    ("folder-bytes", 1e9, "bytes a second that it takes", False),
    ("balancer-bytes", 1.25e9, "bytes a second each way through the balancer (10 Gbit/s)", False),
    ("balancer-connections", 20000, "connections that it takes (maxconn of deploy/haproxy.cfg)", True),
    ("server-bytes", 1.25e9, "bytes a second each way of one server's network (10 Gbit/s)", False),
]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--servers", default="10,100,1000", help="how many, in a list")
    p.add_argument("--markdown", action="store_true", help="tables for a page")
    p.add_argument("--seed", type=int, default=1)
    for name, value, what, measured in OPTIONS:
        p.add_argument("--" + name, type=float, default=value, help=what + (" [%(default)g]" if measured else " (%(default)g)"))
    return p.parse_args()


# --- what is asked of the folder, in operations a second ---------------------------------------------------------------


def fifth(a):
    return a.lease / 5


def folder_constant(a, servers):
    """Of servers that have nothing to do."""
    seen = min(servers - 1, a.seen)
    beats = a.beat_ops / fifth(a)
    looks = (a.list_ops + seen * a.look_ops) / fifth(a)
    return {"beats": servers * beats, "looks at others": servers * looks,
            "wishes for runs": servers * a.wants_ops, "probes": servers * a.probe_ops / 10}


def folder_for_a_client(a, servers, steps_per_s):
    """Of one more client, and its run."""
    passes = a.pass_ops / a.pass_every if servers > 1 else 0  # each server has one in servers * pass_every
    return {"passes over runs": passes, "checkpoints": steps_per_s * a.checkpoint_ops / a.checkpoint_every}


# --- limits ------------------------------------------------------------------------------------------------------------


def limits(a, servers):
    """Clients at which each is full, while all of them step as fast as one alone."""
    rate = 1 / a.step_time
    widest = max(a.bytes_up, a.bytes_down) * rate
    left = a.folder_ops - sum(folder_constant(a, servers).values())
    for_a_client = sum(folder_for_a_client(a, servers, rate).values())
    return {
        "servers' devices": servers * a.step_time / a.server_time,
        "servers' seats": servers * a.max_sessions,
        "servers' networks": servers * a.server_bytes / widest,
        "balancer: bytes": a.balancer_bytes / widest,
        "balancer: connections": a.balancer_connections,
        "folder: bytes": a.folder_bytes / (a.checkpoint_bytes * rate / a.checkpoint_every),
        "folder: operations": max(0.0, left) / for_a_client,
        "folder: runs": a.runs,
    }


def shared(found):
    """Without what grows with the servers by itself."""
    return {k: v for k, v in found.items() if not k.startswith("servers'")}


def first_of(found):
    return min(found.items(), key=lambda item: item[1])


# --- clients that arrive, train and leave ------------------------------------------------------------------------------


class Server:
    """Its sessions share its time: each makes progress at the same rate, which counts in steps since the beginning."""

    def __init__(self, a):
        self.a, self.progress, self.at, self.ends, self.version = a, 0.0, 0.0, [], 0

    def rate(self):
        return min(1 / self.a.step_time, 1 / (len(self.ends) * self.a.server_time)) if self.ends else 0.0

    def move_to(self, now):
        self.progress += (now - self.at) * self.rate()
        self.at = now

    def next_end(self):
        return self.at + max(0.0, self.ends[0][0] - self.progress) / self.rate()


class Simulation:
    def __init__(self, a, servers, clients):
        self.a, self.random = a, random.Random(a.seed)
        self.server = [Server(a) for _ in range(servers)]
        self.emptiest = [(0, i) for i in range(servers)]  # (sessions, server); entries that are old are passed over
        self.ends, self.now, self.present, self.most = [], 0.0, 0, 0
        self.arrivals_per_s = clients / (a.steps * a.step_time)
        self.took, self.uneven, self.area = [], [], 0.0

    def find_emptiest(self):
        while True:
            sessions, i = self.emptiest[0]
            if sessions == len(self.server[i].ends):
                return i
            heapq.heappop(self.emptiest)

    def note(self, i):
        s = self.server[i]
        s.version += 1
        heapq.heappush(self.emptiest, (len(s.ends), i))
        if s.ends:
            heapq.heappush(self.ends, (s.next_end(), i, s.version))

    def arrive(self):
        i = self.find_emptiest()
        s = self.server[i]
        s.move_to(self.now)
        heapq.heappush(s.ends, (s.progress + self.a.steps, self.now))
        self.present += 1
        self.most = max(self.most, self.present)
        self.note(i)

    def leave(self, i):
        s = self.server[i]
        s.move_to(self.now)
        _, began = heapq.heappop(s.ends)
        self.took.append(self.now - began)
        self.present -= 1
        self.note(i)

    def run(self, trainings):
        """Until so many have ended; the first half is for warming up."""
        arrival, begun = self.random.expovariate(self.arrivals_per_s), 0.0
        while len(self.took) < trainings:
            while self.ends and self.server[self.ends[0][1]].version != self.ends[0][2]:
                heapq.heappop(self.ends)
            at = min(arrival, self.ends[0][0]) if self.ends else arrival
            if len(self.took) >= trainings // 2:
                begun = begun or self.now
                self.area += self.present * (at - self.now)
            self.now = at
            if at == arrival:
                self.arrive()
                arrival = self.now + self.random.expovariate(self.arrivals_per_s)
            else:
                _, i, _ = heapq.heappop(self.ends)
                self.leave(i)
        late = self.took[trainings // 2 :]
        sessions = [len(s.ends) for s in self.server]
        return {
            "mean": self.area / (self.now - begun),
            "most": self.most,
            "slowdown": sum(late) / len(late) / (self.a.steps * self.a.step_time),
            "fewest": min(sessions),
            "fullest": max(sessions),
        }


def simulate(a, servers, clients):
    if clients < 1:
        return {"mean": 0, "most": 0, "slowdown": 0, "fewest": 0, "fullest": 0}
    return Simulation(a, servers, clients).run(max(2000, 6 * servers))


# --- tables ------------------------------------------------------------------------------------------------------------


def show(a, head, rows):
    if a.markdown:
        print("| " + " | ".join(head) + " |")
        print("|---|" + "---:|" * (len(head) - 1))
        for row in rows:
            print("| " + " | ".join(row) + " |")
    else:
        widths = [max(len(r[i]) for r in [head] + rows) for i in range(len(head))]
        for row in [head] + rows:
            print("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))))
    print()


def number(x):
    return f"{x:,.0f}"


def main():
    a = arguments()
    fleets = [int(n) for n in a.servers.split(",")]
    found = {n: limits(a, n) for n in fleets}
    head = ["clients until it is full"] + [f"{number(n)} servers" for n in fleets]
    rows = [[what] + [number(found[n][what]) for n in fleets] for what in found[fleets[0]]]
    rows.append(["**first**" if a.markdown else "first"] + [first_of(found[n])[0] for n in fleets])
    rows.append(["first of what is shared"] + [first_of(shared(found[n]))[0] for n in fleets])
    show(a, head, rows)

    simulated = {n: simulate(a, n, 0.8 * first_of(found[n])[1]) for n in fleets}
    show(
        a,
        ["clients that come and go, at 80 %"] + head[1:],
        [
            ["at once, on average"] + [number(simulated[n]["mean"]) for n in fleets],
            ["at once, most"] + [number(simulated[n]["most"]) for n in fleets],
            ["time of a training, of that alone"] + [f"{simulated[n]['slowdown']:.2f}" for n in fleets],
            ["sessions of a server at the end"] + [f"{simulated[n]['fewest']} to {simulated[n]['fullest']}" for n in fleets],
        ],
    )

    asked = {}
    for n in fleets:
        each = {k: v * simulated[n]["mean"] for k, v in folder_for_a_client(a, n, 1 / a.step_time).items()}
        asked[n] = {**folder_constant(a, n), **each}
    rows = [[what] + [number(asked[n][what]) for n in fleets] for what in asked[fleets[0]]]
    rows.append(["all, of " + number(a.folder_ops)] + [number(sum(asked[n].values())) for n in fleets])
    show(a, ["the folder: operations a second"] + head[1:], rows)


if __name__ == "__main__":
    main()
