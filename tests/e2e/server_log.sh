#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What gpserverd says of a session, over a link that breaks and a server that is
# started again: one number and name, steps and seconds of the session, each
# failed checkpoint once. SIGUSR1 makes both ends tell where they are, and ends
# neither.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

log=$work/server.log
printf 'edge 0123456789abcdef\n' >"$work/tokens"
echo 0123456789abcdef >"$work/token"
chmod 600 "$work/tokens" "$work/token"
flags=(--model cnn --data synthetic:shape=3x16x16,classes=4,samples=64 --batch 8 --chunks 2 --threads 1 --schedule const
	--no-eval --no-progress --token-file "$work/token")
title='session [0-9]+ \(token:edge, 127\.0\.0\.1:[0-9]+\)'

logged() { # PATTERN
	grep -qE -- "$1" "$log"
}

await_line() { # WHAT PATTERN
	await logged "$2" && echo "ok: $1 ($(grep -E -- "$2" "$log" | tail -1))" || fail "$1: no '$2' in $(tail -5 "$log")"
}

start_client() { # PORT FLAG...
	"$build/gpclient" train --server "127.0.0.1:$1" "${flags[@]}" "${@:2}" >"$work/client.out" 2>"$work/client.err" &
	client=$!
}

has_steps() { # LOG COUNT
	[ -e "$1" ] && [ "$(grep -c '"event":"step"' "$1")" -ge "$2" ]
}

has_said() { # PATTERN
	grep -qE -- "$1" "$work/client.err"
}

# Seconds between the stamps of the first line that matches one pattern and the last that matches another.
between() { # PATTERN PATTERN
	date -f <(grep -E -- "$1" "$log" | head -1 | cut -d' ' -f1; grep -E -- "$2" "$log" | tail -1 | cut -d' ' -f1) +%s |
		awk 'NR == 1 { from = $1 } { to = $1 } END { print to - from }'
}

# A session over two links. Both ends are asked in it, while it trains and while it has no link.
start_server --threads 1 --tokens "$work/tokens" --state-dir "$work/state"
kill -USR1 "$server_pid"
await_line "the status of a server without sessions" ' info main: status: 0 sessions \(0 parked\) of 64, 0 connections'
start_link
start_client "$link_port" --steps 1000000 --checkpoint "$work/run" --checkpoint-every 5 --log-json "$work/one.jsonl"
await has_steps "$work/one.jsonl" 3 || fail "no steps: $(cat "$work/client.err")"
kill -USR1 "$server_pid" $client "$link_pid"
await_line "the status of a session" \
	" info main: status of $title: RUN, step [0-9]+, [0-9.e+-]+ steps/s, up [0-9.]+ MB at [0-9.]+ MB/s, down [0-9.]+ MB at [0-9.]+ MB/s, [0-9]+ chunks queued, [0-9]+ MiB, [0-9.]+ s"
await_line "the totals" ' info main: status: 1 sessions \(0 parked\) of 64, 1 connections .* steps/s, up .* chunks queued, sessions [0-9]+ of [0-9]+ MiB, process'
rates=' up [0-9.]* MB/s down [0-9.]* MB/s'
$counts_bytes || rates=''
await has_said "^gpclient: epoch [0-9]*/.* step [0-9]*/1000000  loss .*$rates" || fail "the client's progress: $(cat "$work/client.err")"
await grep -q "^gpclient: no progress to show yet" "$work/link.log" || fail "a command without progress: $(cat "$work/link.log")"
sleep 2 # what the second link does not last as long as the session
kill -KILL "$link_pid"
wait "$link_pid" 2>/dev/null
await_line "the end of a link" " warn session: $title is parked for 60 s at step [0-9]+: "
kill -USR1 "$server_pid" $client
await_line "the status of a parked session" " info main: status of $title: PARKED, step"
await_line "and in the totals" ' info main: status: 1 sessions \(1 parked\)'
# The same port again.
"$build/gpclient" link --listen "127.0.0.1:$link_port" --to "127.0.0.1:$server_port" 2>"$work/link.log" &
link_pid=$!
await_line "a new link" " info session: $title goes on at step [0-9]+ over a new link"
before=$(wc -l <"$work/one.jsonl")
await has_steps "$work/one.jsonl" $((before + 3)) || fail "no steps over the new link: $(cat "$work/client.err")"
kill $client
wait $client
equal "a client that was asked twice where it is, then stopped: status" $? 143
done_steps=$(sed -n 's/.*stopped by a signal after \([0-9]*\) of.*/\1/p' "$work/client.err")
await_line "the end of the session" " info session: $title ended after .* and $done_steps steps, at step $done_steps: the client said bye"
numbers=$(grep -oE 'session [0-9]+ \(' "$log" | sort -u | wc -l)
equal "it had one number" "$numbers" 1
seconds=$(sed -nE 's/.* ended after ([0-9.]+) s .*/\1/p' "$log" | tail -1)
awk -v told="$seconds" -v seen="$(between 'info session: session 1: [0-9]+ nodes' ' ended after ')" \
	'BEGIN { exit !(told >= seen - 2) }' && echo "ok: seconds of the session ($seconds)" ||
	fail "the end tells $seconds s; the log's stamps lie $(between 'info session: session 1: [0-9]+ nodes' ' ended after ') s apart"

# A run that goes on from disk: the session is another, its steps are its own.
stop_server
kill "$link_pid" && wait "$link_pid"
link_pid=''
start_server --threads 1 --tokens "$work/tokens" --state-dir "$work/state"
start_client "$server_port" --steps $((done_steps + 4)) --checkpoint "$work/run" --checkpoint-every 5 --resume \
	--log-json "$work/one.jsonl"
wait $client || fail "resumed: $(cat "$work/client.err")"
await_line "resuming from disk" " info session: $title goes on from the checkpoint of step $done_steps\$"
await_line "the end of a resumed session" " ended after .* and 4 steps, at step $((done_steps + 4)): the client said bye"
equal "its log has a header for each process" "$(grep -c '"event":"header"' "$work/one.jsonl")" 2
stop_server

# A checkpoint that fails is one line, with the step that it was of.
if grep -q '^GP_FAULTS:[A-Z]*=ON' "$build/CMakeCache.txt"; then
	rm -rf "$work/state"
	export GP_FAULT=write:2
	start_server --threads 1 --tokens "$work/tokens" --state-dir "$work/state"
	unset GP_FAULT
	start_client "$server_port" --steps 6 --checkpoint "$work/full" --checkpoint-every 3
	wait $client || fail "with a full disk: $(cat "$work/client.err")"
	stop_server
	equal "lines about a failed checkpoint" "$(grep -c 'no checkpoint\|without a checkpoint' "$log")" 1
	logged " warn session: $title: no checkpoint of step [36] \(run [0-9a-f]{8}\): .*No space left" ||
		fail "the failed checkpoint: $(grep checkpoint "$log")"
fi

# Every line has a time stamp, but for the address, which is for whoever starts it.
equal "lines without a time stamp" "$(grep -cvE '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z (error|warn|info) |^gpserverd: listening on ' "$log")" 0
finish
