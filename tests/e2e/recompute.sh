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
roberta=$(sha "$work/plain.json")

# Maps that lie encoded: split as here, but not as without the flag.
encoded() { # NAME SPEC CUT FLAG...
	local name=$1 run=(--compress "maps=$2" --cut "$3" "${@:4}")
	train "$work/local.json" --local "${run[@]}" || fail "$name: local"
	train "$work/split.json" --server "127.0.0.1:$server_port" --codec raw "${run[@]}" || fail "$name: split"
	equal "$name: split" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
}
encoded "cnn, uniform" uniform:bits=8 1:-1 --model cnn "${pictures[@]}"
encoded "mobilenetv2, smaq" smaq:main=6,outlier=8 3:-3 --model mobilenetv2:width=0.35,stem=cifar "${pictures[@]}"
encoded "mobilenetv2, cut before its activations, bf16" bf16 1:-3 --model mobilenetv2:width=0.35,stem=cifar,cuts=fine "${pictures[@]}"
encoded "resnet20, cut inside residual blocks, head frozen, sortquant" sortquant:bits=6,split=2 4:-3 \
	--model resnet20:width=0.5,cuts=fine "${pictures[@]}" --freeze head
encoded "roberta with dropout, fp8" fp8:format=e4m3 1:-1 --model roberta:layers=2,dim=16,heads=2,ffn=32 "${texts[@]}"
[ "$(sha "$work/local.json")" != "$roberta" ] || fail "encoded maps change nothing"

# Over a link that breaks: a step is taken back, or goes on where it was.
model=(--model mobilenetv2:width=0.35,stem=cifar --cut 3:-3 --codec raw "${pictures[@]}" --steps 6)
train "$work/plain.json" --server "127.0.0.1:$server_port" "${model[@]}" || fail "plain over a good link"
start_link --drop-every $(($(json_get "$work/plain.json" wire_up_bytes) / 5)) --seed 5
train "$work/cut.json" --server "127.0.0.1:$link_port" "${model[@]}" --recompute --reconnect-for 300s || fail "over a link that breaks"
stop_link
equal "over a link that breaks" "$(sha "$work/cut.json")" "$(sha "$work/plain.json")"
maps=(--compress maps=uniform:bits=8)
train "$work/plain.json" --server "127.0.0.1:$server_port" "${model[@]}" "${maps[@]}" || fail "encoded over a good link"
start_link --drop-every $(($(json_get "$work/plain.json" wire_up_bytes) / 5)) --seed 6
train "$work/cut.json" --server "127.0.0.1:$link_port" "${model[@]}" "${maps[@]}" --reconnect-for 300s ||
	fail "encoded over a link that breaks"
stop_link
equal "encoded over a link that breaks" "$(sha "$work/cut.json")" "$(sha "$work/plain.json")"

# What both ends take.
for way in "" --recompute --compress=maps=uniform:bits=8; do
	train "$work/memory${way%%=*}.json" --server "127.0.0.1:$server_port" --model mobilenetv2:width=0.35,stem=cifar "${pictures[@]}" \
		--batch 64 --chunks 2 --window 2 --steps 1 $way || fail "memory $way"
done
less=$(($(json_get "$work/memory--recompute.json" server_memory_bytes) * 10))
[ $less -lt $(($(json_get "$work/memory.json" server_memory_bytes) * 8)) ] || fail "the server's session does not take less: $less"
less=$(($(json_get "$work/memory--compress.json" server_memory_bytes) * 10))
[ $less -lt $(($(json_get "$work/memory.json" server_memory_bytes) * 8)) ] || fail "with encoded maps the session does not take less: $less"
stop_server

# A run goes on with the flag, or without it.
train "$work/part.json" --local "${model[@]}" --steps 3 --schedule const --checkpoint "$work/run" || fail "three steps"
train "$work/rest.json" --local "${model[@]}" --schedule const --checkpoint "$work/run" --resume --recompute || fail "the others"
train "$work/whole.json" --local "${model[@]}" --schedule const || fail "all six"
equal "resumed with the flag" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"

# What is encoded belongs to the run.
refused() { # STATUS WORDS FLAG...
	local status=0
	"$build/gpclient" train --no-progress --local "${model[@]}" "${@:3}" 2>"$work/refused.log" || status=$?
	equal "status of $2" $status "$1"
	grep -q -- "$2" "$work/refused.log" || fail "no '$2': $(cat "$work/refused.log")"
}
train "$work/part.json" --local "${model[@]}" "${maps[@]}" --steps 3 --schedule const --checkpoint "$work/run2" || fail "three steps, encoded"
refused 3 compress --schedule const --checkpoint "$work/run2" --resume
refused 3 compress --schedule const --checkpoint "$work/run2" --resume --compress maps=bf16
refused 3 compress-cut --schedule const --checkpoint "$work/run2" --resume "${maps[@]}" --cut 2:-2
train "$work/rest.json" --local "${model[@]}" "${maps[@]}" --schedule const --checkpoint "$work/run2" --resume || fail "the others, encoded"
train "$work/whole.json" --local "${model[@]}" "${maps[@]}" --schedule const || fail "all six, encoded"
equal "resumed with encoded maps" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"
refused 2 'topk cannot' --compress maps=topk:ratio=0.1
refused 2 'exclude each other' --compress maps=bf16 --recompute

# What model show says of it.
"$build/gpclient" model show mobilenetv2 --batch 64 --chunks 8 --memory >"$work/show.txt" || fail "model show --memory"
grep -q -- "--recompute" "$work/show.txt" || fail "model show does not tell of --recompute: $(cat "$work/show.txt")"
"$build/gpclient" model show mobilenetv2 --batch 64 --chunks 8 --memory --json >"$work/show.json" || fail "model show --memory --json"
kept=$(json_get "$work/show.json" memory.savings.0.chunk_maps) less=$(json_get "$work/show.json" memory.savings.1.chunk_maps)
[ $((less * 10)) -lt $((kept * 4)) ] || fail "with --recompute $less of $kept bytes are kept"
"$build/gpclient" model show mobilenetv2 --batch 64 --chunks 8 --memory --json --compress maps=uniform:bits=8 >"$work/with.json" ||
	fail "model show --memory --compress"
equal "flags of the tables" "$(json_get "$work/with.json" memory.flags)" "--compress maps=uniform:bits=8"
equal "kept of a chunk with these flags" "$(json_get "$work/with.json" memory.parts.local.chunk_maps)" \
	"$(json_get "$work/show.json" memory.savings.3.chunk_maps)"
less=$(json_get "$work/with.json" memory.parts.body.chunk_maps) kept=$(json_get "$work/show.json" memory.parts.body.chunk_maps)
[ $((less * 3)) -lt "$kept" ] || fail "of the body's maps $less of $kept bytes are kept encoded"
"$build/gpclient" model show mobilenetv2 --compress maps=bf16 2>"$work/refused.log"
equal "status of --compress without --memory" $? 2
finish
