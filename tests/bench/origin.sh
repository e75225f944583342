#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# origin.sh BUILD-FOLDER RESULTS CIFAR10 WEIGHTS [PART...]: the origin's tables of
# accuracy made again, beside its figures. CIFAR10 is a folder of CIFAR-10, a part of it
# or all; WEIGHTS are MobileNetV2's of ImageNet. Parts, by default all of them in this
# order:
#   cifar    CIFAR-10 at 96x96, codecs and conv insertions at the origin's cut, all seeds
#   cuts     the same between other blocks, pruned, first seed
#   full     all of CIFAR-10 (the folder FULL), first seed
#   scratch  MobileNetV2 from nothing at 64x64: pruning by rates, with 8 and 16 bits, and
#            downsampling; a plot of rate against accuracy (RESULTS.svg)
#   resnet   ResNet-18 from nothing at 64x64: conv insertion and none
#   cifar100 CIFAR-100 at 96x96 (the folder CIFAR100)
#   flowers  pictures (the folder FLOWERS): conv insertion, and sortquant on top of it
#   text     SST-2 (GLUE, TOKENIZER, TEXT_WEIGHTS of TEXT_MODEL): decaying and other linear
#            insertions
#   link     time per batch over links of 100 Mbit/s and 1 Gbit/s (link_step.sh; needs root
#            and a quiet machine)
#   table    nothing is run: only what RESULTS holds
# A part whose folder is not given is not run, and its rows say so.
#
# RESULTS is a file with a line for each run that is finished, with the settings that make
# a difference; runs that it has are not run again, and one that was stopped goes on from
# its last checkpoint (RESULTS.d), so that the script may be stopped at any time. Runs with
# decaying ranks begin anew, as their rate is that of a whole training. Several of these
# scripts may write to one RESULTS, if no two of them train the same row. Each run goes
# through a gpserverd of its own over loopback; those without a codec and without an
# insertion are local, which ends in the same bits (tests/e2e/parity.sh). Rates are payload
# bytes by those of the same cut without codec and insertion. All of it takes hours:
# `table` says how many core seconds each row has taken. WRAP=COMMAND is put before every
# command; the variables below change settings (SEEDS, EPOCHS, LIMIT, BATCH_NORM, ...).

set -u -o pipefail
usage="usage: $0 BUILD-FOLDER RESULTS CIFAR10 WEIGHTS [cifar|cuts|full|scratch|resnet|cifar100|flowers|text|link|table...]"
[ "${1:-}" != --help ] || { sed -n '4,38s/^# \{0,1\}//p' "$0" && exit; }
[ $# -ge 4 ] || { echo "$usage" >&2 && exit 2; }
[ -x "$1/gpclient" ] || { echo "$1 is no folder of a build: it has no gpclient; $usage" >&2 && exit 2; }
for part in "${@:5}"; do # a wrong word is to be told now, not after hours
	case $part in
	all | cifar | cuts | full | scratch | resnet | cifar100 | flowers | text | link | table) ;;
	*) echo "no part is named '$part'; $usage" >&2 && exit 2 ;;
	esac
done
results=$2 cifar=$3 weights=$4
# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
# Keys: part, settings, cut, method, seed.
# shellcheck disable=SC1091
. "$(dirname "$0")/rows.sh"
shift 4

# In place of that of rows.sh: one that fails is told, and the others go on; it is tried again when the script is run again.
failed=0
run() { # KEY FUNCTION ARGUMENT...
	local key=$1
	shift
	finished "$key" && return
	say_key "$key"
	"$@" || { echo "failed: $(tr '\t' ' ' <<<"$key")" >&2 && failed=1; }
}

seeds=${SEEDS:-1 2 3} threads=${THREADS:-1} # threads of each process
limit=${LIMIT:-0}                           # samples of each training; 0: all
every=${CHECKPOINT_EVERY:-50}               # steps between checkpoints
# Before a training that begins with weights: what the convolutions of its insertion start from (pca or random), steps of
# insert-fit (0: none) and their rate; what of the insertion is frozen then. At the trainings' rates SGD does not bear
# training a fitted convolution, which has no batch norm behind it (RESULTS.md).
start=${START:-pca} fit=${FIT:-200} fit_lr=${FIT_LR:-1e-3} freeze=${FREEZE-insert*}
# Fine-tuning on CIFAR. Batch norm sees chunks of 8 samples: running statistics want a rate of 0.0005, where the origin's
# rate is given renorm is what bears it (RESULTS.md, Batch norm and chunks).
size=${SIZE:-96} epochs=${EPOCHS:-3} batch=${BATCH:-64} chunks=${CHUNKS:-8} lr=${LR:-0.01} batch_norm=${BATCH_NORM:-renorm}
codecs=${CODECS:-uniform:bits=16 sortquant:bits=12,split=4 sortquant:bits=9,split=3 sortquant:bits=6,split=2
	sortquant:bits=3,split=1 topk:ratio=0.5 topk:ratio=0.2 topk:ratio=0.1 insert=flop-2 insert=rate-070
	downsample:factor=2 poweriter:rank=4}
