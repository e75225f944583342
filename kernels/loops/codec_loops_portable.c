/* SPDX-License-Identifier: Apache-2.0
 *
 * Codec loops in plain C: the reference that the SIMD versions must equal bit
 * for bit, and what runs where there is no AVX2. Written for clearness first.
 * See codec_loops.h. Test: tests/unit/test_codec_loops.c
 */
#include "kernels/loops/codec_loops.h"

#include <math.h>
#include <string.h>

static uint32_t float_bits(float v)
{
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	return u;
}

static float bits_float(uint32_t u)
{
	float v;
	memcpy(&v, &u, sizeof v);
	return v;
}

static bool range(const float *x, size_t n, float *min, float *max)
{
	float lo = x[0], hi = x[0], poison = 0; /* x * 0 is NaN exactly for NaN and infinities */
	for (size_t i = 0; i < n; i++) {
		lo = x[i] < lo ? x[i] : lo;
		hi = x[i] > hi ? x[i] : hi;
		poison += x[i] * 0.0f;
	}
	if (poison != 0)
		return false;
	*min = lo + 0.0f; /* -0 becomes +0: one payload whichever zero came first */
	*max = hi + 0.0f;
	return true;
}

static size_t sift(const float *x, size_t n, struct gp_window *windows, int count, float *chosen)
{
	size_t used = 0;
	for (size_t i = 0; i < n; i++) {
		bool choose = false;
		for (struct gp_window *w = windows; w < windows + count; w++) {
			const bool inside = x[i] > w->lo && x[i] < w->hi;
			w->at_or_below += x[i] <= w->lo;
			w->inside += inside;
			choose |= inside && w->choose;
		}
		chosen[used] = x[i];
		used += choose;
	}
	return used;
}

static void quantize(const struct gp_quant_table *t, const float *x, size_t n, uint16_t *codes)
{
	const long top = (1l << t->bits) - 1;
	for (size_t i = 0; i < n; i++) {
		unsigned p = 0;
		for (unsigned half = 1u << t->split >> 1; half; half >>= 1)
			p += x[i] >= t->min[p + half] ? half : 0;
		/* The quotients of kmeans, whose partitions have one level, are too small to be normal numbers, and slow. */
		const long level = top ? lrintf((x[i] - t->min[p]) / t->divisor[p]) : 0;
		codes[i] = (uint16_t)(p << t->bits | (unsigned)(level < top ? level : top));
	}
}

static void dequantize(const struct gp_quant_table *t, const uint16_t *codes, size_t n, float *x)
{
	const unsigned mask = (1u << t->bits) - 1;
	for (size_t i = 0; i < n; i++) {
		unsigned p = (unsigned)codes[i] >> t->bits;
		x[i] = (float)(codes[i] & mask) * t->step[p] + t->min[p];
	}
}

static void pack(const uint16_t *codes, size_t n, int width, uint8_t *out)
{
	uint64_t held = 0;
	int bits = 0;
	for (size_t i = 0; i < n; i++) {
		held |= (uint64_t)codes[i] << bits;
		for (bits += width; bits >= 8; bits -= 8, held >>= 8)
			*out++ = (uint8_t)held;
	}
	if (bits)
		*out = (uint8_t)held;
}

static void unpack(const uint8_t *in, size_t n, int width, uint16_t *codes)
{
	const uint64_t mask = (UINT64_C(1) << width) - 1;
	uint64_t held = 0;
	int bits = 0;
	for (size_t i = 0; i < n; i++) {
		for (; bits < width; bits += 8)
			held |= (uint64_t)*in++ << bits;
		codes[i] = (uint16_t)(held & mask);
		held >>= width;
		bits -= width;
	}
}

/* The magnitude's bits to half precision; `u` is finite and >= 0. 0x7c00 and above mean overflow. */
static uint32_t magnitude_to_fp16(uint32_t u)
{
	if (u >= 0x477ff000u) /* 65520 and above round to infinity */
		return 0x7c00u;
	if (u <
	    0x38800000u) { /* below 2^-14: subnormal; adding 0.5 leaves the rounded multiple of 2^-24 in the low bits */
		uint32_t sum = float_bits(bits_float(u) + 0.5f);
		return sum - 0x3f000000u;
	}
	uint32_t odd = u >> 13 & 1;
	return (u - 0x38000000u + 0xfffu + odd) >> 13;
}

static bool to_fp16(const float *x, size_t n, uint8_t *out)
{
	bool finite = true;
	for (size_t i = 0; i < n; i++) {
		uint32_t u = float_bits(x[i]), h = magnitude_to_fp16(u & 0x7fffffffu);
		finite &= h < 0x7c00u;
		h |= u >> 16 & 0x8000u;
		out[2 * i] = (uint8_t)h;
		out[2 * i + 1] = (uint8_t)(h >> 8);
	}
	return finite;
}

static bool from_fp16(const uint8_t *in, size_t n, float *x)
{
	bool finite = true;
	for (size_t i = 0; i < n; i++) {
		uint32_t h = in[2 * i] | (uint32_t)in[2 * i + 1] << 8, magnitude = h & 0x7fffu;
		finite &= magnitude < 0x7c00u;
		/* The exponent fields differ by 112; scaling by 2^112 rebases it and turns subnormals into normal numbers. */
		float v = bits_float(magnitude << 13) * 0x1p112f;
		x[i] = bits_float(float_bits(v) | (h & 0x8000u) << 16);
	}
	return finite;
}

static bool to_bf16(const float *x, size_t n, uint8_t *out)
{
	bool finite = true;
	for (size_t i = 0; i < n; i++) {
		uint32_t u = float_bits(x[i]), h = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
		finite &=
			(u & 0x7fffffffu) < 0x7f7f8000u; /* from here on rounding gives infinity, or x is not finite */
		out[2 * i] = (uint8_t)h;
		out[2 * i + 1] = (uint8_t)(h >> 8);
	}
	return finite;
}

static bool from_bf16(const uint8_t *in, size_t n, float *x)
{
	bool finite = true;
	for (size_t i = 0; i < n; i++) {
		uint32_t u = (in[2 * i] | (uint32_t)in[2 * i + 1] << 8) << 16;
		finite &= (u & 0x7fffffffu) < 0x7f800000u;
		x[i] = bits_float(u);
	}
	return finite;
}

const struct gp_codec_loops gp_codec_loops_portable = {
	.name = "portable",
	.range = range,
	.sift = sift,
	.quantize = quantize,
	.dequantize = dequantize,
	.pack = pack,
	.unpack = unpack,
	.to_fp16 = to_fp16,
	.to_bf16 = to_bf16,
	.from_fp16 = from_fp16,
	.from_bf16 = from_bf16,
};
