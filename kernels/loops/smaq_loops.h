/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of `smaq`: moments of a tensor, and numbers of standard deviations to
 * codes of two widths and back. smaq_loops_portable.c is the reference; the
 * others give the same bits. Payload and source: common/CODECS.md.
 * Test: tests/unit/test_smaq_loops.c
 *
 * Arithmetic, in fp32, each operation rounded on its own (no contraction):
 *   z = (x - mean) / divisor
 *   |z| <= 1:  m = min(trunc(|z| * main_scale + h), main_scale)    |z'| = m / main_scale
 *   |z| > 1:   m = min(trunc((|z| - 1) * outlier_scale + h), top)  |z'| = 1 + m / outlier_scale
 *   x' = z' * std + mean
 * With a draw of 16 bits for each element, h = (draw + 1/2) / 2^16, but 1/2 where x is 0, so that zeros stay equal;
 * without draws, h = half.
 * Moments: element i goes to lane i % GP_SMAQ_LANES, in fp64, as x - origin.
 *
 * Threads: any; the functions touch only memory that the caller hands them.
 */
#ifndef GP_SMAQ_LOOPS_H
#define GP_SMAQ_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#define GP_SMAQ_LANES 16
#define GP_SMAQ_SLACK 16 /* codes that may be written behind the last extra */

/* Zeroed before the first call. Not finite in the end: nor is some x. */
struct gp_smaq_sums {
	double sum[GP_SMAQ_LANES], squares[GP_SMAQ_LANES];
};

struct gp_smaq {
	float mean, std;
	float divisor; /* std, or infinity where std is 0 (encode) */
	float main_scale, outlier_scale, top;
	float half;   /* 1/2 where values go to the nearest level, else 0 (encode without draws) */
	int low_bits; /* of m that stay in the code: its width is low_bits + 2 */
};

/* A code is flag << (low_bits + 1) | sign << low_bits | low bits of m, flag 1 for an outlier; an outlier's other bits of m
 * are its extra. */
struct gp_smaq_loops {
	/* n a multiple of GP_SMAQ_LANES but for the last call. */
	void (*add)(const float *x, size_t n, float origin, struct gp_smaq_sums *sums);
	/* x finite; draws: one for each element, or NULL. Returns the number of extras; writes up to
	 * extras[n + GP_SMAQ_SLACK). */
	size_t (*quantize)(const struct gp_smaq *s, const float *x, size_t n, const uint16_t *draws, uint16_t *codes,
			   uint16_t *extras);
	/* Returns the number of extras used; reads up to extras[n + GP_SMAQ_SLACK). */
	size_t (*dequantize)(const struct gp_smaq *s, const uint16_t *codes, size_t n, const uint16_t *extras,
			     float *x);
};

extern const struct gp_smaq_loops gp_smaq_loops_portable, gp_smaq_loops_avx2, gp_smaq_loops_avx512;
/* The best for this processor; obeys GP_SIMD (isa.h). */
const struct gp_smaq_loops *gp_smaq_loops_choose(void);

#endif
