#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch_gpu_step.py [OPTION...] MODEL HxWxC BATCH CHUNKS [STEPS]: what bench_gpu_step measures, in PyTorch, at its best.

The body of MODEL (mobilenetv2, resnet18, resnet34) between the cuts 1:-1: forward and backward of every chunk, gradient
of its input included, parameters' gradients added up, one SGD step with momentum. Inputs lie on the card. Every
setting that is known to matter is tried, and the fastest median is named last:

- channels last, or PyTorch's default layout; cudnn.benchmark is always on;
- eager; a chunk and the update captured as CUDA graphs; torch.compile, and torch.compile inside the graphs;
- the update fused into one kernel, where this PyTorch has that.

--precision bf16 is torch.autocast, tf32 allows it in convolutions and matrix products, fp32 forbids it. A setting that
this PyTorch cannot do is named with its reason and left out. --thorough adds torch.compile's max-autotune, which takes
minutes; --only NAME measures that setting alone. --device cpu is for trying the script: no graphs there, and its times mean nothing. Needs torch alone, not
torchvision: the models' layers are below, as torchvision has them.
"""
import argparse
import contextlib
import time

import torch
from torch import nn


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)), or without the relu as in MobileNetV2."""

    def __init__(self, body, shortcut, relu):
        super().__init__()
        self.body, self.shortcut, self.relu = body, shortcut, relu

    def forward(self, x):
        y = self.body(x) + self.shortcut(x)
        return nn.functional.relu(y, inplace=True) if self.relu else y


def unit(inputs, outputs, kernel, stride=1, groups=1, act=None):
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return layers + ([act(inplace=True)] if act else [])


def inverted(inputs, outputs, stride, expand):
    hidden, layers = inputs * expand, []
    if expand > 1:
        layers += unit(inputs, hidden, 1, act=nn.ReLU6)
    layers += unit(hidden, hidden, 3, stride, hidden, nn.ReLU6) + unit(hidden, outputs, 1)
    body = nn.Sequential(*layers)
    return Residual(body, nn.Identity(), False) if stride == 1 and inputs == outputs else body


def mobilenetv2_body():
    channels, blocks = 32, []
    for expand, outputs, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                           (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            blocks.append(inverted(channels, outputs, stride if i == 0 else 1, expand))
            channels = outputs
    return blocks + unit(channels, 1280, 1, act=nn.ReLU6), 32, 2


def resnet_body(counts):
    channels, blocks = 64, []
    for stage, count in enumerate(counts):
        for i in range(count):
            outputs, stride = 64 << stage, 2 if stage and i == 0 else 1
            body = nn.Sequential(*unit(channels, outputs, 3, stride, act=nn.ReLU), *unit(outputs, outputs, 3))
            same = stride == 1 and channels == outputs
            shortcut = nn.Identity() if same else nn.Sequential(*unit(channels, outputs, 1, stride))
            blocks.append(Residual(body, shortcut, True))
            channels = outputs
    return blocks, 64, 4


def build(name):
    """The body, its input's channels, and how many times smaller than the picture its input is."""
    blocks, channels, reduction = {
        "mobilenetv2": mobilenetv2_body,
        "resnet18": lambda: resnet_body((2, 2, 2, 2)),
        "resnet34": lambda: resnet_body((3, 4, 6, 3)),
    }[name]()
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()), channels, reduction


