#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mixed_ends.sh BUILD NATIVE: a client for ARM64 under qemu (in the folder BUILD) and a server of this machine (in the folder
# NATIVE). Every codec makes the same payloads and remembers the same at both; trainings with codecs that remember go on
# over a link that breaks, for which both ends compare what they remember, and end where they end without a cut. Without
# oneDNN a training has the same parameters, bit for bit, split between both processors and on either of them.

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

flags=(--model cnn --data synthetic:shape=3x8x8,classes=10,samples=64 --batch 16 --chunks 2 --lr 0.05 --seed 3 --threads 1
	--steps 6)
start_mixed() {
	build=$native
	start_server --threads 1 --idle-timeout 60s
	build=$arm
}

over_link() { # NAME LINK-FLAG...
	build=$native
	start_link "${@:2}"
	build=$arm
	train "$work/$1.json" --server "127.0.0.1:$link_port" "${flags[@]}" "${option[@]}" || fail "$codec: $1"
	stop_link
}

start_mixed
for codec in raw ef+uniform:bits=6 delta+uniform:bits=8 ef+topk:ratio=0.1 alq:bits=3 sortquant:bits=6,split=2+rans; do
	option=(--codec "$codec")
	[[ $codec != delta* ]] || option=(--codec-act-up "$codec")
	over_link whole
	bytes=$(json_get "$work/whole.json" wire_up_bytes)
	over_link cut --drop-every $((bytes / 3)) --direction up --times 2 --seed 5
	equal "$codec: parameters over a link that breaks" "$(json_get "$work/cut.json" param_sha256)" \
		"$(json_get "$work/whole.json" param_sha256)"
	[ "$(json_get "$work/cut.json" reconnects)" -gt 0 ] || fail "$codec: no cut was counted"
done
stop_server

# Networks that go through own kernels of every kind: products, depthwise rows, Winograd, attention.
export GP_ENGINE=own
start_mixed
for model in mobilenetv2:width=0.25 resnet18 roberta:layers=1,dim=32,heads=2,ffn=64,vocab=100,max=18,classes=2; do
	data=synthetic:shape=3x32x32,classes=10,samples=16
	[[ $model != roberta* ]] || data=synthetic:tokens=16,vocab=100,classes=2,samples=16
	flags=(--model "$model" --data "$data" --batch 4 --chunks 2 --lr 0.05 --seed 3 --threads 1 --steps 2)
	build=$native
	train "$work/native.json" --local "${flags[@]}" || fail "$model on this machine"
	build=$arm
	train "$work/arm.json" --local "${flags[@]}" || fail "$model on ARM64"
	train "$work/mixed.json" --server "127.0.0.1:$server_port" --cut 1:-1 "${flags[@]}" || fail "$model on both"
	for run in arm mixed; do
		equal "$model: parameters ($run)" "$(json_get "$work/$run.json" param_sha256)" \
			"$(json_get "$work/native.json" param_sha256)"
	done
done
stop_server
finish
