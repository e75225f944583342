#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Pictures that cannot be read: data check lists them, a training ends before its
# first step or leaves them out, the same ones whatever the threads, and infer
# goes on. Input that is suspicious is told once.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

# Eight pictures of two classes in each split, and a few that are damaged.
mkdir "$work/made"
"$build/tests/export_pictures" synthetic:shape=3x32x32,classes=2,samples=40 "$work/made" || fail "no pictures"
for split in train val; do
	for class in 0 1; do
		mkdir -p "$work/d/$split/c$class"
		cp "$work/made/"*-$class.png "$work/d/$split/c$class/"
	done
done
cd "$work" || exit 1
head -c 200 d/train/c0/0002-0.png >d/train/c0/cut.png
echo 'no picture' >d/train/c1/text.jpg
{ # a checksum inside: only decoding finds it
	head -c 300 d/train/c1/0003-1.png
	printf 'damaged'
	tail -c +308 d/train/c1/0003-1.png
} >d/train/c1/zz.png
head -c -2 made/first.jpg >d/val/c0/short.jpg

runs() { # STATUS OUT COMMAND ARG...: stdout into OUT, stderr into OUT.log
	local want=$1 out=$2 status=0
	shift 2
	"$build/gpclient" "$@" >"$out" 2>"$out.log" || status=$?
	[ $status -eq "$want" ] && echo "ok: gpclient ${*:1:2}: status $status" ||
		fail "gpclient $*: status $status (want $want): $(cat "$out.log")"
}

# ---- data check ----

for threads in 1 4; do
	runs 3 check$threads.txt data check folder:d --threads $threads --no-progress
done
equal "data check with 1 and 4 threads" "$(cksum <check1.txt)" "$(cksum <check4.txt)"
equal "bad files are listed" "$(grep -cE '^(training|validation): d/.*(cut.png: |text.jpg: |zz.png: |short.jpg: )' check1.txt)" 4
equal "a summary of each split" "$(grep -cE '^(training: 11 samples, 11|validation: 9 samples, 9) files read, (3|1) bad' check1.txt)" 2
equal "a last line" "$(cat check1.txt.log)" "gpclient data: folder:d: 4 faults in all"
runs 3 check.json data check folder:d --json --no-progress
ln -s d $'d\xff'
runs 3 latin.json data check folder:$'d\xff' --json --no-progress
equal "data check --json of a folder whose name is no UTF-8" "$(json_flat latin.json | grep -c 'bad.*file=')" 4
equal "data check --json" "$(json_flat check.json | grep -c 'bad.*file=')" 4
mkdir cifar && head -c 6146 /dev/zero >cifar/data_batch_1.bin && head -c 3073 /dev/zero >cifar/test_batch.bin
runs 0 cifar.txt data check cifar10:cifar --no-progress
equal "a good dataset" "$(tail -1 cifar.txt)" "validation: 1 sample, 1 file read, 0 bad"
equal "of one class: told" "$(grep -c 'all 2 training samples have the same label' cifar.txt.log)" 1
head -c 100 /dev/zero >cifar/data_batch_2.bin
runs 3 cifar.txt data check cifar10:cifar --no-progress
grep -q 'data_batch_2.bin has 100 bytes' cifar.txt || fail "data check of cifar10: $(cat cifar.txt)"

printf 'l\tt\n1\ta b\n0\t\n1\tx\ty\n0\t  \n1\tgood\n0\tc\n' >table.tsv
tokens=(--tokenizer "$source_dir/tests/golden/tokens/wordpiece" --no-progress)
runs 3 table.txt data check tsv:table.tsv,text=t,label=l "${tokens[@]}"
equal "every bad row of a table is listed, once" "$(grep -c '^training: table.tsv:[345]: ' table.txt) $(wc -l <table.txt)" "3 4"
{ cat table.tsv && for ((i = 0; i < 300; i++)); do printf '1\t\n'; done; } >long.tsv
runs 3 table.txt data check tsv:long.tsv,text=t,label=l "${tokens[@]}"
equal "no more than a hundred" "$(grep -c 'long.tsv:[0-9]*: ' table.txt) $(grep -c '^training: ... and 203 more' table.txt) $(tail -1 table.txt)" \
	"100 1 training: 0 samples, 1 file read, 303 bad"
