#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What a user can get wrong: one clear line, the right exit status (2 usage, 3
# input, 4 connection or peer, 5 device), and no file half-written.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

cases=0 # mistakes that were tried

# Runs gpclient, expects the status, exactly one line on stderr (or $lines) that matches, and nothing on stdout.
refuses() { # STATUS PATTERN ARG...
	local want=$1 pattern=$2 status=0
	shift 2
	cases=$((cases + 1))
	timeout 60 "$build/gpclient" "$@" >"$work/out" 2>"$work/err" || status=$?
	local found
	found=$(wc -l <"$work/err")
	if [ $status -ne "$want" ] || [ "$found" -ne "${lines:-1}" ] || ! grep -qE "$pattern" "$work/err" || [ -s "$work/out" ]; then
		fail "gpclient $*: status $status (want $want), $found lines: $(head -3 "$work/err")"
	else
		echo "ok: $(cat "$work/err")"
	fi
}

server_refuses() { # STATUS PATTERN ARG...: the same of gpserverd, which would listen on a port of its own
	local want=$1 pattern=$2 status=0
	shift 2
	cases=$((cases + 1))
	timeout 60 "$build/gpserverd" --listen 127.0.0.1:0 "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
	if [ $status -ne "$want" ] || [ "$(wc -l <"$work/err")" -ne 1 ] || ! grep -qE -e "$pattern" "$work/err"; then
		fail "gpserverd $*: status $status (want $want): $(head -3 "$work/err")"
	else
		echo "ok: $(cat "$work/err")"
	fi
}

# Output that nobody gets is no success.
full_disk() { # ARG...
	local status=0
	cases=$((cases + 1))
	"$build/gpclient" "$@" >/dev/full 2>"$work/err" || status=$?
	equal "gpclient $* to a full device: status and lines" "$status $(wc -l <"$work/err")" "1 1"
	grep -qE 'standard output|JSON text' "$work/err" || fail "gpclient $*: $(cat "$work/err")"
}

# Test certificates: nothing is made where DIR cannot be, and no key is written over unasked.
certificates() { # STATUS PATTERN ARG...: in an empty folder, which stays empty
	local want=$1 pattern=$2 status=0
	shift 2
	cases=$((cases + 1))
	(cd "$work/nothing" && "$source_dir/deploy/gen-test-certs.sh" "$@") >"$work/out" 2>"$work/err" || status=$?
	if [ $status -ne "$want" ] || ! grep -qE "$pattern" "$work/err" || [ -n "$(ls -A "$work/nothing")" ]; then
		fail "gen-test-certs.sh $*: status $status (want $want), made: $(ls -A "$work/nothing"): $(head -3 "$work/err")"
	else
		echo "ok: $(head -1 "$work/err")"
	fi
}

mkdir "$work/nothing"
touch "$work/file"
certificates 2 '^usage: '
certificates 2 '^usage: ' --relpace "$work/certs"
certificates 3 "cannot make the folder '$work/file/certs'" "$work/file/certs"
certificates 2 "'b c' is neither a name nor an address" "$work/certs" a 'b c'
certificates 2 "'300.1.1.1' is neither a name nor an address" "$work/certs" 300.1.1.1
equal "files that these left" "$(find "$work/certs" -type f | wc -l)" 0
"$source_dir/deploy/gen-test-certs.sh" "$work/certs" || fail "gen-test-certs.sh"
key=$(cksum <"$work/certs/server.key")
certificates 3 "certs/ca.pem is there already; choose another folder, or --replace" "$work/certs"
equal "the key that was there" "$(cksum <"$work/certs/server.key")" "$key"
"$source_dir/deploy/gen-test-certs.sh" --replace "$work/certs" edge.example || fail "gen-test-certs.sh --replace"
[ "$(cksum <"$work/certs/server.key")" != "$key" ] || fail "--replace replaces nothing"

for list in "data list" "data list --json" "codec list" "codec list --json" "model list" "model list --json" "model show cnn" "model show cnn --json" \
	"model show resnet34 --layers" "train --help" --help --version; do
	# shellcheck disable=SC2086
	full_disk $list
done

# A slip in the environment is told and goes no further.
for program in gpclient gpserverd; do
	GP_SIMD=sse9 "$build/$program" --version >/dev/null 2>"$work/err" && grep -q "^$program: GP_SIMD=sse9 is none" "$work/err" ||
		fail "$program with GP_SIMD=sse9: $(cat "$work/err")"
	GP_ENGINE=simple "$build/$program" --version >/dev/null 2>"$work/err" &&
		grep -q "^$program: GP_ENGINE=simple is none of own, plain" "$work/err" ||
		fail "$program with GP_ENGINE=simple: $(cat "$work/err")"
	GP_FAULT=malloc:1 "$build/$program" --version >/dev/null 2>"$work/err" &&
		grep -q "^$program: GP_FAULT=malloc:1 makes nothing fail" "$work/err" ||
		fail "$program with GP_FAULT=malloc:1: $(cat "$work/err")"
done

synthetic=(--data synthetic:shape=3x32x32,classes=10,samples=64 --batch 16 --steps 1)
start_server
server=(--server "127.0.0.1:$server_port")

