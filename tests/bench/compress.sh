#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# compress.sh BUILD-FOLDER RESULTS CIFAR10 GLUE TOKENIZER WEIGHTS [PART...]: a training whose maps, gradients, weights and
# optimizer state pass through codecs (--compress). Parts, by default all of them in this order:
#   images   ResNet-18 and ResNet-34 of WIDTH from nothing on CIFAR-10 at 32x32, all seeds
#   text     the encoder of WEIGHTS (of TEXT_MODEL) fine-tuned on STS-B: fp32 with each of TEXT_RATES, the others with
#            the best of these
#   times    milliseconds of a batch of images and of text with each method, by turns; wants a quiet machine
#   step     MobileNetV2 on 64 pictures of 224x224 in 8 chunks: seconds of a step, by turns, and what is kept of a chunk;
#            wants a quiet machine
#   sessions how many sessions of the quickstart's model fit into 8 GiB of a server
#   table    nothing is run: only what RESULTS holds
# A part whose folder or file is "-" is not run, and says so. All runs but those of sessions are local.
#
# RESULTS is a file with a line for each run that is finished, with the settings that make a difference; runs that it has
# are not run again, so that the script may be stopped at any time and goes on where it was. Memory is what gpclient has
# had in use at most, data and programs included, and what its plans take of that. WRAP=COMMAND is put before every
# command; the variables below change settings (SEEDS, EPOCHS, CODECS, ...). Figures: RESULTS.md

set -u -o pipefail
usage="usage: $0 BUILD-FOLDER RESULTS CIFAR10 GLUE TOKENIZER WEIGHTS [images|text|times|step|sessions|table...]"
results=${2:?$usage} cifar=${3:?$usage} glue=${4:?$usage} tokenizer=${5:?$usage} weights=${6:?$usage}
# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
# Keys: part, settings, method, seed or round.
# shellcheck disable=SC1091
. "$(dirname "$0")/rows.sh"
shift 6

seeds=${SEEDS:-1 2 3} threads=${THREADS:-1}
# Each for maps alone, and for everything. With another one behind a slash for the optimizer's state: for everything.
codecs=${CODECS:-fp16 bf16 fp8 s2fp8 smaq:main=6,outlier=8 smaq:main=6,outlier=8,round=nearest,reach=16
	smaq:main=6,outlier=8,round=nearest,reach=16/smaq:main=6,outlier=8,round=stochastic,reach=16}
width=${WIDTH:-0.25} epochs=${EPOCHS:-5} batch=${BATCH:-64} lr=${LR:-0.05}
models=${MODELS:-resnet18 resnet34}
text_model=${TEXT_MODEL:-roberta:layers=4,dim=256,heads=4,ffn=1024} text_epochs=${TEXT_EPOCHS:-6} text_batch=${TEXT_BATCH:-10}
time_steps=${TIME_STEPS:-30} time_rounds=${TIME_ROUNDS:-3} # of times
text_rates=${TEXT_RATES:-2e-5 1e-4 2e-4 5e-4} text_max=${TEXT_MAX:-64}
step_methods=${STEP_METHODS:-none maps=bf16 maps=uniform:bits=8 recompute} rounds=${ROUNDS:-5} steps=${STEPS:-4}
session_methods=${SESSION_METHODS:-none maps=bf16 maps=fp8,state=bf16 recompute}
session_model=${SESSION_MODEL:-mobilenetv2:width=0.5,stem=cifar} session_shape=${SESSION_SHAPE:-1x28x28}

export LC_ALL=C
touch "$results" || exit 1
results=$(realpath "$results")

# --- trainings --------------------------------------------------------------------------------------------------------

# The flags of a method, into `flags`: none, recompute, what --compress takes, all=SPEC, or all=SPEC/SPEC-OF-STATE.
flags=()
set_method() { # METHOD
	local spec=${1#all=}
	case $1 in
	none) flags=() ;;
	recompute) flags=(--recompute) ;;
	all=*)
		flags=(--compress "maps=${spec%/*},grad-maps=${spec%/*},weights=${spec%/*},weight-grads=${spec%/*},state=${spec#*/}")
		;;
	*) flags=(--compress "$1") ;;
	esac
}

