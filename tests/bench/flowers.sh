#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# flowers.sh BUILD-FOLDER FLOWERS WEIGHTS RESULTS: MobileNetV2 with ImageNet weights is
# fine-tuned on a folder of flowers, by PyTorch (torch_flowers.py) and split through
# gpserverd with three codecs, three seeds each. Wanted: mean validation accuracy within
# 1.5 points of PyTorch's. Takes an hour on two cores; what RESULTS (a folder) holds
# already is not run again. WRAP=COMMAND is put before every training.
# Figures: RESULTS.md

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
flowers=${2:?folder with train/CLASS and val/CLASS} weights=${3:?safetensors file} results=${4:?folder for results}
here=$(cd "$(dirname "$0")" && pwd)
seeds='1 2 3' codecs='raw uniform:bits=8 sortquant:bits=6,split=2'
mkdir -p "$results"

run_torch() { # SEED
	local out=$results/torch.$1.json
	[ -s "$out" ] && return
	${WRAP:-} "$here/torch_flowers.py" "$flowers" "$weights" --seed "$1" --json "$out.new" && mv "$out.new" "$out"
}

run_split() { # CODEC SEED
	local out=$results/$1.$2.json
	[ -s "$out" ] && return
	echo "$1, seed $2"
	rm -f "$out.log"
	# shellcheck disable=SC2154 # lib.sh sets build, server_port
	${WRAP:-} "$build/gpclient" train --server "127.0.0.1:$server_port" --model mobilenetv2:pad=same,eps=1e-3 \
		--data "folder:$flowers,size=128,mean=0.5,std=0.5" --init "$weights" --init-skip 'classifier.*' \
		--cut 1:-1 --batch 32 --chunks 4 --epochs 3 --lr 0.01 --momentum 0.9 --weight-decay 0 --schedule cosine \
		--codec "$1" --seed "$2" --json --log-json "$out.log" >"$out.new" && mv "$out.new" "$out"
}

accuracies() { # NAME: of every seed, then their mean, in percent
	for seed in $seeds; do
		json_get "$results/$1.$seed.json" val_acc || return
	done | awk '{ printf "%.2f ", 100 * $1; sum += 100 * $1 } END { printf "%.2f\n", sum / NR }'
}

for seed in $seeds; do
	run_torch "$seed" || fail "PyTorch, seed $seed"
done
start_server
for codec in $codecs; do
	for seed in $seeds; do
		run_split "$codec" "$seed" || fail "$codec, seed $seed"
	done
done
stop_server

torch=$(accuracies torch) || exit 1
echo "validation accuracy in percent, seeds $seeds, mean"
echo "PyTorch: $torch"
for codec in $codecs; do
	ours=$(accuracies "$codec") || exit 1
	if awk -v ours="${ours##* }" -v torch="${torch##* }" 'BEGIN { d = ours - torch; exit d < -1.5 || d > 1.5 }'; then
		echo "PASS  $codec: $ours"
	else
		fail "$codec: $ours"
	fi
done
finish
