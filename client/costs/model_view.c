/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures and printing for `gpclient model show`, see model_view.h.
 * Test: tests/unit/test_model_view.c
 */
#include "client/costs/model_view.h"

#include <jansson.h>
#include <string.h>

#include "client/costs/cost_table.h"
#include "client/costs/memory_view.h"
#include "client/models/models.h"
#include "common/graph/ops/op_shape.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_conv.h"

const char *const gp_view_part_names[GP_VIEW_PARTS] = {"client head", "server body", "client tail", "total"};
static const char *const part_keys[GP_VIEW_PARTS] = {"head", "body", "tail", "total"};

/* --- figures ---------------------------------------------------------------------------------------------------- */

static int end_node(const struct gp_graph *g, int block)
{
	return block + 1 < g->blocks ? g->block[block + 1].first_node : g->nodes;
}

static bool is_statistic(const struct gp_param *p)
{
	return p->role == GP_PARAM_RUNNING_MEAN || p->role == GP_PARAM_RUNNING_VAR;
}

/* Weights and biases. */
static uint64_t node_parameters(const struct gp_graph *g, const struct gp_node *n)
{
	uint64_t count = 0;
	for (int k = n->first_param; k < n->first_param + n->params; k++)
		count += is_statistic(&g->param[k]) || g->param[k].follows ? 0 : g->param[k].count;
	return count;
}

static void add_param(struct gp_view_sum *s, const struct gp_param *p)
{
	if (p->follows)
		return; /* counted as the one that it follows */
	*(is_statistic(p) ? &s->statistics : &s->parameters) += p->count;
	s->frozen += is_statistic(p) || p->trained ? 0 : p->count;
}

static struct gp_view_sum sum_blocks(const struct gp_graph *g, int first, int end)
{
	struct gp_view_sum s = {.first_block = first, .end_block = end};
	for (int i = g->block[first].first_node; i < end_node(g, end - 1); i++) {
		const struct gp_node *n = &g->node[i];
		s.layers++;
		for (int k = n->first_param; k < n->first_param + n->params; k++)
			add_param(&s, &g->param[k]);
	}
	gp_part_costs_find(g, g->block[first].first_node, end_node(g, end - 1), &s.costs);
	return s;
}

static uint64_t forward_macs(const struct gp_view_sum *s, enum gp_count count)
{
	return s->costs.pass[GP_PASS_FORWARD].macs[count];
}

enum gp_status gp_model_view_init(struct gp_model_view *v, const char *spec, const struct gp_graph *g,
				  const struct gp_cut *cut, int64_t batch, int64_t chunks, struct gp_err *err)
{
	if (chunks > batch)
		GP_FAIL(err, GP_INVALID, "a batch of %lld cannot be split into %lld chunks", (long long)batch,
			(long long)chunks);
	*v = (struct gp_model_view){.graph = g,
				    .spec = spec,
				    .cut = *cut,
				    .batch = batch,
				    .chunks = chunks,
				    .session = {.chunk_samples = 1, .chunks = 1, .window = 1}};
	GP_TRY(gp_partitions_find(g, v->plain.partition, &v->plain.partitions, err));
	GP_TRY(gp_crossing_find(g, cut, &v->session, &v->cross, err));
	v->chunk_samples = (batch + chunks - 1) / chunks;
	v->part[GP_VIEW_HEAD] = sum_blocks(g, 0, cut->head);
	v->part[GP_VIEW_BODY] = sum_blocks(g, cut->head, cut->tail);
	v->part[GP_VIEW_TAIL] = sum_blocks(g, cut->tail, g->blocks);
	v->part[GP_VIEW_TOTAL] = sum_blocks(g, 0, g->blocks);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		v->plain.bytes[d] = gp_model_view_bytes(v, (enum gp_direction)d, 1);
	return GP_OK;
}

enum gp_status gp_view_plain_find(const struct gp_graph *g, const struct gp_cut *cut, struct gp_view_plain *out,
				  struct gp_err *err)
{
	struct gp_model_view v = {0};
	const enum gp_status status = gp_model_view_init(&v, g->name, g, cut, 1, 1, err);
	if (status == GP_OK)
		*out = v.plain;
	gp_model_view_deinit(&v);
	return status;
}

