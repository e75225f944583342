#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpserverd --metrics: asked again and again while a training runs, its figures agree with those that the client prints;
# wrong requests get the statuses that say so; clients that say nothing do not disturb; with TLS and tokens nobody else reads
# along. That the text is what Prometheus reads is tests/unit/test_server_metrics.c's
# affair; where promtool is installed, it is asked, too.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"
command -v curl >/dev/null || { echo "no curl here" && exit 77; }

# shellcheck disable=SC2054
flags=(--model cnn --data synthetic:shape=3x16x16,classes=4,samples=64 --batch 8 --chunks 2 --threads 1 --schedule const
	--no-eval)
silent=()

metrics_address() {
	await grep -q 'live page are at' "$work/server.log"
	sed -nE 's|.*figures and the live page are at (https?://[^ ]*/) .*|\1|p' "$work/server.log" | tail -1
}

ask() { # PATH FLAG...
	curl -s --max-time 120 "${@:2}" "$url${1#/}"
}

status_of() { # PATH FLAG...
	curl -s --max-time 120 -o /dev/null -w '%{http_code}' "${@:2}" "$url${1#/}"
}

# The value of a sample of the newest scrape; awk, so that labels with blanks do not matter.
value() { # LINE
	ask metrics | awk -v line="$1 " 'index($0, line) == 1 { print substr($0, length(line) + 1) }'
}

is_value() { # LINE WANTED
	[ "$(value "$1")" = "$2" ]
}

start_server --threads 1 --state-dir "$work/state" --metrics 127.0.0.1:0
url=$(metrics_address)
[ -n "$url" ] || { fail "no address of the figures: $(cat "$work/server.log")" && finish; }

# Fifty that say nothing, for the whole training; a scrape every 100 ms meanwhile, and no counter that goes back.
for _ in $(seq 50); do
	exec {fd}<>"/dev/tcp/127.0.0.1/$(echo "$url" | grep -oE '[0-9]+/$' | tr -d /)" && silent+=("$fd")
done
scrape() {
	while [ ! -e "$work/done" ]; do
		ask metrics >"$work/scrape" || echo "no answer" >>"$work/scrapes.bad"
		awk 'NR == FNR { before[$1] = $2; next } /_total[{ ]/ && $1 in before && $2 + 0 < before[$1] + 0 { print $0 " after " before[$1] }' \
			"$work/scrape.before" "$work/scrape" >>"$work/scrapes.bad"
		mv "$work/scrape" "$work/scrape.before"
		echo . >>"$work/scrapes"
		sleep 0.1
	done
}
: >"$work/scrapes.bad" && : >"$work/scrape.before" && : >"$work/scrapes"
scrape &
scraper=$!
train "$work/client.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 40 --checkpoint "$work/run" --checkpoint-every 10 ||
	fail "the training"
await test -s "$work/scrapes" || fail "nothing was scraped"
touch "$work/done" && wait $scraper
equal "scrapes that failed or went back" "$(cat "$work/scrapes.bad")" ""
for fd in "${silent[@]}"; do exec {fd}>&-; done

# Its figures, when the client has gone, are the client's.
await is_value gpserverd_connections 0 || fail "the client's connection is still there"
await is_value "gpserverd_sessions_ended_total{reason=\"bye\"}" 1 || fail "the session has not ended" # a moment later
seat='name="anonymous",seat="0"'
for kind in act_up act_down grad_up grad_down param_down; do
	for form in tensor payload wire; do
		equal "$form bytes of $kind" "$(value "gpserverd_session_frame_bytes_total{$seat,kind=\"$kind\",form=\"$form\"}")" \
			"$(json_get "$work/client.json" "link.$kind.${form}_bytes")"
	done
	equal "tensors of $kind" "$(value "gpserverd_frames_total{kind=\"$kind\"}")" "$(json_get "$work/client.json" "link.$kind.frames")"
