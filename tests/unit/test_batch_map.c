/* SPDX-License-Identifier: Apache-2.0
 *
 * From batches to the inputs of a plan (client/engine/batch_map.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "client/engine/batch_map.h"
#include "client/models/models.h"
#include "common/base/mem.h"
#include "kernels/device_registry.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, BATCH = 6 };
static const struct gp_shape picture = {.ndim = 3, .dim = {SIDE, SIDE, 1}};

static struct gp_graph *make_graph(void)
{
	const struct gp_model_options o = {.classes = 3, .input = picture};
	struct gp_graph *g = NULL;
	struct gp_err err;
	assert_int_equal(gp_model_build("cnn:width=2", &o, &g, &err), GP_OK);
	return g;
}

static void assert_refused(const struct gp_graph *g, const struct gp_tensor_info *info, int tensors, const char *wanted)
{
	struct gp_batch_map f = {.inputs = 77};
	struct gp_err err = {0};
	assert_int_equal(gp_batch_map_make(g, info, tensors, &f, &err), GP_INVALID);
	assert_string_equal(err.text, wanted);
	assert_int_equal(f.inputs, 77);
}

static void one_tensor_belongs_to_one_input_whatever_it_is_called(void **state)
{
	(void)state;
	const struct gp_tensor_info image = {.name = "image", .type = {GP_F32, picture}};
	struct gp_graph *g = make_graph();
	struct gp_batch_map f;
	struct gp_err err;
	assert_int_equal(gp_batch_map_make(g, &image, 1, &f, &err), GP_OK);
	assert_int_equal(f.inputs, 1);
	assert_int_equal(f.tensor[0], 0);
	assert_int_equal(f.sample_bytes[0], PIXELS * 4);
	gp_graph_free(g);
}

static void among_several_tensors_the_name_decides(void **state)
{
	(void)state;
	const struct gp_tensor_info info[] = {{.name = "mask", .type = {GP_I32, {.ndim = 1, .dim = {5}}}},
					      {.name = "input", .type = {GP_F32, picture}}};
	struct gp_graph *g = make_graph();
	struct gp_batch_map f;
	struct gp_err err;
	assert_int_equal(gp_batch_map_make(g, info, 2, &f, &err), GP_OK);
	assert_int_equal(f.tensor[0], 1);
	gp_graph_free(g);
}

static void each_input_takes_the_tensor_of_its_name(void **state)
{
	(void)state;
	const struct gp_type row = {GP_I32, {.ndim = 1, .dim = {5}}}, longer = {GP_I32, {.ndim = 1, .dim = {6}}};
	const struct gp_tensor_info both[] = {{.name = "mask", .type = row}, {.name = "tokens", .type = row}},
				    wrong[] = {{.name = "mask", .type = longer}, {.name = "tokens", .type = row}};
	struct gp_err err;
	struct gp_batch_map f;
	struct gp_graph *g = gp_graph_new_empty("two", &err);
	assert_non_null(g);
	assert_int_equal(gp_graph_add_input(g, "tokens", &row, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "mask", &row, &err), 1);
	assert_int_equal(gp_batch_map_make(g, both, 2, &f, &err), GP_OK);
	assert_int_equal(f.inputs, 2);
	assert_int_equal(f.tensor[0], 1);
	assert_int_equal(f.tensor[1], 0);
	assert_refused(g, both, 1, "the model wants tokens (i32 5), mask (i32 5), the data has mask (i32 5)");
	assert_refused(g, wrong, 2,
		       "the model wants tokens (i32 5), mask (i32 5), the data has mask (i32 6), tokens (i32 5)");
	gp_graph_free(g);
}

static void what_does_not_fit_is_refused_with_both_sides(void **state)
{
	(void)state;
	const struct gp_type row = {GP_I32, {.ndim = 1, .dim = {128}}};
	const struct gp_tensor_info small = {.name = "image", .type = {GP_F32, {.ndim = 3, .dim = {4, 4, 1}}}};
	const struct gp_tensor_info whole = {.name = "image", .type = {GP_I32, picture}};
	const struct gp_tensor_info text[] = {{.name = "tokens", .type = row}, {.name = "mask", .type = row}};
	struct gp_graph *g = make_graph();
	assert_refused(g, &small, 1, "the model wants input (f32 8x8x1), the data has image (f32 4x4x1)");
	assert_refused(g, &whole, 1, "the model wants input (f32 8x8x1), the data has image (i32 8x8x1)");
	assert_refused(g, text, 2, "the model wants input (f32 8x8x1), the data has tokens (i32 128), mask (i32 128)");
	gp_graph_free(g);
}

static void a_chunk_arrives_in_its_slot_and_nothing_else_does(void **state)
{
	(void)state;
	struct gp_graph *g = make_graph();
	struct gp_device *device = NULL;
	struct gp_plan *plan = NULL;
	struct gp_batch_map f;
	struct gp_err err;
	static float images[BATCH * PIXELS];
	const struct gp_tensor_info image = {.name = "image", .type = {GP_F32, picture}};
	struct gp_batch b = {.tensors = 1, .info = &image, .data = {images}, .valid = BATCH, .room = BATCH};
	const struct gp_plan_spec ps = {.graph = g, .batch = 2, .slots = 2, .train = true};
	for (int i = 0; i < BATCH * PIXELS; i++)
		images[i] = (float)i;
	assert_int_equal(gp_device_open("cpu", 1, &device, &err), GP_OK);
	assert_int_equal(device->ops->plan_new(device, &ps, &plan, &err), GP_OK);
	assert_int_equal(gp_batch_map_of(g, &b, &f, &err), GP_OK);
	gp_batch_map_copy(&f, &b, 0, 2, 0, plan, 0, NULL);
	gp_batch_map_copy(&f, &b, 4, 2, 0, plan, 1, NULL);
	assert_memory_equal(plan->ops->buffer(plan, 0, GP_BUF_INPUT, 0), images, 2 * PIXELS * sizeof(float));
	assert_memory_equal(plan->ops->buffer(plan, 1, GP_BUF_INPUT, 0), images + 4 * PIXELS,
			    2 * PIXELS * sizeof(float));
	/* A part's input that the data does not feed is left alone. */
	const struct gp_port from_head = {GP_FROM_HEAD, 0};
	gp_batch_map_copy(&f, &b, 2, 2, 0, plan, 1, &from_head);
	assert_memory_equal(plan->ops->buffer(plan, 1, GP_BUF_INPUT, 0), images + 4 * PIXELS,
			    2 * PIXELS * sizeof(float));
	assert_ptr_equal(gp_batch_map_at(&f, &b, 0, 3), images + 3 * PIXELS);
	device->ops->plan_free(plan);
	device->ops->close(device);
	gp_graph_free(g);
}

