/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_last on the GPU: (N,A,B) to (N,B,A), a transposition for each sample. Test:
 * tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_move.h"
#include "kernels/cuda/plan/cuda_plan.h"

static void swap_last_forward(const struct cuda_call *c)
{
	const struct gp_shape *s = &gp_walk_type(&c->plan->walk, c->node->base.in[0])->shape;
	gpk_transpose(c->stream, c->type, c->out[0], c->in[0], c->plan->base.spec.batch, s->dim[0], s->dim[1]);
}

static void swap_last_backward(const struct cuda_call *c)
{
	const struct gp_shape *s = &gp_walk_type(&c->plan->walk, c->node->base.in[0])->shape;
	if (c->dx[0])
		gpk_transpose(c->stream, c->type, c->dx[0], c->dout[0], c->plan->base.spec.batch, s->dim[1], s->dim[0]);
}

const struct cuda_op gp_cuda_op_swap_last = {
	.name = "swap_last",
	.forward = swap_last_forward,
	.backward = swap_last_backward,
};
