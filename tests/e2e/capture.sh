#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The tensors at a cut, written by capture and read by codec; byte stages that
# are used where they pay and skipped where they do not, and who says so.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

data=synthetic:shape=3x32x32,classes=10,samples=512
cnn=(--model cnn --data "$data" --threads 1)

train "$work/whole.json" --local "${cnn[@]}" --batch 32 --steps 20 --save "$work/w.safetensors" || fail "training"
"$build/gpclient" capture "${cnn[@]}" --init "$work/w.safetensors" --cut 1:2 --batch 32 --json \
	--out "$work/t.safetensors" >"$work/capture.json" || fail "capture"
equal "activations up" "$(json_flat "$work/capture.json" | sed -n 's/^act_up.shape.*=//p' | paste -s -d x)" 32x32x16x16
equal "gradients up" "$(json_flat "$work/capture.json" | sed -n 's/^grad_up.shape.*=//p' | paste -s -d x)" 32x64x8x8
"$build/gpclient" capture "${cnn[@]}" --init "$work/w.safetensors" --cut 1:2 --batch 32 --json \
	--out "$work/again.safetensors" >/dev/null || fail "capture again"
equal "again" "$(cksum <"$work/again.safetensors")" "$(cksum <"$work/t.safetensors")"

refused() { # STATUS TEXT FLAG...
	local want=$1 text=$2 status=0
	shift 2
	"$build/gpclient" capture "$@" >"$work/out" 2>&1 || status=$?
	equal "refused: $text" "$status $(grep -c -- "$text" "$work/out")" "$want 1"
}
refused 2 "out FILE is missing" "${cnn[@]}"
refused 2 "leaves a part of cnn empty" "${cnn[@]}" --cut 2:2 --out "$work/no"
refused 3 "fewer than the 1000 of --batch" "${cnn[@]}" --batch 1000 --out "$work/no"
refused 3 "cannot" "${cnn[@]}" --out "$work/no/folder"
[ -e "$work/no" ] && fail "a file in spite of the errors"

# Skipped or not, as codec, the training's JSON and its last lines tell.
skips() { # TENSOR CODEC: names of the stages that codec skipped
	"$build/gpclient" codec roundtrip --in "$work/t.safetensors" --tensor "$1" --codec "$2" --json >"$work/trip.json" ||
		fail "roundtrip"
	json_flat "$work/trip.json" | sed -n 's/^skipped.*=//p' | paste -s -d ' '
}
equal "zstd finds repetition in activations of 4 bits" "$(skips act_up uniform:bits=4+zstd)" ""
equal "so does rans" "$(skips act_up uniform:bits=4+rans)" ""
equal "rans finds none, either" "$(skips grad_up sortquant:bits=12,split=4+rans)" "rans"
equal "zstd finds none where every code is as frequent" "$(skips grad_up sortquant:bits=12,split=4+zstd)" "zstd"
start_server --threads 1
train "$work/stages.json" --server "127.0.0.1:$server_port" "${cnn[@]}" --cut 1:2 --batch 32 --chunks 1 --steps 4 --no-eval \
	--init "$work/w.safetensors" --codec uniform:bits=4+zstd --codec-grad-up sortquant:bits=12,split=4+bitshuffle+zstd \
	--codec-grad-down raw || fail "training with stages"
stop_server
of() { json_get "$work/stages.json" "stages_skipped.$1"; }
equal "used up and down" "$(of act_up.zstd) $(of act_down.zstd)" "0 0"
equal "skipped" "$(of grad_up.bitshuffle) $(of grad_up.zstd)" "4 4"
equal "no stages, no figure" "$(json_flat "$work/stages.json" | grep -c 'stages_skipped.grad_down')" 0
equal "told in words" "$(grep -c 'zstd did not pay and was skipped for 4 of 4 payloads of grad_up' "$work/stages.json.log")" 1
finish
