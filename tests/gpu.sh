#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpu.sh: everything that a GPU has to show, in one command, as one text table:
# what card it is, the CUDA device's tests, exactness, compute-sanitizer, and
# the benchmarks of codecs, of a step beside PyTorch's, and of split training
# over a shaped link. From a build folder, or from a bundle made with --tests.
# Needs bash, coreutils, awk, sed and grep. Every program has a time limit, a phase
# that fails is told and the next begins, lines come as they are known.
# --emulated runs all of it on the device that the CPU emulates, with small
# sizes: that proves the script, and its times mean nothing.
# What its figures are for, and which phases fit in ten minutes: bench/GPU.md.
# Test: e2e/gpu_script.sh

set -u -o pipefail
here=$PWD
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
cd "$root" || exit 1
. "$root/deploy/json.sh"

readonly all_phases=(info tests exact codecs split steps whole sanitizer)
build='' emulated=no gpu=0 out='' rounds=3 minutes='' logs='' pattern='test_cuda_*' python=${PYTHON:-python3} phases=()
work='' server_pid='' running='' packed=no

usage() {
	cat <<-END
	usage: tests/gpu.sh [OPTION]... [PHASE]...

	  --build DIR    programs of this build folder; default: the bundle's, else build/release
	                 (with --emulated build/dev)
	  --gpu N        which card; default $gpu
	  --emulated     on the emulated device (builds with GP_CUDA=emulated), small sizes
	  --out FILE     the table there, too
	  --logs DIR     what every program said stays there, and in the end in DIR.tar.gz
	  --minutes N    end in about N minutes: what does not fit is told and left out
	  --rounds N     turns of ours and PyTorch's; default $rounds
	  --only GLOB    test programs to run; default '$pattern'
	  -h, --help     this text

	Phases, default all, in this order: ${all_phases[*]}.
	"steps" has batches in 8 chunks, "whole" the same in one. \$PYTHON (python3) is asked for torch; without it
	PyTorch's column stays empty. \$SANITIZER: another program than the compute-sanitizer in the path.
	Exit status: 0 when nothing failed and nothing was left out for want of time; what is "NOT REACHED" in speed does
	not change it.
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
		--build | --gpu | --out | --logs | --minutes | --rounds | --only)
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
	[[ $gpu =~ ^[0-9]+$ && $rounds =~ ^[1-9][0-9]*$ && ${minutes:-1} =~ ^[1-9][0-9]*$ ]] ||
		die "--gpu, --rounds and --minutes want numbers"
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

title() {
	printf '\n== %s (after %d s)\n' "$*" $SECONDS
}

# ---- failures, time ----

failed() { # TEXT
	printf 'FAILED  %s\n' "$*"
	echo "$*" >>"$work/failures"
}

left_out() { # TEXT
	printf 'LEFT OUT  %s\n' "$*"
	echo "$*" >>"$work/left_out"
}

count() { # FILE
	wc -l 2>/dev/null <"$work/$1" || echo 0
}

# The last lines of a log, indented.
tail_of() { # LOG
	tail -n 12 "$1" | sed 's/^/        /'
}

# Seconds that a program may take: its own limit, or what is left of --minutes.
allowed() { # SECONDS
	local left=$1
	[ -z "$minutes" ] || left=$((minutes * 60 - SECONDS))
	echo $((left < $1 ? left : $1))
}

# Status 124: it took too long, or no time was left to begin. In the background, so that a signal ends this script at once.
limited() { # SECONDS COMMAND...
	local most status
	most=$(allowed "$1")
	[ "$most" -ge 3 ] || return 124
	timeout -k 10 "$most" "${@:2}" &
	running=$!
	wait $running
	status=$?
	running=''
	return $status
}

out_of_time() {
	[ "$(allowed 60)" -lt 3 ]
}

why() { # STATUS
	case $1 in
	124 | 137) echo "took too long and was ended" ;;
	*) echo "status $1" ;;
	esac
}

keep() { # LOG NAME
	[ -z "$logs" ] || [ ! -s "$1" ] || cp "$1" "$logs/$2.log"
}

# ---- what it is ----