/* No gradient comes to what is frozen, with or without the insertion. */
void gp_model_view_compare(struct gp_model_view *v, const struct gp_insertion *ins, const struct gp_view_plain *plain)
{
	v->insertion = ins;
	v->plain = *plain;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		if (gp_crossing_count(v->cross, (enum gp_direction)d) == 0)
			v->plain.bytes[d] = 0;
}

void gp_model_view_deinit(struct gp_model_view *v)
{
	gp_crossing_free(v->cross);
	*v = (struct gp_model_view){0};
}

/* One line of the table of tensors. */
struct row {
	const char *name;
	const struct gp_type *type;          /* of one sample */
	const struct gp_direction_info *way; /* NULL: it stays here */
	const char *kind;                    /* "activation", "data", "gradient" */
	int cut;
	bool has_gradient;
};

static struct row crossing_row(const struct gp_model_view *v, int flow)
{
	const struct gp_flow_spec *f = &v->cross->list.flow[flow];
	const struct gp_graph *body = v->cross->parts.body;
	const struct gp_direction_info *way = &gp_direction_info[f->direction];
	const bool data = f->codec == &v->cross->list.raw;
	return (struct row){
		.name = gp_crossing_name(body, f->direction, f->tensor),
		.type = way->at_input ? &body->value[f->tensor].type : gp_graph_output_type(body, f->tensor),
		.way = way,
		.kind = way->gradient ? "gradient"
			: data        ? "data"
				      : "activation",
		.cut = way->at_input ? v->cut.head : v->cut.tail,
		.has_gradient = f->has_gradient,
	};
}

static bool stays_here(const struct gp_model_view *v, int tail_input)
{
	return v->cross->parts.tail_in[tail_input].from != GP_FROM_BODY;
}

static struct row staying_row(const struct gp_model_view *v, int tail_input)
{
	const struct gp_graph_parts *p = &v->cross->parts;
	return (struct row){.name = p->tail->node[tail_input].name,
			    .type = &p->tail->value[tail_input].type,
			    .kind = p->tail_activation >> tail_input & 1 ? "activation" : "data",
			    .has_gradient = p->tail_gradient >> tail_input & 1};
}

static uint64_t row_bytes(const struct row *r, int64_t samples)
{
	return gp_shape_elements(&r->type->shape) * gp_dtype_bytes(r->type->dtype) * (uint64_t)samples;
}

uint64_t gp_model_view_bytes(const struct gp_model_view *v, enum gp_direction direction, int64_t samples)
{
	uint64_t sum = 0;
	for (int i = 0; i < v->cross->list.count; i++) {
		const struct row r = crossing_row(v, i);
		sum += r.way == &gp_direction_info[direction] ? row_bytes(&r, samples) : 0;
	}
	return sum;
}

/* Channels first for images. */
static struct gp_shape torch_order(const struct gp_shape *s)
{
	if (s->ndim != 3)
		return *s;
	return (struct gp_shape){.ndim = 3, .dim = {s->dim[2], s->dim[0], s->dim[1]}};
}

/* --- text ------------------------------------------------------------------------------------------------------- */

/* Short texts by value, so that several fit into one printf. */
struct text {
	char s[64];
};

static struct text shape_text(const struct gp_shape *shape)
{
	struct text t;
	struct gp_shape torch = torch_order(shape);
	gp_shape_text(&torch, t.s, sizeof t.s);
	return t;
}

/* 3504872 -> "3,504,872" */
static struct text grouped(uint64_t v)
{
	struct text digits, t;
	int n = snprintf(digits.s, sizeof digits.s, "%llu", (unsigned long long)v), used = 0;
	for (int i = 0; i < n; i++) {
		if (i && (n - i) % 3 == 0)
			t.s[used++] = ',';
		t.s[used++] = digits.s[i];
	}
	t.s[used] = '\0';
	return t;
}

/* 25690112 -> "25.69 MB" */
static struct text bytes_text(uint64_t bytes)
{
	static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
	struct text t;
	double v = (double)bytes;
	int u = 0;
	for (; v >= 999.5 && u < 5; u++)
		v /= 1000;
	snprintf(t.s, sizeof t.s, "%.*f %s", u ? (v < 100 ? 2 : 1) : 0, v, unit[u]);
	return t;
}

