/* SPDX-License-Identifier: Apache-2.0
 *
 * Pruning inside a quantizer's payload: the k largest magnitudes stay, a
 * bitmap says which, the rest become 0. `sortquant:prune=` uses it; as a stage
 * of its own, with shorter index forms, that is `topk`. Layout: CODECS.md,
 * sortquant.
 *
 * Threads: one at a time, as for the codec that uses it (common/codec/codec.h). Test:
 * tests/unit/test_codec_sortquant.c
 */
#ifndef GP_CODEC_PRUNE_H
#define GP_CODEC_PRUNE_H

#include "common/base/mem.h"

struct gp_prune;

/* k = ratio * n rounded down, at least 1: as many as the experiments chose. */
uint64_t gp_prune_chosen(double ratio, uint64_t n);
uint64_t gp_prune_bitmap_bytes(uint64_t n);
/* 1 <= k <= n. Without `encodes` it can only join. */
enum gp_status gp_prune_new(uint64_t n, uint64_t k, bool encodes, struct gp_prune **out, struct gp_err *err);
uint64_t gp_prune_bytes(uint64_t n, uint64_t k, bool encodes);
/* From here on of n elements, no more than it was made for. */
void gp_prune_resize(struct gp_prune *p, uint64_t n, uint64_t k);
void gp_prune_free(struct gp_prune *p);
/* Room for the k chosen elements, in order; lives as long as p. */
float *gp_prune_values(struct gp_prune *p);
/* x to bitmap and values; of equal magnitudes the first ones stay. False when an element is not finite. */
bool gp_prune_split(struct gp_prune *p, const float *x, uint8_t *bitmap);
/* GP_PROTO unless the bitmap has exactly k bits, none of them behind the n-th. */
enum gp_status gp_prune_check(const struct gp_prune *p, const uint8_t *bitmap, struct gp_err *err);
/* The values to their places, 0 elsewhere; after gp_prune_check. */
void gp_prune_join(const struct gp_prune *p, const uint8_t *bitmap, float *x);

#endif
