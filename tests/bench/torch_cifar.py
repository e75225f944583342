#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torch_cifar.py DATA [OPTION...]: CIFAR-10 from scratch in PyTorch, step by step what gpclient does.

Starting weights, order of images, and crops and flips with --augment are the ones that `gpclient train --seed N` draws
(tests/tools/draws.py). --double computes in float64: what either side would get without rounding. --json OUT gets the loss
of every step and the accuracies. Used by cifar_curve.sh.
"""
import argparse
import json
import math
import os
import sys
import time

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools"))
import draws  # noqa: E402
import nets  # noqa: E402

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
SHIFT = 4


def read(folder, names):
    """(images (N,32,32,3) uint8, labels) of the files that are there."""
    paths = [os.path.join(folder, n) for n in names]
    raw = numpy.concatenate([numpy.fromfile(p, dtype=numpy.uint8) for p in paths if os.path.exists(p)])
    raw = raw.reshape(-1, 3073)
    return raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), raw[:, 0].astype(int)


def build(name, seed):
    if name == "cnn":
        return nets.cnn(seed, width=32, channels=3)
    return nets.mobilenetv2(seed, width=1.0) if name == "mobilenetv2" else nets.resnet20(seed)


def augmented(image, seed, epoch, i):
    """client/data/data_transform.c, place: mirrored, then moved; black outside."""
    dy, dx, mirror = draws.shift_and_mirror(seed, epoch, i, SHIFT)
    padded = numpy.pad(image[:, ::-1] if mirror else image, ((SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)))
    return padded[SHIFT + dy:SHIFT + dy + 32, SHIFT + dx:SHIFT + dx + 32]


def tensor(images, dtype):
    x = (images.astype("f8") / 255 - numpy.array(MEAN)) / numpy.array(STD)
    return torch.from_numpy(x).to(dtype).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


def rate(args, step, total):
    """common/graph/optim.c, gp_schedule_lr."""
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    if args.schedule == "const":
        return args.lr
    return 0.5 * args.lr * (1 + math.cos(math.pi * (step - args.warmup) / (total - args.warmup)))


def optimizer(args, model):
    if args.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=args.weight_decay)
    kind = torch.optim.Adam if args.optimizer == "adam" else torch.optim.AdamW
    return kind(model.parameters(), args.lr, weight_decay=args.weight_decay)


def train_step(model, x, labels, chunks):
    total = 0.0
    for cx, cl in zip(x.chunk(chunks), labels.chunk(chunks)):
        loss = torch.nn.functional.cross_entropy(model(cx), cl) / chunks
        loss.backward()
        total += loss.item()
    return total


def accuracy(model, images, labels, dtype):
    model.eval()
    with torch.no_grad():
        right = sum(int((model(tensor(images[at:at + 250], dtype)).argmax(1).numpy() == labels[at:at + 250]).sum())
                    for at in range(0, len(labels), 250))
    model.train()
    return right / len(labels)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("data")
    p.add_argument("--model", choices=("resnet20", "cnn", "mobilenetv2"), default="resnet20")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--chunks", type=int, default=1)
    p.add_argument("--steps", type=int, default=0)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="sgd")
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--weight-decay", type=float, default=1e-4)
    p.add_argument("--schedule", choices=("const", "cosine"), default="const")
    p.add_argument("--warmup", type=int, default=0)
    p.add_argument("--augment", action="store_true")
    p.add_argument("--double", action="store_true")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--json")
    return p.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(not args.double)
    dtype = torch.float64 if args.double else torch.float32
    model = build(args.model, args.seed).to(dtype).to(memory_format=torch.channels_last).train()
    images, labels = read(args.data, [f"data_batch_{i}.bin" for i in range(1, 6)])
    per_epoch = len(labels) // args.batch
    total = args.steps or args.epochs * per_epoch
    opt = optimizer(args, model)
    losses, reached, begin = [], [], time.time()
    for step, (epoch, picked) in enumerate(draws.batches(args.seed, len(labels), args.batch, total)):
        opt.param_groups[0]["lr"] = rate(args, step, total)
        opt.zero_grad(set_to_none=True)
        batch = [augmented(images[i], args.seed, epoch, i) if args.augment else images[i] for i in picked]
        losses.append(train_step(model, tensor(numpy.stack(batch), dtype), torch.from_numpy(labels[picked]), args.chunks))
        opt.step()
        if (step + 1) % per_epoch == 0 and not args.steps:
            reached.append(accuracy(model, *read(args.data, ["test_batch.bin"]), dtype))
            print(f"epoch {epoch + 1}: loss {numpy.mean(losses[-per_epoch:]):.4f}, validation accuracy "
                  f"{100 * reached[-1]:.2f} %, {time.time() - begin:.0f} s", flush=True)
    if args.json:
        with open(args.json, "w", encoding="ascii") as f:
            json.dump({"val_acc": reached[-1] if reached else None, "epochs": reached, "losses": losses}, f)


main()
