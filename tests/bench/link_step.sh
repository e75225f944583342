#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# link_step.sh: does a step hide the link behind the computation and the two
# directions behind each other? One training run through a shaped link
# (deploy/link.sh) and one local run for the time of the computation alone;
# prints the median time per batch, the bound
#     1.15 * max(bytes up / rate, bytes down / rate, compute) + one chunk
# with its parts, and compares the byte counts of gpclient, TCP_INFO and the
# interfaces. With --freeze head no gradient comes down, and the next step's
# activations follow without a pause: then the bound is 1.04 times what the
# interface needs for the bytes that go up, packet headers included. With
# --pytorch the same split is trained over the same link by PyTorch and gloo
# (torch_pipeline.py), too. Needs root and a quiet machine. Figures: RESULTS.md

set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
. deploy/json.sh

build=build/release rate=100mbit model=mobilenetv2:stem=imagenet shape=3x224x224 data='' tokenizer='' cut=1:-1
batch=64 chunks=8 steps=6 codec=raw threads=1 port=4400 freeze='' pytorch=''
lr=0.01 momentum=0.9 insert='' insert_up='' insert_down=''
failures=0

usage() {
	cat <<-END
	usage: tests/bench/link_step.sh [OPTION]...    (as root; release preset built)

	  --build DIR    default $build
	  --rate RATE    default $rate, each direction
	  --model SPEC   default $model
	  --shape CxHxW  of pictures that are made on the fly; default $shape
	  --data SPEC    other data, for example synthetic:tokens=128,vocab=50265 for a model of texts
	  --tokenizer DIR  for data that needs one
	  --cut H:T      default $cut
	  --batch N      default $batch
	  --chunks N     default $chunks
	  --steps N      default $steps
	  --codec SPEC   default $codec
	  --insert SPEC  trainable layers at both cuts, or --insert-up SPEC and --insert-down SPEC; default none
	  --lr X         default $lr
	  --momentum X   default $momentum
	  --freeze LIST  parameters that are not trained, for example head; default none
	  --pytorch      also times PyTorch's pipeline over the link: mobilenetv2 at the cut 1:-1 in fp32, whatever
	                 the model, codec and freezing of ours (Debian: python3-torchvision, libopenblas0-pthread)
	  --threads N    compute threads of each process and of the local run; default $threads
	END
}

parse_options() {
	local name
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--pytorch) pytorch=1 && shift ;;
		--build | --rate | --model | --shape | --data | --tokenizer | --cut | --batch | --chunks | --steps | --codec | \
			--threads | --freeze | --lr | --momentum | --insert | --insert-up | --insert-down)
			[ $# -ge 2 ] || { echo "link_step.sh: $1 needs a value" >&2 && exit 2; }
			name=${1#--}
			printf -v "${name//-/_}" %s "$2"
			shift 2
			;;
		*) echo "link_step.sh: unknown option '$1'; see --help" >&2 && exit 2 ;;
		esac
	done
}

train() { # FLAG...
	"$build/gpclient" train --model "$model" --data "$data" ${tokenizer:+--tokenizer "$tokenizer"} --batch "$batch" \
		--chunks "$chunks" --steps "$steps" --no-eval --lr "$lr" --momentum "$momentum" --threads "$threads" --seed 1 \
		${freeze:+--freeze "$freeze"} ${insert:+--insert "$insert"} ${insert_up:+--insert-up "$insert_up"} \
		${insert_down:+--insert-down "$insert_down"} --cut "$cut" --json "$@"
}

run_split() {
	export -f train
	export build model data tokenizer cut batch chunks steps codec threads port freeze lr momentum insert insert_up insert_down
	# shellcheck disable=SC2016 # expands at the client's end
	deploy/link.sh --shaper tbf --rate "$rate" --wait-port $port --json "$work/link.json" -- \
		"$build/gpserverd" --listen 10.77.0.1:$port --insecure --threads "$threads" -- \
		bash -c 'train --server "$GP_SERVER_ADDR:$port" --codec "$codec"' >"$work/split.json"
}

run_pytorch() {
	local flags=(--shape "$shape" --batch "$batch" --chunks "$chunks" --steps "$steps" --threads "$threads")
	local script=("${PYTHON:-/usr/bin/python3}" tests/bench/torch_pipeline.py)
	deploy/link.sh --shaper tbf --rate "$rate" --wait-port $((port + 1)) -- \
		"${script[@]}" server 10.77.0.1:$((port + 1)) "${flags[@]}" -- \
		"${script[@]}" client 10.77.0.1:$((port + 1)) "${flags[@]}" >"$work/pytorch.json" 2>"$work/pytorch.log" ||
		{ cat "$work/pytorch.log" >&2 && return 1; }
}

