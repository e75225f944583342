/* SPDX-License-Identifier: Apache-2.0
 *
 * Entropy coding's loops, which every instruction set's must match whatever the
 * symbols and words, and its tables of frequencies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "common/base/isa.h"
#include "common/base/rng.h"
#include "common/codec/codec_impl.h"
#include "common/codec/stages/rans_table.h"

/* --- loops ------------------------------------------------------------------------------------------------------ */

enum { VERSIONS = 4, SYMBOLS = 64 * 200, LIST = SYMBOLS };

/* All that this processor can run, the portable ones first. */
static int list_loops(const struct gp_rans_loops **out)
{
	int n = 0;
	out[n++] = &gp_rans_loops_portable;
#if defined(__x86_64__)
	if (gp_isa_best() >= GP_ISA_AVX2)
		out[n++] = &gp_rans_loops_avx2;
	if (gp_isa_best() == GP_ISA_AVX512)
		out[n++] = &gp_rans_loops_avx512;
	if (gp_rans_loops_vbmi())
		out[n++] = gp_rans_loops_vbmi();
#else
	if (gp_rans_loops_choose() != out[0])
		out[n++] = gp_rans_loops_choose();
#endif
	return n;
}

/* Between one symbol that has all places and 256 of which many have one. */
static void make_frequencies(uint64_t seed, struct gp_rans_table *t)
{
	const unsigned symbols = seed % 7 == 0 ? 1 : 1 + gp_rng_u32(3, seed, 1) % 255;
	unsigned left = GP_RANS_TOTAL;
	memset(t, 0, sizeof *t);
	for (unsigned i = 0; i < symbols && left > 1; i++) {
		const unsigned s = gp_rng_u32(3, seed, 2 * i + 2) % 256;
		const unsigned most = seed % 3 ? 1 + 8 * (unsigned)GP_RANS_TOTAL / (8 + 8 * symbols) : left - 1;
		const unsigned f = 1 + gp_rng_u32(3, seed, 2 * i + 3) % (most < left ? most : left - 1);
		t->freq[s] = (uint16_t)(t->freq[s] + f);
		left -= f;
	}
	t->escape = (uint8_t)gp_rng_u32(3, seed, 0);
	t->freq[t->escape] = (uint16_t)(t->freq[t->escape] + left);
	t->escapes = seed % 2 == 0 || seed % 7 == 0;
	for (int s = 0; !t->escapes && s < 256; s++) /* nothing is listed: all symbols need a share */
		t->freq[s] = 16;
}

struct coded {
	uint32_t x[GP_RANS_LANES];
	size_t words, listed;
	uint8_t word[2 * SYMBOLS], list[LIST];
	bool done;
};

static void encode_with(const struct gp_rans_loops *loops, const struct gp_rans_table *t, const uint8_t *symbols,
			size_t room, struct coded *c)
{
	uint32_t entry[GP_RANS_SYMBOLS];
	struct gp_rans_sink sink = {.words = c->word + sizeof c->word, .listed = c->list + LIST};
	sink.listed_begin = sink.listed - room;
	for (int i = 0; i < GP_RANS_LANES; i++)
		sink.x[i] = GP_RANS_LOW + (uint32_t)i;
	gp_rans_table_entries(t, entry);
	c->done = loops->encode(entry, symbols, SYMBOLS / GP_RANS_LANES, &sink);
	c->words = (size_t)(c->word + sizeof c->word - sink.words);
	c->listed = (size_t)(c->list + LIST - sink.listed);
	memcpy(c->x, sink.x, sizeof c->x);
}

static void compare_encoded(const struct coded *a, const struct coded *b)
{
	assert_int_equal(a->done, b->done);
	if (!a->done)
		return;
	assert_memory_equal(a->x, b->x, sizeof a->x);
	assert_int_equal(a->words, b->words);
	assert_int_equal(a->listed, b->listed);
	assert_memory_equal(a->word + sizeof a->word - a->words, b->word + sizeof b->word - b->words, a->words);
	assert_memory_equal(a->list + LIST - a->listed, b->list + LIST - b->listed, a->listed);
}

