/* SPDX-License-Identifier: Apache-2.0
 *
 * Small graphs around every op, in the ways that make a device's plan do
 * otherwise: several readers of a value, odd sizes, what can be fused and what
 * only looks so. For tests that compare devices; not a test by itself. The
 * program has an `err` and an OK() that fails with its text (device_pair.h).
 *
 * To add a case: a function that builds its graph, and a row in `op_cases`.
 */
#ifndef GP_TEST_OP_GRAPHS_H
#define GP_TEST_OP_GRAPHS_H

#include "tests/unit/device_pair.h"
#include "tests/unit/op_graphs_language.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_rows.h"
#include "common/graph/ops/op_shape.h"

static inline struct gp_graph *begin(int64_t h, int64_t w, int64_t c)
{
	const struct gp_shape image = {.ndim = 3, .dim = {h, w, c}}, row = {.ndim = 1, .dim = {c}};
	struct gp_graph *g = gp_graph_new("case", h ? &image : &row, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	return g;
}

static inline struct gp_graph *end(struct gp_graph *g, int last)
{
	if (last < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(g, &err));
	return g;
}

static inline struct gp_graph *relu(void)
{
	struct gp_graph *g = begin(5, 7, 13);
	return end(g, gp_graph_unary(g, GP_OP_RELU, "act", 0, &err));
}

static inline struct gp_graph *relu6_behind_a_view(void)
{
	struct gp_graph *g = begin(1, 1, 61);
	int x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", 0, &err);
	return end(g, gp_graph_unary(g, GP_OP_RELU6, "act", x, &err));
}

static inline struct gp_graph *views_alone(void)
{
	struct gp_graph *g = begin(1, 1, 9);
	int x = gp_graph_dropout(g, "drop", 0, 0.0f, &err);
	x = gp_graph_shortcut_pad(g, "shortcut", x, 1, 0, 0, &err);
	return end(g, gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err));
}

/* The input has three readers, one value is added to itself, and a gradient that is handed on has two owners. */
static inline struct gp_graph *sums(void)
{
	struct gp_graph *g = begin(3, 5, 7);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), s = gp_graph_unary(g, GP_OP_RELU6, "s", 0, &err);
	int a = gp_graph_sum(g, "a", r, s, &err);
	a = gp_graph_sum(g, "twice", a, a, &err);
	a = gp_graph_sum(g, "again", a, r, &err);
	return end(g, gp_graph_sum(g, "y", a, 0, &err));
}

static inline struct gp_graph *linear(void)
{
	struct gp_graph *g = begin(0, 0, 37);
	int x = gp_graph_linear(g, "first", 0, 19, true, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "act", x, &err);
	return end(g, gp_graph_linear(g, "second", x, 11, false, &err));
}

/* Two linear layers and a sum read one value: contributions to its gradient are added by the ops. */
static inline struct gp_graph *linear_of_many_readers(void)
{
	struct gp_graph *g = begin(0, 0, 24);
	int r = gp_graph_linear(g, "in", 0, 24, true, &err);
	int a = gp_graph_linear(g, "a", r, 24, true, &err), b = gp_graph_linear(g, "b", r, 24, true, &err);
	a = gp_graph_sum(g, "s", a, b, &err);
	return end(g, gp_graph_sum(g, "t", a, r, &err));
}

static inline struct gp_graph *flatten_then_linear(void)
{
	struct gp_graph *g = begin(6, 7, 35);
	int x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", 0, &err);
	return end(g, gp_graph_linear(g, "linear", x, 5, true, &err));
}

static inline struct gp_graph *flatten_alone(void)
{
	struct gp_graph *g = begin(9, 5, 33);
	return end(g, gp_graph_unary(g, GP_OP_FLATTEN, "flat", 0, &err));
}

static inline struct gp_graph *dropout(void)
{
	struct gp_graph *g = begin(0, 0, 1021);
	int x = gp_graph_dropout(g, "first", 0, 0.3f, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "act", x, &err);
	return end(g, gp_graph_dropout(g, "second", x, 0.5f, &err));
}

static inline struct gp_graph *shortcuts(void)
{
	struct gp_graph *g = begin(7, 5, 6);
	int a = gp_graph_shortcut_pad(g, "a", 0, 2, 3, 4, &err), b = gp_graph_shortcut_pad(g, "b", 0, 2, 0, 7, &err);
	return end(g, gp_graph_sum(g, "y", a, b, &err));
}

/* Sixteen bytes of channels at once, in every precision. */
static inline struct gp_graph *shortcuts_of_vectors(void)
{
	struct gp_graph *g = begin(6, 5, 16);
	int a = gp_graph_shortcut_pad(g, "a", 0, 2, 8, 8, &err), b = gp_graph_shortcut_pad(g, "b", 0, 2, 0, 16, &err);
	return end(g, gp_graph_sum(g, "y", a, b, &err));
}

static inline struct gp_graph *global_pool(void)
{
	struct gp_graph *g = begin(5, 6, 43);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err);
	int a = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "a", r, &err);
	int b = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "b", r, &err);
	a = gp_graph_sum(g, "s", a, b, &err);
	a = gp_graph_unary(g, GP_OP_FLATTEN, "flat", a, &err);
	return end(g, gp_graph_linear(g, "linear", a, 3, true, &err));
}

/* More rows than one slice of a bias gradient's sum. */
static inline struct gp_graph *many_rows(void)
{
	struct gp_graph *g = begin(0, 0, 3);
	return end(g, gp_graph_linear(g, "linear", 0, 41, true, &err));
}

/* --- convolutions, batch norms and pools -------------------------------------------------------------------------- */

