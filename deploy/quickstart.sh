#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# quickstart.sh: from a fresh Debian to a trained model in one command. Installs
# what is missing, builds, starts gpserverd on this machine, trains MobileNetV2
# on Fashion-MNIST through it with compressed tensors, prints what came out, makes
# a page of charts of it and stops the server. A demonstration, not a benchmark: both ends share one
# machine and the link is its loopback device. See deploy/link.sh for real links.

set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
. deploy/deps.sh
. deploy/json.sh

model=mobilenetv2:width=0.5,stem=cifar data=fashion-mnist cut=1:-1 codec=sortquant:bits=6,split=2
batch=64 steps=800 epochs='' chunks=2 result='' page=build/report.html extra=()
server_pid='' client_pid='' work=''

usage() {
	cat <<-END
	usage: deploy/quickstart.sh [OPTION]... [-- GPCLIENT-TRAIN-FLAG...]

	Installs the Debian packages that are missing (as root or by sudo), builds gpclient and gpserverd in
	build/release, starts a server on this machine, trains a model through it and prints the accuracy, the time
	per batch and the bytes that crossed the link; a page has charts of it. A build/release that is configured keeps its settings.

	  --model SPEC   trains this model (default: $model)
	  --data SPEC    trains on this data (default: $data)
	  --cut H:T      puts what lies before block H and from block T on here, and the rest on the server
	                 (default: $cut, the first block and the classifier are here)
	  --codec SPEC   compresses the tensors of every direction by this codec
	                 (default: $codec)
	  --batch N      takes N samples per step (default: $batch)
	  --chunks N     sends each batch in N chunks (default: $chunks)
	  --steps N      takes N steps (default: $steps, most of a pass over the images)
	  --epochs N     takes N whole passes over the images, whatever --steps says
	  --result FILE  writes the closing JSON of "gpclient train" to FILE, too
	  --page FILE    writes the report, a page for a browser, to FILE (default: $page)
	  -h, --help     prints this text

	The flags after -- are given to "gpclient train" as they are and win over the options above, for example:
	  deploy/quickstart.sh --codec raw -- --save model.safetensors
	END
}

parse_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--) shift && extra=("$@") && return ;;
		--model | --data | --cut | --codec | --batch | --chunks | --steps | --epochs | --result | --page)
			[ $# -ge 2 ] || { echo "quickstart.sh: $1 needs a value" >&2 && exit 2; }
			printf -v "${1#--}" %s "$2"
			shift 2
			;;
		*) echo "quickstart.sh: unknown option '$1'; see --help" >&2 && exit 2 ;;
		esac
	done
}

say() {
	printf '== %3d s  %s\n' $SECONDS "$*" >&2
}

fail() {
	echo "quickstart.sh: $*" >&2
	exit 1
}

# shellcheck disable=SC2317 # run by the traps
clean_up() {
	trap '' INT TERM HUP
	stop "$client_pid"
	stop "$server_pid"
	[ -z "$work" ] || rm -rf "$work"
}

stop() { # PID: SIGTERM, and SIGKILL after 5 s
	local tries=100
	[ -n "$1" ] && kill -TERM "$1" 2>/dev/null || return 0
	while kill -0 "$1" 2>/dev/null && [ $((tries -= 1)) -gt 0 ]; do sleep 0.05; done
	kill -KILL "$1" 2>/dev/null
	wait "$1" 2>/dev/null
}

has_gpu() {
	compgen -G '/dev/nvidia[0-9]*' >/dev/null || nvidia-smi --list-gpus >/dev/null 2>&1
}

# Without tests and without what this machine cannot run.
configure() {
	local flags=(-DGP_TESTS=OFF)
	if ! has_gpu; then
		say "no NVIDIA GPU is here: building without the CUDA device (GP_CUDA=off)"
		flags+=(-DGP_CUDA=off)
	fi
	cmake --preset release "${flags[@]}" >"$work/configure.log" 2>&1 || { cat "$work/configure.log" >&2 && return 1; }
}

