#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Saved weights remember their model: what --init takes from a file and what it
# refuses, files of weights made from checkpoints, and where weights go when the
# place of --save fails at the end.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

model=mobilenetv2:width=0.1,stem=cifar
synthetic=synthetic:shape=3x16x16,classes=4,samples=64
common=(--data $synthetic --batch 8 --chunks 2 --threads 1 --seed 7 --no-progress)
weights=$work/w.safetensors

# Ends with this status and one line of error that has the words.
refused() { # STATUS WORDS COMMAND FLAG...
	local want=$1 words=$2 status=0
	"$build/gpclient" "${@:3}" >"$work/out" 2>"$work/err" || status=$?
	equal "refused: $words" "$status $(grep -c '^gpclient' "$work/err") $(grep -c -- "$words" "$work/err")" "$want 1 1"
}

train "$work/train.json" --local "${common[@]}" --model $model,pad=same --steps 6 --lr 0.01 --save "$weights" \
	--checkpoint "$work/run" --checkpoint-every 2 || fail "training"

# The model, the size and the normalisation are those of the file.
evaluate() { # FLAG...
	"$build/gpclient" eval --local --json --threads 1 --no-progress --batch 8 --chunks 2 --init "$weights" "$@" \
		>"$work/eval.json" 2>"$work/eval.log" || fail "eval $*: $(cat "$work/eval.log")"
	json_get "$work/eval.json" val_loss
}
loss=$(evaluate --data $synthetic)
near "loss without --model" "$loss" "$(json_get "$work/train.json" val_loss)"
equal "notes" "$(grep -c note "$work/eval.log")" 0
equal "loss with the same --model" "$(evaluate --data $synthetic --model $model,pad=same,cuts=fine,dropout=0.5)" "$loss"
equal "notes" "$(grep -c note "$work/eval.log")" 0
refused 3 'they differ in pad (leave --model out, or --init-anyway): .*pad=same.*; .*pad=torch' eval --local --init "$weights" --data $synthetic --model $model
refused 3 'they differ in eps, pad' eval --local --init "$weights" --data $synthetic --model $model,eps=0.001
refused 3 'they differ in the kind of model' eval --local --init "$weights" --data $synthetic --model resnet20
refused 3 'they differ in stem' train --local "${common[@]}" --steps 1 --init "$weights" --model mobilenetv2:width=0.1,pad=same
[ "$(evaluate --data $synthetic --model $model --init-anyway)" != "$loss" ] || fail "pad makes no difference"
equal "insisted: notes" "$(grep -c 'note: .*they differ in pad' "$work/eval.log")" 1
evaluate --data $synthetic,mean=0.3 >"$work/out"
equal "another mean: notes" "$(grep -c 'note: .* was trained with mean 0.5' "$work/eval.log")" 1

# A training goes on from it, with as many classes, or with a new classifier.
other=synthetic:shape=3x16x16,classes=3,samples=64
train "$work/more.json" --local "${common[@]}" --steps 1 --no-eval --init "$weights" --save "$work/more.safetensors" || fail "without --model"
train "$work/new.json" --local "${common[@]}" --data $other --steps 1 --no-eval --init "$weights" --init-skip 'classifier.*' \
	--save "$work/new.safetensors" || fail "with a new classifier"
equal "a new classifier: notes" "$(grep -c 'note: .* was trained on 4 classes; the data has 3' "$work/new.json.log")" 1
grep -qa 'stem=cifar,pad=same,cuts=blocks,classes=3"' "$work/new.safetensors" || fail "the new model is not in its file"
refused 3 'classifier.1.bias: file has 4, model wants 3' train --local "${common[@]}" --data $other --steps 1 --init "$weights" \
	--model $model,pad=same
refused 2 'init-anyway is about the weights of --init FILE' train --local "${common[@]}" --model $model --init-anyway

