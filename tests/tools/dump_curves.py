#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_curves.py [FOLDER]: the losses of 100 training steps in PyTorch, for tests/e2e/loss_curve.sh.

Starting values, images and their order are the ones that gpclient draws (draws.py, nets.py). Everything is computed in
float64, so that the differences the test sees are gpclient's. Writes FOLDER/NAME.txt (default tests/golden/curves): the
flags of gpclient train on the first line, then a loss per line.

The rates are small on purpose: a difference in the last bit doubles every few steps, faster at higher rates, and the test
should see errors of ours, not of float32. MobileNetV2 is not here because its losses spread by 1e-3 within ten steps at
any rate, PyTorch's as well.
"""
import math
import os
import sys

import numpy
import torch

import draws
import nets

SEED, STEPS, BATCH, CHUNKS, SAMPLES, NOISE, SIDE = 3, 100, 32, 2, 400, 2, 32


def constant(lr):
    return lambda step: lr


def cosine(lr, warmup):
    """common/graph/optim.c, gp_schedule_lr"""
    def rate(step):
        if step < warmup:
            return lr * (step + 1) / warmup
        return 0.5 * lr * (1 + math.cos(math.pi * (step - warmup) / (STEPS - warmup)))
    return rate


def record(name, spec, model, optimizer, rate, flags):
    model = model.double().train()
    opt = optimizer(model.parameters())
    images, labels = draws.synthetic((SIDE, SIDE, 3), 10, SAMPLES, NOISE)
    x_all = torch.from_numpy((images.astype("f8") / 255 - 0.5) / 0.25).permute(0, 3, 1, 2)
    losses = []
    for step, (_, picked) in enumerate(draws.batches(SEED, SAMPLES, BATCH, STEPS)):
        opt.param_groups[0]["lr"] = rate(step)
        opt.zero_grad()
        losses.append(0.0)
        for x, l in zip(x_all[picked].chunk(CHUNKS), torch.from_numpy(labels[picked]).chunk(CHUNKS)):
            loss = torch.nn.functional.cross_entropy(model(x), l) / CHUNKS
            loss.backward()
            losses[-1] += loss.item()
        opt.step()
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/curves"
    data = f"synthetic:shape=3x{SIDE}x{SIDE},classes=10,samples={SAMPLES},noise={NOISE}"
    with open(os.path.join(folder, name + ".txt"), "w", encoding="ascii") as f:
        f.write(f"--model {spec} --data {data} --seed {SEED} --steps {STEPS} --batch {BATCH} --chunks {CHUNKS} {flags}\n")
        f.writelines(f"{loss:.9g}\n" for loss in losses)
    print(f"{name}: {losses[0]:.4f} to {numpy.mean(losses[-10:]):.4f}")


def main():
    record("resnet20-sgd", "resnet20:width=0.5", nets.resnet20(SEED, width=8),
           lambda p: torch.optim.SGD(p, 1, momentum=0.9, weight_decay=0.05), constant(3e-4),
           "--optimizer sgd --lr 3e-4 --momentum 0.9 --weight-decay 0.05 --schedule const")
    record("cnn-nesterov", "cnn:width=8", nets.cnn(SEED, channels=3),
           lambda p: torch.optim.SGD(p, 1, momentum=0.9, nesterov=True, weight_decay=0.1), cosine(0.005, 10),
           "--optimizer sgd --nesterov --lr 0.005 --momentum 0.9 --weight-decay 0.1 --schedule cosine --warmup 10")
    record("cnn-adamw", "cnn:width=8", nets.cnn(SEED, channels=3),
           lambda p: torch.optim.AdamW(p, 1, weight_decay=1.0), constant(3e-4),
           "--optimizer adamw --lr 3e-4 --weight-decay 1.0 --schedule const")


main()
