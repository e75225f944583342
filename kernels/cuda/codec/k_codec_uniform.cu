/* SPDX-License-Identifier: Apache-2.0
 *
 * `uniform` on the device: one pass for the range, one for the codes; one back.
 * Every block finds the table again from the range, with the operations of
 * common/codec/stages/quant.c. See k_codec_uniform.h. Test: tests/unit/test_cuda_codec.c
 */
#include "kernels/cuda/codec/k_codec_uniform.h"

#include "kernels/cuda/codec/gpk_codec.h"

#define QUADS 4 /* of a thread, all of which it asks for before it looks at the first */

/* Blocks that look for a range: each makes atomics on the same two words when it has. */
#ifdef __CUDACC__
#define RANGE_BLOCKS 2112
#else
#define RANGE_BLOCKS 3
#endif

GPK_KERNEL find_range(const float *x, int64_t n, struct gpk_range *range)
{
	GPK_SHARED(uint32_t, room, [GPK_CODEC_THREADS / GPK_WARP]);
	const int64_t step = (int64_t)gridDim.x * GPK_CODEC_THREADS * 4;
	const float any = x[0]; /* in the places behind the last */
	uint32_t low = 0, high = 0, bad = 0;
	for (int64_t at = ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) * 4; at < n; at += QUADS * step) {
		float v[QUADS][4];
		GPK_UNROLL
		for (int q = 0; q < QUADS; q++)
			gpk_load4(x, at + q * step, n, any, v[q]);
		GPK_UNROLL
		for (int i = 0; i < QUADS * 4; i++) {
			const float one = v[i / 4][i % 4];
			const uint32_t key = gpk_key_of_float(one);
			low = ~key > low ? ~key : low;
			high = key > high ? key : high;
			bad |= !gpk_finite(one);
		}
	}
	low = gpk_block_max(low, room);
	high = gpk_block_max(high, room);
	bad = gpk_block_max(bad, room);
	if (threadIdx.x)
		return;
	atomicMax(&range->inverted_min, low);
	atomicMax(&range->max, high);
	if (bad)
		atomicOr(&range->bad, 1u);
}

extern "C" void gpk_range(struct gp_rt_stream *s, const float *x, int64_t n, struct gpk_range *range)
{
	GPK_LAUNCH(s, find_range, gpk_blocks(n, GPK_CODEC_THREADS * 4 * QUADS, RANGE_BLOCKS), GPK_CODEC_THREADS, 0, x,
		   n, range);
}

/* (Truncates nothing: the quotient is below 2^24, and the number that holds it exact.) */
GPK_DEVICE unsigned code_of(float quotient, int top)
{
	const int level = __float2int_rn(quotient);
	return (unsigned)(level < top ? level : top);
}

GPK_KERNEL encode(const float *x, int64_t n, int bits, struct gpk_range *range, float *table, uint8_t *codes)
{
	GPK_CODEC_ROOM(room);
	const int top = (1 << bits) - 1;
	const float min = gpk_float_of_key(~range->inverted_min), max = gpk_float_of_key(range->max);
	const float step = (max - min) / (float)top, divisor = step > 0 ? step : 1;
	const float reciprocal = 1 / divisor;
	const bool quick = gpk_divides(divisor);
	const bool good = !range->bad && gpk_finite((float)top * step + min);
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		table[0] = min;
		table[1] = step;
		if (!good)
			range->bad = 1;
	}
	if (!good)
		return;
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		float v[8];
		unsigned code[8];
		gpk_load8(x, tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP, n, min, v);
		for (int i = 0; i < 8; i++)
			code[i] = code_of(
				quick ? gpk_quotient(v[i] - min, divisor, reciprocal) : (v[i] - min) / divisor, top);
		gpk_store_codes(codes, bits, tile, n, code, room);
	}
}

extern "C" void gpk_uniform_encode(struct gp_rt_stream *s, const float *x, int64_t n, int bits, struct gpk_range *range,
				   float *table, uint8_t *codes)
{
	GPK_LAUNCH(s, encode, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, x, n, bits, range, table, codes);
}

GPK_KERNEL decode(const uint8_t *codes, int64_t n, int bits, float min, float step, float *x)
{
	GPK_CODEC_ROOM(room);
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		gpk_load_codes(codes, bits, tile, n, room);
		for (int half = 0; half < 2; half++) {
			const int local = half * (GPK_CODEC_TILE / 2) + (int)threadIdx.x * 4;
			unsigned code[4];
			float v[4];
			gpk_codes4(room, bits, local, code);
			for (int i = 0; i < 4; i++)
				v[i] = (float)code[i] * step + min;
			gpk_store4(x, tile * GPK_CODEC_TILE + local, n, v);
		}
		__syncthreads();
	}
}

extern "C" void gpk_uniform_decode(struct gp_rt_stream *s, const uint8_t *codes, int64_t n, int bits, float min,
				   float step, float *x)
{
	GPK_LAUNCH(s, decode, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, codes, n, bits, min, step, x);
}
