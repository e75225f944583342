#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient plan with the real commands: what it predicts of bytes and memory is what a training then has, and its parts add
# up; a sweep ranks; a server is asked for its speed and its link is measured; everything wrong is told in one line. How near
# its times come is for a quiet machine: tests/bench/plan.sh. The arithmetic: tests/unit/test_plan_schedule.c.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

plan() { # OUT FLAG...
	local out=$1
	shift
	"$build/gpclient" plan --no-progress --time 10ms --json "$@" >"$out" 2>"$out.log" || fail "gpclient plan $*: $(cat "$out.log")"
}

holds() { # WHAT CONDITION-OF-AWK NAME=NUMBER...
	local what=$1 condition=$2 args=() pair
	shift 2
	for pair in "$@"; do
		args+=(-v "$pair")
	done
	awk "${args[@]}" "BEGIN { exit !($condition) }" && echo "ok: $what ($*)" || fail "$what: $*"
}

refused() { # STATUS PATTERN FLAG...
	local want=$1 pattern=$2 status=0
	shift 2
	"$build/gpclient" plan --no-progress --time 10ms "$@" >"$work/out" 2>"$work/err" || status=$?
	if [ $status -ne "$want" ] || [ "$(wc -l <"$work/err")" -ne 1 ] || ! grep -qE -e "$pattern" "$work/err"; then
		fail "$*: status $status (want $want): $(cat "$work/err")"
	else
		echo "ok: $(cat "$work/err")"
	fi
}

any_chunks=(--model cnn:width=8 --data synthetic:shape=3x16x16,classes=4,samples=64 --batch 16 --threads 1)
model=("${any_chunks[@]}" --chunks 4)

refused 2 '--model is missing' --link 1mbit
refused 2 '--data is missing' --link 1mbit --model cnn
refused 2 '--link RATE,DELAY is missing' "${model[@]}"
refused 2 "--link 'fast': 'fast' is not a rate" "${model[@]}" --link fast
refused 2 "--link '1mbit,5': '5' is not a time" "${model[@]}" --link 1mbit,5
refused 2 "'foo=3' is none of rtt=, delay=, up=, down=" "${model[@]}" --link 1mbit,foo=3
refused 2 'cut .9:1. ' "${model[@]}" --link 1mbit --cut 9:1
refused 2 "--sweep 'cuts': it takes cut, codec and chunks" "${model[@]}" --link 1mbit --sweep cuts
refused 2 '--codecs names those of --sweep codec' "${model[@]}" --link 1mbit --codecs raw
refused 2 '--codec: auto chooses a codec while training' "${model[@]}" --link 1mbit --codec auto
refused 2 '--codecs: auto: auto chooses a codec' "${model[@]}" --link 1mbit --sweep codec --codecs raw,auto
refused 2 "--server: .127.0.0.1:0.: .*port 0" "${model[@]}" --link 1mbit --server 127.0.0.1:0
refused 2 "'0mbit' is not a rate from 1bit" "${model[@]}" --link 0mbit
refused 2 'counted from the first of its 4 blocks it is 9:-2' "${model[@]}" --link 1mbit --cut 9:-6
refused 2 '--codecs: nothing' "${model[@]}" --link 1mbit --sweep codec --codecs nothing
refused 2 '--codecs: delta.*: delta works up the link only' "${model[@]}" --link 1mbit --sweep codec \
	--codecs 'raw,delta:samples=64+uniform:bits=4'
refused 2 '--chunks says which one, and --sweep chunks tries several' "${model[@]}" --link 1mbit --sweep codec,chunks
refused 2 '--cut says which one, and --sweep cut tries several' "${model[@]}" --link 1mbit --sweep cut --cut 1:-1
refused 2 '--codec says which one, and --sweep codec tries several' "${model[@]}" --link 1mbit --sweep codec --codec raw
refused 2 '--codec-grad-up says which one, and --sweep codec' "${model[@]}" --link 1mbit --sweep codec --codec-grad-up raw
refused 2 '--max-error chooses among what --sweep tries' "${model[@]}" --link 1mbit --max-error 0.01
refused 2 '--top chooses among what --sweep tries' "${model[@]}" --link 1mbit --top 3
refused 2 'cannot be cut into 3 equal chunks' "${model[@]}" --link 1mbit --chunks 3
refused 3 'fewer than the 128 of --batch' "${model[@]}" --link 1mbit --batch 128
refused 2 '--server-speed is for when there is no --server' "${model[@]}" --server 127.0.0.1:1 --server-speed 2
refused 4 'cannot connect to 127.0.0.1:1' "${model[@]}" --server 127.0.0.1:1 --link 1mbit
refused 4 'the link is not measured .*cannot connect to 127.0.0.1:1' "${model[@]}" --server 127.0.0.1:1

