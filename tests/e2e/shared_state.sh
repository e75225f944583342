#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Two servers share one --state-dir. A client that loses its server goes on at the other one, which takes the run over from
# a server that was killed, that stands still (SIGSTOP) for longer than --lease, that is told to stop, or that is well and
# has the session still. Each time the parameters are those of an undisturbed run, bit for bit, and a server that has lost a
# run writes nothing of it any more.
#
# The client knows one address, that of a link which is led to the one server or the other. tests/tools/disk_gate.c holds the
# disk for as long as the script wants.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

common=(--data synthetic:shape=3x32x32,classes=10,samples=64 --batch 8 --chunks 2 --threads 1 --seed 7 --no-progress
	--model mobilenetv2:width=0.35,stem=cifar --steps 24 --cut 1:-2 --no-eval --schedule const --codec ef+uniform:bits=4
	--optimizer adamw --lr 0.002)
first_pid='' second_pid='' client_pid=''

stop_all() {
	local pid
	for pid in $client_pid $first_pid $second_pid; do
		kill -CONT "$pid" 2>/dev/null
		kill -KILL "$pid" 2>/dev/null
	done
	cleanup
}
trap stop_all EXIT

up() { # NAME
	start_server --threads 1 --state-dir "$work/state" --lease 15s --drain-for 2m --resume-window 10m --metrics 127.0.0.1:0
	mv "$work/server.log" "$work/$1.log" # the server goes on writing there
	printf -v "$1_pid" %s "$server_pid"
	printf -v "$1_port" %s "$server_port"
	server_pid=''
}

down() { # NAME
	local pid=$1_pid status=0
	kill "${!pid}" && wait "${!pid}" || status=$?
	printf -v "$pid" %s ''
	equal "$1: status at the end" $status 0
}

# The link leads to that server from now on; whoever was connected is cut off.
lead_to() { # NAME
	local port=$1_port
	[ -n "$link_pid" ] && kill "$link_pid" && wait "$link_pid"
	link_pid=''
	for _ in $(seq 50); do
		rm -f "$work/link.port"
		"$build/gpclient" link --listen "127.0.0.1:${link_port:-0}" --to "127.0.0.1:${!port}" --port-file "$work/link.port" \
			>/dev/null 2>"$work/link.log" &
		link_pid=$!
		await eval '[ -s "$work/link.port" ] || ! kill -0 $link_pid 2>/dev/null'
		[ -s "$work/link.port" ] && link_port=$(cat "$work/link.port") && return
	done
	echo "no link: $(cat "$work/link.log")"
	exit 1
}

said() { # NAME PATTERN
	grep -E "$2" "$work/$1.log" >/dev/null
}

await_said() { # NAME PATTERN
	await said "$1" "$2" || fail "$1 does not say '$2': $(tail -5 "$work/$1.log")"
}

# A training with a checkpoint of both ends.
client_with_a_checkpoint() { # NAME
	lead_to first
	"$build/gpclient" train --json --server "127.0.0.1:$link_port" --checkpoint "$work/$1" --checkpoint-every 4 \
		--reconnect-for 10m --connect-timeout 5m "${common[@]}" >"$work/$1.json" 2>"$work/$1.err" &
	client_pid=$!
	await test -e "$work/$1/step-000000000004/confirmed" || fail "$1: no checkpoint: $(tail -3 "$work/$1.err")"
}

# The same, and it stands still.
client_at_a_checkpoint() { # NAME
	client_with_a_checkpoint "$1"
	kill -STOP $client_pid
	[ ! -s "$work/$1.json" ] || fail "$1: the training was over too soon"
}

client_ends() { # NAME WHAT
	local status=0
	kill -CONT $client_pid
	wait $client_pid || status=$?
	client_pid=''
	equal "$2: status of the client" $status 0
	[ $status -eq 0 ] || tail -5 "$work/$1.err"
	equal "$2: parameters" "$(json_get "$work/$1.json" param_sha256)" "$want"
}

everything_kept() {
	find "$work/state" -path '*/step-*' -type f -exec sha256sum {} + | sort
}

start_server --threads 1
train "$work/whole.json" --server "127.0.0.1:$server_port" "${common[@]}" || fail "undisturbed"
want=$(json_get "$work/whole.json" param_sha256)
stop_server

# Both are well, and the client comes to the other one: the first one hands its session over, as of the last commit.
up first
up second
client_at_a_checkpoint handed
lead_to second
client_ends handed "handed over"
said first 'ends: another client has taken this run over, at another server' ||
	fail "the first server has not handed over: $(tail -5 "$work/first.log")"
said second 'goes on from the checkpoint of step' || fail "the second server has not gone on: $(tail -5 "$work/second.log")"
! said second 'is taken over from server' || fail "a run was taken from a server that is well"

# The first one is told to stop.
client_at_a_checkpoint drained
down first
lead_to second
client_ends drained "stopped"

# It is killed: on one machine that is known at once.
up first
client_at_a_checkpoint killed
kill -KILL "$first_pid"
wait "$first_pid" 2>/dev/null
lead_to second
client_ends killed "killed"
await_said second 'run [0-9a-f]{8} is taken over from server [0-9a-f]{16}, which is dead'

# It stands still for longer than its lease, and comes back when another one has the run.
up first
client_at_a_checkpoint stopped
kill -STOP "$first_pid"
lead_to second
client_ends stopped "stands still"
await_said second 'server [0-9a-f]{16} .* has not been heard of for 15 s: it counts as dead'
kept=$(everything_kept)
kill -CONT "$first_pid"
await_said first 'this server .* could not renew its leases within 11[.0-9]* s'
await_said first 'could not renew its lease of the run'
down first # with time to write whatever it still would
equal "what stands there when it has come back" "$(everything_kept | sha256sum)" "$(echo "$kept" | sha256sum)"
runs=4

# The same in the midst of writing a checkpoint, which it goes on with when it comes back.
in_the_midst_of_a_write() {
	local gate=$work/gate
	[ -e "$build/tests/libdisk_gate.so" ] || { echo "the target disk_gate is not built" && exit 1; }
	LD_PRELOAD="$build/tests/libdisk_gate.so" DISK_GATE="$gate" up first
	client_with_a_checkpoint writing
	touch "$gate"
	await test -e "$gate.waiting" || fail "the first server writes no checkpoint"
	kill -STOP "$first_pid"
	lead_to second
	client_ends writing "stands still while it writes"
	kept=$(everything_kept)
	rm "$gate"
	kill -CONT "$first_pid"
	await_said first 'could not renew its lease of the run'
	await_said first 'no checkpoint of step [0-9]+ \(run [0-9a-f]{8}\)'
	down first
	equal "what it went on writing" "$(everything_kept | sha256sum)" "$(echo "$kept" | sha256sum)"
	runs=5
}
[ -n "$sanitized" ] || in_the_midst_of_a_write

down second
equal "leases that nobody has" "$(find "$work/state" -name 'lease-*-free' | wc -l)" $runs
equal "all leases" "$(find "$work/state" -name 'lease-*' | wc -l)" $runs
equal "what is left half written" "$(find "$work/state" -name 'work-*' -o -name 'tmp-*' | wc -l)" 0
equal "servers that are left" "$(find "$work/state/servers" -mindepth 1 | wc -l)" 0

finish
