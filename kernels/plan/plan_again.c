/* SPDX-License-Identifier: Apache-2.0
 *
 * Which nodes are computed a second time, and where their pieces lie then.
 * See plan_again.h. Tests: tests/unit/test_plan_walk.c, tests/unit/test_plan_kept.c
 */
#include "kernels/plan/plan_again.h"

#include "common/base/mem.h"

#define NONE GP_WALK_NONE

int gp_walk_block_from(const struct gp_walk *w, int node)
{
	const struct gp_graph *g = w->spec->graph;
	const int block = gp_graph_block_of(g, node);
	return block == 0 ? 0 : g->block[block].first_node;
}

int gp_walk_block_end(const struct gp_walk *w, int node)
{
	return gp_graph_block_end(w->spec->graph, gp_graph_block_of(w->spec->graph, node));
}

bool gp_walk_same_block(const struct gp_walk *w, int node, int other)
{
	return gp_graph_block_of(w->spec->graph, node) == gp_graph_block_of(w->spec->graph, other);
}

static bool has_backward(const struct gp_walk *w, int from, int end)
{
	for (int i = from; i < end; i++)
		if (gp_walk_node(w, i)->need_grad)
			return true;
	return false;
}

void gp_walk_find_block_gradients(struct gp_walk *w)
{
	for (int from = 0, end; from < w->spec->graph->nodes; from = end) {
		end = gp_walk_block_end(w, from);
		const bool needed = has_backward(w, from, end);
		for (int i = from; i < end; i++)
			gp_walk_node(w, i)->block_needs_grad = needed;
	}
}

bool gp_walk_crosses(const struct gp_walk *w, const struct gp_buf *b, const struct gp_walk_node *n)
{
	return gp_walk_recomputes(w) && n->block_needs_grad && !gp_walk_same_block(w, b->first, n->index);
}

/* --- which nodes -------------------------------------------------------------------------------------------------- */

/* One block. By piece: whether it has to be made again. */
struct block {
	struct gp_walk *w;
	int from, end;
	bool *needed;
};

static bool runs(const struct gp_walk_node *n)
{
	return !n->absent && !n->view;
}

/* What a node writes, the first time: its outputs, then what it saves; NONE: nothing as the k-th. */
static int written(const struct gp_walk *w, const struct gp_walk_node *n, int k)
{
	if (k == n->outputs)
		return n->saved;
	return n->unwritten ? NONE : w->value[n->first_value + k];
}

static bool is_kept(const struct gp_buf *b)
{
	return b->place != GP_AT_SCRATCH;
}

/* Backward needs what is saved, and was made in this block. */
static void need_saved(const struct block *b)
{
	for (int i = b->from; i < b->end; i++) {
		const struct gp_walk_node *n = gp_walk_node(b->w, i);
		for (int k = 0; runs(n) && k <= n->outputs; k++) {
			const int buf = written(b->w, n, k);
			if (buf != NONE && b->w->buf[buf].saved && !is_kept(&b->w->buf[buf]))
				b->needed[buf] = true;
		}
	}
}

static bool writes_needed(const struct block *b, const struct gp_walk_node *n)
{
	for (int k = 0; k <= n->outputs; k++) {
		const int buf = written(b->w, n, k);
		if (buf != NONE && b->needed[buf])
			return true;
	}
	return false;
}

/*
 * Its inputs, if they are of this block and not kept; and what it writes although that is kept: whoever wrote there after it,
 * the first time, has to do so again. Returns whether anything is needed that was not.
 */
static bool need_around(const struct block *b, const struct gp_walk_node *n)
{
	bool more = false;
	for (int k = 0; k < n->inputs; k++) {
		const int buf = b->w->value[n->in[k]];
		if (!is_kept(&b->w->buf[buf]) && b->w->buf[buf].first >= b->from && !b->needed[buf])
			b->needed[buf] = more = true;
	}
	for (int k = 0; k <= n->outputs; k++) {
		const int buf = written(b->w, n, k);
		if (buf != NONE && !b->needed[buf])
			b->needed[buf] = more = true;
	}
	return more;
}