/* Kernel, stride and padding the same both ways, without bias. */
static inline struct gp_conv_attr square(int32_t out, int32_t kernel, int32_t stride, int32_t pad, int32_t groups)
{
	return (struct gp_conv_attr){.out_channels = out,
				     .kernel_h = kernel,
				     .kernel_w = kernel,
				     .stride_h = stride,
				     .stride_w = stride,
				     .pad_top = pad,
				     .pad_bottom = pad,
				     .pad_left = pad,
				     .pad_right = pad,
				     .groups = groups};
}

static inline struct gp_conv_attr with_bias(struct gp_conv_attr attr)
{
	attr.bias = true;
	return attr;
}

static inline int add(struct gp_graph *g, const char *name, struct gp_node n)
{
	int index;
	snprintf(n.name, sizeof n.name, "%s", name);
	return gp_graph_add(g, &n, &index, &err) == GP_OK ? index : -1;
}

static inline int conv_of(struct gp_graph *g, enum gp_op op, const char *name, int in, struct gp_conv_attr attr)
{
	struct gp_node n = {.op = op, .inputs = 1, .in = {in}};
	gp_set_conv_attr(&n, attr);
	return add(g, name, n);
}

static inline int pool_of(struct gp_graph *g, enum gp_op op, const char *name, int in, struct gp_pool_attr attr)
{
	struct gp_node n = {.op = op, .inputs = 1, .in = {in}};
	gp_set_pool_attr(&n, attr);
	return add(g, name, n);
}

static inline struct gp_graph *one_conv(int64_t h, int64_t w, int64_t c, enum gp_op op, struct gp_conv_attr attr)
{
	struct gp_graph *g = begin(h, w, c);
	return end(g, conv_of(g, op, "conv", 0, attr));
}

static inline struct gp_graph *pointwise(void)
{
	return one_conv(5, 7, 12, GP_OP_CONV2D, with_bias(square(20, 1, 1, 0, 1)));
}

static inline struct gp_graph *pointwise_grouped(void)
{
	return one_conv(5, 7, 12, GP_OP_CONV2D, square(6, 1, 1, 0, 3));
}

static inline struct gp_graph *pointwise_strided(void)
{
	struct gp_conv_attr attr = square(7, 1, 2, 0, 1);
	attr.stride_w = 3;
	return one_conv(8, 9, 13, GP_OP_CONV2D, attr);
}

static inline struct gp_graph *conv_3x3(void)
{
	return one_conv(9, 7, 8, GP_OP_CONV2D, with_bias(square(10, 3, 1, 1, 1)));
}

static inline struct gp_graph *conv_asymmetric(void)
{
	const struct gp_conv_attr attr = {.out_channels = 5,
					  .kernel_h = 5,
					  .kernel_w = 2,
					  .stride_h = 2,
					  .stride_w = 1,
					  .pad_top = 3,
					  .pad_right = 4,
					  .groups = 1,
					  .bias = true};
	return one_conv(11, 10, 3, GP_OP_CONV2D, attr);
}

static inline struct gp_graph *conv_grouped(void)
{
	struct gp_conv_attr attr = with_bias(square(9, 3, 2, 0, 3));
	attr.pad_top = attr.pad_left = 1;
	return one_conv(7, 6, 12, GP_OP_CONV2D, attr);
}

/* One channel in, two out, in every group: not depthwise. */
static inline struct gp_graph *conv_multiplied(void)
{
	return one_conv(7, 6, 5, GP_OP_CONV2D, square(10, 3, 1, 0, 5));
}

/* Columns of one image are more than a slice: bands of it. An odd number of outputs is not for tensor cores. */
static inline struct gp_graph *conv_in_bands(void)
{
	return one_conv(48, 48, 80, GP_OP_CONV2D, square(5, 5, 1, 2, 1));
}

/* Columns of two images are a slice. */
static inline struct gp_graph *conv_in_slices(void)
{
	return one_conv(24, 24, 144, GP_OP_CONV2D, square(3, 5, 1, 2, 1));
}

static inline struct gp_graph *transposed(void)
{
	const struct gp_conv_attr attr = {.out_channels = 8,
					  .kernel_h = 3,
					  .kernel_w = 4,
					  .stride_h = 2,
					  .stride_w = 3,
					  .pad_top = 1,
					  .pad_right = 2,
					  .out_pad_h = 1,
					  .groups = 2,
					  .bias = true};
	return one_conv(5, 4, 6, GP_OP_CONV2D_TRANSPOSE, attr);
}

static inline struct gp_graph *transposed_pointwise(void)
{
	return one_conv(5, 4, 6, GP_OP_CONV2D_TRANSPOSE, square(9, 1, 1, 0, 1));
}

static inline struct gp_graph *transposed_depthwise(void)
{
	struct gp_conv_attr attr = with_bias(square(6, 3, 2, 1, 6));
	attr.out_pad_w = 1;
	return one_conv(5, 4, 6, GP_OP_CONV2D_TRANSPOSE, attr);
}

static inline struct gp_graph *depthwise(int kernel, int stride, int channels, bool bias)
{
	struct gp_conv_attr attr = square(channels, kernel, stride, kernel / 2, channels);
	attr.bias = bias;
	return one_conv(11, 9, channels, GP_OP_CONV2D, attr);
}

static inline struct gp_graph *depthwise_3x3(void)
{
	return depthwise(3, 1, 24, false);
}

static inline struct gp_graph *depthwise_3x3_strided(void)
{
	return depthwise(3, 2, 13, true);
}

static inline struct gp_graph *depthwise_5x5(void)
{
	return depthwise(5, 1, 12, true);
}

