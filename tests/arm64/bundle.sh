#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bundle.sh BUILD: the tarball that deploy/bundle.sh --arch arm64 makes of a build for ARM64 is at most 12 MB, has all
# that its programs need, the C library included, their terms and the pages that its README points to; and its client and
# its server train under qemu, over TLS and by name, with no library but those that are in it.

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

for file in {bin,libexec}/gpserverd {bin,libexec}/gpclient lib/libc.so.6 LICENSE README.md SECURITY.md BUNDLE.txt; do
	[ -s "$home/$file" ] || fail "no $file in the bundle"
done
equal "libraries without terms" "$(awk '/\.so/ && $2 == "-"' "$home/BUNDLE.txt" | wc -l)" 0
while read -r page; do
	[ -e "$home/$page" ] || fail "README.md points to $page, which is not in the bundle"
done < <(grep -o ']([^)#:]*)' "$home/README.md" | sed 's/^](//; s/)$//' | sort -u)
programs=("$home"/lib/* "$home"/libexec/*)
equal "files for ARM64, of all" "$(readelf -h "${programs[@]}" | grep -c 'Machine: *AArch64')" "${#programs[@]}"

# As bin/gpclient starts it, with qemu in front of the loader; without a folder of libraries that it could find others in.
loader=$(sed -n 's/^exec "$here\(\/lib\/[^"]*\)".*/\1/p' "$home/bin/gpclient")
equal "the loader" "$loader" /lib/ld-linux-aarch64.so.1
mkdir "$work/programs"
for program in gpclient gpserverd; do
	cat >"$work/programs/$program" <<-END
	#!/bin/sh
	OMP_WAIT_POLICY=passive exec "$qemu" -L /nonexistent "$home$loader" --library-path "$home/lib" "$home/libexec/$program" "\$@"
	END
	chmod 755 "$work/programs/$program"
done
build=$work/programs
"$source_dir/deploy/gen-test-certs.sh" "$work/certs" >/dev/null 2>"$work/certs.log" || { cat "$work/certs.log" && exit 1; }
flags=(--model cnn --data synthetic:shape=3x8x8,classes=10,samples=64 --batch 16 --chunks 2 --steps 2 --threads 1)
start_server --threads 1 --tls-cert "$work/certs/server.pem" --tls-key "$work/certs/server.key" --tokens "$work/certs/tokens"
train "$work/local.json" --local "${flags[@]}" || fail "a local training"
train "$work/split.json" --server "localhost:$server_port" --tls-ca "$work/certs/ca.pem" --token-file "$work/certs/token" \
	"${flags[@]}" || fail "a training over TLS: $(cat "$work/server.log")"
stop_server
equal "parameters, split and local" "$(json_get "$work/split.json" param_sha256)" "$(json_get "$work/local.json" param_sha256)"
finish
