/* SPDX-License-Identifier: Apache-2.0
 *
 * What a graph is estimated to cost (common/graph/graph_work.h), and what OPEN
 * makes of it (server/open.h): a client cannot make a device work for long by
 * nodes that have little to show. And a plan that is stopped between two nodes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/stop.h"
#include "common/graph/graph_work.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_rows.h"
#include "common/graph/ops/op_shape.h"
#include "common/graph/ops/op_take_rows.h"
#include "kernels/device_registry.h"
#include "server/open.h"

static struct gp_err err;

#define OK(expr)                                                                                                       \
	do {                                                                                                           \
		if ((expr) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)

static struct gp_graph *image_graph(int64_t h, int64_t w, int64_t c)
{
	struct gp_graph *g = gp_graph_new("g", &(struct gp_shape){.ndim = 3, .dim = {h, w, c}}, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "b", &err));
	return g;
}

static void check_both(const struct gp_graph *g, uint64_t macs, uint64_t elements)
{
	struct gp_work f, b;
	gp_graph_work(g, &f, &b);
	if (f.macs < macs || f.elements < elements || b.macs < 2 * macs || b.elements < 2 * elements)
		fail_msg("%llu macs, %llu elements; backward %llu, %llu", (unsigned long long)f.macs,
			 (unsigned long long)f.elements, (unsigned long long)b.macs, (unsigned long long)b.elements);
	assert_true(f.once > 0 && b.once > 0);
}

/* 2,000 of them over one tensor of 2^26 elements, which a transposed convolution of next to nothing has made. */
static void global_pools_count_what_they_read(void **state)
{
	enum { POOLS = 2000, SIDE = 8192 };
	(void)state;
	struct gp_graph *g = image_graph(2, 2, 1);
	struct gp_node up = {.op = GP_OP_CONV2D_TRANSPOSE};
	gp_set_conv_attr(&up, (struct gp_conv_attr){.out_channels = 1,
						    .kernel_h = 1,
						    .kernel_w = 1,
						    .stride_h = 4096,
						    .stride_w = 4096,
						    .out_pad_h = 4095,
						    .out_pad_w = 4095,
						    .groups = 1});
	const int large = gp_graph_append(g, up, "up", 1, (const int[]){0}, &err);
	assert_true(large > 0);
	assert_int_equal(gp_shape_elements(&g->value[large].type.shape), (uint64_t)SIDE * SIDE);
	int sum = -1;
	for (int i = 0; i < POOLS; i++) {
		char name[2][16];
		snprintf(name[0], sizeof name[0], "p%d", i);
		snprintf(name[1], sizeof name[1], "s%d", i);
		const int pool = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, name[0], large, &err);
		assert_true(pool > 0);
		sum = sum < 0 ? pool : gp_graph_sum(g, name[1], sum, pool, &err);
		assert_true(sum > 0);
	}
	OK(gp_graph_finish(g, &err));
	check_both(g, 1, (uint64_t)POOLS * SIDE * SIDE);
	gp_graph_free(g);
}

/* The CPU makes a call for each tap. */
static void pools_count_every_tap_even_of_one_channel(void **state)
{
	(void)state;
	struct gp_graph *g = image_graph(100, 100, 1);
	assert_true(gp_graph_pool(g, GP_OP_MAX_POOL, "p", 0, 31, 1, 15, &err) > 0);
	OK(gp_graph_finish(g, &err));
	check_both(g, 0, 100 * 100 * 31 * 31 * UINT64_C(64));
	gp_graph_free(g);
}

static void strided_shortcuts_count_their_inputs(void **state)
{
	(void)state;
	struct gp_graph *g = image_graph(1000, 1000, 8);
	assert_true(gp_graph_shortcut_pad(g, "s", 0, 1000, 0, 0, &err) > 0);
	OK(gp_graph_finish(g, &err));
	check_both(g, 0, 8000000);
	gp_graph_free(g);
}

