#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# text.sh BUILD-FOLDER RESULTS GLUE TOKENIZER WEIGHTS [PART...]: encoders on real text.
# Parts, by default all of them in this order:
#   scratch  two layers of 128 features learn SST-2 from nothing; wanted: 79 % on dev
#   gain     the model of WEIGHTS with and without them on SST-2, CoLA and RTE, locally;
#            wanted: 2 points more on SST-2
#   methods  the model of WEIGHTS is fine-tuned on SST-2 and CoLA through gpserverd over
#            loopback, with every codec of the table below at every partition
#   link     RoBERTa-base's time per batch over 10 Mbit/s (link_step.sh; needs root)
#   step     RoBERTa-base's step beside PyTorch's (bench_step, torch_text_step.py), and
#            on CoLA's real lengths
#   table    nothing is run: only what RESULTS holds
# Then the tables of what RESULTS holds.
#
# RESULTS is a file with a line for each run that is finished, with the settings that
# make a difference; runs that it has are not run again, so that the script may be
# stopped at any time and goes on where it was. GLUE is the folder of GLUE's files,
# TOKENIZER that of RoBERTa's; WEIGHTS is a file of weights of MODEL, or - where neither
# gain nor methods is asked for. All of it takes hours; link and step want a quiet machine.
# WRAP=COMMAND is put before every command; the variables below change settings (SEEDS,
# EPOCHS, ROWS, ...). Figures, as far as there are any: RESULTS.md

set -u -o pipefail
usage="usage: $0 BUILD-FOLDER RESULTS GLUE TOKENIZER WEIGHTS [scratch|gain|methods|link|step|table...]"
results=${2:?$usage} glue=${3:?$usage} tokenizer=${4:?$usage} weights=${5:?$usage}
# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
# Keys: part, task and model, settings, ..., seed or round; each part its own.
# shellcheck disable=SC1091
. "$(dirname "$0")/rows.sh"
shift 5

seeds=${SEEDS:-1 2 3} threads=${THREADS:-1} # threads of each process
model=${MODEL:-roberta:layers=4,dim=256,heads=4,ffn=1024}
epochs=${EPOCHS:-3} max=${MAX:-128} lr=${LR:-5e-4} # of gain and methods
gain_rates=${GAIN_RATES:-2e-4 5e-4} # of gain: the better one of these counts, with weights and from scratch
bucket=${BUCKET:-32} # batches whose texts are put together by length; in gain and methods
rows=${ROWS:-10000} gain_rows=${GAIN_ROWS:-0}    # of methods, of gain; 0: all
codecs=${CODECS:-raw uniform:bits=6 uniform:bits=8 sortquant:bits=4,split=2 sortquant:bits=6,split=2
	sortquant:bits=9,split=3 sortquant:bits=12,split=4 sortquant:bits=3,split=1 poweriter:rank=128 poweriter:rank=32
	poweriter:rank=16 poweriter:rank=12}
partitions=${PARTITIONS:-type1 f2l2 f3l2 f3l1} # the first with all seeds, the others with the first seed
tasks=${TASKS:-sst2 cola}
scratch_model=${SCRATCH_MODEL:-roberta:layers=2,dim=128,heads=2,ffn=512}
scratch_epochs=${SCRATCH_EPOCHS:-2} scratch_rows=${SCRATCH_ROWS:-0} scratch_lr=${SCRATCH_LR:-5e-4} scratch_max=${SCRATCH_MAX:-64}
base=${BASE:-roberta} tokens=${TOKENS:-128} batch=${BATCH:-32} chunks=${CHUNKS:-4} # of link and step
rate=${RATE:-10mbit} link_steps=${LINK_STEPS:-6} rounds=${ROUNDS:-3} steps=${STEPS:-4}
python=${PYTHON:-/usr/bin/python3}

export LC_ALL=C
touch "$results" || exit 1
results=$(realpath "$results") glue=$(realpath "$glue") tokenizer=$(realpath "$tokenizer")
[ "$weights" = - ] || weights=$(realpath "$weights")
# shellcheck disable=SC2154 # lib.sh sets build, source_dir, work
cd "$source_dir" || exit 1
no_decay='*.bias,*.LayerNorm.*'
# shellcheck disable=SC2154
mkdir "$work/tokens"

