/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes for tables of more partitions than fit into a register: the last one
 * that begins at or below x is looked up by the upper bits of x instead of
 * searched for. Gives what `quantize` of kernels/loops/codec_loops.h gives.
 *
 * Threads: one at a time, as for the codec that uses it (common/codec/codec.h). Test:
 * tests/unit/test_codec_loops.c
 */
#ifndef GP_CODEC_CELLS_H
#define GP_CODEC_CELLS_H

#include "kernels/loops/codec_loops.h"

enum { GP_CELLS_BITS = 14 };

struct gp_cells {
	const struct gp_codec_loops *loops;
	const struct gp_quant_table *table;
	bool direct; /* the loops search: few partitions, or too many in one slot */
	uint32_t base;
	int shift, steps;                           /* most beginnings in one slot */
	float begin[2 + (1 << GP_QUANT_MAX_SPLIT)]; /* different ones, ascending; infinity behind the last */
	uint8_t partition[1 << GP_QUANT_MAX_SPLIT]; /* the last that begins there */
	uint8_t first[1 << GP_CELLS_BITS];          /* by slot: which begin is the last one before it */
};

/* For elements in table->min[0]..max; `n` of them will be coded. Both pointers must live as long as c. */
void gp_cells_init(struct gp_cells *c, const struct gp_codec_loops *loops, const struct gp_quant_table *table,
		   float max, uint64_t n);
/* As loops->quantize(table, ...), n <= GP_QUANT_BLOCK. */
void gp_cells_quantize(const struct gp_cells *c, const float *x, size_t n, uint16_t *codes);

#endif
