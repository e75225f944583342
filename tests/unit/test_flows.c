/* SPDX-License-Identifier: Apache-2.0
 *
 * The flows of a session (common/wire/flows.h) and the table of directions
 * (common/wire/direction.h): which tensors cross, which of them have gradients,
 * which go through a codec; what a frame from a peer may claim.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"
#include "common/wire/flows.h"

enum { SAMPLES = 3, LENGTH = 5, FEATURES = 4 };

#define OK(expr)                                                                                                       \
	do {                                                                                                           \
		if ((expr) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)

/* Inputs: a mask (i32), words and a shift (f32). Outputs: their mean through a layer, and the shift passed on. */
static struct gp_graph *body_graph(void)
{
	struct gp_err err;
	struct gp_graph *g = gp_graph_new_empty("body", &err);
	const int mask = gp_graph_add_input(g, "mask", &(struct gp_type){GP_I32, {1, {LENGTH}}}, &err);
	const int words = gp_graph_add_input(g, "words", &(struct gp_type){GP_F32, {2, {LENGTH, FEATURES}}}, &err);
	const int shift = gp_graph_add_input(g, "shift", &(struct gp_type){GP_F32, {1, {FEATURES}}}, &err);
	OK(gp_graph_begin_block(g, "body", &err));
	int mean = gp_graph_masked_mean(g, "mean", words, mask, &err);
	mean = gp_graph_linear(g, "fc", mean, FEATURES, true, &err);
	mean = gp_graph_sum(g, "sum", mean, shift, &err);
	const int passed = gp_graph_unary(g, GP_OP_IDENTITY, "shift.pass", shift, &err);
	assert_true(passed > 0);
	OK(gp_graph_set_outputs(g, 2, (const int[]){mean, passed}, &err));
	OK(gp_graph_finish(g, &err));
	return g;
}

struct fixture {
	struct gp_graph *g;
	struct gp_flow_list list;
	struct gp_session_spec spec;
};

static void begin(struct fixture *f)
{
	static const char *const codecs[GP_DIRECTIONS] = {"uniform:bits=8", "fp16", "bf16", "topk:ratio=0.5"};
	struct gp_err err;
	memset(f, 0, sizeof *f);
	f->g = body_graph();
	for (int d = 0; d < GP_DIRECTIONS; d++)
		OK(gp_codec_spec_parse(codecs[d], &f->spec.codec[d], &err));
	f->spec.chunk_samples = SAMPLES;
}

static const struct gp_flow_spec *flow_of(const struct gp_flow_list *list, enum gp_direction d, int tensor)
{
	for (int i = 0; i < list->count; i++)
		if (list->flow[i].direction == d && list->flow[i].tensor == tensor)
			return &list->flow[i];
	return NULL;
}

/* "raw", "uniform:..." or "-" where there is no such flow. */
static void expect_codecs(const struct fixture *f, enum gp_direction d, int tensors, const char *const *codecs)
{
	for (int i = 0; i < tensors; i++) {
		const struct gp_flow_spec *s = flow_of(&f->list, d, i);
		const char *is = s ? s->codec->text : "-";
		if (strncmp(is, codecs[i], strlen(codecs[i])) != 0)
			fail_msg("%s.%d: %s, not %s", gp_direction_info[d].name, i, is, codecs[i]);
	}
	assert_null(flow_of(&f->list, d, tensors));
}

static void the_four_directions_belong_together(void **state)
{
	(void)state;
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const struct gp_direction_info *a = &gp_direction_info[d], *b = &gp_direction_info[a->partner];
		enum gp_direction back;
		assert_true((int)b->partner == d && a->up != b->up && a->gradient != b->gradient);
		assert_true(a->at_input == b->at_input);
		assert_true(gp_direction_of_frame(a->frame, &back) && (int)back == d);
		assert_string_equal(a->name, gp_frame_type_name(a->frame));
	}
	enum gp_direction none;
	assert_false(gp_direction_of_frame(GP_FRAME_PARAM_UP, &none));
	assert_false(gp_direction_of_frame(GP_FRAME_TYPE_COUNT, &none));
}

