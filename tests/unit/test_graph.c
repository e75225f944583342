/* SPDX-License-Identifier: Apache-2.0
 *
 * The model graph (common/graph/graph.h): shapes and MACs per op as PyTorch has
 * them, refusal of every bad node, parameters and their starting values. Ops of
 * language models: test_graph_language.c; parts and cuts: test_graph_parts.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <limits.h>
#include <math.h>

#include "tests/unit/one_node.h"
#include "common/base/rng.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_shape.h"

static struct gp_node conv_node(enum gp_op op, int out, int kernel, int stride, int pad, int groups)
{
	struct gp_node n = {.op = op, .name = "n", .inputs = 1, .in = {0}};
	gp_set_conv_attr(
		&n, (struct gp_conv_attr){out, kernel, kernel, stride, stride, pad, pad, pad, pad, 0, 0, groups, true});
	return n;
}

static struct gp_node pool_node(enum gp_op op, int kernel, int stride, int pad)
{
	struct gp_node n = {.op = op, .name = "n", .inputs = 1, .in = {0}};
	gp_set_pool_attr(&n, (struct gp_pool_attr){kernel, kernel, stride, stride, pad, pad, pad, pad, true});
	return n;
}

/* --- shapes ----------------------------------------------------------------------------------------------------- */

/* Expected values: torch.nn.Conv2d, ConvTranspose2d, MaxPool2d on (8,15,14). */
static void convolution_shapes_are_those_of_pytorch(void **state)
{
	(void)state;
	expect_shape(image, conv_node(GP_OP_CONV2D, 16, 3, 2, 1, 1), "8x7x16", 8 * 7 * 16 * 8 * 9);
	expect_shape(image, conv_node(GP_OP_CONV2D, 8, 3, 1, 1, 8), "15x14x8", 15 * 14 * 8 * 9);
	struct gp_node same = conv_node(GP_OP_CONV2D, 4, 3, 2, 0, 1); /* TensorFlow's SAME: pad bottom and right */
	struct gp_conv_attr attr = gp_conv_attr(&same);
	attr.pad_bottom = attr.pad_right = 1;
	gp_set_conv_attr(&same, attr);
	expect_shape(image, same, "7x7x4", 7 * 7 * 4 * 8 * 9);
	struct gp_node wide = conv_node(GP_OP_CONV2D, 4, 1, 1, 0, 1);
	attr = gp_conv_attr(&wide);
	attr.kernel_w = 5;
	attr.stride_w = 3;
	gp_set_conv_attr(&wide, attr);
	expect_shape(image, wide, "15x4x4", 15 * 4 * 4 * 8 * 5);
}

static void transposed_convolution_shapes_are_those_of_pytorch(void **state)
{
	(void)state;
	expect_shape(image, conv_node(GP_OP_CONV2D_TRANSPOSE, 20, 3, 3, 0, 1), "45x42x20", 15 * 14 * 8 * 20 * 9);
	struct gp_node n = conv_node(GP_OP_CONV2D_TRANSPOSE, 4, 3, 2, 1, 2);
	struct gp_conv_attr attr = gp_conv_attr(&n);
	attr.out_pad_h = 1;
	gp_set_conv_attr(&n, attr);
	expect_shape(image, n, "30x27x4", 15 * 14 * 8 * 2 * 9);
}

static void pool_shapes_round_down_as_in_pytorch(void **state)
{
	(void)state;
	expect_shape(image, pool_node(GP_OP_MAX_POOL, 2, 2, 0), "7x7x8", 0);
	expect_shape(image, pool_node(GP_OP_AVG_POOL, 3, 2, 1), "8x7x8", 0);
	struct gp_node n = {.op = GP_OP_GLOBAL_AVG_POOL, .name = "n", .inputs = 1, .in = {0}};
	expect_shape(image, n, "1x1x8", 0);
}

static void linear_and_flatten_shapes(void **state)
{
	(void)state;
	struct gp_node linear = {.op = GP_OP_LINEAR, .name = "n", .inputs = 1, .in = {0}};
	gp_set_linear_attr(&linear, (struct gp_linear_attr){10, true});
	struct gp_node flatten = {.op = GP_OP_FLATTEN, .name = "n", .inputs = 1, .in = {0}};
	expect_shape((struct gp_shape){.ndim = 1, .dim = {32}}, linear, "10", 320);
	expect_shape((struct gp_shape){.ndim = 2, .dim = {7, 32}}, linear, "7x10", 7 * 320);
	expect_shape(image, flatten, "1680", 0);
}

