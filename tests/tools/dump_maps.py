#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_maps.py [OUT.safetensors]: gradients in PyTorch where backward reads decoded maps, for tests/unit/test_maps_torch.c.

Run it from the root of the repository; it writes tests/golden/ops/maps.safetensors. What autograd saves for backward goes
through saved_tensors_hooks: in place of a map it gives back what decoding its code gives, by the rule of common/CODECS.md,
in blocks as common/codec/codec_store.h has them. Parameters, statistics, data and the places of maxima stay as they are.
Everything else is float64.

What is a map is what the plans of the CPU device keep (kernels/cpu): the input of a batch norm, of which its activation and
the convolution behind it are computed anew; the inputs of linear layers; a layer norm's normal rows; GELU's slopes; what
attention and tanh give. Queries, keys and values are not encoded.

CASE is picture.CODEC or encoder.CODEC. CASE/param.NAME and CASE/grad.NAME, CASE/x (encoder), CASE/y, CASE/gy, CASE/gx.
Parameters are drawn anew until no value lies so close to the border between two codes that rounding could decide.
"""
import math
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional as F

import draws
import tensor_file

BLOCK = 65536  # GP_STORE_BLOCK
SEED, STREAM = 6, 1  # of the picture's pixels, as in the test
BATCH, SIDE, IN, MIDDLE, POOL, CLASSES = 8, 24, 8, 16, 4, 5
SAMPLES, POSITIONS, FEATURES, HEADS, FFN = 3, 6, 16, 2, 24


class TooClose(Exception):
    """A value at the border between two codes."""


# --- codecs: arrays of float32 to what decoding gives, and how far from a border each value is, in units of the values ---


def uniform8(x):
    low, high = x.min(), x.max()
    step = numpy.float32((high - low) / numpy.float32(255))
    at = (x - low) / (step if step > 0 else numpy.float32(1))
    code = numpy.minimum(numpy.rint(at), numpy.float32(255)).astype(numpy.float32)
    return code * step + low, numpy.abs(0.5 - numpy.abs(at - numpy.rint(at))) * step, numpy.full_like(x, step)


def bf16(x):
    bits = x.view(numpy.uint32)
    code = (bits + numpy.uint32(0x7FFF) + (bits >> numpy.uint32(16) & numpy.uint32(1))) & numpy.uint32(0xFFFF0000)
    step = numpy.exp2(numpy.floor(numpy.log2(numpy.maximum(numpy.abs(x), 1e-30))) - 7).astype(numpy.float32)
    rest = (bits & numpy.uint32(0xFFFF)).astype(numpy.float32) / 65536
    return code.view(numpy.float32), numpy.abs(0.5 - rest) * step, step


def decoded(codec, map_, exact):
    """`exact`: the device computes the very same values, ties included. Steps too small to be seen in the result are not
    looked at."""
    x = map_.detach().numpy().astype(numpy.float32).reshape(-1)
    out = numpy.empty_like(x)
    for at in range(0, len(x), BLOCK):
        block = numpy.ascontiguousarray(x[at:at + BLOCK])
        out[at:at + BLOCK], border, step = codec(block)
        size = math.sqrt(float((block.astype(float)**2).mean()))
        if not exact and bool(((border < 1e-6 * size) & (step > 1e-4 * size)).any()):
            raise TooClose
    return torch.from_numpy(out.astype(float)).reshape(map_.shape)


# --- what autograd saves ----------------------------------------------------------------------------------------------


class Maps:
    """Hooks that give back what `keep` and `remake` say of a tensor, and everything else as it was."""

    def __init__(self, codec):
        self.codec, self.later, self.alive, self.saved = codec, {}, [], set()

    def remake(self, tensor, value):
        self.later[tensor.data_ptr()] = value
        self.alive.append(tensor)  # its address is not given away
        return tensor

    def keep(self, tensor, exact=False):
        """As the device has it: channels last."""
        order = tensor.permute(0, 2, 3, 1).contiguous() if tensor.dim() == 4 else tensor
        value = decoded(self.codec, order, exact)
        return self.remake(tensor, value.permute(0, 3, 1, 2) if tensor.dim() == 4 else value)

    def hooks(self):
        def pack(tensor):
            self.saved.add(tensor.data_ptr())
            return tensor

        def unpack(tensor):  # what an op saves of its own output is known to be a map behind it
            return self.later.get(tensor.data_ptr(), tensor).reshape(tensor.shape)

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


class LayerNorm(torch.autograd.Function):
    """From normal rows, which are what it saves."""

    @staticmethod
    def forward(ctx, x, weight, bias, normal, scale):
        ctx.save_for_backward(normal, weight, scale)
        return normal * weight + bias

    @staticmethod
    def backward(ctx, dout):
        normal, weight, scale = ctx.saved_tensors
        g = dout * weight
        dx = (g - g.mean(-1, True) - normal * (g * normal).mean(-1, True)) * scale
        return dx, (dout * normal).sum((0, 1)), dout.sum((0, 1)), None, None


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(slope)
        return F.gelu(x)

    @staticmethod
    def backward(ctx, dout):
        return dout * ctx.saved_tensors[0], None


class Attention(torch.autograd.Function):
    """`out` is what it gives, and reads in backward: the gradients of a row's weights come to dout out."""

    @staticmethod
    def forward(ctx, q, k, v, out):
        ctx.save_for_backward(q, k, v, out)
        return out.clone()

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out = ctx.saved_tensors
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1)
        slopes = weights * (dout @ v.transpose(-1, -2) - (dout * out).sum(-1, True)) / math.sqrt(q.shape[-1])
        return slopes @ k, slopes.transpose(-1, -2) @ q, weights.transpose(-1, -2) @ dout, None


