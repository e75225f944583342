/* SPDX-License-Identifier: Apache-2.0
 *
 * The model graph (common/graph/graph.h): shapes and MACs per op as PyTorch has
 * them, refusal of every bad node, parts, cuts and starting values.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <limits.h>
#include <math.h>
#include <string.h>

#include "common/graph/graph.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/graph/ops/op_shape.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_rows.h"
#include "common/graph/graph_part.h"

static const struct gp_shape image = {.ndim = 3, .dim = {15, 14, 8}};

static struct gp_graph *graph_of(struct gp_shape input)
{
	struct gp_err err = {0};
	struct gp_graph *g = gp_graph_new("test", &input, &err);
	assert_non_null(g);
	assert_int_equal(gp_graph_begin_block(g, "b0", &err), GP_OK);
	return g;
}

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

/* Adds one node to a fresh graph and compares what was inferred. */
static void expect_shape(struct gp_shape input, struct gp_node n, const char *shape, uint64_t macs)
{
	struct gp_err err = {0};
	char text[64];
	int index;
	struct gp_graph *g = graph_of(input);
	if (gp_graph_add(g, &n, &index, &err) != GP_OK)
		fail_msg("%s", err.text);
	assert_string_equal(gp_shape_text(&g->node[index].shape, text, sizeof text), shape);
	assert_true(g->node[index].macs == macs && g->macs == macs);
	gp_graph_free(g);
}

