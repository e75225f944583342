#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient link between client and server: a shaped link changes nothing but
# the time, its counters agree with the client's, a trickle is still the same
# training, and a corrupt byte is an error and not another model.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

flags=(--model cnn --data synthetic:shape=3x32x32,classes=10,samples=256 --batch 32 --chunks 4 --lr 0.05 --seed 3
	--threads 1 --no-eval --steps 4)

start_server --threads 1
train "$work/plain.json" --server "127.0.0.1:$server_port" "${flags[@]}" || fail "training without a link"
sha=$(json_get "$work/plain.json" param_sha256)

start_link --rate 100mbit --rate-down 80mbit --delay 1ms --jitter 1ms
train "$work/shaped.json" --server "127.0.0.1:$link_port" "${flags[@]}" || fail "training over a shaped link"
stop_link
equal "parameters over a shaped link" "$(json_get "$work/shaped.json" param_sha256)" "$sha"
up=$(json_get "$work/link.json" up.bytes) want=$(json_get "$work/shaped.json" wire_up_bytes)
# The client counts until it reports; its good-bye comes after that.
if [ "$up" -ge "$want" ] && [ "$up" -le $((want + 1000)) ]; then
	echo "ok: the link counted $up bytes up, the client $want"
else
	fail "the link counted $up bytes up, the client $want"
fi
[ -e "$work/link.port" ] && fail "the port file is still there"

start_link --trickle --direction down
train "$work/trickle.json" --server "127.0.0.1:$link_port" "${flags[@]}" --steps 1 || fail "training over a trickle"
train "$work/one.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 1 || fail "training one step"
stop_link
equal "parameters over a trickle" "$(json_get "$work/trickle.json" param_sha256)" "$(json_get "$work/one.json" param_sha256)"

start_link --corrupt-byte 60000 --direction up
status=0
timeout 60 "$build/gpclient" train --no-progress --server "127.0.0.1:$link_port" "${flags[@]}" >"$work/out" 2>"$work/err" ||
	status=$?
stop_link
equal "a corrupt byte ends the client with status" $status 4
equal "corrupt bytes that the link counted" "$(json_get "$work/link.json" up.corrupted)" 1
stop_server
finish
