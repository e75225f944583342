/* SPDX-License-Identifier: Apache-2.0
 *
 * A body (server/body.h) whose ranks will change: what all of them take is
 * estimated before it is ready, in turns with other sessions. Where the build has
 * an emulated GPU, once more with codecs that work in its memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/body_rig.h"
#include "common/graph/ops/op_linear.h"

static struct gp_body_spec decaying_spec(void)
{
	const struct gp_shape sample = {.ndim = 1, .dim = {12}};
	struct gp_err err;
	struct gp_body_spec s = {.graph = gp_graph_new("body", &sample, &err),
				 .id = SESSION,
				 .session.chunk_samples = SAMPLES,
				 .session.window = WINDOW,
				 .session.chunks = CHUNKS,
				 .session.undo = true};
	OK(gp_graph_begin_block(s.graph, "block", &err));
	assert_true(gp_graph_linear(s.graph, "decoder", 0, 12, false, &err) > 0);
	OK(gp_graph_finish(s.graph, &err));
	s.session.decays = (struct gp_decays){.count = 1, .decay = {{"encoder", "decoder", 0.5, 1, 3, 0}}};
	for (int d = 0; d < GP_DIRECTIONS; d++)
		OK(gp_codec_spec_parse("raw", &s.session.codec[d], &err));
	return s;
}

static atomic_bool gate_is_open;
static int turns_of_others, turns_before_estimated;

static void run_gate(struct gp_task *t)
{
	(void)t;
	while (!atomic_load(&gate_is_open))
		usleep(1000);
}

static void run_nothing(struct gp_task *t)
{
	(void)t;
}

static void ignore(struct gp_task *t)
{
	(void)t;
}

static void count_turn(struct gp_task *t)
{
	(void)t;
	turns_of_others++;
}

static enum gp_status ranks_estimated(void *arg, const struct gp_body_need *need, struct gp_body_site *at,
				      struct gp_err *err)
{
	(void)err;
	assert_true(need->host > 0);
	assert_ptr_equal(at->dev, ((struct rig *)arg)->dev);
	turns_before_estimated = turns_of_others;
	return GP_OK;
}

/* A schedule may have many changes, and each is estimated as long as a whole session without any. */
static void others_have_their_turns_between_the_estimates_of_ranks(void **state)
{
	(void)state;
	static const struct gp_body_cbs cbs = {
		.estimated = ranks_estimated, .ready = body_ready, .failed = body_failed, .idle = body_idle};
	const struct gp_body_spec spec = decaying_spec();
	struct gp_task gate = {.run = run_gate, .done = ignore}, other = {.run = run_nothing, .done = count_turn};
	struct gp_lane gate_lane, other_lane;
	struct gp_err err;
	struct rig r = {.closed = 0};
	turns_of_others = 0;
	atomic_store(&gate_is_open, false);
	assert_int_equal(uv_loop_init(&r.loop), 0);
	open_device(&r.dev);
	OK(gp_worker_new(&r.loop, "compute", 1, &r.compute, &err));
	OK(gp_worker_new(&r.loop, "codec", 1, &r.codec, &err));
	const struct gp_body_workers workers = {.build = r.codec, .codec = r.codec};
	const struct gp_body_site at = {r.dev, r.compute};
	connect_ends(&r);
	gp_lane_init(&gate_lane, r.codec, NULL);
	gp_lane_init(&other_lane, r.codec, NULL);
	gp_worker_submit(&gate_lane, &gate, 0);
	OK(gp_body_new(&at, &workers, r.ch[0], &spec, &cbs, &r, &r.body, &err));
	gp_worker_submit(&other_lane, &other, 0); /* behind the first estimate */
	atomic_store(&gate_is_open, true);
	turn_until(&r, &r.ready, 1);
	assert_int_equal(turns_before_estimated, 1);
	gp_lane_deinit(&gate_lane);
	gp_lane_deinit(&other_lane);
	rig_deinit(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(others_have_their_turns_between_the_estimates_of_ranks),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	on_card = can_emulate();
	if (on_card)
		failed += cmocka_run_group_tests_name("with codecs on a card", tests, NULL, NULL);
	return failed;
}
