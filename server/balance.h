/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this server has so many sessions more than another one that it should send one of them away, and when: a function of
 * what the servers of a shared --state-dir say of themselves (fleet.h). Where the client goes then is its own, or the
 * balancer's, affair; a balancer counts connections, sends new ones to the server that has fewest, and leaves those that
 * there are where they are, so that a server that comes back after a failure would stay empty.
 *
 * **Who sends.** Each server ranks all of them by their sessions and finds its own place from above; the server in the same
 * place from below, of those that have room, is its *counterpart*. It sends one session if it has at least two more than
 * its counterpart, and at least an eighth of its own more. So the fullest stops only when no other is that much emptier, and
 * nobody else sends more than the empty ones can take: not every server sends its one session to the same newcomer.
 *
 * **How often.** After each session there is a pause, until beats have told what came of it. If none of the emptier servers
 * has more sessions by then, the move was of no use: the balancer does not lead there, or clients know no other
 * address. Each such move doubles the pause, 64 times the first one at most; one that was of use ends that. A session that
 * has been here for less than five pauses stays. So nobody passes a client back and forth: a move makes the
 * difference smaller by two, or the next one comes later, and it is never the same session soon.
 *
 * Pure: no clock, no disk. Threads: any, one at a time for each gp_balance.
 * Test: tests/unit/test_balance.c, which simulates servers with it
 */
#ifndef GP_BALANCE_H
#define GP_BALANCE_H

#include "server/fleet.h"

#define GP_BALANCE_STAY_PAUSES 5 /* so long a session stays where it is, at least */
#define GP_BALANCE_USELESS_MAX 6 /* doublings of the pause */

struct gp_balance {
	double pause_s; /* --rebalance */
	/* When the last session was sent away, and the servers that were emptier then. */
	uint64_t moved_ns;
	struct gp_fleet_server emptier[GP_FLEET_SEEN];
	int emptier_count;
	bool unjudged;
	int useless; /* moves, one after the other */
};

/* This server, as it would be seen by others. */
struct gp_balance_self {
	char owner[GP_OWNER_TEXT];
	struct gp_beat_load load;
};

/* Until a move shows in beats. */
double gp_balance_pause_s(const struct gp_balance *b, const struct gp_fleet_view *others);
/* Whether one session is to be sent away now; *counterpart (optional): which server is to have it, as far as it goes. */
bool gp_balance_wants(struct gp_balance *b, const struct gp_balance_self *self, const struct gp_fleet_view *others,
		      uint64_t now_ns, struct gp_fleet_server *counterpart);
/* It was. */
void gp_balance_moved(struct gp_balance *b, const struct gp_balance_self *self, const struct gp_fleet_view *others,
		      uint64_t now_ns);

#endif
