#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# steps_gpu.sh: what a server computes in a step (forward and backward of every
# chunk of a model's body, one update), ours and PyTorch's by turns on one card.
# PyTorch's fastest setting is looked for once per precision and stays ready in
# a process of its own, idle while ours runs. Prints a line per precision, then
# best against best. tests/gpu.sh runs it; figures: GPU.md

set -u -o pipefail
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1

programs=$root/build/release/tests device=cuda python=${PYTHON:-python3} rounds=3 seconds=540 chunks=8 batch=64 shape=224x224x3
steps=50 torch=cuda work='' torch_pid='' to='' from='' setting='' failures=0 logs=''
cases=(mobilenetv2=1.5 resnet34=1.0)

# What to look for first, and how much of a case's time for looking may go to it: bf16 is what people train in, and its
# torch.compile alone takes a minute or two. In fp32, which nobody would choose on such a card, ours runs alone.
readonly precisions=(bf16 tf32 fp32)
declare -rA parts_of_four=([bf16]=3 [tf32]=1 [fp32]=0)
# A case less its looking: per precision two starts of programs, the turns.
readonly turns_seconds=25

usage() {
	cat <<-END
	usage: tests/bench/steps_gpu.sh [OPTION]... [MODEL=WANTED]...

	  --programs DIR     where bench_gpu_step is; default build/release/tests
	  --device D         default $device
	  --python PROGRAM   with PyTorch; default \$PYTHON or python3; without PyTorch its columns stay empty
	  --rounds N         turns of each; default $rounds
	  --chunks N         of a batch of $batch; default $chunks
	  --seconds N        about as long as all of it may take; default $seconds
	  --logs DIR         what every program said stays there
	  --small            pictures of 32x32, batch 2 in 2 chunks, PyTorch on the CPU: to try the script

	WANTED is how many times PyTorch's speed there should be; default: ${cases[*]}.
	Exit status: 1 when ours failed. PyTorch's failures are told and leave its columns empty.
	END
}

parse_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--small) shape=32x32x3 batch=4 chunks=2 steps=1 torch=cpu cases=(mobilenetv2:width=0.25=1.5) ;;
		--programs | --device | --python | --rounds | --chunks | --seconds | --logs)
			[ $# -ge 2 ] || { echo "steps_gpu.sh: $1 needs a value" >&2 && exit 2; }
			printf -v "${1#--}" %s "$2"
			shift
			;;
		-*) echo "steps_gpu.sh: unknown option '$1'; see --help" >&2 && exit 2 ;;
		*) cases=("$@") && return ;;
		esac
		shift
	done
}

# shellcheck disable=SC2317 # run by the trap
clean_up() {
	end_torch
	rm -rf "$work"
}

failed() { # TEXT LOG
	echo "FAILED  $1"
	tail -n 5 "$2" | sed 's/^/        /'
	failures=$((failures + 1))
}

# "MEDIAN BEST" of the last line that has them.
times_of() { # LOG
	sed -n 's/.*ms per step: median \([0-9.]*\) best \([0-9.]*\).*/\1 \2/p' "$1" | tail -1
}

# ---- PyTorch, waiting for its turns ----

has_torch() {
	timeout -k 5 120 "$python" -c "import torch; assert '$torch' == 'cpu' or torch.cuda.is_available()" >/dev/null 2>"$work/torch.log"
}

# Its next line, into `line`; without one when it is silent or dead. Not by coproc, whose variables go when it ends.
hear() { # SECONDS
	local left
	for ((left = $1; left > 0; left--)); do
		read -r -t 1 line <&"$from" && return 0
		kill -0 "$torch_pid" 2>/dev/null && continue
		read -r -t 0.1 line <&"$from"
		return
	done
	return 1
}

