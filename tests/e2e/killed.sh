#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Either process or both are killed (SIGKILL) or stopped while they train: what
# is left, or started again with --resume, ends with the same parameters, bit
# for bit, as a run that nobody disturbed; with raw and with codecs that
# remember. And a server that cannot keep checkpoints does not stop training.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

common=(--data synthetic:shape=3x32x32,classes=10,samples=64 --batch 8 --chunks 2 --threads 1 --seed 7 --no-progress
	--model mobilenetv2:width=0.35,stem=cifar --steps 14 --cut 1:-2 --no-eval --reconnect-for 10m --connect-timeout 5m)

sha() {
	json_get "$1" param_sha256
}

newest() { # FOLDER
	find "$1" -maxdepth "${2:-1}" -name 'step-*' 2>/dev/null | sort | tail -1
}

server_up() { # FLAG...
	start_server --threads 1 --state-dir "$work/state" --drain-for 10m "$@"
}

# The same server again, at the same port.
server_again() { # FLAG...
	local port=$server_port
	for _ in $(seq 50); do
		rm -f "$work/port"
		"$build/gpserverd" --listen "127.0.0.1:$port" --port-file "$work/port" --threads 1 --state-dir "$work/state" \
			--drain-for 10m "${patient[@]}" "$@" 2>>"$work/server.log" &
		server_pid=$!
		for _ in $(seq 1200); do
			[ -s "$work/port" ] && return 0
			kill -0 "$server_pid" 2>/dev/null || break
			sleep 0.05
		done
	done
	fail "the server did not start again: $(tail -3 "$work/server.log")"
}

client_start() { # NAME FLAG...
	"$build/gpclient" train --json --server "127.0.0.1:$server_port" --checkpoint "$work/$1" --checkpoint-every 4 \
		"${common[@]}" "${@:2}" >"$work/$1.json" 2>>"$work/$1.log" &
	client_pid=$!
}

# Until the client has another checkpoint than it had.
wait_for_checkpoint() { # NAME
	local seen=${2:-}
	while kill -0 $client_pid 2>/dev/null && [ "$(newest "$work/$1")" = "$seen" ]; do
		sleep 0.01
	done
}

client_end() { # NAME WANTED-SHA WHAT
	local status=0
	wait $client_pid || status=$?
	[ $status -eq 0 ] || fail "$3: client ended with status $status: $(tail -3 "$work/$1.log")"
	equal "$3" "$(sha "$work/$1.json")" "$2"
}

kill_server() {
	kill -KILL "$server_pid" 2>/dev/null
	wait "$server_pid" 2>/dev/null
}

kill_client() {
	kill -KILL $client_pid 2>/dev/null
	wait $client_pid 2>/dev/null
}

all_ways() { # CODEC FLAG...
	local codec=$1 flags=(--codec "$1" "${@:2}") name=${1%%:*} want
	server_up
	train "$work/whole.json" --server "127.0.0.1:$server_port" "${common[@]}" "${flags[@]}" || fail "$codec: undisturbed"
	want=$(sha "$work/whole.json")

	client_start "$name-server" "${flags[@]}"
	wait_for_checkpoint "$name-server"
	kill_server
	server_again
	client_end "$name-server" "$want" "$codec: server killed, the client goes on"

	client_start "$name-client" "${flags[@]}"
	wait_for_checkpoint "$name-client"
	kill_client
	client_start "$name-client" "${flags[@]}" --resume=if-any # the first one may be here alone
	client_end "$name-client" "$want" "$codec: client killed and resumed"
	client_start "$name-client" "${flags[@]}" --resume
	client_end "$name-client" "$want" "$codec: a finished run again"
	equal "$codec: a finished run again: steps" "$(json_get "$work/$name-client.json" steps_here)" 0

	client_start "$name-both" "${flags[@]}"
	wait_for_checkpoint "$name-both"
	kill_server
	kill_client
	server_again
	client_start "$name-both" "${flags[@]}" --resume=if-any
	client_end "$name-both" "$want" "$codec: both killed"

	client_start "$name-stop" "${flags[@]}"
	wait_for_checkpoint "$name-stop"
	kill "$server_pid"
	wait "$server_pid" || fail "$codec: the server ended with status $?"
	server_again
	client_end "$name-stop" "$want" "$codec: server stopped, the client goes on"
	stop_server
	rm -rf "$work/state"
}