static inline struct gp_graph *depthwise_7x7_strided(void)
{
	return depthwise(7, 3, 20, false);
}

static inline struct gp_graph *batch_norm(void)
{
	struct gp_graph *g = begin(6, 5, 10);
	return end(g, gp_graph_batch_norm(g, "bn", 0, 1e-5f, 0.1f, &err));
}

static inline struct gp_graph *batch_norm_of_rows(void)
{
	struct gp_graph *g = begin(0, 0, 21);
	int x = gp_graph_batch_norm(g, "bn", 0, 1e-3f, 0.3f, &err);
	return end(g, gp_graph_unary(g, GP_OP_RELU6, "act", x, &err));
}

/* A convolution without bias, a batch norm, and an activation (or GP_OP_INPUT for none), all named after `part`. */
static inline int conv_bn(struct gp_graph *g, const char *part, int in, int channels, int kernel, int stride,
			  int groups, enum gp_op act)
{
	char name[GP_NAME_MAX];
	int x = gp_graph_conv(g, part, in, channels, kernel, stride, kernel / 2, groups, false, &err);
	snprintf(name, sizeof name, "%.40s_bn", part);
	x = gp_graph_batch_norm(g, name, x, 1e-5f, 0.1f, &err);
	snprintf(name, sizeof name, "%.40s_act", part);
	return act == GP_OP_INPUT ? x : gp_graph_unary(g, act, name, x, &err);
}

/* MobileNetV2: sums without an activation, whose values two ops read. */
static inline struct gp_graph *inverted_residuals(void)
{
	struct gp_graph *g = begin(6, 5, 8);
	int x = conv_bn(g, "a0", 0, 24, 1, 1, 1, GP_OP_RELU6);
	x = conv_bn(g, "a1", x, 24, 3, 1, 24, GP_OP_RELU6);
	x = conv_bn(g, "a2", x, 8, 1, 1, 1, GP_OP_INPUT);
	int sum = gp_graph_sum(g, "a", 0, x, &err);
	x = conv_bn(g, "b0", sum, 24, 1, 1, 1, GP_OP_RELU6);
	x = conv_bn(g, "b1", x, 24, 3, 1, 24, GP_OP_RELU6);
	x = conv_bn(g, "b2", x, 8, 1, 1, 1, GP_OP_INPUT);
	return end(g, gp_graph_sum(g, "b", sum, x, &err));
}

/* ResNet: a residual before the activation, and one that has a convolution of its own. */
static inline struct gp_graph *residuals(void)
{
	struct gp_graph *g = begin(9, 8, 8);
	int x = conv_bn(g, "a0", 0, 8, 3, 1, 1, GP_OP_RELU);
	x = conv_bn(g, "a1", x, 8, 3, 1, 1, GP_OP_INPUT);
	x = gp_graph_sum(g, "a_sum", x, 0, &err);
	int a = gp_graph_unary(g, GP_OP_RELU, "a", x, &err);
	x = conv_bn(g, "b0", a, 16, 3, 2, 1, GP_OP_RELU);
	x = conv_bn(g, "b1", x, 16, 3, 1, 1, GP_OP_INPUT);
	int down = conv_bn(g, "down", a, 16, 1, 2, 1, GP_OP_INPUT);
	x = gp_graph_sum(g, "b_sum", x, down, &err);
	return end(g, gp_graph_unary(g, GP_OP_RELU, "b", x, &err));
}

/* Everything that adds to a gradient that is already there. */
static inline struct gp_graph *convs_of_many_readers(void)
{
	struct gp_graph *g = begin(7, 6, 8);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err);
	int a = gp_graph_conv(g, "a", r, 8, 3, 1, 1, 1, true, &err),
	    b = gp_graph_conv(g, "b", r, 8, 1, 1, 0, 1, false, &err);
	int c = gp_graph_conv(g, "c", r, 8, 3, 1, 1, 8, false, &err),
	    d = gp_graph_pool(g, GP_OP_MAX_POOL, "d", r, 3, 1, 1, &err);
	int e = conv_of(g, GP_OP_CONV2D_TRANSPOSE, "e", r, square(8, 3, 1, 1, 1));
	a = gp_graph_sum(g, "ab", a, b, &err);
	c = gp_graph_sum(g, "cd", c, d, &err);
	a = gp_graph_sum(g, "abcd", a, c, &err);
	return end(g, gp_graph_sum(g, "abcde", a, e, &err));
}

static inline struct gp_graph *one_pool(enum gp_op op, struct gp_pool_attr attr)
{
	struct gp_graph *g = begin(9, 10, 6);
	return end(g, pool_of(g, op, "pool", 0, attr));
}

static inline struct gp_graph *max_pool(void)
{
	return one_pool(
		GP_OP_MAX_POOL,
		(struct gp_pool_attr){
			.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1, .pad_top = 1, .pad_right = 1});
}

static inline struct gp_graph *avg_pool(void)
{
	return one_pool(
		GP_OP_AVG_POOL,
		(struct gp_pool_attr){
			.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1, .pad_bottom = 2, .pad_left = 1});
}

static inline struct gp_graph *avg_pool_with_padding(void)
{
	return one_pool(GP_OP_AVG_POOL, (struct gp_pool_attr){.kernel_h = 2,
							      .kernel_w = 3,
							      .stride_h = 2,
							      .stride_w = 2,
							      .pad_top = 1,
							      .pad_left = 1,
							      .count_include_pad = true});
}

/* --- batch norms with what they take over ------------------------------------------------------------------------ */