# Starts looking; until it is ready with the fastest setting. What has no setting to show within its time is ended.
begin_torch() { # SECONDS PRECISION FLAG...
	local line='' limit=$1 flags=("${@:3}")
	setting=''
	[ "$torch" = cuda ] || flags+=(--quick)
	rm -f "$work/to" "$work/from"
	mkfifo "$work/to" "$work/from" || exit 1
	exec {to}<>"$work/to" {from}<>"$work/from"
	timeout -k 5 $((limit + 60 + turns_seconds * rounds)) "$python" "$root/tests/tools/torch_gpu_step.py" --device "$torch" --serve \
		--limit "$limit" --precision "$2" "${flags[@]}" "${model%%:*}" "$shape" "$batch" "$chunks" "$steps" \
		<"$work/to" >"$work/from" 2>"$work/torch.log" {to}>&- {from}<&- &
	torch_pid=$!
	if hear $((limit + 60)) && [ "${line%% *}" = ready ]; then
		setting=${line#ready }
		return 0
	fi
	end_torch
	return 1
}

end_torch() {
	[ -n "$torch_pid" ] || return 0
	kill "$torch_pid" 2>/dev/null
	wait "$torch_pid" 2>/dev/null
	torch_pid=''
	exec {to}>&- {from}<&-
}

# Looked for and found, but dead or silent since: once more, with that setting alone.
look() { # SECONDS PRECISION
	local found
	begin_torch "$1" "$2" && return 0
	found=$(sed -n 's/^\(.*\): ms per step: median \([0-9.]*\) .*/\2 \1/p' "$work/torch.log" | sort -n | head -1 | cut -d' ' -f2-)
	cp "$work/torch.log" "$work/looked.log"
	[ -n "$found" ] && begin_torch "$1" "$2" --only "$found"
}

# Its turn: "MEDIAN BEST" into the file.
theirs() { # FILE
	local line=''
	[ -n "$setting" ] || return 0
	if echo go >&"$to" && hear 120 && [ "${line%% *}" = times ]; then
		echo "${line#times }" >>"$1"
	else
		echo "PyTorch's \"$setting\" does not answer any more" && tail -n 3 "$work/torch.log" | sed 's/^/        /'
		setting=''
		end_torch
	fi
}

# ---- turns ----

ours() { # PRECISION FILE
	timeout -k 5 120 "$programs/bench_gpu_step" --device "$device" --precision "$1" "$model" "$shape" "$batch" "$chunks" "$steps" \
		>"$work/step.log" 2>&1 && times_of "$work/step.log" >>"$2"
}

print_precision() { # PRECISION
	awk -v name="$model ${shape} $batch/$chunks" -v precision="$1" -v setting="$setting" -v times="$work/case" '
		FNR == 1 { file++ }
		file == 1 { a[++n] = $1; if (!low || $2 < low) low = $2 }
		file == 2 { b[++m] = $1; if (!least || $2 < least) least = $2 }
		END {
			printf "%-30s %-5s %9.3f %9.3f", name, precision, a[int((n + 1) / 2)], low
			print "ours", a[int((n + 1) / 2)] >>times
			if (m) {
				printf " %9.3f %9.3f  %5.2f  %s", b[int((m + 1) / 2)], least, b[int((m + 1) / 2)] / a[int((n + 1) / 2)], setting
				print "theirs", b[int((m + 1) / 2)] >>times
			}
			printf "\n"
		}' <(sort -n "$work/ours") <(sort -n "$work/theirs")
}

keep() { # FILE NAME
	[ -z "$logs" ] || [ ! -s "$work/$1" ] || cp "$work/$1" "$logs/$2"
}

pair_precision() { # SECONDS PRECISION
	local round found=no with_torch=$with_torch
	[ "$1" -gt 0 ] || with_torch=no
	: >"$work/ours" && : >"$work/theirs"
	rm -f "$work/looked.log"
	[ "$with_torch" = no ] || ! look "$1" "$2" || found=$setting
	for ((round = 0; round < rounds; round++)); do
		ours "$2" "$work/ours" || { failed "bench_gpu_step $2 $model, status $?" "$work/step.log" && end_torch && return 1; }
		theirs "$work/theirs"
	done
	end_torch
	[ "$found" = no ] || setting=$found
	print_precision "$2"
	sed -n 's/^without graphs/        ours without graphs/p' "$work/step.log"
	[ "$with_torch" = no ] || [ "$found" != no ] || { echo "PyTorch has no setting to show for $2:" && tail -n 4 "$work/torch.log" | sed 's/^/        /'; }
	for log in looked torch step; do
		[ "$log" = step ] || [ "$with_torch" = yes ] || continue
		keep $log.log "steps-${model//[^a-z0-9]/_}-$chunks-$2-$log.log"
	done
}

# Best of PyTorch's precisions against the best of ours.
pair() { # WANTED SECONDS
	local precision looking=$(($2 - 3 * turns_seconds))
	: >"$work/case"
	[ $looking -ge 60 ] || looking=60
	for precision in "${precisions[@]}"; do
		pair_precision $((looking * parts_of_four[$precision] / 4)) "$precision" || return
	done
	awk -v wanted="$1" -v name="$model $shape, batch $batch in $chunks" '
		{ if (!($1 in best) || $2 < best[$1]) best[$1] = $2 }
		END {
			if (!("theirs" in best)) exit
			ratio = best["theirs"] / best["ours"]
			printf "%s: best against best %.2f times as fast as PyTorch, wanted %.1f: %s\n", name, ratio, wanted,
				(ratio >= wanted ? "reached" : "NOT REACHED")
		}' "$work/case"
}

main() {
	local case with_torch=yes
	parse_options "$@"
	[ -x "$programs/bench_gpu_step" ] || { echo "steps_gpu.sh: no $programs/bench_gpu_step" >&2 && exit 2; }
	work=$(mktemp -d) || exit 1
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	has_torch || { with_torch=no && echo "without PyTorch: $python has none that sees a card"; }
	printf '%-30s %-5s %9s %9s %9s %9s  %5s  %s\n' "model picture batch/chunks" "" ours best PyTorch best ratio "PyTorch's fastest setting"
	for case in "${cases[@]}"; do
		model=${case%=*}
		pair "${case##*=}" $((seconds / ${#cases[@]}))
	done
	[ $failures -eq 0 ]
}

main "$@"
