#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bundle.sh: a folder that runs where nothing is installed, as one tarball:
# programs, the shared libraries that they need, licences, scripts. Not of the
# host: the C library with its loader, which only a bundle for another processor
# has, and, on a GPU host, the driver and cuBLAS. Test: tests/e2e/bundle.sh

set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
. deploy/deps.sh

build='' out=. tests=no cublas=no cuda=no work='' ending=gz arch=''
# For another processor than this one: the prefix of its tools, what runs its programs, and where its libraries are.
tools='' run=() foreign=() loader=ld-linux-aarch64.so.1

# Parts of glibc, which only work together with the host's loader.
readonly host_libraries='^(ld-linux.*|linux-vdso|libc|libm|libmvec|libpthread|libdl|librt|libresolv|libutil|libanl)\.so'

usage() {
	cat <<-END
	usage: deploy/bundle.sh [OPTION]...

	Writes gpsplit-VERSION-ARCHITECTURE.tar.gz (or .tar.xz): bin/gpserverd, bin/gpclient, lib/ with what they
	need but for the C library, licences, README.md, SECURITY.md and scripts. It can be
	unpacked anywhere, on any Linux whose glibc is not older than the one that it names.

	  --build DIR    programs of this build folder; default: builds the release preset first
	  --out DIR      where the tarball goes; default: here
	  --tests        with tests/gpu.sh and the test and benchmark programs that it runs
	  --xz           a .tar.xz: with a GPU's code in many test programs a third of the size
	  --with-cublas  with cuBLAS (half a gigabyte); without it a GPU host's CUDA toolkit gives it
	  --arch arm64   for ARM64, built here by the preset arm64; with its own C library and loader, so
	                 that it runs on any Linux for ARM64, however old its C library is
	  -h, --help     this text
	END
}

fail() { # STATUS TEXT
	echo "bundle.sh: $2" >&2
	exit "$1"
}

parse_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--tests) tests=yes ;;
		--xz) ending=xz ;;
		--with-cublas) cublas=yes ;;
		--build | --out | --arch)
			[ $# -ge 2 ] || fail 2 "$1 needs a value"
			printf -v "${1#--}" %s "$2"
			shift
			;;
		*) fail 2 "unknown option '$1'; see --help" ;;
		esac
		shift
	done
}

# Takes what --arch says.
set_architecture() {
	case $arch in
	'') return ;;
	arm64) ;;
	*) fail 2 "--arch $arch: arm64 is all that bundles can be made for from another machine" ;;
	esac
	[ "$tests$cublas" = nono ] || fail 2 "--arch goes with neither --tests nor --with-cublas"
	tools=aarch64-linux-gnu-
	foreign=(/lib/aarch64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/aarch64-linux-gnu/lib)
}

build_arm64() {
	install_missing_for_arm64 || exit 1
	build=build/arm64-release
	cmake --preset arm64 -B $build -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O3 -DNDEBUG" -DGP_FAULTS=OFF \
		-DGP_TESTS=OFF >"$work/configure.log" 2>&1 || { cat "$work/configure.log" >&2 && exit 1; }
	cmake --build $build -j"$(nproc)" --target gpclient gpserverd >&2 || exit 1
}

build_release() {
	local targets=(gpclient gpserverd)
	install_missing "${build_packages[@]}" || exit 1
	[ $tests = no ] || install_missing "${test_packages[@]}" || exit 1
	[ $tests = no ] || targets=(all)
	cmake --preset release -DGP_TESTS="$([ $tests = yes ] && echo ON || echo OFF)" >"$work/configure.log" 2>&1 ||
		{ cat "$work/configure.log" >&2 && exit 1; }
	cmake --build --preset release -j"$(nproc)" --target "${targets[@]}" >&2 || exit 1
	build=build/release
}

