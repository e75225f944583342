/* SPDX-License-Identifier: Apache-2.0
 *
 * The MX formats and NVFP4: one pass each way, four or two threads to a block;
 * NVFP4 looks for the tensor's range first. Arithmetic is that of
 * kernels/loops/block_loops.c, operation by operation. See k_codec_mx.h.
 * Test: tests/unit/test_cuda_codec_block.c
 */
#include "kernels/cuda/codec/k_codec_mx.h"

#include <math.h>

#include "kernels/cuda/codec/gpk_codec.h"

#define MX_SHIFT   5 /* of GP_MX_BLOCK and GP_NVFP4_BLOCK */
#define NV_SHIFT   4
#define NV_WIDTH   4
#define NOT_FINITE 0x7f800000u

/* --- small numbers ----------------------------------------------------------------------------------------------- */

/* A format with a sign, EXPONENT and MANTISSA bits, whose exponent is biased by BIAS and goes up to EMAX. LARGEST: its largest
 * number, as the bits of a float. NUMBERS: codes whose magnitude is this or more are no numbers. */
template <int EXPONENT, int MANTISSA, int BIAS, int EMAX, uint32_t LARGEST, uint32_t NUMBERS> struct small {
	static const int width = 1 + EXPONENT + MANTISSA, shift = 23 - MANTISSA, emax = EMAX;
	static const uint32_t largest = LARGEST, numbers = NUMBERS, rebase = (uint32_t)(127 - BIAS) << 23;
	static const uint32_t normal = (uint32_t)(128 - BIAS) << 23;                /* the smallest normal number */
	static const uint32_t magic = (uint32_t)(128 - BIAS - MANTISSA + 23) << 23; /* 2^23 subnormal steps */
	static const uint32_t factor = (uint32_t)(254 - BIAS) << 23;
};
using e2m1 = small<2, 1, 1, 2, 0x40c00000, 8>;
using e2m3 = small<2, 3, 1, 2, 0x40f00000, 32>;
using e3m2 = small<3, 2, 3, 4, 0x41e00000, 32>;
using e4m3 = small<4, 3, 7, 8, 0x43e00000, 0x7f>;
using e5m2 = small<5, 2, 15, 15, 0x47600000, 0x7c>;

/* Bits of a magnitude to the format, to nearest, ties to even, saturating: above the smallest normal number the exponent
 * is rebased and the mantissa rounded; below it, adding a power of two leaves the rounded multiple of the smallest
 * subnormal in the low bits. */
template <typename F> GPK_DEVICE uint32_t narrow(uint32_t u)
{
	u = min(u, F::largest + 0);
	const uint32_t normal = (u - F::rebase + (1u << (F::shift - 1)) - 1 + (u >> F::shift & 1)) >> F::shift;
	const uint32_t below = __float_as_uint(__uint_as_float(u) + __uint_as_float(F::magic)) - F::magic;
	return u < F::normal ? below : normal;
}

/* The mantissa in place, the exponent put right by a factor, which also makes normal numbers of subnormals. */
template <typename F> GPK_DEVICE float widen(uint32_t magnitude)
{
	return __uint_as_float(magnitude << F::shift) * __uint_as_float(F::factor);
}

template <typename F> GPK_DEVICE unsigned code_of(float x, float inverse)
{
	return narrow<F>(gpk_magnitude(x * inverse)) | __float_as_uint(x) >> 31 << (F::width - 1);
}

template <typename F> GPK_DEVICE float value_of(unsigned code, float scale)
{
	const uint32_t sign = code >> (F::width - 1) << 31, magnitude = code & ((1u << (F::width - 1)) - 1);
	return __uint_as_float(__float_as_uint(widen<F>(magnitude) * scale) | sign);
}

/* Bits of the largest magnitude of eight elements each of `threads` neighbours; every one gets it. All of a warp. */
GPK_DEVICE uint32_t largest_of(const float v[8], int threads)
{
	uint32_t top = 0;
	GPK_UNROLL
	for (int i = 0; i < 8; i++)
		top = max(top, gpk_magnitude(v[i]));
	for (int d = 1; d < threads; d *= 2)
		top = max(top, __shfl_xor_sync(GPK_ALL_LANES, top, d));
	return top;
}