done
up=$(value "gpserverd_wire_bytes_total{way=\"up\"}")
said=$((up - $(json_get "$work/client.json" link.sent.wire_bytes))) # the client counts before it says bye
[ $said -ge 0 ] && [ $said -lt 112 ] || fail "bytes up: $up, $said more than the client says"
down=$(value "gpserverd_session_wire_bytes_total{$seat,way=\"down\"}")
said=$((down - $(json_get "$work/client.json" link.received.wire_bytes))) # heartbeats of 24 bytes, where the client takes its time
[ $said -ge 0 ] && [ $said -le 96 ] && [ $((said % 24)) -eq 0 ] || fail "bytes down: $down, $said more than the client says"
for way in up down; do
	$counts_bytes || break
	ours=$(value "gpserverd_wire_bytes_total{way=\"$way\"}") kernel=$(value "gpserverd_kernel_bytes_total{way=\"$way\"}")
	# within 0.5 %
	awk -v a="$ours" -v b="$kernel" 'BEGIN { exit !(a > 0 && (b - a) ^ 2 <= (0.005 * a) ^ 2) }' ||
		fail "bytes $way: $ours, and $kernel by the kernel"
done
equal "steps" "$(value gpserverd_steps_total)" 40
equal "checkpoints" "$(value "gpserverd_checkpoints_total{outcome=\"written\"}")" "$(json_get "$work/client.json" checkpoints_written)"
equal "sessions that ended well" "$(value "gpserverd_sessions_ended_total{reason=\"bye\"}")" 1
await is_value "gpserverd_session_id{$seat}" "" || fail "somebody has the seat still"
ask sessions >"$work/sessions.json"
equal "steps in the JSON" "$(json_get "$work/sessions.json" sessions.0.steps)" 40
equal "the last event" "$(json_flat "$work/sessions.json" | sed -n 's/^events\.[0-9]*\.event=//p' | tail -1)" session_ended
if command -v promtool >/dev/null; then
	equal "promtool's complaints" "$(ask metrics | promtool check metrics 2>&1)" ""
fi

# Statuses.
equal "/healthz" "$(ask healthz)" alive
equal "/readyz" "$(ask readyz)" ready
equal "a path that is not there" "$(status_of sessions/1)" 404
equal "POST" "$(status_of metrics -d x)" 405
equal "PUT" "$(status_of metrics -X PUT)" 405
equal "HEAD" "$(status_of metrics -I)" 200
equal "content" "$(status_of metrics -X GET -d x)" 400
equal "another host" "$(status_of metrics -H 'Host: evil.example')" 403
equal "a long path" "$(status_of "$(printf 'a%.0s' $(seq 20000))")" 414
ask "" -i >"$work/page"
grep -qi "^content-security-policy: default-src 'none'; script-src 'sha256-[A-Za-z0-9+/=]*'; style-src 'sha256-" "$work/page" ||
	fail "the page's policy: $(head -12 "$work/page")"
sum=$(sed -n '/<script>/,/<\/script>/p' "$source_dir/server/page.html" | sed '1s/.*<script>//; $s/<\/script>.*//' | head -c -1 |
	openssl dgst -sha256 -binary | base64)
grep -qF "sha256-$sum'" "$work/page" || fail "the policy does not name the page's script ($sum)"
equal "what the page loads from elsewhere" "$(grep -cE '(src|href)=|@import|url\(|https?://[^w]' "$source_dir/server/page.html")" 0
equal "markup made of texts" "$(grep -cE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(' "$source_dir/server/page.html")" 0

stop_server

# Away from loopback: TLS, and a token for all that has names in it.
bad() { # STATUS WORDS FLAG...
	local code got
	got=$("$build/gpserverd" --listen 127.0.0.1:0 "${@:3}" 2>&1)
	code=$?
	[ $code = "$1" ] && [[ $got == *"$2"* ]] && [ "$(wc -l <<<"$got")" = 1 ] && echo "ok: $2" && return
	fail "${*:3}: expected status $1 and '$2', but got $code and: $got"
}
bad 2 "--metrics 0.0.0.0:0: anyone who reaches this address could read" --metrics 0.0.0.0:0
bad 2 "--metrics: " --metrics nonsense
bad 3 "--metrics: cannot listen on " --metrics no..name:9440 --insecure
bad 2 "--log-format: 'xml' is none of text, json" --log-format xml
"$source_dir/deploy/gen-test-certs.sh" "$work/certs" localhost >/dev/null 2>&1 || fail "no certificates"
start_server --threads 1 --metrics 0.0.0.0:0 --tls-cert "$work/certs/server.pem" --tls-key "$work/certs/server.key" \
	--tokens "$work/certs/tokens"
