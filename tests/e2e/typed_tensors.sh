#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A model with two inputs of integers: tokens stay here, a mask crosses the cut
# as it is and has no gradient. Split training equals local training bit for bit,
# with parts frozen and when a run is resumed; evaluation and inference give
# the same; codecs touch activations and gradients alone. Encoders, whose bodies read
# the length of a text, at the cuts that have names.

# shellcheck disable=SC1091,SC2086
. "$(dirname "$0")/lib.sh"

tokens=16 batch=32 chunks=4 steps=6
texts=synthetic:tokens=$tokens,vocab=100,classes=4,samples=512
common=(--model fasttext:dim=24,hidden=20 --data "$texts" --batch $batch --chunks $chunks --lr 0.5 --schedule const --seed 7)

sha() {
	json_get "$1" param_sha256
}

# A figure of the tensor of that direction and name in the report's list; nothing where it is not there.
tensor() { # JSON-FILE DIRECTION NAME KEY
	local at
	at=$(json_flat "$1" | sed -n "s/^\(tensors\.[0-9]*\)\.name=$3\$/\1/p" | while read -r at; do
		[ "$(json_get "$1" "$at.direction")" = "$2" ] && echo "$at"
	done)
	[ -z "$at" ] || json_get "$1" "$at.$4"
}

same() { # NAME CUT THREADS FLAG...
	local run=("${common[@]}" --steps $steps --threads "$3" --cut "$2" "${@:4}")
	train "$work/local.json" --local "${run[@]}" || fail "$1: local run"
	train "$work/split.json" --server "127.0.0.1:$server_port" --codec raw "${run[@]}" || fail "$1: split run"
	equal "$1" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
}

for threads in 1 2; do
	start_server --threads $threads
	for cut in 2:-1 1:-2 1:-1; do
		same "cut $cut, $threads threads" $cut $threads --no-eval
	done
	same "embedding frozen, $threads threads" 1:-1 $threads --no-eval --freeze head
	equal "no gradient comes down to a frozen head" "$(json_get "$work/split.json" grad_down.payload_bytes)" 0
	equal "but gradients go up" "$(tensor "$work/split.json" grad_up pooling.1 frames)" $((chunks * steps))
	same "encoder frozen, clipped, $threads threads" 2:-1 $threads --no-eval --freeze 'encoder.*' --clip-norm 0.1
	stop_server
done

# What travels, tensor by tensor.
start_server --threads 1
same "cut 1:-1" 1:-1 1 --no-eval --pad max
equal "the mask is of integers" "$(tensor "$work/split.json" act_up mask dtype)" i32
equal "the mask travels" "$(tensor "$work/split.json" act_up mask payload_bytes)" $((4 * tokens * batch * steps))
equal "the mask has a frame per chunk" "$(tensor "$work/split.json" act_up mask frames)" $((chunks * steps))
equal "the mask has no gradient" "$(tensor "$work/split.json" grad_down mask frames)" ""
equal "the embedding has one" "$(tensor "$work/split.json" grad_down embedding frames)" $((chunks * steps))
equal "tokens stay here" "$(json_flat "$work/split.json" | grep -c 'name=tokens$')" 0
same "cut 1:-2" 1:-2 1 --no-eval
equal "a mask that the tail reads stays here" "$(json_flat "$work/split.json" | grep -c 'name=mask$')" 0

