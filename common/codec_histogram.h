/* SPDX-License-Identifier: Apache-2.0
 *
 * Order statistics by counting: exact for any finite input, in three passes
 * over the tensor for up to 32 ranks and two more for each further 32. The way
 * out of codec_select.c when its windows miss. Test: tests/unit/test_codec_select.c
 */
#ifndef GP_CODEC_HISTOGRAM_H
#define GP_CODEC_HISTOGRAM_H

#include <string.h>

#include "common/mem.h"

struct gp_histogram;

enum gp_status gp_histogram_new(struct gp_histogram **out, struct gp_err *err);
size_t gp_histogram_bytes(void); /* what one allocates */
void gp_histogram_free(struct gp_histogram *h);
/* value[i] = the element of x[0..n) with rank[i] in ascending order; x finite, rank[i] < n <= 2^32 - 1. */
void gp_histogram_ranks(struct gp_histogram *h, const float *x, uint64_t n, const uint64_t *rank, int count,
			float *value);

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
