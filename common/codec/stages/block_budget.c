/* SPDX-License-Identifier: Apache-2.0
 *
 * Bits for blocks, by the reverse water-filling of rate-distortion theory: a
 * further bit goes to the blocks whose error it lowers most. See block_budget.h.
 * Test: tests/unit/test_codec_budget.c
 */
#include "common/codec/stages/block_budget.h"

#include <string.h>

enum { STEPS = GP_BUDGET_MOST - GP_BUDGET_LEAST, CLASS_SHIFT = 18 }; /* 32 classes to a power of two */

/* How many classes higher a reach has to be for the step from k + 2 to k + 3 bits to gain as much as the one from 2 to
 * 3: 16 log2(d(0) / d(k)), with d(k) = 1 / L(k + 2)^2 - 1 / L(k + 3)^2, rounded. */
static const int later[2][STEPS] = {{0, 53, 93, 128, 162, 195}, {0, 40, 76, 110, 142, 175}};

uint64_t gp_budget_bits(double budget, uint64_t n)
{
	return n * (uint64_t)(budget * 100 + 0.5) / 100;
}

static uint64_t elements_of(const struct gp_budget_blocks *blocks, uint64_t i)
{
	const uint64_t at = i * blocks->size;
	return blocks->n - at < blocks->size ? blocks->n - at : blocks->size;
}

/* 0 for zero and the smallest subnormals, which get no more than they must. */
static int class_of(float reach)
{
	uint32_t u;
	memcpy(&u, &reach, sizeof u);
	return (int)(u >> CLASS_SHIFT);
}

/* Elements whose block has this class or a higher one. */
static void count_classes(const struct gp_budget_blocks *blocks, const float *reach, uint32_t *histogram)
{
	memset(histogram, 0, GP_BUDGET_RANGES * sizeof *histogram);
	for (uint64_t i = 0; i < blocks->count; i++)
		histogram[class_of(reach[i])] += (uint32_t)elements_of(blocks, i);
	for (int c = GP_BUDGET_RANGES - 1; c > 0; c--)
		histogram[c - 1] += histogram[c];
}

/* Bits above 2 for each element, when a block makes step k where its class is t + later[k] at least. */
static uint64_t bits_at(const uint32_t *histogram, const int *after, int t)
{
	uint64_t bits = 0;
	for (int k = 0; k < STEPS; k++) {
		const int c = t + after[k] > 1 ? t + after[k] : 1;
		bits += c < GP_BUDGET_RANGES ? histogram[c] : 0;
	}
	return bits;
}

/* The least threshold that `bits` are enough for. */
static int threshold(const uint32_t *histogram, const int *after, uint64_t bits)
{
	int low = -after[STEPS - 1], high = GP_BUDGET_RANGES; /* enough for `high`: no block gets any there */
	while (low < high) {
		const int middle = low + (high - low) / 2;
		if (bits_at(histogram, after, middle) <= bits)
			high = middle;
		else
			low = middle + 1;
	}
	return high;
}

static int steps_at(int class, const int *after, int t)
{
	int steps = 0;
	while (class > 0 && steps < STEPS && class >= t + after[steps])
		steps++;
	return steps;
}

void gp_budget_choose(const struct gp_budget_blocks *blocks, const float *reach, bool asym, uint64_t bits,
		      uint32_t histogram[GP_BUDGET_RANGES], uint16_t *width)
{
	const int *after = later[asym];
	count_classes(blocks, reach, histogram);
	uint64_t left = bits - GP_BUDGET_LEAST * blocks->n;
	const int t = threshold(histogram, after, left);
	left -= bits_at(histogram, after, t);
	for (uint64_t i = 0; i < blocks->count; i++) {
		const int class = class_of(reach[i]);
		const int steps = steps_at(class, after, t), more = steps_at(class, after, t - 1) - steps;
		const uint64_t cost = (uint64_t)more * elements_of(blocks, i);
		const bool fits = cost <= left;
		width[i] = (uint16_t)(GP_BUDGET_LEAST + steps + (fits ? more : 0));
		left -= fits ? cost : 0;
	}
}

void gp_budget_groups(const struct gp_budget_blocks *blocks, const uint16_t *width, struct gp_budget_groups *out)
{
	*out = (struct gp_budget_groups){0};
	for (uint64_t i = 0; i < blocks->count; i++)
		out->elements[width[i]] += elements_of(blocks, i);
	for (unsigned w = GP_BUDGET_LEAST; w <= GP_BUDGET_MOST; w++) {
		const uint64_t bits = out->elements[w] * w;
		out->at[w + 1] = out->at[w] + (bits + 7) / 8;
		out->bits += bits;
	}
}
