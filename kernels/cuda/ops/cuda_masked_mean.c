/* SPDX-License-Identifier: Apache-2.0
 *
 * Mean over the positions (S,F) whose mask (S) is not 0, on the GPU; zeros where
 * there are none. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_masked_mean.h"
#include "kernels/cuda/plan/cuda_plan.h"

enum { VALUES, MASK };

static struct gpk_masked_mean mean_of(const struct cuda_call *c)
{
	const struct gp_shape *x = &gp_walk_type(&c->plan->walk, c->node->base.in[VALUES])->shape;
	return (struct gpk_masked_mean){c->in[MASK], c->plan->base.spec.batch, x->dim[0], x->dim[1]};
}

static void mean_forward(const struct cuda_call *c)
{
	const struct gpk_masked_mean m = mean_of(c);
	gpk_masked_mean_forward(c->stream, c->type, &m, c->out[0], c->in[VALUES]);
}

static void mean_backward(const struct cuda_call *c)
{
	const struct gpk_masked_mean m = mean_of(c);
	gpk_masked_mean_backward(c->stream, c->type, &m, c->dx[VALUES], c->dout[0]);
}

const struct cuda_op gp_cuda_op_masked_mean = {
	.name = "masked_mean",
	.saves_in = 1 << MASK,
	.forward = mean_forward,
	.backward = mean_backward,
};
