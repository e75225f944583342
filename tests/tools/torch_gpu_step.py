#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch_gpu_step.py [OPTION...] MODEL HxWxC BATCH CHUNKS [STEPS]: what bench_gpu_step measures, in PyTorch, at its best.

The body of MODEL (mobilenetv2, resnet18, resnet34) between the cuts 1:-1: forward and backward of every chunk, gradient
of its input included, parameters' gradients added up, one SGD step with momentum. Inputs lie on the card. Every
setting that is known to matter is tried, the safe and quick ones first, and the fastest median is named last:

- channels last, or PyTorch's default layout; cudnn.benchmark is always on;
- eager; a chunk and the update captured as CUDA graphs; torch.compile inside the graphs, or, where that cannot be
  captured, with graphs of its own (reduce-overhead);
- the update fused into one kernel, where this PyTorch has that.

--precision bf16 is torch.autocast, tf32 allows it in convolutions and matrix products, fp32 forbids it. A setting that
this PyTorch cannot do, or not within --limit seconds of the start (compilers take half a minute), is named with its
reason and left out. --thorough adds torch.compile's max-autotune, and all of cuDNN's algorithms instead of ten, which
takes minutes; --only NAME measures that setting alone. Needs torch alone, not torchvision: the models' layers are
below, as torchvision has them. --device cpu is for trying the script: no graphs there, and its times mean nothing.