static inline int norm(struct gp_graph *g, const char *name, int in)
{
	return gp_graph_batch_norm(g, name, in, 1e-5f, 0.1f, &err);
}

static inline struct gp_graph *norms_with_activations(void)
{
	struct gp_graph *g = begin(5, 3, 13);
	int six = gp_graph_unary(g, GP_OP_RELU6, "six", norm(g, "a", 0), &err);
	int relu = gp_graph_unary(g, GP_OP_RELU, "relu", norm(g, "b", 0), &err);
	return end(g, gp_graph_sum(g, "s", six, relu, &err));
}

static inline struct gp_graph *norm_with_residual_and_activation(void)
{
	struct gp_graph *g = begin(5, 3, 16);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), s = gp_graph_sum(g, "s", norm(g, "a", r), r, &err);
	s = gp_graph_unary(g, GP_OP_RELU, "act", s, &err);
	int t = gp_graph_sum(g, "t", s, norm(g, "b", s), &err);
	return end(g, gp_graph_unary(g, GP_OP_RELU6, "six", t, &err));
}

/* The residual's gradient is the sum's own: two have it, and neither may spoil it for the other. */
static inline struct gp_graph *norm_with_residual_alone(void)
{
	struct gp_graph *g = begin(4, 3, 7);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), s = gp_graph_sum(g, "s", norm(g, "a", r), r, &err);
	return end(g, gp_graph_sum(g, "t", norm(g, "b", s), s, &err));
}

/* As behind a projection: one of them takes the sum, the other is its residual. */
static inline struct gp_graph *two_norms_that_meet(void)
{
	struct gp_graph *g = begin(3, 3, 10);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), a = norm(g, "a", r), b = norm(g, "b", 0);
	return end(g, gp_graph_unary(g, GP_OP_RELU6, "act", gp_graph_sum(g, "s", b, a, &err), &err));
}

/* Read by two, so that nothing can be taken over. */
static inline struct gp_graph *norm_of_two_readers(void)
{
	struct gp_graph *g = begin(3, 3, 9);
	int b = norm(g, "b", 0), c = norm(g, "c", 0), r = gp_graph_unary(g, GP_OP_RELU, "r", b, &err);
	int s = gp_graph_sum(g, "s", r, b, &err);
	return end(g, gp_graph_sum(g, "t", gp_graph_sum(g, "twice", c, c, &err), s, &err));
}

/* The sum is read besides the activation: it is taken over, the activation is not. */
static inline struct gp_graph *sum_of_two_readers(void)
{
	struct gp_graph *g = begin(3, 4, 8);
	int s = gp_graph_sum(g, "s", norm(g, "b", 0), 0, &err), r = gp_graph_unary(g, GP_OP_RELU, "r", s, &err);
	return end(g, gp_graph_sum(g, "t", r, s, &err));
}

/* Others read what the norm reads, before the sum that it might have been folded into. */
static inline struct gp_graph *norm_between_readers(void)
{
	struct gp_graph *g = begin(4, 3, 8);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), n = norm(g, "n", r);
	int c = gp_graph_conv(g, "c", r, 8, 1, 1, 0, 1, false, &err), s = gp_graph_sum(g, "s", n, c, &err);
	return end(g, gp_graph_sum(g, "t", gp_graph_unary(g, GP_OP_RELU, "act", s, &err), r, &err));
}

/* --- frozen norms ------------------------------------------------------------------------------------------------- */

static inline struct gp_graph *frozen(struct gp_graph *g, const char *pattern)
{
	assert_true(gp_graph_freeze(g, pattern) > 0);
	return g;
}

static inline struct gp_graph *frozen_norm(void)
{
	return frozen(batch_norm(), "*");
}

static inline struct gp_graph *frozen_norms_with_activations(void)
{
	return frozen(norms_with_activations(), "*");
}

static inline struct gp_graph *frozen_norm_with_residual_and_activation(void)
{
	return frozen(norm_with_residual_and_activation(), "a.*");
}

static inline struct gp_graph *frozen_norm_with_residual_alone(void)
{
	return frozen(norm_with_residual_alone(), "*");
}

static inline struct gp_graph *norms_without_their_weights(void)
{
	return frozen(norm_with_residual_and_activation(), "*.weight");
}

static inline struct gp_graph *norms_without_their_biases(void)
{
	return frozen(residuals(), "*_bn.bias");
}

static inline struct gp_graph *frozen_convolutions(void)
{
	return frozen(residuals(), "[ab][01].weight");
}

static inline struct gp_graph *frozen_biases(void)
{
	return frozen(linear_of_many_readers(), "*.bias");
}

/* --- many inputs and outputs -------------------------------------------------------------------------------------- */

/* A graph of rows (F), then of i32 (S) where there are ids. */
static inline struct gp_graph *begin_many(int inputs, const int64_t *width, int64_t ids)
{
	struct gp_graph *g = gp_graph_new_empty("case", &err);
	char name[16];
	assert_non_null(g);
	for (int i = 0; i < inputs; i++) {
		snprintf(name, sizeof name, "in%d", i);
		assert_int_equal(
			gp_graph_add_input(g, name, &(struct gp_type){GP_F32, {.ndim = 1, .dim = {width[i]}}}, &err),
			i);
	}
	if (ids)
		assert_true(gp_graph_add_input(g, "ids", &(struct gp_type){GP_I32, {.ndim = 1, .dim = {ids}}}, &err) >=
			    0);
	OK(gp_graph_begin_block(g, "block", &err));
	return g;
}

static inline struct gp_graph *end_many(struct gp_graph *g, int outputs, const int *value)
{
	OK(gp_graph_set_outputs(g, outputs, value, &err));
	return end(g, 0);
}

