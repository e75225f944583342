#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The tarball of deploy/bundle.sh, unpacked in another folder, trains on a host
# that has nothing but the C library: a root folder with the bundle, glibc's
# files and no other, without an environment. Where no root folder can be set
# up, the same on this host. Also: what the bundle tells about itself.

# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin
command -v readelf >/dev/null || { echo "no binutils here" && exit 77; }
case $(readelf -d "$build/gpclient" 2>/dev/null) in
*libasan* | *libtsan*) echo "a sanitizer's build is not for other hosts" && exit 77 ;;
esac

# Copies the files of the C library that the programs name.
copy_c_library() { # PROGRAM...
	local file
	for file in $(ldd "$@" "$home"/lib/*.so* 2>/dev/null | awk '/ld-linux|lib(c|m|mvec|pthread|dl|rt|resolv)\.so/ { print $1 ~ /^\// ? $1 : $3 }' | sort -u); do
		mkdir -p "$base$(dirname "$file")"
		cp -L "$file" "$base$file"
	done
}

# Becomes a program of the bundle there: for subshells.
inside() { # PROGRAM FLAG...
	if [ -n "$jailed" ]; then
		# shellcheck disable=SC2016 # expands in there
		exec "${enter[@]}" "$BASH" -c 'mount --rbind /proc "$1/proc" && exec env -i "$2" "${@:3}"' in "$base" \
			"$(command -v chroot)" "$base" "/else where/$name/bin/$1" "${@:2}"
	else
		exec env -i "$home/bin/$1" "${@:2}"
	fi
}

set_up() {
	base=$work/root jailed=yes
	mkdir -p "$base/else where" "$base/tmp" "$base/proc" || exit 1
	"$source_dir/deploy/bundle.sh" --build "$build" --out "$work" >"$work/name" 2>"$work/bundle.log" ||
		{ cat "$work/bundle.log" && exit 1; }
	name=$(basename "$(cat "$work/name")" .tar.gz)
	tar -xzf "$work/$name.tar.gz" -C "$base/else where" || exit 1
	home=$base/else\ where/$name
	copy_c_library "$home/bin/gpclient" "$home/bin/gpserverd"
	enter=(unshare --mount) # /proc tells programs where they are; the mount ends with them
	[ "$(id -u)" -eq 0 ] || enter=(unshare --user --map-root-user --mount)
	if ! (inside gpclient --version) >/dev/null 2>"$work/enter.log"; then
		case $(cat "$work/enter.log") in
		*"not permitted"* | *"ermission denied"*) echo "no root folder of one's own here: on this host instead" && jailed='' ;;
		*) echo "cannot start in the root folder:" && cat "$work/enter.log" && exit 1 ;;
		esac
	fi
}

check_contents() {
	local file
	for file in bin/gpserverd bin/gpclient LICENSE README.md SECURITY.md BUNDLE.txt deploy/link.sh; do
		[ -s "$home/$file" ] || fail "no $file in the bundle"
	done
	while read -r file; do
		[ -e "$home/$file" ] || fail "README.md points to $file, which is not in the bundle"
	done < <(grep -o ']([^)#:]*)' "$home/README.md" | sed 's/^](//; s/)$//' | sort -u)
	equal "libraries of the C library in it" "$(find "$home/lib" -name 'ld-linux*' -o -name 'libc.*' -o -name 'libm.*' | wc -l)" 0
	equal "libraries without a licence" "$(awk '/\.so/ && $2 == "-"' "$home/BUNDLE.txt" | wc -l)" 0
	grep -q '^needs  *Linux, glibc 2\.[0-9]* or newer' "$home/BUNDLE.txt" || fail "BUNDLE.txt does not tell the glibc"
}

train_inside() { # DEVICE
	local port here=$base
	[ -z "$jailed" ] || here='' # how the programs see it
	"$home/deploy/gen-test-certs.sh" --replace "$base/tmp" >/dev/null 2>"$work/certs.log" || { cat "$work/certs.log" && exit 1; }
	inside gpserverd --listen 127.0.0.1:0 --port-file "$here/tmp/port" --device "$1" --tls-cert "$here/tmp/server.pem" \
		--tls-key "$here/tmp/server.key" --tokens "$here/tmp/tokens" 2>"$work/server.log" &
	server_pid=$!
	for _ in $(seq 600); do
		[ ! -s "$base/tmp/port" ] || break
		kill -0 $server_pid 2>/dev/null || { cat "$work/server.log" && exit 1; }
		sleep 0.05
	done
	port=$(cat "$base/tmp/port")
	(inside gpclient train --server "127.0.0.1:$port" --model cnn --data synthetic:shape=3x32x32,classes=10,samples=64 \
		--batch 16 --chunks 4 --steps 4 --codec uniform:bits=8 --threads 1 --json --no-progress \
		--tls-ca "$here/tmp/ca.pem" --token-file "$here/tmp/token") >"$work/split.json" 2>"$work/client.log" ||
		{ fail "training with the bundle" && cat "$work/client.log" "$work/server.log"; }
	equal "steps trained on $1" "$(json_get "$work/split.json" steps)" 4
	stop_server
	rm -f "$base/tmp/port"
}

# The same, shrunk better.
check_xz() {
	command -v xz >/dev/null || return 0
	XZ_OPT=-0 "$source_dir/deploy/bundle.sh" --build "$build" --xz --out "$work" >"$work/name" 2>"$work/bundle.log" ||
		fail "no .tar.xz: $(cat "$work/bundle.log")"
	cmp -s <(gzip -dc "$work/$name.tar.gz") <(xz -dc "$(cat "$work/name")") || fail "another tarball in the .tar.xz"
}

set_up
check_contents
check_xz
train_inside cpu
! grep -q '^gp_cuda_device:[A-Z]*=emulated' "$build/CMakeCache.txt" || train_inside cuda-emulated
finish
