#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Exactly-once steps under fire: short trainings over a link that is cut at
# random bytes, and with client, server or both killed (SIGKILL) at random bytes
# and moments and started again; one in three of those servers is told to stop
# (SIGTERM) instead. Every run has to end with the parameters of an
# undisturbed one, whoever was not killed has to live on in good order, and a
# server that was told to stop has to end with status 0 and to lose nothing.
#
#   tests/fault/chaos.sh BUILD-FOLDER [--cuts N] [--kills N] [--stops N] [--seed S] [--codec SPEC]
#       [--steps N] [--flags '--optimizer adam ...']
#
# Goes on until so many cuts, kills and stops have happened; with --stops 0
# every server is killed, and none stopped.
# Run number i has the seed S + i; what is drawn in a run depends on its seed
# alone, and a failed one is told with the command that repeats it. Campaigns:
# README.md in this folder.

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
shift
cuts=6 kills=3 stops=2 seed=1 steps=12 flags=''
# shellcheck disable=SC2054 # commas belong to codecs
codecs=(raw poweriter:rank=4,iters=1 ef+topk:ratio=0.1 ef+uniform:bits=4)

while [ $# -gt 0 ]; do
	case $1 in
	--cuts) cuts=$2 ;;
	--kills) kills=$2 ;;
	--stops) stops=$2 ;;
	--seed) seed=$2 ;;
	--steps) steps=$2 ;;
	--codec) codecs=("$2") ;;
	--flags) flags=$2 ;; # further ones of gpclient train
	*) echo "chaos.sh: unknown flag $1" >&2 && exit 2 ;;
	esac
	shift 2
done

server_flags=(--threads 1 --idle-timeout 2s --resume-window 60s)
link_pid='' link_port='' client_pid='' client_status=0 stop_trouble=''
declare -A want_sha up_bytes down_bytes seconds # by codec

stop_all() {
	[ -n "$client_pid$link_pid" ] && kill -KILL ${client_pid:+"$client_pid"} ${link_pid:+"$link_pid"} 2>/dev/null
	cleanup
}
trap stop_all EXIT

draw() { # N: sets drawn to 0..N-1; not in a subshell, which would not advance RANDOM
	drawn=$(((RANDOM << 15 | RANDOM) % $1))
}

wait_for_port() { # FILE PID
	for _ in $(seq 2400); do
		[ -s "$1" ] && return 0
		kill -0 "$2" 2>/dev/null || return 1
		sleep 0.025
	done
	return 1
}

# On the port it had before, if there was one: clients look for it there.
serve() { # FLAG...
	rm -f "$work/port"
	"$build/gpserverd" --listen "127.0.0.1:${server_port:-0}" --port-file "$work/port" "${server_flags[@]}" "$@" \
		2>>"$work/server.log" &
	server_pid=$!
	wait_for_port "$work/port" $server_pid || {
		echo "gpserverd did not start:" && tail -5 "$work/server.log"
		exit 1
	}
	server_port=$(cat "$work/port")
}

start_link() { # FLAG...
	rm -f "$work/link.port"
	"$build/gpclient" link --listen 127.0.0.1:0 --to "127.0.0.1:$server_port" --port-file "$work/link.port" --json \
		"$@" >"$work/link.json" 2>"$work/link.log" &
	link_pid=$!
	wait_for_port "$work/link.port" $link_pid || {
		echo "gpclient link did not start:" && cat "$work/link.log"
		exit 1
	}
	link_port=$(cat "$work/link.port")
}

stop_link() {
	kill "$link_pid"
	wait "$link_pid" || fail "gpclient link ended with status $?"
	link_pid=''
}

training=(--model cnn --cut 1:2 --data synthetic:shape=3x32x32,classes=10,samples=256 --batch 32 --chunks 4 --lr 0.05 --seed 3
	--threads 1 --steps "$steps" --no-progress --json --idle-timeout 1s)
# shellcheck disable=SC2206 # words
training+=($flags)

begin_client() { # PORT FLAG...
	local port=$1
	shift
	"$build/gpclient" train --server "127.0.0.1:$port" "${training[@]}" "$@" \
		>"$work/client.json" 2>>"$work/client.log" &
	client_pid=$!
}

