/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of rans, read by a decoder that was written from common/CODECS.md, section rans, alone and has nothing in common
 * with the codec's: so an encoder and a decoder that are wrong in the same way are found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"

enum { MOST = 100000, LANES = 64, TOTAL = 4096 };

static const struct gp_codec_pass once; /* of a codec that nobody stops */

static uint32_t u32_at(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Symbol i of `width` bits of a sequence that lies in bytes from the lowest bit on. */
static void put_symbol(uint8_t *out, size_t i, int width, unsigned symbol)
{
	for (int b = 0; b < width; b++) {
		const size_t bit = i * (size_t)width + (size_t)b;
		out[bit / 8] = (uint8_t)((out[bit / 8] & ~(1 << bit % 8)) | (symbol >> b & 1) << bit % 8);
	}
}

/* A piece behind its head. Returns where it ends; *listed_count: symbols that were listed. */
static const uint8_t *read_piece(const uint8_t *p, int width, size_t count, uint8_t *out, size_t *listed_count)
{
	const uint32_t words = u32_at(p), listed = u32_at(p + 4);
	const int first = p[8], last = p[9], escape = p[10], flag = p[11];
	unsigned freq[256] = {0}, start[257] = {0};
	uint32_t x[LANES];
	p += 12;
	for (int s = first; s <= last; s++) {
		freq[s] = *p++;
		if (freq[s] >= 128)
			freq[s] = freq[s] - 128 + *p++ * 128u;
	}
	for (int s = 0; s < 256; s++)
		start[s + 1] = start[s] + freq[s];
	assert_int_equal(start[256], TOTAL);
	for (int i = 0; i < LANES; i++, p += 4)
		x[i] = u32_at(p);
	const uint8_t *word = p, *list = p + 2 * words;
	for (size_t i = 0; i < count; i++) {
		uint32_t *state = &x[i % LANES];
		const uint32_t slot = *state % TOTAL;
		int s = first;
		while (slot >= start[s + 1])
			s++;
		*state = freq[s] * (*state / TOTAL) + slot - start[s];
		if (*state < 1u << 15) {
			*state = *state << 16 | word[0] | (uint32_t)word[1] << 8;
			word += 2;
		}
		put_symbol(out, i, width, flag && s == escape ? *list++ : (unsigned)s);
	}
	assert_ptr_equal(word, p + 2 * words);
	assert_ptr_equal(list, p + 2 * words + listed);
	for (int i = 0; i < LANES; i++)
		assert_int_equal(x[i], 1u << 15);
	*listed_count += listed;
	return list;
}

/* Returns the pieces that were coded. */
static int read_body(const uint8_t *p, size_t len, uint8_t *out, size_t out_len, size_t *listed)
{
	const uint8_t *end = p + len, *out_end = out + out_len;
	int coded = 0;
	while (out < out_end) {
		const uint32_t head = u32_at(p), count = head >> 4;
		const int width = (int)(head & 15);
		p += 4;
		if (width == 0) {
			memcpy(out, p, count);
			p += count;
			out += count;
		} else {
			p = read_piece(p, width, count, out, listed);
			out += count / 8 * (size_t)width;
			coded++;
		}
	}
	assert_ptr_equal(p, end);
	assert_ptr_equal(out, out_end);
	return coded;
}

/* Codes of one width that are mostly small, with a few of all values, between bytes that do not pay. */
static void try_codes(int width, uint64_t count, double scale, bool wants_list)
{
	static const double none[2];
	static uint8_t in[MOST + 64], out[MOST + 64], back[MOST + 64];
	enum { AT = 24 };
	const struct gp_codec_codes codes = {AT, count, width};
	const size_t in_len = AT + (size_t)(count * (uint64_t)width + 7) / 8 + 7;
	const struct gp_codec_setup setup = {
		.shape = {.ndim = 1, .dim = {(int64_t)count}}, .n = in_len, .chunks = 1, .encodes = true};
	struct gp_err err;
	void *rans;
	size_t len, listed = 0;
	assert_true(in_len <= MOST);
	memset(in, 0, sizeof in);
	for (size_t i = 0; i < AT; i++)
		in[i] = in[in_len - 1 - i % 7] = (uint8_t)(gp_rng_u32(7, 1, i) >> 24);
	for (size_t i = 0; i < count; i++) {
		const double v = fabs((double)gp_rng_normal(7, 2, i)) * scale;
		const unsigned rare = gp_rng_u32(7, 3, i);
		const unsigned code = rare % 9001 == 0 ? rare >> 24 : (unsigned)v;
		put_symbol(in + AT, i, width, code < 1u << width ? code : code & ((1u << width) - 1));
	}
	assert_int_equal(gp_codec_rans.open(none, &setup, &rans, &err), GP_OK);
	gp_codec_rans.tell(rans, &codes, 1);
	assert_true(gp_codec_rans.squeeze(rans, &once, (struct gp_span){in, in_len}, out, &len));
	assert_true(len < in_len);
	assert_true(read_body(out, len, back, in_len, &listed) > 0);
	assert_memory_equal(back, in, in_len);
	if (wants_list)
		assert_true(listed > 0);
	gp_codec_rans.close(rans);
}

static void bodies_are_what_the_layout_says(void **state)
{
	(void)state;
	static const struct {
		int width;
		uint64_t count;
		double scale;
		bool listed;
	} cases[] = {{8, 90000, 6, true},    {8, 4000, 9, false},    {8, 1025, 3, false}, {7, 70001, 4, true},
		     {6, 100000, 3, false},  {5, 60000, 2, false},  {4, 90000, 1, false}, {3, 99991, 1, false},
		     {2, 90000, 0.6, false}, {1, 99999, 0.4, false}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		try_codes(cases[i].width, cases[i].count, cases[i].scale, cases[i].listed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(bodies_are_what_the_layout_says)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
