#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Split training equals local training bit for bit: for several chunk counts,
# thread counts, cuts (inside residual blocks, too) and precisions, with parts
# frozen, and for two clients at the same time.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

common=(--data synthetic:shape=3x32x32,classes=10,samples=128 --batch 16 --steps 3 --lr 0.05 --seed 7 --weight-decay 1e-4)
small=mobilenetv2:width=0.35,stem=cifar

has_bf16=$(grep -m1 -o avx512_bf16 /proc/cpuinfo)

sha() {
	json_get "$1" param_sha256
}

norms() { # LOG
	grep -o '"grad_norm":[^,}]*' "$1"
}

same() { # NAME MODEL CUT CHUNKS THREADS FLAG...
	local run=(--model "$2" --cut "$3" --chunks "$4" --threads "$5" "${common[@]}" "${@:6}") # a local run's cut: for --freeze
	rm -f "$work/local.jsonl" "$work/split.jsonl"
	train "$work/local.json" --local "${run[@]}" --log-json "$work/local.jsonl" || fail "$1: local run"
	train "$work/split.json" --server "127.0.0.1:$server_port" "${run[@]}" --log-json "$work/split.jsonl" ||
		fail "$1: split run"
	equal "$1" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
	equal "$1: norms" "$(norms "$work/split.jsonl")" "$(norms "$work/local.jsonl")"
}

count() { # DIRECTION: tensors that crossed in it
	json_flat "$work/split.json" | grep -c "^tensors\.[0-9]*\.direction=$1\$"
}

crossing() { # CUT UPxDOWN
	local want
	case $1 in 2:3) want=1x1 ;; 4:-3) want=2x1 ;; *) want=2x2 ;; esac
	equal "tensors up and down at the cut $1" "$2" $want
}

for threads in 1 2; do
	start_server --threads $threads
	for chunks in 1 4 8; do
		same "mobilenetv2, $chunks chunks, $threads threads" $small 1:-1 $chunks $threads
	done
	same "mobilenetv2 cut 3:-3, $threads threads" $small 3:-3 4 $threads
	same "cnn, $threads threads" cnn 1:-1 4 $threads
	same "resnet20, $threads threads" resnet20:width=0.5 2:-2 4 $threads
	same "mobilenetv2 cut before its activations, $threads threads" $small,cuts=fine 1:-3 4 $threads
	# Inside residual blocks two tensors cross; at 2:3 the value behind the stem goes both to the body and to the tail.
	for cut in 3:8 2:3 4:-3; do
		same "resnet20 cut $cut inside residual blocks, $threads threads" resnet20:width=0.5,cuts=fine $cut 4 $threads
		crossing "$cut" "$(count act_up)x$(count act_down)"
	done
	same "mobilenetv2 cut inside residual blocks, $threads threads" $small,cuts=fine 9:-8 4 $threads
	crossing 9:-8 "$(count act_up)x$(count act_down)"
	for flags in "" "--clip-norm 0.5"; do
		# shellcheck disable=SC2086
		same "mobilenetv2 cut 3:-3, head frozen $flags, $threads threads" $small 3:-3 8 $threads --freeze head $flags
		equal "no gradient comes down to a frozen head" "$(json_get "$work/split.json" grad_down.payload_bytes)" 0
	done
	same "resnet20 cut 3:8, head frozen, $threads threads" resnet20:width=0.5,cuts=fine 3:8 4 $threads --freeze head
	equal "no gradient comes down to a frozen head" "$(json_get "$work/split.json" grad_down.payload_bytes)" 0
	same "cnn cut 1:-1, head and body frozen, $threads threads" cnn 1:-1 4 $threads --freeze head,body
	equal "no gradient goes up to a frozen body" "$(json_get "$work/split.json" grad_up.payload_bytes)" 0
	same "resnet20 cut 3:8, body frozen, $threads threads" resnet20:width=0.5,cuts=fine 3:8 4 $threads --freeze body
	for limit in norm=1 norm=1000 value=0.01; do # every step clipped, none, elements
		same "mobilenetv2 cut 3:-3, --clip-$limit, $threads threads" $small 3:-3 4 $threads "--clip-$limit"
	done
	same "cnn cut 2:-1, adamw, --clip-norm 0.5, no decay of some, $threads threads" cnn 2:-1 4 $threads --optimizer adamw \
		--clip-norm 0.5 --weight-decay 0.5 --no-decay '*.bias,features.1.*' --adam-eps 1e-6 --adam-betas 0.8,0.99
	equal "parameters without decay in the report" "$(json_get "$work/split.json" optimizer.without_decay)" 10
	for mode in deferred running renorm renorm:r=2,d=1,warmup=1; do # with statistics of 0 and 1 a high rate is no good
		same "resnet20 cut 2:-2, --batch-norm $mode, $threads threads" resnet20:width=0.5 2:-2 4 $threads \
			--lr 0.0005 --batch-norm $mode
	done
	equal "the mode in the report" "$(json_get "$work/split.json" batch_norm)" renorm:r=2,d=1,warmup=1
	same "mobilenetv2, head frozen, --batch-norm deferred, $threads threads" $small 3:-3 4 $threads --freeze head \
		--batch-norm deferred
	if [ -n "$has_bf16" ]; then
		same "mobilenetv2 in bf16, $threads threads" $small 2:-2 4 $threads --precision bf16
		same "resnet20 in bf16, $threads threads" resnet20:width=0.5 1:-1 4 $threads --precision bf16
		equal "the precision in the report" "$(json_get "$work/split.json" precision)" bf16
	fi
	stop_server
done

start_server --threads 1
train "$work/local.json" --local --model $small --chunks 4 --threads 1 "${common[@]}" || fail "local run"
two_at_once "$(sha "$work/local.json")" --model $small --chunks 4 --threads 1 "${common[@]}"

# The same from weights in a file: saved by a local run, continued locally and split.
train "$work/saved.json" --local --model $small --chunks 4 --threads 1 "${common[@]}" --save "$work/w.safetensors"
train "$work/local.json" --local --model $small --threads 1 "${common[@]}" --init "$work/w.safetensors"
train "$work/split.json" --server "127.0.0.1:$server_port" --model $small --threads 1 "${common[@]}" \
	--init "$work/w.safetensors" --save "$work/w2.safetensors"
equal "continued from a file" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
train "$work/zero.json" --local --model $small --threads 1 "${common[@]}" --steps 1 --lr 1e-12 --weight-decay 0 \
	--init "$work/w2.safetensors"
stop_server
finish
