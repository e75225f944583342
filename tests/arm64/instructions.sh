#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# instructions.sh BUILD NATIVE: how many instructions the kernels of layers take in two training steps, those with NEON
# (gpclient for ARM64 in the folder BUILD) beside those with AVX2 (in the folder NATIVE), both counted under qemu. None takes
# more than 2.3 times as many: NEON's registers hold half as much. Prints a table. No speed is measured.

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
native=$(cd "${2:?usage: $0 BUILD NATIVE}" && pwd)
plugin=$native/tests/libinstructions.so
arm=$(dirname "$build")/gpclient # below launchers' folder
[ -x "$arm" ] || arm=$build/gpclient
for program in "$plugin" "$native/gpclient" "$arm"; do
	[ -x "$program" ] || { echo "no $program: build it first" && exit 77; }
done
for qemu in qemu-aarch64 qemu-x86_64; do # not the static ones, which load no plugins
	command -v $qemu >/dev/null || { echo "no $qemu: install qemu-user" && exit 77; }
done

# A function of a kernel's source, as a compiler has split it up, belongs to the kernel's row.
kernel_of='
	function kernel(name) {
		sub(/\..*/, "", name)
		if (name ~ /^product_[0-9]+_[0-9]+$/) return "products"
		if (name ~ /^transposed_[0-9]+_[0-9]+$/) return "transposed products"
		if (name ~ /^(forward_row|border_pixels?|sum_met)$/) return "depthwise, outputs"
		if (name ~ /^(data_row|data_row_stride[12]|data_borders?|data_rows_at)$/) return "depthwise, input gradients"
		if (name ~ /^(weights_row|weights_borders?|add_products)$/) return "depthwise, weight gradients"
		if (name ~ /^(read_images|find_pixels|place_of)$/) return "Winograd, images"
		if (name == "read_image_gradients") return "Winograd, gradients"
		if (name == "write_images") return "Winograd, outputs"
		if (name ~ /^(make_filters|filter_panel)$/) return "Winograd, filters"
		if (name == "make_gradient") return "Winograd, filter gradients"
		if (name ~ /^gp_bn_apply_.*_(avx2|neon)$/) return "batch norm"
		if (name ~ /^gp_bn_gradient_sum_.*_(avx2|neon)$/) return "batch norm, sums of gradients"
		if (name ~ /^gp_bn_gradient_.*_(avx2|neon)$/) return "batch norm, gradients"
		return ""
	}'

# The counts of one training, "MODEL KERNEL<tab>COUNT".
count() { # SET EMULATOR PROGRAM MODEL SHAPE BATCH
	local qemu=("$2")
	[ "$1" = neon ] || qemu+=(-cpu max)
	GP_SIMD=$1 OMP_WAIT_POLICY=passive "${qemu[@]}" -plugin "$plugin,out=$work/counts" "$3" train --local --model "$4" \
		--data "synthetic:shape=$5,classes=10,samples=16" --batch "$6" --chunks 1 --steps 2 --threads 1 --no-progress --json \
		>"$work/trained.json" 2>"$work/trained.log" || fail "$4 with $1: $(cat "$work/trained.log")"
	awk -v model="${4%%:*}" "$kernel_of"'
		{ name = kernel($2); if (name != "") sum[name] += $1 }
		END { for (name in sum) printf "%s, %s\t%d\n", model, name, sum[name] }' "$work/counts"
}

for_both() { # MODEL SHAPE BATCH
	count avx2 qemu-x86_64 "$native/gpclient" "$@" >>"$work/avx2"
	count neon qemu-aarch64 "$arm" "$@" >>"$work/neon"
}
for_both mobilenetv2 3x64x64 2
for_both resnet18 3x32x32 2

awk -F'\t' -v most=2.3 '
	NR == FNR { avx2[$1] = $2; next }
	!($1 in avx2) { next }
	{
		both++
		ratio = $2 / avx2[$1]
		printf "%-50s %12d %12d %6.2f\n", $1, avx2[$1], $2, ratio
		if (ratio > most)
			above++
	}
	END { if (both < 10) print "only " both + 0 " kernels were counted on both"; exit above > 0 || both < 10 }
' <(sort "$work/avx2") <(sort "$work/neon") >"$work/table"
within=$?
printf '%-50s %12s %12s %6s\n' kernel AVX2 NEON ratio
cat "$work/table"
[ $within -eq 0 ] || fail "a kernel takes more than 2.3 times the instructions of AVX2, or too few were counted"
finish
