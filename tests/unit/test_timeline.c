/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine notes and a server tells (client/trace/timeline.h): the server's times are moved to this side's clock,
 * whatever they are, and what bounded a step adds up to its time.
 */
#include <string.h>

#include "client/trace/timeline.h"
#include "client/trace/timeline_record.h"
#include "common/base/clock.h"
#include "tests/unit/ok.h"

#define MS UINT64_C(1000000)

enum { CHUNKS = 2 };

/* This side's clock is that of the machine; the server's is so far ahead. */
#define AHEAD (UINT64_C(3600) * 1000 * MS)

static struct gp_timeline *timeline;
static struct gp_bound_by bound;
static uint64_t start; /* half a second ago */

static int begin(void **state)
{
	(void)state;
	OK(gp_timeline_new(CHUNKS, true, NULL, &timeline, &err));
	gp_timeline_linked(timeline, true, CHUNKS);
	start = gp_now_ns() - 500 * MS;
	return 0;
}

static int end(void **state)
{
	(void)state;
	gp_timeline_free(timeline);
	return 0;
}

static void at(enum gp_interval_stage stage, uint64_t number, uint64_t begins, uint64_t ends)
{
	gp_timeline_note_times(timeline, stage, number, start + begins * MS, start + ends * MS);
}

/* A heartbeat that took so many ms each way, and what the server tells behind it. */
static void tell(uint64_t value, uint64_t way_ms, const struct gp_interval *told, int count)
{
	Gpsplit__Intervals m = GPSPLIT__INTERVALS__INIT;
	const uint64_t sent = start - 50 * MS;
	const struct gp_ping_answered ping = {value, sent, sent + 2 * way_ms * MS};
	m.ping = value;
	m.ping_ns = sent + way_ms * MS + AHEAD;
	gp_timeline_answered(timeline, &ping);
	gp_timeline_told(timeline, &m, told, count);
}

static void note_client(uint64_t number)
{
	at(GP_AT_HEAD_FORWARD, number, 0, 10);
	at(GP_AT_ACT_UP_SENT, number, 10, 12);
	at(GP_AT_ACT_DOWN_RECEIVED, number, 92, 92);
	at(GP_AT_TAIL, number, 92, 95);
	at(GP_AT_CHUNK_DONE, number, 95, 95);
}

static void finish_step(void)
{
	gp_timeline_end_step(timeline, 0, start, start + 100 * MS, &bound);
	assert_int_equal(bound.steps, 1);
	assert_int_equal(gp_bound_by_total_ns(&bound), 100 * MS);
}

static void the_servers_times_are_moved_here(void **state)
{
	(void)state;
	note_client(0);
	const uint64_t there = start + AHEAD;
	const struct gp_interval told[] = {{.stage = GP_AT_ACT_UP_RECEIVED,
					    .queued_ns = there + 69 * MS,
					    .begin_ns = there + 69 * MS,
					    .end_ns = there + 70 * MS},
					   {.stage = GP_AT_BODY_FORWARD,
					    .queued_ns = there + 70 * MS,
					    .begin_ns = there + 70 * MS,
					    .end_ns = there + 90 * MS}};
	tell(1, 1, told, 2);
	const struct gp_clock_estimate clock = gp_timeline_clock(timeline);
	assert_true(clock.known);
	assert_int_equal(clock.offset_ns, AHEAD);
	finish_step();
	assert_int_equal(bound.ns[GP_BOUND_UP_WIRE], 59 * MS);
	assert_int_equal(bound.ns[GP_BOUND_BODY], 20 * MS);
	assert_int_equal(bound.ns[GP_BOUND_DOWN_WIRE], 1 * MS);
	assert_int_equal(bound.ns[GP_BOUND_LATENCY], 2 * MS);
	assert_int_equal(bound.ns[GP_BOUND_TAIL], 3 * MS);
	assert_int_equal(bound.ns[GP_BOUND_HEAD], 15 * MS);
}

