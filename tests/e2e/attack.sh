#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient attack: a decoder from what crosses a cut back to the pictures, its files, its event in the
# log of a training; a signal; what is refused.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

data=synthetic:shape=3x16x16,classes=4,samples=320,noise=0.2
flags=(--data "$data" --batch 16 --threads 1 --no-progress)

train "$work/cnn.json" --local --model cnn:width=8 --data "$data" --batch 32 --chunks 1 --steps 5 --no-eval --threads 1 \
	--save "$work/cnn.safetensors" --log-json "$work/run.jsonl" || fail "training"
lines=$(wc -l <"$work/run.jsonl")

attack() { # NAME FLAG...
	local name=$1
	shift
	"$build/gpclient" attack --init "$work/cnn.safetensors" "${flags[@]}" --out "$work/$name" --json "$@" >"$work/$name.json" \
		2>"$work/$name.log" || fail "attack $name: $(cat "$work/$name.log")"
}
attack first --cut 1:-1 --steps 30 --log-json "$work/run.jsonl" --pictures 3
equal "better than the mean picture" "$(json_flat "$work/first.json" | awk -F= '{ v[$1] = $2 } END { print (v["psnr_db"] > v["mean_picture_psnr_db"] + 2 ? "yes" : v["psnr_db"]) }')" yes
equal "pictures held back" "$(json_get "$work/first.json" checked)" 64
equal "the sheet is a PNG" "$(head -c 4 "$work/first/pictures.png" | tail -c 3)" PNG
equal "one event more" "$(wc -l <"$work/run.jsonl")" $((lines + 1))
tail -1 "$work/run.jsonl" >"$work/event"
equal "the event" "$(json_get "$work/event" event) $(json_get "$work/event" cut) $(json_get "$work/event" codec)" "attack 1:-1 raw"
equal "its pictures" "$(grep -o '"original":"data:image/png;base64,[A-Za-z0-9+/=]*","restored":"data:image/png;base64,[A-Za-z0-9+/=]*"' "$work/event" | wc -l)" 3
attack again --cut 1:-1 --steps 30
equal "the same figures again" "$(grep -o '"psnr_db.*' "$work/again.json")" "$(grep -o '"psnr_db.*' "$work/first.json")"
attack vector --cut 1:3 --steps 3 --pictures 0 --codec uniform:bits=4
equal "a new folder without pictures" "$(ls "$work/vector")" ""

# By a signal the decoder is measured as it is by then.
"$build/gpclient" attack --init "$work/cnn.safetensors" --data "$data" --batch 16 --threads 1 --steps 1000000 --out "$work/stopped" \
	>"$work/stopped.out" 2>"$work/stopped.log" &
attacker=$!
await grep -q "^step" "$work/stopped.log" || fail "no progress"
kill -INT $attacker
status=0
wait $attacker || status=$?
equal "stopped by a signal: status" $status 130
grep -q "stopped by a signal after" "$work/stopped.log" || fail "no word of the signal"
[ -s "$work/stopped/pictures.png" ] || fail "no pictures of the decoder that was stopped"

refused() { # STATUS TEXT FLAG...
	local want=$1 text=$2 status=0
	shift 2
	"$build/gpclient" attack --no-progress --steps 1 "$@" >"$work/out" 2>&1 || status=$?
	equal "refused: $text" "$status $(grep -c -- "$text" "$work/out") $(wc -l <"$work/out")" "$want 1 1"
}
cnn=(--model cnn:width=8 "${flags[@]}")
refused 2 "out FOLDER is missing" "${cnn[@]}"
refused 2 "--model roberta reads texts" --model roberta --data glue-cola:nowhere --out "$work/no"
refused 2 "--model fasttext reads texts" --model fasttext --data synthetic:tokens=16,vocab=50,classes=3 --out "$work/no"
refused 2 "auto chooses a codec while training" "${cnn[@]}" --codec auto --out "$work/no"
refused 2 "no codec is named 'foo'" "${cnn[@]}" --codec foo --out "$work/no"
refused 2 "leaves a part of cnn empty" "${cnn[@]}" --cut 2:2 --out "$work/no"
refused 3 "fewer than the 1000 of --batch" "${cnn[@]}" --batch 1000 --out "$work/no"
refused 3 "validation samples, fewer than the 100 of --batch" "${cnn[@]}" --batch 100 --out "$work/no"
refused 3 "is no log of gpclient" "${cnn[@]}" --log-json "$work/cnn.json" --out "$work/no"
refused 3 "cannot make the folder" "${cnn[@]}" --out "$work/cnn.json"
[ -e "$work/no" ] && fail "a folder in spite of the errors"
finish
