/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, ReLU6, addition of two values or more, and identity on the GPU, where
 * they stand alone (behind a batch norm they are part of it, see
 * cuda_plan_build.c). Where an activation's gradient passes is found from its
 * own output, or from a mask of bits (choose_masks of cuda_plan_build.c). An
 * identity is a view but where input and output of a plan are apart.
 * Test: tests/unit/test_cuda_ops.c
 */
#include <string.h>

#include "kernels/cuda/ops/k_elementwise.h"
#include "kernels/cuda/plan/cuda_plan.h"

static bool is_six(const struct cuda_call *c)
{
	return c->node->base.g->op == GP_OP_RELU6;
}

static void act_forward(const struct cuda_call *c)
{
	const int64_t n = gp_cuda_elements(c->plan, c->node);
	if (c->node->masks && c->mode == GP_TRAIN)
		gpk_relu_mask_forward(c->stream, c->type, is_six(c), c->out[0], c->saved, c->in[0], n);
	else
		gpk_relu_forward(c->stream, c->type, is_six(c), c->out[0], c->in[0], n);
}

static void act_backward(const struct cuda_call *c)
{
	const int64_t n = gp_cuda_elements(c->plan, c->node);
	if (c->node->masks)
		gpk_mask_backward(c->stream, c->type, c->dx[0], c->dout[0], c->saved, n);
	else
		gpk_relu_backward(c->stream, c->type, is_six(c), c->dx[0], c->dout[0], c->out[0], n);
}

_Static_assert(GP_NODE_MAX_INPUTS <= GPK_SUMMANDS, "a sum's inputs fit into one launch");

static void add_forward(const struct cuda_call *c)
{
	const int64_t n = gp_cuda_elements(c->plan, c->node);
	struct gpk_summands of = {.count = c->node->base.inputs};
	if (of.count == 2) {
		gpk_add(c->stream, c->type, c->out[0], c->in[0], c->in[1], n);
		return;
	}
	memcpy(of.in, c->in, (size_t)of.count * sizeof *of.in);
	gpk_sum(c->stream, c->type, c->out[0], &of, n);
}

static enum gp_status identity_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)p;
	(void)err;
	n->base.view = true;
	return GP_OK;
}

/* Moves bytes, of real numbers or of integers. */
static void identity_forward(const struct cuda_call *c)
{
	gp_rt_copy(c->stream, c->out[0], c->in[0], gp_walk_bytes(&c->plan->walk, c->node->base.first_value));
}

#define ACT_OP(op_name)                                                                                                \
	{                                                                                                              \
		.name = op_name, .saves_out = 1, .in_place = true, .in_place_backward = true, .forward = act_forward,  \
		.backward = act_backward,                                                                              \
	}

const struct cuda_op gp_cuda_op_relu = ACT_OP("relu");
const struct cuda_op gp_cuda_op_relu6 = ACT_OP("relu6");

const struct cuda_op gp_cuda_op_add = {
	.name = "add",
	.in_place = true,
	.passes_gradient = true,
	.forward = add_forward,
};

const struct cuda_op gp_cuda_op_identity = {
	.name = "identity",
	.passes_gradient = true,
	.prepare = identity_prepare,
	.forward = identity_forward,
};
