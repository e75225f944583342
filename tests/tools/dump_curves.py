#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_curves.py [FOLDER]: the losses of 100 training steps in PyTorch, for tests/e2e/loss_curve.sh.

Starting values, images and their order are the ones that gpclient draws (draws.py, nets.py). Everything is computed in
float64, so that the differences the test sees are gpclient's. Writes FOLDER/NAME.txt (default tests/golden/curves): the
flags of gpclient train on the first line, then a loss per line. Takes minutes.
"""
import os
import sys

import numpy
import torch

import draws
import nets

SEED, STEPS, BATCH, CHUNKS, SAMPLES, NOISE = 3, 100, 16, 2, 400, 2


def record(name, spec, model, shape, optimizer, flags):
    h, w, c = shape
    model = model.double().train()
    opt = optimizer(model.parameters())
    images, labels = draws.synthetic(shape, 10, SAMPLES, NOISE)
    x_all = torch.from_numpy((images.astype("f8") / 255 - 0.5) / 0.25).permute(0, 3, 1, 2)
    losses = []
    for _, picked in draws.batches(SEED, SAMPLES, BATCH, STEPS):
        opt.zero_grad()
        total = 0.0
        for x, l in zip(x_all[picked].chunk(CHUNKS), torch.from_numpy(labels[picked]).chunk(CHUNKS)):
            loss = torch.nn.functional.cross_entropy(model(x), l) / CHUNKS
            loss.backward()
            total += loss.item()
        opt.step()
        losses.append(total)
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/curves"
    data = f"synthetic:shape={c}x{h}x{w},classes=10,samples={SAMPLES},noise={NOISE}"
    with open(os.path.join(folder, name + ".txt"), "w", encoding="ascii") as f:
        f.write(f"--model {spec} --data {data} --seed {SEED} --steps {STEPS} --batch {BATCH} --chunks {CHUNKS} "
                f"--schedule const {flags}\n")
        f.writelines(f"{loss:.9g}\n" for loss in losses)
    print(f"{name}: {losses[0]:.4f} to {numpy.mean(losses[-10:]):.4f}")


def sgd(lr, decay):
    return lambda p: torch.optim.SGD(p, lr, momentum=0.9, weight_decay=decay)


if os.environ.get("FAST"): STEPS = 100


def main():
    record("resnet20", "resnet20:width=0.5", nets.resnet20(SEED, width=8), (32, 32, 3), sgd(0.05, 1e-4),
           "--optimizer sgd --lr 0.05 --momentum 0.9 --weight-decay 1e-4")
    record("mobilenetv2", "mobilenetv2:width=0.25,stem=cifar,dropout=0", nets.mobilenetv2(SEED), (32, 32, 3),
           sgd(0.02, 0), "--optimizer sgd --lr 0.02 --momentum 0.9 --weight-decay 0")
    record("cnn", "cnn:width=8", nets.cnn(SEED), (28, 28, 1),
           lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.01),
           "--optimizer adamw --lr 0.001 --weight-decay 0.01")


main()
