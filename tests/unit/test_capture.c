/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors at a cut (client/train/capture.h): the same wherever else the model is
 * cut, of the weights that were given, and none when something goes wrong.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/train/capture.h"
#include "client/models/models.h"
#include "common/graph/graph_part.h"
#include "tests/unit/picture_batch.h"

enum { SAMPLES = 6, IMAGE = 16 * 16 };

struct rig {
	struct gp_graph *graph;
	float images[SAMPLES * IMAGE];
	int32_t labels[SAMPLES];
	struct gp_batch batch;
};

static int make_rig(void **state)
{
	static struct rig r;
	struct gp_err err = {0};
	const struct gp_model_options model = {.classes = 10, .input = {.ndim = 3, .dim = {16, 16, 1}}};
	for (int i = 0; i < SAMPLES * IMAGE; i++)
		r.images[i] = sinf((float)i * 0.37f) * cosf((float)(i / IMAGE) + 1);
	for (int i = 0; i < SAMPLES; i++)
		r.labels[i] = i % 10;
	r.batch = picture_batch(r.images, &model.input, r.labels, NULL, SAMPLES);
	*state = &r;
	return gp_model_build("cnn:width=8", &model, &r.graph, &err) == GP_OK ? 0 : -1;
}

static int free_rig(void **state)
{
	gp_graph_free(((struct rig *)*state)->graph);
	return 0;
}

static struct gp_capture capture(struct rig *r, const char *cut, const struct gp_weights *weights)
{
	struct gp_err err = {0};
	struct gp_capture_spec spec = {.graph = r->graph, .weights = weights, .device = "cpu", .threads = 1, .seed = 3};
	struct gp_capture out = {0};
	assert_int_equal(gp_cut_parse(r->graph, cut, &spec.cut, &err), GP_OK);
	if (gp_capture_run(&spec, &r->batch, &out, &err) != GP_OK)
		fail_msg("%s", err.text);
	return out;
}

static const struct gp_captured *tensor(const struct gp_capture *c, const char *name)
{
	const struct gp_captured *t = gp_capture_find(c, name);
	if (!t)
		fail_msg("no tensor %s", name);
	return t;
}

static void assert_same(const struct gp_capture *a, const char *i, const struct gp_capture *b, const char *k)
{
	const struct gp_captured *x = tensor(a, i), *y = tensor(b, k);
	assert_true(gp_type_equal(&x->type, &y->type));
	assert_memory_equal(x->data, y->data, gp_shape_elements(&x->type.shape) * gp_dtype_bytes(x->type.dtype));
}

static void tensors_have_the_shapes_of_the_cuts_and_are_not_empty(void **state)
{
	struct gp_capture c = capture(*state, "1:2", NULL);
	const struct gp_type up = {GP_F32, {.ndim = 4, .dim = {SAMPLES, 8, 8, 8}}},
			     down = {GP_F32, {.ndim = 4, .dim = {SAMPLES, 4, 4, 16}}};
	assert_int_equal(c.count, GP_DIRECTIONS);
	assert_true(gp_type_equal(&tensor(&c, "act_up")->type, &up));
	assert_true(gp_type_equal(&tensor(&c, "grad_down")->type, &up));
	assert_true(gp_type_equal(&tensor(&c, "act_down")->type, &down));
	assert_true(gp_type_equal(&tensor(&c, "grad_up")->type, &down));
	for (int i = 0; i < c.count; i++) {
		const float *x = c.tensor[i].data;
		double sum = 0;
		for (size_t k = 0; k < gp_shape_elements(&c.tensor[i].type.shape); k++)
			sum += fabs((double)x[k]);
		assert_true(isfinite(sum) && sum > 0);
	}
	assert_true(c.loss > 1 && c.loss < 5);
	gp_capture_deinit(&c);
}

/* What comes down at one cut goes up where the next part begins there: a chain of parts is the whole model. */
static void a_tensor_is_the_same_seen_from_both_sides_of_its_cut(void **state)
{
	struct gp_capture a = capture(*state, "1:2", NULL), b = capture(*state, "2:3", NULL),
			  c = capture(*state, "1:3", NULL);
	assert_same(&a, "act_down", &b, "act_up");
	assert_same(&a, "grad_up", &b, "grad_down");
	assert_same(&a, "act_up", &c, "act_up");
	assert_same(&a, "grad_down", &c, "grad_down");
	assert_same(&b, "act_down", &c, "act_down");
	assert_same(&b, "grad_up", &c, "grad_up");
	assert_true(a.loss == b.loss && a.loss == c.loss);
	gp_capture_deinit(&a);
	gp_capture_deinit(&b);
	gp_capture_deinit(&c);
}

static void weights_that_are_given_are_those_that_compute(void **state)
{
	struct rig *r = *state;
	struct gp_err err = {0};
	struct gp_weights *w;
	assert_int_equal(gp_weights_new(r->graph, &w, &err), GP_OK);
	gp_weights_init(w, 3);
	struct gp_capture drawn = capture(r, "1:2", NULL), given = capture(r, "1:2", w);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		assert_same(&drawn, gp_direction_info[d].name, &given, gp_direction_info[d].name);
	const int bias = gp_graph_find_param(r->graph, "classifier.bias");
	w->value[bias][0] += 1;
	struct gp_capture other = capture(r, "1:2", w);
	assert_same(&other, "act_down", &drawn, "act_down");
	assert_true(other.loss != drawn.loss);
	gp_capture_deinit(&drawn);
	gp_capture_deinit(&given);
	gp_capture_deinit(&other);
	gp_weights_free(w);
}

