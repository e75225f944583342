#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# link_rate.sh: how exact is the rate of deploy/link.sh? One TCP connection
# moves bytes up, down, and both ways at once, each twice with different
# amounts; the rate is the difference of the bytes over that of the times, so
# that starting up and queues cancel out. Bytes are the interface's, headers
# included. Needs root, perl and a quiet machine. Figures: RESULTS.md

set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
readonly rate=${1:-100mbit} few=${2:-20000000} many=${3:-60000000}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# move.pl server|client UP DOWN: one process per direction and end.
cat >"$work/move.pl" <<'END'
use IO::Socket::INET;
my ($end, $up, $down) = @ARGV;
my ($out, $s) = $end eq 'client' ? $up : $down;
if ($end eq 'client') {
	$s = IO::Socket::INET->new(PeerAddr => $ENV{GP_SERVER_ADDR}, PeerPort => 5001) or die "connect: $!";
} else {
	my $l = IO::Socket::INET->new(LocalPort => 5001, Listen => 1, ReuseAddr => 1) or die "listen: $!";
	$s = $l->accept();
}
my $child = fork() // die "fork: $!";
if ($child == 0) {
	while ($out > 0) { $out -= syswrite($s, 'x' x ($out < 65536 ? $out : 65536)) // die "write: $!"; }
	shutdown($s, 1);
	exit 0;
}
while (sysread($s, my $d, 65536)) { }
waitpid($child, 0);
END

seconds_and_bytes() { # UP DOWN: "SECONDS UP-BYTES DOWN-BYTES" of one run
	deploy/link.sh --rate "$rate" --wait-port 5001 -- perl "$work/move.pl" server "$1" "$2" -- \
		perl "$work/move.pl" client "$1" "$2" 2>&1 >/dev/null | tail -1 | tr ' ' '\n' | awk -F= '{ v[$1] = $2 }
		END { if (!v["client_us"]) exit 1; print v["client_us"] / 1e6, v["client_tx"], v["client_rx"], v["up_bps"] }'
}

measure() { # WHAT UP? DOWN?
	{
		seconds_and_bytes $(($2 * few)) $(($3 * few)) &&
			seconds_and_bytes $(($2 * many)) $(($3 * many))
	} | awk -v what="$1" -v up="$2" -v down="$3" '
		{ s[NR] = $1; u[NR] = $2; d[NR] = $3; bps = $4 }
		END {
			if (NR != 2) exit 1
			t = s[2] - s[1]
			printf "%-14s", what
			if (up) printf "  up %6.2f %%", 800 * (u[2] - u[1]) / t / bps
			if (down) printf "  down %6.2f %%", 800 * (d[2] - d[1]) / t / bps
			printf "  of %g Mbit/s\n", bps / 1e6
		}'
}

measure "up only" 1 0 && measure "down only" 0 1 && measure "both at once" 1 1
