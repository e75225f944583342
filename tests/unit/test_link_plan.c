/* SPDX-License-Identifier: Apache-2.0
 *
 * Where an emulated link fails (client/link/link_plan.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/link/link_plan.h"
#include "tests/unit/link_thread.h"

static void without_faults_nothing_ever_happens(void **state)
{
	(void)state;
	const struct gp_link_faults none = LINK_NO_FAULTS;
	struct gp_link_plan p;
	gp_link_plan_draw(&none, 0, &p);
	for (int d = 0; d < 2; d++) {
		assert_true(p.stall_at[d] == UINT64_MAX && p.drop_at[d] == UINT64_MAX && p.corrupt_at[d] == UINT64_MAX);
		assert_false(p.trickle[d]);
	}
}

static void faults_are_where_and_in_the_direction_they_were_asked_for(void **state)
{
	(void)state;
	for (int way = GP_LINK_UP; way <= GP_LINK_BOTH; way++) {
		const struct gp_link_faults f = {.direction = (enum gp_link_direction)way,
						 .stall_after = 10,
						 .drop_after = 0,
						 .corrupt_byte = 30,
						 .trickle = true};
		struct gp_link_plan p;
		gp_link_plan_draw(&f, 99, &p);
		for (int d = 0; d < 2; d++) {
			const bool here = way == GP_LINK_BOTH || way == d;
			assert_true(p.stall_at[d] == (here ? 10 : UINT64_MAX));
			assert_true(p.drop_at[d] == (here ? 0 : UINT64_MAX));
			assert_true(p.corrupt_at[d] == (here ? 30 : UINT64_MAX));
			assert_int_equal(p.trickle[d], here);
		}
	}
}

static void only_the_first_connections_are_disturbed(void **state)
{
	(void)state;
	struct gp_link_faults f = LINK_NO_FAULTS;
	f.drop_after = 100;
	f.drop_every = 1000;
	f.trickle = true;
	f.times = 3;
	for (uint64_t n = 0; n < 6; n++) {
		struct gp_link_plan p;
		gp_link_plan_draw(&f, n, &p);
		const bool disturbed = n < 3;
		assert_int_equal(p.drop_at[GP_LINK_UP] < UINT64_MAX, disturbed);
		assert_int_equal(p.trickle[GP_LINK_DOWN], disturbed);
	}
}

/* Exponential of this mean: the mean of 10000 draws is within 3 %, and e^-1 of them are above it. */
static void random_drops_have_the_mean_asked_for_and_come_again_with_the_seed(void **state)
{
	(void)state;
	enum { DRAWS = 10000 };
	struct gp_link_faults f = LINK_NO_FAULTS;
	f.drop_every = 1000000;
	double sum = 0;
	int up = 0, above = 0, others = 0;
	for (uint64_t n = 0; n < DRAWS; n++) {
		struct gp_link_plan p, again, other;
		f.seed = 5;
		gp_link_plan_draw(&f, n, &p);
		gp_link_plan_draw(&f, n, &again);
		f.seed = 6;
		gp_link_plan_draw(&f, n, &other);
		assert_memory_equal(p.drop_at, again.drop_at, sizeof p.drop_at);
		others += memcmp(p.drop_at, other.drop_at, sizeof p.drop_at) != 0;
		const bool is_up = p.drop_at[GP_LINK_UP] < UINT64_MAX;
		assert_int_not_equal(is_up, p.drop_at[GP_LINK_DOWN] < UINT64_MAX);
		const uint64_t at = p.drop_at[is_up ? GP_LINK_UP : GP_LINK_DOWN];
		up += is_up;
		above += at > 1000000;
		sum += (double)at;
	}
	assert_in_range((uint64_t)(sum / DRAWS), 970000, 1030000);
	assert_in_range(up, DRAWS / 2 - 200, DRAWS / 2 + 200);
	assert_in_range(above, 3500, 3860);
	assert_int_equal(others, DRAWS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_faults_nothing_ever_happens),
		cmocka_unit_test(faults_are_where_and_in_the_direction_they_were_asked_for),
		cmocka_unit_test(only_the_first_connections_are_disturbed),
		cmocka_unit_test(random_drops_have_the_mean_asked_for_and_come_again_with_the_seed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
