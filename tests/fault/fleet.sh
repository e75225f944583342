#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Many servers as one under fire: three gpserverd share one state folder behind HAProxy (deploy/haproxy.cfg, with other
# addresses), and clients train through them while servers are killed (SIGKILL), drained (SIGTERM) and started again at
# random, and links are cut. Every training has to end with the parameters of an undisturbed one, and a server that was told to
# stop with status 0 and nothing lost. After the last fault the servers have to even out their sessions (gpserverd
# --rebalance): over half a minute, none has over a fifth less than another.
#
#   tests/fault/fleet.sh BUILD-FOLDER [--minutes N] [--clients N] [--steps N] [--seed S] [--settle SECONDS] [--short]
#
# Two in three clients connect to HAProxy over a link that is cut at random bytes; the others have the list of all servers
# (gpclient --server A,B,C), each from another one on. Each trains one model after the other until the time is over. --short:
# three clients, one training each, and as many faults as it takes until each server was killed and drained once or all have
# ended; nothing in it depends on how fast the machine is, and the load is not looked at. Needs haproxy and curl; status 77
# without. See README.md in this folder.

# shellcheck disable=SC1091
. "$(dirname "$0")/../e2e/lib.sh"
shift
minutes=20 clients=12 steps='' seed=1 settle=600 short=''
while [ $# -gt 0 ]; do
	case $1 in
	--minutes) minutes=$2 && shift ;;
	--clients) clients=$2 && shift ;;
	--steps) steps=$2 && shift ;;
	--seed) seed=$2 && shift ;;
	--settle) settle=$2 && shift ;;
	--short) short=1 clients=3 ;;
	*) echo "fleet.sh: unknown flag $1" >&2 && exit 2 ;;
	esac
	shift
done
# A session that has just come to a server stays there for a while: short trainings would be over before they move.
[ -n "$steps" ] || steps=$([ -n "$short" ] && echo 120 || echo 1500)
for program in haproxy curl; do
	command -v $program >/dev/null || { echo "skipped: $program is not installed" && exit 77; }
done
RANDOM=$seed

drain_for=20 reconnect_for=180
# shellcheck disable=SC2054 # commas belong to codecs
codecs=(raw ef+uniform:bits=4 poweriter:rank=4,iters=1)
# shellcheck disable=SC2054 # commas belong to the data
training=(--model cnn --cut 1:2 --data synthetic:shape=3x32x32,classes=10,samples=256 --batch 32 --chunks 4 --lr 0.05
	--threads 1 --steps "$steps" --no-progress --no-eval --json --idle-timeout 5s)
declare -A server_of port_of metrics_of # by server: 1, 2, 3
helpers=() workers=()
kills=0 drains=0

