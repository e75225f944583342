#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What is made from the tables of options (deploy/man/make.sh): each option of each command is in its manual page and in the
# completions of bash, zsh and fish; mandoc and the shells find no fault, where they are installed.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"
share=$work/share
sh "$source_dir/deploy/man/make.sh" "$build" "$share" || fail "deploy/man/make.sh"

# All commands, with the tables of those that have some: "gpclient codec compare".
commands() {
	local top below
	echo gpserverd
	"$build/gpclient" --help=rows | cut -f 3 | while read -r top; do
		"$build/gpclient" "$top" --help=rows >"$work/top"
		if grep -q '^command-of' "$work/top"; then
			cut -f 3 "$work/top" | while read -r below; do echo "gpclient $top $below"; done
		else
			echo "gpclient $top"
		fi
	done
}

looked_at=0
while read -r program words; do
	page=$program${words:+-${words%% *}}
	# shellcheck disable=SC2086 # words of a command
	"$build/$program" $words --help=rows >"$work/rows"
	# shellcheck disable=SC2086
	"$build/$program" $words --help >"$work/help"
	grep -q '^command	' "$work/rows" || fail "$program $words: no rows"
	for option in $(awk -F '\t' '$1 == "option" { print $2 }' "$work/rows"); do
		looked_at=$((looked_at + 1))
		grep -qE -e "--(\[no-\])?$option\b" "$work/help" || fail "$program $words: --$option is not in --help"
		grep -qE -e "^\.It Fl .-(\[no-\])?$option( |$|\[)" "$share/man/man"?/"$page".? || fail "$page: no --$option in its page"
		grep -qE -e "--$option\b" "$share/bash-completion/completions/$program" || fail "bash: no --$option"
		grep -qE -e "--$option(=|\[)" "$share/zsh/site-functions/_$program" || fail "zsh: no --$option"
		grep -qE -e "-l $option\b" "$share/fish/vendor_completions.d/$program.fish" || fail "fish: no --$option"
	done
done < <(commands)
[ $looked_at -gt 200 ] || fail "only $looked_at options were looked at"

# bash completes words as they are asked for.
completes() { # WANTED WORD...
	local wanted=$1
	shift
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
	"_$1"
	equal "completion of '$*'" "${COMPREPLY[*]}" "$wanted"
}
# shellcheck disable=SC1090
for program in gpclient gpserverd; do . "$share/bash-completion/completions/$program"; done
completes train gpclient tra
completes compare gpclient codec co
completes --tokens gpserverd --tok
completes "--rate --rate-up --rate-down" gpclient link --rate
completes "adam adamw" gpclient train --optimizer ada

if command -v mandoc >/dev/null; then
	# That a page is not installed here, which another refers to, is no fault of it.
	mandoc -Tlint -W all "$share"/man/*/* 2>&1 | grep -v 'referenced manual not found' >"$work/lint"
	equal "what mandoc says of the pages" "$(head -5 "$work/lint")" ""
fi
command -v zsh >/dev/null && for file in "$share"/zsh/site-functions/*; do zsh -n "$file" || fail "zsh: $file"; done
if command -v fish >/dev/null; then
	for file in "$share"/fish/vendor_completions.d/*; do fish --no-config -n "$file" || fail "fish: $file"; done
	HOME=$work fish --no-config -c ". $share/fish/vendor_completions.d/gpclient.fish; complete -C 'gpclient codec comp'" |
		grep -q compare || fail "fish does not complete gpclient codec compare"
fi
finish
