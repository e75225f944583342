/* SPDX-License-Identifier: Apache-2.0
 *
 * What bounded a step (client/trace/critical_path.h): intervals that were made by hand, whose critical path is known. Times are
 * milliseconds here.
 */
#include <string.h>

#include "client/trace/critical_path.h"
#include "tests/unit/ok.h"

#define MS UINT64_C(1000000)

enum { CHUNKS = 4, WINDOW = 4 };

static struct gp_critical_path *path;
static struct gp_critical_step step;
static struct gp_bound_by bound;

static int begin(void **state)
{
	(void)state;
	OK(gp_critical_path_new(CHUNKS, &path, &err));
	step = (struct gp_critical_step){.told = true, .window = WINDOW};
	return 0;
}

static int end(void **state)
{
	(void)state;
	gp_critical_path_free(path);
	return 0;
}

static void note(enum gp_interval_stage stage, uint64_t number, uint64_t queued, uint64_t begins, uint64_t ends)
{
	const struct gp_interval i = {.stage = stage,
				      .number = number,
				      .queued_ns = queued * MS,
				      .begin_ns = begins * MS,
				      .end_ns = ends * MS};
	gp_critical_path_note(path, &i);
}

/* Without waiting. */
static void at(enum gp_interval_stage stage, uint64_t number, uint64_t begins, uint64_t ends)
{
	note(stage, number, begins, begins, ends);
}

static void walk(uint64_t begins, uint64_t ends)
{
	step.begin_ns = begins * MS;
	step.end_ns = ends * MS;
	gp_critical_path_walk(path, &step, &bound);
	assert_int_equal(bound.steps, 1);
	assert_int_equal(gp_bound_by_total_ns(&bound), (ends - begins) * MS);
}

static void expect(enum gp_bound which, uint64_t ms)
{
	if (bound.ns[which] != ms * MS)
		fail_msg("%s: %.3f ms, want %llu", gp_bound_name(which), (double)bound.ns[which] * 1e-6,
			 (unsigned long long)ms);
}

static void expect_all(uint64_t up, uint64_t down, uint64_t head, uint64_t body, uint64_t tail, uint64_t codec,
		       uint64_t latency, uint64_t others)
{
	const uint64_t want[GP_BOUND_COUNT] = {up, down, head, body, tail, codec, latency, others};
	for (int i = 0; i < GP_BOUND_COUNT; i++)
		expect((enum gp_bound)i, want[i]);
}

/*
 * A chunk alone, each stage behind the one before: head 10, codec 1, up 20 of which latency 2, codec 1, body 5, codec 1, down 4
 * of which latency 2, codec 1, tail 3, codec 1, up 3 of which latency 2, codec 1, body 7, codec 1, down 12 of which latency 2,
 * codec 1, head 6. From `t` on; returns when it is through.
 */
static uint64_t lone_chunk(uint64_t number, uint64_t t)
{
	static const struct {
		enum gp_interval_stage stage;
		uint64_t ms;
	} way[] = {{GP_AT_HEAD_FORWARD, 10},     {GP_AT_ACT_UP_ENCODE, 1},    {GP_AT_ACT_UP_RECEIVED, 20},
		   {GP_AT_ACT_UP_DECODE, 1},     {GP_AT_BODY_FORWARD, 5},     {GP_AT_ACT_DOWN_ENCODE, 1},
		   {GP_AT_ACT_DOWN_RECEIVED, 4}, {GP_AT_ACT_DOWN_DECODE, 1},  {GP_AT_TAIL, 3},
		   {GP_AT_GRAD_UP_ENCODE, 1},    {GP_AT_GRAD_UP_RECEIVED, 3}, {GP_AT_GRAD_UP_DECODE, 1},
		   {GP_AT_BODY_BACKWARD, 7},     {GP_AT_GRAD_DOWN_ENCODE, 1}, {GP_AT_GRAD_DOWN_RECEIVED, 12},
		   {GP_AT_GRAD_DOWN_DECODE, 1},  {GP_AT_HEAD_BACKWARD, 6},    {GP_AT_CHUNK_DONE, 0}};
	for (size_t i = 0; i < sizeof way / sizeof way[0]; i++) {
		at(way[i].stage, number, t, t + way[i].ms);
		t += way[i].ms;
	}
	return t;
}

static void one_chunk_is_the_sum_of_its_stages(void **state)
{
	(void)state;
	step.delay_ns = 2 * MS;
	const uint64_t done = lone_chunk(0, 105); /* 5 ms for the batch */
	step.update = (struct gp_moments){done * MS, done * MS, (done + 4) * MS};
	walk(100, done + 5); /* and one until the trainer has seen it */
	expect_all(18 + 1, 2 + 10, 5 + 10 + 6 + 4 + 1, 5 + 7, 3, 8, 4 * 2, 0);
}

