/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection by histogram: the bit pattern of a float, made order-preserving
 * and counted from the smallest one on, is counted digit by digit: 14 bits from
 * the top, then twice up to 9 in the bins that hold a wanted rank. Elements of
 * other bins are counted as well, in row 0, which nobody reads: a branch around
 * them was measured to cost more. The first digit has four tables, for every
 * fourth element each, so that equal neighbours do not wait for each other.
 * See codec_histogram.h. Test: tests/unit/test_codec_select.c
 */
#include "common/codec/codec_histogram.h"

enum { TABLES = 4, TOP_BITS = 14, TOP_BINS = 1 << TOP_BITS, BINS = 1 << 9, MOST_RANKS = 512 };

struct gp_histogram {
	int ranks; /* at a time */
	uint32_t top[TABLES][TOP_BINS];
	uint16_t row[TOP_BINS];   /* of the next digit's counters, from 1 on; 0: not wanted */
	uint32_t (*middle)[BINS]; /* [1 + ranks] */
	uint32_t (*low)[BINS];
	uint16_t (*low_row)[BINS]; /* the same for the last digit */
};

/* One wanted rank on its way down the digits. */
struct want {
	uint64_t rank; /* within the bin reached so far */
	uint32_t key;  /* digits known so far */
	int row;
};

/* How a float's key is cut into digits. */
struct digits {
	uint32_t base; /* the smallest key */
	int top_shift, middle_shift;
	uint32_t middle_mask, low_mask;
};

static size_t bytes_for(int ranks)
{
	return sizeof(struct gp_histogram) + (size_t)(1 + ranks) * BINS * (2 * sizeof(uint32_t) + sizeof(uint16_t));
}

static int at_a_time(int ranks)
{
	return ranks < 1 ? 1 : ranks < MOST_RANKS ? ranks : MOST_RANKS;
}

enum gp_status gp_histogram_new(int ranks, struct gp_histogram **out, struct gp_err *err)
{
	void *block;
	const int most = at_a_time(ranks);
	GP_TRY(gp_alloc_array(&block, 1, bytes_for(most), err));
	struct gp_histogram *h = block;
	h->ranks = most;
	h->middle = (void *)(h + 1);
	h->low = h->middle + 1 + most;
	h->low_row = (void *)(h->low + 1 + most);
	*out = h;
	return GP_OK;
}

size_t gp_histogram_bytes(int ranks)
{
	return bytes_for(at_a_time(ranks));
}

void gp_histogram_free(struct gp_histogram *h)
{
	gp_free(h);
}

static struct digits digits_of(float min, float max)
{
	struct digits d = {.base = gp_key_of_float(min == 0 ? -0.0f : min)};
	const uint32_t span = gp_key_of_float(max) - d.base;
	const int bits = span ? 32 - __builtin_clz(span) : 0;
	d.top_shift = bits > TOP_BITS ? bits - TOP_BITS : 0;
	d.middle_shift = d.top_shift / 2;
	d.middle_mask = (1u << (d.top_shift - d.middle_shift)) - 1;
	d.low_mask = (1u << d.middle_shift) - 1;
	return d;
}

static inline uint32_t key_of(struct digits d, float x)
{
	return gp_key_of_float(x) - d.base;
}

static void count_top(struct gp_histogram *h, struct digits d, const float *x, uint64_t n)
{
	uint64_t i = 0;
	memset(h->top, 0, sizeof h->top);
	for (; i + TABLES <= n; i += TABLES)
		for (int t = 0; t < TABLES; t++)
			h->top[t][key_of(d, x[i + (uint64_t)t]) >> d.top_shift]++;
	for (; i < n; i++)
		h->top[0][key_of(d, x[i]) >> d.top_shift]++;
	for (int b = 0; b < TOP_BINS; b++)
		h->top[0][b] += h->top[1][b] + h->top[2][b] + h->top[3][b];
}

static void count_middle(struct gp_histogram *h, struct digits d, const float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		const uint32_t key = key_of(d, x[i]);
		h->middle[h->row[key >> d.top_shift]][key >> d.middle_shift & d.middle_mask]++;
	}
}

static void count_low(struct gp_histogram *h, struct digits d, const float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		const uint32_t key = key_of(d, x[i]);
		const uint16_t *row = h->low_row[h->row[key >> d.top_shift]];
		h->low[row[key >> d.middle_shift & d.middle_mask]][key & d.low_mask]++;
	}
}

/* Moves w->rank into the bin that holds it, which is returned. */
static uint32_t descend(struct want *w, const uint32_t *bins)
{
	uint32_t bin = 0;
	while (w->rank >= bins[bin])
		w->rank -= bins[bin++];
	return bin;
}

/* The same with the first digit for all, in one sweep. Returns how many bins they are in. */
static int descend_top(struct gp_histogram *h, struct digits d, struct want *w, int count)
{
	uint64_t before = 0;
	uint32_t bin = 0;
	int rows = 0;
	memset(h->row, 0, sizeof h->row);
	for (int i = 0; i < count; i++) {
		while (w[i].rank - before >= h->top[0][bin])
			before += h->top[0][bin++];
		if (!h->row[bin])
			h->row[bin] = (uint16_t)++rows;
		w[i].rank -= before;
		w[i].row = h->row[bin];
		w[i].key = bin << d.top_shift;
	}
	return rows;
}

static int descend_middle(struct gp_histogram *h, struct digits d, struct want *w, int count)
{
	int rows = 0;
	for (int i = 0; i < count; i++) {
		const uint32_t bin = descend(&w[i], h->middle[w[i].row]);
		uint16_t *row = &h->low_row[w[i].row][bin];
		if (!*row)
			*row = (uint16_t)++rows;
		w[i].row = *row;
		w[i].key |= bin << d.middle_shift;
	}
	return rows;
}

static void select_batch(struct gp_histogram *h, struct digits d, const float *x, uint64_t n, struct want *w, int count)
{
	int rows = descend_top(h, d, w, count);
	memset(h->middle, 0, (size_t)(1 + rows) * sizeof h->middle[0]);
	memset(h->low_row, 0, (size_t)(1 + rows) * sizeof h->low_row[0]);
	count_middle(h, d, x, n);
	rows = descend_middle(h, d, w, count);
	memset(h->low, 0, (size_t)(1 + rows) * sizeof h->low[0]);
	count_low(h, d, x, n);
	for (int i = 0; i < count; i++)
		w[i].key |= descend(&w[i], h->low[w[i].row]);
}

void gp_histogram_ranks(struct gp_histogram *h, const float *x, uint64_t n, float min, float max, const uint64_t *rank,
			int count, float *value)
{
	struct want w[MOST_RANKS];
	const struct digits d = digits_of(min, max);
	if (count)
		count_top(h, d, x, n);
	for (int at = 0; at < count; at += h->ranks) {
		const int batch = count - at < h->ranks ? count - at : h->ranks;
		for (int i = 0; i < batch; i++)
			w[i] = (struct want){.rank = rank[at + i]};
		select_batch(h, d, x, n, w, batch);
		for (int i = 0; i < batch; i++)
			value[at + i] = gp_float_of_key(d.base + w[i].key);
	}
}
