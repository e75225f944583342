/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts and cuts of a graph. Every value made before a cut and used behind it
 * crosses the cut: found from the graph, never declared.
 *
 * Threads: any; pure functions. Test: tests/unit/test_graph_parts.c
 */
#ifndef GP_GRAPH_PART_H
#define GP_GRAPH_PART_H

#include "common/graph/graph.h"

/*
 * "H:T": head = blocks [0,head), body = [head,tail), tail = [tail,blocks), none
 * empty. Numbers count blocks from the front, negative ones from the back.
 * GP_USAGE tells how many blocks there are.
 */
struct gp_cut {
	int head, tail;
};
enum gp_status gp_cut_parse(const struct gp_graph *g, const char *text, struct gp_cut *out, struct gp_err *err);

/*
 * Blocks [from, to) as a graph of their own. Its inputs are the values made
 * before (the graph's own inputs included) and used within, its outputs those
 * made within and used behind or outputs of the graph; both in the order of the
 * whole graph's values, and named as there (gp_value_name).
 */
enum gp_status gp_graph_part(const struct gp_graph *g, int from, int to, struct gp_graph **out, struct gp_err *err);

/*
 * Appends a copy of a node, with how its parameters start and which of them are trained. index[v] is where value v of
 * `from` lies in `to`: looked up for the node's inputs, written for what it makes. Sums over trained parameters are taken
 * anew by gp_graph_count_trained behind the last one.
 */
enum gp_status gp_graph_copy_node(struct gp_graph *to, const struct gp_graph *from, int node, int *index,
				  struct gp_err *err);

enum gp_port_from { GP_FROM_DATA, GP_FROM_HEAD, GP_FROM_BODY };

/* Where a part's input comes from: the graph's input `index`, or output `index` of an earlier part. */
struct gp_port {
	enum gp_port_from from;
	int index;
};

/* A graph cut in three. */
struct gp_graph_parts {
	struct gp_graph *head, *body, *tail;
	struct gp_port body_in[GP_GRAPH_MAX_PORTS]; /* by input of the body: from data or head; these cross the link */
	struct gp_port
		tail_in[GP_GRAPH_MAX_PORTS]; /* by input of the tail: from data or head (stay), or body (cross) */
	struct gp_port head_in[GP_GRAPH_MAX_PORTS]; /* by input of the head: from data */
	/* By input of body and tail: whether it is an activation (gp_graph_find_activations), and whether its gradient has
	 * a use. */
	uint64_t body_activation, body_gradient, tail_activation, tail_gradient;
};

/*
 * A value of the head that both body and tail read goes to both from there,
 * where its gradient is the tail's contribution plus the body's. Where the body
 * reads it more than once, that would add the contributions in another order
 * than the whole graph does; such a value passes through the body as an output
 * of its own (an identity node at its end) and the tail reads that one, so that
 * a split run stays equal to a local one to the last bit.
 */
enum gp_status gp_graph_cut(const struct gp_graph *g, const struct gp_cut *cut, struct gp_graph_parts *out,
			    struct gp_err *err);
/* Frees the three graphs; may be called on a zeroed struct. */
void gp_graph_parts_deinit(struct gp_graph_parts *p);

#endif
