/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of channels. See rans_channels.h. Test: tests/unit/test_codec_rans_planes.c
 */
#include "common/codec/stages/rans_channels.h"

#include "common/codec/stages/rans_table.h"

enum {
	SYMBOL_BITS = 8,
	FRACTION = 8,         /* binary digits of a cost */
	TABLE_BITS = 280 * 8, /* of a piece, without the frequencies */
	PIECE_EACH = 4,
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
	const size_t plan = 2 * channels * sizeof(uint16_t), begun = channels;
	return channels * sizeof(uint64_t) + (predicts ? 2 : 1) * (counts_bytes(channels) + plan + begun);
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
	uint8_t *begun = (uint8_t *)at;
	for (int kind = 0; kind < (predicts ? 2 : 1); kind++, begun += channels)
		c->begun[kind] = begun;
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
	for (int kind = 0; kind < GP_RANS_KINDS; kind++) {
		c->counted[kind] = c->pixels[kind] = 0;
		if (c->counts[kind])
			memset(c->counts[kind], 0, counts_bytes(c->channels));
	}
}

/* `step` codes, as many pixels as a symbol has. */
static void count_symbols(struct gp_rans_channels *c, int kind, int width, const uint8_t *row, size_t step)
{
	uint16_t *counts = c->counts[kind];
	for (size_t k = 0; k < c->channels; k++, counts += GP_RANS_SYMBOLS) {
		unsigned symbol = 0;
		for (size_t i = k, bit = 0; i < step; i += c->channels, bit += (size_t)width)
			symbol |= (unsigned)row[i] << bit;
		counts[symbol]++;
	}
	c->counted[kind]++;
}

/* One more pixel of symbols that were begun, or begin here. */
static void count_pixel(struct gp_rans_channels *c, int kind, int width, const uint8_t *pixel)
{
	const size_t bit = c->pixels[kind] * (size_t)width;
	const bool full = ++c->pixels[kind] == SYMBOL_BITS / (size_t)width;
	for (size_t k = 0; k < c->channels; k++) {
		const unsigned symbol = (bit > 0 ? c->begun[kind][k] : 0) | (unsigned)pixel[k] << bit;
		c->begun[kind][k] = (uint8_t)symbol;
		if (full)
			c->counts[kind][k * GP_RANS_SYMBOLS + symbol]++;
	}
	if (full) {
		c->pixels[kind] = 0;
		c->counted[kind]++;
	}
}

void gp_rans_channels_count(struct gp_rans_channels *c, int kind, int width, const uint8_t *row, size_t n)
{
	const size_t step = SYMBOL_BITS / (size_t)width * c->channels;
	size_t at = 0;
	while (at < n && c->pixels[kind] > 0) {
		count_pixel(c, kind, width, row + at);
		at += c->channels;
	}
	for (; n - at >= step; at += step)
		count_symbols(c, kind, width, row + at, step);
	for (; at < n; at += c->channels)
		count_pixel(c, kind, width, row + at);
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

/*
 * The entropy of what was counted, for `ratio` / 256 times as many symbols. The entropy of a sample is too low, by about
 * (seen - 1) / 2 * log2(e) bits (Miller and Madow). A piece is coded with frequencies that are those of a sample, too, one symbol
 * in PIECE_EACH where it is long, and takes as much more than its entropy.
 */
static void weigh(const struct gp_rans_channels *c, struct histogram *h, uint64_t ratio)
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
	h->cost = all > parts ? (all - parts) * ratio >> 8 : 0;
	h->table = (TABLE_BITS + (uint64_t)(last - first + 1) * 8) << FRACTION;
	h->table += (seen * (ratio + (PIECE_EACH << 8)) * LOG2_E / 2) >> 8;
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
		weigh(c, &h, 1 << 8);
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

void gp_rans_channels_plan(struct gp_rans_channels *c, int kind, int width, uint64_t pixels)
{
	struct gp_rans_plan *p = &c->plan[kind];
	struct histogram group = {0};
	const uint64_t symbols = pixels / (uint64_t)(SYMBOL_BITS / width); /* of a channel */
	p->groups = 0;
	if (c->counted[kind] == 0 || symbols == 0) {
		p->cost = UINT64_MAX;
		return;
	}
	const uint64_t ratio = (symbols << 8) / c->counted[kind];
	rank(c, kind);
	p->cost = c->channels * sizeof(uint16_t) * 8 << FRACTION;
	add(&group, counts_of(c, kind, p->order[0]));
	weigh(c, &group, ratio);
	size_t begin = 0;
	for (size_t i = 1; i < c->channels; i++) {
		struct histogram own = {0}, both = group;
		add(&own, counts_of(c, kind, p->order[i]));
		add(&both, counts_of(c, kind, p->order[i]));
		weigh(c, &own, ratio);
		weigh(c, &both, ratio);
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
