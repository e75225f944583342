#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torch_export.py MODEL HxWxC BATCH OUT.onnx: a model of PyTorch's for evaluation, with that batch, as an ONNX file.

MODEL is as in torch_step.py beside this file. Batch norms are folded into convolutions as PyTorch exports them. Its weights
are random: what is measured with it does not depend on them.
"""
import argparse
import sys

import torch
import torchvision


def build(spec):
    name, _, text = spec.partition(":")
    options = dict(part.split("=") for part in text.split(",") if part)
    classes = int(options.get("classes", 1000))
    if name == "resnet18":
        return torchvision.models.resnet18(num_classes=classes)
    if name == "mobilenetv2":
        return torchvision.models.mobilenet_v2(num_classes=classes, width_mult=float(options.get("width", 1.0)))
    sys.exit(f"torch_export.py: no model {name}: it can be mobilenetv2 or resnet18")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("shape", type=lambda text: tuple(map(int, text.split("x"))))
    parser.add_argument("batch", type=int)
    parser.add_argument("out")
    a = parser.parse_args()
    h, w, c = a.shape
    torch.manual_seed(1)
    torch.onnx.export(build(a.model).eval(), torch.randn(a.batch, c, h, w), a.out, opset_version=13,
                      input_names=["x"], output_names=["y"])


main()
