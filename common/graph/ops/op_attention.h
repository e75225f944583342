/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head self-attention (Vaswani et al., "Attention Is All You Need", 2017,
 * 3.2): of each head softmax(q k^T / sqrt(F / heads)) v, the heads side by side
 * in F. The projections before and behind it are linear layers.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph_language.c
 */
#ifndef GP_OP_ATTENTION_H
#define GP_OP_ATTENTION_H

#include "common/graph/op.h"

struct gp_attention_attr {
	int32_t heads;
	float p; /* dropout of the softmax's weights; in training alone */
};
GP_OP_ATTRIBUTES(attention)

/*
 * q, k, v: f32 (S,F), F a multiple of `heads`. length: i32 (1), how many positions of the sample, from the first, are
 * tokens; the others are padding. It may come from a peer: below 0 it counts as 0, above S as S. Padding has no influence
 * on the positions of tokens, whatever stands there, and its own rows of the output are zeros, without gradients.
 */
int gp_graph_attention(struct gp_graph *g, const char *name, const int qkv[3], int length,
		       struct gp_attention_attr attr, struct gp_err *err);

#endif