/* Codes, and none behind n. */
template <typename F> GPK_DEVICE void codes_of(const float v[8], float inverse, int64_t at, int64_t n, unsigned code[8])
{
	GPK_UNROLL
	for (int i = 0; i < 8; i++)
		code[i] = at + i < n ? code_of<F>(v[i], inverse) : 0;
}

/* --- scales ------------------------------------------------------------------------------------------------------ */

/* A block's scale, by its largest magnitude, and what its elements are multiplied with. */
template <typename F> struct power {
	GPK_DEVICE uint32_t of(uint32_t top, float *inverse)
	{
		const int exponent = max((int)(top >> 23) - F::emax, 0);
		*inverse = __uint_as_float((uint32_t)(254 - exponent) << 23);
		return (uint32_t)exponent;
	}
	GPK_DEVICE float value(uint32_t byte)
	{
		return byte ? __uint_as_float(byte << 23) : 0x1p-127f;
	}
	GPK_DEVICE bool fine(uint32_t byte)
	{
		return byte <= 254u - F::emax;
	}
};

GPK_DEVICE uint32_t nv_scale(uint32_t top, float whole, float *inverse)
{
	const uint32_t scale = narrow<e4m3>(gpk_magnitude(__uint_as_float(top) / (6 * whole)));
	const float value = widen<e4m3>(scale) * whole;
	*inverse = value > 0 ? 1 / value : 0;
	return scale;
}

/* The scale of the whole tensor. */
GPK_DEVICE float nv_whole(const struct gpk_range *range)
{
	const float low = gpk_float_of_key(~range->inverted_min), high = gpk_float_of_key(range->max);
	return fmaxf(fmaxf(-low, high) / (6 * 448), GP_NVFP4_LEAST);
}

/* --- MX ---------------------------------------------------------------------------------------------------------- */

template <typename F> GPK_KERNEL encode_mx(const float *x, int64_t n, uint8_t *scales, uint8_t *codes, uint32_t *bad)
{
	GPK_CODEC_ROOM(room);
	const int threads = GP_MX_BLOCK / GPK_CODEC_GROUP;
	bool raised = false;
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		const int64_t at = tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP;
		float v[8], inverse;
		unsigned code[8];
		gpk_load8(x, at, n, 0, v);
		const uint32_t top = largest_of(v, threads), scale = power<F>::of(top, &inverse);
		raised |= top >= NOT_FINITE;
		if (threadIdx.x % threads == 0 && at < n)
			scales[at >> MX_SHIFT] = (uint8_t)scale;
		codes_of<F>(v, inverse, at, n, code);
		gpk_store_codes(codes, F::width, tile, n, code, room);
	}
	gpk_flag(bad, raised);
}

template <typename F>
GPK_KERNEL decode_mx(const uint8_t *scales, const uint8_t *codes, int64_t n, float *x, uint32_t *bad)
{
	GPK_CODEC_ROOM(room);
	const uint32_t magnitude = (1u << (F::width - 1)) - 1;
	bool raised = false;
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		gpk_load_codes(codes, F::width, tile, n, room);
		for (int half = 0; half < 2; half++) {
			const int local = half * (GPK_CODEC_TILE / 2) + (int)threadIdx.x * 4;
			const int64_t at = tile * GPK_CODEC_TILE + local;
			const uint32_t scale = at < n ? scales[at >> MX_SHIFT] : 0;
			const float power_of_two = power<F>::value(scale);
			unsigned code[4];
			float v[4];
			gpk_codes4(room, F::width, local, code);
			raised |= !power<F>::fine(scale);
			GPK_UNROLL
			for (int i = 0; i < 4; i++) {
				raised |= (code[i] & magnitude) >= F::numbers && at + i < n;
				v[i] = value_of<F>(code[i], power_of_two);
			}
			gpk_store4(x, at, n, v);
		}
		__syncthreads();
	}
	gpk_flag(bad, raised);
}

