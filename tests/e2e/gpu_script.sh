#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/gpu.sh from an unpacked bundle, on the emulated device: the script, the
# programs it runs and the bundle that brings them. Only the smallest test
# program: the others are tests of their own.

# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
command -v readelf >/dev/null || { echo "no binutils here" && exit 77; }
grep -q '^gp_cuda_device:[A-Z]*=emulated' "$build/CMakeCache.txt" || { echo "no emulated device in this build" && exit 77; }
case $(readelf -d "$build/gpclient" 2>/dev/null) in
*libasan* | *libtsan*) echo "a sanitizer's build is not for other hosts" && exit 77 ;;
esac

unpack_bundle() {
	"$source_dir/deploy/bundle.sh" --build "$build" --tests --out "$work" >"$work/name" 2>"$work/bundle.log" ||
		{ cat "$work/bundle.log" && exit 1; }
	tar -xzf "$(cat "$work/name")" -C "$work" || exit 1
	bundle=$work/$(basename "$(cat "$work/name")" .tar.gz)
}

has() { # EXTENDED-REGULAR-EXPRESSION WHAT
	if grep -qE "$1" "$work/table"; then
		echo "ok: $2"
	else
		fail "$2: no line matches '$1'"
	fi
}

unpack_bundle
"$bundle/tests/gpu.sh" --emulated --rounds 1 --only test_cuda_rt --out "$work/table" >"$work/said" 2>&1
equal "status of gpu.sh" $? 0
equal "lines said that are not in the file" "$(diff "$work/said" "$work/table" | wc -l)" 0
has '^program .*gpserverd [0-9.]+, commit [0-9a-f]{12}' "program and commit"
has '^test_cuda_rt +[0-9]+ passed' "a test program's count"
has '^equal +cnn: split and in one process \([0-9a-f]{12}\)' "a split training equals one without a link"
has '^close +cnn: loss of two steps on the device and on the CPU' "the CPU device's loss"
has '^not run: there is no card' "the sanitizer has nothing to do"
has '^uniform:bits=8 +8\.[0-9]+ +[0-9.]+ ' "a codec's times"
has '^mobilenetv2:width=0.25 32x32x3 2/2 +bf16 +[0-9.]+' "a step's time"
has '^sortquant:bits=6,split=2 +[0-9.]+ +[0-9.]+ .* [0-9.]+$' "a split step's time"
has '^== 0 failures' "no failures"
[ "$failures" -eq 0 ] || cat "$work/said"
"$bundle/tests/gpu.sh" --emulated --only no_such_test tests >/dev/null 2>&1
equal "status of gpu.sh without a test to run" $? 1
finish
