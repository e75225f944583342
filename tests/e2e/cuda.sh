#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The body on a GPU: a card where the build has the real device and one answers,
# else the emulated one (kernels/cuda/emulator/emulate.h), else this is skipped. Whole
# split trainings with codecs of every kind; the losses are the CPU server's, but
# for the order of sums; broken links, killed servers and other clients change
# no bit of the parameters; a device that fails ends its session alone.
#
#   cuda.sh BUILD-FOLDER [DEVICE]

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

find_device() {
	if grep -q '^GP_CUDA:[A-Z]*=emulated' "$build/CMakeCache.txt"; then
		echo cuda-emulated
	elif "$build/gpserverd" --listen 127.0.0.1:0 --device cuda --port-file "$work/probe" >/dev/null 2>&1 & then
		local probe=$!
		for _ in $(seq 600); do
			[ -s "$work/probe" ] && echo cuda && break
			kill -0 $probe 2>/dev/null || break
			sleep 0.05
		done
		kill $probe 2>/dev/null
		wait $probe 2>/dev/null
	fi
}

device=${2:-$(find_device)}
[ -n "$device" ] || exit 77

evaluated=(--model cnn --data synthetic:shape=3x16x16,classes=10,samples=64 --batch 16 --chunks 4 --lr 0.05 --seed 3
	--threads 1 --steps 4)
cnn=("${evaluated[@]}" --no-eval)
# A single one of the 2x2 values at the end that lies at a corner of ReLU6 and falls to its other side is 0.7 % of the
# gradient: with this seed none does.
mobile=(--model mobilenetv2:width=0.35,stem=cifar --data synthetic:shape=3x16x16,classes=10,samples=32 --batch 8
	--chunks 2 --lr 0.002 --seed 1 --threads 1 --steps 2 --cut 1:-1 --no-eval)

texts=(--model fasttext:dim=24,hidden=20 --data synthetic:tokens=16,vocab=100,classes=4,samples=256 --batch 32 --chunks 4
	--lr 0.5 --seed 7 --threads 1 --steps 4 --no-eval)
residual=(--model resnet20:width=0.25,cuts=fine --data synthetic:shape=3x16x16,classes=4,samples=64 --batch 8 --chunks 2
	--lr 0.05 --seed 7 --threads 1 --steps 2 --no-eval)

sha() {
	json_get "$1" param_sha256
}

losses() { # LOG
	grep -o '"event":"step".*"loss":[^,]*' "$1" | grep -o '[^:]*$'
}

# Every step's loss as far as 1e-4 from the other's.
near() { # WHAT LOG LOG
	local most
	most=$(paste <(losses "$2") <(losses "$3") | awk '
		{ d = $1 - $2; d = d < 0 ? -d : d; if (d > most) most = d; if (NF != 2 || d != d) bad = 1 }
		END { print bad || NR == 0 ? "none" : most + 0 }')
	if awk -v d="$most" 'BEGIN { exit !(d != "none" && d <= 1e-4) }'; then
		echo "ok: $1: losses differ by $most at most"
	else
		fail "$1: losses differ by $most"
	fi
}

split() { # NAME FLAG...
	rm -f "$work/$1.jsonl"
	train "$work/$1.json" --server "127.0.0.1:$server_port" --log-json "$work/$1.jsonl" "${@:2}" || fail "$1"
}

# --- the same training as on a CPU -------------------------------------------------------------------------------

# Under a sanitizer each path is gone through once, and no losses are compared.
plain() { # COMMAND...
	[ -n "$sanitized" ] || "$@"
}

plain start_server --threads 1 --device cpu
plain split cpu-cnn "${cnn[@]}"
plain split cpu-cnn-clip "${cnn[@]}" --optimizer adamw --lr 0.0002 --clip-norm 1
plain split cpu-mobile "${mobile[@]}"
plain split cpu-mobile-uniform "${mobile[@]}" --codec uniform:bits=8
plain stop_server

start_server --threads 1 --device "$device" --state-dir "$work/state"
await grep -q 'listening on' "$work/server.log"
equal "a GPU has no threads to tell of" "$(grep -c "(device $device (.*))" "$work/server.log") $(grep -c threads "$work/server.log")" "1 0"
split cnn "${cnn[@]}"
plain near "cnn" "$work/cnn.jsonl" "$work/cpu-cnn.jsonl"
split cnn-clip "${cnn[@]}" --optimizer adamw --lr 0.0002 --clip-norm 1
plain near "cnn, adamw, clipped" "$work/cnn-clip.jsonl" "$work/cpu-cnn-clip.jsonl"
if [ -z "$sanitized" ]; then
	split mobile "${mobile[@]}"
	near "mobilenetv2" "$work/mobile.jsonl" "$work/cpu-mobile.jsonl"
	split mobile-uniform "${mobile[@]}" --codec uniform:bits=8
	equal "payload bytes are those of the CPU's" "$(json_get "$work/mobile-uniform.json" act_down.payload_bytes)" \
		"$(json_get "$work/cpu-mobile-uniform.json" act_down.payload_bytes)"
fi
case $(json_get "$work/cnn.json" server_device) in
"$device"*\(*\)) echo "ok: the report names the device ($(json_get "$work/cnn.json" server_device))" ;;
*) fail "the report names '$(json_get "$work/cnn.json" server_device)' as the device" ;;
esac
[ "$(json_get "$work/cnn.json" server_device_memory_bytes)" -gt 0 ] || fail "the session took no memory of the device"

