/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution and transposed convolution: attributes, shapes, parameters, builder.
 * Test: tests/unit/test_graph.c
 */
#include "common/graph/ops/op_conv.h"

#include "common/base/mem.h"

static enum gp_status check_conv(const struct gp_conv_attr *a, int64_t in_channels, struct gp_err *err)
{
	GP_TRY(gp_check_range("out_channels", a->out_channels, 1, GP_OP_MAX_FEATURES, err));
	GP_TRY(gp_check_range("kernel height", a->kernel_h, 1, GP_OP_MAX_WINDOW, err));
	GP_TRY(gp_check_range("kernel width", a->kernel_w, 1, GP_OP_MAX_WINDOW, err));
	GP_TRY(gp_check_range("stride height", a->stride_h, 1, GP_OP_MAX_WINDOW, err));
	GP_TRY(gp_check_range("stride width", a->stride_w, 1, GP_OP_MAX_WINDOW, err));
	GP_TRY(gp_check_range("top padding", a->pad_top, 0, GP_OP_MAX_WINDOW, err));
	GP_TRY(gp_check_range("bottom padding", a->pad_bottom, 0, GP_OP_MAX_WINDOW, err));
	GP_TRY(gp_check_range("left padding", a->pad_left, 0, GP_OP_MAX_WINDOW, err));
	GP_TRY(gp_check_range("right padding", a->pad_right, 0, GP_OP_MAX_WINDOW, err));
	GP_TRY(gp_check_range("groups", a->groups, 1, GP_OP_MAX_FEATURES, err));
	GP_TRY(gp_check_range("bias", a->bias, 0, 1, err));
	if (in_channels % a->groups || a->out_channels % a->groups)
		GP_FAIL(err, GP_INVALID, "%d groups do not divide %lld input and %d output channels", a->groups,
			(long long)in_channels, a->out_channels);
	return GP_OK;
}

static enum gp_status infer_conv(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_conv_attr attr = gp_conv_attr(io->node), *const a = &attr;
	GP_TRY(gp_check_image(io, 0, err));
	const struct gp_shape *in = &io->in[0]->shape;
	int64_t c = in->dim[2];
	GP_TRY(check_conv(a, c, err));
	if (a->out_pad_h || a->out_pad_w)
		GP_FAIL(err, GP_INVALID, "output padding belongs to transposed convolution only");
	int64_t h = in->dim[0] + a->pad_top + a->pad_bottom - a->kernel_h;
	int64_t w = in->dim[1] + a->pad_left + a->pad_right - a->kernel_w;
	if (h < 0 || w < 0)
		GP_FAIL(err, GP_INVALID, "a %dx%d kernel does not fit a padded %lldx%lld image", a->kernel_h,
			a->kernel_w, (long long)(h + a->kernel_h), (long long)(w + a->kernel_w));
	io->out[0].shape = gp_shape3(h / a->stride_h + 1, w / a->stride_w + 1, a->out_channels);
	int64_t per_group = c / a->groups;
	struct gp_shape weight = {.ndim = 4, .dim = {a->out_channels, per_group, a->kernel_h, a->kernel_w}};
	GP_TRY(gp_infer_weight_and_bias(io, weight, per_group * a->kernel_h * a->kernel_w, a->bias, a->out_channels,
					err));
	if (!gp_mul_ok((uint64_t)io->out[0].shape.dim[0] * (uint64_t)io->out[0].shape.dim[1], io->param[0].count,
		       &io->node->macs))
		GP_FAIL(err, GP_INVALID, "the convolution is too large");
	return GP_OK;
}

static enum gp_status infer_conv_transpose(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_conv_attr attr = gp_conv_attr(io->node), *const a = &attr;
	GP_TRY(gp_check_image(io, 0, err));
	const struct gp_shape *in = &io->in[0]->shape;
	int64_t c = in->dim[2];
	GP_TRY(check_conv(a, c, err));
	GP_TRY(gp_check_range("output padding height", a->out_pad_h, 0, a->stride_h - 1, err));
	GP_TRY(gp_check_range("output padding width", a->out_pad_w, 0, a->stride_w - 1, err));
	int64_t h = (in->dim[0] - 1) * a->stride_h - a->pad_top - a->pad_bottom + a->kernel_h + a->out_pad_h;
	int64_t w = (in->dim[1] - 1) * a->stride_w - a->pad_left - a->pad_right + a->kernel_w + a->out_pad_w;
	if (h < 1 || w < 1)
		GP_FAIL(err, GP_INVALID, "the padding crops the whole %lldx%lld output", (long long)h, (long long)w);
	io->out[0].shape = gp_shape3(h, w, a->out_channels);
	int64_t per_group = a->out_channels / a->groups;
	struct gp_shape weight = {.ndim = 4, .dim = {c, per_group, a->kernel_h, a->kernel_w}};
	/* torch.nn takes fan_in from the weight's second dimension, which here counts outputs. */
	GP_TRY(gp_infer_weight_and_bias(io, weight, per_group * a->kernel_h * a->kernel_w, a->bias, a->out_channels,
					err));
	if (!gp_mul_ok((uint64_t)in->dim[0] * (uint64_t)in->dim[1], io->param[0].count, &io->node->macs))
		GP_FAIL(err, GP_INVALID, "the transposed convolution is too large");
	return GP_OK;
}

int gp_graph_conv(struct gp_graph *g, const char *name, int in, int out_channels, int kernel, int stride, int pad,
		  int groups, bool bias, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_CONV2D};
	gp_set_conv_attr(&n, (struct gp_conv_attr){.out_channels = out_channels,
						   .kernel_h = kernel,
						   .kernel_w = kernel,
						   .stride_h = stride,
						   .stride_w = stride,
						   .pad_top = pad,
						   .pad_bottom = pad,
						   .pad_left = pad,
						   .pad_right = pad,
						   .groups = groups,
						   .bias = bias});
	return gp_graph_append(g, n, name, 1, &in, err);
}

static const struct gp_op_attr attributes[] = {
	{"out_channels", false}, {"kernel_h", false},   {"kernel_w", false}, {"stride_h", false},  {"stride_w", false},
	{"pad_top", false},      {"pad_bottom", false}, {"pad_left", false}, {"pad_right", false}, {"out_pad_h", false},
	{"out_pad_w", false},    {"groups", false},     {"bias", false}};

const struct gp_op_def gp_op_conv2d = {
	.name = "conv2d",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(attributes),
	.attr = attributes,
	.infer = infer_conv,
};

const struct gp_op_def gp_op_conv2d_transpose = {
	.name = "conv2d_transpose",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(attributes),
	.attr = attributes,
	.infer = infer_conv_transpose,
};