printf '0\tx\n1\ty\n' >train.tsv && printf '2\tx\n1\ty\n\xff\tz\n3\tx\n' >val.tsv
runs 3 table.txt data check tsv:train.tsv,text=2,label=1,val=val.tsv "${tokens[@]}"
equal "labels of the other file alone" "$(grep -c '^validation: val.tsv:[134]: the label ' table.txt) $(grep -c . table.txt)" "3 5"
for ((i = 1; i <= 60; i++)); do printf '%s\tx\n' "$((i % 10 == 0 ? i : i % 2))"; done >shared.tsv
runs 3 table.txt data check tsv:shared.tsv,text=2,label=1 "${tokens[@]}"
equal "labels that only the rows for validation have" "$(grep -c 'shared.tsv:[1-6]0: the label' table.txt) $(grep -c . table.txt)" "6 7"
printf '1\tx\n0\tb\xc2\x9bm\n\xc2\x9b2J\ty\n' >control.tsv
runs 3 table.txt data check tsv:train.tsv,text=2,label=1,val=control.tsv "${tokens[@]}"
equal "no control character reaches a terminal" "$(grep -c $'\xc2\x9b' table.txt) $(grep -c 'control.tsv:3: the label' table.txt)" "0 1"
mkdir glue && printf 'sentence1\tsentence2\tscore\na\tb\t1\na\tb\t7\na\tb\tx\n' >glue/stsb_train.tsv
cp glue/stsb_train.tsv glue/stsb_dev.tsv
runs 3 table.txt data check glue-stsb:glue "${tokens[@]}"
equal "labels that are no values" "$(grep -c 'glue/stsb_train.tsv:[34]: the value to predict' table.txt)" 2
printf 'label\ttext\n1\tx\n0\ty\n1\tz\n' >names.tsv
runs 0 table.txt data check tsv:names.tsv,text=2,label=1,val=names.tsv "${tokens[@]}"
equal "a first line that looks like names: told" "$(grep -c "only the first line has the label 'label'.*header=1" table.txt.log)" 1

# ---- train and eval ----

flags=(--local --model cnn --data folder:d,size=32 --batch 4 --chunks 2 --steps 4 --schedule const --no-progress --json)
runs 3 no.json train "${flags[@]}"
equal "ends before the first step" "$(wc -l <no.json.log) $(grep -c 'cut.png.*by their headers 2 of 11 training' no.json.log)" "1 1"
runs 3 no.json train "${flags[@]}" --skip-bad 3
grep -q 'short.jpg.*with it 4 pictures are bad, more than the 3 of --skip-bad' no.json.log || fail "$(cat no.json.log)"
runs 3 no.json train "${flags[@]}" --skip-bad 2
for threads in 1 3; do
	runs 0 skip$threads.json train "${flags[@]}" --skip-bad 4 --threads $threads --checkpoint run$threads
	equal "each told once" "$(grep -c 'left out: d/' skip$threads.json.log)" 4
	equal "counted" "$(json_get skip$threads.json samples_left_out)" 4
done
runs 0 good.json train "${flags[@]}" --skip-bad 4 --threads 1 --steps 6
runs 0 resumed.json train "${flags[@]}" --skip-bad 9 --threads 1 --steps 6 --checkpoint run1 --resume
equal "a run that goes on leaves out the same" "$(json_get resumed.json param_sha256)" "$(json_get good.json param_sha256)"
mv d/train/c0/cut.png d/train/c1/text.jpg d/train/c1/zz.png "$work/"
mv d/val/c0/short.jpg "$work/"
runs 0 clean.json train "${flags[@]}" --threads 1
equal "left out is as if not there" "$(json_get skip1.json param_sha256)" "$(json_get clean.json param_sha256)"
equal "nothing left out" "$(json_get clean.json samples_left_out)" 0
runs 3 no.json train "${flags[@]}" --threads 1 --steps 6 --checkpoint run1 --resume
grep -q "data is 'folder:d,size=32', but the run has it at 'folder:d,size=32 without 3 pictures" no.json.log ||
	fail "resumed with other pictures: $(cat no.json.log)"