/* "conv2d 3x3 /2 groups 96" */
static struct text op_text(const struct gp_node *n)
{
	struct text t;
	const struct gp_conv_attr c = gp_conv_attr(n);
	const struct gp_pool_attr p = gp_pool_attr(n);
	int used = snprintf(t.s, sizeof t.s, "%s", gp_op_name(n->op));
	size_t room = sizeof t.s - (size_t)used;
	if (n->op == GP_OP_CONV2D || n->op == GP_OP_CONV2D_TRANSPOSE) {
		used += snprintf(t.s + used, room, " %dx%d /%d", c.kernel_h, c.kernel_w, c.stride_h);
		if (c.groups > 1)
			snprintf(t.s + used, sizeof t.s - (size_t)used, " groups %d", c.groups);
	} else if (n->op == GP_OP_AVG_POOL || n->op == GP_OP_MAX_POOL) {
		snprintf(t.s + used, room, " %dx%d /%d", p.kernel_h, p.kernel_w, p.stride_h);
	} else if (n->op == GP_OP_SHORTCUT_PAD) {
		snprintf(t.s + used, room, " /%d", gp_shortcut_attr(n).stride);
	}
	return t;
}

/* One line of the block table; the op column is there only when layers are shown. */
static void print_row(const char *number, const char *name, const char *op, bool layers, const struct gp_shape *output,
		      const char *parameters, const char *macs, FILE *to)
{
	fprintf(to, "%4s  %-22s", number, name);
	if (layers)
		fprintf(to, " %-26s", op);
	fprintf(to, " %12s %12s %15s\n", output ? shape_text(output).s : "output", parameters, macs);
}

static const char *const macs_title[GP_COUNTS] = {"MACs/sample", "MACs, origin"};

static void print_layers(const struct gp_model_view *v, int block, FILE *to)
{
	const struct gp_graph *g = v->graph;
	for (int i = g->block[block].first_node; i < end_node(g, block); i++) {
		const struct gp_node *n = &g->node[i];
		const uint64_t parameters = node_parameters(g, n), macs = gp_node_macs(g, n, v->count);
		print_row("", n->name, op_text(n).s, true, &n->shape, parameters ? grouped(parameters).s : "-",
			  macs ? grouped(macs).s : "-", to);
	}
}

static void print_blocks(const struct gp_model_view *v, bool layers, FILE *to)
{
	const struct gp_graph *g = v->graph;
	print_row("", layers ? "block / layer" : "block", "op", layers, NULL, "parameters", macs_title[v->count], to);
	for (int b = 0; b < g->blocks; b++) {
		struct gp_view_sum s = sum_blocks(g, b, b + 1);
		char number[16];
		snprintf(number, sizeof number, "%d", b);
		if (b == v->cut.head)
			fprintf(to, "------ cut %d: to the server\n", b);
		if (b == v->cut.tail)
			fprintf(to, "------ cut %d: back to the client\n", b);
		print_row(number, g->block[b].name, "", layers, &g->node[end_node(g, b) - 1].shape,
			  grouped(s.parameters).s, grouped(forward_macs(&s, v->count)).s, to);
		if (layers)
			print_layers(v, b, to);
	}
}

static void print_parts(const struct gp_model_view *v, FILE *to)
{
	const struct gp_view_sum *total = &v->part[GP_VIEW_TOTAL];
	const bool frozen = total->frozen > 0;
	fprintf(to, "\n%-14s %9s %8s %14s", "part", "blocks", "layers", "parameters");
	if (frozen)
		fprintf(to, " %14s", "of them frozen");
	fprintf(to, " %12s %15s %8s\n", "statistics", macs_title[v->count], "share");
	for (int i = 0; i < GP_VIEW_PARTS; i++) {
		const struct gp_view_sum *s = &v->part[i];
		char blocks[32];
		snprintf(blocks, sizeof blocks, "%d..%d", s->first_block, s->end_block - 1);
		fprintf(to, "%-14s %9s %8d %14s", gp_view_part_names[i], blocks, s->layers, grouped(s->parameters).s);
		if (frozen)
			fprintf(to, " %14s", grouped(s->frozen).s);
		const uint64_t macs = forward_macs(s, v->count), all = forward_macs(total, v->count);
		fprintf(to, " %12s %15s %6.1f %%\n", grouped(s->statistics).s, grouped(macs).s,
			all ? 100.0 * (double)macs / (double)all : 0.0);
	}
}

