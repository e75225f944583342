# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# json.sh: the scripts' reader of the JSON that gpclient prints; awk, so that
# nothing needs to be installed for it. Not a validator. Sourced, not run.

# One line PATH=VALUE for every number, string and literal of one JSON text: "act_up.payload_bytes=4096", "list.0=1".
# Strings come without their quotes, escapes as they are.
json_flat() { # FILE
	awk '
	function path(  i, text) {
		for (i = 1; i <= depth; i++) text = text (i > 1 ? "." : "") key[i]
		return text
	}
	function take(length_of_token) {
		token = substr(rest, 1, length_of_token)
		rest = substr(rest, length_of_token + 1)
	}
	function value() { # a key when a colon follows in an object
		if (rest ~ /^[ \t\r\n]*:/ && !is_list[depth]) { key[depth] = token; sub(/^[ \t\r\n]*:/, "", rest) }
		else print path() "=" token
	}
	{ rest = rest $0 "\n" }
	END {
		while (rest != "") {
			if (match(rest, /^[ \t\r\n]+/)) take(RLENGTH)
			else if (match(rest, /^[{\[]/)) { take(1); depth++; is_list[depth] = token == "["; key[depth] = 0 }
			else if (match(rest, /^[}\]]/)) { take(1); depth-- }
			else if (match(rest, /^,/)) { take(1); if (is_list[depth]) key[depth]++ }
			else if (match(rest, /^"([^"\\]|\\.)*"/)) { take(RLENGTH); token = substr(token, 2, length(token) - 2); value() }
			else if (match(rest, /^[-+.0-9a-zA-Z]+/)) { take(RLENGTH); value() }
			else exit 1
		}
	}' "$1"
}

# The value at PATH; fails, with a line, where there is none.
json_get() { # FILE PATH
	local value
	value=$(json_flat "$1" | awk -v path="$2=" 'index($0, path) == 1 && !found++ { print substr($0, length(path) + 1) }
		END { exit !found }') || { echo "$1: no $2 in it" >&2 && return 1; }
	echo "$value"
}
