#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# split_gpu.sh: the whole split step on one host: gpserverd on its GPU, gpclient
# on its processors, between them a shaped link ("gpclient link", which needs no
# privileges), with several codecs and with conv insertions. MobileNetV2 at 224x224,
# batch 64 in 8 chunks, first block and classifier with the pooling before it on the
# client, as the origin had it between two machines. Prints a line per method.
# tests/gpu.sh runs it; figures: GPU.md

set -u -o pipefail
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
# shellcheck disable=SC1091
. "$root/deploy/json.sh"

bin=$root/build/release device=cuda rate=1gbit batch=64 chunks=8 steps=12 size=224 threads=$(nproc) precision=fp32
model=mobilenetv2:cuts=fine server_pid='' link_pid='' train_pid='' work='' failures=0
methods=(raw uniform:bits=8 "sortquant:bits=6,split=2" insert=flop-2 insert=rate-070)

usage() {
	cat <<-END
	usage: tests/bench/split_gpu.sh [OPTION]... [METHOD]...

	  --bin DIR          gpserverd and gpclient; default build/release
	  --device D         of the server; default $device
	  --rate RATE        of the link, each direction; default $rate
	  --threads N        compute threads of the client; default $threads, one per processor
	  --precision P      fp32, bf16 or tf32, of the server's part; the client's where it can; default $precision
	  --steps N          default $steps
	  --small            pictures of 32x32, batch 4 in 2 chunks, 2 steps: to try the script
	  -h, --help         this text

	A method is a codec, the same in all four places, or insert=SPEC, an insertion at both cuts; default:
	${methods[*]}.
	Exit status: 1 when a training failed.
	END
}

parse_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--small) size=32 batch=4 chunks=2 steps=2 threads=1 model=mobilenetv2:width=0.25,cuts=fine ;;
		--bin | --device | --rate | --threads | --precision | --steps)
			[ $# -ge 2 ] || { echo "split_gpu.sh: $1 needs a value" >&2 && exit 2; }
			printf -v "${1#--}" %s "$2"
			shift
			;;
		-*) echo "split_gpu.sh: unknown option '$1'; see --help" >&2 && exit 2 ;;
		*) methods=("$@") && return ;;
		esac
		shift
	done
}

# shellcheck disable=SC2317 # run by the trap
clean_up() {
	stop "$train_pid"
	stop "$link_pid"
	stop "$server_pid"
	rm -rf "$work"
}

stop() { # PID
	[ -n "$1" ] && kill "$1" 2>/dev/null && wait "$1" 2>/dev/null
}

wait_for_port() { # FILE PID
	for _ in $(seq 600); do
		[ ! -s "$1" ] || return 0
		kill -0 "$2" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

start_server() {
	"$bin/gpserverd" --listen 127.0.0.1:0 --port-file "$work/server" --device "$device" 2>"$work/server.log" &
	server_pid=$!
	wait_for_port "$work/server" $server_pid || { cat "$work/server.log" >&2 && exit 1; }
}

start_link() {
	"$bin/gpclient" link --listen 127.0.0.1:0 --port-file "$work/link" --to "127.0.0.1:$(cat "$work/server")" \
		--rate "$rate" >/dev/null 2>"$work/link.log" &
	link_pid=$!
	wait_for_port "$work/link" $link_pid || { cat "$work/link.log" >&2 && exit 1; }
}

# Sum of a figure of the closing JSON over activations and gradients.
sum() { # up|down
	awk -v a="$(json_get "$work/train.json" "act_$1.wire_bytes_per_batch")" \
		-v b="$(json_get "$work/train.json" "grad_$1.wire_bytes_per_batch")" 'BEGIN { printf "%.0f\n", a + b }'
}

print_line() { # METHOD
	awk -v codec="$1" -v t="$(json_get "$work/train.json" time_per_batch_s)" -v up="$(sum up)" -v down="$(sum down)" \
		-v raw="$raw_time" 'BEGIN {
			printf "%-28s %8.3f %9.2f %9.2f %8.0f %8.0f", codec, t, up / 1e6, down / 1e6, up * 8 / t / 1e6, down * 8 / t / 1e6
			printf raw == "" ? "\n" : " %7.2f\n", raw / t }'
}

run_method() { # METHOD
	local flags=(--codec "$1")
	[[ $1 != insert=* ]] || flags=(--insert "${1#insert=}")
	timeout -k 10 300 "$bin/gpclient" train --server "127.0.0.1:$(cat "$work/link")" --model "$model" --cut 1:-2 --batch "$batch" \
		--data "synthetic:shape=3x${size}x$size,classes=10" --chunks "$chunks" --steps "$steps" --no-eval --lr 0.01 \
		--seed 1 --threads "$threads" --precision "$precision" "${flags[@]}" --json --no-progress \
		>"$work/train.json" 2>"$work/train.log" &
	train_pid=$!
	if ! wait $train_pid; then # in the background, so that a signal ends this script at once
		echo "$1: FAILED" && tail -qn 5 "$work/train.log" "$work/server.log"
		failures=$((failures + 1))
		return
	fi
	print_line "$1"
	client_precision=$(json_get "$work/train.json" client_precision)
	[ "$1" != raw ] || raw_time=$(json_get "$work/train.json" time_per_batch_s)
}

main() {
	local method raw_time='' client_precision=''
	parse_options "$@"
	work=$(mktemp -d) || exit 1
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	start_server
	start_link
	echo "$model, pictures of ${size}x$size, batch $batch in $chunks chunks, $precision, $rate each way, median of $steps steps"
	echo "server on $device, client on $threads threads of the same host"
	printf '%-28s %8s %9s %9s %8s %8s %7s\n' "method" "s/batch" "MB up" "MB down" "Mbit/s" "down" "raw/it"
	for method in "${methods[@]}"; do
		run_method "$method"
	done
	[ -z "$client_precision" ] || echo "(head and tail in $client_precision)"
	if [ "$size" = 224 ]; then
		printf '%-28s %8s\n' "origin, uncompressed" 2.07 "origin, 8 bit" 0.62 "origin, flop-2" 0.38 "origin, rate-070" 0.37
		echo "(origin: its own code, the same model and batch, a GTX 1080 and 40 processors)"
	fi
	[ $failures -eq 0 ]
}

main "$@"
