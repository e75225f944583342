/* SPDX-License-Identifier: Apache-2.0
 *
 * How --codec auto chooses (client/codecs/codec_decide.c), by made-up sequences of steps: links that drop and recover,
 * noise, a step that computing bounds, errors over their limits and budgets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "client/codecs/codec_decide.h"

enum { RUNGS = 4, RAW = 0, BF16 = 1, BITS8 = 2, BITS4 = 3 };

#define TENSOR 100e6 /* bytes of a step, in each direction, before its codec */

static const double ratio[RUNGS] = {1, 0.5, 0.25, 0.125};

/* A training whose four directions begin with 8 bits. */
struct training {
	struct gp_decider decider;
	struct gp_decide_step in;
	struct gp_decision out;
	int changes;
};

static void begin(struct training *t)
{
	static const double error[RUNGS] = {0, 0.002, 0.004, 0.02};
	memset(t, 0, sizeof *t);
	t->in.every = 10;
	t->in.chunks = 32;
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		t->in.direction[d].rungs = RUNGS;
		t->in.direction[d].now = BITS8;
		t->in.direction[d].surveyed = true;
		for (int r = 0; r < RUNGS; r++)
			t->in.direction[d].rung[r] = (struct gp_decide_rung){true, ratio[r], error[r], 1};
	}
}

static void step(struct training *t, double rate, double compute_s)
{
	t->in.steps++;
	t->in.up_rate = t->in.down_rate = rate;
	t->in.compute_s = compute_s;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		t->in.direction[d].bytes = TENSOR * ratio[t->in.direction[d].now];
	gp_decide(&t->decider, &t->in, &t->out);
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		t->changes += t->out.rung[d] != t->in.direction[d].now;
		t->in.direction[d].now = t->out.rung[d];
		t->in.direction[d].surveyed = false;
	}
}

static void steps(struct training *t, int count, double rate, double compute_s)
{
	for (int i = 0; i < count; i++)
		step(t, rate, compute_s);
}

static void expect_all(const struct training *t, int rung)
{
	for (int d = 0; d < GP_DIRECTIONS; d++)
		if (t->in.direction[d].now != rung)
			fail_msg("%s is at %d, not %d, at step %llu", gp_direction_info[d].name, t->in.direction[d].now,
				 rung, (unsigned long long)t->in.steps);
}

static void a_fast_link_gets_the_least_lossy_codec(void **state)
{
	struct training t;
	(void)state;
	begin(&t);
	steps(&t, 12, 1e9, 1);
	expect_all(&t, RAW);
	assert_int_equal(t.changes, GP_DIRECTIONS);
}

/* 200 MB a way take 25 s at 8 MB/s: nothing hides, and the fewest bytes are the fastest. */
static void a_link_that_drops_gets_the_fewest_bytes_within_five_steps(void **state)
{
	struct training t;
	(void)state;
	begin(&t);
	steps(&t, 12, 1e9, 1);
	steps(&t, 5, 8e6, 1);
	expect_all(&t, BITS4);
	steps(&t, 200, 8e6, 1);
	expect_all(&t, BITS4);
	assert_int_equal(t.changes, 2 * GP_DIRECTIONS);
}

static void a_link_that_recovers_gets_a_less_lossy_codec_and_stays_with_it(void **state)
{
	struct training t;
	(void)state;
	begin(&t);
	steps(&t, 10, 8e6, 0.7);
	expect_all(&t, BITS4);
	steps(&t, 10, 100e6, 0.7); /* 8 bits: 50 MB a way, half a second */
	expect_all(&t, BITS8);
	const int changes = t.changes;
	steps(&t, 300, 100e6, 0.7);
	expect_all(&t, BITS8);
	assert_int_equal(t.changes, changes);
}

static void one_slow_step_changes_nothing(void **state)
{
	struct training t;
	(void)state;
	begin(&t);
	steps(&t, 12, 1e9, 1);
	const int changes = t.changes;
	for (int i = 0; i < 20; i++) {
		step(&t, 8e6, 1);
		steps(&t, 4, 1e9, 1);
	}
	assert_int_equal(t.changes, changes);
}

/* Rates and times that swing by a quarter, at a place where two codecs are about as good. */
static void noise_does_not_make_it_swing(void **state)
{
	struct training t;
	unsigned draw = 1;
	(void)state;
	begin(&t);
	for (int i = 0; i < 1000; i++) {
		draw = draw * 1103515245 + 12345;
		const double a = 0.75 + 0.5 * (draw >> 16 & 0xff) / 255, b = 0.75 + 0.5 * (draw >> 24) / 255;
		step(&t, 90e6 * a, b);
	}
	assert_true(t.changes <= 8 * GP_DIRECTIONS);
}

static void computing_that_takes_longer_lets_more_bytes_hide(void **state)
{
	struct training t;
	(void)state;
	begin(&t);
	steps(&t, 20, 100e6, 0.7);
	expect_all(&t, BITS8);
	steps(&t, 20, 100e6, 1.3); /* bf16: 100 MB a way, a second */
	expect_all(&t, BF16);
	steps(&t, 20, 100e6, 10);
	expect_all(&t, RAW);
}

/* The first chunk's way to the other end, and the last one's way back, hide behind nothing: the fewer the chunks, the more of
 * the bytes they are. 8 bits: 50 MB a way, 0.05 s at this rate. */