static void loops_encode_alike_whatever_the_frequencies(void **state)
{
	(void)state;
	const struct gp_rans_loops *loops[VERSIONS] = {NULL};
	static struct coded first, other;
	static uint8_t symbols[SYMBOLS];
	const int n = list_loops(loops);
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct gp_rans_table t;
		make_frequencies(seed, &t);
		const unsigned of = 1u << gp_rng_u32(3, seed, 999) % 9;
		for (size_t i = 0; i < SYMBOLS; i++)
			symbols[i] = (uint8_t)(gp_rng_u32(4, seed, i) % of * 37 + seed);
		const size_t room = seed % 5 ? LIST : 1000;
		encode_with(loops[0], &t, symbols, room, &first);
		for (int k = 1; k < n; k++) {
			encode_with(loops[k], &t, symbols, room, &other);
			compare_encoded(&first, &other);
		}
	}
}

struct decoded {
	uint32_t x[GP_RANS_LANES];
	size_t groups, used;
	uint8_t symbols[SYMBOLS + GP_RANS_LANES];
};

/* Also the last, 17, by the loop for some. */
static void decode_with(const struct gp_rans_loops *loops, const struct gp_rans_table *t, uint64_t seed,
			const uint8_t *words, struct decoded *d)
{
	static union gp_rans_lookup lookup;
	const uint8_t *at = words;
	memset(d, 0, sizeof *d);
	for (int i = 0; i < GP_RANS_LANES; i++)
		d->x[i] = GP_RANS_LOW + gp_rng_u32(6, seed, (uint64_t)i) % (GP_RANS_HIGH - GP_RANS_LOW);
	loops->prepare(t->freq, &lookup);
	d->groups = loops->decode(&lookup, d->x, &at, words + SYMBOLS, SYMBOLS / GP_RANS_LANES, d->symbols);
	loops->decode_some(&lookup, d->x, &at, 17, d->symbols + d->groups * GP_RANS_LANES);
	d->used = (size_t)(at - words);
}

static void loops_decode_alike_whatever_the_words(void **state)
{
	(void)state;
	const struct gp_rans_loops *loops[VERSIONS] = {NULL};
	static struct decoded first, other;
	static uint8_t words[SYMBOLS + 2 * GP_RANS_GROUP_BYTES];
	const int n = list_loops(loops);
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct gp_rans_table t;
		make_frequencies(seed, &t);
		for (size_t i = 0; i < sizeof words; i++)
			words[i] = (uint8_t)gp_rng_u32(5, seed, i);
		decode_with(loops[0], &t, seed, words, &first);
		for (int k = 1; k < n; k++) {
			decode_with(loops[k], &t, seed, words, &other);
			assert_memory_equal(&first, &other, sizeof first);
		}
	}
}

/* With lists that are long enough, that end with the last symbol, and that are one too short. */
static void loops_fill_alike(void **state)
{
	(void)state;
	enum { N = 3000 };
	const struct gp_rans_loops *loops[VERSIONS] = {NULL};
	static uint8_t symbols[N], filled[2][N], list[N];
	const int n = list_loops(loops);
	for (uint64_t seed = 0; seed < 60; seed++) {
		size_t escapes = 0;
		for (size_t i = 0; i < N; i++) {
			list[i] = (uint8_t)gp_rng_u32(7, seed, i);
			symbols[i] = (uint8_t)(gp_rng_u32(8, seed, i) % (1u << seed % 8) ? 7 : 3);
			escapes += symbols[i] == 3;
		}
		for (size_t have = escapes > 0 ? escapes - 1 : 0; have <= escapes + 70 && have <= N;
		     have += 1 + have % 50)
			for (int k = 0; k < n; k++) {
				uint8_t *exact = malloc(have + 1), *out = filled[k > 0];
				memcpy(exact, list, have);
				memcpy(out, symbols, N);
				const uint8_t *at = exact;
				const bool done = loops[k]->fill(out, N, 3, &at, exact + have);
				assert_int_equal(done, have >= escapes);
				assert_true(!done || (size_t)(at - exact) == escapes);
				assert_true(!done || memcmp(out, filled[0], N) == 0);
				free(exact);
			}
	}
}
/* --- tables ----------------------------------------------------------------------------------------------------- */