# Encoders: the length travels, 4 bytes a sample, and nothing else of the data does.
encoder() { # NAME MODEL CUT FLAG...
	local run=(--model "$2:layers=3,dim=16,heads=2,ffn=24,cuts=fine" --cut "$3" --data "$texts" --batch $batch --chunks $chunks
		--steps 3 --optimizer adamw --lr 0.002 --schedule const --seed 7 --threads 1 --no-eval "${@:4}")
	train "$work/local.json" --local "${run[@]}" || fail "$1: local run"
	train "$work/split.json" --server "127.0.0.1:$server_port" "${run[@]}" || fail "$1: split run"
	equal "$1" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
}
for model in roberta bert; do
	for cut in type1 f2l2 f3l2; do
		encoder "$model, cut $cut" $model $cut
	done
	encoder "$model, cut in the classifier" $model 1:-1 --clip-norm 0.5
	equal "$model: lengths travel" "$(tensor "$work/split.json" act_up length payload_bytes)" $((4 * batch * 3))
	equal "$model: nothing else of the data" \
		"$(json_flat "$work/split.json" | grep -cE 'name=(tokens|types|mask)$')" 0
	encoder "$model, embeddings frozen" $model 1:-3 --freeze "$model.embeddings.*"
	equal "no gradient comes down to frozen embeddings" "$(json_get "$work/split.json" grad_down.payload_bytes)" 0
	# With the first layer's attention here, the embeddings' gradient is an affair of this side alone.
	encoder "$model, embeddings frozen, cut type1" $model type1 --freeze "$model.embeddings.*"
	[ "$(json_get "$work/split.json" grad_down.payload_bytes)" -gt 0 ] || fail "$model: attention of layer 0 gets no gradient"
done

# A link that breaks: chunks of which some tensors had come are taken back whole.
for flags in "" "--freeze head"; do
	train "$work/local.json" --local "${common[@]}" --cut 1:-1 --threads 1 --steps 12 --no-eval $flags || fail "local run"
	start_link --drop-every 60k
	train "$work/split.json" --server "127.0.0.1:$link_port" "${common[@]}" --cut 1:-1 --threads 1 --steps 12 --no-eval $flags ||
		fail "a run over a link that breaks"
	stop_link
	equal "over a link that breaks $flags" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
	[ "$(json_get "$work/split.json" reconnects)" -gt 0 ] || fail "the link never broke"
done

# Codecs with loss change activations and gradients, never the mask.
train "$work/coded.json" --server "127.0.0.1:$server_port" --cut 1:-1 --threads 1 "${common[@]}" --steps $steps --no-eval \
	--pad max --codec uniform:bits=8 || fail "a run with 8 bits"
equal "the mask is not compressed" "$(tensor "$work/coded.json" act_up mask payload_bytes)" $((4 * tokens * batch * steps))
coded=$(tensor "$work/coded.json" act_up embedding payload_bytes) plain=$(tensor "$work/coded.json" act_up embedding tensor_bytes)
[ "$coded" -lt $((plain / 3)) ] || fail "activations of 8 bits take $coded of $plain bytes"

# Chunks as long as their longest text, which differ from each other: split equals local, over a link that breaks too; the loss
# is that of chunks with all positions, and fewer bytes travel.
long=synthetic:tokens=60,vocab=100,classes=4,samples=512
short=(--model fasttext:dim=24,hidden=20 --data "$long" --batch 32 --chunks 16 --lr 0.5 --schedule const --seed 7 --threads 1)
for cut in 1:-1 2:-1 1:-2; do
	for pad in max drop; do
		train "$work/split-$pad.json" --server "127.0.0.1:$server_port" "${short[@]}" --cut $cut --steps 6 --pad $pad ||
			fail "--pad $pad"
	done
	train "$work/local.json" --local "${short[@]}" --cut $cut --steps 6 --pad drop || fail "--pad drop --local"
	equal "--pad drop, cut $cut" "$(sha "$work/split-drop.json")" "$(sha "$work/local.json")"
	equal "evaluation with --pad drop, cut $cut" "$(json_get "$work/split-drop.json" val_loss)" "$(json_get "$work/local.json" val_loss)"
	for loss in loss val_loss; do
		awk -v a="$(json_get "$work/split-drop.json" $loss)" -v b="$(json_get "$work/split-max.json" $loss)" \
			'BEGIN { d = a > b ? a - b : b - a; exit !(b > 0 && d <= 1e-6 * b) }' || fail "$loss of --pad drop is not that of --pad max, cut $cut"
	done
	for way in act_up grad_down; do
		fewer=$(json_get "$work/split-drop.json" $way.payload_bytes) all=$(json_get "$work/split-max.json" $way.payload_bytes)
		[ "$fewer" -lt $((all * 8 / 10)) ] || fail "$way of --pad drop has $fewer payload bytes of $all, cut $cut"
	done
