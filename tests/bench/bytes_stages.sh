#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bytes_stages.sh BUILD-FOLDER WEIGHTS CIFAR10: what zstd, bitshuffle and rans save, and cost, behind
# other codecs on what crosses a cut of a trained network: ResNet-20 with published weights,
# before and after a ReLU in its middle. A table per tensor; "pays below" is the link rate
# at which the bits that the stage saves take as long as its own encoding and decoding.
# There have to be chains whose stage is used and such whose stage is skipped by its sample; in
# parentheses what asking the sample costs in encoding. Takes 30 s; nothing else should
# run (WRAP=COMMAND is put before what is timed). Figures: RESULTS.md

# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/../e2e/lib.sh"
weights=${2:?safetensors file of ResNet-20} cifar=${3:?folder of CIFAR-10}

# Chains without and with byte stages.
bases='raw bf16 uniform:bits=8 uniform:bits=4 sortquant:bits=6,split=2 sortquant:bits=12,split=4 topk:ratio=0.25+uniform:bits=8
	kmeans:bits=4'
arranged=' uniform:bits=8 uniform:bits=4 sortquant:bits=6,split=2 kmeans:bits=4 '
shuffled=' raw bf16 uniform:bits=8 sortquant:bits=12,split=4 '

# 64 images are one chunk: 16 channels of 32x32, 4 MiB a tensor. Cut 13 is before the ReLU that ends the first stage, cut
# 14 behind it.
"$build/gpclient" capture --model resnet20:cuts=fine --cut 13:14 --batch 64 --init "$weights" --threads 1 \
	--data "cifar10:$cifar,mean=.485/.456/.406,std=.229/.224/.225" --out "$work/t.safetensors" || exit 1

for base in $bases; do
	specs+=("$base" "$base+zstd")
	[[ $shuffled = *" $base "* ]] && specs+=("$base+bitshuffle+zstd")
	specs+=("$base+rans")
	[[ $arranged = *" $base "* ]] && specs+=("$base+rans:predict=map,tables=channel")
done

# One row for each spec with stages, from lines "codecs.I.KEY=VALUE"; the one without stages stands before it.
print_rows() { # SPEC...
	awk -F= -v specs="$*" '
	{ split($1, path, "."); value[path[2], path[3]] = substr($0, length($1) + 2); if (path[3] == "skipped") skip[path[2]] = skip[path[2]] " " $2 }
	function ns(i, way) { return 1 / value[i, way "_gelem_s"] }
	END {
		n = split(specs, spec, " ")
		for (i = 0; i < n; i++) {
			if (spec[i + 1] !~ /zstd|rans/) { base = i; continue }
			before = value[base, "bits_per_element"]; after = value[i, "bits_per_element"]
			cost = ns(i, "encode") + ns(i, "decode") - ns(base, "encode") - ns(base, "decode")
			none = skip[i] ~ /zstd|rans/
			pays = none || after >= before ? "-" : cost <= 0 ? "any" : sprintf("%.2f Gbit/s", (before - after) / cost)
			# What asking cost: beside the chain without the stages that were skipped.
			asked = (ns(i, "encode") - ns(none ? base : i - 1, "encode")) * value[i, "elements"] * 1e-6
			state = skip[i] == "" ? "used" : sprintf("skipped:%s (%+.2f ms)", skip[i], asked)
			printf "| `%s` | %.2f | %.2f | %.1f %% | %.2f, %.2f | %.2f, %.2f | %s | %s |\n", spec[i + 1], before, after,
				100 * (1 - after / before), 1 / ns(base, "encode"), 1 / ns(base, "decode"), 1 / ns(i, "encode"),
				1 / ns(i, "decode"), pays, state
		}
	}'
}

for tensor in act_up act_down grad_up grad_down; do
	${WRAP:-} "$build/gpclient" codec compare --in "$work/t.safetensors" --tensor $tensor --json "${specs[@]}" \
		>"$work/$tensor.json" || exit 1
	echo
	echo "| $tensor: chain | bits per element without | with | saved | encode, decode without (G elements/s) | with | pays below | stages |"
	echo "|---|---:|---:|---:|---|---|---:|---|"
	json_flat "$work/$tensor.json" | print_rows "${specs[@]}" | tee -a "$work/rows"
done
echo

has() { # TEXT WHAT
	if grep -q "$1" "$work/rows"; then echo "ok: $2"; else fail "$2: none"; fi
}
has '| used |$' "stages that are used"
has '| skipped: zstd (.*) |$' "zstd skipped by its sample"
has '| skipped: bitshuffle (.*) |$' "bitshuffle skipped, zstd used"
has '| skipped: bitshuffle zstd (.*) |$' "both skipped"
finish
