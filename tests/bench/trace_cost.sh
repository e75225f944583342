#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# trace_cost.sh: what --trace and --log-json take of a step. The same training over loopback with both and with neither,
# by turns in ROUNDS rounds; prints each round's time per batch and processor time per step of gpclient, and the ratio of
# the sums. Wanted: below 1 %. The network is small and the chunks are many, so that there is much to be noted in little
# time. Wants a quiet machine: one round alone differs from the next by more than what is looked for. Figures: RESULTS.md

set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=/dev/null
. deploy/json.sh

build=build/release rounds=6 model=mobilenetv2:width=0.5,stem=cifar shape=3x32x32 batch=64 chunks=8 steps=60 threads=1
codec=uniform:bits=8

usage() {
	cat <<-END
	usage: tests/bench/trace_cost.sh [OPTION]...

	  --build DIR    default $build
	  --rounds N     default $rounds
	  --model SPEC   default $model
	  --shape CxHxW  of pictures that are made on the fly; default $shape
	  --batch N      default $batch
	  --chunks N     default $chunks
	  --steps N      of each training; default $steps
	  --codec SPEC   default $codec
	  --threads N    compute threads of each process; default $threads
	END
}

parse_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--build | --rounds | --model | --shape | --batch | --chunks | --steps | --codec | --threads)
			[ $# -ge 2 ] || { echo "trace_cost.sh: $1 needs a value" >&2 && exit 2; }
			printf -v "${1#--}" %s "$2"
			shift 2
			;;
		*) echo "trace_cost.sh: unknown option '$1'; see --help" >&2 && exit 2 ;;
		esac
	done
}

# "seconds per batch, seconds of a processor per step"
train() { # FLAG...
	local TIMEFORMAT='%U %S' used
	used=$({ time "$build/gpclient" train --server "127.0.0.1:$port" --model "$model" \
		--data "synthetic:shape=$shape,classes=10" --batch "$batch" --chunks "$chunks" --steps "$steps" --no-eval \
		--threads "$threads" --seed 1 --cut 1:-1 --codec "$codec" --json "$@" >"$work/json" 2>"$work/log"; } 2>&1) ||
		{ cat "$work/log" >&2 && return 1; }
	awk -v time="$(json_get "$work/json" time_per_batch_s)" -v steps="$steps" '{ print time, ($1 + $2) / steps }' <<<"$used"
}

clean_up() {
	kill ${server:-} 2>/dev/null
	rm -rf "$work"
}

main() {
	local round with without
	parse_options "$@"
	[ -x "$build/gpclient" ] || { echo "trace_cost.sh: no $build/gpclient: build the release preset" >&2 && exit 2; }
	work=$(mktemp -d) || exit 1
	trap clean_up EXIT
	trap 'exit 130' INT TERM
	"$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" --threads "$threads" 2>"$work/server.log" &
	server=$!
	until [ -s "$work/port" ]; do
		kill -0 $server || exit 1
		sleep 0.05
	done
	port=$(cat "$work/port")
	echo "time per batch and processor time per step, seconds: with --trace and --log-json; with neither"
	for round in $(seq "$rounds"); do
		rm -f "$work/trace.json" "$work/log.jsonl"
		with=$(train --trace "$work/trace.json" --log-json "$work/log.jsonl") || exit
		without=$(train) || exit
		echo "round $round: $with; $without" | tee -a "$work/rounds"
	done
	awk -F '[:;]' '{ split($2, a, " "); split($3, b, " "); wall += a[1]; wall0 += b[1]; cpu += a[2]; cpu0 += b[2] }
		END { printf "time per batch %+.2f %%; processor time %+.2f %%, which is %+.2f %% of the time per batch\n",
			100 * (wall / wall0 - 1), 100 * (cpu / cpu0 - 1), 100 * (cpu - cpu0) / wall0 }' \
		"$work/rounds"
}

main "$@"
