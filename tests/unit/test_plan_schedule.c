/* SPDX-License-Identifier: Apache-2.0
 *
 * Predictions of a step's time (client/plan/plan_schedule.h), against schedules that can be computed by hand, and the
 * simulated world below it (client/plan/plan_sim.h). Whether real steps take as long: tests/bench/plan.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "client/plan/plan_schedule.h"
#include "common/wire/chunk_order.h"

#define MEGA 1e6

/* Everything crosses, nothing takes time, each end has all the processors that it wants. */
static struct gp_plan_schedule nothing(int chunks, int window)
{
	struct gp_plan_schedule s = {.chunks = chunks, .window = window};
	for (int d = 0; d < GP_DIRECTIONS; d++)
		s.flow[d] = (struct gp_plan_flow){.crosses = true};
	for (int e = 0; e < GP_PLAN_ENDS; e++)
		s.end[e] = (struct gp_plan_side){.threads = 1, .codec_threads = 1};
	return s;
}

static struct gp_plan_time find(const struct gp_plan_schedule *s)
{
	struct gp_plan_time t;
	struct gp_err err = {0};
	assert_int_equal(gp_plan_schedule_find(s, &t, &err), GP_OK);
	return t;
}

static void near(double found, double expected, double tolerance)
{
	if (fabs(found - expected) > tolerance)
		fail_msg("%.9g instead of %.9g +- %g", found, expected, tolerance);
}

static double part(const struct gp_plan_time *t, enum gp_bound b)
{
	return (double)t->bound.ns[b] * 1e-9;
}

/* Seconds by rate: a megabyte takes one. */
static void set_wire(struct gp_plan_schedule *s, double bytes_per_s, double delay_s)
{
	s->up = s->down = (struct gp_plan_way){.bytes_per_s = bytes_per_s, .delay_s = delay_s};
}

static struct gp_plan_schedule one_of_each(int chunks, int window)
{
	struct gp_plan_schedule s = nothing(chunks, window);
	s.head_forward_s = 1;
	s.body_forward_s = 2;
	s.tail_s = 1;
	s.body_backward_s = 3;
	s.head_backward_s = 1;
	s.update_s = s.body_update_s = 0.25;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		s.flow[d] = (struct gp_plan_flow){true, MEGA, 0.1, 0.1};
	set_wire(&s, MEGA, 0.5);
	return s;
}

static void one_chunk_takes_the_sum_of_its_stages(void **state)
{
	(void)state;
	const struct gp_plan_schedule s = one_of_each(1, 1);
	const struct gp_plan_time t = find(&s);
	near(t.time_per_batch_s, 1 + 2 + 1 + 3 + 1 + 4 * (0.1 + 1 + 0.5 + 0.1) + 0.25, 1e-3);
	near(part(&t, GP_BOUND_UP_WIRE), 2, 2e-3);
	near(part(&t, GP_BOUND_DOWN_WIRE), 2, 2e-3);
	near(part(&t, GP_BOUND_LATENCY), 2, 2e-3);
	near(part(&t, GP_BOUND_CODEC), 0.8, 2e-3);
	near(part(&t, GP_BOUND_BODY), 5, 2e-3);
	near(part(&t, GP_BOUND_TAIL), 1, 2e-3);
	near(part(&t, GP_BOUND_HEAD), 2.25, 2e-3);
}

static void parts_add_up_to_the_time(void **state)
{
	(void)state;
	const struct gp_plan_schedule s = one_of_each(8, 4);
	const struct gp_plan_time t = find(&s);
	near((double)gp_bound_by_total_ns(&t.bound) * 1e-9, t.time_per_batch_s, 1e-6);
}

/* Eight chunks, 1 s up for each direction of each, hardly anything else. */
static void a_slow_way_up_bounds_the_step(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(8, 8);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		s.flow[d].wire_bytes = MEGA;
	s.up.bytes_per_s = MEGA;
	s.down.bytes_per_s = 1000 * MEGA;
	const struct gp_plan_time t = find(&s);
	near(t.time_per_batch_s, 16, 0.05);
	assert_int_equal(gp_bound_by_largest(&t.bound), GP_BOUND_UP_WIRE);
}

/* Both ways at once: 16 s in each, and the last gradient comes down when the last one has gone up. */
static void both_ways_overlap(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(8, 8);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		s.flow[d].wire_bytes = MEGA;
	set_wire(&s, MEGA, 0);
	const struct gp_plan_time t = find(&s);
	assert_true(t.time_per_batch_s > 16.9 && t.time_per_batch_s < 19);
}

static void a_slow_body_bounds_the_step(void **state)
{
	(void)state;
	struct gp_plan_schedule s = one_of_each(8, 8);
	set_wire(&s, 0, 0);
	s.head_forward_s = s.tail_s = s.head_backward_s = 0.01;
	s.update_s = s.body_update_s = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		s.flow[d].encode_s = s.flow[d].decode_s = 0;
	const struct gp_plan_time t = find(&s);
	near(t.time_per_batch_s, 8 * (2 + 3), 0.1);
	assert_int_equal(gp_bound_by_largest(&t.bound), GP_BOUND_BODY);
}