static void expect_refused(struct gp_shape input, struct gp_node n, const char *words)
{
	struct gp_err err = {0};
	int index = 12345;
	struct gp_graph *g = graph_of(input);
	assert_int_equal(gp_graph_add(g, &n, &index, &err), GP_INVALID);
	assert_int_equal(index, 12345);
	assert_int_equal(g->nodes, 1);
	assert_int_equal(g->params, 0);
	assert_true(g->param_elements == 0 && g->macs == 0);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
	gp_graph_free(g);
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

/* --- parts, cuts, starting values ------------------------------------------------------------------------------- */

/* Four blocks; block 2 adds the output of block 0, so cuts 1 ... 2 are crossed by it. */
static struct gp_graph *graph_with_a_long_skip(void)
{
	struct gp_err err = {0};
	struct gp_graph *g = graph_of(image);
	gp_graph_unary(g, GP_OP_RELU, "a", 0, &err);
	gp_graph_begin_block(g, "b1", &err);
	gp_graph_conv(g, "b", 1, 8, 3, 1, 1, 1, true, &err);
	gp_graph_begin_block(g, "b2", &err);
	gp_graph_sum(g, "c", 1, 2, &err);
	gp_graph_begin_block(g, "b3", &err);
	gp_graph_unary(g, GP_OP_FLATTEN, "d", 3, &err);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	return g;
}

static void expect_ports(const struct gp_graph *p, const char *inputs, const char *outputs)
{
	char in[512] = "", out[512] = "";
	for (int i = 0; i < p->inputs; i++)
		snprintf(in + strlen(in), sizeof in - strlen(in), "%s ", p->node[i].name);
	for (int i = 0; i < p->outputs; i++)
		snprintf(out + strlen(out), sizeof out - strlen(out), "%s ", p->output[i].name);
	assert_string_equal(in, inputs);
	assert_string_equal(out, outputs);
}

static void part_takes_and_gives_all_values_that_cross_its_borders(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_with_a_long_skip(), *p = NULL;
	assert_int_equal(gp_graph_part(g, 2, 3, &p, &err), GP_OK);
	expect_ports(p, "a b ", "c ");
	gp_graph_free(p);
	assert_int_equal(gp_graph_part(g, 0, 2, &p, &err), GP_OK);
	expect_ports(p, "input ", "a b ");
	gp_graph_free(p);
	assert_int_equal(gp_graph_part(g, 0, 3, &p, &err), GP_OK);
	expect_ports(p, "input ", "c ");
	gp_graph_free(p);
	assert_int_equal(gp_graph_part(g, 1, 3, &p, &err), GP_OK);
	assert_int_equal(p->nodes, 3);
	assert_true(p->node[2].in[0] == 0 && p->node[2].in[1] == 1);
	assert_string_equal(p->block[1].name, "b2");
	assert_int_equal(p->block[1].first_node, 2);
	assert_int_equal(p->param[0].node, 1);
	gp_graph_free(p);
	gp_graph_free(g);
}

static struct gp_graph_parts cut_at(const struct gp_graph *g, int head, int tail)
{
	struct gp_err err = {0};
	struct gp_graph_parts p;
	if (gp_graph_cut(g, &(struct gp_cut){head, tail}, &p, &err) != GP_OK)
		fail_msg("%s", err.text);
	return p;
}

static void cut_inside_a_residual_block_sends_the_skip_as_well(void **state)
{
	(void)state;
	struct gp_graph *g = graph_with_a_long_skip();
	struct gp_graph_parts p = cut_at(g, 2, 3);
	expect_ports(p.head, "input ", "a b ");
	expect_ports(p.body, "a b ", "c ");
	expect_ports(p.tail, "c ", "d ");
	assert_true(p.body_in[0].from == GP_FROM_HEAD && p.body_in[0].index == 0);
	assert_true(p.body_in[1].from == GP_FROM_HEAD && p.body_in[1].index == 1);
	assert_true(p.tail_in[0].from == GP_FROM_BODY && p.tail_in[0].index == 0);
	assert_int_equal(p.body_activation, 2); /* nothing with parameters lies before a */
	assert_int_equal(p.body_gradient, 2);
	gp_graph_parts_deinit(&p);
	p = cut_at(g, 1, 2); /* the tail reads a, too: it stays with the client */
	expect_ports(p.head, "input ", "a ");
	expect_ports(p.body, "a ", "b ");
	expect_ports(p.tail, "a b ", "d ");
	assert_true(p.tail_in[0].from == GP_FROM_HEAD && p.tail_in[0].index == 0);
	assert_true(p.tail_in[1].from == GP_FROM_BODY && p.tail_in[1].index == 0);
	gp_graph_parts_deinit(&p);
	gp_graph_free(g);
}

static void value_that_the_body_reads_twice_and_the_tail_reads_passes_through_the_body(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_of(image);
	const int x = gp_graph_conv(g, "x", 0, 8, 3, 1, 1, 1, true, &err);
	gp_graph_begin_block(g, "b1", &err);
	const int y = gp_graph_sum(g, "y", x, x, &err);
	gp_graph_begin_block(g, "b2", &err);
	gp_graph_sum(g, "z", x, y, &err);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	struct gp_graph_parts p = cut_at(g, 1, 2);
	expect_ports(p.head, "input ", "x ");
	expect_ports(p.body, "x ", "y x ");
	expect_ports(p.tail, "x y ", "z ");
	assert_true(p.tail_in[0].from == GP_FROM_BODY && p.tail_in[0].index == 1);
	assert_true(p.tail_in[1].from == GP_FROM_BODY && p.tail_in[1].index == 0);
	gp_graph_parts_deinit(&p);
	gp_graph_free(g);
}

/* Tokens and mask in, a mean of embeddings; three blocks. */
static struct gp_graph *graph_of_text(void)
{
	struct gp_err err = {0};
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {7}}};
	struct gp_graph *g = gp_graph_new_empty("text", &err);
	const int tokens = gp_graph_add_input(g, "tokens", &ids, &err);
	const int mask = gp_graph_add_input(g, "mask", &ids, &err);
	gp_graph_begin_block(g, "embedding", &err);
	int x = gp_graph_embedding(g, "words", tokens, 50, 4, &err);
	gp_graph_begin_block(g, "mean", &err);
	x = gp_graph_linear(g, "fc1", x, 4, true, &err);
	x = gp_graph_masked_mean(g, "mean", x, mask, &err);
	gp_graph_begin_block(g, "classifier", &err);
	x = gp_graph_linear(g, "fc2", x, 3, true, &err);
	assert_true(x > 0);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	return g;
}

