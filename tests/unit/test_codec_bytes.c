/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte stages: zstd and bitshuffle, when they are skipped, and the loops of
 * bit planes (kernels/loops/bit_loops.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"
#include "common/base/isa.h"
#include "common/base/rng.h"
#include "kernels/loops/bit_loops.h"
#include "kernels/loops/codec_loops.h"

static void bit_planes_are_the_same_for_every_instruction_set(void **state)
{
	(void)state;
	uint8_t bytes[520], planes[520], back[520];
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)gp_rng_u32(1, 1, i);
	for (int k = 0; k < 3; k++)
		for (size_t n = 0; n <= 512; n += 8) {
			setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
			const struct gp_bit_loops *loops = gp_bit_loops_choose();
			planes[n] = back[n] = 0xa5;
			loops->split(bytes, n, planes);
			for (size_t i = 0; i < 8 * n; i++) {
				const size_t plane = i / n;
				const int expected = bytes[i % n] >> plane & 1;
				assert_int_equal(planes[plane * (n / 8) + i % n / 8] >> i % n % 8 & 1, expected);
			}
			loops->join(planes, n, back);
			assert_memory_equal(back, bytes, n);
			assert_true(planes[n] == 0xa5 && back[n] == 0xa5);
		}
	unsetenv("GP_SIMD");
}

/* Sends x, compares what a lossless rest must keep, and tells the payload's length and the stages skipped. */
static size_t payload_of(const char *text, const float *x, size_t n, uint64_t *skipped)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c;
	struct gp_codec_stats stats;
	const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)n}};
	size_t len;
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_new(&spec, &shape, 1, &c, &err), GP_OK);
	uint8_t *out = malloc(gp_codec_bound(c));
	float *y = malloc(n * sizeof *y);
	const uint64_t calls = gp_mem_calls();
	assert_int_equal(gp_codec_encode(c, x, 1, out, gp_codec_bound(c), &len, &err), GP_OK);
	assert_true(len <= gp_codec_bound(c));
	out = realloc(out, len);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){out, len}, y, &err), GP_OK);
	assert_int_equal(gp_mem_calls(), calls);
	if (gp_codec_spec_lossless(&spec))
		assert_memory_equal(y, x, n * sizeof *y);
	gp_codec_get_stats(c, &stats);
	*skipped = stats.skipped[0] + stats.skipped[1];
	free(out);
	free(y);
	gp_codec_free(c);
	return len;
}

enum { MOST = 200000 };
static float noise[MOST], waves[MOST], sparse[MOST];

static int make_tensors(void **state)
{
	(void)state;
	for (size_t i = 0; i < MOST; i++) {
		const uint32_t u = gp_rng_u32(5, 5, i);
		memcpy(&noise[i], &u, sizeof u);
		waves[i] = sinf((float)i * 0.001f) + 0.001f * gp_rng_normal(5, 6, i);
		sparse[i] = i % 10 ? 0 : gp_rng_normal(5, 7, i);
	}
	return 0;
}

static void bytes_that_do_not_compress_are_sent_as_they_are(void **state)
{
	(void)state;
	uint64_t skipped;
	for (size_t n = 1; n <= MOST; n = n < 300 ? n + 37 : 3 * n) {
		assert_int_equal(payload_of("zstd", noise, n, &skipped), 4 * n + 4);
		assert_int_equal(skipped, 1);
		assert_int_equal(payload_of("bitshuffle+zstd", noise, n, &skipped), 4 * n + 8);
		assert_int_equal(skipped, 2);
	}
}

static void bytes_that_compress_are_compressed(void **state)
{
	(void)state;
	uint64_t skipped;
	assert_true(payload_of("zstd", sparse, MOST, &skipped) < MOST);
	assert_int_equal(skipped, 0);
	assert_true(payload_of("uniform:bits=8+zstd", sparse, MOST, &skipped) < MOST / 4);
	assert_int_equal(skipped, 0);
	assert_true(payload_of("zstd", sparse, 1000, &skipped) < 1500);
	assert_int_equal(skipped, 0);
}

/* A quantizer's payload is shorter than the longest input of the stage behind it, which a raw tensor is: often in another of
 * the ranges of lengths for each of which zstd has its own parameters. */
static void zstd_has_memory_for_every_length_at_every_level(void **state)
{
	(void)state;
	static const size_t lengths[] = {100, 4000, 5000, 8190, 9000, 20000, 33000, 65535, 70000, 131000, 140000};
	char text[40];
	uint64_t skipped;
	for (int level = 1; level <= 19; level++)
		for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
			snprintf(text, sizeof text, "fp16+zstd:level=%d", level);
			assert_true(payload_of(text, sparse, lengths[i], &skipped) < lengths[i]);
			assert_int_equal(skipped, 0);
		}
}

static void bitshuffle_is_used_where_it_helps_and_only_there(void **state)
{
	(void)state;
	uint64_t skipped;
	const size_t plain = payload_of("fp16+zstd", waves, MOST, &skipped);
	const size_t shuffled = payload_of("fp16+bitshuffle+zstd", waves, MOST, &skipped);
	assert_int_equal(skipped, 0);
	print_message("waves as fp16: %d bytes, with zstd %zu, with bitshuffle before it %zu\n", 2 * MOST, plain,
		      shuffled);
	assert_true((double)shuffled < 0.98 * (double)plain);
	/* Codes that repeat as whole bytes gain nothing from their bits. */
	payload_of("sortquant:bits=6,split=2+bitshuffle+zstd", sparse, MOST, &skipped);
	assert_int_equal(skipped, 1);
}

