#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# --codec auto: a training whose codecs change between its steps ends with the same parameters, bit for bit, whatever
# becomes of the link and of both processes, because changes are written down before they are made; every change is in
# the log with its reason; a codec whose error is too large is left; what cannot be is refused. How a codec is chosen:
# tests/unit/test_codec_decide.c.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

common=(--data synthetic:shape=3x16x16,classes=10,samples=64 --batch 8 --chunks 2 --threads 1 --seed 7 --no-progress
	--model cnn --steps 14 --no-eval --reconnect-for 60s)
script=(--codec auto:every=3,script=0@2/4@0/5@5/9@1)

sha() {
	json_get "$1" param_sha256
}

server_up() {
	start_server --threads 1 --state-dir "$work/state"
	server=(--server "127.0.0.1:$server_port")
}

# The same server again, at the same port.
server_again() {
	local port=$server_port
	rm -f "$work/port"
	"$build/gpserverd" --listen "127.0.0.1:$port" --port-file "$work/port" --client-lines 0 --threads 1 \
		--state-dir "$work/state" "${patient[@]}" 2>>"$work/server.log" &
	server_pid=$!
	comes_up $server_pid "$work/port" gpserverd "$work/server.log"
}

server_up

# A rung that stays is the codec itself.
train "$work/raw.json" "${server[@]}" "${common[@]}" --codec raw || fail "raw"
train "$work/same.json" "${server[@]}" "${common[@]}" --codec auto:script=0@0 || fail "auto, always raw"
equal "always the first codec" "$(sha "$work/same.json")" "$(sha "$work/raw.json")"

# Changes, and what is told of them.
train "$work/whole.json" "${server[@]}" "${common[@]}" "${script[@]}" --log-json "$work/whole.log" || fail "a script of codecs"
want=$(sha "$work/whole.json")
[ "$want" != "$(sha "$work/raw.json")" ] || fail "lossy codecs change nothing"
equal "changes in the log" "$(grep -c '"event": *"codec",' "$work/whole.log")" 12
equal "steps of changes" "$(grep '"event": *"codec",' "$work/whole.log" | grep -o '"step": *[0-9]*' | sort -u | tr -dc '0-9\n' |
	sort -n | tr '\n' ' ')" "4 5 9 "
grep '"event": *"codec",' "$work/whole.log" | head -1 | grep -q '"from": *"block:bits=8,size=64", *"to": *"raw", *"reason":' ||
	fail "the first change: $(grep '"event": *"codec",' "$work/whole.log" | head -1)"
equal "errors in the log, of steps" "$(grep '"event": *"codec_error"' "$work/whole.log" | grep -o '"step": *[0-9]*' | sort -u |
	tr -dc '0-9\n' | sort -n | tr '\n' ' ')" "1 4 7 10 13 "
equal "errors in the log, of four directions, each once" "$(grep -c '"event": *"codec_error"' "$work/whole.log")" 20
equal "errors of raw, which no step with a survey used" \
	"$(grep '"event": *"codec_error"' "$work/whole.log" | grep -c '"rel_err": *0\.0[,}]')" 0
equal "codecs_used of act_up" "$(sed 's/.*"codecs_used": *{"act_up": *\(\[[^]]*\]\).*/\1/' "$work/whole.json" | grep -o '"steps": *[0-9]*' |
	tr -dc '0-9\n' | tr '\n' ' ')" "1 5 4 4 "

# The log's numbers of one direction alone; the others have a codec of their own.
train "$work/one.json" "${server[@]}" "${common[@]}" --codec bf16 --codec-grad-down "${script[1]}" --log-json "$work/one.log" ||
	fail "auto in one direction"
equal "directions of changes" "$(grep '"event": *"codec",' "$work/one.log" | grep -o '"direction": *"[a-z_]*"' | sort -u |
	sed 's/.*: *//')" '"grad_down"'

# Where nothing before the cut is trained no gradient comes down, and nothing is decided of one.
train "$work/frozen.json" "${server[@]}" "${common[@]}" --freeze head --codec auto:every=2 --log-json "$work/frozen.log" || fail "--freeze head"
equal "changes of a direction that nothing goes" "$(grep '"event": *"codec",' "$work/frozen.log" | grep -c '"direction": *"grad_down"')" 0

# The link breaks at many places.
start_link --drop-every 60000 --seed 5
train "$work/cut.json" --server "127.0.0.1:$link_port" "${common[@]}" "${script[@]}" --reconnect-for 120s || fail "a link that is cut"
equal "over a link that is cut" "$(sha "$work/cut.json")" "$want"
[ "$(json_get "$work/cut.json" reconnects)" -gt 3 ] || fail "the link was hardly cut"
stop_link

newest() {
	find "$work/run" -maxdepth 1 -name 'step-*' 2>/dev/null | sort | tail -1
}

client_start() {
	"$build/gpclient" train --json "${server[@]}" --connect-timeout 5m "${common[@]}" "${script[@]}" --checkpoint "$work/run" --checkpoint-every 3 \
		--resume=if-any >"$work/killed.json" 2>>"$work/killed.log" &
	client_pid=$!
}

