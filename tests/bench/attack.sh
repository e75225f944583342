#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# attack.sh BUILD-FOLDER FOLDER: what a cut gives away. The small CNN is trained on
# Fashion-MNIST, then attacked (gpclient attack) at two cuts with three codecs each:
# a table of distance correlation and PSNR, as RESULTS.md has it.
#
# FOLDER keeps the weights, the log attack.jsonl with all runs and their pictures, and for
# each run its figures (.json) and a folder with its pictures. Runs that have figures are not
# run again, so the script may be stopped at any time; called again, it goes on. All of it takes some three minutes of one
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

# Where a run's figures are, once it has ended.
figures_of() { # CUT CODEC
	echo "$folder/${1/:/_}-${2//[^a-z0-9.=]/_}"
}

for cut in $cuts; do
	for codec in $codecs; do
		run=$(figures_of "$cut" "$codec")
		[ ! -s "$run.json" ] || continue
		"$build/gpclient" attack --init "$weights" --data "$data" --cut "$cut" --codec "$codec" --steps "$steps" \
			--threads "$threads" --log-json "$log" --out "$run" --json >"$run.new" && mv "$run.new" "$run.json" || exit 1
	done
done

echo '| cut | codec | bytes a picture | distance correlation | PSNR | mean picture |'
echo '|---|---|---:|---:|---:|---:|'
for cut in $cuts; do
	for codec in $codecs; do
		run=$(figures_of "$cut" "$codec").json
		of() { json_get "$run" "$1"; }
		# shellcheck disable=SC2016 # these are Markdown's
		printf '| `%s` | `%s` | %.0f | %.3f | %.2f dB | %.2f dB |\n' "$cut" "$codec" "$(of payload_bytes_per_sample)" \
			"$(of distance_correlation)" "$(of psnr_db)" "$(of mean_picture_psnr_db)"
	done
done
