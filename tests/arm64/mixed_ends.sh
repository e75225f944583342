#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mixed_ends.sh BUILD NATIVE: a client for ARM64 under qemu (in the folder BUILD) and a server of this machine (in the folder
# NATIVE). Every codec makes the same payloads and remembers the same at both. Without oneDNN a training has the same
# parameters, bit for bit, split between both processors and on either of them: with every codec, over a link that breaks, for
# which both ends compare what they remember; and when it goes on from a checkpoint, on the same processor or on the other.
# Evaluations, which fold batch norms, agree, too.

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
native=$(cd "${2:?usage: $0 BUILD NATIVE}" && pwd)
arm=$build
bits=tests/"codec_bits" # the program, below a build folder
for program in gpserverd gpclient $bits; do
	[ -x "$native/$program" ] || { echo "no $native/$program: build it first" && exit 77; }
done

# One line for each codec, shape, kind of numbers and pass.
"$native/$bits" >"$work/native.bits" || fail "the codecs of this machine"
"$arm/$bits" >"$work/arm.bits" || fail "the codecs of ARM64"
GP_SIMD=portable "$arm/$bits" >"$work/portable.bits" || fail "the portable codecs of ARM64"
[ "$(wc -l <"$work/native.bits")" -gt 1000 ] || fail "only $(wc -l <"$work/native.bits") passes"
for made in arm portable; do
	cmp -s "$work/native.bits" "$work/$made.bits" ||
		fail "codecs differ ($made): $(diff "$work/native.bits" "$work/$made.bits" | head -6)"
done
echo "ok: $(wc -l <"$work/native.bits") passes of codecs made the same bits"

export GP_ENGINE=own
flags=(--model cnn --cut 1:-2 --data synthetic:shape=3x8x8,classes=10,samples=64 --batch 16 --chunks 2 --lr 0.05 --seed 3
	--schedule const --threads 1 --steps 6 --no-eval)
start_mixed() { # SERVER-FLAG...
	build=$native
	start_server --threads 1 --idle-timeout 60s "$@"
	build=$arm
}

# Each codec of the table in at least one. Both cuts are pictures, which some of them need.
codecs=(raw fp16 bf16 uniform:bits=6 sortquant:bits=6,split=2 sortquant:bits=6,split=2,sample=64 fp8:format=e4m3 s2fp8 smaq qsgd
	qsgdinf:bits=3 nuqsgd:bits=3 terngrad alq:bits=3,update=2 amq:bits=3,update=2 kmeans:bits=3 bdi ef+topk:ratio=0.1
	topk:ratio=0.2+uniform:bits=8 downsample+uniform:bits=8 poweriter:rank=2,iters=2+uniform:bits=8 uniform:bits=5+zstd
	bf16+bitshuffle+zstd ef+uniform:bits=6 delta+uniform:bits=8 block:bits=4,size=64,zero=asym
	block:bits=3,size=32,round=stochastic block:size=32,budget=3 mxfp8 mxfp6:format=e2m3 mxfp4 nvfp4
	sortquant:bits=6,split=2+rans hadamard:size=64+block:size=64)

each_codec_is_listed() {
	local name
	"$native/gpclient" codec list --json >"$work/list.json" || fail "codec list"
	json_flat "$work/list.json" | sed -n 's/^[0-9]*\.name=//p' >"$work/names"
	[ "$(wc -l <"$work/names")" -ge 30 ] || fail "codec list names $(wc -l <"$work/names") codecs"
	while read -r name; do
		printf '%s\n' "${codecs[@]}" | grep -E "(^|\+)$name(:|\+|\$)" >/dev/null || fail "no training with the codec $name"
	done <"$work/names"
}

# delta is for what comes by again: activations that go up.
use_codec() { # SPEC
	option=(--codec "$1")
	[[ $1 != delta* ]] || option=(--codec-act-up "$1")
}

# The training of both ends here: what all others of this codec have to come to.
train_here() {
	build=$native
	train "$work/here.json" --server "127.0.0.1:$server_port" "${flags[@]}" "${option[@]}" || fail "$codec: on this machine"
	build=$arm
	want=$(json_get "$work/here.json" param_sha256)
}

over_a_link_that_breaks() {
	local bytes
	bytes=$(json_get "$work/here.json" wire_up_bytes)
	build=$native
	start_link --drop-every $((bytes / 3)) --direction up --times 2 --seed 5
	build=$arm
	train "$work/cut.json" --server "127.0.0.1:$link_port" "${flags[@]}" "${option[@]}" || fail "$codec: over a link"
	stop_link
	equal "$codec: parameters over a link that breaks" "$(json_get "$work/cut.json" param_sha256)" "$want"
	[ "$(json_get "$work/cut.json" reconnects)" -gt 0 ] || fail "$codec: no cut was counted"
}

