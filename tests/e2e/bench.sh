#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient bench with the real commands, on a tiny model: a table and JSON with every row, a prediction beside each;
# killed in the middle and started anew it runs only what is missing; a row that fails is noted and the others go on;
# through a simulated link it measures TLS servers, too; everything wrong is told in one line. Lists, files and tables
# alone: tests/unit/test_bench_rows.c, test_bench_results.c, test_bench_table.c.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

export TMPDIR=$work # one that is killed leaves a folder there

model=(--model cnn:width=8 --data "synthetic:shape=3x16x16,classes=4,samples=64" --batch 8 --threads 1)
small=(--codecs raw,uniform:bits=8 --chunks 1,4 --links as-is,50mbit/1ms --steps 4 --skip 1 --plan-time 10ms)

bench() { # OUT FLAG...
	local out=$1
	shift
	"$build/gpclient" bench --no-progress --server "127.0.0.1:$server_port" "${model[@]}" "$@" >"$out" 2>"$out.log"
}

refused() { # STATUS PATTERN FLAG...
	local want=$1 pattern=$2 status=0
	shift 2
	"$build/gpclient" bench --no-progress "$@" >"$work/out" 2>"$work/err" || status=$?
	if [ $status -ne "$want" ] || [ "$(wc -l <"$work/err")" -ne 1 ] || ! grep -qE -e "$pattern" "$work/err"; then
		fail "$*: status $status (want $want): $(cat "$work/err")"
	else
		echo "ok: $(cat "$work/err")"
	fi
}

events() { # FILE EVENT: how many
	grep -c "\"event\": \"$2\"" "$1"
}

server=(--server 127.0.0.1:1)
refused 2 '--server HOST:PORT is missing' "${model[@]}"
refused 2 '--codecs: nothing' "${server[@]}" "${model[@]}" --codecs nothing
refused 2 "--links: 'fast' is neither as-is nor RATE" "${server[@]}" "${model[@]}" --links fast
refused 2 'a batch of 8 cannot be cut into 3 chunks' "${server[@]}" "${model[@]}" --chunks 3
refused 2 '--skip 12 leaves none of the 12 steps' "${server[@]}" "${model[@]}" --skip 12
refused 2 '--steps behind --: gpclient bench decides it' "${server[@]}" "${model[@]}" -- --steps 3
refused 2 '--codec-act-up behind --: gpclient bench decides it' "${server[@]}" "${model[@]}" -- --codec-act-up=raw
refused 2 '--batch behind --: give it before --' "${server[@]}" "${model[@]}" -- --batch 4
refused 2 '--no-progress behind --: give it before --' "${server[@]}" "${model[@]}" -- --no-progress
refused 2 "unexpected argument 'word'" "${server[@]}" "${model[@]}" word
refused 2 "did you mean --codecs" "${server[@]}" "${model[@]}" --codec raw
refused 2 'the token would cross the link to 192.0.2.7:1 in the clear' --server 192.0.2.7:1 "${model[@]}" --token-file x
refused 2 'cut .9:1. ' "${server[@]}" "${model[@]}" --cut 9:1
refused 3 'fewer than the 128 of --batch' "${server[@]}" "${model[@]}" --batch 128
refused 4 'cannot connect to 127.0.0.1:1' "${server[@]}" "${model[@]}"
printf 'name\tvalue\n' >"$work/mine"
refused 3 'mine holds something else than results of gpclient bench' "${server[@]}" "${model[@]}" --results "$work/mine"
equal "a file of somebody's stays as it is" "$(cat "$work/mine")" "$(printf 'name\tvalue')"

start_server --threads 1 --measure 60s

# Killed in the middle; what had ended is not run again.
results=$work/results
"$build/gpclient" bench --no-progress --server "127.0.0.1:$server_port" "${model[@]}" "${small[@]}" --results "$results" \
	>"$work/killed" 2>&1 &
