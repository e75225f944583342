/* SPDX-License-Identifier: Apache-2.0
 *
 * A codebook for a tensor's values: one-dimensional Lloyd iteration (S. P.
 * Lloyd, "Least squares quantization in PCM", 1957/1982; J. Max, 1960) on a
 * histogram. Knows nothing of payloads: codec_kmeans.c writes them.
 * Test: tests/unit/test_codec_kmeans.c
 */
#ifndef GP_CODEC_LLOYD_H
#define GP_CODEC_LLOYD_H

#include "common/mem.h"

struct gp_lloyd;

enum gp_status gp_lloyd_new(struct gp_lloyd **out, struct gp_err *err);
size_t gp_lloyd_bytes(void); /* what one allocates */
void gp_lloyd_free(struct gp_lloyd *l);
/* Ascending levels[0..count) with a small sum of squared distances from x[0..n) to their nearest level. x is finite, its
 * range min..max does not overflow, 1 <= n < 2^32. Values that differ by less than 2^-24 of the range may count as one;
 * with no more different values than levels each value is a level (up to rounding) and the last is repeated. */
void gp_lloyd_fit(struct gp_lloyd *l, const float *x, uint64_t n, float min, float max, float *levels, int count);

#endif
