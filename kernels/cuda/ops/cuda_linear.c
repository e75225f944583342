/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layer over the last dimension: y = x W' + b, x (rows,I), W (O,I) as in
 * PyTorch. Three matrix products; the bias is added, and its gradient summed
 * up, by kernels of our own. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_columns.h"
#include "kernels/cuda/plan/cuda_plan.h"
#include "common/graph/ops/op_linear.h"

struct sizes {
	int64_t rows, in, out;
};

static struct sizes sizes_of(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct gp_shape *w = &p->base.spec.graph->param[gp_cuda_param_index(p, n, GP_PARAM_WEIGHT)].shape;
	return (struct sizes){gp_cuda_elements(p, n) / w->dim[0], w->dim[1], w->dim[0]};
}

static struct gp_matrix dense(const void *data, enum gp_rt_type type, int64_t stride, bool transposed)
{
	return (struct gp_matrix){.data = data, .type = type, .stride = stride, .transposed = transposed};
}

static void linear_forward(const struct cuda_call *c)
{
	const struct sizes s = sizes_of(c->plan, c->node);
	const struct gp_matrix x = dense(c->in[0], c->type, s.in, false), y = dense(c->out[0], c->type, s.out, false),
			       w = dense(gp_cuda_weight(c->plan, c->node), c->type, s.in, true);
	const float *bias = gp_cuda_param(c->plan, c->node, GP_PARAM_BIAS);
	gp_blas_gemm(c->blas, s.rows, s.out, s.in, 1, &x, &w, 0, &y, 1);
	if (bias)
		gpk_row_bias_forward(c->stream, c->type, c->out[0], bias, s.rows, s.out);
}

static void linear_backward(const struct cuda_call *c)
{
	const struct sizes s = sizes_of(c->plan, c->node);
	const struct gp_matrix dy = dense(c->dout[0], c->type, s.out, false),
			       w = dense(gp_cuda_weight(c->plan, c->node), c->type, s.in, false),
			       dx = dense(c->dx[0], c->type, s.in, false);
	if (c->dx[0])
		gp_blas_gemm(c->blas, s.rows, s.in, s.out, 1, &dy, &w, c->add & 1 ? 1 : 0, &dx, 1);
}

static void linear_backward_weight(const struct cuda_call *c)
{
	const struct sizes s = sizes_of(c->plan, c->node);
	const struct gp_matrix dyt = dense(c->dout[0], c->type, s.out, true), x = dense(c->in[0], c->type, s.in, false);
	float *grad = gp_cuda_grad(c->plan, c->node, GP_PARAM_WEIGHT),
	      *bias_grad = gp_cuda_grad(c->plan, c->node, GP_PARAM_BIAS);
	const struct gp_matrix dw = dense(grad, GP_RT_F32, s.in, false);
	if (bias_grad)
		gpk_row_bias_backward(c->stream, c->type, bias_grad, c->dout[0], s.rows, s.out, c->tmp);
	if (grad)
		gp_blas_gemm(c->blas, s.out, s.in, s.rows, 1, &dyt, &x, 1, &dw, 1);
}

static enum gp_status linear_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	const struct sizes s = sizes_of(p, n);
	if (gp_linear_attr(n->base.g).bias)
		n->tmp_weight_bytes = gpk_row_bias_room(s.rows, s.out);
	n->base.adds_gradient = p->type == GP_RT_F32; /* a product that adds rounds the sum alone */
	n->base.saves_in = gp_cuda_is_trained(p, n, GP_PARAM_WEIGHT);
	return GP_OK;
}

const struct cuda_op gp_cuda_op_linear = {
	.name = "linear",
	.saves_in = 1,
	.adds_gradient = true,
	.narrow_weight = true,
	.prepare = linear_prepare,
	.forward = linear_forward,
	.backward = linear_backward,
	.backward_weight = linear_backward_weight,
};