static inline int sum_of(struct gp_graph *g, const char *name, int inputs, const int *in)
{
	return gp_graph_append(g, (struct gp_node){.op = GP_OP_ADD}, name, inputs, in, &err);
}

static inline struct gp_graph *sums_of_many(void)
{
	struct gp_graph *g = begin_many(3, (const int64_t[]){37, 37, 37}, 0);
	int a = sum_of(g, "a", 3, (const int[]){0, 1, 2});
	int b = gp_graph_unary(g, GP_OP_RELU, "b", sum_of(g, "five", 5, (const int[]){a, 1, a, 0, 1}), &err);
	return end_many(g, 2, (const int[]){sum_of(g, "c", 4, (const int[]){b, a, b, 2}), a});
}

static inline struct gp_graph *identities(void)
{
	struct gp_graph *g = begin_many(1, (const int64_t[]){24}, 5);
	int a = gp_graph_unary(g, GP_OP_IDENTITY, "a", 0, &err), r = gp_graph_unary(g, GP_OP_RELU, "r", a, &err);
	int b = gp_graph_unary(g, GP_OP_IDENTITY, "b", r, &err), ids = gp_graph_unary(g, GP_OP_IDENTITY, "i", 1, &err);
	return end_many(g, 4, (const int[]){b, ids, a, gp_graph_unary(g, GP_OP_RELU6, "s", b, &err)});
}

static inline struct gp_graph *concats(void)
{
	struct gp_graph *g = begin_many(3, (const int64_t[]){16, 7, 24}, 0);
	int all = gp_graph_concat(g, "all", 4, (const int[]){0, 1, 2, 0}, &err);
	int wide = gp_graph_concat(g, "wide", 2, (const int[]){2, 0}, &err);
	return end_many(g, 2, (const int[]){gp_graph_unary(g, GP_OP_RELU, "r", all, &err), wide});
}

/* Images; nobody reads the second part, one is an output, one is read by a convolution. */
static inline struct gp_graph *splits(void)
{
	struct gp_graph *g = begin(3, 5, 32);
	int part = gp_graph_split(g, "parts", 0, 4, &err),
	    c = gp_graph_conv(g, "c", part + 3, 6, 3, 1, 1, 1, true, &err);
	int thin = gp_graph_split(g, "thin", c, 3, &err);
	int joined = gp_graph_concat(g, "joined", 3, (const int[]){thin + 2, part, thin}, &err);
	return end_many(g, 2, (const int[]){joined, part + 2});
}

static inline struct gp_graph *embedding_of(int64_t ids, int vocab, int features)
{
	struct gp_graph *g = begin_many(0, NULL, ids);
	return end(g, gp_graph_embedding(g, "table", 0, vocab, features, &err));
}

static inline struct gp_graph *embedding(void)
{
	return embedding_of(9, 7, 5);
}

/* Features of several blocks of threads, positions of several rounds. */
static inline struct gp_graph *embedding_of_many(void)
{
	return embedding_of(301, 6, 264);
}

static inline struct gp_graph *masked_mean_of(int64_t positions, int features)
{
	struct gp_graph *g = gp_graph_new_empty("case", &err);
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {positions, features}}};
	const struct gp_type mask = {GP_I32, {.ndim = 1, .dim = {positions}}};
	assert_int_equal(gp_graph_add_input(g, "x", &x, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "mask", &mask, &err), 1);
	OK(gp_graph_begin_block(g, "block", &err));
	return end(g, gp_graph_masked_mean(g, "mean", 0, 1, &err));
}

static inline struct gp_graph *masked_mean(void)
{
	return masked_mean_of(19, 37);
}

/* Where it keeps none, the mean is zeros. */
static inline struct gp_graph *masked_mean_of_one(void)
{
	return masked_mean_of(1, 40);
}

static inline struct gp_graph *tokens(void)
{
	struct gp_graph *g = begin_many(1, (const int64_t[]){3}, 11);
	int x = gp_graph_embedding(g, "table", 1, 8, 16, &err);
	x = gp_graph_linear(g, "mix", x, 16, true, &err);
	x = gp_graph_masked_mean(g, "mean", gp_graph_unary(g, GP_OP_RELU, "act", x, &err), 1, &err);
	x = gp_graph_concat(g, "joined", 2, (const int[]){x, 0}, &err);
	return end(g, gp_graph_linear(g, "fc", x, 4, true, &err));
}

/* --- language models ---------------------------------------------------------------------------------------------- */

static inline struct gp_graph *gelu_of(bool approximate)
{
	struct gp_graph *g = begin(5, 7, 13);
	return end(g, gp_graph_gelu(g, "act", 0, approximate, &err));
}

static inline struct gp_graph *gelu(void)
{
	return gelu_of(false);
}

static inline struct gp_graph *gelu_by_tanh(void)
{
	return gelu_of(true);
}

static inline struct gp_graph *tanh_alone(void)
{
	struct gp_graph *g = begin(3, 5, 19);
	return end(g, gp_graph_unary(g, GP_OP_TANH, "act", 0, &err));
}

/* Their gradients meet, and what they read is read by others, too. */
static inline struct gp_graph *curves_of_many_readers(void)
{
	struct gp_graph *g = begin(0, 0, 37);
	int r = gp_graph_unary(g, GP_OP_TANH, "r", 0, &err), a = gp_graph_gelu(g, "a", r, false, &err);
	int b = gp_graph_gelu(g, "b", r, true, &err), c = gp_graph_unary(g, GP_OP_TANH, "c", r, &err);
	return end(g, sum_of(g, "s", 4, (const int[]){a, b, c, r}));
}

