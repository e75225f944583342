#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Trainings that keep less in memory. --recompute changes no bit, whoever has it
# and whoever does not: locally, split, over a link that breaks, resumed, with
# dropout. It takes less memory at both ends.

# shellcheck disable=SC1091,SC2086
. "$(dirname "$0")/lib.sh"

pictures=(--data synthetic:shape=3x32x32,classes=10,samples=64 --batch 16 --chunks 4 --steps 3 --lr 0.05 --seed 7 --threads 1
	--no-eval)
texts=(--data synthetic:tokens=16,vocab=100,classes=4,samples=64 --batch 16 --chunks 4 --steps 3 --lr 0.001
	--optimizer adamw --seed 7 --threads 1 --no-eval)

sha() {
	json_get "$1" param_sha256
}

# Plain, then with the flag, here and split.
same() { # NAME CUT FLAG...
	local name=$1 run=(--cut "$2" "${@:3}") # a local run's cut: for --freeze
	train "$work/plain.json" --local "${run[@]}" || fail "$name: plain"
	train "$work/local.json" --local "${run[@]}" --recompute || fail "$name: local"
	train "$work/split.json" --server "127.0.0.1:$server_port" --codec raw "${run[@]}" --recompute || fail "$name: split"
	equal "$name: here" "$(sha "$work/local.json")" "$(sha "$work/plain.json")"
	equal "$name: split" "$(sha "$work/split.json")" "$(sha "$work/plain.json")"
}

start_server --threads 1
same cnn 1:-1 --model cnn "${pictures[@]}"
same mobilenetv2 3:-3 --model mobilenetv2:width=0.35,stem=cifar "${pictures[@]}"
same "resnet20, cut inside residual blocks, renorm" 4:-3 --model resnet20:width=0.5,cuts=fine "${pictures[@]}" --lr 0.0005 \
	--batch-norm renorm
same "resnet20, head frozen, clipped" 3:-2 --model resnet20:width=0.5 "${pictures[@]}" --freeze head --clip-norm 0.5
same "roberta with dropout" 1:-1 --model roberta:layers=2,dim=16,heads=2,ffn=32 "${texts[@]}"

# Over a link that breaks: a step is taken back, or goes on where it was.
model=(--model mobilenetv2:width=0.35,stem=cifar --cut 3:-3 --codec raw "${pictures[@]}" --steps 6)
train "$work/plain.json" --server "127.0.0.1:$server_port" "${model[@]}" || fail "plain over a good link"
start_link --drop-every $(($(json_get "$work/plain.json" wire_up_bytes) / 5)) --seed 5
train "$work/cut.json" --server "127.0.0.1:$link_port" "${model[@]}" --recompute --reconnect-for 300s || fail "over a link that breaks"
stop_link
equal "over a link that breaks" "$(sha "$work/cut.json")" "$(sha "$work/plain.json")"

# What both ends take.
for way in "" --recompute; do
	train "$work/memory$way.json" --server "127.0.0.1:$server_port" --model mobilenetv2:width=0.35,stem=cifar "${pictures[@]}" \
		--batch 64 --chunks 2 --window 2 --steps 1 $way || fail "memory $way"
done
less=$(($(json_get "$work/memory--recompute.json" server_memory_bytes) * 10))
[ $less -lt $(($(json_get "$work/memory.json" server_memory_bytes) * 8)) ] || fail "the server's session does not take less: $less"
stop_server

# A run goes on with the flag, or without it.
train "$work/part.json" --local "${model[@]}" --steps 3 --schedule const --checkpoint "$work/run" || fail "three steps"
train "$work/rest.json" --local "${model[@]}" --schedule const --checkpoint "$work/run" --resume --recompute || fail "the others"
train "$work/whole.json" --local "${model[@]}" --schedule const || fail "all six"
equal "resumed with the flag" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"

# What model show says of it.
"$build/gpclient" model show mobilenetv2 --batch 64 --chunks 8 --memory >"$work/show.txt" || fail "model show --memory"
grep -q -- "--recompute" "$work/show.txt" || fail "model show does not tell of --recompute: $(cat "$work/show.txt")"
"$build/gpclient" model show mobilenetv2 --batch 64 --chunks 8 --memory --json >"$work/show.json" || fail "model show --memory --json"
kept=$(json_get "$work/show.json" memory.savings.0.chunk_maps) less=$(json_get "$work/show.json" memory.savings.1.chunk_maps)
[ $((less * 10)) -lt $((kept * 4)) ] || fail "with --recompute $less of $kept bytes are kept"
finish
