#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_ops.py [OUT.safetensors]: what PyTorch computes for single ops, for tests/unit/test_cpu_ops.c.

Run it from the root of the repository; it writes tests/golden/ops/ops.safetensors. Every case NAME has NAME/attr (int32:
gp_op, then the attributes in the order of the structs in common/graph/ops, real ones as their bits), NAME/x, NAME/y,
NAME/gy, NAME/gx, and parameters NAME/weight ... with gradients NAME/grad.weight .... Further inputs and outputs are
NAME/x1, NAME/y1 and so on; integers have no gradient. Images are channels last; parameters keep PyTorch's layouts.
"""
import math
import re
import sys
import types

import numpy
import torch
import torch.nn.functional as F

import tensor_file
from batch_norm_modes import MODES, normalize

# OPS.CONV2D and so on: the ids of the table of ops.
with open("common/graph/op_table.h", encoding="utf-8") as table:
    OPS = types.SimpleNamespace(
        **{name: int(number) for number, name in re.findall(r"X\((\d+), ([A-Z0-9_]+), \w+\)", table.read())})
tensors = {}


def put(name, value):
    array = value.detach().numpy() if isinstance(value, torch.Tensor) else numpy.asarray(value)
    dtype = numpy.int32 if array.dtype.kind == "i" else numpy.float32
    tensors[name] = numpy.ascontiguousarray(array.astype(dtype))


def last(t):
    """Channels last in memory, as every activation of ours."""
    return t.permute(0, 2, 3, 1) if t.dim() == 4 else t


def record(name, attr, x, function, params=(), gy=None):
    """params: (role, tensor) pairs, tensors with requires_grad are compared by gradient too."""
    x = x.clone().requires_grad_(True)
    y = function(x)
    gy = torch.randn(y.shape) if gy is None else gy
    y.backward(gy)
    put(f"{name}/attr", numpy.array(attr, dtype=numpy.int32))
    for key, value in (("x", x), ("y", y), ("gy", gy), ("gx", x.grad)):
        put(f"{name}/{key}", last(value))
    for role, p in params:
        put(f"{name}/{role}", p)
        if p.requires_grad:
            put(f"{name}/grad.{role}", p.grad)


def numbered(key, k):
    return key if k == 0 else f"{key}{k}"


def record_many(name, attr, inputs, function, params=()):
    """The same of several inputs, real or integer; `function` returns a list of outputs."""
    inputs = [x.clone().requires_grad_(True) if x.is_floating_point() else x for x in inputs]
    outputs = function(*inputs)
    gys = [torch.randn(y.shape) for y in outputs]
    torch.autograd.backward(outputs, gys)
    put(f"{name}/attr", numpy.array(attr, dtype=numpy.int32))
    for k, x in enumerate(inputs):
        put(f"{name}/{numbered('x', k)}", last(x))
        if x.is_floating_point():
            put(f"{name}/{numbered('gx', k)}", last(x.grad))
    for k, (y, gy) in enumerate(zip(outputs, gys)):
        put(f"{name}/{numbered('y', k)}", last(y))
        put(f"{name}/{numbered('gy', k)}", last(gy))
    for role, p in params:
        put(f"{name}/{role}", p)
        put(f"{name}/grad.{role}", p.grad)


def leaf(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).requires_grad_(True)


def conv(name, n, h, w, c, out, kernel, stride=1, pad=0, groups=1, bias=False):
    """pad: (top, bottom, left, right) or one number."""
    t, b, l, r = (pad,) * 4 if isinstance(pad, int) else pad
    weight = leaf(out, c // groups, kernel, kernel, scale=0.3)
    params = [("weight", weight)]
    if bias:
        params.append(("bias", leaf(out)))
    record("conv_" + name, [OPS.CONV2D, out, kernel, kernel, stride, stride, t, b, l, r, 0, 0, groups, bias],
           torch.randn(n, c, h, w),
           lambda x: F.conv2d(F.pad(x, (l, r, t, b)), weight, params[1][1] if bias else None, stride, 0, 1, groups),
           params)


def conv_transpose(name, n, h, w, c, out, kernel, stride=1, pad=(0, 0, 0, 0), out_pad=0, groups=1, bias=True):
    t, b, l, r = pad
    rest = (out_pad, out_pad) if isinstance(out_pad, int) else out_pad
    weight = leaf(c, out // groups, kernel, kernel, scale=0.3)
    params = [("weight", weight)]
    if bias:
        params.append(("bias", leaf(out)))

    def run(x):
        y = F.conv_transpose2d(x, weight, params[1][1] if bias else None, stride, 0, rest, groups)
        return y[:, :, t:y.shape[2] - b, l:y.shape[3] - r]

    record("transpose_" + name,
           [OPS.CONV2D_TRANSPOSE, out, kernel, kernel, stride, stride, t, b, l, r, *rest, groups, bias],
           torch.randn(n, c, h, w), run, params)


def bits(real):
    return int(numpy.float32(real).view(numpy.int32))


def batch_norm(name, shape, act=0, offset=0.0, mode=MODES.CHUNK, limits=None):
    """act: 0, or OPS.RELU or OPS.RELU6 behind it. limits: r_max and d_max of renorm."""
    c = shape[1]
    weight, bias = leaf(c), leaf(c)
    mean, var = torch.randn(c), torch.rand(c) + 0.5
    before = [("running_mean", mean.clone()), ("running_var", var.clone())]
    x = torch.randn(*shape) * 2 + offset

    def run(v, training=True):
        y = normalize(v, mean, var, weight, bias, mode if training else MODES.RUNNING, *(limits or ()))
        return F.relu(y) if act == OPS.RELU else F.relu6(y * 1.0) if act == OPS.RELU6 else y

    how = [mode] + [bits(v) for v in limits] if limits else [mode] if mode else []
    record("bn_" + name, [OPS.BATCH_NORM, act] + how, x, run, [("weight", weight), ("bias", bias)] + before)
    put(f"bn_{name}/after.running_mean", mean)
    put(f"bn_{name}/after.running_var", var)
    put(f"bn_{name}/y_eval", last(run(x, training=False)))


def pool(name, op, n, h, w, c, kernel, stride, pad=(0, 0, 0, 0), include=True):
    t, b, l, r = pad
    symmetric = t == b and l == r

    def run(x):
        if op == OPS.MAX_POOL:
            return F.max_pool2d(F.pad(x, (l, r, t, b), value=-float("inf")), kernel, stride)
        if symmetric:
            return F.avg_pool2d(x, kernel, stride, (t, l), False, include)
        return F.avg_pool2d(F.pad(x, (l, r, t, b)), kernel, stride)

    record("pool_" + name, [op, *kernel, stride, stride, t, b, l, r, include], torch.randn(n, c, h, w), run)


def linear(name, shape, out, bias):
    weight = leaf(out, shape[-1], scale=0.3)
    params = [("weight", weight)]
    if bias:
        params.append(("bias", leaf(out)))
    record("linear_" + name, [OPS.LINEAR, out, bias], torch.randn(*shape),
           lambda x: F.linear(x, weight, params[1][1] if bias else None), params)


def add_with_fan_out():
    """r = relu(x); s = r + conv(r); y = s + s"""
    weight = leaf(6, 6, 1, 1)

    def run(x):
        r = F.relu(x)
        s = r + F.conv2d(r, weight)
        return s + s

    record("add_fan_out", [OPS.ADD], torch.randn(2, 6, 5, 4), run, [("weight", weight)])


def shortcut(name, shape, stride, before, after):
    """He et al., option A"""
    record("shortcut_" + name, [OPS.SHORTCUT_PAD, stride, before, after], torch.randn(*shape),
           lambda x: F.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, before, after)))


def cross_entropy(name, n, k, scale):
    x = (torch.randn(n, k) * scale).requires_grad_(True)
    labels = torch.randint(0, k, (n,))
    loss = F.cross_entropy(x, labels, reduction="sum")
    (loss / n).backward()
    put(f"loss_{name}/x", x)
    put(f"loss_{name}/labels", labels)
    put(f"loss_{name}/loss", loss.reshape(1))
    put(f"loss_{name}/gx", x.grad)
    put(f"loss_{name}/correct", numpy.array([int((x.argmax(1) == labels).sum())]))


def optimizer(name, kind, make, settings, lrs):
    """A linear layer whose gradient does not depend on its weight, so that only the update is tested."""
    weight, bias = leaf(3, 5), leaf(3)
    optim = make([weight, bias])
    x = torch.randn(4, 5)
    put(f"optim_{name}/kind", numpy.array([kind]))
    put(f"optim_{name}/settings", torch.tensor(settings, dtype=torch.float32))
    put(f"optim_{name}/lr", torch.tensor(lrs))
    put(f"optim_{name}/x", x)
    put(f"optim_{name}/weight", weight.clone())
    put(f"optim_{name}/bias", bias.clone())
    gys, weights, biases = [], [], []
    for lr in lrs:
        gy = torch.randn(4, 3)
        optim.zero_grad()
        F.linear(x, weight, bias).backward(gy)
        for group in optim.param_groups:
            group["lr"] = lr
        optim.step()
        gys.append(gy)
        weights.append(weight.detach().clone())
        biases.append(bias.detach().clone())
    put(f"optim_{name}/gy", torch.stack(gys))
    put(f"optim_{name}/weights", torch.stack(weights))
    put(f"optim_{name}/biases", torch.stack(biases))


def embedding(name, ids, vocab, features):
    """Ids outside the table give zeros."""
    table = leaf(vocab, features)
    known = (ids >= 0) & (ids < vocab)
    record_many("embedding_" + name, [OPS.EMBEDDING, vocab, features], [ids.int()],
                lambda i: [F.embedding(i.long().clamp(0, vocab - 1), table) * known.unsqueeze(-1)],
                [("weight", table)])


def masked_mean(name, n, s, f, mask):
    def run(x, m):
        kept = (m != 0).float().unsqueeze(-1)
        return [(x * kept).sum(1) / kept.sum(1).clamp(min=1)]

    record_many("masked_mean_" + name, [OPS.MASKED_MEAN], [torch.randn(n, s, f), mask.int()], run)


def many_inputs_and_outputs():
    images = [torch.randn(2, c, 3, 4) for c in (5, 5, 5)]
    record_many("sum_three", [OPS.ADD], images, lambda a, b, c: [a + b + c])
    record_many("sum_five", [OPS.ADD], [torch.randn(3, 301) for _ in range(5)], lambda *x: [sum(x[1:], x[0])])
    record_many("identity", [OPS.IDENTITY], [torch.randn(2, 3, 4, 5)], lambda x: [x * 1])
    record_many("concat_images", [OPS.CONCAT], [torch.randn(2, c, 3, 4) for c in (3, 8, 1)],
                lambda *x: [torch.cat(x, 1)])
    record_many("concat_rows", [OPS.CONCAT], [torch.randn(3, 4, f) for f in (16, 8)], lambda *x: [torch.cat(x, 2)])
    record_many("split_images", [OPS.SPLIT, 3], [torch.randn(2, 12, 3, 4)], lambda x: list(x.chunk(3, 1)))
    record_many("split_rows", [OPS.SPLIT, 2], [torch.randn(3, 4, 10)], lambda x: list(x.chunk(2, 2)))
    embedding("small", torch.tensor([[1, 4, 1, 0, 6, 1, 2], [5, 5, 5, 5, 3, 1, 6]]), 7, 5)
    embedding("unknown", torch.tensor([[0, -1, 3], [4, 2, 2**31 - 1], [-2**31, 1, 1]]), 4, 16)
    embedding("wide", torch.randint(0, 50, (3, 40)), 50, 130)
    masked_mean("some", 3, 5, 7, torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, -3, 2, 1]]))
    masked_mean("all", 2, 9, 64, torch.ones(2, 9))


def layer_norm(name, shape, residual, eps=1e-5, offset=0.0):
    """shape: of a chunk, images as PyTorch has them. residual: a second input is added to the first."""
    features = shape[1] if len(shape) == 4 else shape[-1]
    weight, bias = leaf(features), leaf(features)
    inputs = [torch.randn(*shape) * 2 + offset for _ in range(2 if residual else 1)]

    def run(*x):
        y = F.layer_norm(last(sum(x[1:], x[0])), (features,), weight, bias, eps)
        return [y.permute(0, 3, 1, 2) if len(shape) == 4 else y]

    record_many("layer_norm_" + name, [OPS.LAYER_NORM, bits(eps), bits(0.0)], inputs, run,
                [("weight", weight), ("bias", bias)])


def attention(name, n, s, f, heads, lengths):
    """lengths: of the samples; below 0 counts as 0, above s as s. Padding has no influence, and its rows are zeros."""
    length = torch.tensor(lengths, dtype=torch.int32).reshape(n, 1)

    def by_head(t):
        return t.reshape(n, s, heads, f // heads).transpose(1, 2)

    def run(q, k, v, tokens):
        kept = torch.arange(s) < tokens.clamp(0, s)
        scores = by_head(q) @ by_head(k).transpose(2, 3) / math.sqrt(f // heads)
        # Not minus infinity, of which a sample without tokens would have nothing else.
        weights = torch.softmax(scores.masked_fill(~kept[:, None, None, :], -1e30), 3)
        return [(weights @ by_head(v)).transpose(1, 2).reshape(n, s, f) * kept.unsqueeze(2)]

    values = [torch.randn(n, s, f) for _ in range(3)]
    record_many("attention_" + name, [OPS.ATTENTION, heads, bits(0.0)], values + [length], run)


def add_rows(name, n, s, f, rows, first, step):
    table = leaf(rows, f)
    picked = first + torch.arange(s) * step
    record_many("add_rows_" + name, [OPS.ADD_ROWS, rows, first, step], [torch.randn(n, s, f)],
                lambda x: [x + F.embedding(picked, table)], [("weight", table)])


def take_row(name, n, s, f, row):
    record_many("take_row_" + name, [OPS.TAKE_ROW, row], [torch.randn(n, s, f)], lambda x: [x[:, row]])


def take_rows(name, s, f, positions):
    """Positions outside the sequence give zeros."""
    positions = torch.tensor(positions)
    there = (positions >= 0) & (positions < s)
    sample = torch.arange(len(positions))[:, None]
    record_many("take_rows_" + name, [OPS.TAKE_ROWS], [torch.randn(len(positions), s, f), positions.int()],
                lambda x, p: [x[sample, p.long().clamp(0, s - 1)] * there.unsqueeze(2)])


def language_models():
    # Both tails, and values that other forms than the one for small ones compute.
    wide = torch.cat([torch.linspace(-15, 15, 607), torch.randn(300), torch.randn(300) * 1e-4, torch.tensor([0.0])])
    for name, approximate in ("gelu", "none"), ("gelu_tanh", "tanh"):
        record(name, [OPS.GELU, int(approximate == "tanh")], torch.randn(3, 7, 45) * 2,
               lambda x, how=approximate: F.gelu(x, approximate=how))
        record(name + "_wide", [OPS.GELU, int(approximate == "tanh")], wide.reshape(2, -1),
               lambda x, how=approximate: F.gelu(x, approximate=how))
    record("tanh", [OPS.TANH], torch.randn(5, 61), torch.tanh)
    record("tanh_wide", [OPS.TANH], wide.reshape(2, -1), torch.tanh)
    layer_norm("rows", (3, 5, 24), False)
    layer_norm("residual", (3, 5, 37), True)
    layer_norm("residual_wide", (3, 23, 136), True, 1e-12)
    layer_norm("vector", (6, 10), False, 0.5)
    layer_norm("image", (2, 19, 3, 4), False)
    layer_norm("few_features", (7, 3), True, 1e-3)
    layer_norm("far_from_zero", (2, 9, 70), True, 1e-5, 30.0)
    attention("one_head", 4, 7, 10, 1, [7, 0, 3, 1])
    attention("three_heads", 5, 9, 24, 3, [1, 9, 0, 4, 8])
    attention("long", 3, 70, 24, 3, [70, 33, 64])
    attention("length_beyond", 3, 6, 8, 2, [-5, 2**31 - 1, -2**31])
    add_rows("positions", 3, 5, 20, 5, 0, 1)
    add_rows("positions_from_2", 4, 6, 17, 9, 2, 1)
    add_rows("one_row", 3, 5, 24, 1, 0, 0)
    add_rows("one_row_of_many", 2, 7, 130, 4, 3, 0)
    take_row("first", 4, 5, 18, 0)
    take_row("last", 3, 6, 33, 5)
    take_rows("few", 7, 20, [[1, 6], [0, 2], [5, 4]])
    take_rows("again", 9, 37, [[3, 3, 8, 0, 3], [0, 0, 0, 0, 0], [8, 7, 6, 5, 8]])
    take_rows("outside", 6, 19, [[-1, 6, 5], [2**31 - 1, 0, -2**31], [0, 5, 0]])


def convolutions():
    conv("1x1", 2, 7, 5, 24, 40, 1)
    conv("1x1_odd", 3, 5, 5, 5, 3, 1, bias=True)
    conv("3x3", 2, 8, 7, 16, 24, 3, 1, 1)
    conv("3x3_bias", 2, 8, 7, 3, 24, 3, 1, 1, bias=True)
    conv("3x3_stride2", 2, 9, 9, 3, 16, 3, 2, 1)
    conv("tf_same_stride2", 2, 8, 8, 5, 24, 3, 2, (0, 1, 0, 1), bias=True)
    conv("padded_apart", 2, 6, 7, 5, 3, 3, 1, (2, 0, 1, 2))
    conv("5x5", 1, 9, 8, 4, 6, 5, 2, 2, bias=True)
    conv("grouped", 2, 6, 6, 24, 36, 3, 1, 1, groups=3, bias=True)
    conv("grouped_odd", 2, 6, 6, 6, 10, 3, 2, 1, groups=2)
    conv("depthwise", 2, 9, 8, 24, 24, 3, 1, 1, groups=24)
    conv("depthwise_stride2", 2, 9, 8, 24, 24, 3, 2, 1, groups=24)
    conv("depthwise_odd", 2, 7, 7, 5, 5, 3, 2, (0, 1, 0, 1), groups=5, bias=True)
    conv("depthwise_wide", 1, 7, 7, 96, 96, 3, 1, 1, groups=96)


def transposed_convolutions():
    conv_transpose("k3s3", 2, 4, 3, 20, 16, 3, 3)
    conv_transpose("k2s2", 2, 5, 4, 8, 3, 2, 2, bias=False)
    conv_transpose("out_pad", 2, 5, 4, 6, 5, 3, 2, (1, 1, 1, 1), out_pad=1)
    conv_transpose("cropped_apart", 1, 5, 5, 4, 4, 3, 2, (0, 1, 1, 0))
    conv_transpose("grouped", 2, 4, 4, 12, 6, 3, 2, (1, 1, 1, 1), 1, groups=3)


def main():
    torch.manual_seed(20240229)
    convolutions()
    transposed_convolutions()
    batch_norm("24", (3, 24, 5, 7))
    batch_norm("relu", (2, 16, 6, 6), OPS.RELU)
    batch_norm("relu6", (2, 5, 6, 7), OPS.RELU6, 1.5)
    batch_norm("wide", (2, 144, 4, 4), OPS.RELU6)
    batch_norm("far_from_zero", (4, 8, 12, 12), 0, 30.0)
    batch_norm("vector", (9, 10))
    record("relu", [OPS.RELU], torch.randn(2, 5, 4, 3), F.relu)
    record("relu6", [OPS.RELU6], torch.randn(2, 5, 4, 3) * 6, F.relu6)
    add_with_fan_out()
    pool("avg", OPS.AVG_POOL, 2, 8, 8, 5, (2, 2), 2)
    pool("avg_padded", OPS.AVG_POOL, 2, 7, 8, 20, (3, 3), 2, (1, 1, 1, 1))
    pool("avg_padded_excluded", OPS.AVG_POOL, 2, 7, 8, 5, (3, 2), 2, (1, 1, 1, 1), False)
    pool("avg_padded_apart", OPS.AVG_POOL, 1, 6, 6, 5, (3, 3), 1, (0, 2, 1, 0))
    pool("max", OPS.MAX_POOL, 2, 8, 8, 24, (2, 2), 2)
    pool("max_overlapping", OPS.MAX_POOL, 2, 9, 8, 5, (3, 3), 2, (1, 1, 1, 1))
    pool("max_padded_apart", OPS.MAX_POOL, 1, 6, 6, 5, (3, 3), 1, (0, 2, 1, 0))
    record("global", [OPS.GLOBAL_AVG_POOL], torch.randn(3, 20, 4, 5), lambda x: F.adaptive_avg_pool2d(x, 1))
    linear("plain", (4, 20), 7, True)
    linear("rows", (2, 3, 8), 5, False)
    record("flatten", [OPS.FLATTEN], torch.randn(3, 5, 4, 2), lambda x: x.flatten(1))
    record("flatten_1x1", [OPS.FLATTEN], torch.randn(3, 5, 1, 1), lambda x: x.flatten(1))
    cross_entropy("small", 6, 10, 1.0)
    cross_entropy("peaked", 5, 100, 40.0)
    lrs = [0.1, 0.1, 0.05, 0.02, 0.2]
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    # settings: momentum, nesterov, weight decay, beta1, beta2, eps
    optimizer("sgd", 0, lambda p: sgd(p, 1), [0, 0, 0, 0, 0, 0], lrs)
    optimizer("sgd_decay", 0, lambda p: sgd(p, 1, weight_decay=0.1), [0, 0, 0.1, 0, 0, 0], lrs)
    optimizer("momentum", 0, lambda p: sgd(p, 1, momentum=0.9), [0.9, 0, 0, 0, 0, 0], lrs)
    optimizer("momentum_decay", 0, lambda p: sgd(p, 1, momentum=0.9, weight_decay=0.01), [0.9, 0, 0.01, 0, 0, 0], lrs)
    optimizer("nesterov", 0, lambda p: sgd(p, 1, momentum=0.8, weight_decay=0.01, nesterov=True),
              [0.8, 1, 0.01, 0, 0, 0], lrs)
    optimizer("adam", 1, lambda p: adam(p, weight_decay=0.01), [0, 0, 0.01, 0.9, 0.999, 1e-8], lrs)
    optimizer("adamw", 2, lambda p: adamw(p, betas=(0.8, 0.99), weight_decay=0.1), [0, 0, 0.1, 0.8, 0.99, 1e-8], lrs)
    shortcut("even", (2, 16, 8, 8), 2, 8, 8)
    shortcut("odd", (3, 5, 7, 4), 2, 1, 2)
    shortcut("stride3", (2, 3, 8, 7), 3, 0, 4)
    shortcut("channels_only", (2, 6, 3, 3), 1, 3, 3)
    shortcut("identity", (2, 6, 3, 3), 1, 0, 0)
    # Fewer than 16 channels: oneDNN's 1x1 kernels with a stride write out of bounds.
    conv("1x1_stride2_few", 1, 20, 20, 8, 5, 1, 2)
    conv("1x1_stride2_grouped", 1, 20, 20, 12, 8, 1, 2, groups=2)
    conv_transpose("1x1_stride2_few", 1, 10, 10, 5, 8, 1, 2, out_pad=1)
    many_inputs_and_outputs()
    batch_norm("deferred", (3, 24, 5, 7), OPS.RELU, 0.5, MODES.DEFERRED)
    batch_norm("running", (3, 24, 5, 7), 0, 0.0, MODES.RUNNING)
    batch_norm("running_relu", (2, 16, 6, 6), OPS.RELU, 0.0, MODES.RUNNING)
    batch_norm("running_relu6", (2, 5, 6, 7), OPS.RELU6, 1.5, MODES.RUNNING)
    batch_norm("running_wide", (2, 144, 4, 4), OPS.RELU6, 0.0, MODES.RUNNING)
    batch_norm("running_vector", (9, 10), 0, 0.0, MODES.RUNNING)
    batch_norm("renorm", (3, 24, 5, 7), 0, 0.5, MODES.RENORM, (3.0, 5.0))
    batch_norm("renorm_clipped", (2, 16, 6, 6), OPS.RELU, 0.5, MODES.RENORM, (1.75, 0.5))
    batch_norm("renorm_relu6", (2, 5, 6, 7), OPS.RELU6, 1.5, MODES.RENORM, (3.0, 5.0))
    batch_norm("renorm_wide", (2, 144, 4, 4), OPS.RELU6, 0.0, MODES.RENORM, (2.0, 1.0))
    batch_norm("renorm_vector", (9, 10), 0, 0.0, MODES.RENORM, (3.0, 5.0))
    language_models()
    insertions()
    write(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ops/ops.safetensors")


def insertions():
    """Layers that insertions are made of: sizes that their strides do not divide, kernels as large as their strides."""
    torch.manual_seed(20261123)
    record("swap_last", [OPS.SWAP_LAST], torch.randn(3, 5, 19), lambda x: x.transpose(1, 2))
    record("swap_last_wide", [OPS.SWAP_LAST], torch.randn(2, 33, 70), lambda x: x.transpose(1, 2))
    conv("3x3_stride3_rest", 2, 10, 7, 8, 5, 3, 3, bias=True)
    conv("8x8_stride8", 2, 17, 19, 4, 9, 8, 8, bias=True)
    conv_transpose("k3s3_rest", 2, 3, 2, 5, 8, 3, 3, out_pad=(1, 1))
    conv_transpose("k8s8_rest", 2, 2, 2, 9, 4, 8, 8, out_pad=(1, 3))
    conv_transpose("k4s4", 2, 3, 2, 20, 24, 4, 4)
    conv_transpose("1x1", 3, 5, 4, 6, 24, 1, 1)


def write(path):
    print(f"{path}: {len(tensors)} tensors, {tensor_file.write(path, tensors)} bytes")
    tensors.clear()


if __name__ == "__main__":
    main()
