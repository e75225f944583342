/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts and cuts of a graph. See graph_part.h. Test: tests/unit/test_graph_parts.c
 */
#include "common/graph/graph_part.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/graph/graph_copy.h"
#include "common/graph/op.h"

/* --- parts ------------------------------------------------------------------------------------------------------ */

/* Which values a part of nodes [first, end) takes and gives; by value of the whole graph. */
struct borders {
	const struct gp_graph *g;
	int first, end;
	bool *taken, *given;
	int *index; /* in the part's own graph, once it is there */
};

static bool lies_within(const struct borders *b, int value)
{
	const int node = b->g->value[value].node;
	return node >= b->first && node < b->end;
}

static void find_borders(struct borders *b)
{
	const struct gp_graph *g = b->g;
	for (int i = b->first; i < g->nodes; i++)
		for (int k = 0; k < g->node[i].inputs; k++) {
			const int v = g->node[i].in[k];
			if (i < b->end && !lies_within(b, v))
				b->taken[v] = true;
			if (i >= b->end && lies_within(b, v))
				b->given[v] = true;
		}
	for (int i = 0; i < g->outputs; i++)
		if (lies_within(b, g->output[i].value))
			b->given[g->output[i].value] = true;
}

static enum gp_status add_inputs(struct gp_graph *p, struct borders *b, struct gp_err *err)
{
	char name[GP_NAME_MAX];
	for (int v = 0; v < b->g->values; v++) {
		if (!b->taken[v])
			continue;
		b->index[v] = gp_graph_add_input(p, gp_value_name(b->g, v, name), &b->g->value[v].type, err);
		if (b->index[v] >= 0 && b->g->value[v].sequence)
			gp_graph_mark_sequence(p, b->index[v]);
		if (b->index[v] < 0)
			return err->code;
	}
	return GP_OK;
}

enum gp_status gp_graph_copy_node(struct gp_graph *to, const struct gp_graph *from, int node, int *index,
				  struct gp_err *err)
{
	struct gp_node n = from->node[node];
	int value;
	for (int k = 0; k < n.inputs; k++)
		n.in[k] = index[n.in[k]];
	GP_TRY(gp_graph_add(to, &n, &value, err));
	gp_graph_copy_params(to, from, &from->node[node]);
	for (int k = 0; k < n.outputs; k++)
		index[n.first_value + k] = value + k;
	return GP_OK;
}

static enum gp_status add_nodes(struct gp_graph *p, struct borders *b, struct gp_err *err)
{
	const struct gp_graph *g = b->g;
	int block = gp_graph_block_of(g, b->first);
	for (int i = b->first; i < b->end; i++) {
		if (block < g->blocks && g->block[block].first_node == i)
			GP_TRY(gp_graph_begin_block(p, g->block[block++].name, err));
		GP_TRY(gp_graph_copy_node(p, g, i, b->index, err));
	}
	gp_graph_count_trained(p);
	return GP_OK;
}

static enum gp_status add_outputs(struct gp_graph *p, const struct borders *b, struct gp_err *err)
{
	int value[GP_GRAPH_MAX_PORTS], count = 0;
	for (int v = 0; v < b->g->values; v++) {
		if (!b->given[v])
			continue;
		if (count == GP_GRAPH_MAX_PORTS)
			GP_FAIL(err, GP_INVALID, "more than %d values cross a cut of %s", GP_GRAPH_MAX_PORTS, p->name);
		value[count++] = b->index[v];
	}
	return gp_graph_set_outputs(p, count, value, err);
}

static enum gp_status make_part(struct borders *b, struct gp_graph **out, struct gp_err *err)
{
	struct gp_graph *p = gp_graph_new_empty(b->g->name, err);
	if (!p)
		return err->code;
	find_borders(b);
	if (add_inputs(p, b, err) != GP_OK || add_nodes(p, b, err) != GP_OK || add_outputs(p, b, err) != GP_OK ||
	    gp_graph_finish(p, err) != GP_OK) {
		gp_graph_free(p);
		return err->code;
	}
	*out = p;
	return GP_OK;
}

