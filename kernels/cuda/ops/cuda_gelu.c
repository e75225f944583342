/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU and tanh on the GPU. GELU's gradient comes from its input, that of tanh
 * from its output. Test: tests/unit/test_cuda_ops.c
 */
#include "common/graph/ops/op_elementwise.h"
#include "kernels/cuda/ops/k_elementwise.h"
#include "kernels/cuda/plan/cuda_plan.h"

static bool is_approximate(const struct cuda_call *c)
{
	return gp_gelu_attr(c->node->base.g).approximate != 0;
}

static void gelu_forward(const struct cuda_call *c)
{
	gpk_gelu_forward(c->stream, c->type, is_approximate(c), c->out[0], c->in[0],
			 gp_cuda_elements(c->plan, c->node));
}

static void gelu_backward(const struct cuda_call *c)
{
	gpk_gelu_backward(c->stream, c->type, is_approximate(c), c->dx[0], c->dout[0], c->in[0],
			  gp_cuda_elements(c->plan, c->node));
}

const struct cuda_op gp_cuda_op_gelu = {
	.name = "gelu",
	.saves_in = 1,
	.in_place = true,
	.in_place_backward = true,
	.forward = gelu_forward,
	.backward = gelu_backward,
};

static void tanh_forward(const struct cuda_call *c)
{
	gpk_tanh_forward(c->stream, c->type, c->out[0], c->in[0], gp_cuda_elements(c->plan, c->node));
}

static void tanh_backward(const struct cuda_call *c)
{
	gpk_tanh_backward(c->stream, c->type, c->dx[0], c->dout[0], c->out[0], gp_cuda_elements(c->plan, c->node));
}

const struct cuda_op gp_cuda_op_tanh = {
	.name = "tanh",
	.saves_out = 1,
	.in_place = true,
	.in_place_backward = true,
	.forward = tanh_forward,
	.backward = tanh_backward,
};