full_codecs=${FULL_CODECS-sortquant:bits=6,split=2 sortquant:bits=3,split=1 insert=flop-2}
cuts=${CUTS:-1:-1 2:-2 2:-1 1:-2} # between blocks
scratch_size=${SCRATCH_SIZE:-64} scratch_epochs=${SCRATCH_EPOCHS:-10} scratch_batch=${SCRATCH_BATCH:-256}
scratch_lr=${SCRATCH_LR:-0.1} scratch_norm=${SCRATCH_BATCH_NORM:-chunk} scratch_warmup=${SCRATCH_WARMUP:-40}
scratch_codecs=${SCRATCH_CODECS:-uniform:bits=16 topk:ratio=0.5 topk:ratio=0.4 topk:ratio=0.2 topk:ratio=0.1 topk:ratio=0.05
	topk:ratio=0.4+uniform:bits=8 topk:ratio=0.2+uniform:bits=8 topk:ratio=0.1+uniform:bits=8 topk:ratio=0.05+uniform:bits=8
	topk:ratio=0.4+uniform:bits=16 topk:ratio=0.2+uniform:bits=16 topk:ratio=0.1+uniform:bits=16
	topk:ratio=0.05+uniform:bits=16 downsample:factor=2}
flowers_size=${FLOWERS_SIZE:-128} flowers_epochs=${FLOWERS_EPOCHS:-3} flowers_lr=${FLOWERS_LR:-0.002}
flowers_norm=${FLOWERS_BATCH_NORM:-renorm}
text_model=${TEXT_MODEL:-roberta:layers=4,dim=256,heads=4,ffn=1024} text_weights=${TEXT_WEIGHTS:-}
text_epochs=${TEXT_EPOCHS:-3} text_rows=${TEXT_ROWS:-48000} text_max=${TEXT_MAX:-64} text_lr=${TEXT_LR:-1e-4}
text_seeds=${TEXT_SEEDS:-1} # 4500 steps: as many as the slowest decay takes
link_rates=${LINK_RATES:-100mbit 1gbit} link_steps=${LINK_STEPS:-6} link_size=${LINK_SIZE:-224}
full=${FULL:-} cifar100=${CIFAR100:-} flowers=${FLOWERS:-} glue=${GLUE:-} tokenizer=${TOKENIZER:-}

export LC_ALL=C
touch "$results" || exit 1
results=$(realpath "$results") weights=$(realpath -m "$weights")
state=$results.d # made with the first run
first=${seeds%% *}
mobilenet=mobilenetv2:pad=same,eps=1e-3,cuts=fine # what WEIGHTS are of
origin_cut=1:-2
plain=mean=0.5,std=0.5 # how its pictures were normalised

# --- one run ---------------------------------------------------------------------------------------------------------

# Processor seconds of all children that have ended, into `spent`.
spent=0
count_spent() {
	# shellcheck disable=SC2154 # lib.sh sets work
	times >"$work/times"
	spent=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, "m"); sum += 60 * t[1] + t[2] } } END { print sum }' \
		"$work/times")
}

start_row_server() { # FOLDER
	rm -f "$work/port"
	# shellcheck disable=SC2154 # lib.sh sets build
	${WRAP:-} "$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" --threads "$threads" --state-dir "$1" \
		2>"$work/server.log" &
	server_pid=$!
	comes_up $server_pid "$work/port" gpserverd "$work/server.log"
	server_port=$(cat "$work/port")
}

stop_row_server() {
	kill "$server_pid" 2>/dev/null
	wait "$server_pid" 2>/dev/null
	server_pid=''
}

# A method is `none`, a codec, `insert=SPEC`, or `insert=SPEC;CODEC`; SPEC is that of both cuts, or `UP down DOWN`.
insert_of() { # METHOD
	[[ $1 == insert=* ]] || return 0
	local spec=${1#insert=}
	echo "${spec%%;*}"
}

codec_of() { # METHOD
	case $1 in
	insert=*\;*) echo "${1#*;}" ;;
	none | insert=*) echo raw ;;
	*) echo "$1" ;;
	esac
}

# MobileNetV2's insertion at one end, whose convolutions begin with what `start` says; of a preset, too.
started() { # END SPEC
	"$build/gpclient" model show mobilenetv2:cuts=fine --cut $origin_cut --insert "$2" |
		sed -n -E "s#(conv:[^/]*)#\1,start=$start#g; s#^insertion $1: ##p"
}

