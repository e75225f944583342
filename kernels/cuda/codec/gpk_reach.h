/* SPDX-License-Identifier: Apache-2.0
 *
 * Reaches of blocks on the device, and which scale gives a block the least
 * error: half a warp has a block, as the host's sums have sixteen lanes. Formulas:
 * common/CODECS.md, "block".
 *
 * Only for k_codec_block.cu and k_codec_budget.cu.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_codec_block.c
 */
#ifndef GPK_REACH_H
#define GPK_REACH_H

#include "kernels/cuda/codec/gpk_scales.h"

#define GPK_BLOCK_LANES GP_BLOCK_LANES /* threads that measure a block: half a warp */
#define GPK_BLOCK_TEAMS (GPK_CODEC_THREADS / GPK_BLOCK_LANES)

/* Blocks of a launch, each of which makes an atomic on the same word when it has done. */
#ifdef __CUDACC__
#define GPK_BLOCK_MOST 2112
#else
#define GPK_BLOCK_MOST 3
#endif

/* Blocks of a launch in which half warps have `count` blocks of the tensor. */
static inline unsigned gpk_team_blocks(int64_t count)
{
	return gpk_blocks(count, GPK_BLOCK_TEAMS, GPK_BLOCK_MOST);
}

/* --- reaches ----------------------------------------------------------------------------------------------------- */

/* Some elements of a block, and 0: bits of the largest magnitude; with a zero point, least and most. */
struct gpk_extent {
	uint32_t top;
	float least, most;
};

template <bool ASYM> GPK_DEVICE void gpk_widen(struct gpk_extent *e, float v)
{
	e->top = max(e->top, gpk_magnitude(v));
	if (ASYM) {
		e->least = fminf(e->least, v);
		e->most = fmaxf(e->most, v);
	}
}

template <bool ASYM> GPK_DEVICE void gpk_widen_by(struct gpk_extent *e, struct gpk_extent other)
{
	e->top = max(e->top, other.top);
	if (ASYM) {
		e->least = fminf(e->least, other.least);
		e->most = fmaxf(e->most, other.most);
	}
}

/* Over `threads` neighbours, a power of two up to a warp; each gets it. All threads of the warp. */
template <bool ASYM> GPK_DEVICE struct gpk_extent gpk_extent_over(struct gpk_extent e, int threads)
{
	for (int d = 1; d < threads; d *= 2) {
		struct gpk_extent other;
		other.top = __shfl_xor_sync(GPK_ALL_LANES, e.top, d);
		other.least = ASYM ? __shfl_xor_sync(GPK_ALL_LANES, e.least, d) : 0;
		other.most = ASYM ? __shfl_xor_sync(GPK_ALL_LANES, e.most, d) : 0;
		gpk_widen_by<ASYM>(&e, other);
	}
	return e;
}

template <bool ASYM> GPK_DEVICE float gpk_reach_of(struct gpk_extent e)
{
	return ASYM ? fabsf(e.most - e.least) : __uint_as_float(e.top); /* never -0 */
}

/* Its bits, or the largest magnitude's where that is more. */
template <bool ASYM> GPK_DEVICE uint32_t gpk_top_of(struct gpk_extent e)
{
	return max(e.top, gpk_magnitude(gpk_reach_of<ASYM>(e)));
}

/* What lane `lane` of GPK_BLOCK_LANES finds in a block. */
template <bool ASYM> GPK_DEVICE struct gpk_extent gpk_extent_of_lane(const float *x, int64_t from, int64_t to, int lane)
{
	struct gpk_extent e = {0, 0, 0};
	GPK_UNROLL_BY(8)
	for (int64_t i = from + lane; i < to; i += GPK_BLOCK_LANES)
		gpk_widen<ASYM>(&e, x[i]);
	return gpk_extent_over<ASYM>(e, GPK_BLOCK_LANES);
}

/* The block: tells the largest of what its threads have seen. */
GPK_DEVICE void gpk_tell_top(uint32_t top, struct gpk_block_answer *answer)
{
	GPK_SHARED(uint32_t, room, [GPK_CODEC_THREADS / GPK_WARP]);
	top = gpk_block_max(top, room);
	if (threadIdx.x == 0)
		atomicMax(&answer->top, top);
}

/* --- scales of the least error ------------------------------------------------------------------------------------ */

/* The first of the ratios with the least sum of squared errors, of which each lane brings its part. Every lane of a team
 * gets it. `room`: of the team. All threads of the warp. */
GPK_DEVICE int gpk_least_of(const double (&sum)[GP_BLOCK_RATIOS], int lane, double (*room)[GP_BLOCK_RATIOS + 1])
{
	double error = 0;
	int best = lane % GP_BLOCK_RATIOS;
	GPK_UNROLL
	for (int k = 0; k < GP_BLOCK_RATIOS; k++)
		room[lane][k] = sum[k];
	__syncwarp();
	for (int i = 0; i < GPK_BLOCK_LANES; i++)
		error += room[i][best];
	for (int d = 1; d < GP_BLOCK_RATIOS; d *= 2) {
		const double other = __shfl_xor_sync(GPK_ALL_LANES, error, d);
		const int its = __shfl_xor_sync(GPK_ALL_LANES, best, d);
		if (other < error || (other == error && its < best)) {
			error = other;
			best = its;
		}
	}
	__syncwarp();
	return best;
}

/* The scale, of those of eight ratios, under which a block's sum of squared errors is least: each lane adds up its
 * elements in their order, and the lanes come one after another, as on the host. */
GPK_DEVICE uint32_t gpk_least_error(const struct gp_block_form &form, const float *x, int64_t from, int64_t to,
				    int lane, float reach, float least, double (*room)[GP_BLOCK_RATIOS + 1])
{
	struct gp_block_step step[GP_BLOCK_RATIOS];
	double sum[GP_BLOCK_RATIOS] = {};
	GPK_UNROLL
	for (int k = 0; k < GP_BLOCK_RATIOS; k++) {
		const uint32_t code = gpk_scale_code(form, reach * gpk_clip_ratio(k));
		step[k] = gpk_step_of(form, gpk_scale_value(form, code), reach, least);
	}
	for (int64_t i = from + lane; i < to; i += GPK_BLOCK_LANES) {
		const float v = x[i];
		GPK_UNROLL
		for (int k = 0; k < GP_BLOCK_RATIOS; k++)
			sum[k] = gpk_add_error(sum[k], v, step[k]);
	}
	return gpk_scale_code(form, reach * gpk_clip_ratio(gpk_least_of(sum, lane, room)));
}

#endif
