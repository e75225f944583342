/* SPDX-License-Identifier: Apache-2.0
 *
 * Global average pooling on the GPU: (N,H,W,C) to (N,1,1,C).
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_columns.h"
#include "kernels/cuda/plan/cuda_plan.h"

static void pool_forward(const struct cuda_call *c)
{
	const struct cuda_image in = gp_cuda_in_image(c->plan, c->node, 0);
	gpk_mean_forward(c->stream, c->type, c->out[0], c->in[0], in.n, in.h * in.w, in.c);
}

static void pool_backward(const struct cuda_call *c)
{
	const struct cuda_image in = gp_cuda_in_image(c->plan, c->node, 0);
	if (c->dx[0])
		gpk_mean_backward(c->stream, c->type, c->dx[0], c->dout[0], in.n, in.h * in.w, in.c, c->add & 1);
}

const struct cuda_op gp_cuda_op_global_avg_pool = {
	.name = "global_avg_pool",
	.adds_gradient = true,
	.forward = pool_forward,
	.backward = pool_backward,
};
