/* SPDX-License-Identifier: Apache-2.0
 *
 * See insert_values.h. Test: tests/e2e/insert.sh
 */
#include "client/insert/insert_values.h"

#include "kernels/device_registry.h"

enum gp_status gp_insert_set_weights(struct gp_plan *plan, const struct gp_weights *w, struct gp_err *err)
{
	const struct gp_graph *g = plan->spec.graph;
	for (int i = 0; i < g->params; i++) {
		const int whole = gp_graph_find_param(w->graph, g->param[i].name);
		gp_require(whole >= 0 && w->graph->param[whole].count == g->param[i].count);
		GP_TRY(plan->ops->param_set(plan, i, w->value[whole], err));
	}
	return GP_OK;
}

enum gp_status gp_insert_get_weights(struct gp_plan *plan, struct gp_weights *w, struct gp_err *err)
{
	const struct gp_graph *g = plan->spec.graph;
	for (int i = 0; i < g->params; i++) {
		const int whole = gp_graph_find_param(w->graph, g->param[i].name);
		gp_require(whole >= 0 && w->graph->param[whole].count == g->param[i].count);
		GP_TRY(plan->ops->param_get(plan, i, w->value[whole], err));
	}
	return GP_OK;
}

/* The blocks before the cut of `end`, with the insertions of the cuts before it. */
static enum gp_status make_front(const struct gp_insert_source *from, enum gp_insert_end end, struct gp_graph **out,
				 struct gp_err *err)
{
	struct gp_insertion before = *from->ins;
	struct gp_graph *g;
	for (int e = (int)end; e < GP_INSERT_ENDS; e++)
		before.end[e].spec.sets = 0;
	GP_TRY(gp_graph_part(from->plain, 0, from->plain->blocks, &g, err));
	enum gp_status status = gp_insert(&g, from->cut, &before, err);
	if (status == GP_OK)
		status = gp_graph_part(g, 0, end == GP_INSERT_UP ? from->cut->head : from->cut->tail, out, err);
	gp_graph_free(g);
	return status;
}

static int find_output(const struct gp_graph *g, const char *name)
{
	for (int i = 0; i < g->outputs; i++)
		if (strcmp(g->output[i].name, name) == 0)
			return i;
	gp_require(false); /* gp_insert took the name from what crosses there */
	return -1;
}

static enum gp_status open_front(struct gp_insert_values *v, enum gp_insert_end end, struct gp_err *err)
{
	const struct gp_insert_source *from = v->from;
	GP_TRY(make_front(from, end, &v->front, err));
	v->output = find_output(v->front, from->ins->end[end].value);
	v->count = (uint64_t)from->batch * gp_shape_elements(&from->ins->end[end].plain);
	GP_TRY(gp_device_open(from->device, from->threads, &v->device, err));
	const struct gp_plan_spec spec = {
		.graph = v->front, .batch = from->batch, .slots = 1, .seed = from->seed, .params_given = true};
	GP_TRY(v->device->ops->plan_new(v->device, &spec, &v->plan, err));
	return gp_insert_set_weights(v->plan, from->weights, err);
}

enum gp_status gp_insert_values_open(struct gp_insert_values *v, const struct gp_insert_source *from,
				     enum gp_insert_end end, struct gp_err *err)
{
	*v = (struct gp_insert_values){.from = from};
	const enum gp_status status = open_front(v, end, err);
	if (status != GP_OK)
		gp_insert_values_close(v);
	return status;
}

void gp_insert_values_close(struct gp_insert_values *v)
{
	if (v->plan)
		v->device->ops->plan_free(v->plan);
	if (v->device)
		v->device->ops->close(v->device);
	gp_graph_free(v->front);
	*v = (struct gp_insert_values){0};
}

enum gp_status gp_insert_values_next(struct gp_insert_values *v, const float **out, struct gp_err *err)
{
	const size_t samples = (size_t)v->from->batch;
	struct gp_batch_map map;
	struct gp_batch *batch;
	GP_TRY(gp_loader_next(v->from->loader, &batch, err));
	enum gp_status status = gp_batch_map_of(v->front, batch, &map, err);
	if (status == GP_OK) {
		gp_batch_map_copy(&map, batch, 0, samples, 0, v->plan, 0, NULL);
		status = v->device->ops->forward(v->plan, 0, GP_EVAL, 0, err);
	}
	gp_loader_give_back(v->from->loader, batch);
	*out = v->device->ops->buffer(v->plan, 0, GP_BUF_OUTPUT, v->output);
	return status;
}