enum gp_status gp_graph_part(const struct gp_graph *g, int from, int to, struct gp_graph **out, struct gp_err *err)
{
	void *mem;
	if (from < 0 || from >= to || to > g->blocks)
		GP_FAIL(err, GP_INVALID, "blocks %d to %d are not a part of %s, which has %d", from, to, g->name,
			g->blocks);
	const size_t values = (size_t)g->values;
	GP_TRY(gp_alloc_array(&mem, values, sizeof(int) + 2 * sizeof(bool), err));
	memset(mem, 0, values * (sizeof(int) + 2 * sizeof(bool)));
	struct borders b = {.g = g,
			    .first = g->block[from].first_node,
			    .end = gp_graph_block_end(g, to - 1),
			    .index = mem,
			    .taken = (bool *)((int *)mem + values),
			    .given = (bool *)((int *)mem + values) + values};
	const enum gp_status status = make_part(&b, out, err);
	gp_free(mem);
	return status;
}

/* --- cuts ------------------------------------------------------------------------------------------------------- */

/* One side of "H:T"; negative counts from the back. *end is what follows the number. */
static bool parse_cut_side(const char *text, int blocks, int *out, const char **end)
{
	char *stop;
	bool digits = (text[0] >= '0' && text[0] <= '9') || (text[0] == '-' && text[1] >= '0' && text[1] <= '9');
	if (!digits)
		return false;
	long v = strtol(text, &stop, 10);
	if (v < -GP_GRAPH_MAX_NODES || v > GP_GRAPH_MAX_NODES)
		return false;
	*out = (int)(v < 0 ? v + blocks : v);
	*end = stop;
	return true;
}

enum gp_status gp_cut_parse(const struct gp_graph *g, const char *text, struct gp_cut *out, struct gp_err *err)
{
	struct gp_cut cut;
	const char *at;
	if (!parse_cut_side(text, g->blocks, &cut.head, &at) || *at++ != ':' ||
	    !parse_cut_side(at, g->blocks, &cut.tail, &at) || *at != '\0')
		GP_FAIL(err, GP_USAGE,
			"cut '%.40s' is not H:T, two block numbers such as 1:-1 (%s has %d blocks; negative numbers "
			"count from the last)",
			text, g->name, g->blocks);
	if (g->blocks < 3)
		GP_FAIL(err, GP_USAGE, "%s has %d blocks; a head, a body and a tail need three", g->name, g->blocks);
	if (cut.head < 1 || cut.tail >= g->blocks || cut.head >= cut.tail)
		GP_FAIL(err, GP_USAGE,
			"cut '%.40s' leaves a part of %s empty: counted from the first of its %d blocks it is %d:%d, and "
			"1 <= H < T <= %d is needed",
			text, g->name, g->blocks, cut.head, cut.tail, g->blocks - 1);
	*out = cut;
	return GP_OK;
}

void gp_graph_parts_deinit(struct gp_graph_parts *p)
{
	gp_graph_free(p->head);
	gp_graph_free(p->body);
	gp_graph_free(p->tail);
	*p = (struct gp_graph_parts){0};
}

static int find_input(const struct gp_graph *g, const char *name)
{
	for (int i = 0; i < g->inputs; i++)
		if (strcmp(g->node[i].name, name) == 0)
			return i;
	return -1;
}

static int find_output(const struct gp_graph *g, const char *name)
{
	for (int i = 0; i < g->outputs; i++)
		if (strcmp(g->output[i].name, name) == 0)
			return i;
	return -1;
}

/* Gives `part` one more output: its own input `input`, handed on by an identity node at its end. */
static enum gp_status pass_through(struct gp_graph *part, int input, struct gp_err *err)
{
	char name[GP_NAME_MAX + 8], of[GP_NAME_MAX];
	int value[GP_GRAPH_MAX_PORTS];
	struct gp_output before[GP_GRAPH_MAX_PORTS];
	const int count = part->outputs;
	if (count == GP_GRAPH_MAX_PORTS)
		GP_FAIL(err, GP_INVALID, "more than %d values cross a cut of %s", GP_GRAPH_MAX_PORTS, part->name);
	memcpy(before, part->output, sizeof before);
	memcpy(of, part->node[input].name, sizeof of);
	snprintf(name, sizeof name, "%s.pass", of);
	for (int i = 0; i < count; i++)
		value[i] = part->output[i].value;
	value[count] = gp_graph_unary(part, GP_OP_IDENTITY, name, part->node[input].first_value, err);
	if (value[count] < 0)
		return err->code;
	GP_TRY(gp_graph_set_outputs(part, count + 1, value, err));
	for (int i = 0; i < count; i++)
		part->output[i] = before[i];
	memcpy(part->output[count].name, of, sizeof of);
	return GP_OK;
}

