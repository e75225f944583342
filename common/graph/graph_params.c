/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters of a graph (graph.h): finding, tying and freezing them, which values
 * have gradients because of them, and what they start with. Test: tests/unit/test_graph.c
 */
#include "common/graph/graph.h"

#include <fnmatch.h>
#include <string.h>

#include "common/base/rng.h"

int gp_graph_find_param(const struct gp_graph *g, const char *name)
{
	for (int i = 0; i < g->params; i++)
		if (strcmp(g->param[i].name, name) == 0)
			return i;
	return -1;
}

int gp_graph_param_of(const struct gp_graph *g, const struct gp_node *n, enum gp_param_role role)
{
	for (int i = n->first_param; i < n->first_param + n->params; i++)
		if (g->param[i].role == role)
			return i;
	return -1;
}

bool gp_graph_is_trained(const struct gp_graph *g, const struct gp_node *n)
{
	for (int i = n->first_param; i < n->first_param + n->params; i++)
		if (g->param[i].trained)
			return true;
	return false;
}

/* Spreads a property of inputs and of nodes to all f32 values that depend on them. */
static void spread(const struct gp_graph *g, uint64_t inputs, bool (*of_node)(const struct gp_graph *g, int node),
		   bool *has)
{
	for (int i = 0; i < g->nodes; i++) {
		const struct gp_node *n = &g->node[i];
		bool any = n->op == GP_OP_INPUT ? inputs >> i & 1 : of_node(g, i);
		for (int k = 0; k < n->inputs; k++)
			any = any || has[n->in[k]];
		for (int v = n->first_value; v < n->first_value + n->outputs; v++)
			has[v] = any && g->value[v].type.dtype == GP_F32;
	}
}

static bool node_is_trained(const struct gp_graph *g, int node)
{
	return gp_graph_is_trained(g, &g->node[node]);
}

void gp_graph_find_gradients(const struct gp_graph *g, uint64_t inputs, bool *needs)
{
	spread(g, inputs, node_is_trained, needs);
}

static bool node_has_parameters(const struct gp_graph *g, int node)
{
	return g->node[node].params > 0;
}

void gp_graph_find_activations(const struct gp_graph *g, uint64_t inputs, bool *activation)
{
	spread(g, inputs, node_has_parameters, activation);
}

void gp_graph_count_trained(struct gp_graph *g)
{
	g->trained_elements = 0;
	for (int i = 0; i < g->params; i++)
		if (g->param[i].trained && !g->param[i].follows)
			g->trained_elements += g->param[i].count; /* at most param_elements */
}

void gp_graph_tie(struct gp_graph *g, int lead, int follower)
{
	struct gp_param *p = &g->param[follower];
	gp_require(!gp_graph_is_tied(g) && lead != follower && gp_shape_equal(&p->shape, &g->param[lead].shape));
	g->tied[0] = lead;
	g->tied[1] = follower;
	p->follows = true;
	p->decay = false;
	p->init = g->param[lead].init;
	p->init_scale = g->param[lead].init_scale;
	p->drawn_as = gp_rng_name_id(g->param[lead].name);
	g->param_elements -= p->count;
	gp_graph_count_trained(g);
}

int gp_graph_freeze(struct gp_graph *g, const char *pattern)
{
	int matched = 0;
	for (int i = 0; i < g->params; i++) {
		if (fnmatch(pattern, g->param[i].name, 0) != 0)
			continue;
		g->param[i].trained = g->param[i].decay = false;
		matched += g->param[i].role == GP_PARAM_WEIGHT || g->param[i].role == GP_PARAM_BIAS;
	}
	gp_graph_count_trained(g);
	return matched;
}

int gp_graph_freeze_blocks(struct gp_graph *g, int from, int to)
{
	const int first = g->block[from].first_node, end = gp_graph_block_end(g, to - 1);
	int frozen = 0;
	for (int i = 0; i < g->params; i++) {
		if (g->param[i].node < first || g->param[i].node >= end)
			continue;
		g->param[i].trained = g->param[i].decay = false;
		frozen++;
	}
	gp_graph_count_trained(g);
	return frozen;
}

/* --- starting values --------------------------------------------------------------------------------------------- */

/* The same draws as gp_rng_uniform, four to a block. */
static void fill_uniform(uint64_t seed, uint64_t stream, float scale, uint64_t first, uint64_t count, float *out)
{
	uint32_t w[4];
	for (uint64_t i = 0; i < count; i++) {
		if ((i & 3) == 0)
			gp_rng_block(seed, stream, (first + i) >> 2, w);
		float u = (float)(w[i & 3] >> 8) * 0x1p-24f; /* [0, 1) */
		out[i] = (2.0f * u - 1.0f) * scale;
	}
}

void gp_param_draw(const struct gp_param *p, uint64_t seed, uint64_t first, uint64_t count, float *out)
{
	gp_require(first % 4 == 0 && first <= p->count && count <= p->count - first);
	uint64_t stream = gp_rng_stream(GP_RNG_INIT, p->drawn_as ? p->drawn_as : gp_rng_name_id(p->name));
	switch (p->init) {
	case GP_INIT_ZEROS:
	case GP_INIT_ONES:
		for (uint64_t i = 0; i < count; i++)
			out[i] = p->init == GP_INIT_ONES ? 1.0f : 0.0f;
		break;
	case GP_INIT_NORMAL:
		for (uint64_t i = 0; i < count; i++)
			out[i] = p->init_scale * gp_rng_normal(seed, stream, first + i);
		break;
	case GP_INIT_IDENTITY:
		for (uint64_t i = 0, columns = p->count / (uint64_t)p->shape.dim[0]; i < count; i++)
			out[i] = (first + i) / columns == (first + i) % columns ? 1.0f : 0.0f;
		break;
	case GP_INIT_KINDS:
		break;
	case GP_INIT_UNIFORM:
		fill_uniform(seed, stream, p->init_scale, first, count, out);
		break;
	}
}

void gp_param_init(const struct gp_param *p, uint64_t seed, float *out)
{
	gp_param_draw(p, seed, 0, p->count, out);
}