/* Runs the rest with F, the numbers of the format. */
#define BY_FORMAT(format, F, ...)                                                                                      \
	do {                                                                                                           \
		switch (format) {                                                                                      \
		case GP_MX_E2M1: {                                                                                     \
			using F = e2m1;                                                                                \
			__VA_ARGS__;                                                                                   \
		} break;                                                                                               \
		case GP_MX_E2M3: {                                                                                     \
			using F = e2m3;                                                                                \
			__VA_ARGS__;                                                                                   \
		} break;                                                                                               \
		case GP_MX_E3M2: {                                                                                     \
			using F = e3m2;                                                                                \
			__VA_ARGS__;                                                                                   \
		} break;                                                                                               \
		case GP_MX_E4M3: {                                                                                     \
			using F = e4m3;                                                                                \
			__VA_ARGS__;                                                                                   \
		} break;                                                                                               \
		default: {                                                                                             \
			using F = e5m2;                                                                                \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
		}                                                                                                      \
	} while (0)

extern "C" void gpk_mx_encode(struct gp_rt_stream *s, enum gp_mx_format format, const float *x, int64_t n,
			      uint8_t *scales, uint8_t *codes, uint32_t *bad)
{
	BY_FORMAT(format, F,
		  GPK_LAUNCH(s, encode_mx<F>, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, x, n, scales, codes, bad));
}

extern "C" void gpk_mx_decode(struct gp_rt_stream *s, enum gp_mx_format format, const uint8_t *scales,
			      const uint8_t *codes, int64_t n, float *x, uint32_t *bad)
{
	BY_FORMAT(format, F,
		  GPK_LAUNCH(s, decode_mx<F>, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, scales, codes, n, x, bad));
}

/* --- NVFP4 ------------------------------------------------------------------------------------------------------- */

GPK_KERNEL encode_nvfp4(const float *x, int64_t n, const struct gpk_range *range, float *told, uint8_t *scales,
			uint8_t *codes)
{
	const int threads = GP_NVFP4_BLOCK / GPK_CODEC_GROUP;
	const float whole = nv_whole(range);
	if (blockIdx.x == 0 && threadIdx.x == 0)
		*told = whole;
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		const int64_t at = tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP;
		float v[8], inverse;
		unsigned code[8];
		gpk_load8(x, at, n, 0, v);
		const uint32_t scale = nv_scale(largest_of(v, threads), whole, &inverse);
		if (threadIdx.x % threads == 0 && at < n)
			scales[at >> NV_SHIFT] = (uint8_t)scale;
		codes_of<e2m1>(v, inverse, at, n, code);
		gpk_store_codes(codes, NV_WIDTH, tile, n, code, NULL);
	}
}

GPK_KERNEL decode_nvfp4(float whole, const uint8_t *scales, const uint8_t *codes, int64_t n, float *x, uint32_t *bad)
{
	GPK_CODEC_ROOM(room);
	bool raised = false;
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		gpk_load_codes(codes, NV_WIDTH, tile, n, room);
		for (int half = 0; half < 2; half++) {
			const int local = half * (GPK_CODEC_TILE / 2) + (int)threadIdx.x * 4;
			const int64_t at = tile * GPK_CODEC_TILE + local;
			const uint32_t scale = at < n ? scales[at >> NV_SHIFT] : 0;
			const float by = widen<e4m3>(scale) * whole;
			unsigned code[4];
			float v[4];
			gpk_codes4(room, NV_WIDTH, local, code);
			raised |= scale >= e4m3::numbers;
			GPK_UNROLL
			for (int i = 0; i < 4; i++)
				v[i] = value_of<e2m1>(code[i], by);
			gpk_store4(x, at, n, v);
		}
		__syncthreads();
	}
	gpk_flag(bad, raised);
}

extern "C" void gpk_nvfp4_encode(struct gp_rt_stream *s, const float *x, int64_t n, const struct gpk_range *range,
				 float *whole, uint8_t *scales, uint8_t *codes)
{
	GPK_LAUNCH(s, encode_nvfp4, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, x, n, range, whole, scales, codes);
}

extern "C" void gpk_nvfp4_decode(struct gp_rt_stream *s, float whole, const uint8_t *scales, const uint8_t *codes,
				 int64_t n, float *x, uint32_t *bad)
{
	GPK_LAUNCH(s, decode_nvfp4, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, whole, scales, codes, n, x, bad);
}
