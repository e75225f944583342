/* SPDX-License-Identifier: Apache-2.0
 *
 * A body (server/body.h) whose link breaks at every place of a step and comes
 * back on another channel: the step done again has the frames of one that was
 * never disturbed, and so has all after it (body_rig.h). Where the build has an
 * emulated GPU, all of it once more with codecs that work in its memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/body_rig.h"
#include "common/base/rng.h"

enum { STEPS = 3, OTHER_DATA = 1000 };

/* --- steps ------------------------------------------------------------------------------------------------------- */

static void client_encoded(struct gp_transfer *t)
{
	struct rig *r = t->arg;
	assert_int_equal(t->task.status, GP_OK);
	note(r, &t->frame);
	if (r->linked)
		gp_transfer_send(t, r->ch[1]);
}

static void send_tensor(struct rig *r, int d, uint32_t chunk, uint64_t data, uint8_t flags)
{
	const uint64_t step = gp_body_steps(r->body), n = flow_of(r, d)->tensor_bytes / sizeof(float);
	struct gp_transfer *t = &flow_of(r, d)->slot[(flags ? chunk : step * CHUNKS + chunk) % WINDOW];
	const struct gp_frame_head head = {.flags = flags, .chunk = chunk, .session = SESSION, .step = step};
	float *x = r->tensor[d][t->slot];
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal((uint64_t)d, data * CHUNKS + chunk, i);
	for (uint32_t i = 0; i < SAMPLES; i++)
		r->sample[i] = (uint32_t)(data * 5 + chunk * SAMPLES + i) % 12;
	t->sample = flags ? NULL : r->sample;
	gp_transfer_encode(t, &head, x, step * CHUNKS + chunk, client_encoded);
}

/* Two chunks under way: the second's activation goes before the first's gradient. */
static const struct action {
	int direction;
	uint32_t chunk;
} actions[2 * CHUNKS] = {{GP_ACT_UP, 0}, {GP_ACT_UP, 1},  {GP_GRAD_UP, 0},
			 {GP_ACT_UP, 2}, {GP_GRAD_UP, 1}, {GP_GRAD_UP, 2}};

static void act(struct rig *r, int action, uint64_t data)
{
	const int answers = r->answers;
	send_tensor(r, actions[action].direction, actions[action].chunk, data, 0);
	turn_until(r, &r->answers, answers + 1);
}

static void commit(struct rig *r)
{
	struct gp_err err;
	const struct gp_body_commit c = {.step = gp_body_steps(r->body), .lr = 0.01f};
	OK(gp_body_commit(r->body, &c, &err));
}

static void run_step(struct rig *r)
{
	const uint64_t step = gp_body_steps(r->body);
	const int committed = r->committed;
	r->trace_on = true;
	for (int i = 0; i < 2 * CHUNKS; i++)
		act(r, i, step);
	r->trace_on = false;
	commit(r);
	turn_until(r, &r->committed, committed + 1);
}

static void expect_same_body(struct rig *a, struct rig *b)
{
	const struct gp_graph *g = a->body->spec.graph;
	struct gp_err err;
	for (int i = 0; i < g->params; i++) {
		float *x = gp_calloc(g->param[i].count, sizeof *x), *y = gp_calloc(g->param[i].count, sizeof *y);
		OK(a->dev->ops->param_get(a->body->plan, i, x, &err));
		OK(b->dev->ops->param_get(b->body->plan, i, y, &err));
		assert_memory_equal(x, y, g->param[i].count * sizeof *x);
		gp_free(x);
		gp_free(y);
	}
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		assert_true(gp_codec_state_hash(flow_of(a, d)->codec) == gp_codec_state_hash(flow_of(b, d)->codec));
		assert_true(gp_codec_state_hash(a->body->flows.flow[d][0].codec) ==
			    gp_codec_state_hash(b->body->flows.flow[d][0].codec));
	}
}

