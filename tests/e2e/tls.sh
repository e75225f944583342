#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TLS, certificates and tokens with the real commands: a training over TLS ends
# in the parameters of a local one, and its byte counts are the kernel's; every
# wrong credential is refused with its reason on both sides, and the server
# goes on; files are read again on SIGHUP; no address but loopback is served
# without protection.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

command -v openssl >/dev/null || exit 77
umask 077 # nobody is to be warned of files that others may read
certs=$work/certs
"$source_dir/deploy/gen-test-certs.sh" "$certs" server.example || exit 1
other=$work/other
"$source_dir/deploy/gen-test-certs.sh" "$other" || exit 1

flags=(--model cnn --data synthetic:shape=3x32x32,classes=10,samples=256 --batch 32 --chunks 4 --seed 3 --threads 1)
server_tls=(--tls-cert "$certs/server.pem" --tls-key "$certs/server.key")
client_tls=(--tls-ca "$certs/ca.pem" --tls-cert "$certs/client.pem" --tls-key "$certs/client.key")

# Expects the exit status, one line on stderr that matches, and a line in the server's log.
refused() { # STATUS PATTERN SERVER-PATTERN FLAG...
	local want=$1 pattern=$2 server_pattern=$3 status=0 before
	shift 3
	before=$(wc -l <"$work/server.log")
	timeout 60 "$build/gpclient" train --no-progress --server "127.0.0.1:$server_port" "${flags[@]}" --steps 1 \
		"$@" >"$work/out" 2>"$work/err" || status=$?
	if [ $status -ne "$want" ] || [ "$(wc -l <"$work/err")" -ne 1 ] || ! grep -qE -e "$pattern" "$work/err"; then
		fail "$*: status $status (want $want): $(cat "$work/err")"
	else
		echo "ok: $(cat "$work/err")"
	fi
	[ -z "$server_pattern" ] || for _ in $(seq 1200); do
		tail -n +$((before + 1)) "$work/server.log" | grep -qE -e "$server_pattern" && return
		sleep 0.05
	done
	[ -z "$server_pattern" ] || fail "$*: the server's log has no '$server_pattern': $(tail -3 "$work/server.log")"
}

trains() { # WHAT FLAG...
	local what=$1
	shift
	train "$work/one.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 1 "$@" && echo "ok: $what" ||
		fail "$what"
}

# Memory of the server's own: pages of files come and go as the kernel likes.
resident_kib() { awk '/^(RssAnon|VmSwap)/ { n += $2 } END { print n }' "/proc/$server_pid/status"; }

within() { # WHAT GOT WANT: within 0.5 %
	awk -v got="$2" -v want="$3" 'BEGIN { exit !(want > 0 && (got - want) ^ 2 <= (0.005 * want) ^ 2) }' &&
		echo "ok: $1 ($2, kernel $3)" || fail "$1: $2, kernel $3"
}

# ---- the same training ----

train "$work/local.json" --local "${flags[@]}" --steps 12
start_server --threads 1 "${server_tls[@]}" --tls-client-ca "$certs/ca.pem" --tokens "$certs/tokens"
train "$work/tls.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 12 "${client_tls[@]}" \
	--token-file "$certs/token"
equal "parameters over TLS" "$(json_get "$work/tls.json" param_sha256)" "$(json_get "$work/local.json" param_sha256)"
for way in up down; do
	$counts_bytes || continue
	within "wire bytes $way" "$(json_get "$work/tls.json" "wire_${way}_bytes")" \
		"$(json_get "$work/tls.json" "tcp_${way}_bytes")"
done
[ "$(json_get "$work/tls.json" rtt_us)" -gt 0 ] || fail "no round trip of a link with TLS"
grep -qF 'cert:uri:urn:gpsplit:edge-1,token:edge-1 (its certificate says "edge-1")' "$work/server.log" || fail "no name in the log: $(cat "$work/server.log")"
grep -qF "$(cat "$certs/token")" "$work/server.log" && fail "the token is in the log"

# ---- links that break, and damaged bytes ----

