#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Two servers share one --state-dir, and five clients are at the first of them. It sends some to the other one (gpserverd
# --rebalance), at the end of a step, until none of the two has more than one session more. All five end with the parameters
# of an undisturbed run, and none has lost a step. With --rebalance 0 nobody moves, though the servers know of each other.
#
# Each server is behind a link so slow that no training is over before the servers are even; then the links are replaced by
# fast ones, and where the clients go on then is their affair.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

clients=5 steps=200
common=(--data synthetic:shape=3x32x32,classes=10,samples=64 --batch 8 --chunks 2 --threads 1 --seed 7 --no-progress
	--model cnn --cut 1:2 --no-eval --schedule const --codec ef+uniform:bits=4 --optimizer adamw --lr 0.002
	--steps "$steps" --idle-timeout 10m --connect-timeout 10m)
declare -A pid_of port_of url_of link_of slow_of
trainings=()

stop_all() {
	local pid
	for pid in "${trainings[@]}" "${slow_of[@]}" "${pid_of[@]}"; do
		kill -KILL "$pid" 2>/dev/null
	done
	cleanup
}
trap stop_all EXIT

up() { # NAME FLAG...
	local name=$1
	shift
	start_server --threads 1 --state-dir "$work/state" --lease 10s --idle-timeout 10m --resume-window 10m \
		--metrics 127.0.0.1:0 "$@"
	mv "$work/server.log" "$work/$name.log" # the server goes on writing there
	pid_of[$name]=$server_pid port_of[$name]=$server_port
	await grep -q 'http://' "$work/$name.log" || fail "$name has no figures"
	url_of[$name]=$(grep -o 'http://127.0.0.1:[0-9]*' "$work/$name.log" | head -1)
	server_pid=''
}

down() { # NAME
	local status=0
	kill "${pid_of[$1]}" && wait "${pid_of[$1]}" || status=$?
	unset "pid_of[$1]"
	equal "$1: status at the end" $status 0
	! grep -E 'falls? back' "$work/$1.log" || fail "$1 has lost steps"
}

# A link to that server, on the port that it had before, if there was one.
lead() { # NAME FLAG...
	local name=$1
	shift
	for _ in $(seq 200); do
		rm -f "$work/$name.link"
		"$build/gpclient" link --listen "127.0.0.1:${link_of[$name]:-0}" --to "127.0.0.1:${port_of[$name]}" \
			--port-file "$work/$name.link" "$@" >/dev/null 2>"$work/link.log" &
		slow_of[$name]=$!
		await eval "[ -s '$work/$name.link' ] || ! kill -0 ${slow_of[$name]} 2>/dev/null"
		[ -s "$work/$name.link" ] && link_of[$name]=$(cat "$work/$name.link") && return
	done
	echo "no link: $(cat "$work/link.log")"
	exit 1
}

figure() { # NAME PATTERN
	curl -s "${url_of[$1]}/metrics" | awk -v name="$2" '$1 == name { print $2 + 0 }'
}

sessions_at() { # NAME
	figure "$1" 'gpserverd_sessions{state="linked"}'
}

are_even() {
	case "$(sessions_at first) $(sessions_at second)" in
	"3 2" | "2 3") return 0 ;;
	esac
	return 1
}

# Lines of the clients' logs.
told() { # NAME
	cat "$work/$1".[0-9]*.log | grep -c 'this one is to go on at another; reconnecting'
}

all_are_open() {
	[ "$(sessions_at first)" = $clients ] && [ "$(figure first 'gpserverd_sessions_opened_total')" = $clients ]
}

see_each_other() {
	[ "$(figure first gpserverd_servers)" = 2 ] && [ "$(figure second gpserverd_servers)" = 2 ]
}

train_behind_links() { # NAME
	local n
	for ((n = 1; n <= clients; n++)); do
		"$build/gpclient" train --json --server "127.0.0.1:${link_of[first]},127.0.0.1:${link_of[second]}" \
			--checkpoint "$work/$1.$n" --checkpoint-every 20 --reconnect-for 10m "${common[@]}" \
			>"$work/$1.$n.json" 2>"$work/$1.$n.log" &
		trainings+=($!)
	done
}

trainings_end() { # NAME
	local n status
	for ((n = 1; n <= clients; n++)); do
		status=0
		wait "${trainings[n - 1]}" || status=$?
		equal "$1, client $n: status" $status 0
		[ $status -eq 0 ] || tail -3 "$work/$1.$n.log"
		equal "$1, client $n: parameters" "$(json_get "$work/$1.$n.json" param_sha256)" "$want"
	done
	trainings=()
}

go_fast() {
	local name
	for name in first second; do
		kill "${slow_of[$name]}" && wait "${slow_of[$name]}"
		lead $name
	done
}

command -v curl >/dev/null || { echo "skipped: curl is not installed" && exit 77; }
start_server --threads 1
train "$work/whole.json" --server "127.0.0.1:$server_port" "${common[@]}" || fail "undisturbed"
want=$(json_get "$work/whole.json" param_sha256)
stop_server

up first --rebalance 4s
up second --rebalance 4s
lead first --rate 2mbit
lead second --rate 2mbit
train_behind_links even
await eval "are_even || [ -s '$work/even.1.json' ]"
are_even || fail "$(sessions_at first) and $(sessions_at second) sessions: $(tail -5 "$work/first.log")"
[ ! -s "$work/even.1.json" ] || fail "the trainings were over too soon"
moved=$(($(figure first gpserverd_sessions_moved_total) + $(figure second gpserverd_sessions_moved_total)))
[ $moved -ge 2 ] || fail "$moved sessions were sent away"
equal "clients that were told" "$(told even)" $moved
for name in first second; do
	curl -s "${url_of[$name]}/sessions"
done >"$work/events"
equal "events of that" "$(grep -o '"event":"session_moved"' "$work/events" | wc -l)" $moved
grep -E 'is sent to another server at step [0-9]+ .*: there are [2-5] sessions here, and [01] at server [0-9a-f]{16}' \
	"$work/first.log" >/dev/null || fail "the log of the first one: $(grep 'sent to' "$work/first.log")"
go_fast
trainings_end even
for name in first second; do
	kill "${slow_of[$name]}" && wait "${slow_of[$name]}"
	unset "slow_of[$name]"
done
down first
down second

# Switched off: the servers know of each other, and that is all.
rm -rf "$work/state"
up first --rebalance 0
up second --rebalance 0
lead first --rate 2mbit
lead second --rate 2mbit
train_behind_links off
await all_are_open || fail "not all sessions are open: $(sessions_at first)"
await see_each_other || fail "the servers do not see each other: $(figure first gpserverd_servers)"
go_fast
trainings_end off
equal "switched off: sessions that were sent away" "$(figure first gpserverd_sessions_moved_total)" 0
for name in first second; do
	kill "${slow_of[$name]}" && wait "${slow_of[$name]}"
	unset "slow_of[$name]"
done
down first
down second
finish