done
train "$work/drop.json" --server "127.0.0.1:$server_port" "${short[@]}" --cut 2:-1 --steps 6 --no-eval --pad drop || fail "--pad drop"
rows=$(tensor "$work/drop.json" act_up encoder.1 unpadded_bytes) frames=$(tensor "$work/drop.json" act_up encoder.1 frames)
equal "rows and their counts travel, nothing else" "$(tensor "$work/drop.json" act_up encoder.1 payload_bytes)" $((rows + frames * 2 * 4))
[ "$rows" -lt "$(tensor "$work/drop.json" act_up encoder.1 tensor_bytes)" ] || fail "no sample is shorter than its chunk"
equal "gradients have the same rows" "$(tensor "$work/drop.json" grad_down encoder.1 unpadded_bytes)" "$rows"
start_link --drop-every 150k
train "$work/cut.json" --server "127.0.0.1:$link_port" "${short[@]}" --cut 2:-1 --steps 6 --no-eval --pad drop ||
	fail "--pad drop over a link that breaks"
stop_link
equal "--pad drop over a link that breaks" "$(sha "$work/cut.json")" "$(sha "$work/drop.json")"
[ "$(json_get "$work/cut.json" reconnects)" -gt 0 ] || fail "the link never broke"

# Encoders, whose dropout draws the same for a position whatever the chunk's length: attention, norms, embeddings, classifier.
# The loss is that of chunks with all positions, with dropout and without.
padded() { # NAME FILE FLAG...
	train "$work/$2.json" "${@:3}" --data "$long" --batch 32 --chunks 16 --steps 3 --lr 0.1 --schedule const --seed 7 \
		--threads 1 || fail "$1, $2"
}
near() { # NAME JSON-FILE JSON-FILE
	local loss
	for loss in loss val_loss; do
		awk -v a="$(json_get "$2" $loss)" -v b="$(json_get "$3" $loss)" \
			'BEGIN { d = a > b ? a - b : b - a; exit !(b > 0 && d <= 1e-6 * b) }' ||
			fail "$1: $loss is $(json_get "$2" $loss), and $(json_get "$3" $loss) with all positions"
	done
}
for model in roberta bert; do
	for cut in type1 1:-1; do
		for dropout in 0.1 0; do
			[ "$cut,$dropout" = 1:-1,0 ] && continue
			run=(--model "$model:layers=3,dim=16,heads=2,ffn=24,cuts=fine,dropout=$dropout,attention_dropout=$dropout" --cut $cut)
			name="$model, cut $cut, dropout $dropout, --pad drop"
			padded "$name" local --local "${run[@]}" --pad drop
			padded "$name" max --local "${run[@]}" --pad max
			padded "$name" split --server "127.0.0.1:$server_port" "${run[@]}" --pad drop
			equal "$name" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
			equal "$name, evaluation" "$(json_get "$work/split.json" val_loss)" "$(json_get "$work/local.json" val_loss)"
			near "$name" "$work/local.json" "$work/max.json"
		done
	done
	fewer=$(json_get "$work/split.json" act_up.payload_bytes)
	padded "$model, --pad max" all --server "127.0.0.1:$server_port" "${run[@]}" --pad max
	all=$(json_get "$work/all.json" act_up.payload_bytes)
	[ "$fewer" -lt $((all * 8 / 10)) ] || fail "$model: act_up of --pad drop has $fewer payload bytes of $all"
done

# It learns, split and with 8 bits: four classes, one in four is chance. How far depends on how a processor rounds.
train "$work/learned.json" --server "127.0.0.1:$server_port" --cut 1:-1 --threads 1 "${common[@]}" --lr 0.2 --steps 400 \
	--codec uniform:bits=8 --save "$work/w.safetensors" || fail "a longer run"
