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
	return GP_RANS_RUNS * sizeof(struct gp_rans_run) + channels * sizeof(uint64_t) +
	       (predicts ? 2 : 1) * (counts_bytes(channels) + plan + begun);
}

enum gp_status gp_rans_channels_open(struct gp_rans_channels *c, size_t channels, bool predicts, struct gp_err *err)
{
	*c = (struct gp_rans_channels){.channels = channels};
	c->run = gp_alloc_aligned(gp_rans_channels_bytes(channels, predicts));
	if (!c->run)
		GP_FAIL(err, GP_NOMEM, "out of memory for rans");
	c->ranks = (uint64_t *)(void *)(c->run + GP_RANS_RUNS);
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
	gp_free_aligned(c->run);
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

/*
 * The entropy of what was counted, for `ratio` / 256 times as many symbols. The entropy of a sample is too low, by about
 * (seen - 1) / 2 * log2(e) bits (Miller and Madow). A piece is coded with frequencies that are those of a sample, too, one symbol
 * in PIECE_EACH where it is long, and takes as much more than its entropy.
 */
static void weigh(const struct gp_rans_channels *c, struct gp_rans_run *h, uint64_t ratio)
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

static void add(struct gp_rans_run *h, const uint16_t *counts)
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
		struct gp_rans_run h = {0};
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

/* --- groups: neighbours in that order become one as long as that takes fewer bits --------------------------------- */

/* Runs of the order that are not taken apart: of FEWEST_SYMBOLS and more, and GP_RANS_RUNS at most. */
static size_t make_runs(struct gp_rans_channels *c, int kind, uint64_t symbols)
{
	const struct gp_rans_plan *p = &c->plan[kind];
	const uint64_t least = c->channels * symbols / GP_RANS_RUNS + 1;
	const uint64_t wanted = least > FEWEST_SYMBOLS ? least : FEWEST_SYMBOLS;
	size_t runs = 0;
	uint64_t left = c->channels * symbols, has = 0;
	memset(&c->run[0], 0, sizeof c->run[0]);
	for (size_t i = 0; i < c->channels; i++) {
		add(&c->run[runs], counts_of(c, kind, p->order[i]));
		c->run[runs].end = i + 1;
		has += symbols;
		left -= symbols;
		if (has >= wanted && left >= FEWEST_SYMBOLS && i + 1 < c->channels && runs + 1 < GP_RANS_RUNS) {
			has = 0;
			memset(&c->run[++runs], 0, sizeof c->run[0]);
		}
	}
	return runs + 1;
}

/* Bits that run k takes more as a part of the one before it, times 256; below 0: fewer. */
static int64_t gain_of(struct gp_rans_channels *c, size_t k, uint64_t ratio)
{
	const struct gp_rans_run *before = &c->run[k - 1], *run = &c->run[k];
	struct gp_rans_run both = *before;
	for (int s = 0; s < GP_RANS_SYMBOLS; s++)
		both.count[s] += run->count[s];
	weigh(c, &both, ratio);
	return (int64_t)(both.cost + both.table) - (int64_t)(before->cost + before->table + run->cost + run->table);
}

static void join(struct gp_rans_channels *c, size_t k, size_t runs, uint64_t ratio)
{
	for (int s = 0; s < GP_RANS_SYMBOLS; s++)
		c->run[k - 1].count[s] += c->run[k].count[s];
	c->run[k - 1].end = c->run[k].end;
	weigh(c, &c->run[k - 1], ratio);
	memmove(&c->run[k], &c->run[k + 1], (runs - k - 1) * sizeof c->run[0]);
}

/* Returns how many runs are left. */
static size_t join_runs(struct gp_rans_channels *c, size_t runs, uint64_t ratio)
{
	for (size_t k = 0; k < runs; k++)
		weigh(c, &c->run[k], ratio);
	for (size_t k = 1; k < runs; k++)
		c->run[k].gain = gain_of(c, k, ratio);
	while (runs > 1) {
		size_t best = 1;
		for (size_t k = 2; k < runs; k++)
			if (c->run[k].gain < c->run[best].gain)
				best = k;
		if (c->run[best].gain > 0)
			break;
		join(c, best, runs--, ratio);
		if (best > 1)
			c->run[best - 1].gain = gain_of(c, best - 1, ratio);
		if (best < runs)
			c->run[best].gain = gain_of(c, best, ratio);
	}
	return runs;
}

void gp_rans_channels_plan(struct gp_rans_channels *c, int kind, int width, uint64_t pixels)
{
	struct gp_rans_plan *p = &c->plan[kind];
	const uint64_t symbols = pixels / (uint64_t)(SYMBOL_BITS / width); /* of a channel */
	p->groups = 0;
	if (c->counted[kind] == 0 || symbols == 0) {
		p->cost = UINT64_MAX;
		return;
	}
	const uint64_t ratio = (symbols << 8) / c->counted[kind];
	rank(c, kind);
	p->groups = join_runs(c, make_runs(c, kind, symbols), ratio);
	p->cost = c->channels * sizeof(uint16_t) * 8 << FRACTION;
	for (size_t k = 0; k < p->groups; k++) {
		p->end[k] = (uint16_t)c->run[k].end;
		p->cost += c->run[k].cost + c->run[k].table;
	}
}