stop_all() {
	touch "$work/over"
	[ ${#workers[@]} -eq 0 ] || kill "${workers[@]}" 2>/dev/null
	for file in "$work"/*.pid; do
		[ -s "$file" ] && kill -KILL "$(cat "$file")" 2>/dev/null
	done
	[ ${#helpers[@]} -eq 0 ] || kill -KILL "${helpers[@]}" 2>/dev/null
	[ ${#server_of[@]} -eq 0 ] || kill -KILL "${server_of[@]}" 2>/dev/null
	cleanup
}
trap stop_all EXIT

draw() { # N: sets drawn to 0..N-1
	drawn=$(((RANDOM << 15 | RANDOM) % $1))
}

# On the ports that it had before, if there were any: HAProxy and clients look for it there.
serve() { # NUMBER
	local n=$1 url
	rm -f "$work/port$n"
	: >"$work/server$n.new"
	"$build/gpserverd" --listen "127.0.0.1:${port_of[$n]:-0}" --metrics "127.0.0.1:${metrics_of[$n]:-0}" --threads 1 \
		--port-file "$work/port$n" --state-dir "$work/state" --drain-for ${drain_for}s --idle-timeout 5s --client-lines 0 \
		--handshakes 0 --handshake-rate 0 --lease 10s --rebalance 5s 2>"$work/server$n.new" &
	server_of[$n]=$!
	for _ in $(seq 2400); do
		[ -s "$work/port$n" ] && break
		kill -0 "${server_of[$n]}" 2>/dev/null || break
		sleep 0.05
	done
	[ -s "$work/port$n" ] || return 1
	port_of[$n]=$(cat "$work/port$n")
	await grep -q 'http://' "$work/server$n.new" || return 1
	url=$(grep -o 'http://127.0.0.1:[0-9]*' "$work/server$n.new" | head -1)
	metrics_of[$n]=${url##*:}
}

# What it has written so far is kept, for the last look at all logs.
put_log_away() { # NUMBER
	cat "$work/server$1.new" >>"$work/server$1.log"
}

begin_balancer() {
	# A port for HAProxy, which cannot tell which one it took: one that a server had a moment ago.
	serve 9 || exit 1
	kill "${server_of[9]}" && wait "${server_of[9]}"
	unset 'server_of[9]'
	balancer_port=${port_of[9]}
	write_haproxy_config "$work/haproxy.cfg" "$balancer_port" "${port_of[1]}:${metrics_of[1]}" \
		"${port_of[2]}:${metrics_of[2]}" "${port_of[3]}:${metrics_of[3]}"
	haproxy -c -f "$work/haproxy.cfg" >"$work/haproxy.log" 2>&1 || { cat "$work/haproxy.log" && exit 1; }
	haproxy -db -f "$work/haproxy.cfg" >>"$work/haproxy.log" 2>&1 &
	helpers+=($!)
	await probe "$balancer_port" || { echo "HAProxy does not serve:" && cat "$work/haproxy.log" && exit 1; }
}

probe() { # PORT: somebody takes connections
	(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# A link to the balancer that is cut again and again.
begin_link() { # NUMBER MEAN-BYTES
	rm -f "$work/link$1.port"
	"$build/gpclient" link --listen 127.0.0.1:0 --to "127.0.0.1:$balancer_port" --port-file "$work/link$1.port" \
		--drop-every "$2" --seed $((seed + $1)) >"$work/link$1.out" 2>"$work/link$1.log" &
	helpers+=($!)
	comes_up $! "$work/link$1.port" "gpclient link" "$work/link$1.log"
	link_of[$1]=$(cat "$work/link$1.port")
}

# --- clients: one subshell each, which leaves a line in FILE for each training ---

codec_of() { # CLIENT TRAINING
	echo "${codecs[$((($1 + $2) % ${#codecs[@]}))]}"
}

train_once() { # CLIENT TRAINING ADDRESS
	local folder=$work/run$1.$2 status=0 sha=''
	"$build/gpclient" train --server "$3" "${training[@]}" --seed $((($1 + $2) % 3)) --codec "$(codec_of "$1" "$2")" \
		--checkpoint "$folder" --checkpoint-every 10 --reconnect-for ${reconnect_for}s \
		>"$work/client$1.json" 2>"$work/client$1.new" &
	echo $! >"$work/client$1.pid"
	wait $! || status=$?
	rm -f "$work/client$1.pid"
	cat "$work/client$1.new" >>"$work/client$1.log"
	[ $status -eq 0 ] && sha=$(json_get "$work/client$1.json" param_sha256)
	echo "$2 $status ${sha:-none} $(json_get "$work/client$1.json" reconnects 2>/dev/null || echo 0)" >>"$work/client$1.done"
	rm -rf "$folder"
}

client() { # NUMBER ADDRESS
	local n
	trap - EXIT
	for ((n = 0; ; n++)); do
		train_once "$1" $n "$2"
		[ -z "$short" ] && [ ! -e "$work/over" ] || return 0
	done
}

clients_run() {
	local pid
	for pid in "${workers[@]}"; do
		kill -0 "$pid" 2>/dev/null && return 0
	done
	return 1
}

# --- faults ---

# A session has been opened, or has come back, since the server was started: there is something to lose.
has_work() { # NUMBER
	grep -qE 'session [0-9]+ .*(runs on|goes on|is open)|session_opened' "$work/server$1.new" && return 0
	[ "$(curl -s "http://127.0.0.1:${metrics_of[$1]}/metrics" | awk '/^gpserverd_sessions_opened_total/ { print $2 + 0 }')" -gt 0 ] 2>/dev/null
}

kill_server() { # NUMBER
	kill -KILL "${server_of[$1]}"
	wait "${server_of[$1]}" 2>/dev/null
	kills=$((kills + 1))
}

drain_server() { # NUMBER
	local status=0
	kill "${server_of[$1]}"
	wait "${server_of[$1]}" || status=$?
	drains=$((drains + 1))
	[ $status -eq 0 ] || fail "server $1 was told to stop and ended with status $status: $(tail -3 "$work/server$1.new")"
	! grep -E 'falls? back' "$work/server$1.new" >/dev/null || fail "server $1 lost steps: $(grep -E 'falls? back' "$work/server$1.new")"
}

disturb() { # NUMBER HOW
	"$2" "$1"
	put_log_away "$1"
	serve "$1" || { fail "server $1 does not start again: $(tail -3 "$work/server$1.new")" && exit 1; }
}

# --- the load once nobody disturbs the servers ---

figures_of() { # NUMBER: sessions with a client, and steps since it was started
	curl -s "http://127.0.0.1:${metrics_of[$1]}/metrics" | awk '
		$1 == "gpserverd_sessions{state=\"linked\"}" { sessions = $2 }
		$1 == "gpserverd_steps_total" { steps = $2 }
		END { print sessions + 0, steps + 0 }'
}

# The newest half minute: sessions on average, steps, and whether the servers are within a fifth of each other.
judge_load() {
	tail -n 31 "$work/load" | awk '
		NR == 1 { for (k = 1; k <= 3; k++) first[k] = $(2 * k) }
		{ for (k = 1; k <= 3; k++) { sum[k] += $(2 * k - 1); steps[k] = $(2 * k) - first[k] } }
		END {
			for (k = 1; k <= 3; k++) {
				mean = sum[k] / NR
				if (k == 1 || mean > most) most = mean
				if (k == 1 || mean < least) least = mean
				line = line sprintf("%s%.1f sessions and %d steps", k > 1 ? ", " : "", mean, steps[k])
			}
			print line
			exit !(NR == 31 && most > 0 && most - least <= 0.2 * most)
		}'
}

settle_down() {
	local begin=$SECONDS
	: >"$work/load"
	while [ $((SECONDS - begin)) -lt "$settle" ]; do
		echo "$(figures_of 1) $(figures_of 2) $(figures_of 3)" >>"$work/load"
		judge_load >"$work/judged" && echo "even $((SECONDS - begin)) s after the last fault: $(cat "$work/judged")" && return
		sleep 1
	done
	fail "the servers are not even $settle s after the last fault: $(cat "$work/judged")"
}

# --- undisturbed runs, then the fleet ---

serve 1 || { cat "$work/server1.new" && exit 1; }
if ! serve 2; then
	grep -iE 'state|lock|use' "$work/server2.new" >/dev/null || { cat "$work/server2.new" && exit 1; }
	unset 'server_of[2]'
	echo "skipped: this gpserverd shares its --state-dir with no other: $(tail -1 "$work/server2.new")"
	exit 77
fi
serve 3 || { cat "$work/server3.new" && exit 1; }
declare -A want link_of
for number in 0 1 2; do
	for codec in "${codecs[@]}"; do
		"$build/gpclient" train --server "127.0.0.1:${port_of[1]}" "${training[@]}" --seed $number --codec "$codec" \
			>"$work/whole.json" 2>"$work/whole.log" || { cat "$work/whole.log" && exit 1; }
		want[$number/$codec]=$(json_get "$work/whole.json" param_sha256)
	done
done
bytes=$(json_get "$work/whole.json" wire_up_bytes)
begin_balancer
for number in 1 2; do
	begin_link $number $((bytes / 2))
done
servers=("127.0.0.1:${port_of[1]}" "127.0.0.1:${port_of[2]}" "127.0.0.1:${port_of[3]}")
begin=$SECONDS
for ((number = 1; number <= clients; number++)); do
	address=127.0.0.1:${link_of[$((number % 2 + 1))]}
	first=$((number / 3 % 3))
	[ $((number % 3)) -eq 0 ] &&
		address=${servers[first]},${servers[(first + 1) % 3]},${servers[(first + 2) % 3]}
	client $number "$address" &
	workers+=($!)
done

if [ -n "$short" ]; then
	for how in kill_server drain_server; do
		for number in 1 2 3; do
			for _ in $(seq 200); do
				has_work $number || ! clients_run && break
				sleep 0.05
			done
			disturb $number $how
		done
	done
else
	while [ $((SECONDS - begin)) -lt $((minutes * 60)) ]; do
		draw 3
		number=$((drawn + 1))
		draw 8000
		sleep "$(awk -v ms=$drawn 'BEGIN { printf "%.3f", 2 + ms / 1000 }')"
		draw 2
		disturb $number "$([ "$drawn" -eq 0 ] && echo kill_server || echo drain_server)"
	done
	settle_down
fi
touch "$work/over"
for pid in "${workers[@]}"; do
	wait "$pid"
done
workers=()

# --- what it came to ---

trainings=0 cuts=0
for ((number = 1; number <= clients; number++)); do
	[ -s "$work/client$number.done" ] || fail "client $number has ended no training"
	while read -r n status sha reconnects; do
		trainings=$((trainings + 1)) cuts=$((cuts + reconnects))
		expected=${want[$(((number + n) % 3))/$(codec_of "$number" "$n")]}
		[ "$status" -eq 0 ] || fail "client $number, training $n: status $status: $(tail -2 "$work/client$number.log")"
		[ "$status" -ne 0 ] || [ "$sha" = "$expected" ] || fail "client $number, training $n: parameters $sha, not $expected"
	done <"$work/client$number.done"
done
for number in 1 2 3; do
	kill "${server_of[$number]}" && wait "${server_of[$number]}" || fail "server $number ended with status $?"
	put_log_away $number
done
server_of=()
faults='Sanitizer|runtime error|failed at .*:[0-9]+'
! grep -hE "$faults" "$work"/server?.log "$work"/client*.log | head -5 | grep . || fail "a log has a fault of the program"
longest=$(sed -n 's/.* again after \([0-9.]*\) s.*/\1/p' "$work"/client*.log | sort -g | tail -1)
echo "$trainings trainings of $clients clients, $kills kills, $drains drains, $cuts links replaced; nobody waited longer than ${longest:-0} s"
awk -v s="${longest:-0}" -v most=$((drain_for + reconnect_for)) 'BEGIN { exit !(s <= most) }' ||
	fail "a client waited for $longest s, longer than $drain_for s to drain and $reconnect_for s to reconnect"
if [ -z "$short" ]; then
	for number in 1 2 3; do
		echo "server $number opened $(grep -c 'session_opened\|is open\|runs on' "$work/server$number.log") sessions," \
			"and sent $(grep -c 'is sent to another server' "$work/server$number.log") away"
	done
fi
finish
