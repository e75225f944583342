# SPDX-License-Identifier: Apache-2.0
"""tests/golden/codec/block_formats.safetensors: payloads and tensors of the codecs whose blocks have scales.

The MX formats are written from the OCP Microscaling Formats Specification 1.0 (sections 5 and 6.3, element formats of
section 5.3): every element is compared with every number of its format, in exact fractions. NVFP4 has no such
specification: its scales are those of common/CODECS.md, in fp32, its elements MX's E2M1. So are `block`'s cases; their
draws are those of seed 0 and step 0. Slow on purpose, and without a look at the code that it checks. Usage:
dump_block_formats.py FILE
"""
import sys
from fractions import Fraction

import draws
import numpy
from tensor_file import write

F = numpy.float32
FORMATS = {"e2m1": (2, 1, 1), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3), "e4m3": (4, 3, 7), "e5m2": (5, 2, 15)}


def numbers(name):
    """The magnitudes of a format in the order of their codes."""
    exponents, mantissas, bias = FORMATS[name]
    out = []
    for e in range(2 ** exponents):
        for m in range(2 ** mantissas):
            if name == "e5m2" and e == 31 or name == "e4m3" and e == 15 and m == 7:
                continue  # infinity, NaN
            fraction = Fraction(m, 2 ** mantissas)
            out.append(fraction * Fraction(2) ** (1 - bias) if e == 0 else (1 + fraction) * Fraction(2) ** (e - bias))
    return out


def nearest(value, table):
    """Code of the number nearest to value >= 0: of two the even one; saturating."""
    best = 0
    for code, number in enumerate(table):
        near, far = abs(number - value), abs(table[best] - value)
        if near < far or near == far and code % 2 == 0:
            best = code
    return best


