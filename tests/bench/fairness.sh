#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What eight sessions get of one server: six alike, one that sends its whole batch
# of 64 as one chunk, and one whose codec takes longer than its share of the
# computing. Prints, for each, the time that it used of the device and in codecs,
# its step time, and that beside eight times the step time of one of its kind
# alone, which is what an eighth of the device would give; then Jain's index,
# (sum of times)^2 / (8 * sum of squares): 1 where all have the same, 1/8 where one
# has all. Ends with status 1 below 0.95, or where a step takes more than 1.3 times
# as long.
#
# Everything on this host, over loopback; the clients, who compute next to nothing,
# run at a low priority, because on a real network each has a machine of its own.
# Two idle processors at least.
#
# Usage: fairness.sh BUILD-FOLDER [SECONDS]
set -eu
build=${1:?usage: $0 BUILD-FOLDER [SECONDS]}
seconds=${2:-60}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
export LC_ALL=C

kinds=(small small small small small small large codec)
small=(--batch 32 --chunks 4 --codec uniform:bits=8)
large=(--batch 64 --chunks 1 --codec uniform:bits=8)
codec=(--batch 32 --chunks 4 --codec uniform:bits=8 --codec-grad-down 'uniform:bits=8+zstd:level=19')

serve() {
	rm -f "$work/port"
	"$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" --threads 1 --client-lines 0 2>"$work/server.log" &
	server=$!
	until [ -s "$work/port" ]; do sleep 0.05; done
	begun=0
}

# Begins training number N of a kind, and waits until it is the server's session of that number.
begin() { # N KIND
	local -n flags=$2
	nice -n 10 "$build/gpclient" train --server "127.0.0.1:$(cat "$work/port")" --model resnet20 --cut 1:-1 --threads 1 \
		--data synthetic:shape=3x32x32,classes=10,samples=512 --no-eval --no-progress --json --steps 100000000 \
		"${flags[@]}" >"$work/$1.json" 2>"$work/$1.log" &
	client[$1]=$!
	begun=$((begun + 1))
	until [ "$(grep -c 'samples a chunk' "$work/server.log")" = $begun ]; do sleep 0.02; done
}

# Ends all at once. A client writes its figures, and the server, by session, its own.
stop_all() {
	kill -TERM "${client[@]}"
	wait "${client[@]}" || true
	kill -TERM "$server"
	wait "$server" || true
}

value() { # KEY FILE
	sed -n "s/^.*\"$1\": *\([0-9.e+-]*\).*/\1/p" "$2" | head -1
}

used() { # SESSION -> "COMPUTING CODECS", in seconds
	sed -n "s/.*session $1 (.*) ended after .*(\([0-9.]*\) s computing, \([0-9.]*\) s in codecs).*/\1 \2/p" "$work/server.log"
}

declare -A alone=()
for kind in small large codec; do
	serve
	client=()
	begin 1 $kind
	sleep $((seconds / 4))
	stop_all
	alone[$kind]=$(value time_per_batch_s "$work/1.json")
	echo "alone, $kind: ${alone[$kind]} s a step; $(used 1 | awk '{ print $1 " s computing, " $2 " s in codecs" }')"
done

serve
client=()
for n in 1 2 3 4 5 6 7 8; do
	begin $n "${kinds[n - 1]}"
done
sleep "$seconds"
stop_all
for n in 1 2 3 4 5 6 7 8; do
	kind=${kinds[n - 1]}
	echo "$kind $(used $n) $(value time_per_batch_s "$work/$n.json") ${alone[$kind]}"
done | awk '
	BEGIN { print "session  computing s  codecs s  together s  s a step  of an eighth" }
	{
		t = $2 + $3; sum += t; squares += t * t; times = $4 / (8 * $5)
		if (times > worst) worst = times
		printf "%-7s  %11.2f  %8.2f  %10.2f  %8.3f  %12.2f\n", $1, $2, $3, t, $4, times
	}
	END {
		jain = sum * sum / (NR * squares)
		printf "Jain'"'"'s index %.4f (at least 0.95); the slowest step takes %.2f of what an eighth gives (at most 1.3)\n", jain, worst
		exit !(NR == 8 && jain >= 0.95 && worst <= 1.3)
	}'
