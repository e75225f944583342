#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Texts in tables: values to predict (regression) and classes, split as locally
# to the last bit, with batches by length; correlations; tokens kept in a cache
# that is never trusted; lines of text for infer.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

# Texts of 1 to 12 letters; the value is twice the share of "a" among them, the class whether there is any "a".
awk 'BEGIN {
	for (i = 0; i < 240; i++) {
		n = 1 + i * 7 % 12; text = ""; a = 0
		for (k = 0; k < n; k++) {
			word = substr("abcd", 1 + (i * i + 3 * k * k + i * k) % 4, 1)
			a += word == "a"; text = text (k ? " " : "") word
		}
		printf "%.3f\t%s\t%s\n", 2 * a / n, a ? "yes" : "no", text
	}
}' >"$work/table.tsv"
head -48 "$work/table.tsv" >"$work/val.tsv"
tokenizer=(--tokenizer "$source_dir/tests/golden/tokens/wordpiece")
values="tsv:$work/table.tsv,val=$work/val.tsv,text=3,label=1,regression,max=16,bucket=4"
classes="tsv:$work/table.tsv,val=$work/val.tsv,text=3,label=2,max=16"
common=("${tokenizer[@]}" --model fasttext:dim=16,hidden=16 --batch 16 --chunks 4 --threads 1 --schedule linear --warmup 4
	--optimizer adamw --lr 0.02 --weight-decay 0.1 --no-decay '*.bias' --seed 3)

start_server --threads 1
server=(--server "127.0.0.1:$server_port" --cut 1:-1)
for data in "$values" "$classes"; do
	train "$work/local.json" --local "${common[@]}" --data "$data" --steps 60 || fail "a local run"
	train "$work/split.json" "${server[@]}" "${common[@]}" --data "$data" --steps 60 --save "$work/w.safetensors" || fail "a split run"
	equal "parameters of ${data##*/}" "$(json_get "$work/split.json" param_sha256)" "$(json_get "$work/local.json" param_sha256)"
	for key in val_loss val_acc val_mcc val_pearson val_spearman; do
		equal "$key, split and local" "$(json_get "$work/split.json" $key)" "$(json_get "$work/local.json" $key)"
	done
	for where in "--local" "${server[*]}"; do
		# shellcheck disable=SC2086
		"$build/gpclient" eval $where "${tokenizer[@]}" --threads 1 --batch 16 --data "$data" --init "$work/w.safetensors" \
			--no-progress --json >"$work/eval.json" 2>"$work/eval.log" || fail "eval: $(cat "$work/eval.log")"
		for key in val_acc val_mcc val_pearson val_spearman; do
			equal "$key of eval ${where%% *}" "$(json_get "$work/eval.json" $key)" "$(json_get "$work/split.json" $key)"
		done
	done
	[ "$data" = "$classes" ] || cp "$work/w.safetensors" "$work/values.safetensors"
	for key in val_pearson val_mcc; do
		got=$(json_get "$work/split.json" $key)
		[ "$got" = null ] || awk -v x="$got" 'BEGIN { exit !(x > 0.8) }' || fail "$key is $got after 60 steps"
	done
done

# One value far from the others makes a step's loss thousands of times the first one's: that is no run that diverged.
awk '{ $1 = NR == 90 ? 36 : 0.5; print }' OFS='\t' FS='\t' "$work/table.tsv" >"$work/far.tsv"
train "$work/far.json" --local "${common[@]}" --data "tsv:$work/far.tsv,val=$work/val.tsv,text=3,label=1,regression,max=16" --batch 4 \
	--lr 1e-5 --no-eval --epochs 1 || fail "with a value far from the others"

# What a checkpoint could not be read again with is refused before the first step.
cp "$work/table.tsv" "$work/"$'ta\tble.tsv'
status=0
"$build/gpclient" train --no-progress --local "${common[@]}" --data "tsv:$work/"$'ta\tble.tsv'",val=$work/val.tsv,text=3,label=2,max=16" \
	--steps 8 --checkpoint "$work/unread" >"$work/out" 2>&1 || status=$?
equal "a name with a control character, and checkpoints: status" $status 2
grep -q "keeps the settings of a run as text, and data '.*' has a control character" "$work/out" || fail "it says: $(cat "$work/out")"

