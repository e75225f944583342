/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of 8 and 16 bits on the device: fp16, bf16, fp8, and what s2fp8 makes
 * of logarithms. Arithmetic is that of kernels/loops/codec_loops_portable.c and
 * fp8_loops_portable.c, operation by operation. Only the order in which s2fp8
 * multiplies the products of blocks differs, which moves the logarithm's mean by
 * parts of 2^-50. Only for k_codec_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Tests: tests/unit/test_cuda_codec.c,
 * tests/unit/test_cuda_stored.c
 */
#ifndef GPK_FORMAT_H
#define GPK_FORMAT_H

#include "kernels/loops/fp8_loops.h"
#include "kernels/cuda/codec/gpk_codec.h"
#include "kernels/cuda/codec/k_codec_format.h"

/* --- fp16, bf16, fp8 --------------------------------------------------------------------------------------------- */

/* Above the format's smallest normal number the exponent is rebased and the mantissa rounded; below it, adding a power
 * of two leaves the rounded multiple of the smallest subnormal in the low bits. */
GPK_DEVICE uint32_t round_magnitude(uint32_t u, uint32_t largest, uint32_t smallest_normal, int shift, uint32_t rebase,
				    float magic)
{
	u = u < largest ? u : largest;
	if (u < smallest_normal)
		return __float_as_uint(__uint_as_float(u) + magic) - __float_as_uint(magic);
	return (u - rebase + (1u << (shift - 1)) - 1 + (u >> shift & 1)) >> shift;
}

/* The mantissa in place, the exponent put right by a factor, which also makes normal numbers of subnormals. */
GPK_DEVICE float widen(uint32_t magnitude, int shift, float factor, uint32_t sign)
{
	return __uint_as_float(__float_as_uint(__uint_as_float(magnitude << shift) * factor) | sign);
}

/* `to`: the pattern; bad where the tensor has to travel raw. `from`: bad where the pattern is refused. */
struct fp16 {
	static const int bytes = 2;
	GPK_DEVICE uint32_t to(float v, uint32_t *bad)
	{
		const uint32_t u = gpk_magnitude(v), sign = __float_as_uint(v) >> 16 & 0x8000u;
		*bad |= u >= 0x477ff000u; /* 65520 and above round to infinity */
		return round_magnitude(u, 0x477ff000u, 0x38800000u, 13, 112u << 23, 0.5f) | sign;
	}
	GPK_DEVICE float from(uint32_t h, uint32_t *bad)
	{
		*bad |= (h & 0x7fffu) >= 0x7c00u;
		return widen(h & 0x7fffu, 13, 0x1p112f, (h & 0x8000u) << 16);
	}
};

struct bf16 {
	static const int bytes = 2;
	GPK_DEVICE uint32_t to(float v, uint32_t *bad)
	{
		const uint32_t u = __float_as_uint(v);
		*bad |= gpk_magnitude(v) >= 0x7f7f8000u;
		return (u + 0x7fffu + (u >> 16 & 1)) >> 16;
	}
	GPK_DEVICE float from(uint32_t h, uint32_t *bad)
	{
		*bad |= (h & 0x7fffu) >= 0x7f80u;
		return __uint_as_float(h << 16);
	}
};

struct e5m2 {
	static const int bytes = 1;
	GPK_DEVICE uint32_t to(float v, uint32_t *bad)
	{
		const uint32_t u = gpk_magnitude(v);
		*bad |= u >= 0x7f800000u;
		return round_magnitude(u, 0x47600000u, 0x38800000u, 21, 112u << 23, 0x1p7f) |
		       (__float_as_uint(v) >> 24 & 0x80u);
	}
	GPK_DEVICE float from(uint32_t b, uint32_t *bad)
	{
		*bad |= (b & 0x7fu) >= 0x7cu;
		return widen(b & 0x7fu, 21, 0x1p112f, (b & 0x80u) << 24);
	}
};

struct e4m3 {
	static const int bytes = 1;
	GPK_DEVICE uint32_t to(float v, uint32_t *bad)
	{
		const uint32_t u = gpk_magnitude(v);
		*bad |= u >= 0x7f800000u;
		return round_magnitude(u, 0x43e00000u, 0x3c800000u, 20, 120u << 23, 0x1p14f) |
		       (__float_as_uint(v) >> 24 & 0x80u);
	}
	GPK_DEVICE float from(uint32_t b, uint32_t *bad)
	{
		*bad |= (b & 0x7fu) >= 0x7fu;
		return widen(b & 0x7fu, 20, 0x1p120f, (b & 0x80u) << 24);
	}
};

/* --- s2fp8 ------------------------------------------------------------------------------------------------------- */

/* Bits of a magnitude as exponent and 1 + z: subnormals made normal, zero as one. */
GPK_DEVICE uint32_t normalize(uint32_t u, int *exponent)
{
	*exponent = 0;
	if (u == 0)
		return 0x3f800000u;
	if (u < 0x00800000u) {
		u = __float_as_uint(__uint_as_float(u) * 0x1p32f);
		*exponent = -32;
	}
	*exponent += (int)(u >> 23) - 127;
	return (u & 0x007fffffu) | 0x3f800000u;
}

