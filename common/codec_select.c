/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection by histogram: the bit pattern of a float, made order-preserving,
 * is counted digit by digit (11, 11, 10 bits from the top); after each pass
 * only the bins that hold a wanted rank are looked at. Three passes over the
 * tensor for up to BATCH ranks. See codec_select.h. Test: tests/unit/test_codec_select.c
 */
#include "common/codec_select.h"

#include <string.h>

enum { BATCH = 32, DIGIT = 11, BINS = 1 << DIGIT, LOW_BINS = 1 << 10 };

struct gp_select {
	uint64_t n;
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

enum gp_status gp_select_new(uint64_t n, struct gp_select **out, struct gp_err *err)
{
	void *s;
	GP_TRY(gp_alloc_array(&s, 1, sizeof **out, err));
	*out = s;
	(*out)->n = n;
	return GP_OK;
}

void gp_select_free(struct gp_select *s)
{
	gp_free(s);
}

/* Unsigned integers in the order of the floats; -0 just below +0. */
static inline uint32_t key_of(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
}

static float value_of(uint32_t key)
{
	uint32_t u = key & 0x80000000u ? key ^ 0x80000000u : ~key;
	float x;
	memcpy(&x, &u, sizeof x);
	return x + 0.0f;
}

/* Moves w->rank into the bin that holds it, which is returned. */
static uint32_t descend(struct want *w, const uint32_t *bins)
{
	uint32_t bin = 0;
	while (w->rank >= bins[bin])
		w->rank -= bins[bin++];
	return bin;
}

static void count_top(struct gp_select *s, const float *x)
{
	memset(s->top, 0, sizeof s->top);
	for (uint64_t i = 0; i < s->n; i++)
		s->top[key_of(x[i]) >> 21]++;
}

static void count_middle(struct gp_select *s, const float *x)
{
	for (uint64_t i = 0; i < s->n; i++) {
		uint32_t key = key_of(x[i]);
		int slot = s->slot[key >> 21];
		if (slot)
			s->middle[slot - 1][key >> 10 & (BINS - 1)]++;
	}
}

static void count_low(struct gp_select *s, const float *x)
{
	for (uint64_t i = 0; i < s->n; i++) {
		uint32_t key = key_of(x[i]);
		int slot = s->slot[key >> 21];
		int slot2 = slot ? s->slot2[slot - 1][key >> 10 & (BINS - 1)] : 0;
		if (slot2)
			s->low[slot2 - 1][key & (LOW_BINS - 1)]++;
	}
}

static void select_batch(struct gp_select *s, const float *x, struct want *w, int count)
{
	int slots = 0, slots2 = 0;
	memset(s->slot, 0, sizeof s->slot);
	for (int i = 0; i < count; i++) {
		uint32_t bin = descend(&w[i], s->top);
		if (!s->slot[bin])
			s->slot[bin] = (uint8_t)++slots;
		w[i].slot = s->slot[bin] - 1;
		w[i].key = bin << 21;
	}
	memset(s->middle, 0, (size_t)slots * sizeof s->middle[0]);
	memset(s->slot2, 0, (size_t)slots * sizeof s->slot2[0]);
	count_middle(s, x);
	for (int i = 0; i < count; i++) {
		uint32_t bin = descend(&w[i], s->middle[w[i].slot]);
		uint8_t *slot2 = &s->slot2[w[i].slot][bin];
		if (!*slot2)
			*slot2 = (uint8_t)++slots2;
		w[i].slot = *slot2 - 1;
		w[i].key |= bin << 10;
	}
	memset(s->low, 0, (size_t)slots2 * sizeof s->low[0]);
	count_low(s, x);
	for (int i = 0; i < count; i++)
		w[i].key |= descend(&w[i], s->low[w[i].slot]);
}

void gp_select_ranks(struct gp_select *s, const float *x, const uint64_t *rank, int count, float *value)
{
	struct want w[BATCH];
	if (count)
		count_top(s, x);
	for (int at = 0; at < count; at += BATCH) {
		int batch = count - at < BATCH ? count - at : BATCH;
		for (int i = 0; i < batch; i++)
			w[i] = (struct want){.rank = rank[at + i]};
		select_batch(s, x, w, batch);
		for (int i = 0; i < batch; i++)
			value[at + i] = value_of(w[i].key);
	}
}
