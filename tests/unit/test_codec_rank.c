/* SPDX-License-Identifier: Apache-2.0
 *
 * Which codec pays where (client/codecs/codec_rank.c), by figures that can be followed
 * by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "client/codecs/codec_rank.h"

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-9 * fabs(b) + 1e-15)

static void a_codec_alone_is_compared_with_no_codec(void **state)
{
	(void)state;
	const struct gp_rank_row row = {true, 800, 1e-3, 0.1};
	const struct gp_rank_range r = gp_rank_find(&row, 1, 0, 3200);
	assert_true(r.pays && r.against == GP_RANK_RAW && r.above == 0);
	NEAR(r.below, 2400 / 1e-3);
}

static void the_next_best_codec_and_not_raw_alone_decides(void **state)
{
	(void)state;
	/* The second halves what the first has left, at ten times the time. */
	const struct gp_rank_row row[] = {{true, 1600, 1e-4, 0.01}, {true, 800, 1e-3, 0.05}, {false, 0, 0, 0}};
	struct gp_rank_range r = gp_rank_find(row, 3, 1, 3200);
	assert_true(r.pays && r.against == 0);
	NEAR(r.below, 800 / 9e-4);
	/* The first loses less, so that the second takes nothing from it. */
	r = gp_rank_find(row, 3, 0, 3200);
	assert_true(r.pays && r.against == GP_RANK_RAW && r.above == 0);
	NEAR(r.below, 1600 / 1e-4);
}

static void one_that_is_worse_in_everything_never_pays(void **state)
{
	(void)state;
	const struct gp_rank_row row[] = {{true, 1600, 2e-4, 0.02}, {true, 800, 1e-4, 0.01}, {true, 3200, 1e-5, 0}};
	assert_true(gp_rank_find(row, 3, 1, 3200).pays);
	struct gp_rank_range r = gp_rank_find(row, 3, 0, 3200);
	assert_true(!r.pays && r.against == 1);
	r = gp_rank_find(row, 3, 2, 3200);
	assert_true(!r.pays && r.against == GP_RANK_RAW);
}

static void one_that_is_quicker_but_longer_pays_between_two_rates(void **state)
{
	(void)state;
	const struct gp_rank_row row[] = {{true, 1600, 1e-4, 0}, {true, 800, 1e-3, 0}};
	const struct gp_rank_range r = gp_rank_find(row, 2, 0, 3200);
	assert_true(r.pays);
	NEAR(r.above, 800 / 9e-4);
	NEAR(r.below, 1600 / 1e-4);
}

static void of_twins_the_first_pays(void **state)
{
	(void)state;
	const struct gp_rank_row row[] = {{true, 1600, 1e-4, 0}, {true, 1600, 1e-4, 0}};
	assert_true(gp_rank_find(row, 2, 0, 3200).pays);
	assert_false(gp_rank_find(row, 2, 1, 3200).pays);
}

static void the_longest_part_bounds_a_chunk(void **state)
{
	(void)state;
	struct gp_rank_chunk c = {.up_bits = 4e5, .down_bits = 1e5, .here_s = 1e-3, .there_s = 2e-3, .ways = 4};
	struct gp_rank_link l = {.bps = 1e8, .delay_s = 0, .window = 4};
	struct gp_rank_time t = gp_rank_chunk_time(&c, &l);
	assert_int_equal(t.bound, GP_BOUND_UP);
	NEAR(t.seconds, 4e-3);
	NEAR(t.down_s, 1e-3);
	NEAR(t.codec_s, 2e-3);
	l.delay_s = 20e-3; /* 4 x 20 + 8 ms alone, four at a time */
	t = gp_rank_chunk_time(&c, &l);
	assert_int_equal(t.bound, GP_BOUND_DELAY);
	NEAR(t.seconds, 22e-3);
	l = (struct gp_rank_link){.bps = 1e12, .window = 4};
	assert_int_equal(gp_rank_chunk_time(&c, &l).bound, GP_BOUND_CODEC);
	c.down_bits = 1e6;
	l.bps = 1e8;
	assert_int_equal(gp_rank_chunk_time(&c, &l).bound, GP_BOUND_DOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_codec_alone_is_compared_with_no_codec),
		cmocka_unit_test(the_next_best_codec_and_not_raw_alone_decides),
		cmocka_unit_test(one_that_is_worse_in_everything_never_pays),
		cmocka_unit_test(one_that_is_quicker_but_longer_pays_between_two_rates),
		cmocka_unit_test(of_twins_the_first_pays),
		cmocka_unit_test(the_longest_part_bounds_a_chunk),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
