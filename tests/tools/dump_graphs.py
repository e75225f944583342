#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_graphs.py [OUT.safetensors]: what PyTorch makes of small nets, for tests/unit/test_plan_graphs.c.

Writes tests/golden/ops/graphs.safetensors. A net NAME has several inputs and outputs, or frozen parts. It is trained for
two steps of one chunk: NAME/param.P is parameter P to begin with; of step S, NAME/S/in.K and NAME/S/out.K are input and
output K, NAME/S/gout.K the gradient that comes in at an output, NAME/S/gin.K the one that is asked of a real input,
NAME/S/grad.P that of a trained parameter, and NAME/S/after.P any parameter after the update. Images are channels last.
"""
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional as F

import tensor_file

STEPS = 2
tensors = {}


def last(t):
    """Channels last in memory, as every activation of ours."""
    return t.permute(0, 2, 3, 1) if t.dim() == 4 else t


def put(name, value):
    array = last(value.detach()).numpy() if "param." not in name and "grad." not in name and "after." not in name \
        else value.detach().numpy()
    dtype = numpy.int32 if array.dtype.kind == "i" else numpy.float32
    tensors[name] = numpy.array(array, dtype=dtype, order="C")


class Tokens(nn.ModuleDict):
    """Ids, a mask and a row in; scores and two values out, one of which is read inside."""
    def __init__(self):
        super().__init__({"table": nn.Embedding(11, 8), "mix": nn.Linear(8, 8), "fc": nn.Linear(13, 4)})

    def forward(self, ids, mask, extra):
        x = self["table"](ids.long())
        x = F.relu(self["mix"](x)) + x
        a, b = x.chunk(2, 2)
        kept = mask.float().unsqueeze(-1)
        mean = (torch.cat((b, a), 2) * kept).sum(1) / kept.sum(1).clamp(min=1)
        return self["fc"](torch.cat((mean, extra), 1)), mean, F.relu(a)


class Norms(nn.ModuleDict):
    """A batch norm that is frozen, one whose weight is, and one whose bias is."""
    def __init__(self):
        super().__init__({
            "c1": nn.Conv2d(3, 8, 3, padding=1, bias=False), "n1": nn.BatchNorm2d(8),
            "c2": nn.Conv2d(8, 12, 3, padding=1, bias=False), "n2": nn.BatchNorm2d(12),
            "c3": nn.Conv2d(12, 8, 1, bias=False), "n3": nn.BatchNorm2d(8)})

    def forward(self, x):
        n1 = self["n1"](self["c1"](x))
        y = F.relu6(self["n2"](self["c2"](F.relu(n1))))
        return (F.relu(self["n3"](self["c3"](y)) + n1),)


class Residual(nn.ModuleDict):
    """Frozen up to somewhere in its first block, and a convolution of the second."""
    def __init__(self):
        super().__init__({
            "stem": nn.Conv2d(3, 16, 3, padding=1, bias=False), "stem_bn": nn.BatchNorm2d(16),
            "a0": nn.Conv2d(16, 16, 3, padding=1, bias=False), "a0_bn": nn.BatchNorm2d(16),
            "a1": nn.Conv2d(16, 16, 1, bias=False), "a1_bn": nn.BatchNorm2d(16),
            "b0": nn.Conv2d(16, 24, 3, 2, 1, bias=False), "b0_bn": nn.BatchNorm2d(24),
            "b1": nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False), "b1_bn": nn.BatchNorm2d(24),
            "down": nn.Conv2d(16, 24, 1, 2, bias=False), "down_bn": nn.BatchNorm2d(24), "fc": nn.Linear(24, 5)})

    def part(self, name, x):
        return self[name + "_bn"](self[name](x))

    def forward(self, x):
        x = F.relu(self.part("stem", x))
        x = F.relu(self.part("a1", F.relu(self.part("a0", x))) + x)
        x = F.relu(self.part("b1", F.relu(self.part("b0", x))) + self.part("down", x))
        return (self["fc"](x.mean((2, 3))),)


def freeze(net, names):
    """As gp_graph_freeze: a batch norm none of whose parameters is trained uses its running statistics."""
    for name, p in net.named_parameters():
        if any(name.startswith(n) for n in names):
            p.requires_grad_(False)
    net.train()
    for module in net.values():
        if isinstance(module, nn.BatchNorm2d) and not any(p.requires_grad for p in module.parameters()):
            module.eval()


def start(net):
    for name, t in net.state_dict().items():
        if "running_var" in name:
            t.copy_(torch.rand(t.shape) + 0.5)
        elif "num_batches" not in name and t.dim() == 1:
            t.copy_(torch.randn(t.shape) * 0.5 + ("weight" in name))


def values(net):
    return {name: t for name, t in net.state_dict().items() if "num_batches" not in name}


def run_step(name, net, optim, inputs):
    inputs = [x.requires_grad_(True) if x.is_floating_point() else x for x in inputs]
    outputs = net(*inputs)
    gouts = [torch.randn(y.shape) for y in outputs]
    optim.zero_grad()
    torch.autograd.backward(outputs, gouts)
    for k, (y, g) in enumerate(zip(outputs, gouts)):
        put(f"{name}/out.{k}", y)
        put(f"{name}/gout.{k}", g)
    for k, x in enumerate(inputs):
        put(f"{name}/in.{k}", x)
        if x.is_floating_point():
            put(f"{name}/gin.{k}", x.grad)
    for p, t in net.named_parameters():
        if t.requires_grad:
            put(f"{name}/grad.{p}", t.grad)
    optim.step()
    for p, t in values(net).items():
        put(f"{name}/after.{p}", t)


def run(name, net, frozen, draw):
    start(net)
    freeze(net, frozen)
    for p, t in values(net).items():
        put(f"{name}/param.{p}", t)
    trained = [p for p in net.parameters() if p.requires_grad]
    optim = torch.optim.SGD(trained, 0.1, momentum=0.9, weight_decay=0.01)
    for step in range(STEPS):
        run_step(f"{name}/{step}", net, optim, draw())


def draw_tokens():
    mask = (torch.rand(3, 6) < 0.7).int()
    mask[1] = 0
    return torch.randint(0, 11, (3, 6)).int(), mask, torch.randn(3, 5)


def main():
    torch.manual_seed(20240301)
    run("tokens", Tokens(), [], draw_tokens)
    run("tokens_frozen", Tokens(), ["table", "mix.bias"], draw_tokens)
    run("norms", Norms(), ["n1", "n2.weight", "n3.bias"], lambda: [torch.randn(4, 3, 6, 5)])
    run("residual", Residual(), ["stem", "a0", "a1_bn", "b1.", "down_bn"], lambda: [torch.randn(3, 3, 8, 8)])
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ops/graphs.safetensors"
    print(f"{path}: {len(tensors)} tensors, {tensor_file.write(path, tensors)} bytes")


if __name__ == "__main__":
    main()