refuses 2 "unknown command 'trian'" trian
refuses 2 "gpclient model: unknown command 'frob'; there are list, show" model frob
refuses 2 "gpclient codec: unknown command 'lst'; did you mean 'list'" codec lst
refuses 2 'rate is for a simulated link; host:4400 is to be measured' link host:4400 --rate 1mbit
refuses 2 'or both ends to simulate one: --listen ADDR:PORT and --to' link --listen 127.0.0.1:0
refuses 2 'tls is for measuring a link' link --listen 127.0.0.1:0 --to 127.0.0.1:1 --tls
refuses 2 '\-\-listen 0.0.0.0:0.*--insecure' link --listen 0.0.0.0:0 --to 127.0.0.1:1
refuses 2 '\-\-to.*no port' link --listen 127.0.0.1:0 --to 127.0.0.1
refuses 2 '\-\-stall-after BYTES is missing' link --listen 127.0.0.1:0 --to 127.0.0.1:1 --stall 1s
refuses 2 'drop-mode.*reset|fin|half' link --listen 127.0.0.1:0 --to 127.0.0.1:1 --drop-mode cut
refuses 2 '\-\-momentum.*below 1' train --local --model cnn --momentum 1
refuses 2 '\-\-modl.*--model' train --local --modl cnn
refuses 2 '\-\-batch.*ten' train --local --model cnn --batch ten
refuses 2 'equal chunks' train --local --model cnn --data synthetic --batch 10 --chunks 4
refuses 2 'server' train --model cnn --data synthetic
refuses 2 'resnet999.*mobilenetv2' train --local --model resnet999 "${synthetic[@]}"
refuses 2 'widht|width' train --local --model mobilenetv2:widht=1 "${synthetic[@]}"
refuses 2 'cut' train "${server[@]}" --model cnn --cut 99:-1 "${synthetic[@]}"
refuses 2 "cut 'x' is not H:T" train --local --model cnn --cut x "${synthetic[@]}"
refuses 2 'sortqant.*sortquant' train "${server[@]}" --model cnn --codec sortqant:bits=6 "${synthetic[@]}"
refuses 2 'bits' train "${server[@]}" --model cnn --codec uniform:bits=99 "${synthetic[@]}"
refuses 3 'codec downsample does not fit act_down .4x[0-9]*., for which --codec-act-down chooses another: .*no height' train \
	"${server[@]}" --model cnn --codec downsample "${synthetic[@]}"
refuses 3 'codec-grad-up downsample does not fit grad_up .4x' train "${server[@]}" --model cnn \
	--codec-grad-up downsample "${synthetic[@]}"
refuses 2 'codec-grad-down: delta works up the link only' train "${server[@]}" --model cnn \
	--codec-grad-down delta+uniform "${synthetic[@]}"
refuses 2 'dataset|data' train --local --model cnn --data nosuch
refuses 2 'clip-norm.*-1' train --local --model cnn --data synthetic --clip-norm -1
refuses 2 'clip-norm.*nan' train --local --model cnn --data synthetic --clip-norm nan
refuses 2 'clip-value.*much' train --local --model cnn --data synthetic --clip-value much
refuses 2 'clip-norm and --clip-value exclude' train --local --model cnn "${synthetic[@]}" --clip-norm 1 --clip-value 1
equal "train --help says so" "$("$build/gpclient" train --help | tr -s ' \n' ' ' | grep -o 'not with --clip-[nv]' | wc -l)" 2
refuses 2 '\-\-nesterov is of sgd.*adamw' train --local --model cnn "${synthetic[@]}" --optimizer adamw --nesterov
refuses 2 '\-\-momentum is of sgd.*adam ' train --local --model cnn "${synthetic[@]}" --optimizer adam --momentum 0.9
refuses 2 '\-\-nesterov needs .*--momentum' train --local --model cnn "${synthetic[@]}" --nesterov --momentum 0
[ "$(nproc)" -ge 32 ] || # with more, 1024 threads are few enough
	refuses 2 'threads 1024: this machine has [0-9]* processors; at most 32 threads for each' train --local --model cnn \
		"${synthetic[@]}" --threads 1024
refuses 3 'no/such/dir' train --local --model cnn --data "cifar10:no/such/dir"
refuses 2 '\-\-augment is for pictures; --data synthetic:tokens=8.* has none' train --local --model fasttext \
	--data synthetic:tokens=8,samples=64 --batch 16 --steps 1 --augment
refuses 2 '\-\-augment and augment=0 of --data contradict each other' train --local --model cnn --data "${synthetic[1]},augment=0" \
	"${synthetic[@]:2}" --augment
refuses 2 '\-\-no-augment and augment=1 of --data contradict' train --local --model cnn --data "${synthetic[1]},augment=1" \
	"${synthetic[@]:2}" --no-augment
refuses 2 'compress state=.*keeps no state with --momentum 0' train --local --model cnn "${synthetic[@]}" --momentum 0 \
	--compress state=bf16
refuses 3 'no/such.safetensors' train --local --model cnn "${synthetic[@]}" --init no/such.safetensors
refuses 5 'cuda' train --local --model cnn "${synthetic[@]}" --device cuda
refuses 2 'precision.*fp16' train --local --model cnn "${synthetic[@]}" --precision fp16
refuses 5 'cpu cannot compute in tf32 .only GPUs can.; use fp32' train --local --model cnn "${synthetic[@]}" --precision tf32
refuses 5 'client-precision: cpu cannot compute in tf32 .only GPUs can.; use fp32' train "${server[@]}" --model cnn "${synthetic[@]}" --client-precision tf32
refuses 2 'client-precision bf16: a local run.*--precision, which is fp32' train --local --model cnn "${synthetic[@]}" --client-precision bf16
refuses 2 'client-precision.*half' train "${server[@]}" --model cnn "${synthetic[@]}" --client-precision half
export GP_SIMD=portable # of which no processor has bf16
refuses 5 'bf16.*fp32' train --local --model cnn "${synthetic[@]}" --precision bf16
refuses 5 'client-precision: cpu cannot.*bf16.*_BF16.*fp32' train "${server[@]}" --model cnn "${synthetic[@]}" --client-precision bf16
unset GP_SIMD
refuses 4 'refused' train --server 127.0.0.1:1 --model cnn "${synthetic[@]}"
refuses 2 'server' train --server nonsense --model cnn "${synthetic[@]}"

