/* SPDX-License-Identifier: Apache-2.0
 *
 * Small graphs of convolutions, batch norms and pools, alone and in residual
 * blocks: op_graphs.h has the table of all cases. Not a test by itself.
 */
#ifndef GP_TEST_OP_GRAPHS_PICTURE_H
#define GP_TEST_OP_GRAPHS_PICTURE_H

#include "tests/unit/op_case.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_pool.h"

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

#endif