# Checkpoints become files of weights: the same bytes as --save.
"$build/gpclient" model export "$work/run" --out "$work/export.safetensors" 2>"$work/out" || fail "export: $(cat "$work/out")"
equal "export of a local run" "$(cksum <"$work/export.safetensors")" "$(cksum <"$weights")"
"$build/gpclient" model export "$work/run/step-000000000004/" --out "$work/early.safetensors" 2>"$work/out" || fail "export: $(cat "$work/out")"
equal "export of an older one" "$(cat "$work/out")" "$work/early.safetensors: $(sed 's/.*: \([0-9]*\) tensors.*/\1/' "$work/out") tensors as of step 4"
# The newest is damaged: the one before it serves.
cp -r "$work/run" "$work/hurt"
mapfile -t steps < <(find "$work/hurt" -maxdepth 1 -name 'step-*' | sort -r)
"$build/gpclient" model export "${steps[1]}" --out "$work/older.safetensors" 2>"$work/out" || fail "export: $(cat "$work/out")"
printf x >>"${steps[0]}/state.safetensors"
"$build/gpclient" model export "$work/hurt" --out "$work/hurt.safetensors" 2>"$work/out" || fail "export: $(cat "$work/out")"
equal "export behind a damaged one" "$(cksum <"$work/hurt.safetensors")" "$(cksum <"$work/older.safetensors")"
grep -q 'an older checkpoint is taken' "$work/out" || fail "nothing is said of the damaged one: $(cat "$work/out")"
refused 3 'there is no checkpoint in' model export "$work/nowhere" --out "$work/x.safetensors"
refused 3 'cannot open' model export "$work/run/step-000000000005" --out "$work/x.safetensors"
refused 2 'out FILE is missing' model export "$work/run"

