#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpu.sh: everything that a GPU has to show, in one command, as one text table:
# what card it is, the CUDA device's tests, exactness, compute-sanitizer, and
# the benchmarks of codecs, of a step beside PyTorch's, and of split training
# over a shaped link. From a build folder, or from a bundle made with --tests.
# --emulated runs all of it on the device that the CPU emulates, with small
# sizes: that proves the script, and its times mean nothing.
# What its figures are for: bench/GPU.md. Test: e2e/gpu_script.sh

set -u -o pipefail
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
cd "$root" || exit 1
. "$root/deploy/json.sh"

readonly all_phases=(info tests exact sanitizer codecs steps split)
build='' emulated=no gpu=0 out='' rounds=3 pattern='test_cuda_*' python=${PYTHON:-python3} phases=() failures=0 work='' server_pid=''

usage() {
	cat <<-END
	usage: tests/gpu.sh [OPTION]... [PHASE]...

	  --build DIR    programs of this build folder; default: the bundle's, else build/release
	                 (with --emulated build/dev)
	  --gpu N        which card; default $gpu
	  --emulated     on the emulated device (builds with GP_CUDA=emulated), small sizes
	  --out FILE     the table there, too
	  --rounds N     turns of ours and PyTorch's; default $rounds
	  --only GLOB    test programs to run; default '$pattern'
	  -h, --help     this text

	Phases, default all: ${all_phases[*]}.
	\$PYTHON (python3) is asked for torch; without it PyTorch's column stays empty.
	Exit status: 0 when the phases tests, exact and sanitizer found nothing and the others ran;
	what is "NOT REACHED" in speed does not change it.
	END
}

die() {
	echo "gpu.sh: $*" >&2
	exit 2
}

