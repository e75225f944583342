#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh: installs what building and testing need (Debian; root or sudo),
# builds, and runs all tests: unit tests and fuzz seeds under the release preset
# (without assertions, as users run it) and under AddressSanitizer and
# UndefinedBehaviorSanitizer; under the dev preset what they leave out, which is
# trainings, scripts, and all that the emulated GPU is for; the threaded modules
# under ThreadSanitizer. Each preset builds what it runs. dev and asan run CUDA's
# kernels on the CPU, also whole trainings; release compiles them by nvcc, where
# it is. `ctest --preset dev` runs everything. See README.md beside this file.
# The last line is "N passed, N failed"; the exit status is 0 when none failed. A
# preset that runs no test counts as a failure.

set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
. deploy/deps.sh

# Where nvcc is, the release preset builds the CUDA device: one architecture shows that it compiles and links.
export CUDAARCHS=${CUDAARCHS:-90-real}

# With CMAKE_C_COMPILER_LAUNCHER=ccache in the environment, one cache serves every clone, in whatever folder.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

readonly threaded='^test_.*(conn|channel|session|sched|loader|data_check|worker|log_queue|server|client|transfer|engine)'
# Tests of links mostly wait, so twice as many run at a time as there are cores.
jobs=$((2 * $(nproc)))
passed=0 failed=0 skipped=0

usage() {
	cat <<-END
	usage: deploy/test.sh [--with-arm64] [PRESET]...
	       deploy/test.sh --arch arm64

	Installs the Debian packages that are missing (as root or by sudo), builds each PRESET in build/PRESET
	and runs its tests. PRESET is one of release, dev, asan and tsan; without one, all four are run.
	--arch arm64 builds for ARM64 on another machine, in build/arm64, and runs the tests under qemu, some
	of them beside programs of this machine in build/dev; that takes hours on two cores. --with-arm64 runs,
	after the presets, those of them that show most in a few minutes: kernels of layers and codecs.

	The last line tells how many tests passed and failed. The exit status is 0 when every preset was built,
	ran at least one test, and no test failed; it is 1 when not, and 2 when PRESET is unknown. What a build
	said is in build/PRESET/build.log, and the tests' results are in build/PRESET/results.xml.

	  -h, --help  prints this text
	END
}

say() {
	printf '== %4d s  %s\n' $SECONDS "$*"
}

# The tests of a preset, as arguments of ctest that choose them.
selection() { # PRESET
	case $1 in
	dev) echo "-LE everywhere" ;;
	release) echo "-L unit|fuzz" ;;
	asan) echo "-L unit|fuzz|asan" ;;
	tsan) echo "-L unit -R $threaded" ;;
	arm64) echo "-L unit|fuzz|e2e|arm64" ;;
	arm64-part) echo "-L arm64 -E ^arm64_" ;;
	esac
}

# The programs of tests. Each threaded test runs the program that it is named after, up to "_in_tls".
programs_of() { # PRESET CTEST-ARGUMENT...
	ctest --preset "$1" -N "${@:2}" | sed -n 's/^ *Test *#[0-9]*: //p' | sed 's/_in_tls$//' | sort -u
}

# What to build for them.
targets() { # PRESET CTEST-ARGUMENT...
	case $1 in
	dev) echo single_programs ;;
	release) printf '%s\n' test_programs gpclient gpserverd ;;
	asan) printf '%s\n' test_programs gpclient gpserverd ;;
	arm64) printf '%s\n' test_programs single_programs ;;
	arm64-part | tsan) programs_of "${1%-part}" "${@:2}" ;;
	esac
}

quietly() { # LOG COMMAND...: the output only when it fails
	local log=$1
	shift
	"$@" >"$log" 2>&1 || { cat "$log" && return 1; }
}

count() { # JUNIT-FILE NAME
	sed -n "s/^[[:space:]]*$2=\"\([0-9]*\)\".*/\1/p; s/^<testsuite.* $2=\"\([0-9]*\)\".*/\1/p" "$1" | head -1
}