class Step:
    """One setting: its tensors, and functions for a chunk and for the update."""

    def __init__(self, a, layout, compiled):
        self.a = a
        body, channels, reduction = build(a.model)
        body = body.train().to(a.device, memory_format=layout)
        h, w, _ = a.shape
        self.x = torch.randn(a.batch // a.chunks, channels, h // reduction, w // reduction, device=a.device)
        self.x = self.x.to(memory_format=layout).requires_grad_()
        self.params = list(body.parameters())
        for p in self.params:
            p.grad = torch.zeros_like(p)
        self.sgd = self.optimizer()
        self.body = torch.compile(body, mode=compiled) if compiled else body
        with torch.no_grad():
            self.dy = torch.randn_like(self.forward().float()) * 1e-3

    def optimizer(self):
        options = {"lr": 1e-4, "momentum": 0.9, "weight_decay": 1e-4}
        for extra in ({"fused": True}, {"foreach": True}, {}):
            with contextlib.suppress(TypeError, RuntimeError, ValueError):
                sgd = torch.optim.SGD(self.params, **options, **extra)
                sgd.step()  # refuses here what it refuses late
                return sgd
        raise RuntimeError("no SGD")

    def forward(self):
        # Weights are cast once per chunk at most; a cache of them may not outlive a captured graph.
        with torch.autocast(self.a.device, dtype=torch.bfloat16, enabled=self.a.precision == "bf16"):
            return self.body(self.x)

    def chunk(self):
        self.x.grad = None
        y = self.forward()
        y.backward(self.dy.to(y.dtype))

    def update(self):
        self.sgd.step()
        grads = [p.grad for p in self.params]
        torch._foreach_zero_(grads) if hasattr(torch, "_foreach_zero_") else [g.zero_() for g in grads]


def synchronize(a):
    if a.device == "cuda":
        torch.cuda.synchronize()


def captured(step):
    """The two functions as graphs, after some runs on a side stream, as PyTorch asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step.chunk()
            step.update()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graphs = [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()]
    for graph, function in zip(graphs, (step.chunk, step.update)):
        with torch.cuda.graph(graph):
            function()
    return graphs[0].replay, graphs[1].replay


def measure(a, layout, graphs, compiled):
    """Sorted times of the steps, in milliseconds."""
    step = Step(a, layout, compiled)
    chunk, update = captured(step) if graphs else (step.chunk, step.update)
    times = []
    for _ in range(a.steps + 3):
        synchronize(a)
        start = time.perf_counter()
        for _ in range(a.chunks):
            chunk()
        update()
        synchronize(a)
        times.append((time.perf_counter() - start) * 1e3)
    return sorted(times[3:])


def settings(a):
    """(name, memory format, graphs, mode of torch.compile or None)"""
    modes = [None]
    if hasattr(torch, "compile") and not a.quick:
        modes += ["default"] + (["max-autotune-no-cudagraphs"] if a.thorough else [])
    for mode in modes:
        for graphs in (True, False) if a.device == "cuda" else (False,):
            for layout in (torch.channels_last, torch.contiguous_format):
                if a.quick and layout is not torch.channels_last:
                    continue
                parts = [str(layout)[6:], "graphs" if graphs else "eager"] + ([f"compile {mode}"] if mode else [])
                if a.only in (None, ", ".join(parts)):
                    yield ", ".join(parts), layout, graphs, mode


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="channels last alone, no torch.compile")
    parser.add_argument("--thorough", action="store_true", help="torch.compile's max-autotune, too")
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("model", choices=("mobilenetv2", "resnet18", "resnet34"))
    parser.add_argument("shape", type=lambda text: tuple(map(int, text.split("x"))))
    parser.add_argument("batch", type=int)
    parser.add_argument("chunks", type=int)
    parser.add_argument("steps", type=int, nargs="?", default=20)
    return parser.parse_args()


def main():
    a = arguments()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = a.precision == "tf32"
    best = None
    for name, layout, graphs, mode in settings(a):
        try:
            times = measure(a, layout, graphs, mode)
        except Exception as e:  # one setting's failure is no reason to miss the others
            print(f"{name}: cannot be done: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", flush=True)
            continue
        median = times[len(times) // 2]
        print(f"{name}: ms per step: median {median:.3f} best {times[0]:.3f}", flush=True)
        if best is None or median < best[1]:
            best = (name, median, times[0])
    if best is None:
        raise SystemExit("no setting works here")
    card = torch.cuda.get_device_name() if a.device == "cuda" else "cpu"
    print(f"PyTorch {torch.__version__}, {card}; best setting: {best[0]}")
    print(f"best: ms per step: median {best[1]:.3f} best {best[2]:.3f}")


main()
