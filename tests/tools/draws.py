# SPDX-License-Identifier: Apache-2.0
"""What gpsplit draws, in numpy: starting values, the order of images, augmentation, dropout, synthetic images.

Written from the formulas in common/base/rng.h and its users, not from their code's output, so that PyTorch can be given the
very training run that gpclient makes: the same weights, batches, crops and masks for the same --seed. All of it is a
pure function of (seed, use, index), see common/base/rng.h. For the scripts of tests/tools and tests/bench.
"""
import math

import numpy

INIT, SHUFFLE, AUGMENT, DROPOUT, ROUNDING, SYNTHETIC = 1, 2, 3, 4, 5, 6  # enum gp_rng_use
SIGNS = 11
AUGMENT_DRAWS = 16  # blocks per sample, client/data/data_transform.c
U32, U64 = numpy.uint32, numpy.uint64


def philox(seed, stream, index):
    """Four words for each counter in `index` (uint64 array); see gp_rng_block."""
    mask = U64(0xFFFFFFFF)
    c = [index & mask, index >> U64(32), numpy.full_like(index, stream & 0xFFFFFFFF),
         numpy.full_like(index, stream >> 32)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c[0] * U64(0xD2511F53), c[2] * U64(0xCD9E8D57)
        c = [(p1 >> U64(32)) ^ c[1] ^ U64(k0), p1 & mask, (p0 >> U64(32)) ^ c[3] ^ U64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def blocks(seed, stream, first, count):
    """(count, 4) words of the counters first, first + 1, ..."""
    return numpy.stack(philox(seed, stream, numpy.arange(first, first + count, dtype=U64)), axis=1)


def stream_of(use, number):
    return use << 56 | (number & 0x00FFFFFFFFFFFFFF)


def signs(seed, count):
    """Of the elements of a block of the codec hadamard: 1 or -1."""
    words = blocks(seed, stream_of(SIGNS, 0), 0, (count + 3) // 4).reshape(-1)[:count]
    return numpy.where(words >> U64(31), -1, 1).astype("f4")


def name_id(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def normal(seed, stream, count):
    w = philox(seed, stream, numpy.arange(count, dtype=U64))
    u = (w[0].astype(float) + 1) * 2.0**-32
    return (numpy.sqrt(-2 * numpy.log(u)) * numpy.cos(6.283185307179586 * w[1].astype(float) * 2.0**-32)).astype("f4")


def uniform(seed, stream, count):
    words = blocks(seed, stream, 0, (count + 3) // 4).reshape(-1)[:count]
    return (words >> U64(8)).astype("f4") * numpy.float32(2.0**-24)


def parameter(seed, name, count, kind, scale=0.0):
    """Starting values of the parameter `name`: kind is normal, uniform, zeros or ones (enum gp_init, gp_param_init)."""
    stream, scale = stream_of(INIT, name_id(name)), numpy.float32(scale)
    if kind == "normal":
        return scale * normal(seed, stream, count)
    if kind == "uniform":
        return (numpy.float32(2) * uniform(seed, stream, count) - numpy.float32(1)) * scale
    return numpy.full(count, 1.0 if kind == "ones" else 0.0, dtype="f4")


# --- batches -----------------------------------------------------------------------------------------------------


def order(seed, epoch, samples):
    """The order of the training images in that epoch (gp_rng_permutation): a Fisher-Yates shuffle, last one first."""
    words = blocks(seed, stream_of(SHUFFLE, epoch), 0, samples // 4 + 1).reshape(-1)
    place = numpy.arange(samples + 1, dtype=U64)
    chosen = (words[:samples + 1] * place >> U64(32)).tolist()
    result = list(range(samples))
    for i in range(samples, 1, -1):
        j = chosen[i]
        result[i - 1], result[j] = result[j], result[i - 1]
    return result


def batches(seed, samples, batch, steps):
    """(epoch, image numbers) of every step; what does not fill a batch at the end of an epoch is left out."""
    per_epoch = samples // batch
    for step in range(steps):
        epoch, at = divmod(step, per_epoch)
        if at == 0:
            numbers = order(seed, epoch, samples)
        yield epoch, numbers[at * batch:(at + 1) * batch]


def augment_words(seed, epoch, sample, at=0):
    return [int(w) for w in blocks(seed, stream_of(AUGMENT, epoch), sample * AUGMENT_DRAWS + at, 1)[0]]


def below(word, bound):
    return word * bound >> 32


def shift_and_mirror(seed, epoch, sample, shift):
    """(dy, dx, mirror) of the random crop of small images."""
    w = augment_words(seed, epoch, sample)
    return below(w[0], 2 * shift + 1) - shift, below(w[1], 2 * shift + 1) - shift, bool(w[2] >> 31)


def crop_box(seed, epoch, sample, height, width):
    """(top, left, height, width, mirror) of the random crop of a photograph; None: no drawn box fits."""
    mirror = bool(augment_words(seed, epoch, sample)[0] >> 31)
    for attempt in range(1, 11):
        w = augment_words(seed, epoch, sample, attempt)
        area = height * width * (0.08 + 0.92 * (w[0] * 2.0**-32))
        ratio = 0.75 + 0.25 * ((w[1] << 1 & 0xFFFFFFFF) * 2.0**-32)
        ratio = 1 / ratio if w[1] >> 31 else ratio
        bw, bh = int(math.sqrt(area * ratio) + 0.5), int(math.sqrt(area / ratio) + 0.5)
        if 1 <= bw <= width and 1 <= bh <= height:
            return below(w[2], height - bh + 1), below(w[3], width - bw + 1), bh, bw, mirror
    return None


def dropout(seed, name, draw, shape, p):
    """The factors, 0 or 1 / (1 - p), of the dropout layer `name`; draw = step * chunks + chunk."""
    count = math.prod(shape)
    per_draw = (count + 3) // 4
    words = blocks(seed, stream_of(DROPOUT, name_id(name)), draw * per_draw, per_draw).reshape(-1)[:count]
    return numpy.where(words < U64(int(p * 2**32)), 0.0, 1 / (1 - p)).astype("f4").reshape(shape)


# --- synthetic images --------------------------------------------------------------------------------------------


def wave(phase):
    p = phase & 0xFFFF
    return (numpy.where(p < 0x8000, p, 0xFFFF - p) >> 7) - 128


def synthetic(shape, classes, samples, noise, seed=0):
    """(images (N,H,W,C) uint8, labels) of --data synthetic:..., the training images; shape is (H, W, C)."""
    h, w, c = shape
    count, strength = h * w * c, int(noise * 256 + 0.5)
    images = numpy.empty((samples, h, w, c), dtype=numpy.uint8)
    y, x = numpy.mgrid[0:h, 0:w]
    for i in range(samples):
        words = blocks(seed, stream_of(SYNTHETIC, 1), i * (2 + count // 16), 1 + (count + 15) // 16).astype(numpy.int64)
        contrast, shift = 128 + int(words[0, 0] >> 25), int(words[0, 1] >> 19)
        value = numpy.empty((h, w, c), dtype=numpy.int64)
        for k in range(c):
            s = [int(v) for v in blocks(seed, stream_of(SYNTHETIC, 0), i % classes * 4 + k, 1)[0]]
            across, down = ((s[0] >> 30) + 1) * 65536 // w, ((s[1] >> 30) + 1) * 65536 // h
            value[:, :, k] = 128 + truncated(wave((s[2] >> 16) + shift + down * y + across * x) * contrast)
        bytes_of = numpy.stack([words[1:] >> 8 * k & 255 for k in range(4)], axis=2).reshape(-1)[:count]
        images[i] = numpy.clip(value + truncated((bytes_of - 128) * strength).reshape(h, w, c), 0, 255)
    return images, numpy.arange(samples) % classes


def truncated(value):
    """value / 256 as C divides integers, towards zero."""
    return numpy.sign(value) * (numpy.abs(value) // 256)