static void before_clocks_are_compared_the_body_is_guessed(void **state)
{
	(void)state;
	Gpsplit__Intervals m = GPSPLIT__INTERVALS__INIT;
	const struct gp_interval told = {.stage = GP_AT_BODY_FORWARD, .queued_ns = 5, .begin_ns = 5, .end_ns = 6};
	note_client(0);
	gp_timeline_told(timeline, &m, &told, 1);
	assert_false(gp_timeline_clock(timeline).known);
	finish_step();
	assert_int_equal(bound.ns[GP_BOUND_BODY], 80 * MS);
	assert_int_equal(bound.ns[GP_BOUND_UP_WIRE], 2 * MS);
}

static void any_times_of_a_server_add_up(void **state)
{
	(void)state;
	note_client(0);
	note_client(1);
	const uint64_t any[] = {0, 1, UINT64_MAX, AHEAD, start, UINT64_MAX / 2, start + AHEAD + 5 * MS};
	enum { ANY = sizeof any / sizeof any[0] };
	for (int i = 0; i < ANY * ANY; i++) {
		struct gp_interval told = {.stage = (enum gp_interval_stage)(3 + i % 5),
					   .number = any[i % ANY] % 3,
					   .queued_ns = any[i % ANY],
					   .begin_ns = any[i / ANY],
					   .end_ns = any[(i + 3) % ANY]};
		tell((uint64_t)i + 1, 1, &told, 1);
	}
	finish_step();
	Gpsplit__Intervals m = GPSPLIT__INTERVALS__INIT;
	for (int i = 0; i < ANY; i++) {
		const struct gp_ping_answered ping = {1000 + (uint64_t)i, start, start + 1};
		m.ping = ping.value;
		m.ping_ns = any[i];
		gp_timeline_answered(timeline, &ping);
		gp_timeline_told(timeline, &m, NULL, 0);
	}
}

static void another_link_may_be_another_clock(void **state)
{
	(void)state;
	tell(1, 1, NULL, 0);
	assert_true(gp_timeline_clock(timeline).known);
	gp_timeline_linked(timeline, true, CHUNKS);
	assert_false(gp_timeline_clock(timeline).known);
}

static void a_local_step_is_computing(void **state)
{
	(void)state;
	struct gp_timeline *local;
	OK(gp_timeline_new(CHUNKS, false, NULL, &local, &err));
	gp_timeline_end_step(local, 0, start, start + 10 * MS, &bound);
	assert_int_equal(bound.ns[GP_BOUND_BODY], 10 * MS);
	assert_int_equal(gp_bound_by_total_ns(&bound), 10 * MS);
	gp_timeline_note_parts(local, 5 * MS, 2 * MS);
	gp_timeline_end_step(local, CHUNKS, start, start + 10 * MS, &bound);
	assert_int_equal(bound.ns[GP_BOUND_BODY], 5 * MS);
	assert_int_equal(bound.ns[GP_BOUND_TAIL], 2 * MS);
	assert_int_equal(bound.ns[GP_BOUND_HEAD], 3 * MS);
	gp_timeline_free(local);
}

static void without_a_timeline_nothing_is_noted(void **state)
{
	(void)state;
	gp_timeline_note_times(NULL, GP_AT_STEP, 0, 1, 2);
	gp_timeline_linked(NULL, true, CHUNKS);
	gp_timeline_end_step(NULL, 0, 1, 2, &bound);
	assert_int_equal(bound.steps, 0);
	json_t *null = gp_bound_by_json(&bound, true);
	assert_true(json_is_null(null));
	json_decref(null);
}

/* A step of one chunk stage and its end, ten milliseconds long. */
static void run_step(uint64_t step)
{
	const uint64_t begins = 20 * step;
	at(GP_AT_HEAD_FORWARD, step * CHUNKS - 1, begins + 1, begins + 3);
	gp_timeline_end_step(timeline, (step - 1) * CHUNKS, start + begins * MS, start + (begins + 10) * MS, &bound);
}

