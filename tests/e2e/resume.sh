#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A link that breaks again and again (gpclient link) under the real commands:
# training ends in the same parameters, an evaluation in the same figures, both
# count their reconnects, also where no link carries a whole step; a server that
# does not come back is an error, soon, and so are links that never carry a tensor.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

flags=(--model cnn --data synthetic:shape=3x16x16,classes=10,samples=256 --batch 32 --chunks 4 --lr 0.05 --seed 3
	--threads 1 --codec ef+uniform:bits=6 --steps 12)

start_server --threads 1 --idle-timeout 60s
train "$work/plain.json" --server "127.0.0.1:$server_port" "${flags[@]}" --save "$work/plain.safetensors" ||
	fail "training without cuts"
equal "reconnects without cuts" "$(json_get "$work/plain.json" reconnects)" 0
for mode in reset fin half; do
	start_link --drop-every 1500K --drop-mode $mode --seed 5
	train "$work/$mode.json" --server "127.0.0.1:$link_port" "${flags[@]}" --idle-timeout 1s || fail "training ($mode)"
	stop_link
	equal "parameters over a link that breaks ($mode)" "$(json_get "$work/$mode.json" param_sha256)" \
		"$(json_get "$work/plain.json" param_sha256)"
	[ "$(json_get "$work/$mode.json" reconnects)" -gt 0 ] || fail "no cut was counted ($mode)"
done

# Most links carry a sixth of a step, some of them nothing that is of use. (The parameters have to cross one as a whole.)
step_bytes=$(($(json_get "$work/plain.json" wire_up_bytes) / 12))
start_link --drop-every $((step_bytes / 6)) --direction up --times 40 --seed 7
train "$work/parts.json" --server "127.0.0.1:$link_port" "${flags[@]}" || fail "training over links that carry a part of a step"
stop_link
equal "parameters over links that carry a part of a step each" "$(json_get "$work/parts.json" param_sha256)" \
	"$(json_get "$work/plain.json" param_sha256)"
equal "reconnects over such links" "$(json_get "$work/parts.json" reconnects)" 40

evaluate() { # JSON-FILE PORT
	"$build/gpclient" eval --json --server "127.0.0.1:$2" --model cnn --init "$work/plain.safetensors" --threads 1 \
		--data synthetic:shape=3x16x16,classes=10,samples=256 --batch 32 --chunks 4 >"$1" 2>"$1.log" ||
		fail "evaluation: $(cat "$1.log")"
}
evaluate "$work/eval.json" "$server_port"
start_link --drop-after $(($(json_get "$work/eval.json" wire_up_bytes) * 9 / 10)) --direction up
evaluate "$work/cut.json" "$link_port"
equal "loss of an evaluation over a link that breaks" "$(json_get "$work/cut.json" val_loss)" \
	"$(json_get "$work/eval.json" val_loss)"
[ "$(json_get "$work/cut.json" reconnects)" -gt 0 ] || fail "no cut was counted in the evaluation"

# Returns when it trains: signals are its own from then on.
start_endless() { # FLAG...
	rm -f "$work/steps"
	"$build/gpclient" train --no-progress --server "127.0.0.1:$link_port" "${flags[@]}" --steps 100000 --log-json "$work/steps" \
		"$@" >"$work/out" 2>"$work/err" &
	client=$!
	await grep -qs '"event":"step"' "$work/steps" || fail "no step is done: $(cat "$work/err")"
}

start_endless --reconnect-for 1s
stop_link
status=0
wait $client || status=$?
equal "status of a client whose link stays away" $status 4
grep -q 'gave up reconnecting' "$work/err" || fail "no reason: $(cat "$work/err")"

# Asked to stop in that wait, it ends at once: also where somebody takes the connection and says nothing.
stopped_while_reconnecting() { # WHAT
	local status=0 begin
	start_link
	start_endless --reconnect-for 1h --idle-timeout 1s
	kill "-$1" "$link_pid"
	await grep -q reconnecting "$work/err"
	sleep 0.5
	begin=$SECONDS
	kill $client
	wait $client || status=$?
	{ kill -KILL "$link_pid" && wait "$link_pid"; } 2>/dev/null
	equal "status of a client stopped while it reconnects ($1)" $status 143
	grep -q 'stopped by a signal' "$work/err" || fail "no reason: $(cat "$work/err")"
	[ $((SECONDS - begin)) -lt 60 ] || fail "it took $((SECONDS - begin)) s ($1)"
}
stopped_while_reconnecting KILL
stopped_while_reconnecting STOP

# No link carries a tensor of a chunk: an orderly end, which says how often the link broke and what may help.
start_link --drop-after 10000 --direction up
status=0
"$build/gpclient" train --no-progress --server "127.0.0.1:$link_port" "${flags[@]}" --steps 100000 --reconnect-for 8s >"$work/out" \
	2>"$work/err" || status=$?
stop_link
equal "status of a client whose links never carry a tensor" $status 4
grep -q 'no tensor of a step has come through for .* broke [0-9]* times, after .* kB up and .* kB down on average; .*--batch' "$work/err" ||
	fail "no reason: $(tail -3 "$work/err")"
stop_server # with a session that nobody came for
finish
