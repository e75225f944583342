/* SPDX-License-Identifier: Apache-2.0
 *
 * What one op does to shapes: checks a node's attributes against its inputs,
 * finds its output shape and MACs, and lists its parameters with PyTorch's
 * default initialisation. Only graph.c calls this; everybody else uses
 * gp_graph_add. Test: tests/unit/test_graph.c
 */
#ifndef GP_GRAPH_INFER_H
#define GP_GRAPH_INFER_H

#include "common/graph/graph.h"

#define GP_NODE_MAX_PARAMS 4

/* Inputs an op takes; -1 when `op` is out of range or is GP_OP_INPUT. */
int gp_op_inputs(enum gp_op op);

/*
 * `in[]` holds as many shapes as gp_op_inputs says. Fills n->shape, n->macs and
 * n->params, and param[0..n->params) but for their names and node index.
 * Nothing about `n` is trusted but its op.
 */
enum gp_status gp_graph_infer(struct gp_node *n, const struct gp_shape *const in[2],
			      struct gp_param param[GP_NODE_MAX_PARAMS], struct gp_err *err);

#endif
