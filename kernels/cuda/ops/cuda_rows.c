/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a sequence (S,F) on the GPU: add_rows adds those of a table, which is
 * read in fp32 in every precision; take_row gives one. Test: tests/unit/test_cuda_ops.c
 */
#include "common/graph/ops/op_rows.h"
#include "kernels/cuda/ops/k_columns.h"
#include "kernels/cuda/ops/k_rows.h"
#include "kernels/cuda/plan/cuda_plan.h"

static struct gpk_sequences sequences_of(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct gp_shape *x = &gp_walk_type(&p->walk, n->base.in[0])->shape;
	return (struct gpk_sequences){p->base.spec.batch, x->dim[0], x->dim[1]};
}

static void add_rows_forward(const struct cuda_call *c)
{
	const struct gp_add_rows_attr a = gp_add_rows_attr(c->node->base.g);
	const struct gpk_sequences q = sequences_of(c->plan, c->node);
	gpk_add_rows_forward(c->stream, c->type, &q, !a.step, c->out[0], c->in[0],
			     gp_cuda_param(c->plan, c->node, GP_PARAM_WEIGHT) + a.first * q.features);
}

/* One row for all positions is a bias. */
static void add_rows_backward(const struct cuda_call *c)
{
	const struct gp_add_rows_attr a = gp_add_rows_attr(c->node->base.g);
	const struct gpk_sequences q = sequences_of(c->plan, c->node);
	float *const table = gp_cuda_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	float *const grad = table ? table + a.first * q.features : NULL;
	if (grad && a.step)
		gpk_add_rows_backward(c->stream, c->type, &q, grad, c->dout[0]);
	else if (grad)
		gpk_row_bias_backward(c->stream, c->type, grad, c->dout[0], q.samples * q.positions, q.features,
				      c->tmp);
	if (c->dx[0] && c->dx[0] != c->dout[0])
		gp_rt_copy(c->stream, c->dx[0], c->dout[0], gp_walk_bytes(&c->plan->walk, c->node->base.first_value));
}

static enum gp_status add_rows_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	const struct gpk_sequences q = sequences_of(p, n);
	if (!gp_add_rows_attr(n->base.g).step && gp_cuda_is_trained(p, n, GP_PARAM_WEIGHT))
		n->base.tmp_bytes[1] = gpk_row_bias_room(q.samples * q.positions, q.features);
	return GP_OK;
}

const struct cuda_op gp_cuda_op_add_rows = {
	.name = "add_rows",
	.in_place = true,
	.in_place_backward = true,
	.prepare = add_rows_prepare,
	.forward = add_rows_forward,
	.backward = add_rows_backward,
};

static void take_row_forward(const struct cuda_call *c)
{
	const struct gpk_sequences q = sequences_of(c->plan, c->node);
	gpk_take_row_forward(c->stream, c->type, &q, gp_take_row_attr(c->node->base.g).row, c->out[0], c->in[0]);
}

static void take_row_backward(const struct cuda_call *c)
{
	const struct gpk_sequences q = sequences_of(c->plan, c->node);
	gpk_take_row_backward(c->stream, c->type, &q, gp_take_row_attr(c->node->base.g).row, c->dx[0], c->dout[0]);
}

const struct cuda_op gp_cuda_op_take_row = {
	.name = "take_row",
	.forward = take_row_forward,
	.backward = take_row_backward,
};
