/* SPDX-License-Identifier: Apache-2.0
 *
 * A block counts in its own memory, where the bins of the ten largest octaves
 * have room: distances smaller than a thousandth of the largest go to the
 * device's counters one by one. Zeros, which a tensor behind a ReLU has mostly,
 * are counted by threads first. See k_codec_bins.h.
 * Test: tests/unit/test_cuda_codec_select.c
 */
#include "kernels/cuda/codec/k_codec_bins.h"

#include "kernels/cuda/codec/gpk_scan.h"

#define DRAWERS 256
#define THREADS 512
#define FOUR    4
#define SPAN    2560   /* bins of one sign in a block's memory */
#define BLOCKS  528    /* four on each of 132 multiprocessors */
#define LEAST   8192   /* elements that pay for a block's counters */
#define MOST    131072 /* elements of a block: sums of 15 bits stay below 2^32 */

GPK_KERNEL draw(const float *x, uint64_t n, int m, float *drawn)
{
	const uint32_t i = threadIdx.x;
	const uint64_t stretch = n / (uint64_t)m;
	if ((int)i < m)
		drawn[i] = x[i * stretch + (stretch * (i * 2654435769u) >> 32)];
}

extern "C" void gpk_bins_draw(struct gp_rt_stream *s, const float *x, int64_t n, int m, float *drawn)
{
	GPK_LAUNCH(s, draw, 1, DRAWERS, 0, x, (uint64_t)n, m, drawn);
}

struct counters {
	uint32_t count[2 * SPAN], low[2 * SPAN];
};

/* Bin `upper` of a sign, outwards, as the host numbers them. */
GPK_DEVICE int bin_of(const struct gpk_bins &b, int upper, bool negative)
{
	return b.side + (negative ? ~upper : upper);
}

GPK_DEVICE void add_to_all(const struct gpk_bins &b, int bin, uint32_t elements, uint32_t low)
{
	atomicAdd(&b.count[bin], elements);
	atomicAdd((unsigned long long *)&b.low[bin], (unsigned long long)low);
}

/* `elements` equal ones, with which the sum of their low bits has 32 bits. */
GPK_DEVICE void count_value(const struct gpk_bins &b, struct counters *own, float v, float center, float scale,
			    uint32_t elements)
{
	const uint32_t u = __float_as_uint(__fmul_rn(__fsub_rn(v, center), scale));
	const int upper = max((int)((u & 0x7fffffffu) >> b.low_bits) - b.first, 0), near = upper - (b.side - SPAN);
	const uint32_t low = (u & ((1u << b.low_bits) - 1)) * elements;
	const bool negative = u >> 31;
	if (near < 0) {
		add_to_all(b, bin_of(b, upper, negative), elements, low);
		return;
	}
	const int at = near + (negative ? SPAN : 0);
	atomicAdd(&own->count[at], elements);
	atomicAdd(&own->low[at], low);
}

GPK_DEVICE void clear_counters(struct counters *own)
{
	for (int i = (int)threadIdx.x; i < 2 * SPAN; i += THREADS)
		own->count[i] = own->low[i] = 0;
	__syncthreads();
}

GPK_DEVICE void add_counters(const struct gpk_bins &b, const struct counters *own)
{
	__syncthreads();
	for (int i = (int)threadIdx.x; i < 2 * SPAN; i += THREADS)
		if (own->count[i])
			add_to_all(b, bin_of(b, b.side - SPAN + i % SPAN, i >= SPAN), own->count[i], own->low[i]);
}

/* A block has `each` elements, at most MOST. */
GPK_KERNEL GPK_BOUNDS(THREADS)
	count_bins(struct gpk_bins b, const float *x, int64_t n, int64_t each, float center, float scale)
{
	GPK_SHARED(struct counters, own, [1]);
	const int64_t begin = blockIdx.x * each, end = begin + each < n ? begin + each : n;
	uint32_t zeros = 0;
	clear_counters(own);
	for (int64_t at = begin + threadIdx.x * FOUR; at < end; at += THREADS * FOUR) {
		float v[FOUR];
		const int have = gpk_load_four(x, at, end, v);
		for (int k = 0; k < have; k++) {
			if (__float_as_uint(v[k]) == 0)
				zeros++;
			else
				count_value(b, own, v[k], center, scale, 1);
		}
	}
	zeros = gpk_warp_count(zeros);
	if (gpk_lane() == 0 && zeros)
		count_value(b, own, 0, center, scale, zeros);
	add_counters(b, own);
}

/* Elements of a block, in whole vectors. */
static int64_t each_of(int64_t n)
{
	const int64_t each = gpk_div_up(gpk_div_up(n, BLOCKS), FOUR) * FOUR;
	return each < LEAST ? LEAST : each < MOST ? each : MOST;
}

extern "C" void gpk_bins_count(struct gp_rt_stream *s, const struct gpk_bins *b, const float *x, int64_t n,
			       float center, float scale)
{
	const int64_t each = each_of(n);
	GPK_LAUNCH(s, count_bins, (unsigned)gpk_div_up(n, each), THREADS, 0, *b, x, n, each, center, scale);
}
