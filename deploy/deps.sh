# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh: the Debian packages that the project needs, and how the scripts of
# this folder install those that are missing. Sourced, not run.

# shellcheck disable=SC2034 # used by the scripts that source this
{
	# ocl-icd-opencl-dev: Debian's oneDNN is built with OpenCL and its CMake file asks for it; nothing here uses it.
	build_packages=(gcc g++ libc6-dev cmake ninja-build pkg-config protobuf-c-compiler libdnnl-dev ocl-icd-opencl-dev
		libuv1-dev libprotobuf-c-dev libjansson-dev libssl-dev libxxhash-dev zlib1g-dev libturbojpeg0-dev
		libpng-dev libzstd-dev libpcre2-dev libutf8proc-dev libmicrohttpd-dev libgnutls28-dev)
	test_packages=(libcmocka-dev iproute2 openssl curl dataset-fashion-mnist)
	data_packages=(dataset-fashion-mnist)
	# To build for ARM64 on another machine, and to run what was built: a compiler, tools of the machine, libraries of ARM64.
	arm64_tools=(gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross cmake ninja-build pkg-config
		protobuf-c-compiler libsimde-dev qemu-user-static qemu-user iproute2 openssl dataset-fashion-mnist)
	arm64_libraries=(libc6 libgomp1 libuv1-dev libprotobuf-c-dev libjansson-dev libssl-dev libxxhash-dev zlib1g-dev
		libturbojpeg0-dev libpng-dev libzstd-dev libpcre2-dev libutf8proc-dev libmicrohttpd-dev libgnutls28-dev
		libcmocka-dev)
}

missing_packages() { # PACKAGE...
	local package
	for package in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
	done
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

apt_install() { # PACKAGE...
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 \
		install --no-install-recommends "$@"
}

# Installs what is missing of the packages; says nothing when there is nothing to do. The lists of packages are
# fetched only when the ones at hand do not do. apt's output goes to stderr.
install_missing() { # PACKAGE...
	local missing
	if ! command -v dpkg-query >/dev/null; then
		echo "not a Debian: going on in the hope that these, or what they are called here, are installed: $*" >&2
		return 0
	fi
	mapfile -t missing < <(missing_packages "$@")
	[ ${#missing[@]} -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
		echo "missing packages, and neither root nor sudo: apt-get install ${missing[*]}" >&2
		return 1
	fi
	echo "installing ${missing[*]}" >&2
	apt_install "${missing[@]}" >&2 && return 0
	as_root apt-get -q update >&2 && apt_install "${missing[@]}" >&2
}

# What building for ARM64 needs on a Debian of another kind; its packages stand beside the machine's own.
install_missing_for_arm64() {
	if command -v dpkg >/dev/null && ! { dpkg --print-foreign-architectures && dpkg --print-architecture; } | grep -qx arm64; then
		as_root dpkg --add-architecture arm64 && as_root apt-get -q update >&2 || return 1
	fi
	install_missing "${arm64_tools[@]}" "${arm64_libraries[@]/%/:arm64}"
}