# Values of flags.
cnn=(train --local --model cnn --data synthetic)
refuses 2 'chunks: 0 is out of range .1..' "${cnn[@]}" --chunks 0
refuses 2 'lr: -1 is out of range' "${cnn[@]}" --lr -1
refuses 2 "lr: 'nan' is not a number" "${cnn[@]}" --lr nan
refuses 2 'lr needs a value' "${cnn[@]}" --lr
refuses 2 "steps: '1e3' is not a whole number" "${cnn[@]}" --steps 1e3
refuses 2 "schedule: 'straight' is not one of const" "${cnn[@]}" --schedule straight
refuses 2 'warmup .100 steps. leaves none of 100 steps' "${cnn[@]}" --schedule linear --steps 100 --warmup 100
refuses 2 'adam-eps: 0 is out of range' "${cnn[@]}" --optimizer adam --adam-eps 0
for betas in 0.9 0.9,1 0.9,0.99,0.5 , 0.9,much; do
	refuses 2 "adam-betas '$betas' are not two numbers" "${cnn[@]}" --optimizer adamw --adam-betas "$betas"
done
refuses 2 'adam-eps is of --optimizer adam and adamw; sgd' "${cnn[@]}" --adam-eps 1e-6
refuses 2 'final-lr is of --schedule cosine, poly and linear; --schedule const' "${cnn[@]}" --schedule const --final-lr 0.01
refuses 2 'step-every is of --schedule step; --schedule cosine' "${cnn[@]}" --schedule cosine --step-every 3
refuses 2 'poly-power is of --schedule poly; --schedule linear' "${cnn[@]}" --schedule linear --poly-power 2
refuses 2 'adam-betas is of --optimizer adam and adamw; sgd' "${cnn[@]}" --adam-betas 0.9,0.99
refuses 2 "no-decay: no parameter of cnn is named '\*LayerNorm\*'" "${cnn[@]}" --no-decay '*.bias,*LayerNorm*'
refuses 2 'no-decay: a pattern has 0 characters' "${cnn[@]}" --no-decay '*.bias,'
refuses 2 "skip-bad: 'all' is not a whole number" "${cnn[@]}" --skip-bad all
refuses 2 "json: 'maybe' is not yes or no" "${cnn[@]}" --json=maybe
refuses 2 "input '3x32' is not channels x height x width" "${cnn[@]}" --input 3x32
refuses 2 "freeze: no parameter of cnn is named 'nothing" "${cnn[@]}" --freeze 'nothing.*'
refuses 2 "cut '1' is not H:T" "${cnn[@]}" --cut 1
refuses 2 'unknown device "gpu"; devices: auto, cpu' "${cnn[@]}" --device gpu
refuses 2 "unknown level 'loud'; one of" "${cnn[@]}" --log all=loud
refuses 2 "unknown area 'nett'; one of" "${cnn[@]}" --log nett=info
refuses 2 "unexpected argument 'extra'" "${cnn[@]}" extra
refuses 2 'resume needs --checkpoint' "${cnn[@]}" --resume
refuses 2 'codec needs --server' "${cnn[@]}" --codec uniform
refuses 2 "insert: no insertion is named 'origin-x'; did you mean 'origin-" "${cnn[@]}" --insert origin-x
refuses 2 '\-\-insert-up: conv: k= is missing .keys: out=N,k=K,s=S' "${cnn[@]}" --insert-up conv:out=3
refuses 2 '\-\-insert-up: conv: a kernel of 99 does not fit .*; .*, which goes up there, is ' "${cnn[@]}" --insert-up conv:out=3,k=99,s=1
refuses 2 '\-\-insert-up: conv: start=pca is for patches side by side .* needs s=k, p=0, bn=0 and act=none' "${cnn[@]}" \
	--insert-up conv:out=3,k=3,s=2,start=pca
refuses 2 '\-\-insert-up: conv: out=299 is above the 288 numbers of a patch' "${cnn[@]}" --insert-up conv:out=299,k=3,s=3,start=pca
refuses 2 '\-\-insert-up: start=pca: it is for patches of at most 4096 numbers, because of these 4608' "${cnn[@]}" \
	--insert-up conv:out=3,k=12,s=12,start=pca
refuses 2 '\-\-insert: dim=sequence is for sequences' "${cnn[@]}" --insert linear:rank=2,dim=sequence
refuses 2 '\-\-insert: .*dim=sequence has a weight for each position, padding included: it needs --pad max' train --local --pad drop \
	--model roberta:layers=2,dim=8,heads=2 --data synthetic:tokens=16,vocab=50,classes=2 --insert linear:rank=2,dim=sequence
refuses 2 '\-\-insert-up: bottleneck: dim=99 is above the 32 channels there are; .*, which goes up there, is ' "${cnn[@]}" \
	--insert-up bottleneck:dim=99