# A release folder that somebody has configured, with tests or a CUDA device, stays as it is.
build() {
	[ -f build/release/build.ninja ] || configure || return 1
	cmake --build --preset release -j"$(nproc)" --target gpclient gpserverd >&2
}

start_server() {
	local tries=200
	build/release/gpserverd --listen 127.0.0.1:0 --port-file "$work/port" 2>"$work/server.log" &
	server_pid=$!
	until [ -s "$work/port" ]; do
		if ! kill -0 $server_pid 2>/dev/null || [ $((tries -= 1)) -eq 0 ]; then
			cat "$work/server.log" >&2
			return 1
		fi
		sleep 0.05
	done
}

# In the background, so that an interrupt is served at once. One thread is enough for the client's few layers: more only
# wait for cores that the server keeps busy. Augmentation is off: the run is short.
train() {
	local length=(--steps "$steps")
	[ -z "$epochs" ] || length=(--epochs "$epochs")
	build/release/gpclient train --server "127.0.0.1:$(cat "$work/port")" --model "$model" --data "$data" --cut "$cut" \
		--codec "$codec" --batch "$batch" --chunks "$chunks" "${length[@]}" --no-augment --lr 0.05 \
		--weight-decay 1e-4 --schedule cosine --threads 1 --json --log-json "$work/run.jsonl" "${extra[@]}" >"$work/result.json" &
	client_pid=$!
	wait $client_pid
	local status=$?
	client_pid=
	[ $status -eq 0 ] || kill -0 $server_pid 2>/dev/null || tail -5 "$work/server.log" >&2
	return $status
}

# Sum of a figure over the four kinds of tensors.
total() { # FIGURE
	json_flat "$work/result.json" | awk -F= -v figure="$1" '
		$1 ~ "^(act|grad)_(up|down)[.]" figure "$" { sum += $2; found++ }
		END { printf "%.0f\n", sum; exit found != 4 }'
}

report() {
	local tensor payload wire accuracy time bytes
	tensor=$(total tensor_bytes_per_batch) && payload=$(total payload_bytes_per_batch) &&
		wire=$(total wire_bytes_per_batch) && accuracy=$(json_get "$work/result.json" val_acc) &&
		time=$(json_get "$work/result.json" time_per_batch_s) && bytes=$(total wire_bytes) || return 1
	awk -v tensor="$tensor" -v payload="$payload" -v wire="$wire" -v bytes="$bytes" -v codec="$codec" \
		-v accuracy="$accuracy" -v time="$time" \
		'BEGIN {
			if (accuracy != "null") printf "accuracy            %.2f %%\n", 100 * accuracy
			printf "time per batch      %.1f ms\n", 1e3 * time
			printf "tensors per batch   %.3f MB uncompressed, both directions\n", tensor / 1e6
			printf "payload per batch   %.3f MB with %s: %.2f times smaller\n", payload / 1e6, codec, tensor / payload
			printf "on the wire         %.3f MB per batch; %.1f MB in all, evaluation included\n", wire / 1e6, bytes / 1e6
		}'
}

# Not where the user has sent the log elsewhere.
make_page() {
	[ -s "$work/run.jsonl" ] || return 0
	build/release/gpclient report "$work/run.jsonl" -o "$page" >/dev/null && say "open in a browser: $page"
}

main() {
	parse_options "$@"
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	trap 'exit 129' HUP
	work=$(mktemp -d) || exit 1
	install_missing "${build_packages[@]}" "${data_packages[@]}" || exit 1
	say "building"
	build || fail "the build failed"
	say "starting gpserverd"
	start_server || fail "gpserverd did not start"
	say "training $model on $data, cut $cut, $codec"
	train || exit # gpclient said why
	stop "$server_pid"
	server_pid=
	report || fail "the closing figures are not complete"
	make_page || fail "there is no report"
	[ -z "$result" ] || cp "$work/result.json" "$result" || exit 1
	say "done"
}

main "$@"
