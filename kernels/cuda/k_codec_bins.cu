/* SPDX-License-Identifier: Apache-2.0
 *
 * An element adds once, to a counter that has the elements above and the sum of
 * their low bits below, with room for 2^24; zeros, which a tensor behind a ReLU
 * has mostly, are counted by threads first. 16384 counters are too many for a
 * block's memory. See k_codec_bins.h. Test: tests/unit/test_cuda_codec_select.c
 */
#include "kernels/cuda/k_codec_bins.h"

#include "kernels/cuda/gpk_scan.h"

#define THREADS     256
#define FOUR        4
#define BLOCKS      2112
#define A_TIME      (1 << 24)
#define COUNT_SHIFT 39 /* above 2^24 sums of 15 bits */

GPK_KERNEL draw(const float *x, uint64_t n, int m, float *drawn)
{
	const uint32_t i = threadIdx.x;
	const uint64_t stretch = n / (uint64_t)m;
	if ((int)i < m)
		drawn[i] = x[i * stretch + (stretch * (i * 2654435769u) >> 32)];
}

extern "C" void gpk_bins_draw(struct gp_rt_stream *s, const float *x, int64_t n, int m, float *drawn)
{
	GPK_LAUNCH(s, draw, 1, THREADS, 0, x, (uint64_t)n, m, drawn);
}

/* `elements` equal ones. */
GPK_DEVICE void count_value(const struct gpk_bins &b, float v, float center, float scale, unsigned elements)
{
	const uint32_t u = __float_as_uint(__fmul_rn(__fsub_rn(v, center), scale));
	const int upper = (int)((u & 0x7fffffffu) >> b.low_bits) - b.first;
	const int bin = b.side + ((upper > 0 ? upper : 0) ^ ((int)u >> 31));
	const unsigned long long low = u & ((1u << b.low_bits) - 1);
	atomicAdd(&b.counter[bin], (unsigned long long)elements * ((1ull << COUNT_SHIFT) + low));
}

GPK_KERNEL count_bins(struct gpk_bins b, const float *x, int64_t n, float center, float scale)
{
	const int64_t step = (int64_t)gridDim.x * THREADS * FOUR;
	uint32_t zeros = 0;
	for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * FOUR; at < n; at += step) {
		float v[FOUR];
		const int have = gpk_load_four(x, at, n, v);
		for (int k = 0; k < have; k++) {
			if (__float_as_uint(v[k]) == 0)
				zeros++;
			else
				count_value(b, v[k], center, scale, 1);
		}
	}
	zeros = gpk_warp_count(zeros);
	if (gpk_lane() == 0 && zeros)
		count_value(b, 0, center, scale, zeros);
}

GPK_KERNEL empty_counters(struct gpk_bins b)
{
	const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
	if (i >= b.bins)
		return;
	b.count[i] += (uint32_t)(b.counter[i] >> COUNT_SHIFT);
	b.low[i] += b.counter[i] & ((1ull << COUNT_SHIFT) - 1);
	b.counter[i] = 0;
}

extern "C" void gpk_bins_count(struct gp_rt_stream *s, const struct gpk_bins *b, const float *x, int64_t n,
			       float center, float scale)
{
	for (int64_t at = 0; at < n; at += A_TIME) {
		const int64_t here = n - at < A_TIME ? n - at : A_TIME;
		GPK_LAUNCH(s, count_bins, gpk_blocks(here, THREADS * FOUR * 4, BLOCKS), THREADS, 0, *b, x + at, here,
			   center, scale);
		GPK_LAUNCH(s, empty_counters, gpk_blocks(b->bins, THREADS, b->bins), THREADS, 0, *b);
	}
}
