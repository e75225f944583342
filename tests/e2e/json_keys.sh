#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# client/JSON.md names every key that gpclient's JSON has, with its type, and no
# other: the commands are run on little data, and what they print is held
# against the page's tables.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

page=$source_dir/client/JSON.md
data=synthetic:shape=3x16x16,classes=4,samples=64
flags=(--model cnn --data "$data" --batch 8 --chunks 2 --threads 1)

# Rows "SECTION<tab>KEY<tab>TYPE", a key of several in a row each by itself. A section is a heading of any level.
awk -F'|' '
	/^#+ / { section = $0; sub(/^#+ /, "", section); gsub(/`/, "", section) }
	/^\| `/ {
		type = $4; gsub(/^ +| +$/, "", type)
		n = split($2, key, ",")
		for (i = 1; i <= n; i++) { gsub(/[` ]/, "", key[i]); print section "\t" key[i] "\t" type }
	}' "$page" >"$work/page"

# Lines KEY=VALUE of one JSON text: list items are [].
keys() { # FILE
	json_flat "$1" | sed -E ':again
		s/^([^=]*)\.[0-9]+(=|\.)/\1[]\2/; t again
		s/^[0-9]+(=|\.)/[]\1/'
}

# What was printed is held against these sections; what was seen of them is noted.
compare() { # WHAT FILE SECTION...
	local what=$1 file=$2 sections
	shift 2
	sections=$(printf '%s\n' "$@")
	keys "$file" >"$work/keys"
	[ -s "$work/keys" ] || fail "$what: no JSON: $(cat "$file")"
	sections=$sections awk -F'\t' -v what="$what" '
		BEGIN { n = split(ENVIRON["sections"], list, "\n"); for (i = 1; i <= n; i++) wanted[list[i]] = 1 }
		function pattern(key) {
			gsub(/[][.]/, "\\\\&", key)
			gsub(/DIRECTION/, "(act_up|act_down|grad_up|grad_down)", key)
			gsub(/KIND/, "(act_up|act_down|grad_up|grad_down|param_up|param_down)", key)
			gsub(/WAY/, "(sent|received)", key)
			gsub(/PART/, "(head|body|tail)", key)
			gsub(/PASS/, "(forward|backward)", key)
			gsub(/SPAN/, "(sample|chunk|batch)", key)
			gsub(/STAGE/, "[a-z0-9_]+", key)
			gsub(/TENSOR/, "[a-z].*", key)
			gsub(/OPTION/, "--.*", key)
			return "^" key "$"
		}
		function fits(type, value) {
			if (value == "null") return type ~ /null/
			if (type ~ /^integer/) return value ~ /^-?[0-9]+$/
			if (type ~ /^number/) return value ~ /^-?[0-9.]+([eE][-+]?[0-9]+)?$/
			if (type ~ /^boolean/) return value ~ /^(true|false)$/
			return type ~ /^string/
		}
		NR == FNR { if ($1 in wanted) { rows++; row[rows] = $1 "\t" $2; re[rows] = pattern($2); type[rows] = $3 } next }
		{
			at = index($0, "="); key = substr($0, 1, at - 1); value = substr($0, at + 1); found = 0
			for (i = 1; i <= rows && !found; i++)
				if (key ~ re[i]) found = i
			if (!found) { if (!told[key]++) print "FAILED: " what ": the page has no key " key }
			else if (!fits(type[found], value)) print "FAILED: " what ": " key " is " value ", the page says " type[found]
			if (found) seen[row[found]] = 1
		}
		END { for (r in seen) print r > "/dev/stderr" }' "$work/page" "$work/keys" 2>>"$work/seen" >"$work/complaints"
	cat "$work/complaints"
	failures=$((failures + $(wc -l <"$work/complaints")))
}

# Every line of a file is one JSON text.
each_line() { # WHAT FILE SECTION...
	local line
	while IFS= read -r line; do
		echo "$line" >"$work/line"
		compare "$1" "$work/line" "${@:3}"
	done <"$2"
}

