#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Admitted clients that mean harm, one after the other without a pause: a chunk
# whose factors overflow, codecs and bodies that would compute for minutes, and
# graphs as large as they may be. Meanwhile another client trains, and ends in the
# same bits as alone; the server goes on.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

flags=(--model cnn:width=8 --data synthetic:shape=1x28x28,classes=10,samples=256 --batch 32 --chunks 2 --threads 1 --no-eval
	--codec ef+topk:ratio=0.25)
kinds=(infinite codecs pools graphs wrong)
steps=20

start_server --threads 1 --task-time 5s --resume-window 0s
train "$work/alone.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps $steps || fail "the client alone"
want=$(json_get "$work/alone.json" param_sha256)

ended() { # sessions that have ended so far, of attackers for the most part
	grep -c 'session .* ended' "$work/server.log"
}

more_ended_than() { # COUNT
	[ "$(ended)" -gt "$1" ]
}

for kind in "${kinds[@]}"; do
	before=$(ended)
	"$build/tests/attacker" "$server_port" $kind 0 >"$work/attack" 2>&1 &
	attacker=$!
	await more_ended_than "$before" || fail "$kind: no session of the attacker has ended: $(tail -3 "$work/server.log")"
	train "$work/$kind.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps $steps || fail "the client beside $kind"
	equal "parameters beside $kind" "$(json_get "$work/$kind.json" param_sha256)" "$want"
	kill -0 $attacker 2>/dev/null || fail "$kind: the attacker has left: $(cat "$work/attack")"
	kill -TERM $attacker
	wait $attacker || fail "$kind: $(cat "$work/attack")"
	echo "$kind: $(cat "$work/attack")"
	kill -0 "$server_pid" || fail "gpserverd is gone: $(tail -3 "$work/server.log")"
done
for why in 'by poweriter:rank=256,iters=64' 'zstd:level=19 may take' 'backward pass over a chunk' 'one of an earlier node'; do
	grep -q "$why" "$work/server.log" || fail "nothing was refused with '$why'"
done
stop_server
finish