static void integers_and_data_cross_without_gradient_and_without_loss(void **state)
{
	(void)state;
	struct gp_graph *g = graph_of_text();
	struct gp_graph_parts p = cut_at(g, 1, 2);
	expect_ports(p.head, "tokens ", "words ");
	expect_ports(p.body, "mask words ", "mean ");
	expect_ports(p.tail, "mean ", "fc2 ");
	assert_true(p.body_in[0].from == GP_FROM_DATA && p.body_in[0].index == 1);
	assert_true(p.body_in[1].from == GP_FROM_HEAD && p.body_in[1].index == 0);
	assert_int_equal(p.body->value[0].type.dtype, GP_I32);
	assert_int_equal(p.body_activation, 2);
	assert_int_equal(p.body_gradient, 2);
	gp_graph_parts_deinit(&p);
	gp_graph_free(g);
}

/* As OPEN gives them, so from anybody. */
static void blocks_that_cannot_be_are_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_of_text(); /* two inputs, four nodes */
	const uint32_t good[] = {1, 3}, zero[] = {0}, far[] = {4}, twice[] = {2, 2}, back[] = {3, 1},
		       huge[] = {UINT32_MAX};
	assert_int_equal(gp_graph_set_blocks(g, 1, zero, &err), GP_INVALID);
	assert_int_equal(gp_graph_set_blocks(g, 1, far, &err), GP_INVALID);
	assert_int_equal(gp_graph_set_blocks(g, 2, twice, &err), GP_INVALID);
	assert_int_equal(gp_graph_set_blocks(g, 2, back, &err), GP_INVALID);
	assert_int_equal(gp_graph_set_blocks(g, 1, huge, &err), GP_INVALID);
	assert_int_equal(g->blocks, 3);
	assert_int_equal(gp_graph_set_blocks(g, 2, good, &err), GP_OK);
	assert_int_equal(g->blocks, 3);
	assert_int_equal(gp_graph_block_end(g, 0), 3);
	assert_int_equal(gp_graph_block_end(g, 1), 5);
	assert_int_equal(gp_graph_block_end(g, 2), 6);
	for (int i = 0; i < g->nodes; i++)
		assert_int_equal(gp_graph_block_of(g, i), (i >= 3) + (i >= 5));
	assert_int_equal(gp_graph_set_blocks(g, 0, NULL, &err), GP_OK);
	assert_int_equal(g->blocks, 1);
	for (int i = 0; i < g->nodes; i++)
		assert_int_equal(gp_graph_block_of(g, i), 0);
	gp_graph_free(g);
}

static void what_is_frozen_needs_no_gradient(void **state)
{
	(void)state;
	struct gp_graph *g = graph_of_text();
	const uint64_t all = g->trained_elements;
	assert_int_equal(gp_graph_freeze(g, "nothing.*"), 0);
	assert_int_equal(gp_graph_freeze_blocks(g, 0, 1), 1);
	assert_true(g->trained_elements == all - 200);
	struct gp_graph_parts p = cut_at(g, 1, 2);
	assert_int_equal(p.body_gradient, 0);
	assert_int_equal(p.body_activation, 2); /* it may still be compressed */
	assert_int_equal(p.tail_gradient, 1);
	assert_true(p.head->trained_elements == 0);
	gp_graph_parts_deinit(&p);
	assert_int_equal(gp_graph_freeze(g, "fc1.*"), 2);
	p = cut_at(g, 1, 2);
	assert_true(p.body_gradient == 0 && p.tail_gradient == 0 && p.tail_activation == 1);
	gp_graph_parts_deinit(&p);
	gp_graph_free(g);
}

