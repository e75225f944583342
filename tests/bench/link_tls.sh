#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# link_tls.sh: what does TLS cost at the rate of a link? Frames of 1 MiB from
# client to server through deploy/link.sh (tests/bench/bench_channel.c), without
# and with TLS by turns; prints rates, processor shares, and the ratios of
# neighbouring runs. With packets of 1500 bytes the kernel of a small host may
# not come up to the rate: hence the MTU. Needs root, openssl and a quiet machine. Figures: RESULTS.md

set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1

build=build/release rate=1gbit mtu=9000 pairs=5 seconds=3 port=4400

while [ $# -gt 0 ]; do
	case $1 in
	--build | --rate | --mtu | --pairs | --seconds) [ $# -ge 2 ] && printf -v "${1#--}" %s "$2" && shift 2 || exit 2 ;;
	*) echo "usage: tests/bench/link_tls.sh [--build DIR] [--rate RATE] [--mtu BYTES]" \
		"[--pairs N] [--seconds N]" >&2 && exit 2 ;;
	esac
done

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
deploy/gen-test-certs.sh "$work/certs" || exit 1

run() { # NAME [FOLDER]: sets rate_now
	local bench=$build/tests/bench_channel
	deploy/link.sh --shaper tbf --rate "$rate" --mtu "$mtu" --wait-port $port -- \
		"$bench" --listen 10.77.0.1:$port "$seconds" "${@:2}" -- \
		"$bench" --connect 10.77.0.1:$port "$seconds" "${@:2}" >"$work/out" 2>"$work/log" || {
		cat "$work/log" >&2
		exit 1
	}
	rate_now=$(awk '$1 == "listener" { print $6 }' "$work/out")
	awk -v name="$1" '{ share[$1] = $8 } $1 == "listener" { rate = $6 }
		END { printf "%-6s %7.1f Mbit/s  %3d + %d %% of a processor\n", name, rate, share["client"], share["listener"] }' \
		"$work/out"
}

for _ in $(seq "$pairs"); do
	run plain
	plain=$rate_now
	run TLS "$work/certs"
	awk -v a="$rate_now" -v b="$plain" 'BEGIN { printf "       throughput with TLS: %.1f %%\n", 100 * a / b }'
done
