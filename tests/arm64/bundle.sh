#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bundle.sh BUILD: the tarball that deploy/bundle.sh --arch arm64 makes of a build for ARM64 is at most 12 MB, has all
# that its programs need, the C library included, and trains under qemu with nothing but what is in it.

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
command -v aarch64-linux-gnu-strip >/dev/null || { echo "no tools for ARM64 here" && exit 77; }
qemu=$(sed -n 's/^GP_QEMU:[A-Z]*=//p' "$build/CMakeCache.txt")
"$source_dir/deploy/bundle.sh" --arch arm64 --build "$build" --out "$work" >"$work/name" 2>"$work/bundle.log" ||
	{ cat "$work/bundle.log" && exit 1; }
tarball=$(cat "$work/name")
[ "$(stat -c %s "$tarball")" -le $((12 * 1000 * 1000)) ] || fail "the tarball has $(stat -c %s "$tarball") bytes"
mkdir "$work/else where" && tar -xzf "$tarball" -C "$work/else where" || exit 1
home=$work/else\ where/$(basename "$tarball" .tar.gz)

# As bin/gpclient starts it, with qemu in front of the loader; without a folder of libraries that it could find others in.
loader=$(sed -n 's/^exec "$here\(\/lib\/[^"]*\)".*/\1/p' "$home/bin/gpclient")
OMP_WAIT_POLICY=passive "$qemu" -L /nonexistent "$home$loader" --library-path "$home/lib" "$home/libexec/gpclient" train \
	--local --model cnn --data synthetic:shape=3x8x8,classes=10,samples=64 --batch 16 --steps 2 --threads 1 --no-progress \
	--json >"$work/trained.json" 2>"$work/trained.log" || fail "training: $(cat "$work/trained.log")"
equal "the loader" "$loader" /lib/ld-linux-aarch64.so.1
finish
