#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The files of deploy/systemd and deploy/etc: systemd's own tools take them, the service's exposure is at most 2.0, with and
# without what a GPU needs, and gpserverd starts with the options file as it is installed.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"
readonly most=20 # tenths

# The options file, but for a free port and a folder of this test; then again with every line that is commented out.
sed "s|127.0.0.1:4400|127.0.0.1:0|; s|/var/lib/gpsplit|$work/state|" "$source_dir/deploy/etc/gpserverd.conf" >"$work/conf"
rm -f "$work/port"
"$build/gpserverd" --config "$work/conf" --port-file "$work/port" 2>"$work/server.log" &
server_pid=$!
comes_up $server_pid "$work/port" gpserverd "$work/server.log"
stop_server
[ -d "$work/state" ] || fail "the options file names no folder of checkpoints"
"$build/gpserverd" --help >"$work/help"
sed -n 's/^#\([a-z-]* = \)/\1/p' "$work/conf" | while IFS=' =' read -r name _; do
	grep -q -e "^  --$name " "$work/help" || echo "$name"
done >"$work/unknown"
equal "options in comments that there are not" "$(cat "$work/unknown")" ""

command -v systemd-analyze >/dev/null || { echo "skipped: there is no systemd-analyze to check units with" && exit 77; }
units=$work/units
mkdir "$units" "$work/bin"
ln -s "$build/gpserverd" "$work/bin/gpserverd"

copy_units() {
	rm -rf "${units:?}"/*
	cp -r "$source_dir"/deploy/systemd/gpserverd.s* "$units"
	sed -i "s|/usr/bin/gpserverd|$work/bin/gpserverd|; /^Documentation=/d" "$units"/gpserverd.{service,socket}
}

exposure() { # WHAT
	systemd-analyze security --offline=true --threshold=$most "$units/gpserverd.service" >"$work/security" 2>&1 ||
		fail "$1: exposure over $most tenths: $(grep -v '✓' "$work/security")"
	echo "ok: $1: $(tail -1 "$work/security")"
}

copy_units
# Other units of the machine may have faults of their own.
systemd-analyze verify --man=no "$units/gpserverd.service" "$units/gpserverd.socket" 2>&1 | grep -F gpserverd >"$work/verify"
equal "what systemd says of the units" "$(cat "$work/verify")" ""
exposure "with a GPU"
rm -r "$units/gpserverd.service.d"
exposure "without a GPU"
finish
