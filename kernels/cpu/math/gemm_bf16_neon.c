/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h's products of bfloat16 pairs with FEAT_BF16 of ARM64: BFDOT, which multiplies and adds twice as many numbers at a
 * time as an instruction of floats does. Test: tests/unit/test_gemm_bf16.c
 */
#include "kernels/cpu/math/narrow_neon.h"

typedef bfloat16x8_t gp_pairs;

GP_INLINE gp_vec pairs_of_neighbours(const float *in, int64_t left)
{
	const gp_vec low = vec_load_first(vec_first(left), in);
	return vreinterpretq_f32_bf16(narrow(low, vec_load_first(vec_first(left - VEC_LANES), in + VEC_LANES)));
}

GP_INLINE gp_vec pairs_of_rows(gp_vec low, gp_vec high)
{
	const uint16x8_t both = vreinterpretq_u16_bf16(narrow(low, high));
	return vreinterpretq_f32_u16(vzip1q_u16(both, vextq_u16(both, both, VEC_LANES)));
}

GP_INLINE void pairs_store(uint32_t *at, gp_vec_mask lanes, gp_vec bits)
{
	const uint32x4_t v = vreinterpretq_u32_f32(bits);
	if (lanes == VEC_ALL) {
		vst1q_u32(at, v);
		return;
	}
	if (lanes > 0)
		vst1q_lane_u32(at, v, 0);
	if (lanes > 1)
		vst1q_lane_u32(at + 1, v, 1);
	if (lanes > 2)
		vst1q_lane_u32(at + 2, v, 2);
}

GP_INLINE gp_pairs pairs_load(const uint32_t *at)
{
	return vreinterpretq_bf16_u32(vld1q_u32(at));
}

GP_INLINE gp_pairs pairs_load_first(gp_vec_mask lanes, const uint32_t *at)
{
	uint32x4_t v = vdupq_n_u32(0);
	if (lanes == VEC_ALL)
		return pairs_load(at);
	if (lanes > 0)
		v = vld1q_lane_u32(at, v, 0);
	if (lanes > 1)
		v = vld1q_lane_u32(at + 1, v, 1);
	if (lanes > 2)
		v = vld1q_lane_u32(at + 2, v, 2);
	return vreinterpretq_bf16_u32(v);
}

GP_INLINE gp_pairs pairs_all(uint32_t pair)
{
	return vreinterpretq_bf16_u32(vdupq_n_u32(pair));
}

GP_INLINE gp_pairs pairs_scalars(const uint32_t *at)
{
	return pairs_load(at);
}

/* A lane is part of the instruction: `i` is a constant once loops are unrolled. */
GP_INLINE gp_vec pairs_dot(gp_pairs left, const int i, gp_pairs b, gp_vec sum)
{
	switch (i) {
	case 0:
		return vbfdotq_laneq_f32(sum, b, left, 0);
	case 1:
		return vbfdotq_laneq_f32(sum, b, left, 1);
	case 2:
		return vbfdotq_laneq_f32(sum, b, left, 2);
	default:
		return vbfdotq_laneq_f32(sum, b, left, 3);
	}
}

#include "kernels/cpu/math/gemm_bf16_body.h"

const struct gp_gemm_bf16_kernels gp_gemm_bf16_neon = GP_GEMM_BF16_KERNELS;