# Waits for it, but not for ever; a hang is a status of 137.
end_client() {
	client_status=0
	for _ in $(seq 6000); do
		kill -0 "$client_pid" 2>/dev/null || break
		sleep 0.05
	done
	kill -KILL "$client_pid" 2>/dev/null && echo "gpclient hangs" >>"$work/client.log"
	wait "$client_pid" 2>/dev/null || client_status=$?
	client_pid=''
}

measure() { # CODEC: an undisturbed run
	[ -n "${want_sha[$1]:-}" ] && return
	begin_client "$server_port" --codec "$1"
	end_client
	[ $client_status -eq 0 ] || {
		echo "the undisturbed run with $1 ended with status $client_status:" && cat "$work/client.log"
		exit 1
	}
	want_sha[$1]=$(json_get "$work/client.json" param_sha256)
	up_bytes[$1]=$(json_get "$work/client.json" wire_up_bytes)
	down_bytes[$1]=$(json_get "$work/client.json" wire_down_bytes)
	seconds[$1]=$(json_get "$work/client.json" seconds)
	echo "undisturbed, $1: ${up_bytes[$1]} bytes up, ${down_bytes[$1]} down, ${seconds[$1]} s, ${want_sha[$1]}"
}

check_run() { # WHAT CODEC REPEAT-COMMAND
	local sha='' bad=''
	[ $client_status -eq 0 ] && sha=$(json_get "$work/client.json" param_sha256)
	[ $client_status -eq 0 ] || bad="the client ended with status $client_status: $(tail -2 "$work/client.log")"
	[ -n "$bad" ] || [ "$sha" = "${want_sha[$2]}" ] || bad="parameters $sha instead of ${want_sha[$2]}"
	kill -0 "$server_pid" 2>/dev/null || bad="$bad; gpserverd is gone: $(tail -3 "$work/server.log")"
	bad=$bad$stop_trouble
	stop_trouble=''
	grep -qE 'Sanitizer|runtime error|failed at .*:[0-9]+' "$work/client.log" "$work/server.log" &&
		bad="$bad; $(grep -hE -A3 'Sanitizer|runtime error|failed at .*:[0-9]+' "$work/client.log" "$work/server.log" | head -8)"
	if [ -n "$bad" ]; then
		fail "$1: $bad"
		echo "    again: tests/fault/chaos.sh BUILD $3 --codec $2 --steps $steps${flags:+ --flags '$flags'}"
		: >"$work/server.log"
	else
		echo "ok: $1"
	fi
	: >"$work/client.log"
}

