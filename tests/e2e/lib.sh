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
# A build with a sanitizer looks for faults in the code that runs. What only compares bits is left to the dev preset.
sanitized=$(sed -n 's/^GP_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt")
# Whether the kernel counts a connection's bytes: the one that qemu stands in for gives none (TCP_INFO), so that no rate is shown.
counts_bytes=true
[[ $build == */launchers ]] && counts_bytes=false
server_pid='' server_port='' link_pid='' link_port='' failures=0

cleanup() {
	[ -n "$server_pid" ] && kill "$server_pid" 2>/dev/null
	[ -n "$link_pid" ] && kill "$link_pid" 2>/dev/null
	wait 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
unset GP_FAULT
export LC_ALL=C

# Until the command succeeds; ten minutes at most. That something takes long is the machine's affair, that it never comes a
# failure.
await() { # COMMAND...
	for _ in $(seq 12000); do
		"$@" && return 0
		sleep 0.05
	done
	return 1
}

# A program that writes its port when it serves; the script ends where it does not.
comes_up() { # PID PORT-FILE NAME LOG
	for _ in $(seq 1200); do
		[ -s "$2" ] && return 0
		kill -0 "$1" 2>/dev/null || break
		sleep 0.05
	done
	echo "$3 did not start:" && cat "$4"
	exit 1
}

# No limit of time ends what a slow or busy machine (or an emulated one) takes long for.
patient=(--task-time 1h --handshake-timeout 5m --idle-timeout 10m)

# Starts gpserverd with further flags; sets server_pid and server_port. Scripts wait for lines of its log: none is left out.
start_server() {
	rm -f "$work/port"
	"$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" --client-lines 0 "${patient[@]}" "$@" \
		2>"$work/server.log" &
	server_pid=$!
	comes_up $server_pid "$work/port" gpserverd "$work/server.log"
	server_port=$(cat "$work/port")
	await grep -q 'listening on' "$work/server.log" || fail "gpserverd does not say where it listens"
}

# Ends the server with SIGTERM and checks that it left in good order.
stop_server() {
	local status=0
	kill "$server_pid" && wait "$server_pid" || status=$?
	server_pid=''
	[ $status -eq 0 ] || fail "gpserverd ended with status $status: $(tail -3 "$work/server.log")"
}

# A simulated link to the server, with further flags; sets link_pid and link_port.
start_link() { # FLAG...
	rm -f "$work/link.port"
	"$build/gpclient" link --listen 127.0.0.1:0 --to "127.0.0.1:$server_port" --port-file "$work/link.port" --json \
		"$@" >"$work/link.json" 2>"$work/link.log" &
	link_pid=$!
	comes_up $link_pid "$work/link.port" "gpclient link" "$work/link.log"
	link_port=$(cat "$work/link.port")
}

# Ends it with SIGTERM; its counters are in link.json then.
stop_link() {
	local status=0
	kill "$link_pid" && wait "$link_pid" || status=$?
	link_pid=''
	equal "gpclient link ends in good order" $status 0
}

# deploy/haproxy.cfg for servers of this machine, whose figures are plain HTTP: serves on loopback, at PORT, for the servers
# that the rest of the arguments name by PORT:PORT-OF-FIGURES.
write_haproxy_config() { # FILE PORT SERVER...
	local file=$1 port=$2 number=0 server
	shift 2
	sed -e "s|bind :4400|bind 127.0.0.1:$port|" -e 's|hdr Host gpsplit.example|hdr Host 127.0.0.1|' \
		-e 's| check port 9440 check-ssl verify required ca-file [^ ]* verifyhost [^ ]*| check|' \
		-e 's|maxconn 20000|maxconn 500|' -e '/^\t\(user\|group\|chroot\) /d' -e '/^\tserver gpu-/d' "$source_dir/deploy/haproxy.cfg" >"$file"
	for server in "$@"; do
		number=$((number + 1))
		echo "	server gpu-$number 127.0.0.1:${server%:*} port ${server#*:}" >>"$file"
	done
}

# Two trainings at a time end as one alone does.
two_at_once() { # SHA FLAG...
	local want=$1 n pids=()
	shift
	for n in 1 2; do
		train "$work/both$n.json" --server "127.0.0.1:$server_port" "$@" &
		pids[n]=$!
	done
	for n in 1 2; do
		wait "${pids[n]}" || fail "client $n of two at the same time"
		equal "client $n of two at the same time" "$(json_get "$work/both$n.json" param_sha256)" "$want"
	done
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
	local out=$1 flags=()
	shift
	[[ " $* " == *" --server "* ]] && flags=(--connect-timeout 5m) # a busy disk holds up the greeting
	"$build/gpclient" train --no-progress --json "${flags[@]}" "$@" >"$out" 2>"$out.log" || {
		echo "gpclient train $* failed with status $?:" >&2
		cat "$out.log" >&2
		return 1
	}
}

# Losses of one model's weights that differ by rounding: eval folds batch norms into convolutions, training does not.
near() { # WHAT GOT WANT
	if awk -v got="$2" -v want="$3" 'BEGIN { d = got - want; exit !(got != "" && want != "" && d * d <= 1e-10 * want * want) }'; then
		echo "ok: $1 ($2, about $3)"
	else
		fail "$1: got '$2', want about '$3'"
	fi
}

finish() {
	[ $failures -eq 0 ] && echo "all well" && exit 0
	echo "$failures failures"
	exit 1
}
