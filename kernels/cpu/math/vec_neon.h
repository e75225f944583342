/* SPDX-License-Identifier: Apache-2.0
 *
 * vec.h with NEON of ARM64; only for that header. vec_avx512.h says what the functions give.
 *
 * Threads: any; pure functions. Test: tests/unit/test_gemm.c, tests/unit/test_bn_rows.c
 */
#ifndef GP_CPU_VEC_NEON_H
#define GP_CPU_VEC_NEON_H

#include <arm_neon.h>

#define VEC_LANES        4
#define VEC_REGISTERS    32
#define VEC_SCALARS      4
#define VEC_TAKES_MEMORY 0

typedef float32x4_t gp_vec;
typedef int64_t gp_vec_mask; /* how many of the first lanes count */

#define VEC_ALL ((gp_vec_mask)VEC_LANES)

GP_INLINE gp_vec_mask vec_first(int64_t n)
{
	return n >= VEC_LANES ? VEC_ALL : n > 0 ? n : 0;
}

GP_INLINE gp_vec vec_zero(void)
{
	return vdupq_n_f32(0.0f);
}

GP_INLINE gp_vec vec_all(float x)
{
	return vdupq_n_f32(x);
}

GP_INLINE gp_vec vec_load(const float *at)
{
	return vld1q_f32(at);
}

GP_INLINE void vec_store(float *at, gp_vec v)
{
	vst1q_f32(at, v);
}

/* There are no such stores that a compiler would know of: what is written goes by way of the caches. */
GP_INLINE void vec_stream(float *at, gp_vec v)
{
	vst1q_f32(at, v);
}

GP_INLINE void vec_fence(void)
{
}

GP_INLINE gp_vec vec_load_first(gp_vec_mask lanes, const float *at)
{
	if (lanes == VEC_ALL)
		return vld1q_f32(at);
	gp_vec v = vec_zero();
	if (lanes > 0)
		v = vld1q_lane_f32(at, v, 0);
	if (lanes > 1)
		v = vld1q_lane_f32(at + 1, v, 1);
	if (lanes > 2)
		v = vld1q_lane_f32(at + 2, v, 2);
	return v;
}

GP_INLINE void vec_store_first(float *at, gp_vec_mask lanes, gp_vec v)
{
	if (lanes == VEC_ALL) {
		vst1q_f32(at, v);
		return;
	}
	if (lanes > 0)
		vst1q_lane_f32(at, v, 0);
	if (lanes > 1)
		vst1q_lane_f32(at + 1, v, 1);
	if (lanes > 2)
		vst1q_lane_f32(at + 2, v, 2);
}

GP_INLINE gp_vec vec_add(gp_vec a, gp_vec b)
{
	return vaddq_f32(a, b);
}

GP_INLINE gp_vec vec_sub(gp_vec a, gp_vec b)
{
	return vsubq_f32(a, b);
}

GP_INLINE gp_vec vec_mul(gp_vec a, gp_vec b)
{
	return vmulq_f32(a, b);
}

GP_INLINE gp_vec vec_fma(gp_vec a, gp_vec b, gp_vec c)
{
	return vfmaq_f32(c, a, b);
}

GP_INLINE gp_vec vec_scalars(const float *at)
{
	return vld1q_f32(at);
}

/* A lane is part of the instruction: `i` is a constant once loops are unrolled. */
GP_INLINE gp_vec vec_fma_scalar(gp_vec scalars, const int i, gp_vec b, gp_vec c)
{
	switch (i) {
	case 0:
		return vfmaq_laneq_f32(c, b, scalars, 0);
	case 1:
		return vfmaq_laneq_f32(c, b, scalars, 1);
	case 2:
		return vfmaq_laneq_f32(c, b, scalars, 2);
	default:
		return vfmaq_laneq_f32(c, b, scalars, 3);
	}
}

/* Not vmaxq_f32, which gives NaN where either is, and +0 of two zeros. */
GP_INLINE gp_vec vec_larger(gp_vec a, gp_vec b)
{
	return vbslq_f32(vcgtq_f32(a, b), a, b);
}

/* One instruction in place of two, since `a` is neither NaN nor 0. */
GP_INLINE gp_vec vec_smaller(gp_vec a, gp_vec b)
{
	return vminq_f32(a, b);
}

GP_INLINE gp_vec vec_where(uint32x4_t lanes, gp_vec g)
{
	return vreinterpretq_f32_u32(vandq_u32(lanes, vreinterpretq_u32_f32(g)));
}

GP_INLINE gp_vec vec_if_above(gp_vec v, gp_vec low, gp_vec g)
{
	return vec_where(vcgtq_f32(v, low), g);
}

GP_INLINE gp_vec vec_if_between(gp_vec v, gp_vec low, gp_vec high, gp_vec g)
{
	return vec_if_above(v, low, vec_where(vcltq_f32(v, high), g));
}

GP_INLINE gp_vec vec_column(const float *const at[VEC_LANES], int column)
{
	gp_vec v = vld1q_dup_f32(at[0] + column);
	v = vld1q_lane_f32(at[1] + column, v, 1);
	v = vld1q_lane_f32(at[2] + column, v, 2);
	return vld1q_lane_f32(at[3] + column, v, 3);
}

GP_INLINE void vec_turn(gp_vec row[VEC_LANES])
{
	const float32x4x2_t top = vtrnq_f32(row[0], row[1]), bottom = vtrnq_f32(row[2], row[3]);
#pragma GCC unroll 2
	for (int i = 0; i < 2; i++) {
		row[i] = vcombine_f32(vget_low_f32(top.val[i]), vget_low_f32(bottom.val[i]));
		row[i + 2] = vcombine_f32(vget_high_f32(top.val[i]), vget_high_f32(bottom.val[i]));
	}
}

#endif