# The flags of an insertion, into `insertion`. With `fits`, its convolutions begin with what `start` says.
insertion=() fits=0
set_insertion() { # METHOD
	local spec
	spec=$(insert_of "$1")
	insertion=()
	[ -n "$spec" ] && [ "$fits" -gt 0 ] && spec="$(started up "$spec") down $(started down "$spec")"
	case $spec in
	'') ;;
	*' down '*) insertion=(--insert-up "${spec%% down *}" --insert-down "${spec##* down }") ;;
	*) insertion=(--insert "$spec") ;;
	esac
}

# Rank by the number of features or positions that a linear insertion ends with; 1 for others.
final_share() { # METHOD DIM POSITIONS
	awk -v spec="$(insert_of "$1")" -v dim="$2" -v positions="$3" 'BEGIN {
		share = 1
		sets = split(spec, set, "/")
		for (i = 1; i <= sets; i++) {
			if (set[i] !~ /^(decay|linear):/) continue
			full = set[i] ~ /dim=sequence/ ? positions : dim
			rank = full
			rate = times = 0
			n = split(set[i], pair, /[:,]/)
			for (j = 2; j <= n; j++) {
				split(pair[j], kv, "=")
				if (kv[1] == "rank") rank = kv[2]
				if (kv[1] == "rate") rate = kv[2]
				if (kv[1] == "times") times = kv[2]
			}
			for (j = 0; j < times; j++) rank = int(rank * rate)
			share *= rank / full
		}
		printf "%.4f", share
	}'
}

number() { # PATH
	json_get "$work/train.json" "$1" 2>/dev/null || echo -
}

