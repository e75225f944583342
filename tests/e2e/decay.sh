#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Decaying ranks (--insert decay), on texts, at both cuts: a split run equals a local one to the last bit, also over a link
# that is cut and with processes that are killed; fewer bytes cross after every change; the weights of --save and of
# checkpoints are loaded with the rank that they had.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

awk 'BEGIN {
	for (i = 0; i < 96; i++) {
		n = 1 + i * 7 % 12; text = ""; a = 0
		for (k = 0; k < n; k++) {
			word = substr("abcd", 1 + (i * i + 3 * k * k + i * k) % 4, 1)
			a += word == "a"; text = text (k ? " " : "") word
		}
		printf "%s\t%s\n", a ? "yes" : "no", text
	}
}' >"$work/table.tsv"
head -16 "$work/table.tsv" >"$work/val.tsv"
tokenizer=(--tokenizer "$source_dir/tests/golden/tokens/wordpiece")
data=(--data "tsv:$work/table.tsv,val=$work/val.tsv,text=2,label=1,max=16")
one=decay:rate=0.5,every=2,times=2,dim=feature # 32, 16, 8
two=$one/decay:rate=0.75,every=3,times=1,dim=sequence # and 16, 12 positions
model=(--model bert:dim=32,layers=2,heads=2,ffn=32)
common=("${tokenizer[@]}" "${model[@]}" --batch 16 --chunks 2 --threads 1 --cut 1:-1 --optimizer adamw --lr 0.01
	--seed 3)

sha() {
	json_get "$1" param_sha256
}

start_server --threads 1 --state-dir "$work/state"
server=(--server "127.0.0.1:$server_port")

# NAME STEPS FLAG...: a local and a split run, which end alike.
both() {
	local name=$1 steps=$2
	shift 2
	train "$work/local.json" --local "${common[@]}" "${data[@]}" --steps "$steps" "$@" || fail "$name: a local run"
	train "$work/split.json" "${server[@]}" "${common[@]}" "${data[@]}" --steps "$steps" --save "$work/$name.safetensors" \
		"$@" || fail "$name: a split run"
	equal "$name: parameters" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
	json_get "$work/split.json" val_loss >"$work/$name.loss"
	equal "$name: loss of the evaluation" "$(json_get "$work/split.json" val_loss)" "$(json_get "$work/local.json" val_loss)"
}
both feature 8 --insert "$one" --pad drop
both two-sets 8 --insert "$two" --pad max
both down-alone 5 --insert-down "$one" --pad max --clip-norm 0.5

# Payload bytes that go up in each step, raw and with all positions: 32, 32, 16, 16, 8, 8 features of 16 positions of 16
# samples in fp32, and the lengths of the texts.
train "$work/bytes.json" "${server[@]}" "${common[@]}" "${data[@]}" --steps 6 --insert "$one" --pad max --no-eval \
	--log-json "$work/bytes.log" || fail "a run whose bytes are counted"
bytes=$(grep -o '"act_up": *{[^}]*}' "$work/bytes.log" | grep -o '"payload_bytes": *[0-9]*' | grep -o '[0-9]*' | head -6)
equal "payload bytes of each step" "$(echo $bytes)" "32832 32832 16448 16448 8256 8256"

# A file of weights has the ranks that they have come to, and no more changes. Chunks are those of the training: how oneDNN sums
# up depends on how many samples are in one.
for name in feature two-sets; do
	for where in "--local" "${server[*]}"; do
		# shellcheck disable=SC2086
		"$build/gpclient" eval $where "${tokenizer[@]}" --threads 1 --batch 16 --chunks 2 --pad max "${data[@]}" \
			--init "$work/$name.safetensors" \
			--no-progress --json >"$work/eval.json" 2>"$work/eval.log" || fail "eval of $name: $(cat "$work/eval.log")"
		equal "eval of $name ${where%% *}" "$(json_get "$work/eval.json" val_loss)" "$(cat "$work/$name.loss")"
	done
done
train "$work/on.json" "${server[@]}" "${common[@]}" "${data[@]}" --steps 2 --pad max --init "$work/feature.safetensors" \
	--save "$work/on.safetensors" || fail "a training that begins with them"