/* Other data up to an action, which is under way for some turns of the loop when the link breaks. */
static void break_within(struct rig *r, int action, int turns)
{
	for (int i = 0; i < action; i++)
		act(r, i, OTHER_DATA);
	if (action < 2 * CHUNKS)
		send_tensor(r, actions[action].direction, actions[action].chunk, OTHER_DATA, 0);
	for (int i = 0; i < turns; i++)
		uv_run(&r->loop, UV_RUN_NOWAIT);
	cut(r);
	undo_both(r);
	come_back(r);
}

static void a_step_goes_on_wherever_the_link_broke(void **state)
{
	(void)state;
	struct rig whole, broken;
	rig_init(&whole);
	rig_init(&broken);
	for (int step = 0; step < STEPS; step++) {
		for (int action = 0; action <= 2 * CHUNKS; action++)
			break_within(&broken, action, 3 * action + step);
		run_step(&whole);
		run_step(&broken);
		assert_int_equal(broken.traced, whole.traced);
		assert_memory_equal(broken.trace, whole.trace, whole.traced);
		expect_same_body(&whole, &broken);
		whole.traced = broken.traced = 0;
	}
	rig_deinit(&whole);
	rig_deinit(&broken);
}

static void an_update_under_way_is_made_though_nobody_hears_of_it(void **state)
{
	(void)state;
	struct rig whole, broken;
	struct gp_err err;
	rig_init(&whole);
	rig_init(&broken);
	run_step(&whole);
	for (int i = 0; i < 2 * CHUNKS; i++)
		act(&broken, i, 0);
	commit(&broken);
	cut(&broken);
	assert_int_equal(broken.committed, 0);
	assert_true(broken.idle > 0);
	OK(gp_body_broken(broken.body, &err));
	assert_int_equal(gp_body_steps(broken.body), 1);
	undo_both(&broken);
	come_back(&broken);
	expect_same_body(&whole, &broken);
	run_step(&whole);
	run_step(&broken);
	expect_same_body(&whole, &broken);
	rig_deinit(&whole);
	rig_deinit(&broken);
}

static void only_the_commit_may_be_missing(void **state)
{
	(void)state;
	struct rig whole, broken;
	rig_init(&whole);
	rig_init(&broken);
	run_step(&whole);
	for (int i = 0; i < 2 * CHUNKS; i++)
		act(&broken, i, 0);
	cut(&broken);
	come_back(&broken);
	commit(&broken);
	turn_until(&broken, &broken.committed, 1);
	expect_same_body(&whole, &broken);
	rig_deinit(&whole);
	rig_deinit(&broken);
}

static void evaluations_and_parameters_are_asked_for_again(void **state)
{
	(void)state;
	struct rig r;
	struct gp_err err;
	rig_init(&r);
	run_step(&r);
	for (int turns = 0; turns < 12; turns++) {
		for (uint32_t chunk = 0; chunk < WINDOW; chunk++)
			send_tensor(&r, GP_ACT_UP, chunk, 0, GP_FRAME_FLAG_EVAL);
		for (int i = 0; i < turns; i++)
			uv_run(&r.loop, UV_RUN_NOWAIT);
		cut(&r);
		undo_both(&r);
		come_back(&r);
		OK(gp_body_fetch_params(r.body, &err));
		for (int i = 0; i < turns; i++)
			uv_run(&r.loop, UV_RUN_NOWAIT);
		cut(&r);
		undo_both(&r);
		come_back(&r);
	}
	r.params = r.params_sent = 0;
	OK(gp_body_fetch_params(r.body, &err));
	turn_until(&r, &r.params, r.body->spec.graph->params);
	turn_until(&r, &r.params_sent, 1);
	r.answers = 0;
	send_tensor(&r, GP_ACT_UP, 0, 0, GP_FRAME_FLAG_EVAL);
	turn_until(&r, &r.answers, 1);
	run_step(&r);
	rig_deinit(&r);
}

#define CALIBRATE (GP_FRAME_FLAG_EVAL | GP_FRAME_FLAG_CALIBRATE)

static void calibrate(struct rig *r, uint32_t chunk)
{
	const int answers = r->answers;
	send_tensor(r, GP_ACT_UP, chunk, 0, CALIBRATE);
	turn_until(r, &r->answers, answers + 1);
}