through() { # WHAT LOG-PATTERN LINK-FLAG...: the same parameters through a link with faults
	local what=$1 pattern=$2
	shift 2
	start_link "$@"
	train "$work/through.json" --server "127.0.0.1:$link_port" "${flags[@]}" --steps 12 "${client_tls[@]}" \
		--token-file "$certs/token"
	equal "parameters over TLS through $what" "$(json_get "$work/through.json" param_sha256)" \
		"$(json_get "$work/local.json" param_sha256)"
	stop_link
	grep -q "$pattern" "$work/link.log" || fail "$what: nothing happened: $(cat "$work/link.log")"
}

through "broken links" 'reset after' --drop-every 4M --seed 5
through "a link that damages bytes" 'corrupted byte' --corrupt-byte 1000000 --times 2
through "a link that damages what comes down" 'corrupted byte' --corrupt-byte 1000000 --times 2 --direction down
for way in up down; do
	start_link --corrupt-byte 100000 --direction $way
	status=0
	"$build/gpclient" train --no-progress --server "127.0.0.1:$link_port" "${flags[@]}" --steps 12 "${client_tls[@]}" \
		--token-file "$certs/token" >"$work/out" 2>"$work/err" || status=$?
	stop_link
	equal "TLS links that all damage what goes $way end the client with status" $status 4
	grep -q 'the link .*damages data: bytes came .* on 3 links in a row' "$work/err" ||
		fail "what the client says of damage over TLS: $(cat "$work/err")"
done

# ---- refusals ----

token=(--token-file "$certs/token")
before_kib=$(resident_kib)
refused 4 'asks for a certificate, and none was given' 'has no certificate' --tls-ca "$certs/ca.pem" "${token[@]}"
refused 4 'refuses our certificate: expired' '"edge-2".* is refused: it has expired' --tls-ca "$certs/ca.pem" \
	--tls-cert "$certs/expired.pem" --tls-key "$certs/expired.key" "${token[@]}"
refused 4 'does not trust the CA that issued it' '"edge-3".*from no CA that is trusted' --tls-ca "$certs/ca.pem" \
	--tls-cert "$certs/foreign.pem" --tls-key "$certs/foreign.key" "${token[@]}"
refused 4 'asks for a token, and none was sent' 'none was sent' "${client_tls[@]}"
echo 'not-the-right-token' >"$work/wrong"
refused 4 "not one of this server's" "not one of this server's" "${client_tls[@]}" --token-file "$work/wrong"
refused 4 'from no CA that is trusted here \(--tls-ca\)' 'refuses our certificate' --tls "${client_tls[@]:2}" "${token[@]}"
refused 4 "not for 'other.example'" 'refuses our certificate' "${client_tls[@]}" "${token[@]}" --tls-name other.example
refused 4 'speaks TLS' 'speaks without TLS' "${token[@]}"
refused 3 'no/such.pem' '' --tls-ca no/such.pem
refused 3 'does not belong to certificate' '' --tls-ca "$certs/ca.pem" --tls-cert "$certs/client.pem" \
	--tls-key "$certs/server.key"
refused 2 'tls-cert and --tls-key' '' --tls-ca "$certs/ca.pem" --tls-cert "$certs/client.pem"
echo 'short' >"$work/short"
refused 3 'short:1.*at least 16' '' "${client_tls[@]}" --token-file "$work/short"
[ $(($(resident_kib) - before_kib)) -lt 1024 ] && echo "ok: refused clients left nothing behind" ||
	fail "refused clients cost memory: $before_kib KiB before, $(resident_kib) after"
trains "another name, where the certificate has it" "${client_tls[@]}" "${token[@]}" --tls-name server.example

# ---- SIGHUP ----

hang_up() { # PATTERN: in the log afterwards
	local before
	before=$(wc -l <"$work/server.log")
	kill -HUP "$server_pid"
	for _ in $(seq 1200); do
		tail -n +$((before + 1)) "$work/server.log" | grep -q -e "$1" && return
		sleep 0.05
	done
	fail "after SIGHUP no '$1' in the log: $(tail -2 "$work/server.log")"
}

sessions_begun() { grep -c 'samples a chunk' "$work/server.log"; }
more_sessions_than() { [ "$(sessions_begun)" -gt "$1" ]; }

