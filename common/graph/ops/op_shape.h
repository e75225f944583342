/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that move values without computing: flatten, shortcut_pad, concat, split,
 * swap_last ((A,B) to (B,A)).
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph.c
 */
#ifndef GP_OP_SHAPE_H
#define GP_OP_SHAPE_H

#include "common/graph/op.h"

/*
 * A residual shortcut without parameters (He et al., "Deep Residual Learning
 * for Image Recognition", section 3.3, option A): every stride-th row and
 * column, from the first, between channels of zeros.
 */
struct gp_shortcut_attr {
	int32_t stride;
	int32_t before, after; /* channels of zeros */
};
GP_OP_ATTRIBUTES(shortcut)

/* Cuts the last dimension (channels, features) into so many equal outputs. */
struct gp_split_attr {
	int32_t parts;
};
GP_OP_ATTRIBUTES(split)

int gp_graph_shortcut_pad(struct gp_graph *g, const char *name, int in, int stride, int before, int after,
			  struct gp_err *err);
/* Joins along the last dimension; the other dimensions are equal. */
int gp_graph_concat(struct gp_graph *g, const char *name, int inputs, const int *in, struct gp_err *err);
/* Returns the first of `parts` values, which follow each other. */
int gp_graph_split(struct gp_graph *g, const char *name, int in, int parts, struct gp_err *err);

#endif
