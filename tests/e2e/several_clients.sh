#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# One client's death, garbage or slowness changes nothing for another: while a
# client trains, others are killed, send rubbish, or connect and stay silent.
# The good client's parameters must equal a local run's.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

flags=(--model mobilenetv2:width=0.35,stem=cifar --data synthetic:shape=3x32x32,classes=10,samples=512
	--batch 32 --chunks 4 --lr 0.05 --seed 3 --threads 1)

start_server --threads 1 --handshake-timeout 3s
train "$work/local.json" --local "${flags[@]}" --steps 30
train "$work/good.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 30 &
good=$!

for n in 1 2 3; do
	"$build/gpclient" train --no-progress --server "127.0.0.1:$server_port" "${flags[@]}" --steps 100000 \
		>/dev/null 2>&1 &
	victim=$!
	sleep 0.7
	kill -KILL $victim
	wait $victim 2>/dev/null
	head -c 100000 /dev/urandom >"/dev/tcp/127.0.0.1/$server_port" 2>/dev/null
	printf 'GET / HTTP/1.1\r\n\r\n' >"/dev/tcp/127.0.0.1/$server_port" 2>/dev/null
done
exec {silent}<>"/dev/tcp/127.0.0.1/$server_port"

wait $good || fail "the good client: $(cat "$work/good.json.log")"
equal "parameters beside dying and rubbish clients" "$(json_get "$work/good.json" param_sha256)" \
	"$(json_get "$work/local.json" param_sha256)"
await grep -q 'no handshake\|did not say who it is' "$work/server.log" && echo "ok: the silent client was dropped" ||
	fail "the silent client was not dropped: $(tail -5 "$work/server.log")"
exec {silent}>&-
kill -0 "$server_pid" || fail "gpserverd is gone"
stop_server
finish
