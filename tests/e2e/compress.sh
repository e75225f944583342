#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Trainings of which more than maps passes through codecs (--compress state, weights, weight-grads, grad-maps; maps:
# recompute.sh). A split run equals a local one to the last bit with all of them: over a link that breaks, resumed, with ranks
# that change. State that lies encoded takes less memory at both ends.

# shellcheck disable=SC1091,SC2086
. "$(dirname "$0")/lib.sh"

pictures=(--data synthetic:shape=3x32x32,classes=10,samples=64 --batch 16 --chunks 4 --steps 3 --lr 0.01 --seed 7 --threads 1
	--no-eval)
texts=(--data synthetic:tokens=16,vocab=100,classes=4,samples=64 --batch 16 --chunks 4 --steps 3 --lr 0.001
	--optimizer adamw --seed 7 --threads 1 --no-eval)

sha() {
	json_get "$1" param_sha256
}

# WHAT...: each with this codec.
all() { # SPEC STRUCTURE...
	local spec=$1 text=
	shift
	for structure in "$@"; do
		text=${text:+$text,}$structure=$spec
	done
	echo "$text"
}
everything=(maps grad-maps weights weight-grads state)
rest=(grad-maps weights weight-grads state)

same() { # NAME WHAT CUT FLAG...
	local name=$1 run=(--compress "$2" --cut "$3" "${@:4}")
	train "$work/local.json" --local "${run[@]}" || fail "$name: local"
	train "$work/split.json" --server "127.0.0.1:$server_port" --codec raw "${run[@]}" || fail "$name: split"
	equal "$name: split" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
	equal "$name: what the report says" "$(json_get "$work/split.json" compress)" "$(json_get "$work/local.json" compress)"
}

