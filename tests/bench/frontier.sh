#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# frontier.sh BUILD-FOLDER RESULTS FLOWERS CIFAR10 WEIGHTS GLUE TOKENIZER TEXT-WEIGHTS [PART...]:
# bits per element on the wire against accuracy, for every codec of 2 to 8 bits and for
# insertions with a codec behind them. Parts, by default all of them in this order:
#   flowers  MobileNetV2 with ImageNet's weights (WEIGHTS) fine-tuned on pictures of 96x96,
#            batches of 32 in 8 chunks, --batch-norm running at a rate of 0.0005, as the
#            part codecs of batch_norm.sh has it; an insertion is fitted before and frozen then
#   cifar    the same on CIFAR-10, or a part of it, in batches of 64 with --batch-norm renorm
#            at a rate of 0.01, as the part cifar of origin.sh has it
#   text     the encoder of TEXT-WEIGHTS (of TEXT_MODEL) fine-tuned on SST-2, as the part
#            methods of text.sh has it
#   table    no training: only what RESULTS holds
# A part whose folder or file is "-", or is not there, says so and is not run; so does a
# codec that this build does not know.
#
# RESULTS is the file in which the script notes a line for each run that is finished
# (tests/tools/frontier.awk says what is in it). Runs that it has are not run again, so
# the script may be stopped at any time; called again, it goes on. All of it takes a day or longer.
# Every run, raw included, goes through a gpserverd of its own over loopback. At the end
# the script prints tables, and PASS or FAIL for what is wanted of them, and draws them in
# the file RESULTS.svg.
#
# A method is CODEC for all four directions, CODEC/CODEC for activations and gradients, or
# one of these behind "insert=SPEC;" (an insertion at both cuts) or "insert-up=SPEC;" (one
# between head and body). CODECS, INSERTIONS, TEXT_INSERTIONS have the methods; SEEDS,
# THREADS, EPOCHS, ROWS, FIT and the other variables below change settings; WRAP=COMMAND is
# put before every command. The status is 1 where a run failed, or a folder or file that was
# given cannot be read; what is wanted and missed is told and is no failure.

set -u -o pipefail
usage="usage: $0 BUILD-FOLDER RESULTS FLOWERS CIFAR10 WEIGHTS GLUE TOKENIZER TEXT-WEIGHTS [flowers|cifar|text|table...]"
[ "${1:-}" != --help ] || { sed -n '4,32s/^# \{0,1\}//p' "$0" && exit; }
[ $# -ge 8 ] || { echo "$usage" >&2 && exit 2; }
[ -x "$1/gpclient" ] || { echo "$1 is no folder of a build: it has no gpclient; $usage" >&2 && exit 2; }
[ ! -d "$2" ] || { echo "RESULTS ('$2') is a folder; it is a file that this script makes" >&2 && exit 2; }
for part in "${@:9}"; do # a wrong word is to be told now, not after a day
	case $part in all | flowers | cifar | text | table) ;; *) echo "no part is named '$part'; $usage" >&2 && exit 2 ;; esac
done
results=$2 flowers=$3 cifar=$4 weights=$5 glue=$6 tokenizer=$7 text_weights=$8
# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
# Keys: part, settings, cut, method, seed.
# shellcheck disable=SC1091
. "$(dirname "$0")/rows.sh"
shift 8