static struct gp_node shortcut_node(int stride, int before, int after)
{
	struct gp_node n = {.op = GP_OP_SHORTCUT_PAD, .name = "n", .inputs = 1, .in = {0}};
	gp_set_shortcut_attr(&n, (struct gp_shortcut_attr){stride, before, after});
	return n;
}

static void padded_shortcut_keeps_the_first_of_every_stride_rows(void **state)
{
	(void)state;
	expect_shape(image, shortcut_node(2, 4, 4), "8x7x16", 0);
	expect_shape(image, shortcut_node(3, 0, 1), "5x5x9", 0);
	expect_shape(image, shortcut_node(1, 0, 0), "15x14x8", 0);
	expect_shape(image, shortcut_node(4096, 0, 0), "1x1x8", 0);
}

static void parameters_are_named_and_shaped_as_in_pytorch(void **state)
{
	(void)state;
	struct gp_err err = {0};
	char text[64];
	struct gp_graph *g = graph_of(image);
	struct gp_node n = conv_node(GP_OP_CONV2D_TRANSPOSE, 4, 3, 2, 1, 2);
	int x;
	assert_int_equal(gp_graph_add(g, &n, &x, &err), GP_OK);
	x = gp_graph_batch_norm(g, "bn", x, 1e-5f, 0.1f, &err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err);
	x = gp_graph_linear(g, "fc", x, 3, false, &err);
	assert_true(x > 0);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	static const char *const want[] = {"n.weight 8x2x3x3",  "n.bias 4",         "bn.weight 4",     "bn.bias 4",
					   "bn.running_mean 4", "bn.running_var 4", "fc.weight 3x3132"};
	assert_int_equal(g->params, 7);
	for (int i = 0; i < g->params; i++) {
		char line[200];
		snprintf(line, sizeof line, "%s %s", g->param[i].name,
			 gp_shape_text(&g->param[i].shape, text, sizeof text));
		assert_string_equal(line, want[i]);
	}
	assert_true(g->param_elements == 144 + 4 * 5 + 9396 && g->trained_elements == 144 + 4 * 3 + 9396);
	assert_int_equal(gp_graph_find_param(g, "bn.running_var"), 5);
	assert_int_equal(gp_graph_find_param(g, "bn.running_va"), -1);
	gp_graph_free(g);
}

static void nodes_know_their_parameters_and_readers(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_of(image);
	int bn = gp_graph_batch_norm(g, "bn", 0, 1e-5f, 0.1f, &err), twice = gp_graph_sum(g, "twice", bn, bn, &err);
	int y = gp_graph_sum(g, "y", twice, bn, &err);
	assert_true(y > 0);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	assert_int_equal(gp_graph_param_of(g, &g->node[bn], GP_PARAM_WEIGHT), gp_graph_find_param(g, "bn.weight"));
	assert_int_equal(gp_graph_param_of(g, &g->node[bn], GP_PARAM_BIAS), gp_graph_find_param(g, "bn.bias"));
	assert_int_equal(gp_graph_param_of(g, &g->node[y], GP_PARAM_WEIGHT), -1);
	assert_true(gp_graph_is_trained(g, &g->node[bn]));
	assert_false(gp_graph_is_trained(g, &g->node[y]));
	g->param[0].trained = g->param[1].trained = false;
	assert_false(gp_graph_is_trained(g, &g->node[bn])); /* only running statistics are left */
	assert_int_equal(gp_graph_readers(g, 0), 1);
	assert_int_equal(gp_graph_readers(g, bn), 3);
	assert_int_equal(gp_graph_readers(g, twice), 1);
	assert_int_equal(gp_graph_readers(g, y), 1); /* it is the output */
	gp_graph_free(g);
}

/* --- refusals --------------------------------------------------------------------------------------------------- */

