/* SPDX-License-Identifier: Apache-2.0
 *
 * A codebook for a tensor's values: one-dimensional Lloyd iteration (S. P.
 * Lloyd, "Least squares quantization in PCM", 1957/1982; J. Max, 1960) on a
 * histogram. Knows nothing of payloads: kmeans.c writes them.
 *
 * Threads: one at a time, as for the codec that uses it (common/codec/codec.h). Test:
 * tests/unit/test_codec_kmeans.c
 */
#ifndef GP_CODEC_LLOYD_H
#define GP_CODEC_LLOYD_H

#include "common/base/mem.h"

struct gp_lloyd;

/* Bins of distances from a typical value, scaled: LOW_BITS of a float are summed inside of one, the bits above are its
 * number, from FIRST on; SIDE bins per sign, negative distances below. */
enum {
	GP_LLOYD_LOW_BITS = 15,
	GP_LLOYD_SIDE = 32 << (23 - GP_LLOYD_LOW_BITS), /* 32 octaves */
	GP_LLOYD_BINS = 2 * GP_LLOYD_SIDE,
	GP_LLOYD_TOP_EXPONENT =
		1, /* distances are scaled so that the largest is in 2 .. 4; 2^-149 can only become 2^-22 */
	GP_LLOYD_FIRST = ((127 + GP_LLOYD_TOP_EXPONENT + 1) << (23 - GP_LLOYD_LOW_BITS)) - GP_LLOYD_SIDE,
	GP_LLOYD_SAMPLE = 255, /* elements that the typical value is the median of, at most */
};

enum gp_status gp_lloyd_new(struct gp_lloyd **out, struct gp_err *err);
size_t gp_lloyd_bytes(void); /* what one allocates */
void gp_lloyd_free(struct gp_lloyd *l);
/* Ascending levels[0..count) with a small sum of squared distances from x[0..n) to their nearest level. x is finite, its
 * range min..max does not overflow, 1 <= n < 2^32. Values that differ by less than 2^-24 of the range may count as one;
 * with no more different values than levels each value is a level (up to rounding) and the last is repeated. */
void gp_lloyd_fit(struct gp_lloyd *l, const float *x, uint64_t n, float min, float max, float *levels, int count);

/* The same in pieces, for bins that are counted elsewhere. Where the i-th of m = min(n, GP_LLOYD_SAMPLE) elements lies that
 * say what is typical; their median, of which the m drawn ones are put in order; the factor of distances from it. */
static inline uint64_t gp_lloyd_drawn(uint64_t n, uint32_t m, uint32_t i)
{
	const uint64_t stretch = n / m;
	return i * stretch + (stretch * (i * 2654435769u) >> 32);
}
float gp_lloyd_center(float *drawn, int m);
float gp_lloyd_scale(float center, float min, float max);
/* Elements of each bin, and the sums of their low bits. */
void gp_lloyd_fit_bins(struct gp_lloyd *l, const uint32_t *counts, const uint64_t *lows, float center, float scale,
		       float min, float max, float *levels, int count);

#endif
