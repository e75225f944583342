/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of `block` with a scale for each channel of a map. Formulas and
 * layout: common/CODECS.md, "block". Pointers are device memory; codes as
 * gpk_codec.h says, scales and zero points at any address.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_block.c
 */
#ifndef GP_K_CODEC_CHANNEL_H
#define GP_K_CODEC_CHANNEL_H

#include "kernels/cuda/codec/k_codec_block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of `room`, device memory that an encoder's pass (or, without `encodes`, a decoder's) over `rows` rows of `channels`
 * elements works in; nothing in it outlives the pass. */
uint64_t gpk_channel_room(int64_t rows, int64_t channels, bool encodes);
/* Scales, zero points and codes of x, whose element i is of channel i mod `channels`, and *answer: the unit, and the
 * largest reach of all channels. n = rows * channels < 2^31. */
void gpk_channel_encode(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t rows,
			int64_t channels, const struct gpk_block_draws *draws, const struct gpk_block_body *body,
			void *room, struct gpk_block_answer *answer);
/* *bad becomes 1 where a scale, a zero point or a code is none that an encoder writes; x is then unspecified. */
void gpk_channel_decode(struct gp_rt_stream *s, const struct gp_block_form *form, const struct gpk_block_body *body,
			int64_t rows, int64_t channels, float unit, void *room, float *x, uint32_t *bad);

#ifdef __cplusplus
}
#endif
#endif
