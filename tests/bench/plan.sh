#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# plan.sh: how near `gpclient plan` comes. 24 combinations, three links x four codecs x two cuts, each predicted and then
# trained, in two network namespaces joined by a shaped link (deploy/link.sh); prints the predicted time per batch beside
# the measured one, their ratio, what bounds either, and the largest miss. Rows that the result file has already are not
# measured again, so that the script may be stopped at any time and started anew. Needs root and a quiet machine: both
# ends share its processors, which the prediction is told. It is told the rate of a link as well; a link with a delay is
# measured once, because a relay may delay (deploy/link.sh), whose queue is a part of the link. Figures: RESULTS.md

set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=/dev/null
. deploy/json.sh

build=build/release links='50mbit,0 200mbit,10ms 1gbit,0' codecs='raw fp16 uniform:bits=8 sortquant:bits=6,split=2'
cuts='1:-1 4:-2' model=mobilenetv2:width=0.5,stem=cifar shape=3x32x32 batch=64 chunks=8 steps=20 threads=1 port=4400
out=plan.tsv within=10 measured_link='' inside='' work=''

usage() {
	cat <<-END
	usage: tests/bench/plan.sh [OPTION]...    (as root; release preset built)

	  --build DIR    default $build
	  --out FILE     a row for each combination; what it has already is not measured again; default $out
	  --links LIST   RATE,DELAY each, the delay one way (0: none); default '$links'
	  --codecs LIST  separated by spaces; default '$codecs'
	  --cuts LIST    default '$cuts'
	  --model SPEC   default $model
	  --shape CxHxW  of pictures that are made on the fly; default $shape
	  --batch N      default $batch
	  --chunks N     default $chunks
	  --steps N      of each training; default $steps
	  --threads N    compute threads of each process; default $threads
	  --measure-link measures links without a delay, too
	  --within P     percent that a prediction may be off; default $within
	END
}

parse_options() {
	local name
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--measure-link) measured_link=1 && shift ;;
		--inside | --work | --build | --out | --links | --codecs | --cuts | --model | --shape | --batch | --chunks | --steps | --threads | \
			--within)
			[ $# -ge 2 ] || { echo "plan.sh: $1 needs a value" >&2 && exit 2; }
			name=${1#--}
			printf -v "$name" %s "$2"
			shift 2
			;;
		*) echo "plan.sh: unknown option '$1'; see --help" >&2 && exit 2 ;;
		esac
	done
}

# Payload of a rate: of 1514 bytes of a packet 1448 are TCP's, and for every second packet of the other way an
# acknowledgement of 66 bytes travels this one.
payload_rate() { # 50mbit
	awk -v rate="$1" 'BEGIN { unit = rate; sub(/^[0-9.]+/, "", unit); printf "%.4f%s\n", (rate + 0) * 1448 / (1514 + 33), unit }'
}

# deploy/link.sh has a queue of 50 ms before each direction.
queues() { # 50mbit
	awk -v bits="$(payload_rate "$1" | sed 's/[a-z]*$//')" -v rate="$1" 'BEGIN {
		factor = rate ~ /gbit/ ? 1e9 : rate ~ /mbit/ ? 1e6 : rate ~ /kbit/ ? 1e3 : 1
		printf "queue-up=%.0f,queue-down=%.0f\n", bits * factor * 0.05 / 8, bits * factor * 0.05 / 8
	}'
}

# The flags of a link that a prediction has measured before.
measured() { # PLAN-JSON
	awk -v up="$(json_get "$1" link.up_bps)" -v down="$(json_get "$1" link.down_bps)" -v rtt="$(json_get "$1" link.round_trip_s)" \
		-v queue_up="$(json_get "$1" link.queue_up_bytes)" -v queue_down="$(json_get "$1" link.queue_down_bytes)" \
		'BEGIN { printf "up=%.0fbit,down=%.0fbit,rtt=%.6fs,queue-up=%.0f,queue-down=%.0f\n", up, down, rtt, queue_up, queue_down }'
}

