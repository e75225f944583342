#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/models/language_models.safetensors: whole masked language models in PyTorch, for
tests/unit/test_language_model.c. The encoders are those of dump_encoder.py; the head is written here after
RobertaForMaskedLM and BertForMaskedLM of Hugging Face's transformers, whose names the parameters get, but for the
decoder's bias. Scores are made for the masked positions alone, of which a sample has a list of one length; where it has
fewer of them, the label is -1, and torch.nn.functional.cross_entropy leaves it out. Computed in float64 from parameters
of float32. Run from the source root; needs torch.

Names in the file: CASE/param.NAME; CASE/tokens, length, types, positions, labels; CASE/logits; CASE/loss, the mean over
all labels, and CASE/correct; CASE/grad.NAME. In a case that ends in _tied the decoder's weight is the words' table: both
names have the gradient of the one parameter.
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

import dump_encoder
import tensor_file
from dump_encoder import put

POSITIONS, MASKED = 20, 3
dump_encoder.MAX = 24

CASES = {  # family, tied, layers, features, heads, ffn, lengths, how many of the positions are masked
    "roberta2_tied": ("roberta", True, 2, 16, 2, 32, (20, 9, 4, 13), (3, 2, 0, 1)),
    "bert2": ("bert", False, 2, 16, 4, 24, (7, 20, 12), (1, 3, 3)),
}


class LanguageModel(dump_encoder.Encoder):
    def __init__(self, family, tied, layers, features, heads, ffn):
        super().__init__(family, layers, features, heads, ffn)
        del self.out
        self.head_norm = nn.LayerNorm(features, 1e-5 if self.roberta else 1e-12)
        self.decoder = nn.Linear(features, dump_encoder.VOCAB)
        if tied:
            self.decoder.weight = self.word.weight

    def forward(self, hidden, positions):
        taken = hidden[torch.arange(hidden.shape[0])[:, None], positions]
        return self.decoder(self.head_norm(F.gelu(self.dense(taken))))

    def named(self, value):
        self.out = self.dense  # the classifier's names are dropped
        names = {n: v for n, v in super().named(value).items() if n.startswith(f"{self.family}.") and "pooler" not in n}
        del self.out
        prefix = "lm_head" if self.roberta else "cls.predictions"
        dense, norm = ("dense", "layer_norm") if self.roberta else ("transform.dense", "transform.LayerNorm")
        for module, name in ((self.dense, dense), (self.head_norm, norm), (self.decoder, "decoder")):
            self.add(names, f"{prefix}.{name}", module, value)
        return names

    @staticmethod
    def add(names, prefix, module, value):
        for part in ("weight", "bias"):
            if getattr(module, part, None) is not None:
                names[f"{prefix}.{part}"] = value(getattr(module, part))


def draw_masked(lengths, masked):
    positions = torch.zeros(len(lengths), MASKED, dtype=torch.long)
    labels = torch.full((len(lengths), MASKED), -1)
    for i, (length, count) in enumerate(zip(lengths, masked)):
        positions[i, :count] = torch.randperm(length)[:count].sort().values
        labels[i, :count] = torch.randint(0, dump_encoder.VOCAB, (count,))
    return positions, labels


def run(case, family, tied, layers, features, heads, ffn, lengths, masked):
    net = dump_encoder.start(LanguageModel(family, tied, layers, features, heads, ffn))
    length = torch.tensor(lengths)[:, None]
    count = torch.arange(POSITIONS)[None, :]
    tokens = torch.where(count < length, torch.randint(2, dump_encoder.VOCAB, (len(lengths), POSITIONS)), 1)
    types = ((count >= length // 2) & (count < length)).long()
    positions, labels = draw_masked(lengths, masked)
    for name, p in net.named(lambda p: p).items():
        put(f"{case}/param.{name}", p)
    logits = net(net.hidden(tokens, length, types), positions)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)
    loss.backward()
    correct = (logits.argmax(2) == labels).sum().reshape(1)
    for name, t in (("tokens", tokens), ("length", length), ("types", types), ("positions", positions),
                    ("labels", labels), ("logits", logits), ("loss", loss.reshape(1)), ("correct", correct)):
        put(f"{case}/{name}", t)
    for name, g in net.named(lambda p: p.grad).items():
        put(f"{case}/grad.{name}", g)


def main():
    torch.manual_seed(20240611)
    for case, how in CASES.items():
        run(case, *how)
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/models/language_models.safetensors"
    tensors = dump_encoder.tensors
    print(f"{path}: {len(tensors)} tensors, {tensor_file.write(path, tensors)} bytes")


if __name__ == "__main__":
    main()
