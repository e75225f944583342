/* SPDX-License-Identifier: Apache-2.0
 *
 * A lane takes four neighbouring elements, a warp 128: their codes are whole
 * words of 4 bytes whatever the width, put together in shared memory. See
 * k_codec_partition.h. Test: tests/unit/test_cuda_codec_select.c
 */
#include "kernels/cuda/codec/k_codec_partition.h"

#include "kernels/cuda/codec/gpk_scan.h"

#define THREADS 256
#define WARPS   (THREADS / GPK_WARP)
#define FOUR    4
#define A_WARP  (FOUR * GPK_WARP)
#define BLOCKS  2112 /* 16 on each of 132 multiprocessors */

/* --- sample ------------------------------------------------------------------------------------------------------ */

GPK_KERNEL draw_sample(const float *x, uint64_t n, uint64_t seed, uint64_t stream, uint64_t count, float *sample)
{
	const uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
	if (i >= count)
		return;
	uint32_t word[4];
	gpk_rng_block(seed, stream, i / 4, word);
	const uint64_t begin = i * n / count, end = (i + 1) * n / count;
	const uint32_t w = i % 4 == 0 ? word[0] : i % 4 == 1 ? word[1] : i % 4 == 2 ? word[2] : word[3];
	sample[i] = x[begin + ((end - begin) * w >> 32)];
}

extern "C" void gpk_draw_sample(struct gp_rt_stream *s, const float *x, int64_t n, uint64_t seed, uint64_t stream,
				int64_t count, float *sample)
{
	GPK_LAUNCH(s, draw_sample, gpk_blocks(count, THREADS, INT32_MAX), THREADS, 0, x, (uint64_t)n, seed, stream,
		   (uint64_t)count, sample);
}

/* --- table ------------------------------------------------------------------------------------------------------ */

GPK_DEVICE float limit_of(const struct gpk_wanted *found, const struct gpk_range *range, uint16_t at)
{
	if (at == GPK_RANGE_MIN)
		return gpk_float_of_key(~range->inverted_min);
	if (at == GPK_RANGE_MAX)
		return gpk_float_of_key(range->max);
	return gpk_float_of_key(found[at].key);
}

/* One block of GPK_PARTITIONS_MOST threads. */
GPK_KERNEL make_table(const struct gpk_wanted *found, const uint32_t *bad, const struct gpk_limits *limits,
		      const struct gpk_range *range, int bits, int partitions, struct gpk_partitions *t, float *out,
		      uint32_t *answer)
{
	const int p = (int)threadIdx.x;
	bool wrong = *bad;
	if (range)
		wrong |= range->bad != 0;
	if (!wrong && p < partitions) {
		const float levels = (float)((1 << bits) - 1), low = limit_of(found, range, limits[p].begin);
		const float step = __fdiv_rn(__fsub_rn(limit_of(found, range, limits[p].end), low), levels);
		t->min[p] = out[2 * p] = low;
		t->step[p] = out[2 * p + 1] = step;
		t->divisor[p] = step > 0 ? step : 1;
		wrong = !gpk_finite(__fadd_rn(__fmul_rn(levels, step), low));
	}
	wrong = __syncthreads_or(wrong);
	if (p == 0)
		t->good = *answer = !wrong;
}

