/* SPDX-License-Identifier: Apache-2.0
 *
 * Frequencies of symbols. See rans_table.h. Layout: CODECS.md, section rans.
 * Test: tests/unit/test_codec_rans_loops.c
 */
#include "common/codec/stages/rans_table.h"

enum { LISTED_BITS = 8, FRACTION = 8 };

/* --- fit -------------------------------------------------------------------------------------------------------- */

static uint16_t share(uint64_t count, uint64_t total)
{
	return (uint16_t)((count * 2 * GP_RANS_TOTAL + total) / (2 * total));
}

/* The first symbol without a frequency after the first one that has one, so that the table grows by little; else the one
 * before that. -1: all symbols have a frequency. */
static int free_symbol(const struct gp_rans_table *t, int symbols)
{
	int first = 0, s;
	while (t->freq[first] == 0)
		first++;
	for (s = first; s < symbols && t->freq[s] > 0; s++)
		;
	return s < symbols ? s : first - 1;
}

static int largest_share(const struct gp_rans_table *t)
{
	int most = 0;
	for (int s = 0; s < GP_RANS_SYMBOLS; s++)
		most = t->freq[s] > most ? t->freq[s] : most;
	return most;
}

/* Corrects the sum of the rounded frequencies, by one at a time, at the largest ones. The largest is at least 16, so that
 * none becomes 0. */
static void make_whole(struct gp_rans_table *t)
{
	int excess = -GP_RANS_TOTAL;
	for (int s = 0; s < GP_RANS_SYMBOLS; s++)
		excess += t->freq[s];
	while (excess != 0) {
		const int most = largest_share(t), step = excess > 0 ? -1 : 1;
		for (int s = 0; s < GP_RANS_SYMBOLS && excess != 0; s++)
			if (t->freq[s] > most / 2) {
				t->freq[s] = (uint16_t)(t->freq[s] + step);
				excess += step;
			}
	}
}

void gp_rans_table_fit(struct gp_rans_table *t, const uint32_t *counts, uint64_t total, int width)
{
	uint64_t rare = 0;
	memset(t, 0, sizeof *t);
	for (int s = 0; s < 1 << width; s++) {
		t->freq[s] = share(counts[s], total);
		rare += t->freq[s] ? 0 : counts[s];
	}
	const int escape = free_symbol(t, 1 << width);
	t->escapes = escape >= 0;
	if (t->escapes) {
		const uint16_t of_all = share(rare, total);
		t->escape = (uint8_t)escape;
		t->freq[escape] = of_all > 0 ? of_all : 1;
	}
	make_whole(t);
}

/* Each squaring shows one binary digit more. */
unsigned gp_rans_log2(unsigned v)
{
	unsigned whole = 0, digits = 0;
	while (v >> (whole + 1))
		whole++;
	uint64_t m = (uint64_t)v << (31 - whole); /* 31 binary digits behind the point, in [1, 2) */
	for (int i = 0; i < FRACTION; i++) {
		m = m * m >> 31;
		digits = digits << 1 | (unsigned)(m >> 32);
		m >>= m >> 32;
	}
	return whole << FRACTION | digits;
}

uint64_t gp_rans_table_cost(const struct gp_rans_table *t, const uint32_t *counts)
{
	uint64_t cost = 0;
	for (int s = 0; s < GP_RANS_SYMBOLS; s++) {
		if (counts[s] == 0)
			continue;
		const bool listed = t->freq[s] == 0 || (t->escapes && s == t->escape);
		const unsigned freq = t->freq[listed ? t->escape : s];
		cost += (uint64_t)counts[s] *
			((GP_RANS_BITS << FRACTION) - gp_rans_log2(freq) + (listed ? LISTED_BITS << FRACTION : 0));
	}
	return cost;
}

/* --- for the loops ---------------------------------------------------------------------------------------------- */

void gp_rans_table_entries(const struct gp_rans_table *t, uint32_t *entry)
{
	uint32_t start = 0;
	for (int s = 0; s < GP_RANS_SYMBOLS; s++) {
		entry[s] = t->freq[s] | start << GP_RANS_START_AT;
		start += t->freq[s];
	}
	if (!t->escapes)
		return;
	const uint32_t listed = entry[t->escape] | GP_RANS_LISTED;
	for (int s = 0; s < GP_RANS_SYMBOLS; s++)
		if (t->freq[s] == 0 || s == t->escape)
			entry[s] = listed;
}

/* --- bytes ------------------------------------------------------------------------------------------------------ */

size_t gp_rans_table_write(const struct gp_rans_table *t, uint8_t *out)
{
	int first = 0, last = GP_RANS_SYMBOLS - 1;
	while (t->freq[first] == 0)
		first++;
	while (t->freq[last] == 0)
		last--;
	uint8_t *p = out;
	*p++ = (uint8_t)first;
	*p++ = (uint8_t)last;
	*p++ = t->escape;
	*p++ = t->escapes;
	for (int s = first; s <= last; s++)
		if (t->freq[s] < 128) {
			*p++ = (uint8_t)t->freq[s];
		} else {
			*p++ = (uint8_t)(0x80 | t->freq[s] % 128);
			*p++ = (uint8_t)(t->freq[s] / 128);
		}
	return (size_t)(p - out);
}

/* One byte below 128, else two. */
static enum gp_status take_frequency(struct gp_span *in, unsigned *freq, struct gp_err *err)
{
	const size_t bytes = in->len > 0 && in->data[0] >= 128 ? 2 : 1;
	if (in->len < bytes)
		GP_FAIL(err, GP_PROTO, "rans: the payload ends within its frequencies");
	*freq = bytes == 1 ? in->data[0] : in->data[0] % 128u + in->data[1] * 128u;
	*in = (struct gp_span){in->data + bytes, in->len - bytes};
	return GP_OK;
}

static enum gp_status check_escape(const struct gp_rans_table *t, uint8_t flag, struct gp_err *err)
{
	if (flag > 1 || (flag == 0 && t->escape) || (flag && t->freq[t->escape] == 0))
		GP_FAIL(err, GP_PROTO, "rans: %d is not possible as escape, with flag %d", t->escape, flag);
	return GP_OK;
}

enum gp_status gp_rans_table_read(struct gp_rans_table *t, struct gp_span *in, int width, struct gp_err *err)
{
	unsigned sum = 0, freq;
	if (in->len < 4)
		GP_FAIL(err, GP_PROTO, "rans: the payload ends where frequencies should be");
	const uint8_t first = in->data[0], last = in->data[1], flag = in->data[3];
	if (first > last || last >> width)
		GP_FAIL(err, GP_PROTO, "rans: symbols %d to %d of %d bits", first, last, width);
	memset(t, 0, sizeof *t);
	t->escape = in->data[2];
	t->escapes = flag > 0;
	*in = (struct gp_span){in->data + 4, in->len - 4};
	for (int s = first; s <= last; s++) {
		GP_TRY(take_frequency(in, &freq, err));
		sum += freq;
		if (freq > GP_RANS_TOTAL || sum > GP_RANS_TOTAL)
			GP_FAIL(err, GP_PROTO, "rans: frequencies add up to more than %d", GP_RANS_TOTAL);
		t->freq[s] = (uint16_t)freq;
	}
	if (sum != GP_RANS_TOTAL)
		GP_FAIL(err, GP_PROTO, "rans: frequencies add up to %u instead of %d", sum, GP_RANS_TOTAL);
	return check_escape(t, flag, err);
}
