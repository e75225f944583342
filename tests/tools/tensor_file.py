# SPDX-License-Identifier: Apache-2.0
"""safetensors files as dictionaries of numpy arrays, for the scripts of tests/tools and tests/bench."""
import json
import struct

import numpy

KINDS = {"F32": numpy.float32, "F64": numpy.float64, "F16": numpy.float16, "I32": numpy.int32, "I64": numpy.int64}


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors, body = {}, memoryview(data)[8 + size:]
    for name, info in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            first, last = info["data_offsets"]
            array = numpy.frombuffer(body[first:last], dtype=KINDS[info["dtype"]])
            tensors[name] = array.reshape(info["shape"]).copy()
    return tensors


def write(path, tensors):
    """int32 stays, everything else becomes float32."""
    header, offset, blobs = {}, 0, []
    for name in sorted(tensors):
        t = numpy.asarray(tensors[name])
        t = numpy.ascontiguousarray(t, dtype=numpy.int32 if t.dtype == numpy.int32 else numpy.float32)
        header[name] = {"dtype": "I32" if t.dtype == numpy.int32 else "F32", "shape": list(t.shape),
                        "data_offsets": [offset, offset + t.nbytes]}
        blobs.append(t.tobytes())
        offset += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    return offset
