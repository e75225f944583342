#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/models/encoders.safetensors: whole encoders in PyTorch, for
tests/unit/test_encoder.c. Layers are torch.nn.TransformerEncoderLayer (post-norm,
exact GELU, no dropout) behind a padding mask; embeddings and heads are written
here after the structure of Hugging Face's RobertaForSequenceClassification and
BertForSequenceClassification, whose names the parameters get. Positions of
padding are those of Hugging Face, too: they must not matter. Computed in
float64 from parameters of float32. Run from the source root; needs torch.

Names in the file: CASE/param.NAME; CASE/tokens, length, types; CASE/hidden, the
last layer's output, and CASE/logits; CASE/glogits, their gradient, and what it
gives, CASE/grad.NAME; CASE/ghidden, a gradient of the hidden values that is 0 at
padding, and CASE/grad_hidden.NAME.
"""
import sys

import numpy
import torch
from torch import nn

import tensor_file

CLASSES, VOCAB, MAX, PAD = 3, 40, 20, 1

CASES = {  # family, layers, features, heads, ffn, lengths, whether ghidden is there
    "roberta2": ("roberta", 2, 16, 2, 32, (12, 5, 1, 9), True),
    "bert2": ("bert", 2, 16, 4, 24, (3, 12, 7), True),
    "roberta12": ("roberta", 12, 16, 4, 24, (12, 4, 8), False),
}
POSITIONS = 12

tensors = {}


def put(name, tensor):
    array = tensor.detach().numpy()
    tensors[name] = array.astype(numpy.int32 if array.dtype.kind == "i" else numpy.float32)


class Encoder(nn.Module):
    def __init__(self, family, layers, features, heads, ffn):
        super().__init__()
        self.family, self.roberta = family, family == "roberta"
        eps = 1e-5 if self.roberta else 1e-12
        self.word = nn.Embedding(VOCAB, features)
        self.types = nn.Embedding(1 if self.roberta else 2, features)
        self.position = nn.Embedding(MAX, features)
        self.norm = nn.LayerNorm(features, eps)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(features, heads, ffn, 0.0, "gelu", eps, batch_first=True, norm_first=False)
            for _ in range(layers))
        self.dense = nn.Linear(features, features)
        self.out = nn.Linear(features, CLASSES)

    def hidden(self, tokens, length, types):
        count = torch.arange(tokens.shape[1])
        padding = count[None, :] >= length
        if self.roberta:
            position = torch.where(padding, torch.tensor(PAD), PAD + 1 + count[None, :])
            types = torch.zeros_like(types)
        else:
            position = count[None, :].expand_as(tokens)
        x = self.norm(self.word(tokens) + self.types(types) + self.position(position))
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        return x

    def forward(self, hidden):
        return self.out(torch.tanh(self.dense(hidden[:, 0])))

    def named(self, value):
        """What value() makes of each parameter, by Hugging Face's names."""
        names = {}
        for module, name in ((self.word, "word_embeddings"), (self.types, "token_type_embeddings"),
                             (self.position, "position_embeddings"), (self.norm, "LayerNorm")):
            self.add(names, f"{self.family}.embeddings.{name}", module, value)
        for n, layer in enumerate(self.layers):
            prefix = f"{self.family}.encoder.layer.{n}"
            for part in ("weight", "bias"):
                thirds = value(getattr(layer.self_attn, f"in_proj_{part}")).chunk(3)
                for third, name in zip(thirds, ("query", "key", "value")):
                    names[f"{prefix}.attention.self.{name}.{part}"] = third
            for module, name in ((layer.self_attn.out_proj, "attention.output.dense"),
                                 (layer.norm1, "attention.output.LayerNorm"), (layer.linear1, "intermediate.dense"),
                                 (layer.linear2, "output.dense"), (layer.norm2, "output.LayerNorm")):
                self.add(names, f"{prefix}.{name}", module, value)
        self.add(names, "classifier.dense" if self.roberta else "bert.pooler.dense", self.dense, value)
        self.add(names, "classifier.out_proj" if self.roberta else "classifier", self.out, value)
        return names

    @staticmethod
    def add(names, prefix, module, value):
        for part, p in module.named_parameters():
            names[f"{prefix}.{part}"] = value(p)


def start(net):
    """Away from 0 and 1, and exact in float32. Matrices of 0.25 would make all tokens alike within twelve layers, and
    gradients of queries so small that float32 loses them, in PyTorch as well."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            norm = "norm" in name
            drawn = torch.randn(p.shape) * (0.1 if norm or p.dim() == 1 else 0.15)
            p.copy_(drawn + (1 if norm and name.endswith("weight") else 0))
    return net.double()


def backward(case, key, net, output, gradient):
    net.zero_grad()
    output.backward(gradient, retain_graph=True)
    for name, g in net.named(lambda p: p.grad if p.grad is not None else torch.zeros_like(p)).items():
        if key == "grad" or name.startswith(net.family):
            put(f"{case}/{key}.{name}", g)


def run(case, family, layers, features, heads, ffn, lengths, with_hidden):
    net = start(Encoder(family, layers, features, heads, ffn))
    length = torch.tensor(lengths)[:, None]
    valid = torch.arange(POSITIONS)[None, :] < length
    tokens = torch.where(valid, torch.randint(PAD + 1, VOCAB, valid.shape), torch.tensor(PAD))
    types = ((torch.arange(POSITIONS)[None, :] >= length // 2) & valid).long()
    for name, p in net.named(lambda p: p).items():
        put(f"{case}/param.{name}", p)
    hidden = net.hidden(tokens, length, types)
    logits = net(hidden)
    for name, t in (("tokens", tokens), ("length", length), ("types", types), ("hidden", hidden), ("logits", logits)):
        put(f"{case}/{name}", t)
    gradient = torch.randn(logits.shape)
    put(f"{case}/glogits", gradient)
    backward(case, "grad", net, logits, gradient.double())
    if with_hidden:
        gradient = torch.randn(hidden.shape) * valid[:, :, None]
        put(f"{case}/ghidden", gradient)
        backward(case, "grad_hidden", net, hidden, gradient.double())


def main():
    torch.manual_seed(20240516)
    for case, how in CASES.items():
        run(case, *how)
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/models/encoders.safetensors"
    print(f"{path}: {len(tensors)} tensors, {tensor_file.write(path, tensors)} bytes")


if __name__ == "__main__":
    main()
