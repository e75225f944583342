/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates over a window (common/base/rate.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "common/base/rate.h"

#define MS 1000000ull

static void note(struct gp_rate *r, uint64_t ms, uint64_t value)
{
	const uint64_t all[GP_RATE_SERIES] = {value, 2 * value, 0};
	gp_rate_note(r, 5 + ms * MS, all);
}

static int is_near(double x, double wanted)
{
	return fabs(x - wanted) <= 1e-9 * fabs(wanted);
}

static void two_notes_make_a_rate_and_one_makes_none(void **state)
{
	(void)state;
	struct gp_rate r;
	gp_rate_init(&r, 5);
	assert_true(isnan(gp_rate_per_s(&r, 0)));
	note(&r, 0, 100);
	assert_true(isnan(gp_rate_per_s(&r, 0)));
	note(&r, 2000, 300);
	assert_true(is_near(gp_rate_per_s(&r, 0), 100));
	assert_true(is_near(gp_rate_per_s(&r, 1), 200));
	assert_true(gp_rate_per_s(&r, 2) == 0);
}

/* A fast burst at the beginning, as what a kernel's buffer takes at once, is forgotten when the window has passed. */
static void what_lies_before_the_window_does_not_count(void **state)
{
	(void)state;
	struct gp_rate r;
	gp_rate_init(&r, 5);
	note(&r, 0, 0);
	for (uint64_t ms = 100; ms <= 60000; ms += 100)
		note(&r, ms, 1000000000 + ms);
	assert_true(is_near(gp_rate_per_s(&r, 0), 1000));
}

static void notes_of_any_density_fill_the_window(void **state)
{
	(void)state;
	static const uint64_t every_ms[] = {1, 10, 160, 170, 1000, 4999, 5001, 60000};
	for (unsigned i = 0; i < sizeof every_ms / sizeof every_ms[0]; i++) {
		struct gp_rate r;
		gp_rate_init(&r, 5);
		for (uint64_t n = 0; n < 20000; n++)
			note(&r, n * every_ms[i], 7 * n * every_ms[i]);
		assert_true(is_near(gp_rate_per_s(&r, 0), 7000));
		/* What stands still for the window's length has no rate left. */
		const uint64_t end = 19999 * every_ms[i];
		for (uint64_t ms = 100; ms <= 5200; ms += 100)
			note(&r, end + ms, 7 * end);
		assert_true(gp_rate_per_s(&r, 0) == 0);
	}
}

static void a_counter_that_goes_back_stands_still(void **state)
{
	(void)state;
	struct gp_rate r;
	gp_rate_init(&r, 5);
	note(&r, 0, 100);
	note(&r, 1000, 40);
	assert_true(gp_rate_per_s(&r, 0) == 0);
	note(&r, 1000, 50); /* at the same time, too */
	assert_true(gp_rate_per_s(&r, 0) >= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_notes_make_a_rate_and_one_makes_none),
		cmocka_unit_test(what_lies_before_the_window_does_not_count),
		cmocka_unit_test(notes_of_any_density_fill_the_window),
		cmocka_unit_test(a_counter_that_goes_back_stands_still),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