--serve is for turns with another program (tests/bench/steps_gpu.sh): the settings go to stderr, stdout says "ready NAME"
when the fastest is known, or "none"; from then on every line on stdin is answered by "times MEDIAN BEST".
"""
import argparse
import contextlib
import signal
import sys
import time

import torch
from torch import nn

STARTED = time.monotonic()
WARM_SECONDS = 1


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


class Setting:
    """How the same work may be done. compiled: a mode of torch.compile, or None."""

    def __init__(self, layout, graphs, compiled=None):
        self.layout, self.graphs, self.compiled = layout, graphs, compiled
        parts = [str(layout)[6:], "graphs" if graphs else "eager"] + ([f"compile {compiled}"] if compiled else [])
        self.name = ", ".join(parts)


class Step:
    """One setting: its tensors, and functions for a chunk and for the update."""

    def __init__(self, a, setting):
        self.a, self.marks = a, setting.compiled == "reduce-overhead"
        body, channels, reduction = build(a.model)
        body = body.train().to(a.device, memory_format=setting.layout)
        h, w, _ = a.shape
        self.x = torch.randn(a.batch // a.chunks, channels, h // reduction, w // reduction, device=a.device)
        self.x = self.x.to(memory_format=setting.layout).requires_grad_()
        self.params = list(body.parameters())
        for p in self.params:
            p.grad = torch.zeros_like(p)
        self.sgd = self.optimizer()
        self.body = torch.compile(body, mode=setting.compiled, dynamic=False) if setting.compiled else body
        with torch.no_grad():
            self.dy = torch.randn_like(body(self.x).float()) * 1e-3

    def optimizer(self):
        options = {"lr": 1e-4, "momentum": 0.9, "weight_decay": 1e-4}
        for extra in ({"fused": True}, {"foreach": True}, {}):
            with contextlib.suppress(TypeError, RuntimeError, ValueError):
                sgd = torch.optim.SGD(self.params, **options, **extra)
                sgd.step()  # refuses here what it refuses late
                return sgd
        raise RuntimeError("no SGD")

    def forward(self):
        # No cache: every weight is read once, and casts kept from one chunk may not be what a graph reads later.
        bf16 = self.a.precision == "bf16"
        with torch.autocast(self.a.device, dtype=torch.bfloat16, enabled=bf16, cache_enabled=False):
            return self.body(self.x)

    def chunk(self):
        if self.marks:
            torch.compiler.cudagraph_mark_step_begin()
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


class Runner:
    """A setting that runs: times() is called as often as wanted."""

    def __init__(self, a, setting):
        self.a, self.name = a, setting.name
        if setting.compiled and hasattr(torch, "_dynamo"):
            torch._dynamo.reset()  # what another setting compiled is no reason to make this one general
        self.step = Step(a, setting)
        self.chunk, self.update = captured(self.step) if setting.graphs else (self.step.chunk, self.step.update)

    def times(self):
        """Median and best of the steps, in milliseconds; three go before, and as many as a card needs to raise its clocks."""
        times, began, warm = [], time.perf_counter(), 0
        while len(times) - warm < self.a.steps:
            if len(times) < 3 or (time.perf_counter() - began < WARM_SECONDS and warm == len(times)):
                warm = len(times) + 1
            synchronize(self.a)
            start = time.perf_counter()
            for _ in range(self.a.chunks):
                self.chunk()
            self.update()
            synchronize(self.a)
            times.append((time.perf_counter() - start) * 1e3)
        times = sorted(times[warm:])
        return times[len(times) // 2], times[0]


def settings(a):
    """What is safe first, then what is most likely the fastest, then the rest as long as there is time."""
    last, first, gpu = torch.channels_last, torch.contiguous_format, a.device == "cuda"
    todo = [Setting(last, False)]
    todo += [Setting(last, True)] if gpu else []
    if not a.quick:
        modes = ["default"] + (["max-autotune-no-cudagraphs"] if a.thorough else [])
        if hasattr(torch, "compile"):
            todo += [Setting(last, gpu, mode) for mode in modes]
        todo += [Setting(first, True)] if gpu else []
        if hasattr(torch, "compile"):
            todo += [Setting(first, gpu, mode) for mode in modes]
        todo.append(Setting(first, False))
        if gpu and hasattr(torch, "compile"):
            todo.append(Setting(last, False, "reduce-overhead"))
    return [s for s in todo if a.only in (None, s.name)]


@contextlib.contextmanager
def at_most(seconds):
    """Ends what takes longer, as far as Python has a say."""
    def end(_signal, _frame):
        raise TimeoutError(f"not within {seconds:.0f} s")
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def say(a, text):
    print(text, file=sys.stderr if a.serve else sys.stdout, flush=True)


def tried(a, setting):
    """(median, best, Runner), or None for a setting that does not work here, or not in time."""
    left = STARTED + a.limit - time.monotonic()
    if left < 1:
        return say(a, f"{setting.name}: not tried: {a.limit} s are over")
    try:
        with at_most(left):
            runner = Runner(a, setting)
            median, best = runner.times()
    except Exception as e:  # one setting's failure is no reason to miss the others
        return say(a, f"{setting.name}: cannot be done: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")
    say(a, f"{setting.name}: ms per step: median {median:.3f} best {best:.3f}")
    return median, best, runner


def fastest(a):
    best, works = None, set()
    for setting in settings(a):
        if setting.compiled == "reduce-overhead" and "compiled graphs" in works and not a.only:
            continue  # the same with more to do between
        result = tried(a, setting)
        if result and setting.compiled and setting.graphs:
            works.add("compiled graphs")
        if result and (best is None or result[0] < best[0]):
            best = result
    return best


def serve(best):
    if best is None:
        return print("none", flush=True)
    print(f"ready {best[2].name}", flush=True)
    for _ in sys.stdin:
        print("times {:.3f} {:.3f}".format(*best[2].times()), flush=True)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="channels last alone, no torch.compile")
    parser.add_argument("--thorough", action="store_true", help="what takes minutes, too")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="for looking for the fastest setting")
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--serve", action="store_true", help="measure again for every line on stdin")
    parser.add_argument("model", choices=("mobilenetv2", "resnet18", "resnet34"))
    parser.add_argument("shape", type=lambda text: tuple(map(int, text.split("x"))))
    parser.add_argument("batch", type=int)
    parser.add_argument("chunks", type=int)
    parser.add_argument("steps", type=int, nargs="?", default=20)
    return parser.parse_args()


def set_precision(a):
    # The older names, not fp32_precision of PyTorch 2.9: torch.compile of 2.9 and 2.10 asks for the older ones itself and
    # refuses what was set by both.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = a.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    if a.thorough and hasattr(torch.backends.cudnn, "benchmark_limit"):
        torch.backends.cudnn.benchmark_limit = 0


def main():
    a = arguments()
    set_precision(a)
    best = fastest(a)
    if a.serve:
        return serve(best)
    if best is None:
        raise SystemExit("no setting works here")
    card = torch.cuda.get_device_name() if a.device == "cuda" else "cpu"
    print(f"PyTorch {torch.__version__}, {card}; best setting: {best[2].name}")
    print(f"best: ms per step: median {best[0]:.3f} best {best[1]:.3f}")


main()
