/* SPDX-License-Identifier: Apache-2.0
 *
 * bdi through the public interface: every bit comes back, the sizes of blocks
 * that compress and that do not, payloads that cannot be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/base/rng.h"

static struct gp_codec *new_codec(const char *text, uint64_t n)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c = NULL;
	const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)n}};
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_true(gp_codec_spec_lossless(&spec));
	assert_int_equal(gp_codec_new(&spec, &shape, 0, &c, &err), GP_OK);
	return c;
}

/* Every bit comes back; returns the payload's length. The payload lies in a block of the most that is allowed. */
static size_t check_lossless(const char *text, const uint32_t *bits, uint64_t n)
{
	struct gp_err err = {0};
	size_t len;
	struct gp_codec *c = new_codec(text, n);
	float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
	uint8_t *payload = malloc(gp_codec_bound(c));
	memcpy(x, bits, n * sizeof *x);
	assert_int_equal(gp_codec_encode(c, x, 0, payload, gp_codec_bound(c), &len, &err), GP_OK);
	payload = realloc(payload, len);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_OK);
	assert_memory_equal(y, bits, n * sizeof *y);
	free(payload);
	free(y);
	free(x);
	gp_codec_free(c);
	return len;
}

static const size_t sizes[] = {1, 2, 5, 15, 16, 17, 31, 32, 33, 48, 100, 1000};
enum { SIZES = sizeof sizes / sizeof sizes[0], MOST = 1000 };

/* Deltas of `width` bits above a base; one element in `zeros` is zero, none for 0. */
static void fill(uint32_t *bits, uint64_t n, int width, uint32_t zeros)
{
	for (uint64_t i = 0; i < n; i++) {
		const uint32_t u = gp_rng_u32(1, (uint64_t)width, i);
		const uint32_t delta = width ? u >> (32 - width) : 0;
		bits[i] = width == 32 ? u : 0x3f800000u + delta;
		if (zeros && gp_rng_u32(1, 99, i) % zeros == 0)
			bits[i] = 0;
	}
}

static void every_bit_comes_back(void **state)
{
	(void)state;
	uint32_t bits[MOST];
	for (int s = 0; s < SIZES; s++)
		for (int width = 0; width <= 32; width++)
			for (uint32_t zeros = 0; zeros < 6; zeros++) {
				fill(bits, sizes[s], width, zeros);
				check_lossless("bdi", bits, sizes[s]);
				check_lossless("bdi+zstd", bits, sizes[s]);
			}
}

static void special_values_come_back(void **state)
{
	(void)state;
	static const uint32_t special[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff,
					   0x7f800001, 0x00000001, 0x807fffff, 0x7f7fffff, 0xff7fffff, 0x3f800000};
	uint32_t bits[33];
	for (uint32_t round = 0; round < 2000; round++) {
		for (uint32_t i = 0; i < 33; i++)
			bits[i] = special[gp_rng_u32(2, round, i) % (1 + round % 12)];
		check_lossless("bdi", bits, 33);
	}
}

/* A payload of 160 elements in 10 blocks has 5 bytes of tags, then what the block needs. */
static void blocks_take_what_the_page_says(void **state)
{
	(void)state;
	uint32_t bits[160];
	static const struct {
		int width;
		size_t block;
	} full[] = {{0, 4}, {7, 4 + 16}, {15, 4 + 32}, {23, 4 + 48}, {32, 64}};
	for (size_t i = 0; i < sizeof full / sizeof full[0]; i++) {
		fill(bits, 160, full[i].width, 0);
		assert_int_equal(check_lossless("bdi", bits, 160), 5 + 10 * full[i].block);
	}
	memset(bits, 0, sizeof bits);
	assert_int_equal(check_lossless("bdi", bits, 160), 5);
	bits[20] = 7; /* one alone needs a mask and itself */
	assert_int_equal(check_lossless("bdi", bits, 160), 5 + 2 + 4);
	bits[21] = 8; /* base, and two deltas of a byte */
	assert_int_equal(check_lossless("bdi", bits, 160), 5 + 2 + 4 + 2);
}

static void a_payload_is_little_longer_than_the_tensor(void **state)
{
	(void)state;
	uint32_t bits[MOST];
	for (int s = 0; s < SIZES; s++)
		for (uint32_t zeros = 0; zeros < 40; zeros += 13) {
			fill(bits, sizes[s], 32, zeros);
			assert_true(check_lossless("bdi", bits, sizes[s]) <= 4 * sizes[s] + (sizes[s] + 31) / 32);
		}
}

static enum gp_status decode_copy(uint64_t n, const uint8_t *bytes, size_t len)
{
	struct gp_err err = {0};
	float y[64];
	struct gp_codec *c = new_codec("bdi", n);
	uint8_t *copy = malloc(len ? len : 1);
	memcpy(copy, bytes, len);
	const enum gp_status status = gp_codec_decode(c, (struct gp_span){copy, len}, y, &err);
	free(copy);
	gp_codec_free(c);
	return status;
}

static void payloads_that_cannot_be_are_refused(void **state)
{
	(void)state;
	static const struct {
		uint64_t n;
		uint8_t bytes[12];
		size_t len;
		enum gp_status status;
	} cases[] = {
		{4, {0}, 1, GP_OK},
		{4, {0}, 0, GP_PROTO},
		{4, {0, 0}, 2, GP_PROTO},
		{4, {0x10}, 1, GP_PROTO}, /* a tag without a block */
		{4, {0x01, 1, 2, 3, 4}, 5, GP_OK},
		{4, {0x01, 1, 2, 3}, 4, GP_PROTO},
		{4, {0x06, 1, 2, 3, 4}, 5, GP_PROTO}, /* tags that do not exist */
		{4, {0x08, 1, 0, 3, 4}, 5, GP_PROTO},
		{4, {0x0e, 1, 0, 3, 4}, 5, GP_PROTO},
		{4, {0x0d, 1, 0, 1, 2, 3, 4}, 7, GP_OK},     /* a mask of one, raw */
		{4, {0x0d, 0, 0, 1, 2, 3, 4}, 7, GP_PROTO},  /* of none */
		{4, {0x0d, 16, 0, 1, 2, 3, 4}, 7, GP_PROTO}, /* past the last element */
		{4, {0x09, 15, 0, 1, 2, 3, 4}, 7, GP_PROTO}, /* of all */
		{4, {0x0d, 1, 0, 1, 2, 3}, 6, GP_PROTO},
		{4, {0x0d, 1}, 2, GP_PROTO},
		{2, {0x02, 1, 2, 3, 4, 5, 6}, 7, GP_OK},
		{2, {0x02, 1, 2, 3, 4, 5}, 6, GP_PROTO},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(decode_copy(cases[i].n, cases[i].bytes, cases[i].len), cases[i].status);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_bit_comes_back),
		cmocka_unit_test(special_values_come_back),
		cmocka_unit_test(blocks_take_what_the_page_says),
		cmocka_unit_test(a_payload_is_little_longer_than_the_tensor),
		cmocka_unit_test(payloads_that_cannot_be_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
