/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy of a graph with other shapes. See graph_copy.h. Test: tests/unit/test_decay.c
 */
#include "common/graph/graph_copy.h"

void gp_graph_copy_params(struct gp_graph *to, const struct gp_graph *g, const struct gp_node *from)
{
	const int first = to->node[to->nodes - 1].first_param;
	for (int i = 0; i < from->params; i++) {
		const struct gp_param *q = &g->param[from->first_param + i];
		struct gp_param *p = &to->param[first + i];
		p->init = q->init;
		p->init_scale = q->init_scale;
		p->drawn_as = q->drawn_as;
		p->trained = q->trained;
		p->decay = q->decay;
		p->follows = q->follows;
	}
}

static int find_param(const struct gp_graph *g, const char *name)
{
	for (int i = 0; i < g->params; i++)
		if (strcmp(g->param[i].name, name) == 0)
			return i;
	return -1;
}

void gp_graph_copy_tie(struct gp_graph *to, const struct gp_graph *from)
{
	if (gp_graph_is_tied(from))
		gp_graph_tie(to, find_param(to, from->param[from->tied[0]].name),
			     find_param(to, from->param[from->tied[1]].name));
}

static enum gp_status copy_inputs(struct gp_graph *c, const struct gp_graph *g, const struct gp_graph_edit *edit,
				  struct gp_err *err)
{
	for (int i = 0; i < g->inputs; i++) {
		struct gp_type type = g->value[i].type;
		if (edit->input)
			edit->input(edit->arg, i, &type);
		if (gp_graph_add_input(c, g->node[i].name, &type, err) < 0)
			return err->code;
		if (g->value[i].sequence)
			gp_graph_mark_sequence(c, i);
	}
	return GP_OK;
}

/* Nodes come in the same order, so that values have the same numbers. */
static enum gp_status copy_nodes(struct gp_graph *c, const struct gp_graph *g, const struct gp_graph_edit *edit,
				 struct gp_err *err)
{
	int block = 0, value;
	for (int i = g->inputs; i < g->nodes; i++) {
		struct gp_node n = g->node[i];
		while (block < g->blocks && g->block[block].first_node == i)
			GP_TRY(gp_graph_begin_block(c, g->block[block++].name, err));
		if (edit->node)
			edit->node(edit->arg, &n);
		GP_TRY(gp_graph_add(c, &n, &value, err));
		gp_graph_copy_params(c, g, &g->node[i]);
	}
	gp_graph_count_trained(c);
	return GP_OK;
}

static enum gp_status copy_outputs(struct gp_graph *c, const struct gp_graph *g, struct gp_err *err)
{
	int value[GP_GRAPH_MAX_PORTS];
	for (int i = 0; i < g->outputs; i++)
		value[i] = g->output[i].value;
	GP_TRY(gp_graph_set_outputs(c, g->outputs, value, err));
	for (int i = 0; i < g->outputs; i++)
		memcpy(c->output[i].name, g->output[i].name, sizeof c->output[i].name);
	return GP_OK;
}

static enum gp_status copy_all(struct gp_graph *c, const struct gp_graph *g, const struct gp_graph_edit *edit,
			       struct gp_err *err)
{
	GP_TRY(copy_inputs(c, g, edit, err));
	GP_TRY(copy_nodes(c, g, edit, err));
	GP_TRY(copy_outputs(c, g, err));
	return gp_graph_finish(c, err);
}

enum gp_status gp_graph_copy(const struct gp_graph *g, const struct gp_graph_edit *edit, struct gp_graph **out,
			     struct gp_err *err)
{
	struct gp_graph *c = gp_graph_new_empty(g->name, err);
	if (!c)
		return err->code;
	const enum gp_status status = copy_all(c, g, edit, err);
	if (status == GP_OK)
		*out = c;
	else
		gp_graph_free(c);
	return status;
}
