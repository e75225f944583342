/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection by windows, after Floyd and Rivest ("Expected time bounds for
 * selection", CACM 1975), many elements per instruction: a small sorted sample
 * gives, for each wanted rank, two values that almost surely enclose it; one
 * pass counts the elements at or below the lower one and chooses those between;
 * the rank is then looked for among the chosen, in the same way, until they are
 * few enough to be sorted. The counts prove that a result is exact; when they
 * do not (a window missed its rank, or too much was chosen), wider windows are
 * tried, and then the histogram answers, as it does for more ranks than windows
 * are good for: for few of them it was measured to be several times slower.
 *
 * Equal values: a value that fills a whole window, or more than one place at
 * its edge, gets a window of its own that is counted but not chosen, so that a
 * tensor with half its elements zero costs no more than another.
 *
 * See codec_select.h. Test: tests/unit/test_codec_select.c
 */
#include "common/codec/codec_select.h"

#include <math.h>

#include "common/codec/codec_histogram.h"

enum {
	SORT_MAX = 16384,   /* up to so many elements are sorted outright */
	SAMPLE_MAX = 16384, /* elements of the largest sample */
	WINDOWS_MAX = 64,
	RANKS_MAX = 30, /* beyond, the histogram is faster */
	BLOCK = 4096,   /* elements that stay in L1 while each window looks at them */
};

struct gp_select {
	uint64_t n, misses;
	const struct gp_codec_loops *loops;
	struct gp_histogram *histogram;
	float *chosen[2]; /* in turn: what one level chooses is what the next looks at */
	size_t room[2];
	struct gp_window window[WINDOWS_MAX]; /* disjoint, ascending; one that does not choose holds a single value */
	int windows;
	double deviations;           /* half a window's width, in standard deviations of its rank */
	float min, max;              /* of the tensor, */
	bool finite;                 /* unless one of its elements is not */
	uint32_t key[2][SAMPLE_MAX]; /* a sample, or the last few elements, being sorted */
};

uint64_t gp_select_bytes(uint64_t n, int ranks)
{
	uint64_t sum = sizeof(struct gp_select) + gp_histogram_bytes(ranks);
	for (int i = 0; i < 2 && n > SORT_MAX; i++)
		sum += 4 * (n / (2u << i) + BLOCK + GP_SIFT_SLACK);
	return sum;
}

enum gp_status gp_select_new(const struct gp_codec_loops *loops, uint64_t n, int ranks, struct gp_select **out,
			     struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof **out, err));
	struct gp_select *s = p;
	s->n = n;
	s->loops = loops;
	enum gp_status status = gp_histogram_new(ranks, &s->histogram, err);
	for (int i = 0; i < 2 && status == GP_OK && n > SORT_MAX; i++) {
		s->room[i] = n / (2u << i) + BLOCK + GP_SIFT_SLACK;
		status = gp_alloc_array(&p, s->room[i], sizeof(float), err);
		if (status == GP_OK)
			s->chosen[i] = p;
	}
	if (status != GP_OK) {
		gp_select_free(s);
		return status;
	}
	*out = s;
	return GP_OK;
}

void gp_select_resize(struct gp_select *s, uint64_t n)
{
	s->n = n;
}

void gp_select_free(struct gp_select *s)
{
	if (!s)
		return;
	gp_histogram_free(s->histogram);
	gp_free(s->chosen[0]);
	gp_free(s->chosen[1]);
	gp_free(s);
}

uint64_t gp_select_misses(const struct gp_select *s)
{
	return s->misses;
}

/* One stable pass of a radix sort over 11 bits from `shift` on. */
static void sort_digit(const uint32_t *from, uint32_t *to, size_t n, int shift)
{
	uint32_t at[2048] = {0}, sum = 0;
	for (size_t i = 0; i < n; i++)
		at[from[i] >> shift & 2047]++;
	for (int d = 0; d < 2048; d++) {
		uint32_t count = at[d];
		at[d] = sum;
		sum += count;
	}
	for (size_t i = 0; i < n; i++)
		to[at[from[i] >> shift & 2047]++] = from[i];
}

