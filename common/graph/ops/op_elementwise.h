/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that work element by element: relu, relu6, add (of two or more), dropout, identity.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph.c
 */
#ifndef GP_OP_ELEMENTWISE_H
#define GP_OP_ELEMENTWISE_H

#include "common/graph/op.h"

struct gp_dropout_attr {
	float p; /* of an element to become 0; the others are divided by 1 - p */
};
GP_OP_ATTRIBUTES(dropout)

/* a + b. */
int gp_graph_sum(struct gp_graph *g, const char *name, int a, int b, struct gp_err *err);
int gp_graph_dropout(struct gp_graph *g, const char *name, int in, float p, struct gp_err *err);

#endif
