/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gpclient model show --json` and `model list --json` print, see model_view.h.
 * Test: tests/unit/test_model_view.c
 */
#include "client/costs/model_view_impl.h"

#include <jansson.h>

#include "client/costs/cost_table.h"
#include "client/costs/memory_view.h"
#include "client/models/models.h"

static const char *const part_keys[GP_VIEW_PARTS] = {"head", "body", "tail", "total"};

static json_t *shape_json(const struct gp_shape *shape)
{
	struct gp_shape s = gp_view_torch_order(shape);
	json_t *list = json_array();
	for (int i = 0; i < s.ndim; i++)
		json_array_append_new(list, json_integer(s.dim[i]));
	return list;
}

static json_t *sum_json(const struct gp_model_view *v, const struct gp_view_sum *s)
{
	const struct gp_cost *forward = &s->costs.pass[GP_PASS_FORWARD], *backward = &s->costs.pass[GP_PASS_BACKWARD];
	return json_pack("{s:[i,i], s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "blocks", s->first_block,
			 s->end_block, "layers", s->layers, "parameters", (json_int_t)s->parameters, "frozen",
			 (json_int_t)s->frozen, "statistics", (json_int_t)s->statistics, "macs",
			 (json_int_t)forward->macs[GP_COUNT_TRUE], "origin_macs",
			 (json_int_t)forward->macs[GP_COUNT_ORIGIN], "activation_bytes", (json_int_t)forward->bytes,
			 "forward", gp_cost_json(v, forward), "backward", gp_cost_json(v, backward));
}

static json_t *layers_json(const struct gp_graph *g, int block)
{
	json_t *list = json_array();
	for (int i = g->block[block].first_node; i < gp_graph_block_end(g, block); i++) {
		const struct gp_node *n = &g->node[i];
		uint64_t parameters = gp_view_node_parameters(g, n);
		json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:I, s:I, s:I}", "name", n->name, "op",
						      gp_op_name(n->op), "output", shape_json(&n->shape), "parameters",
						      (json_int_t)parameters, "macs",
						      (json_int_t)gp_node_macs(g, n, GP_COUNT_TRUE), "origin_macs",
						      (json_int_t)gp_node_macs(g, n, GP_COUNT_ORIGIN)));
	}
	return list;
}

static json_t *blocks_json(const struct gp_model_view *v)
{
	const struct gp_graph *g = v->graph;
	json_t *list = json_array();
	for (int b = 0; b < g->blocks; b++) {
		struct gp_view_sum s = gp_view_sum_blocks(g, b, b + 1);
		int part = b < v->cut.head ? GP_VIEW_HEAD : b < v->cut.tail ? GP_VIEW_BODY : GP_VIEW_TAIL;
		json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:o}", "name", g->block[b].name, "part",
				  part_keys[part], "output", shape_json(&g->node[gp_graph_block_end(g, b) - 1].shape),
				  "parameters", (json_int_t)s.parameters, "statistics", (json_int_t)s.statistics,
				  "macs", (json_int_t)gp_view_forward_macs(&s, GP_COUNT_TRUE), "origin_macs",
				  (json_int_t)gp_view_forward_macs(&s, GP_COUNT_ORIGIN), "layers", layers_json(g, b)));
	}
	return list;
}

static json_t *parts_json(const struct gp_model_view *v)
{
	json_t *parts = json_object();
	for (int i = 0; i < GP_VIEW_PARTS; i++)
		json_object_set_new(parts, part_keys[i], sum_json(v, &v->part[i]));
	return parts;
}

static json_t *row_json(const struct gp_model_view *v, const struct gp_view_row *r)
{
	return json_pack("{s:s, s:s, s:o, s:s, s:b, s:I, s:I, s:I}", "name", r->name, "dtype",
			 gp_dtype_name(r->type->dtype), "shape", shape_json(&r->type->shape), "kind", r->kind,
			 "gradient", r->has_gradient, "sample_bytes", (json_int_t)gp_view_row_bytes(r, 1),
			 "batch_bytes", (json_int_t)gp_view_row_bytes(r, v->batch), "chunk_bytes",
			 (json_int_t)gp_view_row_bytes(r, v->chunk_samples));
}

/* The sums over a direction's tensors, its shape where there is one tensor, and all of them. */
static json_t *direction_json(const struct gp_model_view *v, enum gp_direction direction)
{
	const struct gp_direction_info *way = &gp_direction_info[direction];
	json_t *tensors = json_array();
	json_t *o = json_pack("{s:i, s:I, s:I, s:I}", "cut", way->at_input ? v->cut.head : v->cut.tail, "sample_bytes",
			      (json_int_t)gp_model_view_bytes(v, direction, 1), "batch_bytes",
			      (json_int_t)gp_model_view_bytes(v, direction, v->batch), "chunk_bytes",
			      (json_int_t)gp_model_view_bytes(v, direction, v->chunk_samples));
	for (int i = 0; i < v->cross->list.count; i++) {
		const struct gp_view_row r = gp_view_crossing_row(v, i);
		if (r.way != way)
			continue;
		json_array_append_new(tensors, row_json(v, &r));
		if (gp_crossing_count(v->cross, direction) == 1)
			json_object_set_new(o, "shape", shape_json(&r.type->shape));
	}
	json_object_set_new(o, "tensors", tensors);
	return o;
}

static json_t *tensors_json(const struct gp_model_view *v)
{
	json_t *all = json_object();
	for (int d = 0; d < GP_DIRECTIONS; d++)
		json_object_set_new(all, gp_direction_info[d].name, direction_json(v, (enum gp_direction)d));
	return all;
}

static json_t *staying_json(const struct gp_model_view *v)
{
	json_t *list = json_array();
	for (int i = 0; i < v->cross->parts.tail->inputs; i++) {
		const struct gp_view_row r = gp_view_staying_row(v, i);
		if (gp_view_stays_here(v, i))
			json_array_append_new(list, row_json(v, &r));
	}
	return list;
}

static json_t *partition_json(const struct gp_model_view *v, const struct gp_partition *p)
{
	char cut[24];
	json_t *o = json_pack("{s:s, s:s, s:s}", "name", p->name, "first", p->first, "last", p->last);
	if (p->lacks)
		json_object_set_new(o, "lacks", json_string(p->lacks));
	else
		json_object_update_new(o, json_pack("{s:s, s:I, s:I}", "cut", gp_partition_text(v->graph, &p->cut, cut),
						    "up_bytes", (json_int_t)p->up_bytes, "down_bytes",
						    (json_int_t)p->down_bytes));
	return o;
}

static json_t *partitions_json(const struct gp_model_view *v)
{
	json_t *list = json_array();
	for (int i = 0; i < v->plain.partitions; i++)
		json_array_append_new(list, partition_json(v, &v->plain.partition[i]));
	return list;
}

static json_t *inputs_json(const struct gp_graph *g)
{
	json_t *list = json_array();
	for (int i = 0; i < g->inputs; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", g->node[i].name, "dtype",
						      gp_dtype_name(g->value[i].type.dtype), "shape",
						      shape_json(&g->value[i].type.shape)));
	return list;
}

static json_t *insertion_json(const struct gp_model_view *v)
{
	char text[GP_INSERT_TEXT];
	json_t *ends = json_object();
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		json_object_set_new(ends, gp_insert_end_name[e],
				    json_string(gp_view_insertion_text(v, (enum gp_insert_end)e, text)));
	return ends;
}

/* The ranks of each decay of an end, from the first step on. */
static json_t *ranks_of(const struct gp_insert_spec *spec)
{
	json_t *list = json_array();
	for (int i = 0; i < spec->sets; i++) {
		const struct gp_insert_set *s = &spec->set[i];
		if (s->kind != GP_INSERT_DECAY)
			continue;
		json_t *rank = json_array();
		for (int k = 0; k <= s->times; k++)
			json_array_append_new(rank, json_integer((json_int_t)gp_view_rank(s, k)));
		json_array_append_new(list, json_pack("{s:i, s:o}", "every", s->every, "rank", rank));
	}
	return list;
}

static json_t *ranks_json(const struct gp_model_view *v)
{
	json_t *ends = json_object();
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		json_object_set_new(ends, gp_insert_end_name[e],
				    v->insertion ? ranks_of(&v->insertion->end[e].spec) : json_array());
	return ends;
}

/* Takes `root`. */
static enum gp_status write_json(json_t *root, FILE *to, struct gp_err *err)
{
	if (!root)
		GP_FAIL(err, GP_NOMEM, "cannot make the JSON text: is the model's text UTF-8?");
	int rc = json_dumpf(root, to, JSON_INDENT(2));
	json_decref(root);
	if (rc != 0 || fputc('\n', to) == EOF)
		GP_FAIL(err, GP_IO, "cannot write the JSON text");
	return GP_OK;
}

enum gp_status gp_model_view_json(const struct gp_model_view *v, FILE *to, struct gp_err *err)
{
	json_t *root = json_pack("{s:s, s:o, s:o, s:o, s:[i,i], s:o, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}",
				 "model", v->spec, "input", shape_json(gp_graph_input_shape(v->graph)), "inputs",
				 inputs_json(v->graph), "output", shape_json(gp_graph_output_shape(v->graph)), "cut",
				 v->cut.head, v->cut.tail, "insert", insertion_json(v), "ranks", ranks_json(v), "batch",
				 (json_int_t)v->batch, "chunks", (json_int_t)v->chunks, "chunk_samples",
				 (json_int_t)v->chunk_samples, "parts", parts_json(v), "rate", gp_rates_json(v),
				 "tensors", tensors_json(v), "stays", staying_json(v), "partitions", partitions_json(v),
				 "blocks", blocks_json(v));
	if (v->memory)
		json_object_set_new(root, "memory", gp_memory_view_json(v->memory));
	return write_json(root, to, err);
}

enum gp_status gp_model_list_json(FILE *to, struct gp_err *err)
{
	json_t *list = json_array();
	const struct gp_model_info *m;
	for (int i = 0; (m = gp_model_info(i)); i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", m->name, "summary", m->summary,
						      "options", m->options));
	return write_json(list, to, err);
}