cp made/first.jpg d/val/c0/ok.jpg
mv short.jpg d/val/c0/

runs 0 save.json train "${flags[@]}" --no-eval --save w.safetensors
weights=(--model cnn --data folder:d,size=32 --init w.safetensors --no-progress)
runs 3 eval.json eval --local "${weights[@]}" --json
runs 0 eval.json eval --local "${weights[@]}" --json --skip-bad 1
equal "eval leaves one out" "$(json_get eval.json samples_left_out) $(json_get eval.json samples)" "1 9"

# The training pictures of --recalibrate count, too.
again=(eval --local "${flags[@]:3:6}" --init norm.safetensors --model resnet20:width=0.25 --recalibrate 1 --no-progress --json)
runs 0 norm.json train "${flags[@]}" --model resnet20:width=0.25 --steps 1 --no-eval --save norm.safetensors
cp cut.png d/train/c0/
runs 3 again.json "${again[@]}"
grep -q 'cut.png.*training' again.json.log || fail "a bad training picture: $(cat again.json.log)"
runs 3 again.json "${again[@]}" --skip-bad 1
runs 0 again.json "${again[@]}" --skip-bad 2
equal "eval --recalibrate leaves two out" "$(json_get again.json samples_left_out)" 2
rm d/train/c0/cut.png

# ---- infer ----

start_server --threads 1
cp cut.png d/val/c0/
for where in "--local" "--server 127.0.0.1:$server_port"; do
	# shellcheck disable=SC2086
	runs 3 infer.jsonl infer $where "${weights[@]:0:6}" --json --batch 4 d/val/c0
	equal "infer $where: a line for each" "$(wc -l <infer.jsonl) $(grep -c '"labels"' infer.jsonl) $(grep -c '"error"' infer.jsonl)" "7 5 2"
	equal "its last line" "$(cat infer.jsonl.log)" "gpclient infer: 2 of 7 pictures cannot be read"
done
runs 3 infer.txt infer --local "${weights[@]:0:6}" d/val/c0
equal "infer: labels on stdout, faults on stderr" "$(wc -l <infer.txt) $(wc -l <infer.txt.log)" "5 3"
stop_server

# ---- suspicious ----

told() { # WHAT TIMES PATTERN FLAG...
	local what=$1 times=$2 pattern=$3
	shift 3
	runs 0 told.json train --local --steps 1 --no-progress --batch 4 "$@"
	equal "$what" "$(grep -cE "$pattern" told.json.log)" "$times"
}
rm -r d/train/c1 d/val
mkdir -p d/val && cp -r d/train/c0 d/val/
cnn=(--model cnn --chunks 2)
scale='mean= and std= are of pixels between 0 and 1'
told "one class" 1 'all 4 training samples have the same label' "${cnn[@]}" --data folder:d,size=32
told "a mean of 0 to 255" 1 "$scale" "${cnn[@]}" --data synthetic:shape=3x32x32,mean=127.5,std=127.5,samples=64
told "a mean of 0 to 1" 0 "$scale" "${cnn[@]}" --data synthetic:shape=3x32x32,mean=0.5,std=0.5,samples=64
bn=(--model mobilenetv2:width=0.1,stem=cifar --data synthetic:shape=3x32x32,samples=64)
told "chunks of one sample with batch norm" 1 'batch norm takes its statistics from chunks of 1 sample,' "${bn[@]}" --chunks 4
told "chunks of two" 1 'chunks of 2 samples, which is less than the 16' "${bn[@]}" --chunks 2
told "chunks of one sample, batch norm frozen" 0 warn "${bn[@]}" --chunks 4 --freeze 'features.*'
told "chunks of one sample without batch norm" 0 warn --model fasttext --chunks 4 --data synthetic:tokens=8,samples=64
finish
