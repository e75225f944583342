/* SPDX-License-Identifier: Apache-2.0
 *
 * Concat and split along the last dimension on the GPU, a launch for each part.
 * The gradient of each is the other; a part of a split that nobody reads has a
 * gradient of zeros. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_move.h"
#include "kernels/cuda/plan/cuda_plan.h"

/* Columns of the whole that a part has. */
static int64_t width_of(const struct cuda_call *c, int value)
{
	const struct gp_shape *s = &gp_walk_type(&c->plan->walk, value)->shape;
	return s->dim[s->ndim - 1];
}

static const void *at_column(const struct cuda_call *c, const void *whole, int64_t column)
{
	return (const char *)whole + (uint64_t)column * gp_rt_type_bytes(c->type);
}

/* part NULL: zeros. */
static void put(const struct cuda_call *c, void *whole, int64_t stride, int64_t column, const void *part, int value)
{
	const int64_t width = width_of(c, value), rows = gp_walk_elements(&c->plan->walk, value) / width;
	gpk_copy_columns(c->stream, c->type, (void *)at_column(c, whole, column), stride, part, width, rows, width);
}

/* part NULL: nobody wants it. */
static void take(const struct cuda_call *c, const void *whole, int64_t stride, int64_t column, void *part, int value)
{
	const int64_t width = width_of(c, value), rows = gp_walk_elements(&c->plan->walk, value) / width;
	if (part)
		gpk_copy_columns(c->stream, c->type, part, width, at_column(c, whole, column), stride, rows, width);
}

static void concat_forward(const struct cuda_call *c)
{
	const struct gp_walk_node *n = &c->node->base;
	int64_t column = 0;
	for (int k = 0; k < n->inputs; column += width_of(c, n->in[k++]))
		put(c, c->out[0], width_of(c, n->first_value), column, c->in[k], n->in[k]);
}

static void concat_backward(const struct cuda_call *c)
{
	const struct gp_walk_node *n = &c->node->base;
	int64_t column = 0;
	for (int k = 0; k < n->inputs; column += width_of(c, n->in[k++]))
		take(c, c->dout[0], width_of(c, n->first_value), column, c->dx[k], n->in[k]);
}

static void split_forward(const struct cuda_call *c)
{
	const struct gp_walk_node *n = &c->node->base;
	const int64_t width = width_of(c, n->first_value);
	for (int j = 0; j < n->outputs; j++)
		take(c, c->in[0], width_of(c, n->in[0]), j * width, c->out[j], n->first_value + j);
}

static void split_backward(const struct cuda_call *c)
{
	const struct gp_walk_node *n = &c->node->base;
	const int64_t width = width_of(c, n->first_value);
	for (int j = 0; j < n->outputs; j++)
		put(c, c->dx[0], width_of(c, n->in[0]), j * width, c->dout[j], n->first_value + j);
}

const struct cuda_op gp_cuda_op_concat = {
	.name = "concat",
	.forward = concat_forward,
	.backward = concat_backward,
};

const struct cuda_op gp_cuda_op_split = {
	.name = "split",
	.forward = split_forward,
	.backward = split_backward,
};