refuses 2 '\-\-insert: bottleneck: dim: 0 is out of range' "${cnn[@]}" --insert bottleneck:dim=0
refuses 2 'init FILE is missing: the weights of the model that the layers are fitted to' insert-fit --model cnn --data synthetic \
	--insert linear:rank=2,dim=feature --save "$work/fit"
refuses 2 'are for a --server' "${cnn[@]}" --tls
refuses 2 'server and --local exclude' "${cnn[@]}" --server x:1
refuses 2 'model is missing' train --local --data synthetic
refuses 2 'data is missing' train --local --model cnn
refuses 2 "model cnn: 'classes' is not key=value" train --local --model cnn,classes --data synthetic
refuses 3 'ends in 2 outputs, but the data has 10' train --local --model cnn:classes=2 --data synthetic
refuses 3 'fasttext takes tokens' train --local --model fasttext --data synthetic:shape=3x32x32
refuses 3 'cnn takes images' train --local --model cnn --data synthetic:tokens=8

# Encoders, and texts.
encoder=roberta:layers=1,dim=8,heads=2,ffn=8
texts=(--data "tsv:$work/texts.tsv,text=2,label=1" --tokenizer "$source_dir/tests/golden/tokens/wordpiece" --batch 4 --steps 1)
for i in $(seq 20); do printf '%d\tsome words %d\n' $((i % 2)) $i; done >"$work/texts.tsv"
refuses 3 'roberta takes tokens .a row of numbers., not samples of 32x32x3' train --local --model $encoder --data synthetic:shape=3x32x32
refuses 3 'cnn takes images' train --local --model cnn "${texts[@]}"
refuses 3 'has positions for 62 tokens .its max=64., but texts have 128: give --data a max= of at most 62' train --local \
	--model $encoder,max=64 "${texts[@]/label=1/label=1,max=128}"
refuses 3 "word_embeddings' has 50 rows, but 'tokens' of the data has values up to 467; it needs 468 rows" train --local \
	--model $encoder,vocab=50 "${texts[@]}"
refuses 2 'model bert: dim=8 is not a multiple of heads=3' train --local --model bert:dim=8,heads=3 "${texts[@]}"
refuses 2 'cut type1 of roberta with 1 layer needs cuts=fine' train --local --model $encoder --cut type1 "${texts[@]}"
refuses 2 "cut 'type3' of roberta is neither H:T, two block numbers, nor one of f3l2, f2l2, type1, f3l1" train --local \
	--model $encoder --cut type3 "${texts[@]}"
refuses 2 "no parameter of roberta is named 'embeddings" train --local --model $encoder --freeze 'embeddings.*' "${texts[@]}"

# Masked words.
for i in $(seq 20); do echo "some words $i"; done >"$work/plain.txt"
printf '\n \n' >"$work/blank.txt"
plain=(--data "text:$work/plain.txt,max=16" "${texts[@]:2}")
refuses 2 'model cnn is no masked language model; roberta and bert can be one' pretrain --local --model cnn "${plain[@]}"
refuses 2 'pretrain takes plain text, --data text:FILE, not tsv' pretrain --local --model $encoder "${texts[@]}"
refuses 2 'is for masked language models: use .gpclient pretrain.' train --local --model $encoder "${plain[@]}"
refuses 2 'is for masked language models: use .gpclient pretrain.' pretrain --local --model $encoder,lm=0 "${plain[@]}"
refuses 2 'is a masked language model .lm=1., which takes --data text:FILE, not tsv' train --local --model $encoder,lm=1 "${texts[@]}"
refuses 2 'dataset text needs --tokenizer DIR' pretrain --local --model $encoder --data "text:$work/plain.txt"
refuses 2 'unknown flag --augment' pretrain --local --model $encoder "${plain[@]}" --augment
refuses 2 "part: '0/3' is not I/N" pretrain --local --model $encoder --data "text:$work/plain.txt,part=0/3" "${texts[@]:2}"
refuses 3 'cannot open .*no/such' pretrain --local --model $encoder --data text:no/such "${texts[@]:2}"
refuses 3 'cannot open .*no/such' pretrain --local --model $encoder --data "text:$work/plain.txt,val=no/such" "${texts[@]:2}"
refuses 3 'blank.txt: there is no text in it' pretrain --local --model $encoder --data "text:$work/blank.txt" "${texts[@]:2}"
refuses 3 'has 18 training samples, fewer than one batch of 19' pretrain --local --model $encoder "${plain[@]}" --batch 19 --chunks 1
refuses 2 'names one of roberta.embeddings.word_embeddings.weight and lm_head.decoder.weight, which share their values .tied weights.: name both' \
	pretrain --local --model $encoder --freeze 'roberta.*' "${plain[@]}"

