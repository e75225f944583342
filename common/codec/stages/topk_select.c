/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection by magnitude. See topk_select.h; codec_select.c does the same
 * for values, at many ranks. Test: tests/unit/test_codec_topk.c
 */
#include "common/codec/stages/topk_select.h"

#include <math.h>
#include <string.h>

enum {
	SMALL = 16384, /* up to so many elements are counted outright */
	SAMPLE = 8192,
	BLOCK = 4096,
	TOP_BITS = 11, /* of a key's 31 bits; then twice LOW_BITS */
	LOW_BITS = 10,
	BINS = 1 << TOP_BITS,
};

/* Half a window, in standard deviations of its rank in the sample: about one tensor in 10^5 is missed. */
#define DEVIATIONS 4.5

struct gp_topk_select {
	uint64_t n, misses;
	const struct gp_topk_loops *loops;
	uint32_t *chosen; /* what lies in the window; NULL for small tensors */
	size_t room;
	uint32_t bin[BINS];
	uint32_t key[SMALL], narrowed[SMALL];
};

static size_t room_for(uint64_t n)
{
	return n > SMALL ? n / 16 + BLOCK + GP_TOPK_SLACK : 0; /* twice what a window holds where it holds most */
}

uint64_t gp_topk_select_bytes(uint64_t n)
{
	return sizeof(struct gp_topk_select) + 4 * room_for(n);
}

enum gp_status gp_topk_select_new(const struct gp_topk_loops *loops, uint64_t n, struct gp_topk_select **out,
				  struct gp_err *err)
{
	void *p, *chosen = NULL;
	GP_TRY(gp_alloc_array(&p, 1, sizeof **out, err));
	enum gp_status status = GP_OK;
	if (room_for(n))
		status = gp_alloc_array(&chosen, room_for(n), sizeof(uint32_t), err);
	if (status != GP_OK) {
		gp_free(p);
		return status;
	}
	struct gp_topk_select *s = p;
	s->n = n;
	s->loops = loops;
	s->chosen = chosen;
	s->room = room_for(n);
	*out = s;
	return GP_OK;
}

void gp_topk_select_resize(struct gp_topk_select *s, uint64_t n)
{
	s->n = n;
}

void gp_topk_select_free(struct gp_topk_select *s)
{
	if (s)
		gp_free(s->chosen);
	gp_free(s);
}

uint64_t gp_topk_select_misses(const struct gp_topk_select *s)
{
	return s->misses;
}

static uint32_t key_of(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u & 0x7fffffffu;
}

/* The bin, from the top, that holds *rank, which becomes the rank inside of it. */
static uint32_t descend(const uint32_t *bin, int bits, uint64_t *rank)
{
	uint32_t b = (1u << bits) - 1;
	while (*rank >= bin[b])
		*rank -= bin[b--];
	return b;
}

/* The keys whose digit at `shift` is `digit`, to `out`, which may be `key`. */
static size_t narrow(const uint32_t *key, size_t n, int shift, int bits, uint32_t digit, uint32_t *out)
{
	size_t used = 0;
	for (size_t i = 0; i < n; i++) {
		const uint32_t k = key[i];
		out[used] = k;
		used += (k >> shift & ((1u << bits) - 1)) == digit;
	}
	return used;
}

/* The key with *rank in descending order, *rank < n; *rank becomes how many equal ones come before it. `scratch` has
 * room for n and may be `key`. */
static uint32_t select_key(struct gp_topk_select *s, const uint32_t *key, size_t n, uint64_t *rank, uint32_t *scratch)
{
	static const int bits[3] = {TOP_BITS, LOW_BITS, LOW_BITS};
	int shift = TOP_BITS + 2 * LOW_BITS;
	uint32_t found = 0;
	for (int d = 0; d < 3; d++) {
		shift -= bits[d];
		memset(s->bin, 0, sizeof s->bin);
		for (size_t i = 0; i < n; i++)
			s->bin[key[i] >> shift & ((1u << bits[d]) - 1)]++;
		const uint32_t digit = descend(s->bin, bits[d], rank);
		found |= digit << shift;
		n = narrow(key, n, shift, bits[d], digit, scratch);
		key = scratch;
	}
	return found;
}

