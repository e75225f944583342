/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that work element by element: relu, relu6, gelu, tanh, add (of two or more), dropout, identity.
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

/* Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016. */
struct gp_gelu_attr {
	int32_t approximate; /* 0: x Phi(x); 1: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
};
GP_OP_ATTRIBUTES(gelu)

/* a + b. */
int gp_graph_sum(struct gp_graph *g, const char *name, int a, int b, struct gp_err *err);
int gp_graph_gelu(struct gp_graph *g, const char *name, int in, bool approximate, struct gp_err *err);
int gp_graph_dropout(struct gp_graph *g, const char *name, int in, float p, struct gp_err *err);

#endif
