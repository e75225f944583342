/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of `block` with a budget: each block has bits of its own, which the
 * host chooses by the reaches of all. Formulas and layout: common/CODECS.md,
 * "block". Pointers are device memory; scales, zero points and codes at any
 * address, with 32 bytes behind the codes that may be read.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_block.c
 */
#ifndef GP_K_CODEC_BUDGET_H
#define GP_K_CODEC_BUDGET_H

#include "kernels/cuda/codec/k_codec_block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the codes of a block begin, and their bits. */
struct gpk_block_place {
	uint32_t at;    /* bytes from the first code of all to this block's first one */
	uint32_t width; /* bits of a code */
};

/* The reach of each block of x[0..n) to `reach`, which has an element for each block, and the bits of the largest to
 * answer->top, which begins as 0. */
void gpk_budget_measure(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n,
			float *reach, struct gpk_block_answer *answer);
/* Scales, zero points and codes, by form->unit, for blocks of a multiple of eight elements. n < 2^31. */
void gpk_budget_encode(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n,
		       const struct gpk_block_draws *draws, const struct gpk_block_place *places,
		       const struct gpk_block_body *body);
/* *bad becomes 1 where a scale, a zero point or a code is none that an encoder writes; x is then unspecified. */
void gpk_budget_decode(struct gp_rt_stream *s, const struct gp_block_form *form, const struct gpk_block_body *body,
		       const struct gpk_block_place *places, int64_t n, float *x, uint32_t *bad);

#ifdef __cplusplus
}
#endif
#endif
