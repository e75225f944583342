/* SPDX-License-Identifier: Apache-2.0
 *
 * Number formats: one pass, twice four elements of a thread at a time. Arithmetic is
 * that of kernels/loops/codec_loops_portable.c and fp8_loops_portable.c, operation
 * by operation. Only the order in which s2fp8 multiplies the products of blocks
 * differs, which moves the logarithm's mean by parts of 2^-50. See
 * k_codec_format.h. Test: tests/unit/test_cuda_codec.c
 */
#include "kernels/cuda/codec/k_codec_format.h"

#include "kernels/loops/fp8_loops.h"
#include "kernels/cuda/codec/gpk_codec.h"

#define QUADS 2 /* of a thread, all of which it asks for before it looks at the first */

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

/* Four patterns of `bytes` each, the first in the low bits. */
GPK_DEVICE void put4(uint8_t *out, int64_t at, int bytes, const uint32_t pattern[4])
{
	if (bytes == 2)
		reinterpret_cast<uint2 *>(out)[at / 4] = make_uint2((pattern[0] & 0xffffu) | pattern[1] << 16,
								    (pattern[2] & 0xffffu) | pattern[3] << 16);
	else
		reinterpret_cast<uint32_t *>(out)[at / 4] =
			pattern[0] | pattern[1] << 8 | pattern[2] << 16 | pattern[3] << 24;
}

GPK_DEVICE void get4(const uint8_t *in, int64_t at, int bytes, uint32_t pattern[4])
{
	if (bytes == 2) {
		const uint2 all = reinterpret_cast<const uint2 *>(in)[at / 4];
		pattern[0] = all.x & 0xffffu;
		pattern[1] = all.x >> 16;
		pattern[2] = all.y & 0xffffu;
		pattern[3] = all.y >> 16;
		return;
	}
	const uint32_t all = reinterpret_cast<const uint32_t *>(in)[at / 4];
	for (int i = 0; i < 4; i++)
		pattern[i] = all >> (8 * i) & 0xffu;
}

/* Where a thread's first quadruple lies; the others follow at the distance of the grid. */
GPK_DEVICE int64_t first_quad(void)
{
	return ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) * 4;
}

GPK_DEVICE int64_t quad_step(void)
{
	return (int64_t)gridDim.x * GPK_CODEC_THREADS * 4;
}

template <typename Format> GPK_KERNEL to_format(const float *x, int64_t n, uint8_t *out, uint32_t *bad)
{
	const int64_t step = quad_step();
	uint32_t raised = 0;
	for (int64_t at = first_quad(); at < n; at += QUADS * step) {
		float v[QUADS][4];
		GPK_UNROLL
		for (int q = 0; q < QUADS; q++)
			gpk_load4(x, at + q * step, n, 0, v[q]);
		GPK_UNROLL
		for (int q = 0; q < QUADS; q++) {
			uint32_t pattern[4];
			for (int i = 0; i < 4; i++)
				pattern[i] = Format::to(v[q][i], &raised);
			if (at + q * step < n)
				put4(out, at + q * step, Format::bytes, pattern);
		}
	}
	gpk_flag(bad, raised);
}

template <typename Format> GPK_KERNEL from_format(const uint8_t *in, int64_t n, float *x, uint32_t *bad)
{
	const int64_t step = quad_step();
	uint32_t raised = 0;
	for (int64_t at = first_quad(); at < n; at += QUADS * step) {
		uint32_t pattern[QUADS][4] = {};
		GPK_UNROLL
		for (int q = 0; q < QUADS; q++)
			if (at + q * step < n)
				get4(in, at + q * step, Format::bytes, pattern[q]);
		GPK_UNROLL
		for (int q = 0; q < QUADS; q++) {
			const int64_t here = at + q * step;
			float v[4];
			for (int i = 0; i < 4; i++) {
				uint32_t refused = 0;
				v[i] = Format::from(pattern[q][i], &refused);
				raised |= here + i < n ? refused : 0;
			}
			gpk_store4(x, here, n, v);
		}
	}
	gpk_flag(bad, raised);
}

