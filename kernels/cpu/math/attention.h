/* SPDX-License-Identifier: Apache-2.0
 *
 * One head of self-attention over one sample, forward and backward, in a room
 * of its own: no plans, no threads. kernels/cpu/ops/cpu_attention.c says who
 * calls it for which heads.
 *
 * Queries are taken GP_ATTENTION_ROWS at a time, with all of their scores, so
 * the room grows with the number of positions and not with its square, and
 * every sum is one chain in the order of the positions: results depend neither
 * on the size of a block nor on the instruction set. Backward computes the
 * weights anew, from the scores' largest and the exponentials' sum that forward
 * keeps for each row, with the same bits. Masks of dropout are drawn in both,
 * four rows at a time, and not stored. See Dao et al., "FlashAttention", 2022.
 *
 * Only for kernels/cpu.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_cpu_attention.c
 */
#ifndef GP_CPU_ATTENTION_H
#define GP_CPU_ATTENTION_H

#include "kernels/loops/draw_loops.h"

#define GP_ATTENTION_ROWS 48 /* a multiple of four, and of the heights of tiles that are as wide as they can be */

/* All heads alike. */
struct gp_attention {
	int64_t positions, width; /* of a sample; of a head */
	int64_t most;             /* positions of the longest sample that there may be: draws are counted over them */
	int64_t stride;           /* floats from one position to the next, in all tensors */
	float scale, keep;        /* 1 / sqrt(width); 1 / (1 - p) */
	uint32_t threshold;       /* a random word below it drops its weight; 0: nothing is drawn */
	uint64_t seed, stream;
	gp_draw_words *draw;
};

/* Addresses of the head's first element in each tensor. Positions from `tokens` on are padding. */
struct gp_attention_head {
	const float *q, *k, *v;
	float *out;
	const float *dout; /* backward, as are the next three, which are NULL where nobody wants them */
	float *dq, *dk, *dv;
	float *sums; /* (positions, 2): a row's largest score, and 1 / sum of exponentials; forward writes them */
	int64_t tokens;
	uint64_t first_block; /* of random words, of the first row: each has (most + 3) / 4 */
	int64_t ahead; /* floats to the head that comes next, which is asked for ahead of time; 0: there is none */
};

/* out is written, zeros for padding. */
typedef void gp_attention_forward(const struct gp_attention *a, const struct gp_attention_head *h, float *room);
/* dq, dk and dv are overwritten (=), zeros for padding; q, k, v, out, dout and sums are read. */
typedef void gp_attention_backward(const struct gp_attention *a, const struct gp_attention_head *h, float *room);

gp_attention_forward gp_attention_forward_portable, gp_attention_forward_avx2, gp_attention_forward_avx512,
	gp_attention_forward_neon;
gp_attention_backward gp_attention_backward_portable, gp_attention_backward_avx2, gp_attention_backward_avx512,
	gp_attention_backward_neon;

/* The best for this processor (gp_isa). */
gp_attention_forward *gp_attention_forward_choose(void);
gp_attention_backward *gp_attention_backward_choose(void);

/* Floats of the room for samples of at most so many positions, which begins at a cache line; a multiple of one. */
uint64_t gp_attention_forward_room(int64_t positions, int64_t width);
uint64_t gp_attention_backward_room(int64_t positions, int64_t width);

#endif
