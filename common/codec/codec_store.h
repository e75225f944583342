/* SPDX-License-Identifier: Apache-2.0
 *
 * Floats that wait in memory encoded by a codec, and are decoded where they are
 * used: what a training keeps between a forward and its backward, an
 * optimizer's moments. Not on the wire, and no payload of a chain (codec.h):
 * the quantizer alone, on blocks of GP_STORE_BLOCK elements, each with a scale
 * of its own, so that threads share the work and no whole array has to be there
 * decoded.
 *
 * Only codecs that work on single elements and remember nothing: fp16, bf16,
 * fp8, s2fp8, smaq, uniform, and sortquant without prune. Others are refused by
 * name.
 *
 * Where a block is not representable (not finite, or larger than the codec
 * reaches), its values are limited to what is, and NaN becomes 0: whatever was
 * computed from them before is not touched by that, so that a training that
 * diverges shows it in its loss.
 *
 * Layout: block k begins at k * gp_store_block_bytes; 4 bytes length, then what
 * the quantizer wrote. The same values give the same bytes with any number
 * of threads, and on every machine; a GPU's are in kernels/cuda/codec/k_codec_store.h.
 *
 * Threads: a coder is used by one thread at a time; the rest are pure functions.
 * Test: tests/unit/test_codec_store.c
 */
#ifndef GP_CODEC_STORE_H
#define GP_CODEC_STORE_H

#include "common/codec/codec.h"

#define GP_STORE_BLOCK 65536 /* elements */

/* GP_USAGE: the chain is not one of these, or rounds stochastically where `may_draw` is false; the text says what is possible. */
enum gp_status gp_store_check(const struct gp_codec_spec *spec, bool may_draw, struct gp_err *err);

/* Whether what becomes of an element depends on the others of its block. */
bool gp_store_has_scale(const struct gp_codec_spec *spec);

/* Room for `n` elements; of a whole block. */
uint64_t gp_store_bytes(const struct gp_codec_spec *spec, uint64_t n);
uint64_t gp_store_block_bytes(const struct gp_codec_spec *spec);
static inline uint64_t gp_store_blocks(uint64_t n)
{
	return (n + GP_STORE_BLOCK - 1) / GP_STORE_BLOCK;
}

/* To encode, or to decode, an element takes about as long as to compute so many; at least 1. */
uint64_t gp_store_work(const struct gp_codec_spec *spec, bool encodes);

struct gp_store_coder;

/* `spec` has passed gp_store_check. GP_NOMEM. */
enum gp_status gp_store_coder_new(const struct gp_codec_spec *spec, struct gp_store_coder **out, struct gp_err *err);
void gp_store_coder_free(struct gp_store_coder *c);
/* gp_store_block_bytes of its spec. */
uint64_t gp_store_coder_block_bytes(const struct gp_store_coder *c);
/* What one takes. */
uint64_t gp_store_coder_bytes(const struct gp_codec_spec *spec);

/* Block `block` of an array of `n` elements. The second for codecs that may round stochastically: with the draws of
 * `draws`->draw (codec.h) from its `first`, the array's first element, on. */
void gp_store_encode(struct gp_store_coder *c, const float *x, uint64_t n, uint64_t block, uint8_t *store);
void gp_store_encode_drawn(struct gp_store_coder *c, const struct gp_codec_pass *draws, const float *x, uint64_t n,
			   uint64_t block, uint8_t *store);
/* `store` holds what gp_store_encode has written for an array of that size. */
void gp_store_decode(struct gp_store_coder *c, const uint8_t *store, uint64_t n, uint64_t block, float *x);

/* Behind the code of an array of at most one block, up to the end of its room, zeros: so that equal values give equal bytes,
 * whatever lay there. */
void gp_store_clear_rest(const struct gp_store_coder *c, uint64_t n, uint8_t *store);
/* GP_INVALID: what lies there, gp_store_bytes of it, is no code of `n` elements. For bytes from outside. */
enum gp_status gp_store_accept(struct gp_store_coder *c, const uint8_t *store, uint64_t n, struct gp_err *err);

/* Replaces a block by what decoding its code gives. */
void gp_store_round_trip(struct gp_store_coder *c, float *x, uint64_t n, uint64_t block);

#endif