static void part_outside_the_graph_is_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_with_a_long_skip(), *p = NULL;
	assert_int_equal(gp_graph_part(g, 1, 1, &p, &err), GP_INVALID);
	assert_int_equal(gp_graph_part(g, -1, 1, &p, &err), GP_INVALID);
	assert_int_equal(gp_graph_part(g, 0, 5, &p, &err), GP_INVALID);
	assert_int_equal(gp_graph_part(g, 3, 2, &p, &err), GP_INVALID);
	gp_graph_free(g);
}

static void cuts_count_from_either_end(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_cut cut = {-7, -7};
	struct gp_graph *g = graph_with_a_long_skip();
	static const struct {
		const char *text;
		int head, tail;
	} good[] = {{"1:-1", 1, 3}, {"1:2", 1, 2}, {"2:3", 2, 3}, {"-3:-1", 1, 3}, {"1:-2", 1, 2}};
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		assert_int_equal(gp_cut_parse(g, good[i].text, &cut, &err), GP_OK);
		assert_true(cut.head == good[i].head && cut.tail == good[i].tail);
	}
	static const char *const bad[] = {"",
					  "1",
					  ":",
					  "1:",
					  ":1",
					  "0:-1",
					  "1:4",
					  "3:3",
					  "3:2",
					  "1:-3",
					  "1:-1x",
					  " 1:-1",
					  "1:-1 ",
					  "+1:3",
					  "1:--1",
					  "1::2",
					  "99999999999999999999:3",
					  "-99:3"};
	cut = (struct gp_cut){-7, -7};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(gp_cut_parse(g, bad[i], &cut, &err), GP_USAGE);
		assert_non_null(strstr(err.text, "4 blocks"));
	}
	assert_true(cut.head == -7 && cut.tail == -7);
	gp_graph_free(g);
}

/* --- ops of language models ---------------------------------------------------------------------------------------- */

static const struct gp_shape sequence = {.ndim = 2, .dim = {7, 12}}, row = {.ndim = 1, .dim = {12}};

static struct gp_node node_of(enum gp_op op)
{
	return (struct gp_node){.op = op, .name = "n", .inputs = 1, .in = {0}};
}

static struct gp_node layer_norm_node(float eps, float p)
{
	struct gp_node n = node_of(GP_OP_LAYER_NORM);
	gp_set_layer_norm_attr(&n, (struct gp_layer_norm_attr){.eps = eps, .p = p});
	return n;
}

static struct gp_node add_rows_node(int rows, int first, int step)
{
	struct gp_node n = node_of(GP_OP_ADD_ROWS);
	gp_set_add_rows_attr(&n, (struct gp_add_rows_attr){.rows = rows, .first = first, .step = step});
	return n;
}

static struct gp_node take_row_node(int index)
{
	struct gp_node n = node_of(GP_OP_TAKE_ROW);
	gp_set_take_row_attr(&n, (struct gp_take_row_attr){.row = index});
	return n;
}

static struct gp_node gelu_node(int approximate)
{
	struct gp_node n = node_of(GP_OP_GELU);
	gp_set_gelu_attr(&n, (struct gp_gelu_attr){.approximate = approximate});
	return n;
}

static void shapes_of_language_ops_are_those_of_their_inputs(void **state)
{
	(void)state;
	expect_shape(image, gelu_node(0), "15x14x8", 0);
	expect_shape(row, gelu_node(1), "12", 0);
	expect_shape(sequence, node_of(GP_OP_TANH), "7x12", 0);
	expect_shape(sequence, layer_norm_node(1e-12f, 0.1f), "7x12", 0);
	expect_shape(image, layer_norm_node(1.0f, 0.0f), "15x14x8", 0);
	expect_shape(row, layer_norm_node(1e-5f, 0.0f), "12", 0);
	expect_shape(sequence, add_rows_node(9, 2, 1), "7x12", 0);
	expect_shape(sequence, add_rows_node(1, 0, 0), "7x12", 0);
	expect_shape(sequence, take_row_node(6), "12", 0);
}

