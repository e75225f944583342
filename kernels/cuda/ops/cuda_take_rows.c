/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a sequence by number on the GPU. Numbers come from data, and so from
 * anywhere: one outside the sequence gives zeros and gets no gradient.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "common/graph/ops/op_take_rows.h"
#include "kernels/cuda/ops/k_take_rows.h"
#include "kernels/cuda/plan/cuda_plan.h"

static struct gpk_sequences sequences_of(const struct cuda_call *c)
{
	const struct gp_shape *x = &gp_walk_type(&c->plan->walk, c->node->base.in[0])->shape;
	return (struct gpk_sequences){c->plan->base.spec.batch, x->dim[0], x->dim[1]};
}

static int64_t taken(const struct cuda_call *c)
{
	return gp_walk_type(&c->plan->walk, c->node->base.in[1])->shape.dim[0];
}

static void take_rows_forward(const struct cuda_call *c)
{
	const struct gpk_sequences q = sequences_of(c);
	gpk_take_rows_forward(c->stream, c->type, &q, taken(c), c->out[0], c->in[0], c->in[1]);
}

static void take_rows_backward(const struct cuda_call *c)
{
	const struct gpk_sequences q = sequences_of(c);
	gpk_take_rows_backward(c->stream, c->type, &q, taken(c), c->dx[0], c->dout[0], c->in[1]);
}

const struct cuda_op gp_cuda_op_take_rows = {
	.name = "take_rows",
	.saves_in = 1 << 1,
	.forward = take_rows_forward,
	.backward = take_rows_backward,
};