seeds=${SEEDS:-1 2 3} threads=${THREADS:-1}                              # threads of each process
fit=${FIT:-200}                                                          # steps of insert-fit before a training; 0: none
epochs=${EPOCHS:-2} rate=${RATE:-0.0005} chunks=${CHUNKS:-8} cut=${CUT:-1:-1} # of pictures
cifar_epochs=${CIFAR_EPOCHS:-$epochs} cifar_rate=${CIFAR_RATE:-0.01}
text_model=${TEXT_MODEL:-roberta:layers=4,dim=256,heads=4,ffn=1024} rows=${ROWS:-48000} max=${MAX:-128}
bucket=${BUCKET:-32} # batches whose texts are put together by length
text_epochs=${TEXT_EPOCHS:-${EPOCHS:-1}} text_rate=${TEXT_RATE:-2e-4} text_cut=${TEXT_CUT:-type1}
codecs=${CODECS-raw
	uniform:bits=8 uniform:bits=8+rans uniform:bits=6 uniform:bits=6+rans uniform:bits=4 uniform:bits=4+rans
	sortquant:bits=6,split=2 sortquant:bits=4,split=2 sortquant:bits=2,split=2 sortquant:bits=3,split=1 kmeans:bits=4
	block:bits=8,size=128 block:bits=8,size=128+rans block:bits=6,size=128 block:bits=6,size=128+rans
	block:bits=5,size=128 block:bits=4,size=128 block:bits=4,size=128+rans block:bits=3,size=128 block:bits=3,size=128+rans
	block:bits=2,size=128 block:bits=8,size=32 block:bits=6,size=32 block:bits=5,size=32 block:bits=4,size=32
	block:bits=4,size=32+rans block:bits=3,size=32 block:bits=3,size=32+rans block:bits=2,size=32
	block:bits=4,size=128,round=stochastic block:bits=4,size=128,clip=mse block:bits=2,size=32,clip=mse
	block:size=32,budget=4 block:size=32,budget=3
	hadamard:size=128+block:bits=4,size=128 hadamard:size=128+block:bits=4,size=128+rans
	hadamard:size=128+block:bits=3,size=128 hadamard:size=32+block:bits=4,size=32 hadamard:size=32+block:bits=3,size=32
	hadamard:size=32+block:bits=2,size=32
	mxfp8 mxfp8+rans mxfp6 mxfp6+rans mxfp4 mxfp4+rans nvfp4 nvfp4+rans fp8:format=e4m3/fp8:format=e5m2 s2fp8
	block:bits=3,size=32/block:bits=4,size=32
	block:bits=5,dim=channel,zero=asym+rans/uniform:bits=8+rans block:bits=4,dim=channel,zero=asym+rans/uniform:bits=8+rans
	block:bits=3,dim=channel,zero=asym+rans/uniform:bits=8+rans block:bits=4,size=128,zero=asym+rans/uniform:bits=8+rans
	block:bits=4,size=128+rans/uniform:bits=8+rans block:bits=3,size=128+rans/uniform:bits=8+rans
	uniform:bits=8+rans:predict=map/block:bits=6,size=128+rans uniform:bits=8+rans:predict=map/block:bits=5,size=128+rans
	uniform:bits=6+rans:predict=map/block:bits=5,size=128+rans uniform:bits=8+rans:predict=map/uniform:bits=8+rans
	uniform:bits=8+rans:predict=map,tables=channel/block:bits=6,size=128+rans:tables=channel
	uniform:bits=8+rans:predict=map,tables=channel/block:bits=5,size=128+rans:tables=channel
	block:bits=4,dim=channel,zero=asym+rans:predict=map,tables=channel/uniform:bits=8+rans:tables=channel
	block:bits=5,dim=channel,zero=asym+rans:predict=map,tables=channel/block:bits=6,size=128+rans:tables=channel
	uniform:bits=5+rans:predict=map,tables=channel/block:bits=6,size=128+rans:tables=channel
	uniform:bits=5+rans:predict=map,tables=channel/block:bits=5,size=128+rans:tables=channel
	uniform:bits=5+rans/uniform:bits=8+rans block:bits=4,size=128+rans/raw raw/block:bits=4,size=128+rans
	smaq:main=6,outlier=8 qsgd:bits=4 alq:bits=4 topk:ratio=0.1+uniform:bits=8 poweriter:rank=4}
insertions=${INSERTIONS-insert-up=bottleneck:dim=8,start=pca;raw insert-up=bottleneck:dim=8,start=pca;block:bits=4,size=32
	insert-up=conv:out=28,k=3,s=3,start=pca;uniform:bits=8+rans insert-up=conv:out=96,k=3,s=3,start=pca;uniform:bits=8+rans}
# 256 features: at most 0.5 bits for each of them, and linear layers of the same rank beside.
text_insertions=${TEXT_INSERTIONS-insert=bottleneck:dim=32,start=pca;raw insert=bottleneck:dim=14,start=pca;uniform:bits=8
	insert=bottleneck:dim=24,start=pca;block:bits=4,size=32 insert=bottleneck:dim=16,start=pca;block:bits=4,size=32
	insert=bottleneck:dim=32,start=pca;block:bits=3,size=128 insert=bottleneck:dim=8,start=pca;block:bits=6,size=128
	insert=linear:rank=24,dim=feature,start=pca;block:bits=4,size=32
	insert=linear:rank=16,dim=feature,start=pca;block:bits=4,size=32}

[ "$*" = table ] || touch "$results" || exit 1
results=$(realpath "$results")
failed=0

# --- methods -----------------------------------------------------------------------------------------------------------