/* A chunk crosses four times. With a window of 1 the next one waits for that. */
static void latency_counts_once_for_each_window(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(4, 1);
	set_wire(&s, 0, 0.1);
	struct gp_plan_time t = find(&s);
	near(t.time_per_batch_s, 4 * 0.4, 1e-6);
	assert_int_equal(gp_bound_by_largest(&t.bound), GP_BOUND_LATENCY);
	s.window = 2;
	near(find(&s).time_per_batch_s, 2 * 0.4, 1e-6);
	s.window = 4;
	near(find(&s).time_per_batch_s, 0.4, 1e-6);
	s.window = 100;
	near(find(&s).time_per_batch_s, 0.4, 1e-6);
}

/* COMMIT and COMMITTED of a step pass while the next one is under way, whose update waits for them. */
static void a_commit_costs_no_time_of_its_own(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(1, 1);
	set_wire(&s, 0, 0.1);
	s.flow[GP_GRAD_UP].crosses = s.flow[GP_GRAD_DOWN].crosses = false;
	s.body_update_s = 0.3; /* 0.2 s there and back, and the forward waits for the update */
	const struct gp_plan_time t = find(&s);
	near(t.time_per_batch_s, 0.2 + 0.3, 1e-6);
}

static void a_frozen_head_lets_the_next_step_begin(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(4, 4);
	s.flow[GP_GRAD_DOWN].crosses = false;
	s.flow[GP_ACT_UP].wire_bytes = MEGA;
	s.up.bytes_per_s = MEGA;
	s.tail_s = 0.5;
	near(find(&s).time_per_batch_s, 4.5, 1e-2);
	s.ahead = true; /* the way up is never idle */
	near(find(&s).time_per_batch_s, 4, 1e-2);
}

static void clipping_waits_for_the_servers_squares(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(1, 1);
	s.flow[GP_GRAD_DOWN].encode_s = 1;
	s.clips = true;
	near(find(&s).time_per_batch_s, 1, 1e-6);
	s.flow[GP_GRAD_DOWN].encode_s = 0;
	s.flow[GP_GRAD_DOWN].crosses = false;
	s.down.delay_s = 0.25;
	near(find(&s).time_per_batch_s, 0.5, 1e-6);
}

/* A GRAD_UP of 1 s need not wait for ACT_UP of the other chunks: the body, which has most to do, begins early. */
static void an_urgent_frame_overtakes_at_a_segment(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(4, 4);
	s.flow[GP_ACT_UP].wire_bytes = 4 * MEGA;
	s.flow[GP_GRAD_UP].wire_bytes = MEGA / 10;
	s.up.bytes_per_s = MEGA;
	s.body_backward_s = 4;
	/* The last activation has come at 16.4 s. Its gradient waits for what the kernel holds and for two segments that are
	 * being written, at most 0.4 s in all, then crosses in 0.1 s. */
	const double last = 4 * 4 + 4 * 0.1;
	near(find(&s).time_per_batch_s, last + 4 + 0.5, 0.4);
}

/* What waits on the way is in front of an urgent tensor: the more of it, the longer takes a step that waits for one. */
static void a_queue_on_the_way_delays_what_is_urgent(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(4, 4);
	s.flow[GP_ACT_UP].wire_bytes = 4 * MEGA;
	s.flow[GP_GRAD_UP].wire_bytes = MEGA / 10;
	s.up.bytes_per_s = MEGA;
	s.body_backward_s = 4;
	const double without = find(&s).time_per_batch_s;
	s.up.queue_bytes = 2 * MEGA;
	const struct gp_plan_time t = find(&s);
	if (t.time_per_batch_s < without || t.time_per_batch_s > without + 4)
		fail_msg("%g with a queue, %g without", t.time_per_batch_s, without);
	near((double)gp_bound_by_total_ns(&t.bound) * 1e-9, t.time_per_batch_s, 1e-6);
}

/* The third activation and the first gradient wait for the body together, and nothing else is to be begun: the forward goes
 * first, so that its way there and back is hidden behind two backwards. */
static void a_forward_goes_before_a_backward_that_nothing_follows(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(3, 3);
	set_wire(&s, 0, 0.4);
	s.body_forward_s = 1;
	s.body_backward_s = 3;
	near(find(&s).time_per_batch_s, 0.4 + 3 * 1 + 3 * 3 + 0.4, 1e-6);
	assert_int_equal(gp_order_backward(0, 3, 2, false), GP_ORDER_FIRST); /* chunk 2 may begin then */
	assert_int_equal(gp_order_backward(1, 3, 2, false), GP_ORDER_LAST);
	assert_int_equal(gp_order_backward(2, 3, 2, true), GP_ORDER_FIRST); /* the next step's may */
}