static void convolution_with_bad_attributes_is_refused(void **state)
{
	(void)state;
	static const struct {
		size_t field;
		int32_t value;
	} bad[] = {
#define FIELD(name) offsetof(struct gp_conv_attr, name)
		{FIELD(out_channels), 0},      {FIELD(out_channels), -1},    {FIELD(out_channels), INT32_MAX},
		{FIELD(kernel_h), 0},          {FIELD(kernel_w), -3},        {FIELD(kernel_h), INT32_MAX},
		{FIELD(kernel_w), 100},        {FIELD(stride_h), 0},         {FIELD(stride_w), INT32_MIN},
		{FIELD(pad_top), -1},          {FIELD(pad_left), INT32_MAX}, {FIELD(pad_bottom), -5},
		{FIELD(pad_right), INT32_MIN}, {FIELD(groups), 0},           {FIELD(groups), 3},
		{FIELD(groups), INT32_MIN},    {FIELD(out_pad_h), 1},        {FIELD(out_pad_w), -1},
#undef FIELD
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct gp_node n = conv_node(GP_OP_CONV2D, 16, 3, 1, 1, 1);
		memcpy((char *)n.attr + bad[i].field, &bad[i].value, sizeof(int32_t));
		expect_refused(image, n, "conv2d n");
	}
	struct gp_node n = conv_node(GP_OP_CONV2D_TRANSPOSE, 16, 3, 2, 1, 1);
	n.attr[offsetof(struct gp_conv_attr, out_pad_h) / sizeof n.attr[0]].i = 2; /* not below the stride */
	expect_refused(image, n, "output padding");
	n = conv_node(GP_OP_CONV2D_TRANSPOSE, 16, 1, 1, 8, 1);
	expect_refused(image, n, "crops the whole");
}

static void other_nodes_with_bad_attributes_are_refused(void **state)
{
	(void)state;
	expect_refused(image, pool_node(GP_OP_MAX_POOL, 0, 1, 0), "kernel 0");
	expect_refused(image, pool_node(GP_OP_MAX_POOL, 2, 0, 0), "stride 0");
	expect_refused(image, pool_node(GP_OP_AVG_POOL, 2, 2, 2), "padding");
	expect_refused(image, pool_node(GP_OP_AVG_POOL, 2, 2, -1), "padding");
	expect_refused(image, pool_node(GP_OP_AVG_POOL, 16, 1, 0), "does not fit");
	struct gp_node bn = {.op = GP_OP_BATCH_NORM, .name = "n", .inputs = 1, .in = {0}};
	gp_set_bn_attr(&bn, (struct gp_bn_attr){.eps = 0, .momentum = 0.1f});
	expect_refused(image, bn, "eps");
	gp_set_bn_attr(&bn, (struct gp_bn_attr){.eps = 1e-5f, .momentum = NAN});
	expect_refused(image, bn, "momentum");
	struct gp_node drop = {.op = GP_OP_DROPOUT, .name = "n", .inputs = 1, .in = {0}};
	gp_set_dropout_attr(&drop, (struct gp_dropout_attr){1.0f});
	expect_refused(image, drop, "[0,1)");
	drop.attr[0].f = NAN;
	expect_refused(image, drop, "[0,1)");
	expect_refused(image, shortcut_node(0, 4, 4), "stride is 0");
	expect_refused(image, shortcut_node(INT32_MIN, 4, 4), "stride");
	expect_refused(image, shortcut_node(2, -1, 4), "zero channels before is -1");
	expect_refused(image, shortcut_node(2, 4, INT32_MAX), "zero channels after");
	expect_refused(image, shortcut_node(1, 1 << 24, 0), "elements");
	expect_refused((struct gp_shape){.ndim = 1, .dim = {8}}, shortcut_node(2, 4, 4), "image");
	struct gp_node linear = {.op = GP_OP_LINEAR, .name = "n", .inputs = 1, .in = {0}};
	gp_set_linear_attr(&linear, (struct gp_linear_attr){10, true});
	expect_refused(image, linear, "flatten");
	linear.attr[0].i = 0;
	expect_refused((struct gp_shape){.ndim = 1, .dim = {8}}, linear, "out_features");
	expect_refused((struct gp_shape){.ndim = 1, .dim = {8}}, conv_node(GP_OP_CONV2D, 8, 1, 1, 0, 1), "image");
}