/* Sorts key[0][0..n); the result is in key[1]. */
static const uint32_t *sort_keys(struct gp_select *s, size_t n)
{
	sort_digit(s->key[0], s->key[1], n, 0);
	sort_digit(s->key[1], s->key[0], n, 11);
	sort_digit(s->key[0], s->key[1], n, 22);
	return s->key[1];
}

static void select_by_sort(struct gp_select *s, const float *x, size_t n, const uint64_t *rank, int count, float *value)
{
	for (size_t i = 0; i < n; i++)
		s->key[0][i] = gp_key_of_float(x[i]);
	const uint32_t *sorted = sort_keys(s, n);
	for (int i = 0; i < count; i++)
		value[i] = gp_float_of_key(sorted[rank[i]]);
}

/* One element out of each of m equal stretches, at places that follow no period a tensor could have. The last n mod m
 * elements are never drawn: a sample only has to be good, not fair. */
static const uint32_t *sorted_sample(struct gp_select *s, const float *x, uint64_t n, size_t m)
{
	const uint64_t stretch = n / m;
	for (size_t i = 0; i < m; i++, x += stretch)
		s->key[0][i] = gp_key_of_float(x[stretch * ((uint32_t)i * 2654435769u) >> 32]);
	return sort_keys(s, m);
}

/* How much to sample for `wanted` separate ranks out of n: the cost of the sample against the cost of what its windows
 * choose, and enough for the windows to choose less than half. */
static size_t sample_size(uint64_t n, int wanted)
{
	double m = fmax(0.25 * pow((double)wanted * (double)n, 2.0 / 3), 64.0 * wanted * wanted);
	return m < SAMPLE_MAX ? (size_t)m : SAMPLE_MAX;
}

static bool add_window(struct gp_select *s, float lo, float hi, bool choose)
{
	if (s->windows == WINDOWS_MAX)
		return false;
	s->window[s->windows++] = (struct gp_window){.lo = lo, .hi = hi, .choose = choose};
	return true;
}

/* The window of one value, unless the last window is just that. */
static bool add_point(struct gp_select *s, float v)
{
	const struct gp_window *last = s->windows ? &s->window[s->windows - 1] : NULL;
	if (last && !last->choose && last->lo < v && v < last->hi)
		return true;
	return add_window(s, nextafterf(v, -INFINITY), nextafterf(v, INFINITY), false);
}

/* What lies between places a and b of the sample; a = -1 and b = m stand for the ends of the number line. */
static bool add_span(struct gp_select *s, const uint32_t *sorted, int64_t m, int64_t a, int64_t b)
{
	const float lo = a < 0 ? -INFINITY : gp_float_of_key(sorted[a]);
	const float hi = b >= m ? INFINITY : gp_float_of_key(sorted[b]);
	bool fits = true;
	if (a >= 0 && a + 1 < m && gp_float_of_key(sorted[a + 1]) == lo)
		fits = add_point(s, lo);
	if (lo < hi)
		fits = fits && add_window(s, lo, hi, true);
	if (b < m && b >= 1 && gp_float_of_key(sorted[b - 1]) == hi)
		fits = fits && add_point(s, hi);
	return fits;
}

/* Disjoint ascending windows that very likely enclose the ranks. */
static bool place_windows(struct gp_select *s, const uint32_t *sorted, size_t m, uint64_t n, const uint64_t *rank,
			  int count)
{
	int64_t begin = 0, end = -2; /* the span being gathered; none yet */
	s->windows = 0;
	for (int i = 0; i < count; i++) {
		double q = (double)rank[i] / (double)n, spread = s->deviations * sqrt((double)m * q * (1 - q)) + 2;
		int64_t at = (int64_t)(q * (double)m), a = at - (int64_t)spread, b = at + (int64_t)spread;
		a = a < 0 ? -1 : a;
		b = b > (int64_t)m ? (int64_t)m : b;
		if (a <= end) {
			end = b > end ? b : end;
			continue;
		}
		if (end >= 0 && !add_span(s, sorted, (int64_t)m, begin, end))
			return false;
		begin = a;
		end = b;
	}
	return add_span(s, sorted, (int64_t)m, begin, end);
}

