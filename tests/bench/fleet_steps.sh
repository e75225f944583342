#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Steps a second of 1, 2 and 3 CPU servers behind HAProxy (deploy/haproxy.cfg with other addresses), which share one state
# folder. Each server has one compute thread and one core of its own, as far as there are cores: the table says which ones, and
# where clients and HAProxy ran. What shares a core shares its time, so figures of a machine with fewer cores than servers and
# clients need say how the servers share them, and not what a server more would bring.
#
#   tests/bench/fleet_steps.sh BUILD-FOLDER [--servers 1,2,3] [--clients N] [--seconds S] [--model SPEC] [--cut H:T]
#
# As many clients for each number of servers (6): each trains without end, with a checkpoint every 50 steps. When all have a
# session, and each has made a step, steps are counted for --seconds (60), as the servers' figures have them. Needs haproxy,
# curl and taskset; status 77 without.

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
shift
counts=1,2,3 clients=6 seconds=60 model=mobilenetv2:width=0.35,stem=cifar cut=1:-2
while [ $# -gt 0 ]; do
	case $1 in
	--servers) counts=$2 && shift ;;
	--clients) clients=$2 && shift ;;
	--seconds) seconds=$2 && shift ;;
	--model) model=$2 && shift ;;
	--cut) cut=$2 && shift ;;
	*) echo "fleet_steps.sh: unknown flag $1" >&2 && exit 2 ;;
	esac
	shift
done
for program in haproxy curl taskset; do
	command -v $program >/dev/null || { echo "skipped: $program is not installed" && exit 77; }
done

cores=$(nproc)
pids=() servers=() ports=() figures=()

stop_all() {
	[ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
	cleanup
}
trap stop_all EXIT

# The cores that the servers leave, or all.
others() { # SERVERS
	if [ "$1" -lt "$cores" ]; then echo "$1-$((cores - 1))"; else echo "0-$((cores - 1))"; fi
}

serve() { # NUMBER
	local n=$1 url
	rm -f "$work/port$n"
	taskset -c $(((n + cores - 1) % cores)) "$build/gpserverd" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --threads 1 --device cpu \
		--port-file "$work/port$n" --state-dir "$work/state" --client-lines 0 --handshakes 0 --handshake-rate 0 \
		2>"$work/server$n.log" &
	pids+=($!)
	servers+=($!)
	comes_up $! "$work/port$n" "server $n" "$work/server$n.log"
	await grep -q 'http://' "$work/server$n.log" || { echo "server $n has no figures" && exit 1; }
	url=$(grep -o 'http://127.0.0.1:[0-9]*' "$work/server$n.log" | head -1)
	ports+=("$(cat "$work/port$n"):${url##*:}")
	figures+=("$url/metrics")
}

balance() { # SERVERS
	# A port for HAProxy, which cannot tell which one it took: one that a server had a moment ago.
	serve 0
	balancer_port=${ports[-1]%:*}
	kill "${servers[-1]}" && wait "${servers[-1]}"
	unset 'servers[-1]' 'ports[-1]' 'figures[-1]' 'pids[-1]'
	write_haproxy_config "$work/haproxy.cfg" "$balancer_port" "${ports[@]}"
	taskset -c "$(others "$1")" haproxy -db -f "$work/haproxy.cfg" >"$work/haproxy.log" 2>&1 &
	pids+=($!)
	await probe "$balancer_port" || { echo "HAProxy does not serve:" && cat "$work/haproxy.log" && exit 1; }
}

probe() { # PORT
	(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

sum_of() { # NAME
	local url
	for url in "${figures[@]}"; do
		curl -s "$url"
	done | awk -v name="$1" '$1 == name { n += $2 } END { print n + 0 }'
}

# Every client has its session, and has made a step.
all_train() {
	[ "$(sum_of gpserverd_sessions_opened_total)" -ge "$clients" ] && [ "$(sum_of gpserverd_steps_total)" -ge $((2 * clients)) ]
}

sessions_each() {
	local url
	for url in "${figures[@]}"; do
		curl -s "$url" | awk '$1 == "gpserverd_sessions{state=\"linked\"}" { printf "%s%d", sep, $2 }'
		printf ' '
	done
}

measure() { # SERVERS
	local n before after begin end
	servers=() ports=() figures=() pids=()
	rm -rf "$work/state"
	for ((n = 1; n <= $1; n++)); do
		serve "$n"
	done
	balance "$1"
	for ((n = 1; n <= clients; n++)); do
		taskset -c "$(others "$1")" "$build/gpclient" train --server "127.0.0.1:$balancer_port" --model "$model" --cut "$cut" \
			--data synthetic:shape=3x32x32,classes=10,samples=256 --batch 32 --chunks 4 --threads 1 --steps 100000000 \
			--codec uniform:bits=8 --checkpoint "$work/run$1.$n" --checkpoint-every 50 --no-progress --no-eval \
			>/dev/null 2>"$work/client$n.log" &
		pids+=($!)
	done
	await all_train || { echo "the clients do not train: $(tail -3 "$work/client1.log")" && exit 1; }
	before=$(sum_of gpserverd_steps_total) begin=$(date +%s.%N)
	sleep "$seconds"
	after=$(sum_of gpserverd_steps_total) end=$(date +%s.%N)
	awk -v n="$1" -v steps=$((after - before)) -v begin="$begin" -v end="$end" -v each="$(sessions_each)" -v cores="$cores" \
		-v others="$(others "$1")" 'BEGIN {
		printf "| %d | %.2f | %s| %d, each server one of them | %s |\n", n, steps / (end - begin), each, cores, others
	}'
	kill -KILL "${pids[@]}"
	wait "${pids[@]}" 2>/dev/null
	pids=()
}

echo "$clients clients, $model cut $cut, $(date -u +%F), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
echo
echo "| servers | steps/s | sessions of each | cores of the machine | cores of clients and HAProxy |"
echo "|---:|---:|---|---:|---|"
for count in ${counts//,/ }; do
	measure "$count"
done
exit 0
