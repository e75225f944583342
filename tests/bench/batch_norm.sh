#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# batch_norm.sh BUILD-FOLDER RESULTS FLOWERS CIFAR10 WEIGHTS [PART...]: what modes of
# batch norm (--batch-norm) make of a batch that is cut into chunks. Parts, by default
# all of them in this order:
#   flowers, cifar  MobileNetV2 with ImageNet weights fine-tuned on pictures of 96x96,
#                   two rates, batches of 32 in 1, 4 and 8 chunks; mode running also at
#                   lower rates, which it wants
#   scratch         ResNet-20 on CIFAR-10 from nothing, batches of 64 in 1 and 8 chunks
#   codecs          flowers again, 8 chunks, in the mode that chunks cost least
#                   (running), split through gpserverd over loopback with each of CODECS
#   table           no training: only what RESULTS holds
# Then the tables: mean validation accuracy over the seeds, lowest and highest, and the
# mean with statistics taken anew from RECALIBRATE batches, each in one chunk; of codecs
# the difference from raw.
#
# RESULTS is a file with a line for each run that is finished; runs that it has are not
# run again, so that the script may be stopped at any time and goes on where it was. All
# of it takes hours. Runs but those of codecs are local: split ones end in the same bits
# (tests/e2e/parity.sh). SEEDS, THREADS, RECALIBRATE, EPOCHS, SCRATCH_EPOCHS,
# RUNNING_RATES, CODECS as below; WRAP=COMMAND is put before every command. Figures: RESULTS.md

set -u -o pipefail
usage="usage: $0 BUILD-FOLDER RESULTS FLOWERS CIFAR10 WEIGHTS [flowers|cifar|scratch|codecs|table...]"
results=${2:?$usage} flowers=${3:?$usage} cifar=${4:?$usage} weights=${5:?$usage}
# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
# Keys: data, rate, chunks, mode, seed.
# shellcheck disable=SC1091
. "$(dirname "$0")/rows.sh"
shift 5
seeds=${SEEDS:-1 2 3} threads=${THREADS:-0} recalibrate=${RECALIBRATE:-30}
epochs=${EPOCHS:-2} scratch_epochs=${SCRATCH_EPOCHS:-6}
running_rates=${RUNNING_RATES:-0.0005 0.0007} # those of mode running beside the two that every mode has
codecs=${CODECS:-raw bf16 fp8:format=e4m3 uniform:bits=8 uniform:bits=6 uniform:bits=4 sortquant:bits=6,split=2
	sortquant:bits=4,split=2 sortquant:bits=2,split=2 kmeans:bits=4}
touch "$results" || exit 1

finetune_modes='chunk deferred running renorm'
scratch_modes='chunk deferred renorm renorm:warmup=200'

# Columns of the results: data, rate, chunks, mode, seed; accuracy, accuracy with statistics taken anew, seconds per batch; nan
# of a run that diverged.

# shellcheck disable=SC2154 # lib.sh sets work
diverged() {
	grep -q 'the training diverged' "$work/log"
}

# Without a number a line would look like a finished run.
train_and_note() { # KEY FLAGS-OF-BOTH... -- FLAGS-OF-TRAIN...
	local key=$1 both=()
	shift
	while [ "$1" != -- ]; do
		both+=("$1")
		shift
	done
	shift
	# shellcheck disable=SC2154 # lib.sh sets build, work
	if ! ${WRAP:-} "$build/gpclient" train --local --threads "$threads" --no-progress "${both[@]}" "$@" \
		--save "$work/weights" --json >"$work/train.json" 2>"$work/log"; then
		diverged && note "$key" nan nan nan && return
		cat "$work/log" >&2
		return 1
	fi
	${WRAP:-} "$build/gpclient" eval --local --threads "$threads" --no-progress "${both[@]}" --init "$work/weights" \
		--chunks 1 --recalibrate "$recalibrate" --json >"$work/eval.json" 2>"$work/log" || { cat "$work/log" >&2 && return 1; }
	note "$key" "$(json_get "$work/train.json" val_acc)" "$(json_get "$work/eval.json" val_acc)" \
		"$(json_get "$work/train.json" time_per_batch_s)"
}

# In one chunk deferred is chunk: the same statistics in the same order.
same_as_chunk() { # KEY DATA RATE CHUNKS MODE SEED: notes what chunk has reached, if it has run
	local key line
	[ "$4" = 1 ] && [ "$5" = deferred ] || return 1
	key=$(printf '%s\t%s\t1\tchunk\t%s\t' "$2" "$3" "$6")
	line=$(grep -F -- "$key" "$results") || return 1
	note "$1" "${line#"$key"}"
}

# In place of that of rows.sh.
run() { # DATA RATE CHUNKS MODE SEED FUNCTION
	local key
	key=$(printf '%s\t%s\t%s\t%s\t%s' "$1" "$2" "$3" "$4" "$5")
	finished "$key" && return
	same_as_chunk "$key" "$@" && return
	echo "$(date -u +%H:%M:%S) $1, rate $2, $3 chunks, $4, seed $5"
	"$6" "$key" "$@" || { echo "$1, rate $2, $3 chunks, $4, seed $5: failed" && exit 1; }
}