extern "C" void gpk_partition_table(struct gp_rt_stream *s, const struct gpk_select *select,
				    const struct gpk_limits *limits, const struct gpk_range *range, int bits, int split,
				    struct gpk_partitions *table, float *out, uint32_t *answer)
{
	GPK_LAUNCH(s, make_table, 1, GPK_PARTITIONS_MOST, 0, gpk_select_found(select), gpk_select_bad(select), limits,
		   range, bits, 1 << split, table, out, answer);
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* A partition in shared memory. */
struct slot {
	float min, divisor;
};

/* Where many partitions begin, as a search tree whose root is 1: what a warp looks at in one step lies side by side, in
 * different banks. In order, the third to sixth step would find 4 to 8 lanes at one bank. */
GPK_DEVICE void make_tree(float *tree, const float *min, int split)
{
	for (int i = (int)threadIdx.x; i < 1 << split; i += THREADS) {
		const int round = i ? 31 - __clz(i) : 0;
		tree[i] = i ? min[(2 * (i - (1 << round)) + 1) << (split - 1 - round)] : 0;
	}
}

/* The last partition that begins at or below v. Few of them are compared with all at once. */
template <int Split> GPK_DEVICE unsigned partition_of(const struct slot *slot, const float *tree, int split, float v)
{
	if constexpr (Split == 0)
		return 0;
	if constexpr (Split == 2)
		return (unsigned)(v >= slot[1].min) + (unsigned)(v >= slot[2].min) + (unsigned)(v >= slot[3].min);
	unsigned j = 1;
	for (int round = 0; round < split; round++)
		j = 2 * j + (v >= tree[j]);
	return j - (1u << split);
}

template <int Split>
GPK_DEVICE uint64_t codes_of(const struct slot *slot, const float *tree, int bits, int split, const float v[FOUR],
			     int have)
{
	const int top = (1 << bits) - 1, width = bits + split;
	uint64_t codes = 0;
	for (int k = 0; k < FOUR; k++) {
		if (k >= have)
			break;
		const unsigned p = partition_of<Split>(slot, tree, split, v[k]);
		const int level = __float2int_rn(__fdiv_rn(__fsub_rn(v[k], slot[p].min), slot[p].divisor));
		codes |= (uint64_t)(p << bits | (unsigned)(level < top ? level : top)) << (k * width);
	}
	return codes;
}

/* A warp's 128 codes to 4 * width words, of which `words` exist. */
GPK_DEVICE void store_codes(uint32_t *staged, uint64_t codes, int width, uint32_t *to, int64_t words)
{
	const int lane = gpk_lane(), bit = lane * FOUR * width, shift = bit % 32;
	if (width == 8) { /* no word is shared */
		if (lane < words)
			to[lane] = (uint32_t)codes;
		return;
	}
	for (int i = lane; i < FOUR * width; i += GPK_WARP)
		staged[i] = 0;
	__syncwarp();
	const uint64_t low = codes << shift;
	const uint32_t high = shift ? (uint32_t)(codes >> (64 - shift)) : 0;
	atomicOr(&staged[bit / 32], (uint32_t)low);
	if (low >> 32)
		atomicOr(&staged[bit / 32 + 1], (uint32_t)(low >> 32));
	if (high)
		atomicOr(&staged[bit / 32 + 2], high);
	__syncwarp();
	for (int i = lane; i < FOUR * width && i < words; i += GPK_WARP)
		to[i] = staged[i];
	__syncwarp();
}

template <int Split>
GPK_KERNEL encode(const struct gpk_partitions *t, int bits, int split, const float *x, int64_t n, uint32_t *codes)
{
	GPK_SHARED(struct slot, slot, [GPK_PARTITIONS_MOST]);
	GPK_SHARED(float, tree, [Split < 0 ? GPK_PARTITIONS_MOST : 1]);
	GPK_SHARED(uint32_t, staged, [WARPS][FOUR * 16]);
	const int width = bits + split, warp = (int)threadIdx.x / GPK_WARP, lane = gpk_lane();
	const int64_t words = (n * width + 31) / 32, step = (int64_t)gridDim.x * WARPS;
	if (!t->good)
		return;
	for (int p = (int)threadIdx.x; p < 1 << split; p += THREADS) {
		slot[p].min = t->min[p];
		slot[p].divisor = t->divisor[p];
	}
	if (Split < 0)
		make_tree(tree, t->min, split);
	__syncthreads();
	for (int64_t tile = (int64_t)blockIdx.x * WARPS + warp; tile * A_WARP < n; tile += step) {
		float v[FOUR];
		const int have = gpk_load_four(x, tile * A_WARP + lane * FOUR, n, v);
		const int64_t at = tile * FOUR * width;
		store_codes(staged[warp], codes_of<Split>(slot, tree, bits, split, v, have), width, codes + at,
			    words - at);
	}
}

extern "C" void gpk_partition_encode(struct gp_rt_stream *s, const struct gpk_partitions *table, int bits, int split,
				     const float *x, int64_t n, uint32_t *codes)
{
	const unsigned blocks = gpk_blocks(n, WARPS * A_WARP * 4, BLOCKS);
	if (split == 0)
		GPK_LAUNCH(s, encode<0>, blocks, THREADS, 0, table, bits, split, x, n, codes);
	else if (split == 2)
		GPK_LAUNCH(s, encode<2>, blocks, THREADS, 0, table, bits, split, x, n, codes);
	else
		GPK_LAUNCH(s, encode<-1>, blocks, THREADS, 0, table, bits, split, x, n, codes);
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

GPK_KERNEL decode(const float *table, int bits, int split, const uint32_t *codes, int64_t n, float *x)
{
	GPK_SHARED(float2, slot, [GPK_PARTITIONS_MOST]);
	const int width = bits + split;
	const uint32_t level = (1u << bits) - 1, all = (1u << width) - 1;
	const int64_t step = (int64_t)gridDim.x * THREADS * FOUR;
	for (int p = (int)threadIdx.x; p < 1 << split; p += THREADS)
		slot[p] = make_float2(table[2 * p], table[2 * p + 1]);
	__syncthreads();
	for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * FOUR; at < n; at += step) {
		const int64_t bit = at * width;
		const uint32_t *from = codes + bit / 32;
		const int shift = (int)(bit % 32), need = shift + FOUR * width;
		const uint64_t low = from[0] | (uint64_t)(need > 32 ? from[1] : 0) << 32,
			       high = need > 64 ? from[2] : 0;
		uint64_t four = low >> shift | (shift ? high << (64 - shift) : 0);
		float v[FOUR];
		for (int k = 0; k < FOUR; k++, four >>= width) {
			const uint32_t code = (uint32_t)four & all;
			const float2 p = slot[code >> bits];
			v[k] = __fadd_rn(__fmul_rn((float)(code & level), p.y), p.x);
		}
		gpk_store4(x, at, n, v);
	}
}

extern "C" void gpk_partition_decode(struct gp_rt_stream *s, const float *table, int bits, int split,
				     const uint32_t *codes, int64_t n, float *x)
{
	GPK_LAUNCH(s, decode, gpk_blocks(n, THREADS * FOUR * 4, BLOCKS), THREADS, 0, table, bits, split, codes, n, x);
}