# --- trainings -----------------------------------------------------------------------------------------------------

# A chunk is as long as its longest text, most of which are short; PAD=max fills every text up, as the origin's are. The rate
# is one of padded bytes.
pad=${PAD:-auto}

data_of() { # TASK ROWS MAX [BUCKET]
	local spec=glue-$1:$glue,max=$3
	[ "$2" -gt 0 ] && spec+=,limit=$2
	[ "${4:-0}" -gt 1 ] && spec+=,bucket=$4
	echo "$spec"
}

# Sum over all directions of a run's NAME; a local run has none of it.
crossing() { # NAME
	local direction
	for direction in act_up act_down grad_up grad_down; do
		json_get "$work/train.json" "$direction.${1}_bytes_per_batch" 2>/dev/null || echo 0
	done | awk '{ sum += $1 } END { printf "%.0f", sum }'
}

number_or_zero() { # PATH
	json_get "$work/train.json" "$1" 2>/dev/null || echo 0
}

# Accuracy, Matthews correlation, payload and uncompressed bytes per batch, seconds per batch, the parameters' digest,
# uncompressed bytes without padding. A run that diverged has nan in place of the first two.
train_and_note() { # KEY FLAGS...
	local key=$1
	shift
	# shellcheck disable=SC2154 # lib.sh sets build
	if ! ${WRAP:-} "$build/gpclient" train --no-progress --threads "$threads" --tokenizer "$tokenizer" \
		--token-cache "$work/tokens" --optimizer adamw --weight-decay 0.01 --no-decay "$no_decay" --pad "$pad" "$@" \
		--json >"$work/train.json" 2>"$work/log"; then
		grep -q 'the training diverged' "$work/log" && note "$key" nan nan 0 0 0 - 0 && return
		cat "$work/log" >&2
		return 1
	fi
	note "$key" "$(json_get "$work/train.json" val_acc)" "$(number_or_zero val_mcc)" "$(crossing payload)" \
		"$(crossing tensor)" "$(json_get "$work/train.json" time_per_batch_s)" \
		"$(json_get "$work/train.json" param_sha256)" "$(crossing unpadded)"
}

scratch_one() { # KEY SEED
	train_and_note "$1" --local --model "$scratch_model" --data "$(data_of sst2 "$scratch_rows" "$scratch_max" 32)" \
		--batch 32 --chunks 4 --epochs "$scratch_epochs" --lr "$scratch_lr" --schedule linear --warmup 0.1 --seed "$2"
}

scratch_all() {
	local seed k
	for seed in $seeds; do
		k=$(key scratch sst2 "$scratch_model rows=$scratch_rows max=$scratch_max epochs=$scratch_epochs lr=$scratch_lr" \
			local none "$seed")
		run "$k" scratch_one "$k" "$seed"
	done
}

# What fine-tuning has in common.
tune() { # KEY TASK ROWS SEED FLAGS...
	local key=$1 data seed=$4
	data=$(data_of "$2" "$3" "$max" "$bucket")
	shift 4
	train_and_note "$key" --model "$model,cuts=fine" --data "$data" --batch 32 --chunks 4 --epochs "$epochs" --lr "$lr" \
		--schedule poly --warmup 0.06 --seed "$seed" "$@"
}

