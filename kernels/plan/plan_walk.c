/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk that lays out a plan's memory. See plan_walk.h.
 * Tests: tests/unit/test_plan_walk.c, tests/unit/test_cpu_plan.c, tests/unit/test_cuda_plan.c
 */
#include "kernels/plan/plan_walk.h"

#include "common/base/mem.h"
#include "kernels/plan/placement.h"
#include "kernels/plan/plan_again.h"
#include "kernels/plan/plan_store.h"

#define NONE GP_WALK_NONE

/* --- life --------------------------------------------------------------------------------------------------------- */

/* A batch norm that takes over a sum reads two values. */
static int room_for_inputs(const struct gp_node *n)
{
	return n->inputs < 2 ? 2 : n->inputs;
}

static size_t count_arrays(const struct gp_graph *g)
{
	size_t count = 0;
	for (int i = 0; i < g->nodes; i++)
		count += 3 * (size_t)room_for_inputs(&g->node[i]);
	return count;
}

static void init_node(struct gp_walk_node *n, const struct gp_graph *g, int index, int **arrays)
{
	const struct gp_node *q = &g->node[index];
	const int room = room_for_inputs(q);
	*n = (struct gp_walk_node){.g = q, .index = index, .inputs = q->inputs, .absent = q->op == GP_OP_INPUT};
	n->first_value = q->first_value;
	n->outputs = q->outputs;
	n->saved = n->tmp[0] = n->tmp[1] = NONE;
	n->in = *arrays;
	n->dx = n->in + room;
	n->dx_add = n->dx + room;
	*arrays += 3 * room;
	for (int k = 0; k < room; k++) {
		n->in[k] = k < q->inputs ? q->in[k] : NONE;
		n->dx[k] = n->dx_add[k] = NONE;
	}
}

int gp_walk_ports(const struct gp_walk *w)
{
	return 2 * (w->spec->graph->inputs + w->spec->graph->outputs);
}

enum gp_status gp_walk_init(struct gp_walk *w, struct gp_err *err)
{
	const struct gp_graph *g = w->spec->graph;
	void *arrays, *needs, *values, *io;
	GP_TRY(gp_alloc_array(&arrays, count_arrays(g), sizeof(int), err));
	w->arrays = arrays;
	GP_TRY(gp_alloc_array(&needs, 2 * (size_t)g->values, sizeof(bool), err));
	w->needs = needs;
	w->kept = w->needs + g->values;
	GP_TRY(gp_alloc_array(&values, 2 * (size_t)g->values + (size_t)g->outputs, sizeof(int), err));
	w->value = values;
	w->grad = w->value + g->values;
	w->edge_grad = w->grad + g->values;
	GP_TRY(gp_alloc_array(&io, (size_t)gp_walk_ports(w), sizeof *w->io_bytes, err));
	w->io_bytes = io;
	void *types;
	GP_TRY(gp_alloc_array(&types, (size_t)g->values, sizeof *w->type, err));
	w->type = types;
	for (int v = 0; v < g->values; v++) {
		w->value[v] = w->grad[v] = NONE;
		w->type[v] = g->value[v].type;
	}
	w->row_scores = gp_graph_row_scores(g);
	int *at = w->arrays;
	for (int i = 0; i < g->nodes; i++)
		init_node(gp_walk_node(w, i), g, i, &at);
	return GP_OK;
}

void gp_walk_deinit(struct gp_walk *w)
{
	gp_free(w->arrays);
	gp_free(w->needs);
	gp_free(w->type);
	gp_free(w->value);
	gp_free(w->io_bytes);
	gp_free(w->buf);
	gp_free(w->encodes);
}

void gp_walk_set_length(struct gp_walk *w, int64_t length)
{
	const struct gp_graph *g = w->spec->graph;
	if (length == w->length)
		return;
	w->length = length;
	for (int v = 0; v < g->values; v++)
		if (g->value[v].sequence)
			w->type[v].shape.dim[0] = length > 0 ? length : g->value[v].type.shape.dim[0];
}

void gp_walk_set_rows(struct gp_walk *w, int64_t rows)
{
	w->rows = rows;
}