/* Chunk 1 has been computed when the link breaks, and comes again. */
static void statistics_taken_anew_know_no_broken_link(void **state)
{
	(void)state;
	struct rig whole, broken;
	rig_init(&whole);
	rig_init(&broken);
	run_step(&whole);
	run_step(&broken);
	for (uint32_t chunk = 0; chunk < 4; chunk++)
		calibrate(&whole, chunk);
	calibrate(&broken, 0);
	calibrate(&broken, 1);
	cut(&broken);
	undo_both(&broken);
	come_back(&broken);
	for (uint32_t chunk = 1; chunk < 4; chunk++)
		calibrate(&broken, chunk);
	expect_same_body(&whole, &broken);
	run_step(&whole);
	run_step(&broken);
	expect_same_body(&whole, &broken);
	rig_deinit(&whole);
	rig_deinit(&broken);
}

static void refuses(struct rig *r, uint32_t chunk, const char *why)
{
	struct gp_frame *f;
	struct gp_err err;
	const struct gp_transfer *t =
		&flow_of(r, GP_ACT_UP)->slot[chunk % WINDOW]; /* has been sent: a head that is right */
	struct gp_frame_head head = t->frame.head;
	head.chunk = chunk;
	assert_int_equal(gp_body_frame_begin(r->body, &head, &f, &err), GP_PROTO);
	if (!strstr(err.text, why))
		fail_msg("'%s' does not say '%s'", err.text, why);
}

static void chunks_with_calibrate_come_in_order_and_where_open_asked(void **state)
{
	(void)state;
	struct rig r;
	rig_init(&r);
	calibrate(&r, 0);
	calibrate(&r, 1);
	refuses(&r, 3, "not expected (next is 2)");
	calibrate(&r, 0);
	refuses(&r, 2, "not expected (next is 1)");
	run_step(&r);
	send_tensor(&r, GP_ACT_UP, 0, 0, GP_FRAME_FLAG_EVAL);
	turn_until(&r, &r.answers, r.answers + 1);
	calibrate(&r, 0);
	r.body->spec.session.calibrates = false;
	refuses(&r, 0, "has not asked for it");
	rig_deinit(&r);
}

static void fail_later(struct gp_task *t)
{
	t->status = gp_err_set(&t->err, GP_DEVICE, 0, __FILE__, __LINE__, "the device is gone");
}

static void on_failed_later(struct gp_task *t)
{
	(void)gp_body_task_ok(t->arg, t);
}

static void what_fails_without_a_link_is_told_before_it_goes_on(void **state)
{
	(void)state;
	struct rig r;
	struct gp_err err;
	struct gp_task task = {.run = fail_later, .done = on_failed_later};
	rig_init(&r);
	OK(gp_body_broken(r.body, &err));
	task.arg = r.body;
	gp_worker_submit(&r.body->compute, &task, 0);
	cut(&r);
	assert_int_equal(gp_body_broken(r.body, &err), GP_DEVICE);
	assert_string_equal(err.text, "the device is gone");
	come_back(&r);
	rig_deinit(&r);
}

static void a_body_without_a_link_can_be_given_up(void **state)
{
	(void)state;
	struct rig r;
	rig_init(&r);
	act(&r, 0, 0);
	send_tensor(&r, GP_ACT_UP, 1, 0, 0);
	cut(&r);
	gp_body_stop(r.body);
	assert_false(gp_body_busy(r.body));
	come_back(&r);
	rig_deinit(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_goes_on_wherever_the_link_broke),
		cmocka_unit_test(an_update_under_way_is_made_though_nobody_hears_of_it),
		cmocka_unit_test(only_the_commit_may_be_missing),
		cmocka_unit_test(evaluations_and_parameters_are_asked_for_again),
		cmocka_unit_test(statistics_taken_anew_know_no_broken_link),
		cmocka_unit_test(chunks_with_calibrate_come_in_order_and_where_open_asked),
		cmocka_unit_test(what_fails_without_a_link_is_told_before_it_goes_on),
		cmocka_unit_test(a_body_without_a_link_can_be_given_up),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	on_card = can_emulate();
	if (on_card)
		failed += cmocka_run_group_tests_name("with codecs on a card", tests, NULL, NULL);
	return failed;
}