/* Groups of one channel in and two out: a sixteenth of the lanes are used, and of each an eighth. */
static void narrow_groups_count_as_if_they_were_wide(void **state)
{
	(void)state;
	struct gp_graph *g = image_graph(10, 10, 4);
	struct gp_work f, b;
	assert_true(gp_graph_conv(g, "c", 0, 8, 3, 1, 1, 4, false, &err) > 0);
	OK(gp_graph_finish(g, &err));
	gp_graph_work(g, &f, &b);
	assert_int_equal(f.macs, 10 * 10 * 9 * 4 * 16 * 16);
	assert_int_equal(g->macs, 10 * 10 * 9 * 4 * 2);
	gp_graph_free(g);
}

static void an_embeddings_gradient_counts_its_whole_weight(void **state)
{
	(void)state;
	struct gp_graph *g = gp_graph_new_empty("g", &err);
	struct gp_work f, b;
	assert_int_equal(gp_graph_add_input(g, "ids", &(struct gp_type){GP_I32, {.ndim = 1, .dim = {2}}}, &err), 0);
	OK(gp_graph_begin_block(g, "b", &err));
	assert_true(gp_graph_embedding(g, "e", 0, 1 << 20, 64, &err) > 0);
	OK(gp_graph_finish(g, &err));
	gp_graph_work(g, &f, &b);
	assert_true(f.once < 1 << 20 && b.once >= UINT64_C(64) << 20);
	gp_graph_free(g);
}

/* One op over (40,30,20), which it reads and writes. */
static struct gp_work forward_work(int (*add)(struct gp_graph *g))
{
	struct gp_work f, b;
	struct gp_graph *g = image_graph(40, 30, 20);
	assert_int_equal(add(g), 1);
	OK(gp_graph_finish(g, &err));
	gp_graph_work(g, &f, &b);
	assert_true(f.elements >= 2 * 24000 && b.elements >= 2 * f.elements);
	gp_graph_free(g);
	return f;
}

static int add_relu(struct gp_graph *g)
{
	return gp_graph_unary(g, GP_OP_RELU, "n", 0, &err);
}

static int add_gelu(struct gp_graph *g)
{
	return gp_graph_gelu(g, "n", 0, false, &err);
}

static int add_tanh(struct gp_graph *g)
{
	return gp_graph_unary(g, GP_OP_TANH, "n", 0, &err);
}

static int add_norm(struct gp_graph *g)
{
	return gp_graph_layer_norm(g, "n", 0, -1, (struct gp_layer_norm_attr){.eps = 1e-5f}, &err);
}

static int add_norm_with_dropout(struct gp_graph *g)
{
	return gp_graph_layer_norm(g, "n", 0, 0, (struct gp_layer_norm_attr){.eps = 1e-5f, .p = 0.1f}, &err);
}

static void arithmetic_of_curves_and_norms_counts_besides_what_they_move(void **state)
{
	(void)state;
	const uint64_t relu = forward_work(add_relu).elements, norm = forward_work(add_norm).elements;
	assert_true(forward_work(add_gelu).elements >= 4 * relu);
	assert_true(forward_work(add_tanh).elements >= 4 * relu);
	assert_true(norm >= relu + 24000);
	assert_true(forward_work(add_norm_with_dropout).elements >= norm + 3 * 24000);
}

static struct gp_graph *attention_graph(int64_t positions, int64_t features, int heads, float p)
{
	static const char *const names[] = {"q", "k", "v"};
	const struct gp_type row = {GP_F32, {.ndim = 2, .dim = {positions, features}}};
	struct gp_graph *g = gp_graph_new_empty("g", &err);
	for (int k = 0; k < 3; k++)
		assert_int_equal(gp_graph_add_input(g, names[k], &row, &err), k);
	assert_int_equal(gp_graph_add_input(g, "length", &(struct gp_type){GP_I32, {.ndim = 1, .dim = {1}}}, &err), 3);
	OK(gp_graph_begin_block(g, "b", &err));
	assert_true(gp_graph_attention(g, "a", (const int[]){0, 1, 2}, 3, (struct gp_attention_attr){heads, p}, &err) >
		    0);
	OK(gp_graph_finish(g, &err));
	return g;
}

