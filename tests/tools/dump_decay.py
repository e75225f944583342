#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_decay.py [OUT.safetensors]: decaying linear insertion in PyTorch, for tests/unit/test_decay.c.

y = x W[:r]^T and its mirror x' = y M[:, :r]^T, both (F, F), start as the identity plus a little. Every EVERY steps the
rank r becomes r1 = int(r * RATE), TIMES times. As long as that goes on, rows r1.. of W's gradient and columns r1.. of M's
are replaced by -L1 * sign(gradient) before the update. PyTorch keeps both matrices whole; what is stored of them after
every change of rank, and at the end, are the rows and columns in use.

Everything runs in float32, through torch.optim alone. Writes tests/golden/ops/decay.safetensors.
"""
import sys

import torch
from torch.optim import SGD, AdamW

from dump_ops import put, write

F, BATCH, STEPS, EVERY, TIMES, RATE, L1 = 12, 4, 13, 3, 3, 0.75, 0.125

OPTIMIZERS = {
    "sgd": lambda p: SGD(p, 0.01),
    "momentum": lambda p: SGD(p, 0.01, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda p: AdamW(p, 0.01, weight_decay=1e-2),
}


def replace(gradient):
    gradient.copy_(-L1 * torch.sign(gradient))


def run(case, w, m, x, gy, optimizer):
    w, m = (t.clone().requires_grad_(True) for t in (w, m))
    optim = optimizer([w, m])
    rank = F
    for step in range(STEPS):
        optim.zero_grad()
        (x[step] @ w[:rank].T @ m[:, :rank].T).backward(gy[step])
        smaller = int(rank * RATE)
        if step // EVERY < TIMES:
            replace(w.grad[smaller:rank])
            replace(m.grad[:, smaller:rank])
        optim.step()
        done = step + 1
        if done % EVERY == 0 and done // EVERY <= TIMES:
            rank = smaller
        if done % EVERY == 0 or done == STEPS:
            put(f"{case}/{done}/encoder.weight", w[:rank])
            put(f"{case}/{done}/decoder.weight", m[:, :rank])


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    w, m = (torch.eye(F) + 0.1 * torch.randn(F, F) for _ in range(2))
    x, gy = torch.randn(STEPS, BATCH, F), torch.randn(STEPS, BATCH, F)
    for name, value in (("encoder.weight", w), ("decoder.weight", m), ("x", x), ("gy", gy)):
        put(f"start/{name}", value)
    for case, optimizer in OPTIMIZERS.items():
        run(case, w, m, x, gy, optimizer)
    write(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ops/decay.safetensors")


main()