url=$(metrics_address) && url=${url/0.0.0.0/localhost}
descriptors() { find "/proc/$server_pid/fd" -type l | wc -l; }
at_rest=$(descriptors) # nobody has asked yet
token=$(awk '!/^#/ && NF { print $NF; exit }' "$work/certs/token")
tls=(--cacert "$work/certs/ca.pem")
equal "in the clear" "$(curl -s --max-time 60 -o /dev/null -w '%{http_code}' "${url/https/http}metrics")" 000
equal "without a token" "$(status_of metrics "${tls[@]}")" 401
equal "with a wrong one" "$(status_of metrics "${tls[@]}" -H 'Authorization: Bearer 0123456789abcdef0123')" 401
equal "with one in another form" "$(status_of metrics "${tls[@]}" -H "Authorization: Basic $token")" 401
equal "with it" "$(status_of metrics "${tls[@]}" -H "Authorization: Bearer $token")" 200
equal "sessions without a token" "$(status_of sessions "${tls[@]}")" 401
equal "health without one" "$(status_of healthz "${tls[@]}")" 200
equal "the page without one" "$(status_of / "${tls[@]}")" 200
equal "TLS 1.2" "$(status_of healthz "${tls[@]}" --tls-max 1.2)" 000
echo "another 0123456789abcdef0123" >"$work/certs/tokens"
kill -HUP "$server_pid"
await grep -q 'certificates and tokens read again' "$work/server.log" || fail "SIGHUP"
equal "with a token that was taken out" "$(status_of metrics "${tls[@]}" -H "Authorization: Bearer $token")" 401
equal "with the one in its place" "$(status_of metrics "${tls[@]}" -H 'Authorization: Bearer 0123456789abcdef0123')" 200

# A certificate that cannot be served, here for want of descriptors, leaves the old one where it is.
limit_descriptors() { # so that the first free number stands below the limit, for reading files, and none for serving
	local free=0
	while [ -e "/proc/$server_pid/fd/$free" ]; do free=$((free + 1)); done
	prlimit --pid "$server_pid" --nofile="$((free + 1)):"
}
if command -v prlimit >/dev/null; then
	rests() { [ "$(descriptors)" -le "$at_rest" ]; }
	await rests || fail "connections that are over hold descriptors"
	before=$(prlimit --pid "$server_pid" --nofile -o SOFT --noheadings)
	limit_descriptors
	kill -HUP "$server_pid"
	await grep -q 'the new certificate cannot be served; the old one stays' "$work/server.log" || fail "a certificate without descriptors"
	prlimit --pid "$server_pid" --nofile="$before:"
	equal "with the certificate that stayed" "$(status_of healthz "${tls[@]}")" 200
	kill -HUP "$server_pid"
	await_lines() { [ "$(grep -c 'certificates and tokens read again' "$work/server.log")" -ge 3 ]; }
	await await_lines || fail "SIGHUP behind one that failed"
	equal "with the one that is read again" "$(status_of healthz "${tls[@]}")" 200
fi
mapfile -t guesses < <(yes "${url}metrics" | head -400) # over one connection: a little of the limit comes back every second
curl -s "${tls[@]}" -H 'Authorization: Bearer wrong-wrong-wrong-wrong' -w '\n%{http_code}\n' "${guesses[@]}" | grep -E '^[0-9]+$' | sort |
	uniq -c >"$work/guesses"
grep -q ' 429$' "$work/guesses" || fail "guesses have no limit: $(cat "$work/guesses")"
stop_server

# The same with certificates: those that the CA gave to clients, and that are good today.
start_server --threads 1 --metrics 0.0.0.0:0 --tls-cert "$work/certs/server.pem" --tls-key "$work/certs/server.key" \
	--tls-client-ca "$work/certs/ca.pem"
url=$(metrics_address) && url=${url/0.0.0.0/localhost}
equal "without a certificate" "$(status_of metrics "${tls[@]}")" 403
equal "health without one" "$(status_of healthz "${tls[@]}")" 200
for name in client:200 server:403 foreign:403 expired:403; do
	of=$work/certs/${name%:*}
	equal "with the certificate ${name%:*}" "$(status_of metrics "${tls[@]}" --cert "$of.pem" --key "$of.key")" "${name#*:}"
done
stop_server
finish
