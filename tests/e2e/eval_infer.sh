#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# eval and infer: split equals local, eval equals training's own evaluation but for rounding, and
# pictures on disk get the labels that their pixels get as a dataset.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

data=synthetic:shape=3x32x32,classes=10,samples=250,noise=0.3
model=mobilenetv2:width=0.35,stem=cifar
weights=(--model $model --data $data --init "$work/w.safetensors")
start_server --threads 1
split=(--server "127.0.0.1:$server_port" --threads 1)

evaluate() { # JSON-FILE FLAG...
	local out=$1
	shift
	"$build/gpclient" eval --no-progress --json "$@" >"$out" 2>"$out.log" || fail "gpclient eval $*: $(cat "$out.log")"
}

infer() { # OUT FLAG...
	local out=$1
	shift
	"$build/gpclient" infer "$@" >"$out" 2>"$out.log" || fail "gpclient infer $*: $(cat "$out.log")"
}

both() { # JSON-FILE
	echo "$(json_get "$1" val_acc) $(json_get "$1" val_loss)"
}

# Trained until it is sure of most pictures, because a JPEG's pixels are not quite the same. 50 validation images in
# batches of 16: the last batch is short, and one of its chunks has no image at all.
batches=(--batch 16 --chunks 8)
train "$work/train.json" --local --model $model --data $data "${batches[@]}" --threads 1 --steps 100 --lr 0.02 \
	--save "$work/w.safetensors" || fail "training"
evaluate "$work/local.json" --local --threads 1 "${weights[@]}" "${batches[@]}"
equal "eval of saved weights is training's last evaluation" "$(json_get "$work/local.json" val_acc)" \
	"$(json_get "$work/train.json" val_acc)"
near "and its loss" "$(json_get "$work/local.json" val_loss)" "$(json_get "$work/train.json" val_loss)"
equal "samples" "$(json_get "$work/local.json" samples)" 50
for cut in 1:-1 3:-3; do
	evaluate "$work/split.json" "${split[@]}" "${weights[@]}" "${batches[@]}" --cut $cut
	equal "eval split at $cut" "$(both "$work/split.json")" "$(both "$work/local.json")"
done
equal "activations travelled" "$(json_get "$work/split.json" act_up.frames)" 25
equal "no gradients travelled" "$(json_get "$work/split.json" grad_up.frames)" 0
evaluate "$work/coded.json" "${split[@]}" "${weights[@]}" --codec uniform:bits=8
if [ "$(json_get "$work/coded.json" act_up.payload_bytes)" -lt "$(json_get "$work/split.json" act_up.payload_bytes)" ]; then
	echo "ok: a codec makes less of the activations"
else
	fail "uniform:bits=8 did not make less bytes of the activations"
fi

# Pictures.
mkdir "$work/pictures"
"$build/tests/export_pictures" $data "$work/pictures" || fail "no pictures"
mv "$work/pictures/first.jpg" "$work/"
infer "$work/local.jsonl" --local --threads 1 "${weights[@]}" --json "$work/pictures"
infer "$work/split.jsonl" "${split[@]}" "${weights[@]}" --json "$work/pictures"
equal "infer split and local" "$(cksum <"$work/split.jsonl")" "$(cksum <"$work/local.jsonl")"
infer "$work/alone.jsonl" --local --threads 1 --init "$work/w.safetensors" --json "$work/pictures"
# One picture is a batch of a few, and a chunk no larger than that.
infer "$work/one.jsonl" --local --threads 1 --data pictures:size=512,classes=10 --init "$work/w.safetensors" --json \
	"$(find "$work/pictures" -name '*.png' | head -1)"
equal "one large picture" "$(wc -l <"$work/one.jsonl")" 1
status=0
"$build/gpclient" infer --local --init "$work/w.safetensors" --model $model,pad=same "$work/pictures" >"$work/out" 2>&1 || status=$?
equal "infer with another pad" "$status $(grep -c 'they differ in pad' "$work/out")" "3 1"
equal "infer with nothing but the weights" "$(cksum <"$work/alone.jsonl")" "$(cksum <"$work/local.jsonl")"
equal "a line per picture" "$(wc -l <"$work/local.jsonl")" 50
right=$(sed -nE 's/.*-([0-9]+)\.png", "labels": \[\{"label": "class ([0-9]+)".*/\1 \2/p' "$work/local.jsonl" |
	awk '$1 == $2 { n++ } END { print n / NR }')
equal "pictures are recognised as in the dataset" "$right" "$(json_get "$work/local.json" val_acc)"
head -1 "$work/local.jsonl" >"$work/one.json"
equal "five labels by default" "$(json_flat "$work/one.json" | grep -c 'probability=')" 5

infer "$work/top.txt" --local "${weights[@]}" --top 10 "$work/first.jpg" "$work/pictures/0000-0.png"
equal "probabilities add up to one" \
	"$(sed 's/^[^:]*://' "$work/top.txt" | head -1 | tr ',' '\n' | awk '{ s += $(NF - 1) } END { printf "%.0f", s }')" 100
equal "ten of ten need no note" "$(grep -c -- --top "$work/top.txt.log")" 0
infer "$work/more.txt" --local "${weights[@]}" --top 11 "$work/first.jpg"
equal "more labels than there are: told" "$(grep -c -- '--top 11: the model has 10 outputs' "$work/more.txt.log")" 1
equal "more labels than there are: all shown" "$(cat "$work/more.txt")" "$(head -1 "$work/top.txt")"
first() { sed -n "${1}p" "$work/top.txt" | sed -E 's/^[^:]*: ([^,]*) [0-9.]+ %.*/\1/'; }
equal "JPEG and PNG of one picture have one label" "$(first 1)" "$(first 2)"

seq -f 'thing %.0f' 10 >"$work/labels.txt"
infer "$work/named.txt" --local --threads 1 --model $model,classes=10 --init "$work/w.safetensors" --labels "$work/labels.txt" \
	--data pictures:size=32,classes=10,mean=0.5,std=0.25 --top 1 "$work/pictures"
want=$(sed -nE 's/.*"labels": \[\{"label": "class ([0-9]+)".*/\1/p' "$work/local.jsonl" | awk '{ print "thing " $1 + 1 }' | cksum)
equal "without the dataset, with labels from a file" \
	"$(sed -E 's/^[^:]*: ([^,]*) [0-9.]+ %$/\1/' "$work/named.txt" | cksum)" "$want"

# Another classifier: left out of the file, drawn from the seed.
wider=(--model $model,classes=12 --data $data --init "$work/w.safetensors" --init-skip 'classifier.*')
evaluate "$work/local.json" --local --threads 1 "${wider[@]}"
evaluate "$work/split.json" "${split[@]}" "${wider[@]}"
equal "a new classifier, split and local" "$(both "$work/split.json")" "$(both "$work/local.json")"
equal "what was left out is told" \
	"$(grep -c 'left out: classifier.1.weight, classifier.1.bias$' "$work/local.json.log")" 1
train "$work/tuned.json" "${split[@]}" "${wider[@]}" --batch 16 --steps 2 --no-eval || fail "training on with a new classifier"
stop_server
finish
