#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What an operator reads: a warning of key and token files that others on the
# machine may read, a client's name as its certificate and token make it, and of a
# client that comes again and again so many lines and a sum.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

command -v openssl >/dev/null || exit 77
certs=$work/certs
"$source_dir/deploy/gen-test-certs.sh" "$certs" || exit 1

flags=(--model cnn:width=4 --data synthetic:shape=1x28x28,classes=10,samples=64 --batch 32 --chunks 2 --threads 1
	--no-eval --steps 1)
server_tls=(--tls-cert "$certs/server.pem" --tls-key "$certs/server.key" --tls-client-ca "$certs/ca.pem"
	--tokens "$certs/tokens")
client_tls=(--tls-ca "$certs/ca.pem" --tls-cert "$certs/unnamed.pem" --tls-key "$certs/unnamed.key")

warnings_of() { # LOG FILE MODE
	grep -cF "others on this machine may read or change $2 (mode $3): chmod 600 $2" "$1"
}

# ---- files that others may read ----

start_server --threads 1 "${server_tls[@]}"
train "$work/one.json" --server "127.0.0.1:$server_port" "${flags[@]}" "${client_tls[@]}" --token-file "$certs/token"
equal "warnings of files that are the owner's alone" \
	"$(cat "$work/server.log" "$work/one.json.log" | grep -c 'others on this machine')" 0
stop_server

chmod 640 "$certs/server.key"
chmod 604 "$certs/tokens" "$certs/token"
chmod 666 "$certs/unnamed.key"
start_server --threads 1 "${server_tls[@]}" --client-lines 6
equal "warnings of a key" "$(warnings_of "$work/server.log" "$certs/server.key" 0640)" 1
equal "warnings of tokens" "$(warnings_of "$work/server.log" "$certs/tokens" 0604)" 1
equal "warnings in all" "$(grep -c 'others on this machine' "$work/server.log")" 2

# ---- a client that comes again and again ----

began=$SECONDS
for n in 1 2 3 4 5 6 7 8; do
	train "$work/loop$n.json" --server "127.0.0.1:$server_port" "${flags[@]}" "${client_tls[@]}" \
		--token-file "$certs/token" || fail "training $n"
done
equal "the client's warnings of its key" "$(warnings_of "$work/loop1.json.log" "$certs/unnamed.key" 0666)" 1
equal "the client's warnings of its token" "$(warnings_of "$work/loop1.json.log" "$certs/token" 0604)" 1
stop_server
most=$((6 * (2 + (SECONDS - began) / 60)))
lines=$(grep -E ' (info|warn) session: ' "$work/server.log" | grep -vc 'were left out')
equal "lines about a client that comes again and again, $lines, at most $most" $((lines <= most)) 1
key=$(openssl x509 -in "$certs/unnamed.pem" -noout -pubkey | openssl pkey -pubin -outform DER | sha256sum)
name=cert:key:${key%% *},token:edge-1
grep -qF ": $name" "$work/server.log" || fail "no $name in the log: $(head -5 "$work/server.log")"
grep -qE '[0-9]+ more lines about cert:key:[0-9a-f]+ were left out \(--client-lines\)' "$work/server.log" ||
	fail "no sum of what was left out: $(tail -5 "$work/server.log")"
finish