start_server --threads 1 --measure 60s

# Without a server: bytes and memory are those of the training, and what bounds the step adds up to it.
plan "$work/plan" "${model[@]}" --link 4mbit,5ms --codec uniform:bits=8
train "$work/train" --server "127.0.0.1:$server_port" "${model[@]}" --codec uniform:bits=8 --steps 4 --no-eval || fail "training"
for way in up down; do
	act=$(json_get "$work/train" "act_$way.wire_bytes_per_batch") grad=$(json_get "$work/train" "grad_$way.wire_bytes_per_batch")
	holds "bytes $way" 'plan > act + grad && plan < 1.02 * (act + grad) + 2048' "plan=$(json_get "$work/plan" "wire_${way}_bytes")" \
		"act=$act" "grad=$grad"
done
holds "memory here" 'plan > 0.9 * real && plan < 1.1 * real' "plan=$(json_get "$work/plan" client_memory_bytes)" \
	"real=$(json_get "$work/train" memory_bytes)"
holds "memory on the server" 'plan > 0.6 * real && plan < 1.2 * real' "plan=$(json_get "$work/plan" server_memory_bytes)" \
	"real=$(json_get "$work/train" server_memory_bytes)"
holds "parts add up" 'sum > 0.999 * all && sum < 1.001 * all' "all=$(json_get "$work/plan" time_per_batch_s)" \
	"sum=$(json_flat "$work/plan" | awk -F= '/^bound_by\./ { sum += $2 } END { print sum }')"
holds "no batch is faster than its bytes" 'time >= bytes * 8 / 4e6' "time=$(json_get "$work/plan" time_per_batch_s)" \
	"bytes=$(json_get "$work/plan" wire_up_bytes)"
grep -q 'uniform:bits=8 in 4 chunks' "$work/plan" || fail "no sentence: $(cat "$work/plan")"

# Memory of trainings that keep less is predicted as they have it.
wide=(--model mobilenetv2:width=0.35,stem=cifar --data synthetic:shape=3x32x32,classes=10,samples=64 --batch 64 --chunks 2
	--window 2 --threads 1)
plan "$work/all" "${wide[@]}" --link 1gbit
all=$(json_get "$work/all" server_memory_bytes)
for way in --recompute --compress=maps=uniform:bits=8; do
	less=$work/less${way%%=*}
	plan "$less" "${wide[@]}" --link 1gbit "$way"
	train "$less.train" --server "127.0.0.1:$server_port" "${wide[@]}" --steps 1 --no-eval "$way" || fail "training with $way"
	holds "memory here with $way" 'plan > 0.9 * real && plan < 1.1 * real' "plan=$(json_get "$less" client_memory_bytes)" \
		"real=$(json_get "$less.train" memory_bytes)"
	holds "memory on the server with $way" 'plan > 0.6 * real && plan < 1.2 * real && plan < 0.8 * all' "all=$all" \
		"plan=$(json_get "$less" server_memory_bytes)" "real=$(json_get "$less.train" server_memory_bytes)"
done
plan "$work/state" "${wide[@]}" --optimizer adam --link 1gbit
plan "$work/less--state" "${wide[@]}" --optimizer adam --link 1gbit --compress state=bf16
holds "memory with encoded state" 'less < all' "all=$(json_get "$work/state" server_memory_bytes)" \
	"less=$(json_get "$work/less--state" server_memory_bytes)"
equal "what plan says of encoded state" "$(json_get "$work/less--state" compress)" state=bf16
equal "what plan says of it" "$(json_get "$work/less--recompute" recompute) $(json_get "$work/less--compress" compress)" \
	'true maps=uniform:bits=8'
refused 2 'exclude each other' "${model[@]}" --link 1mbit --recompute --compress maps=bf16
refused 2 'topk cannot' "${model[@]}" --link 1mbit --compress maps=topk:ratio=0.1

