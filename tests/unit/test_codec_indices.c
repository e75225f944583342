/* SPDX-License-Identifier: Apache-2.0
 *
 * Indices in payloads (common/codec/codec_indices.h): back again, in the cheaper
 * form, and errors for whatever is not a set of so many elements.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/codec/codec_indices.h"
#include "common/base/rng.h"

enum { MOST = 70000 };

static const struct gp_codec_loops *const loops = &gp_codec_loops_portable;

/* One element in `every` on average, in runs of `run`; at least the last one. Returns how many. */
static uint64_t fill(uint64_t *bits, uint64_t n, uint32_t every, uint64_t run)
{
	uint64_t chosen = 0;
	memset(bits, 0, gp_indices_words(n) * sizeof *bits);
	for (uint64_t i = 0; i < n; i++) {
		const bool set = gp_rng_u32(every, run, i / run) % every == 0 || i + 1 == n;
		bits[i / 64] |= (uint64_t)set << i % 64;
		chosen += set;
	}
	return chosen;
}

static enum gp_status read_copy(const uint8_t *bytes, size_t len, uint64_t n, uint64_t chosen, uint64_t *bits)
{
	struct gp_err err = {0};
	uint8_t *copy = malloc(len ? len : 1);
	memcpy(copy, bytes, len);
	const enum gp_status status = gp_indices_read(loops, (struct gp_span){copy, len}, n, chosen, bits, &err);
	free(copy);
	return status;
}

static const uint64_t sizes[] = {1, 2, 7, 8, 9, 63, 64, 65, 100, 1000, 5000, MOST};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void indices_come_back_from_the_cheaper_form(void **state)
{
	(void)state;
	static uint64_t bits[MOST / 64 + 1], back[MOST / 64 + 1];
	static uint8_t out[MOST];
	static const uint32_t every[] = {1, 2, 3, 5, 10, 40, 300, 5000, 1000000};
	for (int s = 0; s < SIZES; s++)
		for (size_t e = 0; e < sizeof every / sizeof every[0]; e++)
			for (uint64_t run = 1; run < 100; run *= 6) {
				const uint64_t n = sizes[s], chosen = fill(bits, n, every[e], run);
				const size_t len = gp_indices_write(loops, bits, n, chosen, out);
				assert_true(len <= gp_indices_bound(n));
				assert_int_equal(read_copy(out, len, n, chosen, back), GP_OK);
				assert_memory_equal(back, bits, gp_indices_words(n) * sizeof *bits);
				if (out[0] == 0)
					assert_int_equal(len, gp_indices_bound(n));
			}
}

static void one_in_ten_takes_half_of_a_bitmap(void **state)
{
	(void)state;
	static uint64_t bits[MOST / 64 + 1];
	static uint8_t out[MOST];
	uint64_t chosen = fill(bits, MOST, 10, 1);
	assert_true(gp_indices_write(loops, bits, MOST, chosen, out) * 8 < chosen * 51 / 10);
	chosen = fill(bits, MOST, 10, 36); /* in runs */
	assert_true(gp_indices_write(loops, bits, MOST, chosen, out) * 8 < chosen * 7);
	chosen = fill(bits, MOST, 2, 1);
	assert_int_equal(gp_indices_write(loops, bits, MOST, chosen, out), gp_indices_bound(MOST));
}

static void a_single_far_index_takes_few_bytes(void **state)
{
	(void)state;
	static uint64_t bits[MOST / 64 + 1];
	static uint8_t out[MOST];
	fill(bits, MOST, 1000000000, MOST);
	assert_int_equal(gp_indices_write(loops, bits, MOST, 1, out), 1 + 4); /* 16 bits: an escape, 4464 */
}

static void cut_long_and_wrongly_counted_indices_are_refused(void **state)
{
	(void)state;
	static uint64_t bits[20], back[20];
	static uint8_t out[256];
	for (uint32_t every = 2; every < 40; every += 9) {
		const uint64_t n = 1001, chosen = fill(bits, n, every, 1);
		const size_t len = gp_indices_write(loops, bits, n, chosen, out);
		for (size_t cut = 0; cut < len; cut++)
			assert_int_equal(read_copy(out, cut, n, chosen, back), GP_PROTO);
		out[len] = 0;
		assert_int_equal(read_copy(out, len + 1, n, chosen, back), GP_PROTO);
		assert_int_equal(read_copy(out, len, n, chosen + 1, back), GP_PROTO);
		assert_int_equal(read_copy(out, len, n, chosen - 1, back), GP_PROTO);
		assert_int_equal(read_copy(out, len, n - 1, chosen, back), GP_PROTO);
	}
}

static void what_fills_up_the_last_byte_is_zero(void **state)
{
	(void)state;
	uint64_t bits[1];
	/* Widths that do not exist; 3 of 4-bit codes, with a fourth, with a bit beyond; bit 10 of 10 elements. */
	static const struct {
		uint8_t bytes[4];
		size_t len;
		uint64_t n, chosen;
		enum gp_status status;
	} cases[] = {
		{{1, 0}, 2, 10, 3, GP_PROTO},           {{17, 0, 0, 0}, 4, 10, 1, GP_PROTO},
		{{4, 0x00, 0x00}, 3, 10, 3, GP_OK},     {{4, 0x00, 0x10}, 3, 10, 3, GP_PROTO},
		{{4, 0x00}, 2, 10, 3, GP_PROTO},        {{4, 0x00, 0x09}, 3, 10, 3, GP_PROTO},
		{{4, 0x00, 0x07}, 3, 10, 3, GP_OK},     {{4, 0xff, 0xff}, 3, 10, 3, GP_PROTO},
		{{0, 0xff, 0x03}, 3, 10, 10, GP_OK},    {{0, 0xff, 0x05}, 3, 10, 10, GP_PROTO},
		{{0, 0xff, 0x01}, 3, 10, 10, GP_PROTO}, {{0, 0xff}, 2, 10, 8, GP_PROTO},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(read_copy(cases[i].bytes, cases[i].len, cases[i].n, cases[i].chosen, bits),
				 cases[i].status);
}

static void random_bytes_give_indices_or_an_error(void **state)
{
	(void)state;
	uint64_t bits[4], set, draw = 0;
	uint8_t bytes[64];
	for (int round = 0; round < 20000; round++) {
		const size_t len = gp_rng_u32(1, 1, draw++) % 40;
		for (size_t i = 0; i < len; i++)
			bytes[i] = (uint8_t)gp_rng_u32(1, 2, draw++);
		bytes[0] = (uint8_t)(bytes[0] % 8);
		const uint64_t n = 1 + gp_rng_u32(1, 3, draw++) % 250, chosen = 1 + gp_rng_u32(1, 4, draw++) % n;
		if (read_copy(bytes, len, n, chosen, bits) != GP_OK)
			continue;
		set = 0;
		for (uint64_t i = 0; i < gp_indices_words(n) * 64; i++) {
			const bool is = bits[i / 64] >> i % 64 & 1;
			set += is;
			assert_true(!is || i < n);
		}
		assert_int_equal(set, chosen);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(indices_come_back_from_the_cheaper_form),
		cmocka_unit_test(one_in_ten_takes_half_of_a_bitmap),
		cmocka_unit_test(a_single_far_index_takes_few_bytes),
		cmocka_unit_test(cut_long_and_wrongly_counted_indices_are_refused),
		cmocka_unit_test(what_fills_up_the_last_byte_is_zero),
		cmocka_unit_test(random_bytes_give_indices_or_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
