#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A steady training step allocates nothing, on either side: a run of 40 steps
# makes as many heap calls as one of 10. tests/tools/alloc_count.c counts them
# for the whole process; what oneDNN and OpenMP do inside a primitive is counted
# apart and only printed. Where "ours" grew, the places that it grew at follow.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

few=10 many=100
flags=(--model mobilenetv2:width=0.35,stem=cifar --data synthetic:shape=3x32x32,classes=10,samples=128 --batch 16
	--chunks 4 --threads 2 --no-eval --clip-norm 1)

skip_under_sanitizers() {
	grep -q '^GP_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" || return 0
	echo "skipped: sanitizers bring an allocator of their own"
	exit 77
}

# From here on the programs run under the counter, each writing to PROGRAM.count.
count_allocations() {
	local program
	mkdir "$work/counted"
	for program in gpclient gpserverd; do
		cat >"$work/counted/$program" <<-END
			#!/bin/sh
			LD_PRELOAD='$build/tests/liballoc_count.so' ALLOC_COUNT_FILE='$work/$program.count' exec '$build/$program' "\$@"
		END
		chmod +x "$work/counted/$program"
	done
	build=$work/counted
}

heap_calls() { # COUNT-FILE ours|dnnl
	sed -n "1s/.*\b$2=\([0-9]*\).*/\1/p" "$1"
}

# Places with their growth, as OBJECT+OFFSET for addr2line -fe OBJECT OFFSET.
grown_places() { # COUNT-FILE COUNT-FILE
	awk 'FNR == 1 { next } NR == FNR { few[$2] = $1; next } $1 > few[$2] { print "  " $1 - few[$2], $2 }' "$1" "$2" | sort -rn
}

equal_counts() { # WHAT COUNT-FILE COUNT-FILE
	local steps=$((many - few))
	echo "$1: oneDNN and OpenMP made $((($(heap_calls "$3" dnnl) - $(heap_calls "$2" dnnl)) / steps)) heap calls per step"
	local growth=$(($(heap_calls "$3" ours) - $(heap_calls "$2" ours)))
	# One call in ten steps would show as 9. Starting and ending differ by one or two from run to run, and where the loop
	# stands still for a while, a pool of messages grows by as much.
	if [ $growth -ge -6 ] && [ $growth -le 6 ]; then
		echo "ok: $1: $(heap_calls "$2" ours) heap calls, $growth more in $steps more steps"
	else
		fail "$1: $(heap_calls "$2" ours) heap calls, $growth more in $steps more steps"
	fi
	grown_places "$2" "$3"
}

local_run() { # NAME STEPS FLAG...
	train "$work/local.json" --local "${flags[@]}" --steps "${@:2}" || fail "local run of $2 steps"
	mv "$work/gpclient.count" "$work/$1"
}

# A log line per step does allocate: a counter that misses it is broken.
counter_works() { # COUNT-FILE WITH-LOG
	[ "$(heap_calls "$2" ours)" -gt "$(heap_calls "$1" ours)" ] && echo "ok: the counter sees a log" && return
	fail "the counter does not see what --log-json allocates: $(head -1 "$1"), $(head -1 "$2")"
}

split_run() { # NAME STEPS CODEC
	start_server --threads 2
	train "$work/split.json" --server "127.0.0.1:$server_port" --codec "$3" "${flags[@]}" --steps "$2" ||
		fail "split run of $2 steps"
	stop_server
	mv "$work/gpclient.count" "$work/client.$1"
	mv "$work/gpserverd.count" "$work/server.$1"
}

skip_under_sanitizers
count_allocations
local_run local.few $few
local_run local.many $many
local_run local.log $few --log-json "$work/log.jsonl"
counter_works "$work/local.few" "$work/local.log"
equal_counts "local run" "$work/local.few" "$work/local.many"
for codec in raw sortquant:bits=6,split=2; do
	split_run few $few $codec
	split_run many $many $codec
	equal_counts "gpclient, $codec" "$work/client.few" "$work/client.many"
	equal_counts "gpserverd, $codec" "$work/server.few" "$work/server.many"
done
finish