/* Takes the next block into min, max and finite. */
static bool widen_range(struct gp_select *s, const float *x, size_t n, bool first)
{
	float min, max;
	s->finite = s->loops->range(x, n, &min, &max);
	if (!s->finite)
		return false;
	s->min = first || min < s->min ? min : s->min;
	s->max = first || max > s->max ? max : s->max;
	return true;
}

/* Counts and chooses by all windows; *chosen gets how many. False when the tensor is not finite, which the first level finds
 * out, or when the room is used up. */
static bool look_through(struct gp_select *s, const float *x, uint64_t n, int level, size_t *chosen)
{
	float *to = s->chosen[level % 2];
	size_t used = 0;
	for (uint64_t at = 0; at < n; at += BLOCK) {
		const size_t length = n - at < BLOCK ? n - at : BLOCK;
		if (level == 0 && !widen_range(s, x + at, length, at == 0))
			return false;
		for (int w = 0; w < s->windows; w += GP_SIFT_WINDOWS) {
			int group = s->windows - w < GP_SIFT_WINDOWS ? s->windows - w : GP_SIFT_WINDOWS;
			if (used + BLOCK + GP_SIFT_SLACK > s->room[level % 2])
				return false;
			used += s->loops->sift(x + at, length, s->window + w, group, to + used);
		}
	}
	*chosen = used;
	return true;
}

/* Values for ranks in windows of one value; *inner gets the other ranks as ranks among the chosen. False on a miss. */
static bool resolve(const struct gp_select *s, const uint64_t *rank, int count, float *value, uint64_t *inner,
		    int *place, int *inners)
{
	*inners = 0;
	for (int i = 0; i < count; i++) {
		const struct gp_window *w = s->window, *end = w + s->windows;
		uint64_t chosen_before = 0;
		for (; w < end && rank[i] >= w->at_or_below + w->inside; w++)
			chosen_before += w->choose ? w->inside : 0;
		if (w == end || rank[i] < w->at_or_below)
			return false;
		if (w->choose) {
			inner[*inners] = chosen_before + rank[i] - w->at_or_below;
			place[(*inners)++] = i;
		} else {
			value[i] = nextafterf(w->lo, INFINITY) + 0.0f;
		}
	}
	return true;
}

/* One level: from x to what its windows choose, and on. */
static bool select_level(struct gp_select *s, const float *x, uint64_t n, int level, const uint64_t *rank, int count,
			 float *value)
{
	uint64_t inner[WINDOWS_MAX];
	float inner_value[WINDOWS_MAX];
	int place[WINDOWS_MAX], inners;
	size_t chosen;
	if (n <= SORT_MAX) {
		select_by_sort(s, x, n, rank, count, value);
		return true;
	}
	const size_t m = sample_size(n, (count + 1) / 2);
	if (!place_windows(s, sorted_sample(s, x, n, m), m, n, rank, count) || !look_through(s, x, n, level, &chosen) ||
	    chosen > n / 2 || !resolve(s, rank, count, value, inner, place, &inners))
		return false;
	if (inners && !select_level(s, s->chosen[level % 2], chosen, level + 1, inner, inners, inner_value))
		return false;
	for (int i = 0; i < inners; i++)
		value[place[i]] = inner_value[i];
	return true;
}

/* A rank in two thousand is missed at the first width, and hardly ever at the second. */
static bool select_by_windows(struct gp_select *s, const float *x, const uint64_t *rank, int count, float *value)
{
	static const double deviations[] = {3.5, 6};
	s->finite = true;
	for (int i = 0; i < 2 && s->finite; i++) {
		s->deviations = deviations[i];
		if (select_level(s, x, s->n, 0, rank, count, value))
			return true;
		s->misses += s->finite;
	}
	return false;
}

bool gp_select_ranks(struct gp_select *s, const float *x, const uint64_t *rank, int count, float *value, float *min,
		     float *max)
{
	const bool large = s->n > SORT_MAX;
	const bool done = large && count && count <= RANKS_MAX && select_by_windows(s, x, rank, count, value);
	if (!done && !s->loops->range(x, s->n, &s->min, &s->max))
		return false;
	if (!done && large)
		gp_histogram_ranks(s->histogram, x, s->n, s->min, s->max, rank, count, value);
	if (!done && !large)
		select_by_sort(s, x, s->n, rank, count, value);
	*min = s->min;
	*max = s->max;
	return true;
}
