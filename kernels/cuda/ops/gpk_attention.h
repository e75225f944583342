/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of attention have in common (k_attention.cu,
 * k_attention_plain.cu): where a head lies, and what dropout draws. Only for
 * k_*.cu.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_attention.c
 */
#ifndef GPK_ATTENTION_H
#define GPK_ATTENTION_H

#include "kernels/cuda/ops/k_attention.h"
#include "kernels/cuda/runtime/gpk_rng.h"
#include "kernels/cuda/runtime/gpk_rows.h"

#define GPK_ATTENTION_WORDS 4 /* of a block of draws */

struct gpk_head {
	int64_t first_row; /* of its rows among those of all heads: sample, head, position */
	int64_t index;     /* of the head among all */
	int64_t at;        /* of the head's first element */
	int64_t stride;    /* elements from one position to the next */
	int32_t tokens;
};

/* Head `index` % heads of sample `index` / heads. */
GPK_DEVICE struct gpk_head gpk_head_of(const struct gpk_attention &a, int64_t index)
{
	const int64_t sample = index / a.heads, stride = a.heads * a.width;
	const int32_t length = a.length[sample] < 0 ? 0 : a.length[sample];
	return {index * a.positions, index, sample * a.positions * stride + index % a.heads * a.width, stride,
		length < a.positions ? length : (int32_t)a.positions};
}

/* Draws of weights (i, j) to (i, j + 3), j a multiple of 4. `draw`: *a.drop.draw. */
GPK_DEVICE void gpk_attention_draw(const struct gpk_attention &a, const struct gpk_head &h, uint64_t draw, int64_t i,
				   int64_t j, uint32_t (&word)[GPK_ATTENTION_WORDS])
{
	const uint64_t rows = (uint64_t)(a.samples * a.heads * a.most);
	const uint64_t blocks = ((uint64_t)a.most + GPK_ATTENTION_WORDS - 1) / GPK_ATTENTION_WORDS;
	gpk_rng_block(a.drop.seed, a.drop.stream,
		      (draw * rows + (uint64_t)(h.index * a.most + i)) * blocks + (uint64_t)j / GPK_ATTENTION_WORDS,
		      word);
}

#endif
