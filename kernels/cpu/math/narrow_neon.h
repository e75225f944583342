/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding a register of floats to bfloat16 with FEAT_BF16 of ARM64, as bf16.h says. Only for bf16_neon.c and
 * gemm_bf16_neon.c.
 *
 * Threads: any; pure functions. Test: tests/unit/test_gemm_bf16.c
 */
#ifndef GP_CPU_NARROW_NEON_H
#define GP_CPU_NARROW_NEON_H

#include <float.h>

#include "kernels/cpu/math/vec.h"

/* What is too small to be normal becomes zero of its sign, which BFCVTN by itself would round. */
GP_INLINE gp_vec without_subnormals(gp_vec v)
{
	const uint32x4_t tiny = vcaltq_f32(v, vdupq_n_f32(FLT_MIN));
	return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), vshrq_n_u32(tiny, 1)));
}

GP_INLINE bfloat16x8_t narrow(gp_vec low, gp_vec high)
{
	return vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(without_subnormals(low)), without_subnormals(high));
}

#endif
