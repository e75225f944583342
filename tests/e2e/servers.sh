#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Several servers: --server A,B goes to the next where one is dead, full or draining, has nothing of the run, or does not take
# the client; a name with several addresses is a list, too; servers that a server names (gpserverd --advertise) are tried
# where --follow allows it. A training ends in the parameters of an undisturbed one, wherever it was.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

common=(--model cnn --data synthetic:shape=3x32x32,classes=10,samples=256 --batch 32 --chunks 4 --seed 3 --threads 1
	--no-eval --schedule const --no-progress)
pids=()

stop_all() {
	[ ${#pids[@]} -eq 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
	cleanup
}
trap stop_all EXIT

# Starts a server; sets NAME_pid and NAME_at.
serve() { # NAME FLAG...
	local name=$1
	shift
	rm -f "$work/$name.port"
	"$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/$name.port" --client-lines 0 --threads 1 --idle-timeout 10m \
		"${patient[@]}" "$@" 2>"$work/$name.log" &
	pids+=($!)
	printf -v "${name}_pid" %s $!
	comes_up $! "$work/$name.port" "server $name" "$work/$name.log"
	printf -v "${name}_at" 127.0.0.1:%s "$(cat "$work/$name.port")"
}

end_server() { # NAME
	local pid="$1_pid" status=0
	kill "${!pid}" && wait "${!pid}" || status=$?
	equal "server $1 ends in good order" $status 0
}

said() { # FILE PATTERN
	grep -sE -e "$2" "$1" >/dev/null
}

ends_with() { # WHAT STATUS PATTERN FLAG...
	local what=$1 want=$2 pattern=$3 status=0
	shift 3
	"$build/gpclient" train "${common[@]}" "$@" >"$work/out" 2>"$work/err" || status=$?
	equal "$what: status" $status "$want"
	said "$work/err" "$pattern" || fail "$what: it says: $(cat "$work/err")"
}

# A client that has the one session of a server, and keeps it: it is stopped as soon as it has taken a step.
occupy() { # SERVER-NAME ADDRESS
	"$build/gpclient" train "${common[@]}" --steps 100000 --server "$2" --idle-timeout 10m --log-json "$work/occupied.jsonl" \
		>/dev/null 2>"$work/occupied.log" &
	held=$!
	pids+=($held)
	await said "$work/occupied.jsonl" '"event": ?"step"' || fail "nobody occupies server $1: $(cat "$work/occupied.log")"
	kill -STOP $held
}

let_go() {
	kill -KILL $held
	wait $held 2>/dev/null
	rm -f "$work/occupied.jsonl"
}

# A port that nobody listens on: of a server that has just ended.
serve gone
dead=$gone_at
end_server gone

serve a
train "$work/whole.json" --server "$a_at" "${common[@]}" --steps 12 --save "$work/weights" || fail "undisturbed"
want=$(json_get "$work/whole.json" param_sha256)
equal "the server that a run was at" "$(json_get "$work/whole.json" server)" "$a_at"

# ---- lists that cannot be ----

ends_with "a list with a hole" 2 'has a comma with no HOST:PORT' --server "$a_at,,$dead" --steps 2
ends_with "a server twice" 2 'is in the list twice' --server "$a_at,$a_at" --steps 2
for words in 'link' 'bench --model cnn --data synthetic:shape=3x32x32,classes=10 --codecs raw --steps 2 --server'; do
	status=0
	# shellcheck disable=SC2086 # words
	"$build/gpclient" $words "$a_at,$dead" >"$work/out" 2>"$work/err" || status=$?
	equal "gpclient ${words%% *} takes one server: status" $status 2
	said "$work/err" 'not a list' || fail "gpclient ${words%% *}: $(cat "$work/err")"
done

# ---- a dead first one ----

train "$work/dead.json" --server "$dead,$a_at" "${common[@]}" --steps 12 || fail "a dead first server"
equal "a dead first server: parameters" "$(json_get "$work/dead.json" param_sha256)" "$want"
equal "a dead first server: at" "$(json_get "$work/dead.json" server)" "$a_at"
equal "a dead first server: no link was replaced" "$(json_get "$work/dead.json" reconnects)" 0
said "$work/dead.json.log" "trying server $a_at" || fail "it does not say so: $(cat "$work/dead.json.log")"
ends_with "only dead ones" 4 'none of the servers .* takes the session; the last: cannot connect' \
	--server "$dead,127.0.0.1:1" --reconnect-for 0 --steps 2
"$build/gpclient" eval --server "$dead,$a_at" --data synthetic:shape=3x32x32,classes=10,samples=256 --batch 32 --chunks 4 \
	--threads 1 --init "$work/weights" --json >"$work/eval.json" 2>"$work/err" || fail "eval: $(cat "$work/err")"
equal "eval behind a dead first server: at" "$(json_get "$work/eval.json" server)" "$a_at"

# ---- a full first one ----

serve full --max-sessions 1
occupy full "$full_at"
train "$work/full.json" --server "$full_at,$a_at" "${common[@]}" --steps 12 --reconnect-for 0 || fail "a full first server"
equal "a full first server: parameters" "$(json_get "$work/full.json" param_sha256)" "$want"
equal "a full first server: at" "$(json_get "$work/full.json" server)" "$a_at"

# Nobody turns in a loop: a full server is asked as often as it has said, a dead one as the pauses have it.
asked() {
	grep -c 'ended: the server has no room' "$work/full.log"
}
before=$(asked)
ends_with "all full or dead" 4 'gave up reconnecting to servers .* after 3 s' --server "$full_at,$dead" --reconnect-for 3s --steps 2
after=$(asked)
[ $((after - before)) -le 8 ] && echo "ok: a full server was asked $((after - before)) times at most in 3 s" ||
	fail "a full server was asked $((after - before)) times in 3 s"
let_go
end_server full

# ---- one that stops, and one that comes in its place, on the state of the other ----

serve first --state-dir "$work/state" --drain-for 1h
"$build/gpclient" train --json "${common[@]}" --server "$first_at,$dead" --checkpoint "$work/run" --checkpoint-every 3 --steps 6 \
	>"$work/drain.json" 2>"$work/drain.log" || fail "six steps: $(cat "$work/drain.log")"
"$build/gpclient" train --json "${common[@]}" --server "$dead,$first_at" --checkpoint "$work/run" --checkpoint-every 3 \
	--steps 12 --resume --reconnect-for 10m >"$work/drain.json" 2>"$work/drain.log" &
client=$!
pids+=($client)
await said "$work/drain.log" 'resuming at step 6' || fail "it does not resume: $(cat "$work/drain.log")"
end_server first
"$build/gpserverd" --listen "$dead" --state-dir "$work/state" --threads 1 "${patient[@]}" 2>"$work/second.log" &
second_pid=$!
pids+=($second_pid)
await said "$work/second.log" 'listening on' || fail "the second server does not start: $(cat "$work/second.log")"
status=0
wait $client || status=$?
equal "a server that stops, its state elsewhere: status" $status 0
equal "a server that stops, its state elsewhere: parameters" "$(json_get "$work/drain.json" param_sha256)" "$want"
end_server second

# ---- servers without the run ----

serve with --state-dir "$work/with"
serve without --state-dir "$work/without"
"$build/gpclient" train --json "${common[@]}" --server "$with_at" --checkpoint "$work/lone" --checkpoint-every 3 --steps 6 \
	>"$work/lone.json" 2>"$work/lone.log" || fail "six steps more: $(cat "$work/lone.log")"
ends_with "nowhere" 3 'no checkpoint is on both sides' --server "$without_at,$a_at" --checkpoint "$work/lone" \
	--checkpoint-every 3 --resume --steps 12
ends_with "not where it can be reached" 4 "gave up reconnecting to servers .* (has no checkpoint of this run|cannot connect)" \
	--server "$without_at,$dead" --checkpoint "$work/lone" --checkpoint-every 3 --resume --reconnect-for 1s --steps 12
"$build/gpclient" train --json "${common[@]}" --server "$without_at,$a_at,$with_at" --checkpoint "$work/lone" \
	--checkpoint-every 3 --steps 12 --resume >"$work/lone.json" 2>"$work/lone.log" || fail "lone: $(cat "$work/lone.log")"
equal "a run that one of three has: parameters" "$(json_get "$work/lone.json" param_sha256)" "$want"
equal "a run that one of three has: at" "$(json_get "$work/lone.json" server)" "$with_at"
said "$work/lone.log" "server $without_at has no checkpoint of this run; trying server $a_at" ||
	fail "it does not say why: $(cat "$work/lone.log")"
end_server with
end_server without

# ---- servers that servers name ----

serve teller --max-sessions 1 --advertise "$a_at,127.0.0.1:1"
occupy teller "$teller_at"
ends_with "nobody said --follow" 4 'no room for another session' --server "$teller_at" --reconnect-for 0 --steps 2
train "$work/told.json" --server "$teller_at" "${common[@]}" --steps 12 --follow any || fail "a server that is named"
equal "a server that is named: parameters" "$(json_get "$work/told.json" param_sha256)" "$want"
equal "a server that is named: at" "$(json_get "$work/told.json" server)" "$a_at"
let_go
end_server teller
status=0
"$build/gpserverd" --listen 127.0.0.1:0 --advertise 'gpu 1:4400' 2>"$work/err" || status=$?
equal "--advertise of what no client could use: status" $status 2
said "$work/err" "clients cannot connect to 'gpu 1:4400'" || fail "--advertise: $(cat "$work/err")"

# ---- certificates: one CA vouches for both ----

if command -v openssl >/dev/null; then
	umask 077
	"$source_dir/deploy/gen-test-certs.sh" "$work/certs" 127.0.0.1 >/dev/null || fail "no certificates"
	"$source_dir/deploy/gen-test-certs.sh" "$work/other" 127.0.0.1 >/dev/null || fail "no certificates"
	tls=(--tls-cert "$work/certs/server.pem" --tls-key "$work/certs/server.key" --tokens "$work/certs/tokens")
	mine=(--tls-ca "$work/certs/ca.pem" --token-file "$work/certs/token")
	serve strange --tls-cert "$work/other/server.pem" --tls-key "$work/other/server.key"
	serve trusted "${tls[@]}"
	serve busy "${tls[@]}" --max-sessions 1 --advertise "$strange_at,$trusted_at"
	"$build/gpclient" train "${common[@]}" --steps 100000 --server "$busy_at" "${mine[@]}" --idle-timeout 10m \
		--log-json "$work/occupied.jsonl" >/dev/null 2>"$work/occupied.log" &
	held=$!
	pids+=($held)
	await said "$work/occupied.jsonl" '"event": ?"step"' || fail "nobody occupies it: $(cat "$work/occupied.log")"
	kill -STOP $held
	train "$work/tls.json" --server "$busy_at" "${mine[@]}" "${common[@]}" --steps 12 || fail "a server of the same CA"
	equal "a server of the same CA is followed: parameters" "$(json_get "$work/tls.json" param_sha256)" "$want"
	equal "a server of the same CA is followed: at" "$(json_get "$work/tls.json" server)" "$trusted_at"
	said "$work/strange.log" 'gpclient' && fail "a server of another CA has heard who comes"
	ends_with "--follow none" 4 'no room for another session' --server "$busy_at" "${mine[@]}" --follow none --reconnect-for 0 \
		--steps 2
	train "$work/tls.json" --server "$strange_at,$trusted_at" "${mine[@]}" "${common[@]}" --steps 12 ||
		fail "a wrong certificate first"
	equal "a wrong certificate first: at" "$(json_get "$work/tls.json" server)" "$trusted_at"
	ends_with "wrong certificates only" 4 'certificate' --server "$strange_at" "${mine[@]}" --reconnect-for 0 --steps 2
	let_go
fi

# ---- one name with two addresses, of which one is full; and one whose SRV records say where its servers are ----

# Trains with a file of hosts, and a name server, of the test's own: in a namespace of mounts, which only root can make.
train_with_names() { # JSON-FILE FLAG...
	local out=$1
	shift
	# shellcheck disable=SC2016 # words of the inner shell
	unshare -m bash -c 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf && shift 2 && exec "$@"' - \
		"$work/hosts" "$work/resolv.conf" "$build/gpclient" train --json "${common[@]}" "$@" >"$out" 2>"$out.log"
}

if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null && [ -e /etc/resolv.conf ]; then
	port=${a_at##*:}
	"$build/gpserverd" --listen "127.0.0.2:$port" --max-sessions 1 --threads 1 --idle-timeout 10m --client-lines 0 \
		"${patient[@]}" 2>"$work/two.log" &
	two_pid=$!
	pids+=($two_pid)
	await said "$work/two.log" 'listening on' || fail "no second address: $(cat "$work/two.log")"
	occupy two "127.0.0.2:$port"
	printf '127.0.0.2 pods.example two.example\n127.0.0.1 pods.example one.example\n' >"$work/hosts"
	echo 'nameserver 127.0.0.9' >"$work/resolv.conf"
	status=0
	train_with_names "$work/pods.json" --steps 12 --server "pods.example:$port" --reconnect-for 0 || status=$?
	equal "a name with two addresses: status" $status 0
	[ $status -eq 0 ] || cat "$work/pods.json.log"
	equal "a name with two addresses: parameters" "$(json_get "$work/pods.json" param_sha256)" "$want"

	if command -v python3 >/dev/null; then
		# The first by priority is full, the second does not listen, the third serves.
		python3 "$source_dir/tests/tools/name_server.py" 127.0.0.9 "$work/names" fleet.example "one.example:$port:3:0" \
			"one.example:1:2:0" "two.example:$port:1:0" 2>"$work/names.log" &
		pids+=($!)
		await test -e "$work/names" || fail "no name server: $(cat "$work/names.log")"
		status=0
		train_with_names "$work/srv.json" --steps 12 --server srv:fleet.example --reconnect-for 0 || status=$?
		equal "SRV records: status" $status 0
		[ $status -eq 0 ] || cat "$work/srv.json.log"
		equal "SRV records: parameters" "$(json_get "$work/srv.json" param_sha256)" "$want"
		equal "SRV records: at" "$(json_get "$work/srv.json" server)" "one.example:$port"
		status=0
		train_with_names "$work/srv.json" --steps 2 --server srv:other.example --reconnect-for 0 || status=$?
		equal "no SRV record: status" $status 4
		said "$work/srv.json.log" 'srv:other.example: no SRV record' || fail "no SRV record: $(cat "$work/srv.json.log")"
	fi
	let_go
	end_server two
else
	echo "left out: names of a test's own need root"
fi
end_server a
finish
