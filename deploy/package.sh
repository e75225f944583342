#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# package.sh: Debian packages of the programs, and a trial of them in a root of their own: installed, upgraded, removed, purged.

set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
. deploy/deps.sh

out=build/packages build=build/package try=no cuda=auto root='' service=''

usage() {
	cat <<-END
	usage: deploy/package.sh [OPTION]...

	Builds gpsplit-client, gpsplit-server and, where nvcc is, gpsplit-cuda as Debian packages.

	  --out DIR    where the packages go, in place of those that are there; default: build/packages
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

apt_does() { # WHAT COMMAND
	inside sh -c "$2" >"$root.log" 2>&1 || fail 1 "$1 failed: $(tail -20 "$root.log")"
}

# A package again, as of a later version, into the root's folder "later".
make_later() { # NAME
	local folder=$root/later
	mkdir -p "$folder" && rm -rf "$folder/tree" && dpkg-deb -R "$out/$1"_*.deb "$folder/tree" &&
		sed -i 's/^Version: .*/&+later/; s/\(gpsplit-[a-z]* (= [^)]*\))/\1+later)/' "$folder/tree/DEBIAN/control" &&
		dpkg-deb --root-owner-group -b "$folder/tree" "$folder/$1.deb" >/dev/null
}

# The root's Debian, with the sources of packages and the proxies that apt has here.
make_root() {
	local work
	work=$(mktemp -d) && root=$work/root && mkdir "$root" && chmod 755 "$work" "$root" || exit 1
	trap '[ -z "$service" ] || kill "$service"; rm -rf "${root%/root}"' EXIT
	apt-config dump Acquire >"$work/apt"
	mmdebstrap --mode=root --variant=apt --aptopt="$work/apt" bookworm "$root" >/dev/null 2>"$work/log" ||
		fail 1 "mmdebstrap failed: $(cat "$work/log")"
}

# There is no systemd in the root: what the unit would run is run as it says, as its user, at a free port.
start_service() {
	local command
	command=$(sed -n 's/^ExecStart=//p' "$root/lib/systemd/system/gpserverd.service")
	[ -n "$command" ] || fail 1 "the unit has no ExecStart"
	inside install -d -o gpsplit -g gpsplit -m 700 /var/lib/gpsplit /run/gpsplit
	rm -f "$root/run/gpsplit/port"
	# shellcheck disable=SC2086 # a command and its words
	chroot "$root" setpriv --reuid gpsplit --regid gpsplit --init-groups --no-new-privs $command --listen 127.0.0.1:0 \
		--port-file /run/gpsplit/port 2>"$root/run/service.log" &
	service=$!
	for _ in $(seq 600); do
		[ -s "$root/run/gpsplit/port" ] && return
		kill -0 $service 2>/dev/null || break
		sleep 0.1
	done
	fail 1 "the service does not start: $(cat "$root/run/service.log")"
}

stop_service() {
	local status=0
	[ -n "$service" ] || return 0
	kill "$service" 2>/dev/null
	wait "$service" || status=$?
	service=''
	[ $status -eq 0 ] || fail 1 "the service ended with status $status: $(cat "$root/run/service.log")"
}

# A training of both programs, with a checkpoint at both ends, which the service writes to its folder.
train_with_service() { # FLAG...
	inside gpclient train --no-progress --server "127.0.0.1:$(cat "$root/run/gpsplit/port")" --model cnn --batch 8 --threads 1 \
		--data synthetic:shape=3x16x16,classes=4,samples=64 --checkpoint /tmp/training --checkpoint-every 4 --no-eval "$@" \
		>"$root/run/client.log" 2>&1 || fail 1 "a training with the service: $(tail -3 "$root/run/client.log")"
}

try_packages() {
	[ "$(id -u)" -eq 0 ] || fail 1 "--try needs root"
	command -v lintian >/dev/null && command -v mmdebstrap >/dev/null || fail 1 "--try needs lintian and mmdebstrap"
	lintian --allow-root --fail-on error "$out"/gpsplit-*.deb || fail 1 "lintian found errors"
	make_root
	cp "$out"/gpsplit-*.deb "$root/tmp" || exit 1
	apt_does "installation" 'apt-get -q update && apt-get -q -y install --no-install-recommends /tmp/gpsplit-*.deb'
	has "both programs run" 'gpserverd --version && gpclient --version'
	has "the user is there" 'id gpsplit'
	has "the unit is enabled" 'test -e /etc/systemd/system/multi-user.target.wants/gpserverd.service'
	has "the options belong to root and are for gpsplit to read" 'test "$(stat -c %U:%G:%a /etc/gpsplit)" = root:gpsplit:750'
	inside sh -c 'echo "max-sessions = 7" >>/etc/gpsplit/gpserverd.conf'
	start_service
	train_with_service --steps 8
	stop_service
	has "the service writes checkpoints to its folder" 'test -n "$(ls -A /var/lib/gpsplit)"'
	for package in "$out"/gpsplit-*.deb; do
		package=${package##*/}
		make_later "${package%%_*}" || fail 1 "no later ${package%%_*}"
	done
	apt_does "upgrade" 'dpkg --force-confdef --force-confold -i /later/gpsplit-*.deb'
	has "an upgrade leaves changed options" 'grep 7 /etc/gpsplit/gpserverd.conf'
	start_service
	train_with_service --steps 12 --resume
	stop_service
	echo "ok: the later server goes on with the checkpoints of the earlier one"
	apt_does "removal" 'dpkg -r $(dpkg-query -W -f "\${Package} " "gpsplit-cuda*") gpsplit-server'
	has "removed, the program is gone" '! test -e /usr/bin/gpserverd'
	has "removed, options and checkpoints stay" 'test -e /etc/gpsplit/gpserverd.conf && test -n "$(ls -A /var/lib/gpsplit)"'
	apt_does "purge" 'dpkg -P $(dpkg-query -W -f "\${Package} " "gpsplit-*")'
	has "purged, options and checkpoints are gone" '! test -e /etc/gpsplit && ! test -e /var/lib/gpsplit'
	has "purged, nothing is left" '! find /etc /usr /lib/systemd /var/lib ! -path "/var/lib/dpkg/*" \
		\( -name "*gpserverd*" -o -name "*gpsplit*" \) | grep .'
}

parse_options "$@"
make_packages
[ $try = no ] || try_packages
ls -l "$out"/gpsplit-*.deb
