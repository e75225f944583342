#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/models/*.txt: what torchvision says about the models we
build, for tests/unit/test_models.c. Run from the source root; needs torch and
torchvision. A file has three kinds of lines:

    spec   our model text, then CxHxW of one sample
    macs   multiply-accumulates of convolutions and linear layers, one sample
    param  state_dict name, shape ("scalar" is left out with num_batches_tracked)
"""
import os
import torch
from torch import nn
from torchvision.models import mobilenet_v2, resnet18, resnet34, vgg13_bn

from cifar_resnet import CifarResNet


def macs_of(model, sample):
    total = 0

    def count(module, inputs, output):
        nonlocal total
        per_output = module.weight[0].numel()
        total += output[0].numel() * per_output

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    model.eval()
    with torch.no_grad():
        model(torch.zeros(1, *sample))
    for h in hooks:
        h.remove()
    return total


def cifar_stem(model):
    model.features[0][0].stride = (1, 1)
    model.features[2].conv[1][0].stride = (1, 1)
    return model


def input_channels(model, channels):
    old = model.features[0][0]
    model.features[0][0] = nn.Conv2d(channels, old.out_channels, 3, old.stride, 1, bias=False)
    return model


class Cnn(nn.Module):
    def __init__(self, width, channels, classes):
        super().__init__()
        blocks = []
        for stage in ((1,), (1, 2), (2, 4)):
            layers = []
            for out in (width * s for s in stage):
                layers += [nn.Conv2d(channels, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
                channels = out
            pool = nn.MaxPool2d(2) if len(blocks) < 2 else nn.AdaptiveAvgPool2d(1)
            blocks.append(nn.Sequential(*layers, pool))
        self.features = nn.Sequential(*blocks)
        self.classifier = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


def resnet_cifar_stem(model):
    model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    return model


def vgg13(positions, hidden, classes):
    """positions: what the features of the given input have"""
    model = vgg13_bn(init_weights=False, num_classes=classes)
    model.avgpool = nn.Identity()
    if hidden:
        model.classifier[0] = nn.Linear(512 * positions, hidden)
        model.classifier[3] = nn.Linear(hidden, hidden)
        model.classifier[6] = nn.Linear(hidden, classes)
    else:
        model.classifier = nn.Linear(512 * positions, classes)
    return model


MODELS = {
    "mobilenetv2-1.0-224": ("mobilenetv2", (3, 224, 224), lambda: mobilenet_v2()),
    "mobilenetv2-0.5-224": ("mobilenetv2:width=0.5,classes=5", (3, 224, 224),
                            lambda: mobilenet_v2(width_mult=0.5, num_classes=5)),
    "mobilenetv2-1.4-96": ("mobilenetv2:width=1.4,classes=1001", (3, 96, 96),
                           lambda: mobilenet_v2(width_mult=1.4, num_classes=1001)),
    "mobilenetv2-1.0-cifar": ("mobilenetv2:stem=cifar,classes=10", (3, 32, 32),
                              lambda: cifar_stem(mobilenet_v2(num_classes=10))),
    "mobilenetv2-0.5-fashion": ("mobilenetv2:stem=cifar,width=0.5,classes=10", (1, 32, 32),
                                lambda: input_channels(cifar_stem(mobilenet_v2(width_mult=0.5, num_classes=10)), 1)),
    "cnn-32-fashion": ("cnn", (1, 28, 28), lambda: Cnn(32, 1, 10)),
    "cnn-8-cifar": ("cnn:width=8,classes=100", (3, 32, 32), lambda: Cnn(8, 3, 100)),
    "resnet18-224": ("resnet18", (3, 224, 224), lambda: resnet18()),
    "resnet34-75": ("resnet34:classes=37", (3, 75, 75), lambda: resnet34(num_classes=37)),
    "resnet18-cifar": ("resnet18:stem=cifar,classes=100", (3, 32, 32),
                       lambda: resnet_cifar_stem(resnet18(num_classes=100))),
    "resnet20-cifar": ("resnet20", (3, 32, 32), lambda: CifarResNet(20)),
    "resnet20-fashion": ("resnet20:width=0.5", (1, 28, 28), lambda: CifarResNet(20, 10, 1, 8)),
    "resnet56-cifar": ("resnet56:classes=100", (3, 32, 32), lambda: CifarResNet(56, 100)),
    "vgg13-224": ("vgg13", (3, 224, 224), lambda: vgg13_bn(init_weights=False)),
    "vgg13-96": ("vgg13:hidden=300,classes=5", (3, 96, 96), lambda: vgg13(9, 300, 5)),
    "vgg13-cifar": ("vgg13:hidden=0,classes=10", (3, 32, 32), lambda: vgg13(1, 0, 10)),
}


def main():
    os.makedirs("tests/golden/models", exist_ok=True)
    for name, (spec, sample, make) in MODELS.items():
        model = make()
        with open(f"tests/golden/models/{name}.txt", "w") as f:
            f.write(f"spec {spec} {'x'.join(map(str, sample))}\n")
            f.write(f"macs {macs_of(model, sample)}\n")
            for key, value in model.state_dict().items():
                if not key.endswith("num_batches_tracked"):
                    f.write(f"param {key} {'x'.join(map(str, value.shape))}\n")


main()
