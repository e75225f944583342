/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact order statistics of a tensor without sorting it: the values at given
 * ranks of the ascending order, with the range on the way. Bounded scratch
 * memory, allocated once. Knows nothing of quantization.
 *
 * Threads: one at a time, as for the codec that uses it (common/codec/codec.h). Test:
 * tests/unit/test_codec_select.c
 */
#ifndef GP_CODEC_SELECT_H
#define GP_CODEC_SELECT_H

#include "common/base/mem.h"
#include "kernels/loops/codec_loops.h"

struct gp_select;

/* For tensors of n elements, and about so many ranks at a time: more take longer. */
enum gp_status gp_select_new(const struct gp_codec_loops *loops, uint64_t n, int ranks, struct gp_select **out,
			     struct gp_err *err);
/* What it allocates. */
uint64_t gp_select_bytes(uint64_t n, int ranks);
/* From here on of n elements, no more than it was made for. */
void gp_select_resize(struct gp_select *s, uint64_t n);
void gp_select_free(struct gp_select *s);
/* value[i] = the element of x[0..n) with rank[i] in ascending order; rank ascending, each below n. False, and no
 * result, when an element is NaN or infinite. -0 counts as +0 and is returned as +0. */
bool gp_select_ranks(struct gp_select *s, const float *x, const uint64_t *rank, int count, float *value, float *min,
		     float *max);
/* How often windows had to be given up for wider ones or for the histogram; for tests and tuning. */
uint64_t gp_select_misses(const struct gp_select *s);

#endif
