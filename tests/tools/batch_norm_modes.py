# SPDX-License-Identifier: Apache-2.0
"""Batch normalization as common/graph/ops/op_batch_norm.h has it, in PyTorch: formulas, and a module that takes the place of
nn.BatchNorm2d. Gradients are autograd's."""
import types

import torch
import torch.nn.functional as F

MODES = types.SimpleNamespace(CHUNK=0, DEFERRED=1, RUNNING=2, RENORM=3)


def per_channel(v, x):
    return v.reshape([1, -1] + [1] * (x.dim() - 2))


def statistics(x):
    """Mean and population variance by channel, and how many values each is of."""
    over = [d for d in range(x.dim()) if d != 1]
    return x.mean(over), x.var(over, unbiased=False), x.numel() // x.shape[1]


def renorm(x, mean, var, weight, bias, eps, r_max, d_max):
    """Ioffe 2017 (arXiv 1702.03275), algorithm 1, with r and d as constants."""
    batch_mean, batch_var, _ = statistics(x)
    sigma_batch, sigma = (batch_var + eps).sqrt(), (var + eps).sqrt()
    r = (sigma_batch / sigma).detach().clamp(1 / r_max, r_max)
    d = ((batch_mean - mean) / sigma).detach().clamp(-d_max, d_max)
    y = (x - per_channel(batch_mean, x)) / per_channel(sigma_batch, x) * per_channel(r, x) + per_channel(d, x)
    return y * per_channel(weight, x) + per_channel(bias, x)


def move(mean, var, momentum, batch_mean, batch_var, n):
    mean.mul_(1 - momentum).add_(batch_mean.detach() * momentum)
    var.mul_(1 - momentum).add_(batch_var.detach() * (n / (n - 1)) * momentum)


def normalize(x, mean, var, weight, bias, mode, r_max=3.0, d_max=5.0, momentum=0.1, eps=1e-5):
    """In training, of a step with one chunk: mean and var, the running ones, move at its end."""
    if mode == MODES.RUNNING:
        return F.batch_norm(x, mean, var, weight, bias, False, momentum, eps)
    if mode == MODES.RENORM:
        y = renorm(x, mean, var, weight, bias, eps, r_max, d_max)
        move(mean, var, momentum, *statistics(x))
        return y
    return F.batch_norm(x, mean, var, weight, bias, True, momentum, eps)


class BatchNorm(torch.nn.Module):
    def __init__(self, like, mode):
        super().__init__()
        self.weight, self.bias, self.mode = like.weight, like.bias, mode
        self.register_buffer("running_mean", like.running_mean)
        self.register_buffer("running_var", like.running_var)

    def forward(self, x):
        return normalize(x, self.running_mean, self.running_var, self.weight, self.bias, self.mode)


def set_mode(model, mode):
    """Every nn.BatchNorm2d of the model in this mode; names stay."""
    for name, child in model.named_children():
        if isinstance(child, torch.nn.BatchNorm2d):
            setattr(model, name, BatchNorm(child, mode))
        else:
            set_mode(child, mode)
    return model
