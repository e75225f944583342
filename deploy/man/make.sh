#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# make.sh BUILD OUT [gz]: manual pages and completions of the programs in the folder BUILD, into OUT/man, OUT/bash-completion,
# OUT/zsh and OUT/fish. What they say of options comes from the programs' own tables (--help=rows). CMake runs it.

set -eu
build=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
# mdoc wants a date; the same sources make the same pages.
date=$(LC_ALL=C date -u -d "@${SOURCE_DATE_EPOCH:-1767225600}" '+%B %-d, %Y')
rows=$out/rows
rm -rf "$out"
mkdir -p "$out/man/man1" "$out/man/man5" "$out/man/man8" "$out/bash-completion/completions" "$out/zsh/site-functions" \
	"$out/fish/vendor_completions.d" "$rows"

# The rows of a command and of those within it.
rows_of() { # PROGRAM WORD...
	"$build/$1" $(shift && echo "$@") --help=rows
}

# Lines of text of at most 78 columns; macros and literal lines as they are.
wrapped() {
	LC_ALL=C awk '/^\.Bd/ { literal = 1 } /^\.Ed/ { literal = 0 }
		literal || /^\./ || length($0) <= 78 { print; next }
		{ n = split($0, word, " "); line = word[1]
			for (i = 2; i <= n; i++)
				if (length(line) + 1 + length(word[i]) <= 78) line = line " " word[i]
				else { print line; line = (word[i] ~ /^[.\047]/ ? "\\\\&" : "") word[i] }
			print line }'
}

page() { # NAME SECTION SUMMARY MORE ROWS
	LC_ALL=C awk -f "$here/pages.awk" -v page="$1" -v section="$2" -v summary="$3" -v date="$date" -v more="$here/$4" "$5" |
		wrapped >"$out/man/man$2/$1.$2"
}

rows_of gpserverd >"$rows/gpserverd"
rows_of gpclient >"$rows/gpclient"
page gpserverd 8 "serves the body of split models" gpserverd.mdoc "$rows/gpserverd"
page gpclient 1 "split learning at the edge" client.mdoc "$rows/gpclient"
tab=$(printf '\t')
while IFS=$tab read -r _ _ name summary; do
	rows_of gpclient "$name" >"$rows/top"
	cp "$rows/top" "$rows/gpclient-$name"
	if grep -q '^command-of' "$rows/top"; then
		cut -f 3 "$rows/top" >"$rows/below"
		while read -r below; do rows_of gpclient "$name" "$below" >>"$rows/gpclient-$name"; done <"$rows/below"
	fi
	page "gpclient-$name" 1 "$summary" client.mdoc "$rows/gpclient-$name"
done <"$rows/gpclient"
rm -f "$rows/top" "$rows/below"

names=$(awk -F '\t' '$1 == "option" && $2 != "help" && $2 != "config" && $2 != "version" { printf "%s.Cm %s", sep, $2; sep = " ,\n" }
	END { print " ." }' "$rows/gpserverd")
for file in gpserverd.conf gpsplit-files; do
	awk -v names="$names" -v date="$date" '$0 == "@NAMES@" { print names; next } { sub(/@DATE@/, date); print }' \
		"$here/$file.mdoc" | wrapped >"$out/man/man5/$file.5"
done

completion() { # PROGRAM SHELL FILE
	cat "$rows/$1"* | LC_ALL=C awk -f "$here/../completion/completion.awk" -v shell="$2" -v program="$1" >"$out/$3"
}
for program in gpclient gpserverd; do
	completion $program bash bash-completion/completions/$program
	completion $program zsh zsh/site-functions/_$program
	completion $program fish fish/vendor_completions.d/$program.fish
done
rm -rf "$rows"
[ "${3:-}" != gz ] || gzip -9n "$out"/man/*/*