bool gp_walk_same_part(const struct gp_walk *w, const struct gp_walk_node *before, const struct gp_walk_node *behind)
{
	const int *cut = w->spec->cuts;
	const bool coded = gp_walk_stores(w) || (w->spec->train && w->spec->coded[GP_STRUCT_GRAD_MAPS]);
	for (int i = 0; coded && i < 2; i++)
		if (before->index < cut[i] && behind->index >= cut[i])
			return false;
	return true;
}

void gp_walk_find_gradients(struct gp_walk *w)
{
	const struct gp_graph *g = w->spec->graph;
	if (!w->spec->train)
		return;
	gp_graph_find_gradients(g, w->spec->grad_inputs, w->needs);
	for (int i = 0; i < g->nodes; i++) {
		struct gp_walk_node *n = gp_walk_node(w, i);
		if (n->absent)
			continue;
		for (int k = 0; k < n->inputs; k++)
			n->want_dx = n->want_dx || w->needs[n->in[k]];
		n->trains = gp_graph_is_trained(g, n->g);
		n->need_grad = n->want_dx || n->trains;
	}
	if (gp_walk_recomputes(w))
		gp_walk_find_block_gradients(w);
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

enum gp_status gp_walk_new_buf(struct gp_walk *w, uint64_t bytes, int moment, int *index, struct gp_err *err)
{
	if (w->bufs == GP_WALK_MAX_BUFS)
		GP_FAIL(err, GP_INVALID,
			"the plan of %s needs more than %d pieces of memory: its nodes have too many inputs",
			w->spec->graph->name, GP_WALK_MAX_BUFS);
	if (w->bufs == w->buf_cap) {
		const int cap = w->buf_cap ? w->buf_cap * 2 : 256;
		void *grown = gp_realloc(w->buf, (size_t)cap, sizeof *w->buf);
		if (!grown)
			GP_FAIL(err, GP_NOMEM, "out of memory for the plan of %s", w->spec->graph->name);
		w->buf = grown;
		w->buf_cap = cap;
	}
	w->buf[w->bufs] =
		(struct gp_buf){.place = GP_AT_SCRATCH, .first = moment, .last = moment, .port = NONE, .again = NONE};
	w->buf[w->bufs].bytes = (bytes + w->align - 1) / w->align * w->align;
	w->buf[w->bufs].pool = w->pools > 1 && moment >= w->spec->graph->nodes;
	*index = w->bufs++;
	return GP_OK;
}

/* For a value or its gradient. */
static enum gp_status new_value(struct gp_walk *w, int value, int moment, int *index, struct gp_err *err)
{
	return gp_walk_new_buf(w, gp_walk_bytes(w, value), moment, index, err);
}

static int first_port(const struct gp_walk *w, enum gp_plan_buf which)
{
	const int inputs = w->spec->graph->inputs, outputs = w->spec->graph->outputs;
	switch (which) {
	case GP_BUF_INPUT:
		return 0;
	case GP_BUF_OUTPUT:
		return inputs;
	case GP_BUF_GRAD_OUTPUT:
		return inputs + outputs;
	case GP_BUF_GRAD_INPUT:
		return inputs + 2 * outputs;
	}
	return 0;
}

int gp_walk_port(const struct gp_walk *w, enum gp_plan_buf which, int index)
{
	const bool input = which == GP_BUF_INPUT || which == GP_BUF_GRAD_INPUT;
	const int count = input ? w->spec->graph->inputs : w->spec->graph->outputs;
	if (index < 0 || index >= count)
		return NONE;
	const int port = first_port(w, which) + index;
	return w->io_bytes[port] ? port : NONE;
}

bool gp_walk_lies_at(const struct gp_walk *w, int buf, enum gp_plan_buf which, int index)
{
	return w->buf[buf].place == GP_AT_IO && w->buf[buf].port == first_port(w, which) + index;
}

bool gp_walk_overwritten(const struct gp_walk *w, const struct gp_walk_node *n)
{
	for (int i = n->index + 1; i < w->spec->graph->nodes; i++) {
		const struct gp_walk_node *later = gp_walk_node(w, i);
		for (int j = 0; !later->absent && !later->view && !later->unwritten && j < later->outputs; j++)
			if (w->value[later->first_value + j] == w->value[n->first_value])
				return true;
	}
	return false;
}

static void move_to_io(struct gp_walk *w, int buf, enum gp_plan_buf which, int index)
{
	w->buf[buf].place = GP_AT_IO;
	w->buf[buf].port = first_port(w, which) + index;
}

bool gp_walk_same_at_edge(const struct gp_walk *w, int value)
{
	return w->real_bytes == sizeof(float) || gp_walk_type(w, value)->dtype != GP_F32;
}

/* A value, or gradient, that comes in from outside: where it arrives, if that has the right type. */
static enum gp_status new_arrival(struct gp_walk *w, enum gp_plan_buf which, int index, int value, int moment, int *buf,
				  struct gp_err *err)
{
	GP_TRY(new_value(w, value, moment, buf, err));
	if (gp_walk_same_at_edge(w, value))
		move_to_io(w, *buf, which, index);
	return GP_OK;
}

static void size_port(struct gp_walk *w, enum gp_plan_buf which, int index, int value)
{
	const uint64_t bytes = (uint64_t)gp_walk_elements(w, value) * sizeof(float); /* of integers, too */
	uint64_t *port = &w->io_bytes[first_port(w, which) + index];
	*port = (bytes + w->align - 1) / w->align * w->align;
	w->all_io_bytes += *port;
}

static void size_ports(struct gp_walk *w)
{
	const struct gp_graph *g = w->spec->graph;
	for (int i = 0; i < g->inputs; i++) {
		const int v = gp_walk_input(w, i);
		size_port(w, GP_BUF_INPUT, i, v);
		if (w->needs[v])
			size_port(w, GP_BUF_GRAD_INPUT, i, v);
	}
	for (int i = 0; i < g->outputs; i++) {
		const int v = gp_walk_output(w, i);
		size_port(w, GP_BUF_OUTPUT, i, v);
		if (w->needs[v])
			size_port(w, GP_BUF_GRAD_OUTPUT, i, v);
	}
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

struct forward {
	struct gp_walk *w;
	int *readers; /* by value: how often nodes read it, and whether it is an output; zeros to begin with */
};

static void count_readers(const struct forward *f)
{
	const struct gp_graph *g = f->w->spec->graph;
	for (int i = 0; i < g->nodes; i++) {
		const struct gp_walk_node *n = gp_walk_node(f->w, i);
		for (int k = 0; !n->absent && k < n->inputs; k++)
			f->readers[n->in[k]]++;
	}
	for (int i = 0; i < g->outputs; i++)
		f->readers[g->output[i].value]++;
}

static bool keeps_input(const struct gp_walk *w, const struct gp_walk_node *n, int k)
{
	return w->spec->train && n->need_grad && (n->saves_in >> k & 1);
}

/* What was there is then gone, and whoever is computed a second time would miss it. */
static bool may_be_lost(const struct forward *f, const struct gp_walk_node *n, int value)
{
	const struct gp_walk *w = f->w;
	const struct gp_walk_node *maker = gp_walk_node(w, w->spec->graph->value[value].node);
	if (!gp_walk_recomputes(w))
		return true;
	return f->readers[value] == 1 && !maker->view && !maker->unwritten &&
	       gp_walk_same_block(w, w->buf[w->value[value]].first, n->index);
}

static bool may_take_over(const struct forward *f, const struct gp_walk_node *n, int k)
{
	const struct gp_walk *w = f->w;
	const struct gp_buf *b = &w->buf[w->value[n->in[k]]];
	if (!may_be_lost(f, n, n->in[k]))
		return false;
	return n->in_place && b->place != GP_AT_IO && !b->saved && b->pending == 1 && !keeps_input(w, n, k);
}

/* Which output of the graph a value is; NONE: it is none. */
static int output_of(const struct gp_walk *w, int value)
{
	for (int i = 0; i < w->spec->graph->outputs; i++)
		if (w->spec->graph->output[i].value == value)
			return i;
	return NONE;
}

/* A view of what lies in one IO buffer may not be in another: those belong to different people. */
static bool stays_view(const struct gp_walk *w, const struct gp_walk_node *n)
{
	if (!n->view || w->buf[w->value[n->in[0]]].place != GP_AT_IO)
		return n->view;
	return output_of(w, n->first_value) == NONE;
}

static enum gp_status choose_output(const struct forward *f, struct gp_walk_node *n, struct gp_err *err)
{
	struct gp_walk *w = f->w;
	int *out = &w->value[n->first_value];
	n->view = stays_view(w, n);
	if (n->view || n->unwritten) {
		*out = w->value[n->in[0]];
		return GP_OK;
	}
	for (int k = 0; k < n->inputs; k++)
		if (may_take_over(f, n, k)) {
			*out = w->value[n->in[k]];
			return GP_OK;
		}
	return new_value(w, n->first_value, n->index, out, err);
}

/* An output that nobody reads is not made. */
static enum gp_status choose_outputs(const struct forward *f, struct gp_walk_node *n, struct gp_err *err)
{
	struct gp_walk *w = f->w;
	if (n->outputs == 1)
		GP_TRY(choose_output(f, n, err));
	for (int v = n->first_value; v < n->first_value + n->outputs; v++) {
		if (n->outputs > 1 && f->readers[v] > 0)
			GP_TRY(new_value(w, v, n->index, &w->value[v], err));
		const int output = output_of(w, v);
		if (output != NONE && gp_walk_same_at_edge(w, v))
			move_to_io(w, w->value[v], GP_BUF_OUTPUT, output);
	}
	return GP_OK;
}

static void read_inputs(struct gp_walk *w, const struct gp_walk_node *n)
{
	for (int k = 0; k < n->inputs; k++) {
		struct gp_buf *in = &w->buf[w->value[n->in[k]]];
		in->pending--;
		in->last = n->index;
		if (!n->view && (keeps_input(w, n, k) || gp_walk_crosses(w, in, n)))
			in->saved = true;
		if (!n->view && gp_walk_crosses(w, in, n))
			in->kept = true;
	}
}

static void write_outputs(const struct forward *f, const struct gp_walk_node *n)
{
	struct gp_walk *w = f->w;
	for (int j = 0; j < n->outputs; j++) {
		const int v = n->first_value + j;
		if (w->value[v] == NONE)
			continue;
		struct gp_buf *out = &w->buf[w->value[v]];
		out->pending += f->readers[v];
		out->last = n->index;
		if (!n->view && w->spec->train && n->need_grad && (n->saves_out >> j & 1))
			out->saved = true;
	}
}

static enum gp_status walk_forward_node(const struct forward *f, struct gp_walk_node *n, struct gp_err *err)
{
	struct gp_walk *w = f->w;
	GP_TRY(gp_plan_check_stop(w->spec, err));
	GP_TRY(choose_outputs(f, n, err));
	read_inputs(w, n);
	write_outputs(f, n);
	if (n->view)
		return GP_OK;
	if (n->saved_bytes) {
		GP_TRY(gp_walk_new_buf(w, n->saved_bytes, n->index, &n->saved, err));
		w->buf[n->saved].kept = n->keeps_saved;
		w->buf[n->saved].saved = w->spec->train && (n->need_grad || (n->keeps_saved && w->spec->recompute));
	}
	if (n->tmp_bytes[0])
		GP_TRY(gp_walk_new_buf(w, n->tmp_bytes[0], n->index, &n->tmp[0], err));
	return w->hooks->forward ? w->hooks->forward(w, n, err) : GP_OK;
}

/* What was converted as it came in is there for the first block's second forward, too. */
static void keep_arrival(const struct gp_walk *w, struct gp_buf *b)
{
	if (gp_walk_recomputes(w) && b->place == GP_AT_SCRATCH)
		b->saved = b->kept = true;
}

static enum gp_status walk_forward(const struct forward *f, struct gp_err *err)
{
	struct gp_walk *w = f->w;
	const struct gp_graph *g = w->spec->graph;
	for (int i = 0; i < g->inputs; i++) {
		const int v = gp_walk_input(w, i);
		GP_TRY(new_arrival(w, GP_BUF_INPUT, i, v, 0, &w->value[v], err));
		w->buf[w->value[v]].pending = f->readers[v];
		keep_arrival(w, &w->buf[w->value[v]]);
	}
	for (int i = g->inputs; i < g->nodes; i++)
		if (!gp_walk_node(w, i)->absent)
			GP_TRY(walk_forward_node(f, gp_walk_node(w, i), err));
	for (int i = 0; i < g->outputs; i++) /* those that are converted are so after the last node */
		w->buf[w->value[g->output[i].value]].last = g->nodes;
	for (int b = 0; b < w->bufs; b++)
		if (w->buf[b].saved && w->buf[b].place == GP_AT_SCRATCH && (w->buf[b].kept || !gp_walk_recomputes(w)))
			w->buf[b].place = GP_AT_SLOT;
	return GP_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

int gp_walk_backward_moment(const struct gp_walk *w, const struct gp_walk_node *n)
{
	return 2 * w->spec->graph->nodes - n->index;
}

/* Nothing but one value's gradient lies there. */
static bool is_free(const struct gp_walk *w, int buf)
{
	return w->buf[buf].place != GP_AT_IO && w->buf[buf].pending == 1;
}

static enum gp_status choose_gradient(struct gp_walk *w, struct gp_walk_node *n, int k, struct gp_err *err)
{
	const bool pass = gp_walk_passes(n, k);
	const int before = w->grad[n->in[k]], dout = w->grad[n->first_value];
	if (before != NONE && is_free(w, before) && (pass || n->adds_gradient)) {
		n->dx[k] = before;
		n->add |= (uint64_t)1 << k;
		return GP_OK;
	}
	n->dx_add[k] = before;
	if (pass ? before == NONE : n->in_place_backward && is_free(w, dout)) {
		n->dx[k] = dout;
		return GP_OK;
	}
	return new_value(w, n->in[k], gp_walk_backward_moment(w, n), &n->dx[k], err);
}

/* Where node n's contribution to the gradient of its k-th input goes. */
static enum gp_status contribute(struct gp_walk *w, struct gp_walk_node *n, int k, struct gp_err *err)
{
	const int moment = gp_walk_backward_moment(w, n), before = w->grad[n->in[k]];
	GP_TRY(choose_gradient(w, n, k, err));
	if (before != NONE) {
		w->buf[before].last = moment;
		w->buf[before].pending--;
	}
	w->grad[n->in[k]] = n->dx[k];
	w->buf[n->dx[k]].last = moment;
	w->buf[n->dx[k]].pending++;
	return GP_OK;
}

/* Whatever passes a gradient, or works in its place, has one output. */
static enum gp_status read_gradients(struct gp_walk *w, const struct gp_walk_node *n, struct gp_err *err)
{
	bool any = false;
	for (int v = n->first_value; v < n->first_value + n->outputs; v++) {
		if (w->grad[v] == NONE)
			continue;
		w->buf[w->grad[v]].last = gp_walk_backward_moment(w, n);
		any = true;
	}
	if (!any)
		GP_FAIL(err, GP_UNSUPPORTED, "no gradient reaches %s of %s", n->g->name, w->spec->graph->name);
	return GP_OK;
}

/* What is handed on comes first: a piece that has another owner then is not worked in. */
static enum gp_status walk_backward_node(struct gp_walk *w, struct gp_walk_node *n, struct gp_err *err)
{
	GP_TRY(gp_plan_check_stop(w->spec, err));
	GP_TRY(read_gradients(w, n, err));
	for (int passing = 1; passing >= 0; passing--)
		for (int k = 0; k < n->inputs; k++)
			if (gp_walk_passes(n, k) == passing && w->needs[n->in[k]])
				GP_TRY(contribute(w, n, k, err));
	for (int v = n->first_value; v < n->first_value + n->outputs; v++)
		if (w->grad[v] != NONE)
			w->buf[w->grad[v]].pending--;
	if (gp_walk_works_backward(n) && n->tmp_bytes[1])
		GP_TRY(gp_walk_new_buf(w, n->tmp_bytes[1], gp_walk_backward_moment(w, n), &n->tmp[1], err));
	return w->hooks->backward ? w->hooks->backward(w, n, err) : GP_OK;
}

/* The gradient of an input ends up in GRAD_INPUT; or is copied there, where another one has that piece. */
static void end_at_inputs(struct gp_walk *w)
{
	const struct gp_graph *g = w->spec->graph;
	for (int i = 0; i < g->inputs; i++) {
		const int v = gp_walk_input(w, i), buf = w->grad[v];
		if (buf == NONE)
			continue;
		w->buf[buf].last = 2 * g->nodes;
		if (gp_walk_same_at_edge(w, v) && w->buf[buf].place == GP_AT_SCRATCH)
			move_to_io(w, buf, GP_BUF_GRAD_INPUT, i);
	}
}

static enum gp_status walk_backward(struct gp_walk *w, struct gp_err *err)
{
	const struct gp_graph *g = w->spec->graph;
	for (int i = 0; i < g->outputs; i++) {
		const int v = gp_walk_output(w, i);
		if (!w->needs[v])
			continue;
		GP_TRY(new_arrival(w, GP_BUF_GRAD_OUTPUT, i, v, g->nodes, &w->edge_grad[i], err));
		w->grad[v] = w->edge_grad[i];
		w->buf[w->grad[v]].pending = 1;
	}
	for (int i = g->nodes - 1; i >= g->inputs; i--)
		if (gp_walk_node(w, i)->need_grad)
			GP_TRY(walk_backward_node(w, gp_walk_node(w, i), err));
	end_at_inputs(w);
	return GP_OK;
}

/* --- placing ------------------------------------------------------------------------------------------------------ */

static enum gp_status place_scratch(struct gp_walk *w, int pool, struct gp_err *err)
{
	void *mem;
	GP_TRY(gp_alloc_array(&mem, (size_t)w->bufs, sizeof(struct gp_piece), err));
	struct gp_piece *piece = mem;
	int count = 0;
	for (int b = 0; b < w->bufs; b++)
		if (w->buf[b].place == GP_AT_SCRATCH && w->buf[b].pool == pool)
			piece[count++] = (struct gp_piece){w->buf[b].bytes, w->buf[b].first, w->buf[b].last, 0};
	const enum gp_status status = gp_place_pieces(piece, count, &w->scratch_bytes[pool], err);
	count = 0;
	for (int b = 0; status == GP_OK && b < w->bufs; b++)
		if (w->buf[b].place == GP_AT_SCRATCH && w->buf[b].pool == pool)
			w->buf[b].offset = piece[count++].offset;
	gp_free(mem);
	return status;
}

static void place_slots(struct gp_walk *w)
{
	for (int b = 0; b < w->bufs; b++) {
		if (w->buf[b].place != GP_AT_SLOT)
			continue;
		w->buf[b].offset = w->slot_bytes;
		w->slot_bytes += w->buf[b].bytes;
	}
}

enum gp_status gp_walk_layout(struct gp_walk *w, struct gp_err *err)
{
	void *readers;
	GP_TRY(gp_alloc_array(&readers, (size_t)w->spec->graph->values, sizeof(int), err));
	const struct forward f = {w, readers};
	size_ports(w);
	count_readers(&f);
	enum gp_status status = walk_forward(&f, err);
	gp_free(readers);
	if (status == GP_OK && w->spec->train)
		status = walk_backward(w, err);
	GP_TRY(status);
	if (w->hooks->end)
		w->hooks->end(w);
	if (gp_walk_stores(w))
		GP_TRY(gp_walk_layout_stored(w, err));
	if (gp_walk_recomputes(w))
		GP_TRY(gp_walk_layout_again(w, err));
	place_slots(w);
	for (int pool = 0; pool < w->pools; pool++)
		GP_TRY(place_scratch(w, pool, err));
	return GP_OK;
}

void gp_walk_count_maps(const struct gp_walk *w, uint64_t *maps)
{
	memset(maps, 0, (size_t)w->spec->graph->blocks * sizeof *maps);
	for (int b = 0; b < w->bufs; b++)
		if (w->buf[b].place == GP_AT_SLOT)
			maps[gp_graph_block_of(w->spec->graph, w->buf[b].first)] += w->buf[b].bytes;
}
