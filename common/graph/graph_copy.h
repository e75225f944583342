/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy of a graph in which some shapes differ: the same nodes, values, blocks, parameters' names and outputs, with
 * attributes and types of inputs that the caller changes on the way. Everything else follows from the ops (op.h), so
 * that a change which cannot be is an error and not another graph.
 *
 * Threads: any; pure functions. Test: tests/unit/test_decay.c
 */
#ifndef GP_GRAPH_COPY_H
#define GP_GRAPH_COPY_H

#include "common/graph/graph.h"

/* What to change: both may be NULL. */
struct gp_graph_edit {
	void (*input)(void *arg, int input, struct gp_type *type); /* of one sample */
	void (*node)(void *arg, struct gp_node *n);                /* its attributes alone */
	void *arg;
};

/* GP_INVALID: with these shapes the graph is none. */
enum gp_status gp_graph_copy(const struct gp_graph *g, const struct gp_graph_edit *edit, struct gp_graph **out,
			     struct gp_err *err);
/* The last node of `to` is a copy of `from` in g: copies, too, how its parameters start, and which of them are trained, which
 * may differ from what the op says. */
void gp_graph_copy_params(struct gp_graph *to, const struct gp_graph *g, const struct gp_node *from);
/* `to` has a copy of every node of `from`, under the same names: what is tied there is tied here (gp_graph_tie). */
void gp_graph_copy_tie(struct gp_graph *to, const struct gp_graph *from);

#endif
