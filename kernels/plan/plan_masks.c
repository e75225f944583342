/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether somebody keeps a value. See plan_masks.h. Test: tests/unit/test_plan_masks.c
 */
#include "kernels/plan/plan_masks.h"

#include "kernels/plan/plan_again.h"
#include "kernels/plan/plan_store.h"

bool gp_walk_same_part(const struct gp_walk *w, const struct gp_walk_node *before, const struct gp_walk_node *behind)
{
	const int *cut = w->spec->cuts;
	const bool coded = gp_walk_stores(w) || (w->spec->train && w->spec->coded[GP_STRUCT_GRAD_MAPS]);
	for (int i = 0; coded && i < 2; i++)
		if (before->index < cut[i] && behind->index >= cut[i])
			return false;
	return true;
}

static bool is_output(const struct gp_graph *g, int value)
{
	for (int i = 0; i < g->outputs; i++)
		if (g->output[i].value == value)
			return true;
	return false;
}

/* Whether `reader` keeps its k-th input, which `maker` has made, or leaves it where it is kept. */
static bool keeps(const struct gp_walk *w, const struct gp_walk_node *maker, const struct gp_walk_node *reader, int k)
{
	if (reader->need_grad && (reader->saves_in >> k & 1))
		return true;
	if (gp_walk_recomputes(w) && reader->block_needs_grad && !gp_walk_same_block(w, maker->index, reader->index))
		return true;
	return !gp_walk_same_part(w, maker, reader);
}

bool gp_walk_keeps_value(const struct gp_walk *w, const struct gp_walk_node *maker, int value)
{
	if (is_output(w->spec->graph, value))
		return true;
	for (int i = maker->index + 1; i < w->spec->graph->nodes; i++) {
		const struct gp_walk_node *n = gp_walk_node(w, i);
		for (int k = 0; k < n->inputs; k++) {
			if (n->in[k] != value)
				continue;
			if (keeps(w, maker, n, k))
				return true;
			if ((n->view || n->unwritten) && gp_walk_keeps_value(w, maker, n->first_value))
				return true;
		}
	}
	return false;
}
