/* SPDX-License-Identifier: Apache-2.0
 *
 * Shortcut padding on the GPU: every stride-th row and column, with channels of
 * zeros before and behind (common/graph/graph.h, struct gp_shortcut_attr). With
 * stride 1 and no padding the node is a view. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_move.h"
#include "kernels/cuda/plan/cuda_plan.h"
#include "common/graph/ops/op_shape.h"

static struct gpk_shortcut geometry_of(const struct cuda_call *c)
{
	const struct cuda_image in = gp_cuda_in_image(c->plan, c->node, 0);
	const struct gp_shortcut_attr attr = gp_shortcut_attr(c->node->base.g), *const a = &attr;
	return (struct gpk_shortcut){.n = in.n,
				     .h = in.h,
				     .w = in.w,
				     .c = in.c,
				     .out_c = a->before + in.c + a->after,
				     .stride = a->stride,
				     .before = a->before};
}

static void shortcut_forward(const struct cuda_call *c)
{
	const struct gpk_shortcut g = geometry_of(c);
	gpk_shortcut_forward(c->stream, c->type, c->out[0], c->in[0], &g);
}

static void shortcut_backward(const struct cuda_call *c)
{
	const struct gpk_shortcut g = geometry_of(c);
	if (c->dx[0])
		gpk_shortcut_backward(c->stream, c->type, c->dx[0], c->dout[0], &g);
}

static enum gp_status shortcut_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)p;
	(void)err;
	const struct gp_shortcut_attr attr = gp_shortcut_attr(n->base.g), *const a = &attr;
	n->base.view = a->stride == 1 && a->before == 0 && a->after == 0;
	return GP_OK;
}

const struct cuda_op gp_cuda_op_shortcut_pad = {
	.name = "shortcut_pad",
	.prepare = shortcut_prepare,
	.forward = shortcut_forward,
	.backward = shortcut_backward,
};
