/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization over all rows of (N,F) or (N,H,W,C), and how it takes
 * its statistics in training. Evaluation always normalizes by the running
 * ones; so does training where none of the node's parameters is trained, which
 * leaves them alone.
 *
 *   chunk     by the chunk's own; the running ones move with every chunk (PyTorch, in a pipeline)
 *   deferred  by the chunk's own; the running ones move once a step, by the statistics of all its samples
 *   running   by the running ones, which stay as they are
 *   renorm    by the chunk's own, corrected towards the running ones (Ioffe 2017, arXiv 1702.03275): normalized values times
 *             r, plus d, which backward takes for constants; the running ones move as with deferred, so that every chunk
 *             of a step sees the same
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph.c
 */
#ifndef GP_OP_BATCH_NORM_H
#define GP_OP_BATCH_NORM_H

#include "common/graph/op.h"

/* Pinned: the attribute `mode` on the wire. */
enum gp_bn_mode { GP_BN_CHUNK = 0, GP_BN_DEFERRED = 1, GP_BN_RUNNING = 2, GP_BN_RENORM = 3, GP_BN_MODES };

struct gp_bn_attr {
	float eps;
	float momentum; /* running = (1-momentum)*running + momentum*batch, unbiased variance, as PyTorch */
	int32_t mode;   /* enum gp_bn_mode */
	/* 0 in modes other than renorm. r lies in [1/r_max, r_max], d in [-d_max, d_max]; updates before these limits begin to
	 * grow. */
	float r_max, d_max;
	int32_t warmup;
};
GP_OP_ATTRIBUTES(bn)

int gp_graph_batch_norm(struct gp_graph *g, const char *name, int in, float eps, float momentum, struct gp_err *err);

/* Gives every batch norm of a graph the mode, limits and warm-up of `how`; returns how many there are. -1: `how` is
 * none that a node may have, and nothing has changed. The graph is not shared yet. */
int gp_graph_set_batch_norm(struct gp_graph *g, const struct gp_bn_attr *how, struct gp_err *err);
/* Whether training moves the node's running statistics: at least one of its parameters is trained. */
bool gp_bn_moves(const struct gp_graph *g, const struct gp_node *n);
/* Whether they move at the end of a step, rather than with every chunk. */
static inline bool gp_bn_is_deferred(const struct gp_node *n)
{
	const int32_t mode = gp_bn_attr(n).mode;
	return mode == GP_BN_DEFERRED || mode == GP_BN_RENORM;
}

struct gp_bn_limits {
	double r, d;
};
/*
 * Those of renorm in the step behind `updates` updates: with a warm-up of W, 1 and 0 in the first W steps (plain batch
 * norm), then W steps in which they grow linearly, then r_max and d_max. The paper does the same with ramps that are
 * 7 (r) and 4 (d) times as long as what comes before.
 */
static inline struct gp_bn_limits gp_bn_limits(const struct gp_bn_attr *a, uint64_t updates)
{
	const uint64_t w = (uint64_t)a->warmup;
	double part = updates < w ? 0.0 : w == 0 ? 1.0 : (double)(updates - w + 1) / (double)w;
	part = part < 1.0 ? part : 1.0;
	return (struct gp_bn_limits){1.0 + ((double)a->r_max - 1.0) * part, (double)a->d_max * part};
}

#endif
