#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reference cases of the distance correlation for tests/unit/test_distance_correlation.c: samples, and what NumPy makes
of them in float64 by matrix products, both estimates (client/privacy/distance_correlation.h says which).

    tests/tools/dump_distance.py tests/golden/privacy/distance.safetensors
"""
import sys

import numpy

import tensor_file


def distances(x):
    return numpy.sqrt(((x[:, None, :].astype(numpy.float64) - x[None, :, :]) ** 2).sum(2))


def plain(a, b):
    """The square of the sample distance correlation: Szekely, Rizzo, Bakirov 2007, definition 3."""
    n = len(a)
    centre = numpy.eye(n) - 1 / n
    p, q = centre @ a @ centre, centre @ b @ centre
    return (p * q).mean() / numpy.sqrt((p * p).mean() * (q * q).mean())


def u_centred(a):
    """Szekely, Rizzo 2014, definition 2."""
    n = len(a)
    u = a - a.sum(1, keepdims=True) / (n - 2) - a.sum(0, keepdims=True) / (n - 2) + a.sum() / ((n - 1) * (n - 2))
    numpy.fill_diagonal(u, 0)
    return u


def corrected(a, b):
    """The square of the bias-corrected one: Szekely, Rizzo 2014, equations (2.5) and (3.1)."""
    n = len(a)
    p, q = u_centred(a), u_centred(b)

    def inner(x, y):
        return (x * y).sum() / (n * (n - 3))

    return inner(p, q) / numpy.sqrt(inner(p, p) * inner(q, q))


def main(path):
    rng = numpy.random.default_rng(7)
    x = rng.normal(size=(20, 6))
    cases = {
        "linear": (x, x @ rng.normal(size=(6, 3)) + 0.1 * rng.normal(size=(20, 3))),
        "square": (x[:, :1], x[:, :1] ** 2),
        "independent": (x, rng.normal(size=(20, 9))),
        "few": (rng.normal(size=(4, 2)), rng.uniform(size=(4, 5))),
        "wide": (rng.normal(size=(6, 4100)), rng.normal(size=(6, 300))),
    }
    tensors = {}
    for name, (u, v) in cases.items():
        u, v = u.astype(numpy.float32), v.astype(numpy.float32)
        a, b = distances(u), distances(v)
        tensors.update({name + ".x": u, name + ".y": v, name + ".squares": [plain(a, b), corrected(a, b)]})
    tensor_file.write(path, tensors)


if __name__ == "__main__":
    main(*sys.argv[1:])
