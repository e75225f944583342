#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# --precision auto: each side takes what its trials found to be the fastest and says
# so; a run of the precisions that were told ends in the same bits, and one that goes
# on tries nothing. Which is the fastest is no matter of speed here: GP_FAULT says it.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

model=(--model resnet20:width=0.5 --cut 1:-1 --data synthetic:shape=3x32x32,classes=10,samples=64 --batch 8 --chunks 2
	--steps 4 --lr 0.05 --schedule const --seed 7 --threads 1 --no-eval)

sha() {
	json_get "$1" param_sha256
}

precisions() { # JSON-FILE
	echo "$(json_get "$1" precision) $(json_get "$1" client_precision)"
}

told() { # WHAT LOG WORDS
	if grep -F -- "$3" "$2" >/dev/null; then
		echo "ok: $1"
	else
		fail "$1: no '$3' in: $(cat "$2")"
	fi
}

# Trials that are left to the machine: whatever they find, the run can be repeated.
start_server --threads 1
server=(--server "127.0.0.1:$server_port" --codec raw)
train "$work/auto.json" --local "${model[@]}" --precision auto || fail "local"
train "$work/named.json" --local "${model[@]}" --precision "$(json_get "$work/auto.json" precision)" || fail "local, named"
equal "a local run, repeated" "$(sha "$work/auto.json")" "$(sha "$work/named.json")"
train "$work/auto.json" "${server[@]}" "${model[@]}" --precision auto || fail "split"
read -r body client < <(precisions "$work/auto.json")
told "what was chosen is told" "$work/auto.json.log" "--precision $body --client-precision $client repeats the run"
train "$work/named.json" "${server[@]}" "${model[@]}" --precision "$body" --client-precision "$client" || fail "split, named"
equal "a split run, repeated" "$(sha "$work/auto.json")" "$(sha "$work/named.json")"
equal "nothing is tried for a precision that is named" "$(json_get "$work/named.json" precision_tried)" null
stop_server

status=0
"$build/gpclient" bench --server 127.0.0.1:1 --model cnn --data synthetic:shape=3x32x32,classes=10,samples=64 --batch 8 \
	--precision auto >"$work/bench.log" 2>&1 || status=$?
equal "rows that would not be comparable" $status 2
told "and why" "$work/bench.log" "--precision auto may choose another one for each row"

grep -m1 avx512_bf16 /proc/cpuinfo >/dev/null && grep '^GP_FAULTS:[A-Z]*=ON' "$build/CMakeCache.txt" >/dev/null || finish

# The server finds bf16 to take half the time, this side twice as long; and the other way around.
for percent in 50 200; do
	export GP_FAULT=precision:$percent
	start_server --threads 1 --state-dir "$work/state$percent"
	export GP_FAULT=precision:$((10000 / percent))
	server=(--server "127.0.0.1:$server_port" --codec raw)
	train "$work/auto.json" "${server[@]}" "${model[@]}" --precision auto || fail "split, $percent %"
	want="bf16 fp32"
	[ $percent = 50 ] || want="fp32 bf16"
	equal "chosen where bf16 takes $percent % there" "$(precisions "$work/auto.json")" "$want"
	told "with what it took" "$work/auto.json.log" "(fp32 1000 ms, bf16 $((percent * 10)) ms a chunk)"
	train "$work/local.json" --local "${model[@]}" --precision auto || fail "local, $percent %"
	equal "a local run" "$(json_get "$work/local.json" precision)" "${want#* }"

	# The run goes on in its precisions, although trials would now find the other ones.
	checkpoint=(--checkpoint "$work/run$percent" --checkpoint-every 2)
	train "$work/part.json" "${server[@]}" "${model[@]}" "${checkpoint[@]}" --precision auto --steps 2 ||
		fail "part, $percent %"
	stop_server
	export GP_FAULT=precision:$((10000 / percent))
	start_server --threads 1 --state-dir "$work/state$percent"
	server=(--server "127.0.0.1:$server_port" --codec raw)
	export GP_FAULT=precision:$percent
	train "$work/rest.json" "${server[@]}" "${model[@]}" "${checkpoint[@]}" --precision auto --resume ||
		fail "rest, $percent %"
	equal "resumed" "$(precisions "$work/rest.json")" "$want"
	equal "parameters" "$(sha "$work/rest.json")" "$(sha "$work/auto.json")"
	equal "nothing is tried anew" "$(grep -c -- '--precision auto' "$work/rest.json.log") \
$(json_get "$work/rest.json" precision_tried) $(json_get "$work/rest.json" client_precision_tried)" "0 null null"
	status=0
	"$build/gpclient" train --no-progress "${server[@]}" "${model[@]}" "${checkpoint[@]}" --resume --precision tf32 \
		>"$work/other.log" 2>&1 || status=$?
	equal "with another precision" $status 3
	told "and why not" "$work/other.log" "--precision is 'tf32', but the run has it at '${want% *}'"
	stop_server
done
unset GP_FAULT
finish
