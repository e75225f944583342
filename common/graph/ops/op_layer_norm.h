/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm over the last dimension (Ba et al., "Layer Normalization", 2016;
 * torch.nn.LayerNorm), with the residual sum and the dropout that stand before
 * it in a transformer: norm(dropout(x) + residual) * weight + bias.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph_language.c
 */
#ifndef GP_OP_LAYER_NORM_H
#define GP_OP_LAYER_NORM_H

#include "common/graph/op.h"

struct gp_layer_norm_attr {
	float eps;
	float p; /* dropout of x, not of the residual; in training alone */
};
GP_OP_ATTRIBUTES(layer_norm)

/* f32 (F), (S,F) or (H,W,C), and a residual of the same shape or -1 for none; weight (F) and bias (F) begin as 1 and 0. */
int gp_graph_layer_norm(struct gp_graph *g, const char *name, int in, int residual, struct gp_layer_norm_attr attr,
			struct gp_err *err);

#endif
