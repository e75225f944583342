#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What 1000 slow connections (a byte a second each), 10000 connections of garbage,
# and admitted clients that mean harm (tests/tools/attacker.c) cost a client that
# trains meanwhile: steps per second with and without them, by turns. Everything on
# this host, over loopback; the hostile side runs at the lowest priority, because on
# a real network it has a machine of its own. Beside each run stands what the
# server's threads took of a processor meanwhile. Ends with status 1 where a kind
# leaves the client less than 80 %.
#
# Usage: hostile.sh BUILD-FOLDER [SECONDS-PER-RUN [KIND...]]
set -eu
build=${1:?usage: $0 BUILD-FOLDER [SECONDS]}
seconds=${2:-8}
kinds=(slow garbage infinite codecs pools graphs wrong)
[ $# -le 2 ] || kinds=("${@:3}")
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
ulimit -n "$(ulimit -Hn)"

"$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" --threads 1 \
	--resume-window 0s 2>"$work/server.log" &
server=$!
until [ -s "$work/port" ]; do sleep 0.05; done
port=$(cat "$work/port")

train() { # STEPS
	"$build/gpclient" train --server "127.0.0.1:$port" --model mobilenetv2:width=0.5,stem=cifar --batch 32 --chunks 4 \
		--data synthetic:shape=3x32x32,classes=10,samples=512 --threads 1 --no-eval --no-progress --json --steps "$1"
}
value() { # KEY, JSON on standard input
	sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" | head -1
}
rate() { # steps per second of the median step
	awk -v s="$(train "$steps" 2>/dev/null | value time_per_batch_s)" 'BEGIN { printf "%.3f", 1 / s }'
}
resident() { # KiB of the server
	sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$server/status"
}

threads() { # NAME -> hundredths of seconds of a processor, of each thread of that name
	for t in /proc/"$server"/task/*; do
		echo "$(cat "$t/comm") $(cut -d' ' -f14,15 "$t/stat")"
	done | awk '{ sum[$1] += $2 + $3 } END { for (n in sum) print n, sum[n] }' | sort
}
shares() { # BEFORE AFTER SECONDS
	join "$1" "$2" | awk -v s="$3" '{ printf "%s%s %.0f %%", (NR > 1 ? ", " : ""), $1, ($3 - $2) / s }'
}

steps=20
steps=$(awk -v r="$(rate)" -v s="$seconds" 'BEGIN { printf "%d", r * s }')
declare -A sum=()
for round in 1 2; do
	for kind in none "${kinds[@]}"; do
		case $kind in
		none) ;;
		slow) nice -n 19 "$build/tests/hostile" "$port" slow 1000 "$((seconds + 2))" >"$work/$kind" & ;;
		garbage) nice -n 19 "$build/tests/hostile" "$port" garbage 10000 "$((seconds + 1))" >"$work/$kind" & ;;
		*) nice -n 19 "$build/tests/attacker" "$port" "$kind" 0 >"$work/$kind" & ;;
		esac
		hostile=$!
		[ $kind = none ] || sleep 1
		threads >"$work/before"
		begin=$(date +%s.%N)
		r=$(rate)
		took=$(awk -v a="$(date +%s.%N)" -v b="$begin" 'BEGIN { print a - b }')
		threads >"$work/after"
		echo "round $round, $kind: $r steps/s; server $(resident) KiB; $(shares "$work/before" "$work/after" "$took")"
		sum[$kind]=$(awk -v a="${sum[$kind]:-0}" -v b="$r" 'BEGIN { print a + b }')
		case $kind in
		none) continue ;;
		slow | garbage) ;;
		*) kill -TERM $hostile ;;
		esac
		wait $hostile && cat "$work/$kind"
	done
done
for kind in "${kinds[@]}"; do
	awk -v a="${sum[$kind]}" -v b="${sum[none]}" -v k="$kind" \
		'BEGIN { printf "%s: %.1f %% of the speed\n", k, 100 * a / b; exit (a < 0.8 * b) }' || slow=1
done
exit ${slow:-0}
