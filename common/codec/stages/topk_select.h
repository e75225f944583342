/* SPDX-License-Identifier: Apache-2.0
 *
 * The k-th largest magnitude of a tensor without sorting it: a sample gives two
 * magnitudes that almost surely enclose it, one pass counts what is above them
 * and chooses what is between, and digits of those few are counted. The counts
 * prove the result; when they do not, the digits of all elements are counted.
 * Knows nothing of payloads.
 *
 * Threads: one at a time, as for the codec that uses it (common/codec/codec.h). Test:
 * tests/unit/test_codec_topk.c
 */
#ifndef GP_CODEC_TOPK_SELECT_H
#define GP_CODEC_TOPK_SELECT_H

#include "common/base/mem.h"
#include "kernels/loops/topk_loops.h"

struct gp_topk_select;

/* For tensors of n elements, n >= 1. */
enum gp_status gp_topk_select_new(const struct gp_topk_loops *loops, uint64_t n, struct gp_topk_select **out,
				  struct gp_err *err);
/* What it allocates. */
uint64_t gp_topk_select_bytes(uint64_t n);
/* From here on of n elements, no more than it was made for. */
void gp_topk_select_resize(struct gp_topk_select *s, uint64_t n);
void gp_topk_select_free(struct gp_topk_select *s);
/* Key (topk_loops.h) of the k-th largest magnitude, 1 <= k <= n, and how many of those equal to it belong to the k.
 * False, and no result, when an element is NaN or infinite. */
bool gp_topk_threshold(struct gp_topk_select *s, const float *x, uint64_t k, uint32_t *threshold, uint64_t *ties);
/* How often all elements had to be counted: for tests and tuning. */
uint64_t gp_topk_select_misses(const struct gp_topk_select *s);

#endif
