/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans with spec.recompute (activation checkpointing): what a block's forward
 * leaves for its backward is not kept, but made a second time. Part of the walk
 * (plan_walk.h); the blocks are those of the plan's graph.
 *
 * Kept are the pieces that one block makes and another reads, what lies in IO buffers, and what nodes with `keeps_saved`
 * save. Everything else of a block lies in scratch memory twice: for its forward, and, at gp_buf.again, from when the block
 * is computed a second time until its backward is through. So a slot has less to keep, and all slots share the room of the
 * largest block.
 *
 * The order of a backward pass: the last block's nodes of which gp_walk_node.again is true run forward once more, in their
 * order; then its backward; then the same of the block before it. The second time a node reads and writes at `again` where
 * there is such a place, and changes nothing else: no running statistics, no counters.
 *
 * The results are the same to the last bit, because a forward is a pure function of what it reads, of the parameters, and
 * of the draw of its chunk; what is not (batch statistics) is kept by `keeps_saved`.
 *
 * Threads: one. Tests: tests/unit/test_plan_walk.c, tests/unit/test_plan_kept.c
 */
#ifndef GP_PLAN_AGAIN_H
#define GP_PLAN_AGAIN_H

#include "kernels/plan/plan_walk.h"

static inline bool gp_walk_recomputes(const struct gp_walk *w)
{
	return w->spec->train && w->spec->recompute;
}

/* Nodes [from, end) of the block that has this node; those before the first block belong to it. */
int gp_walk_block_from(const struct gp_walk *w, int node);
int gp_walk_block_end(const struct gp_walk *w, int node);

/* Part of gp_walk_find_gradients: block_needs_grad of each node. */
void gp_walk_find_block_gradients(struct gp_walk *w);

bool gp_walk_same_block(const struct gp_walk *w, int node, int other);
/* While the forward is laid out: whether node n reads a piece that another block has made and n's block may need again. */
bool gp_walk_crosses(const struct gp_walk *w, const struct gp_buf *b, const struct gp_walk_node *n);

/* After forward and backward were laid out, before offsets are: which nodes are computed a second time, and where. */
enum gp_status gp_walk_layout_again(struct gp_walk *w, struct gp_err *err);

/* Where a piece lies when its block is computed a second time, and backward. */
static inline int gp_walk_later(const struct gp_walk *w, int buf)
{
	return buf == GP_WALK_NONE || w->buf[buf].again == GP_WALK_NONE ? buf : w->buf[buf].again;
}

#endif