# Texts of data.
data_refuses() { # STATUS PATTERN DATA
	refuses "$1" "$2" train --local --model cnn --data "$3"
}
data_refuses 2 'limit: 0 is out of range' fashion-mnist,limit=0
data_refuses 2 "no key 'limmit'; did you mean 'limit'" fashion-mnist,limmit=5
data_refuses 2 'classes: 1 is out of range .2..' synthetic:classes=1
data_refuses 2 "key 'classes' is given twice" synthetic:classes=2,classes=3
data_refuses 2 "shape: '32' is not CxHxW" synthetic:shape=32
data_refuses 2 "mean: '1/2' is not one number or three" synthetic:mean=1/2
data_refuses 2 "std: '0' is not one positive number" synthetic:std=0
data_refuses 3 'has 10 training samples, fewer than one batch' synthetic:samples=10
data_refuses 3 'pictures has no images of its own' pictures:size=32
data_refuses 2 'folder needs a folder: folder:DIR' folder
data_refuses 3 "no folder train in $work/nothing" "folder:$work/nothing"
data_refuses 3 'no train-images-idx3-ubyte' "idx:$work/nothing"
refuses 2 "unknown command 'chek'; did you mean 'check'. There are list, check" data chek
refuses 2 "check needs the data" data check
refuses 2 "unexpected argument 'b'" data check a b
refuses 2 "did you mean 'synthetic'" data check sinthetic

# Texts and values to predict.
printf '1\ta b\n2.5\tb c\nmany\tc d\n' >"$work/many.tsv"
printf '1\ta b\n2.5\tb c\n' >"$work/values.tsv"
tokenizer=(--tokenizer "$source_dir/tests/golden/tokens/wordpiece")
fasttext=(train --local --model fasttext "${tokenizer[@]}" --batch 2 --chunks 1 --steps 1 --data)
values="tsv:$work/values.tsv,val=$work/values.tsv,text=2,label=1"
refuses 3 'many.tsv:3: the value to predict: .many. is not a number' "${fasttext[@]}" "tsv:$work/many.tsv,val=$work/many.tsv,text=2,label=1,regression"
refuses 2 "regression: 'perhaps' is not yes or no" "${fasttext[@]}" "$values,regression=perhaps"
refuses 2 "'regresion' is not key=value" "${fasttext[@]}" "$values,regresion"
refuses 2 'bucket: -1 is out of range .0..1000000' "${fasttext[@]}" "$values,bucket=-1"
refuses 3 'fasttext:classes=3 ends in 3 outputs, but the data has a value to predict .regression.: that takes one output, classes=1' \
	train --local --model fasttext:classes=3 "${fasttext[@]:4}" "$values,regression"
refuses 3 'fasttext:classes=1 ends in 1 output, but the data has 2 classes' \
	train --local --model fasttext:classes=1 "${fasttext[@]:4}" "$values"
refuses 3 'no/such/stsb_train.tsv' "${fasttext[@]}" glue-stsb:no/such
refuses 2 'skip-bad leaves out pictures that cannot be read; --data tsv:.* has none' "${fasttext[@]}" "$values" --skip-bad 3
lines=2 refuses 3 'skip-bad does nothing for --data synthetic: its pictures have no files of their own' "${cnn[@]}" --skip-bad 3 \
	--steps 1 --log-json "$work/nothing" --batch 20000
refuses 2 'token-cache is for texts; --data synthetic has none' "${cnn[@]}" --token-cache "$work/tokens"
refuses 3 'tokenizer in ' "${fasttext[@]}" "$values" --tokenizer "$work/nothing"

# Files that are something else.
echo text >"$work/text.txt"
printf 'epochs = 2\nlearning = 3\n' >"$work/odd.conf"
refuses 3 'text.txt: 5 bytes are too few for a safetensors file' "${cnn[@]}" --init "$work/text.txt"
refuses 3 'not a file' "${cnn[@]}" --init "$work/nothing"
refuses 3 'not a regular file: it will not be replaced' "${cnn[@]}" --save "$work/nothing"
refuses 3 'cannot create JSON log' "${cnn[@]}" --log-json "$work/nothing"
refuses 3 'checkpoint: cannot open .*text.txt: Not a directory' "${cnn[@]}" --checkpoint "$work/text.txt"
refuses 3 "odd.conf:2: unknown key 'learning'" "${cnn[@]}" --config "$work/odd.conf"
refuses 3 "text.txt:1: expected 'key = value'" "${cnn[@]}" --config "$work/text.txt"
refuses 3 'cannot open config file no/such' "${cnn[@]}" --config no/such
refuses 2 "top: 0 is out of range" infer --local --model cnn --data synthetic --top 0 x.png
refuses 2 "unknown flag --epochs" eval --local --model cnn --data synthetic --epochs 2

# Codecs and models that are looked at alone.
refuses 2 'compare needs --in' codec compare
refuses 2 "link 'fast' is not RATE or RATE,DELAY" codec compare --in x --link fast fp16
refuses 2 "did you mean 'fp16'" codec compare --in x fp17
refuses 3 'cannot open no/such' codec compare --in no/such fp16
refuses 2 'show needs the name of a model' model show
refuses 2 'leaves a part of cnn empty' model show cnn --cut 5:1
refuses 2 "rate: 'fast' is not a rate such as 100mbit" link --listen 127.0.0.1:0 --to 127.0.0.1:1 --rate fast

# Addresses, certificates, tokens.
remote=(train --model cnn --data synthetic --server)
refuses 2 "'localhost' has no port: write HOST:PORT" "${remote[@]}" localhost
refuses 2 'the port must be a number' "${remote[@]}" localhost:99999
refuses 2 "':4400' has no host" "${remote[@]}" :4400
refuses 2 'connect-timeout: 0 is out of range' "${remote[@]}" localhost:1 --connect-timeout 0
remote+=(localhost:1)
tls=(--tls-ca "$work/certs/ca.pem")
refuses 2 'tls-cert and --tls-key belong together' "${remote[@]}" --tls-key "$work/certs/client.key"
refuses 3 'CA .*text.txt: no certificate' "${remote[@]}" --tls-ca "$work/text.txt"
refuses 3 'key .*client.pem: there is none in it' "${remote[@]}" "${tls[@]}" --tls-cert "$work/certs/client.pem" \
	--tls-key "$work/certs/client.pem"
