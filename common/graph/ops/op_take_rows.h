/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a sequence (S,F) by number: the head of a masked language model takes the
 * rows of the masked tokens with it. A number that occurs twice gives its row twice.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_take_rows.c
 */
#ifndef GP_OP_TAKE_ROWS_H
#define GP_OP_TAKE_ROWS_H

#include "common/graph/op.h"

/* f32 (S,F) and i32 (P) -> f32 (P,F). A position outside [0,S), which a peer may send, gives a row of zeros and no
 * gradient; S is that of the chunk, where it is shorter than the graph's. */
int gp_graph_take_rows(struct gp_graph *g, const char *name, int in, int positions, struct gp_err *err);

#endif