static void with_few_chunks_bytes_cost_time_though_they_would_hide(void **state)
{
	struct training t;
	(void)state;
	begin(&t);
	steps(&t, 20, 1e9, 0.3);
	expect_all(&t, RAW);
	begin(&t);
	t.in.chunks = 4;
	steps(&t, 20, 1e9, 0.3);
	expect_all(&t, BITS8);
}

/* As uniform:bits=4 in the gradients of a pretrained MobileNetV2 on flowers. */
static void a_codec_that_loses_too_much_never_stays(void **state)
{
	struct training t;
	(void)state;
	begin(&t);
	t.in.direction[GP_GRAD_DOWN].rung[BITS4] = (struct gp_decide_rung){true, ratio[BITS4], 1.52, 0.61};
	steps(&t, 10, 8e6, 1);
	assert_int_equal(t.in.direction[GP_GRAD_DOWN].now, BITS8);
	assert_int_equal(t.in.direction[GP_ACT_DOWN].now, BITS4);
	assert_int_equal(t.in.direction[GP_GRAD_UP].now, BITS4);
}

static void a_codec_that_begins_to_lose_too_much_is_left_at_once_and_barred(void **state)
{
	struct training t;
	struct gp_decide_direction *d = &t.in.direction[GP_ACT_UP];
	(void)state;
	begin(&t);
	steps(&t, 10, 8e6, 1);
	assert_int_equal(d->now, BITS4);
	d->rung[BITS4].error = 0.08;
	d->surveyed = true;
	step(&t, 8e6, 1);
	assert_int_equal(d->now, BITS8);
	assert_non_null(strstr(t.out.reason[GP_ACT_UP], "relative error is 0.08"));
	d->rung[BITS4].error = 0.02; /* the next survey finds nothing to say against it */
	d->surveyed = true;
	steps(&t, 150, 8e6, 1);
	assert_int_equal(d->now, BITS8);
	steps(&t, 100, 8e6, 1);
	assert_int_equal(d->now, BITS4);
}

static void a_number_that_is_none_is_over_every_limit(void **state)
{
	struct training t;
	(void)state;
	begin(&t);
	t.in.direction[GP_ACT_UP].rung[BITS8].error = 0.0 / (t.in.every - 10.0);
	step(&t, 0, 0);
	assert_int_equal(t.in.direction[GP_ACT_UP].now, RAW);
}

static void with_a_budget_the_fewest_bytes_within_it_are_used_on_any_link(void **state)
{
	static const double rate[] = {0, 8e6, 1e9};
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct training t;
		begin(&t);
		for (int d = 0; d < GP_DIRECTIONS; d++)
			t.in.direction[d].budget = d == GP_ACT_UP ? 0.003 : 0.02;
		for (int n = 0; n < 12; n++) {
			step(&t, rate[i], 1);
			for (int d = 0; d < GP_DIRECTIONS; d++)
				assert_null(strstr(t.out.reason[d], "Mbit/s")); /* speed is no reason */
		}
		assert_int_equal(t.in.direction[GP_ACT_UP].now, BF16);
		assert_int_equal(t.in.direction[GP_GRAD_DOWN].now, BITS4);
	}
}

static void without_a_link_that_is_measured_nothing_changes(void **state)
{
	struct training t;
	(void)state;
	begin(&t);
	steps(&t, 50, 0, 1);
	assert_int_equal(t.changes, 0);
	begin(&t);
	steps(&t, 50, 1e9, 0);
	assert_int_equal(t.changes, 0);
}

/* A direction without a choice, or in which nothing crosses, takes its time all the same, and stays. */
static void directions_without_a_ladder_count_and_stay(void **state)
{
	struct training t;
	(void)state;
	begin(&t);
	t.in.direction[GP_ACT_UP].rungs = 0;
	t.in.direction[GP_ACT_UP].now = 0;
	steps(&t, 20, 150e6, 1); /* raw: two thirds of a second for it alone */
	assert_int_equal(t.in.direction[GP_ACT_UP].now, 0);
	assert_true(t.in.direction[GP_GRAD_UP].now > RAW);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fast_link_gets_the_least_lossy_codec),
		cmocka_unit_test(a_link_that_drops_gets_the_fewest_bytes_within_five_steps),
		cmocka_unit_test(a_link_that_recovers_gets_a_less_lossy_codec_and_stays_with_it),
		cmocka_unit_test(one_slow_step_changes_nothing),
		cmocka_unit_test(noise_does_not_make_it_swing),
		cmocka_unit_test(computing_that_takes_longer_lets_more_bytes_hide),
		cmocka_unit_test(with_few_chunks_bytes_cost_time_though_they_would_hide),
		cmocka_unit_test(a_codec_that_loses_too_much_never_stays),
		cmocka_unit_test(a_codec_that_begins_to_lose_too_much_is_left_at_once_and_barred),
		cmocka_unit_test(a_number_that_is_none_is_over_every_limit),
		cmocka_unit_test(with_a_budget_the_fewest_bytes_within_it_are_used_on_any_link),
		cmocka_unit_test(without_a_link_that_is_measured_nothing_changes),
		cmocka_unit_test(directions_without_a_ladder_count_and_stay),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