/* Two products forward and five backward, a weight for each pair of positions; heads of one feature take whole vectors. */
static void attention_counts_its_products_and_weights(void **state)
{
	const uint64_t pairs = UINT64_C(128) * 128, tensor = UINT64_C(128) * 768;
	struct gp_work f, b, dropping;
	(void)state;
	struct gp_graph *g = attention_graph(128, 768, 12, 0.0f);
	gp_graph_work(g, &f, &b);
	assert_int_equal(f.macs, 2 * pairs * 768);
	assert_int_equal(b.macs, 5 * pairs * 768);
	assert_true(f.elements >= 4 * tensor + 12 * pairs && b.elements >= 8 * tensor + 12 * pairs);
	gp_graph_free(g);
	g = attention_graph(128, 768, 12, 0.1f);
	gp_graph_work(g, &dropping, &b);
	assert_true(dropping.elements >= f.elements + 12 * pairs);
	gp_graph_free(g);
	g = attention_graph(100, 768, 768, 0.0f);
	gp_graph_work(g, &f, &b);
	assert_int_equal(f.macs, UINT64_C(2) * 768 * 100 * 112 * 16);
	gp_graph_free(g);
	g = attention_graph(1, 768, 768, 0.0f); /* next to nothing to do for each head */
	gp_graph_work(g, &f, &b);
	assert_true(f.elements >= UINT64_C(768) * 4000 && b.elements >= UINT64_C(768) * 4000);
	gp_graph_free(g);
}

/* Nearly all that rows of one feature cost is what each of them takes by itself. */
static void short_rows_count_as_rows(void **state)
{
	enum { ROWS = 100000 };
	const struct gp_type column = {GP_F32, {.ndim = 2, .dim = {ROWS, 1}}};
	struct gp_work f, b;
	(void)state;
	struct gp_graph *g = gp_graph_new_empty("g", &err);
	assert_int_equal(gp_graph_add_input(g, "x", &column, &err), 0);
	OK(gp_graph_begin_block(g, "b", &err));
	const int at = gp_graph_add_rows(g, "r", 0, (struct gp_add_rows_attr){.rows = 1}, &err);
	assert_true(gp_graph_layer_norm(g, "n", at, -1, (struct gp_layer_norm_attr){.eps = 1e-5f}, &err) > 0);
	OK(gp_graph_finish(g, &err));
	gp_node_work(g, &g->node[1], &f, &b);
	assert_true(f.elements >= ROWS * UINT64_C(200) && b.elements >= 2 * f.elements);
	gp_node_work(g, &g->node[2], &f, &b);
	assert_true(f.elements >= ROWS * UINT64_C(4000) && b.elements >= 2 * f.elements);
	gp_graph_free(g);
}

static void numbered_rows_count_as_rows(void **state)
{
	enum { ROWS = 100000 };
	const struct gp_type column = {GP_F32, {.ndim = 2, .dim = {2, 1}}},
			     numbers = {GP_I32, {.ndim = 1, .dim = {ROWS}}};
	struct gp_work f, b;
	(void)state;
	struct gp_graph *g = gp_graph_new_empty("g", &err);
	assert_int_equal(gp_graph_add_input(g, "x", &column, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "numbers", &numbers, &err), 1);
	OK(gp_graph_begin_block(g, "b", &err));
	assert_true(gp_graph_take_rows(g, "r", 0, 1, &err) > 0);
	OK(gp_graph_finish(g, &err));
	gp_node_work(g, &g->node[2], &f, &b);
	assert_true(f.elements >= ROWS * UINT64_C(200) && b.elements >= 2 * f.elements);
	gp_graph_free(g);
}

/* Every node may be as large as an op allows. */
static void sums_stop_instead_of_wrapping(void **state)
{
	(void)state;
	struct gp_graph *g = image_graph(4000, 4000, 1);
	for (int i = 0, at = 0; i < 200; i++) {
		char name[16];
		snprintf(name, sizeof name, "p%d", i);
		at = gp_graph_pool(g, GP_OP_AVG_POOL, name, at, 4001, 1, 2000, &err);
		assert_true(at > 0);
	}
	OK(gp_graph_finish(g, &err));
	struct gp_work f, b;
	gp_graph_work(g, &f, &b);
	assert_true(f.elements == UINT64_MAX || f.elements > UINT64_C(200) * 4000 * 4000 * 4001 * 4000);
	assert_true(b.elements >= f.elements);
	gp_graph_free(g);
}