# What a program for another processor needs, and what that needs, the C library included, as "NAME PATH".
needed_abroad() { # FILE
	local file name path files=("$1") known=' '
	while [ ${#files[@]} -gt 0 ]; do
		file=${files[0]} files=("${files[@]:1}")
		for name in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
			[[ $known != *" $name "* ]] || continue
			known+="$name "
			path=$(find "${foreign[@]}" -maxdepth 1 -name "$name" 2>/dev/null | head -1)
			[ -n "$path" ] || { echo "cannot find $name" >&2 && return 1; }
			echo "$name $path"
			files+=("$path")
		done
	done
}

# What ldd finds for a program, as "NAME PATH", less what the host gives.
needed() { # FILE
	[ -z "$arch" ] || { needed_abroad "$1" && return; }
	ldd "$1" | awk '$2 == "=>" && $3 == "not" { print "cannot find " $1 >"/dev/stderr"; bad = 1 }
		$2 == "=>" && $3 ~ /^\// { print $1, $3 }
		END { exit bad }' | grep -Ev "$host_libraries"
}

copy_program() { # FILE FOLDER
	[ -x "$1" ] || fail 3 "no $1: build it first"
	readelf -d "$1" | awk '/\(RPATH\)/ && index($0, "[$ORIGIN/../lib]") { found = 1 } END { exit !found }' ||
		fail 3 "$1 does not look for libraries beside itself"
	mkdir -p "$stage/$2"
	cp "$1" "$stage/$2/" && "${tools}strip" --strip-unneeded "$stage/$2/$(basename "$1")" || exit 1
	needed "$1" >>"$work/needed" || fail 3 "$1 lacks libraries"
}

# A program that is started by the loader of the bundle, with its C library; OMP_WAIT_POLICY: it does not have to start
# itself again to set that, which under a loader it cannot (common/base/threads.h).
copy_launched() { # FILE
	local program
	program=$(basename "$1")
	copy_program "$1" libexec
	mkdir -p "$stage/bin"
	cat >"$stage/bin/$program" <<-END
	#!/bin/sh
	# Starts $program with the loader and the C library of this bundle.
	here=\$(cd "\$(dirname "\$(readlink -f "\$0")")/.." && pwd) || exit 1
	OMP_WAIT_POLICY=\${OMP_WAIT_POLICY:-passive}
	export OMP_WAIT_POLICY
	exec "\$here/lib/$loader" --argv0 "\$0" --library-path "\$here/lib" "\$here/libexec/$program" "\$@"
	END
	chmod 755 "$stage/bin/$program"
}

copy_loader() {
	chmod 755 "$stage/lib/$loader" || exit 1
}

copy_libraries() {
	local name path
	mkdir -p "$stage/lib"
	sort -u "$work/needed" >"$work/libraries"
	while read -r name path; do
		cp -L "$path" "$stage/lib/$name" || exit 1
		chmod u+w,a-x "$stage/lib/$name"
		[ -z "$arch" ] || "${tools}strip" --strip-unneeded "$stage/lib/$name" || exit 1
	done <"$work/libraries"
}

cached() { # VARIABLE-OF-CMAKE
	sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}

copy_cublas() {
	local folder name path
	[ "$cuda" = on ] || fail 3 "$build has no CUDA device: nothing to take cuBLAS for"
	folder=$(cached gp_cuda_libraries)
	for name in libcublas libcublasLt; do
		[ -e "$folder/$name.so" ] || fail 3 "no $name.so in $folder"
		path=$(readlink -f "$folder/$name.so")
		name=$(readelf -d "$path" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
		cp "$path" "$stage/lib/$name" || exit 1
		echo "$name $path" >>"$work/libraries"
	done
}

# Debian keeps the terms of every package; of other systems' libraries the names must do.
copy_licences() {
	local name path package
	mkdir -p "$stage/licences"
	while read -r name path; do
		package=$(dpkg-query -S "$(readlink -f "$path")" "$path" 2>/dev/null | sed -n '1s/:.*//p')
		[ -n "$package" ] || package=$(dpkg-query -S "/usr$path" 2>/dev/null | sed -n '1s/:.*//p')
		echo "$name ${package:--}"
		[ -z "$package" ] || cp -L "/usr/share/doc/$package/copyright" "$stage/licences/$package" 2>/dev/null
	done <"$work/libraries" >"$work/origins"
	# Headers that are compiled into programs for ARM64, where they are installed.
	case $(cached GP_SIMDE) in
	'' | *-NOTFOUND) ;;
	*)
		cp /usr/share/doc/libsimde-dev/copyright "$stage/licences/libsimde-dev" 2>/dev/null ||
			fail 3 "no terms of SIMDe in /usr/share/doc/libsimde-dev: install libsimde-dev"
		;;
	esac
}

copy_texts() {
	cp LICENSE README.md SECURITY.md "$stage/" || exit 1
	mkdir -p "$stage/deploy" "$stage/tests/bench"
	cp deploy/gen-test-certs.sh deploy/json.sh deploy/link.sh "$stage/deploy/"
	# What README.md points to.
	local page
	while read -r page; do
		[ ! -f "$page" ] || install -D -m 644 "$page" "$stage/$page" || exit 1
	done < <(grep -o ']([^)#]*' README.md | sed 's/^](//' | sort -u)
	cp tests/bench/*.md "$stage/tests/bench/"
}

copy_tests() {
	local program
	for program in "$build"/tests/test_cuda* "$build"/tests/bench_gpu_*; do
		[ ! -f "$program" ] || copy_program "$program" libexec
	done
	mkdir -p "$stage/tests/bench" "$stage/tests/tools"
	cp -r tests/gpu.sh tests/golden "$stage/tests/" && cp tests/bench/split_gpu.sh tests/bench/steps_gpu.sh "$stage/tests/bench/" &&
		cp tests/tools/torch_gpu_step.py "$stage/tests/tools/" || exit 1
}

# The newest version of glibc that any of the files asks for.
glibc_floor() { # FIND-ARGUMENT...
	find "$stage/bin" "$stage/lib" -type f "$@" -exec readelf -V {} + 2>/dev/null |
		grep -o 'GLIBC_[0-9.]*[0-9]' | sort -uV | tail -1 | sed 's/GLIBC_//'
}

# A system whose compiler is as new as ours may have an older glibc: its libstdc++ then does, and ours does not.
describe_needs() {
	local floor without
	[ -z "$arch" ] || { echo "needs       Linux for ARM64; the C library is in lib/" && return; }
	floor=$(glibc_floor) without=$(glibc_floor ! -name 'libstdc++*')
	echo "needs       Linux, glibc $floor or newer"
	[ "$floor" = "$without" ] || echo "            (glibc $without will do when lib/libstdc++.so.6 is removed and the system has its own of GCC $(gcc -dumpversion))"
	[ $cublas = yes ] || [ "$cuda" != on ] ||
		echo "            for a GPU: its driver; cuBLAS of a CUDA toolkit, in the loader's path, LD_LIBRARY_PATH or /usr/local/cuda"
}

describe() {
	local commit
	commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || commit=unknown
	[ -z "$(git status --porcelain 2>/dev/null)" ] || commit="$commit, with changes"
	echo "$name"
	echo "commit      $commit"
	# shellcheck disable=SC1091
	echo "built on    $(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-?}"), $(uname -m)"
	echo "GPU code    $cuda $(cached gp_cuda_toolkit)"
	[ $cublas = no ] || echo "cuBLAS      in lib/, under the terms of NVIDIA's CUDA toolkit"
	describe_needs
	cat <<-END
	start       bin/gpserverd --help, bin/gpclient --help

	Shared libraries in lib/ and the packages that they are from; terms in licences/:
	END
	column -t "$work/origins" 2>/dev/null || cat "$work/origins"
}

# Far enough back for xz to see that programs have kernels in common.
shrink() {
	case $ending in
	gz) gzip -n ;;
	xz) XZ_OPT=${XZ_OPT:--9} xz -T1 ;;
	esac
}

# Equal inputs make equal tarballs.
pack() { # FILE
	local when
	when=$(git log -1 --format=%ct 2>/dev/null) || when=$(date +%s)
	tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" -cf - "$name" | shrink >"$1.part" &&
		mv "$1.part" "$1"
}

main() {
	local version
	parse_options "$@"
	set_architecture
	work=$(mktemp -d) || exit 1
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	[ -z "$arch" ] || [ -n "$build" ] || build_arm64
	[ -n "$build" ] || build_release
	[ -x "$build/gpclient" ] || fail 3 "no gpclient in $build: build it first"
	cuda=$(cached gp_cuda_device)
	[ -z "$arch" ] || run=("$(cached GP_QEMU)")
	version=$("${run[@]}" "$build/gpclient" --version | awk '{ print $NF }')
	[ -n "$version" ] || fail 3 "$build/gpclient does not run"
	name=gpsplit-$version-${arch:-$(uname -m)} stage=$work/$name
	mkdir -p "$stage" "$out" || exit 1
	trap 'rm -rf "$work"; rm -f "$out/$name".tar.*.part' EXIT
	if [ -n "$arch" ]; then
		copy_launched "$build/gpserverd"
		copy_launched "$build/gpclient"
	else
		copy_program "$build/gpserverd" bin
		copy_program "$build/gpclient" bin
	fi
	[ $tests = no ] || copy_tests
	copy_libraries
	[ -z "$arch" ] || copy_loader
	[ $cublas = no ] || copy_cublas
	copy_licences
	copy_texts
	describe >"$stage/BUNDLE.txt"
	pack "$out/$name.tar.$ending" || fail 1 "cannot write $out/$name.tar.$ending"
	sed -n '/^needs/,/^start/{/^start/!p}' "$stage/BUNDLE.txt" >&2
	echo "$out/$name.tar.$ending"
}

main "$@"
