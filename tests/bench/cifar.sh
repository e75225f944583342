#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# cifar.sh BUILD-FOLDER CIFAR10 RESULTS EPOCHS [torch]: ResNet-20 from scratch with random
# crops and flips, then the accuracy on the test images; with "torch" the same run in
# PyTorch, too (torch_cifar.py: same starting weights, images, crops), and gpclient
# may not be more than 2 points behind. A fifth of CIFAR-10 takes minutes, all
# of it hours. WRAP=COMMAND is put before every training. Figures: RESULTS.md

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
data=${2:?folder with data_batch_1.bin and test_batch.bin} results=${3:?folder for results} epochs=${4:?number of epochs}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$results"
same=(--epochs "$epochs" --batch 128 --chunks 1 --lr 0.1 --warmup 50 --schedule cosine --weight-decay 1e-4 --seed 1)

percent() { # JSON-FILE
	awk -v fraction="$(json_get "$1" val_acc)" 'BEGIN { printf "%.2f\n", 100 * fraction }'
}

# shellcheck disable=SC2154 # lib.sh sets build
${WRAP:-} "$build/gpclient" train --local --model resnet20 --data "cifar10:$data" "${same[@]}" --momentum 0.9 \
	--save "$results/resnet20.safetensors" --json >"$results/ours.json" || exit 1
ours=$(percent "$results/ours.json")
echo "gpclient: $ours % after $epochs epochs"
if [ "${5:-}" = torch ]; then
	${WRAP:-} "$here/torch_cifar.py" "$data" "${same[@]}" --augment --json "$results/torch.json" || exit 1
	torch=$(percent "$results/torch.json")
	echo "PyTorch:  $torch %"
	awk -v ours="$ours" -v torch="$torch" 'BEGIN { exit torch - ours > 2 }' || fail "gpclient is more than 2 points behind"
fi
finish
