#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Trainings with insertions: split as local, bit for bit; over links that break;
# resumed; saved and loaded without a flag; fitted before training; and the rates,
# which compare with the same cut without an insertion.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

data=(--data synthetic:shape=3x17x15,classes=4,samples=64 --threads 1 --no-progress)
maps=(--model cnn "${data[@]}" --cut 1:-1 --batch 8 --chunks 2 --seed 3 --no-eval
	--insert-up conv:out=6,k=3,s=3,bn=1,act=relu/conv:out=3,k=1,s=1 --insert-down linear:rank=5,dim=feature,start=identity)
texts=(--model roberta:layers=2,dim=16,heads=2,ffn=32 --data synthetic:tokens=24,vocab=50,classes=2,samples=64
	--threads 1 --batch 8 --chunks 2 --seed 3 --no-eval --pad max --optimizer adamw --lr 0.001
	--insert linear:rank=7,dim=feature,start=pca/linear:rank=9,dim=sequence)

sha() {
	json_get "$1" param_sha256
}

# As the table of JSON.md has it: payload by what the same cut moves without an insertion.
less() { # WHAT A B
	awk -v a="$2" -v b="$3" 'BEGIN { exit !(a < b) }' && echo "ok: $1 ($2 < $3)" || fail "$1: $2 is not below $3"
}

start_server --threads 1 --state-dir "$work/state"
server=(--server "127.0.0.1:$server_port")

# Split and local.
train "$work/local.json" --local "${maps[@]}" --steps 6 --save "$work/local.safetensors" || fail "maps, local"
train "$work/split.json" "${server[@]}" "${maps[@]}" --steps 6 || fail "maps, split"
equal "maps: parameters, split and local" "$(sha "$work/split.json")" "$(sha "$work/local.json")"
train "$work/plain.json" "${server[@]}" "${maps[@]}" --insert-up none --insert-down none --steps 6 || fail "maps, no insertion"
for d in act_up act_down grad_up grad_down; do
	equal "uncompressed bytes are those without an insertion ($d)" "$(json_get "$work/split.json" $d.uncompressed_bytes)" \
		"$(json_get "$work/plain.json" $d.tensor_bytes)"
	less "what crosses is smaller ($d)" "$(json_get "$work/split.json" $d.payload_bytes)" "$(json_get "$work/plain.json" $d.payload_bytes)"
done
equal "rate without codec and insertion" "$(json_get "$work/plain.json" rate)" 1.0
train "$work/codec.json" "${server[@]}" "${maps[@]}" --steps 6 --codec ef+uniform:bits=6 || fail "maps, a codec behind the insertion"
less "rate with a codec behind the insertion" "$(json_get "$work/codec.json" rate)" "$(json_get "$work/split.json" rate)"
train "$work/tlocal.json" --local "${texts[@]}" --steps 4 || fail "texts, local"
train "$work/tsplit.json" "${server[@]}" "${texts[@]}" --steps 4 || fail "texts, split"
equal "texts: parameters, split and local" "$(sha "$work/tsplit.json")" "$(sha "$work/tlocal.json")"

# Bottlenecks, of maps and of flat features, and of texts whose chunks have lengths of their own.
bottlenecks=(--model cnn "${data[@]}" --batch 8 --chunks 2 --seed 3 --no-eval --insert-up bottleneck:dim=3,hidden=5,act=relu
	--insert-down bottleneck:dim=4,start=pca --steps 4)
train "$work/blocal.json" --local "${bottlenecks[@]}" --save "$work/bottleneck.safetensors" || fail "bottlenecks, local"
train "$work/bsplit.json" "${server[@]}" "${bottlenecks[@]}" || fail "bottlenecks, split"
equal "bottlenecks: parameters, split and local" "$(sha "$work/bsplit.json")" "$(sha "$work/blocal.json")"
train "$work/bcodec.json" "${server[@]}" "${bottlenecks[@]}" --codec block:bits=4,size=16 || fail "a codec behind a bottleneck"
less "rate with a codec behind a bottleneck" "$(json_get "$work/bcodec.json" rate)" "$(json_get "$work/bsplit.json" rate)"
"$build/gpclient" eval --local --init "$work/bottleneck.safetensors" "${data[@]}" >"$work/a" 2>/dev/null || fail "eval, bottlenecks of the file"
"$build/gpclient" eval --local --init "$work/bottleneck.safetensors" "${data[@]}" --insert-up bottleneck:dim=3,hidden=5,act=relu \
	--insert-down bottleneck:dim=4 >"$work/b" 2>/dev/null || fail "eval, bottlenecks of flags"
