#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# link.sh: two machines on one host. Two network namespaces joined by a veth
# pair, shaped in both directions; one command at each end; everything removed
# afterwards. It simulates a link, not a slower processor: both commands share
# this host's cores. Test: tests/e2e/link_script.sh

set -u -o pipefail

readonly server_addr=10.77.0.1 client_addr=10.77.0.2 dev=gp0
readonly ether_bytes=14 header_bytes=66 # Ethernet 14 + IPv4 20 + TCP 20 + timestamps 12

usage() {
	cat <<-END
	usage: deploy/link.sh [OPTION]... -- SERVER-COMMAND... -- CLIENT-COMMAND...
	       deploy/link.sh --clean

	Runs SERVER-COMMAND at $server_addr and CLIENT-COMMAND at $client_addr, in two network
	namespaces joined by a shaped link (needs root). When the client ends, the server
	gets SIGTERM, later SIGKILL, and namespaces, link and processes are removed: on
	errors and interrupts too. Several runs at a time do not see each other.

	  --preset NAME     rates and delay of a kind of link; options after it override them:
	$(preset_lines)
	  --rate RATE       both directions: 100mbit, 2.5gbit, 500kbit (without it: unshaped)
	  --up RATE         client to server only; overrides --rate
	  --down RATE       server to client only; overrides --rate
	  --delay TIME      one-way delay, each direction: 20ms, 1.5s (netem, or with --wait-port gpclient link)
	  --loss PERCENT    packets lost, each direction: 0.1% (needs netem)
	  --mtu BYTES       of a packet (default 1500); larger ones where packets, not bytes, are the limit
	  --queue SIZE      queue before each direction: 50ms (default), or bytes: 256k, 1m
	  --shaper NAME     auto (default: netem where the kernel has it, else tbf), netem, tbf
	  --gpclient FILE   the program that delays where the kernel has no netem (default build/release/gpclient)
	  --wait-port PORT  start the client when the server listens on this TCP port
	  --wait TIME       at most so long (default 60s)
	  --grace TIME      between SIGTERM and SIGKILL (default 10s)
	  --json FILE       the closing counters as JSON, too
	  --clean           remove namespaces that killed runs left behind, and exit
	  -h, --help        this text

	Both commands see \$GP_SERVER_ADDR and \$GP_CLIENT_ADDR. Where the kernel has no netem, a delay
	is made by gpclient link, a relay at the client's end: the client has to connect to \$GP_SERVER_ADDR,
	which is 127.0.0.1 there, and each kernel counts what it sent again on its own side of the relay
	alone. The last line on stderr holds the link's counters: bytes and packets at both ends, Ethernet
	headers included.
	Segmentation offload is off, so packets are wire packets of at most the MTU and $ether_bytes bytes, and
	bytes - $header_bytes * packets = TCP payload, retransmissions included (+ 8 per SYN, + 12 or
	more per packet with SACK blocks). No ARP or IPv6 packets cross the link.

	Exit status: the client's; 2 usage, 3 not possible on this host, 4 server not ready.

	example: deploy/link.sh --rate 100mbit --wait-port 4040 -- \\
	           gpserverd --listen $server_addr:4040 --insecure -- \\
	           gpclient train --server $server_addr:4040 --model cnn --data fashion-mnist
	END
}

# NAME UP DOWN DELAY LOSS-in-percent WHAT: what such links do on an ordinary day; none of them is a standard's.
presets() {
	cat <<-END
	lan-1g 1gbit 1gbit 100us 0 a cable in one house
	wifi 100mbit 150mbit 2ms 0 a wireless network, some rooms away
	4g 15mbit 40mbit 25ms 0 a mobile network
	dsl 10mbit 50mbit 10ms 0 a telephone line
	satellite 20mbit 100mbit 300ms 0 a geostationary satellite
	END
}

preset_lines() {
	presets | while read -r name up_rate down_rate one_way _ what; do
		printf '                      %-10s %8s up, %8s down, %5s each way: %s\n' "$name" "$up_rate" "$down_rate" "$one_way" "$what"
	done
}

