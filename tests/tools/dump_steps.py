#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_steps.py [FOLDER]: whole training steps in PyTorch, for tests/unit/test_cpu_plan.c.

Nothing but results is stored: starting values, images and labels are drawn with the project's own counter-based
generator (common/rng.h), written again in numpy below. Everything is computed in float64, so that the differences the
test sees are the device's. Writes FOLDER/steps_NAME.safetensors (default tests/golden/ops) with, by step, losses,
outputs of the first step, its input gradient, and of every parameter the gradient's norm, the gradient's first
elements and, after the last step, the value's norm and first elements.
"""
import math
import sys

import numpy
import torch
import torchvision

from cifar_resnet import CifarResNet
from dump_ops import put, write

SEED, STEPS, FIRST = 11, 3, 600
RNG_INIT, RNG_SYNTHETIC = 1, 6
U32, U64 = numpy.uint32, numpy.uint64


def philox(seed, stream, index):
    """Four words for each counter in `index` (uint64 array); see gp_rng_block."""
    mask = U64(0xFFFFFFFF)
    c = [index & mask, index >> U64(32), numpy.full_like(index, stream & 0xFFFFFFFF),
         numpy.full_like(index, stream >> 32)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c[0] * U64(0xD2511F53), c[2] * U64(0xCD9E8D57)
        c = [(p1 >> U64(32)) ^ c[1] ^ U64(k0), p1 & mask, (p0 >> U64(32)) ^ c[3] ^ U64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def stream_of(use, name_id):
    return use << 56 | (name_id & 0x00FFFFFFFFFFFFFF)


def name_id(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def normal(seed, stream, count):
    w = philox(seed, stream, numpy.arange(count, dtype=U64))
    u = (w[0].astype(float) + 1) * 2.0**-32
    return (numpy.sqrt(-2 * numpy.log(u)) * numpy.cos(6.283185307179586 * w[1].astype(float) * 2.0**-32)).astype("f4")


def uniform(seed, stream, count):
    w = philox(seed, stream, numpy.arange((count + 3) // 4, dtype=U64))
    words = numpy.stack(w, axis=1).reshape(-1)[:count]
    return (words >> U64(8)).astype("f4") * numpy.float32(2.0**-24)


def start(model, kind_of):
    """kind_of(name, parameter) -> ("normal" | "uniform" | "zeros" | "ones", scale)"""
    with torch.no_grad():
        for name, p in model.named_parameters():
            kind, scale = kind_of(name, p)
            stream, scale = stream_of(RNG_INIT, name_id(name)), numpy.float32(scale)
            if kind == "normal":
                v = scale * normal(SEED, stream, p.numel())
            elif kind == "uniform":
                v = (numpy.float32(2) * uniform(SEED, stream, p.numel()) - numpy.float32(1)) * scale
            else:
                v = numpy.full(p.numel(), 1.0 if kind == "ones" else 0.0)
            p.copy_(torch.from_numpy(numpy.asarray(v, dtype="f8")).reshape(p.shape))


def mobilenetv2():
    stages = [[1, 16, 1, 1], [6, 24, 2, 1], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]]
    model = torchvision.models.mobilenet_v2(num_classes=10, width_mult=0.25, dropout=0.0,
                                            inverted_residual_setting=stages)
    model.features[0][0].stride = (1, 1)

    def kind(name, p):
        if p.dim() == 4:
            return "normal", math.sqrt(2.0 / (p.shape[0] * p.shape[2] * p.shape[3]))
        if p.dim() == 2:
            return "normal", 0.01
        return ("ones", 0) if name.endswith("weight") else ("zeros", 0)

    start(model, kind)
    return model


def cnn(width=8):
    nn = torch.nn
    stages, channels = [], 1
    for multiples, last in (((1,), nn.MaxPool2d(2)), ((1, 2), nn.MaxPool2d(2)), ((2, 4), nn.AdaptiveAvgPool2d(1))):
        layers = []
        for m in multiples:
            layers += [nn.Conv2d(channels, m * width, 3, padding=1, bias=False), nn.BatchNorm2d(m * width), nn.ReLU()]
            channels = m * width
        stages.append(nn.Sequential(*layers, last))
    model = nn.Sequential()
    model.add_module("features", nn.Sequential(*stages))
    model.add_module("flatten", nn.Flatten())
    model.add_module("classifier", nn.Linear(channels, 10))

    def kind(name, p):
        if p.dim() > 1 or name == "classifier.bias":
            return "uniform", 1.0 / math.sqrt(p[0].numel() if p.dim() > 1 else channels)
        return ("ones", 0) if name.endswith("weight") else ("zeros", 0)

    start(model, kind)
    return model


def resnet18():
    model = torchvision.models.resnet18(num_classes=10)

    def kind(name, p):
        if p.dim() == 4:
            return "normal", math.sqrt(2.0 / (p.shape[0] * p.shape[2] * p.shape[3]))
        if name.startswith("fc."):
            return "uniform", 1.0 / math.sqrt(512)
        return ("ones", 0) if name.endswith("weight") else ("zeros", 0)

    start(model, kind)
    return model


def resnet20():
    model = CifarResNet(20)

    def kind(name, p):
        if p.dim() > 1:
            return "normal", math.sqrt(2.0 / p[0].numel())
        if name == "linear.bias":
            return "uniform", 1.0 / math.sqrt(64)
        return ("ones", 0) if name.endswith("weight") else ("zeros", 0)

    start(model, kind)
    return model


def vgg13(width=0.125, hidden=48):
    """torchvision's layers, but classified from the positions there are, as in common/model_vgg.c: no adaptive pooling."""
    layers = [64, 64, "M", 128, 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]
    features = torchvision.models.vgg.make_layers([m if m == "M" else int(m * width) for m in layers], batch_norm=True)
    model = torchvision.models.VGG(features, num_classes=10, init_weights=False, dropout=0.0)
    model.avgpool = torch.nn.Identity()
    model.classifier[0] = torch.nn.Linear(int(512 * width) * 2, hidden)  # 1x2 positions
    model.classifier[3] = torch.nn.Linear(hidden, hidden)
    model.classifier[6] = torch.nn.Linear(hidden, 10)

    def kind(name, p):
        if p.dim() == 4:
            return "normal", math.sqrt(2.0 / (p.shape[0] * p.shape[2] * p.shape[3]))
        if p.dim() == 2:
            return "normal", 0.01
        return ("ones", 0) if name.endswith("weight") else ("zeros", 0)

    start(model, kind)
    return model


def record(name, model, batch, h, w, c):
    model = model.double().train()
    sgd = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, weight_decay=1e-4)
    labels = torch.tensor([3 * i % 10 for i in range(batch)])
    losses = []
    for step in range(STEPS):
        x = normal(SEED, stream_of(RNG_SYNTHETIC, step), batch * h * w * c).reshape(batch, h, w, c)
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
    record("mobilenetv2", mobilenetv2(), 4, 32, 32, 3)
    record("cnn", cnn(), 4, 28, 28, 1)
    record("resnet18", resnet18(), 4, 40, 40, 3)
    record("resnet20", resnet20(), 4, 32, 32, 3)
    record("vgg13", vgg13(), 4, 32, 64, 3)


main()
