/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout of arrays, with a sum behind it, whose mask is never stored: element
 * i of a tensor falls by word i % 4 of block i / 4 of its own stream
 * (common/base/rng.h), drawn anew wherever it is needed. No plans, no threads.
 *
 * Only for kernels/cpu. Threads: any; arrays are the caller's. Test: tests/unit/test_layer_norm.c
 */
#ifndef GP_CPU_DROP_H
#define GP_CPU_DROP_H

#include <stdint.h>

#include "kernels/loops/draw_loops.h"

struct gp_drop {
	gp_draw_words *words;
	uint64_t seed, stream, first_block;
	uint32_t threshold; /* a word below it drops its element; 0: none falls */
	float keep;         /* 1 / (1 - p), what the others are multiplied with */
};

/* What falls with probability p of a tensor of so many elements, the draw-th time; p 0: gp_drop_values copies, or adds. */
struct gp_drop gp_drop_of(float p, uint64_t seed, uint64_t stream, uint64_t draw, int64_t elements);

/* out = what dropout makes of x (+ residual, unless that is NULL), elements `first` to first + n - 1 of the tensor. out may
 * be x or residual. */
void gp_drop_values(const struct gp_drop *d, int64_t first, float *out, const float *x, const float *residual,
		    int64_t n);

#endif