static void every_unit_and_length_comes_back(void **state)
{
	(void)state;
	uint64_t skipped;
	char text[48];
	for (int unit = 0; unit <= 4; unit++)
		for (size_t n = 1; n < 20000; n = n < 80 ? n + 1 : 2 * n + 7) {
			snprintf(text, sizeof text, "bitshuffle:unit=%d+zstd", unit);
			payload_of(text, waves, n, &skipped);
			payload_of(text, sparse, n, &skipped);
		}
}

static void every_instruction_set_gives_the_same_payload(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	enum { N = 9001 };
	const struct gp_shape shape = {.ndim = 1, .dim = {N}};
	uint8_t *first = NULL;
	size_t first_len = 0;
	assert_int_equal(gp_codec_spec_parse("bitshuffle+zstd", &spec, &err), GP_OK);
	for (int k = 0; k < 3; k++) {
		struct gp_codec *c;
		size_t len;
		setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
		assert_int_equal(gp_codec_new(&spec, &shape, 1, &c, &err), GP_OK);
		uint8_t *out = malloc(gp_codec_bound(c));
		assert_int_equal(gp_codec_encode(c, waves, 1, out, gp_codec_bound(c), &len, &err), GP_OK);
		gp_codec_free(c);
		if (first) {
			assert_int_equal(len, first_len);
			assert_memory_equal(out, first, len);
			free(out);
		} else {
			first = out;
			first_len = len;
		}
	}
	free(first);
	unsetenv("GP_SIMD");
}

static void lengths_that_a_stage_cannot_give_are_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c;
	const struct gp_shape shape = {.ndim = 1, .dim = {16}};
	float y[16];
	/* zstd: coded, 80 bytes announced; of the 64 and 4 and 8 bytes of heads, no more than 72 are possible. */
	const uint8_t too_long[] = {0, 0, 0, 0, 80, 0, 0, 0, 0x28, 0xb5, 0x2f, 0xfd};
	const uint8_t shuffled_short[] = {1, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 1, 2, 3};
	const uint8_t no_length[] = {0, 0, 0, 0, 80, 0};
	const uint8_t bad_form[] = {2, 0, 0, 0, 1, 2, 3, 4};
	const struct gp_span bad[] = {{too_long, sizeof too_long},
				      {shuffled_short, sizeof shuffled_short},
				      {no_length, sizeof no_length},
				      {bad_form, sizeof bad_form}};
	assert_int_equal(gp_codec_spec_parse("bitshuffle+zstd", &spec, &err), GP_OK);
	assert_int_equal(gp_codec_new(&spec, &shape, 1, &c, &err), GP_OK);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(gp_codec_decode(c, bad[i], y, &err), GP_PROTO);
	gp_codec_free(c);
}

/* Both ends count, so that a client knows of what came down, too; an end that does both counts once. */
static void both_ends_count_what_was_skipped(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c[2];
	const struct gp_shape shape = {.ndim = 1, .dim = {MOST}};
	static float y[MOST];
	size_t len;
	assert_int_equal(gp_codec_spec_parse("sortquant:bits=6,split=2+bitshuffle+zstd", &spec, &err), GP_OK);
	for (int i = 0; i < 2; i++) {
		const struct gp_codec_options o = {.role = i ? GP_CODEC_DECODES : GP_CODEC_ENCODES};
		assert_int_equal(gp_codec_open(&spec, &shape, &o, &c[i], &err), GP_OK);
	}
	uint8_t *out = malloc(gp_codec_bound(c[0]));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(gp_codec_encode(c[0], sparse, 1, out, gp_codec_bound(c[0]), &len, &err), GP_OK);
		assert_int_equal(gp_codec_decode(c[1], (struct gp_span){out, len}, y, &err), GP_OK);
	}
	for (int i = 0; i < 2; i++) {
		struct gp_codec_stats stats;
		gp_codec_get_stats(c[i], &stats);
		assert_int_equal(stats.skipped[0], 3);
		assert_int_equal(stats.skipped[1], 0);
		gp_codec_free(c[i]);
	}
	free(out);
	assert_string_equal(gp_codec_byte_stage(&spec, 0), "bitshuffle");
	assert_string_equal(gp_codec_byte_stage(&spec, 1), "zstd");
	assert_null(gp_codec_byte_stage(&spec, 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bit_planes_are_the_same_for_every_instruction_set),
		cmocka_unit_test(bytes_that_do_not_compress_are_sent_as_they_are),
		cmocka_unit_test(bytes_that_compress_are_compressed),
		cmocka_unit_test(zstd_has_memory_for_every_length_at_every_level),
		cmocka_unit_test(bitshuffle_is_used_where_it_helps_and_only_there),
		cmocka_unit_test(both_ends_count_what_was_skipped),
		cmocka_unit_test(every_unit_and_length_comes_back),
		cmocka_unit_test(every_instruction_set_gives_the_same_payload),
		cmocka_unit_test(lengths_that_a_stage_cannot_give_are_refused),
	};
	return cmocka_run_group_tests(tests, make_tensors, NULL);
}
