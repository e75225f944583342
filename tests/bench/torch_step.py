#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torch_step.py MODEL HxWxC BATCH CHUNKS THREADS [STEPS]: what bench_step measures, in PyTorch (channels last).

MODEL is mobilenetv2[:width=W,stem=imagenet|cifar,classes=K].
"""
import resource
import sys
import time

import torch
import torchvision


def build(spec):
    options = dict(part.split("=") for part in spec.partition(":")[2].split(",") if part)
    model = torchvision.models.mobilenet_v2(num_classes=int(options.get("classes", 1000)),
                                            width_mult=float(options.get("width", 1.0)))
    if options.get("stem") == "cifar":
        model.features[0][0].stride = (1, 1)
        model.features[2].conv[1][0].stride = (1, 1)
    return model


def main():
    h, w, c = map(int, sys.argv[2].split("x"))
    batch, chunks, threads = map(int, sys.argv[3:6])
    steps = int(sys.argv[6]) if len(sys.argv) > 6 else 10
    torch.set_num_threads(threads)
    model = build(sys.argv[1]).train().to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    x = torch.randn(batch // chunks, c, h, w).to(memory_format=torch.channels_last)
    labels = torch.zeros(batch // chunks, dtype=torch.long)
    times = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        sgd.zero_grad()
        for _ in range(chunks):
            (torch.nn.functional.cross_entropy(model(x), labels) / chunks).backward()
        sgd.step()
        times.append((time.perf_counter() - start) * 1e3)
    times = sorted(times[2:])
    print(f"ms per step: median {times[len(times) // 2]:.2f} best {times[0]:.2f}")
    print(f"peak resident MB {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6:.1f}")


main()
