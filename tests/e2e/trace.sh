#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# train --trace and bound_by: a traced run over loopback and through a slow link. The file is one JSON array with stages of both
# ends, on one clock: no tensor is received before it was sent, to within the uncertainty that the file states. What bounded the
# steps adds up to their time, and names the way up where that is slow. Tracing changes no parameter. A run that Ctrl-C ends
# leaves a whole file; a local run is traced, too.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

flags=(--model cnn --data synthetic:shape=3x16x16,classes=4,samples=64 --batch 8 --chunks 2 --threads 1)

scalar='"[a-z_]+":("[^"\\]*"|-?[0-9.]+)'
member="($scalar|\"args\":\\{$scalar(,$scalar)*\\})"

# Events lie in lines of their own: the array is held against what JSON is, and each line against what an event is.
whole() { # WHAT FILE
	local bad
	equal "$1: the array begins and ends" "$(head -c 1 "$2")$(tail -c 2 "$2")" "[]"
	bad=$(sed -e '1d;$d' -e 's/,$//' "$2" | grep -cvE "^\\{$member(,$member)*\\}\$")
	equal "$1: lines that are no event" "$bad" 0
	equal "$1: lines without a comma before another" "$(sed -e '1d;$d' "$2" | sed '$d' | grep -cv ',$')" 0
}

spans() { # FILE PID NAME
	grep -c "\"name\":\"$3\",\"pid\":$2,.*\"dur\"" "$1"
}

field() { # NAME: awk that gives the number behind it
	echo "substr(\$0, index(\$0, \"\\\"$1\\\":\") + length(\"$1\") + 3) + 0"
}

# Arrows whose end is before their begin, by more than twice what any statement of the clock leaves; and how many
# there are.
late_arrows() { # FILE
	awk "
		/\"name\":\"server_clock\"/ { u = $(field uncertainty_us); if (u > most) most = u }
		/\"ph\":\"[sf]\"/ { match(\$0, /\"id\":\"[0-9a-f]*\"/); id = substr(\$0, RSTART, RLENGTH); ts = $(field ts) }
		/\"ph\":\"s\"/ { sent[id] = ts }
		/\"ph\":\"f\"/ { received[id] = ts }
		END {
			for (id in sent)
				if (id in received) { pairs++; bad += received[id] < sent[id] - 2 * most }
			print bad + 0, pairs + 0
		}" "$1"
}

# Seconds by the closing JSON's bound_by beside the mean of the log's steps: the difference, as a share.
adds_up() { # WHAT JSON LOG
	json_flat "$2" | sed -n 's/^bound_by\.[a-z_]*=//p' >"$work/parts"
	equal "$1: parts of bound_by" "$(wc -l <"$work/parts")" 8
	awk 'NR == FNR { parts += $1; next }
		/"event":"step"/ { s = substr($0, index($0, "\"seconds\":") + 10) + 0; sum += s; n++ }
		END { d = parts - sum / n; exit !(n && d < 1e-6 && d > -1e-6) }' "$work/parts" "$3" || fail "$1: bound_by does not add up to the steps' time"
}

largest() { # JSON
	json_flat "$1" | sed -n 's/^bound_by\.\([a-z_]*\)=/\1 /p' | sort -k2 -g | tail -1 | cut -d' ' -f1
}

start_server --threads 1
server=(--server "127.0.0.1:$server_port")
train "$work/plain.json" "${server[@]}" "${flags[@]}" --steps 6
train "$work/traced.json" "${server[@]}" "${flags[@]}" --steps 6 --trace "$work/trace" --log-json "$work/log"
equal "the same parameters with and without --trace" "$(json_get "$work/traced.json" param_sha256)" "$(json_get "$work/plain.json" param_sha256)"
whole "loopback" "$work/trace"
for name in "head forward" "act_up encode" "act_up sent" "act_down received" "act_down decode" tail "grad_up encode" "grad_up sent" \
	"grad_down received" "grad_down decode" "head backward" loss; do
	equal "$name of each chunk" "$(spans "$work/trace" 1 "$name")" 12
done
for name in step update "wait for a batch"; do
	equal "$name of each step" "$(spans "$work/trace" 1 "$name")" 6
done
[ "$(spans "$work/trace" 1 validation)" -ge 1 ] || fail "no validation"
# The first heartbeat is answered before the first chunk: the server's clock is known from there on.
for name in "act_up received" "act_up decode" "body forward" "act_down encode" "grad_up received" "grad_up decode" "body backward" \
	"grad_down encode"; do
	equal "$name of each chunk, told by the server" "$(spans "$work/trace" 2 "$name")" 12
