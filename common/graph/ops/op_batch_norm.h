/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization over all rows of (N,F) or (N,H,W,C).
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph.c
 */
#ifndef GP_OP_BATCH_NORM_H
#define GP_OP_BATCH_NORM_H

#include "common/graph/op.h"

struct gp_bn_attr {
	float eps;
	float momentum; /* running = (1-momentum)*running + momentum*batch, unbiased variance, as PyTorch */
};
GP_OP_ATTRIBUTES(bn)

int gp_graph_batch_norm(struct gp_graph *g, const char *name, int in, float eps, float momentum, struct gp_err *err);

#endif
