#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Split training with topk in all four directions: gradients reuse the masks of
# their activations and carry no index, a kept share of everything is training
# without a codec, and training goes on with the rest left out.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

run=(--model cnn --cut 1:-1 --chunks 4 --threads 1 --data synthetic:shape=3x32x32,classes=10,samples=256 --batch 32
	--steps 40 --lr 0.05 --seed 7)

split() { # NAME FLAG...
	train "$work/$1.json" --server "127.0.0.1:$server_port" "${run[@]}" "${@:2}" || fail "$1"
}

of() { # NAME KEY
	json_get "$work/$1.json" "$2"
}

check_gradient() { # NAME DIRECTION RATIO: head, the length of no side bytes, raw values
	local frames tensors
	frames=$(of "$1" "$2.frames")
	tensors=$(of "$1" "$2.tensor_bytes")
	equal "$1: $2 carries values only" "$(of "$1" "$2.payload_bytes")" $((frames * 8 + tensors / $3))
}

start_server --threads 1
split none
split whole --codec topk:ratio=1
split quarter --codec topk:ratio=0.25
split again --codec topk:ratio=0.25
split apart --codec topk:ratio=0.25 --codec-grad-down topk:ratio=0.125
split coded --codec topk:ratio=0.25+uniform:bits=8
split owed --codec-act-up topk:ratio=0.25 --codec-grad-down ef+topk:ratio=0.25+uniform:bits=8
stop_server

equal "keeping all of it" "$(of whole param_sha256)" "$(of none param_sha256)"
equal "a run again" "$(of again param_sha256)" "$(of quarter param_sha256)"
for direction in grad_up grad_down; do
	check_gradient whole $direction 1
	check_gradient quarter $direction 4
done
[ "$(of apart grad_down.payload_bytes)" -gt $(($(of apart grad_down.tensor_bytes) / 8 + 8 * $(of apart grad_down.frames))) ] ||
	fail "with another number of elements the gradient has to say which they are"
# heads of topk and uniform, a length, min and step, a byte per value
equal "coded: a gradient of bytes" "$(of coded grad_down.payload_bytes)" \
	$(($(of coded grad_down.frames) * 20 + $(of coded grad_down.tensor_bytes) / 16))
for name in quarter coded owed; do
	awk -v got="$(of $name loss)" -v had="$(of none loss)" -v name=$name \
		'BEGIN { print name ": loss " got ", without a codec " had; exit !(got < 1.9 && got >= had) }' ||
		fail "$name does not learn"
done
finish
