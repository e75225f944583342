#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpserverd is told to stop while a checkpoint takes long to write, between COMMIT and COMMITTED, or while its client does
# not end a step: with time enough it exits with 0 and nothing is lost; a second signal, or the end of --drain-for, makes it
# exit with 1 and name the run and the step that it falls back to. Either way the training goes on when the server is there
# again, and ends in the parameters of an undisturbed one.
#
# tests/tools/disk_gate.c holds the disk for as long as the script wants.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

if [ -n "$sanitized" ]; then
	echo "skipped: a sanitizer wants to be loaded before any other library; tests/unit/test_server_drain.c runs there"
	exit 77
fi

[ -e "$build/tests/libdisk_gate.so" ] || { echo "the target disk_gate is not built" && exit 1; }
gate=$work/gate
common=(--data synthetic:shape=3x32x32,classes=10,samples=64 --batch 8 --chunks 2 --threads 1 --seed 7 --no-progress
	--model mobilenetv2:width=0.35,stem=cifar --cut 1:-2 --no-eval --schedule const --codec ef+uniform:bits=4
	--optimizer adamw --lr 0.002)
client_pid=''

stop_all() {
	rm -f "$gate"
	[ -n "$client_pid" ] && kill -KILL "$client_pid" 2>/dev/null
	cleanup
}
trap stop_all EXIT

# On the port that it had before, if there was one. Its log is new.
server_up() { # FLAG...
	local port=${server_port:-0}
	rm -f "$work/port"
	LD_PRELOAD="$build/tests/libdisk_gate.so" DISK_GATE="$gate" "$build/gpserverd" --listen "127.0.0.1:$port" \
		--port-file "$work/port" --threads 1 --state-dir "$work/state" --idle-timeout 10m "${patient[@]}" "$@" \
		2>"$work/server.log" &
	server_pid=$!
	comes_up $server_pid "$work/port" gpserverd "$work/server.log"
	server_port=$(cat "$work/port")
}

client_start() { # NAME FLAG...
	"$build/gpclient" train --json --server "127.0.0.1:$server_port" --checkpoint "$work/$1" --checkpoint-every 4 \
		--reconnect-for 10m --idle-timeout 10m --connect-timeout 5m "${common[@]}" "${@:2}" >"$work/$1.json" 2>>"$work/$1.log" &
	client_pid=$!
}

client_end() { # NAME WHAT
	local status=0
	wait $client_pid || status=$?
	client_pid=''
	equal "$2: status of the client" $status 0
	equal "$2: parameters" "$(json_get "$work/$1.json" param_sha256)" "$want"
}

# A run with a checkpoint of step 4 at both ends goes on, until the server waits for its disk with the one of step 8: its
# client has sent COMMIT and gets no COMMITTED.
until_step_8_is_held() { # NAME
	client_start "$1" --steps 4
	wait $client_pid || fail "$1: four steps: $(tail -3 "$work/$1.log")"
	rm -f "$gate.waiting"
	touch "$gate"
	client_start "$1" --steps 14 --resume
	await test -e "$gate.waiting" || fail "$1: the server writes no checkpoint: $(tail -3 "$work/server.log")"
}

# Runs that have a checkpoint on the server's disk.
kept_runs() {
	find "$work/state" -name 'step-*' 2>/dev/null | xargs -r -n1 dirname | sort -u | wc -l
}

another_run_is_kept() {
	[ "$(kept_runs)" -gt "$kept_before" ]
}

said() { # PATTERN
	grep -qE "$1" "$work/server.log"
}

tell_to_stop() {
	kill "$server_pid"
	await said 'stopping within' || fail "it does not say that it stops: $(tail -3 "$work/server.log")"
}

server_ends() { # WHAT STATUS
	local status=0
	wait "$server_pid" || status=$?
	server_pid=''
	equal "$1: status of the server" $status "$2"
	[ "$status" = "$2" ] || tail -5 "$work/server.log"
}

turned_away() {
	local status=0
	"$build/gpclient" train --server "127.0.0.1:$server_port" "${common[@]}" --steps 1 --reconnect-for 0 \
		>/dev/null 2>"$work/away.log" || status=$?
	equal "a client that comes meanwhile: status" $status 4
	grep -q 'the server is stopping' "$work/away.log" || fail "it is not told why: $(cat "$work/away.log")"
}

start_server --threads 1
train "$work/whole.json" --server "127.0.0.1:$server_port" "${common[@]}" --steps 14 || fail "undisturbed"
want=$(json_get "$work/whole.json" param_sha256)
stop_server

# A server that gave its disk two seconds would be gone after three.
server_up --drain-for 1h
until_step_8_is_held slow
tell_to_stop
turned_away
sleep 3
kill -0 "$server_pid" || fail "the server did not wait for its disk"
rm "$gate"
server_ends "a slow disk" 0
said 'falls? back' && fail "a slow disk: $(grep -E 'falls? back' "$work/server.log")"
server_up
client_end slow "a slow disk"
grep -q 'again after .*, at step 8' "$work/slow.log" || fail "a slow disk: it does not go on at step 8: $(cat "$work/slow.log")"
stop_server

server_up --drain-for 1h
until_step_8_is_held twice
tell_to_stop
kill "$server_pid"
server_ends "a second signal" 1
rm "$gate"
said 'run [0-9a-f]{8} of session 2 falls back from step 8 to step 4' || fail "a second signal: $(tail -5 "$work/server.log")"
server_up
client_end twice "a second signal"
grep -q 'again after .*, at step 4' "$work/twice.log" || fail "a second signal: it does not go on at step 4: $(cat "$work/twice.log")"
stop_server

server_up --drain-for 500ms
until_step_8_is_held late
tell_to_stop
server_ends "the time is over" 1
rm "$gate"
said 'run [0-9a-f]{8} of session 2 falls back from step 8 to step 4' || fail "the time is over: $(tail -5 "$work/server.log")"
server_up
client_end late "the time is over"
stop_server

# Half of --drain-for is for the step; then it is given up, and what was committed is written.
server_up --drain-for 80s
kept_before=$(kept_runs)
client_start still --steps 14
await another_run_is_kept || fail "no checkpoint"
kill -STOP $client_pid
tell_to_stop
server_ends "a client that does not end its step" 0
said 'falls? back' && fail "a client that does not end its step: $(grep -E 'falls? back' "$work/server.log")"
server_up
kill -CONT $client_pid
client_end still "a client that does not end its step"
stop_server
finish
