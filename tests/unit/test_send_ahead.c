/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that a sender hands to the kernel ahead of the link.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>

#include "common/wire/send_ahead.h"

#define SECOND 1000000000ull

static void it_is_a_time_of_the_link_within_limits(void **state)
{
	(void)state;
	assert_int_equal(gp_send_ahead_at(20e6), 40000);
	assert_int_equal(gp_send_ahead_at(1e6), GP_SEND_AHEAD_MIN);
	assert_int_equal(gp_send_ahead_at(1e-3), GP_SEND_AHEAD_MIN);
	assert_int_equal(gp_send_ahead_at(125e6), GP_SEND_AHEAD_MAX);
	assert_int_equal(gp_send_ahead_at(INFINITY), GP_SEND_AHEAD_MAX);
	assert_int_equal(gp_send_ahead_at(0), GP_SEND_AHEAD_MAX); /* not known */
	assert_int_equal(gp_send_ahead_at(NAN), GP_SEND_AHEAD_MAX);
}

static void a_slow_link_has_one_segment_under_way_and_a_fast_one_two(void **state)
{
	(void)state;
	assert_int_equal(gp_send_ahead_writes(GP_SEND_AHEAD_MIN, 64 << 10), 1);
	assert_int_equal(gp_send_ahead_writes(GP_SEND_AHEAD_MIN, 256 << 10), 1);
	assert_int_equal(gp_send_ahead_writes(63 << 10, 64 << 10), 1);
	assert_int_equal(gp_send_ahead_writes(64 << 10, 64 << 10), 2);
	assert_int_equal(gp_send_ahead_writes(GP_SEND_AHEAD_MAX, 128 << 10), 2);
	assert_int_equal(gp_send_ahead_writes(GP_SEND_AHEAD_MAX, 64 << 10), 2);
}

/* What the kernel tells of a connection that has sent for `busy_s` in all. */
static struct gp_tcp_figures told(double busy_s, double acked)
{
	return (struct gp_tcp_figures){
		.valid = true, .busy_us = (uint64_t)(busy_s * 1e6), .bytes_acked = (uint64_t)acked};
}

static void it_follows_what_the_kernel_saw_acknowledged_since_the_last_look(void **state)
{
	(void)state;
	struct gp_send_ahead a;
	gp_send_ahead_init(&a);
	assert_int_equal(a.bytes, GP_SEND_AHEAD_MAX);
	struct gp_tcp_figures f = told(0.1, 2e6); /* 20 MB/s */
	assert_true(gp_send_ahead_due(&a, SECOND));
	assert_true(gp_send_ahead_look(&a, SECOND, &f));
	assert_int_equal(a.bytes, 40000);
	assert_false(gp_send_ahead_due(&a, SECOND + SECOND / 20));
	assert_true(gp_send_ahead_due(&a, SECOND + SECOND / 10));
	f = told(0.2, 22e6); /* the link has become faster */
	assert_true(gp_send_ahead_look(&a, 2 * SECOND, &f));
	assert_int_equal(a.bytes, GP_SEND_AHEAD_MAX);
	f = told(0.3, 23e6); /* and slow */
	assert_true(gp_send_ahead_look(&a, 3 * SECOND, &f));
	assert_int_equal(a.bytes, GP_SEND_AHEAD_MIN);
	f = told(0.4, 24e6);
	assert_false(gp_send_ahead_look(&a, 4 * SECOND, &f)); /* still */
	assert_int_equal(a.bytes, GP_SEND_AHEAD_MIN);
}

static void little_that_was_sent_and_a_kernel_without_figures_tell_nothing(void **state)
{
	(void)state;
	struct gp_send_ahead a;
	const struct gp_tcp_figures none = {0};
	gp_send_ahead_init(&a);
	struct gp_tcp_figures f = told(0.01, 1e3);
	assert_false(gp_send_ahead_look(&a, SECOND, &f));
	assert_false(gp_send_ahead_look(&a, 2 * SECOND, &none));
	assert_int_equal(a.bytes, GP_SEND_AHEAD_MAX);
	f = told(0.03, 0.9e6); /* with what was too little before: 30 MB/s over all of it */
	assert_true(gp_send_ahead_look(&a, 3 * SECOND, &f));
	assert_int_equal(a.bytes, 60000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_a_time_of_the_link_within_limits),
		cmocka_unit_test(a_slow_link_has_one_segment_under_way_and_a_fast_one_two),
		cmocka_unit_test(it_follows_what_the_kernel_saw_acknowledged_since_the_last_look),
		cmocka_unit_test(little_that_was_sent_and_a_kernel_without_figures_tell_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
