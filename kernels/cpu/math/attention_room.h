/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the matrices of attention_body.h lie in their room, and how many
 * random words are drawn at once. Only for kernels/cpu/math.
 *
 * Threads: any; pure functions. Test: tests/unit/test_cpu_attention.c
 */
#ifndef GP_CPU_ATTENTION_ROOM_H
#define GP_CPU_ATTENTION_ROOM_H

#include <stdbool.h>

#include "kernels/cpu/math/attention.h"

#define DRAWN_ROWS  4  /* whose random words are drawn at once */
#define DRAWN_GROUP 16 /* blocks of words that are drawn side by side */

/* Blocks of words for a row of so many columns; for `rows` of them, as whole groups. */
static inline uint64_t gp_attention_blocks(int64_t columns)
{
	return ((uint64_t)columns + 3) / 4;
}

static inline uint64_t gp_attention_whole_blocks(int64_t columns, int64_t rows)
{
	return (gp_attention_blocks(columns) * (uint64_t)rows + DRAWN_GROUP - 1) / DRAWN_GROUP * DRAWN_GROUP;
}

struct attention_room {
	int64_t wide;                    /* ld of matrices of `width` columns */
	int64_t ld;                      /* of those of a column for each position */
	float *keys, *values;            /* keys: (width, tokens) in panels; values: (tokens, wide), backward as keys */
	float *queries, *scores, *block; /* of the rows of a block; `block`: what they give */
	float *dout, *grads;             /* backward alone, as are the next ones; grads: as scores */
	float *key_rows, *dkeys, *dvalues; /* (tokens, wide) */
	uint32_t *words;
	uint64_t floats; /* of all */
};

/* `room` may be NULL to find only how large it has to be. */
void gp_attention_lay_out(struct attention_room *r, int64_t positions, int64_t width, float *room, bool backward);

#endif
