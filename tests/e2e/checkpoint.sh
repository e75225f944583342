#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A run that is killed goes on from its newest checkpoint and ends with the same
# parameters, bit for bit, as one that nobody disturbed.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

common=(--data synthetic:shape=3x32x32,classes=10,samples=64 --batch 8 --chunks 2 --threads 1 --seed 7 --no-progress
	--model mobilenetv2:width=0.35,stem=cifar)

sha() {
	json_get "$1" param_sha256
}

newest() { # FOLDER
	find "$1" -maxdepth 1 -name 'step-*' 2>/dev/null | sort | tail -1
}

# Trains, and kills the client with a signal as soon as a checkpoint newer than the last one seen is there.
kill_after_checkpoint() { # FOLDER SIGNAL FLAG...
	local folder=$1 signal=$2 seen pid
	seen=$(newest "$folder")
	"$build/gpclient" train "${@:3}" --checkpoint "$folder" 2>"$work/killed.log" &
	pid=$!
	while kill -0 $pid 2>/dev/null && [ "$(newest "$folder")" = "$seen" ]; do
		sleep 0.02
	done
	kill "-$signal" $pid 2>/dev/null
	killed_status=0
	wait $pid 2>/dev/null || killed_status=$?
}

# A local run, killed as often as it takes.
local_run() { # NAME FLAG...
	local folder=$work/$1 name=$1 flags=("${common[@]}" "${@:2}")
	train "$work/whole.json" --local "${flags[@]}" || fail "$name: undisturbed"
	kill_after_checkpoint "$folder" KILL --local "${flags[@]}" --checkpoint-every 3
	kill_after_checkpoint "$folder" KILL --local "${flags[@]}" --checkpoint-every 3 --resume=if-any
	train "$work/resumed.json" --local "${flags[@]}" --checkpoint "$folder" --checkpoint-every 3 --resume ||
		fail "$name: resumed"
	equal "$name: parameters" "$(sha "$work/resumed.json")" "$(sha "$work/whole.json")"
	equal "$name: loss of the last epoch" "$(json_get "$work/resumed.json" loss)" "$(json_get "$work/whole.json" loss)"
	equal "$name: validation" "$(json_get "$work/resumed.json" val_acc)" "$(json_get "$work/whole.json" val_acc)"
}

refused() { # WORDS FLAG...
	local words=$1 status=0
	"$build/gpclient" train --local "${common[@]}" "${@:2}" 2>"$work/refused.log" || status=$?
	if [ $status -eq 3 ] && grep -q -- "$words" "$work/refused.log"; then
		echo "ok: refused: $words"
	else
		fail "status $status instead of 3, or no '$words': $(cat "$work/refused.log")"
	fi
}

local_run momentum --steps 20 --clip-norm 1
local_run adamw --steps 12 --optimizer adamw --lr 0.003 --warmup 3 --no-eval

# Finished already: evaluated and reported again.
train "$work/again.json" --local "${common[@]}" --steps 20 --clip-norm 1 --checkpoint "$work/momentum" --resume ||
	fail "a finished run"
equal "a finished run: steps now" "$(json_get "$work/again.json" steps_here)" 0
equal "a finished run: parameters" "$(sha "$work/again.json")" "$(train "$work/w.json" --local "${common[@]}" --steps 20 --clip-norm 1 && sha "$work/w.json")"
equal "checkpoints kept" "$(find "$work/momentum" -name 'step-*' | wc -l)" 3

# A longer run goes on from the shorter one; a constant rate makes them comparable.
train "$work/whole.json" --local "${common[@]}" --steps 9 --schedule const || fail "nine steps"
train "$work/part.json" --local "${common[@]}" --steps 5 --schedule const --checkpoint "$work/longer" || fail "five steps"
train "$work/rest.json" --local "${common[@]}" --steps 9 --schedule const --checkpoint "$work/longer" --resume ||
	fail "four steps more"
equal "more steps: parameters" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"
equal "more steps: done then" "$(json_get "$work/rest.json" steps_here)" 4

# A schedule that depends on their number: the steps to come have the rates of the longer run, those done had others.
rates() { # LOG.jsonl COUNT
	sed -n 's/.*"event":"step","step":\([0-9]*\),.*"lr":\([^,]*\),.*/\1 \2/p' "$1" | tail -n "$2"
}
train "$work/whole_cosine.json" --local "${common[@]}" --steps 9 --log-json "$work/whole.jsonl" || fail "nine steps of cosine"
train "$work/part.json" --local "${common[@]}" --steps 5 --checkpoint "$work/cosine" --log-json "$work/part.jsonl" ||
	fail "five steps of cosine"
train "$work/rest.json" --local "${common[@]}" --steps 9 --checkpoint "$work/cosine" --resume --log-json "$work/part.jsonl" ||
	fail "four steps of cosine more"
equal "more steps of cosine: rates then" "$(rates "$work/part.jsonl" 4)" "$(rates "$work/whole.jsonl" 4)"
equal "more steps of cosine: steps with a rate" "$(rates "$work/part.jsonl" 99 | wc -l)" 9
[ "$(sha "$work/rest.json")" != "$(sha "$work/whole_cosine.json")" ] || fail "the first steps had the rates of the longer run"

