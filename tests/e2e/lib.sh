# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What the end-to-end scripts share: a work folder that goes away, a server per
# script, checks that say what they saw. Sourced with the build folder in $1.

set -u -o pipefail
build=${1:?usage: $0 BUILD-FOLDER}
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$build" && pwd)
# shellcheck disable=SC1091
. "$source_dir/deploy/json.sh"
work=$(mktemp -d)
server_pid='' server_port='' failures=0

cleanup() {
	[ -n "$server_pid" ] && kill "$server_pid" 2>/dev/null
	wait 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
unset GP_FAULT
export LC_ALL=C

# Until the command succeeds; a minute at most. That something takes long is the machine's affair, that it never comes a failure.
await() { # COMMAND...
	for _ in $(seq 1200); do
		"$@" && return 0
		sleep 0.05
	done
	return 1
}

# Starts gpserverd with further flags; sets server_pid and server_port.
start_server() {
	rm -f "$work/port"
	"$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" "$@" 2>"$work/server.log" &
	server_pid=$!
	for _ in $(seq 1200); do
		[ -s "$work/port" ] && server_port=$(cat "$work/port") && return 0
		kill -0 "$server_pid" 2>/dev/null || break
		sleep 0.05
	done
	echo "gpserverd did not start:" && cat "$work/server.log"
	exit 1
}

# Ends the server with SIGTERM and checks that it left in good order.
stop_server() {
	local status=0
	kill "$server_pid" && wait "$server_pid" || status=$?
	server_pid=''
	[ $status -eq 0 ] || fail "gpserverd ended with status $status: $(tail -3 "$work/server.log")"
}

fail() {
	echo "FAILED: $*"
	failures=$((failures + 1))
}

equal() { # WHAT GOT WANT
	if [ "$2" = "$3" ]; then
		echo "ok: $1 ($2)"
	else
		fail "$1: got '$2', want '$3'"
	fi
}

# Trains and prints the value of a key of the closing JSON.
train() { # JSON-FILE FLAG...
	local out=$1
	shift
	"$build/gpclient" train --no-progress --json "$@" >"$out" 2>"$out.log" || {
		echo "gpclient train $* failed with status $?:" >&2
		cat "$out.log" >&2
		return 1
	}
}

finish() {
	[ $failures -eq 0 ] && echo "all well" && exit 0
	echo "$failures failures"
	exit 1
}
