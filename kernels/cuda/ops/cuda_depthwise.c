/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise convolution on the GPU, and its transpose, by kernels of their own
 * (k_depthwise.h): there is too little arithmetic for matrix products. Takes
 * over from cuda_conv.c, which made its state. The weight lies as (KH, KW, C) and
 * is read in fp32 in every precision. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/conv_ways.h"
#include "kernels/cuda/ops/k_columns.h"
#include "kernels/cuda/ops/k_depthwise.h"
#include "common/graph/ops/op_conv.h"

static enum gp_status depthwise_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	static const int8_t channels_innermost[4] = {2, 3, 0, 1};
	const struct cuda_conv *v = n->state;
	const uint64_t room = gpk_depthwise_room(&v->w);
	gp_cuda_order_weight(p, n, channels_innermost);
	n->tmp_weight_bytes = room;
	n->base.adds_gradient = n->op->adds_gradient;
	n->base.saves_in = gp_cuda_is_trained(p, n, GP_PARAM_WEIGHT);
	if (gp_conv_attr(n->base.g).bias) {
		const uint64_t sums = gpk_row_bias_room(gp_cuda_elements(p, n) / v->small, v->small);
		n->tmp_weight_bytes = sums > room ? sums : room;
	}
	return GP_OK;
}

static void depthwise_forward(const struct cuda_call *c)
{
	const struct cuda_conv *v = c->node->state;
	const float *weight = gp_cuda_param(c->plan, c->node, GP_PARAM_WEIGHT),
		    *bias = gp_cuda_param(c->plan, c->node, GP_PARAM_BIAS);
	if (v->transposed)
		gpk_depthwise_backward_data(c->stream, c->type, &v->w, weight, c->in[0], c->out[0]);
	else
		gpk_depthwise_forward(c->stream, c->type, &v->w, weight, c->in[0], c->out[0]);
	if (bias)
		gpk_row_bias_forward(c->stream, c->type, c->out[0], bias, gp_cuda_elements(c->plan, c->node) / v->small,
				     v->small);
}

static void depthwise_backward_weight(const struct cuda_call *c)
{
	const struct cuda_conv *v = c->node->state;
	float *grad = gp_cuda_grad(c->plan, c->node, GP_PARAM_WEIGHT),
	      *bias = gp_cuda_grad(c->plan, c->node, GP_PARAM_BIAS);
	const void *larger = v->transposed ? c->dout[0] : c->in[0], *smaller = v->transposed ? c->in[0] : c->dout[0];
	if (bias)
		gpk_row_bias_backward(c->stream, c->type, bias, c->dout[0],
				      gp_cuda_elements(c->plan, c->node) / v->small, v->small, c->tmp);
	if (grad)
		gpk_depthwise_backward_weight(c->stream, c->type, &v->w, larger, smaller, c->tmp, grad);
}

static void depthwise_backward(const struct cuda_call *c)
{
	const struct cuda_conv *v = c->node->state;
	const float *weight = gp_cuda_param(c->plan, c->node, GP_PARAM_WEIGHT);
	if (c->dx[0] && v->transposed)
		gpk_depthwise_forward(c->stream, c->type, &v->w, weight, c->dout[0], c->dx[0]);
	else if (c->dx[0])
		gpk_depthwise_backward_data(c->stream, c->type, &v->w, weight, c->dout[0], c->dx[0]);
}

const struct cuda_op gp_cuda_depthwise = {
	.name = "depthwise",
	.saves_in = 1,
	.prepare = depthwise_prepare,
	.forward = depthwise_forward,
	.backward = depthwise_backward,
	.backward_weight = depthwise_backward_weight,
};
