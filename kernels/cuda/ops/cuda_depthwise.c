/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise convolution on the GPU, and its transpose, by kernels of their own
 * (k_depthwise.h): there is too little arithmetic for matrix products. Takes
 * over from cuda_conv.c, which made its state. The weight lies as (KH, KW, C) and
 * is read in fp32 in every precision. It does part of the work of batch norms beside it, as the plan says:
 * node->before, node->behind, node->chained. Test: tests/unit/test_cuda_ops.c, tests/unit/test_cuda_depthwise_norm.c
 */
#include "kernels/cuda/ops/conv_ways.h"
#include "kernels/cuda/ops/k_columns.h"
#include "kernels/cuda/ops/k_depthwise.h"
#include "common/graph/ops/op_conv.h"

bool gp_cuda_depthwise_hosts(const struct cuda_plan *p, const struct cuda_node *n, bool *chains)
{
	if (n->base.absent || n->base.g->op != GP_OP_CONV2D)
		return false;
	const struct gpk_window w = gp_cuda_conv_window(p, n);
	const int64_t groups = gp_conv_attr(n->base.g).groups, made = gp_cuda_image(p, n).c;
	*chains = gpk_depthwise_rows_fit(&w);
	return groups > 1 && groups == w.channels && groups == made && gpk_depthwise_norm_fits(&w);
}

static enum gp_status depthwise_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	static const int8_t channels_innermost[4] = {2, 3, 0, 1};
	const struct cuda_conv *v = n->state;
	const uint64_t room = gpk_depthwise_room(&v->w);
	gp_cuda_order_weight(p, n, channels_innermost);
	n->tmp_weight_bytes = room;
	n->base.adds_gradient = n->op->adds_gradient;
	/* The gradient's sums of the batch norm before it go over that one's input. */
	n->base.saves_in = gp_cuda_is_trained(p, n, GP_PARAM_WEIGHT) || n->returns;
	if (n->behind && !n->chained)
		n->base.tmp_bytes[0] = gpk_bn_room(v->w.images * v->w.out_h * v->w.out_w, v->w.channels);
	if (gp_conv_attr(n->base.g).bias) {
		const uint64_t sums = gpk_row_bias_room(gp_cuda_elements(p, n) / v->small, v->small);
		n->tmp_weight_bytes = sums > room ? sums : room;
	}
	return GP_OK;
}

/* With the batch norms beside it: of those that this call wants nothing of, none. */
static void forward_with_norms(const struct cuda_call *c, const float *weight)
{
	const struct cuda_node *n = c->node;
	const struct cuda_conv *v = n->state;
	const bool feeds = n->behind && gp_cuda_bn_is_by_chunk(c, n->behind);
	struct gpk_bn before = {0}, behind = {0};
	if (n->before)
		before = gp_cuda_bn_of(c, n->before, c->before_saved, NULL);
	if (feeds)
		behind = gp_cuda_bn_of(c, n->behind, c->behind_saved, c->tmp);
	if (n->before || feeds)
		gpk_depthwise_forward_norm(c->stream, c->type, &v->w, weight, n->before ? &before : NULL,
					   feeds ? &behind : NULL, c->in[0], c->out[0]);
	else
		gpk_depthwise_forward(c->stream, c->type, &v->w, weight, c->in[0], c->out[0]);
}

static void depthwise_forward(const struct cuda_call *c)
{
	if (c->node->chained)
		return;
	const struct cuda_conv *v = c->node->state;
	const float *weight = gp_cuda_param(c->plan, c->node, GP_PARAM_WEIGHT),
		    *bias = gp_cuda_param(c->plan, c->node, GP_PARAM_BIAS);
	if (v->transposed)
		gpk_depthwise_backward_data(c->stream, c->type, &v->w, weight, c->in[0], c->out[0]);
	else
		forward_with_norms(c, weight);
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
	if (grad && c->node->before) {
		const struct gpk_bn before = gp_cuda_bn_of(c, c->node->before, c->before_saved, NULL);
		gpk_depthwise_backward_weight_norm(c->stream, c->type, &v->w, &before, larger, smaller, c->tmp, grad);
	} else if (grad)
		gpk_depthwise_backward_weight(c->stream, c->type, &v->w, larger, smaller, c->tmp, grad);
}

/* With the sums of the batch norm before it. */
static void backward_with_sums(const struct cuda_call *c, const float *weight)
{
	const struct cuda_node *norm = c->node->before;
	const struct cuda_conv *v = c->node->state;
	const struct gpk_bn before = gp_cuda_bn_of(c, norm, c->before_saved, c->before_room);
	gpk_depthwise_backward_data_norm(c->stream, c->type, &v->w, weight, &before, c->in[0], c->dout[0], c->dx[0],
					 gp_cuda_grad(c->plan, norm, GP_PARAM_WEIGHT),
					 gp_cuda_grad(c->plan, norm, GP_PARAM_BIAS));
}

static void depthwise_backward(const struct cuda_call *c)
{
	const struct cuda_conv *v = c->node->state;
	const float *weight = gp_cuda_param(c->plan, c->node, GP_PARAM_WEIGHT);
	if (c->dx[0] && c->node->returns)
		backward_with_sums(c, weight);
	else if (c->node->leaves_dx)
		return;
	else if (c->dx[0] && v->transposed)
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
