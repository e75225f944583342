/* SPDX-License-Identifier: Apache-2.0
 *
 * Lloyd's iteration on a histogram whose bins are fine where values crowd: an
 * element's distance from a typical value (the median of a few elements) is
 * binned by the upper bits of its floating-point pattern, 256 bins per octave
 * and sign, 32 octaves. Evenly spaced bins were rejected: one outlier would
 * leave all other elements in one bin. Bins also sum the bits below, which are
 * linear inside a bin, as integers: their means are exact.
 *
 * An iteration costs a binary search per level in the bins' running sums.
 * See lloyd.h. Test: tests/unit/test_codec_kmeans.c
 */
#include "common/codec/stages/lloyd.h"

#include <math.h>
#include <string.h>

#include "common/base/exact_math.h"

enum {
	LOW_BITS = GP_LLOYD_LOW_BITS,
	SIDE = GP_LLOYD_SIDE,
	BINS = GP_LLOYD_BINS,
	TOP_EXPONENT = GP_LLOYD_TOP_EXPONENT,
	FIRST = GP_LLOYD_FIRST,
	ITERATIONS = 50,
	BLOCK = 1024,
	COUNT_SHIFT = LOW_BITS + 24, /* a counter: elements above, sum of their low bits below; room for 2^24 */
	CHUNK = 1 << 24,
};

struct gp_lloyd {
	uint64_t counter[2][BINS]; /* of every other element, so that equal neighbours do not wait; 0 between fits */
	double count[BINS], low[BINS]; /* what the counters of earlier chunks had; 0 between fits */
	/* The bins that are not empty, ascending. */
	int bins;
	double value[BINS];                       /* mean distance, scaled */
	double weight[BINS + 1], total[BINS + 1]; /* elements, and sum of their distances, in the bins before */
	double share[BINS];                       /* of the levels, as they begin */
};

enum gp_status gp_lloyd_new(struct gp_lloyd **out, struct gp_err *err)
{
	void *l;
	GP_TRY(gp_alloc_array(&l, 1, sizeof **out, err));
	*out = l;
	return GP_OK;
}

size_t gp_lloyd_bytes(void)
{
	return sizeof(struct gp_lloyd);
}

void gp_lloyd_free(struct gp_lloyd *l)
{
	gp_free(l);
}

/* A value in the thick of them. */
float gp_lloyd_center(float *drawn, int m)
{
	for (int i = 1; i < m; i++) {
		const float v = drawn[i];
		int at = i;
		for (; at > 0 && drawn[at - 1] > v; at--)
			drawn[at] = drawn[at - 1];
		drawn[at] = v;
	}
	return drawn[m / 2];
}

static float typical_value(const float *x, uint64_t n)
{
	float drawn[GP_LLOYD_SAMPLE];
	const uint32_t m = n < GP_LLOYD_SAMPLE ? (uint32_t)n : GP_LLOYD_SAMPLE;
	for (uint32_t i = 0; i < m; i++)
		drawn[i] = x[gp_lloyd_drawn(n, m, i)];
	return gp_lloyd_center(drawn, (int)m);
}

/* A power of two. */
static float scale_of(float largest)
{
	return ldexpf(1, TOP_EXPONENT - ilogbf(largest) < 127 ? TOP_EXPONENT - ilogbf(largest) : 127);
}

float gp_lloyd_scale(float center, float min, float max)
{
	const float largest = fmaxf(max - center, center - min);
	return largest > 0 ? scale_of(largest) : 1;
}

/* A bin and what its counter grows by, per element. */
static void find_bins(const float *x, int n, float center, float scale, uint32_t *bin, uint32_t *low)
{
	for (int i = 0; i < n; i++) {
		const float distance = (x[i] - center) * scale;
		int32_t u;
		memcpy(&u, &distance, sizeof u);
		const int32_t upper = ((u & INT32_MAX) >> LOW_BITS) - FIRST;
		low[i] = (uint32_t)u & ((1 << LOW_BITS) - 1);
		bin[i] = (uint32_t)(SIDE + ((upper > 0 ? upper : 0) ^ u >> 31));
	}
}

static void count_block(struct gp_lloyd *l, const uint32_t *bin, const uint32_t *low, int n)
{
	const uint64_t one = UINT64_C(1) << COUNT_SHIFT;
	int i = 0;
	for (; i + 2 <= n; i += 2) {
		l->counter[0][bin[i]] += one + low[i];
		l->counter[1][bin[i + 1]] += one + low[i + 1];
	}
	if (i < n)
		l->counter[0][bin[i]] += one + low[i];
}

static void empty_counters(struct gp_lloyd *l)
{
	const uint64_t lows = (UINT64_C(1) << COUNT_SHIFT) - 1;
	for (int b = 0; b < BINS; b++) {
		const uint64_t even = l->counter[0][b], odd = l->counter[1][b];
		l->count[b] += (double)((even >> COUNT_SHIFT) + (odd >> COUNT_SHIFT));
		l->low[b] += (double)((even & lows) + (odd & lows));
		l->counter[0][b] = l->counter[1][b] = 0;
	}
}

static void count_elements(struct gp_lloyd *l, const float *x, uint64_t n, float center, float scale)
{
	uint32_t bin[BLOCK], low[BLOCK];
	for (uint64_t at = 0; at < n; at += BLOCK) {
		const int length = n - at < BLOCK ? (int)(n - at) : BLOCK;
		find_bins(x + at, length, center, scale, bin, low);
		count_block(l, bin, low, length);
		if ((at + BLOCK) % CHUNK == 0)
			empty_counters(l);
	}
	empty_counters(l);
}