static int longest_name(const struct gp_model_view *v)
{
	size_t longest = strlen("name");
	for (int i = 0; i < v->cross->list.count; i++)
		longest = strlen(crossing_row(v, i).name) > longest ? strlen(crossing_row(v, i).name) : longest;
	for (int i = 0; i < v->cross->parts.tail->inputs; i++)
		longest = strlen(staying_row(v, i).name) > longest ? strlen(staying_row(v, i).name) : longest;
	return (int)longest;
}

/* "activation up", "data, stays here" */
static struct text row_label(const struct row *r)
{
	struct text t;
	snprintf(t.s, sizeof t.s, "%s%s", r->kind, !r->way ? ", stays here" : r->way->up ? " up" : " down");
	return t;
}

static void print_tensor(const struct gp_model_view *v, const struct row *r, int width, FILE *to)
{
	char cut[16] = "-";
	if (r->way)
		snprintf(cut, sizeof cut, "%d", r->cut);
	fprintf(to, "%-22s %-*s %4s %4s %12s %14s %17s", row_label(r).s, width, r->name, gp_dtype_name(r->type->dtype),
		cut, shape_text(&r->type->shape).s, grouped(row_bytes(r, 1)).s, bytes_text(row_bytes(r, v->batch)).s);
	if (v->chunks > 1)
		fprintf(to, " %16s", bytes_text(row_bytes(r, v->chunk_samples)).s);
	fputc('\n', to);
}

static void print_step(const struct gp_model_view *v, FILE *to)
{
	uint64_t up = 0, down = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		*(gp_direction_info[d].up ? &up : &down) += gp_model_view_bytes(v, (enum gp_direction)d, v->batch);
	if (up == down)
		fprintf(to, "A training step moves %s each way before compression", bytes_text(up).s);
	else
		fprintf(to, "A training step moves %s up and %s down before compression", bytes_text(up).s,
			bytes_text(down).s);
	fprintf(to, v->chunks > 1 ? ", in %lld chunks.\n" : ".\n", (long long)v->chunks);
	if (!v->cross->head_backward)
		fprintf(to, "Nothing before the first cut is trained: no gradient comes down.\n");
}

static void print_tensors(const struct gp_model_view *v, FILE *to)
{
	const int width = longest_name(v);
	char batch[40], chunk[40];
	snprintf(batch, sizeof batch, "batch of %lld", (long long)v->batch);
	snprintf(chunk, sizeof chunk, "chunk of %lld", (long long)v->chunk_samples);
	fprintf(to, "\n%-22s %-*s %4s %4s %12s %14s %17s", "tensor", width, "name", "type", "cut", "one sample",
		"bytes/sample", batch);
	fprintf(to, v->chunks > 1 ? " %16s\n" : "\n", chunk);
	for (int i = 0; i < v->cross->list.count; i++) {
		const struct row r = crossing_row(v, i);
		print_tensor(v, &r, width, to);
	}
	for (int i = 0; i < v->cross->parts.tail->inputs; i++) {
		const struct row r = staying_row(v, i);
		if (stays_here(v, i))
			print_tensor(v, &r, width, to);
	}
	print_step(v, to);
}

static void print_partition(const struct gp_model_view *v, const struct gp_partition *p, FILE *to)
{
	char cut[24];
	fprintf(to, "%-9s %-7s ", p->name, p->lacks ? "-" : gp_partition_text(v->graph, &p->cut, cut));
	fprintf(to, "%-33s  %-22s  ", p->first, p->last);
	if (p->lacks)
		fprintf(to, "%s\n", p->lacks);
	else
		fprintf(to, "%14s %14s %17s\n", grouped(p->up_bytes).s, grouped(p->down_bytes).s,
			bytes_text((p->up_bytes + p->down_bytes) * (uint64_t)v->batch).s);
}

static void print_partitions(const struct gp_model_view *v, FILE *to)
{
	if (v->plain.partitions == 0)
		return;
	fprintf(to, "\n%-9s %-7s %-33s  %-22s  %14s %14s %17s\n", "partition", "--cut", "first part, here",
		"last part, here", "activations up", "down", "both, of a batch");
	for (int i = 0; i < v->plain.partitions; i++)
		print_partition(v, &v->plain.partition[i], to);
}