# --- the networks -----------------------------------------------------------------------------------------------------


class Picture(nn.Module):
    """A convolution of 1x1, batch norm, ReLU6, a depthwise convolution, the maxima of 4x4, a linear layer. Pixels and first
    weights are integers, so that the batch norm's input is exact."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(IN, MIDDLE, 1, bias=False)
        self.norm = nn.BatchNorm2d(MIDDLE)
        self.deep = nn.Conv2d(MIDDLE, MIDDLE, 3, padding=1, groups=MIDDLE, bias=False)
        self.fc = nn.Linear(MIDDLE * (SIDE // POOL)**2, CLASSES)
        with torch.no_grad():
            self.first.weight.copy_(torch.randint(-31, 32, self.first.weight.shape))
            self.norm.weight.copy_(1 + 2 * torch.rand(MIDDLE))
            self.norm.bias.copy_(1 + torch.randn(MIDDLE))

    @staticmethod
    def data():
        count = BATCH * SIDE * SIDE * IN
        words = draws.blocks(SEED, STREAM, 0, (count + 3) // 4).reshape(-1)[:count]
        x = (words % numpy.uint64(9)).astype(float) - 4
        return torch.from_numpy(x.reshape(BATCH, SIDE, SIDE, IN)).permute(0, 3, 1, 2).contiguous()

    def normalized(self, x, like):
        mean, var = like.mean((0, 2, 3), True), like.var((0, 2, 3), False, True)
        weight, bias = (p.reshape(1, -1, 1, 1) for p in (self.norm.weight, self.norm.bias))
        return (x - mean) / torch.sqrt(var + self.norm.eps) * weight + bias

    def forward(self, x, maps):
        kept = maps.keep(self.first(x), exact=True)
        again = self.normalized(maps.later[kept.data_ptr()], kept).detach()
        if bool((torch.minimum(again.abs(), (again - 6).abs()) < 1e-5).any()):
            raise TooClose
        value = maps.remake(self.norm(kept), again)
        active = maps.remake(F.relu6(value), F.relu6(again))
        deep = self.deep(active)
        windows = F.unfold(deep.reshape(-1, 1, SIDE, SIDE), POOL, stride=POOL).detach()
        largest = windows.topk(2, 1).values
        gap = largest[:, 0] - largest[:, 1]
        if bool(((gap > 0) & (gap < 1e-5)).any()):
            raise TooClose
        return self.fc(maps.keep(F.max_pool2d(deep, POOL)).flatten(1))


class Encoder(nn.Module):
    """A layer of an encoder, its first position, a linear layer with tanh and one more."""

    def __init__(self):
        super().__init__()
        for name, inputs, outputs in (("q", FEATURES, FEATURES), ("k", FEATURES, FEATURES), ("v", FEATURES, FEATURES),
                                      ("o", FEATURES, FEATURES), ("f0", FEATURES, FFN), ("f1", FFN, FEATURES),
                                      ("pool", FEATURES, FEATURES), ("fc", FEATURES, CLASSES)):
            setattr(self, name, nn.Linear(inputs, outputs))
        for name in ("n0", "n1", "n2"):
            setattr(self, name, nn.LayerNorm(FEATURES, 1e-5))
        with torch.no_grad():
            for p in self.parameters():
                p.add_(torch.randn(p.shape) * 0.2)

    @staticmethod
    def data():
        return torch.randn(SAMPLES, POSITIONS, FEATURES).double()

    def layer_norm(self, norm, x, maps):
        scale = 1 / torch.sqrt(x.var(-1, False, True) + norm.eps)
        normal = ((x - x.mean(-1, True)) * scale).detach()
        return LayerNorm.apply(x, norm.weight, norm.bias, maps.keep(normal), scale.detach())

    def attend(self, x, maps):
        q, k, v = (each(x).reshape(SAMPLES, POSITIONS, HEADS, -1).transpose(1, 2).contiguous()
                   for each in (self.q, self.k, self.v))
        out = (torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v).detach()
        rows = decoded(maps.codec, out.transpose(1, 2).contiguous(), False)
        maps.remake(out, rows.transpose(1, 2).contiguous())
        joined = Attention.apply(q, k, v, out).transpose(1, 2).reshape(x.shape)
        return maps.remake(joined, rows)

    def forward(self, x, maps):
        first = maps.keep(self.layer_norm(self.n0, x, maps))
        middle = maps.keep(self.layer_norm(self.n1, self.o(self.attend(first, maps)) + first, maps))
        wide = self.f0(middle)
        at = wide.detach()
        slope = 0.5 * (1 + torch.erf(at / math.sqrt(2))) + at * torch.exp(-at**2 / 2) / math.sqrt(2 * math.pi)
        wide = maps.keep(Gelu.apply(wide, maps.keep(slope)))
        last = self.layer_norm(self.n2, self.f1(wide) + middle, maps)
        row = maps.keep(last[:, 0].contiguous())
        return self.fc(maps.keep(torch.tanh(self.pool(row))))


# --- the file ---------------------------------------------------------------------------------------------------------

tensors = {}


def put(name, tensor):
    t = tensor.detach()
    tensors[name] = (t.permute(0, 2, 3, 1) if t.dim() == 4 and not name.split("/")[1].startswith(("param", "grad"))
                     else t).contiguous().numpy().astype(numpy.float32)


def record(case, kind, codec, seed):
    torch.manual_seed(seed)
    net, x = kind().float().double(), kind.data().float().double().requires_grad_(True)
    maps = Maps(codec)
    with maps.hooks():
        y = net.train()(x, maps)
    assert maps.saved >= set(maps.later), "autograd has saved something else than a map"
    gy = torch.randn(y.shape).double()
    y.backward(gy)
    for key, p in net.named_parameters():
        put(f"{case}/param.{key}", p)
        put(f"{case}/grad.{key}", p.grad)
    for key, t in (("y", y), ("gy", gy)) + ((("x", x), ("gx", x.grad)) if kind is Encoder else ()):
        put(f"{case}/{key}", t)


def main():
    for name, kind in (("picture", Picture), ("encoder", Encoder)):
        for codec in (uniform8, bf16):
            for seed in range(1, 10000):
                try:
                    record(f"{name}.{codec.__name__}", kind, codec, seed)
                    print(f"{name}.{codec.__name__}: seed {seed}")
                    break
                except TooClose:
                    continue
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ops/maps.safetensors"
    print(f"{path}: {len(tensors)} tensors, {tensor_file.write(path, tensors)} bytes")


if __name__ == "__main__":
    main()