static void what_was_before_the_step_is_not_of_it(void **state)
{
	(void)state;
	step.delay_ns = 2 * MS;
	const uint64_t done = lone_chunk(0, 100);
	walk(done - 9, done); /* head 6, codec 1, and of the way down 2 */
	expect_all(0, 2, 6, 0, 0, 1, 0, 0);
}

/* Tensors arrive one behind the other, each 30 ms after the one before; all else takes 1 ms and is hidden but for the last
 * chunk's. */
static void a_busy_way_up_bounds_the_step(void **state)
{
	(void)state;
	step.delay_ns = 1 * MS;
	uint64_t done = 0;
	for (uint64_t c = 0; c < CHUNKS; c++) {
		const uint64_t arrived = 2 + (c + 1) * 30;
		note(GP_AT_HEAD_FORWARD, c, 0, c, c + 1);
		note(GP_AT_ACT_UP_ENCODE, c, c + 1, c + 1, c + 2);
		note(GP_AT_ACT_UP_SENT, c, c + 2, c + 2, arrived - 1);
		at(GP_AT_ACT_UP_RECEIVED, c, arrived - 1, arrived);
		at(GP_AT_BODY_FORWARD, c, arrived, arrived + 1);
		at(GP_AT_ACT_DOWN_RECEIVED, c, arrived + 2, arrived + 2);
		at(GP_AT_TAIL, c, arrived + 2, arrived + 3);
		at(GP_AT_GRAD_UP_RECEIVED, c, arrived + 4, arrived + 4);
		at(GP_AT_BODY_BACKWARD, c, arrived + 4, arrived + 5);
		at(GP_AT_GRAD_DOWN_RECEIVED, c, arrived + 6, arrived + 6);
		at(GP_AT_HEAD_BACKWARD, c, arrived + 6, arrived + 7);
		done = arrived + 7;
		at(GP_AT_CHUNK_DONE, c, done, done);
	}
	walk(0, done);
	/* The first one waited for nobody: of its 30 ms one is latency. The wire was busy from then on. */
	expect_all(29 + 3 * 30, 0, 1 + 1, 1 + 1, 1, 1, 1 + 3, 0);
	assert_int_equal(gp_bound_by_largest(&bound), GP_BOUND_UP_WIRE);
}

/* Gradients come down one behind the other; forwards were through at once. */
static void a_busy_way_down_bounds_the_step(void **state)
{
	(void)state;
	uint64_t done = 0;
	for (uint64_t c = 0; c < CHUNKS; c++) {
		const uint64_t arrived = 10 + (c + 1) * 25;
		note(GP_AT_HEAD_FORWARD, c, 0, c, c + 1);
		note(GP_AT_BODY_BACKWARD, c, c + 5, c + 5, c + 6);
		note(GP_AT_GRAD_DOWN_ENCODE, c, c + 6, c + 6, c + 7);
		at(GP_AT_GRAD_DOWN_RECEIVED, c, arrived - 25, arrived);
		at(GP_AT_HEAD_BACKWARD, c, arrived, arrived + 2);
		done = arrived + 2;
		at(GP_AT_CHUNK_DONE, c, done, done);
	}
	walk(0, done);
	expect(GP_BOUND_DOWN_WIRE, 110 - 7);
	expect(GP_BOUND_CODEC, 1);
	expect(GP_BOUND_HEAD, 2 + 1);
	expect(GP_BOUND_UP_WIRE, 0);
}

/* The device has one chunk after the other, each 20 ms, and they are there long before. */
static void a_busy_body_bounds_the_step(void **state)
{
	(void)state;
	for (uint64_t c = 0; c < CHUNKS; c++) {
		note(GP_AT_HEAD_FORWARD, c, 0, c, c + 1);
		at(GP_AT_ACT_UP_RECEIVED, c, c + 1, c + 2);
		note(GP_AT_BODY_FORWARD, c, c + 2, 2 + c * 20, 2 + (c + 1) * 20);
		at(GP_AT_ACT_DOWN_RECEIVED, c, 2 + (c + 1) * 20, 3 + (c + 1) * 20);
		at(GP_AT_CHUNK_DONE, c, 3 + (c + 1) * 20, 3 + (c + 1) * 20);
	}
	walk(0, 83);
	expect_all(1, 1, 1, 80, 0, 0, 0, 0);
}

static void another_session_on_the_device_is_told_apart(void **state)
{
	(void)state;
	for (uint64_t c = 0; c < 2; c++) {
		note(GP_AT_HEAD_FORWARD, c, 0, c, c + 1);
		at(GP_AT_ACT_UP_RECEIVED, c, c + 1, c + 2);
		/* 15 ms of somebody else's before each pass */
		note(GP_AT_BODY_FORWARD, c, c + 2, 2 + c * 20 + 15, 2 + (c + 1) * 20);
		at(GP_AT_ACT_DOWN_RECEIVED, c, 42, 43);
		at(GP_AT_CHUNK_DONE, c, 43, 43);
	}
	walk(0, 43);
	expect_all(1, 1, 1, 2 * 5, 0, 0, 0, 2 * 15);
}

