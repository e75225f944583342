#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What tests/layers.sh has to refuse: each way round it, in a file of its own in a copy of the tree. And what it has to
# take, so that it is not refusing everything.

set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
tree=$work/tree
count=0 failures=0
declare -A expected # what the complaint says, by what it begins with

fail() { # TEXT...
	echo "layers_cheats: $*"
	failures=$((failures + 1))
}

fresh_tree() {
	rm -rf "$tree" && mkdir -p "$tree/proto" && cp -R CMakeLists.txt common kernels server client "$tree" &&
		cp proto/*.proto "$tree/proto" || exit 1
	expected=()
}

# A copy of mem.c with lines at its end, as a new file of a level.
add_file() { # FOLDER LINES
	count=$((count + 1))
	added=$1/cheat_$count.c
	{ cat common/base/mem.c && printf '%b' "$2\n"; } >"$tree/$added"
}

refused() { # FOLDER LINES [COMPLAINT]
	add_file "$1" "$2"
	expected["$added"]=${3:-client/train/trainer.h}
}

taken() { # FOLDER LINES
	add_file "$1" "$2"
}

check_taken() { # WHAT
	bash tests/layers.sh "$tree" >"$work/out" || fail "$1 is refused: $(cat "$work/out")"
}

# Every file that was added is complained of, and nothing else is.
check_refused() {
	local file
	bash tests/layers.sh "$tree" >"$work/out" && fail "nothing is refused"
	for file in "${!expected[@]}"; do
		grep -F -e "$file" "$work/out" | grep -qF -e "${expected[$file]}" ||
			fail "not refused with '${expected[$file]}': $file: $(tail -n 2 "$tree/$file" 2>/dev/null)"
	done
	for file in "${!expected[@]}"; do
		grep -vF -e "$file" "$work/out" >"$work/rest"
		mv "$work/rest" "$work/out"
	done
	[ -s "$work/out" ] && fail "complains of more: $(cat "$work/out")"
}

# The list of levels itself: sed's command on CMakeLists.txt.
refused_list() { # COMMAND COMPLAINT
	sed -E "$1" CMakeLists.txt >"$tree/CMakeLists.txt"
	cmp -s CMakeLists.txt "$tree/CMakeLists.txt" && fail "no line for '$1'"
	bash tests/layers.sh "$tree" >"$work/out" && fail "the list is taken after '$1'"
	grep -qF -e "$2" "$work/out" || fail "'$1' is not refused with '$2'"
	cp CMakeLists.txt "$tree"
}

# --- what is right --------------------------------------------------------------------------------------------------

fresh_tree
taken common/base '#include "common/base/mem.h"\n#include <sys/stat.h>'
taken common/base '# \tinclude /* twice */ "common/base/mem.h" // once'
taken common/base '/* #include "client/train/trainer.h" */\n// #include "client/train/trainer.h"'
taken common/base '/*\n#include "client/train/trainer.h"\n*/'
taken common/base 'const char *cheat = "#include \\"client/train/trainer.h\\"";'
taken common/wire '#include "proto/gpsplit.pb-c.h"'
taken client/train '#include "common/codec/codec.h" /* by way of wire and graph */'
taken kernels '#include "kernels/cuda/runtime/rt.h"'
taken kernels/cuda/codec '#include "kernels/cuda/runtime/rt.h"'
: >"$tree/server/.cheat.c.swp"
check_taken "what is right"

# --- spellings ------------------------------------------------------------------------------------------------------

fresh_tree
refused common/base '#include "client/train/trainer.h"'
refused common/base '#include <client/train/trainer.h>'
refused common/base '#include"client/train/trainer.h"'
refused common/base '#include\t"client/train/trainer.h"'
refused common/base '#include\f"client/train/trainer.h"'
refused common/base '\t # \t include "client/train/trainer.h"'
refused common/base '#include /* x */ "client/train/trainer.h"'
refused common/base '# /* x */ include "client/train/trainer.h"'
refused common/base '/* x */ #include "client/train/trainer.h"'
refused common/base '/* x\n*/ #include "client/train/trainer.h"'
refused common/base '#include /* x\n*/ "client/train/trainer.h"'
refused common/base '#include "client/train/trainer.h" // x'
refused common/base '#include "client/train/trainer.h" /* x\n*/'
refused common/base '%:include "client/train/trainer.h"'
refused common/base '??=include "client/train/trainer.h"'
refused common/base '#inc\\\nlude "client/train/trainer.h"'
refused common/base '#include \\\n"client/train/trainer.h"'
refused common/base '#include \\ \n"client/train/trainer.h"'
refused common/base '#include "client/train/\\\ntrainer.h"'
refused common/base '// x \\\n\n#include "client/train/trainer.h"'
refused common/base '#include "client/train/trainer.h"\r'
refused common/base '#if 0\n#include "client/train/trainer.h"\n#endif'
refused common/base '#import "client/train/trainer.h"' import
refused common/base '#include_next "client/train/trainer.h"' include_next
refused common/base '#define CHEAT "client/train/trainer.h"\n#include CHEAT' CHEAT
refused common/base '#define CHEAT <client/train/trainer.h>\n#include CHEAT' CHEAT
refused common/base 'const char *cheat = "/*";\n#include "client/train/trainer.h"\n/* */'
refused common/base "int cheat = '\"';\n#include \"client/train/trainer.h\" /* '\"' */"
refused common/base "int cheat = '\\\\''; /* ' */\n#include \"client/train/trainer.h\""
refused common/base 'const char *cheat = R"(" /*)";\n#include "client/train/trainer.h"\n/* */'
refused common/base '#error it'"'"'s\n#include "client/train/trainer.h" // '"'"
refused common/base 'const char *cheat = R"x()\\\nx" /*)x";\n#include "client/train/trainer.h"\n/* */' 'raw string'
refused common/base '#\0include "client/train/trainer.h"' 'byte 0'
printf '\xEF\xBB\xBF#include "client/train/trainer.h"\n' >"$tree/common/base/cheat_mark.c"
expected[common/base/cheat_mark.c]=client/train/trainer.h
check_refused

# --- paths ----------------------------------------------------------------------------------------------------------

fresh_tree
refused common/base '#include "common/base/../../client/train/trainer.h"' path
refused common/base '#include "./client/train/trainer.h"' path
refused common/base '#include "client//train/trainer.h"' path
refused common/base '#include "../../client/train/trainer.h"' path
refused common/base "#include \"$PWD/client/train/trainer.h\"" path
refused common/base "#include <$PWD/client/train/trainer.h>" library
refused common/base '#include <../client/train/trainer.h>' library
refused common/base '#include <./client/train/trainer.h>' library
refused common/base '#include <sys/../client/train/trainer.h>' library
refused common/base '#include <client//train/trainer.h>' client
refused common/base '#include <common/base/mem.h>' library
refused common/wire '#include <proto/gpsplit.pb-c.h>' library
refused common/base '#include "proto/gpsplit.pb-c.h"' gp_proto
refused common/wire '#include "proto/nofile.pb-c.h"' path
refused common/base '#include "common/base/nofile.h"' path
refused common/base '#include "mem.h"' path
refused common/wire '#include "proto/cheat.h"' path
refused common/wire '#include "proto/cheat.pb-c.h"' path
for name in cheat.h cheat.pb-c.h cheat.proto; do
	echo '#include "client/train/trainer.h"' >"$tree/proto/$name"
done
refused common/base '#include "common/base/mem.c"' path
refused common/base '#include "common/base/cheat.inc"' path
refused common/base '#include "tests/unit/test_device.h"' path
check_refused

# --- directions -----------------------------------------------------------------------------------------------------

fresh_tree
refused client/models '#include "client/data/dataset.h"' gp_data
refused client/data '#include "common/graph/graph.h"' gp_graph
refused common/graph '#include "common/net/conn.h"' gp_net
refused common/store '#include "common/codec/codec.h"' gp_codec
refused common/codec/stages '#include "common/graph/graph.h"' gp_graph
refused kernels/cuda/plan '#include "kernels/cpu/plan/cpu_plan.h"' gp_cpu
refused kernels/cpu/math '#include "kernels/cpu/plan/cpu_plan.h"' gp_cpu
refused kernels/cpu/ops '#include "common/wire/account.h"' gp_wire
refused kernels/cuda/runtime '#include "kernels/cuda/codec/cuda_codec.h"' gp_cuda_codec
refused kernels/cuda/emulator '#include "kernels/cuda/plan/cuda_plan.h"' gp_cuda
refused kernels/cuda/codec '#include "kernels/cuda/plan/cuda_plan.h"' gp_cuda
refused kernels/cuda/ops '#include "kernels/device_registry.h"' gp_devices
refused server '#include "kernels/cuda/runtime/rt.h"' gp_cuda_runtime
refused server '#include "kernels/cpu/plan/cpu_plan.h"' gp_cpu
refused server '#include "client/train/trainer.h"' gp_client
refused client/train '#include "server/body.h"' gp_server
refused client/train '#include "client/commands/commands.h"' gp_commands
refused client/link '#include "client/train/trainer.h"' gp_client
check_refused

# --- files ----------------------------------------------------------------------------------------------------------

fresh_tree
mkdir "$tree/server/sub"
refused server/sub '' 'in no level'
for name in cheat_kind.hpp cheat_kind.inc cheat_kind.cpp cheat_kind.S cheat_kind.cu cheat_kind; do
	echo '#include "client/train/trainer.h"' >"$tree/server/$name"
	expected["server/$name"]=kind
done
echo '#include "client/train/trainer.h"' >"$tree/server/.cheat.c"
expected[server/.cheat.c]=client/train/trainer.h
echo '#include "server/body.h"' >"$tree/kernels/cuda/ops/k_cheat.cu"
expected[kernels/cuda/ops/k_cheat.cu]=gp_server
echo '#include "server/body.h"' >"$tree/kernels/cuda/emulator/cheat.cc"
expected[kernels/cuda/emulator/cheat.cc]=gp_server
ln -s ../../client/train/trainer.h "$tree/common/base/cheat_link.h"
expected[common/base/cheat_link.h]='symbolic link'
ln -s ../client "$tree/common/cheat_folder"
expected[common/cheat_folder]='symbolic link'
cp "$tree/common/base/mem.c" "$tree/server/mem.c"
expected[server/mem.c]='one name'
check_refused

# --- the list of levels ---------------------------------------------------------------------------------------------

fresh_tree
refused_list 's/^(gp_level\(base .* LINKS)/\1 gp_client/' 'gp_base links to gp_client'
refused_list 's/^(gp_level\(base .* LINKS)/\1 gp_base/' 'gp_base links to gp_base'
refused_list 's/^(gp_level\(devices .* PRIVATE)/\1 gp_server/' 'gp_devices links to gp_server'
refused_list 's/^(gp_level\(data .*) LINKS/\1 client\/models LINKS/' 'client/models belongs to gp_models and to gp_data'
refused_list 's/^(gp_level\(data .*) LINKS/\1 client\/nowhere LINKS/' 'is no folder'
refused_list '/^gp_level\(options /d' 'common/options/options.c lies in no level'
refused_list 's/^(gp_cuda_level\(cuda_codec .* LINKS) gp_cuda_runtime/\1/' \
	'gp_cuda_codec does not link to gp_cuda_runtime'

[ $failures -eq 0 ] && echo "$count files that cheat or do not, and the list of levels: as they should be"
exit $((failures > 0))