bench_pid=$!
has_rows() { [ "$(events "$results" run 2>/dev/null)" -ge 3 ] 2>/dev/null || ! kill -0 $bench_pid 2>/dev/null; }
await has_rows
kill -KILL $bench_pid 2>/dev/null
wait $bench_pid 2>/dev/null
done_before=$(events "$results" run)
grep '"event": "run"' "$results" >"$work/before"
printf '{"event": "run", "li' >>"$results" # as a power cut leaves it
bench "$work/json" "${small[@]}" --results "$results" --json || fail "going on: $(cat "$work/json.log")"
equal "runs in the file: one for each row" "$(events "$results" run)" 8
grep '"event": "run"' "$results" >"$work/after"
equal "those from before stand there as they did" "$(head -n "$done_before" "$work/after" | cmp - "$work/before" && echo same)" same
equal "no row was predicted twice" "$(events "$results" prediction)" 8
equal "rows of the JSON" "$(json_flat "$work/json" | grep -c '^rows\.[0-9]*\.time_per_batch_s=[0-9]')" 8
equal "of them with a prediction" "$(json_flat "$work/json" | grep -c '^rows\.[0-9]*\.predicted_s=[0-9]')" 8
equal "of them compared with raw" "$(json_flat "$work/json" | grep -c '^rows\.[0-9]*\.speed_up=[0-9]')" 8
equal "8 bits are about a quarter" "$(awk -v rate="$(json_get "$work/json" rows.1.rate)" 'BEGIN { print (rate > 0.24 && rate < 0.3) }')" 1
equal "what 4 chunks gain, by link and codec" "$(json_flat "$work/json" | grep -c '^pipelining\.[0-9]*\.less_time=')" 4
# 36 kB in a batch of raw, over 50 Mbit/s and there and back through 2 ms
equal "the simulated link's delay is there" "$(awk -v t="$(json_get "$work/json" rows.4.lowest_s)" 'BEGIN { print (t >= 0.004) }')" 1

# Everything is there: nothing runs, and no server is asked.
saved_port=$server_port
stop_server
server_port=$saved_port
cp "$results" "$work/copy"
bench "$work/text" "${small[@]}" --results "$results" || fail "a table of what is there: $(cat "$work/text.log")"
cmp -s "$results" "$work/copy" || fail "the results have changed"
grep -q '^method .*predicted' "$work/text" && grep -q '^pipelining over 50mbit/1ms: time of a batch in 4 chunks against 1: raw' "$work/text" ||
	fail "the table: $(cat "$work/text")"
refused 3 "is of another sweep: its --batch is '8', and not '16'" --server "127.0.0.1:$server_port" "${model[@]}" "${small[@]}" \
	--batch 16 --results "$results"
sed -i '4s/"chunks": [0-9]*/"chunks": "many"/' "$work/copy"
refused 3 'copy:4 is no row of gpclient bench' --server "127.0.0.1:$server_port" "${model[@]}" "${small[@]}" --results "$work/copy"

# A row that fails is noted with its reason, and the others go on; accuracy comes from --train.
start_server --threads 1
status=0
bench "$work/json" --codecs raw,delta+uniform:bits=8 --chunks 2 --links as-is --train 1 --skip 1 --no-predict --json || status=$?
equal "exit status with a row that failed" $status 1
grep -q '^failed: delta+uniform:bits=8 in 2 chunks, cut 1:-1, link as-is: .*delta works up the link only' "$work/json.log" ||
	fail "why the row failed: $(cat "$work/json.log")"
equal "rows that failed" "$(json_get "$work/json" failed)" 1
equal "the reason is in the JSON" "$(json_get "$work/json" rows.1.failed | grep -c delta)" 1
equal "accuracy of the one that ran" "$(awk -v a="$(json_get "$work/json" rows.0.val_acc)" 'BEGIN { print (a ~ /^[0-9.]+$/ && a <= 1) }')" 1

# What a training keeps in memory is said of all rows.
bench "$work/json" --codecs raw --chunks 2 --links as-is --steps 3 --skip 1 --plan-time 10ms --compress maps=bf16 \
	--results "$work/encoded" --json || fail "rows whose maps lie encoded: $(cat "$work/json.log")"