methods() {
	local codec
	echo none
	for codec in $codecs; do
		[[ $codec == */* ]] || echo "maps=$codec"
		echo "all=$codec"
	done
}

number() { # PATH
	# shellcheck disable=SC2154 # lib.sh sets work
	json_get "$work/train.json" "$1" 2>/dev/null || echo -
}

# Two figures of quality (nan where the training diverged), peak of memory, of it plans, seconds per batch.
train_and_note() { # KEY METHOD QUALITY QUALITY FLAG...
	local key=$1 first=$3 second=$4
	set_method "$2"
	shift 4
	# shellcheck disable=SC2154 # lib.sh sets build
	if ! ${WRAP:-} "$build/gpclient" train --local --no-progress --threads "$threads" "${flags[@]}" "$@" --json \
		>"$work/train.json" 2>"$work/log"; then
		grep -q 'the training diverged' "$work/log" && note "$key" nan nan - - - && return
		cat "$work/log" >&2
		return 1
	fi
	note "$key" "$(number "$first")" "$(number "$second")" "$(number memory_peak_bytes)" "$(number memory_bytes)" \
		"$(number time_per_batch_s)"
}

# --- parts ---------------------------------------------------------------------------------------------------------------

images_one() { # KEY METHOD SEED MODEL FLAG...
	train_and_note "$1" "$2" val_acc val_loss --model "$4:width=$width,stem=cifar" --data "cifar10:$cifar" --batch "$batch" \
		--chunks 1 --lr "$lr" --momentum 0.9 --weight-decay 5e-4 --seed "$3" "${@:5}"
}

images_all() {
	local model seed method k
	[ "$cifar" != - ] || { echo "images: not run: no folder of CIFAR-10" && return; }
	for seed in $seeds; do
		for model in $models; do
			while read -r method; do
				k=$(key images "$model width=$width epochs=$epochs batch=$batch lr=$lr" "$method" "$seed")
				run "$k" images_one "$k" "$method" "$seed" "$model" --epochs "$epochs" --schedule cosine --warmup 50
			done < <(methods)
		done
	done
}

text_one() { # KEY METHOD SEED RATE FLAG...
	local skip='classifier.*'
	[ "$(head -c 1000000 "$weights" | grep -a -c '"lm_head\.')" -gt 0 ] && skip+=',lm_head.*'
	mkdir -p "$work/tokens"
	train_and_note "$1" "$2" val_pearson val_spearman --model "$text_model" --data "glue-stsb:$glue,max=$text_max" \
		--tokenizer "$tokenizer" --token-cache "$work/tokens" --init "$weights" --init-skip "$skip" --batch "$text_batch" \
		--chunks 1 --optimizer adamw --lr "$4" --adam-eps 1e-8 --weight-decay 0.01 --no-decay '*.bias,*.LayerNorm.*' \
		--schedule linear --warmup 0.1 --pad max --seed "$3" "${@:5}"
}

text_row() { # RATE METHOD SEED
	local k
	k=$(key text "$text_model max=$text_max epochs=$text_epochs batch=$text_batch lr=$1" "$2" "$3")
	run "$k" text_one "$k" "$2" "$3" "$1" --epochs "$text_epochs"
}

# That with which fp32 has the highest Pearson correlation with the first seed.
best_rate() {
	awk -F '\t' -v want="$text_model max=$text_max epochs=$text_epochs batch=$text_batch lr=" -v seed="${seeds%% *}" '
		$1 == "text" && $3 == "none" && $4 == seed && index($2, want) == 1 && $5 != "nan" && $5 > best {
			best = $5; rate = substr($2, length(want) + 1)
		}
		END { print rate }' "$results"
}

text_all() {
	local rate seed method
	if [ "$glue" = - ] || [ "$weights" = - ]; then
		echo "text: not run: no folder of GLUE, or no weights" && return
	fi
	for rate in $text_rates; do
		text_row "$rate" none "${seeds%% *}"
	done
	rate=$(best_rate)
	for seed in $seeds; do
		while read -r method; do
			text_row "$rate" "$method" "$seed"
		done < <(methods)
	done
}

times_row() { # METHOD ROUND
	local model k
	for model in $models; do
		[ "$cifar" != - ] || break
		k=$(key times "$model width=$width batch=$batch threads=$threads steps=$time_steps" "$1" "$2")
		run "$k" images_one "$k" "$1" "$2" "$model" --steps "$time_steps" --no-eval
	done
	[ "$glue" != - ] && [ "$weights" != - ] || return 0
	k=$(key times "$text_model max=$text_max batch=$text_batch threads=$threads steps=$time_steps" "$1" "$2")
	run "$k" text_one "$k" "$1" "$2" 1e-4 --steps "$time_steps" --no-eval
}

times_all() {
	local round method
	[ "$cifar" != - ] || echo "times of images: not run: no folder of CIFAR-10"
	[ "$glue" != - ] && [ "$weights" != - ] || echo "times of text: not run: no folder of GLUE, or no weights"
	for ((round = 1; round <= time_rounds; round++)); do
		while read -r method; do
			times_row "$method" "$round"
		done < <(methods)
	done
}

# Bytes that are kept of a chunk, by the plan.
step_maps() { # MODEL CHUNK-FLAG...
	local model=$1
	shift
	"$build/gpclient" model show "$model" "$@" "${flags[@]}" --memory --json >"$work/show.json" || return 1
	json_get "$work/show.json" memory.parts.local.chunk_maps
}

step_one() { # KEY METHOD
	local maps
	set_method "$2"
	maps=$(step_maps mobilenetv2:stem=imagenet --batch 64 --chunks 8) || return 1
	${WRAP:-} "$build/gpclient" train --local --no-progress --no-eval --threads "$threads" --model mobilenetv2:stem=imagenet \
		--data synthetic:shape=3x224x224,classes=1000 --batch 64 --chunks 8 --steps "$steps" --lr 0.01 --momentum 0.9 --seed 1 \
		"${flags[@]}" --json >"$work/train.json" 2>"$work/log" || { cat "$work/log" >&2 && return 1; }
	note "$1" "$maps" - "$(number memory_peak_bytes)" "$(number memory_bytes)" "$(number time_per_batch_s)"
}

step_all() {
	local round method k
	for ((round = 1; round <= rounds; round++)); do
		for method in $step_methods; do
			k=$(key step "mobilenetv2 64x224x224 chunks=8 threads=$threads steps=$steps" "$method" "$round")
			run "$k" step_one "$k" "$method"
		done
	done
}

# What the server says that a session takes of it.
session_one() { # KEY METHOD
	local status=0
	set_method "$2"
	rm -f "$work/port"
	"$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" --threads "$threads" 2>"$work/server.log" &
	server_pid=$!
	comes_up $server_pid "$work/port" gpserverd "$work/server.log"
	"$build/gpclient" train --server "127.0.0.1:$(cat "$work/port")" --no-progress --no-eval --model "$session_model" \
		--data "synthetic:shape=$session_shape,classes=10" --batch 64 --chunks 8 --steps 1 --cut 1:-1 --lr 0.01 --momentum 0.9 \
		--seed 1 "${flags[@]}" --json >"$work/train.json" 2>"$work/log" || status=$?
	kill "$server_pid" 2>/dev/null
	wait "$server_pid" 2>/dev/null
	server_pid=''
	[ $status -eq 0 ] || { cat "$work/log" >&2 && return 1; }
	note "$1" "$(number server_memory_bytes)" - - - -
}

sessions_all() {
	local method k
	for method in $session_methods; do
		k=$(key sessions "$session_model $session_shape batch=64 chunks=8" "$method" 1)
		run "$k" session_one "$k" "$method"
	done
}

# --- tables --------------------------------------------------------------------------------------------------------------

# N of each codec, as its name says; smaq's few outliers, of 8 bits and their places, are left out, as its authors do.
quality_table() { # PART NAME-OF-FIGURE...
	awk -F '\t' -v part="$1" -v first="$2" -v second="$3" -v scale="$4" '
		function bits(m) { return m == "none" ? 32 : m ~ /main=6/ ? 6 : m ~ /=b?f(p)?16$/ ? 16 : 8 }
		$1 == part {
			row = $2 "\t" $3
			if (!(row in n)) { order[++count] = row; n[row] = 0 }
			if ($5 == "nan") { failed[row]++; next }
			n[row]++; a[row] += $5; b[row] += $6; time[row] += $9
			if ($7 > peak[row]) { peak[row] = $7; plans[row] = $8 }
			if (n[row] == 1 || $5 < low[row]) low[row] = $5
			if (n[row] == 1 || $5 > high[row]) high[row] = $5
		}
		END {
			if (!count) exit
			printf "| settings | method | runs | %s, mean (lowest to highest) | minus fp32 | %s | 32/N | peak memory, MB | of it plans | ms per batch |\n", first, second
			print "|---|---|---:|---|---:|---:|---:|---:|---:|---:|"
			for (i = 1; i <= count; i++) {
				row = order[i]
				split(row, p, "\t")
				if (!n[row]) { printf "| %s | %s | 0 | diverged | | | | | | |\n", p[1], p[2]; continue }
				base = p[1] "\tnone"
				printf "| %s | `%s` | %d | %.2f (%.2f to %.2f) | %s | %.3f | %.1f | %.1f | %.1f | %.1f |\n", p[1], p[2], n[row],
					scale * a[row] / n[row], scale * low[row], scale * high[row],
					n[base] ? sprintf("%+.2f", scale * (a[row] / n[row] - a[base] / n[base])) : "",
					b[row] / n[row], 32 / bits(p[2]), peak[row] / 1e6, plans[row] / 1e6, 1e3 * time[row] / n[row]
			}
		}' "$results"
}

# The middle one of value[m, 1] to value[m, n[m]], for awk.
median_of='function median(m,  i, k, x, v) {
	for (i = 1; i <= n[m]; i++) { x = value[m, i]; for (k = i - 1; k > 0 && v[k] > x; k--) v[k + 1] = v[k]; v[k + 1] = x }
	return v[int((n[m] + 1) / 2)]
}'

times_table() {
	awk -F '\t' "$median_of"'
		$1 == "times" {
			row = $2 "\t" $3
			if (!(row in n)) order[++count] = row
			value[row, ++n[row]] = $9
		}
		END {
			if (!count) exit
			print "| settings | method | runs | ms per batch, median | by none |"
			print "|---|---|---:|---:|---:|"
			for (i = 1; i <= count; i++) {
				row = order[i]
				split(row, p, "\t")
				base = p[1] "\tnone"
				printf "| %s | `%s` | %d | %.1f | %s |\n", p[1], p[2], n[row], 1e3 * median(row),
					base in n ? sprintf("%.2f", median(row) / median(base)) : ""
			}
		}' "$results"
}

step_table() {
	awk -F '\t' "$median_of"'
		$1 == "step" {
			if (!($3 in n)) order[++count] = $3
			value[$3, ++n[$3]] = $9; maps[$3] = $5; peak[$3] = $7
		}
		END {
			if (!count) exit
			print "| method | kept of a chunk, MB | by none | seconds of a step, median | by none | peak memory, MB |"
			print "|---|---:|---:|---:|---:|---:|"
			for (i = 1; i <= count; i++) {
				m = order[i]
				printf "| `%s` | %.1f | %.2f | %.3f | %.2f | %.0f |\n", m, maps[m] / 1e6, maps["none"] ? maps[m] / maps["none"] : 0,
					median(m), "none" in n ? median(m) / median("none") : 0, peak[m] / 1e6
			}
		}' "$results"
}

sessions_table() {
	awk -F '\t' '
		$1 == "sessions" && !count++ { print "| settings | method | MB of a session | sessions in 8 GiB |\n|---|---|---:|---:|" }
		$1 == "sessions" { printf "| %s | `%s` | %.1f | %d |\n", $2, $3, $5 / 1e6, int(8 * 1024 ^ 3 / $5) }' "$results"
}

tables() {
	quality_table images accuracy loss 100
	quality_table text Pearson Spearman 100
	times_table
	step_table
	sessions_table
}

[ $# -gt 0 ] || set -- images text times step sessions
for part in "$@"; do
	case $part in images | text | times | step | sessions | table) ;; *) echo "no part is named '$part'; $usage" >&2 && exit 2 ;; esac
done
for part in "$@"; do
	[ "$part" = table ] || "${part}_all"
done
tables
