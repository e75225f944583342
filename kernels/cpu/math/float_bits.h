/* SPDX-License-Identifier: Apache-2.0
 *
 * Bits of single-precision numbers, and choices by them, for vectorised loops.
 *
 * Threads: any; pure functions. Test: tests/unit/test_curves.c
 */
#ifndef GP_CPU_FLOAT_BITS_H
#define GP_CPU_FLOAT_BITS_H

#include <string.h>

#include "kernels/loops/simd.h"

GP_INLINE uint32_t gp_float_bits(float v)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	return bits;
}

GP_INLINE float gp_float_of(uint32_t bits)
{
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* `a` where the mask is all ones, `b` where it is 0. Written out: compilers make branches of conditions. */
GP_INLINE float gp_float_choose(uint32_t mask, float a, float b)
{
	return gp_float_of((gp_float_bits(a) & mask) | (gp_float_bits(b) & ~mask));
}

GP_INLINE uint32_t gp_mask_below(float a, float b)
{
	return a < b ? UINT32_MAX : 0;
}

#endif
