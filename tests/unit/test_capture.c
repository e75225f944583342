/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors at a cut (client/capture.h): the same wherever else the model is
 * cut, of the weights that were given, and none when something goes wrong.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/capture.h"
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

static void assert_same(const struct gp_capture *a, enum gp_capture_tensor i, const struct gp_capture *b,
			enum gp_capture_tensor k)
{
	assert_true(gp_shape_equal(&a->shape[i], &b->shape[k]));
	assert_memory_equal(a->tensor[i], b->tensor[k], gp_shape_elements(&a->shape[i]) * sizeof(float));
}

static void tensors_have_the_shapes_of_the_cuts_and_are_not_empty(void **state)
{
	struct gp_capture c = capture(*state, "1:2", NULL);
	const struct gp_shape up = {.ndim = 4, .dim = {SAMPLES, 8, 8, 8}},
			      down = {.ndim = 4, .dim = {SAMPLES, 4, 4, 16}};
	assert_true(gp_shape_equal(&c.shape[GP_CAPTURE_ACT_UP], &up));
	assert_true(gp_shape_equal(&c.shape[GP_CAPTURE_GRAD_DOWN], &up));
	assert_true(gp_shape_equal(&c.shape[GP_CAPTURE_ACT_DOWN], &down));
	assert_true(gp_shape_equal(&c.shape[GP_CAPTURE_GRAD_UP], &down));
	for (int i = 0; i < GP_CAPTURES; i++) {
		double sum = 0;
		for (size_t k = 0; k < gp_shape_elements(&c.shape[i]); k++)
			sum += fabs((double)c.tensor[i][k]);
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
	assert_same(&a, GP_CAPTURE_ACT_DOWN, &b, GP_CAPTURE_ACT_UP);
	assert_same(&a, GP_CAPTURE_GRAD_UP, &b, GP_CAPTURE_GRAD_DOWN);
	assert_same(&a, GP_CAPTURE_ACT_UP, &c, GP_CAPTURE_ACT_UP);
	assert_same(&a, GP_CAPTURE_GRAD_DOWN, &c, GP_CAPTURE_GRAD_DOWN);
	assert_same(&b, GP_CAPTURE_ACT_DOWN, &c, GP_CAPTURE_ACT_DOWN);
	assert_same(&b, GP_CAPTURE_GRAD_UP, &c, GP_CAPTURE_GRAD_UP);
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
	for (int i = 0; i < GP_CAPTURES; i++)
		assert_same(&drawn, (enum gp_capture_tensor)i, &given, (enum gp_capture_tensor)i);
	const int bias = gp_graph_find_param(r->graph, "classifier.bias");
	w->value[bias][0] += 1;
	struct gp_capture other = capture(r, "1:2", w);
	assert_same(&other, GP_CAPTURE_ACT_DOWN, &drawn, GP_CAPTURE_ACT_DOWN);
	assert_true(other.loss != drawn.loss);
	gp_capture_deinit(&drawn);
	gp_capture_deinit(&given);
	gp_capture_deinit(&other);
	gp_weights_free(w);
}

static void a_failure_leaves_the_result_as_it_was(void **state)
{
	struct rig *r = *state;
	struct gp_err err = {0};
	struct gp_capture out = {.loss = 17};
	struct gp_capture_spec spec = {.graph = r->graph, .cut = {1, 2}, .device = "abacus", .threads = 1};
	assert_true(gp_capture_run(&spec, &r->batch, &out, &err) != GP_OK);
	assert_true(out.loss == 17 && !out.tensor[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensors_have_the_shapes_of_the_cuts_and_are_not_empty),
		cmocka_unit_test(a_tensor_is_the_same_seen_from_both_sides_of_its_cut),
		cmocka_unit_test(weights_that_are_given_are_those_that_compute),
		cmocka_unit_test(a_failure_leaves_the_result_as_it_was),
	};
	return cmocka_run_group_tests(tests, make_rig, free_rig);
}