accuracy=$(json_get "$work/learned.json" val_acc)
awk -v a="$accuracy" 'BEGIN { exit !(a > 0.7) }' || fail "validation accuracy of $accuracy after 400 steps"

# Evaluation, split and here.
for where in --local "--server=127.0.0.1:$server_port"; do
	"$build/gpclient" eval "$where" "${common[@]:0:4}" --batch $batch --chunks $chunks --threads 1 --cut 1:-1 --no-progress \
		--init "$work/w.safetensors" --json >"$work/eval${where%%=*}.json" 2>"$work/eval.log" || fail "eval $where: $(cat "$work/eval.log")"
done
equal "evaluation" "$(json_get "$work/eval--server.json" val_loss)" "$(json_get "$work/eval--local.json" val_loss)"
equal "evaluation as in training" "$(json_get "$work/eval--local.json" val_acc)" "$accuracy"

# Labels of the validation samples, which have no files: as many are right as the evaluation says.
for where in --local "--server=127.0.0.1:$server_port"; do
	"$build/gpclient" infer "$where" "${common[@]:0:4}" --batch 16 --threads 1 --cut 1:-1 --init "$work/w.safetensors" --json \
		>"$work/infer${where%%=*}.jsonl" 2>"$work/infer.log" || fail "infer $where: $(cat "$work/infer.log")"
done
equal "infer split and local" "$(cksum <"$work/infer--server.jsonl")" "$(cksum <"$work/infer--local.jsonl")"
right=$(sed -nE 's/^\{"sample": ([0-9]+), "labels": \[\{"label": "class ([0-9]+)".*/\1 \2/p' "$work/infer--local.jsonl" |
	awk '$1 % 4 == $2 { n++ } END { printf "%.4f", n / NR }')
equal "labels are right" "$right" "$(printf '%.4f' "$accuracy")"
status=0
"$build/gpclient" infer --local "${common[@]:0:4}" --init "$work/w.safetensors" "$work/w.safetensors" >"$work/out" 2>&1 || status=$?
equal "a file beside tokens" "$status $(grep -c 'has no pictures but tokens' "$work/out")" "3 1"

# A wrong pair of model and data, and what the command says.
refused() { # STATUS TEXT FLAG...
	local want=$1 text=$2 status=0
	shift 2
	"$build/gpclient" train --local --batch 4 --steps 1 "$@" >"$work/out" 2>&1 || status=$?
	equal "refused: $text" "$status $(grep -c -- "$text" "$work/out") $(wc -l <"$work/out")" "$want 1 1"
}
refused 3 "has 50 rows, but 'tokens' of the data has values up to 99" --model fasttext:vocab=50 --data "$texts"
refused 3 "cnn takes images (height, width, channels), not texts or other rows of numbers, here of 16" --model cnn --data "$texts"
refused 3 "fasttext takes tokens (a row of numbers), not samples of 32x32x3" --model fasttext --data synthetic:shape=3x32x32
refused 3 "wants tokens (i32 15), mask (i32 15), the data has tokens (i32 16)" --model fasttext:tokens=15 --data "$texts"
refused 2 "vocab: 0 is out of range" --model fasttext:vocab=0 --data "$texts"
stop_server

# Stopped, and begun again from both ends' checkpoints.
train "$work/whole.json" --local "${common[@]}" --threads 1 --steps 12 --no-eval || fail "whole run"
run=("${common[@]}" --threads 1 --cut 1:-1 --no-eval --checkpoint "$work/run" --checkpoint-every 4)
start_server --threads 1 --state-dir "$work/state"
train "$work/half.json" --server "127.0.0.1:$server_port" "${run[@]}" --steps 8 || fail "half a run"
stop_server
start_server --threads 1 --state-dir "$work/state"
train "$work/rest.json" --server "127.0.0.1:$server_port" "${run[@]}" --steps 12 --resume || fail "the rest of the run"
equal "resumed" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"
stop_server
finish
