/* SPDX-License-Identifier: Apache-2.0
 *
 * How many chunks are in flight when nobody has said it: gp_window_for (client/session/chunk_window.h). What becomes of it
 * over a link, and where the server has no memory for it: tests/e2e/link_emulator.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "client/session/chunk_window.h"

static void short_round_trips_leave_the_window_alone(void **state)
{
	(void)state;
	assert_int_equal(gp_window_for(4, 64, 100, 0.0), 4);
	assert_int_equal(gp_window_for(4, 64, 100, 1e-3), 4);
}

static void the_window_holds_what_the_link_could_carry_in_two_round_trips(void **state)
{
	(void)state;
	/* 1 Gbit/s for 2 * 10 ms are 2.5 MB */
	assert_int_equal(gp_window_for(4, 64, 1000000, 10e-3), 4 + 3);
	assert_int_equal(gp_window_for(4, 64, 10000000, 10e-3), 4 + 1);
	assert_int_equal(gp_window_for(4, 64, 50000, 10e-3), 4 + 51);
}

static void no_more_than_a_step_has(void **state)
{
	(void)state;
	assert_int_equal(gp_window_for(4, 8, 1000, 0.3), 8);
	assert_int_equal(gp_window_for(4, 64, 1, 1e9), 64);
	assert_int_equal(gp_window_for(2, 2, 1, 1e9), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(short_round_trips_leave_the_window_alone),
		cmocka_unit_test(the_window_holds_what_the_link_could_carry_in_two_round_trips),
		cmocka_unit_test(no_more_than_a_step_has),
	};
	return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
