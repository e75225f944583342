#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# codecs_train.sh BUILD-FOLDER RESULTS [SEEDS]: the small CNN learns Fashion-MNIST through
# gpserverd over loopback with every codec of the table (common/CODECS.md); prints
# accuracy, bits per element and bytes. Wanted: each within 2 points of raw at its 8-bit-class
# setting; lossless ones end in raw's parameters. Takes 10 s a run. What RESULTS (a folder)
# holds already is not run again. WRAP=COMMAND is put before every training.
# Figures: RESULTS.md

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
results=${2:?folder for results} seeds=${3:-1 2}
mkdir -p "$results"

# Both cuts are feature maps (32x14x14 up, 64x7x7 down), so that downsample and poweriter can code all four directions.
# A part of the images, without augmentation: each is seen three times, which delta needs.
run=(--model cnn --cut 1:-2 --threads 1 --data fashion-mnist:limit=12800 --no-augment --batch 64 --chunks 4 --steps 600
	--lr 0.05)

# codec | what is asked of it | activations up | activations down | gradients; "." is what stands before it.
# Asked: 2 = within 2 points of raw (8-bit class), 0 = raw's parameters to the last bit, - = nothing, shown for comparison.
# Where a codec is for gradients only, activations travel as uniform:bits=8.
rows='
raw|0|raw|.|.
fp16|2|fp16|.|.
bf16|2|bf16|.|.
uniform|2|uniform:bits=8|.|.
uniform, 4 bits|-|uniform:bits=4|.|.
sortquant|2|sortquant:bits=6,split=2|.|.
sortquant, sampled|2|sortquant:bits=6,split=2,sample=4096|.|.
fp8|2|fp8:format=e4m3|.|fp8:format=e5m2
fp8, e4m3 for gradients|-|fp8:format=e4m3|.|.
fp8, s2fp8|2|fp8:format=e4m3|.|s2fp8
s2fp8|2|s2fp8|.|.
smaq|2|smaq:main=6,outlier=8|.|.
qsgd|2|qsgd:bits=8|.|.
qsgd, gradients|2|uniform:bits=8|.|qsgd:bits=8
qsgdinf|2|qsgdinf:bits=8|.|.
qsgdinf, gradients|2|uniform:bits=8|.|qsgdinf:bits=8
nuqsgd|2|nuqsgd:bits=8|.|.
nuqsgd, gradients|2|uniform:bits=8|.|nuqsgd:bits=8
terngrad (2 bits)|-|terngrad|.|.
terngrad, gradients|2|uniform:bits=8|.|terngrad
alq|2|alq:bits=8|.|.
alq, gradients|2|uniform:bits=8|.|alq:bits=8
amq|2|amq:bits=8|.|.
amq, gradients|2|uniform:bits=8|.|amq:bits=8
kmeans|2|kmeans:bits=8|.|.
kmeans, 4 bits|-|kmeans:bits=4|.|.
bdi|0|bdi|.|.
block|2|block:bits=8|.|.
block, 4 bits|-|block:bits=4,size=64,zero=asym|.|.
block, 4 bits at random|-|block:bits=4,size=64,zero=asym|.|block:bits=4,size=64,round=stochastic
block, budget of 4 bits|-|block:size=64,zero=asym,budget=4|.|.
block, 4 bits, turned|-|hadamard:size=64+block:size=64|.|.
mxfp8|2|mxfp8:format=e4m3|.|.
mxfp6|-|mxfp6:format=e2m3|.|.
mxfp4|-|mxfp4|.|.
nvfp4|-|nvfp4|.|.
topk|2|topk:ratio=0.25|.|.
topk, 3 bits|-|topk:ratio=0.25+uniform:bits=8|.|.
downsample|2|downsample:factor=2|.|.
poweriter|2|poweriter:rank=8|.|.
poweriter, 2 bits|-|poweriter:rank=8+uniform:bits=8|.|.
zstd|0|zstd|.|.
bitshuffle|0|bitshuffle+zstd|.|.
uniform+zstd|2|uniform:bits=8+zstd|.|.
uniform+rans|2|uniform:bits=8+rans|.|.
bf16+bitshuffle|2|bf16+bitshuffle+zstd|.|.
ef|2|ef+uniform:bits=8|.|.
ef, top 10th of gradients|2|uniform:bits=8|.|ef+topk:ratio=0.1+uniform:bits=8
the same without ef|-|uniform:bits=8|.|topk:ratio=0.1+uniform:bits=8
delta|2|delta+uniform:bits=8|uniform:bits=8|.
delta, 4 bits|-|delta+uniform:bits=4|uniform:bits=8|.
the same without delta|-|uniform:bits=4|uniform:bits=8|.
'

