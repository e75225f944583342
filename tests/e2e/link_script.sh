#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests deploy/link.sh: bytes pass, the rate is a ceiling, the counters add up,
# and nothing stays behind after any kind of end. Perl (perl-base, on every
# Debian) plays both commands. Needs root; skipped (77) where namespaces are not
# possible. Rates are only checked from above, so a busy machine fails nothing.

set -u
build=$(realpath "${1:-build/dev}")
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

check() { # WHAT COMMAND...
	local what=$1
	shift
	if "$@"; then
		echo "ok: $what"
	else
		echo "FAILED: $what ($*)"
		failures=$((failures + 1))
	fi
}

namespaces_possible() {
	local name=gplink-test-$$ possible=1
	command -v ip >/dev/null && ip netns add $name 2>/dev/null || return 1
	ip netns exec $name true 2>/dev/null || possible=0
	ip netns delete $name
	[ $possible = 1 ]
}

skip_unless_possible() {
	[ "$(id -u)" -eq 0 ] && namespaces_possible && return
	echo "skipped: needs root, iproute2 and network namespaces"
	exit 77
}

# Takes what comes, then answers with the number of bytes; serves one client after the other.
cat >"$work/server.pl" <<'END'
use IO::Socket::INET;
$SIG{TERM} = 'IGNORE' if $ARGV[1];
open(my $f, '>', $ARGV[0]) or die "$ARGV[0]: $!";
print $f "$$\n";
close($f);
my $l = IO::Socket::INET->new(LocalPort => 5001, Listen => 5, ReuseAddr => 1) or die "listen: $!";
while (my $c = $l->accept()) {
	my ($n, $d) = (0);
	while (my $r = sysread($c, $d, 65536)) { $n += $r; }
	print $c "$n\n";
	close($c);
}
sleep 1 while 1;
END

# Sends ARGV[0] bytes and checks the answer.
cat >"$work/client.pl" <<'END'
use IO::Socket::INET;
my ($bytes, $left) = ($ARGV[0], $ARGV[0]);
my $c = IO::Socket::INET->new(PeerAddr => $ENV{GP_SERVER_ADDR}, PeerPort => 5001) or die "connect: $!";
while ($left > 0) { $left -= syswrite($c, 'x' x ($left < 65536 ? $left : 65536)) // die "write: $!"; }
shutdown($c, 1);
die "other bytes arrived" unless <$c> == $bytes;
END

link_up() { deploy/link.sh --grace 300ms --wait-port 5001 "$@"; }
server() { echo perl "$work/server.pl" "$work/server.pid${1:-}"; }

# Nothing is left of one run, whose process id is part of its namespaces' names.
nothing_is_left() { # PID-OF-LINK.SH [NUMBER-OF-SERVER]
	! compgen -G "/run/netns/gplink-$1-*" && ! kill -0 "$(cat "$work/server.pid${2:-}")" 2>/dev/null
}

field() { # NAME: its number in the run's closing line, else -1
	tr ' ' '\n' <"$work/err" | awk -F= -v name="$1" '$1 == name { n = $2; found = 1 } END { print found ? n : -1 }'
}

status_is() { # WANTED COMMAND...
	local wanted=$1 status
	shift
	"$@" >"$work/out" 2>"$work/err"
	status=$?
	[ $status -eq "$wanted" ] || { cat "$work/err" && echo "status $status, wanted $wanted" && false; }
}

bytes_pass_below_the_rate() {
	local bytes=4000000 payload
	# shellcheck disable=SC2046
	link_up --rate 50mbit --json "$work/link.json" -- $(server) -- perl "$work/client.pl" $bytes \
		>"$work/out" 2>"$work/err" &
	local pid=$!
	wait $pid
	check "a client's success is the run's" [ $? -eq 0 ]
	cat "$work/err"
	check "nothing is left after a run" nothing_is_left $pid
	check "the rate is a ceiling (5 % for the bucket)" [ $((bytes * 8)) -le $(($(field client_us) * 50 * 105 / 100)) ]
	check "the server received what the client sent" [ "$(field server_rx)" = "$(field client_tx)" ]
	check "the client received what the server sent" [ "$(field client_rx)" = "$(field server_tx)" ]
	payload=$(($(field client_tx) - $(field header_bytes) * $(field client_tx_packets)))
	check "counters less headers hold the payload" [ $payload -ge $bytes ]
	check "counters less headers hold little else" [ $payload -le $((bytes * 101 / 100)) ]
	check "the JSON holds the same" grep -q "\"client_tx\": $(field client_tx)," "$work/link.json"
}

a_failing_client_is_cleaned_up() {
	# shellcheck disable=SC2046
	link_up -- $(server) -- sh -c 'exit 7' 2>"$work/err" &
	local pid=$!
	wait $pid
	check "a client's status is the run's" [ $? -eq 7 ]
	check "nothing is left after a failing client" nothing_is_left $pid
}

# $1 goes to link.sh while its client sleeps and its server ignores SIGTERM.
a_signal_is_cleaned_up() { # SIGNAL STATUS
	rm -f "$work/started"
	# shellcheck disable=SC2046
	env --default-signal="$1" deploy/link.sh --grace 300ms --wait-port 5001 --rate 10mbit -- $(server) stubborn -- \
		sh -c "touch '$work/started'; sleep 100" 2>"$work/err" &
	local pid=$!
	while [ ! -e "$work/started" ] && kill -0 $pid; do sleep 0.05; done
	kill -s "$1" $pid
	wait $pid
	check "the status tells of SIG$1" [ $? -eq "$2" ]
	check "nothing is left after SIG$1" nothing_is_left $pid
}

two_runs_do_not_meet() {
	local pids=() i
	for i in 1 2; do
		# shellcheck disable=SC2046
		link_up --rate 50mbit -- $(server $i) -- perl "$work/client.pl" 500000 \
			>"$work/out$i" 2>"$work/err$i" &
		pids+=($!)
	done
	for i in 1 2; do
		wait "${pids[$((i - 1))]}"
		check "run $i of two at a time succeeds" [ $? -eq 0 ]
		check "nothing is left of run $i" nothing_is_left "${pids[$((i - 1))]}" $i
	done
}

delay_is_done_or_refused() {
	deploy/link.sh --rate 10mbit --delay 20ms -- true -- true 2>"$work/err"
	case $? in
	0) check "netem gives a delay" grep -q "delay_us=20000 .*shaper=netem" "$work/err" ;;
	3) check "a kernel without netem is named" grep -q "no netem" "$work/err" ;;
	*) check "delay is done or refused" false ;;
	esac
}