/* Every message takes 50 ms there and back, and carries next to nothing. */
static void a_long_link_bounds_by_latency(void **state)
{
	(void)state;
	step.delay_ns = 25 * MS;
	at(GP_AT_HEAD_FORWARD, 0, 0, 1);
	at(GP_AT_ACT_UP_RECEIVED, 0, 26, 26);
	at(GP_AT_BODY_FORWARD, 0, 26, 27);
	at(GP_AT_ACT_DOWN_RECEIVED, 0, 52, 52);
	at(GP_AT_TAIL, 0, 52, 53);
	at(GP_AT_GRAD_UP_RECEIVED, 0, 78, 78);
	at(GP_AT_BODY_BACKWARD, 0, 78, 79);
	at(GP_AT_GRAD_DOWN_RECEIVED, 0, 104, 105); /* with a byte or two */
	at(GP_AT_HEAD_BACKWARD, 0, 105, 106);
	at(GP_AT_CHUNK_DONE, 0, 106, 106);
	walk(0, 106);
	expect_all(0, 1, 2, 2, 1, 0, 100, 0);
}

/* A gradient that was made late overtakes an activation that is on its way: what made the gradient is not what the
 * activation waited for. */
static void an_urgent_tensor_takes_only_the_wire(void **state)
{
	(void)state;
	at(GP_AT_HEAD_FORWARD, 0, 0, 1);
	at(GP_AT_ACT_UP_ENCODE, 0, 1, 2);
	at(GP_AT_ACT_UP_RECEIVED, 0, 2, 10);
	at(GP_AT_TAIL, 0, 20, 40);
	at(GP_AT_GRAD_UP_ENCODE, 0, 40, 41);
	at(GP_AT_GRAD_UP_RECEIVED, 0, 41, 50);
	note(GP_AT_HEAD_FORWARD, 1, 0, 1, 3);
	at(GP_AT_ACT_UP_ENCODE, 1, 3, 4);
	at(GP_AT_ACT_UP_RECEIVED, 1, 11, 70);
	at(GP_AT_BODY_FORWARD, 1, 70, 71);
	at(GP_AT_CHUNK_DONE, 1, 71, 71);
	walk(0, 71);
	expect_all(60 + 8, 0, 1, 1, 0, 1, 0, 0);
}

/* One chunk after the other. */
static void a_chunk_waits_for_its_turn_in_the_window(void **state)
{
	(void)state;
	step.window = 1;
	uint64_t t = 0;
	for (uint64_t c = 0; c < CHUNKS; c++) {
		at(GP_AT_HEAD_FORWARD, c, t, t + 1);
		at(GP_AT_BODY_FORWARD, c, t + 1, t + 10);
		at(GP_AT_HEAD_BACKWARD, c, t + 10, t + 12);
		t += 12;
		at(GP_AT_CHUNK_DONE, c, t, t);
	}
	walk(0, t);
	expect_all(0, 0, CHUNKS * 3, CHUNKS * 9, 0, 0, 0, 0);
}

static void the_servers_update_holds_up_the_next_step(void **state)
{
	(void)state;
	step.body_update = (struct gp_moments){90 * MS, 95 * MS, 130 * MS};
	at(GP_AT_HEAD_FORWARD, 4, 100, 105);
	at(GP_AT_ACT_UP_RECEIVED, 4, 105, 110);
	note(GP_AT_BODY_FORWARD, 4, 110, 130, 140);
	at(GP_AT_CHUNK_DONE, 4, 141, 141);
	step.first = CHUNKS;
	walk(100, 141);
	expect_all(0, 0, 1, 40, 0, 0, 0, 0);
}

static void an_update_waits_for_the_servers_squares(void **state)
{
	(void)state;
	step.delay_ns = 3 * MS;
	at(GP_AT_HEAD_FORWARD, 0, 0, 1);
	at(GP_AT_ACT_UP_RECEIVED, 0, 1, 4);
	at(GP_AT_BODY_BACKWARD, 0, 4, 20);
	at(GP_AT_CHUNK_DONE, 0, 21, 21);
	step.squares_ns = 30 * MS;
	step.update = (struct gp_moments){30 * MS, 30 * MS, 32 * MS};
	walk(0, 32);
	/* Its sums took the server from 20 to 27. */
	expect_all(0, 0, 2 + 1, 16 + 7, 0, 0, 3 + 3, 0);
}