/* One round of a thread. */
static unsigned format_blocks(int64_t n)
{
	return gpk_blocks(n, GPK_CODEC_THREADS * 4 * QUADS, GPK_CODEC_MOST_BLOCKS);
}

extern "C" void gpk_format_encode(struct gp_rt_stream *s, enum gpk_format format, const float *x, int64_t n,
				  uint8_t *out, uint32_t *bad)
{
	const unsigned blocks = format_blocks(n);
	switch (format) {
	case GPK_FP16:
		GPK_LAUNCH(s, to_format<fp16>, blocks, GPK_CODEC_THREADS, 0, x, n, out, bad);
		break;
	case GPK_BF16:
		GPK_LAUNCH(s, to_format<bf16>, blocks, GPK_CODEC_THREADS, 0, x, n, out, bad);
		break;
	case GPK_E5M2:
		GPK_LAUNCH(s, to_format<e5m2>, blocks, GPK_CODEC_THREADS, 0, x, n, out, bad);
		break;
	default:
		GPK_LAUNCH(s, to_format<e4m3>, blocks, GPK_CODEC_THREADS, 0, x, n, out, bad);
	}
}

extern "C" void gpk_format_decode(struct gp_rt_stream *s, enum gpk_format format, const uint8_t *in, int64_t n,
				  float *x, uint32_t *bad)
{
	const unsigned blocks = format_blocks(n);
	switch (format) {
	case GPK_FP16:
		GPK_LAUNCH(s, from_format<fp16>, blocks, GPK_CODEC_THREADS, 0, in, n, x, bad);
		break;
	case GPK_BF16:
		GPK_LAUNCH(s, from_format<bf16>, blocks, GPK_CODEC_THREADS, 0, in, n, x, bad);
		break;
	case GPK_E5M2:
		GPK_LAUNCH(s, from_format<e5m2>, blocks, GPK_CODEC_THREADS, 0, in, n, x, bad);
		break;
	default:
		GPK_LAUNCH(s, from_format<e4m3>, blocks, GPK_CODEC_THREADS, 0, in, n, x, bad);
	}
}

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