equal "the JSON says so" "$(json_get "$work/json" compress) $(json_get "$work/json" recompute)" 'maps=bf16 false'
equal "and has a prediction" "$(json_flat "$work/json" | grep -c '^rows\.0\.predicted_s=[0-9]')" 1
refused 3 "is of another sweep: its --compress is 'maps=bf16', and not 'maps=fp16'" --server "127.0.0.1:$server_port" "${model[@]}" \
	--codecs raw --chunks 2 --links as-is --steps 3 --skip 1 --compress maps=fp16 --results "$work/encoded"

start_bench() { # FLAG...
	"$build/gpclient" bench --no-progress --server "127.0.0.1:$server_port" "${model[@]}" --chunks 1 --links as-is --no-predict \
		"$@" >"$work/out" 2>"$work/log" &
	bench_pid=$!
}

# A row is a process of its own.
strike() { # SIGNAL: true when there was a row to strike; sets child
	child=$(awk '{ print $1 }' "/proc/$bench_pid/task/$bench_pid/children" 2>/dev/null)
	[ -n "$child" ] && kill "-$1" "$child" 2>/dev/null
}

# One that crashes ends nothing but itself, and the next start tries it again.
start_bench --codecs raw,fp16 --steps 400 --results "$work/crash"
await strike KILL || fail "no row to strike"
status=0
wait $bench_pid || status=$?
equal "exit status with a row that crashed" $status 1
equal "a crash is noted" "$(grep '"event": "failure"' "$work/crash" | grep -c 'ended by signal 9')" 1
equal "the other row has run" "$(events "$work/crash" run)" 1
start_bench --codecs raw,fp16 --steps 400 --results "$work/crash"
wait $bench_pid || fail "the next start: $(cat "$work/log")"
equal "then all have run" "$(events "$work/crash" run)" 2

# Without a terminal each row is named all the same.
"$build/gpclient" bench --server "127.0.0.1:$server_port" "${model[@]}" --chunks 1 --links as-is --no-predict --codecs raw,fp16 \
	--steps 2 --skip 1 --results "$work/named" >"$work/out" 2>"$work/log" || fail "rows that are named: $(cat "$work/log")"
equal "rows that are named" "$(grep -c '^row [12] of 2: ' "$work/log")" 2

# A signal ends bench and row, and nothing is noted of the row.
start_bench --codecs raw --steps 100000 --results "$work/stopped"
await strike 0 || fail "no row was begun"
kill -INT $bench_pid
status=0
wait $bench_pid || status=$?
equal "exit status after a signal" $status 130
grep -q 'stopped by a signal; 0 runs ended before; the same command goes on from there' "$work/log" || fail "what is said: $(cat "$work/log")"
kill -0 "$child" 2>/dev/null && fail "the row goes on alone"
equal "lines of the file: the settings" "$(wc -l <"$work/stopped")" 1
stop_server

# Through a simulated link, too, the certificate is asked for the server's name, not for that of the link's near end: one that the
# client must not trust is refused there as it is without.
if command -v openssl >/dev/null; then
	(umask 077 && "$source_dir/deploy/gen-test-certs.sh" "$work/certs") >/dev/null || fail "no certificates"
	start_server --threads 1 --listen 127.0.0.2:0 --tls-cert "$work/certs/server.pem" --tls-key "$work/certs/server.key"
	tls=(--tls-ca "$work/certs/ca.pem" --codecs raw --chunks 2 --links 50mbit --steps 3 --skip 1 --no-predict --json)
	bench "$work/json" --server "127.0.0.2:$server_port" "${tls[@]}" && fail "a certificate for another name was taken"
	grep -q 'failed: raw in 2 chunks.*certificate' "$work/json.log" || fail "why: $(cat "$work/json.log")"
	bench "$work/json" --server "127.0.0.2:$server_port" "${tls[@]}" --tls-name localhost || fail "over TLS: $(cat "$work/json.log")"
	equal "a row over TLS" "$(json_get "$work/json" rows.0.steps)" 2
	stop_server
fi
finish
