#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_insert.py [OUT.safetensors]: what PyTorch makes of insertions, for tests/unit/test_plan_graphs.c.

Writes tests/golden/ops/insert.safetensors in the form of dump_graphs.py. A net has three layers of 1x1 (maps) or along the
features (sequences), and the same insertion between the first two and the last two, as `--insert` puts it there; parameters
have the names of client/insert/insert.h. Run it from the root of the repository.
"""
import sys

import torch
from torch import nn

import dump_graphs
import tensor_file

ACTS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "gelu": nn.GELU, "none": nn.Identity}


def parse(spec):
    """[("conv", {"out": 20, ...}), ...]"""
    sets = []
    for text in spec.split("/"):
        kind, pairs = text.split(":")
        keys = dict(pair.split("=") for pair in pairs.split(","))
        sets.append((kind, {k: int(v) if v.isdigit() else v for k, v in keys.items()}))
    return sets


class Layer(nn.Module):
    """A convolution, there or back, and what stands behind it; `bn` is a part of it by name alone."""
    def __new__(cls, base, *args, after, **more):
        layer = base(*args, **more)
        channels = layer.out_channels
        layer.bn = nn.BatchNorm2d(channels) if after and after.get("bn") else nn.Identity()
        layer.act = ACTS[after.get("act", "none") if after else "none"]()
        layer.register_forward_hook(lambda m, _, y: m.act(m.bn(y)))
        return layer


class Product(nn.Linear):
    """Without bias, along the features or along the positions of (N,S,F)."""
    def __init__(self, before, behind, dim):
        super().__init__(before, behind, bias=False)
        self.dim = dim

    def forward(self, x):
        if self.dim == "feature":
            return super().forward(x)
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def conv_pair(shape, keys, first):
    c, h, w = shape
    k, s, p, out, bias = keys["k"], keys["s"], keys.get("p", 0), keys["out"], bool(keys.get("bias", 1))
    there = Layer(nn.Conv2d, c, out, k, s, p, bias=bias, after=keys)
    rest = [(side + 2 * p - k) % s for side in (h, w)]
    back = Layer(nn.ConvTranspose2d, out, c, k, s, p, output_padding=tuple(rest), bias=bias,
                 after=None if first else keys)
    return there, back, (out, (h + 2 * p - k) // s + 1, (w + 2 * p - k) // s + 1)


def linear_pair(shape, keys):
    rank = keys["rank"]
    if len(shape) == 3:
        return (nn.Conv2d(shape[0], rank, 1, bias=False), nn.Conv2d(rank, shape[0], 1, bias=False), (rank, *shape[1:]))
    at = 0 if keys["dim"] == "sequence" else 1
    pair = [Product(shape[at], rank, keys["dim"]), Product(rank, shape[at], keys["dim"])]
    return (*pair, tuple(rank if i == at else n for i, n in enumerate(shape)))


class Bottleneck(nn.Module):
    """A side of a bottleneck: the straight path and the branch beside it, which is called as if it were a part of it."""
    def __init__(self, layer, before, behind, keys):
        super().__init__()
        hidden = keys.get("hidden", 4 * keys["dim"])
        straight = layer(before, behind, bias=False)
        self.weight, self.straight = straight.weight, [straight]  # a list hides the layer's own name
        self.hidden, self.out = layer(before, hidden), layer(hidden, behind)
        self.act = ACTS[keys.get("act", "gelu")]()

    def forward(self, x):
        return self.straight[0](x) + self.out(self.act(self.hidden(x)))


def bottleneck_pair(shape, keys):
    maps = len(shape) == 3
    layer = (lambda a, b, bias=True: nn.Conv2d(a, b, 1, bias=bias)) if maps else nn.Linear
    features, dim = shape[0] if maps else shape[1], keys["dim"]
    behind = (dim, *shape[1:]) if maps else (shape[0], dim)
    return Bottleneck(layer, features, dim, keys), Bottleneck(layer, dim, features, keys), behind


class Insertion(nn.Module):
    def __init__(self, spec, shape):
        super().__init__()
        encoder, decoder = [], []
        for i, (kind, keys) in enumerate(parse(spec)):
            if kind == "conv":
                there, back, shape = conv_pair(shape, keys, i == 0)
            else:
                there, back, shape = (bottleneck_pair if kind == "bottleneck" else linear_pair)(shape, keys)
            encoder.append(there)
            decoder.insert(0, back)
        self.encoder, self.decoder = nn.Sequential(*encoder), nn.Sequential(*decoder)

    def forward(self, x):
        y = self.decoder(self.encoder(x))
        assert y.shape == x.shape
        return y


class Net(nn.ModuleDict):
    def __init__(self, spec, shape):
        features = shape[0] if len(shape) == 3 else shape[1]
        layer = (lambda a, b: nn.Conv2d(a, b, 1)) if len(shape) == 3 else nn.Linear
        super().__init__({"a": layer(3, features), "b": layer(features, features), "c": layer(features, 2),
                          "insert_up": Insertion(spec, shape), "insert_down": Insertion(spec, shape)})

    def forward(self, x):
        x = self["insert_up"](self["a"](x))
        return (self["c"](self["insert_down"](self["b"](x))),)


def run(name, spec, shape, frozen=()):
    full = (2, 3, *shape[1:]) if len(shape) == 3 else (2, shape[0], 3)
    dump_graphs.run(name, Net(spec, shape), frozen, lambda: [torch.randn(full)])


def main():
    torch.manual_seed(20261123)
    run("conv", "conv:out=5,k=3,s=3", (4, 10, 7))
    run("stacked", "conv:out=6,k=4,s=4/conv:out=2,k=1,s=1", (4, 11, 8))
    run("wide", "conv:out=9,k=8,s=8", (3, 17, 19))
    run("norms", "conv:out=6,k=2,s=2,bn=1,act=relu,bias=0/conv:out=3,k=1,s=1,bn=1,act=relu6,bias=0", (4, 7, 6),
        ["a.bias", "b.bias"])  # before a batch norm their gradients are nothing but rounding
    run("padded", "conv:out=3,k=3,s=2,p=1,act=relu6,bias=0", (4, 8, 5))
    run("channels", "linear:rank=3,dim=feature", (8, 5, 4))
    run("mixed", "conv:out=6,k=2,s=2/linear:rank=2,dim=feature", (4, 6, 5))
    run("features", "linear:rank=4,dim=feature", (7, 9))
    run("positions", "linear:rank=3,dim=sequence", (7, 9))
    run("both", "linear:rank=5,dim=feature/linear:rank=3,dim=sequence", (7, 9))
    run("bottleneck", "bottleneck:dim=3,hidden=5,act=relu6", (8, 5, 4))
    run("bottleneck_text", "bottleneck:dim=3", (7, 9))
    run("bottleneck_stacked", "conv:out=6,k=2,s=2/bottleneck:dim=2,act=relu", (4, 6, 5))
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ops/insert.safetensors"
    print(f"{path}: {len(dump_graphs.tensors)} tensors, {tensor_file.write(path, dump_graphs.tensors)} bytes")


if __name__ == "__main__":
    main()