static void find_nodes(const struct block *b)
{
	bool more = true;
	need_saved(b);
	while (more) {
		more = false;
		for (int i = b->end - 1; i >= b->from; i--) {
			struct gp_walk_node *n = gp_walk_node(b->w, i);
			if (!runs(n) || !writes_needed(b, n))
				continue;
			n->again = true;
			more = need_around(b, n) || more;
		}
	}
}

/* --- where, and when ---------------------------------------------------------------------------------------------- */

/*
 * Moments when blocks are computed a second time: up to the last node's forward as before. From there on a block of so many
 * nodes takes twice as many moments: the nodes forward, then backward.
 */
static int begin_again(const struct gp_walk *w, int node)
{
	const int nodes = w->spec->graph->nodes;
	return nodes + 1 + 2 * (nodes - gp_walk_block_end(w, node));
}

static int forward_again(const struct gp_walk *w, int node)
{
	return begin_again(w, node) + node - gp_walk_block_from(w, node);
}

static int backward_again(const struct gp_walk *w, int node)
{
	const int from = gp_walk_block_from(w, node), end = gp_walk_block_end(w, node);
	return begin_again(w, node) + end - from + end - 1 - node;
}

static int moved(const struct gp_walk *w, int moment)
{
	const int nodes = w->spec->graph->nodes;
	return moment <= nodes ? moment : backward_again(w, 2 * nodes - moment);
}

/* A second piece for what is made again, in use up to `last` as moments are now. */
static enum gp_status add_piece(struct gp_walk *w, int buf, int first, int last, struct gp_err *err)
{
	int again;
	if (buf == NONE || w->buf[buf].again != NONE || is_kept(&w->buf[buf]))
		return GP_OK;
	GP_TRY(gp_walk_new_buf(w, w->buf[buf].bytes, first, &again, err));
	const int until = moved(w, w->buf[buf].read_until);
	w->buf[again].last = last > until ? last : until;
	w->buf[buf].again = again;
	return GP_OK;
}

/* Nobody before the node that makes it reads a piece backward; where backward does not, the last reader ends it. */
static int last_moment(const struct gp_walk *w, const struct gp_buf *b, int maker)
{
	return b->saved ? backward_again(w, maker)
			: forward_again(w, b->last < w->spec->graph->nodes ? b->last : maker);
}

static enum gp_status add_pieces(struct gp_walk *w, const struct gp_walk_node *n, struct gp_err *err)
{
	const int first = forward_again(w, n->index);
	for (int k = 0; k <= n->outputs; k++) {
		const int buf = written(w, n, k);
		if (buf != NONE)
			GP_TRY(add_piece(w, buf, first, last_moment(w, &w->buf[buf], n->index), err));
	}
	return add_piece(w, n->tmp[0], first, first, err);
}

enum gp_status gp_walk_layout_again(struct gp_walk *w, struct gp_err *err)
{
	const struct gp_graph *g = w->spec->graph;
	const int bufs = w->bufs;
	void *needed;
	GP_TRY(gp_alloc_array(&needed, (size_t)bufs, sizeof(bool), err));
	for (int from = 0; from < g->nodes; from = gp_walk_block_end(w, from)) {
		const struct block b = {w, from, gp_walk_block_end(w, from), needed};
		if (gp_walk_node(w, from)->block_needs_grad)
			find_nodes(&b);
	}
	gp_free(needed);
	for (int i = g->inputs; i < g->nodes; i++)
		if (gp_walk_node(w, i)->again)
			GP_TRY(add_pieces(w, gp_walk_node(w, i), err));
	for (int buf = 0; buf < bufs; buf++) {
		w->buf[buf].first = moved(w, w->buf[buf].first);
		w->buf[buf].last = moved(w, w->buf[buf].last);
	}
	return GP_OK;
}