# The log: a section for each event, and what all have.
log_lines() { # WHAT LOG
	local event
	for event in $(grep -o '"event":"[a-z_]*"' "$2" | sort -u | sed 's/.*:"\(.*\)"/\1/'); do
		grep "\"event\":\"$event\"" "$2" | awk 'NR <= 2' >"$work/lines" # they are alike
		if [ "$event" = attack ]; then
			each_line "$1: $event" "$work/lines" "Every event" "Event attack" attack
		elif [ "$event" = end ]; then
			each_line "$1: $event" "$work/lines" "Every event" "Event $event" "Event end: report"
		else
			each_line "$1: $event" "$work/lines" "Every event" "Event $event"
		fi
	done
}
sed -n 's/^\(train\|Figures of a run\)\t\(.*\)/Event end: report\treport.\2/p' "$work/page" >>"$work/page"

run() { # OUT COMMAND FLAG...
	local out=$1
	shift
	"$build/gpclient" "$@" >"$out" 2>"$out.log" || fail "gpclient $*: $(cat "$out.log")"
}

start_server --threads 1 --state-dir "$work/state"
server=(--server "127.0.0.1:$server_port")
run "$work/train" train --no-progress "${server[@]}" "${flags[@]}" --steps 3 --json --log-json "$work/log" --clip-norm 1 \
	--codec bf16+bitshuffle+zstd --checkpoint "$work/run" --save "$work/w.safetensors"
compare "train, split" "$work/train" train "Figures of a run"
log_lines "the log, split" "$work/log"
run "$work/train" train --no-progress "${server[@]}" "${flags[@]}" --steps 5 --log-json "$work/log" --clip-norm 1 \
	--codec bf16+bitshuffle+zstd --checkpoint "$work/run" --resume --log-histograms 1
log_lines "the log of a resumed run" "$work/log"
run "$work/train" train --no-progress "${server[@]}" "${flags[@]}" --steps 2 --no-eval --json --log-json "$work/measured" \
	--freeze head --privacy-every 1
compare "train, measured" "$work/train" train "Figures of a run"
log_lines "the log, measured" "$work/measured"
run "$work/train" train --no-progress "${server[@]}" "${flags[@]}" --steps 3 --json --log-json "$work/auto" --codec auto:script=0@2/1@1
compare "train, codecs that change" "$work/train" train "Figures of a run"
log_lines "the log, codecs that change" "$work/auto"
run "$work/train" train --no-progress --local "${flags[@]}" --steps 2 --no-eval --json --log-json "$work/local" \
	--optimizer adamw --no-decay '*.bias' --recompute --insert-down decay:rate=0.5,every=1,times=1
compare "train, local" "$work/train" train "Figures of a run"
log_lines "the log, local" "$work/local"
equal "changes of rank in the log" "$(grep -c '"event":"rank"' "$work/local")" 1
equal "the log's header says --recompute" "$(head -1 "$work/local" | grep -c '"recompute":true,"compress":null,')" 1
equal "zeros for a link that a local run does not have" "$(keys "$work/train" | grep -cE '^(.*up|.*down|rtt|reconnects|tcp|wire|link|server).*=0')" 0

# An error is an event, too. A run that ended so before its first step can be tried again.
for try in first second; do
	status=0
	"$build/gpclient" train --no-progress --server 127.0.0.1:1 --connect-timeout 1s "${flags[@]}" --steps 2 --log-json "$work/failed" \
		>/dev/null 2>"$work/failed.log" || status=$?
	equal "a client without a server, $try try: status" $status 4
	equal "the error is the log's last event" "$(tail -1 "$work/failed" | sed -n 's/.*"event":"error","step":0,"status":\([0-9]*\),"message":".*127.0.0.1:1.*/\1/p')" 4
	equal "lines of its log" "$(wc -l <"$work/failed")" 2
done
log_lines "the log of a failure" "$work/failed"

# What is there is not written over, and that is found before the first step.
cp "$work/local" "$work/before"
status=0
"$build/gpclient" train --no-progress --local "${flags[@]}" --steps 2 --log-json "$work/local" >/dev/null 2>"$work/err" || status=$?
equal "a log that is there: status" $status 3
grep -q -- "--log-json: $work/local holds a log already, .*another name.*--resume" "$work/err" || fail "no reason: $(cat "$work/err")"
cmp -s "$work/local" "$work/before" || fail "the log was written to"

