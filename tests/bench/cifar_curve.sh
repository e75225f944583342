#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# cifar_curve.sh BUILD-FOLDER CIFAR10 RESULTS: the losses of the first 100 steps from scratch,
# gpclient beside PyTorch (torch_cifar.py): the same starting weights, the same images in
# the same order, no augmentation. Wanted: within 1e-3 of each other, relative.
#
# Training doubles a difference every few steps, so where rounding alone leads apart, no
# two programs agree for 100 steps. What rounding alone does is measured, too: PyTorch with
# one thread against PyTorch with two. WRAP=COMMAND is put before every training; what
# RESULTS (a folder) holds already is not run again. Figures: RESULTS.md

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
data=${2:?folder with data_batch_1.bin} results=${3:?folder for results}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$results"

run_torch() { # OUT THREADS FLAG...
	[ -s "$1" ] && return
	${WRAP:-} "$here/torch_cifar.py" "$data" --json "$1.new" --threads "${@:2}" && mv "$1.new" "$1"
}

run_ours() { # OUT FLAG...
	[ -s "$1" ] && return
	rm -f "$1.new"
	# shellcheck disable=SC2154 # lib.sh sets build
	${WRAP:-} "$build/gpclient" train --local --data "cifar10:$data" --input 3x32x32 --chunks 1 --threads 2 --no-eval \
		--no-augment --no-progress --log-json "$1.new" "${@:2}" && mv "$1.new" "$1"
}

torch_losses() { # FILE
	json_flat "$1" | sed -n 's/^losses\.[0-9]*=//p'
}

our_losses() { # FILE
	sed -nE 's/.*"event":"step".*"loss":([^,]*).*/\1/p' "$1"
}

apart() { # two columns of losses: the largest relative difference, its step, the first step above 1e-3
	awk 'BEGIN { first = "none" }
		{ d = $1 / $2 - 1; d = d < 0 ? -d : d }
		d > max { max = d; at = NR - 1 }
		d > 1e-3 && first == "none" { first = NR - 1 }
		END { if (NR != 100) exit 1; printf "%.1e at step %d, first above 1e-3: %s", max, at, first }'
}

compare() { # NAME MODEL-FOR-GPCLIENT FLAG...
	local name=$1 model=$2 ours torch
	shift 2
	set -- --steps 100 --schedule const --weight-decay 1e-4 "$@"
	run_torch "$results/$name.2.json" 2 --model "${model%%:*}" "$@" || fail "$name: PyTorch, two threads"
	run_torch "$results/$name.1.json" 1 --model "${model%%:*}" "$@" || fail "$name: PyTorch, one thread"
	run_ours "$results/$name.jsonl" --model "$model" "$@" || fail "$name: gpclient"
	ours=$(paste <(our_losses "$results/$name.jsonl") <(torch_losses "$results/$name.2.json") | apart) ||
		fail "$name: not 100 losses"
	torch=$(paste <(torch_losses "$results/$name.1.json") <(torch_losses "$results/$name.2.json") | apart)
	echo "$name: loss $(torch_losses "$results/$name.2.json" | awk 'NR == 1 { first = $1 } END { print first, "to", $1 }')"
	echo "    PyTorch, 1 and 2 threads: $torch"
	echo "    gpclient and PyTorch:     $ours"
	[ "${ours##* }" = none ] || [ "${torch##* }" != none ] || fail "$name"
}

compare cnn cnn:width=32 --batch 128 --lr 0.002
compare cnn-adamw cnn:width=32 --batch 128 --lr 0.0003 --optimizer adamw
compare resnet20 resnet20 --batch 128 --lr 0.0003
compare resnet20-warmup resnet20 --batch 128 --lr 0.1 --warmup 3910
compare resnet20-fast resnet20 --batch 64 --lr 0.05
finish