static inline struct gp_graph *linear_then_gelu(void)
{
	struct gp_graph *g = begin(0, 0, 24);
	int x = gp_graph_gelu(g, "act", gp_graph_linear(g, "in", 0, 37, true, &err), false, &err);
	x = gp_graph_linear(g, "out", x, 24, true, &err);
	x = gp_graph_gelu(g, "again", gp_graph_linear(g, "more", x, 11, false, &err), true, &err);
	return end(g, x);
}

/* A graph of one sequence (S,F), then its length where that is read. */
static inline struct gp_graph *begin_sequence(int64_t positions, int64_t features, bool length)
{
	struct gp_graph *g = gp_graph_new_empty("case", &err);
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {positions, features}}};
	const struct gp_type one = {GP_I32, {.ndim = 1, .dim = {1}}};
	assert_non_null(g);
	assert_int_equal(gp_graph_add_input(g, "x", &x, &err), 0);
	if (length)
		assert_int_equal(gp_graph_add_input(g, "length", &one, &err), 1);
	OK(gp_graph_begin_block(g, "block", &err));
	return g;
}

static inline int layer_norm_of(struct gp_graph *g, const char *name, int in, int residual, float p)
{
	return gp_graph_layer_norm(g, name, in, residual, (struct gp_layer_norm_attr){.eps = 1e-5f, .p = p}, &err);
}

static inline struct gp_graph *layer_norm(void)
{
	struct gp_graph *g = begin(4, 3, 21);
	return end(g, layer_norm_of(g, "n", 0, -1, 0.0f));
}

static inline struct gp_graph *layer_norm_of_one_row(void)
{
	struct gp_graph *g = begin(0, 0, 1030);
	return end(g, layer_norm_of(g, "n", 0, -1, 0.4f));
}

/* Too long to be held, sixteen bytes at once in every precision. */
static inline struct gp_graph *layer_norm_of_long_rows(void)
{
	struct gp_graph *g = begin(0, 0, 1040);
	return end(g, layer_norm_of(g, "n", 0, 0, 0.4f));
}

static inline struct gp_graph *layer_norm_with_residual(void)
{
	struct gp_graph *g = begin_sequence(7, 24, false);
	int x = gp_graph_linear(g, "before", 0, 24, true, &err);
	return end(g, layer_norm_of(g, "n", x, 0, 0.0f));
}

/* Residuals that others read, one that is the value itself, and dropouts that begin within a block of draws. */
static inline struct gp_graph *layer_norms_with_dropout(void)
{
	struct gp_graph *g = begin_sequence(5, 37, false);
	int a = layer_norm_of(g, "a", gp_graph_linear(g, "before", 0, 37, true, &err), 0, 0.3f);
	int b = layer_norm_of(g, "b", gp_graph_linear(g, "between", a, 37, false, &err), a, 0.1f);
	return end(g, layer_norm_of(g, "c", b, b, 0.5f));
}

static inline struct gp_graph *frozen_layer_norms(void)
{
	return frozen(layer_norms_with_dropout(), "[abc].*");
}

static inline struct gp_graph *layer_norms_without_their_biases(void)
{
	return frozen(layer_norms_with_dropout(), "[abc].bias");
}

static inline int attention_by(struct gp_graph *g, const char *name, const int qkv[3], int heads, float p)
{
	return gp_graph_attention(g, name, qkv, 1, (struct gp_attention_attr){.heads = heads, .p = p}, &err);
}

/* Queries, keys and values are one. */
static inline struct gp_graph *attention_of_one_value(void)
{
	struct gp_graph *g = begin_sequence(6, 20, true);
	return end(g, attention_by(g, "a", (const int[]){0, 0, 0}, 1, 0.0f));
}

static inline struct gp_graph *self_attention_of(int64_t positions, int features, int heads, float p)
{
	struct gp_graph *g = begin_sequence(positions, features, true);
	const int q = gp_graph_linear(g, "q", 0, features, true, &err),
		  k = gp_graph_linear(g, "k", 0, features, false, &err),
		  v = gp_graph_linear(g, "v", 0, features, true, &err);
	int x = attention_by(g, "a", (const int[]){q, k, v}, heads, p);
	return end(g, gp_graph_linear(g, "out", x, features, true, &err));
}

static inline struct gp_graph *self_attention(void)
{
	return self_attention_of(7, 24, 3, 0.0f);
}

static inline struct gp_graph *self_attention_with_dropout(void)
{
	return self_attention_of(5, 16, 2, 0.4f);
}

static inline struct gp_graph *add_rows_of(struct gp_add_rows_attr attr)
{
	struct gp_graph *g = begin_sequence(6, 21, false);
	return end(g, gp_graph_add_rows(g, "rows", gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), attr, &err));
}

static inline struct gp_graph *positions(void)
{
	return add_rows_of((struct gp_add_rows_attr){.rows = 9, .first = 2, .step = 1});
}

static inline struct gp_graph *one_of_rows(void)
{
	return add_rows_of((struct gp_add_rows_attr){.rows = 3, .first = 1, .step = 0});
}

/* A row that is taken twice, and one that is an output besides. */
static inline struct gp_graph *taken_rows(void)
{
	struct gp_graph *g = begin_sequence(5, 19, false);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), first = gp_graph_take_row(g, "first", r, 0, &err);
	int again = gp_graph_take_row(g, "again", r, 0, &err), last = gp_graph_take_row(g, "last", r, 4, &err);
	return end_many(g, 2, (const int[]){sum_of(g, "s", 3, (const int[]){first, again, last}), last});
}

