#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What tests/bench/frontier.sh says without a training: wrong arguments, parts whose
# data is missing, and the tables and verdicts of runs that a file holds.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

status=0
frontier() { # ARGUMENT...
	status=0
	bash "$source_dir/tests/bench/frontier.sh" "$@" >"$work/out" 2>"$work/err" || status=$?
}

holds() { # TEXT
	grep -qF -- "$1" "$work/out" && echo "ok: $1" || fail "no '$1' in: $(cat "$work/out")"
}

row() { # METHOD SEED ACCURACY BYTES
	printf 'flowers\tepochs=1\t1:-1\t%s\t%s\t%s\t%s\t1000\t%s\t1000\t%s\t1000\t%s\t1000\t1\tdigest\n' \
		"$1" "$2" "$3" "$4" "$4" "$4" "$4" >>"$work/runs"
}

frontier "$build" "$work/runs"
equal "too few arguments: status" $status 2
equal "lines of the message" "$(wc -l <"$work/err")" 1
frontier "$build" "$work/runs" - - - - - - table flwoers
equal "an unknown part: status" $status 2
equal "and the message" "$(cut -d';' -f1 "$work/err")" "no part is named 'flwoers'"

frontier "$build" "$work/runs" - - - - - -
equal "no data: status" $status 0
holds "flowers: not run: no pictures ('-')"

row raw 1 0.80 4000
row uniform:bits=8 1 0.79 1000
frontier "$build" "$work/runs" - - - - - - table
equal "a table: status" $status 0
holds '| `uniform:bits=8` | 8.000 | 8.000 | 8.000 | 79.00 | 79.00 | -1.00 | yes |'
holds 'OPEN  flowers, at most 4.25 bits both ways: no method with so few bits has run'

row block:bits=4 1 0.795 500
row block:bits=2 1 0.70 300
frontier "$build" "$work/runs" - - - - - - table
holds 'PASS  flowers, at most 4.25 bits both ways: `block:bits=4` -0.50 points from raw (1 seed), wanted -1 or better'
holds 'FAIL  flowers, at most 3 bits both ways: `block:bits=2` -10.00 points from raw'
[ -s "$work/runs.svg" ] || fail "no plot"

# Two seeds, other bytes in each direction, of 1000 elements up and 500 down, and a run that diverged.
text() { # METHOD SEED ACCURACY BYTES-OF-ACTIVATIONS-UP -DOWN OF-GRADIENTS-UP -DOWN
	printf 'text\tepochs=1\ttype1\t%s\t%s\t%s\t%s\t1000\t%s\t500\t%s\t1000\t%s\t500\t1\tdigest\n' "$@" >>"$work/texts"
}
text raw 1 0.80 4000 2000 4000 2000
text raw 2 0.83 4000 2000 4000 2000
text 'insert=bottleneck:dim=32;block:bits=3' 1 0.79 50 25 60 27
text 'insert=bottleneck:dim=32;block:bits=3' 2 0.81 54 25 60 33
text block:bits=3 1 0.80 400 200 350 175
text block:bits=3 2 nan 0 0 0 0
frontier "$build" "$work/texts" - - - - - - table
holds '| `insert=bottleneck:dim=32;block:bits=3` | 0.411 | 0.480 | 0.445 | 79.00 81.00 | 80.00 | -1.50 | yes |'
holds '| `block:bits=3` | 3.200 | 2.800 | 3.000 | 80.00, 1 diverged | 80.00 | +0.00 |  |'
holds 'FAIL  text, at most 4.25 bits both ways: `insert=bottleneck:dim=32;block:bits=3` -1.50 points from raw (2 seeds), wanted -1'
holds 'PASS  text with a bottleneck, at most 0.5 bits both ways: `insert=bottleneck:dim=32;block:bits=3` -1.50 points'
text uniform:bits=3 1 0.81 380 190 380 190 # better, but with one seed
frontier "$build" "$work/texts" - - - - - - table
holds 'FAIL  text, at most 4.25 bits both ways: `insert=bottleneck:dim=32;block:bits=3` -1.50 points from raw (2 seeds), wanted -1'
cat "$work/texts" >>"$work/runs"
frontier "$build" "$work/runs" - - - - - - table
holds 'OPEN  one method everywhere, at most 4.25 bits both ways'
finish