# With the client's parts there, too, the split run equals a local one bit for bit, as on CPUs.
same() { # NAME FLAG...
	split own "${@:2}" --device "$device"
	[ -z "$sanitized" ] || return 0
	train "$work/local.json" --local "${@:2}" --device "$device" || fail "$1: local run"
	equal "$1: split and local" "$(sha "$work/own.json")" "$(sha "$work/local.json")"
}
plain same cnn "${cnn[@]}"
same "cnn in bf16" "${cnn[@]}" --precision bf16
plain same "tokens, and a mask that crosses" "${texts[@]}" --cut 1:-1
same "tokens, embedding frozen" "${texts[@]}" --cut 1:-1 --freeze head
[ "$(json_get "$work/own.json" act_up.unpadded_bytes)" -lt "$(json_get "$work/own.json" act_up.tensor_bytes)" ] ||
	fail "padding is not left out on a GPU"
same "cuts inside residual blocks" "${residual[@]}" --cut 3:8
plain same mobilenetv2 "${mobile[@]}"
plain same "mobilenetv2, cut 3:-3, clipped" "${mobile[@]}" --cut 3:-3 --clip-norm 1

# --- what keeps less in the GPU's memory ---------------------------------------------------------------------------

# Everything of a training through a codec: split as local, at the same cuts.
everything() { # CODEC
	echo "maps=$1,state=$1,weights=$1,weight-grads=$1,grad-maps=$1"
}
same "mobilenetv2, everything in 8 bits" "${mobile[@]}" --cut 3:-3 --optimizer adam --compress "$(everything uniform:bits=8)"
plain same "residual blocks, everything with smaq, clipped, no master weights" "${residual[@]}" --cut 3:8 --clip-norm 1 \
	--compress "$(everything smaq),weights-master=off"
plain same "residual blocks in bf16, maps with fp8" "${residual[@]}" --cut 3:8 --precision bf16 --compress maps=fp8:format=e4m3
same "residual blocks, computed twice" "${residual[@]}" --cut 3:8
once=$(sha "$work/own.json")
split own "${residual[@]}" --cut 3:8 --device "$device" --recompute
equal "computed twice, the same" "$(sha "$work/own.json")" "$once"

# What checkpoints have of encoded state goes on exactly; over a link that breaks steps are taken back.
goes_on() {
	local run=("${mobile[@]}" --cut 3:-3 --optimizer adam --schedule const --steps 4 --compress "$(everything smaq)")
	split whole "${run[@]}"
	split part "${run[@]}" --steps 2 --checkpoint "$work/coded"
	split rest "${run[@]}" --checkpoint "$work/coded" --resume
	equal "encoded state, resumed" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"
	start_link --drop-every $(($(json_get "$work/whole.json" wire_up_bytes) / 4)) --seed 6
	train "$work/broken.json" --server "127.0.0.1:$link_port" "${run[@]}" --reconnect-for 300s || fail "over a link that breaks"
	stop_link
	equal "encoded, over a link that breaks" "$(sha "$work/broken.json")" "$(sha "$work/whole.json")"
}
plain goes_on

