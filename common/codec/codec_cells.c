/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers that order floats (gp_key_of_float), from that of the smallest
 * on, are cut into up to 16384 slots of equal width. A slot knows the last
 * partition that begins before it; few begin inside, which are compared with,
 * where a search gathers from a table of 256 eight times per element.
 * See codec_cells.h. Test: tests/unit/test_codec_loops.c
 */
#include "common/codec/codec_cells.h"

#include <math.h>

#include "common/codec/codec_histogram.h"

enum { STEPS_MAX = 4, WORTH_IT = 4096 };

static uint32_t slot_of(const struct gp_cells *c, float v)
{
	return (gp_key_of_float(v + 0.0f) - c->base) >> c->shift; /* -0 + 0 is +0, which -0 must share a slot with */
}

/* Different beginnings and the partitions they stand for; returns how many. */
static int gather_begins(struct gp_cells *c)
{
	const struct gp_quant_table *t = c->table;
	int count = 0;
	for (int p = 0; p < 1 << t->split; p++) {
		if (count == 0 || t->min[p] > c->begin[count - 1])
			c->begin[count++] = t->min[p];
		c->partition[count - 1] = (uint8_t)p;
	}
	c->begin[count] = INFINITY;
	return count;
}

void gp_cells_init(struct gp_cells *c, const struct gp_codec_loops *loops, const struct gp_quant_table *table,
		   float max, uint64_t n)
{
	c->loops = loops;
	c->table = table;
	c->direct = table->split <= 4 || n < WORTH_IT;
	if (c->direct)
		return;
	const int begins = gather_begins(c);
	c->base = gp_key_of_float(c->begin[0] + 0.0f);
	const uint32_t span = gp_key_of_float(max + 0.0f) - c->base;
	const int bits = span ? 32 - __builtin_clz(span) : 0;
	c->shift = bits > GP_CELLS_BITS ? bits - GP_CELLS_BITS : 0;
	c->steps = 1;
	int at = 0; /* the last beginning before the slot */
	for (uint32_t slot = 0; slot <= span >> c->shift; slot++) {
		int inside = 0;
		c->first[slot] = (uint8_t)at;
		while (at + 1 < begins && slot_of(c, c->begin[at + 1]) == slot) {
			at++;
			inside++;
		}
		c->steps = inside > c->steps ? inside : c->steps;
	}
	c->direct = c->steps > STEPS_MAX;
}

/* Called with a constant `steps`. */
static inline __attribute__((always_inline)) void find_partitions(const struct gp_cells *c, int steps, const float *x,
								  size_t n, uint8_t *partition)
{
	for (size_t i = 0; i < n; i++) {
		unsigned at = c->first[slot_of(c, x[i])];
		for (int s = 0; s < steps; s++)
			at += x[i] >= c->begin[at + 1];
		partition[i] = c->partition[at];
	}
}

void gp_cells_quantize(const struct gp_cells *c, const float *x, size_t n, uint16_t *codes)
{
	uint8_t partition[GP_QUANT_BLOCK];
	if (c->direct) {
		c->loops->quantize(c->table, x, n, codes);
		return;
	}
	if (c->steps == 1)
		find_partitions(c, 1, x, n, partition);
	else if (c->steps == 2)
		find_partitions(c, 2, x, n, partition);
	else
		find_partitions(c, STEPS_MAX, x, n, partition);
	const struct gp_quant_table *t = c->table;
	const int32_t top = (1 << t->bits) - 1;
	for (size_t i = 0; i < n; i++) {
		const unsigned p = partition[i];
		const int32_t level = top ? (int32_t)lrintf((x[i] - t->min[p]) / t->divisor[p]) : 0;
		codes[i] = (uint16_t)(p << t->bits | (unsigned)(level < top ? level : top));
	}
}
