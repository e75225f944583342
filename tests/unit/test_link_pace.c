/* SPDX-License-Identifier: Apache-2.0
 *
 * When bytes arrive at the far end of the emulated link (client/link/link_pace.h),
 * on a clock of our own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client/link/link_pace.h"

#define MS 1000000u

static struct gp_link_pace pace_of(double rate_bps, double delay_s, double jitter_s)
{
	struct gp_link_pace p;
	const struct gp_link_shape shape = {.rate_bps = rate_bps, .delay_s = delay_s, .jitter_s = jitter_s};
	gp_link_pace_init(&p, &shape, 7, 1);
	return p;
}

static void without_a_shape_bytes_arrive_at_once(void **state)
{
	(void)state;
	struct gp_link_pace p = pace_of(0, 0, 0);
	assert_int_equal(gp_link_pace_due(&p, 5 * MS, 1000000), 5 * MS);
	assert_int_equal(gp_link_pace_due(&p, 6 * MS, 1), 6 * MS);
}

/* 50 mbit/s are 6250 bytes in a millisecond. */
static void a_backlog_leaves_at_the_rate_exactly(void **state)
{
	(void)state;
	struct gp_link_pace p = pace_of(50e6, 0, 0);
	uint64_t due = 0;
	for (int i = 1; i <= 1000; i++)
		due = gp_link_pace_due(&p, 100 * MS, 6250);
	assert_int_equal(due, 100 * MS - GP_LINK_BURST_NS + 1000 * MS);
	/* Late calls change nothing while there is a backlog. */
	due = gp_link_pace_due(&p, 900 * MS, 6250);
	assert_int_equal(due, 100 * MS - GP_LINK_BURST_NS + 1001 * MS);
}

static void silence_saves_up_a_burst_and_no_more(void **state)
{
	(void)state;
	struct gp_link_pace p = pace_of(50e6, 0, 0);
	assert_int_equal(gp_link_pace_due(&p, 100 * MS, 6250), 100 * MS);
	assert_int_equal(gp_link_pace_due(&p, 5000 * MS, 6250), 5000 * MS);
	assert_int_equal(gp_link_pace_due(&p, 5000 * MS, 6250), 5000 * MS);
	assert_int_equal(gp_link_pace_due(&p, 5000 * MS, 6250), 5001 * MS);
}

static void the_delay_comes_on_top(void **state)
{
	(void)state;
	struct gp_link_pace p = pace_of(8e6, 0.02, 0); /* 1000 bytes in a millisecond */
	assert_int_equal(gp_link_pace_due(&p, 100 * MS, 1000), 120 * MS);
	assert_int_equal(gp_link_pace_due(&p, 100 * MS, 5000), 100 * MS - GP_LINK_BURST_NS + 6 * MS + 20 * MS);
}

static void jitter_keeps_the_order_and_its_bounds(void **state)
{
	(void)state;
	struct gp_link_pace p = pace_of(0, 0.01, 0.005);
	uint64_t last = 0, least = UINT64_MAX, most = 0;
	for (uint64_t i = 0; i < 1000; i++) {
		const uint64_t now = i * 20 * MS, due = gp_link_pace_due(&p, now, 100);
		assert_true(due >= last);
		last = due;
		least = due - now < least ? due - now : least;
		most = due - now > most ? due - now : most;
	}
	assert_in_range(least, 10 * MS, 10 * MS + MS / 10);
	assert_in_range(most, 15 * MS - MS / 10, 15 * MS);
	/* A byte behind a late one waits for it. */
	struct gp_link_pace q = pace_of(0, 0.01, 0.005);
	last = 0;
	for (int i = 0; i < 1000; i++) {
		const uint64_t due = gp_link_pace_due(&q, (uint64_t)i, 1);
		assert_true(due >= last);
		last = due;
	}
}

static void the_same_seed_draws_the_same_jitter(void **state)
{
	(void)state;
	struct gp_link_pace a = pace_of(0, 0, 0.005), b = pace_of(0, 0, 0.005), c = pace_of(0, 0, 0.005);
	int others = 0;
	c.stream++;
	for (uint64_t i = 0; i < 100; i++) {
		const uint64_t due = gp_link_pace_due(&a, i * 20 * MS, 1);
		assert_int_equal(gp_link_pace_due(&b, i * 20 * MS, 1), due);
		others += gp_link_pace_due(&c, i * 20 * MS, 1) != due;
	}
	assert_true(others > 90);
}

static void queues_hold_what_is_on_the_way_and_little_more(void **state)
{
	(void)state;
	const struct gp_link_shape plain = {.rate_bps = 100e6, .queue_s = 0.02}, endless = {.delay_s = 60},
				   far = {.rate_bps = 100e6, .delay_s = 0.1, .queue_s = 0.02},
				   slow = {.rate_bps = 1000};
	assert_int_equal(gp_link_pace_queue_bytes(&plain), 250000);
	assert_int_equal(gp_link_pace_queue_bytes(&far), 250000 + 1250000);
	assert_int_equal(gp_link_pace_queue_bytes(&endless), 64u << 20);
	assert_int_equal(gp_link_pace_queue_bytes(&slow), 16u << 10);
	assert_int_equal(gp_link_pace_piece_bytes(&plain), 12500);
	assert_int_equal(gp_link_pace_piece_bytes(&slow), 512);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_shape_bytes_arrive_at_once),
		cmocka_unit_test(a_backlog_leaves_at_the_rate_exactly),
		cmocka_unit_test(silence_saves_up_a_burst_and_no_more),
		cmocka_unit_test(the_delay_comes_on_top),
		cmocka_unit_test(jitter_keeps_the_order_and_its_bounds),
		cmocka_unit_test(the_same_seed_draws_the_same_jitter),
		cmocka_unit_test(queues_hold_what_is_on_the_way_and_little_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