/* Inputs that tail and body share, that have a gradient, and that the body reads more than once: see gp_graph_cut. */
static enum gp_status pass_shared(struct gp_graph_parts *p, struct gp_err *err)
{
	for (int i = 0; i < p->body->inputs; i++) {
		if (!(p->body_gradient >> i & 1) || find_input(p->tail, p->body->node[i].name) < 0)
			continue;
		if (gp_graph_readers(p->body, p->body->node[i].first_value) > 1)
			GP_TRY(pass_through(p->body, i, err));
	}
	return GP_OK;
}

static struct gp_port find_port(const struct gp_graph *g, const struct gp_graph_parts *p, bool behind_body,
				const char *name)
{
	int index = behind_body ? find_output(p->body, name) : -1;
	if (index >= 0)
		return (struct gp_port){GP_FROM_BODY, index};
	index = find_output(p->head, name);
	if (index >= 0)
		return (struct gp_port){GP_FROM_HEAD, index};
	index = find_input(g, name);
	gp_require(index >= 0); /* gp_graph_part took the name from the whole graph */
	return (struct gp_port){GP_FROM_DATA, index};
}

static void find_ports(const struct gp_graph *g, struct gp_graph_parts *p)
{
	for (int i = 0; i < p->head->inputs; i++)
		p->head_in[i] = (struct gp_port){GP_FROM_DATA, find_input(g, p->head->node[i].name)};
	for (int i = 0; i < p->body->inputs; i++)
		p->body_in[i] = find_port(g, p, false, p->body->node[i].name);
	for (int i = 0; i < p->tail->inputs; i++)
		p->tail_in[i] = find_port(g, p, true, p->tail->node[i].name);
}

/* Marks the inputs of a part whose values, in the whole graph, have a property. */
static uint64_t mark_inputs(const struct gp_graph *g, const struct gp_graph *part, const bool *has)
{
	char name[GP_NAME_MAX];
	uint64_t marked = 0;
	for (int v = 0; v < g->values; v++) {
		if (!has[v])
			continue;
		const int i = find_input(part, gp_value_name(g, v, name));
		if (i >= 0)
			marked |= (uint64_t)1 << i;
	}
	return marked;
}

static enum gp_status mark_crossing(const struct gp_graph *g, struct gp_graph_parts *p, struct gp_err *err)
{
	void *mem;
	GP_TRY(gp_alloc_array(&mem, (size_t)g->values, sizeof(bool), err));
	gp_graph_find_activations(g, 0, mem);
	p->body_activation = mark_inputs(g, p->body, mem);
	p->tail_activation = mark_inputs(g, p->tail, mem);
	gp_graph_find_gradients(g, 0, mem);
	p->body_gradient = mark_inputs(g, p->body, mem);
	p->tail_gradient = mark_inputs(g, p->tail, mem);
	gp_free(mem);
	return GP_OK;
}

static enum gp_status cut_parts(const struct gp_graph *g, const struct gp_cut *cut, struct gp_graph_parts *p,
				struct gp_err *err)
{
	GP_TRY(gp_graph_part(g, 0, cut->head, &p->head, err));
	GP_TRY(gp_graph_part(g, cut->head, cut->tail, &p->body, err));
	GP_TRY(gp_graph_part(g, cut->tail, g->blocks, &p->tail, err));
	GP_TRY(mark_crossing(g, p, err));
	GP_TRY(pass_shared(p, err));
	find_ports(g, p);
	return GP_OK;
}

enum gp_status gp_graph_cut(const struct gp_graph *g, const struct gp_cut *cut, struct gp_graph_parts *out,
			    struct gp_err *err)
{
	struct gp_graph_parts p = {0};
	if (cut_parts(g, cut, &p, err) != GP_OK) {
		gp_graph_parts_deinit(&p);
		return err->code;
	}
	*out = p;
	return GP_OK;
}
