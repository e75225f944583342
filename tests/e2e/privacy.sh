#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# train --privacy-every: the training stays the same, bit for bit, over links that break, too; every
# measured step is in the log; what cannot be measured is refused.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

data=synthetic:shape=3x16x16,classes=4,samples=128
flags=(--model cnn:width=8 --data "$data" --batch 32 --chunks 4 --steps 6 --no-eval --threads 1)

start_server --threads 1
server=(--server "127.0.0.1:$server_port")

same() { # WHAT MEASURED FLAG...
	local what=$1 measured=$2
	shift 2
	train "$work/plain.json" "${server[@]}" "$@" || fail "$what"
	rm -f "$work/log"
	train "$work/measured.json" "${server[@]}" "$@" "${every[@]}" --log-json "$work/log" || fail "$what, measured"
	equal "$what: parameters" "$(json_get "$work/measured.json" param_sha256)" "$(json_get "$work/plain.json" param_sha256)"
	equal "$what: measured steps" "$(json_get "$work/measured.json" privacy.measured)" "$measured"
	equal "$what: not measured" "$(json_get "$work/plain.json" privacy)" null
}
figure() { # KEY...: whether they are between 0 and 1
	local key
	for key in "$@"; do
		json_get "$work/measured.json" "privacy.$key" | awk -v key="$key" '!($1 >= 0 && $1 <= 1) { print key " is " $1; exit 1 }' ||
			fail "figure"
	done
}
above() { # WHAT KEY LIMIT
	equal "$1" "$(json_get "$work/measured.json" "privacy.$2" | awk -v least="$3" '{ print ($1 > least) ? "above" : $1 }')" above
}

every=(--privacy-every 2)
same "4 bits" 3 "${flags[@]}" --codec uniform:bits=4
figure {act,grad}_{up,down}.{distance,label}_correlation{,_plain}
above "what goes up tells of the inputs" act_up.distance_correlation 0.8
above "the gradient that goes up tells the labels" grad_up.label_correlation 0.9
equal "samples" "$(json_get "$work/measured.json" privacy.samples)" 32
equal "the steps of the log" "$(sed -n 's/.*"event":"privacy","step":\([0-9]*\),"direction":"act_up".*/\1/p' "$work/log" | paste -s -d ' ')" "2 4 6"
equal "events" "$(grep -c '"event":"privacy"' "$work/log")" 12
equal "told in words" "$(grep -c '^distance correlation with the inputs (bias-corrected, 32 samples of step 6): act_up 0\.[0-9]*, act_down' "$work/measured.json.log")" 1
same "gradients that use the masks of their activations" 3 "${flags[@]}" --codec topk:ratio=0.25+uniform:bits=8
every=(--privacy-every 1)
same "a frozen head, whose next step begins early" 6 "${flags[@]}" --freeze head --codec ef+uniform:bits=3
equal "no gradient comes down" "$(json_get "$work/measured.json" privacy.grad_down)" null
same "texts, without their padding" 6 --model roberta:layers=2,dim=8,heads=2,ffn=8 --data synthetic:tokens=16,vocab=50,classes=3,samples=128 \
	--batch 32 --chunks 4 --steps 6 --no-eval --threads 1 --codec uniform:bits=8
figure act_up.distance_correlation
same "ranks that shrink" 6 --model roberta:layers=2,dim=8,heads=2,ffn=8 --data synthetic:tokens=16,vocab=50,classes=3,samples=128 \
	--batch 16 --chunks 2 --steps 6 --no-eval --threads 1 --insert decay:rate=0.5,every=2,times=2,dim=feature

train "$work/short.json" "${server[@]}" "${flags[@]}" --privacy-every 100 || fail "a run that is too short to be measured"
grep -q "^no distance correlation was measured: --privacy-every 100 asks for step 100, 200, " "$work/short.json.log" ||
	fail "no word that nothing was measured: $(cat "$work/short.json.log")"

start_link --drop-every 400K
server=(--server "127.0.0.1:$link_port")
same "links that break" 6 "${flags[@]}" --codec uniform:bits=8 --chunks 2
stop_link
grep -q reconnect "$work/measured.json.log" || fail "no link broke"
stop_server

refused() { # TEXT FLAG...
	local text=$1 status=0
	shift
	"$build/gpclient" train --model cnn --data "$data" --privacy-every 2 "$@" >"$work/out" 2>&1 || status=$?
	equal "refused: $text" "$status $(grep -c -- "$text" "$work/out") $(wc -l <"$work/out")" "2 1 1"
}
refused "a local run has none" --local
refused "does not go with the codec delta" --server 127.0.0.1:1 --codec-act-up delta+uniform:bits=8
refused "is fewer than 4" --server 127.0.0.1:1 --batch 2 --chunks 1
finish
