/* SPDX-License-Identifier: Apache-2.0
 *
 * How far two clocks are apart, from heartbeats (client/trace/clock_offset.h): the estimate is never further off than it
 * says, however long the way there and the way back take.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "client/trace/clock_offset.h"

#define MS UINT64_C(1000000)

static void nothing_is_known_before_the_first_sample(void **state)
{
	(void)state;
	const struct gp_clock_offset c = {.count = 0};
	assert_false(gp_clock_offset_at(&c, 5).known);
}

static void a_sample_is_the_middle_of_its_round_trip(void **state)
{
	(void)state;
	struct gp_clock_offset c = {.count = 0};
	gp_clock_offset_add(&c, 100 * MS, 110 * MS, 1105 * MS);
	const struct gp_clock_estimate e = gp_clock_offset_at(&c, 110 * MS);
	assert_true(e.known);
	assert_int_equal(e.offset_ns, 1000 * MS);
	assert_in_range(e.uncertainty_ns, 5 * MS, 5 * MS + 1);
	assert_int_equal(gp_clock_here(&e, 1200 * MS), 200 * MS);
}

static void the_shortest_round_trip_counts(void **state)
{
	(void)state;
	struct gp_clock_offset c = {.count = 0};
	gp_clock_offset_add(&c, 0, 2 * MS, 51 * MS);        /* 50 ms, to within 1 */
	gp_clock_offset_add(&c, 10 * MS, 90 * MS, 61 * MS); /* a long way back: 11 ms, to within 40 */
	assert_int_equal(gp_clock_offset_at(&c, 90 * MS).offset_ns, 50 * MS);
}

/* Two clocks drift apart, so that an old sample is worth less, until a new one with a longer round trip is worth more. */
static void an_old_sample_gives_way(void **state)
{
	(void)state;
	struct gp_clock_offset c = {.count = 0};
	gp_clock_offset_add(&c, 0, 2 * MS, 51 * MS);
	gp_clock_offset_add(&c, 100000 * MS, 100006 * MS,
			    100063 * MS); /* 60 ms, to within 3; the first by now to within 11 */
	assert_int_equal(gp_clock_offset_at(&c, 100006 * MS).offset_ns, 60 * MS);
}

static void only_the_newest_samples_are_kept(void **state)
{
	(void)state;
	struct gp_clock_offset c = {.count = 0};
	gp_clock_offset_add(&c, 0, 2, 1001);
	for (uint64_t i = 1; i <= GP_CLOCK_SAMPLES; i++)
		gp_clock_offset_add(&c, i * 100, i * 100 + 10, i * 100 + 5 + 2000);
	assert_int_equal(gp_clock_offset_at(&c, 5000).offset_ns, 2000);
	gp_clock_offset_reset(&c);
	assert_false(gp_clock_offset_at(&c, 5000).known);
}

static void a_server_that_lies_does_no_harm(void **state)
{
	(void)state;
	struct gp_clock_offset c = {.count = 0};
	gp_clock_offset_add(&c, 10, 5, 0); /* an answer before its question */
	assert_false(gp_clock_offset_at(&c, 20).known);
	gp_clock_offset_add(&c, 10, 20, UINT64_MAX);
	gp_clock_offset_add(&c, 10, 20, 0);
	const struct gp_clock_estimate e = gp_clock_offset_at(&c, UINT64_MAX);
	assert_true(e.known);
	gp_clock_here(&e, 0);
	gp_clock_here(&e, UINT64_MAX);
	const struct gp_clock_estimate ahead = {.known = true, .offset_ns = INT64_MAX},
				       behind = {.known = true, .offset_ns = INT64_MIN};
	assert_int_equal(gp_clock_here(&ahead, 5), 0);
	gp_clock_here(&behind, UINT64_MAX);
}

/* Any delays: the true offset is within what is stated, and so is every time that is moved. */
static void the_estimate_is_as_good_as_it_says(void **state)
{
	(void)state;
	srand(7);
	for (int round = 0; round < 200; round++) {
		struct gp_clock_offset c = {.count = 0};
		const int64_t truth = (int64_t)(rand() % 2000000) - 1000000;
		uint64_t now = UINT64_C(1) << 40;
		for (int i = 0; i < 10; i++) {
			const uint64_t up = (uint64_t)rand() % 50000, down = (uint64_t)rand() % 50000;
			gp_clock_offset_add(&c, now, now + up + down, now + up + (uint64_t)truth);
			now += 100000;
		}
		const struct gp_clock_estimate e = gp_clock_offset_at(&c, now);
		assert_in_range((uint64_t)llabs(e.offset_ns - truth), 0, e.uncertainty_ns);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_known_before_the_first_sample),
		cmocka_unit_test(a_sample_is_the_middle_of_its_round_trip),
		cmocka_unit_test(the_shortest_round_trip_counts),
		cmocka_unit_test(an_old_sample_gives_way),
		cmocka_unit_test(only_the_newest_samples_are_kept),
		cmocka_unit_test(a_server_that_lies_does_no_harm),
		cmocka_unit_test(the_estimate_is_as_good_as_it_says),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