static void values_without_a_row_in_the_embedding_are_refused(void **state)
{
	(void)state;
	const struct gp_type row = {GP_I32, {.ndim = 1, .dim = {5}}};
	struct gp_tensor_info info[] = {{.name = "mask", .type = row, .values = 2},
					{.name = "tokens", .type = row, .values = 50}};
	const struct gp_model_options o = {.input = row.shape, .values = 50};
	struct gp_graph *g = NULL;
	struct gp_batch_map m;
	struct gp_err err = {0};
	assert_int_equal(gp_model_build("fasttext", &o, &g, &err), GP_OK);
	assert_int_equal(gp_batch_map_make(g, info, 2, &m, &err), GP_OK);
	assert_int_equal(gp_batch_map_check_values(g, info, &m, &err), GP_OK);
	info[1].values = 0; /* unknown */
	assert_int_equal(gp_batch_map_check_values(g, info, &m, &err), GP_OK);
	info[1].values = 51;
	assert_int_equal(gp_batch_map_check_values(g, info, &m, &err), GP_INVALID);
	assert_string_equal(err.text, "the embedding 'embedding' has 50 rows, but 'tokens' of the data has values up "
				      "to 50; it needs 51 rows");
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_tensor_belongs_to_one_input_whatever_it_is_called),
		cmocka_unit_test(among_several_tensors_the_name_decides),
		cmocka_unit_test(each_input_takes_the_tensor_of_its_name),
		cmocka_unit_test(what_does_not_fit_is_refused_with_both_sides),
		cmocka_unit_test(a_chunk_arrives_in_its_slot_and_nothing_else_does),
		cmocka_unit_test(values_without_a_row_in_the_embedding_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
