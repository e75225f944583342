#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/gpu.sh from an unpacked bundle, on the emulated device: the script, the
# programs it runs and the bundle that brings them. Only the smallest test
# program: the others are tests of their own.

# shellcheck disable=SC1091,SC2154
. "$(dirname "$0")/lib.sh"
command -v readelf >/dev/null || { echo "no binutils here" && exit 77; }
grep -q '^gp_cuda_device:[A-Z]*=emulated' "$build/CMakeCache.txt" || { echo "no emulated device in this build" && exit 77; }
case $(readelf -d "$build/gpclient" 2>/dev/null) in
*libasan* | *libtsan*) echo "a sanitizer's build is not for other hosts" && exit 77 ;;
esac

unpack_bundle() {
	"$source_dir/deploy/bundle.sh" --build "$build" --tests --out "$work" >"$work/name" 2>"$work/bundle.log" ||
		{ cat "$work/bundle.log" && exit 1; }
	mkdir -p "$work/some where"
	tar -xzf "$(cat "$work/name")" -C "$work/some where" || exit 1
	bundle=$work/some\ where/$(basename "$(cat "$work/name")" .tar.gz)
}

has() { # EXTENDED-REGULAR-EXPRESSION WHAT
	if grep -qE "$1" "$work/table"; then
		echo "ok: $2"
	else
		fail "$2: no line matches '$1'"
	fi
}

# In the place of python3: dies while it looks (bf16), answers (tf32). Of fp32 it is not asked.
write_python() {
	cat >"$work/python" <<-'END'
	#!/bin/bash
	case "$*" in
	*--serve*bf16*--only\ slow*) echo "ready slow" ;;
	*--serve*bf16*) echo "slow: ms per step: median 9.000 best 8.000" >&2 && exit 1 ;;
	*--serve*tf32*) echo "ready quick, graphs" ;;
	*--serve*) echo "nobody should ask this" >&2 && exit 1 ;;
	*) exit ;;
	esac
	while read -r; do echo "times 2.000 1.000"; done
	END
	# In the place of compute-sanitizer: racecheck has a finding, synccheck is silent about what it runs.
	cat >"$work/checker" <<-'END'
	#!/bin/bash
	[ "$2" != racecheck ] || { echo "a race" && exit 9; }
	exec "${@: -1}"
	END
	chmod +x "$work/python" "$work/checker"
}

gpu() { # FLAG...
	PYTHON=$work/python "$bundle/tests/gpu.sh" --emulated --rounds 1 "$@" >"$work/said" 2>&1
}

unpack_bundle
write_python
gpu --only test_cuda_rt --out "$work/table" --logs "$work/logs" info tests exact codecs split steps
equal "status of gpu.sh" $? 0
equal "lines said that are not in the file" "$(diff "$work/said" "$work/table" | wc -l)" 0
has '^program .*gpserverd [0-9.]+, commit [0-9a-f]{12}' "program and commit"
has '^device +cuda-emulated \(emulated on the CPU\), computes' "the device is tried before anything else"
has '^test_cuda_rt +[0-9]+ passed' "a test program's count"
has '^equal +cnn: split and in one process \([0-9a-f]{12}\)' "a split training equals one without a link"
has '^close +cnn: loss of two steps on the device and on the CPU' "the CPU device's loss"
has '^uniform:bits=8 +8\.[0-9]+ +[0-9.]+ ' "a codec's times"
has '^mobilenetv2:width=0.25 32x32x3 4/2 +bf16 +[0-9.]+ .* slow$' "PyTorch's best after a setting that ended it"
has '^mobilenetv2:width=0.25 32x32x3 4/2 +tf32 +[0-9.]+ +[0-9.]+ +2\.000 +1\.000 .* quick, graphs$' "turns with PyTorch"
has '^mobilenetv2:width=0.25 32x32x3 4/2 +fp32 +[0-9.]+ +[0-9.]+$' "in fp32 ours alone"
has '^sortquant:bits=6,split=2 +[0-9.]+ +[0-9.]+ .* [0-9.]+$' "a split step's time"
has '^insert=flop-2 +[0-9.]+ +[0-9.]+ .* [0-9.]+$' "a split step's time with an insertion"
has '^== 0 failures, 0 left out' "no failures"
[ -s "$work/logs/tests-test_cuda_rt.log" ] || fail "no log of a test program is kept"
tar -tzf "$work/logs.tar.gz" | grep -q '^logs/tests-test_cuda_rt.log$' || fail "the logs are not packed"
[ "$failures" -eq 0 ] || cat "$work/said"

gpu --only test_cuda_rt --out "$work/table" sanitizer
equal "status of gpu.sh without a card to check" $? 0
has '^not run: there is no card' "the sanitizer has nothing to do"
SANITIZER=$work/checker gpu --only 'test_cuda_[r]t' --out "$work/table" sanitizer
equal "status of gpu.sh after a finding" $? 1
has '^FAILED +test_cuda_rt, status 9' "a finding is a failure"
equal "programs without one" "$(grep -c '^test_cuda_rt .*passed' "$work/table")" 2
has '^== 1 failures' "and counted once"

SANITIZER=false gpu --only 'test_cuda_[r]t' --out "$work/table" sanitizer
equal "status of gpu.sh where the sanitizer does not work" $? 1
has '^LEFT OUT +compute-sanitizer: false does not work here, status 1' "a sanitizer that does not work"
equal "programs run under it" "$(grep -c '^test_cuda_rt' "$work/table")" 0
printf '#!/bin/bash\necho "Error: Device not supported"\nexit 9\n' >"$work/refuses" && chmod +x "$work/refuses"
SANITIZER=$work/refuses gpu --only 'test_cuda_[r]t' --out "$work/table" sanitizer
has '^LEFT OUT +compute-sanitizer: .*refuses does not work here, status 9' "a sanitizer that does not know the card"
equal "programs run under that" "$(grep -c '^test_cuda_rt' "$work/table")" 0

# Ended from outside, as by the time of a machine that is lent.
rm -rf "$work/logs" "$work/logs.tar.gz"
PYTHON=$work/python "$bundle/tests/gpu.sh" --emulated --only test_cuda_rt --out "$work/table" --logs "$work/logs" \
	tests exact >"$work/said" 2>&1 &
for _ in $(seq 600); do
	! grep -q '^test_cuda_rt .*passed' "$work/table" || break
	sleep 0.1
done
kill -TERM $! && wait $!
equal "status of gpu.sh that was ended" $? 143
tar -tzf "$work/logs.tar.gz" | grep -q '^logs/tests-test_cuda_rt.log$' || fail "the logs of a run that was ended are not packed"

gpu --out "$work/nowhere/table" info
equal "status of gpu.sh with a table that cannot be written" $? 2
equal "what it says then" "$(cat "$work/said")" "gpu.sh: cannot write $work/nowhere/table"
(cd "$work" && gpu --out beside info)
[ -s "$work/beside" ] || fail "the table is not where the caller stands"

gpu --only no_such_test tests
equal "status of gpu.sh without a test to run" $? 1
SECONDS=1000 gpu --minutes 1 --only test_cuda_rt --out "$work/table" tests exact codecs split steps sanitizer
equal "status of gpu.sh out of time" $? 1
equal "what it has left out" "$(grep -c '^LEFT OUT' "$work/table")" 6
finish
