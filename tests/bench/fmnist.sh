#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# fmnist.sh: what training reaches on Fashion-MNIST. The small CNN for 3 epochs
# (wanted: 91 %), and the quickstart's model with raw tensors and with sortquant
# (wanted: within one point). Runs through deploy/quickstart.sh, so through
# gpserverd over loopback. Takes many minutes. Figures: RESULTS.md

set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
. deploy/json.sh

failures=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

accuracy() { # NAME QUICKSTART-OPTION...: trains, prints the validation accuracy in percent
	local name=$1
	shift
	deploy/quickstart.sh --result "$work/$name.json" "$@" >&2 || exit 1
	awk -v fraction="$(json_get "$work/$name.json" val_acc)" 'BEGIN { printf "%.2f\n", 100 * fraction }'
}

verdict() { # TEXT CONDITION-OF-AWK
	if awk "BEGIN { exit !($2) }"; then
		echo "PASS  $1"
	else
		echo "FAIL  $1"
		failures=$((failures + 1))
	fi
}

cnn=$(accuracy cnn --model cnn --epochs 3 --batch 128 --codec raw -- --lr 0.1) || exit 1
raw=$(accuracy raw --codec raw) || exit 1
sortquant=$(accuracy sortquant) || exit 1
verdict "cnn, 3 epochs, raw: $cnn % (wanted: 91)" "$cnn >= 91"
verdict "mobilenetv2 sortquant: $sortquant %, raw: $raw % (wanted: within 1 point)" "$raw - $sortquant <= 1"
[ $failures -eq 0 ]
