/* SPDX-License-Identifier: Apache-2.0
 *
 * See tie.h. Test: tests/unit/test_tie.c
 */
#include "common/graph/tie.h"

enum gp_status gp_tie_find(const struct gp_graph *g, struct gp_plan *first, struct gp_plan *last, struct gp_tie *out,
			   struct gp_err *err)
{
	struct gp_tie t = {.plan = {first, last}};
	*out = (struct gp_tie){0};
	if (!gp_graph_is_tied(g))
		return GP_OK;
	const char *const name[2] = {g->param[g->tied[0]].name, g->param[g->tied[1]].name};
	for (int i = 0; i < 2; i++) {
		t.index[i] = gp_graph_find_param(t.plan[i]->spec.graph, name[i]);
		if (t.index[i] < 0)
			GP_FAIL(err, GP_INVALID,
				"%s and %s share their values (tied weights) and have to stay here, but this cut "
				"leaves one of them to the server: cut behind the first block and before the last, "
				"as 1:-1",
				name[0], name[1]);
		if (!t.plan[i]->ops->tie_grads || !t.plan[i]->ops->tie_values)
			GP_FAIL(err, GP_DEVICE, "the device %s cannot train tied weights, as %s and %s are",
				t.plan[i]->ops->name, name[0], name[1]);
	}
	*out = t;
	return GP_OK;
}

static bool is_trained(const struct gp_tie *t)
{
	return t->plan[0] && t->plan[0]->spec.train && t->plan[0]->spec.graph->param[t->index[0]].trained;
}

enum gp_status gp_tie_values(const struct gp_tie *t, struct gp_err *err)
{
	if (!t->plan[0])
		return GP_OK;
	return t->plan[0]->ops->tie_values(t->plan[0], t->index[0], t->plan[1], t->index[1], err);
}

enum gp_status gp_tie_gradients(struct gp_tie *t, struct gp_err *err)
{
	if (!is_trained(t) || t->gathered)
		return GP_OK;
	GP_TRY(t->plan[0]->ops->tie_grads(t->plan[0], t->index[0], t->plan[1], t->index[1], err));
	t->gathered = true;
	return GP_OK;
}

enum gp_status gp_tie_updated(struct gp_tie *t, struct gp_err *err)
{
	t->gathered = false;
	return is_trained(t) ? gp_tie_values(t, err) : GP_OK;
}