def pack(codes, width):
    total = 0
    for i, code in enumerate(codes):
        total |= code << (i * width)
    return list(total.to_bytes((len(codes) * width + 7) // 8, "little"))


def as_float(value):
    out = F(float(value))  # a double holds all of them, and so does fp32
    assert Fraction(float(out)) == value
    return out


def bytes_of(value):
    return list(numpy.asarray(value, dtype="<f4").tobytes())


def sign(v):
    return int(numpy.signbit(v))


def exponent_of(value):
    """floor(log2(value)) of a fraction above 0."""
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if Fraction(2) ** e <= value else e - 1


def mx(name, x):
    table = numbers(name)
    width = 1 + FORMATS[name][0] + FORMATS[name][1]
    emax = exponent_of(table[-1])
    scales, codes, y = [], [], []
    for at in range(0, len(x), 32):
        block = [Fraction(float(v)) for v in x[at:at + 32]]
        most = max(abs(v) for v in block)
        shared = max(exponent_of(most) - emax, -127) if most else -127
        scales.append(shared + 127)
        for v, original in zip(block, x[at:at + 32]):
            code = nearest(abs(v) / Fraction(2) ** shared, table)
            codes.append(code | sign(original) << (width - 1))
            value = as_float(table[code] * Fraction(2) ** shared)
            y.append(-value if sign(original) else value)
    return scales + pack(codes, width), y


def nvfp4(x):
    e4m3, e2m1 = numbers("e4m3"), numbers("e2m1")
    whole = max(F(numpy.abs(x).max()) / F(2688), F(2.0 ** -117))
    scales, codes, y = [], [], []
    for at in range(0, len(x), 16):
        block = x[at:at + 16]
        quotient = numpy.abs(block).max() / (F(6) * whole)
        scales.append(nearest(Fraction(float(quotient)), e4m3))
        scale = F(float(e4m3[scales[-1]])) * whole
        inverse = F(1) / scale if scale > 0 else F(0)
        for v in block:
            code = nearest(Fraction(float(abs(v) * inverse)), e2m1)
            codes.append(code | sign(v) << 3)
            value = F(float(e2m1[code])) * scale
            y.append(-value if sign(v) else value)
    return bytes_of(whole) + scales + pack(codes, 4), y


# --- block ------------------------------------------------------------------------------------------------------------

def power_above(t):
    if t == 0:
        return 1
    e = exponent_of(Fraction(float(t)))
    return min(max((e if Fraction(2) ** e == Fraction(float(t)) else e + 1) + 127, 1), 254)


def half_above(t):
    h = numpy.float16(min(F(t), F(65504)))
    return h if F(h) >= t or h == numpy.float16(65504) else numpy.nextafter(h, numpy.float16(65504))


class Block:
    def __init__(self, bits=4, size=128, zero="sym", scale="fp16", clip="max", dim="last", budget=0,
                 round="nearest"):
        self.size, self.asym, self.e8m0 = size, zero == "asym", scale == "e8m0"
        self.mse, self.channel, self.budget = clip == "mse", dim == "channel", budget
        self.stochastic = round == "stochastic"
        self.set_bits(bits)
        self.unit = F(1)

    def set_bits(self, bits):
        self.bits, self.top = bits, self.top_of(bits)

    def top_of(self, bits):
        return 2 ** bits - 1 if self.asym else 2 ** (bits - 1) - 1

    def reach(self, block):
        low, high = min(F(0), block.min()), max(F(0), block.max())
        return high - low if self.asym else max(high, -low)

    def set_unit(self, reach):
        self.set_unit_for(reach / F(self.top))

    def set_unit_for(self, t):
        e = exponent_of(Fraction(float(t))) if t > 0 else -127
        self.unit = F(2.0 ** min(max(e - 4, -100), 123))

    def scale(self, reach):
        """Bytes of the scale, and the scale."""
        t = reach / F(self.top)
        if self.e8m0:
            e = power_above(t)
            return [e], F(2.0 ** (e - 127))
        h = half_above(t / self.unit)
        return list(numpy.asarray(h, dtype="<f2").tobytes()), F(h) * self.unit

    def zero_point(self, block, reach, scale):
        if not self.asym:
            return 2 ** (self.bits - 1)
        least, covered = min(F(0), block.min()), scale * F(self.top)
        least = least * (covered / reach) if covered < reach else least
        return int(numpy.rint(min(max(-least * self.inverse(scale), F(0)), F(self.top))))

    @staticmethod
    def inverse(scale):
        return F(1) / scale if scale > 0 else F(0)

    def levels(self, block, scale, zero):
        low, high = (-zero, self.top - zero) if self.asym else (-self.top, self.top)
        return [int(numpy.rint(min(max(v * self.inverse(scale), F(low)), F(high)))) for v in block]

    def drawn_levels(self, block, scale, zero, places):
        """Rounded up or down at random: a draw has 16 bits, of which a Philox block has eight."""
        low, high = (-zero, self.top - zero) if self.asym else (-self.top, self.top)
        words = draws.blocks(0, draws.stream_of(draws.ROUNDING, 0), 0, max(places) // 8 + 1).reshape(-1)
        out = []
        for v, i in zip(block, places):
            half = int(words[i // 2]) >> i % 2 * 16 & 0xFFFF
            draw = F((half + 0.5) * 2.0 ** -16)
            v = min(max(v * self.inverse(scale), F(low)), F(high)) + F(zero) + draw
            out.append(int(min(v, F(zero + high) + F(0.5))) - zero)
        return out

    def error(self, block, scale, zero):
        lanes = [0.0] * 16
        for i, (v, level) in enumerate(zip(block, self.levels(block, scale, zero))):
            d = float(v - F(level) * scale)
            lanes[0 if self.channel else i % 16] += d * d
        total = 0.0
        for lane in lanes:
            total += lane
        return total

    def choose(self, block):
        reach, best = self.reach(block), None
        for k in range(8 if self.mse else 1):
            code, scale = self.scale(reach * F(1 - 0.078125 * k))
            zero = self.zero_point(block, reach, scale)
            error = self.error(block, scale, zero) if self.mse else 0
            if best is None or error < best[0]:
                best = error, code, scale, zero
        return best[1:]

    def widths(self, reaches, lengths):
        """Bits of each block: the gains of further bits fall, so the largest gains are bought first."""
        levels = [self.top_of(bits) for bits in range(2, 9)]
        gain = [1 / a ** 2 - 1 / b ** 2 for a, b in zip(levels, levels[1:])]
        later = [round(16 * numpy.log2(gain[0] / g)) for g in gain]
        classes = [int(F(r).view(numpy.uint32)) >> 18 for r in reaches]

        def steps(t):
            return [sum(c > 0 and c >= t + after for after in later) for c in classes]

        def cost(t):
            return sum(k * n for k, n in zip(steps(t), lengths))

        left = sum(lengths) * round(self.budget * 100) // 100 - 2 * sum(lengths)
        t = 8192
        while t > -later[-1] and cost(t - 1) <= left:
            t -= 1
        left -= cost(t)
        out = []
        for k, more, n in zip(steps(t), steps(t - 1), lengths):
            if more > k and n <= left:
                k, left = more, left - n
            out.append(2 + k)
        return out

    def code_budget(self, x):
        n = len(x)
        places = [list(range(at, min(at + self.size, n))) for at in range(0, n, self.size)]
        reaches = [self.reach(x[p]) for p in places]
        widths = self.widths(reaches, [len(p) for p in places])
        self.set_unit_for(max(r / F(self.top_of(w)) for r, w in zip(reaches, widths)))
        scales, zeros, y = [], [], []
        codes = {w: [] for w in range(2, 9)}
        for p, w in zip(places, widths):
            self.set_bits(w)
            code, scale, zero = self.choose(x[p])
            scales += code
            zeros += [zero] if self.asym else []
            levels = self.levels(x[p], scale, zero)
            codes[w] += [level + zero for level in levels]
            y += [F(level) * scale + F(0) for level in levels]
        packed = [byte for w in range(2, 9) for byte in pack(codes[w], w)]
        head = [] if self.e8m0 else bytes_of(self.unit)
        return head + scales + zeros + pack([w - 2 for w in widths], 3) + packed, y

    def code(self, x, shape):
        if self.budget:
            return self.code_budget(x)
        n, count = len(x), shape[-1]
        if self.channel and len(shape) > 1 and n // 16 >= count:
            places = [list(range(c, n, count)) for c in range(count)]
            sampled = places
        else:
            places = [list(range(at, min(at + self.size, n))) for at in range(0, n, self.size)]
            few = min(len(places), 64)
            sampled = [places[i * len(places) // few] for i in range(few)]
        self.set_unit(max(self.reach(x[p]) for p in sampled))
        largest = max(self.reach(x[p]) for p in places)
        if not self.e8m0 and largest / F(self.top) / self.unit > 65504:
            self.set_unit(largest)
        scales, zeros, codes, y = [], [], [0] * n, [F(0)] * n
        for p in places:
            code, scale, zero = self.choose(x[p])
            scales += code
            zeros += [zero] if self.asym else []
            levels = self.drawn_levels(x[p], scale, zero, p) if self.stochastic else self.levels(x[p], scale, zero)
            for i, level in zip(p, levels):
                codes[i] = level + zero
                y[i] = F(level) * scale + F(0)
        return ([] if self.e8m0 else bytes_of(self.unit)) + scales + zeros + pack(codes, self.bits), y


def inputs():
    draw = numpy.random.default_rng(18)
    normal = draw.standard_normal(333).astype(F)
    wide = (draw.standard_normal(32 * 12 + 5) * 2.0 ** draw.integers(-40, 40, 32 * 12 + 5)).astype(F)
    edges = numpy.concatenate([
        numpy.zeros(32), -numpy.zeros(3), [1e-45, -1e-40, 1.1754942e-38], numpy.zeros(26),  # nothing but subnormals
        numpy.arange(-16, 16) / 4, numpy.arange(32) / 16,  # ties
        [3.4028235e38, -3.4028235e38, 1, 2.0 ** 100, -2.0 ** -126] * 6,
        [1, -1, 448, 464, 480, 57344, 61440, 65504, 1e-8],
        numpy.repeat(2.0 ** -140, 32), [6, 6.5, 7, 7.25, 7.5, 7.75, 28, 29, 30, -5, -2.5, -0.25, -0.75],
    ]).astype(F)
    small = (draw.standard_normal(300) * 1e-9).astype(F)
    unseen = (draw.standard_normal(16 * 200) * 1e-3).astype(F)
    unseen[16 * 1 + 3] = 1e9  # in a block that is not sampled
    image = (numpy.maximum(draw.standard_normal((2, 6, 5, 7)), 0) * numpy.arange(1, 8) ** 2).astype(F)
    rows = draw.standard_normal((3, 9)).astype(F)
    factors = numpy.repeat(2.0 ** draw.integers(-9, 9, 91), 16)[:16 * 90 + 5]
    uneven = (draw.standard_normal(16 * 90 + 5) * factors).astype(F)
    uneven[64:128] = 0
    return {"normal": normal, "wide": wide, "edges": edges, "small": small, "unseen": unseen, "image": image,
            "rows": rows, "uneven": uneven}


BLOCKS = [
    ("normal", dict(bits=4, size=32)), ("normal", dict(bits=2, size=17)), ("normal", dict(bits=8, size=128)),
    ("normal", dict(bits=4, size=64, zero="asym")), ("normal", dict(bits=3, size=64, clip="mse")),
    ("normal", dict(bits=4, size=100, zero="asym", clip="mse")), ("normal", dict(bits=5, size=16, scale="e8m0")),
    ("wide", dict(bits=6, size=16)), ("wide", dict(bits=8, size=16, zero="asym", scale="e8m0")),
    ("small", dict(bits=4, size=128)), ("unseen", dict(bits=4, size=16)),
    ("unseen", dict(bits=4, size=16, zero="asym")),
    ("image", dict(bits=4, size=128, dim="channel")), ("image", dict(bits=4, size=128, zero="asym", dim="channel")),
    ("image", dict(bits=3, size=128, clip="mse", dim="channel")),
    ("image", dict(bits=2, size=16, zero="asym", scale="e8m0", clip="mse", dim="channel")),
    ("uneven", dict(size=16, budget=4)), ("uneven", dict(size=16, zero="asym", budget=2.75)),
    ("uneven", dict(size=64, clip="mse", budget=3.5)), ("uneven", dict(size=32, scale="e8m0", budget=6.01)),
    ("uneven", dict(size=128, budget=2)), ("uneven", dict(size=128, budget=8)), ("unseen", dict(size=16, budget=4)),
    ("small", dict(size=24, budget=3)), ("wide", dict(size=32, budget=4)),
    ("rows", dict(bits=4, size=16, dim="channel")),  # fewer than 16 elements to a channel
    ("normal", dict(bits=3, size=64, round="stochastic")), ("wide", dict(bits=6, size=16, round="stochastic")),
    ("normal", dict(bits=2, size=17, zero="asym", round="stochastic")),
    ("normal", dict(bits=4, size=32, zero="asym", scale="e8m0", round="stochastic")),
    ("image", dict(bits=3, size=128, dim="channel", round="stochastic")),
    ("image", dict(bits=5, size=128, zero="asym", dim="channel", round="stochastic")),
]


def main():
    tensors = {name: x for name, x in inputs().items()}
    cases = {}
    for name in ("normal", "wide", "edges", "small"):
        x = tensors[name]
        for spec, form in (("mxfp8:format=e4m3", "e4m3"), ("mxfp8:format=e5m2", "e5m2"), ("mxfp6:format=e3m2", "e3m2"),
                           ("mxfp6:format=e2m3", "e2m3"), ("mxfp4", "e2m1")):
            cases[name, spec] = mx(form, x)
    for name in ("normal", "wide", "small", "unseen"):
        cases[name, "nvfp4"] = nvfp4(tensors[name])
    for name, keys in BLOCKS:
        spec = "block:" + ",".join(f"{k}={v}" for k, v in keys.items())
        cases[name, spec] = Block(**keys).code(tensors[name].ravel(), tensors[name].shape)
    out = dict(tensors)
    for (name, spec), (payload, y) in cases.items():
        out[f"{name}/{spec}.payload"] = numpy.array(payload, dtype=numpy.int32)
        out[f"{name}/{spec}.tensor"] = numpy.array(y, dtype=F).reshape(tensors[name].shape)
    write(sys.argv[1], out)


if __name__ == "__main__":
    main()
