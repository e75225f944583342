/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512's intrinsics for the loops of this folder, and what most of them need: the mask of the last, shorter piece of an
 * array, and a number in all lanes.
 *
 * Only for files that are compiled for AVX-512.
 *
 * Threads: any; pure functions of what they are given. Test: tests/unit/test_codec_loops.c and those of the other loops
 */
#ifndef GP_LOOPS_AVX512_H
#define GP_LOOPS_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/loops/inline.h"

/* Lanes [0, n) of 16; all of them for a larger n. */
GP_INLINE __mmask16 first_lanes(size_t n)
{
	return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

GP_INLINE __m512i word(uint32_t u)
{
	return _mm512_set1_epi32((int)u);
}

#endif
