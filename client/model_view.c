/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures and printing for `gpclient model show`, see model_view.h.
 * Test: tests/unit/test_model_view.c
 */
#include "client/model_view.h"

#include <jansson.h>
#include <string.h>

#include "client/models/models.h"
#include "common/graph/ops/op_shape.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/graph_part.h"

static const char *const part_names[GP_VIEW_PARTS] = {"client head", "server body", "client tail", "total"};
static const char *const part_keys[GP_VIEW_PARTS] = {"head", "body", "tail", "total"};

/* The four tensors of a step, in the order in which a chunk makes them. */
enum { TENSORS = 4 };
static const struct tensor_row {
	const char *key, *label;
	bool at_tail; /* crosses the second cut */
} tensors[TENSORS] = {
	{"act_up", "activations up", false},
	{"act_down", "activations down", true},
	{"grad_up", "gradients up", true},
	{"grad_down", "gradients down", false},
};

/* --- figures ---------------------------------------------------------------------------------------------------- */

static int end_node(const struct gp_graph *g, int block)
{
	return block + 1 < g->blocks ? g->block[block + 1].first_node : g->nodes;
}

/* Trained ones. */
static uint64_t node_parameters(const struct gp_graph *g, const struct gp_node *n)
{
	uint64_t count = 0;
	for (int k = n->first_param; k < n->first_param + n->params; k++)
		count += g->param[k].trained ? g->param[k].count : 0;
	return count;
}

static struct gp_view_sum sum_blocks(const struct gp_graph *g, int first, int end)
{
	struct gp_view_sum s = {.first_block = first, .end_block = end};
	for (int i = g->block[first].first_node; i < end_node(g, end - 1); i++) {
		const struct gp_node *n = &g->node[i];
		s.layers++;
		s.macs += n->macs;
		for (int k = n->first_param; k < n->first_param + n->params; k++)
			*(g->param[k].trained ? &s.parameters : &s.statistics) += g->param[k].count;
	}
	return s;
}

static enum gp_status check_parts(const struct gp_graph *g, const struct gp_cut *cut, struct gp_err *err)
{
	const int bound[] = {0, cut->head, cut->tail, g->blocks};
	for (int i = 0; i < 3; i++) {
		struct gp_graph *part;
		GP_TRY(gp_graph_part(g, bound[i], bound[i + 1], &part, err));
		gp_graph_free(part);
	}
	return GP_OK;
}

enum gp_status gp_model_view_init(struct gp_model_view *v, const char *spec, const struct gp_graph *g,
				  const struct gp_cut *cut, int64_t batch, int64_t chunks, struct gp_err *err)
{
	if (chunks > batch)
		GP_FAIL(err, GP_INVALID, "a batch of %lld cannot be split into %lld chunks", (long long)batch,
			(long long)chunks);
	GP_TRY(check_parts(g, cut, err));
	*v = (struct gp_model_view){.graph = g, .spec = spec, .cut = *cut, .batch = batch, .chunks = chunks};
	v->chunk_samples = (batch + chunks - 1) / chunks;
	v->part[GP_VIEW_HEAD] = sum_blocks(g, 0, cut->head);
	v->part[GP_VIEW_BODY] = sum_blocks(g, cut->head, cut->tail);
	v->part[GP_VIEW_TAIL] = sum_blocks(g, cut->tail, g->blocks);
	v->part[GP_VIEW_TOTAL] = sum_blocks(g, 0, g->blocks);
	v->up = g->node[g->block[cut->head].first_node - 1].shape;
	v->down = g->node[g->block[cut->tail].first_node - 1].shape;
	return GP_OK;
}

static const struct gp_shape *tensor_shape(const struct gp_model_view *v, const struct tensor_row *t)
{
	return t->at_tail ? &v->down : &v->up;
}

