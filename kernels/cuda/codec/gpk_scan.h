/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefix sums of warps and blocks, and the last block of a grid: for kernels
 * that select. Integers only, so that every order of adding gives the same.
 * Only for k_codec_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_codec_select.c
 */
#ifndef GPK_SCAN_H
#define GPK_SCAN_H

#include "kernels/cuda/codec/gpk_codec.h"

/* Counts stop here: where they cannot grow further, more of them means the same. */
#define GPK_COUNT_MAX 0x80000000u

GPK_DEVICE uint32_t gpk_add_counts(uint32_t a, uint32_t b)
{
	const uint64_t sum = (uint64_t)a + b;
	return sum < GPK_COUNT_MAX ? (uint32_t)sum : GPK_COUNT_MAX;
}

GPK_DEVICE int gpk_lane(void)
{
	return (int)(threadIdx.x % GPK_WARP);
}

/* The lanes below this one. */
GPK_DEVICE unsigned gpk_lanes_below(void)
{
	return (1u << gpk_lane()) - 1;
}

GPK_DEVICE uint32_t gpk_warp_count(uint32_t v)
{
	for (int d = GPK_WARP / 2; d > 0; d /= 2)
		v += __shfl_xor_sync(GPK_ALL_LANES, v, d);
	return v;
}

/* Sum of the lanes up to this one, this one's included. */
GPK_DEVICE uint32_t gpk_warp_prefix(uint32_t v)
{
	for (unsigned d = 1; d < GPK_WARP; d *= 2) {
		const uint32_t below = __shfl_up_sync(GPK_ALL_LANES, v, d);
		if (gpk_lane() >= (int)d)
			v = gpk_add_counts(v, below);
	}
	return v;
}

/* The same of counts that cannot grow beyond 32 bits. */
GPK_DEVICE uint32_t gpk_warp_prefix_few(uint32_t v)
{
	for (unsigned d = 1; d < GPK_WARP; d *= 2) {
		const uint32_t below = __shfl_up_sync(GPK_ALL_LANES, v, d);
		v += gpk_lane() >= (int)d ? below : 0;
	}
	return v;
}

/* As gpk_block_before, of counts that cannot grow beyond 32 bits. */
GPK_DEVICE uint32_t gpk_block_before_few(uint32_t v, uint32_t *total)
{
	GPK_SHARED(uint32_t, warps, [GPK_WARP]);
	const unsigned warp = threadIdx.x / GPK_WARP, count = blockDim.x / GPK_WARP;
	const uint32_t upto = gpk_warp_prefix_few(v);
	__syncthreads(); /* `warps` may still be read from the last time */
	if (gpk_lane() == GPK_WARP - 1)
		warps[warp] = upto;
	__syncthreads();
	uint32_t before = 0, all = 0;
	for (unsigned w = 0; w < count; w++) {
		before += w < warp ? warps[w] : 0;
		all += warps[w];
	}
	*total = all;
	return before + upto - v;
}

/* Over a block of up to 1024 threads, a multiple of 32: the sum of the threads before this one; *total gets the block's. */
GPK_DEVICE uint32_t gpk_block_before(uint32_t v, uint32_t *total)
{
	GPK_SHARED(uint32_t, warps, [GPK_WARP]);
	const unsigned warp = threadIdx.x / GPK_WARP, count = blockDim.x / GPK_WARP;
	const uint32_t upto = gpk_warp_prefix(v), below = __shfl_up_sync(GPK_ALL_LANES, upto, 1);
	__syncthreads(); /* `warps` may still be read from the last time */
	if (gpk_lane() == GPK_WARP - 1)
		warps[warp] = upto;
	__syncthreads();
	uint32_t before = 0, all = 0;
	for (unsigned w = 0; w < count; w++) {
		before = w == warp ? all : before;
		all = gpk_add_counts(all, warps[w]);
	}
	*total = all;
	return gpk_lane() ? gpk_add_counts(before, below) : before;
}

/* True in every thread of the block that comes here last of a grid of one dimension: it sees what the others wrote
 * before. *ticket begins at 0. */
GPK_DEVICE bool gpk_last_block(uint32_t *ticket)
{
	GPK_SHARED(uint32_t, taken, [1]);
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		taken[0] = atomicAdd(ticket, 1u);
	__syncthreads();
	__threadfence();
	return taken[0] == gridDim.x - 1;
}

/* What other blocks wrote, past this one's caches. */
GPK_DEVICE uint32_t gpk_fresh(const uint32_t *at)
{
	return *(const volatile uint32_t *)at;
}

/* A value's key, with -0 as +0. */
GPK_DEVICE uint32_t gpk_key_of_value(float v)
{
	return gpk_key_of_float(v + 0.0f);
}

/* x[at..at+4), as far as there is one; returns how many. `at` is a multiple of 4. */
GPK_DEVICE int gpk_load_four(const float *x, int64_t at, int64_t n, float v[4])
{
	gpk_load4(x, at, n, 0, v);
	return at + 4 <= n ? 4 : at < n ? (int)(n - at) : 0;
}

#endif
