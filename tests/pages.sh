#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# pages.sh: what pages and comments point to is there. Fails on
#   - a path from the root (tests/unit/test_foo.c, common/wire/*.h) that names no file or folder,
#   - a file named without its folder (conn_tcp.c) that no folder has; names without "_" may be fields of a struct,
#   - a relative link of a page that leads nowhere, to a file or to a heading,
#   - a name gp_... or GP_... in a page that occurs in no source file,
#   - a comment that begins with "Of ", a sentence of a page that does, and words that only their author understands (see
#     `riddles` below),
#   - a comment, or a line of a page that is neither code nor a table, of more than `widest` columns; the rule is 120,
#   - a label of tests that tests/README.md does not list,
#   - a header that says "Only for ..." or "Private to ..." and is included elsewhere; tests may include any,
#   - a header of common, kernels, server or client that does not say which thread may call it, or where its test is.
# It looks at text, not at meaning: that a sentence is true is for whoever writes it.

set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1

readonly top='client|server|common|proto|kernels|tests|deploy|cmake'
readonly riddles='(design(\.md)?,? section|the (old|former|earlier|previous) way|in peace|random come again)'
readonly widest=130
bad=0

complain() { # TEXT...
	echo "$*"
	bad=1
}

# All files that git knows or would take, but for binaries and the scripts whose rules quote paths and words.
present() { # PATTERN
	git ls-files --cached --others --exclude-standard | grep -E "$1" | grep -vE '^tests/(pages|layers|layers_cheats)\.sh$' |
		while read -r file; do [ -f "$file" ] && echo "$file"; done
}

mapfile -t pages < <(present '\.md$')
mapfile -t sources < <(present '\.(c|h|cc|cu|sh|py|cmake|proto|txt)$' | grep -v '^tests/fuzz/corpus/')