# ctest counts a test whose program was not built as skipped, like one that cannot be here.
unbuilt() { # JUNIT-FILE
	grep -c '<skipped message="Unable to find executable"' "$1"
}

# Fails when not one test was run, or a test's program was not built.
add_results() { # JUNIT-FILE
	local tests failures unrun
	if [ "$(unbuilt "$1")" -gt 0 ]; then
		echo "test.sh: tests whose programs were not built: $(unbuilt "$1"), marked 'Not Run' above" >&2
		return 1
	fi
	tests=$(count "$1" tests) failures=$(count "$1" failures)
	unrun=$(($(count "$1" skipped) + $(count "$1" disabled)))
	failed=$((failed + failures))
	skipped=$((skipped + unrun))
	passed=$((passed + tests - failures - unrun))
	[ $((tests - unrun)) -gt 0 ]
}

run_preset() { # PRESET [PART]
	local preset=$1 part=${2:-$1} junit=$PWD/build/$1/results.xml args=() to_build=()
	read -r -a args <<<"$(selection "$part")"
	mkdir -p "build/$preset" && rm -f "$junit"
	say "$preset: configure and build"
	quietly "build/$preset/configure.log" cmake --preset "$preset" || return 1
	mapfile -t to_build < <(targets "$part" "${args[@]}")
	[ ${#to_build[@]} -gt 0 ] || return 1
	quietly "build/$preset/build.log" cmake --build --preset "$preset" -j"$(nproc)" --target "${to_build[@]}" || return 1
	say "$preset: test"
	ctest --preset "$preset" -j"$jobs" --no-tests=error --output-junit "$junit" "${args[@]}"
	[ -s "$junit" ] && add_results "$junit"
}

# Programs of this machine for tests that have one end here.
build_this_end() {
	install_missing "${build_packages[@]}" "${test_packages[@]}" || exit 1
	mkdir -p build/dev
	say "dev: programs of this machine"
	quietly build/dev/configure.log cmake --preset dev &&
		quietly build/dev/build.log cmake --build --preset dev -j"$(nproc)" --target gpclient gpserverd codec_bits instructions
}

run_arch() { # ARCHITECTURE
	if [ "$1" != arm64 ] || [ $# -ne 1 ]; then
		echo "test.sh: --arch takes arm64, and nothing else; see --help" >&2
		exit 2
	fi
	install_missing_for_arm64 || exit 1
	build_this_end && run_preset arm64 && return
	echo "test.sh: what ARM64's tests need was not built, or no test was run"
	failed=$((failed + 1))
}

run_arm64_part() {
	if ! install_missing_for_arm64; then
		echo "test.sh: what building for ARM64 needs cannot be installed here: its tests are skipped"
		skipped=$((skipped + 1))
		return
	fi
	run_preset arm64 arm64-part && return
	echo "test.sh: what ARM64's tests need was not built, or no test was run"
	failed=$((failed + 1))
}

report() {
	say "done, $skipped skipped"
	echo "$passed passed, $failed failed"
	[ $failed -eq 0 ]
}

main() {
	local preset with_arm64=false
	case ${1:-} in
	-h | --help) usage && exit 0 ;;
	--arch)
		run_arch "${@:2}"
		report
		exit
		;;
	--with-arm64) with_arm64=true && shift ;;
	esac
	[ $# -gt 0 ] || set -- release dev asan tsan
	for preset in "$@"; do
		[[ $preset =~ ^(release|dev|asan|tsan)$ ]] && continue
		echo "test.sh: unknown preset '$preset'; see --help" >&2
		exit 2
	done
	install_missing "${build_packages[@]}" "${test_packages[@]}" || exit 1
	for preset in "$@"; do
		run_preset "$preset" && continue
		echo "test.sh: the preset $preset was not built, or it ran no test"
		failed=$((failed + 1))
	done
	! $with_arm64 || run_arm64_part
	report
}

main "$@"
