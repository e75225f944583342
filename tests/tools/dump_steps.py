#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_steps.py [FOLDER]: whole training steps in PyTorch, for tests/unit/test_cpu_plan.c.

Nothing but results is stored: starting values, images and labels are drawn with the project's own counter-based
generator (common/base/rng.h, draws.py). Everything is computed in float64, so that the differences the
test sees are the device's. Writes FOLDER/steps_NAME.safetensors (default tests/golden/ops) with, by step, losses,
outputs of the first step, its input gradient, and of every parameter the gradient's norm, the gradient's first
elements and, after the last step, the value's norm and first elements.
"""
import sys

import torch

import nets
from batch_norm_modes import MODES, set_mode
from draws import SYNTHETIC, normal, stream_of
from dump_ops import put, write

SEED, STEPS, FIRST = 11, 3, 600


def record(name, model, batch, h, w, c):
    model = model.double().train()
    sgd = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, weight_decay=1e-4)
    labels = torch.tensor([3 * i % 10 for i in range(batch)])
    losses = []
    for step in range(STEPS):
        x = normal(SEED, stream_of(SYNTHETIC, step), batch * h * w * c).reshape(batch, h, w, c)
        x = torch.from_numpy(x.astype("f8")).permute(0, 3, 1, 2).requires_grad_(True)
        sgd.zero_grad()
        y = model(x)
        loss = torch.nn.functional.cross_entropy(y, labels)
        loss.backward()
        losses.append(float(loss))
        if step == 0:
            put("y", y)
            put("gx", x.grad.permute(0, 2, 3, 1))
            for key, p in model.named_parameters():
                put(f"grad.{key}", p.grad.reshape(-1)[:FIRST])
                put(f"norm.{key}", p.grad.norm().reshape(1))
        sgd.step()
    for key, p in model.named_parameters():
        put(f"value.{key}", p.reshape(-1)[:FIRST])
    for key, b in model.named_buffers():
        if key.split(".")[-1].startswith("running"):
            put(f"value.{key}", b.reshape(-1)[:FIRST])
    put("losses", torch.tensor(losses))
    write(f"{sys.argv[1] if len(sys.argv) > 1 else 'tests/golden/ops'}/steps_{name}.safetensors")


def main():
    record("mobilenetv2", nets.mobilenetv2(SEED), 4, 32, 32, 3)
    record("cnn", nets.cnn(SEED), 4, 28, 28, 1)
    record("resnet18", nets.resnet18(SEED), 4, 40, 40, 3)
    record("resnet20", nets.resnet20(SEED), 4, 32, 32, 3)
    record("vgg13", nets.vgg13(SEED), 4, 32, 64, 3)
    record("resnet20_running", set_mode(nets.resnet20(SEED), MODES.RUNNING), 4, 32, 32, 3)
    record("resnet20_renorm", set_mode(nets.resnet20(SEED), MODES.RENORM), 4, 32, 32, 3)


main()