keeps_less() {
	split plain "${mobile[@]}" --batch 32 --data synthetic:shape=3x32x32,classes=10,samples=32 --steps 1 --optimizer adam
	split less "${mobile[@]}" --batch 32 --data synthetic:shape=3x32x32,classes=10,samples=32 --steps 1 --optimizer adam \
		--compress maps=uniform:bits=8,state=uniform:bits=8
	[ $(($(json_get "$work/less.json" server_device_memory_bytes) * 10)) -lt \
		$(($(json_get "$work/plain.json" server_device_memory_bytes) * 8)) ] ||
		fail "encoded, a session takes $(json_get "$work/less.json" server_device_memory_bytes) of" \
			"$(json_get "$work/plain.json" server_device_memory_bytes) bytes"
	local status=0
	"$build/gpclient" train --no-progress --server "127.0.0.1:$server_port" "${mobile[@]}" \
		--compress maps=sortquant:bits=6,split=2,sample=64 2>"$work/refused.log" || status=$?
	[ $status -ne 0 ] || fail "a GPU takes partitions from a sample"
	grep 'from all elements; leave sample out' "$work/refused.log" >/dev/null || fail "not why: $(cat "$work/refused.log")"
}
plain keeps_less

# --- each side in its own precision --------------------------------------------------------------------------------

precisions() {
	# The product's main case: tensor cores behind a processor that has none.
	split edge "${cnn[@]}" --precision tf32 --log main=info
	equal "a processor beside tf32 computes in" "$(json_get "$work/edge.json" precision) $(json_get "$work/edge.json" client_precision)" \
		"tf32 fp32"
	equal "the log says why" "$(grep -c 'head and tail in fp32, the body in tf32: cpu cannot.*only GPUs can' "$work/edge.json.log")" 1
	equal "the closing lines say so" "$(grep -c '; tf32 on the server, fp32 here' "$work/edge.json.log")" 1
	split again "${cnn[@]}" --precision tf32 --client-precision fp32
	equal "chosen or found, the same" "$(sha "$work/again.json")" "$(sha "$work/edge.json")"
	[ "$(sha "$work/edge.json")" != "$(sha "$work/cnn.json")" ] || fail "tf32 changes nothing in the body"
	same "cnn in tf32" "${cnn[@]}" --precision tf32
	[ "$(sha "$work/own.json")" != "$(sha "$work/edge.json")" ] || fail "tf32 changes nothing in head and tail"
	split again "${cnn[@]}" --precision tf32 --client-precision fp32 --device "$device"
	equal "a GPU here may stay in fp32" "$(json_get "$work/again.json" client_precision)" fp32

	# A run goes on in the precision that it began in: what another device would settle on is told, and nothing is computed.
	split part "${cnn[@]}" --precision tf32 --device "$device" --schedule const --steps 2 --checkpoint "$work/sides"
	status=0
	"$build/gpclient" train --no-progress --server "127.0.0.1:$server_port" "${cnn[@]}" --precision tf32 --schedule const \
		--checkpoint "$work/sides" --resume >/dev/null 2>"$work/sides.log" || status=$?
	equal "resumed where head and tail would be in another precision" \
		"$status $(grep -c "resume: --client-precision is 'fp32', but the run has it at 'tf32'" "$work/sides.log")" "3 1"
	split rest "${cnn[@]}" --precision tf32 --device "$device" --schedule const --checkpoint "$work/sides" --resume
	split whole "${cnn[@]}" --precision tf32 --device "$device" --schedule const
	equal "resumed in the same one" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"
}
plain precisions

# --- codecs: on the device, in part, and not at all --------------------------------------------------------------

twice() { # NAME FLAG...
	split codec "${cnn[@]}" "${@:2}"
	[ -z "$sanitized" ] || return 0 # the codecs' own tests have gone through each of them
	split again "${cnn[@]}" "${@:2}"
	equal "$1, twice" "$(sha "$work/again.json")" "$(sha "$work/codec.json")"
}

codecs=(ef+topk:ratio=0.1+sortquant:bits=4,split=2 uniform:bits=6+zstd)
[ -n "$sanitized" ] || codecs+=(fp16 s2fp8 uniform:bits=8 sortquant:bits=6,split=2 topk:ratio=0.2+uniform:bits=8
	smaq:main=6,outlier=8 ef+qsgd:bits=4)
