/* SPDX-License-Identifier: Apache-2.0
 *
 * What a node of a plan has to do. See plan_work.h. Test: tests/unit/test_cpu_profile.c
 */
#include "kernels/plan/plan_work.h"

static uint64_t param_bytes(const struct gp_walk *w, const struct gp_walk_node *n, bool trained)
{
	const struct gp_param *q = w->spec->graph->param + n->g->first_param;
	uint64_t count = 0;
	for (int k = 0; k < n->g->params; k++)
		count += q[k].trained || !trained ? q[k].count : 0;
	return count * sizeof(float);
}

static uint64_t input_bytes(const struct gp_walk *w, const struct gp_walk_node *n, uint64_t mask)
{
	uint64_t bytes = 0;
	for (int k = 0; k < n->inputs; k++)
		bytes += mask >> k & 1 ? gp_walk_bytes(w, n->in[k]) : 0;
	return bytes;
}

static uint64_t output_bytes(const struct gp_walk *w, const struct gp_walk_node *n, uint64_t mask)
{
	uint64_t bytes = 0;
	for (int j = 0; j < n->outputs; j++)
		bytes += mask >> j & 1 ? gp_walk_bytes(w, n->first_value + j) : 0;
	return bytes;
}

/* Inputs whose gradient the node's op computes. */
static uint64_t inputs_of_dx(const struct gp_walk_node *n)
{
	uint64_t mask = 0;
	for (int k = 0; k < n->inputs; k++)
		if (n->dx[k] >= 0 && !gp_walk_passes(n, k))
			mask |= (uint64_t)1 << k;
	return mask;
}

uint64_t gp_plan_work_bytes(const struct gp_walk *w, const struct gp_walk_node *n, bool backward)
{
	const uint64_t out = output_bytes(w, n, GP_WALK_ALL), params = param_bytes(w, n, false);
	if (!backward)
		return input_bytes(w, n, GP_WALK_ALL) + out + params;
	if (!gp_walk_works_backward(n))
		return 0;
	return out + input_bytes(w, n, n->saves_in) + output_bytes(w, n, n->saves_out) +
	       input_bytes(w, n, inputs_of_dx(n)) + params + param_bytes(w, n, true);
}

/* How much of what the graph says of a sample a chunk of fewer positions, or rows of scores, has: attention multiplies each
 * position with each. */
static double share_of(const struct gp_walk *w, const struct gp_walk_node *n)
{
	const struct gp_graph_value *in = &w->spec->graph->value[n->in[0]];
	if (w->rows > 0 && n->first_value == w->row_scores)
		return (double)w->rows / ((double)w->spec->batch * (double)n->g->shape.dim[0]);
	if (w->length == 0 || !in->sequence)
		return 1.0;
	const double share = (double)w->length / (double)in->type.shape.dim[0];
	return n->g->op == GP_OP_ATTENTION ? share * share : share;
}

double gp_plan_work_flops(const struct gp_walk *w, const struct gp_walk_node *n, bool backward)
{
	const double one = 2.0 * (double)n->g->macs * (double)w->spec->batch * share_of(w, n);
	/* Attention has no parameters, but gradients of both factors of its products. */
	return backward && n->want_dx && (n->trains || n->g->op == GP_OP_ATTENTION) ? 2.0 * one : one;
}
