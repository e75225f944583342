/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kept pieces lie encoded, and where they are when. See plan_store.h.
 * Tests: tests/unit/test_plan_walk.c, tests/unit/test_plan_store.c
 */
#include "kernels/plan/plan_store.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/codec_store.h"

#define NONE GP_WALK_NONE

/* While the list is made. By piece: the last node that reads it backward; NONE: none does, or it has been looked at. */
struct store {
	struct gp_walk *w;
	int *reader;
	bool *plain;
};

static void read_by(const struct store *s, int buf, int node)
{
	if (buf != NONE && node > s->reader[buf])
		s->reader[buf] = node;
}

static void keep_plain(const struct store *s, int buf)
{
	if (buf != NONE)
		s->plain[buf] = true;
}

static void note_node(const struct store *s, const struct gp_walk_node *n)
{
	const int *value = s->w->value;
	for (int k = 0; k < n->inputs; k++) {
		if (n->saves_in >> k & 1)
			read_by(s, value[n->in[k]], n->index);
		if (n->plain_in >> k & 1)
			keep_plain(s, value[n->in[k]]);
	}
	for (int j = 0; j < n->outputs; j++) {
		if (n->saves_out >> j & 1)
			read_by(s, value[n->first_value + j], n->index);
	}
	if (n->saves_map)
		read_by(s, n->saved, n->index);
}

static void note_readers(const struct store *s)
{
	const struct gp_graph *g = s->w->spec->graph;
	for (int b = 0; b < s->w->bufs; b++)
		s->reader[b] = NONE;
	for (int i = 0; i < g->inputs; i++)
		if (!(s->w->spec->map_inputs >> i & 1))
			keep_plain(s, s->w->value[gp_walk_input(s->w, i)]);
	for (int i = g->inputs; i < g->nodes; i++) {
		const struct gp_walk_node *n = gp_walk_node(s->w, i);
		if (!n->absent && !n->view && n->need_grad)
			note_node(s, n);
	}
}

/* Kept, of floats that a reader takes decoded. */
static bool is_map(const struct store *s, int buf)
{
	const struct gp_buf *b = buf == NONE ? NULL : &s->w->buf[buf];
	return b && s->reader[buf] != NONE && !s->plain[buf] && b->place != GP_AT_SCRATCH;
}

static int backward(const struct gp_walk *w, int node)
{
	return 2 * w->spec->graph->nodes - node;
}

/* The arena's piece, and that of the decoded values; what forward writes to is scratch memory from now on. */
static enum gp_status add_pieces(struct gp_walk *w, struct gp_stored *e, uint64_t floats, struct gp_err *err)
{
	const uint64_t bytes = w->buf[e->buf].bytes;
	const int maker = w->buf[e->buf].first, until = w->buf[e->buf].read_until;
	int again;
	GP_TRY(gp_walk_new_buf(w, gp_store_bytes(w->spec->maps, floats) + e->rest, e->after, &e->coded, err));
	w->buf[e->coded].place = GP_AT_SLOT;
	w->buf[e->coded].first = maker; /* whose block it counts for */
	GP_TRY(gp_walk_new_buf(w, bytes, backward(w, e->before), &again, err));
	w->buf[again].last = backward(w, maker) > until ? backward(w, maker) : until;
	w->buf[e->buf].again = again;
	w->buf[e->buf].place = GP_AT_SCRATCH;
	return GP_OK;
}

static enum gp_status add(const struct store *s, int buf, int node, int value, struct gp_err *err)
{
	struct gp_walk *w = s->w;
	const struct gp_walk_node *n = gp_walk_node(w, node);
	const uint64_t floats = (uint64_t)gp_walk_elements(w, value == NONE ? n->first_value : value);
	const int last = w->spec->graph->nodes - 1;
	if (!is_map(s, buf))
		return GP_OK;
	struct gp_stored e = {.buf = buf, .coded = NONE, .node = node, .value = value, .before = s->reader[buf]};
	e.after = w->buf[buf].last < last ? w->buf[buf].last : last;
	e.rest = value == NONE ? n->saved_bytes - floats * sizeof(float) : 0;
	s->reader[buf] = NONE;
	if (w->buf[buf].place == GP_AT_SLOT)
		GP_TRY(add_pieces(w, &e, floats, err));
	w->encodes[w->stored++] = e;
	return GP_OK;
}

static int by_encoding(const void *a, const void *b)
{
	const struct gp_stored *x = a, *y = b;
	return x->after != y->after ? (x->after > y->after) - (x->after < y->after) : x->buf - y->buf;
}

static int by_decoding(const void *a, const void *b)
{
	const struct gp_stored *x = a, *y = b;
	return x->before != y->before ? (x->before < y->before) - (x->before > y->before) : x->buf - y->buf;
}

static enum gp_status add_all(const struct store *s, struct gp_err *err)
{
	struct gp_walk *w = s->w;
	const struct gp_graph *g = w->spec->graph;
	for (int i = 0; i < g->nodes; i++) {
		const struct gp_walk_node *n = gp_walk_node(w, i);
		for (int v = n->first_value; v < n->first_value + n->outputs; v++)
			if (g->value[v].type.dtype == GP_F32)
				GP_TRY(add(s, w->value[v], i, v, err));
		if (n->saves_map)
			GP_TRY(add(s, n->saved, i, NONE, err));
	}
	memcpy(w->decodes, w->encodes, (size_t)w->stored * sizeof *w->decodes);
	qsort(w->encodes, (size_t)w->stored, sizeof *w->encodes, by_encoding);
	qsort(w->decodes, (size_t)w->stored, sizeof *w->decodes, by_decoding);
	return GP_OK;
}

static enum gp_status layout(struct store *s, struct gp_err *err)
{
	struct gp_walk *w = s->w;
	void *mem;
	GP_TRY(gp_alloc_array(&mem, (size_t)w->bufs, sizeof *s->reader, err));
	s->reader = mem;
	GP_TRY(gp_alloc_array(&mem, (size_t)w->bufs, sizeof *s->plain, err));
	s->plain = mem;
	GP_TRY(gp_alloc_array(&mem, 2 * (size_t)w->bufs, sizeof *w->encodes, err));
	w->encodes = mem;
	w->decodes = w->encodes + w->bufs;
	note_readers(s);
	return add_all(s, err);
}

enum gp_status gp_walk_layout_stored(struct gp_walk *w, struct gp_err *err)
{
	struct store s = {.w = w};
	if (w->spec->recompute)
		GP_FAIL(err, GP_UNSUPPORTED,
			"maps that lie encoded and blocks that are computed a second time exclude each other");
	const enum gp_status status = layout(&s, err);
	gp_free(s.reader);
	gp_free(s.plain);
	return status;
}

int64_t gp_walk_stored_floats(const struct gp_walk *w, const struct gp_stored *s)
{
	return gp_walk_elements(w, s->value == NONE ? gp_walk_node(w, s->node)->first_value : s->value);
}