static void ops_inputs_and_names_that_make_no_sense_are_refused(void **state)
{
	(void)state;
	struct gp_node n = {.op = GP_OP_RELU, .name = "n", .inputs = 1, .in = {0}};
	static const int bad_op[] = {GP_OP_INPUT, GP_OP_COUNT, 1000000, -1};
	for (int i = 0; i < 4; i++) {
		n.op = (enum gp_op)bad_op[i];
		expect_refused(image, n, "is not one a node may have");
	}
	n.op = GP_OP_RELU;
	static const int bad_in[] = {-1, 1, INT_MAX, INT_MIN};
	for (int i = 0; i < 4; i++) {
		n.in[0] = bad_in[i];
		expect_refused(image, n, "earlier node");
	}
	n.in[0] = n.in[1] = 0;
	n.inputs = 2;
	expect_refused(image, n, "2 inputs; relu takes 1");
	n.inputs = GP_NODE_MAX_INPUTS + 1;
	expect_refused(image, n, "65 inputs");
	n.inputs = -1;
	expect_refused(image, n, "-1 inputs");
	n.inputs = 1;
	static const char *const bad_name[] = {"",    ".x",       "a..b",        "a/b", "../x",
					       "a b", "a\x1b[2J", "caf\xc3\xa9", "a\\b"};
	for (size_t i = 0; i < sizeof bad_name / sizeof bad_name[0]; i++) {
		memset(n.name, 0, sizeof n.name);
		strcpy(n.name, bad_name[i]);
		expect_refused(image, n, "name");
	}
	memset(n.name, 'x', sizeof n.name); /* not even terminated */
	expect_refused(image, n, "bytes");
	strcpy(n.name, "input");
	expect_refused(image, n, "same name");
}

static void tensors_above_the_limit_are_refused(void **state)
{
	(void)state;
	const struct gp_shape big = {.ndim = 3, .dim = {1 << 14, 1 << 14, 8}};
	expect_refused(big, conv_node(GP_OP_CONV2D, 16, 1, 1, 0, 1), "elements");
	expect_refused(big, conv_node(GP_OP_CONV2D_TRANSPOSE, 8, 4096, 4096, 0, 1), "elements");
	expect_refused(big, conv_node(GP_OP_CONV2D, 1 << 24, 4096, 1, 0, 1), "elements");
	struct gp_err err;
	assert_null(gp_graph_new("g", &(struct gp_shape){.ndim = 3, .dim = {1 << 16, 1 << 16, 1}}, &err));
	assert_null(gp_graph_new("g", &(struct gp_shape){.ndim = 1, .dim = {0}}, &err));
	assert_null(gp_graph_new("g", &(struct gp_shape){.ndim = 0}, &err));
	assert_null(gp_graph_new("g", &(struct gp_shape){.ndim = 4, .dim = {1, 1, 1, 1}}, &err));
}

static void node_limit_holds(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_of(image);
	int x = 0;
	for (int i = 1; i < GP_GRAPH_MAX_NODES; i++) {
		char name[32];
		snprintf(name, sizeof name, "n%d", i);
		x = gp_graph_unary(g, GP_OP_RELU, name, x, &err);
		assert_int_equal(x, i);
	}
	assert_int_equal(gp_graph_unary(g, GP_OP_RELU, "more", x, &err), -1);
	assert_int_equal(err.code, GP_INVALID);
	gp_graph_free(g);
}

/* Plans compare every piece of memory with every other. */
static void value_limit_holds(void **state)
{
	(void)state;
	struct gp_err err = {0};
	const struct gp_shape wide = {.ndim = 1, .dim = {GP_NODE_MAX_OUTPUTS}};
	struct gp_graph *g = graph_of(wide);
	for (int i = 0; i < GP_GRAPH_MAX_VALUES / GP_NODE_MAX_OUTPUTS - 1; i++) {
		char name[32];
		snprintf(name, sizeof name, "n%d", i);
		assert_int_equal(gp_graph_split(g, name, 0, GP_NODE_MAX_OUTPUTS, &err), 1 + i * GP_NODE_MAX_OUTPUTS);
	}
	const uint64_t bytes = gp_graph_bytes(g);
	assert_true(bytes > GP_GRAPH_MAX_VALUES * sizeof(struct gp_graph_value) - GP_NODE_MAX_OUTPUTS * 64);
	assert_int_equal(gp_graph_split(g, "more", 0, GP_NODE_MAX_OUTPUTS, &err), -1);
	assert_int_equal(err.code, GP_INVALID);
	assert_non_null(strstr(err.text, "8192 values"));
	assert_true(gp_graph_split(g, "less", 0, GP_NODE_MAX_OUTPUTS / 2, &err) > 0);
	gp_graph_free(g);
}

static void unused_nodes_and_empty_blocks_are_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_of(image);
	assert_int_equal(gp_graph_finish(g, &err), GP_INVALID);
	assert_int_equal(gp_graph_begin_block(g, "b1", &err), GP_INVALID);
	gp_graph_unary(g, GP_OP_RELU, "a", 0, &err);
	gp_graph_unary(g, GP_OP_RELU, "b", 0, &err);
	assert_int_equal(gp_graph_finish(g, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "relu a"));
	gp_graph_sum(g, "c", 1, 2, &err);
	assert_int_equal(gp_graph_begin_block(g, "b0", &err), GP_INVALID);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	gp_graph_free(g);
}