/* A finite product > 0 back to [1, 2). */
GPK_DEVICE void take_exponent(struct gpk_log_sum *sum)
{
	uint64_t bits;
	memcpy(&bits, &sum->product, sizeof bits);
	sum->exponents += (int)(bits >> 52) - 1023;
	bits = (bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull;
	memcpy(&sum->product, &bits, sizeof bits);
}

/* What one lane has of its block: exponents, the product of the rest, the largest. */
struct lane_sum {
	float product;
	int exponents;
	uint32_t largest;
};

GPK_DEVICE float gpk_at(const float *x, int64_t i)
{
	return x[i];
}

/* x: whatever gpk_at can read. */
template <typename Source> GPK_DEVICE struct lane_sum add_lane(const Source &x, int64_t at, int64_t end)
{
	struct lane_sum s = {1, 0, 0};
	GPK_UNROLL_BY(8)
	for (; at < end; at += GP_LOG_LANES) {
		const uint32_t u = gpk_magnitude(gpk_at(x, at)), counted = u ? u : 0x3f800000u;
		int exponent;
		s.product *= __uint_as_float(normalize(u, &exponent));
		s.exponents += exponent;
		s.largest = counted > s.largest ? counted : s.largest;
	}
	return s;
}

GPK_DEVICE void add_sum(struct gpk_log_sum *to, const struct gpk_log_sum *one)
{
	to->product *= one->product;
	to->exponents += one->exponents;
	to->largest = one->largest > to->largest ? one->largest : to->largest;
	take_exponent(to);
}

/* The lanes of half a warp, multiplied one after another as the host does; all of them get it. Its exponent is taken off twice:
 * sixteen lanes of mantissas close to 2 reach 2^1024. */
GPK_DEVICE struct gpk_log_sum join_lanes(const struct lane_sum &lane)
{
	struct gpk_log_sum sum = {1, 0, 0, 0};
	for (int k = 0; k < GP_LOG_LANES; k++) {
		const uint32_t largest = __shfl_sync(GPK_ALL_LANES, lane.largest, k, GP_LOG_LANES);
		sum.product *= (double)__shfl_sync(GPK_ALL_LANES, lane.product, k, GP_LOG_LANES);
		sum.exponents += __shfl_sync(GPK_ALL_LANES, lane.exponents, k, GP_LOG_LANES);
		sum.largest = largest > sum.largest ? largest : sum.largest;
		if (k % 8 == 7)
			take_exponent(&sum);
	}
	return sum;
}

/* The block: part[0] becomes the sum of all of `count`, a power of two. */
GPK_DEVICE void join_parts(struct gpk_log_sum *part, int count)
{
	for (int half = count / 2; half > 0; half /= 2) {
		__syncthreads();
		if ((int)threadIdx.x < half)
			add_sum(&part[threadIdx.x], &part[threadIdx.x + half]);
	}
	__syncthreads();
}

GPK_DEVICE void put_parameters(const struct gpk_log_sum *sum, int64_t n, float *head)
{
	const double largest = 4096; /* of alpha */
	const double mean = ((double)sum->exponents + log2(sum->product)) / (double)n;
	const double spread = log2((double)__uint_as_float(sum->largest)) - mean;
	const float alpha = (float)(15 / fmax(spread, 15.0 / largest));
	head[0] = alpha;
	head[1] = (float)(-(double)alpha * mean);
}

GPK_DEVICE float log2_of(uint32_t u)
{
	int exponent;
	const float z = __uint_as_float(normalize(u, &exponent)) - 1;
	const float p = __fmaf_rn(z, __fmaf_rn(z, __fmaf_rn(z, GP_LOG2_P3, GP_LOG2_P2), GP_LOG2_P1), GP_LOG2_P0);
	return __fmaf_rn(z, p, (float)exponent);
}

/* Bits of 2^t. */
GPK_DEVICE uint32_t exp2_of(float t)
{
	t = t > GP_S2FP8_LOW ? t : GP_S2FP8_LOW;
	t = t < GP_S2FP8_HIGH ? t : GP_S2FP8_HIGH;
	const float whole = floorf(t), f = t - whole;
	const float p = __fmaf_rn(f, __fmaf_rn(f, __fmaf_rn(f, GP_EXP2_Q2, GP_EXP2_Q1), GP_EXP2_Q0), 1);
	return __float_as_uint(p) + ((uint32_t)(int)whole << 23);
}

GPK_DEVICE uint32_t squeeze(float v, float alpha, float beta)
{
	const uint32_t magnitude = gpk_magnitude(v);
	const float t = magnitude ? __fmaf_rn(alpha, log2_of(magnitude), beta) : GP_S2FP8_LOW;
	const uint32_t half = round_magnitude(exp2_of(t), 0x477fe000u, 0x38800000u, 13, 112u << 23, 0.5f);
	return ((half + 0x80) >> 8) | (__float_as_uint(v) >> 24 & 0x80u);
}

#endif