all_ways raw --optimizer adamw --lr 0.002
all_ways poweriter:rank=4,iters=2
all_ways ef+uniform:bits=4 --clip-norm 1

# While the client trains, its server comes back without the run's state: the client ends, and keeps its checkpoints.
state_lost() {
	local status=0 before
	server_up
	client_start lost --steps 100000 --schedule const
	await compgen -G "$work/lost/step-*/confirmed" >/dev/null || fail "lost: no checkpoint"
	kill_server
	rm -rf "$work/state"
	server_again
	wait $client_pid || status=$?
	before=$(newest "$work/lost")
	equal "the state is lost: exit status" $status 3
	grep -q 'no checkpoint is on both sides: here (.*lost) step.* [0-9].*; server .*: no checkpoint of this run$' "$work/lost.log" ||
		fail "the state is lost: $(tail -3 "$work/lost.log")"
	[ -n "$before" ] || fail "the state is lost, and so are the client's checkpoints"
	stop_server
	rm -rf "$work/state"
}
state_lost

# The server's newest checkpoint is damaged: the run goes on from the one before, by itself.
damage() {
	local at
	for _ in $(seq 600); do
		at=$(newest "$work/state" 2)
		[ -n "$at" ] && break
		sleep 0.05
	done
	[ -n "$at" ] || fail "the server has no checkpoint to be damaged"
	[ -n "$at" ] && printf 'damaged' | dd of="$at/state.safetensors" bs=1 seek=2000 conv=notrunc 2>/dev/null
}

damaged_ways() {
	local flags=(--codec ef+uniform:bits=4 --schedule const) want
	server_up
	train "$work/whole.json" --server "127.0.0.1:$server_port" "${common[@]}" "${flags[@]}" || fail "damaged: undisturbed"
	want=$(sha "$work/whole.json")
	client_start damaged "${flags[@]}" --steps 8
	wait $client_pid || fail "damaged: eight steps: $(tail -3 "$work/damaged.log")"
	damage
	client_start damaged "${flags[@]}" --resume
	client_end damaged "$want" "a damaged checkpoint: resumed from an older one"
	equal "a damaged checkpoint: steps done then" "$(json_get "$work/damaged.json" steps_here)" 10
	equal "a damaged checkpoint: said by the server" "$(grep -c 'a checkpoint is removed: .*damaged' "$work/server.log")" 1
	rm -rf "$work/state"/[0-9a-f]*

	client_start damaged-live "${flags[@]}"
	await test -e "$work/damaged-live/step-000000000008/confirmed" # the one before it serves when the newest is damaged
	kill -STOP $client_pid
	kill_server
	damage
	server_again
	kill -CONT $client_pid
	client_end damaged-live "$want" "a damaged checkpoint: a live client goes on"
	stop_server
	rm -rf "$work/state"
}
damaged_ways

# Neither end waits for the other, so nothing of a step needs to be taken back, but for what a stopped server keeps.
without_resuming() {
	local flags=(--codec ef+uniform:bits=4 --schedule const --reconnect-for 0) status=0
	server_up --resume-window 0
	client_start short "${flags[@]}" --steps 4
	wait $client_pid || fail "without resuming: four steps: $(tail -3 "$work/short.log")"
	client_start short "${flags[@]}" --steps 8 --resume
	wait $client_pid || fail "without resuming: resumed: $(tail -3 "$work/short.log")"
	equal "without resuming: steps" "$(json_get "$work/short.json" steps_here)" 4
	client_start short-stop "${flags[@]}" --steps 100000
	wait_for_checkpoint short-stop
	kill "$server_pid"
	wait "$server_pid" || fail "without resuming: the server ended with status $?: $(tail -1 "$work/server.log")"
	wait $client_pid || status=$?
	equal "without resuming: status of a client whose server stops" $status 4
	server_pid=''
	rm -rf "$work/state"
}
without_resuming

