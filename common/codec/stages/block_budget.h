/* SPDX-License-Identifier: Apache-2.0
 *
 * `budget` of the codec `block`: how many bits the codes of each block get, so
 * that on average an element has no more than the budget, and where the codes then
 * lie. Rule and layout: CODECS.md, block. The choice is made with integers alone,
 * so every machine makes the same one.
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
#define GP_BUDGET_RANGES 8192 /* classes of reaches: a reach is not negative, so 13 bits of it count */

/* The `count` blocks of a tensor of n elements: `size` in each, in the last one what is left. */
struct gp_budget_blocks {
	uint64_t n, count;
	size_t size;
};

/* floor(n * budget): bits that the codes of n elements may have together. The budget, in bits per element, is rounded to
 * hundredths. */
uint64_t gp_budget_bits(double budget, uint64_t n);

/* Chooses width[count], the bits of a code in each block, 2 to 8, by reach[count], which are finite and not negative. All
 * codes together get at most `bits`, which is 2 * n or more. `histogram` is room to work in. */
void gp_budget_choose(const struct gp_budget_blocks *blocks, const float *reach, bool asym, uint64_t bits,
		      uint32_t histogram[GP_BUDGET_RANGES], uint16_t *width);

/* The codes of all blocks with 2 bits come first, then those with 3, and so on. By width: where the codes begin, behind the
 * first code of all, and how many they are. */
struct gp_budget_groups {
	uint64_t at[GP_BUDGET_MOST + 2]; /* bytes; the last one: where all of them end */
	uint64_t elements[GP_BUDGET_MOST + 1];
	uint64_t bits; /* of all codes */
};
void gp_budget_groups(const struct gp_budget_blocks *blocks, const uint16_t *width, struct gp_budget_groups *out);

#endif