begun=$(sessions_begun)
train "$work/long.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 12 "${client_tls[@]}" "${token[@]}" &
long=$!
await more_sessions_than "$begun" || fail "no session begins: $(tail -3 "$work/server.log")"
cp "$certs/server.pem" "$work/good.pem"
echo 'garbage' >"$certs/server.pem"
hang_up 'the old certificates and tokens stay in use: certificate'
trains "the old certificate stays in use" "${client_tls[@]}" "${token[@]}"
cp "$other/server.pem" "$other/server.key" "$certs/"
printf 'edge-9 0123456789abcdef\nedge-1 %s\n' "$(cat "$certs/token")" >"$certs/tokens"
hang_up 'read again'
refused 4 'from no CA that is trusted' '' "${client_tls[@]}" "${token[@]}"
echo '0123456789abcdef' >"$work/nine"
trains "certificate and tokens of the new files" --tls-ca "$other/ca.pem" "${client_tls[@]:2}" --token-file "$work/nine"
wait $long || fail "a session that lived through SIGHUP: $(cat "$work/long.json.log")"
equal "its parameters" "$(json_get "$work/long.json" param_sha256)" "$(json_get "$work/local.json" param_sha256)"

# A token that is taken out of the file: its session ends, and no other.
begun=$(sessions_begun)
timeout 600 "$build/gpclient" train --no-progress --server "127.0.0.1:$server_port" "${flags[@]}" --steps 3000000 \
	--tls-ca "$other/ca.pem" "${client_tls[@]:2}" "${token[@]}" >"$work/out" 2>"$work/revoked.log" &
revoked=$!
await more_sessions_than "$begun" || fail "no session begins: $(tail -3 "$work/server.log")"
train "$work/stays.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 12 --tls-ca "$other/ca.pem" \
	"${client_tls[@]:2}" --token-file "$work/nine" &
stays=$!
await more_sessions_than $((begun + 1)) || fail "no second session begins: $(tail -3 "$work/server.log")"
printf 'edge-9 0123456789abcdef\n' >"$certs/tokens"
hang_up 'read again'
wait $revoked
equal "status of a client whose token was revoked" $? 4
grep -q "taken out of the server's file" "$work/revoked.log" || fail "it does not say why: $(cat "$work/revoked.log")"
wait $stays || fail "a session beside it: $(cat "$work/stays.json.log")"
equal "parameters of the session beside it" "$(json_get "$work/stays.json" param_sha256)" \
	"$(json_get "$work/local.json" param_sha256)"
refused 4 "not one of this server's" '' --tls-ca "$other/ca.pem" "${client_tls[@]:2}" "${token[@]}"
kill -0 "$server_pid" || fail "gpserverd is gone"
stop_server

# ---- tokens without TLS, and what is not served ----

start_server --threads 1 --tokens "$certs/tokens"
trains "a token in the clear over loopback" --token-file "$work/nine"
refused 4 'asks for a token' 'asks for a token' --steps 1
refused 4 'speaks without TLS: leave --tls out' 'looks like TLS' --tls-ca "$certs/ca.pem"
stop_server

not_served() { # PATTERN FLAG...
	local pattern=$1 status=0
	shift
	timeout 60 "$build/gpserverd" --listen 0.0.0.0:0 "$@" 2>"$work/err" || status=$?
	[ $status -eq 2 ] && grep -qE -e "$pattern" "$work/err" && echo "ok: $(cat "$work/err")" ||
		fail "gpserverd --listen 0.0.0.0:0 $*: status $status: $(cat "$work/err")"
}

tls=(--tls-cert "$other/server.pem" --tls-key "$other/server.key")
not_served 'anyone who reaches this address could use the server; give --tls-cert'
not_served 'TLS hides what crosses, but anyone' "${tls[@]}"
not_served 'tokens would cross the network in the clear' --tokens "$certs/tokens" --insecure
not_served 'tls-cert and --tls-key belong together' --tls-cert "$other/server.pem" --insecure
not_served 'needs --tls-cert' --tls-client-ca "$other/ca.pem" --insecure
finish
