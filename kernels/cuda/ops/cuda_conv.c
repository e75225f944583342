/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution and transposed convolution on the GPU (conv_ways.h); depthwise ones are handed to cuda_depthwise.c. The
 * weight lies with its input channels innermost. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/conv_ways.h"
#include "kernels/cuda/ops/k_columns.h"
#include "common/graph/ops/op_conv.h"

static uint64_t larger_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static enum gp_status prepare(struct cuda_plan *p, struct cuda_node *n, bool transposed, struct gp_err *err)
{
	static const int8_t channels_last[4] = {0, 2, 3, 1};
	struct cuda_conv *v;
	GP_TRY(gp_cuda_conv_new(p, n, transposed, &v, err));
	if (gp_cuda_conv_is_depthwise(v)) {
		n->op = &gp_cuda_depthwise;
		return n->op->prepare(p, n, err);
	}
	gp_cuda_order_weight(p, n, channels_last);
	n->base.adds_gradient = p->type == GP_RT_F32 || !v->rows; /* a product that adds rounds the sum alone */
	n->base.saves_in = gp_cuda_is_trained(p, n, GP_PARAM_WEIGHT);
	const struct cuda_conv_rooms room = gp_cuda_conv_rooms(v, p->type, p->base.spec.precision);
	n->base.tmp_bytes[0] = transposed ? room.scatter : room.gather;
	n->base.tmp_bytes[1] = transposed ? room.gather : room.scatter;
	n->tmp_weight_bytes = room.weight;
	if (transposed || n->base.want_dx)
		n->pack_bytes = gp_cuda_conv_pack_bytes(v, p->type);
	if (gp_conv_attr(n->base.g).bias) {
		const int64_t channels = gp_conv_attr(n->base.g).out_channels, rows = gp_cuda_elements(p, n) / channels;
		n->tmp_weight_bytes = larger_of(n->tmp_weight_bytes, gpk_row_bias_room(rows, channels));
	}
	return GP_OK;
}

static enum gp_status conv_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	return prepare(p, n, false, err);
}

static enum gp_status transpose_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	return prepare(p, n, true, err);
}

static void conv_pack(const struct cuda_call *c)
{
	if (c->pack)
		gp_cuda_conv_pack(c, c->node->state);
}

static void add_bias(const struct cuda_call *c)
{
	const float *bias = gp_cuda_param(c->plan, c->node, GP_PARAM_BIAS);
	const int64_t channels = gp_conv_attr(c->node->base.g).out_channels;
	if (bias)
		gpk_row_bias_forward(c->stream, c->type, c->out[0], bias, gp_cuda_elements(c->plan, c->node) / channels,
				     channels);
}

static void bias_gradient(const struct cuda_call *c)
{
	float *grad = gp_cuda_grad(c->plan, c->node, GP_PARAM_BIAS);
	const int64_t channels = gp_conv_attr(c->node->base.g).out_channels;
	if (grad)
		gpk_row_bias_backward(c->stream, c->type, grad, c->dout[0],
				      gp_cuda_elements(c->plan, c->node) / channels, channels, c->tmp);
}

static void conv_forward(const struct cuda_call *c)
{
	gp_cuda_conv_gather(c, c->node->state, c->in[0], c->tmp, false, c->out[0]);
	add_bias(c);
}

static void conv_backward_weight(const struct cuda_call *c)
{
	float *grad = gp_cuda_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	bias_gradient(c);
	if (grad)
		gp_cuda_conv_weight(c, c->node->state, c->in[0], c->dout[0], c->tmp, grad);
}

static void conv_backward(const struct cuda_call *c)
{
	if (c->dx[0])
		gp_cuda_conv_scatter(c, c->node->state, c->dout[0], c->tmp, c->add & 1, c->dx[0]);
}

static void transpose_forward(const struct cuda_call *c)
{
	gp_cuda_conv_scatter(c, c->node->state, c->in[0], c->tmp, false, c->out[0]);
	add_bias(c);
}

static void transpose_backward_weight(const struct cuda_call *c)
{
	float *grad = gp_cuda_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	bias_gradient(c);
	if (grad)
		gp_cuda_conv_weight(c, c->node->state, c->dout[0], c->in[0], c->tmp, grad);
}

static void transpose_backward(const struct cuda_call *c)
{
	if (c->dx[0])
		gp_cuda_conv_gather(c, c->node->state, c->dout[0], c->tmp, c->add & 1, c->dx[0]);
}

const struct cuda_op gp_cuda_op_conv2d = {
	.name = "conv2d",
	.saves_in = 1,
	.adds_gradient = true,
	.narrow_weight = true,
	.prepare = conv_prepare,
	.pack = conv_pack,
	.forward = conv_forward,
	.backward = conv_backward,
	.backward_weight = conv_backward_weight,
};

const struct cuda_op gp_cuda_op_conv2d_transpose = {
	.name = "conv2d_transpose",
	.saves_in = 1,
	.adds_gradient = true,
	.narrow_weight = true,
	.prepare = transpose_prepare,
	.pack = conv_pack,
	.forward = transpose_forward,
	.backward = transpose_backward,
	.backward_weight = transpose_backward_weight,
};