# The flags of a method's codecs, into `codec`.
codec=()
set_codec() { # METHOD
	local spec=${1##*;}
	codec=(--codec "${spec%%/*}")
	[[ $spec != */* ]] || codec+=(--codec-grad-up "${spec##*/}" --codec-grad-down "${spec##*/}")
}

# The flags of a method's insertion, into `insertion`.
insertion=()
set_insertion() { # METHOD
	local spec=${1%%;*}
	insertion=()
	case $1 in
	insert-up=*) insertion=(--insert-up "${spec#*=}") ;;
	insert=*) insertion=(--insert "${spec#*=}") ;;
	esac
}

# Whether this build has the method's codecs: each is tried on a tensor of a reference case.
known() { # METHOD
	local spec status
	for spec in $(tr / ' ' <<<"${1##*;}"); do
		status=0
		# shellcheck disable=SC2154 # lib.sh sets build, source_dir, work
		"$build/gpclient" codec roundtrip --codec "$spec" --in "$source_dir/tests/golden/ops/insert.safetensors" \
			--tensor conv/0/in.0 >/dev/null 2>"$work/log" || status=$?
		[ $status -ne 2 ] || return 1
	done
}

# --- one run -----------------------------------------------------------------------------------------------------------

# Bytes on the wire and elements of one direction per batch: those of the cut without an insertion, without padding that
# does not cross. 0 0 where nothing goes that way.
crossing() { # DIRECTION
	json_flat "$work/train.json" | awk -F = -v d="$1." '
		index($1, d) == 1 { v[substr($1, length(d) + 1)] = $2 }
		END {
			tensor = v["tensor_bytes_per_batch"]
			if (tensor > 0) elements = v["uncompressed_bytes_per_batch"] / 4 * v["unpadded_bytes_per_batch"] / tensor
			printf "%.1f\t%.1f", v["wire_bytes_per_batch"], elements
		}'
}

# Weights for --init: those given, or the same with a fitted insertion, which has its classifier, too.
init=()
fit_insertion() { # CUT SEED FLAGS-OF-BOTH...
	local cut=$1 seed=$2
	shift 2
	[ ${#insertion[@]} -gt 0 ] && [ "$fit" -gt 0 ] || return 0
	${WRAP:-} "$build/gpclient" insert-fit --no-progress --threads "$threads" "${init[@]}" "$@" --cut "$cut" "${insertion[@]}" \
		--seed "$seed" --steps "$fit" --save "$work/fitted" >"$work/log" 2>&1 || { cat "$work/log" >&2 && return 1; }
	init=(--init "$work/fitted")
}

start_run_server() {
	rm -f "$work/port"
	${WRAP:-} "$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" --threads "$threads" 2>"$work/server.log" &
	server_pid=$!
	comes_up $server_pid "$work/port" gpserverd "$work/server.log"
}

stop_run_server() {
	kill "$server_pid" 2>/dev/null
	wait "$server_pid" 2>/dev/null
	server_pid=''
}

# A run that diverged has nan for its accuracy. Without numbers a line would look like a finished run.
train_and_note() { # KEY CUT METHOD SEED FLAGS-OF-BOTH... -- FLAGS-OF-TRAIN...
	local key=$1 cut=$2 method=$3 seed=$4 both=() status=0 accuracy
	shift 4
	while [ "$1" != -- ]; do
		both+=("$1")
		shift
	done
	shift
	set_insertion "$method"
	set_codec "$method"
	fit_insertion "$cut" "$seed" "${both[@]}" || return 1
	start_run_server
	${WRAP:-} "$build/gpclient" train --no-progress --threads "$threads" --server "127.0.0.1:$(cat "$work/port")" --cut "$cut" \
		"${codec[@]}" "${insertion[@]}" "${both[@]}" "${init[@]}" "$@" --seed "$seed" --json \
		>"$work/train.json" 2>"$work/log" || status=$?
	stop_run_server
	if [ $status -ne 0 ]; then
		grep -q 'the training diverged' "$work/log" || { cat "$work/log" >&2 && return 1; }
		note "$key" nan 0 0 0 0 0 0 0 0 0 -
		return
	fi
	accuracy=$(json_get "$work/train.json" val_acc) || return 1
	note "$key" "$accuracy" "$(crossing act_up)" "$(crossing act_down)" "$(crossing grad_up)" "$(crossing grad_down)" \
		"$(json_get "$work/train.json" time_per_batch_s)" "$(json_get "$work/train.json" param_sha256)"
}

# In place of that of rows.sh: one that fails is told, and the others go on; it is tried again when the script is run again.
run() { # KEY METHOD FUNCTION ARGUMENT...
	local key=$1 method=$2
	shift 2
	finished "$key" && return
	known "$method" || { echo "not run: this build does not take $method: $(cat "$work/log")" && return; }
	say_key "$key"
	"$@" || { echo "failed: $(tr '\t' ' ' <<<"$key")" >&2 && failed=1; }
}

# --- parts -------------------------------------------------------------------------------------------------------------

have() { # PART WHAT PATH
	[ "$3" != - ] && [ -r "$3" ] && return
	echo "$1: not run: no $2 ('$3')"
	[ "$3" = - ] || failed=1
	return 1
}

# WEIGHTS are for another number of classes: their classifier is left out. SGD at the rate of a model ruins an insertion that
# begins in a trained network (RESULTS.md): it stays as it was fitted.
pictures_one() { # KEY METHOD SEED DATA BATCH FLAGS-OF-TRAIN...
	local key=$1 method=$2 seed=$3 data=$4 batch=$5 freeze=()
	shift 5
	[[ $method != insert* ]] || freeze=(--freeze 'insert*')
	init=(--init "$weights" --init-skip 'classifier.*')
	train_and_note "$key" "$cut" "$method" "$seed" --model mobilenetv2:pad=same,eps=1e-3 --data "$data" --input 3x96x96 \
		--batch "$batch" -- --chunks "$chunks" --momentum 0.9 --weight-decay 0 --schedule cosine "${freeze[@]}" "$@"
}

pictures_all() { # PART SETTINGS DATA BATCH FLAGS-OF-TRAIN...
	local part=$1 settings=$2 seed method k
	shift 2
	have "$part" weights "$weights" || return 0
	for seed in $seeds; do
		for method in $codecs $insertions; do
			k=$(key "$part" "$settings" "$cut" "$method" "$seed")
			run "$k" "$method" pictures_one "$k" "$method" "$seed" "$@"
		done
	done
}

flowers_all() {
	have flowers pictures "$flowers" || return 0
	pictures_all flowers "epochs=$epochs lr=$rate chunks=$chunks fit=$fit" "folder:$flowers,size=96,mean=0.5,std=0.5" 32 \
		--epochs "$epochs" --lr "$rate" --batch-norm running
}

cifar_all() {
	have cifar pictures "$cifar" || return 0
	pictures_all cifar "epochs=$cifar_epochs batch=64 lr=$cifar_rate chunks=$chunks renorm fit=$fit" \
		"cifar10:$cifar,mean=0.5,std=0.5" 64 --epochs "$cifar_epochs" --lr "$cifar_rate" --batch-norm renorm
}

# What the file has of a head for masked words is left out; its header is its beginning.
text_one() { # KEY METHOD SEED
	local skip='classifier.*' data=glue-sst2:$glue,max=$max
	[ "$rows" -gt 0 ] && data+=,limit=$rows
	[ "$bucket" -gt 1 ] && data+=,bucket=$bucket
	[ "$(head -c 1000000 "$text_weights" | grep -a -c '"lm_head\.')" -gt 0 ] && skip+=',lm_head.*'
	mkdir -p "$work/tokens"
	init=(--init "$text_weights" --init-skip "$skip")
	train_and_note "$1" "$text_cut" "$2" "$3" --model "$text_model,cuts=fine" --data "$data" --tokenizer "$tokenizer" \
		--token-cache "$work/tokens" --batch 32 -- --chunks 4 --epochs "$text_epochs" --lr "$text_rate" --schedule poly \
		--warmup 0.06 --optimizer adamw --weight-decay 0.01 --no-decay '*.bias,*.LayerNorm.*' --pad auto
}

text_all() {
	local seed method k settings="$text_model rows=$rows max=$max bucket=$bucket epochs=$text_epochs lr=$text_rate fit=$fit"
	have text texts "$glue" && have text tokenizer "$tokenizer" && have text weights "$text_weights" || return 0
	for seed in $seeds; do
		for method in $codecs $text_insertions; do
			k=$(key text "$settings" "$text_cut" "$method" "$seed")
			run "$k" "$method" text_one "$k" "$method" "$seed"
		done
	done
}

if [ "$*" = table ] && [ ! -s "$results" ]; then
	echo "$results has no runs: nothing to show" >&2
	exit 1
fi
for part in "${@:-all}"; do
	case $part in
	all) flowers_all && cifar_all && text_all ;;
	flowers | cifar | text) "${part}_all" ;;
	table) ;;
	esac
done
awk -F '\t' -v svg="$results.svg" -f "$source_dir/tests/tools/frontier.awk" "$results" || failed=1
exit $failed