static void assert_record(json_t *o, int step, int intervals)
{
	const json_t *list = json_object_get(o, "intervals"), *first = json_array_get(list, 0);
	assert_int_equal(json_integer_value(json_object_get(o, "step")), step);
	assert_int_equal(json_array_size(list), intervals);
	assert_float_equal(json_real_value(json_object_get(o, "seconds")), 0.010, 1e-9);
	assert_string_equal(json_string_value(json_object_get(first, "stage")), "head forward");
	assert_int_equal(json_integer_value(json_object_get(first, "chunk")), 1);
	assert_float_equal(json_real_value(json_object_get(first, "begin_s")), 0.001, 1e-9);
	assert_float_equal(json_real_value(json_object_get(first, "end_s")), 0.003, 1e-9);
	json_decref(o);
}

static void few_steps_of_a_run_are_recorded_whole(void **state)
{
	(void)state;
	struct gp_timeline_record *r;
	OK(gp_timeline_record_new(CHUNKS, &r, &err));
	gp_timeline_watch(timeline, gp_timeline_record_note, r);
	for (uint64_t step = 1; step <= 8; step++) {
		run_step(step);
		json_t *o = gp_timeline_record_take(r, step, false);
		if (step == 3 || step == 5) /* of the one before it: by then the server has told, too */
			assert_record(o, (int)step - 1, 1);
		else
			assert_null(o);
	}
	assert_record(gp_timeline_record_take(r, 8, true), 8, 1);
	assert_null(gp_timeline_record_take(r, 8, true));
	gp_timeline_watch(timeline, NULL, NULL);
	gp_timeline_record_free(r);
}

/* The link broke, and the step was begun anew. */
static void a_step_that_begins_anew_is_recorded_once(void **state)
{
	(void)state;
	struct gp_timeline_record *r;
	OK(gp_timeline_record_new(CHUNKS, &r, &err));
	gp_timeline_watch(timeline, gp_timeline_record_note, r);
	at(GP_AT_HEAD_FORWARD, 3, 0, 1);
	at(GP_AT_ACT_UP_SENT, 3, 1, 2);
	run_step(2);
	assert_record(gp_timeline_record_take(r, 2, true), 2, 1);
	gp_timeline_record_begin(r, 50); /* back to a checkpoint, or a resumed run */
	run_step(52);
	assert_record(gp_timeline_record_take(r, 53, false), 52, 1);
	gp_timeline_watch(timeline, NULL, NULL);
	gp_timeline_record_free(r);
}

static void a_record_has_a_limit(void **state)
{
	(void)state;
	struct gp_timeline_record *r;
	OK(gp_timeline_record_new(CHUNKS, &r, &err));
	gp_timeline_watch(timeline, gp_timeline_record_note, r);
	for (int i = 0; i < GP_TIMELINE_RECORD_MOST + 7; i++)
		at(GP_AT_ACT_UP_SENT, 2, 0, 1);
	run_step(2);
	json_t *o = gp_timeline_record_take(r, 2, true);
	assert_int_equal(json_array_size(json_object_get(o, "intervals")), GP_TIMELINE_RECORD_MOST);
	assert_true(json_integer_value(json_object_get(o, "left_out")) >= 7);
	json_decref(o);
	gp_timeline_watch(timeline, NULL, NULL);
	gp_timeline_record_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_servers_times_are_moved_here, begin, end),
		cmocka_unit_test_setup_teardown(before_clocks_are_compared_the_body_is_guessed, begin, end),
		cmocka_unit_test_setup_teardown(any_times_of_a_server_add_up, begin, end),
		cmocka_unit_test_setup_teardown(another_link_may_be_another_clock, begin, end),
		cmocka_unit_test_setup_teardown(a_local_step_is_computing, begin, end),
		cmocka_unit_test_setup_teardown(few_steps_of_a_run_are_recorded_whole, begin, end),
		cmocka_unit_test_setup_teardown(a_step_that_begins_anew_is_recorded_once, begin, end),
		cmocka_unit_test_setup_teardown(a_record_has_a_limit, begin, end),
		cmocka_unit_test(without_a_timeline_nothing_is_noted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
