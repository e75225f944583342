/* SPDX-License-Identifier: Apache-2.0
 *
 * What layers cost. See part_costs.h. Test: tests/unit/test_part_costs.c
 */
#include "client/costs/part_costs.h"

#include "common/base/mem.h"
#include "common/graph/ops/op_conv.h"

#define BATCH_NORM_MACS 2 /* of an element, by the origin's tool */

const char *const gp_count_names[GP_COUNTS] = {"true", "origin"};
const char *const gp_pass_names[GP_PASSES] = {"forward", "backward"};

static uint64_t add(uint64_t a, uint64_t b)
{
	uint64_t sum;
	return gp_add_ok(a, b, &sum) && sum <= INT64_MAX ? sum : INT64_MAX;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;
	return gp_mul_ok(a, b, &product) && product <= INT64_MAX ? product : INT64_MAX;
}

/* Outputs x input channels of a group x taps. */
static uint64_t transpose_origin_macs(const struct gp_graph *g, const struct gp_node *n)
{
	const struct gp_conv_attr a = gp_conv_attr(n);
	const uint64_t channels = (uint64_t)(g->value[n->in[0]].type.shape.dim[2] / a.groups);
	const uint64_t taps = (uint64_t)a.kernel_h * (uint64_t)a.kernel_w;
	return times(gp_shape_elements(&n->shape), times(channels, taps));
}

uint64_t gp_node_macs(const struct gp_graph *g, const struct gp_node *n, enum gp_count count)
{
	if (count == GP_COUNT_ORIGIN && n->op == GP_OP_CONV2D_TRANSPOSE)
		return transpose_origin_macs(g, n);
	if (count == GP_COUNT_ORIGIN && n->op == GP_OP_BATCH_NORM)
		return times(BATCH_NORM_MACS, gp_shape_elements(&n->shape));
	return n->macs;
}

/* How often backward takes forward's products. `needs`: by value, whether its gradient has a use. */
static uint64_t backward_times(const struct gp_graph *g, const struct gp_node *n, const bool *needs)
{
	bool input = false;
	for (int k = 0; k < n->inputs; k++)
		input |= needs[n->in[k]];
	if (n->op == GP_OP_ATTENTION)
		return input ? 2 : 0;
	return (uint64_t)input + gp_graph_is_trained(g, n);
}

static uint64_t value_bytes(const struct gp_graph_value *v)
{
	return gp_shape_elements(&v->type.shape) * gp_dtype_bytes(v->type.dtype);
}

static void add_node(const struct gp_graph *g, const struct gp_node *n, const bool *needs, struct gp_part_costs *sum)
{
	struct gp_cost *forward = &sum->pass[GP_PASS_FORWARD], *backward = &sum->pass[GP_PASS_BACKWARD];
	const uint64_t again = backward_times(g, n, needs);
	for (int c = 0; c < GP_COUNTS; c++) {
		const uint64_t macs = gp_node_macs(g, n, (enum gp_count)c);
		forward->macs[c] = add(forward->macs[c], macs);
		backward->macs[c] = add(backward->macs[c], times(again, macs));
	}
	for (int v = n->first_value; v < n->first_value + n->outputs; v++) {
		forward->bytes = add(forward->bytes, value_bytes(&g->value[v]));
		backward->bytes = add(backward->bytes, needs[v] ? value_bytes(&g->value[v]) : 0);
	}
}

void gp_part_costs_find(const struct gp_graph *g, int first, int end, struct gp_part_costs *out)
{
	bool needs[GP_GRAPH_MAX_VALUES];
	gp_graph_find_gradients(g, 0, needs);
	*out = (struct gp_part_costs){0};
	for (int i = first; i < end; i++)
		if (g->node[i].op != GP_OP_INPUT)
			add_node(g, &g->node[i], needs, out);
}

struct gp_cost gp_cost_of(const struct gp_cost *sample, int64_t samples)
{
	struct gp_cost c = {.bytes = times(sample->bytes, (uint64_t)samples)};
	for (int i = 0; i < GP_COUNTS; i++)
		c.macs[i] = times(sample->macs[i], (uint64_t)samples);
	return c;
}