each_row() { # COMMAND: called with the row's fields
	while IFS='|' read -r name asked up down grad; do
		[ -n "$name" ] || continue
		[ "$down" = . ] && down=$up
		[ "$grad" = . ] && grad=$down
		"$1" "$name" "$asked" "$up" "$down" "$grad" </dev/null
	done <<<"$rows"
}

file_of() { # UP DOWN GRAD SEED
	echo "$results/$1,$2,$3.$4.json"
}

run_row() { # NAME ASKED UP DOWN GRAD
	for seed in $seeds; do
		local out
		out=$(file_of "$3" "$4" "$5" "$seed")
		[ -s "$out" ] && continue
		# shellcheck disable=SC2154 # lib.sh sets build, server_port
		if ${WRAP:-} "$build/gpclient" train --server "127.0.0.1:$server_port" "${run[@]}" --seed "$seed" --no-progress \
			--codec-act-up "$3" --codec-act-down "$4" --codec-grad-up "$5" --codec-grad-down "$5" --json \
			>"$out.new" 2>"$out.log"; then
			mv "$out.new" "$out"
		else
			fail "$1, seed $seed: $(tail -1 "$out.log")"
		fi
	done
}

# Numbers of all seeds at PATH, in a row.
numbers() { # UP DOWN GRAD PATH
	for seed in $seeds; do
		json_get "$(file_of "$1" "$2" "$3" "$seed")" "$4" || return
	done | paste -s -d ' '
}

mean() { # FORMAT FACTOR NUMBER...
	local format=$1 factor=$2
	shift 2
	echo "$*" | awk -v factor="$factor" -v format="$format" \
		'{ for (i = 1; i <= NF; i++) sum += $i; printf format, factor * sum / NF }'
}

bits() { # UP DOWN GRAD A B: per element, of the directions A and B together, in training
	local value=()
	for path in {"$4","$5"}.{payload,tensor}_bytes_per_batch; do
		value+=("$(mean %.0f 1 "$(numbers "$1" "$2" "$3" "$path")")")
	done
	awk -v payload=$((value[0] + value[2])) -v tensor=$((value[1] + value[3])) 'BEGIN { printf "%.2f", 32 * payload / tensor }'
}

payload_mb() { # UP DOWN GRAD: of a batch, all four directions
	for kind in act_up act_down grad_up grad_down; do
		mean '%.9f\n' 1e-6 "$(numbers "$1" "$2" "$3" $kind.payload_bytes_per_batch)"
	done | awk '{ sum += $1 } END { printf "%.3f", sum }'
}

verdict() { # ASKED DIFFERENCE UP DOWN GRAD
	if [ "$1" = 2 ]; then
		awk -v d="$2" 'BEGIN { print (d < -2 ? "NO" : "yes"); exit d < -2 }'
	elif [ "$1" = 0 ]; then
		[ "$(numbers "$3" "$4" "$5" param_sha256)" = "$(numbers raw raw raw param_sha256)" ] && echo "same bits" && return
		echo "NOT THE SAME" && return 1
	else
		awk -v d="$2" 'BEGIN { print (d < -2 ? "(no)" : "(yes)") }'
	fi
}

spec_text() { # UP DOWN GRAD
	local text="\`$1\`"
	[ "$2" != "$1" ] && [ "$3" = "$2" ] && text+=" up, else \`$2\`"
	[ "$2" = "$1" ] && [ "$3" != "$2" ] && text+="; gradients \`$3\`"
	echo "$text"
}

print_row() { # NAME ASKED UP DOWN GRAD
	local all accuracy difference within
	all=$(numbers "$3" "$4" "$5" val_acc) || { fail "$1" && return; }
	accuracy=$(mean %.2f 100 "$all")
	difference=$(awk -v a="$accuracy" -v b="$raw" 'BEGIN { printf "%+.2f", a - b }')
	within=$(verdict "$2" "$difference" "$3" "$4" "$5") || failures=$((failures + 1))
	echo "| $1 | $(spec_text "$3" "$4" "$5") | $(bits "$3" "$4" "$5" act_up grad_up), $(bits "$3" "$4" "$5" \
		act_down grad_down) | $(mean '%.2f' 100 "$all") | $difference | $(payload_mb "$3" "$4" "$5") | $within |"
}

start_server --threads 1
each_row run_row
stop_server

raw=$(mean %.2f 100 "$(numbers raw raw raw val_acc)")
echo "seeds: $seeds; ${run[*]}"
echo "| codec | spec | bits per element up, down | validation accuracy | from raw | MB a batch | within 2 points |"
echo "|---|---|---|---:|---:|---:|---|"
each_row print_row
finish
