/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of the level quantizers: norms of buckets, stochastic rounding to up to
 * 256 levels, and back. level_loops_portable.c is the reference; the others give
 * the same bits. Draws are the caller's (draw_loops.h). Formulas and layout:
 * common/CODECS.md, "Level quantizers". Test: tests/unit/test_level_loops.c
 *
 * In fp32, each operation rounded on its own (no contraction):
 *   r    = x / norm
 *   c    = the last level with level[c] <= r        l = level[c], u = level[c + 1]
 *   draw = (h + 1/2) * 2^-16                      h: 16 random bits
 *   code = c + 1 where draw * (u - l) < r - l, else c
 * so that E[level[code]] = r, up to 2^-17 of u - l.
 *
 * Threads: any; the functions touch only memory that the caller hands them.
 */
#ifndef GP_LEVEL_LOOPS_H
#define GP_LEVEL_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#define GP_LEVEL_MAX_BITS 8
#define GP_LEVEL_MOST     (1 << GP_LEVEL_MAX_BITS)
#define GP_LEVEL_LANES    16

/* 2^bits levels in ascending order, first -1 and last 1; +infinity where there are fewer. */
struct gp_level_table {
	int bits; /* 1..8 */
	_Alignas(64) float level[GP_LEVEL_MOST];
	/* The same as a search tree: element j has its children at 2j and 2j + 1, the root is at 1. */
	_Alignas(64) float tree[GP_LEVEL_MOST];
};

/* `level` of `count` <= 2^bits numbers. */
void gp_level_table_set(struct gp_level_table *t, int bits, const float *level, int count);

struct gp_level_loops {
	/* Sum of squares in GP_LEVEL_LANES double lanes: lane k takes the elements i with i mod LANES = k, then lanes k and
	 * k + 8 are added, k and k + 4, and so on. Not finite exactly where some x is not. */
	double (*squares)(const float *x, size_t n);
	/* Bits of the largest magnitude; 0x7f800000 and above: some x is not finite. */
	uint32_t (*largest)(const float *x, size_t n);
	/* norm > 0 and |x| <= norm. One draw per element. */
	void (*quantize)(const struct gp_level_table *t, const float *x, size_t n, float norm, const uint16_t *draws,
			 uint16_t *codes);
	/* x = level[code] * norm; codes below 2^bits. */
	void (*dequantize)(const struct gp_level_table *t, const uint16_t *codes, size_t n, float norm, float *x);
};

extern const struct gp_level_loops gp_level_loops_portable, gp_level_loops_avx2, gp_level_loops_avx512;
const struct gp_level_loops *gp_level_loops_choose(void);

#endif
