/* SPDX-License-Identifier: Apache-2.0
 *
 * Flatten on the GPU: (N,H,W,C) to (N, C*H*W) in PyTorch's C,H,W order, a
 * transposition for each sample. Where H*W or C is 1, or the value has no image
 * shape, nothing moves and the node is a view. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_move.h"
#include "kernels/cuda/plan/cuda_plan.h"

static void flatten_forward(const struct cuda_call *c)
{
	const struct cuda_image in = gp_cuda_in_image(c->plan, c->node, 0);
	gpk_transpose(c->stream, c->type, c->out[0], c->in[0], in.n, in.h * in.w, in.c);
}

static void flatten_backward(const struct cuda_call *c)
{
	const struct cuda_image in = gp_cuda_in_image(c->plan, c->node, 0);
	if (c->dx[0])
		gpk_transpose(c->stream, c->type, c->dx[0], c->dout[0], in.n, in.c, in.h * in.w);
}

static enum gp_status flatten_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	const struct cuda_image in = gp_cuda_in_image(p, n, 0);
	n->base.view = in.h * in.w == 1 || in.c == 1;
	return GP_OK;
}

const struct cuda_op gp_cuda_op_flatten = {
	.name = "flatten",
	.prepare = flatten_prepare,
	.forward = flatten_forward,
	.backward = flatten_backward,
};
