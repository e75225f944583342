# SPDX-License-Identifier: Apache-2.0
"""The residual networks of He et al. section 4.2 (shortcuts of option A) in PyTorch, for dump_models.py and
dump_steps.py."""
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.stride, self.zeros = stride, (out - channels) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        s = self.stride
        return F.relu(y + F.pad(x[:, :, ::s, ::s], (0, 0, 0, 0, self.zeros, self.zeros)))


class CifarResNet(nn.Module):
    def __init__(self, depth, classes=10, channels=3, width=16):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        channels = width
        for stage in range(3):
            out, blocks = width << stage, []
            for i in range((depth - 2) // 6):
                blocks.append(Block(channels, out, 2 if stage and not i else 1))
                channels = out
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.linear = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))
