#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# attack.sh BUILD-FOLDER FOLDER: what a cut gives away. The small CNN is trained on
# Fashion-MNIST, then attacked (gpclient attack) at two cuts with three codecs each:
# a table of distance correlation and PSNR, as RESULTS.md has it.
#
# FOLDER keeps the weights, the log attack.jsonl (for `gpclient report`, too) and a folder
# of pictures for each run. Runs that the log has are not run again, so the script may be
# stopped at any time; called again, it goes on. All of it takes some three minutes of one
# core. CUTS, CODECS, STEPS, TRAIN_STEPS, DATA and THREADS change settings.

set -u -o pipefail
[ $# -eq 2 ] || { echo "usage: $0 BUILD-FOLDER FOLDER" >&2 && exit 2; }
folder=$2
# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"

data=${DATA:-fashion-mnist} threads=${THREADS:-1} steps=${STEPS:-400} train_steps=${TRAIN_STEPS:-300}
cuts=${CUTS:-1:-1 2:-1} codecs=${CODECS:-raw uniform:bits=4 topk:ratio=0.1+uniform:bits=8}
mkdir -p "$folder" || exit 1
weights=$folder/cnn.safetensors log=$folder/attack.jsonl

if [ ! -s "$weights" ]; then
	# shellcheck disable=SC2154 # lib.sh sets build
	"$build/gpclient" train --local --model cnn --data "$data" --batch 64 --chunks 1 --steps "$train_steps" \
		--threads "$threads" --save "$weights" || exit 1
fi

# The log's line of a run; nothing: it has not been.
line_of() { # CUT CODEC
	[ ! -e "$log" ] || first_with "\"cut\":\"$1\",\"codec\":\"$2" <"$log"
}
first_with() { # TEXT
	grep -F -m 1 -- "$1"
}

for cut in $cuts; do
	for codec in $codecs; do
		[ -z "$(line_of "$cut" "$codec")" ] || continue
		"$build/gpclient" attack --init "$weights" --data "$data" --cut "$cut" --codec "$codec" --steps "$steps" \
			--threads "$threads" --log-json "$log" --out "$folder/${cut/:/_}-${codec//[^a-z0-9.=]/_}" || exit 1
	done
done

echo '| cut | codec | bytes a picture | distance correlation | PSNR | mean picture |'
echo '|---|---|---:|---:|---:|---:|'
for cut in $cuts; do
	for codec in $codecs; do
		# shellcheck disable=SC2154 # lib.sh sets work
		line_of "$cut" "$codec" >"$work/line"
		of() { json_get "$work/line" "$1"; }
		printf '| `%s` | `%s` | %.0f | %.3f | %.2f dB | %.2f dB |\n' "$cut" "$codec" "$(of payload_bytes_per_sample)" \
			"$(of distance_correlation)" "$(of psnr_db)" "$(of mean_picture_psnr_db)"
	done
done
