#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# auto.sh BUILD-FOLDER RESULTS: does --codec auto follow a link that changes while it trains? Each run goes over a link
# between two network namespaces (deploy/link.sh, as root) whose rate changes twice, by the steps that are done: 1 Gbit/s,
# 50 Mbit/s, 200 Mbit/s. The same training runs with each fixed codec of CODECS. Prints the median time per batch in each
# phase, but for its first 5 steps, beside the best fixed codec's, and the accuracy at the end.
#
# RESULTS is a file with a line for each run that is finished; runs that it has are not run again, so that the script may be
# stopped at any time and goes on where it was. PHASE (steps of each rate), RATES, CODECS, SEEDS, THREADS, TRAIN (flags of the
# training) as below; for what is asked of it, with flowers:
#   TRAIN='--model mobilenetv2:pad=same,eps=1e-3 --data folder:FLOWERS,size=96,mean=0.5,std=0.5 --input 3x96x96 --init WEIGHTS
#     --init-skip classifier.* --batch 32 --chunks 4 --cut 1:-1 --lr 0.004 --weight-decay 0' PHASE=61 SEEDS='1 2 3'
# Busy machines change the figures: what computes longer hides more. Figures: RESULTS.md

set -u -o pipefail
usage="usage: $0 BUILD-FOLDER RESULTS"
build=$(cd "${1:?$usage}" && pwd) results=${2:?$usage}
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=/dev/null
. deploy/json.sh
phase=${PHASE:-20} rates=${RATES:-1gbit 50mbit 200mbit} seeds=${SEEDS:-1} threads=${THREADS:-1} steady=5
codecs=${CODECS:-raw bf16 block:bits=8,size=64 block:bits=6,size=64 hadamard:size=64+block:bits=4,size=64}
train=${TRAIN:---model mobilenetv2:width=0.5,stem=cifar --data synthetic:shape=3x32x32,classes=10,samples=512 --batch 64 --chunks 8
	--cut 1:-2 --lr 0.02}
touch "$results" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# At one end of the link, in its namespace: changes the rate of what leaves it when so many steps are in the log.
cat >"$work/follow.sh" <<'END'
log=$1 phase=$2 at=0
shift 2
for rate in "$@"; do
	while [ "$(grep -cs '"event":"step"' "$log")" -lt $((at * phase)) ] 2>/dev/null; do sleep 0.1; done
	tc qdisc replace dev gp0 root tbf rate "$rate" burst 64k latency 50ms || exit 1
	at=$((at + 1))
done
END

run() { # KEY CODEC SEED
	local log=$work/log key=$1 status=0 total
	grep -q "^$key	" "$results" && return
	total=$(($(wc -w <<<"$rates") * phase))
	rm -f "$log" && touch "$log"
	# shellcheck disable=SC2086
	deploy/link.sh --rate 1gbit --shaper tbf --wait-port 4400 -- \
		bash -c 'bash "$1" "$2" "$3" $4 & exec "$5" --listen "$GP_SERVER_ADDR:4400" --insecure --threads "$6"' server \
		"$work/follow.sh" "$log" "$phase" "$rates" "$build/gpserverd" "$threads" -- \
		bash -c 'bash "$1" "$2" "$3" $4 & shift 4; exec "$@"' client "$work/follow.sh" "$log" "$phase" "$rates" \
		"$build/gpclient" train --server 10.77.0.1:4400 --json --no-progress $train --steps "$total" --seed "$3" \
		--threads "$threads" --codec "$2" --log-json "$log" >"$work/json" 2>"$work/err" || status=$?
	[ $status = 0 ] || { tail -3 "$work/err" >&2 && return 1; }
	printf '%s\t%s\t%s\n' "$key" "$(json_get "$work/json" val_acc)" "$(times "$log")" >>"$results"
	grep '^codec of' "$work/err" >&2 || true
}

# Medians of the phases, one behind the other.
times() { # LOG
	grep '"event":"step"' "$1" | awk -v phase="$phase" -v steady=$steady '
		{ match($0, /"seconds":[0-9.e-]*/); x = substr($0, RSTART + 10, RLENGTH - 10) + 0
		  p = int((NR - 1) / phase); if ((NR - 1) % phase >= steady) value[p, n[p]++] = x; last = p }
		END { for (p = 0; p <= last; p++) {
			for (i = 1; i < n[p]; i++) { x = value[p, i]; for (k = i; k > 0 && value[p, k - 1] > x; k--) value[p, k] = value[p, k - 1]; value[p, k] = x }
			printf "%s%.4f", p ? "\t" : "", value[p, int(n[p] / 2)] } }'
}

for seed in $seeds; do
	for codec in $codecs auto; do
		run "$codec seed=$seed phase=$phase" "$codec" "$seed" || exit 1
	done
done

# shellcheck disable=SC2086
awk -F '\t' -v rates="$rates" '
	BEGIN { n = split(rates, rate, " "); printf "%-56s %8s", "codec, seed, steps of a phase", "accuracy"
		for (i = 1; i <= n; i++) printf " %12s", rate[i]; print "  (seconds per batch)" }
	{ printf "%-56s %8s", $1, $2; for (i = 1; i <= n; i++) printf " %12s", $(i + 2); print ""
	  for (i = 1; i <= n; i++) if ($1 ~ /^auto/) { auto[i] += $(i + 2); autos[i]++ } else {
		split($1, word, " "); sum[word[1], i] += $(i + 2); count[word[1], i]++; name[word[1]] = 1 } }
	END { printf "%-56s %8s", "auto by the best fixed codec", ""
		for (i = 1; i <= n; i++) { best = 0
			for (c in name) { x = sum[c, i] / count[c, i]; if (!best || x < best) best = x }
			printf " %12.3f", autos[i] && best ? auto[i] / autos[i] / best : 0 }
		print "" }' "$results"
