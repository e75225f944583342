/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of gpclient bench and the order of its rows (client/bench/bench_rows.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "client/bench/bench_rows.h"

static struct gp_err err;

static struct gp_bench_sweep sweep_of(const char *links, const char *cuts, const char *chunks, const char *codecs)
{
	struct gp_bench_sweep s = {0};
	assert_int_equal(gp_bench_read_links(&s, links, &err), GP_OK);
	assert_int_equal(gp_bench_read_cuts(&s, cuts, &err), GP_OK);
	assert_int_equal(gp_bench_read_chunks(&s, chunks, 64, &err), GP_OK);
	assert_int_equal(gp_bench_read_codecs(&s, codecs, &err), GP_OK);
	return s;
}

static void links_are_rates_and_delays_or_the_one_that_is_there(void **state)
{
	struct gp_bench_sweep s = {0};
	(void)state;
	assert_int_equal(gp_bench_read_links(&s, "as-is, 1gbit,100mbit/20ms,50mbit/rtt=40ms/down=10mbit", &err), GP_OK);
	assert_int_equal(s.links, 4);
	assert_true(s.link[0].as_is);
	assert_string_equal(s.link[1].text, "1gbit");
	assert_false(s.link[1].as_is);
	assert_true(s.link[1].shape.up.bytes_per_s == 125e6 && s.link[1].shape.up.delay_s == 0);
	assert_true(s.link[2].shape.down.bytes_per_s == 12.5e6 && s.link[2].shape.down.delay_s == 0.02);
	assert_true(s.link[3].shape.up.bytes_per_s == 6.25e6 && s.link[3].shape.up.delay_s == 0.02);
	assert_true(s.link[3].shape.down.bytes_per_s == 1.25e6);
}

static void commas_in_a_codec_separate_no_codecs(void **state)
{
	struct gp_bench_sweep s = {0};
	(void)state;
	assert_int_equal(gp_bench_read_codecs(&s, "raw,sortquant:bits=6,split=2,uniform:bits=8+zstd", &err), GP_OK);
	assert_int_equal(s.codecs, 3);
	assert_string_equal(s.codec[1], "sortquant:bits=6,split=2");
}

static void expect_usage(enum gp_status status, const char *part)
{
	assert_int_equal(status, GP_USAGE);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
	assert_null(strchr(err.text, '\n'));
}

static void what_cannot_be_is_told_with_its_flag(void **state)
{
	static char long_item[4096];
	struct gp_bench_sweep s = {0};
	(void)state;
	memset(long_item, 'x', sizeof long_item - 1);
	expect_usage(gp_bench_read_links(&s, "fast", &err), "--links: 'fast' is neither as-is nor RATE");
	expect_usage(gp_bench_read_links(&s, "1gbit,,as-is", &err), "--links '1gbit,,as-is' has an empty item");
	expect_usage(gp_bench_read_links(&s, "", &err), "has an empty item");
	expect_usage(gp_bench_read_links(&s, long_item, &err), "is too long");
	expect_usage(gp_bench_read_chunks(&s, "1,two", 64, &err), "--chunks: 'two' is no number of chunks");
	expect_usage(gp_bench_read_chunks(&s, "0", 64, &err), "--chunks: '0'");
	expect_usage(gp_bench_read_cuts(&s, "1:-1,1:-1", &err), "--cut: '1:-1' is given twice");
	expect_usage(gp_bench_read_cuts(&s, "a-cut-that-is-longer-than-any", &err), "is no cut");
	expect_usage(gp_bench_read_codecs(&s, "raw,nothing", &err), "--codecs: nothing");
	expect_usage(gp_bench_read_codecs(&s, "raw,raw", &err), "--codecs: raw is given twice");
	s = (struct gp_bench_sweep){0};
	expect_usage(gp_bench_read_codecs(&s, " ", &err), "names no codec");
	expect_usage(gp_bench_read_chunks(&s, "1,3", 64, &err), "a batch of 64 cannot be cut into 3 chunks");
	s = (struct gp_bench_sweep){0};
	expect_usage(gp_bench_read_links(&s, "1mbit,as-is,1mbit", &err), "'1mbit' is given twice");
	s = (struct gp_bench_sweep){0};
	expect_usage(gp_bench_read_cuts(&s, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", &err), "at most 16");
}

static void every_row_is_there_once_and_codecs_stand_together(void **state)
{
	struct gp_bench_sweep s = sweep_of("as-is,1gbit", "1:-1,2:-2", "1,8", "raw,fp16,uniform:bits=8");
	struct gp_bench_key key[24], last;
	char text[GP_BENCH_KEY_TEXT];
	(void)state;
	assert_int_equal(gp_bench_count(&s), 24);
	for (int i = 0; i < 24; i++) {
		gp_bench_key_of(&s, i, &key[i]);
		for (int j = 0; j < i; j++)
			assert_false(gp_bench_key_same(&key[i], &key[j]));
		assert_true(gp_bench_key_same(&key[i], &key[i]));
	}
	assert_string_equal(key[1].codec, "fp16");
	assert_string_equal(key[1].link, key[0].link);
	gp_bench_key_of(&s, 23, &last);
	assert_string_equal(gp_bench_key_text(&last, text), "uniform:bits=8 in 8 chunks, cut 2:-2, link 1gbit");
}

static void every_other_round_goes_backwards(void **state)
{
	(void)state;
	for (int round = 1; round <= 4; round++) {
		bool seen[5] = {false};
		for (int turn = 0; turn < 5; turn++)
			seen[gp_bench_turn(5, round, turn)] = true;
		for (int i = 0; i < 5; i++)
			assert_true(seen[i]);
		assert_int_equal(gp_bench_turn(5, round, 0), round % 2 ? 0 : 4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(links_are_rates_and_delays_or_the_one_that_is_there),
		cmocka_unit_test(commas_in_a_codec_separate_no_codecs),
		cmocka_unit_test(what_cannot_be_is_told_with_its_flag),
		cmocka_unit_test(every_row_is_there_once_and_codecs_stand_together),
		cmocka_unit_test(every_other_round_goes_backwards),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
