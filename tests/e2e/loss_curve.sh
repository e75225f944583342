#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The losses of 100 training steps are PyTorch's (tests/golden/curves, made by
# tests/tools/dump_curves.py), within 1e-3 of each: whatever is wrong with drawn
# weights, order of images, forward, backward, optimizer or schedule adds up.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

losses() { # FILE
	sed -nE 's/.*"event":"step".*"loss":([^,]*).*/\1/p' "$1"
}

curve() { # FILE RUN-NAME FLAG...
	local file=$1 name=$2
	shift 2
	rm -f "$work/run.jsonl"
	# shellcheck disable=SC2046,SC2154 # the first line is flags; lib.sh sets work
	train "$work/run.json" $(head -1 "$file") --no-augment --no-eval --threads 1 --log-json "$work/run.jsonl" "$@" ||
		{ fail "$name: no run" && return; }
	if paste <(sed 1d "$file") <(losses "$work/run.jsonl") | awk -v name="$name" '
		{ d = $2 / $1 - 1; d = d < 0 ? -d : d }
		d > max { max = d; at = NR - 1 }
		END { printf "%s: %d steps, at most %.1e apart, at step %d\n", name, NR, max, at; exit NR != 100 || max > 1e-3 }'
	then
		echo "ok: $name"
	else
		fail "$name: the losses are not PyTorch's"
	fi
}

# shellcheck disable=SC2154 # lib.sh sets them
for file in "$source_dir"/tests/golden/curves/*.txt; do
	curve "$file" "$(basename "$file" .txt)" --local
done
start_server --threads 1
# shellcheck disable=SC2154
curve "$source_dir/tests/golden/curves/cnn-nesterov.txt" "cnn-nesterov, split" --cut 1:-1 \
	--server "127.0.0.1:$server_port"
stop_server
finish