name_of() { # LINK CODEC CUT
	printf '%s %s %s %s b%s/%s' "$1" "$2" "$3" "$model" "$batch" "$chunks"
}

is_done() { # NAME
	[ -s "$out" ] && awk -F'\t' -v name="$1" '$1 == name { found = 1 } END { exit !found }' "$out"
}

largest() { # FILE: what bounds most of the time
	json_flat "$1" | awk -F= '/^bound_by\./ && $2 + 0 > most { most = $2 + 0; name = substr($1, 10) } END { print name }'
}

# Runs at the client's end of the link.
row() { # LINK CODEC CUT
	local flags name
	name=$(name_of "$@")
	is_done "$name" && return
	flags=(--model "$model" --data "synthetic:shape=$shape,classes=10" --server "$GP_SERVER_ADDR:$port" --batch "$batch"
		--chunks "$chunks" --threads "$threads" --codec "$2" --cut "$3" --seed 1 --json --no-progress)
	if [ -s "$work/link" ]; then
		set -- "$@" --link "$(cat "$work/link")"
	elif [ -z "$measured_link" ] && [ "${1#*,}" = 0 ]; then
		set -- "$@" --link "$(payload_rate "${1%,*}"),$(queues "${1%,*}")"
	fi
	"$build/gpclient" plan "${flags[@]}" --same-machine yes "${@:4}" >"$work/plan.json" || return
	[ $# -gt 3 ] || measured "$work/plan.json" >"$work/link"
	"$build/gpclient" train "${flags[@]}" --steps "$steps" --no-eval >"$work/train.json" 2>"$work/train.log" ||
		{ cat "$work/train.log" >&2 && return 1; }
	printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$(json_get "$work/plan.json" time_per_batch_s)" \
		"$(json_get "$work/train.json" time_per_batch_s)" "$(largest "$work/plan.json")" "$(largest "$work/train.json")" \
		"$(json_get "$work/plan.json" window)" "$(json_get "$work/train.json" window)" >>"$out"
	tail -n 1 "$out" >&2
}

rows_of_link() { # LINK
	local cut codec
	rm -f "$work/link"
	for cut in $cuts; do
		for codec in $codecs; do
			row "$1" "$codec" "$cut" || return
		done
	done
}

run_link() { # LINK
	local delay=()
	[ "${1#*,}" = 0 ] || delay=(--delay "${1#*,}" --gpclient "$build/gpclient")
	deploy/link.sh --rate "${1%,*}" "${delay[@]}" --wait-port $port -- \
		"$build/gpserverd" --listen 10.77.0.1:$port --insecure --threads "$threads" --log all=warn -- \
		"$0" "${given[@]}" --inside "$1" --work "$work" 2> >(grep -v '^link:' >&2)
}

table() {
	awk -F'\t' -v within="$within" '
		BEGIN { printf "%-78s %10s %10s %7s  %-10s %s\n", "link codec cut model", "predicted", "measured", "ratio", "bound by", "measured   windows" }
		{
			ratio = $2 / $3
			miss = ratio > 1 ? ratio - 1 : 1 - ratio
			if (miss > most) { most = miss; worst = $1 }
			bad += miss * 100 > within
			printf "%-78s %10.4f %10.4f %7.3f  %-10s %-10s %d, %d\n", $1, $2, $3, ratio, $4, $5, $6, $7
		}
		END {
			printf "%d combinations, %d of them off by more than %g %%; largest miss %.1f %%: %s\n", NR, bad, within, 100 * most, worst
			exit bad > 0
		}' "$out"
}

main() {
	local link given=("$@")
	parse_options "$@"
	if [ -n "$inside" ]; then # by run_link, at the client's end
		rows_of_link "$inside"
		exit
	fi
	[ -x "$build/gpclient" ] || { echo "plan.sh: no $build/gpclient: build the release preset" >&2 && exit 2; }
	work=$(mktemp -d) || exit 1
	trap 'rm -rf "$work"' EXIT
	for link in $links; do
		run_link "$link" || exit
	done
	table
}

main "$@"
