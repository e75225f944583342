#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torch_text_step.py [OPTION...] MODEL TOKENS BATCH CHUNKS THREADS [STEPS]: what bench_step measures of RoBERTa, in
PyTorch, at its best.

MODEL is roberta[:layers=12,dim=768,heads=12,ffn=3072,vocab=50265,max=514,classes=2,dropout=0.1]. All tokens of the
samples are real, so that no mask is needed and none costs anything. Three encoders with the same layers are timed, and
the best is named last:

- torch: torch.nn.TransformerEncoder of torch.nn.TransformerEncoderLayer (post-norm, GELU);
- written out: one product for query, key and value, attention by torch.baddbmm, softmax, dropout, torch.bmm;
- written out, convolutions: the same, but linear layers are 1x1 convolutions, which PyTorch 1.13 leaves to oneDNN in
  place of its BLAS; they have a dilation, which means nothing for them (torch_step.py says why).

Numbers too small to be normal are flushed to zero. The optimizer is SGD with momentum, with --adamw AdamW, as those of
bench_step; of PyTorch's two ways of AdamW, parameter by parameter and in groups (foreach), the way is --foreach. The
last line but one is what the BLAS reaches in the largest product of a layer: a linear layer forward. --only NAME (torch,
plain, conv) leaves the other encoders out.
"""
import argparse
import os
import resource
import time

# OpenBLAS 0.3.21 does not know newer Xeons and takes its slowest kernels there: a fifth of the speed.
if "avx512f" in open("/proc/cpuinfo", encoding="ascii").read():
    os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")

import torch
from torch import nn
from torch.nn import functional


def options_of(spec):
    name, _, text = spec.partition(":")
    if name != "roberta":
        raise SystemExit(f"torch_text_step.py: MODEL must be roberta, not {name}")
    options = {"layers": 12, "dim": 768, "heads": 12, "ffn": 3072, "vocab": 50265, "max": 514, "classes": 2,
               "dropout": 0.1}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in options:
            raise SystemExit(f"torch_text_step.py: MODEL has no {key}; there are {', '.join(options)}")
        options[key] = float(value) if key == "dropout" else int(value)
    return argparse.Namespace(**options)


class Convolution(nn.Linear):
    """A linear layer (N,S,F) as a 1x1 convolution with channels last: no element moves."""

    def forward(self, x):
        n, s, f = x.shape
        y = functional.conv2d(x.reshape(n, s, 1, f).permute(0, 3, 1, 2), self.weight[:, :, None, None], self.bias,
                              dilation=2)
        return y.permute(0, 2, 3, 1).reshape(n, s, -1)


class Layer(nn.Module):
    def __init__(self, o, linear):
        super().__init__()
        self.heads, self.p = o.heads, o.dropout
        self.qkv, self.out = linear(o.dim, 3 * o.dim), linear(o.dim, o.dim)
        self.wide, self.narrow = linear(o.dim, o.ffn), linear(o.ffn, o.dim)
        self.norm1, self.norm2 = nn.LayerNorm(o.dim), nn.LayerNorm(o.dim)

    def attention(self, x):
        n, s, f = x.shape
        h, d = self.heads, f // self.heads
        q, k, v = (t.reshape(n, s, h, d).transpose(1, 2).reshape(n * h, s, d) for t in self.qkv(x).chunk(3, dim=-1))
        scores = torch.baddbmm(q.new_empty(n * h, s, s), q, k.transpose(1, 2), beta=0, alpha=d ** -0.5)
        weights = functional.dropout(scores.softmax(dim=-1), self.p, self.training)
        return self.out(torch.bmm(weights, v).reshape(n, h, s, d).transpose(1, 2).reshape(n, s, f))

    def forward(self, x):
        x = self.norm1(x + functional.dropout(self.attention(x), self.p, self.training))
        y = self.narrow(functional.gelu(self.wide(x)))
        return self.norm2(x + functional.dropout(y, self.p, self.training))


def encoder(kind, o):
    if kind == "torch":
        layer = nn.TransformerEncoderLayer(o.dim, o.heads, o.ffn, o.dropout, "gelu", batch_first=True)
        return nn.TransformerEncoder(layer, o.layers)
    return nn.Sequential(*(Layer(o, Convolution if kind == "conv" else nn.Linear) for _ in range(o.layers)))


class Model(nn.Module):
    """The embeddings and the classifier of RobertaForSequenceClassification about an encoder."""

    def __init__(self, kind, o):
        super().__init__()
        self.words, self.positions, self.types = (nn.Embedding(n, o.dim) for n in (o.vocab, o.max, 1))
        self.norm, self.encoder, self.p = nn.LayerNorm(o.dim), encoder(kind, o), o.dropout
        self.dense, self.out = nn.Linear(o.dim, o.dim), nn.Linear(o.dim, o.classes)

    def forward(self, tokens):
        at = torch.arange(2, 2 + tokens.shape[1])
        x = self.words(tokens) + self.types.weight[0] + self.positions(at)
        x = self.encoder(functional.dropout(self.norm(x), self.p, self.training))[:, 0]
        x = torch.tanh(self.dense(functional.dropout(x, self.p, self.training)))
        return self.out(functional.dropout(x, self.p, self.training))


def optimizer(model, a):
    if a.adamw:
        return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01, foreach=a.foreach)
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=a.foreach)


def measure(kind, a):
    """Sorted wall times and processor times of the steps, in milliseconds."""
    o = options_of(a.model)
    torch.manual_seed(1)
    model = Model(kind, o).train()
    update, chunk = optimizer(model, a), a.batch // a.chunks
    tokens, labels = torch.randint(o.vocab, (chunk, a.tokens)), torch.zeros(chunk, dtype=torch.long)
    wall, processor = [], []
    for _ in range(a.steps + 1):
        start, cpu_start = time.perf_counter(), time.process_time()
        update.zero_grad(set_to_none=True)
        for _ in range(a.chunks):
            (functional.cross_entropy(model(tokens), labels) / a.chunks).backward()
        update.step()
        wall.append((time.perf_counter() - start) * 1e3)
        processor.append((time.process_time() - cpu_start) * 1e3)
    return sorted(wall[1:]), sorted(processor[1:])


def blas_rate(a):
    """GFLOP/s of the product of a linear layer from `dim` to `ffn` features over a chunk's tokens, the best of ten."""
    o = options_of(a.model)
    x, w = torch.randn(a.batch // a.chunks * a.tokens, o.dim), torch.randn(o.dim, o.ffn)
    y, best = torch.empty(x.shape[0], o.ffn), float("inf")
    for _ in range(11):
        start = time.perf_counter()
        torch.mm(x, w, out=y)
        best = min(best, time.perf_counter() - start)
    return 2e-9 * x.shape[0] * o.dim * o.ffn / best


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("torch", "plain", "conv"))
    parser.add_argument("--adamw", action="store_true")
    parser.add_argument("--foreach", action="store_true")
    parser.add_argument("model")
    for name in ("tokens", "batch", "chunks", "threads"):
        parser.add_argument(name, type=int)
    parser.add_argument("steps", type=int, nargs="?", default=5)
    return parser.parse_args()


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    names = {"torch": "torch", "plain": "written out", "conv": "written out, convolutions"}
    best = None
    for kind in [a.only] if a.only else names:
        wall, cpu = measure(kind, a)
        print(f"{names[kind]}: ms per step: median {wall[len(wall) // 2]:.2f} best {wall[0]:.2f}; "
              f"processor time median {cpu[len(cpu) // 2]:.2f} best {cpu[0]:.2f}", flush=True)
        if best is None or cpu[0] < best[1]:
            best = (names[kind], cpu[0], wall[0])
    print(f"best: {best[0]}: {best[2]:.2f} ms, {best[1]:.2f} ms of processor time")
    print(f"largest product: {blas_rate(a):.1f} GFLOP/s")
    print(f"peak resident MB {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6:.1f}")


main()