GPK_DEVICE struct lane_sum add_lane(const float *x, int64_t at, int64_t end)
{
	struct lane_sum s = {1, 0, 0};
	GPK_UNROLL_BY(8)
	for (; at < end; at += GP_LOG_LANES) {
		const uint32_t u = gpk_magnitude(x[at]), counted = u ? u : 0x3f800000u;
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

/* The lanes of half a warp, multiplied one after another as the host does; all of them get it. */
GPK_DEVICE struct gpk_log_sum join_lanes(const struct lane_sum &lane)
{
	struct gpk_log_sum sum = {1, 0, 0, 0};
	for (int k = 0; k < GP_LOG_LANES; k++) {
		const uint32_t largest = __shfl_sync(GPK_ALL_LANES, lane.largest, k, GP_LOG_LANES);
		sum.product *= (double)__shfl_sync(GPK_ALL_LANES, lane.product, k, GP_LOG_LANES);
		sum.exponents += __shfl_sync(GPK_ALL_LANES, lane.exponents, k, GP_LOG_LANES);
		sum.largest = largest > sum.largest ? largest : sum.largest;
	}
	take_exponent(&sum);
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

/* Sixteen threads have GP_LOG_BLOCK elements: each those of one of the host's lanes, in its order. */
GPK_KERNEL sum_logs(const float *x, int64_t n, struct gpk_log_sum *room)
{
	GPK_SHARED(struct gpk_log_sum, part, [GPK_CODEC_THREADS / GP_LOG_LANES]);
	const int64_t step = (int64_t)gridDim.x * (GPK_CODEC_THREADS / GP_LOG_LANES) * GP_LOG_BLOCK;
	const int lane = (int)threadIdx.x % GP_LOG_LANES, team = (int)threadIdx.x / GP_LOG_LANES;
	struct gpk_log_sum sum = {1, 0, 0, 0};
	int64_t first = (int64_t)blockIdx.x * (GPK_CODEC_THREADS / GP_LOG_LANES) * GP_LOG_BLOCK;
	for (; first < n; first += step) {
		const int64_t at = first + team * GP_LOG_BLOCK, end = at + GP_LOG_BLOCK < n ? at + GP_LOG_BLOCK : n;
		const struct gpk_log_sum one = join_lanes(add_lane(x, at + lane, end));
		add_sum(&sum, &one);
	}
	if (lane == 0)
		part[team] = sum;
	join_parts(part, GPK_CODEC_THREADS / GP_LOG_LANES);
	if (threadIdx.x == 0)
		room[blockIdx.x] = part[0];
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

/* One block. */
GPK_KERNEL measure(const struct gpk_log_sum *room, int parts, int64_t n, float *head, uint32_t *bad)
{
	GPK_SHARED(struct gpk_log_sum, part, [GPK_CODEC_THREADS]);
	struct gpk_log_sum sum = {1, 0, 0, 0};
	for (int b = (int)threadIdx.x; b < parts; b += GPK_CODEC_THREADS)
		add_sum(&sum, &room[b]);
	part[threadIdx.x] = sum;
	join_parts(part, GPK_CODEC_THREADS);
	if (threadIdx.x)
		return;
	if (part[0].largest < 0x7f800000u)
		put_parameters(&part[0], n, head);
	else
		*bad = 1;
}

extern "C" void gpk_s2fp8_measure(struct gp_rt_stream *s, const float *x, int64_t n, struct gpk_log_sum *room,
				  float *head, uint32_t *bad)
{
	const int each = GPK_CODEC_THREADS / GP_LOG_LANES * GP_LOG_BLOCK;
	const unsigned parts = gpk_blocks(n, each, GPK_LOG_PARTS);
	GPK_LAUNCH(s, sum_logs, parts, GPK_CODEC_THREADS, 0, x, n, room);
	GPK_LAUNCH(s, measure, 1, GPK_CODEC_THREADS, 0, room, (int)parts, n, head, bad);
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

GPK_KERNEL to_s2fp8(const float *x, int64_t n, const float *head, uint8_t *out)
{
	const int64_t step = (int64_t)gridDim.x * GPK_CODEC_THREADS * 4;
	const float alpha = head[0], beta = head[1];
	for (int64_t at = ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) * 4; at < n; at += step) {
		float v[4];
		uint32_t pattern[4];
		gpk_load4(x, at, n, 0, v);
		for (int i = 0; i < 4; i++)
			pattern[i] = squeeze(v[i], alpha, beta);
		put4(out, at, 1, pattern);
	}
}

extern "C" void gpk_s2fp8_encode(struct gp_rt_stream *s, const float *x, int64_t n, const float *head, uint8_t *out)
{
	GPK_LAUNCH(s, to_s2fp8, format_blocks(n), GPK_CODEC_THREADS, 0, x, n, head, out);
}

struct table128 {
	float value[128];
};

GPK_KERNEL from_s2fp8(const uint8_t *in, int64_t n, struct table128 given, float *x, uint32_t *bad)
{
	GPK_SHARED(float, table, [128]);
	const int64_t step = (int64_t)gridDim.x * GPK_CODEC_THREADS * 4;
	uint32_t raised = 0;
	if (threadIdx.x < 128)
		table[threadIdx.x] = given.value[threadIdx.x];
	__syncthreads();
	for (int64_t at = ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) * 4; at < n; at += step) {
		float v[4];
		uint32_t pattern[4];
		get4(in, at, 1, pattern);
		for (int i = 0; i < 4; i++) {
			const uint32_t magnitude = pattern[i] & 0x7fu;
			raised |= magnitude >= 0x7cu && at + i < n;
			v[i] = __uint_as_float(__float_as_uint(table[magnitude]) | (pattern[i] & 0x80u) << 24);
		}
		gpk_store4(x, at, n, v);
	}
	gpk_flag(bad, raised);
}

extern "C" void gpk_s2fp8_decode(struct gp_rt_stream *s, const uint8_t *in, int64_t n, const float table[128], float *x,
				 uint32_t *bad)
{
	struct table128 given;
	memcpy(given.value, table, sizeof given.value);
	GPK_LAUNCH(s, from_s2fp8, format_blocks(n), GPK_CODEC_THREADS, 0, in, n, given, x, bad);
}