done
equal "updates of the server" "$(spans "$work/trace" 2 "body update")" 6
[ "$(spans "$work/trace" 2 "act_down sent")" -ge 10 ] || fail "what the server sent is missing"
grep -q '"name":"server_clock".*"offset_us":.*"uncertainty_us":' "$work/trace" || fail "no clock is stated"
read -r bad pairs < <(late_arrows "$work/trace")
equal "tensors received before they were sent" "$bad" 0
[ "$pairs" -ge 40 ] || fail "arrows from one end to the other: $pairs of 48"
adds_up "loopback" "$work/traced.json" "$work/log"

# The file is not written over; steps and size can be limited.
status=0
"$build/gpclient" train --no-progress "${server[@]}" "${flags[@]}" --steps 1 --trace "$work/trace" >/dev/null 2>"$work/err" || status=$?
equal "a trace that is there: status" $status 3
grep -q -- "--trace: $work/trace holds something already" "$work/err" || fail "no reason: $(cat "$work/err")"
"$build/gpclient" train --no-progress --local "${flags[@]}" --steps 1 --trace "$work/none" --trace-steps 3:2 >/dev/null 2>"$work/err"
equal "steps that are none: status" $? 2
grep -q -- "--trace-steps: '3:2' is no range of steps" "$work/err" || fail "no reason: $(cat "$work/err")"
"$build/gpclient" train --no-progress --local "${flags[@]}" --steps 1 --trace-steps 2:3 >/dev/null 2>"$work/err"
equal "steps of no trace: status" $? 2
grep -q -- "--trace-steps needs --trace FILE" "$work/err" || fail "no reason: $(cat "$work/err")"
train "$work/some.json" "${server[@]}" "${flags[@]}" --steps 5 --no-eval --trace "$work/some" --trace-steps 2:3
whole "two steps" "$work/some"
equal "steps traced of five" "$(spans "$work/some" 1 step)" 2
train "$work/late.json" --local "${flags[@]}" --steps 1 --no-eval --trace "$work/late" --trace-steps 2:3
grep -q "no trace is left: the run had none of the steps that --trace-steps names" "$work/late.json.log" || fail "steps behind the end: no word"
[ ! -e "$work/late" ] || fail "steps behind the end leave a file"

# A resumed run leaves the trace of its first part alone.
run=("${server[@]}" "${flags[@]}" --no-eval --checkpoint "$work/run" --trace "$work/part")
train "$work/first.json" --local "${run[@]:2}" --steps 2
train "$work/second.json" --local "${run[@]:2}" --steps 4 --resume
whole "the second part of a run" "$work/part.2"
equal "steps of both parts" "$(spans "$work/part" 1 step)+$(spans "$work/part.2" 1 step)" 2+2
grep -q "is traced to $work/part.2" "$work/second.json.log" || fail "the second file is not named"
equal "a local run: forward passes" "$(spans "$work/part" 1 forward)" 4
for part in head body tail; do
	awk -v s="$(json_get "$work/first.json" "bound_by.$part")" 'BEGIN { exit !(s > 0) }' || fail "a local run spends nothing on its $part"
done
equal "a local run has no wire" "$(json_get "$work/first.json" bound_by.up_wire)" null

# The way up is slow, 40 kB a step at 100 kbit/s, and everything else is fast.
start_link --rate-up 100kbit
train "$work/slow.json" --server "127.0.0.1:$link_port" "${flags[@]}" --steps 3 --no-eval --trace "$work/slow" --log-json "$work/slow.log"
whole "a slow link" "$work/slow"
read -r bad pairs < <(late_arrows "$work/slow")
equal "a slow link: tensors received before they were sent" "$bad" 0
adds_up "a slow link" "$work/slow.json" "$work/slow.log"
equal "a slow link is bound by" "$(largest "$work/slow.json")" up_wire
grep -qE "a step's time went to: up_wire [0-9]+ %" "$work/slow.json.log" || fail "the closing text does not say so: $(cat "$work/slow.json.log")"

# Ctrl-C: the array ends.
"$build/gpclient" train --no-progress --server "127.0.0.1:$link_port" "${flags[@]}" --steps 100000 --no-eval --trace "$work/cut" \
	>/dev/null 2>"$work/cut.log" &
pid=$!
some_steps() { [ "$(spans "$work/cut" 1 step 2>/dev/null)" -ge 1 ] 2>/dev/null; }
await some_steps || fail "no step was traced: $(cat "$work/cut.log")"
kill -INT $pid
wait $pid
equal "a run that Ctrl-C ends: status" $? 130
whole "a run that Ctrl-C ends" "$work/cut"
stop_link
stop_server
finish
