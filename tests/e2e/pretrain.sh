#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient pretrain: masked language modelling on a small text. Split equals
# local bit for bit, with several chunks, clipping and both encoders; word embedding
# and output layer have the same values; a run that was killed ends as an undisturbed
# one; a classifier starts from the weights, and pretrain from those of a classifier.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

tokenizer=(--tokenizer "$source_dir/tests/golden/tokens/wordpiece")
shape=layers=2,dim=16,heads=2,ffn=24,max=34
for i in $(seq 200); do
	words=('! ' '? ' '# ' '$ ')
	line=''
	for k in $(seq $((1 + i % 13))); do line+=${words[(i + k) % 4]}; done
	echo "$line"
done >"$work/text.txt"
text=(--data "text:$work/text.txt,max=24,bucket=4" "${tokenizer[@]}" --batch 16 --chunks 4 --threads 1 --seed 3)

sha() {
	json_get "$1" param_sha256
}

pretrain() { # JSON-FILE FLAG...
	local out=$1
	shift
	"$build/gpclient" pretrain --no-progress --json "$@" >"$out" 2>"$out.log" || {
		echo "gpclient pretrain $* failed with status $?:" >&2
		cat "$out.log" >&2
		return 1
	}
}


start_server --threads 1 --state-dir "$work/state"
server=(--server "127.0.0.1:$server_port")

both() { # NAME FLAG...
	pretrain "$work/local.json" --local "${text[@]}" --steps 6 "${@:2}" || fail "$1: local run"
	pretrain "$work/split.json" "${server[@]}" "${text[@]}" --steps 6 "${@:2}" || fail "$1: split run"
	equal "$1: parameters" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
	equal "$1: val_loss" "$(json_get "$work/split.json" val_loss)" "$(json_get "$work/local.json" val_loss)"
	equal "$1: val_acc" "$(json_get "$work/split.json" val_acc)" "$(json_get "$work/local.json" val_acc)"
}

both roberta --model roberta:$shape --pad max
padded=$(json_get "$work/local.json" val_loss)
equal "no Matthews correlation of words" "$(json_get "$work/local.json" val_mcc)" null
awk -v p="$(json_get "$work/local.json" val_perplexity)" -v l="$padded" 'BEGIN { exit !(p > 1 && p / exp(l) < 1.0001 && p / exp(l) > 0.9999) }' ||
	fail "val_perplexity is not exp(val_loss)"
both "roberta, --pad drop, clipped" --model roberta:$shape --pad drop --clip-norm 0.5
both "bert, cut behind an attention" --model bert:$shape,cuts=fine --cut type1 --no-decay '*.bias'
both "roberta, frozen table" --model roberta:$shape --freeze 'roberta.embeddings.*,lm_head.decoder.weight'
equal "no gradient comes down to a frozen head" "$(json_get "$work/split.json" grad_down.payload_bytes)" 0

# It learns: the text has a few words of many.
pretrain "$work/trained.json" --local "${text[@]}" --model roberta:$shape,dropout=0,attention_dropout=0 --steps 150 --lr 5e-3 \
	--save "$work/words.safetensors" || fail "a longer run"
awk -v l="$(json_get "$work/trained.json" val_loss)" 'BEGIN { exit !(l < 3) }' ||
	fail "val_loss is $(json_get "$work/trained.json" val_loss) after 150 steps"

# Texts of unknown words have none to guess: a step without a loss is no step that diverged.
for i in $(seq 10); do echo '☃ ☃'; done >"$work/unknown.txt"
pretrain "$work/unknown.json" --local --model roberta:$shape --data "text:$work/unknown.txt,max=24" "${tokenizer[@]}" --batch 4 \
	--chunks 2 --threads 1 --steps 3 --no-eval || fail "texts without a word to guess"

# The file, and what begins with it.
"$build/gpclient" eval --local --init "$work/words.safetensors" "${text[@]}" --json --no-progress >"$work/eval.json" 2>"$work/eval.log" ||
	fail "eval: $(cat "$work/eval.log")"
equal "eval gives the same loss" "$(json_get "$work/eval.json" val_loss)" "$(json_get "$work/trained.json" val_loss)"
grep -aq '"lm_head.bias"' "$work/words.safetensors" || fail "the decoder's bias is not called lm_head.bias"
grep -aq 'decoder' "$work/words.safetensors" && fail "the file has the tied weight twice"
for i in $(seq 40); do printf '%d\t! ? %d\n' $((i % 2)) $i; done >"$work/table.tsv"
table=(--data "tsv:$work/table.tsv,text=2,label=1,max=24" "${tokenizer[@]}" --batch 8 --chunks 2 --threads 1 --steps 2)
train "$work/tuned.json" --local --model roberta:$shape,dropout=0,attention_dropout=0 --init "$work/words.safetensors" "${table[@]}" \
	--save "$work/tuned.safetensors" || fail "fine-tuning"