set_preset() { # NAME
	local name up_rate down_rate one_way part known=''
	while read -r name up_rate down_rate one_way part _; do
		known="$known $name"
		[ "$name" = "$1" ] || continue
		up=$(bits_of --preset "$up_rate") && down=$(bits_of --preset "$down_rate") &&
			delay_us=$(microseconds_of --preset "$one_way") || exit
		loss=$part
		return
	done < <(presets)
	fail 2 "--preset: '$1' is none of$known"
}

fail() { # STATUS MESSAGE
	echo "link.sh: $2" >&2
	exit "$1"
}

# ---- values ----

# Prints VALUE scaled by the unit in UNITS ("ms=0.001 s=1"), as an integer.
scaled() { # WHAT VALUE SCALE UNITS
	awk -v text="$2" -v scale="$3" -v units="$4" 'BEGIN {
		if (!match(text, /^[0-9]+(\.[0-9]+)?/)) exit 1
		unit = tolower(substr(text, RLENGTH + 1))
		n = split(units, pairs, " ")
		for (i = 1; i <= n; i++) {
			split(pairs[i], p, "=")
			if (p[1] == unit) { printf "%.0f\n", substr(text, 1, RLENGTH) * p[2] * scale; exit 0 }
		}
		exit 1
	}' || fail 2 "$1: '$2' is not a number with one of the units$(printf ' %s' "$4" | sed 's/=[^ ]*//g')"
}

# No less than 1 bit/s: 0 would pass nothing, and means "unshaped" inside this script.
bits_of() { # WHAT VALUE
	local bits
	bits=$(scaled "$1" "$2" 1 'bit=1 kbit=1e3 mbit=1e6 gbit=1e9') || return
	[ "$bits" != 0 ] || fail 2 "$1: '$2' would pass nothing"
	echo "$bits"
}
microseconds_of() { scaled "$1" "$2" 1e6 'us=1e-6 ms=1e-3 s=1'; }

# "TIME-IN-us us" or "BYTES b"
queue_value() { # VALUE
	local number
	case $1 in
	*s) number=$(microseconds_of --queue "$1") && echo "$number us" ;;
	*) number=$(scaled --queue "$1" 1 '=1 k=1024 m=1048576') && echo "$number b" ;;
	esac
}

# Bytes of the queue in front of RATE bits/s; one packet at least.
queue_bytes() { # RATE
	local number unit
	read -r number unit <<<"$(queue_value "$queue")"
	[ "$unit" = b ] || number=$((number * $1 / 8000000))
	echo $((number < mtu + ether_bytes ? mtu + ether_bytes : number))
}

parse_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--clean) clean_leftovers && exit 0 ;;
		--) shift && split_commands "$@" && return ;;
		--rate | --up | --down | --delay | --loss | --mtu | --queue | --shaper | --wait-port | --wait | --grace | \
			--json | --preset | --gpclient)
			[ $# -ge 2 ] || fail 2 "$1 needs a value; see --help"
			set_option "$1" "$2"
			shift 2
			;;
		*) fail 2 "unknown option '$1' (commands come after --); see --help" ;;
		esac
	done
	fail 2 "no commands: deploy/link.sh [OPTION]... -- SERVER-COMMAND... -- CLIENT-COMMAND..."
}

need() { # NAME VALUE REGULAR-EXPRESSION WHAT
	[[ $2 =~ $3 ]] || fail 2 "$1: '$2' is not $4"
}

set_option() { # NAME VALUE
	local value
	case $1 in
	--rate | --up | --down) value=$(bits_of "$1" "$2") || exit ;;
	--delay | --wait | --grace) value=$(microseconds_of "$1" "$2") || exit ;;
	--loss) value=${2%\%} && need --loss "$value" '^[0-9]+(\.[0-9]+)?$' "a percentage" ;;
	--shaper) value=$2 && need --shaper "$2" '^(auto|netem|tbf)$' "auto, netem or tbf" ;;
	--wait-port) value=$2 && need --wait-port "$2" '^[0-9]{1,5}$' "a port" ;;
	--mtu) value=$2 && need --mtu "$2" '^[1-9][0-9]{2,4}$' "a number of bytes from 100 to 99999" ;;
	--queue) value=$2 && { queue_value "$2" >/dev/null || exit; } ;;
	*) value=$2 ;;
	esac
	case $1 in
	--preset) set_preset "$value" && preset=$value ;;
	--gpclient) gpclient=$value ;;
	--rate)
		rate=$value
		if [ -n "$preset" ]; then up='' down='' preset=''; fi
		;;
	--up) up=$value ;;
	--down) down=$value ;;
	--delay) delay_us=$value ;;
	--loss) loss=$value ;;
	--mtu) mtu=$value ;;
	--queue) queue=$value ;;
	--shaper) shaper=$value ;;
	--wait-port) wait_port=$value ;;
	--wait) wait_us=$value ;;
	--grace) grace_us=$value ;;
	--json) json=$value ;;
	esac
}

