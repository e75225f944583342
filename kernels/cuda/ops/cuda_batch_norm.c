/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization on the GPU over all but the last dimension, with the sum
 * and the activation behind it where the plan has folded them in. Backward has
 * to know what the activation let pass. It finds that again from the input; but
 * where a residual was added before the activation, the input alone does not
 * tell, and the output is kept. A batch norm of which nothing is trained uses the
 * running statistics in training, too, and leaves them alone. See k_batch_norm.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_batch_norm.h"
#include "kernels/cuda/plan/cuda_plan.h"
#include "common/graph/ops/op_batch_norm.h"

static struct gpk_bn shape_of(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct cuda_image image = gp_cuda_image(p, n);
	return (struct gpk_bn){
		.type = p->type,
		.rows = image.n * image.h * image.w,
		.channels = image.c,
		.eps = gp_bn_attr(n->base.g).eps,
		.momentum = gp_bn_attr(n->base.g).momentum,
		.act = n->act == CUDA_ACT_NONE   ? GPK_ACT_NONE
		       : n->act == CUDA_ACT_RELU ? GPK_ACT_RELU
						 : GPK_ACT_RELU6,
	};
}

static struct gpk_bn batch_norm_of(const struct cuda_call *c)
{
	struct gpk_bn n = shape_of(c->plan, c->node);
	n.gamma = gp_cuda_param(c->plan, c->node, GP_PARAM_WEIGHT);
	n.beta = gp_cuda_param(c->plan, c->node, GP_PARAM_BIAS);
	n.running_mean = gp_cuda_param(c->plan, c->node, GP_PARAM_RUNNING_MEAN);
	n.running_var = gp_cuda_param(c->plan, c->node, GP_PARAM_RUNNING_VAR);
	n.saved = c->saved;
	n.room = c->tmp;
	return n;
}

static enum gp_status bn_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	const struct gpk_bn shape = shape_of(p, n);
	n->base.saves_out = shape.act != GPK_ACT_NONE && n->base.inputs > 1;
	if (!n->base.trains)
		return GP_OK;
	n->base.saved_bytes = (uint64_t)(GPK_BN_SAVED * shape.channels) * sizeof(float);
	n->base.tmp_bytes[0] = n->base.tmp_bytes[1] = gpk_bn_room(shape.type, shape.rows, shape.channels);
	return GP_OK;
}

static void bn_forward(const struct cuda_call *c)
{
	const struct gpk_bn n = batch_norm_of(c);
	if (c->mode == GP_TRAIN && c->node->base.trains)
		gpk_bn_forward(c->stream, &n, c->in[0], c->in[1], c->out[0]);
	else
		gpk_bn_forward_eval(c->stream, &n, c->in[0], c->in[1], c->out[0]);
}

static void bn_backward(const struct cuda_call *c)
{
	const struct gpk_bn n = batch_norm_of(c);
	const void *y = c->node->base.saves_out ? c->out[0] : NULL;
	if (!c->node->base.trains) {
		gpk_bn_backward_frozen(c->stream, &n, c->in[0], y, c->dout[0], c->dx[1], c->dx[0]);
		return;
	}
	gpk_bn_backward(c->stream, &n, c->in[0], y, c->dout[0], c->dx[1], c->dx[0],
			gp_cuda_grad(c->plan, c->node, GP_PARAM_WEIGHT), gp_cuda_grad(c->plan, c->node, GP_PARAM_BIAS));
}

const struct cuda_op gp_cuda_op_batch_norm = {
	.name = "batch_norm",
	.saves_in = 1,
	.in_place = true,
	.in_place_backward = true,
	.prepare = bn_prepare,
	.forward = bn_forward,
	.backward = bn_backward,
};