/* With a frozen head nothing comes down, with a frozen head and body no gradient goes up either. */
static void gradients_are_there_only_where_a_split_run_sends_them(void **state)
{
	struct rig *r = *state;
	struct gp_err err;
	struct gp_graph *whole = r->graph;
	const struct gp_model_options model = {.classes = 10, .input = {.ndim = 3, .dim = {16, 16, 1}}};
	assert_int_equal(gp_model_build("cnn:width=8", &model, &r->graph, &err), GP_OK);
	gp_graph_freeze_blocks(r->graph, 0, 1);
	struct gp_capture c = capture(r, "1:2", NULL);
	assert_int_equal(c.count, 3);
	assert_non_null(gp_capture_find(&c, "grad_up"));
	assert_null(gp_capture_find(&c, "grad_down"));
	gp_capture_deinit(&c);
	gp_graph_freeze_blocks(r->graph, 1, 2);
	c = capture(r, "1:2", NULL);
	assert_int_equal(c.count, 2);
	assert_non_null(gp_capture_find(&c, "act_down"));
	gp_capture_deinit(&c);
	gp_graph_free(r->graph);
	r->graph = whole;
}

/* Tokens stay here, the mask crosses as it is, beside the embedding. */
static void every_tensor_that_crosses_is_there_by_its_name(void **state)
{
	(void)state;
	enum { TEXTS = 3, TOKENS = 5 };
	int32_t tokens[TEXTS * TOKENS], mask[TEXTS * TOKENS], labels[TEXTS] = {0, 1, 0};
	const struct gp_type row = {GP_I32, {.ndim = 1, .dim = {TOKENS}}};
	const struct gp_tensor_info info[] = {{.name = "tokens", .type = row, .values = 9},
					      {.name = "mask", .type = row}};
	const struct gp_model_options model = {.input = row.shape, .values = 9};
	for (int i = 0; i < TEXTS * TOKENS; i++) {
		tokens[i] = i * 5 % 9;
		mask[i] = i % TOKENS < 3;
	}
	struct rig r = {.batch = {.tensors = 2,
				  .info = info,
				  .data = {tokens, mask},
				  .label_info = {.name = "label", .type = {.dtype = GP_I32}},
				  .label = labels,
				  .valid = TEXTS,
				  .room = TEXTS}};
	struct gp_err err;
	assert_int_equal(gp_model_build("fasttext:dim=6,hidden=4", &model, &r.graph, &err), GP_OK);
	struct gp_capture c = capture(&r, "1:-1", NULL);
	const struct gp_type chunk = {GP_I32, {.ndim = 2, .dim = {TEXTS, TOKENS}}};
	assert_int_equal(c.count, 5);
	assert_true(gp_type_equal(&tensor(&c, "act_up.mask")->type, &chunk));
	assert_memory_equal(tensor(&c, "act_up.mask")->data, mask, sizeof mask);
	const struct gp_captured *words = tensor(&c, "act_up.embedding"), *back = tensor(&c, "grad_down");
	assert_true(gp_type_equal(&words->type, &back->type) && words->type.shape.dim[2] == 6);
	const float *dx = back->data;
	for (int i = 0; i < TEXTS * TOKENS; i++) {
		double sum = 0;
		for (int k = 0; k < 6; k++)
			sum += fabs((double)dx[i * 6 + k]);
		assert_true(mask[i] || sum == 0); /* no gradient where there is no token */
	}
	struct gp_capture later = capture(&r, "2:-1", NULL), tail = capture(&r, "1:-2", NULL);
	assert_same(&later, "act_up.encoder.1", &tail, "act_down");
	assert_same(&later, "grad_down", &tail, "grad_up");
	assert_same(&tail, "act_up", &c, "act_up.embedding"); /* the mask is read by the tail, and stays here */
	assert_same(&tail, "grad_down", &c, "grad_down");
	gp_capture_deinit(&c);
	gp_capture_deinit(&later);
	gp_capture_deinit(&tail);
	gp_graph_free(r.graph);
}

static void a_failure_leaves_the_result_as_it_was(void **state)
{
	struct rig *r = *state;
	struct gp_err err = {0};
	struct gp_capture out = {.loss = 17};
	struct gp_capture_spec spec = {.graph = r->graph, .cut = {1, 2}, .device = "abacus", .threads = 1};
	assert_true(gp_capture_run(&spec, &r->batch, &out, &err) != GP_OK);
	assert_true(out.loss == 17 && !out.tensor);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensors_have_the_shapes_of_the_cuts_and_are_not_empty),
		cmocka_unit_test(a_tensor_is_the_same_seen_from_both_sides_of_its_cut),
		cmocka_unit_test(weights_that_are_given_are_those_that_compute),
		cmocka_unit_test(gradients_are_there_only_where_a_split_run_sends_them),
		cmocka_unit_test(every_tensor_that_crosses_is_there_by_its_name),
		cmocka_unit_test(a_failure_leaves_the_result_as_it_was),
	};
	return cmocka_run_group_tests(tests, make_rig, free_rig);
}