/* --- starting values -------------------------------------------------------------------------------------------- */

static void starting_values_are_a_function_of_seed_and_name(void **state)
{
	(void)state;
	enum { N = 4099 };
	static float a[N], b[N];
	struct gp_param p = {.name = "x.weight", .count = N, .init = GP_INIT_UNIFORM, .init_scale = 0.25f};
	uint64_t stream = gp_rng_stream(GP_RNG_INIT, gp_rng_name_id(p.name));
	gp_param_init(&p, 42, a);
	double sum = 0;
	for (int i = 0; i < N; i++) {
		assert_true(a[i] == (2.0f * gp_rng_uniform(42, stream, (uint64_t)i) - 1.0f) * 0.25f);
		assert_true(a[i] >= -0.25f && a[i] < 0.25f);
		sum += a[i];
	}
	assert_true(fabs(sum / N) < 0.01);
	gp_param_init(&p, 42, b);
	assert_memory_equal(a, b, sizeof a);
	gp_param_init(&p, 43, b);
	assert_memory_not_equal(a, b, sizeof a);
	strcpy(p.name, "y.weight");
	gp_param_init(&p, 42, b);
	assert_memory_not_equal(a, b, sizeof a);
}

static void starting_values_have_the_wanted_spread(void **state)
{
	(void)state;
	enum { N = 20000 };
	static float a[N];
	struct gp_param p = {.name = "w", .count = N, .init = GP_INIT_NORMAL, .init_scale = 0.01f};
	gp_param_init(&p, 1, a);
	double squares = 0;
	for (int i = 0; i < N; i++)
		squares += (double)a[i] * a[i];
	assert_true(fabs(sqrt(squares / N) - 0.01) < 0.0003);
	p.init = GP_INIT_ONES;
	gp_param_init(&p, 1, a);
	assert_true(a[0] == 1 && a[N - 1] == 1);
	p.init = GP_INIT_ZEROS;
	gp_param_init(&p, 1, a);
	assert_true(a[0] == 0 && a[N - 1] == 0);
}

static void default_starting_values_are_those_of_pytorch(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_of(image);
	int x = gp_graph_conv(g, "c", 0, 16, 3, 1, 1, 2, true, &err);
	x = gp_graph_batch_norm(g, "bn", x, 1e-5f, 0.1f, &err);
	assert_true(x > 0);
	for (int i = 0; i < 2; i++) { /* 1/sqrt(fan_in), fan_in = 8/2 * 3*3 */
		assert_int_equal(g->param[i].init, GP_INIT_UNIFORM);
		assert_true(fabs(g->param[i].init_scale - 1.0 / 6) < 1e-7);
		assert_true(g->param[i].trained && g->param[i].decay);
	}
	static const enum gp_init_kind bn[4] = {GP_INIT_ONES, GP_INIT_ZEROS, GP_INIT_ZEROS, GP_INIT_ONES};
	for (int i = 0; i < 4; i++) {
		assert_int_equal(g->param[2 + i].init, bn[i]);
		assert_int_equal(g->param[2 + i].trained, i < 2);
	}
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(convolution_shapes_are_those_of_pytorch),
		cmocka_unit_test(transposed_convolution_shapes_are_those_of_pytorch),
		cmocka_unit_test(pool_shapes_round_down_as_in_pytorch),
		cmocka_unit_test(linear_and_flatten_shapes),
		cmocka_unit_test(padded_shortcut_keeps_the_first_of_every_stride_rows),
		cmocka_unit_test(parameters_are_named_and_shaped_as_in_pytorch),
		cmocka_unit_test(nodes_know_their_parameters_and_readers),
		cmocka_unit_test(convolution_with_bad_attributes_is_refused),
		cmocka_unit_test(other_nodes_with_bad_attributes_are_refused),
		cmocka_unit_test(ops_inputs_and_names_that_make_no_sense_are_refused),
		cmocka_unit_test(tensors_above_the_limit_are_refused),
		cmocka_unit_test(node_limit_holds),
		cmocka_unit_test(value_limit_holds),
		cmocka_unit_test(unused_nodes_and_empty_blocks_are_refused),
		cmocka_unit_test(starting_values_are_a_function_of_seed_and_name),
		cmocka_unit_test(starting_values_have_the_wanted_spread),
		cmocka_unit_test(default_starting_values_are_those_of_pytorch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