/* Mean of what fell into bin b. The innermost bin of a side reaches down to 0 and stands for it. */
static double mean_of(const struct gp_lloyd *l, int b)
{
	const bool negative = b < SIDE;
	const uint32_t upper = (uint32_t)(negative ? SIDE - 1 - b : b - SIDE);
	const uint32_t bits = (upper + FIRST) << LOW_BITS, next = bits + (1 << LOW_BITS);
	float from, to;
	if (upper == 0)
		return 0;
	memcpy(&from, &bits, sizeof from);
	memcpy(&to, &next, sizeof to);
	const double part = l->low[b] / l->count[b] / (1 << LOW_BITS);
	const double mean = (double)from + part * ((double)to - (double)from);
	return negative ? -mean : mean;
}

/* Bins that are not empty to the front, with running sums; the histogram is zero again. */
static void gather_bins(struct gp_lloyd *l)
{
	l->bins = 0;
	for (int b = 0; b < BINS; b++) {
		if (l->count[b] == 0)
			continue;
		const int i = l->bins++;
		l->value[i] = mean_of(l, b);
		l->weight[i + 1] = l->weight[i] + l->count[b];
		l->total[i + 1] = l->total[i] + l->value[i] * l->count[b];
		l->count[b] = 0;
		l->low[b] = 0;
	}
}

/* What bin b adds to the integral of density^(1/3), as wide as to the middle of its neighbours. */
static double share_of(const struct gp_lloyd *l, int b)
{
	const double before = l->value[b > 0 ? b - 1 : b], after = l->value[b + 1 < l->bins ? b + 1 : b];
	const double width = (after - before) / 2;
	return gp_exact_cbrt((l->weight[b + 1] - l->weight[b]) * width * width);
}

/* No bin has more than one level's share: a lonely outlier would have nearly all. Returns their sum. */
static double share_levels(struct gp_lloyd *l, int count)
{
	double sum = 0, most = INFINITY;
	for (int b = 0; b < l->bins; b++)
		l->share[b] = share_of(l, b);
	for (int round = 0; round < 8; round++) {
		sum = 0;
		for (int b = 0; b < l->bins; b++) {
			l->share[b] = fmin(l->share[b], most);
			sum += l->share[b];
		}
		most = sum / count;
	}
	return sum;
}

/* Where a quantizer of many levels has its levels: with density^(1/3) (Panter and Dite, 1951). In different bins, so that
 * no level begins without elements. */
static void place_levels(struct gp_lloyd *l, double *level, int count)
{
	const double sum = share_levels(l, count);
	double reached = 0;
	for (int b = 0, i = 0; b < l->bins && i < count; b++) {
		reached += l->share[b];
		const bool last_chance = l->bins - b == count - i;
		if (last_chance || reached >= sum * (i + 0.5) / count)
			level[i++] = l->value[b];
	}
}

/* First bin at or above v. */
static int first_bin(const struct gp_lloyd *l, double v)
{
	int low = 0, high = l->bins;
	while (low < high) {
		const int middle = (low + high) / 2;
		if (l->value[middle] < v)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Each level to the mean of the bins that are nearest to it; false when none moves. */
static bool move_levels(const struct gp_lloyd *l, double *level, int count)
{
	bool moved = false;
	for (int i = 0, begin = 0; i < count; i++) {
		const int end = i + 1 < count ? first_bin(l, (level[i] + level[i + 1]) / 2) : l->bins;
		const double weight = l->weight[end] - l->weight[begin];
		const double mean = weight > 0 ? (l->total[end] - l->total[begin]) / weight : level[i];
		moved |= fabs(mean - level[i]) > 1e-7 * fabs(mean);
		level[i] = mean;
		begin = end;
	}
	return moved;
}

/* From the histogram to levels. */
static void fit_levels(struct gp_lloyd *l, float center, float scale, float min, float max, float *levels, int count)
{
	double level[256];
	gather_bins(l);
	if (l->bins <= count) {
		for (int i = 0; i < count; i++)
			level[i] = l->value[i < l->bins ? i : l->bins - 1];
	} else {
		place_levels(l, level, count);
		for (int i = 0; i < ITERATIONS && move_levels(l, level, count); i++)
			;
	}
	for (int i = 0; i < count; i++)
		levels[i] = (float)fmin(fmax((double)center + level[i] / (double)scale, (double)min), (double)max);
}

void gp_lloyd_fit(struct gp_lloyd *l, const float *x, uint64_t n, float min, float max, float *levels, int count)
{
	const float center = typical_value(x, n), scale = gp_lloyd_scale(center, min, max);
	count_elements(l, x, n, center, scale);
	fit_levels(l, center, scale, min, max, levels, count);
}

/* Sums of integers, exact in fp64: however they were counted. */
void gp_lloyd_fit_bins(struct gp_lloyd *l, const uint32_t *counts, const uint64_t *lows, float center, float scale,
		       float min, float max, float *levels, int count)
{
	for (int b = 0; b < BINS; b++) {
		l->count[b] = (double)counts[b];
		l->low[b] = (double)lows[b];
	}
	fit_levels(l, center, scale, min, max, levels, count);
}
