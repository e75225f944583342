#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dump_downsample.py: what downsample makes of golden inputs, by NumPy in float64, for tests/unit/test_codec_downsample.c.

Writes tests/golden/codec/downsample.safetensors: per case INPUT_fFACTOR the restored tensor, channels last: means over
windows, smaller ones at the far edges, repeated over their windows.
"""
import os

import numpy

import tensor_file

DIRECTORY = os.path.join(os.path.dirname(__file__), "..", "golden", "codec")


def average(x, axis, factor):
    """Means along an axis, each repeated over its window."""
    starts = numpy.arange(0, x.shape[axis], factor)
    sums = numpy.add.reduceat(x, starts, axis=axis)
    counts = numpy.diff(numpy.append(starts, x.shape[axis]))
    shape = [1] * x.ndim
    shape[axis] = len(counts)
    return numpy.repeat(sums / counts.reshape(shape), counts, axis=axis)


def main():
    inputs = tensor_file.read(os.path.join(DIRECTORY, "inputs.safetensors"))
    act = inputs["act"].transpose(0, 2, 3, 1).astype(numpy.float64)
    hidden = inputs["hidden"].astype(numpy.float64)
    tensor_file.write(os.path.join(DIRECTORY, "downsample.safetensors"),
                      {"act_f3": average(average(act, 1, 3), 2, 3), "hidden_f5": average(hidden, 1, 5)})


if __name__ == "__main__":
    main()