static bool select_small(struct gp_topk_select *s, const float *x, uint64_t k, uint32_t *threshold, uint64_t *ties)
{
	uint32_t largest = 0;
	for (uint64_t i = 0; i < s->n; i++) {
		s->key[i] = key_of(x[i]);
		largest = s->key[i] > largest ? s->key[i] : largest;
	}
	if (largest >= GP_KEY_INFINITY)
		return false;
	uint64_t rank = k - 1;
	*threshold = select_key(s, s->key, s->n, &rank, s->key);
	*ties = rank + 1;
	return true;
}

/* The same digits, over the tensor itself. */
static bool select_by_counting(struct gp_topk_select *s, const float *x, uint64_t k, uint32_t *threshold,
			       uint64_t *ties)
{
	static const int bits[3] = {TOP_BITS, LOW_BITS, LOW_BITS};
	int shift = TOP_BITS + 2 * LOW_BITS;
	uint32_t found = 0;
	uint64_t rank = k - 1;
	for (int d = 0; d < 3; d++) {
		const uint32_t known = d ? ~0u << shift : 0;
		shift -= bits[d];
		memset(s->bin, 0, sizeof s->bin);
		for (uint64_t i = 0; i < s->n; i++) {
			const uint32_t key = key_of(x[i]);
			s->bin[key >> shift & ((1u << bits[d]) - 1)] += ((key ^ found) & known) == 0;
		}
		for (uint32_t b = GP_KEY_INFINITY >> shift; d == 0 && b < BINS; b++)
			if (s->bin[b])
				return false;
		found |= descend(s->bin, bits[d], &rank) << shift;
	}
	*threshold = found;
	*ties = rank + 1;
	return true;
}

/* One element out of each of SAMPLE equal stretches, at places that follow no period a tensor could have. */
static void draw_sample(struct gp_topk_select *s, const float *x)
{
	const uint64_t stretch = s->n / SAMPLE;
	for (uint32_t i = 0; i < SAMPLE; i++)
		s->key[i] = key_of(x[i * s->n / SAMPLE + (stretch * (i * 2654435769u) >> 32)]);
}

static struct gp_topk_window place_window(struct gp_topk_select *s, const float *x, uint64_t k)
{
	const double q = (double)k / (double)s->n, spread = DEVIATIONS * sqrt(SAMPLE * q * (1 - q)) + 2;
	const double first = floor(q * SAMPLE - spread), last = ceil(q * SAMPLE + spread);
	struct gp_topk_window w = {.hi = GP_KEY_INFINITY};
	uint64_t rank;
	draw_sample(s, x);
	if (first >= 0) {
		rank = (uint64_t)first;
		w.hi = select_key(s, s->key, SAMPLE, &rank, s->narrowed);
	}
	if (last < SAMPLE) {
		rank = (uint64_t)last;
		w.lo = select_key(s, s->key, SAMPLE, &rank, s->narrowed);
	}
	return w;
}

/* False when the room is used up. */
static bool look_through(struct gp_topk_select *s, const float *x, struct gp_topk_window *w, size_t *chosen)
{
	size_t used = 0;
	for (uint64_t at = 0; at < s->n; at += BLOCK) {
		if (used + BLOCK + GP_TOPK_SLACK > s->room)
			return false;
		used += s->loops->sift(x + at, s->n - at < BLOCK ? s->n - at : BLOCK, w, s->chosen + used);
	}
	*chosen = used;
	return true;
}

/* False when rank k lies outside of the window. */
static bool resolve(struct gp_topk_select *s, const struct gp_topk_window *w, size_t chosen, uint64_t k,
		    uint32_t *threshold, uint64_t *ties)
{
	if (k <= w->above || k > w->from_lo)
		return false;
	if (k <= w->from_hi) {
		*threshold = w->hi;
		*ties = k - w->above;
	} else if (k <= w->from_hi + chosen) {
		uint64_t rank = k - 1 - w->from_hi;
		*threshold = select_key(s, s->chosen, chosen, &rank, s->chosen);
		*ties = rank + 1;
	} else {
		*threshold = w->lo;
		*ties = k - w->from_hi - chosen;
	}
	return true;
}

bool gp_topk_threshold(struct gp_topk_select *s, const float *x, uint64_t k, uint32_t *threshold, uint64_t *ties)
{
	size_t chosen;
	if (s->n <= SMALL)
		return select_small(s, x, k, threshold, ties);
	struct gp_topk_window w = place_window(s, x, k);
	if (look_through(s, x, &w, &chosen)) {
		if (w.largest >= GP_KEY_INFINITY)
			return false;
		if (resolve(s, &w, chosen, k, threshold, ties))
			return true;
	}
	s->misses++;
	return select_by_counting(s, x, k, threshold, ties);
}
