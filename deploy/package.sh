#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# package.sh: Debian packages of the programs, and a trial of them in a root of their own: installed, upgraded, removed, purged.

set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
. deploy/deps.sh

out=build/packages build=build/package try=no cuda=auto root=''

usage() {
	cat <<-END
	usage: deploy/package.sh [OPTION]...

	Builds gpsplit-client, gpsplit-server and, where nvcc is, gpsplit-cuda as Debian packages.

	  --out DIR    where the packages go; default: build/packages
	  --no-cuda    without the CUDA device
	  --try        then looks at them with lintian, and installs, upgrades, removes and purges them in a Debian that mmdebstrap
	               makes; needs root and Debian's packages lintian and mmdebstrap
	  -h, --help   this text
	END
}

fail() { # STATUS TEXT
	echo "package.sh: $2" >&2
	exit "$1"
}

parse_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--no-cuda) cuda=off ;;
		--try) try=yes ;;
		--out)
			[ $# -ge 2 ] || fail 2 "$1 needs a value"
			out=$2
			shift
			;;
		*) fail 2 "unknown option '$1'; see --help" ;;
		esac
		shift
	done
}

make_packages() {
	install_missing "${build_packages[@]}" dpkg-dev file || exit 1
	mkdir -p "$out" || exit 1
	out=$(cd "$out" && pwd)
	rm -f "$out"/gpsplit-*.deb
	cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE='-O3 -DNDEBUG' -DGP_TESTS=OFF -DGP_CUDA=$cuda \
		-DGP_PACKAGE=ON -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_SKIP_RPATH=ON -DGP_ZSH_COMPLETIONS=/usr/share/zsh/vendor-completions &&
		cmake --build $build -j"$(nproc)" && (cd $build && cpack -B "$out") || exit 1
}

inside() { # COMMAND...
	chroot "$root" env DEBIAN_FRONTEND=noninteractive "$@"
}

has() { # WHAT COMMAND...
	inside sh -c "$2" >/dev/null 2>&1 || fail 1 "$1"
	echo "ok: $1"
}

# The packages again, as of a later version.
make_later() {
	local folder=$root/later
	mkdir -p "$folder"
	dpkg-deb -R "$out"/gpsplit-server_*.deb "$folder/tree" && sed -i 's/^Version: .*/&+later/' "$folder/tree/DEBIAN/control" &&
		dpkg-deb --root-owner-group -b "$folder/tree" "$folder/server.deb" >/dev/null
}

try_packages() {
	[ "$(id -u)" -eq 0 ] || fail 1 "--try needs root"
	command -v lintian >/dev/null && command -v mmdebstrap >/dev/null || fail 1 "--try needs lintian and mmdebstrap"
	lintian --allow-root --fail-on error "$out"/gpsplit-*.deb || fail 1 "lintian found errors"
	root=$(mktemp -d)
	trap 'rm -rf "$root"' EXIT
	mmdebstrap --mode=root --variant=apt bookworm "$root" >/dev/null 2>"$root.log" || fail 1 "mmdebstrap failed: $(cat "$root.log")"
	cp "$out"/gpsplit-client_*.deb "$out"/gpsplit-server_*.deb "$root/tmp" || exit 1
	inside sh -c 'apt-get -q update && apt-get -q -y install --no-install-recommends /tmp/*.deb' >/dev/null || fail 1 "installation failed"
	has "both programs run" 'gpserverd --version && gpclient --version'
	has "the user is there" 'id gpsplit'
	has "the unit is enabled" 'test -e /etc/systemd/system/multi-user.target.wants/gpserverd.service'
	has "the options belong to root and are for gpsplit to read" 'test "$(stat -c %U:%G:%a /etc/gpsplit)" = root:gpsplit:750'
	inside sh -c 'echo "max-sessions = 7" >>/etc/gpsplit/gpserverd.conf; install -d -o gpsplit /var/lib/gpsplit; touch /var/lib/gpsplit/run'
	make_later || fail 1 "no later package"
	inside dpkg --force-confdef --force-confold -i /later/server.deb >/dev/null || fail 1 "upgrade failed"
	has "an upgrade leaves changed options and checkpoints" 'grep -q 7 /etc/gpsplit/gpserverd.conf && test -e /var/lib/gpsplit/run'
	inside dpkg -r gpsplit-server >/dev/null || fail 1 "removal failed"
	has "removed, options and checkpoints stay" '! test -e /usr/bin/gpserverd && test -e /etc/gpsplit/gpserverd.conf && test -e /var/lib/gpsplit/run'
	inside dpkg -P gpsplit-server gpsplit-client >/dev/null || fail 1 "purge failed"
	has "purged, nothing is left" '! test -e /etc/gpsplit && ! test -e /var/lib/gpsplit && ! find /etc/systemd /usr /lib/systemd /var/lib -name "*gpserverd*" | grep -q .'
}

parse_options "$@"
make_packages
[ $try = no ] || try_packages
ls -l "$out"/gpsplit-*.deb
