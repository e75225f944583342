/* SPDX-License-Identifier: Apache-2.0
 *
 * The Walsh-Hadamard transform of blocks: one pass each way, by tiles. A thread
 * has eight neighbours, so three levels are its own; five more go between the lanes
 * of a warp, the last two between warps. Sums and differences are those of
 * kernels/loops/hadamard_loops_portable.c, level by level. See
 * k_codec_hadamard.h. Test: tests/unit/test_cuda_codec_block.c
 */
#include "kernels/cuda/codec/k_codec_hadamard.h"

#include "kernels/cuda/codec/gpk_codec.h"

#define OWN_LEVELS  3 /* of the eight elements of a thread */
#define WARP_LEVELS 8 /* of those of a warp */

/* --- levels ------------------------------------------------------------------------------------------------------ */

/* A last block that is not full, of `rest` elements, is cut into powers of two, largest first. Returns the levels of the one
 * in which element `at` lies: the highest bit in which `at` and `rest` differ. */
GPK_DEVICE int levels_in_rest(uint32_t at, uint32_t rest)
{
	return at < rest ? 31 - __clz((int)(at ^ rest)) : 0;
}

/* 2^(-levels / 2), as gp_hadamard_factor has it. */
GPK_DEVICE float factor_of(int levels)
{
	const float whole = __uint_as_float((uint32_t)(127 - levels / 2) << 23);
	return levels % 2 ? 0x1.6a09e6p-1f * whole : whole;
}

GPK_DEVICE float negated(float v, bool is)
{
	return __uint_as_float(__float_as_uint(v) ^ (is ? 0x80000000u : 0));
}

/* Sums and differences among a thread's own elements. levels[8]: how many levels each element takes part in, in a last
 * block that is not full; NULL: in all. */
GPK_DEVICE void turn_own(float v[8], const int *levels)
{
	GPK_UNROLL
	for (int j = 0; j < OWN_LEVELS; j++) {
		GPK_UNROLL
		for (int i = 0; i < 8; i++) {
			if (i & 1 << j || (levels && levels[i] <= j))
				continue;
			const float a = v[i], b = v[i | 1 << j];
			v[i] = a + b;
			v[i | 1 << j] = a - b;
		}
	}
}

/* Sums and differences of a thread's elements and another thread's, element by element. `second`: this thread has the second
 * ones, so that it gets the differences. a + -b is a - b. */
GPK_DEVICE void turn_with(float v[8], const float other[8], bool second)
{
	GPK_UNROLL
	for (int i = 0; i < 8; i++)
		v[i] = other[i] + negated(v[i], second);
}

/* By all threads of a CUDA block: the levels between threads. `all`: levels of a full block; `levels`: of the block in which
 * this thread's elements lie. */
GPK_DEVICE void turn_between(float v[8], int all, int levels, float4 *room)
{
	const unsigned t = threadIdx.x;
	float other[8];
	for (int j = OWN_LEVELS; j < all && j < WARP_LEVELS; j++) {
		const unsigned by = 1u << (j - OWN_LEVELS);
		GPK_UNROLL
		for (int i = 0; i < 8; i++)
			other[i] = __shfl_xor_sync(GPK_ALL_LANES, v[i], (int)by);
		if (j < levels)
			turn_with(v, other, t & by);
	}
	for (int j = WARP_LEVELS; j < all; j++) {
		const unsigned by = 1u << (j - OWN_LEVELS), its = t ^ by;
		room[2 * t] = make_float4(v[0], v[1], v[2], v[3]);
		room[2 * t + 1] = make_float4(v[4], v[5], v[6], v[7]);
		__syncthreads();
		const float4 low = room[2 * its], high = room[2 * its + 1];
		const float theirs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
		__syncthreads();
		if (j < levels)
			turn_with(v, theirs, t & by);
	}
}

/* --- passes ------------------------------------------------------------------------------------------------------ */

/* Transforms the eight elements of a thread, without their factors. `plain`: they lie in a full block. levels[8] becomes the
 * levels of the block in which each of them lies. */
GPK_DEVICE void turn8(float v[8], int all, bool plain, int64_t left, uint32_t rest, int levels[8], float4 *room)
{
	GPK_UNROLL
	for (int i = 0; i < 8; i++)
		levels[i] = left < 0 ? all : levels_in_rest((uint32_t)(left + i), rest);
	turn_own(v, plain ? NULL : levels);
	turn_between(v, all, levels[0], room);
}

template <bool BACK>
GPK_KERNEL turn(struct gpk_hadamard h, const float *x, int64_t n, uint32_t limit, float *y, uint32_t *bad)
{
	GPK_SHARED(float4, room, [GPK_CODEC_TILE / 4]);
	const int64_t whole = n >> h.levels << h.levels;
	const uint32_t place = threadIdx.x * GPK_CODEC_GROUP & ((1u << h.levels) - 1);
	const uint32_t signs = h.signs[place / 32] >> place % 32;
	const float factor = factor_of(h.levels);
	bool raised = false;
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		const int64_t at = tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP;
		const bool plain = (tile + 1) * GPK_CODEC_TILE <= whole;
		int levels[8];
		float v[8];
		gpk_load8(x, at, n, 0, v);
		GPK_UNROLL
		for (int i = 0; i < 8; i++)
			v[i] = negated(v[i], !BACK && signs >> i & 1);
		turn8(v, h.levels, plain, at - whole, (uint32_t)(n - whole), levels, room);
		GPK_UNROLL
		for (int i = 0; i < 8; i++) {
			v[i] *= plain ? factor : factor_of(levels[i]);
			raised |= gpk_magnitude(v[i]) >= limit;
			v[i] = negated(v[i], BACK && signs >> i & 1);
		}
		gpk_store4(y, at, n, v);
		gpk_store4(y, at + 4, n, v + 4);
	}
	gpk_flag(bad, raised);
}

extern "C" void gpk_hadamard_forward(struct gp_rt_stream *s, const struct gpk_hadamard *h, const float *x, int64_t n,
				     uint32_t limit, float *y, uint32_t *bad)
{
	GPK_LAUNCH(s, turn<false>, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, *h, x, n, limit, y, bad);
}

extern "C" void gpk_hadamard_backward(struct gp_rt_stream *s, const struct gpk_hadamard *h, const float *x, int64_t n,
				      uint32_t limit, float *y, uint32_t *bad)
{
	GPK_LAUNCH(s, turn<true>, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, *h, x, n, limit, y, bad);
}