static void print_inputs(const struct gp_graph *g, FILE *to)
{
	if (g->inputs == 1) {
		fprintf(to, "input %s", shape_text(gp_graph_input_shape(g)).s);
		return;
	}
	for (int i = 0; i < g->inputs; i++)
		fprintf(to, "%s%s (%s %s)", i ? ", " : "inputs ", g->node[i].name,
			gp_dtype_name(g->value[i].type.dtype), shape_text(&g->value[i].type.shape).s);
}

static const char *insertion_text(const struct gp_model_view *v, enum gp_insert_end end, char text[GP_INSERT_TEXT])
{
	static const struct gp_insert_spec none;
	return gp_insert_spec_text(v->insertion ? &v->insertion->end[end].spec : &none, text);
}

static void print_insertion(const struct gp_model_view *v, FILE *to)
{
	char text[GP_INSERT_TEXT];
	for (int e = 0; v->insertion && e < GP_INSERT_ENDS; e++)
		fprintf(to, "insertion %s: %s\n", gp_insert_end_name[e],
			insertion_text(v, (enum gp_insert_end)e, text));
}

void gp_model_view_print(const struct gp_model_view *v, bool layers, FILE *to)
{
	const struct gp_graph *g = v->graph;
	fprintf(to, "%s, ", v->spec);
	print_inputs(g, to);
	fprintf(to, ", output %s, %d blocks\n", shape_text(gp_graph_output_shape(g)).s, g->blocks);
	print_insertion(v, to);
	fputc('\n', to);
	print_blocks(v, layers, to);
	print_parts(v, to);
	gp_cost_table_print(v, to);
	print_tensors(v, to);
	print_partitions(v, to);
	if (v->memory)
		gp_memory_view_print(v->memory, to);
}

/* --- JSON ------------------------------------------------------------------------------------------------------- */

static json_t *shape_json(const struct gp_shape *shape)
{
	struct gp_shape s = torch_order(shape);
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
	for (int i = g->block[block].first_node; i < end_node(g, block); i++) {
		const struct gp_node *n = &g->node[i];
		uint64_t parameters = node_parameters(g, n);
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
		struct gp_view_sum s = sum_blocks(g, b, b + 1);
		int part = b < v->cut.head ? GP_VIEW_HEAD : b < v->cut.tail ? GP_VIEW_BODY : GP_VIEW_TAIL;
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:o}", "name", g->block[b].name, "part",
					part_keys[part], "output", shape_json(&g->node[end_node(g, b) - 1].shape),
					"parameters", (json_int_t)s.parameters, "statistics", (json_int_t)s.statistics,
					"macs", (json_int_t)forward_macs(&s, GP_COUNT_TRUE), "origin_macs",
					(json_int_t)forward_macs(&s, GP_COUNT_ORIGIN), "layers", layers_json(g, b)));
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

static json_t *row_json(const struct gp_model_view *v, const struct row *r)
{
	return json_pack("{s:s, s:s, s:o, s:s, s:b, s:I, s:I, s:I}", "name", r->name, "dtype",
			 gp_dtype_name(r->type->dtype), "shape", shape_json(&r->type->shape), "kind", r->kind,
			 "gradient", r->has_gradient, "sample_bytes", (json_int_t)row_bytes(r, 1), "batch_bytes",
			 (json_int_t)row_bytes(r, v->batch), "chunk_bytes", (json_int_t)row_bytes(r, v->chunk_samples));
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
		const struct row r = crossing_row(v, i);
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
		const struct row r = staying_row(v, i);
		if (stays_here(v, i))
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
				    json_string(insertion_text(v, (enum gp_insert_end)e, text)));
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
	json_t *root = json_pack("{s:s, s:o, s:o, s:o, s:[i,i], s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}",
				 "model", v->spec, "input", shape_json(gp_graph_input_shape(v->graph)), "inputs",
				 inputs_json(v->graph), "output", shape_json(gp_graph_output_shape(v->graph)), "cut",
				 v->cut.head, v->cut.tail, "insert", insertion_json(v), "batch", (json_int_t)v->batch,
				 "chunks", (json_int_t)v->chunks, "chunk_samples", (json_int_t)v->chunk_samples,
				 "parts", parts_json(v), "rate", gp_rates_json(v), "tensors", tensors_json(v), "stays",
				 staying_json(v), "partitions", partitions_json(v), "blocks", blocks_json(v));
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
