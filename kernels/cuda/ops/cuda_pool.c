/* SPDX-License-Identifier: Apache-2.0
 *
 * Average and maximum pooling on the GPU. Training keeps where each maximum
 * was. See k_pool.h. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_pool.h"
#include "kernels/cuda/plan/cuda_plan.h"
#include "common/graph/ops/op_pool.h"

static struct gpk_window window_of(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct gp_pool_attr attr = gp_pool_attr(n->base.g), *const a = &attr;
	const struct cuda_image in = gp_cuda_in_image(p, n, 0), out = gp_cuda_image(p, n);
	return (struct gpk_window){
		.images = in.n,
		.h = in.h,
		.w = in.w,
		.channels = in.c,
		.out_h = out.h,
		.out_w = out.w,
		.kernel_h = a->kernel_h,
		.kernel_w = a->kernel_w,
		.stride_h = a->stride_h,
		.stride_w = a->stride_w,
		.pad_top = a->pad_top,
		.pad_left = a->pad_left,
	};
}

static enum gp_status max_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	const struct gpk_window w = window_of(p, n);
	if (n->base.need_grad)
		n->base.saved_bytes = (uint64_t)gp_cuda_elements(p, n) * (uint64_t)gpk_place_bits(&w, p->type) / 8;
	return GP_OK;
}

static void max_forward(const struct cuda_call *c)
{
	const struct gpk_window w = window_of(c->plan, c->node);
	gpk_max_pool_forward(c->stream, c->type, &w, c->in[0], c->out[0], c->mode == GP_TRAIN ? c->saved : NULL);
}

static void max_backward(const struct cuda_call *c)
{
	const struct gpk_window w = window_of(c->plan, c->node);
	if (c->dx[0])
		gpk_max_pool_backward(c->stream, c->type, &w, c->dout[0], c->saved, c->dx[0]);
}

static void avg_forward(const struct cuda_call *c)
{
	const struct gpk_window w = window_of(c->plan, c->node);
	gpk_avg_pool_forward(c->stream, c->type, &w, gp_pool_attr(c->node->base.g).count_include_pad, c->in[0],
			     c->out[0]);
}

static void avg_backward(const struct cuda_call *c)
{
	const struct gpk_window w = window_of(c->plan, c->node);
	if (c->dx[0])
		gpk_avg_pool_backward(c->stream, c->type, &w, gp_pool_attr(c->node->base.g).count_include_pad,
				      c->dout[0], c->dx[0]);
}

const struct cuda_op gp_cuda_op_max_pool = {
	.name = "max_pool",
	.prepare = max_prepare,
	.forward = max_forward,
	.backward = max_backward,
};

const struct cuda_op gp_cuda_op_avg_pool = {
	.name = "avg_pool",
	.forward = avg_forward,
	.backward = avg_backward,
};