equal "loss with bottlenecks that the file says, and with those of flags" "$(cat "$work/b")" "$(cat "$work/a")"
btexts=("${texts[@]}" --pad auto --insert bottleneck:dim=3 --steps 3)
train "$work/btlocal.json" --local "${btexts[@]}" || fail "bottlenecks of texts, local"
train "$work/btsplit.json" "${server[@]}" "${btexts[@]}" || fail "bottlenecks of texts, split"
equal "bottlenecks of texts: parameters, split and local" "$(sha "$work/btsplit.json")" "$(sha "$work/btlocal.json")"

# Links that break, with a codec that remembers.
start_link --drop-every $(($(json_get "$work/codec.json" wire_up_bytes) / 3)) --drop-mode reset --seed 5
train "$work/broken.json" --server "127.0.0.1:$link_port" "${maps[@]}" --steps 6 --codec ef+uniform:bits=6 || fail "links that break"
stop_link
equal "parameters over links that break" "$(sha "$work/broken.json")" "$(sha "$work/codec.json")"
[ "$(json_get "$work/broken.json" reconnects)" -gt 0 ] || fail "no link broke"

# Checkpoints: half of a run, then the rest of it; another insertion is another run; the server's part is exported.
run=("${server[@]}" "${maps[@]}" --schedule const --checkpoint "$work/run" --checkpoint-every 2)
train "$work/whole.json" "${server[@]}" "${maps[@]}" --schedule const --steps 6 || fail "undisturbed"
train "$work/half.json" "${run[@]}" --steps 3 || fail "a half"
train "$work/rest.json" "${run[@]}" --steps 6 --resume --save "$work/rest.safetensors" || fail "the rest"
equal "a resumed run: parameters" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"
status=0
"$build/gpclient" train "${run[@]}" --steps 6 --resume --insert-down none >/dev/null 2>"$work/err" || status=$?
equal "another insertion does not go on: status" $status 3
grep -q "insert-down" "$work/err" || fail "no word of insert-down: $(cat "$work/err")"
"$build/gpclient" model export "$work/run" "${server[@]}" --out "$work/exported.safetensors" 2>"$work/err" ||
	fail "export: $(cat "$work/err")"
cmp -s <("$build/gpclient" eval --local --init "$work/exported.safetensors" "${data[@]}" 2>&1 | tail -1) \
	<("$build/gpclient" eval --local --init "$work/rest.safetensors" "${data[@]}" 2>&1 | tail -1) ||
	fail "the exported weights are not those of the run"

# A local run is one, though its insertions stand at a cut; the start by PCA is the same when it goes on.
alone=(--local --model cnn "${data[@]}" --batch 8 --no-eval --schedule const --insert linear:rank=3,dim=feature,start=pca)
train "$work/whole.json" "${alone[@]}" --steps 4 --save "$work/whole.safetensors" || fail "a local run"
train "$work/half.json" "${alone[@]}" --steps 2 --checkpoint "$work/alone" || fail "a local run, a half"
train "$work/rest.json" "${alone[@]}" --steps 4 --checkpoint "$work/alone" --resume || fail "a local run, the rest"
equal "a resumed local run: parameters" "$(sha "$work/rest.json")" "$(sha "$work/whole.json")"
status=0
"$build/gpclient" train "${alone[@]}" --cut 1:-2 --steps 4 --checkpoint "$work/alone" --resume >/dev/null 2>"$work/err" || status=$?
equal "another cut does not go on: status" $status 3
status=0
"$build/gpclient" train "${alone[@]}" --insert none --steps 4 --checkpoint "$work/alone" --resume >/dev/null 2>"$work/err" || status=$?
equal "no insertion does not go on, and is named" "$status $(grep -c "begun with --insert-up 'linear:rank=3" "$work/err")" "3 1"
"$build/gpclient" model export "$work/alone" --out "$work/alone.safetensors" 2>"$work/err" || fail "export: $(cat "$work/err")"
equal "loss of the exported weights" "$("$build/gpclient" eval --local --init "$work/alone.safetensors" "${data[@]}" 2>/dev/null)" \
	"$("$build/gpclient" eval --local --init "$work/whole.safetensors" "${data[@]}" 2>/dev/null)"

# A saved model knows its insertions and where they stand.
evaluate() { # JSON-FILE FLAG...
	local out=$1
	shift
	"$build/gpclient" eval --json --init "$work/local.safetensors" "${data[@]}" --batch 8 --chunks 2 "$@" >"$out" 2>"$out.log" ||
		fail "eval $*: $(cat "$out.log")"
}
evaluate "$work/known.json" --local
evaluate "$work/given.json" "${server[@]}" --cut 1:-1 --insert-up conv:out=6,k=3,s=3,bn=1,act=relu/conv:out=3,k=1,s=1 \
	--insert-down linear:rank=5,dim=feature,start=identity
