/* SPDX-License-Identifier: Apache-2.0
 *
 * Which activations keep a mask. See plan_masks.h. Test: tests/unit/test_plan_masks.c
 */
#include "kernels/plan/plan_masks.h"

#include "kernels/plan/plan_again.h"
#include "kernels/plan/plan_store.h"

/* Whether `reader` keeps its k-th input, or leaves it where it is kept. */
static bool keeps(const struct gp_walk *w, const struct gp_walk_node *reader, int k)
{
	const struct gp_walk_node *maker = gp_walk_node(w, w->spec->graph->value[reader->in[k]].node);
	if (reader->need_grad && (reader->saves_in >> k & 1))
		return true;
	if (gp_walk_recomputes(w) && reader->block_needs_grad && !gp_walk_same_block(w, maker->index, reader->index))
		return true;
	return !gp_walk_same_part(w, maker, reader);
}

/* From the last node to the first, so that all readers of a view's value have been seen before the view is. */
void gp_walk_find_kept(struct gp_walk *w)
{
	const struct gp_graph *g = w->spec->graph;
	for (int v = 0; v < g->values; v++)
		w->kept[v] = false;
	for (int i = 0; i < g->outputs; i++)
		w->kept[g->output[i].value] = gp_walk_same_at_edge(w, g->output[i].value);
	for (int i = g->nodes - 1; i >= g->inputs; i--) {
		const struct gp_walk_node *n = gp_walk_node(w, i);
		const bool hands_on = (n->view || n->unwritten) && w->kept[n->first_value];
		for (int k = 0; k < n->inputs; k++)
			w->kept[n->in[k]] = w->kept[n->in[k]] || hands_on || keeps(w, n, k);
	}
}

bool gp_walk_wants_mask(const struct gp_walk *w, const struct gp_walk_node *n)
{
	return n->need_grad && !n->view && (gp_walk_stores(w) || !w->kept[n->first_value]);
}
