/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy of a graph in which some shapes differ: it has the same nodes, values, blocks, names of parameters and outputs; the
 * caller may change attributes of nodes and types of inputs. All other shapes follow from the ops (op.h), so an impossible
 * change is an error.
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

/* GP_INVALID: with these shapes the graph is not valid. */
enum gp_status gp_graph_copy(const struct gp_graph *g, const struct gp_graph_edit *edit, struct gp_graph **out,
			     struct gp_err *err);
/* The last node of `to` is a copy of `from` in g: copies how its parameters start and which of them are trained, too, since
 * both may differ from what the op says. */
void gp_graph_copy_params(struct gp_graph *to, const struct gp_graph *g, const struct gp_node *from);
/* `to` has a copy of every node of `from`, under the same names: ties the weights that are tied in `from` (gp_graph_tie). */
void gp_graph_copy_tie(struct gp_graph *to, const struct gp_graph *from);

#endif