finetune() { # KEY DATA RATE CHUNKS MODE SEED
	local spec=folder:$flowers,size=96,mean=0.5,std=0.5 input=3x96x96
	[ "$2" = cifar ] && spec=cifar10:$cifar,mean=0.5,std=0.5
	train_and_note "$1" --model mobilenetv2:pad=same,eps=1e-3 --data "$spec" --input $input --batch 32 \
		--seed "$6" -- --chunks "$4" --init "$weights" --init-skip 'classifier.*' --epochs "$epochs" --lr "$3" --momentum 0.9 \
		--weight-decay 0 --schedule cosine --batch-norm "$5"
}

scratch() { # KEY DATA RATE CHUNKS MODE SEED
	train_and_note "$1" --model resnet20 --data "cifar10:$cifar" --batch 64 --seed "$6" -- \
		--chunks "$4" --epochs "$scratch_epochs" --lr "$3" --warmup 200 --momentum 0.9 --weight-decay 5e-4 --schedule cosine \
		--batch-norm "$5"
}

finetune_all() { # DATA
	local seed rate mode chunks
	for seed in $seeds; do
		for rate in $running_rates 0.002 0.01; do
			for mode in $finetune_modes; do
				[[ " $running_rates " == *" $rate "* ]] && [ "$mode" != running ] && continue
				for chunks in 1 4 8; do
					run "$1" "$rate" $chunks "$mode" "$seed" finetune
				done
			done
		done
	done
}

scratch_all() {
	local seed mode chunks
	for seed in $seeds; do
		for mode in $scratch_modes; do
			for chunks in 1 8; do
				run scratch 0.1 $chunks "$mode" "$seed" scratch
			done
		done
	done
}

# A server of its own for each run: it is what a crash of one run cannot take from the next.
codec_run() { # KEY DATA RATE CHUNKS CODEC SEED
	local key=$1 status=0
	start_server --threads "$threads"
	# shellcheck disable=SC2154 # lib.sh sets server_port, server_pid
	${WRAP:-} "$build/gpclient" train --server "127.0.0.1:$server_port" --cut 1:-1 --threads "$threads" --no-progress \
		--model mobilenetv2:pad=same,eps=1e-3 --data "folder:$flowers,size=96,mean=0.5,std=0.5" --input 3x96x96 \
		--batch 32 --chunks "$4" --seed "$6" --init "$weights" --init-skip 'classifier.*' --epochs "$epochs" --lr "$3" \
		--momentum 0.9 --weight-decay 0 --schedule cosine --batch-norm running --codec "$5" --json \
		>"$work/train.json" 2>"$work/log" || status=$?
	kill "$server_pid" && wait "$server_pid"
	server_pid=''
	[ $status = 0 ] || { cat "$work/log" >&2 && return 1; }
	note "$key" "$(json_get "$work/train.json" val_acc)" - "$(json_get "$work/train.json" time_per_batch_s)"
}

codecs_all() {
	local seed codec
	for seed in $seeds; do
		for codec in $codecs; do
			run codecs 0.0005 8 "$codec" "$seed" codec_run
		done
	done
}

codec_table() {
	awk -F '\t' '
	$1 == "codecs" {
		if (!($4 in n)) order[++rows] = $4
		n[$4]++
		sum[$4] += 100 * $6
		list[$4] = list[$4] sprintf(" %.2f", 100 * $6)
	}
	END {
		if (!rows) exit
		print "\nflowers, running, rate 0.0005, 8 chunks, split: accuracy in percent"
		print "| codec | of each seed | mean | from raw |"
		print "|---|---|---:|---:|"
		raw = n["raw"] ? sum["raw"] / n["raw"] : 0
		for (i = 1; i <= rows; i++) {
			mean = sum[order[i]] / n[order[i]]
			printf "| `%s` |%s | %.2f | %s |\n", order[i], list[order[i]], mean, raw ? sprintf("%+.2f", mean - raw) : ""
		}
	}' "$results"
}

table() {
	awk -F '\t' '
	$1 == "codecs" { next }
	{
		row = $1 "\t" $2 "\t" $4
		if (!(row in seen)) { seen[row] = 1; order[++rows] = row }
		cell = row "\t" $3
		if ($6 == "nan") { diverged[cell]++; next }
		n[cell]++
		sum[cell] += 100 * $6
		again[cell] += 100 * $7
		if (n[cell] == 1 || 100 * $6 < low[cell]) low[cell] = 100 * $6
		if (n[cell] == 1 || 100 * $6 > high[cell]) high[cell] = 100 * $6
	}
	function text(cell) {
		if (!n[cell]) return diverged[cell] ? "diverged" : ""
		return sprintf("%.1f (%.1f to %.1f); %.1f%s", sum[cell] / n[cell], low[cell], high[cell],
			again[cell] / n[cell], diverged[cell] ? sprintf("; %d diverged", diverged[cell]) : "")
	}
	END {
		print "accuracy in percent: mean (lowest to highest); mean with statistics taken anew"
		print "| data | rate | mode | 1 chunk | 4 chunks | 8 chunks |"
		print "|---|---|---|---|---|---|"
		for (i = 1; i <= rows; i++) {
			split(order[i], part, "\t")
			printf "| %s | %s | %s | %s | %s | %s |\n", part[1], part[2], part[3], text(order[i] "\t1"),
				text(order[i] "\t4"), text(order[i] "\t8")
		}
	}' "$results"
}

for part in "${@:-all}"; do
	case $part in
	all) finetune_all flowers && finetune_all cifar && scratch_all && codecs_all ;;
	flowers | cifar) finetune_all "$part" ;;
	scratch) scratch_all ;;
	codecs) codecs_all ;;
	table) ;;
	*) echo "$usage" >&2 && exit 2 ;;
	esac
done
table
codec_table
