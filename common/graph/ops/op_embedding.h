/* SPDX-License-Identifier: Apache-2.0
 *
 * Token ids to rows of a table, and the mean over the positions that a mask
 * keeps.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph_parts.c
 */
#ifndef GP_OP_EMBEDDING_H
#define GP_OP_EMBEDDING_H

#include "common/graph/op.h"

struct gp_embedding_attr {
	int32_t vocab, features;
};
GP_OP_ATTRIBUTES(embedding)

/* i32 (S) -> f32 (S,F); weight (V,F), drawn from a standard normal distribution as torch.nn.Embedding. An id outside
 * [0,V), which a peer may send, gives a row of zeros and no gradient. */
int gp_graph_embedding(struct gp_graph *g, const char *name, int in, int vocab, int features, struct gp_err *err);
/* f32 (S,F) and i32 (S) -> f32 (F): the mean over the positions whose mask is not 0; zeros where there are none. */
int gp_graph_masked_mean(struct gp_graph *g, const char *name, int in, int mask, struct gp_err *err);

#endif