# The server has a half of a split run, under the client's name where it has one.
split_export() { # NAME SERVER-FLAGS CLIENT-FLAGS
	local server client
	read -ra server <<<"$2"
	read -ra client <<<"$3"
	start_server --threads 1 --state-dir "$work/state" "${server[@]}"
	train "$work/split.json" --server "127.0.0.1:$server_port" "${common[@]}" --model $model --steps 4 --no-eval --save "$work/split.safetensors" \
		--checkpoint "$work/$1" "${client[@]}" || fail "$1: training"
	refused 3 'is of a split run.*Give --server HOST:PORT, or its --state-dir' model export "$work/$1" --out "$work/x.safetensors"
	"$build/gpclient" model export "$work/$1" --state-dir "$work/state" --out "$work/export.safetensors" 2>"$work/out" ||
		fail "$1: $(cat "$work/out")"
	equal "$1" "$(cksum <"$work/export.safetensors")" "$(cksum <"$work/split.safetensors")"
	stop_server
}
split_export "export of a split run" "" ""
printf 'one 0123456789abcdef\n' >"$work/tokens"
echo 0123456789abcdef >"$work/token"
split_export "export of a split run of a client with a name" "--tokens $work/tokens" "--token-file $work/token"
mkdir "$work/empty"
refused 3 'empty has no checkpoint of the run in' model export "$work/export of a split run" --state-dir "$work/empty" --out "$work/x.safetensors"
folder=("$work"/state/*/step-000000000004)
refused 3 'holds checkpoints of a server' model export "${folder[0]%/*}" --out "$work/x.safetensors"

# Weights of texts know their tokenizer.
golden=$source_dir/tests/golden/tokens
printf 'text\tlabel\n' >"$work/texts.tsv"
for i in {1..40}; do printf 'the %s sea\t%s\n' "$i" $((i % 2)) >>"$work/texts.tsv"; done
texts=(--data "tsv:$work/texts.tsv,text=text,label=label,max=8" --batch 8 --chunks 2)
fast=(--model fasttext:dim=4,vocab=2000)
train "$work/texts.json" --local "${texts[@]}" "${fast[@]}" --steps 1 --tokenizer "$golden/bpe" --save "$work/texts.safetensors" || fail "texts"
trained=(--init "$work/texts.safetensors" "${texts[@]}")
"$build/gpclient" eval --local "${trained[@]}" --tokenizer "$golden/bpe" >/dev/null 2>"$work/err" || fail "texts: $(cat "$work/err")"
equal "the same tokenizer: notes" "$(grep -c note "$work/err")" 0
for command in eval infer train; do
	refused 3 'was trained with another tokenizer ([0-9a-f]*) than --tokenizer .*wordpiece ([0-9a-f]*): .* --init-anyway' \
		"$command" --local "${trained[@]}" --tokenizer "$golden/wordpiece"
done
"$build/gpclient" eval --local "${trained[@]}" --tokenizer "$golden/wordpiece" --init-anyway >/dev/null 2>"$work/err" || fail "insisted: $(cat "$work/err")"
equal "insisted: notes" "$(grep -c 'note: .*another tokenizer' "$work/err")" 1
printf 'the sea\nthe sea\tthe moon\n' >"$work/lines.txt"
infer_lines() { # FILE
	"$build/gpclient" infer --local --init "$1" --tokenizer "$golden/bpe" "$work/lines.txt" >"$work/out" 2>"$work/err" ||
		fail "infer of lines: $(cat "$work/err")"
}
infer_lines "$work/texts.safetensors"
equal "single texts: a pair is told" "$(grep -c 'was trained on single texts; 1 of 2 lines have two' "$work/err") $(wc -l <"$work/out")" "1 2"
for i in {1..40}; do printf 'the %s sea\tthe moon\t%s\n' "$i" $((i % 2)); done >"$work/pairs.tsv"
train "$work/pairs.json" --local --data "tsv:$work/pairs.tsv,text=1,pair=2,label=3,max=16" --batch 8 --chunks 2 "${fast[@]}" --steps 1 \
	--tokenizer "$golden/bpe" --save "$work/pairs.safetensors" || fail "pairs"
infer_lines "$work/pairs.safetensors"
equal "pairs: a single text is told" "$(grep -c 'was trained on pairs of texts; 1 of 2 lines have no tab' "$work/err") $(wc -l <"$work/out")" "1 2"
for max in 8 16 32; do
	"$build/gpclient" eval --local --init "$work/texts.safetensors" --data "tsv:$work/texts.tsv,text=text,label=label,max=$max" \
		--tokenizer "$golden/bpe" --json >"$work/texts$max.json" 2>"$work/err" || fail "texts of $max tokens: $(cat "$work/err")"
done
equal "texts may be of another length: loss" "$(json_get "$work/texts16.json" val_loss)" "$(json_get "$work/texts32.json" val_loss)"
"$build/gpclient" eval --local --init "$work/texts.safetensors" --data synthetic:tokens=8,vocab=2000,classes=2,samples=64 --no-progress \
	>/dev/null 2>"$work/err" || fail "synthetic tokens: $(cat "$work/err")"
equal "synthetic tokens: notes" "$(grep -c 'note: .* the tokens of --data synthetic.* are of no tokenizer' "$work/err")" 1

# The place of --save fails at the end: the weights are elsewhere, and the figures are not lost either.
kept() {
	local status=0 file
	mkdir "$work/cwd"
	(cd "$work/cwd" && GP_FAULT=write:1 "$build/gpclient" train --json --local "${common[@]}" --model $model,pad=same --steps 6 --lr 0.01 \
		--save "$work/full.safetensors" >"$work/full.json" 2>"$work/full.log") || status=$?
	equal "a full disk: exit status" $status 1
	file=$(sed -n 's/.*--save: .*No space left.*; the trained weights are in \(.*\) instead$/\1/p' "$work/full.log")
	[ -n "$file" ] || fail "no word where they are: $(tail -2 "$work/full.log")"
	equal "a full disk: figures" "$(json_get "$work/full.json" param_sha256)" "$(json_get "$work/train.json" param_sha256)"
	weights=$work/cwd/$file
	equal "a full disk: they are whole" "$(evaluate --data $synthetic)" "$loss"
	[ ! -e "$work/full.safetensors" ] || fail "something is at the place of --save"
	# Nothing can be printed either, and the path is long: it is told whole, and --save is the error that is left.
	local folder=$work/$(printf 'x%.0s' {1..200})
	status=0
	mkdir "$folder" "$work/gone"
	(cd "$work/gone" && rmdir "$work/gone" && TMPDIR=$folder GP_FAULT=write:1 "$build/gpclient" train --json --local "${common[@]}" \
		--model $model --steps 1 --no-eval --save "$work/full.safetensors" >/dev/full 2>"$work/full.log") || status=$?
	equal "a full disk and standard output: exit status" $status 1
	file=$(sed -n 's/^--save: .*; the trained weights are in \(.*\) instead$/\1/p' "$work/full.log")
	[ -f "$file" ] && [ "${file%/*}" = "$folder" ] || fail "the path is not whole: $(tail -2 "$work/full.log")"
	equal "a full disk and standard output: the error" "$(tail -1 "$work/full.log" | grep -c '^gpclient train: --save: ')" 1
}
if grep -q '^GP_FAULTS:[A-Z]*=ON' "$build/CMakeCache.txt"; then
	kept
fi

# What a hostile file says is bounded, and shown without control characters.
hostile() { # METADATA
	local header="{\"__metadata__\":{\"gpsplit.format\":\"1\",$1},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}" n
	n=$(printf '%s' "$header" | wc -c)
	printf '%b' "$(printf '\\x%02x\\x%02x' $((n % 256)) $((n / 256)))\\0\\0\\0\\0\\0\\0" >"$work/hostile.safetensors"
	printf '%sx' "$header" >>"$work/hostile.safetensors"
}
evil=(eval --local --data $synthetic --init "$work/hostile.safetensors")
hostile '"gpsplit.model":"cnn:width=1024"'
refused 3 'which has [0-9]* numbers: more than the file can hold' "${evil[@]}"
evil_train=(train --local --data $synthetic --steps 1 --init "$work/hostile.safetensors" --init-skip)
refused 3 'which has [0-9]* numbers beside those that are left out: more than the file can hold' "${evil_train[@]}" 'classifier.*'
hostile '"gpsplit.model":"resnet18:stem=cifar,width=8"'
refused 3 'the layers of it that are left out have [0-9]* numbers, more than 268435456' "${evil_train[@]}" '*'
hostile '"gpsplit.model":"cnn:\u001b[2Jwidth=1"'
refused 3 'gpsplit.model is not a short printable text' "${evil[@]}"
large='"gpsplit.model":"resnet20","gpsplit.input":"3x4096x4096","gpsplit.mean":"0","gpsplit.std":"1","gpsplit.scale":"1/255"'
hostile "$large"
refused 3 'its pictures are 3x4096x4096: a batch of 64 takes more than 1024 MiB' eval --local --data synthetic --init "$work/hostile.safetensors"
hostile "$large"',"gpsplit.pictures":"3x4096x4096","gpsplit.labels":"[\"a\",\"b\"]"'
mkdir "$work/many"
for i in {1..8}; do echo >"$work/many/$i.jpg"; done
refused 3 'its pictures are 3x4096x4096: a batch of 8 takes more than 1024 MiB' infer --local --init "$work/hostile.safetensors" "$work/many"
hostile '"gpsplit.labels":"[1,2]"'
refused 3 'gpsplit.labels is not a JSON array of short printable texts' "${evil[@]}" --model cnn
hostile '"gpsplit.tokenizer":"0x123"'
refused 3 'gpsplit.tokenizer is not 16 hex digits' "${evil[@]}" --model cnn
hostile '"gpsplit.model":"from-the-future:x=1"'
refused 2 'no model is named' "${evil[@]}"
refused 3 'says that it is a from-the-future:x=1: no model is named' "${evil[@]}" --model cnn
finish