parse_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--emulated) emulated=yes ;;
		--build | --gpu | --out | --rounds | --only)
			[ $# -ge 2 ] || die "$1 needs a value"
			case $1 in
			--only) pattern=$2 ;;
			*) printf -v "${1#--}" %s "$2" ;;
			esac
			shift
			;;
		-*) die "unknown option '$1'; see --help" ;;
		*)
			[[ " ${all_phases[*]} " == *" $1 "* ]] || die "unknown phase '$1'; see --help"
			phases+=("$1")
			;;
		esac
		shift
	done
	[ ${#phases[@]} -gt 0 ] || phases=("${all_phases[@]}")
	[[ $gpu =~ ^[0-9]+$ && $rounds =~ ^[1-9][0-9]*$ ]] || die "--gpu and --rounds want numbers"
}

find_programs() {
	if [ -z "$build" ] && [ -x bin/gpserverd ]; then
		bin=$root/bin programs=$root/libexec
	else
		[ -n "$build" ] || build=build/$([ $emulated = yes ] && echo dev || echo release)
		bin=$(cd "$build" 2>/dev/null && pwd) || die "no $build: build it first"
		programs=$bin/tests
	fi
	if [ ! -x "$bin/gpserverd" ] || [ ! -x "$programs/bench_gpu_step" ]; then
		die "no programs in $bin and $programs"
	fi
	device=cuda:$gpu
	[ $emulated = no ] || device=cuda-emulated:$gpu
}

# PyTorch brings a cuBLAS of its own; it will do where there is no toolkit.
find_cublas() {
	local folder
	[ ! -e /usr/local/cuda/lib64/libcublas.so ] || return 0
	for folder in $("$python" -c 'import glob, os, torch
print(*glob.glob(os.path.dirname(torch.__file__) + "/../nvidia/c*/lib"))' 2>/dev/null); do
		! ls "$folder"/libcublas.so.* >/dev/null 2>&1 || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
	done
}

title() {
	printf '\n== %s\n' "$*"
}

failed() { # TEXT
	printf 'FAILED  %s\n' "$*"
	failures=$((failures + 1))
}

# The last lines of a log, indented.
tail_of() { # LOG
	tail -n 12 "$1" | sed 's/^/        /'
}

# ---- what it is ----

nvidia() { # FIELD
	nvidia-smi --id="$gpu" --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -1
}

commit() {
	if [ -f BUNDLE.txt ]; then
		sed -n 's/^commit *//p' BUNDLE.txt
	else
		git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown
	fi
}

row() { # NAME VALUE...
	printf '%-12s %s\n' "$1" "${*:2}"
}

phase_info() {
	row program "$("$bin/gpserverd" --version), commit $(commit)"
	row date "$(date -u +'%Y-%m-%d %H:%M') UTC"
	if [ $emulated = yes ]; then
		row card "none: emulated on the CPU; no time below means anything"
	else
		row card "$(nvidia name), $(nvidia memory.total), compute capability $(nvidia compute_cap)"
		row driver "$(nvidia driver_version), power limit $(nvidia power.limit), clocks $(nvidia clocks.max.sm) and $(nvidia clocks.max.mem)"
		row CUDA "$(cuda_version)"
	fi
	row processor "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) usable"
	row PyTorch "$("$python" -c 'import torch; print(torch.__version__, "with CUDA", torch.version.cuda)' 2>/dev/null || echo none)"
}

cuda_version() {
	if [ -f BUNDLE.txt ]; then
		sed -n 's/^GPU code *//p' BUNDLE.txt
	else
		sed -n 's/^gp_cuda_toolkit:[A-Z]*=//p' "$bin/CMakeCache.txt"
	fi
}

# ---- correctness ----

# What cmocka said: "8 passed", "7 passed, 1 skipped".
summary() { # LOG
	awk '/^\[  PASSED  \]/ { passed = $4 } /^\[  FAILED  \] [0-9]+ test/ { failed = $4 } /^\[  SKIPPED \] [0-9]+ test/ { skipped = $4 }
		END { printf "%d passed%s%s\n", passed, failed ? ", " failed " failed" : "", skipped ? ", " skipped " skipped" : "" }' "$1"
}

run_test() { # PROGRAM [CHECKER...]
	local name status started=$SECONDS
	name=$(basename "$1")
	"${@:2}" "$1" >"$work/test.log" 2>&1
	status=$?
	case $status in
	0) printf '%-36s %s, %d s\n' "$name" "$(summary "$work/test.log")" $((SECONDS - started)) ;;
	77) printf '%-36s nothing to test here: %s\n' "$name" "$(head -1 "$work/test.log")" ;;
	*) failed "$name, status $status, $(summary "$work/test.log")" && tail_of "$work/test.log" ;;
	esac
}

test_programs() {
	local program
	# shellcheck disable=SC2231 # a pattern
	for program in "$programs"/$pattern; do
		[ ! -x "$program" ] || [ -d "$program" ] || echo "$program"
	done
}

phase_tests() {
	local program
	title "tests on the device"
	[ -n "$(test_programs)" ] || failed "no test program matches $pattern"
	for program in $(test_programs); do
		run_test "$program"
	done
}

phase_sanitizer() {
	local tool program checker
	title "compute-sanitizer"
	checker=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
	if [ $emulated = yes ] || [ -z "$checker" ]; then
		echo "not run: $([ $emulated = yes ] && echo "there is no card" || echo "it is not installed here")"
		return
	fi
	for tool in memcheck racecheck synccheck; do
		echo "$tool:"
		for program in $(test_programs); do
			run_test "$program" "$checker" --tool $tool --error-exitcode 9
		done
	done
}

# ---- trainings ----

start_server() {
	rm -f "$work/port"
	"$bin/gpserverd" --listen 127.0.0.1:0 --port-file "$work/port" "$@" 2>"$work/server.log" &
	server_pid=$!
	for _ in $(seq 600); do
		[ ! -s "$work/port" ] || return 0
		kill -0 $server_pid 2>/dev/null || break
		sleep 0.1
	done
	server_pid=''
	return 1
}

stop_server() {
	[ -n "$server_pid" ] && kill "$server_pid" 2>/dev/null && wait "$server_pid" 2>/dev/null
	server_pid=''
}

