#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh: installs what building and testing need (Debian; root or sudo),
# builds, and runs all tests: everything under the dev preset, unit tests and
# fuzz seeds under the release preset (without assertions, as users run it) and
# under AddressSanitizer and UndefinedBehaviorSanitizer, the threaded modules
# under ThreadSanitizer. The sanitizer presets build only what they run. dev and
# asan run CUDA's kernels on the CPU, also whole trainings; release compiles them by
# nvcc, where it is.
# The last line is "N passed, N failed"; the exit status is 0 when none failed.

set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
. deploy/deps.sh

# Where nvcc is, the release preset builds the CUDA device: one architecture shows that it compiles and links.
export CUDAARCHS=${CUDAARCHS:-90-real}

readonly threaded='^test_.*(conn|channel|session|sched|loader|worker|server|client|transfer|engine)'
passed=0 failed=0 skipped=0

usage() {
	cat <<-END
	usage: deploy/test.sh [PRESET]...

	Installs missing packages, builds and runs the tests of the presets: release, dev,
	asan, tsan (default: all four).
	END
}

say() {
	printf '== %4d s  %s\n' $SECONDS "$*"
}

# The tests of a preset, as arguments of ctest that choose them.
selection() { # PRESET
	case $1 in
	dev) ;;
	release) echo "-L unit|fuzz" ;;
	asan) echo "-L unit|fuzz|asan" ;;
	tsan) echo "-L unit -R $threaded" ;;
	esac
}

# What to build for them: everything, or the programs that the chosen tests are named after.
targets() { # PRESET CTEST-ARGUMENT...
	local preset=$1
	shift
	[ "$preset" = dev ] || [ "$preset" = release ] && echo all && return
	ctest --preset "$preset" -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p'
}

quietly() { # LOG COMMAND...: the output only when it fails
	local log=$1
	shift
	"$@" >"$log" 2>&1 || { cat "$log" && return 1; }
}

count() { # JUNIT-FILE NAME
	sed -n "s/^[[:space:]]*$2=\"\([0-9]*\)\".*/\1/p; s/^<testsuite.* $2=\"\([0-9]*\)\".*/\1/p" "$1" | head -1
}

add_results() { # JUNIT-FILE
	local tests failures unrun
	tests=$(count "$1" tests) failures=$(count "$1" failures)
	unrun=$(($(count "$1" skipped) + $(count "$1" disabled)))
	failed=$((failed + failures))
	skipped=$((skipped + unrun))
	passed=$((passed + tests - failures - unrun))
}

run_preset() { # PRESET
	local preset=$1 junit=$PWD/build/$1/results.xml args=() to_build=()
	read -r -a args <<<"$(selection "$preset")"
	mkdir -p "build/$preset" && rm -f "$junit"
	say "$preset: configure and build"
	quietly "build/$preset/configure.log" cmake --preset "$preset" || return 1
	mapfile -t to_build < <(targets "$preset" "${args[@]}")
	[ ${#to_build[@]} -gt 0 ] || return 1
	quietly "build/$preset/build.log" cmake --build --preset "$preset" -j"$(nproc)" --target "${to_build[@]}" || return 1
	say "$preset: test"
	ctest --preset "$preset" -j"$(nproc)" --output-junit "$junit" "${args[@]}"
	[ -s "$junit" ] && add_results "$junit"
}

main() {
	local preset
	case ${1:-} in
	-h | --help) usage && exit 0 ;;
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
		echo "test.sh: the preset $preset does not build, or its tests do not run"
		failed=$((failed + 1))
	done
	say "done, $skipped skipped"
	echo "$passed passed, $failed failed"
	[ $failed -eq 0 ]
}

main "$@"
