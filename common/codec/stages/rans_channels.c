/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of channels. See rans_channels.h. Test: tests/unit/test_codec_rans_planes.c
 */
#include "common/codec/stages/rans_channels.h"

#include "common/codec/stages/rans_table.h"

enum {
	SYMBOL_BITS = 8,
	FRACTION = 8,          /* binary digits of a cost */
	TABLE_BITS = 280 * 8,  /* of a piece, without the frequencies */
	PIECE_EACH = 4,        /* of so many symbols of a piece one is counted */
	LOG2_E = 369,          /* times 256 */
	FEWEST_SYMBOLS = 2048, /* of a group */
	RANK_CHANNEL_BITS = 16
};

/* --- open ------------------------------------------------------------------------------------------------------- */

static size_t counts_bytes(size_t channels)
{
	return channels * GP_RANS_SYMBOLS * sizeof(uint16_t);
}

size_t gp_rans_channels_bytes(size_t channels, bool predicts)
{
	const size_t plan = 2 * channels * sizeof(uint16_t);
	return channels * sizeof(uint64_t) + (predicts ? 2 : 1) * (counts_bytes(channels) + plan);
}

enum gp_status gp_rans_channels_open(struct gp_rans_channels *c, size_t channels, bool predicts, struct gp_err *err)
{
	*c = (struct gp_rans_channels){.channels = channels};
	c->ranks = gp_alloc_aligned(gp_rans_channels_bytes(channels, predicts));
	if (!c->ranks)
		GP_FAIL(err, GP_NOMEM, "out of memory for rans");
	uint16_t *at = (uint16_t *)(void *)(c->ranks + channels);
	for (int kind = 0; kind < (predicts ? 2 : 1); kind++) {
		c->counts[kind] = at;
		c->plan[kind].order = at + channels * GP_RANS_SYMBOLS;
		c->plan[kind].end = c->plan[kind].order + channels;
		at = c->plan[kind].end + channels;
	}
	for (unsigned i = 0; i < 256; i++)
		c->fraction[i] = (uint8_t)(gp_rans_log2(256 + i) - (8 << FRACTION));
	return GP_OK;
}

void gp_rans_channels_close(struct gp_rans_channels *c)
{
	gp_free_aligned(c->ranks);
}

/* --- count ------------------------------------------------------------------------------------------------------ */

void gp_rans_channels_begin(struct gp_rans_channels *c)
{
	for (int kind = 0; kind < GP_RANS_KINDS; kind++)
		if (c->counts[kind])
			memset(c->counts[kind], 0, counts_bytes(c->channels));
}

void gp_rans_channels_count(struct gp_rans_channels *c, int kind, int width, const uint8_t *row, size_t n)
{
	const size_t joined = SYMBOL_BITS / (size_t)width, step = joined * c->channels;
	for (; n >= step; row += step, n -= step) {
		uint16_t *counts = c->counts[kind];
		for (size_t k = 0; k < c->channels; k++, counts += GP_RANS_SYMBOLS) {
			unsigned symbol = row[k];
			for (size_t i = 1; i < joined; i++)
				symbol |= (unsigned)row[i * c->channels + k] << i * (size_t)width;
			counts[symbol]++;
		}
	}
}

/* --- plan ------------------------------------------------------------------------------------------------------- */

/* log2(v) * 256, v >= 1. */
static uint64_t log2_of(const struct gp_rans_channels *c, uint32_t v)
{
	const int whole = 31 - __builtin_clz(v);
	const uint32_t digits = whole >= FRACTION ? v >> (whole - FRACTION) : v << (FRACTION - whole);
	return (uint64_t)whole << FRACTION | c->fraction[digits & 255];
}

/* Symbols of one channel or of several, and the bits that they and their table take, times 256. */
struct histogram {
	uint32_t count[GP_RANS_SYMBOLS];
	uint64_t cost, table;
};