# One short training; its sha256 of the parameters, and its loss.
train() { # STEPS FLAG...
	local size=(--batch 32 --chunks 4)
	[ $emulated = no ] || size=(--batch 8 --chunks 2)
	"$bin/gpclient" train --model "$model" --data synthetic:shape=3x32x32,classes=10 "${size[@]}" --cut 1:-1 --no-eval \
		--lr 0.0001 --seed 1 --threads 1 --json --no-progress --steps "$@" >"$work/train.json" 2>"$work/train.log" || return 1
	json_get "$work/train.json" param_sha256 && json_get "$work/train.json" loss
}

same() { # WHAT A B
	if [ -n "$2" ] && [ "$2" = "$3" ]; then
		printf 'equal   %s (%s)\n' "$1" "${2:0:12}"
	else
		failed "$1: '$2' and '$3'" && tail_of "$work/train.log"
	fi
}

close() { # WHAT A B
	if awk -v a="$2" -v b="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d * d <= 1e-8 * (1 + b * b)) }'; then
		printf 'close   %s (%s, %s)\n' "$1" "$2" "$3"
	else
		failed "$1: '$2' and '$3'" && tail_of "$work/train.log"
	fi
}

exact_model() {
	local first second here cpu steps=20
	[ $emulated = no ] || steps=2
	start_server --device "$device" || { failed "gpserverd --device $device does not start" && tail_of "$work/server.log" && return; }
	first=$(train $steps --server "127.0.0.1:$(cat "$work/port")" --device "$device" | head -1)
	second=$(train $steps --server "127.0.0.1:$(cat "$work/port")" --device "$device" | head -1)
	stop_server
	here=$(train $steps --local --device "$device" | head -1)
	same "$model: the same split training twice" "$first" "$second"
	same "$model: split and in one process" "$first" "$here"
	here=$(train 2 --local --device "$device" | tail -1)
	cpu=$(train 2 --local --device cpu | tail -1)
	close "$model: loss of two steps on the device and on the CPU" "$here" "$cpu"
}

# Losses of longer runs drift apart: sums are added in another order, and an activation's kink makes much of little. The
# CPU device with other loops does the same.
phase_exact() {
	title "exactness: parameters after a training, by their SHA-256"
	for model in cnn mobilenetv2:stem=cifar,width=0.5; do
		exact_model
	done
}

# ---- benchmarks ----

phase_codecs() {
	local shape=256x112x112x32 small=8x112x112x32 repeats=21
	title "codecs on the device: medians, microseconds; \"device\" is without the bus"
	[ $emulated = no ] || shape=1x14x14x32 small='' repeats=1
	for shape in $shape $small; do
		"$programs/bench_gpu_codec" --device "$gpu" --shape "$shape" --repeats $repeats 2>&1 || failed "bench_gpu_codec $shape"
	done
}

# "MEDIAN BEST" of the last line that has them.
times_of() { # LOG
	sed -n 's/.*ms per step: median \([0-9.]*\) best \([0-9.]*\).*/\1 \2/p' "$1" | tail -1
}

ours() { # PRECISION MODEL SHAPE BATCH CHUNKS STEPS
	"$programs/bench_gpu_step" --device "$device" --precision "$@" >"$work/step.log" 2>&1 && times_of "$work/step.log"
}

theirs() { # FLAG... MODEL SHAPE BATCH CHUNKS STEPS
	"$python" "$root/tests/tools/torch_gpu_step.py" "$@" >"$work/torch.log" 2>&1 && times_of "$work/torch.log"
}

