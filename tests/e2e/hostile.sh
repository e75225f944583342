#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A daemon under connections that want nothing good, and under more clients than
# it takes: training goes on to the same parameters, clients that find no room
# wait for it, and SIGTERM ends the daemon soon, whatever its clients do.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

flags=(--model cnn:width=8 --data synthetic:shape=1x28x28,classes=10,samples=256 --batch 32 --chunks 2 --threads 1 --no-eval)

train "$work/local.json" --local "${flags[@]}" --steps 60 || fail "local run"
want=$(json_get "$work/local.json" param_sha256)

sessions_begun() {
	grep -c 'samples a chunk' "$work/server.log"
}

more_sessions_than() { # COUNT
	[ "$(sessions_begun)" -gt "$1" ]
}

# Until the server has begun one more session than COUNT.
another_session() { # COUNT
	await more_sessions_than "$1" ||
		fail "no session begins: $(tail -3 "$work/server.log")"
}

start_server --threads 1 --max-sessions 1 --max-unopened 64 --handshake-timeout 3s
server=(--server "127.0.0.1:$server_port")

"$build/tests/hostile" "$server_port" slow 200 4 >"$work/slow" &
slow=$!
"$build/tests/hostile" "$server_port" garbage 1000 4 >"$work/garbage" &
garbage=$!
sleep 0.5
train "$work/beside.json" "${server[@]}" "${flags[@]}" --steps 60 || fail "a run beside hostile connections"
equal "parameters beside hostile connections" "$(json_get "$work/beside.json" param_sha256)" "$want"
wait $slow && wait $garbage || fail "hostile: $(cat "$work/slow" "$work/garbage")"
echo "slow: $(cat "$work/slow"); garbage: $(cat "$work/garbage")"
# Fifty at once, and one a second.
equal "lines of the log about them, at most $((60 + SECONDS))" \
	"$(($(grep -c 'connection .* ended' "$work/server.log") <= 60 + SECONDS))" 1

# One place, two clients: the second waits, says so, and gets it.
begun=$(sessions_begun)
"$build/gpclient" train --no-progress "${server[@]}" "${flags[@]}" --steps 3000000 --log-json "$work/steps" >/dev/null \
	2>"$work/first.log" &
first=$!
another_session "$begun"
await grep -qs '"event":"step"' "$work/steps" # signals are its own from then on
train "$work/second.json" "${server[@]}" "${flags[@]}" --steps 60 &
second=$!
await grep -qs 'no room.*trying again' "$work/second.json.log"
kill $first
wait $first
equal "status of the first client, asked to stop" $? 143
wait $second || fail "the client that had to wait"
equal "parameters of the client that had to wait" "$(json_get "$work/second.json" param_sha256)" "$want"
grep -q 'no room.*trying again' "$work/second.json.log" || fail "the client does not say that it waits: $(cat "$work/second.json.log")"
status=0 begun=$(sessions_begun)
"$build/gpclient" train --no-progress "${server[@]}" "${flags[@]}" --steps 3000000 --reconnect-for 10s >/dev/null 2>"$work/third.log" &
third=$!
another_session "$begun"
"$build/gpclient" train --no-progress "${server[@]}" "${flags[@]}" --steps 1 --reconnect-for 0s >/dev/null 2>"$work/fourth.log" || status=$?
equal "status of a client that does not wait" "$status" 4

before=$(date +%s%N)
stop_server
took=$((($(date +%s%N) - before) / 1000000))
# Without that limit it would take as long as the client trains; a machine with other things to do may add to it.
echo "SIGTERM to exit: $took ms"
[ $took -lt 120000 ] || fail "SIGTERM took far longer than a step"
wait $third
equal "status of a client whose server has stopped" $? 4
finish
