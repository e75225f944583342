/* SPDX-License-Identifier: Apache-2.0
 *
 * The normalised Walsh-Hadamard transform of blocks, with signs, and back.
 * hadamard_loops_portable.c is the reference; the others give the same bits.
 * Formula: common/CODECS.md, hadamard.
 *
 * A block of 2^levels elements, each product, sum and difference an fp32
 * operation rounded on its own:
 *   for h = 1, 2, 4, ... below 2^levels, for each i without the bit h:
 *     (v[i], v[i + h]) = (v[i] + v[i + h], v[i] - v[i + h])
 *   and then each element times gp_hadamard_factor(levels)
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_codec_hadamard.c
 */
#ifndef GP_HADAMARD_LOOPS_H
#define GP_HADAMARD_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#define GP_HADAMARD_LEVELS 10
#define GP_HADAMARD_MOST   (1 << GP_HADAMARD_LEVELS)

/* Transforms x[0..n) to y, which may be x, by blocks of 2^levels elements, levels 0..GP_HADAMARD_LEVELS; n is a multiple
 * of 2^levels. sign[2^levels]: 0x80000000 for elements of a block that are negated, else 0. Returns the bits of y's
 * largest magnitude: 0x7f800000 and above where some y is not finite, which it is where some x is not. */
typedef uint32_t gp_hadamard_turn(const uint32_t *sign, int levels, const float *x, size_t n, float *y);

struct gp_hadamard_loops {
	gp_hadamard_turn *forward;  /* the signs first, then the transform */
	gp_hadamard_turn *backward; /* the transform, then the signs */
};

extern const struct gp_hadamard_loops gp_hadamard_loops_portable, gp_hadamard_loops_avx2, gp_hadamard_loops_avx512;
const struct gp_hadamard_loops *gp_hadamard_loops_choose(void);

/* 2^(-levels / 2): a power of two, or that times the fp32 number nearest to the square root of 1/2. */
float gp_hadamard_factor(int levels);

#endif
