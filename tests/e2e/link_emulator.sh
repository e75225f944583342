#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient link between client and server: a shaped link changes nothing but
# the time, its counters agree with the client's, and no rate that the client
# tells is above that of the link; a trickle is still the same training, and so
# is one over a link that damages a byte; one that damages every link is given
# up, and the client says why. Over a long link more chunks are in flight.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

flags=(--model cnn --data synthetic:shape=3x32x32,classes=10,samples=256 --batch 32 --chunks 4 --lr 0.05 --seed 3
	--threads 1 --no-eval --steps 4)

start_server --threads 1
train "$work/plain.json" --server "127.0.0.1:$server_port" "${flags[@]}" || fail "training without a link"
sha=$(json_get "$work/plain.json" param_sha256)

start_link --rate 100mbit --rate-down 80mbit --delay 1ms --jitter 1ms
train "$work/shaped.json" --server "127.0.0.1:$link_port" "${flags[@]}" || fail "training over a shaped link"
stop_link
equal "parameters over a shaped link" "$(json_get "$work/shaped.json" param_sha256)" "$sha"
up=$(json_get "$work/link.json" up.bytes) want=$(json_get "$work/shaped.json" wire_up_bytes)
# The client counts until it reports; its good-bye comes after that.
if [ "$up" -ge "$want" ] && [ "$up" -le $((want + 1000)) ]; then
	echo "ok: the link counted $up bytes up, the client $want"
else
	fail "the link counted $up bytes up, the client $want"
fi
[ -e "$work/link.port" ] && fail "the port file is still there"

# What a kernel's buffer takes at once is no rate; the emulator may have taken a little more than it has passed on.
below() { # WHAT BYTES-PER-SECOND BITS-PER-SECOND
	awk -v got="$2" -v link="$3" 'BEGIN { exit !(got > 0 && got * 8 <= 1.25 * link) }' && echo "ok: $1 ($2 bytes/s)" ||
		fail "$1: $2 bytes/s over a link of $3 bit/s"
}
start_link --rate 20mbit --rate-down 16mbit
train "$work/rate.json" --server "127.0.0.1:$link_port" "${flags[@]}" --steps 10 --progress --log-json "$work/rate.jsonl" ||
	fail "training over a slow link"
stop_link
below "the rate up" "$(json_get "$work/rate.json" up_bytes_per_s)" 20000000
below "the rate down" "$(json_get "$work/rate.json" down_bytes_per_s)" 16000000
if $counts_bytes; then
	last=$(grep -o 'up [0-9.]* MB/s down [0-9.]* MB/s' "$work/rate.json.log" | tail -1)
	below "the progress line's rate up" "$(echo "$last" | awk '{ print $2 * 1e6 }')" 20000000
	below "the progress line's rate down" "$(echo "$last" | awk '{ print $5 * 1e6 }')" 16000000
fi
[ "$(json_get "$work/rate.json" rtt_us)" -gt 0 ] && echo "ok: a round trip was measured" || fail "no round trip"
tail -1 "$work/rate.jsonl" >"$work/end.json"
equal "the log's last event has the same rate" "$(json_get "$work/end.json" report.up_bytes_per_s | cut -c1-6)" \
	"$(json_get "$work/rate.json" up_bytes_per_s | cut -c1-6)"

start_link --trickle --direction down
train "$work/trickle.json" --server "127.0.0.1:$link_port" "${flags[@]}" --steps 1 || fail "training over a trickle"
train "$work/one.json" --server "127.0.0.1:$server_port" "${flags[@]}" --steps 1 || fail "training one step"
stop_link
equal "parameters over a trickle" "$(json_get "$work/trickle.json" param_sha256)" "$(json_get "$work/one.json" param_sha256)"

for way in up down; do
	start_link --corrupt-byte 60000 --direction $way --times 1
	train "$work/damaged.json" --server "127.0.0.1:$link_port" "${flags[@]}" || fail "training over a link that damages a byte $way"
	stop_link
	equal "parameters after a corrupt byte $way" "$(json_get "$work/damaged.json" param_sha256)" "$sha"
	equal "corrupt bytes $way that the link counted" "$(json_get "$work/link.json" $way.corrupted)" 1
	equal "links that a corrupt byte $way cost" "$(json_get "$work/damaged.json" reconnects)" 1
done

for way in up down; do
	start_link --corrupt-byte 60000 --direction $way
	status=0
	"$build/gpclient" train --no-progress --server "127.0.0.1:$link_port" "${flags[@]}" >"$work/out" 2>"$work/err" || status=$?
	stop_link
	equal "links that all damage what goes $way end the client with status" $status 4
	equal "corrupt bytes $way that the link counted" "$(json_get "$work/link.json" $way.corrupted)" 3
	grep -q 'the link .*damages data: bytes came with a wrong checksum on 3 links in a row' "$work/err" ||
		fail "what the client says of damage: $(cat "$work/err")"
done

# Long round trips: all chunks of a step are in flight, unless the user or the server's memory says otherwise.
long=(--model cnn --data synthetic:shape=3x32x32,classes=10,samples=64 --batch 32 --chunks 8 --threads 1 --no-eval --steps 1)
start_link --delay 20ms
train "$work/near.json" --server "127.0.0.1:$server_port" "${long[@]}" --window 4 || fail "training without a delay"
train "$work/long.json" --server "127.0.0.1:$link_port" "${long[@]}" || fail "training over a long link"
train "$work/told.json" --server "127.0.0.1:$link_port" "${long[@]}" --window 3 || fail "training with a window of 3"
equal "chunks in flight over a long link" "$(json_get "$work/long.json" window)" 8
equal "chunks in flight as told" "$(json_get "$work/told.json" window)" 3
equal "parameters with another window" "$(json_get "$work/long.json" param_sha256)" "$(json_get "$work/near.json" param_sha256)"
stop_link
stop_server
start_server --threads 1 --session-memory 12M
start_link --delay 20ms
train "$work/little.json" --server "127.0.0.1:$link_port" "${long[@]}" || fail "training where the server has little memory"
equal "chunks in flight where the server has memory for so many" "$(json_get "$work/little.json" window)" 4
equal "broken links" "$(json_get "$work/little.json" reconnects)" 0
stop_link
stop_server
finish
