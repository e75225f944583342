#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient train --metrics: figures of a training under way, split and local, agree with what else is known of it; a port that is
# taken, or an address that everybody could read, ends the command before anything else; the link that breaks is told;
# parameters are those of a training without. The server hears of the loss where --share-loss says so, and not otherwise.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"
command -v curl >/dev/null || { echo "no curl here" && exit 77; }

# shellcheck disable=SC2054
flags=(--model cnn --data synthetic:shape=3x16x16,classes=4,samples=64 --batch 8 --chunks 2 --threads 1 --schedule const)
client_pid='' url=''
trap '[ -n "$client_pid" ] && kill "$client_pid" 2>/dev/null; cleanup' EXIT

is_told() { grep -q '^figures are at http' "$work/client.log"; }

# Trains without end in the background; sets client_pid and url.
start_client() { # FLAG...
	: >"$work/client.log"
	"$build/gpclient" train --no-progress "${flags[@]}" --steps 1000000000 "$@" 2>"$work/client.log" >/dev/null &
	client_pid=$!
	await is_told || { fail "no figures: $(cat "$work/client.log")" && finish; }
	url=$(sed -nE 's|^figures are at (https?://[^ ]*/)metrics .*|\1|p' "$work/client.log")
}

stop_client() { # WANTED-STATUS
	local status=0
	kill "$client_pid" && wait "$client_pid" || status=$?
	client_pid=''
	equal "the client's status" $status "$1"
}

value_at() { # URL LINE: of a new scrape
	curl -s --max-time 120 "$1metrics" | awk -v line="$2 " 'index($0, line) == 1 { print substr($0, length(line) + 1) }'
}

value() { value_at "$url" "$1"; }
is_value() { [ "$(value "$1")" = "$2" ]; }
reaches() { awk -v got="$(value "$1")" -v want="$2" 'BEGIN { exit !(got != "" && got + 0 >= want + 0) }'; }
is_number() { awk -v x="$(value "$1")" 'BEGIN { exit !(x + 0 > 0) }'; }

serve_figures() {
	start_server --threads 1 --metrics 127.0.0.1:0
	await grep -q 'live page are at' "$work/server.log" || fail "no address of the figures: $(cat "$work/server.log")"
}

serve_figures
server_url=$(sed -nE 's|.*figures and the live page are at (http://[^ ]*/) .*|\1|p' "$work/server.log")
told() { value_at "$server_url" 'gpserverd_session_loss{name="anonymous",seat="0"}'; }
hears() { [ -n "$(told)" ]; }
server_has_steps() { [ "$(value_at "$server_url" 'gpserverd_session_steps_total{name="anonymous",seat="0"}')" -gt 3 ]; }

# A split training.
start_client --server "127.0.0.1:$server_port" --metrics 127.0.0.1:0 --clip-norm 5
await reaches gpclient_steps_total 20 || fail "no steps: $(value gpclient_steps_total)"
equal "linked" "$(value gpclient_linked)" 1
equal "reconnects" "$(value gpclient_reconnects_total)" 0
for figure in gpclient_loss gpclient_gradient_norm gpclient_learning_rate gpclient_step_seconds gpclient_memory_bytes gpclient_window \
	gpclient_rtt_seconds process_resident_memory_bytes 'gpclient_server_memory_bytes{where="host"}' \
	'gpclient_frame_bytes_total{kind="act_up",form="payload"}' 'gpclient_stage_seconds_total{kind="grad_down",stage="decode"}'; do
	await is_number "$figure" || fail "$figure is '$(value "$figure")'"
done
await is_number 'gpclient_bandwidth_bytes_per_second{way="down"}' || fail "no bandwidth"
await is_number gpclient_validation_loss || fail "no evaluation"
equal "health" "$(curl -s --max-time 120 "${url}healthz")" alive
if command -v promtool >/dev/null; then
	equal "promtool's complaints" "$(curl -s "${url}metrics" | promtool check metrics 2>&1)" ""
fi
await server_has_steps || fail "the server counts no steps"
equal "what the server hears of the loss" "$(told)" ""