static void activations_are_coded_and_integers_travel_raw_without_gradient(void **state)
{
	(void)state;
	struct fixture f;
	struct gp_err err;
	begin(&f);
	OK(gp_flow_list_find(f.g, &f.spec, &f.list, &err));
	expect_codecs(&f, GP_ACT_UP, 3, (const char *const[]){"raw", "uniform", "uniform"});
	expect_codecs(&f, GP_ACT_DOWN, 2, (const char *const[]){"fp16", "fp16"});
	expect_codecs(&f, GP_GRAD_UP, 2, (const char *const[]){"bf16", "bf16"});
	expect_codecs(&f, GP_GRAD_DOWN, 3, (const char *const[]){"-", "topk", "topk"});
	assert_true(f.list.grad_inputs == 6 && f.list.grad_outputs == 3);
	const struct gp_flow_spec *words = flow_of(&f.list, GP_ACT_UP, 1);
	assert_true(words->has_gradient && words->type.shape.ndim == 3 && words->type.shape.dim[0] == SAMPLES);
	assert_false(flow_of(&f.list, GP_ACT_UP, 0)->has_gradient);
	gp_graph_free(f.g);
}

static void data_and_frozen_inputs_are_as_the_masks_say(void **state)
{
	(void)state;
	struct fixture f;
	struct gp_err err;
	begin(&f);
	f.spec.data_inputs = 4;   /* the shift comes from no parameter */
	f.spec.frozen_inputs = 6; /* nothing before the body is trained */
	OK(gp_flow_list_find(f.g, &f.spec, &f.list, &err));
	expect_codecs(&f, GP_ACT_UP, 3, (const char *const[]){"raw", "uniform", "raw"});
	expect_codecs(&f, GP_ACT_DOWN, 2, (const char *const[]){"fp16", "raw"});
	expect_codecs(&f, GP_GRAD_UP, 2, (const char *const[]){"bf16", "-"});
	expect_codecs(&f, GP_GRAD_DOWN, 0, NULL);
	assert_true(f.list.grad_inputs == 0 && f.list.grad_outputs == 1);
	assert_int_equal(gp_graph_freeze(f.g, "*"), 2);
	OK(gp_flow_list_find(f.g, &f.spec, &f.list, &err));
	expect_codecs(&f, GP_GRAD_UP, 0, NULL);
	gp_graph_free(f.g);
}

static void an_evaluation_has_no_gradients(void **state)
{
	(void)state;
	struct fixture f;
	struct gp_err err;
	begin(&f);
	f.spec.eval_only = true;
	OK(gp_flow_list_find(f.g, &f.spec, &f.list, &err));
	assert_int_equal(f.list.count, 5);
	expect_codecs(&f, GP_GRAD_UP, 0, NULL);
	expect_codecs(&f, GP_GRAD_DOWN, 0, NULL);
	assert_false(flow_of(&f.list, GP_ACT_UP, 1)->has_gradient);
	gp_graph_free(f.g);
}

static void masks_that_name_no_input_are_refused(void **state)
{
	(void)state;
	struct fixture f;
	struct gp_err err;
	begin(&f);
	f.spec.data_inputs = 8;
	assert_int_equal(gp_flow_list_find(f.g, &f.spec, &f.list, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "data_inputs 0x8"));
	f.spec.data_inputs = 0;
	f.spec.frozen_inputs = UINT64_MAX;
	assert_int_equal(gp_flow_list_find(f.g, &f.spec, &f.list, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "frozen_inputs"));
	gp_graph_free(f.g);
}

static void expect_refused(struct gp_flows *flows, struct gp_frame_head head, const char *words)
{
	struct gp_transfer *t = NULL;
	struct gp_err err;
	assert_int_equal(gp_flows_take(flows, &head, 1, &t, &err), GP_PROTO);
	assert_null(t);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
}

