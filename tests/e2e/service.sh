#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpserverd as a service (server/service.h): what it tells a service manager, its watchdog, sockets that are handed over; and
# the unit files of deploy/systemd. The service manager is tests/tools/service_manager.c.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"
manager=$build/tests/service_manager

says() { # PATTERN
	grep -qs -e "$1" "$work/said"
}

# Starts gpserverd under the service manager; its messages go to said, its log to server.log.
start_service() { # FLAG-OF-MANAGER... -- FLAG...
	local flags=()
	while [ "$1" != -- ]; do flags+=("$1") && shift; done
	shift
	rm -f "$work/said"
	"$manager" "${flags[@]}" -- "$build/gpserverd" --threads 1 "${patient[@]}" "$@" >"$work/said" 2>"$work/server.log" &
	server_pid=$!
}

# A socket that was handed over takes the place of --listen, and a whole training goes through it.
start_service --sockets 1 --watchdog 300000 -- --listen 127.0.0.1:1 --drain-for 40s
await says '^READY=1$' || { fail "no READY=1: $(cat "$work/said" "$work/server.log")" && finish; }
server_port=$(sed -n 's/^PORT=//p' "$work/said")
await grep -q "listening on 127.0.0.1:$server_port " "$work/server.log" || fail "another address: $(cat "$work/server.log")"
flags=(--model cnn --data synthetic:samples=64,shape=1x28x28 --cut 1:-1 --batch 16 --steps 3 --no-eval --threads 1 --codec raw)
train "$work/run.json" --server "127.0.0.1:$server_port" "${flags[@]}" || fail "no training over the socket"
train "$work/local.json" --local "${flags[@]}"
equal "parameters over the socket" "$(json_get "$work/run.json" param_sha256)" "$(json_get "$work/local.json" param_sha256)"
await says '^STATUS=0 sessions of 64, 0 connections$' || fail "no status: $(cat "$work/said")"
beats() { [ "$(grep -c '^WATCHDOG=1$' "$work/said")" -ge 5 ]; }
await beats || fail "the watchdog is not fed: $(cat "$work/said")"

# SIGHUP and SIGTERM are told.
kill -HUP "$server_pid"
await says '^RELOADING=1 | MONOTONIC_USEC=[0-9][0-9]*$' || fail "no RELOADING=1: $(cat "$work/said")"
twice() { [ "$(grep -c '^READY=1$' "$work/said")" -eq 2 ]; }
await twice || fail "no READY=1 after RELOADING=1: $(cat "$work/said")"
stop_server
says '^STOPPING=1 | EXTEND_TIMEOUT_USEC=45000000$' || fail "no STOPPING=1: $(cat "$work/said")"

# A loop that stands still feeds nothing: its timer runs on the loop thread.
start_service --watchdog 300000 -- --listen 127.0.0.1:0
await beats || fail "the watchdog is not fed: $(cat "$work/said")"
daemon=$(pgrep -P "$server_pid")
kill -STOP "$daemon"
silent() { # what was on its way has arrived, and nothing follows
	local before
	before=$(wc -l <"$work/said")
	sleep 2
	[ "$(wc -l <"$work/said")" -eq "$before" ]
}
await silent || fail "the watchdog of a process that stands still is fed: $(cat "$work/said")"
kill -CONT "$daemon"
stop_server

# What cannot be served is refused with status 3 and a reason, and without READY=1.
refused() { # WHAT PATTERN FLAG-OF-MANAGER...
	local status=0 what=$1 pattern=$2
	shift 2
	"$manager" "$@" -- "$build/gpserverd" --threads 1 >"$work/said" 2>"$work/server.log" || status=$?
	equal "$what: status" $status 3
	grep -q -e "$pattern" "$work/server.log" || fail "$what: $(cat "$work/server.log")"
	! says READY || fail "$what: ready all the same"
}
refused "two sockets" 'handed over 2 sockets.*ListenStream=' --sockets 2
refused "a UDP socket" 'ListenStream=ADDRESS:PORT' --udp

# A service manager that cannot be reached is a warning.
export NOTIFY_SOCKET=/nowhere/at/all
start_server --threads 1
stop_server
unset NOTIFY_SOCKET
grep -q 'NOTIFY_SOCKET=/nowhere/at/all' "$work/server.log" || fail "no warning: $(cat "$work/server.log")"
finish
