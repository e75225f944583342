#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""torch_pipeline.py server|client ADDRESS:PORT [OPTION...]: split training by PyTorch over gloo, as it is glued today.

Two processes train torchvision's MobileNetV2. The client has the first block and the classifier, the server the blocks
between: `--cut 1:-1` of gpclient. A batch goes through in micro-batches, all forward and then all backward (GPipe's
schedule); tensors travel as they are, fp32. Sends are asynchronous, and every receive is posted before it is needed, so
that the link is used as well as this schedule allows. tests/bench/link_step.sh --pytorch runs it over a shaped link beside
gpsplit. The client prints the median time per batch, over all steps but the first two, as JSON.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torchvision

ACT, GRAD = 0, 1


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("role", choices=["server", "client"])
    p.add_argument("address")
    p.add_argument("--shape", default="3x224x224")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--chunks", type=int, default=8)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--threads", type=int, default=1)
    return p.parse_args()


def tag(kind, chunk, chunks):
    return kind * chunks + chunk


class Link:
    """Asynchronous sends and receives to and from the other end; a send keeps its tensor until it has left."""

    def __init__(self, peer, chunks):
        self.peer, self.chunks, self.sending = peer, chunks, []

    def send(self, kind, chunk, tensor):
        tensor = tensor.contiguous()
        self.sending.append((dist.isend(tensor, self.peer, tag=tag(kind, chunk, self.chunks)), tensor))

    def expect(self, kind, shape):
        rooms = [torch.empty(shape) for _ in range(self.chunks)]
        return [(dist.irecv(t, self.peer, tag=tag(kind, c, self.chunks)), t) for c, t in enumerate(rooms)]

    def flush(self):
        for request, _ in self.sending:
            request.wait()
        self.sending = []


def body(model, x):
    return model.features[1:](x).mean([2, 3])


def received(pair):
    pair[0].wait()
    return pair[1]


def serve(model, link, shapes, a):
    optimizer = torch.optim.SGD(model.features[1:].parameters(), lr=0.01)
    for _ in range(a.steps):
        acts, grads = link.expect(ACT, shapes[0]), link.expect(GRAD, shapes[1])
        inputs, outputs = [], []
        for c in range(a.chunks):
            x = received(acts[c]).requires_grad_()
            y = body(model, x)
            link.send(ACT, c, y.detach())
            inputs.append(x)
            outputs.append(y)
        for c in range(a.chunks):
            outputs[c].backward(received(grads[c]))
            link.send(GRAD, c, inputs[c].grad)
        optimizer.step()
        optimizer.zero_grad()
        link.flush()


def train(model, link, shapes, a):
    head, tail = model.features[:1], model.classifier
    optimizer = torch.optim.SGD([*head.parameters(), *model.classifier.parameters()], lr=0.01)
    c_, h, w = (int(n) for n in a.shape.split("x"))
    images, labels = torch.randn(a.batch, c_, h, w), torch.randint(10, (a.batch,))
    seconds = []
    for _ in range(a.steps):
        start = time.monotonic()
        acts, grads = link.expect(ACT, shapes[1]), link.expect(GRAD, shapes[0])
        outputs, inputs = [], []
        for c, x in enumerate(images.chunk(a.chunks)):
            y = head(x)
            link.send(ACT, c, y.detach())
            outputs.append(y)
        for c, target in enumerate(labels.chunk(a.chunks)):
            x = received(acts[c]).requires_grad_()
            (torch.nn.functional.cross_entropy(tail(x), target) / a.chunks).backward()
            inputs.append(x)
        for c in range(a.chunks):
            link.send(GRAD, c, inputs[c].grad)
        for c in range(a.chunks):
            outputs[c].backward(received(grads[c]))
        optimizer.step()
        optimizer.zero_grad()
        link.flush()
        seconds.append(time.monotonic() - start)
    print(json.dumps({"time_per_batch_s": statistics.median(seconds[2:]), "steps": a.steps}))


def interface_of(address):
    """gloo wants the name of the interface: the one that leads to the other end."""
    with os.popen(f"ip route get {address}") as f:
        words = f.read().split()
    return words[words.index("dev") + 1]


def main():
    a = parse()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    host, port = a.address.rsplit(":", 1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_of(os.environ["GP_CLIENT_ADDR"] if a.role == "server" else host))
    rank = 0 if a.role == "server" else 1
    dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}", rank=rank, world_size=2)
    model = torchvision.models.mobilenet_v2(num_classes=10)
    chunk = torch.zeros(a.batch // a.chunks, *(int(n) for n in a.shape.split("x")))
    with torch.no_grad():
        up = model.features[:1](chunk)
        shapes = up.shape, body(model, up).shape
    link = Link(1 - rank, a.chunks)
    (serve if a.role == "server" else train)(model, link, shapes, a)
    dist.barrier()


if __name__ == "__main__":
    main()