# One training over a link that is cut again and again, mostly by a reset, at distances from a few hundred bytes to more
# than all that is sent.
cut_run() { # SEED
	RANDOM=$1
	local codec=${codecs[$(($1 % ${#codecs[@]}))]} mode=reset mean times
	measure "$codec"
	draw 8
	[ $drawn -eq 0 ] && mode=half
	[ $drawn -eq 1 ] || [ $drawn -eq 2 ] && mode=fin
	draw 6
	mean=$(((up_bytes[$codec] + down_bytes[$codec]) / 2 / (drawn + 1)))
	times=12
	draw 6 # in the handshake, in OPEN, in the first frames: those cuts cost back-off, so they are few
	[ $drawn -eq 0 ] && mean=4000 times=4
	[ $mode = half ] && times=3
	start_link --drop-every $mean --drop-mode $mode --times $times --seed "$1"
	begin_client "$link_port" --codec "$codec" --reconnect-for 60s
	end_client
	stop_link
	local drops
	drops=$(json_get "$work/link.json" drops)
	cuts_done=$((cuts_done + drops))
	check_run "seed $1: $drops cuts ($mode, every $mean bytes), $codec" "$codec" "--cuts 1 --kills 0 --seed $1"
}

# Returns when the line is there or the client has ended.
await_line() { # PATTERN FILE
	for _ in $(seq 2000); do
		grep -q "$1" "$2" && return 0
		kill -0 "$client_pid" 2>/dev/null || return 1
		sleep 0.01
	done
	return 1
}

kill_process() { # PID
	kill -KILL "$1" 2>/dev/null || return 1
	wait "$1" 2>/dev/null
	kills_done=$((kills_done + 1))
}

# SIGTERM: nothing may be lost by it.
stop_process() { # PID
	local status=0
	kill "$1" 2>/dev/null || return 1
	wait "$1" || status=$?
	stops_done=$((stops_done + 1))
	[ $status -eq 0 ] || stop_trouble="$stop_trouble; a server that was told to stop ended with status $status"
	! grep -qE 'falls? back' "$work/server.log" || stop_trouble="$stop_trouble; $(grep -hE 'falls? back' "$work/server.log")"
}

begin_killable_client() { # CODEC FLAG...
	local codec=$1
	shift
	begin_client "$link_port" --codec "$codec" --reconnect-for 60s --checkpoint "$work/client.d" --checkpoint-every 4 "$@"
}

restart_server() {
	serve --state-dir "$work/server.d"
}

# Ends client (0), server (1) or both (2 and 3) and starts them again, with 3 the client first: it waits for the server.
end_and_restart() { # WHOM HOW CODEC; HOW the server ends: kill_process, stop_process
	if [ "$1" -ne 0 ]; then
		"$2" "$server_pid"
		server_pid=''
	fi
	[ "$1" -eq 1 ] || kill_process "$client_pid"
	[ "$1" -eq 1 ] || [ "$1" -eq 2 ] && restart_server
	[ "$1" -eq 1 ] || begin_killable_client "$3" --resume=if-any
	[ "$1" -ne 3 ] || restart_server
}

name_victim() { # WHOM HOW
	local name
	name=$(echo client server both both | cut -d' ' -f$(($1 + 1)))
	[ "$2" = kill_process ] && echo "$name" || echo "$name (the server by SIGTERM)"
}

# One training with checkpoints on both sides. Even seeds: killed at a byte (the link falls silent there, and the victim
# dies in that silence); odd ones: up to three times at any moment.
kill_run() { # SEED
	RANDOM=$1
	local codec=${codecs[$(($1 / 2 % ${#codecs[@]}))]} whom how victim direction=up at rounds=1 text=''
	local kills_before=$kills_done stops_before=$stops_done
	measure "$codec"
	stop_server
	rm -rf "$work/client.d" "$work/server.d"
	serve --state-dir "$work/server.d"
	draw 2
	[ $drawn -eq 0 ] && direction=down
	draw "$([ $direction = up ] && echo "${up_bytes[$codec]}" || echo "${down_bytes[$codec]}")"
	at=$drawn
	if [ $(($1 % 2)) -eq 0 ]; then
		start_link --stall-after $at --stall 300ms --direction $direction --times 1
	else
		start_link
		draw 3
		rounds=$((drawn + 1))
	fi
	begin_killable_client "$codec" --log session=info
	[ $(($1 % 2)) -eq 0 ] || await_line 'session [0-9]* with' "$work/client.log"
	for _ in $(seq $rounds); do
		draw 4
		whom=$drawn how=kill_process
		draw 3
		[ $drawn -eq 0 ] && [ "$stops" -gt 0 ] && [ $whom -ne 0 ] && how=stop_process
		victim=$(name_victim $whom $how)
		draw 1000
		if [ $(($1 % 2)) -eq 0 ]; then
			await_line 'silent after' "$work/link.log" || break
			text="$text, $victim at byte $at $direction"
		else
			at=$(awk -v t="${seconds[$codec]}" -v u=$drawn 'BEGIN { printf "%.3f", (t + 0.3) * u / 1000 }')
			sleep "$at"
			kill -0 "$client_pid" 2>/dev/null || break
			text="$text, $victim after $at s"
		fi
		end_and_restart $whom $how "$codec"
	done
	end_client
	stop_link
	check_run "seed $1: $((kills_done - kills_before)) kills, $((stops_done - stops_before)) stops${text:-, none in time}, $codec" \
		"$codec" "--cuts 0 --kills 1 --stops $((stops > 0)) --seed $1"
}

cuts_done=0 kills_done=0 stops_done=0 runs=0
serve
for ((run = seed; cuts_done < cuts; run++)); do
	cut_run $run
	runs=$((runs + 1))
done
for ((run = seed; kills_done < kills || stops_done < stops; run++)); do
	kill_run $run
	runs=$((runs + 1))
done
echo "$runs runs, $cuts_done cuts, $kills_done kills, $stops_done stops"
stop_server
finish
