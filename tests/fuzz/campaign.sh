#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# campaign.sh: runs libFuzzer targets, each until it has executed so many inputs
# or used so much processor time, and appends a line of totals for each to a
# log. Inputs that reach new code are kept under build/fuzz/found, findings
# under build/fuzz/crashes. The totals of the last campaign are in README.md.

set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1

runs=50000000 minutes=10 jobs=1 log=build/fuzz/campaign.log

usage() {
	cat <<-END
	usage: tests/fuzz/campaign.sh [--runs N] [--minutes N] [--jobs N] [--log FILE] [TARGET]...

	Each TARGET (default: all) runs until N executions (default 50000000) or N minutes of
	processor time (default 10), whichever is first, --jobs of them at once. Build them with
	cmake --preset fuzz && cmake --build --preset fuzz
	END
}

while [ $# -gt 0 ]; do
	case $1 in
	--runs) runs=$2 && shift 2 ;;
	--minutes) minutes=$2 && shift 2 ;;
	--jobs) jobs=$2 && shift 2 ;;
	--log) log=$2 && shift 2 ;;
	--help) usage && exit 0 ;;
	-*) usage >&2 && exit 2 ;;
	*) break ;;
	esac
done

# libFuzzer stops by the clock, so a target runs in slices of a minute until its processor time is used up.
# -entropic=0: a third of the time would go into choosing inputs.
slice() { # TARGET RUNS-LEFT OUTPUT; prints the processor time in seconds
	local name=${1#fuzz_} TIMEFORMAT='%U %S'
	{
		time "build/fuzz/tests/$1" -max_total_time=60 -runs="$2" -rss_limit_mb=2048 -malloc_limit_mb=512 \
			-timeout=600 -print_final_stats=1 -entropic=0 -artifact_prefix="build/fuzz/crashes/$1-" \
			"build/fuzz/found/$name" "tests/fuzz/corpus/$name" >"$3" 2>&1
	} 2>&1 | awk '{print $1 + $2}'
	return "${PIPESTATUS[0]}"
}

campaign() { # TARGET
	local target=$1 name=${1#fuzz_} done_runs=0 used=0 took result=clean output covered executed
	output=build/fuzz/$1.log
	mkdir -p "build/fuzz/found/$name" build/fuzz/crashes
	while [ "$done_runs" -lt "$runs" ] && awk "BEGIN{exit !($used < 60 * $minutes)}"; do
		took=$(slice "$target" $((runs - done_runs)) "$output") || result=FINDING
		used=$(awk "BEGIN{print $used + $took}")
		executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$output")
		done_runs=$((done_runs + ${executed:-0}))
		[ "$result" = clean ] || break
	done
	covered=$(grep -o 'cov: [0-9]*' "$output" | tail -1 | cut -d' ' -f2)
	printf '%-28s %12d executions %8.1f s of processor time, %5s edges, %s, %s\n' "$target" "$done_runs" "$used" \
		"${covered:-?}" "$result" "$(git rev-parse --short HEAD)" | tee -a "$log"
	[ "$result" = clean ]
}

mkdir -p build/fuzz
if [ $# -eq 0 ]; then
	mapfile -t all < <(find build/fuzz/tests -maxdepth 1 -name 'fuzz_*' -type f -executable -printf '%f\n' | sort)
	set -- "${all[@]}"
fi
# A large quarantine of freed memory costs more page faults than it finds in targets that keep nothing.
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=8}
failed=0
for target; do
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
		wait -n || failed=1
	done
	campaign "$target" &
done
while [ "$(jobs -rp | wc -l)" -gt 0 ]; do
	wait -n || failed=1
done
exit $failed
