#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_optim.py [OUT.safetensors]: 50 optimizer steps in PyTorch, for tests/unit/test_optim_steps.c.

Two linear layers, A (5 to 3) and B (24 to 16), get the identity matrix as their input, so that the gradient of a weight
is the transposed output gradient and that of a bias its column sums. Output gradients are multiples of 2^-10 times a
power of two: every sum is exact, and both sides see the same gradients to the last bit. One of SETS output gradients
is used in turn, times the step's amplitude. Of every case the parameters after the last step are stored, the learning
rates, and with clipping by norm the norms that clip_grad_norm_ returned.

Everything runs in float32, through torch.optim, torch.optim.lr_scheduler and torch.nn.utils alone. Writes
tests/golden/ops/optim_steps.safetensors.
"""
import sys

import torch
import torch.nn.functional as F
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LinearLR, PolynomialLR, SequentialLR, StepLR

from dump_ops import put, write

STEPS, SETS, WARMUP, RATE = 50, 5, 8, 0.01
LAYERS = {"a": (5, 3), "b": (24, 16)}


def warm(optim, then):
    """Linear warm-up to the base rate in WARMUP steps, the last of which has it; then `then`."""
    up = LinearLR(optim, start_factor=1 / WARMUP, total_iters=WARMUP - 1)
    return SequentialLR(optim, [up, then], milestones=[WARMUP])


OPTIMIZERS = {
    "sgd": lambda p: SGD(p, RATE, weight_decay=1e-2),
    "momentum": lambda p: SGD(p, RATE, momentum=0.9, weight_decay=1e-3),
    "nesterov": lambda p: SGD(p, RATE, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "adam": lambda p: Adam(p, RATE, weight_decay=1e-3),
    "adamw": lambda p: AdamW(p, RATE, weight_decay=1e-2),
}
SCHEDULES = {
    "const": lambda o: ConstantLR(o, factor=1.0),
    "cosine": lambda o: warm(o, CosineAnnealingLR(o, T_max=STEPS - WARMUP, eta_min=1e-4)),
    "step": lambda o: warm(o, StepLR(o, step_size=15, gamma=0.1)),
    "poly": lambda o: warm(o, PolynomialLR(o, total_iters=STEPS - WARMUP, power=2.0)),
}


def exact(*shape):
    return torch.randint(-2047, 2048, shape).float() / 1024


def start():
    params = []
    for name, (inputs, outputs) in LAYERS.items():
        params += [(f"{name}.weight", exact(outputs, inputs)), (f"{name}.bias", exact(outputs))]
    return params


def run(case, starts, sets, amplitudes, optimizer, schedule, clip=None, spoil=None, grouped=False):
    """grouped: biases are a group of parameters by themselves, without weight decay. clip(params) limits the gradients and may return their norm; spoil(step, gradients) changes what goes in."""
    params = {name: value.clone().requires_grad_(True) for name, value in starts}
    if grouped:
        optim = optimizer([{"params": [p for name, p in params.items() if name.endswith("weight")]},
                           {"params": [p for name, p in params.items() if name.endswith("bias")], "weight_decay": 0.0}])
    else:
        optim = optimizer(list(params.values()))
    rates = schedule(optim)
    lrs, norms = [], []
    for step, amplitude in enumerate(amplitudes):
        optim.zero_grad()
        for name, (inputs, _) in LAYERS.items():
            gy = sets[name][step % SETS] * amplitude
            if spoil:
                spoil(step, name, gy)
            F.linear(torch.eye(inputs), params[f"{name}.weight"], params[f"{name}.bias"]).backward(gy)
        norm = clip(list(params.values())) if clip else None
        if norm is not None:
            norms.append(float(norm))
        lrs.append(optim.param_groups[0]["lr"])
        optim.step()
        rates.step()
    put(f"{case}/lr", torch.tensor(lrs))
    for name, value in params.items():
        put(f"{case}/{name}", value)
    if norms:
        put(f"{case}/norms", torch.tensor(norms))


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    starts = start()
    sets = {name: exact(SETS, inputs, outputs) for name, (inputs, outputs) in LAYERS.items()}
    amplitudes = 2.0 ** torch.randint(-4, 2, (STEPS,))
    for name, value in starts:
        put(f"start/{name}", value)
    for name, value in sets.items():
        put(f"gy/{name}", value)
    put("amplitudes", amplitudes)
    common = (starts, sets, amplitudes)
    for optimizer, make in OPTIMIZERS.items():
        for schedule, rates in SCHEDULES.items():
            run(f"{optimizer}-{schedule}", *common, make, rates)

    def by_norm(params):
        return torch.nn.utils.clip_grad_norm_(params, 20.0)

    def by_value(params):
        torch.nn.utils.clip_grad_value_(params, 0.25)

    for optimizer in ("momentum", "adamw"):
        make, rates = OPTIMIZERS[optimizer], SCHEDULES["cosine"]
        run(f"{optimizer}-clip-norm", *common, make, rates, by_norm)
        run(f"{optimizer}-clip-value", *common, make, rates, by_value)

    def adamw_set(p):
        return AdamW(p, RATE, weight_decay=0.5, eps=1e-3, betas=(0.8, 0.95))

    def linear(o):
        return warm(o, PolynomialLR(o, total_iters=STEPS - WARMUP, power=1.0))

    run("adamw-set-linear", *common, adamw_set, linear)
    run("adamw-set-no-decay", *common, adamw_set, linear, grouped=True)
    run("momentum-no-decay", *common, lambda p: SGD(p, RATE, momentum=0.9, weight_decay=0.5), SCHEDULES["const"],
        grouped=True)

    def spoil(step, name, gy):
        if step == 1 and name == "b":
            gy[3, 7] = float("nan")

    run("momentum-clip-norm-nan", starts, sets, amplitudes[:2], OPTIMIZERS["momentum"], SCHEDULES["const"], by_norm,
        spoil)
    write(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ops/optim_steps.safetensors")


main()