# The classifier is new. What the file has of a head for masked words is left out; its header is its beginning.
init=()
need_weights() {
	local skip='classifier.*'
	[ -r "$weights" ] || { echo "text.sh: gain and methods need a file of weights of $model, not '$weights'" >&2 && exit 2; }
	[ "$(head -c 1000000 "$weights" | grep -a -c '"lm_head\.')" -gt 0 ] && skip+=',lm_head.*'
	init=(--init "$weights" --init-skip "$skip")
}

# What the pretraining is worth.
gain_row() { # TASK RATE SEED
	local lr=$2 from k
	for from in pretrained scratch; do
		k=$(key gain "$1" "$model rows=$gain_rows max=$max bucket=$bucket epochs=$epochs" "lr=$lr" $from "$3")
		if [ $from = pretrained ]; then
			run "$k" tune "$k" "$1" "$gain_rows" "$3" --local "${init[@]}"
		else
			run "$k" tune "$k" "$1" "$gain_rows" "$3" --local
		fi
	done
}

gain_all() {
	local task rate seed
	need_weights
	for seed in $seeds; do
		for task in ${GAIN_TASKS:-sst2 cola rte}; do
			for rate in $gain_rates; do
				gain_row "$task" "$rate" "$seed"
			done
		done
	done
}

# A server of its own for each run.
tune_split() { # KEY TASK SEED PARTITION CODEC
	local status=0
	rm -f "$work/port"
	${WRAP:-} "$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" --threads "$threads" 2>"$work/server.log" &
	server_pid=$!
	comes_up $server_pid "$work/port" gpserverd "$work/server.log"
	tune "$1" "$2" "$rows" "$3" --server "127.0.0.1:$(cat "$work/port")" --cut "$4" --codec "$5" "${init[@]}" || status=$?
	kill "$server_pid" 2>/dev/null
	wait "$server_pid" 2>/dev/null
	server_pid=''
	return $status
}

methods_of="$model rows=$rows max=$max bucket=$bucket pad=$pad epochs=$epochs lr=$lr"

methods_row() { # PARTITION SEED
	local task codec k
	for task in $tasks; do
		for codec in $codecs; do
			k=$(key methods "$task" "$methods_of" "$1" "$codec" "$2")
			run "$k" tune_split "$k" "$task" "$2" "$1" "$codec"
		done
	done
}

# A local run beside the split ones with raw: their parameters are the same, bit for bit.
methods_local() { # SEED
	local task k
	for task in $tasks; do
		k=$(key methods "$task" "$methods_of" local raw "$1")
		run "$k" tune "$k" "$task" "$rows" "$1" --local "${init[@]}"
	done
}

methods_all() {
	local seed partition first=${seeds%% *}
	need_weights
	methods_local "$first"
	for seed in $seeds; do
		methods_row "${partitions%% *}" "$seed"
	done
	for partition in $partitions; do
		methods_row "$partition" "$first"
	done
}

# --- times -----------------------------------------------------------------------------------------------------------

# Bytes up and down and their seconds, seconds of computing, time per batch, bound. link_step.sh ends with 1 where it
# misses a bound.
link_one() { # KEY CODEC
	${WRAP:-} tests/bench/link_step.sh --build "$build" --rate "$rate" --model "$(with_cuts "$base")" \
		--data "synthetic:tokens=$tokens,vocab=50265,classes=2" --cut type1 --batch "$batch" --chunks "$chunks" \
		--steps "$link_steps" --codec "$2" --threads "$threads" >"$work/link.log" 2>&1
	awk -v OFS='\t' -v key="$1" '
		/^wire up/ { up = $3; up_s = $7 }
		/^wire down/ { down = $3; down_s = $7 }
		/^compute/ { compute = $6 }
		/^(PASS|FAIL)  time per batch/ { time = $5; bound = $8 }
		END {
			if (!time) exit 1
			print key, up, up_s, down, down_s, compute, time, bound
		}' "$work/link.log" >>"$results" || { cat "$work/link.log" >&2 && return 1; }
}

with_cuts() { # MODEL
	case $1 in
	*:*) echo "$1,cuts=fine" ;;
	*) echo "$1:cuts=fine" ;;
	esac
}

link_all() {
	local codec k
	for codec in raw sortquant:bits=6,split=2; do
		k=$(key link "$base" "tokens=$tokens batch=$batch chunks=$chunks rate=$rate steps=$link_steps" "$codec")
		run "$k" link_one "$k" "$codec"
	done
}

# Mean milliseconds of the steps behind the first two.
cola_ms() {
	rm -f "$work/cola.jsonl"
	${WRAP:-} "$build/gpclient" train --local --no-progress --model "$base" --data "$(data_of cola 0 "$tokens")" \
		--tokenizer "$tokenizer" --token-cache "$work/tokens" --pad drop --batch "$batch" --chunks "$chunks" \
		--steps $((2 * steps + 2)) --no-eval --threads "$threads" --optimizer adamw --lr 1e-5 --seed 1 \
		--log-json "$work/cola.jsonl" >/dev/null 2>"$work/log" || { cat "$work/log" >&2 && return 1; }
	awk -F '"seconds":' '/"event":"step"/ && ++n > 2 { sum += $2 } END { printf "%.1f", 1e3 * sum / (n - 2) }' \
		"$work/cola.jsonl"
}

