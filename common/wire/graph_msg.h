/* SPDX-License-Identifier: Apache-2.0
 *
 * A graph on the wire: struct gp_graph <-> protobuf message Graph
 * (proto/gpsplit.proto; proto/PROTOCOL.md section 5). The receiver trusts
 * nothing: names, inputs, attributes, shapes and totals are checked by the same
 * gp_graph_add that builders use. Blocks do not travel; a received graph has
 * one, "body".
 *
 * Threads: any; nothing here is kept between calls. Tests: tests/unit/test_graph_msg.c,
 * tests/fuzz/fuzz_graph.c
 */
#ifndef GP_GRAPH_MSG_H
#define GP_GRAPH_MSG_H

#include "common/graph/graph.h"
#include "proto/gpsplit.pb-c.h"

/*
 * Builds and finishes a graph from an unpacked message. GP_INVALID names the
 * node and what is wrong with it; GP_NOMEM when there are more than
 * `max_param_elements` parameters, running statistics included. Allocates for
 * the nodes the message has, not for the sizes it claims.
 */
enum gp_status gp_graph_from_msg(const Gpsplit__Graph *m, uint64_t max_param_elements, struct gp_graph **out,
				 struct gp_err *err);

/* Most bytes (gp_graph_bytes) of a graph that comes with a message of so many bytes. */
uint64_t gp_graph_msg_most_bytes(uint64_t message_bytes);

/*
 * The message of a graph, for an Open or to pack by itself
 * (gpsplit__graph__get_packed_size, gpsplit__graph__pack). It borrows the
 * names: `g` must outlive it. Free with gp_graph_msg_free only.
 */
enum gp_status gp_graph_to_msg(const struct gp_graph *g, Gpsplit__Graph **out, struct gp_err *err);
void gp_graph_msg_free(Gpsplit__Graph *m);
/* XXH3-64 of the packed message: equal for graphs that compute the same with the same names. */
enum gp_status gp_graph_hash(const struct gp_graph *g, uint64_t *out, struct gp_err *err);

#endif
