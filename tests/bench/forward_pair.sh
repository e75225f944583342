#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# forward_pair.sh [--threads N] [--rounds N] [--passes N] [--onnxruntime DIR] [BENCH_STEP]:
# a forward pass for evaluation of ours and of ONNX Runtime, by turns in one run,
# and their ratios: MobileNetV2 8x224x224, 64x32x32 and ResNet-18 32x64x64.
# Wanted: ours is not slower in any.
#
# PyTorch with torchvision exports the models (torch_export.py). DIR is a folder
# in which "npm install --ignore-scripts onnxruntime-node" was run; default:
# build/onnxruntime.
# Both sides need an idle machine; times are the median and the best over all
# rounds. Figures: RESULTS.md

set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
threads=1 rounds=3 passes=20 onnxruntime=build/onnxruntime python=${PYTHON:-/usr/bin/python3}
while [ $# -gt 0 ]; do
	case $1 in
	--threads | --rounds | --passes)
		[[ ${2-} =~ ^[1-9][0-9]*$ ]] || { echo "forward_pair.sh: $1 wants a number from 1" >&2; exit 2; }
		printf -v "${1#--}" %s "$2"
		shift 2
		;;
	--onnxruntime)
		[ -d "${2-}" ] || { echo "forward_pair.sh: --onnxruntime wants a folder" >&2; exit 2; }
		onnxruntime=$2
		shift 2
		;;
	-h | --help)
		sed -n '4,14s/^# \{0,1\}//p' "$0"
		exit 0
		;;
	-*)
		echo "forward_pair.sh: unknown option $1 (--threads, --rounds, --passes, --onnxruntime)" >&2
		exit 2
		;;
	*) break ;;
	esac
done
bench=${1:-build/release/tests/bench_step}
[ -x "$bench" ] || { echo "forward_pair.sh: no $bench: build the release preset with -DGP_TESTS=ON" >&2; exit 2; }
[ -d "$onnxruntime/node_modules/onnxruntime-node" ] || {
	echo "forward_pair.sh: no ONNX Runtime: run \"npm install --ignore-scripts onnxruntime-node\" in $onnxruntime, or name a folder" >&2
	exit 2
}
onnxruntime=$(cd "$onnxruntime" && pwd)
"$python" -c 'import torch, torchvision' || { echo "forward_pair.sh: $python has no torch and torchvision" >&2; exit 2; }
export OMP_NUM_THREADS=$threads
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# Both sides' "median M best B" as lines SIDE MEDIAN BEST.
times_of() { # SIDE
	awk -v side="$1" '/^ms per pass/ { print side, $5, $7 + 0; found = 1 } END { exit !found }'
}

failures=0
printf '%-26s %-14s %9s %9s   %s\n' case side 'median ms' 'best ms' 'ONNX Runtime / ours (median, best)'
pair() { # MODEL HEIGHT BATCH
	local model=$1 size=$2 batch=$3 round
	"$python" tests/bench/torch_export.py "$model" "${size}x${size}x3" "$batch" "$work/model.onnx" >"$work/export.log" 2>&1 ||
		{ cat "$work/export.log" >&2 && exit 1; }
	: >"$work/times"
	for ((round = 0; round < rounds; round++)); do
		"$bench" --eval "$model" "${size}x${size}x3" "$batch" 1 "$threads" "$passes" | times_of ours >>"$work/times" || exit 1
		node tests/bench/onnx_forward.js "$onnxruntime" "$work/model.onnx" "$batch,3,$size,$size" "$threads" "$passes" |
			times_of onnxruntime >>"$work/times" || exit 1
	done
	sort -k1,1 -k2,2n "$work/times" | awk -v name="$model ${batch}x${size}x$size" '
		{ m[$1, ++n[$1]] = $2; if (!($1 in best) || $3 < best[$1]) best[$1] = $3 }
		END {
			ours = m["ours", int((n["ours"] + 1) / 2)]; theirs = m["onnxruntime", int((n["onnxruntime"] + 1) / 2)]
			printf "%-26s %-14s %9.1f %9.1f\n", name, "ours", ours, best["ours"]
			printf "%-26s %-14s %9.1f %9.1f   %.2f %.2f\n", name, "onnxruntime", theirs, best["onnxruntime"],
				theirs / ours, best["onnxruntime"] / best["ours"]
			printf "%s  %s: %.2f times as fast as ONNX Runtime, wanted 1.0\n", (theirs >= ours ? "PASS" : "FAIL"),
				name, theirs / ours
			exit theirs < ours
		}' || failures=$((failures + 1))
}

pair mobilenetv2 224 8
pair mobilenetv2 32 64
pair resnet18 64 32
exit $((failures > 0))