split() { json_get "$work/split.json" "$1"; }
link() { json_get "$work/link.json" "$1"; }

# Frames of training steps, with their headers; parameters cross the link, too, but not in a step.
step_bytes() { # up|down
	awk -v act="$(split "act_$1.wire_bytes_per_batch")" -v grad="$(split "grad_$1.wire_bytes_per_batch")" \
		'BEGIN { printf "%.0f\n", act + grad }'
}

verdict() { # TEXT CONDITION-OF-AWK NAME=NUMBER...
	local text=$1 condition=$2 args=()
	shift 2
	while [ $# -gt 0 ]; do
		args+=(-v "$1")
		shift
	done
	if awk "${args[@]}" "BEGIN { exit !($condition) }"; then
		echo "PASS  $text"
	else
		echo "FAIL  $text"
		failures=$((failures + 1))
	fi
}

compare_time() {
	local up down bps time compute bound
	up=$(step_bytes up) down=$(step_bytes down) bps=$(link up_bps)
	time=$(split time_per_batch_s) compute=$(json_get "$work/local.json" time_per_batch_s)
	bound=$(awk -v up="$up" -v down="$down" -v bps="$bps" -v compute="$compute" -v chunks="$chunks" 'BEGIN {
		up_s = up * 8 / bps; down_s = down * 8 / bps
		longest = up_s > down_s ? up_s : down_s
		chunk = longest / chunks
		if (compute > longest) longest = compute
		printf "wire up     %12d bytes per batch  %7.3f s at %g Mbit/s\n", up, up_s, bps / 1e6 >"/dev/stderr"
		printf "wire down   %12d bytes per batch  %7.3f s\n", down, down_s >"/dev/stderr"
		printf "compute     (local run, %s)  %7.3f s\n", "same threads", compute >"/dev/stderr"
		printf "one chunk   (its longer transfer)     %7.3f s\n", chunk >"/dev/stderr"
		printf "%.4f\n", 1.15 * longest + chunk
	}')
	verdict "time per batch $time s, bound $bound s" "time > 0 && time <= bound" "time=$time" "bound=$bound"
}

# Every packet has so many header bytes; the interface counts them all. Acknowledgements of what comes down travel up, too.
compare_frozen() {
	local time needed
	time=$(split time_per_batch_s)
	needed=$(awk -v up="$(step_bytes up)" -v all="$(link client_tx)" -v wire="$(split wire_up_bytes)" -v bps="$(link up_bps)" \
		'BEGIN { printf "%.4f\n", up * (all / wire) * 8 / bps }')
	verdict "time per batch $time s, TCP needs $needed s for the bytes up" "time > 0 && time <= 1.04 * needed" \
		"time=$time" "needed=$needed"
	verdict "no gradient comes down" "bytes == 0" "bytes=$(split grad_down.payload_bytes)"
}

# SYN and FIN carry no payload; SYNs have 8 more bytes of options than other packets.
compare_bytes() { # up|down tx|rx
	local wire tcp veth
	wire=$(split "wire_$1_bytes") tcp=$(split "tcp_$1_bytes")
	veth=$(($(link "client_$2") - $(link header_bytes) * $(link "client_$2_packets") - 8))
	verdict "$1: ours $wire, TCP_INFO $tcp, interface less headers $veth (within 0.5 %)" \
		"ours > 0 && (tcp - ours)^2 <= (0.005 * ours)^2 && (veth - ours)^2 <= (0.005 * ours)^2" \
		"ours=$wire" "tcp=$tcp" "veth=$veth"
}

main() {
	parse_options "$@"
	data=${data:-synthetic:shape=$shape,classes=10}
	[ -x "$build/gpclient" ] || { echo "link_step.sh: no $build/gpclient: build the release preset" >&2 && exit 2; }
	work=$(mktemp -d) || exit 1
	trap 'rm -rf "$work"' EXIT
	train --local >"$work/local.json" || exit
	run_split || exit
	echo "$model, $data, batch $batch, $chunks chunks, cut $cut, $codec, $threads threads each${freeze:+, frozen: $freeze}"
	if [ -n "$freeze" ]; then compare_frozen; else compare_time; fi
	compare_bytes up tx
	compare_bytes down rx
	if [ -n "$pytorch" ]; then
		run_pytorch || exit
		awk -v theirs="$(json_get "$work/pytorch.json" time_per_batch_s)" -v ours="$(split time_per_batch_s)" 'BEGIN {
			printf "PyTorch'"'"'s pipeline, fp32, same link: %.3f s per batch, %.2f times ours\n", theirs, theirs / ours }'
	fi
	echo "drops: $(link up_drops) up, $(link down_drops) down"
	[ $failures -eq 0 ]
}

main "$@"