# A path ends before the punctuation of its sentence; NAME in it stands for any. The generated files of proto/ lie in the build folder.
check_paths() {
	local place path
	while IFS=: read -r file line path; do
		place=$file:$line
		path=${path#"${path%%[a-z]*}"}
		path=${path//NAME/*}
		while [[ $path == *[.,:/] ]]; do path=${path%?}; done
		[[ $path == *.pb-c.[ch] ]] && continue
		compgen -G "$path" >/dev/null || compgen -G "$path.[ch]" >/dev/null || complain "$place: there is no $path"
	done < <(grep -HnoE "(^|[^A-Za-z0-9_./\$}*-])($top)/[A-Za-z0-9_./*-]+" "${pages[@]}" "${sources[@]}" | sort -u)
}

check_files() {
	local file line name
	while IFS=: read -r file line name; do
		complain "$file:$line: no folder has a file $name"
	done < <(grep -HnoE '(^|[^A-Za-z0-9_./*<-])[a-z0-9]+_[a-z0-9_]+\.(c|h|cc|cu|sh|py|md)\>' "${pages[@]}" "${sources[@]}" |
		sed -E 's/^([^:]*:[0-9]+:)[^a-z0-9]*/\1/' |
		awk -F: 'NR == FNR { sub(/.*\//, ""); known[$0] = 1; next } !($3 in known)' <(git ls-files --cached --others --exclude-standard) - | sort -u)
}

# "## Reading the code" is #reading-the-code.
has_heading() { # PAGE ANCHOR
	sed -n 's/^#\{1,\} *//p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g' | grep -qxF -e "$2"
}

check_links() {
	local file line target page
	while IFS=: read -r file line target; do
		target=${target#"]("}
		target=${target%)}
		[[ $target =~ ^[a-z]+: ]] && continue
		page=${target%%#*}
		page=${page:+$(dirname "$file")/$page}
		page=${page:-$file}
		if [ ! -e "$page" ]; then
			complain "$file:$line: the link to $target leads nowhere"
		elif [[ $target == *#* ]] && ! has_heading "$page" "${target#*#}"; then
			complain "$file:$line: there is no heading #${target#*#} in $page"
		fi
	done < <(grep -HnoE '\]\([^) ]+\)' "${pages[@]}")
}

check_names() {
	local name
	while read -r name; do
		grep -qwF -e "$name" "${sources[@]}" || complain "a page names $name, which no source file has: $(
			grep -lwF -e "$name" "${pages[@]}" | tr '\n' ' ')"
	done < <(grep -hoE '\b(gp|GP)_[A-Za-z0-9_]+\b' "${pages[@]}" | sort -u)
}

check_comments() {
	local found
	found=$(grep -nE '(^[[:space:]]*(\*|#)|/\*+|//)[[:space:]]*Of ' "${sources[@]}") &&
		complain "$found"$'\n'"comments that begin with \"Of \": say in a sentence what it is that you describe"
	found=$(grep -nE '(^|[.:] )(- )?Of [a-z]' "${pages[@]}") &&
		complain "$found"$'\n'"sentences that begin with \"Of \": begin with what they are about"
	found=$(grep -nE "$riddles" "${sources[@]}" "${pages[@]}") && complain "$found"$'\n'"words that a stranger cannot follow"
	return 0
}

# Tabs count as eight columns, as in .clang-format.
check_widths() {
	local found
	found=$(awk -v widest=$widest '
		FNR == 1 { code = 0; page = FILENAME ~ /\.md$/ }
		page && /^```/ { code = !code }
		page && (code || /^    / || /^\|/ || /^!?\[/) { next }
		!page && !/^[[:space:]]*(\/\*|\*[ \/]|\/\/|#[^!])/ { next }
		{ line = $0; while ((at = index(line, "\t")) > 0)
			line = substr(line, 1, at - 1) substr("        ", 1, 8 - (at - 1) % 8) substr(line, at + 1) }
		length(line) > widest { print FILENAME ":" FNR }' "${pages[@]}" "${sources[@]}")
	[ -z "$found" ] || complain "$found"$'\n'"comments or paragraphs of more than $widest columns: wrap them at 120"
}

check_labels() {
	local label
	while read -r label; do
		grep -q "# a label:.*\b$label\b" tests/README.md || complain "tests/README.md does not list the label $label"
	done < <(grep -oE 'LABELS ("[a-z0-9;]+"|[a-z0-9]+)' tests/CMakeLists.txt | sed 's/LABELS //; s/"//g' | tr ';' '\n' | sort -u)
}

check_headers() {
	local header text
	while read -r header; do
		text=$(sed -n '1,/^#ifndef/p' "$header")
		[[ $text =~ Threads: ]] || complain "$header: its first comment does not say which thread may call it (Threads: ...)"
		[[ $text =~ Tests?: ]] || complain "$header: its first comment does not say where its test is (Test: ...)"
	done < <(present '^(common|kernels|server|client)/.*\.h$')
}

# The files and folders that a header's first comment promises as its only users: from "Only for", "Only included by" or
# "Private to" to the end of that sentence. Where there is no such promise, nothing.
promised_users() { # HEADER
	sed -n '1,/^#ifndef/p' "$1" | sed 's/^ \* \{0,1\}//' | tr '\n' ' ' |
		grep -oP '\b(Only for|Only included by|Private to) .*?(?=\.\s)' |
		sed "s|this folder|$(dirname "$1")|" |
		grep -oE "\b($top)/[a-z0-9_/]+|\b[a-z0-9_*]+\.(c|h|cc|cu)\b"
}

check_promises() {
	local header user promise name kept
	while read -r header; do
		mapfile -t promise < <(promised_users "$header")
		[ ${#promise[@]} -gt 0 ] || continue
		while read -r user; do
			kept=no
			for name in "${promise[@]}"; do
				# shellcheck disable=SC2053 # the name may be a pattern, as k_*.cu
				[[ $user == $name/* || ${user##*/} == $name ]] && kept=yes
			done
			[ $kept = yes ] || complain "$header: it says that it is only for ${promise[*]}, but $user includes it"
		done < <(grep -lF "#include \"$header\"" "${sources[@]}" | grep -v '^tests/')
	done < <(present '\.h$' | grep -v '^tests/')
}

[ ${#pages[@]} -ge 8 ] && [ ${#sources[@]} -ge 400 ] || complain "only ${#pages[@]} pages and ${#sources[@]} sources were looked at"
check_paths
check_files
check_links
check_names
check_comments
check_widths
check_labels
check_headers
check_promises
[ $bad -eq 0 ] && echo "${#pages[@]} pages and ${#sources[@]} source files: all that they point to is there"
exit $bad