static void curves_norms_and_rows_with_bad_attributes_are_refused(void **state)
{
	static const float bad_eps[] = {0.0f, -1e-5f, 1.5f, INFINITY, NAN},
			   bad_p[] = {1.0f, -0.1f, 2.0f, INFINITY, NAN};
	(void)state;
	for (int i = 0; i < 5; i++) {
		expect_refused(sequence, layer_norm_node(bad_eps[i], 0.0f), "eps");
		expect_refused(sequence, layer_norm_node(1e-5f, bad_p[i]), "dropout probability");
	}
	expect_refused(row, gelu_node(2), "approximate");
	expect_refused(row, gelu_node(-1), "approximate");
	expect_refused(sequence, add_rows_node(0, 0, 0), "rows");
	expect_refused(sequence, add_rows_node(INT_MIN, 0, 1), "rows");
	expect_refused(sequence, add_rows_node(INT_MAX, 0, 1), "rows");
	expect_refused(sequence, add_rows_node(9, 9, 0), "first");
	expect_refused(sequence, add_rows_node(9, -1, 0), "first");
	expect_refused(sequence, add_rows_node(9, 0, 2), "step");
	expect_refused(sequence, add_rows_node(9, 0, -1), "step");
	expect_refused(sequence, add_rows_node(9, 3, 1), "7 positions, and rows for 6 of them");
	expect_refused(row, add_rows_node(9, 0, 1), "takes (S,F)");
	expect_refused(image, add_rows_node(9, 0, 1), "takes (S,F)");
	expect_refused(sequence, take_row_node(7), "row");
	expect_refused(sequence, take_row_node(-1), "row");
	expect_refused(row, take_row_node(0), "takes (S,F)");
}

/* A graph of up to four inputs, and what an attention over them is refused for; NULL: it is not. */
static void expect_attention(const struct gp_type in[4], int heads, float p, const char *words)
{
	struct gp_err err = {0};
	struct gp_graph *g = gp_graph_new_empty("test", &err);
	assert_non_null(g);
	for (int i = 0; i < 4; i++) {
		char name[8];
		snprintf(name, sizeof name, "in%d", i);
		assert_int_equal(gp_graph_add_input(g, name, &in[i], &err), i);
	}
	assert_int_equal(gp_graph_begin_block(g, "b0", &err), GP_OK);
	const int made = gp_graph_attention(g, "n", (const int[]){0, 1, 2}, 3,
					    (struct gp_attention_attr){.heads = heads, .p = p}, &err);
	assert_int_equal(made, words ? -1 : 4);
	if (words && (err.code != GP_INVALID || !strstr(err.text, words)))
		fail_msg("'%s' does not mention '%s'", err.text, words);
	if (!words) {
		assert_true(gp_shape_equal(&g->node[4].shape, &in[0].shape));
		assert_true(g->node[4].macs == 2 * 7 * 7 * 12);
	}
	gp_graph_free(g);
}

