#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of tests/unit/test_data_resize.c: what PIL's bilinear resize
makes of a formula image. Needs python3-pil; run it only to add cases."""
import zlib

from PIL import Image

# height, width, channels, new height, new width
CASES = [
    (28, 28, 1, 32, 32), (32, 32, 3, 32, 32), (32, 32, 3, 224, 224), (240, 320, 3, 128, 128), (7, 5, 1, 3, 9),
    (100, 33, 3, 10, 11), (13, 64, 1, 13, 20), (64, 13, 3, 20, 13), (1, 1, 3, 4, 4), (300, 400, 3, 1, 1),
]


def formula(h, w, c):
    """Every byte from its position: (y * 7 + x * 13 + c * 29 + x * y) % 251."""
    return bytes((y * 7 + x * 13 + k * 29 + x * y) % 251 for y in range(h) for x in range(w) for k in range(c))


def main():
    for h, w, c, nh, nw in CASES:
        image = Image.frombytes("RGB" if c == 3 else "L", (w, h), formula(h, w, c))
        out = image.resize((nw, nh), Image.BILINEAR).tobytes()
        first = ", ".join(str(b) for b in out[:6].ljust(6, b"\0"))
        print(f"{{{h}, {w}, {c}, {nh}, {nw}, 0x{zlib.crc32(out):08x}, {{{first}}}}},")


main()