static void seconds_follow_from_speed_and_samples(void **state)
{
	(void)state;
	const struct gp_work w = {.macs = 1000, .elements = 100, .once = 50};
	const struct gp_speed speed = {.macs_per_s = 1000, .elements_per_s = 100};
	assert_true(gp_work_seconds(&w, &speed, 3) == 6.5);
	assert_int_equal(gp_work_samples_within(&w, &speed, 6.5, 10), 3);
	assert_int_equal(gp_work_samples_within(&w, &speed, 6.4, 10), 2);
	assert_int_equal(gp_work_samples_within(&w, &speed, 0.4, 10), 0);
	assert_int_equal(gp_work_samples_within(&w, &speed, 1e30, 10), 10);
}

/* --- OPEN -------------------------------------------------------------------------------------------------------- */

/* A body of 2^30 multiply-accumulates a sample, on a device that makes 2^30 forward in a second. */
static enum gp_status open_with(int samples, int chunks, bool eval_only, double limit_s, double *task_s)
{
	const struct gp_speed speed = {.macs_per_s = 0x1p30, .elements_per_s = 1e18};
	const struct gp_session_spec spec = {.chunk_samples = samples, .chunks = chunks, .eval_only = eval_only};
	struct gp_graph *g = gp_graph_new("g", &(struct gp_shape){.ndim = 1, .dim = {1 << 15}}, &err);
	OK(gp_graph_begin_block(g, "b", &err));
	assert_true(gp_graph_linear(g, "l", 0, 1 << 15, false, &err) > 0);
	OK(gp_graph_finish(g, &err));
	const enum gp_status status = gp_server_open_check_time(g, &spec, &speed, limit_s, task_s, &err);
	gp_graph_free(g);
	return status;
}

static void a_chunk_within_the_limit_is_taken_with_its_estimate(void **state)
{
	double task_s = 0;
	(void)state;
	OK(open_with(4, 1, false, 10.0, &task_s));
	assert_true(task_s >= 8.0 && task_s < 8.1); /* backward takes twice as long as forward */
	OK(open_with(4, 1, true, 5.0, &task_s));
	assert_true(task_s >= 4.0 && task_s < 4.1);
}

static void a_chunk_over_the_limit_is_refused_with_the_chunks_that_fit(void **state)
{
	double task_s;
	(void)state;
	assert_int_equal(open_with(60, 2, false, 10.0, &task_s), GP_INVALID);
	assert_non_null(strstr(err.text, "backward pass over a chunk of 60 samples would take 120 s"));
	assert_non_null(strstr(err.text, "allows 10 s (--task-time)"));
	assert_non_null(
		strstr(err.text, "--chunks 30 would fit")); /* 4 samples each: 5 do not divide 120 without a rest */
	OK(open_with(4, 30, false, 10.0, &task_s));
	assert_int_equal(open_with(5, 24, false, 10.0, &task_s), GP_INVALID);
}

static void a_body_too_large_for_one_sample_is_told_so(void **state)
{
	double task_s;
	(void)state;
	assert_int_equal(open_with(60, 2, false, 1.0, &task_s), GP_INVALID);
	assert_non_null(strstr(err.text, "one sample alone does not fit"));
}

/* Seconds of a pass where nothing takes time but elements: 16 of them a sample. `maps`: NULL, what is kept lies as it is. */
static double seconds_with(const char *maps, bool recompute)
{
	const struct gp_speed speed = {.macs_per_s = 1e18, .elements_per_s = 16};
	struct gp_session_spec spec = {.chunk_samples = 1 << 20, .chunks = 1, .recompute = recompute};
	struct gp_graph *g = gp_graph_new("g", &(struct gp_shape){.ndim = 1, .dim = {16}}, &err);
	double task_s;
	if (maps)
		OK(gp_codec_spec_parse(maps, &spec.maps, &err));
	OK(gp_graph_begin_block(g, "b", &err));
	assert_true(gp_graph_unary(g, GP_OP_RELU, "r", 0, &err) > 0);
	OK(gp_graph_finish(g, &err));
	OK(gp_server_open_check_time(g, &spec, &speed, 1e9, &task_s, &err));
	gp_graph_free(g);
	return task_s / (1 << 20);
}