/* The same stages as of one_chunk, but the server says nothing. */
static void without_the_servers_word_the_rest_is_the_body(void **state)
{
	(void)state;
	step.told = false;
	step.delay_ns = 5 * MS;
	at(GP_AT_HEAD_FORWARD, 0, 0, 10);
	at(GP_AT_ACT_UP_ENCODE, 0, 10, 11);
	note(GP_AT_ACT_UP_SENT, 0, 11, 11, 31);
	at(GP_AT_ACT_DOWN_RECEIVED, 0, 61, 64);
	at(GP_AT_TAIL, 0, 64, 70);
	note(GP_AT_GRAD_UP_SENT, 0, 70, 70, 72);
	at(GP_AT_GRAD_DOWN_RECEIVED, 0, 92, 97);
	at(GP_AT_HEAD_BACKWARD, 0, 97, 100);
	at(GP_AT_CHUNK_DONE, 0, 100, 100);
	walk(0, 100);
	/* up: 20 and 2, down: 3 and 5, latency: four times 5; the body: from 36 to 56, and from 77 to 87 */
	expect_all(22, 8, 13, 20 + 10, 6, 1, 20, 0);
}

/* xorshift: any numbers, the same each time. */
static uint64_t draw(void)
{
	static uint64_t x = 88172645463325252u;
	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

static void any_numbers_end_in_a_sum_that_is_right(void **state)
{
	(void)state;
	for (int round = 0; round < 300; round++) {
		const uint64_t scale = round % 3 == 0 ? UINT64_MAX : 200;
		for (int n = 0; n < 200; n++) {
			const struct gp_interval i = {.stage = (enum gp_interval_stage)(draw() % GP_AT_STAGES),
						      .number = round % 2 ? draw() % 8 : draw(),
						      .queued_ns = draw() % scale,
						      .begin_ns = draw() % scale,
						      .end_ns = draw() % scale};
			gp_critical_path_note(path, &i);
		}
		step.told = round % 5 > 0;
		step.delay_ns = draw() % scale;
		step.first = draw() % 8;
		step.window = (uint32_t)(draw() % 6);
		step.squares_ns = draw() % 300;
		step.committed_ns = draw() % 300;
		step.body_update = (struct gp_moments){draw() % scale, draw() % scale, draw() % scale};
		step.begin_ns = draw() % 100;
		step.end_ns = step.begin_ns + draw() % 200;
		gp_critical_path_walk(path, &step, &bound);
		assert_int_equal(gp_bound_by_total_ns(&bound), step.end_ns - step.begin_ns);
	}
}

static void more_chunks_than_are_measured_are_refused(void **state)
{
	(void)state;
	struct gp_critical_path *none;
	assert_int_equal(gp_critical_path_new(GP_CRITICAL_CHUNKS_MAX + 1, &none, &err), GP_INVALID);
}

static void shares_are_named_from_the_largest_on(void **state)
{
	(void)state;
	char text[GP_BOUND_BY_TEXT];
	struct gp_bound_by b = {.steps = 2,
				.ns = {[GP_BOUND_HEAD] = 30, [GP_BOUND_UP_WIRE] = 60, [GP_BOUND_TAIL] = 10}};
	assert_string_equal(gp_bound_by_text(&b, text), "up_wire 60 %, head 30 %, tail 10 %");
	b = (struct gp_bound_by){.steps = 0};
	assert_string_equal(gp_bound_by_text(&b, text), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_chunk_is_the_sum_of_its_stages, begin, end),
		cmocka_unit_test_setup_teardown(what_was_before_the_step_is_not_of_it, begin, end),
		cmocka_unit_test_setup_teardown(a_busy_way_up_bounds_the_step, begin, end),
		cmocka_unit_test_setup_teardown(a_busy_way_down_bounds_the_step, begin, end),
		cmocka_unit_test_setup_teardown(a_busy_body_bounds_the_step, begin, end),
		cmocka_unit_test_setup_teardown(another_session_on_the_device_is_told_apart, begin, end),
		cmocka_unit_test_setup_teardown(a_long_link_bounds_by_latency, begin, end),
		cmocka_unit_test_setup_teardown(an_urgent_tensor_takes_only_the_wire, begin, end),
		cmocka_unit_test_setup_teardown(a_chunk_waits_for_its_turn_in_the_window, begin, end),
		cmocka_unit_test_setup_teardown(the_servers_update_holds_up_the_next_step, begin, end),
		cmocka_unit_test_setup_teardown(an_update_waits_for_the_servers_squares, begin, end),
		cmocka_unit_test_setup_teardown(without_the_servers_word_the_rest_is_the_body, begin, end),
		cmocka_unit_test_setup_teardown(any_numbers_end_in_a_sum_that_is_right, begin, end),
		cmocka_unit_test_setup_teardown(more_chunks_than_are_measured_are_refused, begin, end),
		cmocka_unit_test(shares_are_named_from_the_largest_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