static void attention_with_bad_attributes_or_inputs_is_refused(void **state)
{
	const struct gp_type x = {GP_F32, sequence}, other = {GP_F32, {.ndim = 2, .dim = {7, 11}}};
	const struct gp_type flat = {GP_F32, row}, ids = {GP_I32, sequence};
	const struct gp_type one = {GP_I32, {.ndim = 1, .dim = {1}}}, two = {GP_I32, {.ndim = 1, .dim = {2}}};
	const struct gp_type real = {GP_F32, {.ndim = 1, .dim = {1}}};
	static const float bad_p[] = {1.0f, -0.1f, NAN};
	(void)state;
	expect_attention((struct gp_type[]){x, x, x, one}, 12, 0.9f, NULL);
	for (int heads = 1; heads <= 4; heads++)
		expect_attention((struct gp_type[]){x, x, x, one}, heads, 0.0f, NULL);
	expect_attention((struct gp_type[]){x, x, x, one}, 5, 0.0f, "not a multiple of its 5 heads");
	expect_attention((struct gp_type[]){x, x, x, one}, 0, 0.0f, "heads");
	expect_attention((struct gp_type[]){x, x, x, one}, 13, 0.0f, "heads");
	expect_attention((struct gp_type[]){x, x, x, one}, INT_MIN, 0.0f, "heads");
	for (int i = 0; i < 3; i++)
		expect_attention((struct gp_type[]){x, x, x, one}, 3, bad_p[i], "dropout probability");
	expect_attention((struct gp_type[]){x, other, x, one}, 1, 0.0f, "of one shape");
	expect_attention((struct gp_type[]){x, x, other, one}, 1, 0.0f, "of one shape");
	expect_attention((struct gp_type[]){flat, flat, flat, one}, 1, 0.0f, "of one shape");
	expect_attention((struct gp_type[]){x, x, x, two}, 1, 0.0f, "one length");
	expect_attention((struct gp_type[]){x, x, x, ids}, 1, 0.0f, "one length");
	expect_attention((struct gp_type[]){x, x, x, real}, 1, 0.0f, "i32");
	expect_attention((struct gp_type[]){x, ids, x, one}, 1, 0.0f, "f32");
}

static void a_norms_residual_has_the_shape_of_its_input(void **state)
{
	(void)state;
	struct gp_err err = {0};
	const struct gp_layer_norm_attr attr = {.eps = 1e-5f};
	const struct gp_type ids = {GP_I32, sequence};
	struct gp_graph *g = graph_of(sequence);
	int first = gp_graph_take_row(g, "first", 0, 0, &err),
	    index = gp_graph_layer_norm(g, "n", 0, first, attr, &err);
	assert_int_equal(index, -1);
	assert_non_null(strstr(err.text, "differ in shape"));
	index = gp_graph_layer_norm(g, "n", 0, 0, attr, &err);
	assert_int_equal(index, 2);
	assert_int_equal(g->params, 2);
	assert_true(g->param[0].init == GP_INIT_ONES && g->param[1].init == GP_INIT_ZEROS && g->param[1].count == 12);
	gp_graph_free(g);
	g = gp_graph_new_empty("test", &err);
	assert_int_equal(gp_graph_add_input(g, "ids", &ids, &err), 0);
	assert_int_equal(gp_graph_begin_block(g, "b0", &err), GP_OK);
	assert_int_equal(gp_graph_layer_norm(g, "n", 0, -1, attr, &err), -1);
	assert_int_equal(gp_graph_gelu(g, "g", 0, false, &err), -1);
	assert_int_equal(gp_graph_take_row(g, "t", 0, 0, &err), -1);
	assert_non_null(strstr(err.text, "i32"));
	gp_graph_free(g);
}

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
		cmocka_unit_test(part_takes_and_gives_all_values_that_cross_its_borders),
		cmocka_unit_test(cut_inside_a_residual_block_sends_the_skip_as_well),
		cmocka_unit_test(value_that_the_body_reads_twice_and_the_tail_reads_passes_through_the_body),
		cmocka_unit_test(integers_and_data_cross_without_gradient_and_without_loss),
		cmocka_unit_test(what_is_frozen_needs_no_gradient),
		cmocka_unit_test(part_outside_the_graph_is_refused),
		cmocka_unit_test(cuts_count_from_either_end),
		cmocka_unit_test(shapes_of_language_ops_are_those_of_their_inputs),
		cmocka_unit_test(curves_norms_and_rows_with_bad_attributes_are_refused),
		cmocka_unit_test(attention_with_bad_attributes_or_inputs_is_refused),
		cmocka_unit_test(a_norms_residual_has_the_shape_of_its_input),
		cmocka_unit_test(blocks_that_cannot_be_are_refused),
		cmocka_unit_test(starting_values_are_a_function_of_seed_and_name),
		cmocka_unit_test(starting_values_have_the_wanted_spread),
		cmocka_unit_test(default_starting_values_are_those_of_pytorch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