/* Forward is 2 times the sample, backward 5. Encoding by sortquant counts 4 times as much as by bf16, and decoding 2 times. */
static void what_memory_is_saved_by_counts_as_work(void **state)
{
	(void)state;
	assert_true(fabs(seconds_with(NULL, false) - 5) < 0.1);
	assert_true(fabs(seconds_with(NULL, true) - 7) < 0.1);
	assert_true(fabs(seconds_with("bf16", false) - (5 + 2 + 2)) < 0.1);
	assert_true(fabs(seconds_with("sortquant:bits=2,split=8", false) - (5 + 2 * 2 + 2 * 4)) < 0.1);
}

/* 2^20 parameters; a second for as many elements. */
static enum gp_status open_coded(enum gp_structure which, const char *codec, double limit_s)
{
	const struct gp_speed speed = {.macs_per_s = 1e18, .elements_per_s = 0x1p20};
	struct gp_session_spec spec = {.chunk_samples = 1, .chunks = 1, .optim.kind = GP_OPTIM_ADAM};
	struct gp_graph *g = gp_graph_new("g", &(struct gp_shape){.ndim = 1, .dim = {1 << 10}}, &err);
	double task_s;
	OK(gp_codec_spec_parse(codec, &spec.coded[which], &err));
	OK(gp_graph_begin_block(g, "b", &err));
	assert_true(gp_graph_linear(g, "l", 0, 1 << 10, false, &err) > 0);
	OK(gp_graph_finish(g, &err));
	const enum gp_status status = gp_server_open_check_time(g, &spec, &speed, limit_s, &task_s, &err);
	gp_graph_free(g);
	return status;
}

/* Encoded and decoded, two arrays of them of Adam; a backward pass takes 2 s. */
static void an_update_through_codecs_is_within_the_limit_as_well(void **state)
{
	(void)state;
	OK(open_coded(GP_STRUCT_STATE, "bf16", 4.1));
	assert_int_equal(open_coded(GP_STRUCT_STATE, "bf16", 3.9), GP_INVALID);
	assert_non_null(strstr(err.text, "an update of 1048576 parameters would take 4 s"));
	OK(open_coded(GP_STRUCT_WEIGHTS, "sortquant:bits=2,split=8", 6.1));
	assert_int_equal(open_coded(GP_STRUCT_WEIGHTS, "sortquant:bits=2,split=8", 5.9), GP_INVALID);
	assert_int_equal(open_coded(GP_STRUCT_WEIGHT_GRADS, "sortquant:bits=2,split=8", 5.9), GP_INVALID);
	OK(open_coded(GP_STRUCT_GRAD_MAPS, "sortquant:bits=2,split=8", 5.9)); /* not of an update */
}

/* --- a device ---------------------------------------------------------------------------------------------------- */

static void a_processor_tells_its_speed(void **state)
{
	struct gp_device *dev;
	(void)state;
	OK(gp_device_open("cpu", 1, &dev, &err));
	OK(gp_device_measure(dev, &err));
	print_message("%.3g multiply-accumulates and %.3g elements a second\n", dev->speed.macs_per_s,
		      dev->speed.elements_per_s);
	assert_true(dev->speed.macs_per_s > 0 && dev->speed.elements_per_s > 0);
	dev->ops->close(dev);
}

