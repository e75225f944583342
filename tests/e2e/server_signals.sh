#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpserverd takes signals as soon as its port file is there, and leaves nothing
# running when that file cannot be written. How it stops with work under way is
# in drain.sh.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

stopped_at_once() { # SIGNAL
	local status=0
	rm -f "$work/port"
	"$build/gpserverd" --listen 127.0.0.1:0 --threads 1 --port-file "$work/port" 2>"$work/server.log" &
	server_pid=$!
	while [ ! -e "$work/port" ] && kill -0 "$server_pid" 2>/dev/null; do :; done
	kill "-$1" "$server_pid"
	case $1 in HUP | USR1) kill "$server_pid" ;; esac
	wait "$server_pid" || status=$?
	server_pid=''
	[ $status -eq 0 ] || fail "status $status after SIG$1: $(cat "$work/server.log")"
}

for _ in $(seq 10); do
	stopped_at_once TERM
	stopped_at_once INT
	stopped_at_once HUP
	stopped_at_once USR1
done

# A connection that says nothing is not waited for.
start_server --threads 1 --drain-for 1h
exec 3<>"/dev/tcp/127.0.0.1/$server_port"
stop_server
exec 3>&-

# Asked twice at once it is either done by then or leaves, but is never ended by the signal.
twice=0
start_server --threads 1
kill -TERM "$server_pid" && kill -INT "$server_pid" 2>/dev/null
wait "$server_pid" || twice=$?
server_pid=''
[ $twice -le 1 ] || fail "status $twice after two signals: $(cat "$work/server.log")"

status=0
"$build/gpserverd" --listen 127.0.0.1:0 --drain-for 0 2>"$work/log" || status=$?
equal "no time to stop in: status" $status 2
grep -q "drain-for" "$work/log" || fail "no reason: $(cat "$work/log")"

status=0
timeout 60 "$build/gpserverd" --listen 127.0.0.1:0 --threads 1 --port-file "$work/nowhere/port" 2>"$work/log" || status=$?
[ $status -ne 0 ] && [ $status -ne 124 ] && [ $status -lt 128 ] || fail "without a port file: status $status"
grep -q "nowhere/port" "$work/log" || fail "no reason: $(cat "$work/log")"
finish
