#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient link HOST:PORT with the real commands: over a simulated link no rate
# is above that of the link, and no round trip below its delay; over TLS with a
# token it measures, with a wrong one it does not; a server that measures no
# links is told apart in one line, and other sessions train on beside it. What a
# client may ask for is in tests/unit/test_server_measure.c.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

measure() { # OUT FLAG...
	local out=$1
	shift
	"$build/gpclient" link "$@" --json >"$out" 2>"$out.log" || fail "gpclient link $*: $(cat "$out.log")"
}

holds() { # WHAT FILE CONDITION-OF-AWK KEY...
	local what=$1 file=$2 condition=$3 key args=()
	shift 3
	for key in "$@"; do
		args+=(-v "${key//[.]/_}=$(json_get "$file" "$key")")
	done
	awk "${args[@]}" "BEGIN { exit !($condition) }" && echo "ok: $what (${args[*]})" || fail "$what: ${args[*]}"
}

refused() { # STATUS PATTERN FLAG...
	local want=$1 pattern=$2 status=0
	shift 2
	"$build/gpclient" link "$@" >"$work/out" 2>"$work/err" || status=$?
	if [ $status -ne "$want" ] || [ "$(wc -l <"$work/err")" -ne 1 ] || ! grep -qE -e "$pattern" "$work/err"; then
		fail "$*: status $status (want $want): $(cat "$work/err")"
	else
		echo "ok: $(cat "$work/err")"
	fi
}

refused 2 'give HOST:PORT to measure the link to a server, or both ends to simulate one'
refused 2 'rate is for a simulated link; 127.0.0.1:1 is to be measured' 127.0.0.1:1 --rate 1mbit
refused 4 'cannot connect to 127.0.0.1:1' 127.0.0.1:1

start_server --threads 1 --measure 60s
measure "$work/near" "127.0.0.1:$server_port" --time 1s
holds "loopback is measured" "$work/near" 'up_bytes_per_s > 0 && down_bytes_per_s > 0 && idle_min_s > 0 && idle_count > 0' \
	up.bytes_per_s down.bytes_per_s idle.min_s idle.count
"$build/gpclient" link "127.0.0.1:$server_port" --time 1s >"$work/text" || fail "no text"
grep -q 'one frame alone' "$work/text" || fail "what the text says: $(cat "$work/text")"

# What a kernel's buffer takes at once is no rate; the emulator may have taken a little more than it has passed on.
start_link --rate 100mbit --rate-down 40mbit --delay 20ms
measure "$work/far" "127.0.0.1:$link_port" --time 16s
holds "no rate is above the link's" "$work/far" \
	'up_bytes_per_s > 0 && up_bytes_per_s * 8 <= 1.25 * 100e6 && down_bytes_per_s > 0 && down_bytes_per_s * 8 <= 1.25 * 40e6' \
	up.bytes_per_s down.bytes_per_s
holds "no round trip is below two delays" "$work/far" \
	'idle_min_s >= 0.039 && idle_median_s >= idle_min_s && idle_max_s >= idle_median_s && up_loaded_min_s >= 0.039 && down_loaded_min_s >= 0.039' \
	idle.min_s idle.median_s idle.max_s up.loaded.min_s down.loaded.min_s
holds "a frame of 64 KiB is as slow as its round trip" "$work/far" \
	'sizes_0_bytes == 65536 && sizes_0_up_bytes_per_s > 0 && sizes_0_up_bytes_per_s < 65536 / 0.039 && sizes_0_down_bytes_per_s < 65536 / 0.039' \
	sizes.0.bytes sizes.0.up_bytes_per_s sizes.0.down_bytes_per_s
stop_link
grep -q 'measures its link, for 60 s at most' "$work/server.log" || fail "the log says nothing: $(cat "$work/server.log")"

# Beside a measurement somebody trains, and ends as alone.
flags=(--model cnn --data synthetic:shape=3x16x16,classes=4,samples=64 --batch 16 --chunks 2 --threads 1 --no-eval --steps 4)
train "$work/alone.json" --server "127.0.0.1:$server_port" "${flags[@]}" || fail "training alone"
measure "$work/beside" "127.0.0.1:$server_port" --time 2s &
measuring=$!
train "$work/both.json" --server "127.0.0.1:$server_port" "${flags[@]}" || fail "training beside a measurement"
wait $measuring
holds "a measurement beside a training" "$work/beside" 'up_bytes_per_s > 0 && down_bytes_per_s > 0' up.bytes_per_s down.bytes_per_s
equal "parameters beside a measurement" "$(json_get "$work/both.json" param_sha256)" "$(json_get "$work/alone.json" param_sha256)"
stop_server

start_server --threads 1 --measure 0
refused 4 'measures no links: it is too old for that, or was started with --measure 0' "127.0.0.1:$server_port"
stop_server

# One measurement in a minute: the second is told when to come again.
start_server --threads 1 --measure-rate 1
measure "$work/first" "127.0.0.1:$server_port" --time 500ms
refused 4 'a client may begin 1 measurement in a minute; the next one may begin in [0-9]+ s' "127.0.0.1:$server_port" --time 500ms
stop_server

command -v openssl >/dev/null || finish
umask 077
certs=$work/certs
"$source_dir/deploy/gen-test-certs.sh" "$certs" server.example >/dev/null || exit 1
start_server --threads 1 --tls-cert "$certs/server.pem" --tls-key "$certs/server.key" --tokens "$certs/tokens"
tls=(--tls-ca "$certs/ca.pem")
measure "$work/tls" "127.0.0.1:$server_port" --time 1s "${tls[@]}" --token-file "$certs/token"
holds "TLS is measured" "$work/tls" 'tls == "true" && up_bytes_per_s > 0 && down_bytes_per_s > 0' tls up.bytes_per_s down.bytes_per_s
refused 4 'token' "127.0.0.1:$server_port" "${tls[@]}"
echo "0123456789abcdef-not-the-one" >"$work/wrong"
refused 4 'token' "127.0.0.1:$server_port" "${tls[@]}" --token-file "$work/wrong"
stop_server
finish
