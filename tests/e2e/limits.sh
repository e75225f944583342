#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What an operator reads: a warning of key and token files that others on the
# machine may read, a client's name as its certificate and token make it, and of a
# client that comes again and again so many lines and a sum. And quotas for names
# (--limits): what is over one is refused with its figure, another name goes on, a
# file is read again at SIGHUP, and a client that is told to wait does so.

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

# ---- quotas for names ----

limits=$work/limits
token_of() { # NAME
	awk -v name="$1" '$1 == name { print $2 }' "$certs/tokens"
}
for name in edge-1 edge-4; do
	(umask 077 && token_of $name >"$work/$name")
done

train_as() { # NAME FLAG...
	local name=$1
	shift
	train "$work/quota.json" --server "127.0.0.1:$server_port" "${flags[@]}" --token-file "$work/$name" "$@" \
		2>"$work/quota.err"
}

hang_up() { # TEXT-OF-THE-LOG
	kill -HUP "$server_pid"
	await grep -qF "$1" "$work/server.log" || fail "SIGHUP: no '$1' in the log: $(tail -3 "$work/server.log")"
}

printf 'default runs=2\n\ntoken:edge-1 memry=1M\n' >"$limits"
status=0
"$build/gpserverd" --listen 127.0.0.1:0 --limits "$limits" 2>"$work/broken.log" || status=$?
equal "status of a server with broken limits" $status 3
grep -qF "$limits:3: token:edge-1: no key 'memry'; did you mean 'memory'?" "$work/broken.log" ||
	fail "the mistake is not told: $(cat "$work/broken.log")"

printf 'default checkpoints=8M\ntoken:edge-1 memory=1M\ntoken:edge-5 runs=1\n' >"$limits"
start_server --threads 1 --tokens "$certs/tokens" --limits "$limits" --state-dir "$work/states" --state-max 10M
grep -qE 'checkpoints of 2 names may come to 16.0 MiB together, and --state-max is 10.0 MiB' "$work/server.log" ||
	fail "no word of shares that come to more than there is: $(cat "$work/server.log")"
train_as edge-1 && fail "a session over its quota of memory was let in"
grep -qE 'needs [0-9.]+ MiB of memory, token:edge-1 may have 1\.0 MiB in all \(--limits\)' "$work/quota.err" ||
	fail "memory over the quota: $(cat "$work/quota.err")"
train_as edge-4 || fail "another name has no quota of memory: $(cat "$work/quota.err")"

printf 'token:edge-1 checkpoints=1k\ntoken:edge-1 links=6\n' >"$limits"
hang_up "the old limits stay in use: --limits: $limits:2: token:edge-1 has a line already, 1"
train_as edge-1 && fail "a broken file has lifted a quota"
printf 'token:edge-1 checkpoints=1k links=6\n' >"$limits"
hang_up "limits read again"
train_as edge-1 --checkpoint "$work/ck1" --checkpoint-every 1 || fail "a quota that was lifted: $(cat "$work/quota.err")"
grep -qE 'this checkpoint takes [0-9.]+ MiB; this client may have 0\.0 MiB and [0-9]+ runs \(--limits\)' \
	"$work/quota.json.log" || fail "checkpoints over the quota: $(cat "$work/quota.json.log")"
train_as edge-4 --checkpoint "$work/ck4" --checkpoint-every 1 || fail "another name: $(cat "$work/quota.err")"
grep -q 'this checkpoint takes' "$work/quota.json.log" && fail "another name's checkpoint: $(cat "$work/quota.json.log")"
equal "runs that have checkpoints" "$(find "$work/states" -name 'step-*' | wc -l)" 1

# ---- links in a minute: who is told to wait waits ----

refused='token:edge-1 may begin 6 in a minute \(--limits\), all of them are used, and the next is free in [0-9]+ s'
began=$SECONDS
for n in $(seq 2 20); do
	train_as edge-1 || fail "training $n: $(cat "$work/quota.err")"
	grep -qE "$refused; trying again for" "$work/quota.json.log" && break
done
waited=$(grep -cE "$refused" "$work/quota.json.log")
# On a machine that needs more than ten seconds for each, none is over the quota.
within=$((6 * (SECONDS - began) >= 60 * (n - 6)))
equal "refusals of links, as many as clients waited" "$(grep -cE ' connection .* one more link is asked for' "$work/server.log")" \
	"$waited"
equal "a link beyond 6 in a minute is told to wait: $waited of $n in $((SECONDS - began)) s" $((waited || within)) 1
stop_server
finish
