/* SPDX-License-Identifier: Apache-2.0
 *
 * From batches to the inputs of a plan. See batch_map.h. Test: tests/unit/test_batch_map.c
 */
#include "client/engine/batch_map.h"

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

/* The model's outputs are of all of a text: no part of an answer is left out with a position. */
static bool ends_sequences(const struct gp_graph *g)
{
	for (int i = 0; i < g->outputs; i++)
		if (g->value[g->output[i].value].sequence)
			return false;
	return true;
}

static bool counts_positions(const struct gp_tensor_info *t, int64_t values)
{
	return t->type.dtype == GP_I32 && t->type.shape.ndim == 1 && t->type.shape.dim[0] == values;
}

/* Leaves `positions` at 0 where the data does not say how long a sample is. */
static void find_rows(const struct gp_graph *g, const struct gp_tensor_info *info, int tensors, struct gp_batch_map *m)
{
	const int64_t positions = ends_sequences(g) ? gp_graph_sequence(g) : 0;
	const int length = find_tensor(info, tensors, "length"), mask = find_tensor(info, tensors, "mask");
	if (positions == 0)
		return;
	if (length >= 0 && counts_positions(&info[length], 1))
		m->rows = length;
	else if (mask >= 0 && counts_positions(&info[mask], positions))
		m->rows = mask;
	else
		return;
	m->row_values = m->rows == length ? 1 : (int)positions;
	m->positions = positions;
	for (int i = 0; i < g->inputs; i++)
		m->sequence[i] = g->value[i].sequence;
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
	find_rows(g, info, tensors, &f);
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

/* `value`: of one sample. A length that cannot be, as a damaged file may hold, counts as one that can. */
static uint32_t rows_of(const struct gp_batch_map *m, const int32_t *value)
{
	int64_t rows = m->row_values;
	if (m->row_values == 1)
		rows = value[0] < 0 ? 0 : value[0] < m->positions ? value[0] : m->positions;
	while (m->row_values > 1 && rows > 0 && value[rows - 1] == 0)
		rows--;
	return (uint32_t)rows;
}

uint32_t gp_batch_map_length(const struct gp_batch_map *m, const struct gp_batch *batch, size_t first, size_t samples,
			     uint32_t *rows)
{
	uint32_t most = 0;
	if (m->positions == 0)
		return 0;
	const int32_t *value = (const int32_t *)batch->data[m->rows] + first * (size_t)m->row_values;
	for (size_t n = 0; n < samples; n++, value += m->row_values) {
		const uint32_t own = rows_of(m, value);
		most = own > most ? own : most;
		if (rows)
			rows[n] = own;
	}
	return (uint32_t)gp_sequence_round(m->positions, most);
}

void gp_batch_map_put(const struct gp_batch_map *m, const struct gp_batch *batch, int input, size_t first,
		      size_t samples, uint32_t length, void *to)
{
	const char *from = gp_batch_map_at(m, batch, input, first);
	const size_t whole = m->sample_bytes[input];
	const bool fewer = length > 0 && m->sequence[input];
	const size_t bytes = fewer ? whole / (size_t)m->positions * length : whole;
	for (size_t n = 0; n < samples && bytes < whole; n++)
		memcpy((char *)to + n * bytes, from + n * whole, bytes);
	if (bytes == whole)
		memcpy(to, from, samples * whole);
}

void gp_batch_map_copy(const struct gp_batch_map *m, const struct gp_batch *batch, size_t first, size_t samples,
		       uint32_t length, struct gp_plan *plan, int slot, const struct gp_port *from)
{
	gp_require(first + samples <= (size_t)batch->room);
	for (int i = 0; i < plan->spec.graph->inputs; i++) {
		const int input = from ? from[i].index : i;
		if (!from || from[i].from == GP_FROM_DATA)
			gp_batch_map_put(m, batch, input, first, samples, length,
					 plan->ops->buffer(plan, slot, GP_BUF_INPUT, i));
	}
}
