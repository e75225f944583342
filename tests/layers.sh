#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# layers.sh: a folder is a level, and includes only itself and what stands before it in the list below, which is that of
# CMakeLists.txt. Fails on every #include in another direction, on one that names no file, and on two source files of
# one name. That the symbols keep to the same order is checked by the link_NAME programs (tests/CMakeLists.txt).

set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1

# From the ground up. A file belongs to the longest folder that holds it.
readonly levels=(
	common/base
	kernels/loops
	common/options
	common/net
	common/codec/stages common/codec
	common/store
	common/graph/ops common/graph
	common/wire
	kernels/plan
	kernels/cpu/math kernels/cpu/ops kernels/cpu/plan
	kernels/cuda/emulator kernels/cuda/runtime kernels/cuda/codec kernels/cuda/ops kernels/cuda/plan
	kernels
	server
	client/data
	client/models
	client/link
	client
	client/commands
)

# Folders that make up one level (one library): they may include each other. The kernels of the emulated device are
# written against the emulator, which queues its work by the runtime.
readonly rooms=("common/codec/stages common/codec" "common/graph/ops common/graph" "kernels/cpu/ops kernels/cpu/plan"
	"kernels/cuda/ops kernels/cuda/plan" "kernels/cuda/emulator kernels/cuda/runtime")

git ls-files --cached --others --exclude-standard common kernels server client |
	grep -E '\.(c|h|cu|cc)$' | sort -u | while read -r file; do [ -f "$file" ] && echo "$file"; done |
	awk -v levels="${levels[*]}" -v rooms="$(printf '%s|' "${rooms[@]}")" '
		BEGIN {
			count = split(levels, level, " ")
			together = split(rooms, room, "|")
			for (r = 1; r < together; r++) {
				n = split(room[r], folder, " ")
				for (i = 1; i <= n; i++) floor_of[folder[i]] = r
			}
		}
		function place(path,    i, best) {
			best = 0
			for (i = 1; i <= count; i++)
				if (index(path, level[i] "/") == 1 && (!best || length(level[i]) > length(level[best]))) best = i
			return best
		}
		function is_below(a, b) { # whether level a may include level b
			if (level[a] ~ /^client/ && level[b] == "server") return 0
			if (a == b || b < a) return 1
			return (level[a] in floor_of) && floor_of[level[a]] == floor_of[level[b]]
		}
		function complain(text) { print text; bad = 1 }
		{
			name = $0
			sub(/.*\//, "", name)
			if (name in seen) complain(seen[name] " and " $0 " have one name: rename one of them")
			seen[name] = $0
			here = place($0)
			if (!here) complain($0 " lies in no level: add its folder to tests/layers.sh and CMakeLists.txt")
			file = $0
			number = 0
			while ((getline line < file) > 0) {
				number++
				if (line !~ /^[ \t]*#[ \t]*include "/) continue
				split(line, part, "\"")
				target = part[2]
				if (target ~ /^proto\//) {
					if (here < place("common/wire/x")) complain(file ":" number ": includes " target " below common/wire")
					continue
				}
				there = place(target)
				if (!there) complain(file ":" number ": includes " target ", which is no path from the root")
				else if (!is_below(here, there))
					complain(file ":" number ": includes " target ": " level[there] " stands above " level[here])
			}
			close(file)
			files++
		}
		END {
			if (files < 100) complain("only " files " files were looked at")
			if (!bad) print files " files, " count " levels: every include points downwards"
			exit bad
		}'
