/* SPDX-License-Identifier: Apache-2.0
 *
 * What crosses the cuts of a model (client/engine/crossing.h): names, types, which of it
 * is compressed, and where gradients have a use.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "client/engine/crossing.h"
#include "client/job/freeze.h"
#include "client/models/models.h"
#include "tests/unit/ok.h"

/* "act_up mask i32 raw, ...": everything that crosses, in order. The codec that was asked for is fp16. */
static const char *list(const char *model, const char *cut_text, const char *frozen, bool eval_only,
			struct gp_crossing **out)
{
	static char text[1000];
	struct gp_session_spec session = {.chunk_samples = 3, .chunks = 2, .window = 2, .eval_only = eval_only};
	struct gp_graph *g;
	struct gp_cut cut;
	int count;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		OK(gp_codec_spec_parse("fp16", &session.codec[d], &err));
	OK(gp_model_build(model, NULL, &g, &err));
	OK(gp_cut_parse(g, cut_text, &cut, &err));
	if (frozen)
		OK(gp_freeze(g, &cut, frozen, &count, &err));
	OK(gp_crossing_find(g, &cut, &session, out, &err));
	text[0] = '\0';
	for (int i = 0; i < (*out)->list.count; i++) {
		const struct gp_flow_spec *f = &(*out)->list.flow[i];
		assert_int_equal(f->type.shape.dim[0], 3);
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %s %s %s", i ? ", " : "",
			 gp_direction_info[f->direction].name,
			 gp_crossing_name((*out)->parts.body, f->direction, f->tensor), gp_dtype_name(f->type.dtype),
			 f->codec->text);
	}
	gp_graph_free(g);
	return text;
}

static void expect(const char *model, const char *cut, const char *frozen, const char *want, bool head_backward,
		   uint64_t tail_gradients)
{
	struct gp_crossing *c;
	assert_string_equal(list(model, cut, frozen, false, &c), want);
	assert_int_equal(c->head_backward, head_backward);
	assert_true(c->tail_gradients == tail_gradients);
	gp_crossing_free(c);
}

static void one_tensor_crosses_where_the_model_is_a_chain(void **state)
{
	(void)state;
	expect("cnn", "1:-1", NULL,
	       "act_up features.0.3 f32 fp16, act_down flatten f32 fp16, grad_up flatten f32 fp16, "
	       "grad_down features.0.3 f32 fp16",
	       true, 1);
}

static void integers_cross_as_they_are_and_have_no_gradient(void **state)
{
	(void)state;
	expect("fasttext", "1:-1", NULL,
	       "act_up mask i32 raw, act_up embedding f32 fp16, act_down pooling.1 f32 fp16, "
	       "grad_up pooling.1 f32 fp16, grad_down embedding f32 fp16",
	       true, 1);
	/* The tail reads the mask: input 0 of it, and input 1 comes from the body. */
	expect("fasttext", "1:-2", NULL,
	       "act_up embedding f32 fp16, act_down encoder.1 f32 fp16, grad_up encoder.1 f32 fp16, "
	       "grad_down embedding f32 fp16",
	       true, 2);
}

static void what_is_frozen_has_no_gradient(void **state)
{
	(void)state;
	expect("fasttext", "1:-1", "head",
	       "act_up mask i32 raw, act_up embedding f32 fp16, act_down pooling.1 f32 fp16, "
	       "grad_up pooling.1 f32 fp16",
	       false, 1);
	expect("fasttext", "1:-1", "head,body",
	       "act_up mask i32 raw, act_up embedding f32 fp16, act_down pooling.1 f32 fp16", false, 0);
	expect("fasttext", "1:-1", "body",
	       "act_up mask i32 raw, act_up embedding f32 fp16, act_down pooling.1 f32 fp16, "
	       "grad_up pooling.1 f32 fp16, grad_down embedding f32 fp16",
	       true, 1);
}

static void an_evaluation_has_no_gradients(void **state)
{
	(void)state;
	struct gp_crossing *c;
	assert_string_equal(list("cnn", "1:-1", NULL, true, &c),
			    "act_up features.0.3 f32 fp16, act_down flatten f32 fp16");
	assert_false(c->head_backward);
	assert_true(c->tail_gradients == 0);
	assert_int_equal(gp_crossing_count(c, GP_ACT_UP), 1);
	assert_int_equal(gp_crossing_count(c, GP_GRAD_UP), 0);
	gp_crossing_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_tensor_crosses_where_the_model_is_a_chain),
		cmocka_unit_test(integers_cross_as_they_are_and_have_no_gradient),
		cmocka_unit_test(what_is_frozen_has_no_gradient),
		cmocka_unit_test(an_evaluation_has_no_gradients),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