# A round of both sides: ours and PyTorch's milliseconds, which encoder PyTorch's was, how much there is to multiply, the
# highest rate that either side has reached in a product, ours on CoLA's lengths.
step_one() { # KEY
	local args=("$base" "$tokens" "$batch" "$chunks" "$threads") ours theirs floor cola
	export OMP_NUM_THREADS=$threads OPENBLAS_NUM_THREADS=$threads
	ours=$(${WRAP:-} "$build/tests/bench_step" --adamw "${args[@]}" "$steps" | awk '/^ms per step/ { print $5 }')
	${WRAP:-} "$python" tests/bench/torch_text_step.py --adamw "${args[@]}" "$steps" >"$work/torch.log" || return 1
	floor=$(${WRAP:-} "$build/tests/bench_step" --adamw --profile "${args[@]}" 2 |
		awk '/^multiplications:/ { print $2, $10 }')
	theirs=$(awk '/: ms per step: median / {
			name = ms = $0
			sub(/: ms per step.*/, "", name); sub(/.* step: median /, "", ms)
			if (!best || ms + 0 < best) { best = ms + 0; encoder = name }
		}
		/^largest product/ { rate = $3 }
		END { if (best) print best "|" encoder "|" rate }' "$work/torch.log")
	cola=$(cola_ms) || return 1
	[ -n "$ours" ] && [ -n "$theirs" ] && [ -n "$floor" ] || return 1
	note "$1" "$ours" "$(cut -d '|' -f 1 <<<"$theirs")" "$(cut -d '|' -f 2 <<<"$theirs")" "${floor% *}" \
		"$(awk -v a="${floor#* }" -v b="${theirs##*|}" 'BEGIN { print (a > b ? a : b) + 0 }')" "$cola"
}

step_all() {
	local round k
	for ((round = 1; round <= rounds; round++)); do
		k=$(key step "$base" "tokens=$tokens batch=$batch chunks=$chunks threads=$threads steps=$steps" "$round")
		run "$k" step_one "$k"
	done
}

# --- tables ------------------------------------------------------------------------------------------------------------

accuracy_tables() {
	awk -F '\t' '
	$1 == "scratch" || $1 == "gain" {
		row = $1 "\t" $2 "\t" $3 "\t" $4 "\t" $5
		if (!(row in n)) order[++count] = row
		if ($7 == "nan") { n[row] += 0; failed[row]++; next }
		n[row]++; acc[row] += 100 * $7; mcc[row] += $8
		if (n[row] == 1 || 100 * $7 < low[row]) low[row] = 100 * $7
		if (n[row] == 1 || 100 * $7 > high[row]) high[row] = 100 * $7
	}
	END {
		if (!count) exit
		print "| part | task | settings | weights | runs | accuracy, mean (lowest to highest) | MCC | wanted |"
		print "|---|---|---|---|---:|---|---:|---|"
		for (i = 1; i <= count; i++) {
			row = order[i]
			split(row, p, "\t")
			wanted = ""
			if (p[1] == "scratch" && p[3] ~ / rows=0 / && n[row]) wanted = "79: " (low[row] >= 79 ? "PASS" : "FAIL")
			setting = p[1] == "gain" ? p[3] " " p[4] : p[3]
			if (!n[row]) printf "| %s | %s | %s | %s | 0 | diverged | | |\n", p[1], p[2], setting, p[5]
			else printf "| %s | %s | %s | %s | %d | %.2f (%.2f to %.2f)%s | %.3f | %s |\n", p[1], p[2], setting, p[5], n[row],
				acc[row] / n[row], low[row], high[row], failed[row] ? ", " failed[row] " diverged" : "",
				mcc[row] / n[row], wanted
			best = p[2] "\t" p[3] "\t" p[5]
			if (p[1] == "gain" && n[row] && !(best in mean && mean[best] >= acc[row] / n[row])) mean[best] = acc[row] / n[row]
		}
		print ""
		for (best in mean) {
			split(best, p, "\t")
			if (p[1] != "sst2" || p[3] != "pretrained" || !((p[1] "\t" p[2] "\tscratch") in mean)) continue
			more = mean[best] - mean[p[1] "\t" p[2] "\tscratch"]
			printf "%s  pretrained, SST-2, %s, each at its better rate: %+.1f points beside scratch, wanted 2\n\n",
				(more >= 2 ? "PASS" : "FAIL"), p[2], more
		}
	}' "$results"
}

# What the issue gives of the origin's figures with RoBERTa-base, and how far they are from its raw where that is known.
origin='uniform:bits=6|RTE 75.1 (-4.6)
uniform:bits=8|RTE 78.4 (-1.3)
sortquant:bits=4,split=2|RTE 77.4 (-2.3)
sortquant:bits=6,split=2|RTE 78.4 (-1.3), CoLA MCC 63.20
sortquant:bits=9,split=3|RTE 79.6 (-0.1), CoLA MCC 63.93
sortquant:bits=12,split=4|RTE 79.6 (-0.1), CoLA MCC 64.5
sortquant:bits=3,split=1|RTE 52.2 (-27.5), CoLA MCC 0
raw|RTE 79.7
poweriter:rank=128|rate 1.17, 85.2
poweriter:rank=32|rate 0.291, 85.6
poweriter:rank=16|rate 0.146, 85.0
poweriter:rank=12|rate 0.109, 84.3'

methods_tables() {
	awk -F '\t' -v origin="$origin" '
	BEGIN {
		rows_of_origin = split(origin, line, "\n")
		for (i = 1; i <= rows_of_origin; i++) { split(line[i], p, "|"); theirs[p[1]] = p[2] }
	}
	$1 == "methods" {
		table = $2 "\t" $3; k = table "\t" $4 "\t" $5 "\t" $6
		if (!(table in tables)) { tables[table] = 1; table_order[++table_count] = table }
		if ($4 == "local") { local_sha[table, $6] = $12; next }
		if (!((table, $5) in codecs)) { codecs[table, $5] = 1; codec[table, ++codec_count[table]] = $5 }
		if (!((table, $4) in cuts)) { cuts[table, $4] = 1; cut[table, ++cut_count[table]] = $4 }
		if (!((table, $6) in seeds)) { seeds[table, $6] = 1; seed[table, ++seed_count[table]] = $6 }
		acc[k] = $7; mcc[k] = $8; sha[k] = $12
		if ($10 > 0) { rate[table, $5] += $9 / $10; rates[table, $5]++ }
		if ($13 > 0) { unpadded[table, $5] += $9 / $13; unpaddeds[table, $5]++ }
	}
	function after(text, word) { return match(text, word "[0-9]+") ? substr(text, RSTART + length(word), RLENGTH - length(word)) + 0 : 0 }
	# Mean rate; and what r (S + F) / (S F) is for texts of all positions.
	function rate_text(table, name,  r, S, F, text) {
		if (!rates[table, name]) return ""
		text = sprintf("%.3f", rate[table, name] / rates[table, name])
		r = after(name, "rank="); S = after(table, " max="); F = after(table, "dim=")
		if (!F) F = 768
		return r ? text sprintf("; r(S+F)/(SF) = %.3f at S = %d", r * (S + F) / (S * F), S) : text
	}
	# Mean of the differences from raw of the same seed, or of raw itself; sets low, high and n.
	function mean(value, table, c, name, factor,  i, k, r, d, sum) {
		n = 0; gone = 0
		for (i = 1; i <= seed_count[table]; i++) {
			k = table "\t" c "\t" name "\t" seed[table, i]; r = table "\t" c "\traw\t" seed[table, i]
			if (!(k in value) || !(r in value)) continue
			if (value[k] == "nan" || value[r] == "nan") { gone++; continue }
			d = factor * (value[k] - (name == "raw" ? 0 : value[r]))
			if (!n || d < low) low = d
			if (!n || d > high) high = d
			n++; sum += d
		}
		return n ? sum / n : 0
	}
	function text(table, c, name,  a, m, form) {
		form = name == "raw" ? "%.1f" : "%+.1f"
		a = mean(acc, table, c, name, 100)
		if (!n) return gone ? "diverged" : ""
		a = sprintf(n > 1 ? form " (" form " to " form ")" : form, a, low, high)
		m = mean(mcc, table, c, name, 1)
		return a sprintf(name == "raw" ? "; %.3f" : "; %+.3f", m) (gone ? "; " gone " diverged" : "")
	}
	END {
		for (t = 1; t <= table_count; t++) {
			table = table_order[t]; split(table, p, "\t")
			printf "%s, %s: accuracy in points (lowest to highest of the seeds); Matthews correlation. raw: ", p[1], p[2]
			print "as they are; others: differences from raw"
			head = "| codec | rate | without padding |"; rule = "|---|---:|---:|"
			for (j = 1; j <= cut_count[table]; j++) { head = head " " cut[table, j] " |"; rule = rule "---|" }
			print head " origin, RoBERTa-base |"; print rule "---|"
			for (i = 1; i <= codec_count[table]; i++) {
				name = codec[table, i]
				printf "| `%s` | %s | %s |", name, rate_text(table, name),
					unpaddeds[table, name] ? sprintf("%.3f", unpadded[table, name] / unpaddeds[table, name]) : ""
				for (j = 1; j <= cut_count[table]; j++) printf " %s |", text(table, cut[table, j], name)
				printf " %s |\n", theirs[name]
			}
			for (i = 1; i <= codec_count[table]; i++) {
				name = codec[table, i]
				if (name != "uniform:bits=8" && name != "sortquant:bits=6,split=2") continue
				a = mean(acc, table, cut[table, 1], name, 100)
				if (n) printf "%s  %s at %s: %+.1f points from raw, wanted -1.5 or better\n", (a >= -1.5 ? "PASS" : "FAIL"),
					name, cut[table, 1], a
			}
			for (i = 1; i <= seed_count[table]; i++)
				for (j = 1; j <= cut_count[table]; j++) {
					k = table "\t" cut[table, j] "\traw\t" seed[table, i]
					if ((table, seed[table, i]) in local_sha && k in sha)
						printf "raw at %s, seed %s, ends in the parameters of the local run: %s\n", cut[table, j],
							seed[table, i], sha[k] == local_sha[table, seed[table, i]] ? "yes" : "NO"
				}
			print ""
		}
	}' "$results"
}

time_tables() {
	awk -F '\t' '
	$1 == "link" {
		if (!links++) {
			print "| model | settings | codec | MB up, down per batch | their seconds | computing | the longest | time per batch | by it |"
			print "|---|---|---|---|---|---:|---:|---:|---:|"
		}
		longest = $6 > $8 ? $6 : $8
		if ($9 > longest) longest = $9
		printf "| %s | %s | `%s` | %.3f, %.3f | %.2f, %.2f | %.2f s | %.2f s | %.2f s | %.2f |\n", $2, $3, $4, $5 / 1e6,
			$7 / 1e6, $6, $8, $9, longest, $10, longest ? $10 / longest : 0
	}
	END { if (links) print "" }' "$results"
	awk -F '\t' '
	$1 == "step" {
		if (!rounds++) {
			print "| model | settings | round | ours | PyTorch, its best | PyTorch / ours (1.25) | multiply floor | ours / floor (1.2) | CoLA'"'"'s lengths | PyTorch / that (3) |"
			print "|---|---|---:|---:|---|---:|---:|---:|---:|---:|"
		}
		floor = $8 / $9 * 1e3
		printf "| %s | %s | %s | %.0f ms | %.0f ms, %s | %.2f | %.0f ms | %.2f | %s | %s |\n", $2, $3, $4, $5, $6, $7,
			$6 / $5, floor, floor ? $5 / floor : 0, $10 == "-" ? "" : $10 " ms", $10 == "-" ? "" : sprintf("%.2f", $6 / $10)
	}
	END { if (rounds) print "The multiply floor is the time of all products at the highest rate that either side reached in one.\n" }' \
		"$results"
}

tables() {
	accuracy_tables
	methods_tables
	time_tables
}

for part in "${@:-all}"; do
	case $part in
	all) scratch_all && gain_all && methods_all && link_all && step_all ;;
	scratch | gain | methods | link | step) "${part}_all" ;;
	table) ;;
	*) echo "$usage" >&2 && exit 2 ;;
	esac
done
tables
