#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The server's device fails (GP_FAULT=device:N) at every place of a training: the
# client's session ends with status 5 and the reason on both sides, the daemon
# and the next client go on; a run with checkpoints goes on by itself and ends
# with the parameters of one that nobody disturbed. A device that fails again
# and again is not tried for ever.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

grep -q '^GP_FAULTS:[A-Z]*=ON' "$build/CMakeCache.txt" || exit 77

device=${2:-cpu} stride=${3:-1}
flags=(--model cnn --data synthetic:shape=3x16x16,classes=10,samples=64 --batch 16 --chunks 2 --lr 0.05 --seed 3
	--threads 1 --no-eval --no-progress)

sha() {
	json_get "$1" param_sha256
}

failing_server() { # FAULT FLAG...
	export GP_FAULT=$1
	start_server --threads 1 --device "$device" "${@:2}"
	unset GP_FAULT
}

start_server --threads 1 --device "$device"
train "$work/want.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 2 || fail "undisturbed"
stop_server

# Until no more of the training is left to fail in.
walked=0
for ((n = 1; n < 100000; n += stride)); do
	failing_server "device:$n"
	status=0
	"$build/gpclient" train --json --server "127.0.0.1:$server_port" "${flags[@]}" --steps 2 >"$work/got.json" \
		2>"$work/got.log" || status=$?
	[ $status -eq 0 ] && stop_server && break
	[ $status -eq 5 ] || fail "device:$n: status $status: $(cat "$work/got.log")"
	grep -q "server 127.0.0.1:$server_port: ${device%%:*}.*GP_FAULT" "$work/got.log" ||
		fail "device:$n: no reason here: $(cat "$work/got.log")"
	await grep -q "warn session: session 1 .*GP_FAULT" "$work/server.log" ||
		fail "device:$n: no reason there: $(cat "$work/server.log")"
	train "$work/next.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 2 || fail "device:$n: the next client"
	[ "$(sha "$work/next.json")" = "$(sha "$work/want.json")" ] || fail "device:$n: the next client's parameters"
	walked=$((walked + 1))
	stop_server
done
equal "parameters after the last place" "$(sha "$work/got.json")" "$(sha "$work/want.json")"
[ $walked -ge 3 ] || fail "only $walked places failed"
echo "ok: $walked places of a training, every ${stride}th"

# A run with checkpoints goes on by itself: from the newest, or from the start.
start_server --threads 1 --device "$device"
train "$work/want.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 8 || fail "undisturbed"
stop_server
passes=$((n / 2)) # of a step, at least
for at in 1 $((passes * 3 + 1)) $((passes * 6)); do
	rm -rf "$work/state" "$work/run"
	failing_server "device:$at" --state-dir "$work/state"
	train "$work/got.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 8 --checkpoint "$work/run" \
		--checkpoint-every 2 || fail "device:$at: with checkpoints"
	equal "parameters of a run whose device failed (device:$at)" "$(sha "$work/got.json")" "$(sha "$work/want.json")"
	# What failed may have been the copy for a checkpoint alone: a warning then.
	grep -q 'no checkpoint: .*GP_FAULT' "$work/got.json.log" ||
		equal "reconnects (device:$at)" "$(json_get "$work/got.json" reconnects)" 1
	stop_server
done
finish