grep -q 'words.safetensors: .* tensors loaded; its head of a masked language model is left out' "$work/tuned.json.log" ||
	fail "fine-tuning does not say what it leaves out: $(cat "$work/tuned.json.log")"
grep -q 'the classifier starts from random weights, drawn from --seed' "$work/tuned.json.log" || fail "fine-tuning does not say what starts from random weights"
train "$work/tuned2.json" --local --init "$work/words.safetensors" "${table[@]/,max=24/}" || fail "fine-tuning without --model"
train "$work/shorter.json" --local --init "$work/words.safetensors" "${table[@]/max=24/max=16}" || fail "fine-tuning of shorter texts"
equal "fine-tuning without --model" "$(sha "$work/tuned2.json")" "$(sha "$work/tuned.json")"
pretrain "$work/again.json" --local --init "$work/tuned.safetensors" "${text[@]}" --steps 2 || fail "pretraining of a classifier"
grep -q 'its classifier is left out' "$work/again.json.log" || fail "pretraining does not say what it leaves out"
pretrain "$work/again.json" --local --init "$work/words.safetensors" "${text[@]}" --steps 2 || fail "going on with a file"

# The tensors at a cut: a gradient comes down through the words' table.
"$build/gpclient" capture --model roberta:$shape,lm=1 "${text[@]:0:4}" --batch 4 --threads 1 --out "$work/cut.safetensors" >"$work/capture" 2>&1 ||
	fail "capture: $(cat "$work/capture")"
grep -q 'grad_up .*100.0 % zeros' "$work/capture" && fail "no gradient at the cut: $(cat "$work/capture")"

# Killed and resumed, locally and split. A checkpoint that is on one side alone, as the newest one may be, is no use.
has_checkpoint() { # FOLDER
	[ -n "$(find "$1" -name 'step-*' -newer "$work/whole.json" 2>/dev/null)" ]
}

run=(--model roberta:$shape "${text[@]}" --steps 30 --clip-norm 1 --checkpoint-every 4 --no-eval)
pretrain "$work/whole.json" --local "${run[@]}" || fail "a run that nobody disturbs"
for where in local split; do
	place=(--local) && [ $where = split ] && place=("${server[@]}" --connect-timeout 5m)
	"$build/gpclient" pretrain --no-progress "${place[@]}" "${run[@]}" --checkpoint "$work/run.$where" >/dev/null 2>"$work/killed.log" &
	pid=$!
	for _ in $(seq 12000); do
		kill -0 $pid 2>/dev/null || break
		has_checkpoint "$work/run.$where" && { [ $where = local ] || has_checkpoint "$work/state"; } && break
		sleep 0.01
	done
	kill -9 $pid 2>/dev/null
	wait $pid 2>/dev/null
	pretrain "$work/resumed.json" "${place[@]}" "${run[@]}" --checkpoint "$work/run.$where" --resume || fail "$where: --resume"
	equal "$where: killed and resumed" "$(sha "$work/resumed.json")" "$(sha "$work/whole.json")"
done
grep -aq 'param.lm_head.decoder.weight' "$work"/run.local/step-*/* && fail "a checkpoint has the tied weight twice"
pretrain "$work/whole.json" --local "${run[@]}" --save "$work/saved.safetensors" || fail "--save"
"$build/gpclient" model export "$work/run.local" --out "$work/exported.safetensors" >/dev/null 2>"$work/err" || fail "export: $(cat "$work/err")"
for file in saved exported; do
	"$build/gpclient" eval --local --init "$work/$file.safetensors" "${text[@]}" --json --no-progress >"$work/$file.json" 2>"$work/eval.log" ||
		fail "eval of $file: $(cat "$work/eval.log")"
done
equal "an exported checkpoint" "$(json_get "$work/exported.json" val_loss)" "$(json_get "$work/saved.json" val_loss)"
"$build/gpclient" model export "$work/run.split" "${server[@]}" --out "$work/fetched.safetensors" >/dev/null 2>"$work/err" ||
	fail "export from the server: $(cat "$work/err")"
cmp -s <(tail -c 4096 "$work/fetched.safetensors") <(tail -c 4096 "$work/saved.safetensors") || fail "the server's export differs"
stop_server
finish
