# SPDX-License-Identifier: Apache-2.0
"""tests/golden/codec/hadamard.safetensors: payloads and tensors of chains with `hadamard`, from common/CODECS.md.

Written from the formulas of that page, in fp32, slow on purpose and without a look at the code that it checks; `block`
behind it is dump_block_formats.py's. Usage: dump_hadamard.py FILE
"""
import sys

import numpy
from draws import signs
from dump_block_formats import Block, bytes_of
from tensor_file import write

F = numpy.float32


def transformed(v):
    """One block, a power of two of fp32 numbers."""
    v, size = list(v), len(v)
    h = 1
    while h < size:
        for i in range(size):
            if not i & h:
                v[i], v[i + h] = F(v[i] + v[i + h]), F(v[i] - v[i + h])
        h *= 2
    levels = size.bit_length() - 1
    factor = F(2.0 ** -(levels // 2)) * (F(numpy.sqrt(0.5)) if levels % 2 else F(1))
    return [F(e * factor) for e in v]


def pieces(n, size):
    """(first element, elements) of the blocks: whole ones, then the powers of two of what is left."""
    at = 0
    while at < n:
        while size > n - at:
            size //= 2
        yield at, size
        at += size


def forward(x, size, seed):
    sign, y = signs(seed, size), numpy.empty_like(x)
    for at, here in pieces(len(x), size):
        s = sign[at % size:at % size + here]
        y[at:at + here] = transformed(x[at:at + here] * s)
    return y


def backward(y, size, seed):
    sign, x = signs(seed, size), numpy.empty_like(y)
    for at, here in pieces(len(y), size):
        s = sign[at % size:at % size + here]
        x[at:at + here] = numpy.array(transformed(y[at:at + here]), dtype=F) * s
    return x


def inputs():
    draw = numpy.random.default_rng(31)
    outliers = draw.standard_normal(3 * 128 + 101).astype(F)
    outliers[::50] *= 40
    edges = numpy.concatenate([numpy.zeros(9), -numpy.zeros(9), numpy.full(16, 1e-45), numpy.full(5, -1e-39),
                               [2.0 ** 96, -3, 2.0 ** 90], numpy.arange(32) / 16]).astype(F)
    image = (numpy.maximum(draw.standard_normal((2, 3, 5, 20)), 0) * numpy.arange(1, 21)).astype(F)
    big = (draw.standard_normal(2048 + 1023) * 1e-6).astype(F)
    return {"outliers": outliers, "edges": edges, "image": image, "big": big}


CASES = [
    ("outliers", 8, 0, None), ("outliers", 16, 1, None), ("outliers", 32, 2, None), ("outliers", 64, 3, None),
    ("outliers", 128, 0, None), ("outliers", 256, 65535, None), ("outliers", 512, 0, None), ("edges", 16, 0, None),
    ("edges", 64, 5, None), ("big", 512, 9, None), ("big", 1024, 0, None), ("image", 32, 0, None),
    ("outliers", 128, 0, dict(bits=4, size=128)), ("outliers", 64, 4, dict(bits=3, size=32, zero="asym")),
    ("image", 128, 0, dict(bits=4, size=64)), ("image", 8, 0, dict(bits=4, size=128, dim="channel")),
    ("big", 256, 0, dict(bits=2, size=100, clip="mse")), ("edges", 32, 0, dict(bits=5, size=16, scale="e8m0")),
]


def main():
    tensors = inputs()
    out = dict(tensors)
    for name, size, seed, keys in CASES:
        x = tensors[name]
        spec, y = f"hadamard:size={size},seed={seed}", forward(x.ravel(), size, seed)
        if keys:
            spec += "+block:" + ",".join(f"{k}={v}" for k, v in keys.items())
            body, decoded = Block(**keys).code(y, x.shape)
            body = bytes_of(F(0)) + body  # the block's head, form 0
        else:
            body, decoded = [b for v in y for b in bytes_of(v)], y
        restored = backward(numpy.array(decoded, dtype=F), size, seed)
        out[f"{name}/{spec}.payload"] = numpy.array(bytes_of(F(0)) + body, dtype=numpy.int32)  # no side bytes
        out[f"{name}/{spec}.tensor"] = restored.reshape(x.shape)
    write(sys.argv[1], out)


if __name__ == "__main__":
    main()