/* The entropy of what was counted, for `each` times as many symbols. A sample seems to take fewer bits than the whole, whose
 * frequencies are not quite the same: by half of log2(e) for each frequency and symbol of the sample (Miller's and Madow's
 * correction). The frequencies with which a piece is coded are those of a sample, too, and cost it as much. */
static void weigh(const struct gp_rans_channels *c, struct histogram *h, uint64_t each)
{
	uint64_t total = 0, parts = 0, seen = 0;
	int first = 0, last = 0;
	for (int s = 0; s < GP_RANS_SYMBOLS; s++) {
		const uint32_t n = h->count[s];
		if (n == 0)
			continue;
		first = seen++ ? first : s;
		last = s;
		total += n;
		parts += n * log2_of(c, n);
	}
	const uint64_t all = total > 0 ? total * log2_of(c, (uint32_t)total) : 0;
	h->cost = all > parts ? (all - parts) * each : 0;
	h->table = (TABLE_BITS + (uint64_t)(last - first + 1) * 8) << FRACTION;
	h->table += seen * (each + PIECE_EACH) * LOG2_E / 2;
}

static void add(struct histogram *h, const uint16_t *counts)
{
	for (int s = 0; s < GP_RANS_SYMBOLS; s++)
		h->count[s] += counts[s];
}

static const uint16_t *counts_of(const struct gp_rans_channels *c, int kind, size_t channel)
{
	return c->counts[kind] + channel * GP_RANS_SYMBOLS;
}

/* The channels by their bits: each goes to its place among those before it. */
static void rank(struct gp_rans_channels *c, int kind)
{
	for (size_t n = 0; n < c->channels; n++) {
		struct histogram h = {0};
		add(&h, counts_of(c, kind, n));
		weigh(c, &h, 1);
		const uint64_t own = h.cost << RANK_CHANNEL_BITS | n;
		size_t low = 0, high = n;
		while (low < high) {
			const size_t middle = (low + high) / 2;
			if (c->ranks[middle] < own)
				low = middle + 1;
			else
				high = middle;
		}
		memmove(c->ranks + low + 1, c->ranks + low, (n - low) * sizeof *c->ranks);
		c->ranks[low] = own;
	}
	for (size_t i = 0; i < c->channels; i++)
		c->plan[kind].order[i] = (uint16_t)(c->ranks[i] & ((1u << RANK_CHANNEL_BITS) - 1));
}

static void end_group(struct gp_rans_plan *p, size_t planes, const struct histogram *group)
{
	p->end[p->groups++] = (uint16_t)planes;
	p->cost += group->cost + group->table;
}

void gp_rans_channels_plan(struct gp_rans_channels *c, int kind, int width, uint64_t pixels, uint64_t each)
{
	struct gp_rans_plan *p = &c->plan[kind];
	struct histogram group = {0};
	const uint64_t symbols = pixels / (uint64_t)(SYMBOL_BITS / width); /* of a channel */
	rank(c, kind);
	p->groups = 0;
	p->cost = c->channels * sizeof(uint16_t) * 8 << FRACTION;
	add(&group, counts_of(c, kind, p->order[0]));
	weigh(c, &group, each);
	size_t begin = 0;
	for (size_t i = 1; i < c->channels; i++) {
		struct histogram own = {0}, both = group;
		add(&own, counts_of(c, kind, p->order[i]));
		add(&both, counts_of(c, kind, p->order[i]));
		weigh(c, &own, each);
		weigh(c, &both, each);
		const bool short_of =
			(i - begin) * symbols < FEWEST_SYMBOLS || (c->channels - i) * symbols < FEWEST_SYMBOLS;
		if (short_of || both.cost + both.table <= group.cost + group.table + own.cost + own.table) {
			group = both;
			continue;
		}
		end_group(p, i, &group);
		group = own;
		begin = i;
	}
	end_group(p, c->channels, &group);
}
