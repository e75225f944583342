#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# --recalibrate: running statistics of batch norms taken anew, by eval and by
# train, split as in a local run to the last bit, also over a link that breaks
# and from a checkpoint; and what is refused.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

data=synthetic:shape=3x16x16,classes=10,samples=128
flags=(--model resnet20:width=0.5 --data "$data" --batch 16 --chunks 4 --threads 1 --seed 3 --cut 2:-2)

train "$work/first.json" --local "${flags[@]}" --steps 8 --lr 0.01 --no-eval --save "$work/first.safetensors" ||
	fail "training"
start_server --threads 1

evaluate() { # JSON-FILE WHERE...: of the weights in $init
	local out=$1
	shift
	"$build/gpclient" eval --no-progress --json "${flags[@]}" --init "$init" "$@" >"$out" 2>"$out.log" ||
		fail "evaluation: $(cat "$out.log")"
}
same_file() { # WHAT A B
	if cmp -s "$2" "$3"; then echo "ok: $1"; else fail "$1"; fi
}

init=$work/first.safetensors
evaluate "$work/plain.json" --local
evaluate "$work/local.json" --local --recalibrate 3 --save "$work/local.safetensors"
evaluate "$work/split.json" --server "127.0.0.1:$server_port" --recalibrate 3 --save "$work/split.safetensors"
same_file "statistics taken anew through a server are those of a local run" "$work/split.safetensors" "$work/local.safetensors"
equal "loss with them" "$(json_get "$work/split.json" val_loss)" "$(json_get "$work/local.json" val_loss)"
[ "$(json_get "$work/local.json" val_loss)" != "$(json_get "$work/plain.json" val_loss)" ] || fail "nothing has changed"
init=$work/local.safetensors
evaluate "$work/again.json" --local
near "loss of the weights that were saved" "$(json_get "$work/again.json" val_loss)" "$(json_get "$work/local.json" val_loss)"
described=(--json --data "$data" --batch 16 --chunks 4 --threads 1 --init "$init")
"$build/gpclient" eval --no-progress --local "${described[@]}" >"$work/again.json" 2>"$work/again.log" ||
	fail "without --model: $(cat "$work/again.log")"
near "loss without --model" "$(json_get "$work/again.json" val_loss)" "$(json_get "$work/local.json" val_loss)"
equal "steps of the training" "$(grep -ao '"gpsplit.steps":"8"' "$init")" '"gpsplit.steps":"8"'
evaluate "$work/again.json" --local --recalibrate 3 --save "$work/again.safetensors"
same_file "statistics taken anew twice" "$work/again.safetensors" "$work/local.safetensors"

init=$work/first.safetensors
start_link --drop-every $(($(json_get "$work/split.json" wire_up_bytes) / 8)) --seed 5
evaluate "$work/cut.json" --server "127.0.0.1:$link_port" --recalibrate 3 --save "$work/cut.safetensors" --idle-timeout 2s
stop_link
same_file "statistics taken anew over a link that breaks" "$work/cut.safetensors" "$work/local.safetensors"
[ "$(json_get "$work/cut.json" reconnects)" -gt 0 ] || fail "no cut was counted"

# A server that has lost the session, as one that was restarted, wherever in the pass or behind it: it begins anew.
good_port=$server_port good_pid=$server_pid
start_server --threads 1 --resume-window 0
for eighths in 2 3 4 5 6 7; do
	start_link --drop-after $(($(json_get "$work/split.json" wire_up_bytes) * eighths / 8)) --direction up --times 1
	rm -f "$work/lost.safetensors"
	evaluate "$work/lost.json" --server "127.0.0.1:$link_port" --recalibrate 3 --save "$work/lost.safetensors"
	stop_link
	same_file "statistics where the server lost the session after $eighths eighths of the bytes" "$work/lost.safetensors" \
		"$work/local.safetensors"
	equal "loss then" "$(json_get "$work/lost.json" val_loss)" "$(json_get "$work/local.json" val_loss)"
	equal "reconnects then" "$(json_get "$work/lost.json" reconnects)" 1
done
# One that is lost again and again, before the pass can come to its end, is not asked without end.
start_link --drop-after $(($(json_get "$work/split.json" wire_up_bytes) * 4 / 8)) --direction up
status=0
timeout 300 "$build/gpclient" eval --no-progress --json "${flags[@]}" --init "$init" --server "127.0.0.1:$link_port" \
	--recalibrate 3 --save "$work/none.safetensors" >"$work/none.json" 2>"$work/none.log" || status=$?
equal "status where the server loses every session" $status 4
grep -q 'has lost this session 4 times without coming further than chunk' "$work/none.log" ||
	fail "its line: $(cat "$work/none.log")"
stop_link
# While the weights come back with them, it is too late for that: the body would be that of --init.
start_link --drop-after $(($(json_get "$work/split.json" wire_down_bytes) / 2)) --direction down --times 1
status=0
"$build/gpclient" eval --no-progress --json "${flags[@]}" --init "$init" --server "127.0.0.1:$link_port" --recalibrate 3 \
	--save "$work/none.safetensors" >"$work/none.json" 2>"$work/none.log" || status=$?
equal "status where the server lost the session with its statistics" $status 4
grep -q 'has lost this session, and with it the running statistics' "$work/none.log" || fail "its line: $(cat "$work/none.log")"
[ ! -e "$work/none.safetensors" ] || fail "weights were saved without the statistics"
stop_link
stop_server
server_port=$good_port server_pid=$good_pid

