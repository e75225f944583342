/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gpclient model show` prints, see model_view.h.
 * Test: tests/unit/test_model_view.c
 */
#include "client/costs/model_view_impl.h"

#include <string.h>

#include "client/costs/cost_table.h"
#include "client/costs/memory_view.h"
#include "common/graph/ops/op_shape.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_conv.h"

/* Short texts by value, so that several fit into one printf. */
struct text {
	char s[64];
};

static struct text shape_text(const struct gp_shape *shape)
{
	struct text t;
	struct gp_shape torch = gp_view_torch_order(shape);
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
	for (int i = g->block[block].first_node; i < gp_graph_block_end(g, block); i++) {
		const struct gp_node *n = &g->node[i];
		const uint64_t parameters = gp_view_node_parameters(g, n), macs = gp_node_macs(g, n, v->count);
		print_row("", n->name, op_text(n).s, true, &n->shape, parameters ? grouped(parameters).s : "-",
			  macs ? grouped(macs).s : "-", to);
	}
}

static void print_blocks(const struct gp_model_view *v, bool layers, FILE *to)
{
	const struct gp_graph *g = v->graph;
	print_row("", layers ? "block / layer" : "block", "op", layers, NULL, "parameters", macs_title[v->count], to);
	for (int b = 0; b < g->blocks; b++) {
		struct gp_view_sum s = gp_view_sum_blocks(g, b, b + 1);
		char number[16];
		snprintf(number, sizeof number, "%d", b);
		if (b == v->cut.head)
			fprintf(to, "------ cut %d: to the server\n", b);
		if (b == v->cut.tail)
			fprintf(to, "------ cut %d: back to the client\n", b);
		print_row(number, g->block[b].name, "", layers, &g->node[gp_graph_block_end(g, b) - 1].shape,
			  grouped(s.parameters).s, grouped(gp_view_forward_macs(&s, v->count)).s, to);
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
		const uint64_t macs = gp_view_forward_macs(s, v->count), all = gp_view_forward_macs(total, v->count);
		fprintf(to, " %12s %15s %6.1f %%\n", grouped(s->statistics).s, grouped(macs).s,
			all ? 100.0 * (double)macs / (double)all : 0.0);
	}
}

static int longest_name(const struct gp_model_view *v)
{
	size_t longest = strlen("name");
	for (int i = 0; i < v->cross->list.count; i++)
		longest = strlen(gp_view_crossing_row(v, i).name) > longest ? strlen(gp_view_crossing_row(v, i).name)
									    : longest;
	for (int i = 0; i < v->cross->parts.tail->inputs; i++)
		longest = strlen(gp_view_staying_row(v, i).name) > longest ? strlen(gp_view_staying_row(v, i).name)
									   : longest;
	return (int)longest;
}

/* "activation up", "data, stays here" */
static struct text row_label(const struct gp_view_row *r)
{
	struct text t;
	snprintf(t.s, sizeof t.s, "%s%s", r->kind, !r->way ? ", stays here" : r->way->up ? " up" : " down");
	return t;
}

static void print_tensor(const struct gp_model_view *v, const struct gp_view_row *r, int width, FILE *to)
{
	char cut[16] = "-";
	if (r->way)
		snprintf(cut, sizeof cut, "%d", r->cut);
	fprintf(to, "%-22s %-*s %4s %4s %12s %14s %17s", row_label(r).s, width, r->name, gp_dtype_name(r->type->dtype),
		cut, shape_text(&r->type->shape).s, grouped(gp_view_row_bytes(r, 1)).s,
		bytes_text(gp_view_row_bytes(r, v->batch)).s);
	if (v->chunks > 1)
		fprintf(to, " %16s", bytes_text(gp_view_row_bytes(r, v->chunk_samples)).s);
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
		const struct gp_view_row r = gp_view_crossing_row(v, i);
		print_tensor(v, &r, width, to);
	}
	for (int i = 0; i < v->cross->parts.tail->inputs; i++) {
		const struct gp_view_row r = gp_view_staying_row(v, i);
		if (gp_view_stays_here(v, i))
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

/* The ranks of each decay, from the first step on. */
static void print_ranks(const struct gp_insert_spec *spec, FILE *to)
{
	for (int i = 0; i < spec->sets; i++) {
		const struct gp_insert_set *s = &spec->set[i];
		if (s->kind != GP_INSERT_DECAY)
			continue;
		fprintf(to, "  rank, every %d steps:", s->every);
		int64_t rank = s->rank;
		for (int k = 0; k <= s->times && rank > 0; k++) {
			rank = gp_view_rank(s, k);
			fprintf(to, " %lld", (long long)rank);
		}
		fprintf(to, rank > 0 ? "; costs and rates below are those of the first\n"
				     : ": train refuses this, as nothing would cross in the end\n");
	}
}

static void print_insertion(const struct gp_model_view *v, FILE *to)
{
	char text[GP_INSERT_TEXT];
	for (int e = 0; v->insertion && e < GP_INSERT_ENDS; e++) {
		fprintf(to, "insertion %s: %s\n", gp_insert_end_name[e],
			gp_view_insertion_text(v, (enum gp_insert_end)e, text));
		print_ranks(&v->insertion->end[e].spec, to);
	}
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