static void more_threads_than_processors_slow_each_other_down(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(8, 8);
	s.body_forward_s = 1;
	s.head_forward_s = 1;
	s.head_backward_s = 1e-9;
	const double apart = find(&s).time_per_batch_s;
	near(apart, 9, 1e-3); /* side by side */
	s.same_machine = true;
	s.end[GP_PLAN_CLIENT].processors = 1;
	near(find(&s).time_per_batch_s, 16, 1e-3); /* one after the other, in sum */
	s.end[GP_PLAN_CLIENT].processors = 2;
	near(find(&s).time_per_batch_s, 9, 1e-3);
}

/* A megabyte that takes a second of a processor at each end, and nothing else. */
static void moving_bytes_takes_processors_at_both_ends(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(1, 1);
	s.flow[GP_ACT_UP].wire_bytes = MEGA;
	near(find(&s).time_per_batch_s, 0, 1e-6);
	s.end[GP_PLAN_CLIENT].byte_s = s.end[GP_PLAN_SERVER].byte_s = 1e-6;
	near(find(&s).time_per_batch_s, 1, 1e-3); /* one thread at each end, at the same time */
	s.same_machine = true;
	s.end[GP_PLAN_CLIENT].processors = 2;
	near(find(&s).time_per_batch_s, 1, 1e-3);
	s.end[GP_PLAN_CLIENT].processors = 1;
	near(find(&s).time_per_batch_s, 2, 1e-3);
}

/* The loader is always busy: 3 s of a batch. A second of the link takes half a processor at each end. */
static void moving_bytes_slows_down_what_computes_beside_it(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(1, 1);
	s.flow[GP_ACT_UP].wire_bytes = MEGA;
	set_wire(&s, MEGA, 0);
	s.load_s = 3;
	s.end[GP_PLAN_CLIENT].byte_s = s.end[GP_PLAN_SERVER].byte_s = 0.5e-6;
	s.same_machine = true;
	s.end[GP_PLAN_CLIENT].processors = 2;
	near(find(&s).time_per_batch_s, 3, 1e-3);
	s.end[GP_PLAN_CLIENT].processors = 1;
	near(find(&s).time_per_batch_s, 3 + 0.5 + 0.5, 1e-3);
	s.same_machine = false; /* the other half is of the server's */
	near(find(&s).time_per_batch_s, 3 + 0.5, 1e-3);
}

static void the_loader_may_bound_the_step(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(2, 2);
	s.load_s = 3;
	s.head_forward_s = 1;
	const struct gp_plan_time t = find(&s);
	near(t.time_per_batch_s, 3, 1e-6);
	assert_int_equal(gp_bound_by_largest(&t.bound), GP_BOUND_HEAD);
	s.head_forward_s = 4;
	near(find(&s).time_per_batch_s, 8, 1e-6);
}

static void numbers_that_mean_nothing_are_refused(void **state)
{
	(void)state;
	struct gp_plan_schedule s = nothing(4, 4);
	struct gp_plan_time t;
	struct gp_err err = {0};
	s.body_forward_s = NAN;
	assert_int_equal(gp_plan_schedule_find(&s, &t, &err), GP_INVALID);
	s = nothing(0, 1);
	assert_int_equal(gp_plan_schedule_find(&s, &t, &err), GP_INVALID);
	s = nothing(1, 1);
	s.up.bytes_per_s = -1;
	assert_int_equal(gp_plan_schedule_find(&s, &t, &err), GP_INVALID);
	s = nothing(1, 1);
	s.end[GP_PLAN_CLIENT].byte_s = -1;
	assert_int_equal(gp_plan_schedule_find(&s, &t, &err), GP_INVALID);
	s = nothing(1, 1);
	s.end[GP_PLAN_SERVER].threads = 0;
	assert_int_equal(gp_plan_schedule_find(&s, &t, &err), GP_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_chunk_takes_the_sum_of_its_stages),
		cmocka_unit_test(parts_add_up_to_the_time),
		cmocka_unit_test(a_slow_way_up_bounds_the_step),
		cmocka_unit_test(both_ways_overlap),
		cmocka_unit_test(a_slow_body_bounds_the_step),
		cmocka_unit_test(latency_counts_once_for_each_window),
		cmocka_unit_test(a_commit_costs_no_time_of_its_own),
		cmocka_unit_test(a_frozen_head_lets_the_next_step_begin),
		cmocka_unit_test(clipping_waits_for_the_servers_squares),
		cmocka_unit_test(an_urgent_frame_overtakes_at_a_segment),
		cmocka_unit_test(a_queue_on_the_way_delays_what_is_urgent),
		cmocka_unit_test(a_forward_goes_before_a_backward_that_nothing_follows),
		cmocka_unit_test(more_threads_than_processors_slow_each_other_down),
		cmocka_unit_test(moving_bytes_takes_processors_at_both_ends),
		cmocka_unit_test(moving_bytes_slows_down_what_computes_beside_it),
		cmocka_unit_test(the_loader_may_bound_the_step),
		cmocka_unit_test(numbers_that_mean_nothing_are_refused),
	};
	return cmocka_run_group_tests_name("plan_schedule", tests, NULL, NULL);
}