# Training goes on with them: with mode running that decides what follows. Two epochs of 8 steps.
for mode in chunk running; do
	run=("${flags[@]}" --init "$work/first.safetensors" --lr 0.01 --schedule const --recalibrate 2 --batch-norm "$mode")
	train "$work/local.json" --local "${run[@]}" --steps 16 --save "$work/w.safetensors" || fail "local run, $mode"
	train "$work/split.json" --server "127.0.0.1:$server_port" "${run[@]}" --steps 16 || fail "split run, $mode"
	equal "parameters of a split run, $mode" "$(json_get "$work/split.json" param_sha256)" \
		"$(json_get "$work/local.json" param_sha256)"
	equal "its validation, $mode" "$(json_get "$work/split.json" val_loss)" "$(json_get "$work/local.json" val_loss)"
	train "$work/part.json" --local "${run[@]}" --steps 8 --checkpoint "$work/run-$mode" || fail "half a run, $mode"
	train "$work/rest.json" --local "${run[@]}" --steps 16 --checkpoint "$work/run-$mode" --resume || fail "its rest, $mode"
	equal "parameters of a resumed run, $mode" "$(json_get "$work/rest.json" param_sha256)" \
		"$(json_get "$work/local.json" param_sha256)"
done
# The last checkpoint comes before the last statistics: what is made of it says how to take them. eval does not augment.
train "$work/kept.json" --local "${flags[@]}" --steps 8 --lr 0.01 --no-augment --recalibrate 3 --no-eval --checkpoint "$work/run" \
	--save "$work/saved.safetensors" || fail "a run with a checkpoint"
"$build/gpclient" model export "$work/run" --out "$work/export.safetensors" 2>"$work/out" || fail "export: $(cat "$work/out")"
grep -q 'eval --init .*export.safetensors --recalibrate 3 --save FILE' "$work/out" || fail "no note: $(cat "$work/out")"
cmp -s "$work/export.safetensors" "$work/saved.safetensors" && fail "the note is not needed"
init=$work/export.safetensors
evaluate "$work/eval.json" --local --recalibrate 3 --save "$work/taken.safetensors"
same_file "what the note makes is what --save wrote" "$work/taken.safetensors" "$work/saved.safetensors"

# Whether statistics are taken between epochs, too, decides what they are trained with.
status=0
"$build/gpclient" train --local "${run[@]}" --steps 24 --no-eval --checkpoint "$work/run-running" --resume >"$work/out" 2>"$work/err" ||
	status=$?
equal "status of another choice of --no-eval" $status 3
grep -q 'the run was begun with evaluations, .*: leave --no-eval out' "$work/err" || fail "its line: $(cat "$work/err")"

init=$work/w.safetensors
evaluate "$work/eval.json" --local
near "loss of the saved weights" "$(json_get "$work/eval.json" val_loss)" "$(json_get "$work/local.json" val_loss)"

refused() { # TEXT COMMAND FLAG...
	local want=$1 status=0
	shift
	"$build/gpclient" "$@" >"$work/out" 2>"$work/err" || status=$?
	equal "status of '$want'" $status 2
	grep -q -- "$want" "$work/err" || fail "no '$want': $(cat "$work/err")"
}
refused '--save is of weights that --recalibrate' eval --local "${flags[@]}" --init "$init" --save "$work/x"
refused 'has no batch norm' train --local --model fasttext --data synthetic:tokens=8 --recalibrate 1
refused 'has no batch norm' train --local --model fasttext --data synthetic:tokens=8 --batch-norm running
refused "did you mean 'renorm'" train --local "${flags[@]}" --batch-norm renom

help=$("$build/gpclient" train --help | tr -s ' \n' ' ')
for mode in chunk deferred running renorm; do
	[[ $help == *"batch norm normalizes in training:"*" $mode = "*"(small chunks from scratch)"* ]] || fail "the help does not say what $mode is"
done

# A run whose chunks are small is told once, where they matter.
warned() { # TIMES FLAG...
	local want=$1
	shift
	train "$work/warn.json" --local "${flags[@]}" --steps 1 --no-eval --lr 1e-6 "$@" || fail "run for a warning"
	equal "warnings of small chunks ($*)" "$(grep -c 'takes its statistics from chunks of 4 samples' "$work/warn.json.log")" "$want"
}
warned 1
warned 0 --batch-norm deferred
warned 0 --freeze '*bn*,*.1.*'

# It shows how far it is, and a signal ends it.
stopped() { # COMMAND FLAG...
	local status=0 pid
	rm -f "$work/stopped.json" "$work/stopped.log"
	"$build/gpclient" "$@" "${flags[@]}" --recalibrate 1000000 >"$work/stopped.json" 2>"$work/stopped.log" &
	pid=$!
	await grep -q 'statistics of batch norms anew: batch [0-9]*/1000000' "$work/stopped.log" || fail "$1 shows nothing: $(cat "$work/stopped.log")"
	kill -TERM $pid
	await_end $pid || { fail "$1 goes on after a signal" && kill -KILL $pid; }
	wait $pid || status=$?
	equal "$1 that is stopped: status" $status 143
}
await_end() { # PID
	await eval "! kill -0 $1 2>/dev/null"
}
stopped eval --local --init "$init"
for where in --local "--server=127.0.0.1:$server_port"; do
	stopped train "$where" --steps 2 --lr 0.01 --no-eval --save "$work/stopped.safetensors" --json
	equal "its report" "$(json_get "$work/stopped.json" stopped) $(json_get "$work/stopped.json" steps)" "true 2"
	[ -s "$work/stopped.safetensors" ] || fail "--save of a stopped run"
done
stop_server
finish