/*
 * All of it: tokens, positions, a layer of an encoder, and what reads its first row. Keys have no bias: what all keys have in
 * common changes no weight, so that its gradient is what rounding leaves of 0, which devices need not agree on.
 */
static inline struct gp_graph *encoder(void)
{
	struct gp_graph *g = gp_graph_new_empty("case", &err);
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {7}}}, length = {GP_I32, {.ndim = 1, .dim = {1}}};
	const struct gp_add_rows_attr place = {.rows = 10, .first = 2, .step = 1}, kind = {.rows = 1};
	assert_int_equal(gp_graph_add_input(g, "ids", &ids, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "length", &length, &err), 1);
	OK(gp_graph_begin_block(g, "block", &err));
	int x = gp_graph_embedding(g, "tokens", 0, 8, 16, &err);
	x = gp_graph_add_rows(g, "kind", gp_graph_add_rows(g, "place", x, place, &err), kind, &err);
	const int in = layer_norm_of(g, "n0", x, -1, 0.0f);
	const int q = gp_graph_linear(g, "q", in, 16, true, &err), k = gp_graph_linear(g, "k", in, 16, false, &err),
		  v = gp_graph_linear(g, "v", in, 16, true, &err);
	x = gp_graph_linear(g, "o", attention_by(g, "a", (const int[]){q, k, v}, 2, 0.1f), 16, true, &err);
	const int middle = layer_norm_of(g, "n1", x, in, 0.1f);
	x = gp_graph_gelu(g, "act", gp_graph_linear(g, "f0", middle, 40, true, &err), false, &err);
	x = layer_norm_of(g, "n2", gp_graph_linear(g, "f1", x, 16, true, &err), middle, 0.1f);
	x = gp_graph_linear(g, "pooler", gp_graph_take_row(g, "first", x, 0, &err), 16, true, &err);
	return end(g, gp_graph_linear(g, "fc", gp_graph_unary(g, GP_OP_TANH, "tanh", x, &err), 3, true, &err));
}

/* --- insertions --------------------------------------------------------------------------------------------------- */

/* Convolutions as large as their strides and their mirrors, at a size that the strides do not divide. */
static inline struct gp_graph *there_and_back(void)
{
	struct gp_graph *g = begin(10, 7, 12);
	struct gp_node n = {.op = GP_OP_CONV2D_TRANSPOSE};
	int x = gp_graph_conv(g, "there", 0, 5, 3, 3, 0, 1, true, &err);
	x = gp_graph_conv(g, "fewer", x, 3, 1, 1, 0, 1, true, &err);
	gp_set_conv_attr(&n, (struct gp_conv_attr){5, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1});
	x = gp_graph_append(g, n, "more", 1, &x, &err);
	gp_set_conv_attr(&n, (struct gp_conv_attr){12, 3, 3, 3, 3, 0, 0, 0, 0, 1, 1, 1, 1});
	return end(g, gp_graph_append(g, n, "back", 1, &x, &err));
}

static inline struct gp_graph *linear_along_the_positions(void)
{
	struct gp_graph *g = begin_sequence(9, 6, false);
	int x = gp_graph_unary(g, GP_OP_SWAP_LAST, "swap", 0, &err);
	x = gp_graph_linear(g, "there", x, 4, false, &err);
	x = gp_graph_linear(g, "back", x, 9, false, &err);
	return end(g, gp_graph_unary(g, GP_OP_SWAP_LAST, "again", x, &err));
}

/* --- modes of batch norm ------------------------------------------------------------------------------------------ */

static inline struct gp_graph *in_mode(struct gp_graph *g, enum gp_bn_mode mode)
{
	struct gp_bn_attr how = {.mode = mode};
	if (mode == GP_BN_RENORM) {
		how.r_max = 2.0f;
		how.d_max = 1.0f;
	}
	assert_true(gp_graph_set_batch_norm(g, &how, &err) > 0);
	return g;
}

#define IN_MODE(graph, suffix, mode)                                                                                   \
	static inline struct gp_graph *graph##_##suffix(void)                                                          \
	{                                                                                                              \
		return in_mode(graph(), mode);                                                                         \
	}

IN_MODE(batch_norm_of_rows, deferred, GP_BN_DEFERRED)
IN_MODE(residuals, deferred, GP_BN_DEFERRED)
IN_MODE(batch_norm, running, GP_BN_RUNNING)
IN_MODE(batch_norm_of_rows, running, GP_BN_RUNNING)
IN_MODE(inverted_residuals, running, GP_BN_RUNNING)
IN_MODE(residuals, running, GP_BN_RUNNING)
IN_MODE(norms_with_activations, running, GP_BN_RUNNING)
IN_MODE(norm_with_residual_alone, running, GP_BN_RUNNING)
IN_MODE(norms_without_their_weights, running, GP_BN_RUNNING)
IN_MODE(frozen_norm_with_residual_and_activation, running, GP_BN_RUNNING)
IN_MODE(batch_norm_of_rows, renorm, GP_BN_RENORM)
IN_MODE(inverted_residuals, renorm, GP_BN_RENORM)
IN_MODE(residuals, renorm, GP_BN_RENORM)
IN_MODE(norms_with_activations, renorm, GP_BN_RENORM)
IN_MODE(norms_without_their_biases, renorm, GP_BN_RENORM)

