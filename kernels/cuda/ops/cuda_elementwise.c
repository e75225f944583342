/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, ReLU6 and addition on the GPU, where they stand alone (behind a batch
 * norm they are part of it, see cuda_plan_build.c). The activations' masks come from
 * their own output. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_elementwise.h"
#include "kernels/cuda/plan/cuda_plan.h"

static bool is_six(const struct cuda_call *c)
{
	return c->node->g->op == GP_OP_RELU6;
}

static void act_forward(const struct cuda_call *c)
{
	gpk_relu_forward(c->stream, c->type, is_six(c), c->out, c->in[0], gp_cuda_elements(c->plan, c->node));
}

static void act_backward(const struct cuda_call *c)
{
	gpk_relu_backward(c->stream, c->type, is_six(c), c->dx[0], c->dout, c->out, gp_cuda_elements(c->plan, c->node));
}

static void add_forward(const struct cuda_call *c)
{
	gpk_add(c->stream, c->type, c->out, c->in[0], c->in[1], gp_cuda_elements(c->plan, c->node));
}

#define ACT_OP(op_name)                                                                                                \
	{                                                                                                              \
		.name = op_name, .saves_output = true, .in_place = true, .in_place_backward = true,                    \
		.forward = act_forward, .backward = act_backward,                                                      \
	}

const struct cuda_op gp_cuda_relu = ACT_OP("relu");
const struct cuda_op gp_cuda_relu6 = ACT_OP("relu6");

const struct cuda_op gp_cuda_add_op = {
	.name = "add",
	.in_place = true,
	.passes_gradient = true,
	.forward = add_forward,
};
