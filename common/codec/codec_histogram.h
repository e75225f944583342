/* SPDX-License-Identifier: Apache-2.0
 *
 * Order statistics by counting: exact for any finite input, in three passes
 * over the tensor for up to 512 ranks. For codec_select.c, which takes it for
 * many ranks and when its windows miss.
 *
 * Threads: one at a time, as for the codec that uses it (common/codec/codec.h). Test:
 * tests/unit/test_codec_select.c
 */
#ifndef GP_CODEC_HISTOGRAM_H
#define GP_CODEC_HISTOGRAM_H

#include <string.h>

#include "common/base/mem.h"

struct gp_histogram;

/* For up to `ranks` ranks at a time: it takes 5 KiB for each; more work, with two more passes per so many. */
enum gp_status gp_histogram_new(int ranks, struct gp_histogram **out, struct gp_err *err);
size_t gp_histogram_bytes(int ranks); /* what one allocates */
void gp_histogram_free(struct gp_histogram *h);
/* value[i] = the element of x[0..n) with rank[i] in ascending order; rank ascending, rank[i] < n <= 2^32 - 1; x finite, in
 * min..max. */
void gp_histogram_ranks(struct gp_histogram *h, const float *x, uint64_t n, float min, float max, const uint64_t *rank,
			int count, float *value);

/* Unsigned integers in the order of the floats; -0 just below +0. */
static inline uint32_t gp_key_of_float(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
}

/* Back again, with -0 as +0. */
static inline float gp_float_of_key(uint32_t key)
{
	uint32_t u = key & 0x80000000u ? key ^ 0x80000000u : ~key;
	float x;
	memcpy(&x, &u, sizeof x);
	return x + 0.0f;
}

#endif
