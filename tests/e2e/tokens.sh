#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient tokens: what it prints for an argument, lines and pairs, and what it
# refuses. That the ids are right is tests/unit/test_tokenizer.c's affair.
. "$(dirname "$0")/lib.sh"

golden=$source_dir/tests/golden/tokens

shows() { # NAME WANTED COMMAND...
	local name=$1 wanted=$2 got
	shift 2
	got=$("$@" 2>&1)
	[ "$got" = "$wanted" ] && return
	echo "$name: expected"$'\n'"$wanted"$'\n'"but got"$'\n'"$got"
	failures=$((failures + 1))
}

refuses() { # NAME STATUS WORDS COMMAND...
	local name=$1 status=$2 words=$3 got code
	shift 3
	got=$("$@" 2>&1 >"$work/out")
	code=$?
	[ $code = "$status" ] && [[ $got == *"$words"* ]] && [ "$(wc -l <<<"$got")" = 1 ] && return
	echo "$name: expected status $status and '$words', but got $code and: $got"
	failures=$((failures + 1))
}

tokens() {
	"$build/gpclient" tokens --tokenizer "$@"
}

shows "a text" "      2  [CLS]
     43  t
      3  [SEP]
3 tokens" tokens "$golden/wordpiece" T
shows "lines" "$(sed 5q "$golden/bpe/ids.txt")" tokens "$golden/bpe" < <(sed 5q "$golden/texts.txt")
shows "pairs as JSON" '{"ids":[2,43,3,43,3],"tokens":["[CLS]","t","[SEP]","t","[SEP]"],"segments":[0,0,0,1,1],"length":5}' \
	tokens "$golden/wordpiece" --pair --json $'T\tt'
shows "what is left out" "8 tokens; 4 more were left out (--max)" eval "tokens '$golden/wordpiece' --max 8 '! ! ! ! ! ! ! ! ! !' | tail -1"
refuses "no tokenizer" 2 "--tokenizer DIR is missing" "$build/gpclient" tokens text
refuses "a folder without one" 3 "no tokenizer in $work" tokens "$work" text
refuses "no pair" 3 "standard input, line 1: no tab" tokens "$golden/bpe" --pair < <(echo text)
refuses "a line without end" 3 "standard input, line 1: a text of more than 1048576 bytes" tokens "$golden/bpe" </dev/zero
mkdir "$work/cut" && cp "$golden/bpe/vocab.json" "$work/cut/"
head -20 "$golden/bpe/merges.txt" >"$work/cut/merges.txt"
equal "merges that are cut off are told" "$(tokens "$work/cut" text 2>&1 | grep -c 'merges.txt has no line that makes .* is it cut off?')" 1
equal "whole ones are not" "$(tokens "$golden/bpe" text 2>&1 >/dev/null | wc -l)" 0
refuses "no limit" 2 "--max" tokens "$golden/bpe" --max 3 text
finish