/* Shapes of samples are in the graphs. */
static const struct {
	const char *name;
	struct gp_graph *(*build)(void);
	int batch;
} op_cases[] = {
	{"relu", relu, 3},
	{"relu6 behind a view", relu6_behind_a_view, 2},
	{"views alone", views_alone, 3},
	{"sums", sums, 2},
	{"linear", linear, 5},
	{"linear of many readers", linear_of_many_readers, 3},
	{"flatten, linear", flatten_then_linear, 3},
	{"flatten", flatten_alone, 2},
	{"dropout", dropout, 3},
	{"shortcuts", shortcuts, 3},
	{"shortcuts of vectors", shortcuts_of_vectors, 3},
	{"global pool", global_pool, 3},
	{"many rows", many_rows, 1537},
	{"pointwise", pointwise, 3},
	{"pointwise, grouped", pointwise_grouped, 3},
	{"pointwise, strided", pointwise_strided, 3},
	{"3x3", conv_3x3, 3},
	{"5x2, asymmetric", conv_asymmetric, 2},
	{"3x3, grouped", conv_grouped, 3},
	{"3x3, a channel a group", conv_multiplied, 2},
	{"5x5 in bands", conv_in_bands, 1},
	{"5x5 in slices", conv_in_slices, 3},
	{"transposed", transposed, 3},
	{"transposed, pointwise", transposed_pointwise, 3},
	{"transposed, depthwise", transposed_depthwise, 3},
	{"depthwise 3x3", depthwise_3x3, 3},
	{"depthwise 3x3, strided", depthwise_3x3_strided, 3},
	{"depthwise 5x5", depthwise_5x5, 2},
	{"depthwise 7x7, strided", depthwise_7x7_strided, 2},
	{"batch norm", batch_norm, 3},
	{"batch norm of rows", batch_norm_of_rows, 7},
	{"inverted residuals", inverted_residuals, 3},
	{"residuals", residuals, 3},
	{"convolutions of many readers", convs_of_many_readers, 2},
	{"max pool", max_pool, 3},
	{"avg pool", avg_pool, 3},
	{"avg pool with padding", avg_pool_with_padding, 2},
	{"norms with activations", norms_with_activations, 4},
	{"norm with residual and activation", norm_with_residual_and_activation, 3},
	{"norm with residual", norm_with_residual_alone, 3},
	{"two norms that meet", two_norms_that_meet, 3},
	{"norm of two readers", norm_of_two_readers, 3},
	{"sum of two readers", sum_of_two_readers, 3},
	{"norm between readers", norm_between_readers, 3},
	{"frozen norm", frozen_norm, 3},
	{"frozen norms with activations", frozen_norms_with_activations, 4},
	{"frozen norm with residual and activation", frozen_norm_with_residual_and_activation, 3},
	{"frozen norm with residual", frozen_norm_with_residual_alone, 3},
	{"norms without their weights", norms_without_their_weights, 3},
	{"norms without their biases", norms_without_their_biases, 3},
	{"frozen convolutions", frozen_convolutions, 3},
	{"frozen biases", frozen_biases, 3},
	{"sums of many", sums_of_many, 3},
	{"identities", identities, 3},
	{"concats", concats, 5},
	{"splits", splits, 2},
	{"embedding", embedding, 4},
	{"embedding of many", embedding_of_many, 3},
	{"masked mean", masked_mean, 5},
	{"masked mean of one", masked_mean_of_one, 9},
	{"tokens", tokens, 4},
	{"gelu", gelu, 3},
	{"gelu by tanh", gelu_by_tanh, 2},
	{"tanh", tanh_alone, 3},
	{"curves of many readers", curves_of_many_readers, 5},
	{"linear, gelu", linear_then_gelu, 5},
	{"layer norm", layer_norm, 3},
	{"layer norm of one row", layer_norm_of_one_row, 5},
	{"layer norm of long rows", layer_norm_of_long_rows, 2},
	{"layer norm with residual", layer_norm_with_residual, 3},
	{"layer norms with dropout", layer_norms_with_dropout, 3},
	{"frozen layer norms", frozen_layer_norms, 3},
	{"layer norms without their biases", layer_norms_without_their_biases, 3},
	{"attention of one value", attention_of_one_value, 7},
	{"self-attention", self_attention, 5},
	{"self-attention with dropout", self_attention_with_dropout, 4},
	{"positions", positions, 3},
	{"one of rows", one_of_rows, 3},
	{"taken rows", taken_rows, 3},
	{"numbered rows", numbered_rows, 5},
	{"numbered rows, again", numbered_rows_again, 4},
	{"masked language model", masked_language_model, 3},
	{"encoder", encoder, 4},
	{"there and back", there_and_back, 3},
	{"linear along the positions", linear_along_the_positions, 3},
	{"deferred norm of rows", batch_norm_of_rows_deferred, 7},
	{"residuals with deferred norms", residuals_deferred, 3},
	{"running norm", batch_norm_running, 3},
	{"running norm of rows", batch_norm_of_rows_running, 7},
	{"inverted residuals with running norms", inverted_residuals_running, 3},
	{"residuals with running norms", residuals_running, 3},
	{"running norms with activations", norms_with_activations_running, 4},
	{"running norm with residual", norm_with_residual_alone_running, 3},
	{"running norms without their weights", norms_without_their_weights_running, 3},
	{"running norm behind a frozen one", frozen_norm_with_residual_and_activation_running, 3},
	{"renorm of rows", batch_norm_of_rows_renorm, 7},
	{"inverted residuals with renorm", inverted_residuals_renorm, 3},
	{"residuals with renorm", residuals_renorm, 3},
	{"renorms with activations", norms_with_activations_renorm, 4},
	{"renorms without their biases", norms_without_their_biases_renorm, 3},
};
enum { OP_CASES = sizeof op_cases / sizeof op_cases[0] };

#endif