# A server that has no room for the checkpoints of two runs drops those of the one that has ended.
ended_makes_room() {
	local flags=(--codec raw --steps 4 --schedule const) bytes
	server_up
	client_start first "${flags[@]}"
	wait $client_pid
	stop_server
	bytes=$(cat "$(newest "$work/state" 2)"/* | wc -c)
	server_up --state-max $((bytes * 3 / 2))
	for name in second third; do
		client_start $name "${flags[@]}"
		wait $client_pid || fail "no room: $(tail -3 "$work/$name.log")"
		equal "the $name run has its checkpoint" "$(grep -c 'no checkpoint' "$work/$name.log")" 0
		equal "runs kept" "$(find "$work/state" -name 'step-*' | wc -l)" 1
	done
	stop_server
	rm -rf "$work/state"
}
ended_makes_room

# What there is to go on from is not on both sides: nothing begins, and nothing is lost. The words are in the last line.
nothing_begins() { # NAME WORDS FLAG...
	local before status=0
	before=$(find "$work/$1" "$work/state" -type f -path '*step-*' -exec sha256sum {} + 2>/dev/null | sort)
	client_start "$1" "${@:3}"
	wait $client_pid || status=$?
	equal "$1: exit status" "$status" 3
	tail -1 "$work/$1.log" | grep -q -- "$2" || fail "$1: no '$2': $(tail -3 "$work/$1.log")"
	equal "$1: files are as they were" "$(find "$work/$1" "$work/state" -type f -path '*step-*' -exec sha256sum {} + 2>/dev/null | sort |
		sha256sum)" "$(echo "$before" | sha256sum)"
}

# A run's checkpoints are there for the name that wrote them alone, whoever else knows the run's id.
of_another() {
	local flags=(--codec raw --schedule const)
	printf 'one 0123456789abcdef\ntwo fedcba9876543210\n' >"$work/tokens"
	echo 0123456789abcdef >"$work/one"
	echo fedcba9876543210 >"$work/two"
	server_up --tokens "$work/tokens"
	client_start mine "${flags[@]}" --token-file "$work/one" --steps 8
	wait $client_pid || fail "with a token: $(tail -3 "$work/mine.log")"
	cp -r "$work/mine" "$work/theirs"
	nothing_begins theirs 'here (.*theirs) steps 8, 4; server 127.0.0.1:[0-9]*: no checkpoint of this run$' "${flags[@]}" \
		--token-file "$work/two" --resume=if-any
	nothing_begins mistyped 'there is no checkpoint in .*mistyped, and without one' "${flags[@]}" --token-file "$work/one" --resume
	[ ! -e "$work/mistyped" ] || fail "a mistyped folder was made"
	stop_server

	# The server comes without its state, or without any.
	mv "$work/state" "$work/state.away"
	server_up --tokens "$work/tokens"
	nothing_begins mine 'steps 8, 4; server .*: no checkpoint of this run$' "${flags[@]}" --token-file "$work/one" --resume
	nothing_begins mine 'steps 8, 4; server .*: no checkpoint of this run$' "${flags[@]}" --token-file "$work/one" \
		--resume=if-any --checkpoint-required
	stop_server
	start_server --threads 1 --tokens "$work/tokens"
	nothing_begins mine 'steps 8, 4; server .*: this server writes no checkpoints (--state-dir)$' "${flags[@]}" \
		--token-file "$work/one" --resume
	stop_server
	rm -rf "$work/state"
	mv "$work/state.away" "$work/state"

	# The client's folder is an old copy: what the server has comes after it.
	server_up --tokens "$work/tokens"
	cp -r "$work/mine" "$work/old"
	rm -rf "$work/old/step-000000000008"
	client_start mine "${flags[@]}" --token-file "$work/one" --resume
	wait $client_pid || fail "with one's own token: $(tail -3 "$work/mine.log")"
	equal "with one's own token: steps" "$(json_get "$work/mine.json" steps_here)" 6
	rm -rf "$work/state"/*/step-000000000004
	nothing_begins old 'step 4; server .*: steps 14, 12, 8$' "${flags[@]}" --token-file "$work/one" --resume=if-any
	stop_server
	rm -rf "$work/state"
}
of_another

# One client's many runs make room for each other, also where the folder is full, and leave those of an absent one.
of_an_absent_one() {
	local flags=(--codec raw --schedule const) bytes
	server_up --tokens "$work/tokens"
	client_start absent "${flags[@]}" --token-file "$work/one" --steps 4
	wait $client_pid || fail "before the others: $(tail -3 "$work/absent.log")"
	stop_server
	bytes=$(cat "$(newest "$work/state" 2)"/* | wc -c)
	server_up --tokens "$work/tokens" --state-max $((bytes * 5 / 2)) --state-max-per-client $((bytes * 2))
	for name in many1 many2 many3; do
		client_start $name "${flags[@]}" --token-file "$work/two" --steps 4
		wait $client_pid || fail "$name: $(tail -3 "$work/$name.log")"
		equal "the run $name has its checkpoint" "$(grep -c 'no checkpoint' "$work/$name.log")" 0
		equal "runs kept with $name" "$(find "$work/state" -name 'step-*' | wc -l)" 2
	done
	client_start absent "${flags[@]}" --token-file "$work/one" --steps 8 --resume
	wait $client_pid || fail "back again: $(tail -3 "$work/absent.log")"
	equal "back again: steps" "$(json_get "$work/absent.json" steps_here)" 4
	stop_server
	rm -rf "$work/state"
}
of_an_absent_one

# A server that keeps nothing, and one whose disk is full: one warning, or the end where checkpoints are required.
required_ends_it() { # WORDS
	local status=0
	"$build/gpclient" train --server "127.0.0.1:$server_port" "${common[@]}" --checkpoint "$work/required" \
		--checkpoint-every 4 --checkpoint-required 2>"$work/required.log" || status=$?
	equal "required: status ($1)" "$status" 3
	grep -q "checkpoint-required: .*$1" "$work/required.log" || fail "no '$1': $(cat "$work/required.log")"
	rm -rf "$work/required"
}

# Even where the first checkpoint would be the last step's.
known_at_the_start() {
	local status=0
	"$build/gpclient" train --server "127.0.0.1:$server_port" "${common[@]}" --checkpoint "$work/required" \
		--checkpoint-required --log-json "$work/required.jsonl" 2>"$work/required.log" || status=$?
	equal "known at the start: status" "$status" 3
	! grep -qs '"event":"step"' "$work/required.jsonl" || fail "it began"
	rm -rf "$work/required" "$work/required.jsonl"
}

warned_once() { # NAME WORDS
	equal "$1: parameters" "$(sha "$work/$1.json")" "$(sha "$work/whole.json")"
	equal "$1: warnings" "$(grep -c "no checkpoint: .*$2" "$work/$1.log")" 1
}

start_server --threads 1
train "$work/whole.json" --server "127.0.0.1:$server_port" "${common[@]}" || fail "undisturbed"
client_start nowhere
client_end nowhere "$(sha "$work/whole.json")" "a server without --state-dir"
warned_once nowhere state-dir
equal "nothing is left here" "$(newest "$work/nowhere")" ""
required_ends_it state-dir
known_at_the_start
stop_server

if grep -q '^GP_FAULTS:[A-Z]*=ON' "$build/CMakeCache.txt"; then
	export GP_FAULT=write:2
	server_up
	unset GP_FAULT
	client_start full
	client_end full "$(sha "$work/whole.json")" "a server whose disk is full for once"
	warned_once full 'No space left'
	stop_server
	rm -rf "$work/state"
	export GP_FAULT=write:2
	server_up
	unset GP_FAULT
	required_ends_it 'No space left'
	# Until the server knows that the client has gone, it has a run to keep.
	await grep -q ' ended after ' "$work/server.log" || fail "the session goes on: $(tail -3 "$work/server.log")"
	stop_server
fi

finish
