#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torch_step.py [OPTION...] MODEL HxWxC BATCH CHUNKS THREADS [STEPS]: what bench_step measures, in PyTorch, at its best.

MODEL is mobilenetv2[:width=W,stem=imagenet|cifar,classes=K] or resnet18[:classes=K]. Every setting known to matter is
tried, and the best is named last:

- channels last, or PyTorch's default layout;
- 1x1 convolutions with a dilation, which means nothing for them, but much for PyTorch 1.13: with one thread and fewer
  than 16 samples it leaves undilated ones to a matrix product of its own instead of oneDNN (use_mkldnn in
  aten/src/ATen/native/Convolution.cpp), which is ten times slower with Debian's reference BLAS;
- numbers too small to be normal are flushed to zero.

--precision bf16 is torch.autocast, which rounds to it what convolutions and matrix products read and leaves their
results in it; PyTorch 1.13 cannot differentiate ReLU6 there: it becomes min(relu(x), 6). --quick leaves undilated 1x1
convolutions out. --memory: no times, but what one chunk's forward saves for its backward, and the peak of resident memory
over two steps with channels last, less what was there before.
"""
import argparse
import resource
import sys
import time

import torch
import torchvision


def build(spec):
    name, _, text = spec.partition(":")
    options = dict(part.split("=") for part in text.split(",") if part)
    classes = int(options.get("classes", 1000))
    if name == "resnet18":
        return torchvision.models.resnet18(num_classes=classes)
    model = torchvision.models.mobilenet_v2(num_classes=classes, width_mult=float(options.get("width", 1.0)))
    if options.get("stem") == "cifar":
        model.features[0][0].stride = (1, 1)
        model.features[2].conv[1][0].stride = (1, 1)
    return model


class ClippedReLU(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.relu(x).clamp(max=6.0)


def replace_relu6(module):
    for name, child in module.named_children():
        if isinstance(child, torch.nn.ReLU6):
            setattr(module, name, ClippedReLU())
        else:
            replace_relu6(child)


def dilate_pointwise(model):
    for m in model.modules():
        if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (1, 1):
            m.dilation = (2, 2)


def measure(spec, shape, chunk, chunks, steps, layout, dilate, bf16):
    """Sorted wall times and processor times of the steps, in milliseconds."""
    h, w, c = shape
    model = build(spec).train().to(memory_format=layout)
    if bf16:
        replace_relu6(model)
    if dilate:
        dilate_pointwise(model)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    x = torch.randn(chunk, c, h, w).to(memory_format=layout)
    labels = torch.zeros(chunk, dtype=torch.long)
    wall, processor = [], []
    for _ in range(steps + 2):
        start, cpu_start = time.perf_counter(), time.process_time()
        sgd.zero_grad(set_to_none=True)
        for _ in range(chunks):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
                y = model(x)
            (torch.nn.functional.cross_entropy(y.float(), labels) / chunks).backward()
        sgd.step()
        wall.append((time.perf_counter() - start) * 1e3)
        processor.append((time.process_time() - cpu_start) * 1e3)
    return sorted(wall[2:]), sorted(processor[2:])


def resident_peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def print_memory(a):
    before, saved = resident_peak(), {}
    h, w, c = a.shape
    model = build(a.model).train().to(memory_format=torch.channels_last)
    weights = {p.data_ptr() for p in model.parameters()}

    def pack(t):
        if t.data_ptr() not in weights:
            saved[t.data_ptr()] = t.numel() * t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = model(torch.randn(a.batch // a.chunks, c, h, w).to(memory_format=torch.channels_last))
    print(f"saved for backward MB: {sum(saved.values()) / 1e6:.1f} per chunk")
    del y, model
    measure(a.model, a.shape, a.batch // a.chunks, a.chunks, 0, torch.channels_last, False, a.precision == "bf16")
    print(f"peak resident MB {resident_peak() - before:.1f} above the {before:.1f} of the libraries")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("model")
    parser.add_argument("shape", type=lambda text: tuple(map(int, text.split("x"))))
    for name in ("batch", "chunks", "threads"):
        parser.add_argument(name, type=int)
    parser.add_argument("steps", type=int, nargs="?", default=10)
    return parser.parse_args()


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    if a.memory:
        print_memory(a)
        return
    best = None
    for layout in (torch.channels_last, torch.contiguous_format):
        for dilate in (True,) if a.quick else (False, True):
            wall, cpu = measure(a.model, a.shape, a.batch // a.chunks, a.chunks, a.steps, layout, dilate,
                                a.precision == "bf16")
            name = f"{str(layout)[6:]}{', dilated 1x1' if dilate else ''}"
            print(f"{name}: ms per step: median {wall[len(wall) // 2]:.2f} best {wall[0]:.2f}; "
                  f"processor time median {cpu[len(cpu) // 2]:.2f} best {cpu[0]:.2f}", flush=True)
            if best is None or cpu[0] < best[1]:
                best = (name, cpu[0], wall[0])
    print(f"best: {best[0]}: {best[2]:.2f} ms, {best[1]:.2f} ms of processor time")
    print(f"peak resident MB {resident_peak():.1f}")


main()