# Asked to stop, a run writes a checkpoint of where it is.
kill_after_checkpoint "$work/stopped" TERM --local "${common[@]}" --steps 100000 --schedule const --checkpoint-every 3 --no-eval
grep -q 'stopped by a signal' "$work/killed.log" || fail "SIGTERM: $(cat "$work/killed.log")"
stopped_at=$(sed -n 's/.*stopped by a signal after \([0-9]*\) of.*/\1/p' "$work/killed.log")
equal "a stopped run: its newest checkpoint" "$(newest "$work/stopped")" \
	"$work/stopped/$(printf 'step-%012d' "$stopped_at")"

# The same by each signal, with the status that a shell gives to a program that the signal has ended.
for signal in INT:130 TERM:143 HUP:129; do
	kill_after_checkpoint "$work/stopped_by_${signal%:*}" "${signal%:*}" --local "${common[@]}" --steps 100000 --schedule const \
		--checkpoint-every 3 --no-eval
	equal "a run stopped by SIG${signal%:*}: exit status" "$killed_status" "${signal#*:}"
	grep -q 'stopped by a signal' "$work/killed.log" || fail "SIG${signal%:*}: $(cat "$work/killed.log")"
done

# What does not go together is refused.
refused "holds checkpoints of a run" --steps 9 --checkpoint "$work/longer"
mkdir "$work/others" && echo mine >"$work/others/notes"
refused "--resume: there is no checkpoint in .*/mistyped" --steps 9 --checkpoint "$work/mistyped" --resume
refused "holds other files ('notes') and no checkpoints" --steps 9 --checkpoint "$work/others" --resume=if-any
equal "a mistyped folder, and one of others" "$(find "$work/mistyped" "$work/others" 2>/dev/null)" "$(printf '%s\n' "$work/others" "$work/others/notes")"
refused "--batch is '16', but the run has it at '8'" --steps 9 --schedule const --checkpoint "$work/longer" --resume --batch 16
refused "--schedule is 'cosine'" --steps 9 --checkpoint "$work/longer" --resume
refused "past the 6 of --steps" --steps 6 --schedule const --checkpoint "$work/longer" --resume

# A run that diverges says so, and from which checkpoint it can go on; none from after that is left.
status=0
"$build/gpclient" train --no-progress --local --model cnn --data synthetic:shape=3x16x16,classes=4,samples=64 --batch 8 --chunks 1 \
	--threads 1 --steps 40 --schedule const --checkpoint "$work/wild" --checkpoint-every 1 --lr 10 >/dev/null 2>"$work/wild.log" || status=$?
equal "a run that diverges: exit status" $status 1
diverged=$(sed -n 's/.*the training diverged at step \([0-9]*\): .*/\1/p' "$work/wild.log")
equal "its last good checkpoint" "$(sed -n 's/.*the last good checkpoint: it is of step \([0-9]*\) .*/\1/p' "$work/wild.log")" $((diverged - 1))
equal "its newest checkpoint" "$(newest "$work/wild")" "$work/wild/$(printf 'step-%012d' $((diverged - 1)))"

# A damaged checkpoint is left out; the one before it serves.
printf x >>"$(newest "$work/longer")/state.safetensors"
train "$work/rest.json" --local "${common[@]}" --steps 9 --schedule const --checkpoint "$work/longer" --resume ||
	fail "behind a damaged checkpoint"
equal "behind a damaged checkpoint: parameters" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"
grep -q 'left out' "$work/rest.json.log" || fail "no word about the damaged checkpoint: $(cat "$work/rest.json.log")"

# A checkpoint that cannot be written is a warning, or the end when it is required.
if grep -q '^GP_FAULTS:[A-Z]*=ON' "$build/CMakeCache.txt"; then
	GP_FAULT=write:3 train "$work/full.json" --local "${common[@]}" --steps 9 --schedule const --checkpoint-every 2 \
		--checkpoint "$work/full" || fail "with a full disk"
	equal "with a full disk: parameters" "$(sha "$work/full.json")" "$(sha "$work/whole.json")"
	equal "with a full disk: warnings" "$(grep -c 'no checkpoint: .*No space left' "$work/full.json.log")" 1
	equal "with a full disk: what --json says" "$(json_get "$work/full.json" checkpoints_failed)" 1
	equal "with a full disk: the others" "$(json_get "$work/full.json" checkpoints_written) $(json_get "$work/full.json" checkpoint_step)" "4 9"
	grep -q 'checkpoints: 4 written, 1 failed; --resume goes on at step 9' "$work/full.json.log" ||
		fail "the closing lines: $(tail -3 "$work/full.json.log")"
	export GP_FAULT=write:3
	refused "checkpoint-required: .*No space left" --steps 9 --checkpoint-every 2 --checkpoint-required --checkpoint "$work/full2"
	unset GP_FAULT
fi

finish
