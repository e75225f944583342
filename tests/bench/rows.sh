# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# For benchmarks that note a line for each run that is finished, so that they may be stopped at any time and go on where
# they were. Sourced, with `results` set to the file. Its lines have columns separated by tabs, of which the first ones
# name the run: its key.

# A line that was cut off, as on a full disk, is no finished run, and the next one must not stand behind it.
# shellcheck disable=SC2154 # who sources this sets results
if [ -s "$results" ] && [ "$(tail -c 1 "$results")" != '' ]; then
	echo "the last line of $results is cut off: it is taken out" >&2
	sed -i --follow-symlinks '$ d' "$results"
fi

key() { # COLUMN...
	local IFS=$'\t'
	printf '%s' "$*"
}

finished() { # KEY
	# shellcheck disable=SC2154 # who sources this sets results
	awk -v key="$1	" 'BEGIN { found = 1 } index($0, key) == 1 { found = 0 } END { exit found }' "$results"
}

# In one write, as several of these scripts may add to one file.
note() { # KEY VALUE...
	printf '%s\n' "$(key "$@")" >>"$results"
}

say() { # TEXT...
	echo "$(date -u +%H:%M:%S) $*"
}

say_key() { # KEY
	say "$(tr '\t' ' ' <<<"$1")"
}

# Runs the function, which notes the key, unless that is finished; ends the script where the function fails.
run() { # KEY FUNCTION ARGUMENT...
	local key=$1
	shift
	finished "$key" && return
	say_key "$key"
	"$@" || { echo "failed: $(tr '\t' ' ' <<<"$key")" >&2 && exit 1; }
}