weights=(--init "$work/w.safetensors")
run "$work/eval" eval --no-progress "${server[@]}" "${flags[@]}" "${weights[@]}" --json
compare "eval, split" "$work/eval" eval "Figures of a run"
run "$work/eval" eval --no-progress --local "${flags[@]}" "${weights[@]}" --json
compare "eval, local" "$work/eval" eval "Figures of a run"
run "$work/link" link "127.0.0.1:$server_port" --time 500ms --json
compare "link, measured" "$work/link" "link HOST:PORT"
run "$work/plan" plan --no-progress --time 10ms "${flags[@]}" --link 10mbit,1ms --json
compare "plan" "$work/plan" plan
status=0
"$build/gpclient" plan --no-progress --time 10ms "${flags[@]}" --link 10mbit --codec-act-up fp16 --client-memory 1K --json >"$work/plan" \
	2>"$work/plan.log" || status=$?
equal "plan, nothing is possible: status" $status 3
compare "plan, a codec of one direction" "$work/plan" plan
status=0
"$build/gpclient" bench --no-progress "${server[@]}" --model cnn --data "$data" --batch 8 --threads 1 --chunks 1,2 --links as-is \
	--codecs raw,delta+uniform:bits=8 --train 1 --skip 1 --plan-time 10ms --results "$work/sweep" --json >"$work/bench" 2>"$work/bench.log" || status=$?
equal "bench, a codec that fails: status" $status 1
compare bench "$work/bench" bench
for event in sweep prediction run failure; do
	grep "\"event\": \"$event\"" "$work/sweep" >"$work/lines"
	each_line "results of a bench: $event" "$work/lines" "Line $event"
done
mkdir "$work/pictures"
"$build/tests/export_pictures" "$data" "$work/pictures" || fail "no pictures"
run "$work/infer" infer --local --threads 1 --model cnn --data "$data" "${weights[@]}" --json "$work/pictures/first.jpg"
each_line "infer, a picture" "$work/infer" infer
echo 'no picture' >"$work/pictures/bad.jpg"
"$build/gpclient" infer --local --threads 1 --model cnn --data "$data" "${weights[@]}" --json "$work/pictures/bad.jpg" >"$work/infer" 2>"$work/infer.log"
equal "infer, a bad picture: status" $? 3
each_line "infer, a bad picture" "$work/infer" infer
tokens=synthetic:tokens=16,vocab=100,classes=4,samples=32
run "$work/text" train --no-progress --local --model fasttext --data "$tokens" --batch 8 --chunks 2 --threads 1 --steps 2 \
	--save "$work/text.safetensors"
run "$work/infer" infer --local --threads 1 --model fasttext --data "$tokens" --init "$work/text.safetensors" --json
status=0
"$build/gpclient" infer --local --threads 1 --init "$work/text.safetensors" >/dev/null 2>"$work/err" || status=$?
equal "infer of texts without --data: status" $status 2
grep -q -- '--tokenizer DIR is missing.*or --data: it names the texts' "$work/err" || fail "infer of texts without --data: $(cat "$work/err")"
each_line "infer, a sample" <(head -2 "$work/infer") infer
printf '%s\t%s\n' 1.5 'a b' 2 'b c' 0.5 'a' 3 'c c c' >"$work/values.tsv"
values=(--data "tsv:$work/values.tsv,val=$work/values.tsv,text=2,label=1,regression,max=8" --batch 4 --chunks 2 --threads 1
	--tokenizer "$source_dir/tests/golden/tokens/wordpiece")
run "$work/train" train --no-progress --local --model fasttext "${values[@]}" --steps 2 --json --save "$work/values.safetensors" \
	--log-json "$work/values.log"
compare "train, values" "$work/train" train "Figures of a run"
log_lines "the log, values" "$work/values.log"
run "$work/eval" eval --no-progress --local "${values[@]}" --init "$work/values.safetensors" --json
compare "eval, values" "$work/eval" eval "Figures of a run"
equal "no accuracy of values" "$(json_get "$work/eval" val_acc)$(json_get "$work/eval" val_mcc)" nullnull
words=(--data "text:$work/values.tsv,val=$work/values.tsv,max=8" "${values[@]:2}")
run "$work/train" pretrain --no-progress --local --model roberta:layers=1,dim=8,heads=2,ffn=8 "${words[@]}" --steps 2 --json \
	--save "$work/words.safetensors" --log-json "$work/words.log"
compare "pretrain" "$work/train" train "Figures of a run"
log_lines "the log, masked words" "$work/words.log"
run "$work/eval" eval --no-progress --local "${words[@]}" --init "$work/words.safetensors" --json
compare "eval, masked words" "$work/eval" eval "Figures of a run"
echo 'a b' >"$work/lines.txt"
run "$work/infer" infer --local --threads 1 --tokenizer "$source_dir/tests/golden/tokens/wordpiece" \
	--init "$work/values.safetensors" --json "$work/lines.txt"