refuses 3 'certificate .*client.key: there is none in it' "${remote[@]}" "${tls[@]}" --tls-cert "$work/certs/client.key" \
	--tls-key "$work/certs/client.key"
refuses 3 "tokens:3: a second line of NAME TOKEN: this is a server's file" "${remote[@]}" --token-file "$work/certs/tokens"
refuses 3 'there is no token in it' "${remote[@]}" --token-file /dev/null
refuses 3 'the token has 4 characters, at least 16' "${remote[@]}" --token-file "$work/text.txt"

server_refuses 2 'lisen; did you mean --listen' --lisen 127.0.0.1:0
server_refuses 2 "'nonsense' has no port" --listen nonsense
server_refuses 2 'unknown device "gpu"' --device gpu
server_refuses 2 'max-sessions: 0 is out of range' --max-sessions 0
server_refuses 2 "session-memory: 'lots' is not a size" --session-memory lots
server_refuses 2 "unexpected argument 'extra'" extra
server_refuses 2 'tls-cert and --tls-key belong together' --tls-cert "$work/certs/server.pem"
server_refuses 2 'tls-client-ca needs' --tls-client-ca "$work/certs/ca.pem"
server_refuses 3 'does not belong to certificate' --tls-cert "$work/certs/server.pem" --tls-key "$work/certs/client.key"
server_refuses 3 'token:1: a line is NAME TOKEN' --tokens "$work/certs/token"
server_refuses 3 'state-dir: cannot open .*text.txt: Not a directory' --state-dir "$work/text.txt"
server_refuses 3 "odd.conf:1: unknown key 'epochs'" --config "$work/odd.conf"

mkdir "$work/cifar" && head -c 5000 /dev/urandom >"$work/cifar/data_batch_1.bin"
refuses 3 'data_batch_1.bin' train --local --model cnn --data "cifar10:$work/cifar"
mkdir "$work/idx" && printf '\0\0\10\3\0\0\0\12' >"$work/idx/train-images-idx3-ubyte"
refuses 3 'train-(images|labels)' train --local --model cnn --data "idx:$work/idx"

# An instruction set that is none is said, once, and the best is used.
GP_SIMD=bogus "$build/gpclient" codec list >/dev/null 2>"$work/err" || fail "GP_SIMD=bogus"
equal "GP_SIMD=bogus" "$(grep -c 'GP_SIMD=bogus is none of' "$work/err") $(wc -l <"$work/err")" "1 1"
GP_SIMD=portable "$build/gpclient" codec list 2>&1 >/dev/null | grep -q . && fail "GP_SIMD=portable is one"

# Weights of another shape: the tensor and both shapes are named.
train "$work/save.json" --local --model cnn "${synthetic[@]}" --save "$work/cnn10.safetensors" || fail "saving weights"
refuses 3 'file has .*model wants' train --local --model cnn:classes=12 "${synthetic[@]}" --init "$work/cnn10.safetensors"
head -c 1000 "$work/cnn10.safetensors" >"$work/short.safetensors"
refuses 3 'short.safetensors' train --local --model cnn "${synthetic[@]}" --init "$work/short.safetensors"
refuses 3 'no/such/dir' train --local --model cnn "${synthetic[@]}" --no-progress --save "$work/no/such/dir/w.safetensors"
mkfifo "$work/fifo"
refuses 3 'save.*not a regular file' train --local --model cnn "${synthetic[@]}" --no-progress --save "$work/fifo"
refuses 3 'out.*not a regular file' capture --model cnn --cut 1:2 "${synthetic[@]:0:4}" --out "$work/fifo"
[ -p "$work/fifo" ] || fail "a FIFO was replaced"

refuses 3 'classifier.weight: file has 10x.*classifier.bias' train --local --model cnn:classes=12 "${synthetic[@]}" \
	--init "$work/cnn10.safetensors"
refuses 2 'init-skip.*--init' train --local --model cnn "${synthetic[@]}" --init-skip 'classifier.*'
refuses 3 "'clasifier.\*' matches no tensor" train --local --model cnn "${synthetic[@]}" \
	--init "$work/cnn10.safetensors" --init-skip 'clasifier.*'

# A log that cannot be written ends in a whole line and an exit status of 1; the training itself goes on to its end.
status=0
(
	trap '' XFSZ
	ulimit -f 4
	exec "$build/gpclient" train --local --model cnn "${synthetic[@]}" --steps 20 --no-progress --no-eval \
		--log-json "$work/cut.jsonl"
) 2>"$work/err" || status=$?
equal "a full disk under --log-json: status" $status 1
equal "a full disk under --log-json: lines about it" "$(grep -c 'cannot write JSON log .*cut.jsonl' "$work/err")" 2
equal "a full disk under --log-json: all steps done" "$(grep -c '^20 steps' "$work/err")" 1
equal "a full disk under --log-json: half lines" "$(grep -vcE '^\{"time":.*"event":"[a-z_]+".*\}$' "$work/cut.jsonl")" 0
[ "$(tail -c 1 "$work/cut.jsonl" | od -An -tx1)" = " 0a" ] || fail "the JSON log ends in half a line"