# The link breaks: the figures go on.
kill -KILL "$server_pid" && wait "$server_pid" 2>/dev/null
server_pid=''
await is_value gpclient_linked 0 || fail "a broken link is not told"
equal "health without a server" "$(curl -s --max-time 120 "${url}healthz")" alive
stop_client 143

# The loss that is shared is the newest one's.
serve_figures
server_url=$(sed -nE 's|.*figures and the live page are at (http://[^ ]*/) .*|\1|p' "$work/server.log")
start_client --server "127.0.0.1:$server_port" --metrics 127.0.0.1:0 --share-loss --no-eval
await hears || fail "the server hears nothing of the loss"
awk -v x="$(told)" 'BEGIN { exit !(x > 0 && x < 10) }' || fail "the shared loss is $(told)"

# A port that is taken, in one line and before the data is looked for.
refused() { # STATUS WORDS COMMAND FLAG...
	local code=0 got
	got=$("$build/gpclient" "${@:3}" 2>&1) || code=$?
	[ $code = "$1" ] && [[ $got == *"$2"* ]] && [ "$(wc -l <<<"$got")" = 1 ] && echo "ok: $2" && return
	fail "${*:3}: expected status $1 and '$2', but got $code and: $got"
}
port=${url##*:} && port=${port%/}
"$source_dir/deploy/gen-test-certs.sh" "$work/certs" localhost >/dev/null 2>&1 || fail "no certificates"
tls=(--metrics-cert "$work/certs/server.pem" --metrics-key "$work/certs/server.key" --metrics-tokens "$work/certs/tokens")
nothing=(--local --model cnn --data idx:/no/such/folder --batch 8)
refused 3 "--metrics: cannot listen on 127.0.0.1:$port: another program listens there already" train "${nothing[@]}" \
	--metrics "127.0.0.1:$port"
refused 3 "another program listens there already" pretrain --local --model roberta:layers=1,dim=8,heads=1,ffn=8 \
	--data text:/no/such/file --tokenizer /no/such/folder --metrics "127.0.0.1:$port"
refused 3 "--metrics: cannot listen on no..name:1: " train "${nothing[@]}" --metrics no..name:1 "${tls[@]}"
refused 2 "--metrics: '127.0.0.1' has no port" train "${nothing[@]}" --metrics 127.0.0.1
refused 2 "--metrics 0.0.0.0:0: anyone who reaches this address could read figures of this training" train "${nothing[@]}" \
	--metrics 0.0.0.0:0
refused 2 "--metrics-tokens needs --metrics ADDR:PORT" train "${nothing[@]}" --metrics-tokens file
refused 2 "--metrics-cert: on loopback, as at --metrics 127.0.0.1:0, the figures are plain HTTP and open to every user" \
	train "${nothing[@]}" --metrics 127.0.0.1:0 "${tls[@]}"
refused 2 "--share-loss tells a server the loss" train "${nothing[@]}" --share-loss
stop_client 143

# A local one, away from loopback.
start_client --local --no-eval --metrics 0.0.0.0:0 "${tls[@]}"
url=${url/0.0.0.0/localhost}
token=$(awk '!/^#/ && NF { print $NF; exit }' "$work/certs/token")
status_of() { curl -s --max-time 120 -o "$work/answer" -w '%{http_code}' --cacert "$work/certs/ca.pem" "${@:2}" "$url$1"; }
equal "without a token" "$(status_of metrics)" 401
equal "with one" "$(status_of metrics -H "Authorization: Bearer $token")" 200
equal "figures of a link that there is not" "$(grep -c '^gpclient_linked' "$work/answer")" 0
equal "health without a token" "$(status_of healthz)" 200
stop_client 143

# To the last bit.
train "$work/with.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 12 --metrics 127.0.0.1:0 --share-loss || fail "with --metrics"
train "$work/without.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 12 || fail "without"
equal "parameters" "$(json_get "$work/with.json" param_sha256)" "$(json_get "$work/without.json" param_sha256)"
stop_server
finish
