/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2's intrinsics for the loops of this folder: on x86 the compiler's own; on ARM64 what SIMDe makes of them in NEON, with
 * replacements for what BMI2 and POPCNT do and for what SIMDe has no good code for. Every one gives the same bits on both.
 *
 * Threads: any; pure functions of what they are given. Test: tests/unit/test_codec_loops.c and those of the other loops
 */
#ifndef GP_LOOPS_AVX2_H
#define GP_LOOPS_AVX2_H

#include "kernels/loops/inline.h"

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include "kernels/loops/avx2_neon.h"
#endif

#include <stdint.h>

/* A number in all lanes. */
GP_INLINE __m256i word(uint32_t u)
{
	return _mm256_set1_epi32((int)u);
}

#endif
