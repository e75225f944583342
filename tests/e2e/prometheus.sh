#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A real Prometheus with the configuration and the alerts of deploy/prometheus, but for addresses and intervals, scrapes a
# gpserverd that trains and the client that trains with it, and answers queries with their step rates.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"
command -v curl >/dev/null || { echo "no curl here" && exit 77; }
command -v prometheus >/dev/null && command -v promtool >/dev/null ||
	{ echo "Prometheus is not installed (Debian: apt-get install prometheus): skipped" && exit 77; }
client_pid='' prometheus_pid=''
trap '[ -n "$client_pid" ] && kill "$client_pid"; [ -n "$prometheus_pid" ] && kill "$prometheus_pid"; cleanup' EXIT

promtool check rules "$source_dir/deploy/prometheus/gpsplit.rules.yml" || fail "promtool refuses the alerts"
start_server --threads 1 --metrics 127.0.0.1:0
await grep -q 'live page are at' "$work/server.log" || fail "no address of the figures: $(cat "$work/server.log")"
server_port_of_figures=$(sed -nE 's|.*figures and the live page are at http://[^ ]*:([0-9]+)/ .*|\1|p' "$work/server.log")
# shellcheck disable=SC2054
"$build/gpclient" train --no-progress --server "127.0.0.1:$server_port" --model cnn --batch 8 --chunks 2 --threads 1 --no-eval \
	--data synthetic:shape=3x16x16,classes=4,samples=64 --schedule const --steps 1000000000 --share-loss --metrics 127.0.0.1:0 \
	2>"$work/client.log" >/dev/null &
client_pid=$!
is_told() { grep -q '^figures are at http' "$work/client.log"; }
await is_told || { fail "no figures of the client: $(cat "$work/client.log")" && finish; }
client_port_of_figures=$(sed -nE 's|^figures are at http://[^ ]*:([0-9]+)/metrics .*|\1|p' "$work/client.log")

# Our files; only what names a port or an interval is another.
mkdir "$work/prometheus" && cp "$source_dir/deploy/prometheus/gpsplit.rules.yml" "$work/prometheus/"
sed -e "s/127\.0\.0\.1:9440/127.0.0.1:$server_port_of_figures/" -e 's/scrape_interval: 15s/scrape_interval: 1s/' \
	"$source_dir/deploy/prometheus/prometheus.yml" >"$work/prometheus/prometheus.yml"
equal "the target is in the configuration" "$(grep -c "^ *- targets: .*127.0.0.1:$server_port_of_figures" "$work/prometheus/prometheus.yml")" 1
echo "[{\"targets\": [\"127.0.0.1:$client_port_of_figures\"]}]" >"$work/prometheus/gpclient-1.json"
promtool check config "$work/prometheus/prometheus.yml" || fail "promtool refuses the configuration"
prometheus --config.file="$work/prometheus/prometheus.yml" --storage.tsdb.path="$work/prometheus/data" --web.listen-address=127.0.0.1:0 \
	2>"$work/prometheus.log" >&2 &
prometheus_pid=$!
address() { sed -nE 's/.*msg="?Listening on"? address=(127\.0\.0\.1:[1-9][0-9]*).*/\1/p' "$work/prometheus.log" | tail -1; }
listens() { [ -n "$(address)" ]; }
await listens || { fail "Prometheus does not start: $(tail -5 "$work/prometheus.log")" && finish; }

query() { # EXPRESSION: its value; nothing where there is none
	curl -s --max-time 60 --get "http://$(address)/api/v1/query" --data-urlencode "query=$1" >"$work/answer" &&
		json_flat "$work/answer" 2>/dev/null | sed -n 's/^data\.result\.0\.value\.1=//p'
}
is_more_than_0() { awk -v x="$(query "$1")" 'BEGIN { exit !(x + 0 > 0) }'; }
for expression in 'up{job="gpserverd"}' 'up{job="gpclient"}' 'sum(rate(gpserverd_steps_total[1m]))' \
	'sum(rate(gpclient_steps_total[1m]))' 'gpserverd_session_steps_per_second' 'gpserverd_session_loss' 'gpclient_loss' \
	'sum(rate(gpserverd_wire_bytes_total{way="up"}[1m]))' 'sum(rate(gpclient_stage_seconds_total{stage="encode"}[1m]))'; do
	await is_more_than_0 "$expression" || fail "$expression is '$(query "$expression")': $(cat "$work/answer")"
	echo "ok: $expression ($(query "$expression"))"
done

both_are_read() { [ "$(query 'count(up == 1)')" = 2 ]; }
await both_are_read || fail "not both are read: $(cat "$work/answer")"
curl -s --max-time 60 "http://$(address)/api/v1/rules" >"$work/rules"
equal "alerts that cannot be computed" "$(json_flat "$work/rules" | grep -c '\.health=err')" 0
[ "$(json_flat "$work/rules" | grep -c '\.name=Gp')" -ge 12 ] || fail "alerts are missing: $(cat "$work/rules")"

kill "$client_pid" && wait "$client_pid"
equal "the client's status" $? 143
client_pid=''
kill "$prometheus_pid" && wait "$prometheus_pid"
equal "Prometheus' status" $? 0
prometheus_pid=''
stop_server
finish