# Without netem the delay is made by gpclient link; either way it is there, and the rates are the preset's.
presets_shape_and_delay() {
	local build=$1
	[ -x "$build/gpclient" ] || return 0
	# shellcheck disable=SC2046
	link_up --preset dsl --down 40mbit --gpclient "$build/gpclient" -- $(server) -- \
		sh -c "perl '$work/client.pl' 200000 && perl '$work/client.pl' 1" >"$work/out" 2>"$work/err" &
	local pid=$!
	wait $pid
	check "a client behind a preset" [ $? -eq 0 ]
	cat "$work/err"
	check "nothing is left of it" nothing_is_left $pid
	check "the preset's rate up" [ "$(field up_bps)" = 10000000 ]
	check "another rate down" [ "$(field down_bps)" = 40000000 ]
	check "the preset's delay" [ "$(field delay_us)" = 10000 ]
	check "four ways there and back take it" [ "$(field client_us)" -ge 80000 ]
	check "what made it is named" grep -qE 'shaper=(netem|tbf\+relay)$' "$work/err"
}

bad_usage_is_named() {
	check "unknown preset: usage" status_is 2 deploy/link.sh --preset lan -- true -- true
	check "presets are listed" grep -q 'none of lan-1g wifi 4g dsl satellite' "$work/err"
	check "no commands: usage" status_is 2 deploy/link.sh --rate 10mbit
	check "one command: usage" status_is 2 deploy/link.sh -- true
	check "unknown option: usage" status_is 2 deploy/link.sh --speed 10mbit -- true -- true
	check "bad rate: usage" status_is 2 deploy/link.sh --rate 10mph -- true -- true
	check "rate of nothing: usage" status_is 2 deploy/link.sh --rate 0mbit -- true -- true
	check "bad queue: usage" status_is 2 deploy/link.sh --rate 10mbit --queue lots -- true -- true
	check "one line says it" [ "$(wc -l <"$work/err")" -eq 1 ]
	check "a server that ends early" status_is 4 link_up -- false -- true
	check "a server that never listens" status_is 4 link_up --wait 200ms -- sleep 100 -- true
	check "--help" status_is 0 deploy/link.sh --help
}

skip_unless_possible
bytes_pass_below_the_rate
a_failing_client_is_cleaned_up
a_signal_is_cleaned_up INT 130
a_signal_is_cleaned_up TERM 143
two_runs_do_not_meet
delay_is_done_or_refused
presets_shape_and_delay "$build"
bad_usage_is_named
echo "$failures failed"
[ $failures -eq 0 ]