# PyTorch's fastest setting is looked for once; then both go by turns.
pair_precision() { # PRECISION CASE...
	local setting='' round t
	: >"$work/ours" && : >"$work/theirs"
	if [ "$with_torch" = yes ] && theirs --precision "$@" >/dev/null; then
		setting=$(sed -n 's/.*best setting: //p' "$work/torch.log")
	fi
	for ((round = 0; round < rounds; round++)); do
		t=$(ours "$@") || { failed "bench_gpu_step $*" && tail_of "$work/step.log" && return 1; }
		echo "$t" >>"$work/ours"
		[ -z "$setting" ] || theirs --only "$setting" --precision "$@" >>"$work/theirs"
	done
	sort -n "$work/ours" >"$work/ours.sorted" && sort -n "$work/theirs" >"$work/theirs.sorted"
	awk -v name="$2 $3 $4/$5" -v precision="$1" -v setting="$setting" -v times="$work/times" '
		FNR == NR { a[++n] = $1; if (!low || $2 < low) low = $2; next }
		{ b[++m] = $1; if (!least || $2 < least) least = $2 }
		END {
			printf "%-30s %-5s %9.3f %9.3f", name, precision, a[int((n + 1) / 2)], low
			print "ours", a[int((n + 1) / 2)] >times
			if (m) {
				printf " %9.3f %9.3f  %5.2f  %s", b[int((m + 1) / 2)], least, b[int((m + 1) / 2)] / a[int((n + 1) / 2)], setting
				print "theirs", b[int((m + 1) / 2)] >times
			}
			printf "\n"
		}' "$work/ours.sorted" "$work/theirs.sorted"
	cat "$work/times" >>"$work/case"
}

# Best of PyTorch's precisions against the best of ours.
pair() { # WANTED MODEL SHAPE BATCH CHUNKS STEPS
	local wanted=$1 precision
	shift
	: >"$work/case"
	for precision in fp32 tf32 bf16; do
		pair_precision $precision "$@" || return
	done
	awk -v wanted="$wanted" -v name="$1 $2" '
		{ if (!($1 in best) || $2 < best[$1]) best[$1] = $2 }
		END {
			if (!("theirs" in best)) exit
			ratio = best["theirs"] / best["ours"]
			printf "%s: best against best %.2f times as fast as PyTorch, wanted %.1f: %s\n", name, ratio, wanted,
				(ratio >= wanted ? "reached" : "NOT REACHED")
		}' "$work/case"
}

phase_steps() {
	title "a step of the body (forward, backward, update): ms, median of $rounds turns and best"
	with_torch=no
	[ $emulated = yes ] || ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || with_torch=yes
	[ "$with_torch" = yes ] || echo "without PyTorch: $([ $emulated = yes ] && echo "there is no card" || echo "$python has none that sees a card")"
	printf '%-30s %-5s %9s %9s %9s %9s  %5s  %s\n' "model picture batch/chunks" "" ours best PyTorch best ratio "PyTorch's fastest setting"
	if [ $emulated = yes ]; then
		pair 1.5 mobilenetv2:width=0.25 32x32x3 2 2 1
		return
	fi
	pair 1.5 mobilenetv2 224x224x3 64 8 50
	pair 1.0 resnet34 224x224x3 64 8 50
	pair 1.0 mobilenetv2 224x224x3 64 1 50
	pair 1.0 resnet34 224x224x3 64 1 50
}

phase_split() {
	local flags=()
	title "split training over a shaped link: seconds per batch"
	[ $emulated = no ] || flags=(--small)
	"$root/tests/bench/split_gpu.sh" --bin "$bin" --device "$device" "${flags[@]}" 2>&1 || failed "split_gpu.sh"
}

# ----

# shellcheck disable=SC2317 # run by the trap
clean_up() {
	stop_server
	rm -rf "$work"
	[ -z "$out" ] || { exec >&- && wait; } # for the last lines to be in the file
}

run_phases() {
	local phase
	echo "gpsplit on a GPU"
	for phase in "${phases[@]}"; do
		"phase_$phase"
	done
	title "$failures failures"
	[ $failures -eq 0 ]
}

main() {
	parse_options "$@"
	find_programs
	find_cublas
	work=$(mktemp -d) || exit 1
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	export CUDA_DEVICE_ORDER=PCI_BUS_ID # so that nvidia-smi counts as we do
	[ -z "$out" ] || exec > >(tee "$out")
	run_phases
}

main "$@"