# eval and infer.
weights=(--model cnn --data synthetic:shape=3x32x32,classes=10 --init "$work/cnn10.safetensors")
refuses 2 '\-\-init FILE is missing' eval --local --model cnn --data synthetic
refuses 2 'server' eval "${weights[@]}"
refuses 2 "cut '1:9'" eval --local "${weights[@]}" --cut 1:9
refuses 2 "lr" eval --local "${weights[@]}" --lr 1
refuses 2 'codec.*--server' eval --local "${weights[@]}" --codec fp16
refuses 3 'no samples of its own' eval --local --model cnn --data pictures:size=32,classes=10 --init "$work/cnn10.safetensors"
refuses 4 'refused' eval --server 127.0.0.1:1 "${weights[@]}"
refuses 2 '\-\-init FILE is missing' infer --local --model cnn --data synthetic picture.png
refuses 2 'no pictures' infer --local "${weights[@]}"
refuses 3 'no/such.png' infer --local "${weights[@]}" no/such.png
echo "no picture" >"$work/text.png"
lines=2 refuses 3 'text.png: neither JPEG nor PNG' infer --local "${weights[@]}" "$work/text.png"
lines=2 refuses 3 'text.png: neither JPEG nor PNG' infer "${server[@]}" "${weights[@]}" "$work/text.png"
mkdir "$work/empty"
refuses 3 'no \*.jpg.*empty' infer --local "${weights[@]}" "$work/empty"
printf 'one\ntwo\n' >"$work/labels.txt"
refuses 3 'labels.txt has 2 labels.*10 outputs' infer --local "${weights[@]}" --labels "$work/labels.txt" "$work/text.png"

# Lines of text.
train "$work/save.json" "${fasttext[@]:1}" "$values,max=8" --save "$work/texts.safetensors" || fail "saving weights of texts"
text=(infer --local --init "$work/texts.safetensors")
refuses 2 'tokenizer DIR is missing, which makes tokens of lines of text; or --data' "${text[@]}" "$work/labels.txt"
refuses 3 'no tokenizer in' "${text[@]}" --tokenizer "$work/nothing" "$work/labels.txt"
refuses 3 'cannot open no/such.txt' "${text[@]}" "${tokenizer[@]}" no/such.txt
refuses 2 'token-cache keeps the tokens of --data; those of lines of text are not kept' "${text[@]}" "${tokenizer[@]}" \
	--token-cache "$work/tokens" "$work/labels.txt"
refuses 3 'there is no text in standard input' "${text[@]}" "${tokenizer[@]}" </dev/null
printf 'a\nb\t\n' >"$work/half.txt"
printf 'a\0b\n' >"$work/lines.bin"
status=0
"$build/gpclient" "${text[@]}" "${tokenizer[@]}" "$work/half.txt" >"$work/out" 2>"$work/err" || status=$?
equal "a bad line is told, the others are answered" \
	"$status $(grep -c 'half.txt:1: ' "$work/out") $(grep -c 'half.txt:2: nothing stands behind the tab' "$work/err") $(wc -l <"$work/err")" \
	"3 1 1 2"
equal "and the last line says how many" "$(grep -c '1 of 2 lines cannot be read' "$work/err")" 1
refuses 3 'lines.bin:1: a byte of value 0, which no text has' "${text[@]}" "${tokenizer[@]}" "$work/lines.bin"
refuses 2 'texts.safetensors has a model of texts, and --data .* has pictures; give --tokenizer' "${text[@]}" --data pictures:size=8,classes=2
refuses 2 'no pictures: .*--tokenizer is for a model of texts' infer --local "${weights[@]}" "${tokenizer[@]}"
refuses 2 '\-\-input is a size of pictures' "${text[@]}" "${tokenizer[@]}" --input 3x8x8 "$work/labels.txt"
lines=2 refuses 3 'gpclient infer: -:1: a text of more than 1048576 bytes' "${text[@]}" "${tokenizer[@]}" < <(head -c 2000000 /dev/zero | tr '\0' a)
refuses 3 'has 468 rows, but|vocab|values up to' "${text[@]}" --tokenizer "$source_dir/tests/golden/tokens/bpe" "$work/labels.txt"

# A server that hangs up, which is forgiven three times, and one that is no server of ours.
python=$(command -v perl)
"$python" -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1", LocalPort => 0) or die;
	print $s->sockport, "\n"; STDOUT->flush; for (1..5) { $c = $s->accept; if ($_ == 5) { print $c "SSH-2.0-OpenSSH_9.2 hello world\r\n"; sleep 1 } close $c }' >"$work/hangup.port" &
await test -s "$work/hangup.port"
refuses 4 'closed the connection|reset' train --server "127.0.0.1:$(cat "$work/hangup.port")" --model cnn "${synthetic[@]}"
refuses 4 'not|magic|gpsplit' train --server "127.0.0.1:$(cat "$work/hangup.port")" --model cnn "${synthetic[@]}"

# The server's own command line.
status=0
"$build/gpserverd" --listen 0.0.0.0:0 >"$work/out" 2>"$work/err" || status=$?
equal "gpserverd refuses an open address without --insecure" "$status $(wc -l <"$work/err")" "2 1"
status=0
"$build/gpserverd" --listen "127.0.0.1:$server_port" >"$work/out" 2>"$work/err" || status=$?
equal "gpserverd names an address in use" "$(grep -c 'listens there already' "$work/err")" 1

