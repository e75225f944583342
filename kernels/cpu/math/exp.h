/* SPDX-License-Identifier: Apache-2.0
 *
 * e^x for vectorised loops: additions, multiplications, and the exponent's bits,
 * so that every clone of a loop (kernels/loops/simd.h) gives the same bits. Not
 * the C library's, whose versions differ from each other.
 *
 * Threads: any; pure functions. Test: tests/unit/test_curves.c
 */
#ifndef GP_CPU_EXP_H
#define GP_CPU_EXP_H

#include "kernels/cpu/math/float_bits.h"

#define GP_EXP_LOG2E     0x1.715476p+0f
#define GP_EXP_LN2_HIGH  0x1.63p-1f /* few bits: a whole number up to 2^15 times it is exact */
#define GP_EXP_LN2_LOW   -0x1.bd0106p-13f
#define GP_EXP_ROUND     0x1.8p+23f /* a small number that is added to it is rounded to a whole one, in its lowest bits */
#define GP_EXP_UNDERFLOW -87.0f     /* below it the result counts as 0 */

/* 2^n e^r for |r| <= 0.35 and n from -126 to 127, which lies in the lowest bits of `rounded`. */
GP_INLINE float gp_exp_of_parts(float rounded, float r)
{
	float p = 0.00138145592f * r + 0.0083687352f;
	p = p * r + 0.041668389f;
	p = p * r + 0.166665211f;
	p = p * r + 0.49999994f;
	p = (p * r * r + r) + 1.0f;
	return p * gp_float_of((gp_float_bits(rounded) + 127) << 23);
}

/* e^x for x <= 0: 0 below -87, and of a NaN a NaN. The relative error is below 1.5e-7. */
GP_INLINE float gp_exp_negative(float x)
{
	const float rounded = x * GP_EXP_LOG2E + GP_EXP_ROUND, n = rounded - GP_EXP_ROUND;
	const float r = (x - n * GP_EXP_LN2_HIGH) - n * GP_EXP_LN2_LOW;
	return gp_float_choose(gp_mask_below(x, GP_EXP_UNDERFLOW), 0.0f, gp_exp_of_parts(rounded, r));
}

#endif
