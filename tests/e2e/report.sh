#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient report: two runs through a server and one in one process give a page that is well-formed, has every
# section, and asks nobody for anything. What --log-json adds for it changes no parameter. A log of a killed run is
# taken with a notice, what is no log refused with file and line.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

flags=(--model cnn --data synthetic:shape=3x16x16,classes=4,samples=64 --batch 8 --chunks 2 --threads 1 --steps 6)

report() { # WANTED-STATUS ARGUMENT...
	local want=$1 status=0
	shift
	"$build/gpclient" report "$@" >"$work/out" 2>"$work/err" || status=$?
	equal "gpclient report ${*##*/}: status" $status "$want"
}

# What a browser would fetch: the page has pictures and places of its own alone.
alone() { # PAGE
	"$build/tests/well_formed" "$1" || fail "$1 is not well-formed"
	equal "addresses in ${1##*/}" "$(grep -cE 'https?:|//[a-z]+\.|@import|<link|<iframe|url\([^#]' "$1")" 0
	equal "sources that are no data" "$(grep -oE '(src|href)="[^"]*"' "$1" | grep -cvE '="(#[a-z]+|data:image/png;base64,[A-Za-z0-9+/=]+)"$')" 0
	equal "scripts in ${1##*/}" "$(grep -c '<script>' "$1")" 1
}

sections() { # PAGE
	grep -oE '<h2 id="[a-z]+"' "$1" | sed 's/.*="\(.*\)"/\1/' | tr '\n' ' '
}

start_server --threads 1
server=(--server "127.0.0.1:$server_port")
train "$work/plain.json" "${server[@]}" "${flags[@]}" --codec uniform:bits=8 --momentum 0.9
train "$work/uniform.json" "${server[@]}" "${flags[@]}" --codec uniform:bits=8 --momentum 0.9 --log-json "$work/uniform.jsonl" --log-histograms 2
equal "parameters of a run with a log" "$(json_get "$work/uniform.json" param_sha256)" "$(json_get "$work/plain.json" param_sha256)"
train "$work/raw.json" "${server[@]}" "${flags[@]}" --log-json "$work/raw & <b>.jsonl" --log-histograms 0
"$build/gpclient" train --local "${flags[@]}" --log-histograms 2 2>"$work/err"
equal "histograms without a log: status" $? 2
grep -q -- "--log-histograms needs --log-json FILE" "$work/err" || fail "no reason: $(cat "$work/err")"
stop_server
train "$work/local.json" --local "${flags[@]}" --optimizer adam --log-json "$work/local.jsonl" --log-histograms 3

events() { # LOG EVENT
	grep -c "\"event\":\"$2\"" "$1"
}
# The steps 1, 2, 4, 6 have them: four directions; weights, gradients and momentum of head and tail.
equal "histograms every other step" "$(events "$work/uniform.jsonl" histogram)" $((4 * (4 + 6)))
equal "what the codec loses, both ways up" "$(events "$work/uniform.jsonl" codec_error)" $((4 * 2))
equal "no histograms" "$(events "$work/raw & <b>.jsonl" histogram)" 0
equal "histograms of a local run with adam, of the steps 1, 3, 6" "$(events "$work/local.jsonl" histogram)" $((3 * 4))
equal "times of the steps 2 and 4" "$(grep '"event":"timeline"' "$work/uniform.jsonl" | grep -oE '"step":[0-9]+' | tr '\n' ' ')" '"step":2 "step":4 '
grep '"event":"timeline"' "$work/uniform.jsonl" >"$work/times"
for stage in 'head forward' 'act_up encode' 'act_up received' 'body forward' 'body backward' 'grad_down sent' 'head backward' update; do
	grep -q "\"stage\":\"$stage\"" "$work/times" || fail "no times of $stage"
done

report 0 "$work/uniform.jsonl" "$work/raw & <b>.jsonl" "$work/local.jsonl" -o "$work/report.html"
alone "$work/report.html"
equal "sections" "$(sections "$work/report.html")" "runs learning time step link bytes codec values "
grep -q 'raw &amp; &lt;b&gt;.jsonl' "$work/report.html" || fail "the file's name is not there as text"
grep -q "^$work/report.html: [0-9]* bytes, 3 runs" "$work/out" || fail "it does not say where the page is: $(cat "$work/out")"
equal "Gantt charts" "$(grep -c '<figure class="gantt">' "$work/report.html")" 3

# Records of other commands: privacy, decisions of auto, an attack. One that nobody knows is passed over.
report 0 "$source_dir/tests/fuzz/corpus/report_log/all_events" --out "$work/all.html"
alone "$work/all.html"
equal "sections of all records" "$(sections "$work/all.html")" "runs learning time step link bytes codec privacy values "
report 0 "$source_dir/tests/fuzz/corpus/report_log/hostile_texts" -o "$work/hostile.html"
alone "$work/hostile.html"

# A killed run.
head -c -20 "$work/uniform.jsonl" >"$work/killed.jsonl"
report 0 "$work/killed.jsonl" -o "$work/killed.html"
grep -q 'killed.jsonl: line [0-9]*, the last one, breaks off' "$work/err" || fail "no notice: $(cat "$work/err")"
grep -q 'breaks off' "$work/killed.html" || fail "no notice in the page"
alone "$work/killed.html"

# What is wrong is told, and nothing is written.
sed '3s/.*/{"event":/' "$work/uniform.jsonl" >"$work/bad.jsonl"
report 3 "$work/uniform.jsonl" "$work/bad.jsonl" -o "$work/bad.html"
grep -q "$work/bad.jsonl:3: this is no JSON.*--log-json" "$work/err" || fail "no reason: $(cat "$work/err")"
[ ! -e "$work/bad.html" ] || fail "a page was written"
report 3 "$work/nowhere.jsonl" -o "$work/bad.html"
report 3 "$work/uniform.jsonl" -o "$work/no/folder.html"
report 2 -o "$work/bad.html"
report 2 "$work/uniform.jsonl" -o "$work/uniform.jsonl"
[ "$(events "$work/uniform.jsonl" end)" = 1 ] || fail "a log was written over"
if grep -q '^GP_FAULTS:[A-Z]*=ON' "$build/CMakeCache.txt"; then # a disk that is full when the page is written
	cp "$work/report.html" "$work/kept.html"
	for page in kept new; do
		GP_FAULT=write:1 report 1 "$work/uniform.jsonl" -o "$work/$page.html"
	done
	cmp -s "$work/report.html" "$work/kept.html" || fail "a page that could not be written has damaged the one before"
	equal "pages that were not finished" "$(cd "$work" && echo new.html* kept.html.*)" 'new.html* kept.html.*'
fi
report 0 "$work/uniform.jsonl" -o -
cmp -s <(tail -c 8 "$work/out") <(echo '</html>') || fail "no page on standard output"
finish
