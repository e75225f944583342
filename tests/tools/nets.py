# SPDX-License-Identifier: Apache-2.0
"""Models of ours in PyTorch, with the starting values that `gpclient train --seed N` draws (client/models/model_*.c)."""
import math

import torch
import torchvision

import draws
from cifar_resnet import CifarResNet


def start(model, seed, kind_of):
    """kind_of(name, parameter) -> ("normal" | "uniform" | "zeros" | "ones", scale)"""
    with torch.no_grad():
        for name, p in model.named_parameters():
            kind, scale = kind_of(name, p)
            p.copy_(torch.from_numpy(draws.parameter(seed, name, p.numel(), kind, scale)).reshape(p.shape))


def mobilenetv2(seed, width=0.25):
    stages = [[1, 16, 1, 1], [6, 24, 2, 1], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]]
    model = torchvision.models.mobilenet_v2(num_classes=10, width_mult=width, dropout=0.0,
                                            inverted_residual_setting=stages)
    model.features[0][0].stride = (1, 1)

    def kind(name, p):
        if p.dim() == 4:
            return "normal", math.sqrt(2.0 / (p.shape[0] * p.shape[2] * p.shape[3]))
        if p.dim() == 2:
            return "normal", 0.01
        return ("ones", 0) if name.endswith("weight") else ("zeros", 0)

    start(model, seed, kind)
    return model


def cnn(seed, width=8, channels=1):
    nn, stages = torch.nn, []
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

    start(model, seed, kind)
    return model


def resnet18(seed):
    model = torchvision.models.resnet18(num_classes=10)

    def kind(name, p):
        if p.dim() == 4:
            return "normal", math.sqrt(2.0 / (p.shape[0] * p.shape[2] * p.shape[3]))
        if name.startswith("fc."):
            return "uniform", 1.0 / math.sqrt(512)
        return ("ones", 0) if name.endswith("weight") else ("zeros", 0)

    start(model, seed, kind)
    return model


def resnet20(seed, width=16):
    model = CifarResNet(20, width=width)

    def kind(name, p):
        if p.dim() > 1:
            return "normal", math.sqrt(2.0 / p[0].numel())
        if name == "linear.bias":
            return "uniform", 1.0 / math.sqrt(4 * width)
        return ("ones", 0) if name.endswith("weight") else ("zeros", 0)

    start(model, seed, kind)
    return model


def vgg13(seed, width=0.125, hidden=48):
    """torchvision's layers, but classified from the positions there are, as in client/models/model_vgg.c: no adaptive pooling."""
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

    start(model, seed, kind)
    return model
