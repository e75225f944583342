#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# long_link.sh: does the window hide long round trips by itself? Trainings over the link emulator (gpclient link) with
# several round trips, each with the window that --window 0 chooses and with the smallest, four chunks; prints the median
# time per batch beside what no schedule can be faster than,
#     max(a, R) + g + R in the slower direction, downwards with the filling of the pipeline, (a up + computation) / chunks,
#     in place of a; or the computation if that is longer, and beside the bound of the page,
#     1.1 * max(bytes / rate, computation) + filling + 2 R
# (client/README.md, "Long links"; a and g: seconds for activations and gradients at the link's rate, R: the round trip).
# The computation is that of a local run with the same threads. Waits for the link most of the time: a busy machine
# changes the figures where computation is the longer part. Figures: RESULTS.md

set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=/dev/null
. deploy/json.sh

build=build/release rate=100mbit rtts='0 20 100 300' model=mobilenetv2:stem=imagenet shape=3x224x224
batch=16 chunks=8 steps=6 codec=uniform:bits=8 threads=1
failures=0

usage() {
	cat <<-END
	usage: tests/bench/long_link.sh [OPTION]...

	  --build DIR    default $build
	  --rate RATE    each direction, in mbit; default $rate
	  --rtts LIST    round trips in ms; default '$rtts'
	  --model SPEC   default $model
	  --shape CxHxW  of pictures that are made on the fly; default $shape
	  --batch N      default $batch
	  --chunks N     default $chunks
	  --steps N      default $steps
	  --codec SPEC   default $codec
	  --threads N    compute threads of each process; default $threads
	END
}

parse_options() {
	local name
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--build | --rate | --rtts | --model | --shape | --batch | --chunks | --steps | --codec | --threads)
			[ $# -ge 2 ] || { echo "long_link.sh: $1 needs a value" >&2 && exit 2; }
			name=${1#--}
			printf -v "$name" %s "$2"
			shift 2
			;;
		*) echo "long_link.sh: unknown option '$1'; see --help" >&2 && exit 2 ;;
		esac
	done
	[[ $rate =~ ^[0-9.]+mbit$ ]] || { echo "long_link.sh: --rate $rate: give it in mbit, such as 100mbit" >&2 && exit 2; }
}

train() { # FLAG...
	"$build/gpclient" train --model "$model" --data "synthetic:shape=$shape,classes=10" --batch "$batch" --chunks "$chunks" \
		--steps "$steps" --no-eval --threads "$threads" --seed 1 --cut 1:-1 --json "$@" 2>"$work/log" ||
		{ cat "$work/log" >&2 && return 1; }
}

wait_for() { # FILE PID
	until [ -s "$1" ]; do
		kill -0 "$2" 2>/dev/null || { echo "long_link.sh: a program ended early" >&2 && return 1; }
		sleep 0.05
	done
	cat "$1"
}

start_server() {
	"$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/server.port" --threads "$threads" 2>"$work/server.log" &
	server=$!
	server_port=$(wait_for "$work/server.port" $server)
}

start_link() { # RTT-ms
	"$build/gpclient" link --listen 127.0.0.1:0 --to "127.0.0.1:$server_port" --port-file "$work/link.port" --rate "$rate" \
		--delay "$(awk -v r="$1" 'BEGIN { print r / 2 "ms" }')" 2>"$work/link.log" &
	link=$!
	link_port=$(wait_for "$work/link.port" $link)
}

stop_link() {
	kill "$link" && wait "$link" 2>/dev/null
	link=
	rm -f "$work/link.port"
}

clean_up() {
	# shellcheck disable=SC2086
	kill ${link:-} ${server:-} 2>/dev/null
	rm -rf "$work"
}

# "a g" of a way, in seconds
seconds() { # up|down
	awk -v a="$(json_get "$work/auto.json" "act_$1.wire_bytes_per_batch")" \
		-v g="$(json_get "$work/auto.json" "grad_$1.wire_bytes_per_batch")" -v mbit="${rate%mbit}" \
		'BEGIN { print a * 8 / mbit / 1e6, g * 8 / mbit / 1e6 }'
}

row() { # RTT-ms
	awk -v rtt="$1" -v chunks="$chunks" -v up="$(seconds up)" -v down="$(seconds down)" -v compute="$compute" \
		-v auto="$(json_get "$work/auto.json" time_per_batch_s)" -v window="$(json_get "$work/auto.json" window)" \
		-v four="$(json_get "$work/four.json" time_per_batch_s)" '
		function larger(x, y) { return x > y ? x : y }
		function least(ag, part) { split(ag, part, " "); return larger(part[1], r) + part[2] + r }
		function wire(ag, part) { split(ag, part, " "); return part[1] + part[2] }
		BEGIN {
			r = rtt / 1000
			bytes = larger(wire(up), wire(down))
			split(up, part, " ")
			filling = (part[1] + compute) / chunks
			split(down, part, " ")
			fastest = larger(larger(least(up), larger(filling, r) + part[2] + r), compute)
			bound = 1.1 * larger(bytes, compute) + filling + 2 * r
			printf "%6d %9.3f %9.3f %10.3f %9.3f %7d %11.3f %11.3f  %s\n", rtt, bytes, compute, fastest, bound, window, auto, four,
				auto <= bound ? "PASS" : "FAIL"
			exit auto > bound
		}' || failures=$((failures + 1))
}

main() {
	parse_options "$@"
	[ -x "$build/gpclient" ] || { echo "long_link.sh: no $build/gpclient: build the release preset" >&2 && exit 2; }
	work=$(mktemp -d) || exit 1
	trap clean_up EXIT
	trap 'exit 130' INT TERM
	train --local >"$work/local.json" || exit
	compute=$(json_get "$work/local.json" time_per_batch_s)
	start_server || exit
	echo "$model, $shape, batch $batch, $chunks chunks, $codec, $rate, $threads threads each; seconds per batch"
	echo "RTT ms     bytes   compute    fastest     bound  window  --window 0  --window 4"
	for rtt in $rtts; do
		start_link "$rtt" || exit
		train --server "127.0.0.1:$link_port" --codec "$codec" >"$work/auto.json" || exit
		train --server "127.0.0.1:$link_port" --codec "$codec" --window 4 >"$work/four.json" || exit
		stop_link
		row "$rtt"
	done
	[ $failures -eq 0 ]
}

main "$@"
