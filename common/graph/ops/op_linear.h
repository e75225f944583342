/* SPDX-License-Identifier: Apache-2.0
 *
 * A fully connected layer on rows: (F), or (S,F) with the same weights for every S.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph.c
 */
#ifndef GP_OP_LINEAR_H
#define GP_OP_LINEAR_H

#include "common/graph/op.h"

struct gp_linear_attr {
	int32_t out_features;
	int32_t bias; /* 0 or 1 */
};
GP_OP_ATTRIBUTES(linear)

int gp_graph_linear(struct gp_graph *g, const char *name, int in, int out_features, bool bias, struct gp_err *err);

#endif
