#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What reading a server's figures takes of its steps: gpserverd with 64 trainings at once, whose /metrics somebody reads every
# 100 ms and whose /sessions somebody else reads once a second, as its page does in a browser; and the same server without,
# by turns. Prints for each round the time of a step and the processor time of gpserverd per step, with and without readers,
# and the ratio of the sums; then what the thread that answers took while there were readers, which is the whole difference
# but for noise. Wanted: below 1 %. Readers run on this machine, too, and take processor time that they would not take
# elsewhere: it is stated.
#
#   tests/bench/metrics_cost.sh BUILD-FOLDER [--clients N] [--rounds N] [--seconds S] [--every MS] [--model SPEC] [--cut H:T]
#
# --seconds: of each half of a round (15). Wants a quiet machine. Needs python3. Figures: RESULTS.md

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
shift
clients=64 rounds=8 seconds=15 every=100 model=mobilenetv2:width=0.35,stem=cifar cut=1:-2
while [ $# -gt 0 ]; do
	case $1 in
	--clients | --rounds | --seconds | --every | --model | --cut) printf -v "${1#--}" %s "${2:?"$1 needs a value"}" && shift ;;
	*) echo "metrics_cost.sh: unknown flag $1" >&2 && exit 2 ;;
	esac
	shift
done
command -v python3 >/dev/null || { echo "skipped: python3 is not installed" && exit 77; }
pids=()

stop_all() {
	[ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
	cleanup
}
trap stop_all EXIT

# Reads as Prometheus and as the page do, with a connection that stays open each; ends by itself. Prints how often each was
# read, how long the answers were, and its own processor time in seconds.
cat >"$work/read.py" <<'END_OF_PYTHON'
import http.client, sys, time

host, seconds, every = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]) / 1000
readers = [[path, period, 0, http.client.HTTPConnection(host), 0, 0] for path, period in (("/metrics", every), ("/sessions", 1))]
begin = time.monotonic()
while (now := time.monotonic() - begin) < seconds:
    for reader in readers:
        path, period, due, link, _, _ = reader
        if now >= due:
            link.request("GET", path)
            answer = link.getresponse()
            if answer.status != 200:
                sys.exit(f"{path}: {answer.status}")
            reader[4], reader[5], reader[2] = reader[4] + 1, len(answer.read()), due + period
    time.sleep(max(0, min(reader[2] for reader in readers) - (time.monotonic() - begin)))
print(*(f"{path} {count} times, {size} bytes;" for path, _, _, _, count, size in readers), f"{time.process_time():.2f}")
END_OF_PYTHON

steps_done() {
	curl -s "http://$figures/metrics" | awk '$1 == "gpserverd_steps_total" { print $2 }'
}

# Seconds of a processor that gpserverd has taken.
server_time() {
	awk -v tick="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / tick }' "/proc/$server_pid/stat"
}

# What the thread took that answers readers; it is of gpserverd.
http_time() {
	cat /proc/"$server_pid"/task/*/stat | awk -v tick="$(getconf CLK_TCK)" '/\(gp-http\)/ { sub(/.*\) /, ""); print ($12 + $13) / tick }'
}

trained() {
	[ "$(steps_done)" -ge $((2 * clients)) ]
}

# "seconds per step, processor seconds of gpserverd per step"
half() { # COMMAND THAT TAKES $seconds
	local steps used begin
	steps=$(steps_done) used=$(server_time) begin=$(date +%s.%N)
	"$@" || exit 1
	awk -v s0="$steps" -v s1="$(steps_done)" -v u0="$used" -v u1="$(server_time)" -v t0="$begin" -v t1="$(date +%s.%N)" \
		'BEGIN { n = s1 - s0; if (n < 1) exit 1; printf "%.6f %.6f\n", (t1 - t0) / n, (u1 - u0) / n }'
}

readers() {
	local used
	used=$(http_time)
	python3 "$work/read.py" "$figures" "$seconds" "$every" >"$work/readers" || return 1
	awk -v a="$used" -v b="$(http_time)" 'BEGIN { print b - a }' >>"$work/answering"
}

start_server --threads 1 --metrics 127.0.0.1:0 --max-sessions "$clients"
await grep -q 'http://' "$work/server.log" || fail "no figures"
figures=$(grep -o 'http://127.0.0.1:[0-9]*' "$work/server.log" | head -1)
figures=${figures#http://}
for ((n = 1; n <= clients; n++)); do
	"$build/gpclient" train --server "127.0.0.1:$server_port" --model "$model" --cut "$cut" --data \
		synthetic:shape=3x32x32,classes=10,samples=64 --batch 16 --chunks 2 --threads 1 --steps 100000000 --codec uniform:bits=8 \
		--no-progress --no-eval >/dev/null 2>"$work/client$n.log" &
	pids+=($!)
done
await trained || { echo "the clients do not train: $(tail -3 "$work/client1.log")" && exit 1; }
echo "$clients clients, $model cut $cut, $(date -u +%F), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
echo "seconds per step and processor seconds of gpserverd per step: with readers; without"
for ((round = 1; round <= rounds; round++)); do
	if ((round % 2)); then with=$(half readers) && without=$(half sleep "$seconds"); else without=$(half sleep "$seconds") && with=$(half readers); fi ||
		{ echo "no step was made: $(tail -3 "$work/client1.log")" && exit 1; }
	echo "round $round: $with; $without" | tee -a "$work/rounds"
done
echo "readers, in the last round (the last figure is their processor time in seconds): $(cat "$work/readers")"
awk -v seconds="$seconds" '{ n += $1 } END {
	printf "answering: %.2f s of a processor in %d s: %.2f %% of one\n", n, NR * seconds, 100 * n / (NR * seconds) }' "$work/answering"
awk -F '[:;]' '{ split($2, a, " "); split($3, b, " "); wall += a[1]; wall0 += b[1]; cpu += a[2]; cpu0 += b[2] }
	END { printf "time per step %+.2f %%; processor time of gpserverd %+.2f %%\n", 100 * (wall / wall0 - 1), 100 * (cpu / cpu0 - 1) }' \
	"$work/rounds"
exit 0