for codec in "${codecs[@]}"; do
	twice "$codec" --codec "$codec"
done
# Codecs for pictures alone, and for what goes up alone.
codec=poweriter:rank=4,iters=2+sortquant:bits=6,split=2
twice $codec --codec-act-up $codec --codec-grad-down $codec
twice delta --codec-act-up delta:samples=64+uniform:bits=4

split eval "${evaluated[@]}" --codec fp16
plain split again "${evaluated[@]}" --codec fp16
plain equal "loss of an evaluation, twice" "$(json_get "$work/again.json" val_loss)" "$(json_get "$work/eval.json" val_loss)"

# --- two at once, links that break ---------------------------------------------------------------------------------

two_at_once "$(sha "$work/cnn.json")" "${cnn[@]}"

codec=ef+uniform:bits=6
split whole "${cnn[@]}" --codec $codec --steps 8
bytes=$(json_get "$work/whole.json" wire_up_bytes)
start_link --drop-every $((bytes / 3)) --drop-mode reset --seed 5
train "$work/cut.json" --server "127.0.0.1:$link_port" "${cnn[@]}" --codec $codec --steps 8 ||
	fail "over a link that breaks"
stop_link
equal "over a link that breaks" "$(sha "$work/cut.json")" "$(sha "$work/whole.json")"
[ "$(json_get "$work/cut.json" reconnects)" -gt 0 ] || fail "no cut was counted"

# --- a server that is killed -----------------------------------------------------------------------------------------

"$build/gpclient" train --no-progress --json --server "127.0.0.1:$server_port" "${cnn[@]}" --codec $codec --steps 8 \
	--checkpoint "$work/run" --checkpoint-every 2 --reconnect-for 120s >"$work/killed.json" 2>"$work/killed.log" &
client_pid=$!
has_checkpoint() {
	[ -n "$(find "$work/state" -name 'step-*' -newer "$work/whole.json" | head -1)" ] || ! kill -0 $client_pid 2>/dev/null
}
await has_checkpoint || fail "no checkpoint comes"
kill -KILL "$server_pid"
wait "$server_pid" 2>/dev/null
rm -f "$work/port"
"$build/gpserverd" --listen "127.0.0.1:$server_port" --port-file "$work/port" --device "$device" --threads 1 \
	--state-dir "$work/state" "${patient[@]}" 2>>"$work/server.log" &
server_pid=$!
comes_up $server_pid "$work/port" gpserverd "$work/server.log"
wait $client_pid || fail "a client whose server was killed: $(tail -3 "$work/killed.log")"
equal "server killed, the client goes on from a checkpoint" "$(sha "$work/killed.json")" "$(sha "$work/whole.json")"
stop_server

# --- several devices, no room, a device that fails ---------------------------------------------------------------------

start_server --threads 1 --device "$device" --session-device-memory 200K
status=0
"$build/gpclient" train --no-progress --server "127.0.0.1:$server_port" "${cnn[@]}" --reconnect-for 0 >/dev/null \
	2>"$work/room.log" || status=$?
[ $status -ne 0 ] || fail "a session over the quota of the device's memory was opened"
grep -q 'MiB of the memory of .*session-device-memory\|MiB of the memory of .*the server allows' "$work/room.log" ||
	fail "no figures: $(cat "$work/room.log")"
stop_server

if [ "$device" = cuda-emulated ]; then
	start_server --threads 1 --device cuda-emulated:0,cuda-emulated:1
	"$build/gpclient" train --no-progress --server "127.0.0.1:$server_port" "${cnn[@]}" --steps 100000 \
		--log session=info >"$work/endless" 2>"$work/endless.log" &
	endless=$!
	await grep -q 'runs on' "$work/endless.log" || fail "no session begins: $(cat "$work/endless.log")"
	split other "${cnn[@]}"
	kill $endless
	wait $endless
	equal "parameters from the other device" "$(sha "$work/other.json")" "$(sha "$work/cnn.json")"
	case $(json_get "$work/other.json" server_device) in
	cuda-emulated:1*) echo "ok: a second client gets the other device" ;;
	*) fail "the second client is on $(json_get "$work/other.json" server_device)" ;;
	esac
	stop_server
	bash "$source_dir/tests/e2e/device_error.sh" "$build" cuda-emulated 11 || fail "a device that fails"
fi
finish