"$build/gpclient" eval --local "${tokenizer[@]}" --threads 1 --batch 16 --chunks 2 "${data[@]}" --init "$work/on.safetensors" --pad max \
	--no-progress --json >"$work/eval.json" 2>"$work/eval.log" || fail "eval of what came of it: $(cat "$work/eval.log")"
equal "eval of what came of it" "$(json_get "$work/eval.json" val_loss)" "$(json_get "$work/on.json" val_loss)"

# Over a link that is cut, with codecs that remember, at many places; and with processes that are killed behind any step.
remembers=(--insert "$two" --pad max --codec ef+topk:ratio=0.5 --no-eval --steps 8)
train "$work/whole.json" "${server[@]}" "${common[@]}" "${data[@]}" "${remembers[@]}" || fail "an undisturbed run"
want=$(sha "$work/whole.json")
start_link --drop-every 90000 --seed 5
train "$work/cut.json" --server "127.0.0.1:$link_port" "${common[@]}" "${data[@]}" "${remembers[@]}" --reconnect-for 120s ||
	fail "a run over a link that is cut"
equal "over a link that is cut" "$(sha "$work/cut.json")" "$want"
[ "$(json_get "$work/cut.json" reconnects)" -gt 0 ] || fail "the link was never cut"
stop_link

newest() {
	find "$work/run" -maxdepth 1 -name 'step-*' 2>/dev/null | sort | tail -1
}

# The client is killed each time that it has another checkpoint, of step 1, 2, 3 ..., and begins again.
steps=0 seen=
while [ $steps -lt 6 ]; do
	"$build/gpclient" train --json --no-progress "${server[@]}" --connect-timeout 5m "${common[@]}" "${data[@]}" "${remembers[@]}" \
		--checkpoint "$work/run" --checkpoint-every 1 --resume=if-any >"$work/killed.json" 2>"$work/killed.log" &
	client_pid=$!
	while kill -0 $client_pid 2>/dev/null && [ "$(newest)" = "$seen" ]; do
		sleep 0.01
	done
	kill -KILL $client_pid 2>/dev/null
	wait $client_pid 2>/dev/null
	seen=$(newest)
	steps=$((steps + 1))
done
train "$work/killed.json" "${server[@]}" "${common[@]}" "${data[@]}" "${remembers[@]}" --checkpoint "$work/run" \
	--resume=if-any --save "$work/killed.safetensors" || fail "the last of the runs that were killed"
equal "a client that was killed again and again" "$(sha "$work/killed.json")" "$want"

# The weights of the run from its checkpoints, of which the server has a half.
"$build/gpclient" model export "$work/run" "${server[@]}" --out "$work/export.safetensors" 2>"$work/err" ||
	fail "model export: $(cat "$work/err")"
cmp "$work/export.safetensors" "$work/killed.safetensors" || fail "model export --server wrote something else than --save"
"$build/gpclient" model export "$work/run" --state-dir "$work/state" --out "$work/export.safetensors" 2>"$work/err" ||
	fail "model export --state-dir: $(cat "$work/err")"
cmp "$work/export.safetensors" "$work/killed.safetensors" || fail "model export --state-dir wrote something else than --save"

# Changes are told, and those that a training does not come to.
train "$work/short.json" "${server[@]}" "${common[@]}" "${data[@]}" --pad max --no-eval --steps 4 --insert decay:rate=0.5,every=2,times=3 ||
	fail "a training that is shorter than its decay"
equal "changes of rank that a split run tells" "$(grep -c 'step [24]: the rank of insert_[a-z]*.encoder.0 is [0-9]* from here on' "$work/short.json.log")" 4
equal "ranks that do not come to all changes" "$(grep -c 'is to change 3 times, every 2 steps; in a training of 4 steps it changes 2 times' "$work/short.json.log")" 2

# What cannot be is said before anything is begun.
refused() { # INSERT WORDS
	local status=0
	"$build/gpclient" train --local "${common[@]}" "${data[@]}" --pad max --steps 1 --insert "$1" >"$work/out" 2>&1 || status=$?
	equal "$1: status" $status 2
	grep -q -- "$2" "$work/out" || fail "$1: $(cat "$work/out")"
}
refused decay:rate=0.5,every=2,times=9,dim=feature 'a rank of 32 would be 0'
refused decay:rate=0.5,every=2,times=65,dim=feature 'times'
refused decay:rate=1.5,every=2,times=3,dim=feature 'rate'
stop_server
finish