# SERVER... -- CLIENT...: the client's words may hold further "--".
split_commands() {
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		server_command+=("$1")
		shift
	done
	shift || fail 2 "no client command: a second -- parts it from the server's"
	client_command=("$@")
	[ ${#server_command[@]} -gt 0 ] || fail 2 "the server command is empty"
	[ ${#client_command[@]} -gt 0 ] || fail 2 "the client command is empty"
}

check_host() {
	[ "$(id -u)" -eq 0 ] || fail 3 "network namespaces need root: run it with sudo"
	local tool
	for tool in ip tc ss; do
		command -v "$tool" >/dev/null || fail 3 "$tool is missing: install iproute2"
	done
}

# ---- the link ----

try() { # MESSAGE COMMAND...: one line with the tool's own words when it fails
	local message=$1 output
	shift
	output=$("$@" 2>&1) || fail 3 "$message: ${output%%$'\n'*}"
}

set_up_namespaces() {
	local name="gplink-$$-$RANDOM"
	server_ns=$name-server client_ns=$name-client
	try "cannot make a network namespace" ip netns add "$server_ns"
	try "cannot make a network namespace" ip netns add "$client_ns"
	try "cannot join the namespaces" ip link add name $dev address 02:00:00:4d:00:01 netns "$server_ns" type veth \
		peer name $dev address 02:00:00:4d:00:02 netns "$client_ns"
	set_up_end "$server_ns" $server_addr $client_addr 02:00:00:4d:00:02
	set_up_end "$client_ns" $client_addr $server_addr 02:00:00:4d:00:01
}

# Fixed neighbours and no IPv6 keep all but the commands' own packets out of the counters; without segmentation
# offload the counters see the packets of a real wire, and tbf never has to cut one.
set_up_end() { # NAMESPACE ADDRESS PEER PEER-MAC
	try "cannot switch IPv6 off" ip netns exec "$1" sh -c \
		'[ ! -e /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
	try "cannot set the link up" ip -n "$1" link set dev $dev mtu $mtu gso_max_segs 1 up
	try "cannot set loopback up" ip -n "$1" link set dev lo up
	try "cannot set the address" ip -n "$1" address add "$2/30" dev $dev
	try "cannot set the neighbour" ip -n "$1" neighbour replace "$3" lladdr "$4" dev $dev nud permanent
}

choose_shaper() {
	if [ "$shaper" != tbf ] && tc -n "$client_ns" qdisc replace dev $dev root netem limit 1000 2>/dev/null; then
		tc -n "$client_ns" qdisc delete dev $dev root
		shaper=netem
		return
	fi
	[ "$shaper" != netem ] || fail 3 "this kernel has no netem"
	[ "$shaper" = tbf ] && [ "$loss" != 0 ] && fail 2 "tbf gives a rate only: no --loss"
	[ "$loss" = 0 ] || fail 3 "this kernel has no netem: --loss cannot be simulated"
	[ "$delay_us" = 0 ] || check_relay
	shaper=tbf
}

# The relay listens on the port that the client connects to, which is the server's: it has to be known beforehand.
check_relay() {
	[ "$wait_port" != 0 ] ||
		fail 3 "this kernel has no netem: --delay is made by gpclient link, which has to know the server's port: --wait-port"
	[ -x "$gpclient" ] || fail 3 "this kernel has no netem, and there is no $gpclient to make a delay with: build it, or say --gpclient"
	relay=1
}

shape() { # NAMESPACE RATE
	if [ $shaper = netem ]; then
		shape_netem "$1" "$2"
	elif [ "$2" -gt 0 ]; then
		shape_tbf "$1" "$2"
	fi
}

# The limit is in packets: the queue, and those on their way for the time of the delay.
shape_netem() {
	local packet=$((mtu + ether_bytes)) limit=100000 args=()
	[ "$2" -eq 0 ] || limit=$((($(queue_bytes "$2") + $2 * delay_us / 8000000) / packet + 1))
	[ "$2" -eq 0 ] || args+=(rate "${2}bit")
	[ "$delay_us" = 0 ] || args+=(delay "${delay_us}us")
	[ "$loss" = 0 ] || args+=(loss "$loss%")
	try "netem refuses" tc -n "$1" qdisc replace dev $dev root netem limit $limit "${args[@]}"
}

# The bucket holds what passes in 5 ms: while both cores compute, the kernel comes late to empty the queue, and what
# does not fit into the bucket meanwhile is lost to the rate.
shape_tbf() {
	local packet=$((mtu + ether_bytes)) burst=$(($2 / 8 / 200)) limit
	limit=$(queue_bytes "$2") || exit
	[ $burst -ge $((4 * packet)) ] || burst=$((4 * packet))
	try "tbf refuses" tc -n "$1" qdisc replace dev $dev root tbf rate "${2}bit" burst $burst limit "$limit"
}

set_up_link() {
	set_up_namespaces
	choose_shaper
	shape "$client_ns" "${up:-$rate}"
	shape "$server_ns" "${down:-$rate}"
}

# ---- the two commands ----

start_server() {
	ip netns exec "$server_ns" "${server_command[@]}" </dev/null &
	server_pid=$!
	[ "$wait_port" = 0 ] || wait_until_listening
}

wait_until_listening() {
	local tries=$((wait_us / 50000 + 1))
	while [ -z "$(ip netns exec "$server_ns" ss -Hltn "sport = :$wait_port")" ]; do
		kill -0 $server_pid 2>/dev/null || { wait $server_pid; fail 4 "the server ended with status $? before it listened"; }
		[ $((tries -= 1)) -gt 0 ] || fail 4 "the server does not listen on port $wait_port"
		sleep 0.05
	done
}

# Where there is no netem, gpclient link delays: it listens at the client's end and passes all on to the server.
start_relay() {
	local port_file tries=$((wait_us / 50000 + 1))
	[ -n "$relay" ] || return 0
	relay_dir=$(mktemp -d) || fail 3 "no place for a file"
	port_file=$relay_dir/port
	ip netns exec "$client_ns" "$gpclient" link --listen 127.0.0.1:"$wait_port" --to $server_addr:"$wait_port" \
		--delay "${delay_us}us" --port-file "$port_file" --log all=warn </dev/null 2>/dev/null &
	relay_pid=$!
	until [ -s "$port_file" ]; do
		kill -0 $relay_pid 2>/dev/null || fail 3 "$gpclient link ended before it took connections"
		[ $((tries -= 1)) -gt 0 ] || fail 3 "$gpclient link takes no connections"
		sleep 0.05
	done
	export GP_SERVER_ADDR=127.0.0.1
}

stop_relay() {
	[ -n "$relay_pid" ] || return 0
	kill -TERM $relay_pid 2>/dev/null && wait $relay_pid 2>/dev/null
	relay_pid=
}

# In the background, for then a trap runs at once; a job of its own, for then it does not ignore SIGINT.
run_client() {
	local input=0 started=${EPOCHREALTIME/[.,]/}
	[ ! -t 0 ] || exec {input}</dev/null
	ip netns exec "$client_ns" "${client_command[@]}" <&"$input" &
	client_pid=$!
	wait $client_pid 2>/dev/null
	client_status=$?
	client_pid=
	run_us=$((${EPOCHREALTIME/[.,]/} - started))
}

# Ends every process of a namespace, the direct child included even while it has not entered it yet.
stop_all() { # NAMESPACE [PID]
	local pids tries=$((grace_us / 50000 + 1))
	pids="${2:-} $(ip netns pids "$1" 2>/dev/null)"
	# shellcheck disable=SC2086
	kill -TERM $pids 2>/dev/null
	while [ -n "$(ip netns pids "$1" 2>/dev/null)" ]; do
		[ $((tries -= 1)) -gt 0 ] || break
		sleep 0.05
	done
	while pids=$(ip netns pids "$1" 2>/dev/null) && [ -n "$pids" ]; do
		# shellcheck disable=SC2086
		kill -KILL $pids 2>/dev/null
		sleep 0.05
	done
}

stop_server() {
	if ! kill -0 $server_pid 2>/dev/null; then
		echo "link.sh: the server ended before the client did" >&2
	fi
	{
		stop_all "$server_ns" $server_pid
		wait $server_pid
		server_status=$?
	} 2>/dev/null # the shell's own "Terminated"
	server_pid=
}

# ---- counters ----

counter() { # NAMESPACE NAME
	ip netns exec "$1" cat "/sys/class/net/$dev/statistics/$2"
}

drops() { # NAMESPACE
	tc -n "$1" -s qdisc show dev $dev | awk '{ for (i = 1; i < NF; i++) if ($i == "(dropped") n += $(i + 1) } END { print n + 0 }'
}

counters() {
	local end namespace direction
	for end in server client; do
		namespace=${end}_ns
		for direction in rx tx; do
			echo "${end}_$direction=$(counter "${!namespace}" ${direction}_bytes)"
			echo "${end}_${direction}_packets=$(counter "${!namespace}" ${direction}_packets)"
		done
	done
	echo "up_drops=$(drops "$client_ns") down_drops=$(drops "$server_ns")"
	echo "up_bps=${up:-$rate} down_bps=${down:-$rate} delay_us=$delay_us header_bytes=$header_bytes"
	echo "client_us=$run_us client_status=$client_status server_status=$server_status"
}

report() {
	local line
	line=$(counters | tr '\n' ' ')
	echo "link: ${line}shaper=$shaper${relay:++relay}" >&2
	[ -z "$json" ] || write_json "$line"
}

write_json() { # "name=number name=number ..."
	local body
	# shellcheck disable=SC2086
	body=$(printf '%s\n' $1 | sed 's/\(.*\)=\(.*\)/"\1": \2, /' | tr -d '\n')
	printf '{%s"shaper": "%s"}\n' "$body" "$shaper${relay:++relay}" >"$json" || fail 3 "cannot write $json"
}

# ---- clean up ----

remove_namespace() { # NAME [PID]
	[ -e "/run/netns/$1" ] || return 0
	stop_all "$1" "${2:-}"
	ip -n "$1" link delete $dev 2>/dev/null
	ip netns delete "$1"
}

# shellcheck disable=SC2317 # run by the traps
clean_up() {
	trap '' INT TERM HUP
	[ -z "$relay_dir" ] || rm -rf "$relay_dir"
	[ -z "$client_ns" ] || remove_namespace "$client_ns" "$client_pid" 2>/dev/null
	[ -z "$server_ns" ] || remove_namespace "$server_ns" "$server_pid" 2>/dev/null
}

clean_leftovers() {
	local name pid
	check_host
	for name in /run/netns/gplink-*; do
		name=${name##*/} pid=${name#gplink-}
		grep -aqs 'link\.sh' "/proc/${pid%%-*}/cmdline" || remove_namespace "$name"
	done
}

main() {
	rate=0 up='' down='' delay_us=0 loss=0 mtu=1500 queue=50ms shaper=auto json='' preset=''
	gpclient=$(dirname "$0")/../build/release/gpclient relay='' relay_pid='' relay_dir=''
	[ -x "$gpclient" ] || gpclient=$(dirname "$0")/../bin/gpclient # in a bundle
	wait_port=0 wait_us=60000000 grace_us=10000000
	server_command=() client_command=() server_ns='' client_ns='' server_pid='' client_pid=''
	client_status=1 server_status=1 run_us=0
	parse_options "$@"
	check_host
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	trap 'exit 129' HUP
	export GP_SERVER_ADDR=$server_addr GP_CLIENT_ADDR=$client_addr
	set -m
	set_up_link
	start_server
	start_relay
	run_client
	stop_relay
	stop_server
	report
	exit "$client_status"
}

main "$@"
