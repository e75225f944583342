/* SPDX-License-Identifier: Apache-2.0
 *
 * `budget` of the codec `block`: how many bits each block's codes get, so that
 * all of them together have no more than so many bits per element, and where the
 * codes then lie. Rule and layout: CODECS.md, block. Integers alone, so every
 * machine chooses alike.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_codec_budget.c
 */
#ifndef GP_BLOCK_BUDGET_H
#define GP_BLOCK_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_BUDGET_LEAST  2 /* bits of a code */
#define GP_BUDGET_MOST   8
#define GP_BUDGET_RANGES 8192 /* classes of reaches */

/* The blocks of a tensor of n elements; the last has what is left. */
struct gp_budget_blocks {
	uint64_t n, count;
	size_t size;
};

/* Bits that the codes of n elements may have at most, with so many bits per element: hundredths count. */
uint64_t gp_budget_bits(double budget, uint64_t n);

/* width[count]: from 2 to 8. reach[count]: finite, not negative. `bits` is 2 * n at least. */
void gp_budget_choose(const struct gp_budget_blocks *blocks, const float *reach, bool asym, uint64_t bits,
		      uint32_t histogram[GP_BUDGET_RANGES], uint16_t *width);

/* The codes of all blocks of 2 bits, then those of 3, and so on: where each width begins, and its elements. */
struct gp_budget_groups {
	uint64_t at[GP_BUDGET_MOST + 2]; /* bytes; the last one: behind all */
	uint64_t elements[GP_BUDGET_MOST + 1];
	uint64_t bits; /* of all codes */
};
void gp_budget_groups(const struct gp_budget_blocks *blocks, const uint16_t *width, struct gp_budget_groups *out);

#endif