evaluate "$work/left.json" --local --insert none
evaluate "$work/one.json" --local --insert-up conv:out=6,k=3,s=3,bn=1,act=relu/conv:out=3,k=1,s=1
equal "loss with one end of flags and one of the file" "$(json_get "$work/one.json" val_loss)" "$(json_get "$work/known.json" val_loss)"
# A text of as many characters that says layers of millions of numbers: nothing is made for them.
sed 's,conv:out=6\,k=3\,s=3\,bn=1\,act=relu/,conv:out=512\,k=64\,s=64\,p=63\,bn=1/,' "$work/local.safetensors" >"$work/large.safetensors"
status=0
"$build/gpclient" eval --local --init "$work/large.safetensors" "${data[@]}" >/dev/null 2>"$work/err" || status=$?
equal "insertions that the file cannot hold: status" $status 3
grep -q 'has insertions of .* more than the file can hold' "$work/err" || fail "large insertions: $(cat "$work/err")"
status=0
"$build/gpclient" eval --local --init "$work/local.safetensors" "${data[@]}" --cut 1:-2 >/dev/null 2>"$work/err" || status=$?
equal "a cut elsewhere than the file's insertions: status" $status 2
grep -q 'has insertions at the cut 1:-1, not 1:-2' "$work/err" || fail "a cut elsewhere: $(cat "$work/err")"
equal "loss with insertions that the file says, and with those of flags" "$(json_get "$work/known.json" val_loss)" \
	"$(json_get "$work/given.json" val_loss)"
equal "lines of what is left out" "$(grep -c 'which are left out' "$work/left.json.log")" 2
[ "$(json_get "$work/left.json" val_loss)" != "$(json_get "$work/known.json" val_loss)" ] || fail "--insert none changed nothing"

# Fitted: nearer than before, its weights are taken, and nothing else has changed.
train "$work/base.json" --local --model cnn "${data[@]}" --batch 8 --chunks 1 --steps 8 --no-eval --save "$work/base.safetensors" ||
	fail "a model to fit to"
fit=(--init "$work/base.safetensors" "${data[@]}" --batch 8 --insert-up conv:out=4,k=3,s=3 --insert-down
	linear:rank=6,dim=feature,start=pca)
"$build/gpclient" insert-fit "${fit[@]}" --steps 30 --save "$work/fitted.safetensors" --json >"$work/fit.json" 2>"$work/fit.log" ||
	fail "insert-fit: $(cat "$work/fit.log")"
less "error of a fitted convolution" "$(json_get "$work/fit.json" insert_up.error_after)" "$(json_get "$work/fit.json" insert_up.error_before)"
less "error of a start by PCA" "$(json_get "$work/fit.json" insert_down.error_before)" 0.9
equal "lines of insertions that start from new weights" "$(grep -c 'start from new weights' "$work/fit.log")" 2
# A start by PCA is there without a step, and steps go on from it; a second set has one of its own.
starts() { # OUT SPEC FLAG...
	"$build/gpclient" insert-fit --init "$work/base.safetensors" "${data[@]}" --batch 8 --insert-up "$2" "${@:3}" \
		--save "$work/patches.safetensors" --json >"$work/$1.json" 2>"$work/fit.log" || fail "insert-fit of $2: $(cat "$work/fit.log")"
}
starts drawn conv:out=4,k=3,s=3 --steps 0
starts directions conv:out=4,k=3,s=3,start=pca --steps 0
starts fitted-on conv:out=4,k=3,s=3,start=pca --steps 30
starts stacked conv:out=16,k=3,s=3,start=pca/conv:out=4,k=1,s=1,start=pca --steps 0
less "error of a convolution that starts by PCA, and of one fitted from drawn weights" \
	"$(json_get "$work/directions.json" insert_up.error_after)" "$(json_get "$work/fit.json" insert_up.error_after)"
less "error of two such sets, and of drawn weights" "$(json_get "$work/stacked.json" insert_up.error_before)" \
	"$(json_get "$work/drawn.json" insert_up.error_before)"
equal "error before steps and without any" "$(json_get "$work/fitted-on.json" insert_up.error_before)" \
	"$(json_get "$work/directions.json" insert_up.error_before)"
patches=(--model cnn "${data[@]}" --batch 8 --chunks 2 --no-eval --steps 3 --insert-up conv:out=4,k=3,s=3,start=pca)
train "$work/plocal.json" --local "${patches[@]}" --save "$work/trained.safetensors" || fail "a start by PCA of patches, local"
train "$work/psplit.json" "${server[@]}" "${patches[@]}" || fail "a start by PCA of patches, split"
equal "a start by PCA of patches: parameters, split and local" "$(sha "$work/psplit.json")" "$(sha "$work/plocal.json")"
"$build/gpclient" insert-fit --init "$work/trained.safetensors" "${data[@]}" --batch 8 --steps 0 --save "$work/kept.safetensors" \
	>/dev/null 2>"$work/fit.log" || fail "insert-fit of a trained file: $(cat "$work/fit.log")"