static void check_table(const uint32_t *counts, uint64_t total, int width)
{
	struct gp_rans_table t, back;
	struct gp_err err;
	uint8_t bytes[GP_RANS_TABLE_BYTES];
	unsigned sum = 0;
	gp_rans_table_fit(&t, counts, total, width);
	for (int s = 0; s < 1 << width; s++) {
		sum += t.freq[s];
		assert_true(t.freq[s] > 0 || t.escapes);
	}
	assert_int_equal(sum, GP_RANS_TOTAL);
	const size_t len = gp_rans_table_write(&t, bytes);
	struct gp_span in = {bytes, len};
	assert_int_equal(gp_rans_table_read(&back, &in, width, &err), GP_OK);
	assert_int_equal(in.len, 0);
	assert_memory_equal(back.freq, t.freq, sizeof t.freq);
	assert_true(back.escapes == t.escapes && back.escape == t.escape);
	for (size_t cut = 0; cut < len; cut++) {
		in = (struct gp_span){bytes, cut};
		assert_int_equal(gp_rans_table_read(&back, &in, width, &err), GP_PROTO);
	}
}

static void tables_add_up_and_come_back(void **state)
{
	(void)state;
	for (int width = 1; width <= 8; width++)
		for (uint64_t seed = 0; seed < 200; seed++) {
			uint32_t counts[256] = {0};
			uint64_t total = 0;
			for (uint64_t s = 0; s < UINT64_C(1) << width; s++) {
				counts[s] = gp_rng_u32(9, seed, s) >> (gp_rng_u32(9, seed, 300 + s) % (seed % 25 + 8));
				counts[s] = seed % 3 == 0 && s % 5 ? 0 : counts[s] / 256;
				total += counts[s];
			}
			counts[0] += total == 0;
			check_table(counts, total + (total == 0), width);
		}
	for (int s = 0; s < 256; s++) {
		uint32_t counts[256] = {0};
		counts[s] = 5000;
		check_table(counts, 5000, 8);
	}
}

static void tables_that_cannot_be_are_refused(void **state)
{
	(void)state;
	static const uint8_t bad[][12] = {
		{2, 1, 0, 0, 0x80, 32},             /* last before first */
		{0, 64, 0, 0, 0x80, 32},            /* not of 6 bits */
		{0, 1, 0, 0, 0x80, 16, 0x80, 15},   /* adds up to less */
		{0, 1, 0, 0, 0x80, 16, 0x80, 17},   /* to more */
		{0, 1, 0, 0, 0x80, 255, 0x80, 255}, /* to far more */
		{0, 1, 0, 2, 0x80, 16, 0x80, 16},   /* unknown flag */
		{0, 1, 1, 0, 0x80, 16, 0x80, 16},   /* an escape without the flag */
		{0, 1, 2, 1, 0x80, 16, 0x80, 16},   /* an escape without a share */
	};
	struct gp_rans_table t;
	struct gp_err err;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct gp_span in = {bad[i], sizeof bad[i]};
		assert_int_equal(gp_rans_table_read(&t, &in, 6, &err), GP_PROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loops_encode_alike_whatever_the_frequencies),
		cmocka_unit_test(loops_decode_alike_whatever_the_words),
		cmocka_unit_test(loops_fill_alike),
		cmocka_unit_test(tables_add_up_and_come_back),
		cmocka_unit_test(tables_that_cannot_be_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
