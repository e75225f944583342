#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torch_flowers.py FLOWERS WEIGHTS.safetensors [--seed N] [--epochs N] [--json OUT]: flowers.sh's training in PyTorch.

The same run, not only the same settings: new classifier, order of images, crops, flips and dropout are the ones that
`gpclient train --seed N` draws (tests/tools/draws.py). What is left to differ is arithmetic and, where gpclient
compresses, the codec. Prints loss and validation accuracy after each epoch. Needs torch, torchvision, PIL.

The weights come from TensorFlow: stride-2 convolutions are padded at the bottom and right only, batch norms have
eps 1e-3, the input is in [-1, 1].
"""
import argparse
import glob
import json
import math
import os
import sys
import time

import numpy
import torch
import torchvision
from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools"))
import draws  # noqa: E402
import tensor_file  # noqa: E402

SIDE, BATCH, CHUNKS, LR, MOMENTUM = 128, 32, 4, 0.01, 0.9


def pad_as_tensorflow(module, inputs):
    """SAME padding of a 3x3 convolution with stride 2 on an even size."""
    return torch.nn.functional.pad(inputs[0], (0, 1, 0, 1))


class DrawnDropout(torch.nn.Module):
    """The dropout of node classifier.0, by gpclient's draws. `draw` is set before each chunk."""

    def __init__(self, seed, p):
        super().__init__()
        self.seed, self.p, self.draw = seed, p, 0

    def forward(self, x):
        if not self.training:
            return x
        return x * torch.from_numpy(draws.dropout(self.seed, "classifier.0", self.draw, tuple(x.shape), self.p))


def build(weights, classes, seed):
    model = torchvision.models.mobilenet_v2(num_classes=classes)
    model.classifier[0] = DrawnDropout(seed, 0.2)
    for m in model.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.eps = 1e-3
        if isinstance(m, torch.nn.Conv2d) and m.stride == (2, 2):
            m.padding = (0, 0)
            m.register_forward_pre_hook(pad_as_tensorflow)
    values = {k: torch.from_numpy(v) for k, v in tensor_file.read(weights).items() if not k.startswith("classifier.")}
    name = "classifier.1.weight"
    drawn = draws.parameter(seed, name, classes * 1280, "normal", 0.01).reshape(classes, 1280)
    values[name], values["classifier.1.bias"] = torch.from_numpy(drawn), torch.zeros(classes)
    model.load_state_dict(values)
    return model.to(memory_format=torch.channels_last)


class Flowers:
    """A folder of pictures, class after class, decoded once."""

    def __init__(self, folder, split):
        self.classes = sorted(os.listdir(os.path.join(folder, "train")))
        self.images, self.labels = [], []
        for label, name in enumerate(self.classes):
            for path in sorted(glob.glob(os.path.join(folder, split, name, "*.jpg"))):
                self.images.append(Image.open(path).convert("RGB"))
                self.labels.append(label)

    def crop(self, seed, epoch, i):
        """client/data/data_transform.c, crop_random."""
        image = self.images[i]
        top, left, h, w, mirror = draws.crop_box(seed, epoch, i, image.height, image.width)
        image = image.crop((left, top, left + w, top + h)).resize((SIDE, SIDE), Image.BILINEAR)
        return numpy.asarray(image)[:, ::-1] if mirror else numpy.asarray(image)

    def centre(self, i):
        """crop_centre for square pictures of less than 8/7 of the wanted size, which are only resized."""
        image = self.images[i]
        assert image.width == image.height < SIDE * 256 // 224
        return numpy.asarray(image.resize((SIDE, SIDE), Image.BILINEAR))


def tensor(images):
    x = torch.from_numpy(numpy.stack(images).astype("f4")) / 255
    return ((x - 0.5) / 0.5).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


def train_step(model, x, labels, step):
    total = 0.0
    for chunk, (cx, cl) in enumerate(zip(x.chunk(CHUNKS), labels.chunk(CHUNKS))):
        model.classifier[0].draw = step * CHUNKS + chunk
        loss = torch.nn.functional.cross_entropy(model(cx), cl) / CHUNKS
        loss.backward()
        total += loss.item()
    return total


def accuracy(model, data):
    model.eval()
    right = 0
    with torch.no_grad():
        for at in range(0, len(data.labels), BATCH):
            picked = range(at, min(at + BATCH, len(data.labels)))
            out = model(tensor([data.centre(i) for i in picked]))
            right += int((out.argmax(1) == torch.tensor([data.labels[i] for i in picked])).sum())
    model.train()
    return right / len(data.labels)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("weights")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--steps", type=int, default=0, help="stop early, for a look at the losses")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--json")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    data, val = Flowers(args.folder, "train"), Flowers(args.folder, "val")
    model = build(args.weights, len(data.classes), args.seed).train()
    sgd = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    per_epoch = len(data.labels) // BATCH
    total, losses, begin, reached = args.epochs * per_epoch, [], time.time(), []
    for step, (epoch, picked) in enumerate(draws.batches(args.seed, len(data.labels), BATCH, args.steps or total)):
        sgd.param_groups[0]["lr"] = 0.5 * LR * (1 + math.cos(math.pi * step / total))
        sgd.zero_grad(set_to_none=True)
        losses.append(train_step(model, tensor([data.crop(args.seed, epoch, i) for i in picked]),
                                 torch.tensor([data.labels[i] for i in picked]), step))
        sgd.step()
        if (step + 1) % per_epoch == 0:
            reached.append(accuracy(model, val))
            print(f"epoch {epoch + 1}: loss {numpy.mean(losses[-per_epoch:]):.4f}, validation accuracy "
                  f"{100 * reached[-1]:.2f} %, {time.time() - begin:.0f} s", flush=True)
    if args.json:
        with open(args.json, "w", encoding="ascii") as f:
            json.dump({"val_acc": reached[-1] if reached else None, "epochs": reached, "losses": losses}, f)


main()