# Weights for --init: those given, or the same with a fitted insertion, where `fits` steps of that are wanted; the flag that
# freezes it goes into `frozen`.
init=() frozen=() sums=$(cksum <"$build/gpclient" && { [ ! -f "$weights" ] || cksum <"$weights"; })
fit_insertion() { # CUT SEED FLAGS-OF-BOTH...
	local out cut=$1 seed=$2
	shift 2
	frozen=()
	[ ${#insertion[@]} -gt 0 ] && [ ${#init[@]} -gt 0 ] && [ "$fits" -gt 0 ] || return 0
	[ -z "$freeze" ] || frozen=(--freeze "$freeze")
	out=$state/fitted-$(printf '%s' "${insertion[*]} $cut $seed $fits $fit_lr $* ${init[*]} $sums" | cksum | tr ' ' -).safetensors
	if [ ! -s "$out" ]; then
		${WRAP:-} "$build/gpclient" insert-fit --no-progress --threads "$threads" "${init[@]}" "$@" --cut "$cut" \
			"${insertion[@]}" --seed "$seed" --steps "$fits" --lr "$fit_lr" --save "$out" >"$work/fit.log" 2>&1 ||
			{
				cat "$work/fit.log" >&2
				return 1
			}
	fi
	init[1]=$out
}

# As it stands among the settings of a run.
fit_text() {
	printf 'fit=%s' "$fit"
	[ "$fit" -eq 0 ] || printf ' at %s from %s%s' "$fit_lr" "$start" "${freeze:+, frozen $freeze}"
}

# Trains with checkpoints in a folder of its own, where the figures of a training that has ended stay, with the seconds
# that it took, until they are noted: accuracy, rate, payload bytes and seconds per batch, processor seconds of all
# processes, steps that these were for, the share of ranks at the end, the parameters' digest. A run that diverged has
# nan for its accuracy.
train_and_note() { # KEY CUT METHOD SEED FINAL FLAGS-OF-BOTH... -- FLAGS-OF-TRAIN...
	local key=$1 cut=$2 method=$3 seed=$4 final=$5 both=() where=(--local) folder before rate=1 status=0 keep=()
	shift 5
	while [ "$1" != -- ]; do
		both+=("$1")
		shift
	done
	shift
	folder=$state/$(printf '%s' "$key" | cksum | tr ' ' -)
	[[ $method != *decay:* ]] || [ -s "$folder/ended" ] || rm -rf "$folder"
	mkdir -p "$folder"
	[[ $method == *decay:* ]] || keep=(--checkpoint "$folder/client" --checkpoint-every "$every" --resume=if-any)
	count_spent
	before=$spent
	set_insertion "$method"
	fit_insertion "$cut" "$seed" "${both[@]}" || return 1
	if [ ! -s "$folder/ended" ]; then
		if [ "$method" != none ]; then
			start_row_server "$folder/server"
			where=(--server "127.0.0.1:$server_port" --cut "$cut" --codec "$(codec_of "$method")" "${insertion[@]}")
		fi
		${WRAP:-} "$build/gpclient" train --no-progress --threads "$threads" "${where[@]}" "${both[@]}" "${init[@]}" \
			"${frozen[@]}" "$@" --seed "$seed" "${keep[@]}" --json >"$work/train.json" 2>"$work/log" || status=$?
		[ "$method" = none ] || stop_row_server
		count_spent
		if [ $status -eq 0 ]; then # the seconds, and behind them the figures
			awk -v a="$before" -v b="$spent" 'BEGIN { printf "%.1f\n", b - a }' >"$folder/ended.new" &&
				cat "$work/train.json" >>"$folder/ended.new" && mv "$folder/ended.new" "$folder/ended" || return 1
		fi
	fi
	if [ $status -ne 0 ]; then
		grep -q 'the training diverged' "$work/log" || { cat "$work/log" >&2 && return 1; }
		note "$key" nan - - - - - "$final" -
	else
		sed 1d "$folder/ended" >"$work/train.json" && json_get "$work/train.json" val_acc >/dev/null || return 1
		[ "$method" = none ] || rate=$(number rate)
		note "$key" "$(number val_acc)" "$rate" "$(payload_per_batch)" "$(number time_per_batch_s)" \
			"$(head -1 "$folder/ended")" "$(number steps_here)" "$final" \
			"$(number param_sha256)"
	fi
	rm -rf "$folder"
}

payload_per_batch() {
	local direction
	for direction in act_up act_down grad_up grad_down; do
		number "$direction.payload_bytes_per_batch"
	done | awk '{ sum += $1 } END { printf "%.0f", sum }'
}

not_run() { # PART VARIABLE...
	echo "$1: not run: ${*:2} not given"
}

with_limit() { # DATA
	[ "$limit" -gt 0 ] && echo "$1,limit=$limit" || echo "$1"
}

# --- parts -----------------------------------------------------------------------------------------------------------

# The classifier is new.
finetune() { # KEY CUT METHOD SEED MODEL DATA BATCH CHUNKS EPOCHS LR BATCH-NORM
	local cut=$2 method=$3 seed=$4 key=$1
	init=(--init "$weights" --init-skip 'classifier.*') fits=$fit
	train_and_note "$key" "$cut" "$method" "$seed" - --model "$5" --data "$6" --batch "$7" -- --chunks "$8" --epochs "$9" \
		--lr "${10}" --momentum 0.9 --weight-decay 0 --schedule cosine --batch-norm "${11}"
}

finetune_row() { # PART DATA MODEL CUT METHOD SEED
	local k
	k=$(key "$1" "size=$size epochs=$epochs batch=$batch chunks=$chunks lr=$lr $batch_norm $(fit_text) limit=$limit" "$4" "$5" "$6")
	run "$k" finetune "$k" "$4" "$5" "$6" "$3" "$(with_limit "$2,size=$size,$plain")" "$batch" "$chunks" "$epochs" "$lr" \
		"$batch_norm"
}

can_read() { # PART WHAT PATH...
	local path
	for path in "${@:3}"; do
		[ -r "$path" ] && continue
		echo "$1: not run: no $2 ('$path')" >&2
		failed=1
		return 1
	done
}

cifar_all() {
	local seed method
	can_read cifar "CIFAR-10 or weights" "$cifar" "$weights" || return 0
	for seed in $seeds; do
		for method in none $codecs; do
			finetune_row cifar "cifar10:$cifar" $mobilenet $origin_cut "$method" "$seed"
		done
	done
}

# Without a codec a run does not depend on its cut: `none` is that of the part cifar.
cuts_all() {
	local cut method
	can_read cuts "CIFAR-10 or weights" "$cifar" "$weights" || return 0
	finetune_row cifar "cifar10:$cifar" $mobilenet $origin_cut none "$first"
	for cut in $cuts; do
		for method in topk:ratio=0.1 topk:ratio=0.2+uniform:bits=8; do
			finetune_row cuts "cifar10:$cifar" ${mobilenet%,cuts=fine} "$cut" "$method" "$first"
		done
	done
}

full_all() {
	local method
	[ -n "$full" ] || { not_run full FULL && return; }
	can_read full "CIFAR-10 or weights" "$full" "$weights" || return 0
	for method in none $full_codecs; do
		finetune_row full "cifar10:$full" $mobilenet $origin_cut "$method" "$first"
	done
}

cifar100_all() {
	local method
	[ -n "$cifar100" ] || { not_run cifar100 CIFAR100 && return; }
	can_read cifar100 "CIFAR-100 or weights" "$cifar100" "$weights" || return 0
	for method in none sortquant:bits=12,split=4 sortquant:bits=9,split=3 sortquant:bits=6,split=2 sortquant:bits=4,split=4; do
		finetune_row cifar100 "cifar100:$cifar100" $mobilenet $origin_cut "$method" "$first"
	done
}

scratch_one() { # KEY CUT METHOD SEED MODEL
	init=() fits=0
	train_and_note "$1" "$2" "$3" "$4" - --model "$5" --data "$(with_limit "cifar10:$cifar,size=$scratch_size")" \
		--batch "$scratch_batch" -- --chunks 4 --epochs "$scratch_epochs" --lr "$scratch_lr" --warmup "$scratch_warmup" \
		--momentum 0.9 --weight-decay 1e-4 --schedule cosine --batch-norm "$scratch_norm"
}

scratch_row() { # PART MODEL METHOD
	local k settings
	settings="$2 size=$scratch_size epochs=$scratch_epochs batch=$scratch_batch lr=$scratch_lr warmup=$scratch_warmup"
	k=$(key "$1" "$settings $scratch_norm limit=$limit" $origin_cut "$3" "$first")
	run "$k" scratch_one "$k" $origin_cut "$3" "$first" "$2"
}

scratch_all() {
	local method
	can_read scratch CIFAR-10 "$cifar" || return 0
	for method in none $scratch_codecs; do
		scratch_row scratch mobilenetv2:cuts=fine "$method"
	done
}

# Its map that comes down has 512 channels where MobileNetV2's has 1280.
resnet_all() {
	can_read resnet CIFAR-10 "$cifar" || return 0
	scratch_row resnet resnet18:cuts=fine none
	scratch_row resnet resnet18:cuts=fine 'insert=conv:out=40,k=3,s=3 down conv:out=144,k=1,s=1'
}

flowers_all() {
	local seed method k
	[ -n "$flowers" ] || { not_run flowers FLOWERS && return; }
	can_read flowers "flowers or weights" "$flowers" "$weights" || return 0
	for seed in $seeds; do
		for method in none insert=flop-2 'insert=flop-2;sortquant:bits=6,split=2' insert=rate-070; do
			k=$(key flowers "size=$flowers_size epochs=$flowers_epochs lr=$flowers_lr $flowers_norm $(fit_text) limit=$limit" \
				$origin_cut "$method" "$seed")
			run "$k" finetune "$k" $origin_cut "$method" "$seed" $mobilenet \
				"$(with_limit "folder:$flowers,size=$flowers_size,$plain")" 32 4 "$flowers_epochs" "$flowers_lr" "$flowers_norm"
		done
	done
}

# As in text.sh: every text is filled up, as the origin's are; what the file has of a head for masked words is left out.
text_one() { # KEY CUT METHOD SEED FINAL
	local key=$1 cut=$2 method=$3 seed=$4 final=$5 data=glue-sst2:$glue,max=$text_max skip='classifier.*' pad=()
	[ "$text_rows" -gt 0 ] && data+=,limit=$text_rows
	[ "$(head -c 1000000 "$text_weights" | grep -a -c '"lm_head\.')" -gt 0 ] && skip+=',lm_head.*'
	[ "$("$build/gpclient" train --help | grep -c -- '--pad ')" -gt 0 ] && pad=(--pad max)
	mkdir -p "$work/tokens"
	init=(--init "$text_weights" --init-skip "$skip") fits=0
	train_and_note "$key" "$cut" "$method" "$seed" "$final" --model "$text_model,cuts=fine" --data "$data" --tokenizer "$tokenizer" \
		--token-cache "$work/tokens" --batch 32 -- --chunks 4 --epochs "$text_epochs" --lr "$text_lr" --schedule poly \
		--warmup 0.06 --optimizer adamw --weight-decay 0.01 --no-decay '*.bias,*.LayerNorm.*' "${pad[@]}"
}

# Rank 384 is half of the origin's 768 features.
text_methods() {
	local dim=768 d=dim=feature q=dim=sequence
	[[ $text_model =~ dim=([0-9]+) ]] && dim=${BASH_REMATCH[1]}
	[ -z "${TEXT_METHODS:-}" ] || { tr ' ' '\n' <<<"$TEXT_METHODS" && return; }
	printf '%s\n' none "insert=decay:rate=0.9,every=300,times=9,l1=1e-4,$d" "insert=decay:rate=0.9,every=100,times=9,l1=1e-4,$d" \
		"insert=decay:rate=0.83,every=500,times=5,l1=1e-4,$d" "insert=decay:rate=0.9,every=300,times=9,l1=0,$d" \
		"insert=decay:rate=0.9,every=300,times=9,l1=1e-4,$d/decay:rate=0.95,every=300,times=9,l1=1e-4,$q" \
		"insert=decay:rate=0.9,every=500,times=9,l1=1e-4,$d/decay:rate=0.96,every=500,times=9,l1=1e-4,$q" \
		"insert=linear:rank=$((dim / 2)),$d,start=random" "insert=linear:rank=$((dim / 2)),$d,start=identity" \
		"insert=linear:rank=$((dim / 2)),$d,start=pca" poweriter:rank=32
}

text_all() {
	local seed method k dim=768
	if [ -z "$glue" ] || [ -z "$tokenizer" ] || [ -z "$text_weights" ]; then
		not_run text GLUE TOKENIZER TEXT_WEIGHTS && return
	fi
	[[ $text_model =~ dim=([0-9]+) ]] && dim=${BASH_REMATCH[1]}
	for seed in $text_seeds; do
		while read -r method; do
			k=$(key text "$text_model rows=$text_rows max=$text_max epochs=$text_epochs lr=$text_lr" type1 "$method" "$seed")
			run "$k" text_one "$k" type1 "$method" "$seed" "$(final_share "$method" "$dim" "$text_max")" </dev/null
		done < <(text_methods)
	done
}

# Bytes up and down of a batch, seconds of computing, seconds of a batch. link_step.sh ends with 1 where it misses a bound.
link_one() { # KEY RATE METHOD
	fits=0
	set_insertion "$3"
	# shellcheck disable=SC2154 # lib.sh sets source_dir
	(cd "$source_dir" && ${WRAP:-} tests/bench/link_step.sh --build "$build" --rate "$2" --model mobilenetv2:cuts=fine \
		--shape "3x${link_size}x$link_size" --cut $origin_cut --batch "$batch" --chunks "$chunks" --steps "$link_steps" \
		--codec "$(codec_of "$3")" --threads "$threads" --lr 0.005 --momentum 0.1 "${insertion[@]}") >"$work/link.log" 2>&1
	awk -v OFS='\t' -v key="$1" '
		/^wire up/ { up = $3 }
		/^wire down/ { down = $3 }
		/^compute/ { compute = $6 }
		/^(PASS|FAIL)  time per batch/ { time = $5 }
		END {
			if (!time) exit 1
			print key, up, down, compute, time
		}' "$work/link.log" >>"$results" || { cat "$work/link.log" >&2 && return 1; }
}

link_all() {
	local rate method k
	[ "$(id -u)" = 0 ] || { echo "link: not run: needs root" && return; }
	for rate in $link_rates; do
		for method in none uniform:bits=8 sortquant:bits=6,split=2 insert=flop-2 insert=rate-070; do
			k=$(key link "size=$link_size batch=$batch chunks=$chunks threads=$threads steps=$link_steps" "$rate" "$method" 1)
			run "$k" link_one "$k" "$rate" "$method"
		done
	done
}

# --- tables ------------------------------------------------------------------------------------------------------------

# PART|CUT|METHOD|the origin's accuracy. Its cut is 1:-2; an empty cut fits any.
origin='cifar||none|95.9
cifar||uniform:bits=16|95.8
cifar||sortquant:bits=12,split=4|96.0
cifar||sortquant:bits=9,split=3|95.9
cifar||sortquant:bits=6,split=2|95.7
cifar||sortquant:bits=3,split=1|87.1
cifar||topk:ratio=0.5|95.9
cifar||topk:ratio=0.2|95.1
cifar||topk:ratio=0.1|94.3
cifar||insert=flop-2|96.01
cifar||insert=rate-070|95.87
cuts||none|95.9
cuts|1:-1|topk:ratio=0.1|90.88
cuts|2:-2|topk:ratio=0.1|93.63
cuts|2:-1|topk:ratio=0.1|93.06
cuts|1:-2|topk:ratio=0.1|92.57
cuts|1:-1|topk:ratio=0.2+uniform:bits=8|92.17
cuts|2:-2|topk:ratio=0.2+uniform:bits=8|91.77
cuts|2:-1|topk:ratio=0.2+uniform:bits=8|91.72
cuts|1:-2|topk:ratio=0.2+uniform:bits=8|90.95
full||none|95.9
full||sortquant:bits=6,split=2|95.7
full||sortquant:bits=3,split=1|87.1
full||insert=flop-2|96.01
scratch||none|94.07
scratch||uniform:bits=16|93.94
scratch||topk:ratio=0.5|94.02
scratch||topk:ratio=0.1|90.1
cifar100||none|80.92
cifar100||sortquant:bits=12,split=4|80.85
cifar100||sortquant:bits=9,split=3|80.61
cifar100||sortquant:bits=6,split=2|78.83
cifar100||sortquant:bits=4,split=4|80.52
text||insert=decay:rate=0.9,every=300,times=9,l1=1e-4,dim=feature|84.6'

# Differences are between runs of one seed.
accuracy_tables() {
	awk -F '\t' -v origin="$origin" '
	BEGIN {
		rows_of_origin = split(origin, line, "\n")
		for (i = 1; i <= rows_of_origin; i++) { split(line[i], p, "|"); theirs[p[1], p[2], p[3]] = p[4] }
	}
	# The columns are part, settings, cut, method, seed, accuracy, rate, payload, seconds, core seconds, steps, final, digest.
	$1 != "link" {
		table = $1 "\t" $2
		if (!(table in tables)) { tables[table] = 1; table_order[++table_count] = table }
		row = table "\t" $3 "\t" $4
		if (!(row in rows)) { rows[row] = 1; order[table, ++count[table]] = row }
		if ($4 == "none") none[table, $5] = $6
		seed[row, ++runs[row]] = $5; acc[row, $5] = $6
		if ($7 ~ /^[0-9]/) { rate[row] += $7; rates[row]++ }
		core[row] += $10; final[row] = $12
	}
	function none_of(table, s,  p) { # runs without a codec do not depend on the cut
		split(table, p, "\t")
		return p[1] == "cuts" ? none["cifar\t" p[2], s] : none[table, s]
	}
	function mean(row, table, absolute,  i, s, d, sum) {
		n = gone = 0
		for (i = 1; i <= runs[row]; i++) {
			s = seed[row, i]
			if (acc[row, s] == "nan") { gone++; continue }
			if (!absolute && none_of(table, s) !~ /^[0-9]/) continue
			d = 100 * (acc[row, s] - (absolute ? 0 : none_of(table, s)))
			if (!n || d < low) low = d
			if (!n || d > high) high = d
			n++; sum += d
		}
		return n ? sum / n : 0
	}
	function text(row, table, absolute,  a, form) {
		form = absolute ? "%.1f" : "%+.1f"
		a = mean(row, table, absolute)
		if (!n) return gone ? "diverged" : ""
		return sprintf(n > 1 ? form " (" form " to " form ")" : form, a, low, high) (gone ? "; " gone " diverged" : "")
	}
	function origin_of(part, cut, method) {
		return ((part, cut, method) in theirs) ? theirs[part, cut, method] : theirs[part, "", method]
	}
	function verdict(row, table, what, least, most,  d) {
		d = mean(row, table, 0)
		if (n) printf "%s  %s: %+.1f points from none at rate %.4f, wanted %.1f at %.2f\n",
			(d >= least && rate[row] / rates[row] <= most ? "PASS" : "FAIL"), what, d, rate[row] / rates[row], least, most
	}
	END {
		for (t = 1; t <= table_count; t++) {
			table = table_order[t]; split(table, p, "\t"); part = p[1]
			printf "%s: %s\n\n", part, p[2]
			print "| cut | method | rate | accuracy | from our none | origin | from its none | core seconds of a run |"
			print "|---|---|---:|---|---|---:|---:|---:|"
			for (i = 1; i <= count[table]; i++) {
				row = order[table, i]; split(row, q, "\t")
				o = origin_of(part, q[3], q[4]); base = origin_of(part, "", "none")
				printf "| %s | `%s` | %s%s | %s | %s | %s | %s | %.0f |\n", q[3], q[4],
					rates[row] ? sprintf("%.4f", rate[row] / rates[row]) : "",
					final[row] ~ /^[0-9]/ && final[row] < 1 ? sprintf(" (%.3f at the end)", final[row]) : "",
					text(row, table, 1), q[4] == "none" ? "" : text(row, table, 0), o, o && base ? sprintf("%+.2f", o - base) : "",
					core[row] / runs[row]
				if (part == "flowers" && q[4] == "insert=flop-2") conv = row
				if (part == "flowers" && q[4] ~ /^insert=flop-2;/) both = row
			}
			print ""
			if (part == "flowers" && conv) verdict(conv, table, "conv insertion", -1.5, 0.10)
			if (part == "flowers" && both) verdict(both, table, "conv insertion and sortquant", -2.5, 0.03)
			if (part == "flowers") print ""
			conv = both = ""
			ran[part] = 1
		}
		for (i = 1; i <= rows_of_origin; i++) {
			split(line[i], p, "|"); base = origin_of(p[1], "", "none")
			if (p[1] in ran) continue
			if (!(p[1] in told)) {
				printf "%s%s: not run\n\n| cut | method | | origin | from its none |\n|---|---|---|---:|---:|\n", (i > 1 ? "\n" : ""), p[1]
				told[p[1]] = 1
			}
			printf "| %s | `%s` | not run | %s | %s |\n", p[2], p[3], p[4], base ? sprintf("%+.2f", p[4] - base) : ""
		}
		print ""
	}' "$results"
}

# The origin has a table of two machines; MB/s is what a link must carry so that it does not hold up the computation.
link_origin='none|rate 1.0; 95.94 %; 737.41 MB/s; 0.30 s; 2.07 s
uniform:bits=8|rate .25; -; 184.35 MB/s; 0.30 s; 0.62 s
insert=flop-2|rate .097; 96.01 %; 69.03 MB/s; 0.32 s; 0.38 s
insert=rate-070|rate .070; 95.87 %; 47.85 MB/s; 0.32 s; 0.37 s'

link_table() {
	awk -F '\t' -v origin="$link_origin" '
	BEGIN {
		n = split(origin, line, "\n")
		for (i = 1; i <= n; i++) { split(line[i], p, "|"); theirs[p[1]] = p[2] }
	}
	$1 == "cifar" && $2 != settings { settings = $2; delete acc; delete accs } # those of the last runs count
	$1 == "cifar" && $6 != "nan" { acc[$4] += 100 * $6; accs[$4]++ }
	$1 == "link" { row[++rows] = $0; if ($4 == "none") all[$2, $3] = $6 + $7 }
	END {
		if (!rows) exit
		print "| link | settings | method | rate | accuracy (part cifar) | MB/s | compute | total | origin: rate; accuracy; MB/s; compute; total |"
		print "|---|---|---|---:|---:|---:|---:|---:|---|"
		for (i = 1; i <= rows; i++) {
			split(row[i], c, "\t")
			whole = all[c[2], c[3]]
			printf "| %s | %s | `%s` | %s | %s | %.2f | %.2f s | %.2f s | %s |\n", c[3], c[2], c[4],
				whole ? sprintf("%.3f", (c[6] + c[7]) / whole) : "", accs[c[4]] ? sprintf("%.1f %%", acc[c[4]] / accs[c[4]]) : "",
				(c[6] + c[7]) / c[8] / 1e6, c[8], c[9], theirs[c[4]]
		}
		print ""
	}' "$results"
}

# Rate against accuracy of the part scratch, as SVG: a line for each kind of method.
plot() {
	awk -F '\t' '
	function kind(method) {
		if (method ~ /^topk.*bits=8/) return "pruned, 8 bits"
		if (method ~ /^topk.*bits=16/) return "pruned, 16 bits"
		return method ~ /^topk/ ? "pruned" : method ~ /^downsample/ ? "downsampled" : method == "none" ? "none" : "16 bits"
	}
	$1 == "scratch" && $6 ~ /^[0-9]/ && $7 ~ /^[0-9]/ {
		x[++n] = $7; y[n] = 100 * $6; k[n] = kind($4)
		if (!(k[n] in colour)) colour[k[n]] = ++kinds
		if (n == 1 || y[n] < low) low = y[n]
		if (n == 1 || y[n] > high) high = y[n]
		if (n == 1 || x[n] < least) least = x[n]
	}
	function px(v) { return 60 + 520 * (log(v) - log(least)) / (log(1) - log(least)) }
	function py(v) { return 360 - 320 * (v - low) / (high - low) }
	END {
		if (n < 2 || least >= 1 || high <= low) exit 1
		split("black #1f77b4 #d62728 #2ca02c #9467bd #ff7f0e", paint, " ")
		print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"410\" font-family=\"sans-serif\" font-size=\"12\">"
		print "<rect width=\"760\" height=\"410\" fill=\"white\"/><path d=\"M60 40V360H580\" fill=\"none\" stroke=\"black\"/>"
		printf "<text x=\"320\" y=\"400\">rate (logarithmic)</text><text x=\"10\" y=\"25\">accuracy, %%</text>\n"
		for (r = 1; r >= least; r = r / 2) printf "<text x=\"%.0f\" y=\"377\" text-anchor=\"middle\">%.3g</text>\n", px(r), r
		for (i = 0; i <= 4; i++) {
			v = low + i * (high - low) / 4
			printf "<text x=\"55\" y=\"%.0f\" text-anchor=\"end\">%.1f</text>\n", py(v) + 4, v
		}
		for (i = 1; i <= n; i++)
			printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", px(x[i]), py(y[i]), paint[colour[k[i]]]
		for (name in colour) printf "<text x=\"600\" y=\"%d\" fill=\"%s\">%s</text>\n", 40 + 18 * colour[name], paint[colour[name]], name
		print "</svg>"
	}' "$results" >"$results.svg.new" && mv "$results.svg.new" "$results.svg" && echo "plot: $results.svg"
	rm -f "$results.svg.new"
}

tables() {
	accuracy_tables
	link_table
	plot
}

for part in "${@:-all}"; do
	case $part in
	all)
		for each in cifar cuts full scratch resnet cifar100 flowers text link; do
			"${each}_all"
		done
		;;
	table) ;;
	*) "${part}_all" ;;
	esac
done
tables
exit $failed
