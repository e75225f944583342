/* SPDX-License-Identifier: Apache-2.0
 *
 * One register of floats: 16 with AVX-512, 8 with AVX2, 4 with NEON of ARM64, by the flags that a file is compiled with.
 * Loops that are written with these functions (gemm_body.h, depthwise_body.h, winograd_body.h, winograd_filter_body.h,
 * bn_rows_body.h) are compiled once for each instruction set: NAME_avx2.c, NAME_avx512.c and NAME_neon.c are a few lines
 * around them. They give the same bits wherever an element of the result does not depend on its neighbours, since every
 * operation here rounds once.
 *
 * A further instruction set needs a header like the three below, with at least 16 registers. Besides the functions, it says
 *   VEC_LANES         how many floats a register has,
 *   VEC_REGISTERS     how many registers there are,
 *   VEC_SCALARS       how many neighbours in memory vec_scalars takes into one register, for use one by one,
 *   VEC_TAKES_MEMORY  whether arithmetic takes an operand from memory for nothing; else loops load once what they use twice.
 *
 * Unlike lanes.h, whose sixteen floats are two registers with AVX2, for loops in which the number of registers decides.
 *
 * Only for kernels/cpu/math.
 *
 * Threads: any; pure functions, or ones that touch only memory that they are given. Test: tests/unit/test_gemm.c,
 * tests/unit/test_depthwise.c, tests/unit/test_winograd.c, tests/unit/test_bn_rows.c
 */
#ifndef GP_CPU_VEC_H
#define GP_CPU_VEC_H

#include <stdint.h>

#include "kernels/loops/simd.h"

#define VEC_LINE 16 /* floats of a cache line */

#if defined(__AVX512F__)
#include "kernels/cpu/math/vec_avx512.h"
#elif defined(__AVX2__)
#include "kernels/cpu/math/vec_avx2.h"
#else
#include "kernels/cpu/math/vec_neon.h"
#endif

/* What gp_finish (finish.h) limits a sum to. */
GP_INLINE gp_vec vec_limit(gp_vec v, gp_vec low, gp_vec high)
{
	return vec_smaller(high, vec_larger(low, v));
}

/* Asks memory for a line that will be read, into the first cache or the second; or written. */
GP_INLINE void vec_soon(const float *at)
{
	__builtin_prefetch(at, 0, 3);
}

GP_INLINE void vec_soon_second(const float *at)
{
	__builtin_prefetch(at, 0, 2);
}

GP_INLINE void vec_soon_written(const float *at)
{
	__builtin_prefetch(at, 1);
}

#endif
