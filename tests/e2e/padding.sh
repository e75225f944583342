#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# --pad: where --pad auto leaves padding out, where it does not and what it says
# then; and that every family of codecs computes the same over a link that breaks,
# and resumed from checkpoints, as in an undisturbed run. That with raw a split run
# equals a local one, and one with padding up to rounding: tests/e2e/typed_tensors.sh.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

texts=synthetic:tokens=60,vocab=100,classes=4,samples=512
run=(--model fasttext:dim=24,hidden=20 --data "$texts" --batch 32 --chunks 16 --lr 0.5 --schedule const --seed 7 --threads 1
	--no-eval)

sha() {
	json_get "$1" param_sha256
}

split() { # NAME FLAG...
	train "$work/$1.json" --server "127.0.0.1:$server_port" "${run[@]}" "${@:2}" || fail "$1"
}

start_server --threads 1

# Left out by default, here as there.
train "$work/local.json" --local "${run[@]}" --steps 3 || fail "local run"
split default --cut 1:-1 --steps 3
equal "without --pad a split run equals a local one" "$(sha "$work/default.json")" "$(sha "$work/local.json")"
split drop --cut 1:-1 --steps 3 --pad drop
equal "--pad drop is what it does" "$(sha "$work/default.json")" "$(sha "$work/drop.json")"
split max --cut 1:-1 --steps 3 --pad max
[ "$(json_get "$work/default.json" act_up.tensor_bytes)" -lt "$(json_get "$work/max.json" act_up.tensor_bytes)" ] ||
	fail "without --pad every chunk has all positions"
for way in act_down grad_up grad_down; do
	equal "$way without padding is the same with --pad max" "$(json_get "$work/max.json" $way.unpadded_bytes)" \
		"$(json_get "$work/default.json" $way.unpadded_bytes)"
done
[ "$(json_get "$work/default.json" act_up.unpadded_bytes)" -lt "$(json_get "$work/default.json" act_up.tensor_bytes)" ] ||
	fail "no sample is shorter than its chunk"

# A codec that remembers places of the tensor: every text is filled up, and a line says so; asked for, it is refused.
split places --cut 1:-1 --steps 2 --codec ef+uniform:bits=4
equal "a codec that remembers places has padding" "$(grep -c 'padding is not left out: codec ef+uniform' "$work/places.json.log")" 1
equal "all positions travel" "$(json_get "$work/places.json" act_up.tensor_bytes_per_batch)" \
	"$(json_get "$work/max.json" act_up.tensor_bytes_per_batch)"
[ "$(json_get "$work/max.json" act_up.unpadded_bytes)" -lt "$(json_get "$work/max.json" act_up.tensor_bytes)" ] ||
	fail "padding that goes up is not counted apart"
[ "$(json_get "$work/places.json" act_up.unpadded_bytes)" -lt "$(json_get "$work/places.json" act_up.tensor_bytes)" ] ||
	fail "padding that travels is not counted apart"
status=0
"$build/gpclient" train --server "127.0.0.1:$server_port" "${run[@]}" --steps 1 --pad drop --codec-act-up delta+uniform:bits=4 \
	>"$work/out" 2>&1 || status=$?
equal "asked for, it is refused" "$status $(grep -c 'codec delta.* has to be padded to all 60 positions (--pad max)' "$work/out") $(wc -l <"$work/out")" "3 1 1"

# Codecs that change between those that code rows and those that work along the sequence, each tried on every step's tensors.
split ladder --cut 1:-2 --steps 5 --pad drop --log-json "$work/ladder.log" \
	--codec 'auto:every=1,script=0@0/2@1/4@2,ladder=raw|downsample+uniform:bits=8|uniform:bits=6'
# Those of what comes down are told a step later.
equal "errors of what goes up in five steps, of what comes down in four" "$(grep '"event": *"codec_error"' "$work/ladder.log" | grep -o '"step":[0-9]*,"direction":"[a-z_]*"' | sort -u | wc -l)" 18

# Every family, over a link that breaks; sequences cross both cuts.
for codec in uniform:bits=8 topk:ratio=0.3+uniform:bits=8+zstd poweriter:rank=3,iters=1 downsample+poweriter:rank=2 \
	alq:bits=4,update=3 amq:bits=3,update=2 bdi kmeans:bits=3 smaq sortquant:bits=6,split=2,prune=0.5 qsgd+bitshuffle+zstd \
	hadamard:size=32+block:size=32,budget=3+rans; do
	split whole --cut 1:-2 --steps 6 --pad drop --codec "$codec"
	start_link --drop-every 40k
	train "$work/cut.json" --server "127.0.0.1:$link_port" "${run[@]}" --cut 1:-2 --steps 6 --pad drop --codec "$codec" ||
		fail "$codec over a link that breaks"
	stop_link
	equal "$codec over a link that breaks" "$(sha "$work/cut.json")" "$(sha "$work/whole.json")"
	[ "$(json_get "$work/cut.json" reconnects)" -gt 0 ] || fail "$codec: the link never broke"
done

# Frames that are lost and sent again count neither tensor nor padding before they have left.
split whole --cut 1:-2 --steps 6 --pad max
start_link --drop-every 100k
train "$work/cut.json" --server "127.0.0.1:$link_port" "${run[@]}" --cut 1:-2 --steps 6 --pad max --log-json "$work/cut.jsonl" ||
	fail "--pad max over a link that breaks"
stop_link
[ "$(json_get "$work/cut.json" reconnects)" -gt 0 ] || fail "--pad max: the link never broke"
for way in act_up act_down grad_up grad_down; do
	unpadded=$(json_get "$work/cut.json" $way.unpadded_bytes) tensor=$(json_get "$work/cut.json" $way.tensor_bytes)
	share=$(awk -v u="$unpadded" -v t="$tensor" 'BEGIN { printf "%.2f", u / t }')
	usual=$(awk -v u="$(json_get "$work/whole.json" $way.unpadded_bytes)" -v t="$(json_get "$work/whole.json" $way.tensor_bytes)" \
		'BEGIN { printf "%.2f", u / t }')
	awk -v a="$share" -v b="$usual" 'BEGIN { exit !(a > b - 0.1 && a < b + 0.1) }' ||
		fail "$way over a link that breaks: $share of the bytes are no padding, $usual without a break"
done
equal "no line of the log has fewer bytes than none" "$(grep -c '"unpadded_bytes": *-' "$work/cut.jsonl")" 0
stop_server

# What is remembered of chunks of some lengths is in a checkpoint.
codec=poweriter:rank=3,iters=1
train_to() { # NAME STEPS FLAG...
	start_server --threads 1 --state-dir "$work/state"
	split "$1" --cut 1:-2 --codec $codec --codec-act-down alq:bits=4,update=5 --steps "$2" --checkpoint "$work/run" \
		--checkpoint-every 3 "${@:3}"
	stop_server
}
train_to whole 8
rm -rf "$work/run" "$work/state"
train_to half 3
train_to rest 8 --resume
equal "resumed" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"
finish
