/* SPDX-License-Identifier: Apache-2.0
 *
 * From batches to the inputs of a plan. See batch_map.h. Test: tests/unit/test_batch_map.c
 */
#include "client/batch_map.h"

#include <string.h>

#include "common/base/text.h"
#include "common/graph/ops/op_embedding.h"

enum { LIST_ROOM = 200 };

static void append(char list[LIST_ROOM], const struct gp_tensor_info *t)
{
	char shape[64];
	gp_text_append(list, LIST_ROOM, "%s%s (%s %s)", *list ? ", " : "", t->name, gp_dtype_name(t->type.dtype),
		       gp_shape_text(&t->type.shape, shape, sizeof shape));
}

static struct gp_tensor_info input_info(const struct gp_graph *g, int i)
{
	return (struct gp_tensor_info){.name = g->node[i].name, .type = g->value[i].type};
}

static enum gp_status does_not_fit(const struct gp_graph *g, const struct gp_tensor_info *info, int tensors,
				   struct gp_err *err)
{
	char wanted[LIST_ROOM] = "", there[LIST_ROOM] = "";
	for (int i = 0; i < g->inputs; i++) {
		const struct gp_tensor_info input = input_info(g, i);
		append(wanted, &input);
	}
	for (int i = 0; i < tensors; i++)
		append(there, &info[i]);
	GP_FAIL(err, GP_INVALID, "the model wants %s, the data has %s", wanted, there);
}

static int find_tensor(const struct gp_tensor_info *info, int tensors, const char *name)
{
	for (int i = 0; i < tensors; i++)
		if (strcmp(info[i].name, name) == 0)
			return i;
	return -1;
}

enum gp_status gp_batch_map_make(const struct gp_graph *g, const struct gp_tensor_info *info, int tensors,
				 struct gp_batch_map *out, struct gp_err *err)
{
	struct gp_batch_map f = {.inputs = g->inputs};
	if (f.inputs > GP_BATCH_MAP_INPUTS)
		GP_FAIL(err, GP_INVALID, "the model has %d inputs; at most %d can be served", f.inputs,
			GP_BATCH_MAP_INPUTS);
	for (int i = 0; i < f.inputs; i++) {
		const struct gp_tensor_info input = input_info(g, i);
		const int t = f.inputs == 1 && tensors == 1 ? 0 : find_tensor(info, tensors, input.name);
		if (t < 0 || !gp_type_equal(&info[t].type, &input.type))
			return does_not_fit(g, info, tensors, err);
		f.tensor[i] = t;
		f.sample_bytes[i] = gp_tensor_bytes(&info[t]);
	}
	*out = f;
	return GP_OK;
}

enum gp_status gp_batch_map_check_values(const struct gp_graph *g, const struct gp_tensor_info *info,
					 const struct gp_batch_map *m, struct gp_err *err)
{
	for (int i = 0; i < g->nodes; i++) {
		const struct gp_node *n = &g->node[i];
		if (n->op != GP_OP_EMBEDDING || n->in[0] >= g->inputs)
			continue;
		const struct gp_tensor_info *t = &info[m->tensor[n->in[0]]];
		const int rows = gp_embedding_attr(n).vocab;
		if (t->values > rows)
			GP_FAIL(err, GP_INVALID,
				"the embedding '%s' has %d rows, but '%s' of the data has values up to %lld; "
				"it needs %lld rows",
				n->name, rows, t->name, (long long)t->values - 1, (long long)t->values);
	}
	return GP_OK;
}

enum gp_status gp_batch_map_of(const struct gp_graph *g, const struct gp_batch *batch, struct gp_batch_map *out,
			       struct gp_err *err)
{
	return gp_batch_map_make(g, batch->info, batch->tensors, out, err);
}

const void *gp_batch_map_at(const struct gp_batch_map *m, const struct gp_batch *batch, int input, size_t first)
{
	return (const char *)batch->data[m->tensor[input]] + first * m->sample_bytes[input];
}

void gp_batch_map_copy(const struct gp_batch_map *m, const struct gp_batch *batch, size_t first, size_t samples,
		       struct gp_plan *plan, int slot, const struct gp_port *from)
{
	gp_require(first + samples <= (size_t)batch->room);
	for (int i = 0; i < plan->spec.graph->inputs; i++) {
		const int input = from ? from[i].index : i;
		if (!from || from[i].from == GP_FROM_DATA)
			memcpy(plan->ops->buffer(plan, slot, GP_BUF_INPUT, i), gp_batch_map_at(m, batch, input, first),
			       samples * m->sample_bytes[input]);
	}
}
