/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection by histogram: the bit pattern of a float, made order-preserving,
 * is counted digit by digit (11, 11, 10 bits from the top); after each pass
 * only the bins that hold a wanted rank are looked at.
 * See codec_histogram.h. Test: tests/unit/test_codec_select.c
 */
#include "common/codec_histogram.h"

enum { BATCH = 32, DIGIT = 11, BINS = 1 << DIGIT, LOW_BINS = 1 << 10 };

struct gp_histogram {
	uint32_t top[BINS];         /* elements per top digit */
	uint8_t slot[BINS];         /* 1 + index of the top digit among those wanted, 0 = not wanted */
	uint8_t slot2[BATCH][BINS]; /* the same for the middle digit below a wanted top digit */
	uint32_t middle[BATCH][BINS];
	uint32_t low[BATCH][LOW_BINS];
};

/* One wanted rank on its way down the digits. */
struct want {
	uint64_t rank; /* within the bin reached so far */
	uint32_t key;  /* digits known so far */
	int slot;
};

enum gp_status gp_histogram_new(struct gp_histogram **out, struct gp_err *err)
{
	void *h;
	GP_TRY(gp_alloc_array(&h, 1, sizeof **out, err));
	*out = h;
	return GP_OK;
}

size_t gp_histogram_bytes(void)
{
	return sizeof(struct gp_histogram);
}

void gp_histogram_free(struct gp_histogram *h)
{
	gp_free(h);
}

/* Moves w->rank into the bin that holds it, which is returned. */
static uint32_t descend(struct want *w, const uint32_t *bins)
{
	uint32_t bin = 0;
	while (w->rank >= bins[bin])
		w->rank -= bins[bin++];
	return bin;
}

static void count_top(struct gp_histogram *h, const float *x, uint64_t n)
{
	memset(h->top, 0, sizeof h->top);
	for (uint64_t i = 0; i < n; i++)
		h->top[gp_key_of_float(x[i]) >> 21]++;
}

static void count_middle(struct gp_histogram *h, const float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t key = gp_key_of_float(x[i]);
		int slot = h->slot[key >> 21];
		if (slot)
			h->middle[slot - 1][key >> 10 & (BINS - 1)]++;
	}
}

static void count_low(struct gp_histogram *h, const float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t key = gp_key_of_float(x[i]);
		int slot = h->slot[key >> 21];
		int slot2 = slot ? h->slot2[slot - 1][key >> 10 & (BINS - 1)] : 0;
		if (slot2)
			h->low[slot2 - 1][key & (LOW_BINS - 1)]++;
	}
}

static void select_batch(struct gp_histogram *h, const float *x, uint64_t n, struct want *w, int count)
{
	int slots = 0, slots2 = 0;
	memset(h->slot, 0, sizeof h->slot);
	for (int i = 0; i < count; i++) {
		uint32_t bin = descend(&w[i], h->top);
		if (!h->slot[bin])
			h->slot[bin] = (uint8_t)++slots;
		w[i].slot = h->slot[bin] - 1;
		w[i].key = bin << 21;
	}
	memset(h->middle, 0, (size_t)slots * sizeof h->middle[0]);
	memset(h->slot2, 0, (size_t)slots * sizeof h->slot2[0]);
	count_middle(h, x, n);
	for (int i = 0; i < count; i++) {
		uint32_t bin = descend(&w[i], h->middle[w[i].slot]);
		uint8_t *slot2 = &h->slot2[w[i].slot][bin];
		if (!*slot2)
			*slot2 = (uint8_t)++slots2;
		w[i].slot = *slot2 - 1;
		w[i].key |= bin << 10;
	}
	memset(h->low, 0, (size_t)slots2 * sizeof h->low[0]);
	count_low(h, x, n);
	for (int i = 0; i < count; i++)
		w[i].key |= descend(&w[i], h->low[w[i].slot]);
}

void gp_histogram_ranks(struct gp_histogram *h, const float *x, uint64_t n, const uint64_t *rank, int count,
			float *value)
{
	struct want w[BATCH];
	if (count)
		count_top(h, x, n);
	for (int at = 0; at < count; at += BATCH) {
		int batch = count - at < BATCH ? count - at : BATCH;
		for (int i = 0; i < batch; i++)
			w[i] = (struct want){.rank = rank[at + i]};
		select_batch(h, x, n, w, batch);
		for (int i = 0; i < batch; i++)
			value[at + i] = gp_float_of_key(w[i].key);
	}
}