static uint64_t tensor_bytes(const struct gp_model_view *v, const struct tensor_row *t, int64_t samples)
{
	return gp_shape_elements(tensor_shape(v, t)) * (uint64_t)samples * sizeof(float);
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

static void print_layers(const struct gp_graph *g, int block, FILE *to)
{
	for (int i = g->block[block].first_node; i < end_node(g, block); i++) {
		const struct gp_node *n = &g->node[i];
		uint64_t parameters = node_parameters(g, n);
		print_row("", n->name, op_text(n).s, true, &n->shape, parameters ? grouped(parameters).s : "-",
			  n->macs ? grouped(n->macs).s : "-", to);
	}
}

static void print_blocks(const struct gp_model_view *v, bool layers, FILE *to)
{
	const struct gp_graph *g = v->graph;
	print_row("", layers ? "block / layer" : "block", "op", layers, NULL, "parameters", "MACs/sample", to);
	for (int b = 0; b < g->blocks; b++) {
		struct gp_view_sum s = sum_blocks(g, b, b + 1);
		char number[16];
		snprintf(number, sizeof number, "%d", b);
		if (b == v->cut.head)
			fprintf(to, "------ cut %d: to the server\n", b);
		if (b == v->cut.tail)
			fprintf(to, "------ cut %d: back to the client\n", b);
		print_row(number, g->block[b].name, "", layers, &g->node[end_node(g, b) - 1].shape,
			  grouped(s.parameters).s, grouped(s.macs).s, to);
		if (layers)
			print_layers(g, b, to);
	}
}

static void print_parts(const struct gp_model_view *v, FILE *to)
{
	const struct gp_view_sum *total = &v->part[GP_VIEW_TOTAL];
	fprintf(to, "\n%-14s %9s %8s %14s %12s %15s %8s\n", "part", "blocks", "layers", "parameters", "statistics",
		"MACs/sample", "share");
	for (int i = 0; i < GP_VIEW_PARTS; i++) {
		const struct gp_view_sum *s = &v->part[i];
		char blocks[32];
		snprintf(blocks, sizeof blocks, "%d..%d", s->first_block, s->end_block - 1);
		fprintf(to, "%-14s %9s %8d %14s %12s %15s %6.1f %%\n", part_names[i], blocks, s->layers,
			grouped(s->parameters).s, grouped(s->statistics).s, grouped(s->macs).s,
			total->macs ? 100.0 * (double)s->macs / (double)total->macs : 0.0);
	}
}

static void print_tensors(const struct gp_model_view *v, FILE *to)
{
	char batch[40], chunk[40];
	snprintf(batch, sizeof batch, "batch of %lld", (long long)v->batch);
	snprintf(chunk, sizeof chunk, "chunk of %lld", (long long)v->chunk_samples);
	fprintf(to, "\n%-18s %4s %12s %14s %17s", "fp32 tensor", "cut", "one sample", "bytes/sample", batch);
	fprintf(to, v->chunks > 1 ? " %16s\n" : "\n", chunk);
	for (int i = 0; i < TENSORS; i++) {
		const struct tensor_row *t = &tensors[i];
		fprintf(to, "%-18s %4d %12s %14s %17s", t->label, t->at_tail ? v->cut.tail : v->cut.head,
			shape_text(tensor_shape(v, t)).s, grouped(tensor_bytes(v, t, 1)).s,
			bytes_text(tensor_bytes(v, t, v->batch)).s);
		if (v->chunks > 1)
			fprintf(to, " %16s", bytes_text(tensor_bytes(v, t, v->chunk_samples)).s);
		fputc('\n', to);
	}
	uint64_t step = tensor_bytes(v, &tensors[0], v->batch) + tensor_bytes(v, &tensors[1], v->batch);
	fprintf(to, "A training step moves %s each way before compression", bytes_text(step).s);
	fprintf(to, v->chunks > 1 ? ", in %lld chunks.\n" : ".\n", (long long)v->chunks);
}

void gp_model_view_print(const struct gp_model_view *v, bool layers, FILE *to)
{
	const struct gp_graph *g = v->graph;
	fprintf(to, "%s, input %s, output %s, %d blocks\n\n", v->spec, shape_text(gp_graph_input_shape(g)).s,
		shape_text(gp_graph_output_shape(g)).s, g->blocks);
	print_blocks(v, layers, to);
	print_parts(v, to);
	print_tensors(v, to);
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

static json_t *sum_json(const struct gp_view_sum *s)
{
	return json_pack("{s:[i,i], s:i, s:I, s:I, s:I}", "blocks", s->first_block, s->end_block, "layers", s->layers,
			 "parameters", (json_int_t)s->parameters, "statistics", (json_int_t)s->statistics, "macs",
			 (json_int_t)s->macs);
}

static json_t *layers_json(const struct gp_graph *g, int block)
{
	json_t *list = json_array();
	for (int i = g->block[block].first_node; i < end_node(g, block); i++) {
		const struct gp_node *n = &g->node[i];
		uint64_t parameters = node_parameters(g, n);
		json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:I, s:I}", "name", n->name, "op",
						      gp_op_name(n->op), "output", shape_json(&n->shape), "parameters",
						      (json_int_t)parameters, "macs", (json_int_t)n->macs));
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
		json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:o}", "name", g->block[b].name,
						      "part", part_keys[part], "output",
						      shape_json(&g->node[end_node(g, b) - 1].shape), "parameters",
						      (json_int_t)s.parameters, "statistics", (json_int_t)s.statistics,
						      "macs", (json_int_t)s.macs, "layers", layers_json(g, b)));
	}
	return list;
}

static json_t *parts_json(const struct gp_model_view *v)
{
	json_t *parts = json_object();
	for (int i = 0; i < GP_VIEW_PARTS; i++)
		json_object_set_new(parts, part_keys[i], sum_json(&v->part[i]));
	return parts;
}

static json_t *tensors_json(const struct gp_model_view *v)
{
	json_t *all = json_object();
	for (int i = 0; i < TENSORS; i++) {
		const struct tensor_row *t = &tensors[i];
		json_object_set_new(
			all, t->key,
			json_pack("{s:i, s:o, s:I, s:I, s:I}", "cut", t->at_tail ? v->cut.tail : v->cut.head, "shape",
				  shape_json(tensor_shape(v, t)), "sample_bytes", (json_int_t)tensor_bytes(v, t, 1),
				  "batch_bytes", (json_int_t)tensor_bytes(v, t, v->batch), "chunk_bytes",
				  (json_int_t)tensor_bytes(v, t, v->chunk_samples)));
	}
	return all;
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
	json_t *root = json_pack("{s:s, s:o, s:o, s:[i,i], s:I, s:I, s:I, s:o, s:o, s:o}", "model", v->spec, "input",
				 shape_json(gp_graph_input_shape(v->graph)), "output",
				 shape_json(gp_graph_output_shape(v->graph)), "cut", v->cut.head, v->cut.tail, "batch",
				 (json_int_t)v->batch, "chunks", (json_int_t)v->chunks, "chunk_samples",
				 (json_int_t)v->chunk_samples, "parts", parts_json(v), "tensors", tensors_json(v),
				 "blocks", blocks_json(v));
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