# Limits that limit nothing are told; a processor's threads are.
stop_server
start_server --device cpu --threads 2 --session-device-memory 1G
await grep -q 'listening on' "$work/server.log"
equal "a limit of GPUs with no GPU is told" "$(grep -c 'session-device-memory is of GPUs and limits nothing here: cpu has' "$work/server.log")" 1
equal "threads of the CPU are told" "$(grep -c 'device cpu, 2 threads)' "$work/server.log")" 1
"$build/gpserverd" --help >"$work/out" || fail "gpserverd --help"
equal "--help tells how GPUs count, and of how many threads of codecs" \
	"$(tr -s ' \n' ' ' <"$work/out" | grep -c 'CUDA_DEVICE_ORDER=PCI_BUS_ID.*for each GPU and 16 at most')" 1

# The server's processor lacks bf16, whatever this side's has.
stop_server
GP_SIMD=portable start_server
refuses 4 'cannot compute in bf16' train --server "127.0.0.1:$server_port" --model cnn "${synthetic[@]}" --precision bf16

# Slips of the second kind: found by trying the program as its pages tell it.
refuses 2 "no model is named 'CNN'; did you mean 'cnn'" train --local --model CNN --data synthetic
data_refuses 2 "did you mean 'fashion-mnist'" Fashion-MNIST
data_refuses 2 "'/srv/flowers' is a path, .*: folder:/srv/flowers for pictures" /srv/flowers
refuses 2 "'flowers/train' is a path" data check flowers/train
refuses 2 "write HOST:PORT alone, without 'http://'" train --server http://localhost:4400 --model cnn --data synthetic
refuses 2 "'4400' has no host: write HOST:PORT" train --server 4400 --model cnn --data synthetic
refuses 2 '\-\-checkpoint needs the name of a folder' "${cnn[@]}" --checkpoint ""
refuses 2 '\-\-log-json needs the name of a file' "${cnn[@]}" --log-json ""
refuses 2 '\-\-save needs the name of a file' "${cnn[@]}" --save ""
refuses 2 'character 8 is a blank' train --server localhost:1 --model cnn "${synthetic[@]}" --codec "uniform bits=8"
refuses 2 'uniform.*not key=value' train --server localhost:1 --model cnn "${synthetic[@]}" --codec uniform:8
refuses 2 "lr: '1,5' is not a number" "${cnn[@]}" --lr 1,5
refuses 2 'steps: -5 is out of range' "${cnn[@]}" --steps -5
refuses 2 'epochs: 0 is out of range' "${cnn[@]}" --epochs 0
refuses 2 'warmup .5 steps. leaves none of 1 steps' train --local --model cnn "${synthetic[@]}" --warmup 5
refuses 2 'size: 0 is out of range .8..4096' "${cnn[@]}" --data folder:x,size=0
refuses 2 "link '100' lacks a unit" codec compare --in x --link 100 fp16
refuses 2 "link '100mbit,20' lacks a unit" codec compare --in x --link 100mbit,20 fp16
refuses 2 "'100mb' is not a rate" link --listen 127.0.0.1:0 --to 127.0.0.1:1 --rate 100mb
refuses 2 'out FILE is missing' model export x
refuses 2 'export needs a checkpoint' model export --out x
refuses 2 "server and --state-dir exclude" model export x --out y --server localhost:1 --state-dir z
refuses 3 'no folder .*nothing/train; give one with train/CLASS' "${cnn[@]}" --data "folder:$work/nothing/train"
refuses 3 'has a model of 10 outputs, but --data synthetic:classes=12 has 12 classes' eval --local --init "$work/cnn10.safetensors" \
	--data synthetic:classes=12
mkdir -p "$work/classes/daisy"
refuses 3 'no \*.jpg.*in .*classes .folders in it are not searched' infer --local "${weights[@]}" "$work/classes"
refuses 3 'neither vocab.json .* nor vocab.txt' tokens --tokenizer "$work/nothing" text
server_refuses 2 'lonely. has no port' --device gpu --listen lonely # before devices are looked for
server_refuses 2 'anyone who reaches this address' --device gpu --listen 0.0.0.0:0
server_refuses 2 'anyone could use the server' --listen 0.0.0.0:0 --tls-cert "$work/certs/server.pem" --tls-key "$work/certs/server.key"
server_refuses 3 "sessions: 'two' is not a whole number" --limits <(echo 'token:x sessions=two')
server_refuses 2 'threads: 5000 is out of range' --threads 5000
server_refuses 3 'state-dir: .*certs holds other files' --state-dir "$work/certs"

# A place for the port that is none ends the server, which listens by then.
status=0
timeout 60 "$build/gpserverd" --listen 127.0.0.1:0 --port-file "$work/no/such/port" >"$work/out" 2>"$work/err" </dev/null || status=$?
equal "a port file that cannot be made" "$status $(grep -c 'port-file: cannot make .*no/such/port: No such' "$work/err")" "3 1"

# Who has read enough has: no word about it.
"$build/gpclient" train --help 2>"$work/err" | head -1 >"$work/out"
for list in "train --help" "model show resnet56 --layers"; do
	# shellcheck disable=SC2086
	"$build/gpclient" $list 2>"$work/err" | true
	equal "gpclient $list to a reader that has gone: lines about it" "$(wc -l <"$work/err")" 0
done

[ $cases -ge 180 ] && echo "ok: $cases mistakes" || fail "only $cases mistakes were tried"
left=$(find "$work" -name '*.tmp*' -o -name '*.safetensors.*' | wc -l)
equal "no partial output file is left" "$left" 0
stop_server
finish