# PyTorch brings a cuBLAS of its own; it will do where there is no toolkit.
use_cublas_of_torch() {
	local folder found=1
	for folder in $(timeout -k 5 120 "$python" -c 'import glob, os, importlib.util as u
print(*glob.glob(os.path.dirname(u.find_spec("torch").origin) + "/../nvidia/c*/lib"))' 2>/dev/null); do
		ls "$folder"/libcublas.so.* >/dev/null 2>&1 || continue
		export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
		found=0
	done
	return $found
}

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

describe_card() {
	if command -v nvidia-smi >/dev/null && [ -n "$(nvidia name)" ]; then
		row card "$(nvidia name), $(nvidia memory.total), of that used $(nvidia memory.used), compute capability $(nvidia compute_cap)"
		row driver "$(nvidia driver_version), power limit $(nvidia power.limit), clocks $(nvidia clocks.max.sm) and $(nvidia clocks.max.mem)"
	else
		row card "nvidia-smi does not tell"
		row driver "$(sed -n 's/^NVRM version: *//p' /proc/driver/nvidia/version 2>/dev/null || echo unknown)"
	fi
	row CUDA "$(cuda_version)"
}

# Opens the device and computes one step of a small model.
try_device() {
	limited 120 "$programs/bench_gpu_step" --device "$device" cnn 16x16x3 4 2 1 >"$work/device.log" 2>&1
}

# Sets `what`: what the device says it is. Every phase after it tells its own failure.
find_device() {
	local status=0
	try_device || status=$?
	if [ $status -ne 0 ] && grep -q cuBLAS "$work/device.log" && use_cublas_of_torch; then
		echo "cuBLAS is PyTorch's: no other was found"
		status=0
		try_device || status=$?
	fi
	if [ $status -eq 0 ]; then
		what="$(sed -n 's/^device: //p' "$work/device.log"), computes"
	else
		what="cannot be used"
		failed "$device cannot be used, $(why $status)" && tail_of "$work/device.log"
	fi
	keep "$work/device.log" device
}

phase_info() {
	row program "$("$bin/gpserverd" --version), commit $(commit)"
	row date "$(date -u +'%Y-%m-%d %H:%M') UTC"
	if [ $emulated = yes ]; then
		row card "none: emulated on the CPU; no time below means anything"
	else
		describe_card
	fi
	row device "$what"
	row system "$(sed -n 's/^PRETTY_NAME="*\([^"]*\).*/\1/p' /etc/os-release 2>/dev/null), Linux $(uname -r)"
	row processor "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) usable"
	row PyTorch "$(timeout -k 5 120 "$python" -c 'import torch; print(torch.__version__, "with CUDA", torch.version.cuda)' 2>/dev/null || echo none)"
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

# What is printed of a test program's end; what has to be counted goes to its file.
report_test() { # NAME LOG STATUS SECONDS [CHECKER...]
	case $3 in
	0) printf '%-36s %s, %d s\n' "$1" "$(summary "$2")" "$4" ;;
	77)
		if [ $emulated = no ] && grep -q '^no GPU' "$2"; then
			failed "$1 sees no GPU"
		else
			printf '%-36s nothing to test here: %s\n' "$1" "$(head -1 "$2")"
		fi
		;;
	124 | 137)
		if [ $# -gt 4 ] && ! grep -qE '^=+ (Invalid|Error|Warning|Barrier|Misaligned|Uninit)' "$2"; then
			left_out "the end of $1: nothing was found in $4 s"
			return
		fi
		failed "$1 took too long and was ended after $4 s, $(summary "$2")" && tail_of "$2"
		;;
	*) failed "$1, status $3, $(summary "$2")" && tail_of "$2" ;;
	esac
}

run_test() { # KIND SECONDS PROGRAM [CHECKER...]
	local name status started=$SECONDS log
	name=$(basename "$3") log=$work/$1-$(basename "$3").log
	if out_of_time || [ "$2" -lt 3 ]; then
		left_out "$name"
		return
	fi
	limited "$2" "${@:4}" "$3" >"$log" 2>&1
	status=$?
	report_test "$name" "$log" $status $((SECONDS - started)) "${@:4}" >"$log.report"
	keep "$log" "$1-$name"
	cat "$log.report" # one write: several may be running
}

test_programs() {
	local program
	# shellcheck disable=SC2231 # a pattern
	for program in "$programs"/$pattern; do
		[ ! -x "$program" ] || [ -d "$program" ] || echo "$program"
	done
}

phase_tests() {
	local program found
	title "tests on the device"
	mapfile -t found < <(test_programs)
	[ ${#found[@]} -gt 0 ] || failed "no test program matches $pattern"
	for program in "${found[@]}"; do
		run_test tests 180 "$program"
	done
}

find_sanitizer() {
	[ -n "${SANITIZER:-}" ] && echo "$SANITIZER" && return
	[ $emulated = yes ] || PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer
}

# Some hosts lend a card, but not the right to look into it: told in a line, once, instead of for every program.
works() { # CHECKER
	local status
	limited 60 "$1" --tool memcheck --error-exitcode 9 --report-api-errors no "$programs/test_cuda_rt" >"$work/probe.log" 2>&1
	status=$?
	keep "$work/probe.log" sanitizer-probe
	# 9 is a finding; also what a checker ends with that does not know the card.
	[ $status -ne 0 ] && { [ $status -ne 9 ] || grep -qi 'device not supported' "$work/probe.log"; } || return 0
	left_out "compute-sanitizer: $1 does not work here, $(why $status)"
	tail_of "$work/probe.log"
	return 1
}

# A checker is slow on one processor and leaves the card idle: several at once. Calls that fail on purpose, and say so, are
# no findings.
phase_sanitizer() {
	local tool program found checker at_once=$(($(nproc) / 3)) jobs tools=3 until left
	title "compute-sanitizer"
	checker=$(find_sanitizer)
	if [ -z "$checker" ]; then
		echo "not run: $([ $emulated = yes ] && echo "there is no card" || echo "it is not installed here")"
		return
	fi
	works "$checker" || return
	mapfile -t found < <(test_programs)
	at_once=$((at_once < 1 ? 1 : at_once > 5 ? 5 : at_once))
	for tool in memcheck racecheck synccheck; do
		echo "$tool:"
		jobs=0
		until=$((SECONDS + $(allowed $((900 * tools))) / tools--)) # an even share of what is left
		for program in "${found[@]}"; do
			[ $((jobs++)) -lt $at_once ] || wait -n
			left=$((until - SECONDS))
			(
				trap 'kill $running 2>/dev/null; exit 1' TERM
				run_test $tool $((left < 60 ? left : 60)) "$program" \
					"$checker" --tool $tool --error-exitcode 9 --report-api-errors no
			) &
		done
		wait_for_jobs
	done
}

wait_for_jobs() {
	local pid
	for pid in $(jobs -pr); do
		wait "$pid"
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

# One short training; sha: of its parameters, and loss. Empty where it fails.
train() { # STEPS FLAG...
	local size=(--batch 32 --chunks 4)
	[ $emulated = no ] || size=(--batch 8 --chunks 2)
	sha='' loss=''
	out_of_time && return 1
	limited 120 "$bin/gpclient" train --model "$model" --data synthetic:shape=3x32x32,classes=10 "${size[@]}" --cut 1:-1 --no-eval \
		--lr 0.0001 --seed 1 --threads 1 --json --no-progress --steps "$@" >"$work/train.json" 2>"$work/train.log" || return 1
	sha=$(json_get "$work/train.json" param_sha256) loss=$(json_get "$work/train.json" loss)
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
	local first second on_device steps=20 sha loss
	[ $emulated = no ] || steps=2
	if out_of_time; then
		left_out "$model"
		return
	fi
	start_server --device "$device" || { failed "gpserverd --device $device does not start" && tail_of "$work/server.log" && return; }
	train $steps --server "127.0.0.1:$(cat "$work/port")" --device "$device"
	first=$sha
	train $steps --server "127.0.0.1:$(cat "$work/port")" --device "$device"
	second=$sha
	stop_server
	train $steps --local --device "$device"
	same "$model: the same split training twice" "$first" "$second"
	same "$model: split and in one process" "$first" "$sha"
	train 2 --local --device "$device"
	on_device=$loss
	train 2 --local --device cpu
	close "$model: loss of two steps on the device and on the CPU" "$on_device" "$loss"
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
	local shape=256x112x112x32 small=8x112x112x32 repeats=21 status
	title "codecs on the device: medians, microseconds; \"device\" is without the bus"
	[ $emulated = no ] || shape=1x14x14x32 small='' repeats=1
	for shape in $shape $small; do
		if out_of_time; then
			left_out "codecs, $shape"
			continue
		fi
		limited 240 "$programs/bench_gpu_codec" --device "$gpu" --shape "$shape" --repeats $repeats 2>&1
		status=$?
		[ $status -eq 0 ] || failed "bench_gpu_codec $shape, $(why $status)"
	done
}

# The steps of a phase, by PyTorch's side as well.
steps() { # SECONDS CHUNKS CASE...
	local flags=() status cases=("${@:3}") chunks=$2
	[ $emulated = no ] || { flags=(--small) cases=() && chunks=$((chunks > 2 ? 2 : chunks)); }
	[ -z "$logs" ] || flags+=(--logs "$logs")
	if out_of_time; then
		left_out "steps in $2 chunks"
		return
	fi
	limited $(($1 + 60)) "$root/tests/bench/steps_gpu.sh" --programs "$programs" --device "$device" --python "$python" --rounds "$rounds" \
		--seconds "$(allowed "$1")" "${flags[@]}" --chunks "$chunks" "${cases[@]}" 2>&1
	status=$?
	[ $status -eq 0 ] || failed "steps_gpu.sh, $(why $status)"
}

phase_steps() {
	title "a step of the body (forward, backward, update): ms, median of $rounds turns and best"
	steps 520 8 mobilenetv2=1.5 resnet34=1.0
}

phase_whole() {
	title "the same with the batch in one piece"
	steps 520 1 mobilenetv2=1.0 resnet34=1.0
}

phase_split() {
	local flags=() status
	title "split training over a shaped link: seconds per batch"
	[ $emulated = no ] || flags=(--small)
	if out_of_time; then
		left_out "split training"
		return
	fi
	limited 300 "$root/tests/bench/split_gpu.sh" --bin "$bin" --device "$device" "${flags[@]}" 2>&1
	status=$?
	[ $status -eq 0 ] || failed "split_gpu.sh, $(why $status)"
}

# ----

# shellcheck disable=SC2317 # run by the trap
clean_up() {
	local pid
	trap '' INT TERM
	for pid in $running $(jobs -pr); do
		kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
	done
	stop_server
	[ $packed = yes ] || keep_unfinished
	rm -rf "$work"
	[ -z "$out" ] || { exec >&- && wait; } # for the last lines to be in the file
}

run_phases() {
	local phase what
	echo "gpsplit on a GPU"
	find_device
	for phase in "${phases[@]}"; do
		"phase_$phase"
	done
	pack_logs
	title "$(count failures) failures, $(count left_out) left out"
	sed 's/^/failed: /' "$work/failures"
	[ ! -s "$work/failures" ] && [ ! -s "$work/left_out" ]
}

# What has to be carried off a machine that is lent is one file.
pack_logs() {
	packed=yes
	[ -n "$logs" ] || return 0
	tar -czf "$logs.tar.gz" -C "$(dirname "$logs")" "$(basename "$logs")" || failed "the logs cannot be packed into $logs.tar.gz"
}

# The logs of programs that the end of the script has ended, too.
keep_unfinished() {
	[ -z "$logs" ] || cp "$work"/*.log "$logs"/ 2>/dev/null
	pack_logs
}

# A path is taken from the caller's folder, not from this script's.
absolute() { # PATH
	[[ -z $1 || $1 = /* ]] && echo "$1" || echo "$here/$1"
}

main() {
	parse_options "$@"
	out=$(absolute "$out") logs=$(absolute "$logs") build=$(absolute "$build")
	find_programs
	work=$(mktemp -d) || exit 1
	: >"$work/failures" && : >"$work/left_out"
	[ -z "$logs" ] || { mkdir -p "$logs" && logs=$(cd "$logs" && pwd); } || exit 1
	[ -z "$out" ] || { : >"$out"; } 2>/dev/null || die "cannot write $out"
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	export CUDA_DEVICE_ORDER=PCI_BUS_ID # so that nvidia-smi counts as we do
	[ -z "$out" ] || exec > >(trap '' INT TERM && exec tee "$out")
	run_phases
}

main "$@"
