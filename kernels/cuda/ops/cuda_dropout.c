/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout on the GPU: the masks of the CPU device, bit for bit, drawn from
 * (plan seed, node name, draw, element) in forward and again in backward.
 * Scaled by 1/(1-p) in training, nothing in evaluation.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "common/base/rng.h"
#include "kernels/cuda/ops/k_elementwise.h"
#include "kernels/cuda/plan/cuda_plan.h"
#include "common/graph/ops/op_elementwise.h"

static void run(const struct cuda_call *c, void *out, const void *in)
{
	const double p = (double)gp_dropout_attr(c->node->base.g).p;
	struct gpk_dropout d = {
		.seed = c->plan->base.spec.seed,
		.stream = gp_rng_stream(GP_RNG_DROPOUT, gp_rng_name_id(c->node->base.g->name)),
		.draw = c->draw,
		.threshold = (uint32_t)(p * 0x1p32),
		.scale = (float)(1.0 / (1.0 - p)),
	};
	gp_cuda_missing(c->plan, c->node, &d.sample, &d.missing);
	gpk_dropout(c->stream, c->type, &d, out, in, gp_cuda_elements(c->plan, c->node));
}

static void dropout_forward(const struct cuda_call *c)
{
	if (c->mode == GP_TRAIN)
		run(c, c->out[0], c->in[0]);
	else if (c->out[0] != c->in[0])
		gp_rt_copy(c->stream, c->out[0], c->in[0],
			   (size_t)gp_cuda_elements(c->plan, c->node) * gp_rt_type_bytes(c->type));
}

static void dropout_backward(const struct cuda_call *c)
{
	if (c->dx[0])
		run(c, c->dx[0], c->dout[0]);
}

static enum gp_status dropout_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	n->base.view = gp_dropout_attr(n->base.g).p == 0.0f || !p->base.spec.train;
	p->draws = p->draws || !n->base.view;
	return GP_OK;
}

const struct cuda_op gp_cuda_op_dropout = {
	.name = "dropout",
	.in_place = true,
	.in_place_backward = true,
	.prepare = dropout_prepare,
	.forward = dropout_forward,
	.backward = dropout_backward,
};