static void a_plan_that_is_stopped_ends_before_its_next_node(void **state)
{
	struct gp_stop stop = {0};
	struct gp_device *dev;
	struct gp_plan *plan;
	(void)state;
	struct gp_graph *g = image_graph(4, 4, 4);
	assert_true(gp_graph_conv(g, "c", 0, 4, 3, 1, 1, 1, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	OK(gp_device_open("cpu", 1, &dev, &err));
	const struct gp_plan_spec spec = {.graph = g,
					  .batch = 1,
					  .slots = 1,
					  .train = true,
					  .undo = true,
					  .grad_inputs = 1,
					  .optim = {.kind = GP_OPTIM_SGD},
					  .stop = &stop};
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	OK(dev->ops->forward(plan, 0, GP_TRAIN, 0, &err));
	gp_stop_set(&stop);
	assert_int_equal(dev->ops->backward(plan, 0, &err), GP_CANCELED);
	dev->ops->step_undo(plan);
	assert_int_equal(dev->ops->forward(plan, 0, GP_TRAIN, 0, &err), GP_CANCELED);
	atomic_store(&stop.set, false); /* only a test does that: the plan is as if nothing of the step had been */
	dev->ops->step_undo(plan);
	OK(dev->ops->forward(plan, 0, GP_TRAIN, 0, &err));
	OK(dev->ops->backward(plan, 0, &err));
	dev->ops->plan_free(plan);
	gp_stop_set(&stop);
	assert_int_equal(dev->ops->plan_new(dev, &spec, &plan, &err), GP_CANCELED);
	struct gp_plan_memory memory;
	assert_int_equal(dev->ops->plan_estimate(dev, &spec, &memory, &err), GP_CANCELED);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* A table of three million elements: uniform, normal and constant parameters draw the same in pieces. */
static void drawing_in_pieces_draws_the_same_and_can_be_stopped(void **state)
{
	static const enum gp_init_kind kinds[] = {GP_INIT_UNIFORM, GP_INIT_NORMAL, GP_INIT_ONES};
	const uint64_t count = 3000001;
	struct gp_stop stop = {0};
	(void)state;
	struct gp_graph *g = image_graph(4, 4, 4);
	assert_true(gp_graph_conv(g, "c", 0, 4, 3, 1, 1, 1, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	g->param[0].count = count;
	g->param[0].init_scale = 0.5f;
	const struct gp_plan_spec spec = {.graph = g, .seed = 7, .stop = &stop};
	float *whole = gp_calloc(count, sizeof *whole), *pieces = gp_calloc(count, sizeof *pieces);
	for (int k = 0; k < 3; k++) {
		g->param[0].init = kinds[k];
		gp_param_init(&g->param[0], spec.seed, whole);
		OK(gp_plan_draw_param(&spec, 0, pieces, &err));
		assert_memory_equal(whole, pieces, count * sizeof *whole);
	}
	gp_stop_set(&stop);
	assert_int_equal(gp_plan_draw_param(&spec, 0, pieces, &err), GP_CANCELED);
	gp_free(whole);
	gp_free(pieces);
	gp_graph_free(g);
}

static void parameters_that_are_given_are_not_drawn(void **state)
{
	struct gp_device *dev;
	struct gp_plan *plan;
	float x[4 * 4 * 3 * 3];
	(void)state;
	struct gp_graph *g = image_graph(4, 4, 4);
	assert_true(gp_graph_conv(g, "c", 0, 4, 3, 1, 1, 1, false, &err) > 0);
	OK(gp_graph_finish(g, &err));
	OK(gp_device_open("cpu", 1, &dev, &err));
	const struct gp_plan_spec spec = {.graph = g, .batch = 1, .slots = 1, .params_given = true};
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	OK(dev->ops->param_get(plan, 0, x, &err));
	for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
		assert_true(x[i] == 0.0f);
	dev->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(global_pools_count_what_they_read),
		cmocka_unit_test(pools_count_every_tap_even_of_one_channel),
		cmocka_unit_test(strided_shortcuts_count_their_inputs),
		cmocka_unit_test(narrow_groups_count_as_if_they_were_wide),
		cmocka_unit_test(an_embeddings_gradient_counts_its_whole_weight),
		cmocka_unit_test(arithmetic_of_curves_and_norms_counts_besides_what_they_move),
		cmocka_unit_test(attention_counts_its_products_and_weights),
		cmocka_unit_test(short_rows_count_as_rows),
		cmocka_unit_test(numbered_rows_count_as_rows),
		cmocka_unit_test(sums_stop_instead_of_wrapping),
		cmocka_unit_test(seconds_follow_from_speed_and_samples),
		cmocka_unit_test(a_chunk_within_the_limit_is_taken_with_its_estimate),
		cmocka_unit_test(a_chunk_over_the_limit_is_refused_with_the_chunks_that_fit),
		cmocka_unit_test(a_body_too_large_for_one_sample_is_told_so),
		cmocka_unit_test(what_memory_is_saved_by_counts_as_work),
		cmocka_unit_test(an_update_through_codecs_is_within_the_limit_as_well),
		cmocka_unit_test(a_processor_tells_its_speed),
		cmocka_unit_test(a_plan_that_is_stopped_ends_before_its_next_node),
		cmocka_unit_test(drawing_in_pieces_draws_the_same_and_can_be_stopped),
		cmocka_unit_test(parameters_that_are_given_are_not_drawn),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