# Three steps with a client of one build folder, the rest with one of another, from what both sides have kept.
in_two_parts() { # NAME BUILD BUILD
	local checkpoint=(--checkpoint "$work/run" --checkpoint-every 3) name=$1
	rm -rf "$work/run" "$work/state"
	start_mixed --state-dir "$work/state"
	build=$2
	train "$work/part.json" --server "127.0.0.1:$server_port" "${flags[@]}" "${option[@]}" "${checkpoint[@]}" --steps 3 ||
		fail "$codec: $name, the first part"
	stop_server
	start_mixed --state-dir "$work/state"
	build=$3
	train "$work/rest.json" --server "127.0.0.1:$server_port" "${flags[@]}" "${option[@]}" "${checkpoint[@]}" --resume ||
		fail "$codec: $name, the rest"
	stop_server
	equal "$codec: parameters, $name" "$(json_get "$work/rest.json" param_sha256)" "$want"
}

each_codec_is_listed
start_mixed
for codec in "${codecs[@]}"; do
	use_codec "$codec"
	train_here
	over_a_link_that_breaks
done
stop_server

for codec in raw ef+topk:ratio=0.1 delta+uniform:bits=8 alq:bits=3,update=2 poweriter:rank=2,iters=2+uniform:bits=8; do
	use_codec "$codec"
	start_mixed
	train_here
	stop_server
	in_two_parts "going on on ARM64" "$arm" "$arm"
	in_two_parts "going on here" "$arm" "$native"
	in_two_parts "going on on ARM64 from here" "$native" "$arm"
done

# Networks that go through own kernels of every kind: products, depthwise rows, Winograd, attention.
evaluate() { # JSON-FILE FLAG...
	"$build/gpclient" eval --no-progress --json "${weights[@]}" "${@:2}" >"$1" 2>"$1.log" || fail "$model: $(cat "$1.log")"
}

start_mixed
for model in mobilenetv2:width=0.25 resnet18 roberta:layers=1,dim=32,heads=2,ffn=64,vocab=100,max=18,classes=2; do
	data=synthetic:shape=3x32x32,classes=10,samples=16
	[[ $model != roberta* ]] || data=synthetic:tokens=16,vocab=100,classes=2,samples=16
	flags=(--model "$model" --data "$data" --batch 4 --chunks 2 --lr 0.05 --seed 3 --threads 1 --steps 2)
	build=$native
	weights=(--model "$model" --data "$data" --batch 4 --chunks 2 --threads 1 --init "$work/native.safetensors")
	train "$work/native.json" --local "${flags[@]}" --save "$work/native.safetensors" || fail "$model on this machine"
	evaluate "$work/native-eval.json" --local
	build=$arm
	train "$work/arm.json" --local "${flags[@]}" || fail "$model on ARM64"
	train "$work/mixed.json" --server "127.0.0.1:$server_port" --cut 1:-1 "${flags[@]}" || fail "$model on both"
	evaluate "$work/arm-eval.json" --local
	evaluate "$work/mixed-eval.json" --server "127.0.0.1:$server_port" --cut 1:-1
	for run in arm mixed; do
		equal "$model: parameters ($run)" "$(json_get "$work/$run.json" param_sha256)" \
			"$(json_get "$work/native.json" param_sha256)"
		equal "$model: loss of an evaluation ($run)" "$(json_get "$work/$run-eval.json" val_loss)" \
			"$(json_get "$work/native-eval.json" val_loss)"
	done
done
stop_server

# In bf16 sums are rounded otherwise on ARM64: there both ends are, and a split training is a local one's equal, too.
start_server --threads 1 --idle-timeout 60s
for model in mobilenetv2:width=0.25 roberta:layers=1,dim=32,heads=2,ffn=64,vocab=100,max=18,classes=2; do
	data=synthetic:shape=3x32x32,classes=10,samples=16
	[[ $model != roberta* ]] || data=synthetic:tokens=16,vocab=100,classes=2,samples=16
	flags=(--model "$model" --data "$data" --batch 4 --chunks 2 --lr 0.05 --seed 3 --threads 1 --steps 2 --no-eval)
	train "$work/fp32.json" --local "${flags[@]}" || fail "$model in fp32"
	train "$work/local.json" --local "${flags[@]}" --precision bf16 || fail "$model in bf16"
	train "$work/split.json" --server "127.0.0.1:$server_port" --cut 1:-1 "${flags[@]}" --precision bf16 ||
		fail "$model in bf16, split"
	equal "$model: parameters in bf16" "$(json_get "$work/split.json" param_sha256)" "$(json_get "$work/local.json" param_sha256)"
	equal "$model: the client's precision" "$(json_get "$work/split.json" client_precision)" bf16
	[ "$(json_get "$work/local.json" param_sha256)" != "$(json_get "$work/fp32.json" param_sha256)" ] ||
		fail "$model: in bf16 as in fp32"
done
stop_server
finish