# A sweep: a slow link wants few bytes; what memory does not allow is struck out.
plan "$work/sweep" "${any_chunks[@]}" --link 100kbit --sweep cut,codec,chunks --codecs raw,uniform:bits=8 --top 3
holds "the first is the fastest" 'a <= b && b <= c' "a=$(json_get "$work/sweep" 0.time_per_batch_s)" \
	"b=$(json_get "$work/sweep" 1.time_per_batch_s)" "c=$(json_get "$work/sweep" 2.time_per_batch_s)"
equal "the codec of a slow link" "$(json_get "$work/sweep" 0.codec)" uniform:bits=8
plan "$work/exact" "${model[@]}" --link 100kbit --sweep codec --codecs raw,uniform:bits=2 --max-error 1e-6
equal "codecs within --max-error" "$(json_flat "$work/exact" | grep -c '^[0-9]*\.codec=')" 1
"$build/gpclient" plan --no-progress --time 10ms "${any_chunks[@]}" --link 100kbit --sweep chunks --codec uniform:bits=2 \
	--max-error 1e-6 >"$work/text" 2>"$work/err"
equal "the status of a sweep in which all lose too much" $? 3
grep -q 'in 5 the codec loses more than --max-error allows' "$work/text" || fail "--max-error of another sweep: $(cat "$work/text")"
"$build/gpclient" plan --no-progress --time 10ms "${any_chunks[@]}" --link 100kbit --sweep chunks --codec uniform:bits=2 >"$work/text" ||
	fail "a sweep of chunks"
grep -q 'the 5 fastest are shown$' "$work/text" || fail "a limit that nobody has asked for: $(cat "$work/text")"
plan "$work/odd" "${any_chunks[@]}" --batch 6 --link 100kbit --sweep chunks --codec raw
equal "numbers of chunks of a batch of six" "$(json_flat "$work/odd" | grep -c '^[0-9]*\.chunks=')" 2
"$build/gpclient" plan --no-progress --time 10ms "${any_chunks[@]}" --link 100kbit --sweep chunks --client-memory 4K >"$work/text" 2>"$work/err"
equal "the status of a sweep in which nothing fits" $? 3
grep -q 'nothing of this is possible: needs [0-9.]* MiB here, where 0.003906 MiB are allowed$' "$work/err" ||
	fail "what is struck out: $(cat "$work/err")"
"$build/gpclient" plan --no-progress --time 10ms "${model[@]}" --link 1mbit,10ms --codec raw >"$work/text" || fail "no text"
tail -n 1 "$work/text" | grep -qE '^Cut at 1:-1 with raw in 4 chunks: .* a batch, bound by .*\.$' ||
	fail "the last line: $(tail -n 1 "$work/text")"

# With a server: its speed and what it allows are asked for, and the link is measured.
plan "$work/served" "${model[@]}" --server "127.0.0.1:$server_port" --codec uniform:bits=8
equal "the link was measured" "$(json_get "$work/served" link.measured)" true
equal "the server was measured" "$(json_get "$work/served" server_speed.measured)" true
equal "both ends on this machine" "$(json_get "$work/served" same_machine)" true
holds "a server and a link" 'forward > 0 && up > 0' "forward=$(json_get "$work/served" server_speed.forward)" \
	"up=$(json_get "$work/served" link.up_bps)"
holds "moving bytes" 'byte > 0 && byte < 1e-3' "byte=$(json_get "$work/served" link.byte_s)"
plan "$work/given" "${model[@]}" --server "127.0.0.1:$server_port" --link 1gbit --codec uniform:bits=8
holds "moving bytes over a link that is given" 'byte > 0 && byte < 1e-3' "byte=$(json_get "$work/given" link.byte_s)"
equal "that link was not measured" "$(json_get "$work/given" link.measured) $(json_get "$work/given" link.up_bps)" 'false 1000000000.0'
equal "moving bytes is not known without a server" "$(json_get "$work/plan" link.byte_s)" null

# What goes up takes minutes to arrive; the server's heartbeats come down all the while.
start_link --rate-up 2kbit
refused 4 'answers, but has made no progress for 1 s' "${model[@]}" --server "127.0.0.1:$link_port" --link 1mbit --step-timeout 1s
stop_link
stop_server

start_server --threads 1 --measure 0 --session-memory 64K
refused 4 'the link is not measured .*measures no links' "${model[@]}" --server "127.0.0.1:$server_port"
refused 4 'this session needs .* the server allows' "${model[@]}" --server "127.0.0.1:$server_port" --link 1mbit
stop_server
finish