# Either or both are killed when there is a checkpoint more; what is done again goes through the same codecs.
seen=''
for who in server client both client; do
	client_start
	while kill -0 $client_pid 2>/dev/null && [ "$(newest)" = "$seen" ]; do
		sleep 0.01
	done
	seen=$(newest)
	if [ $who != client ]; then
		kill -KILL "$server_pid" 2>/dev/null
		wait "$server_pid" 2>/dev/null
	fi
	if [ $who != server ]; then
		kill -KILL $client_pid 2>/dev/null
		wait $client_pid 2>/dev/null
	fi
	[ $who = client ] || server_again
	[ $who = server ] || continue
	wait $client_pid || fail "server killed: $(tail -3 "$work/killed.log")"
	equal "server killed, the client goes on" "$(sha "$work/killed.json")" "$want"
	rm -rf "$work/run"
	seen=''
done
client_start
wait $client_pid || fail "killed and resumed: $(tail -3 "$work/killed.log")"
equal "killed and resumed" "$(sha "$work/killed.json")" "$want"

# A client that is told other changes, or none, still repeats what is written down, and goes on from there. Without
# what is written down it does not know.
refused() { # STATUS WORDS COMMAND...
	local status=0 want_status=$1 words=$2
	shift 2
	"$build/gpclient" "$@" >"$work/out" 2>&1 || status=$?
	equal "$words: status" $status "$want_status"
	grep -q -- "$words" "$work/out" || fail "not said: $words, but: $(tail -2 "$work/out")"
}
resumes=("${server[@]}" "${common[@]}" --checkpoint "$work/run" --resume)
refused 3 "codec-act-up" train "${resumes[@]}" --codec auto
mv "$work/run/codecs" "$work/codecs"
refused 3 "run/codecs, which says what codecs the run has used" train "${resumes[@]}" "${script[@]}"
sed 's/^gpsplit codecs 1 ......../gpsplit codecs 1 00000000/' "$work/codecs" >"$work/run/codecs"
refused 3 "is not the list of codecs of this run" train "${resumes[@]}" "${script[@]}"
(cat "$work/codecs" && echo "7 9 9 9 9") >"$work/run/codecs"
refused 3 "line [0-9]* is no change of codecs" train "${resumes[@]}" "${script[@]}"
(cat "$work/codecs" && printf '1') >"$work/run/codecs" # a line that was being written
train "$work/again.json" "${resumes[@]}" "${script[@]}" || fail "a list that ends within a line"
equal "a list that ends within a line" "$(sha "$work/again.json")" "$want"

# A codec that loses too much is left at the first survey, and is not used again.
train "$work/guard.json" "${server[@]}" "${common[@]}" --codec "auto:every=2,ladder=raw|uniform:bits=8|uniform:bits=1" \
	--log-json "$work/guard.log" || fail "guard"
grep -q '"codec": *"uniform:bits=1"' "$work/guard.json" && fail "one bit was used"
train "$work/left.json" "${server[@]}" "${common[@]}" --codec "auto:every=2,ladder=raw|uniform:bits=1" \
	--log-json "$work/left.log" || fail "guard of a codec in use"
grep -o '"codec": *"uniform:bits=1", *"steps": *[0-9]*' "$work/left.json" | grep -v '[^0-9][12]$' && fail "one bit was used for long"
equal "what it was left for" "$(grep '"event": *"codec",' "$work/left.log" | grep -o '"reason": *"its relative error is' | wc -l)" 4
train "$work/budget.json" "${server[@]}" "${common[@]}" --codec "auto:every=2,budget=0.05" --log-json "$work/budget.log" ||
	fail "budget"
grep '"event": *"codec",' "$work/budget.log" | grep -q '"to": *"[^"]*bits=[56],' || fail "no codec within the budget"
grep '"event": *"codec",' "$work/budget.log" | grep -q '"to": *"[^"]*bits=[1-4],' && fail "a codec outside the budget"

refused 2 "a local run has no link" train --local "${common[@]}" --codec auto
refused 2 "there is no key 'budge'" train "${server[@]}" "${common[@]}" --codec auto:budge=1
refused 2 "ef remembers what it has coded" train "${server[@]}" "${common[@]}" --codec "auto:ladder=raw|ef+uniform:bits=4"
refused 2 "there is nothing to choose from" train "${server[@]}" "${common[@]}" --codec "auto:ladder=raw"
refused 2 "comes twice" train "${server[@]}" "${common[@]}" --codec "auto:ladder=raw|uniform|uniform:bits=8"
refused 2 "is out of range" train "${server[@]}" "${common[@]}" --codec "auto:every=0"
refused 2 "there is no codec 9" train "${server[@]}" "${common[@]}" --codec "auto:script=0@9"
refused 2 "does not come behind" train "${server[@]}" "${common[@]}" --codec "auto:script=5@1/5@2"

stop_server
finish