# A run that is gone on with has the batches of one that was never stopped.
run=(--local "${common[@]}" --schedule const --data "$values" --no-eval)
train "$work/whole.json" "${run[@]}" --steps 20 || fail "a whole run"
train "$work/half.json" "${run[@]}" --steps 9 --checkpoint "$work/run" || fail "half a run"
train "$work/rest.json" "${run[@]}" --steps 20 --checkpoint "$work/run" --resume || fail "the rest of a run"
equal "resumed, with batches by length" "$(json_get "$work/rest.json" param_sha256)" "$(json_get "$work/whole.json" param_sha256)"
for changed in '--no-decay *.weight' '--adam-eps 1e-6' '--adam-betas 0.9,0.99'; do
	status=0
	# shellcheck disable=SC2086
	(set -f; "$build/gpclient" train --no-progress "${run[@]}" $changed --steps 30 --checkpoint "$work/run" --resume) >"$work/out" 2>&1 || status=$?
	equal "resumed with $changed: status" $status 3
	grep -q -- "${changed%% *} is '" "$work/out" || fail "resumed with $changed: $(cat "$work/out")"
done

# Tokens in a cache: the same run, whether they are made, taken, or made anew because the file is damaged.
cached() { # NAME WORDS TIMES FLAG...
	local name=$1 words=$2 times=$3
	shift 3
	train "$work/cached.json" "${run[@]}" --steps 20 --eval --token-cache "$work/cache" --log data=info "$@" || fail "$name"
	equal "$name: parameters" "$(json_get "$work/cached.json" param_sha256)" "$(json_get "$work/whole.json" param_sha256)"
	equal "$name: $words" "$(grep -c "$words" "$work/cached.json.log")" "$times"
}
cached "a new cache" 'texts are kept in' 2
cached "a cache that is there" 'texts are those of' 2
for file in "$work"/cache/*; do
	printf 'x' | dd of="$file" bs=1 seek=100 conv=notrunc 2>/dev/null
done
cached "a damaged cache" 'its checksum does not fit: it is damaged; it is made anew' 2
cached "a cache made anew" 'texts are those of' 2
equal "files in the cache" "$(find "$work/cache" -type f | wc -l)" 2
echo "0	no	d d" >>"$work/val.tsv"
cached "a table that grew" 'texts are kept in' 1

# Lines of text, from a file and standard input, here and over a server.
printf 'a a a\n\nb c d b\r\na b' >"$work/lines.txt"
infer=("${tokenizer[@]}" --threads 1 --init)
"$build/gpclient" infer --local "${infer[@]}" "$work/values.safetensors" "$work/lines.txt" >"$work/out" 2>"$work/err" || fail "infer: $(cat "$work/err")"
equal "lines that have an answer" "$(cut -d' ' -f1 "$work/out" | tr '\n' ' ')" "$work/lines.txt:1: $work/lines.txt:3: $work/lines.txt:4: "
awk '{ v[NR] = $2 } END { exit !(v[1] > v[3] && v[3] > v[2]) }' "$work/out" || fail "values of lines: $(cat "$work/out")"
{ printf '\357\273\277' && cat "$work/lines.txt"; } >"$work/marked.txt"
"$build/gpclient" infer --local "${infer[@]}" "$work/values.safetensors" "$work/marked.txt" 2>"$work/err" |
	sed 's/marked/lines/' | cmp - "$work/out" || fail "lines behind a byte order mark: $(cat "$work/err")"
"$build/gpclient" infer "${server[@]}" "${infer[@]}" "$work/values.safetensors" <"$work/lines.txt" 2>"$work/err" |
	sed "s|^-|$work/lines.txt|" | cmp - "$work/out" || fail "lines from standard input, split: $(cat "$work/err")"
"$build/gpclient" infer --local "${infer[@]}" "$work/w.safetensors" --json - <"$work/lines.txt" >"$work/out" 2>"$work/err" ||
	fail "infer: $(cat "$work/err")"
equal "labels of lines" "$(sed -E 's/.*"line": ([0-9]+), "labels": \[\{"label": "([a-z]+)".*/\1 \2/' "$work/out" | tr '\n' ' ')" "1 yes 3 no 4 yes "
stop_server
finish
