#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpclient model export --server: the weights of a split run, whose body is
# fetched from the server's checkpoint; whose it is, and what is refused.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

common=(--data synthetic:shape=3x16x16,classes=4,samples=64 --batch 8 --chunks 2 --threads 1 --seed 7 --no-progress --no-eval)
printf 'one 0123456789abcdef\ntwo fedcba9876543210\n' >"$work/tokens"
echo 0123456789abcdef >"$work/one"
echo fedcba9876543210 >"$work/two"
chmod 600 "$work"/one "$work"/two "$work"/tokens
start_server --threads 1 --state-dir "$work/state" --tokens "$work/tokens"
server=(--server "127.0.0.1:$server_port")

export_run() { # RUN FLAG...
	rm -f "$work/export.safetensors"
	"$build/gpclient" model export "$work/$1" --out "$work/export.safetensors" "${@:2}" 2>"$work/err"
}
refused() { # STATUS WORDS RUN FLAG...
	local status=0
	export_run "${@:3}" || status=$?
	equal "refused: $2" "$status $(wc -l <"$work/err") $(grep -cE -- "$2" "$work/err")" "$1 1 1"
	[ ! -e "$work/export.safetensors" ] || fail "$2: a file was written"
}
exported() { # WHAT RUN FLAG...: as --save of the run wrote them
	export_run "$2" "${server[@]}" --token-file "$work/one" "${@:3}" || fail "$1: $(cat "$work/err")"
	if cmp -s "$work/export.safetensors" "$work/$2.safetensors"; then echo "ok: $1"; else fail "$1: $(cat "$work/err")"; fi
}

# All that a session of the run is opened by: codecs that remember, frozen parts, the optimizer, batch norm, the cut.
runs=0
run() { # NAME FLAG...
	runs=$((runs + 1))
	train "$work/$1.json" "${server[@]}" --token-file "$work/one" "${common[@]}" --steps 4 --checkpoint "$work/$1" --checkpoint-every 2 \
		--save "$work/$1.safetensors" "${@:2}" || fail "$1: training"
	exported "$*" "$1"
}
run plain --model cnn --schedule const
run all --model mobilenetv2:width=0.1,stem=cifar,cuts=fine --cut 2:-2 --codec uniform:bits=8 --codec-act-up ef+topk:ratio=0.5 \
	--optimizer adamw --lr 0.001 --weight-decay 0.1 --clip-norm 1 --freeze 'features.0.*,features.3.*' --batch-norm renorm:r=2 --warmup 0.5
run delta --model cnn --codec-act-up delta+uniform:bits=8 --nesterov --momentum 0.5 --clip-value 0.5 --input 3x12x12
run texts --model fasttext:dim=8 --data synthetic:tokens=8,vocab=50,classes=4,samples=64

# The exported file says of which model it is, and evaluates.
"$build/gpclient" eval --local --init "$work/export.safetensors" --data synthetic:tokens=8,vocab=50,classes=4,samples=64 --no-progress \
	>/dev/null 2>"$work/err" || fail "eval: $(cat "$work/err")"

# A run that goes on afterwards, as if nobody had asked.
train "$work/more.json" "${server[@]}" --token-file "$work/one" "${common[@]}" --steps 6 --checkpoint "$work/plain" --resume --model cnn \
	--save "$work/plain.safetensors" --schedule const || fail "going on"
exported "the run goes on, and is exported again" plain

refused 2 'server and --state-dir exclude' plain "${server[@]}" --state-dir "$work/state"
refused 2 'are for a --server' plain --token-file "$work/one"
refused 2 'with --server CHECKPOINT is the run.s folder, .*plain: ' plain/step-000000000004 "${server[@]}" --token-file "$work/one"
refused 3 'is of a split run.*Give --server HOST:PORT' plain
refused 4 'token' plain "${server[@]}"
refused 3 "no checkpoint is on both sides: here .*steps 6.*; server .*: no checkpoint of this run$" plain "${server[@]}" --token-file "$work/two"
refused 4 'refused' plain --server 127.0.0.1:1

# The folder of a run that is under way is its own: the session of the training is not taken from it.
"$build/gpclient" train "${server[@]}" --token-file "$work/one" "${common[@]}" --model cnn --steps 100000000 --checkpoint "$work/busy" \
	--checkpoint-every 2 2>"$work/busy.log" &
client=$!
has_one() { compgen -G "$work/busy/step-*" >/dev/null; }
await has_one || fail "no checkpoint: $(cat "$work/busy.log")"
refused 3 'another process' busy "${server[@]}" --token-file "$work/one"
kill -INT $client
status=0
wait $client || status=$?
equal "the training was left alone" "$status $(grep -c 'taken this run over' "$work/busy.log")" "130 0"

train "$work/whole.json" --local "${common[@]}" --model cnn --steps 2 --checkpoint "$work/whole" || fail "a local run"
refused 3 'is of a local run, which no server has a part of' whole "${server[@]}" --token-file "$work/one"
stop_server
finish