loss_of() { # FLAG...
	"$build/gpclient" eval --local "${data[@]}" --json "$@" 2>/dev/null >"$work/loss.json" && json_get "$work/loss.json" val_loss
}
loss=$(loss_of --init "$work/trained.safetensors")
[ -n "$loss" ] || fail "eval of a file that says start=pca"
equal "weights of a file are kept, whatever start= it says" "$(loss_of --init "$work/kept.safetensors")" "$loss"
equal "and with flags that say no start" "$(loss_of --init "$work/trained.safetensors" --insert-up conv:out=4,k=3,s=3)" "$loss"
# A file that says it has an insertion, and has not.
LC_ALL=C sed 's/"insert_up\.\([de]\)/"insert_uq.\1/g' "$work/trained.safetensors" >"$work/without.safetensors"
status=0
"$build/gpclient" eval --local --init "$work/without.safetensors" "${data[@]}" >/dev/null 2>"$work/err" || status=$?
equal "an insertion without its weights" "$status $(grep -c 'says that it has an insertion (gpsplit.insert_up), but not its weights' "$work/err")" "3 1"
# What fits the weights of a file's insertion and computes something else with them is refused, as is another cut; new layers
# have to find their start in training data.
refused() { # WHAT PART-OF-MESSAGE FLAG...
	status=0
	"$build/gpclient" eval --local "${data[@]}" "${@:3}" >/dev/null 2>"$work/err" || status=$?
	equal "$1" "$status $(grep -c -- "$2" "$work/err")" "2 1"
}
trained=(--init "$work/trained.safetensors")
refused "another stride" 'has --insert-up conv:out=4,k=3,s=3,start=pca, not conv:out=4,k=3,s=2' "${trained[@]}" --insert-up conv:out=4,k=3,s=2
refused "another activation" "begin with new layers by --init-skip 'insert_up\*'" "${trained[@]}" --insert-up conv:out=4,k=3,s=3,act=relu
refused "another cut" 'has insertions at the cut 1:-1, not 2:-1' "${trained[@]}" --insert-up conv:out=4,k=3,s=3 --cut 2:-1
refused "a start by PCA without a pass over training data" 'start=pca finds weights in a pass over training data, which eval does not make' \
	--init "$work/base.safetensors" --insert-up conv:out=4,k=3,s=3,start=pca
refused "the same where the file's weights are skipped" 'start=pca finds weights' "${trained[@]}" --init-skip 'insert*'
loss_of "${trained[@]}" --init-skip 'insert*' --insert-up conv:out=4,k=3,s=3 --cut 2:-1 >/dev/null || fail "new layers at another cut"
loss_of "${trained[@]}" --insert-up conv:out=4,k=3,s=2 --init-skip 'insert*' >/dev/null || fail "other layers in place of the file's"
# With the same rank and start, the branch gains on what linear cannot better.
bent=(--init "$work/base.safetensors" "${data[@]}" --batch 8 --insert-up bottleneck:dim=4,start=pca --steps 40 --save "$work/bent.safetensors")
"$build/gpclient" insert-fit "${bent[@]}" --json >"$work/bent.json" 2>"$work/fit.log" || fail "insert-fit of a bottleneck: $(cat "$work/fit.log")"
less "error of a fitted bottleneck" "$(json_get "$work/bent.json" insert_up.error_after)" "$(json_get "$work/bent.json" insert_up.error_before)"
train "$work/fitted.json" "${server[@]}" --init "$work/fitted.safetensors" "${data[@]}" --batch 8 --chunks 2 --steps 2 --no-eval ||
	fail "a training from fitted weights"
grep -q 'start from new weights' "$work/fitted.json.log" && fail "fitted weights were not taken"
less "rate of a training from fitted weights" "$(json_get "$work/fitted.json" rate)" 0.7
"$build/gpclient" insert-fit "${fit[@]}" --steps 0 --save "$work/started.safetensors" >/dev/null 2>&1 || fail "insert-fit without steps"
"$build/gpclient" eval --local --init "$work/base.safetensors" "${data[@]}" >"$work/a" 2>/dev/null
"$build/gpclient" eval --local --init "$work/started.safetensors" "${data[@]}" --insert none >"$work/b" 2>/dev/null
equal "loss of the model beside its insertions" "$(cat "$work/b")" "$(cat "$work/a")"

stop_server
finish
