#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpserverd --log-format json: every line is an object, and what happens to clients has its stable name with reason, session,
# client and address; a server whose log nobody reads serves on, and says afterwards how much it left out.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

# shellcheck disable=SC2054
flags=(--model cnn --data synthetic:shape=3x16x16,classes=4,samples=64 --batch 8 --chunks 2 --threads 1 --schedule const
	--no-eval --no-progress)
printf 'edge 0123456789abcdef\n' >"$work/tokens"
echo 0123456789abcdef >"$work/token"
echo 0123456789abcdefwrong >"$work/wrong"
chmod 600 "$work/tokens" "$work/token" "$work/wrong"

# The events of the log, each as its values in order: "session_opened new 1 token:edge".
events() {
	while read -r line; do
		printf '%s\n' "$line" >"$work/line"
		json_flat "$work/line" >"$work/flat" || { echo "no JSON: $line" && continue; }
		awk -F= '{ v[$1] = $2 } END { if ("event" in v) print v["event"], v["reason"], v["session"], v["client"] }' "$work/flat"
	done <"$work/server.log"
}

has_event() { # WORDS
	events | grep -xF -- "$1" >/dev/null
}

start_server --threads 1 --tokens "$work/tokens" --log-format json
start_link
train "$work/one.json" --server "127.0.0.1:$link_port" "${flags[@]}" --steps 100000 --token-file "$work/token" 2>/dev/null &
await has_event "session_opened new 1 token:edge" || fail "session_opened: $(events)"
kill -KILL "$link_pid" && wait "$link_pid" 2>/dev/null
await has_event "session_parked peer 1 token:edge" || fail "session_parked: $(events)"
"$build/gpclient" link --listen "127.0.0.1:$link_port" --to "127.0.0.1:$server_port" 2>"$work/link.log" &
link_pid=$!
await has_event "session_resumed  1 token:edge" || fail "session_resumed: $(events)"
"$build/gpclient" train --server "127.0.0.1:$server_port" "${flags[@]}" --steps 1 --token-file "$work/wrong" >/dev/null 2>&1
equal "a client with a wrong token: status" $? 4
await has_event "connection_refused denied  " || fail "connection_refused: $(events)"
echo 'other 0123456789abcdef' >"$work/tokens" # the session's token is another name's now
kill -HUP "$server_pid"
await has_event "session_ended denied 1 token:edge" || fail "session_ended: $(events)"
wait %2 2>/dev/null
stop_server
equal "lines that are no JSON" "$(events | grep -c 'no JSON')" 0
equal "the first event" "$(events | head -1 | cut -d' ' -f1)" listening
events | grep '^stopping ' >/dev/null || fail "stopping: $(events)"
kill "$link_pid" && wait "$link_pid"
link_pid=''

# A log that nobody reads until the end: after so many requests over HTTP neither pipe nor queue has room, and a client trains
# all the same.
command -v curl >/dev/null || { echo "no curl here: without the slow reader" && finish; }
figures_at=$((20000 + RANDOM % 10000))
mkfifo "$work/fifo"
rm -f "$work/port"
exec {reader}<>"$work/fifo"
"$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" --threads 1 --metrics "127.0.0.1:$figures_at" --log all=info,net=debug \
	2>"$work/fifo" &
server_pid=$!
await test -s "$work/port" || { fail "a server whose log nobody reads does not start" && finish; }
server_port=$(cat "$work/port")
figures=http://127.0.0.1:$figures_at
mapfile -t asked < <(yes "$figures/$(printf 'a%.0s' $(seq 900))" | head -1000) # a line of 900 bytes for each
curl -s --max-time 300 "${asked[@]}" >/dev/null
counted() { # figures are those of a moment ago
	curl -s --max-time 60 "$figures/metrics" | grep '^gpserverd_log_lines_dropped_total [1-9]' >/dev/null
}
await counted || fail "lines that nobody reads are not left out"
train "$work/two.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 3 || fail "a training through it"
cat <"$work/fifo" >"$work/server.log" {reader}>&- & # else it would wait for itself
cat_pid=$!
exec {reader}>&-
told() {
	grep -qE ' warn main: [0-9]+ lines of the log were left out here: whoever reads it is too slow$' "$work/server.log"
}
await told || fail "nothing was left out of $(wc -l <"$work/server.log") lines: $(tail -2 "$work/server.log")"
stop_server
wait $cat_pid
equal "its last line" "$(tail -1 "$work/server.log" | cut -d' ' -f2-4)" "info main: stopping"
finish
