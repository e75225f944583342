/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm on the GPU, with the residual sum and the dropout before it. Of each
 * row a mean and a scale are kept; backward makes the rest anew from the inputs,
 * which are kept in the place of the normalized rows. The masks of dropout are
 * those of the CPU device, bit for bit. Test: tests/unit/test_cuda_ops.c
 */
#include "common/graph/ops/op_layer_norm.h"

#include "common/base/rng.h"
#include "kernels/cuda/ops/k_layer_norm.h"
#include "kernels/cuda/plan/cuda_plan.h"

enum { X, RESIDUAL };

static struct gpk_layer_norm norm_of(const struct cuda_call *c)
{
	const struct gp_layer_norm_attr a = gp_layer_norm_attr(c->node->base.g);
	const struct cuda_image rows = gp_cuda_image(c->plan, c->node);
	struct gpk_layer_norm n = {.rows = rows.n * rows.h * rows.w, .features = rows.c, .eps = a.eps};
	n.x = c->in[X];
	n.residual = c->node->base.inputs > 1 ? c->in[RESIDUAL] : NULL;
	n.weight = gp_cuda_param(c->plan, c->node, GP_PARAM_WEIGHT);
	n.bias = gp_cuda_param(c->plan, c->node, GP_PARAM_BIAS);
	n.mean = c->saved;
	n.scale = n.mean ? n.mean + n.rows : NULL;
	if (c->mode == GP_TRAIN)
		n.drop = (struct gpk_dropout){
			.seed = c->plan->base.spec.seed,
			.stream = gp_rng_stream(GP_RNG_DROPOUT, gp_rng_name_id(c->node->base.g->name)),
			.draw = c->draw,
			.threshold = (uint32_t)((double)a.p * 0x1p32),
			.scale = (float)(1.0 / (1.0 - (double)a.p)),
		};
	gp_cuda_missing(c->plan, c->node, &n.drop.sample, &n.drop.missing);
	return n;
}

static void layer_norm_forward(const struct cuda_call *c)
{
	const struct gpk_layer_norm n = norm_of(c);
	gpk_layer_norm_forward(c->stream, c->type, &n, c->out[0]);
}

static void layer_norm_backward(const struct cuda_call *c)
{
	const struct gpk_layer_norm n = norm_of(c);
	void *const dresidual = n.residual ? c->dx[RESIDUAL] : NULL;
	if (c->dx[X] || dresidual)
		gpk_layer_norm_backward(c->stream, c->type, &n, c->dx[X], dresidual, c->dout[0]);
}

static void layer_norm_backward_weight(const struct cuda_call *c)
{
	const struct gpk_layer_norm n = norm_of(c);
	gpk_layer_norm_backward_weight(c->stream, c->type, &n, gp_cuda_grad(c->plan, c->node, GP_PARAM_WEIGHT),
				       gp_cuda_grad(c->plan, c->node, GP_PARAM_BIAS), c->dout[0], c->tmp);
}

static enum gp_status layer_norm_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	const struct cuda_image rows = gp_cuda_image(p, n);
	const int64_t count = rows.n * rows.h * rows.w;
	n->base.saved_bytes = 2 * (uint64_t)count * sizeof(float);
	n->tmp_weight_bytes = gpk_layer_norm_room(p->type, count, rows.c);
	p->draws = p->draws || (p->base.spec.train && gp_layer_norm_attr(n->base.g).p > 0.0f);
	return GP_OK;
}

const struct cuda_op gp_cuda_op_layer_norm = {
	.name = "layer_norm",
	.saves_in = 1 << X | 1 << RESIDUAL,
	.prepare = layer_norm_prepare,
	.forward = layer_norm_forward,
	.backward = layer_norm_backward,
	.backward_weight = layer_norm_backward_weight,
};