static void a_frame_finds_its_transfer_or_is_refused(void **state)
{
	(void)state;
	struct fixture f;
	struct gp_err err;
	struct gp_flows flows;
	struct gp_transfer *t;
	uv_loop_t loop;
	struct gp_worker *worker;
	const struct gp_flow_options all = {.slots = 2, .chunks = 2, .client = false};
	uint64_t frames, codecs;
	char name[24];
	begin(&f);
	assert_int_equal(uv_loop_init(&loop), 0);
	OK(gp_worker_new(&loop, "codec", 1, &worker, &err));
	OK(gp_flow_list_find(f.g, &f.spec, &f.list, &err));
	OK(gp_flows_estimate(&f.list, &all, &frames, &codecs, &err));
	assert_true(frames > (uint64_t)f.list.count * 2 * sizeof(struct gp_transfer)); /* of two slots */
	OK(gp_flows_init(&flows, &f.list, &all, worker, NULL, &err));
	assert_true(flows.tensors[GP_GRAD_DOWN] == 3 && flows.used[GP_GRAD_DOWN] == 2);
	struct gp_frame_head head = {
		.type = GP_FRAME_ACT_UP, .tensor = 1, .codec = f.spec.codec[GP_ACT_UP].stage[0].id};
	OK(gp_flows_take(&flows, &head, 1, &t, &err));
	assert_true(t == &flows.flow[GP_ACT_UP][1].slot[1]);
	assert_string_equal(gp_flow_name(t->flow, name), "act_up.1");
	head.payload_len = t->frame.cap + 1;
	expect_refused(&flows, head, "over the");
	head.payload_len = 0;
	head.tensor = 0; /* raw */
	expect_refused(&flows, head, "names codec");
	head.tensor = 3;
	expect_refused(&flows, head, "tensor 3, which does not cross");
	head.tensor = UINT16_MAX;
	expect_refused(&flows, head, "does not cross");
	head.type = GP_FRAME_GRAD_DOWN;
	head.tensor = 0; /* of integers */
	expect_refused(&flows, head, "tensor 0, which does not cross");
	head.type = GP_FRAME_PARAM_UP;
	expect_refused(&flows, head, "no place");
	gp_flows_deinit(&flows);
	gp_worker_free(worker);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	gp_graph_free(f.g);
}

/* Whether the next step's chunks may go up before COMMIT, in a session with this codec of ACT_UP. */
static bool runs_ahead(struct fixture *f, const char *act_up, bool client)
{
	struct gp_flows flows;
	struct gp_worker *worker;
	struct gp_err err;
	uv_loop_t loop;
	const struct gp_flow_options all = {.slots = 1, .chunks = 2, .client = client};
	OK(gp_codec_spec_parse(act_up, &f->spec.codec[GP_ACT_UP], &err));
	OK(gp_flow_list_find(f->g, &f->spec, &f->list, &err));
	assert_int_equal(uv_loop_init(&loop), 0);
	OK(gp_worker_new(&loop, "codec", 1, &worker, &err));
	OK(gp_flows_init(&flows, &f->list, &all, worker, NULL, &err));
	const bool ahead = gp_flows_ahead(&flows, &f->spec);
	gp_flows_deinit(&flows);
	gp_worker_free(worker);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	return ahead;
}

static void chunks_run_ahead_where_no_gradient_comes_down_and_no_codec_remembers(void **state)
{
	(void)state;
	struct fixture f;
	begin(&f);
	assert_false(runs_ahead(&f, "raw", true));
	f.spec.frozen_inputs = 6;
	assert_true(runs_ahead(&f, "raw", true));
	assert_true(runs_ahead(&f, "topk:ratio=0.5", false));
	assert_false(runs_ahead(&f, "delta:samples=8+uniform:bits=8", true));
	assert_false(runs_ahead(&f, "delta:samples=8+uniform:bits=8", false));
	assert_false(runs_ahead(&f, "ef+uniform:bits=8", true));
	f.spec.eval_only = true;
	assert_false(runs_ahead(&f, "raw", true));
	gp_graph_free(f.g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_four_directions_belong_together),
		cmocka_unit_test(activations_are_coded_and_integers_travel_raw_without_gradient),
		cmocka_unit_test(data_and_frozen_inputs_are_as_the_masks_say),
		cmocka_unit_test(an_evaluation_has_no_gradients),
		cmocka_unit_test(masks_that_name_no_input_are_refused),
		cmocka_unit_test(a_frame_finds_its_transfer_or_is_refused),
		cmocka_unit_test(chunks_run_ahead_where_no_gradient_comes_down_and_no_codec_remembers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
