/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of `block` with a scale for each block of neighbouring elements;
 * k_codec_channel.h has those with one for each channel. Formulas and layout:
 * common/CODECS.md, "block". Pointers are device memory; codes as gpk_codec.h
 * says, scales and zero points at any address.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_block.c
 */
#ifndef GP_K_CODEC_BLOCK_H
#define GP_K_CODEC_BLOCK_H

#include "kernels/cuda/runtime/rt.h"
#include "kernels/loops/block_loops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a payload's fields lie. */
struct gpk_block_body {
	uint8_t *scales, *zeros, *codes;
};

/* What kernels tell each other and the host. */
struct gpk_block_answer {
	float unit;   /* of the scales; form->unit and by_unit are not looked at */
	uint32_t top; /* bits of the largest reach; 0x7f800000 and above: some element or reach is not finite */
};

/* Draws of stochastic rounding: half i mod 8 of Philox block i div 8. */
struct gpk_block_draws {
	uint64_t seed, stream;
};

/* The unit from the largest reach of 64 blocks all over x[0..n), or from what answer->top says; top becomes 0. For e8m0 it
 * is 1. */
void gpk_block_guess(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n,
		     struct gpk_block_answer *answer);
void gpk_block_unit(struct gp_rt_stream *s, const struct gp_block_form *form, struct gpk_block_answer *answer);
/* Scales, zero points and codes by answer->unit, and answer->top. One pass over x where blocks are a power of two and
 * nothing is clipped. n < 2^31. */
void gpk_block_encode(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n,
		      const struct gpk_block_draws *draws, const struct gpk_block_body *body,
		      struct gpk_block_answer *answer);
/* *bad becomes 1 where a scale, a zero point or a code is none that an encoder writes; x is then unspecified. */
void gpk_block_decode(struct gp_rt_stream *s, const struct gp_block_form *form, const struct gpk_block_body *body,
		      int64_t n, float unit, float *x, uint32_t *bad);

#ifdef __cplusplus
}
#endif
#endif