start_server --threads 1
one=()
for what in grad-maps weights weight-grads state; do
	same "cnn, $what" $what=uniform:bits=8 1:-1 --model cnn "${pictures[@]}" --optimizer adam
	one[${#one[@]}]=$(sha "$work/local.json")
done
train "$work/plain.json" --local --model cnn "${pictures[@]}" --optimizer adam || fail "nothing compressed"
equal "each changes the result in its own way" "$(printf '%s\n' "${one[@]}" "$(sha "$work/plain.json")" | sort -u | wc -l)" 5
same "mobilenetv2, everything with smaq" "$(all smaq "${everything[@]}")" 3:-3 --model mobilenetv2:width=0.35,stem=cifar \
	"${pictures[@]}" --clip-norm 1
same "mobilenetv2, cut before its activations, fp8, without maps" "$(all fp8:format=e5m2 "${rest[@]}")" 1:-3 \
	--model mobilenetv2:width=0.35,stem=cifar,cuts=fine "${pictures[@]}" --optimizer adam
same "resnet20, cut inside residual blocks, head frozen, no master weights" \
	"$(all uniform:bits=8 "${everything[@]}"),weights-master=off" 4:-3 --model resnet20:width=0.5,cuts=fine "${pictures[@]}" \
	--freeze head --clip-value 0.1
same "resnet20, recomputed" "$(all bf16 "${rest[@]}")" 3:-2 --model resnet20:width=0.5 "${pictures[@]}" --recompute
same "roberta with dropout, s2fp8" "$(all s2fp8 "${everything[@]}")" 1:-1 --model roberta:layers=2,dim=16,heads=2,ffn=32 \
	"${texts[@]}"
same "roberta with dropout, smaq with averages that are rounded stochastically" "$(all smaq:round=nearest,reach=16 maps grad-maps \
	weights weight-grads),state=smaq:round=stochastic,reach=16" 1:-1 --model roberta:layers=2,dim=16,heads=2,ffn=32 "${texts[@]}"
same "bert, padding left out" "$(all bf16 "${everything[@]}")" 1:-1 --model bert:dim=32,layers=2,heads=2,ffn=32 "${texts[@]}" --pad drop
same "bert, ranks that change" "$(all sortquant:bits=6,split=2 "${everything[@]}")" 1:-1 \
	--model bert:dim=32,layers=2,heads=2,ffn=32 "${texts[@]}" --steps 6 --insert decay:rate=0.5,every=2,times=2,dim=feature

# Over a link that breaks: a step is taken back, or goes on where it was.
model=(--model mobilenetv2:width=0.35,stem=cifar --cut 3:-3 --codec raw "${pictures[@]}" --steps 6 --optimizer adam
	--compress "$(all smaq maps grad-maps weights weight-grads),state=smaq:round=stochastic")
train "$work/plain.json" --server "127.0.0.1:$server_port" "${model[@]}" || fail "over a good link"
start_link --drop-every $(($(json_get "$work/plain.json" wire_up_bytes) / 5)) --seed 6
train "$work/cut.json" --server "127.0.0.1:$link_port" "${model[@]}" --reconnect-for 300s || fail "over a link that breaks"
stop_link
equal "over a link that breaks" "$(sha "$work/cut.json")" "$(sha "$work/plain.json")"

# What the server takes: two moments of 8 bits in place of 32.
for way in "" --compress=state=uniform:bits=8; do
	train "$work/memory${way%%=*}.json" --server "127.0.0.1:$server_port" --model mobilenetv2:stem=cifar "${pictures[@]}" --batch 4 \
		--chunks 2 --steps 1 --optimizer adam $way || fail "memory $way"
done
less=$(($(json_get "$work/memory.json" server_memory_bytes) - $(json_get "$work/memory--compress.json" server_memory_bytes)))
[ $less -gt 10000000 ] || fail "with encoded state a server's session takes $less bytes less"
stop_server

# Resumed on both ends, from where the state lay encoded.
start_server --threads 1 --state-dir "$work/state"
server=(--server "127.0.0.1:$server_port")
go_on=("${model[@]}" --schedule const --checkpoint)
train "$work/whole.json" "${server[@]}" "${model[@]}" --schedule const || fail "all six"
train "$work/part.json" "${server[@]}" "${go_on[@]}" "$work/run" --steps 3 || fail "three steps"
train "$work/rest.json" "${server[@]}" "${go_on[@]}" "$work/run" --resume || fail "the others"
equal "resumed" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"
stop_server
train "$work/part.json" --local "${go_on[@]}" "$work/local" --steps 3 || fail "three steps, local"
train "$work/rest.json" --local "${go_on[@]}" "$work/local" --resume || fail "the others, local"
equal "resumed, local" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"

# What passes through a codec belongs to the run.
refused() { # STATUS WORDS FLAG...
	local status=0
	"$build/gpclient" train --no-progress --local "${@:3}" 2>"$work/refused.log" || status=$?
	equal "status of $2" $status "$1"
	grep -- "$2" "$work/refused.log" >/dev/null || fail "no '$2': $(cat "$work/refused.log")"
}
refused 3 compress "${go_on[@]}" "$work/local" --resume --compress state=bf16
refused 3 "the run was begun with --compress '" "${pictures[@]}" --model mobilenetv2:width=0.35,stem=cifar --cut 3:-3 --steps 6 \
	--optimizer adam --schedule const --checkpoint "$work/local" --resume
refused 3 "weights-master=off', but the run has it at '...[^']*round=stochastic'" "${go_on[@]}" "$work/local" --resume \
	--compress "$(all smaq maps grad-maps weights weight-grads),state=smaq:round=stochastic,weights-master=off"
refused 2 'topk cannot' "${model[@]}" --compress state=topk:ratio=0.1
refused 2 'needs weights=' "${model[@]}" --compress state=bf16,weights-master=off
refused 3 'padded to the same length' --model bert:dim=32,layers=2,heads=2,ffn=32 "${texts[@]}" --pad drop --compress grad-maps=smaq
refused 3 'square of the first beta' "${model[@]}" --compress state=bf16 --adam-betas 0.9,0.5

# What model show says of it.
"$build/gpclient" model show mobilenetv2 --batch 64 --chunks 8 --optimizer adam --memory --json >"$work/show.json" || fail "model show"
state=$(json_get "$work/show.json" memory.savings.0.state) less=$(json_get "$work/show.json" memory.savings.6.state)
equal "flags of the seventh row" "$(json_get "$work/show.json" memory.savings.6.flags)" "--compress state=bf16"
[ $((less * 100)) -lt $((state * 51)) ] || fail "bf16 keeps $less of $state bytes of state"
finish