each_line "infer, a line" "$work/infer" infer

run "$work/captured" capture --model cnn --data "$data" --cut 1:-1 --threads 1 --batch 8 --out "$work/cut.safetensors" --json
compare capture "$work/captured" capture
run "$work/attack" attack --no-progress --model cnn --data "$data" --cut 1:-1 --threads 1 --batch 8 --steps 1 --pictures 1 \
	--out "$work/attacked" --log-json "$work/attack.log" --json
compare attack "$work/attack" attack
log_lines "the log of an attack" "$work/attack.log"
for end in up down; do # with both at once no end would be null
	run "$work/fit" insert-fit --no-progress --model cnn --data "$data" "${weights[@]}" --threads 1 --batch 8 --steps 1 \
		--insert-$end linear:rank=2,dim=feature --save "$work/fit.safetensors" --json
	compare "insert-fit, $end" "$work/fit" insert-fit
done
run "$work/data_list" data list --json
compare "data list" "$work/data_list" "data list"
run "$work/list" codec list --json
compare "codec list" "$work/list" "codec list"
tensor=(--in "$work/cut.safetensors" --tensor act_down) # its bits are noise: zstd is skipped
run "$work/trip" codec roundtrip --codec uniform:bits=16+zstd "${tensor[@]}" --json
compare "codec roundtrip" "$work/trip" "codec roundtrip"
run "$work/trips" codec compare --codecs raw,uniform:bits=16+zstd,ef+topk:ratio=0.1,downsample:factor=2 "${tensor[@]}" --bits 16.1 --json
compare "codec compare, one tensor" "$work/trips" "codec compare" "A tensor named alone"
run "$work/trips" codec compare --codecs raw,uniform:bits=16+zstd,downsample:factor=2 --in "$work/cut.safetensors" --link 1mbit,1ms --bits 20 --json
compare "codec compare" "$work/trips" "codec compare"
mkdir -p "$work/folder/train/a" "$work/folder/train/b" "$work/folder/val/a" "$work/folder/val/b"
cp "$work/pictures/first.jpg" "$work/folder/train/a" && cp "$work/pictures/first.jpg" "$work/folder/train/b"
cp "$work/pictures/bad.jpg" "$work/folder/train/a" && cp "$work/pictures/bad.jpg" "$work/folder/val/b"
"$build/gpclient" data check folder:"$work/folder" --no-progress --json >"$work/check" 2>"$work/check.log"
equal "data check, bad pictures: status" $? 3
compare "data check" "$work/check" "data check"
run "$work/tokens" tokens --tokenizer "$source_dir/tests/golden/tokens/bpe" --json text
compare tokens "$work/tokens" tokens
run "$work/models" model list --json
compare "model list" "$work/models" "model list"
run "$work/model" model show cnn --cut 1:-1 --json
compare "model show" "$work/model" "model show"
run "$work/model" model show fasttext:tokens=16,vocab=100,classes=4 --cut 1:2 --json
compare "model show, another" "$work/model" "model show"
run "$work/model" model show cnn --cut 1:-1 --insert-up conv:out=4,k=1,s=1 --freeze head --json
compare "model show, an insertion" "$work/model" "model show"
run "$work/model" model show roberta:layers=3,dim=32,heads=2,cuts=fine --cut type1 --insert decay:rate=0.5,every=10,times=2,dim=feature --json
compare "model show, decays" "$work/model" "model show"
equal "ranks of a decay" "$(json_flat "$work/model" | sed -n 's/^ranks\.up.*rank.*=//p' | paste -s -d " ")" "32 16 8"
run "$work/model" model show cnn --cut 1:-1 --memory --json
compare "model show, memory" "$work/model" "model show"
run "$work/model" model show roberta:layers=3,dim=8,heads=2 --json
compare "model show, an encoder" "$work/model" "model show"
start_link
run "$work/out" eval --no-progress --server "127.0.0.1:$link_port" "${flags[@]}" "${weights[@]}"
stop_link
compare link "$work/link.json" "link --listen"
stop_server

# Keys of the page that nothing above has shown.
never=$(sort -u "$work/seen" | comm -13 - <(cut -f1,2 "$work/page" | grep -v '^Event end: report' | sort -u))
equal "keys of the page that were never seen" "$never" ""
finish
