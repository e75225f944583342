/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that work element by element: attributes, shapes, builders. add sums its
 * inputs from the first to the last; identity hands its input on, of any type.
 * Test: tests/unit/test_graph.c
 */
#include "common/graph/ops/op_elementwise.h"

static enum gp_status infer_add(struct gp_infer *io, struct gp_err *err)
{
	GP_TRY(gp_check_same_shapes(io, err));
	io->out[0] = *io->in[0];
	return GP_OK;
}

static enum gp_status infer_dropout(struct gp_infer *io, struct gp_err *err)
{
	const float p = gp_dropout_attr(io->node).p;
	if (!(p >= 0.0f && p < 1.0f))
		GP_FAIL(err, GP_INVALID, "dropout probability is %g; it must be in [0,1)", (double)p);
	return gp_infer_same(io, err);
}

static enum gp_status infer_gelu(struct gp_infer *io, struct gp_err *err)
{
	GP_TRY(gp_check_range("approximate", gp_gelu_attr(io->node).approximate, 0, 1, err));
	return gp_infer_same(io, err);
}

static enum gp_status infer_identity(struct gp_infer *io, struct gp_err *err)
{
	(void)err;
	io->out[0] = *io->in[0];
	return GP_OK;
}

int gp_graph_sum(struct gp_graph *g, const char *name, int a, int b, struct gp_err *err)
{
	return gp_graph_append(g, (struct gp_node){.op = GP_OP_ADD}, name, 2, (const int[]){a, b}, err);
}

int gp_graph_gelu(struct gp_graph *g, const char *name, int in, bool approximate, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_GELU};
	gp_set_gelu_attr(&n, (struct gp_gelu_attr){.approximate = approximate});
	return gp_graph_append(g, n, name, 1, &in, err);
}

int gp_graph_dropout(struct gp_graph *g, const char *name, int in, float p, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_DROPOUT};
	gp_set_dropout_attr(&n, (struct gp_dropout_attr){.p = p});
	return gp_graph_append(g, n, name, 1, &in, err);
}

static const struct gp_op_attr dropout_attributes[] = {{"p", true}};
static const struct gp_op_attr gelu_attributes[] = {{"approximate", false}};

const struct gp_op_def gp_op_relu = {
	.name = "relu",
	.inputs_min = 1,
	.inputs_max = 1,
	.sequence = GP_SEQUENCE_KEPT,
	.infer = gp_infer_same,
};

const struct gp_op_def gp_op_relu6 = {
	.name = "relu6",
	.inputs_min = 1,
	.inputs_max = 1,
	.sequence = GP_SEQUENCE_KEPT,
	.infer = gp_infer_same,
};

const struct gp_op_def gp_op_gelu = {
	.name = "gelu",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(gelu_attributes),
	.attr = gelu_attributes,
	.sequence = GP_SEQUENCE_KEPT,
	.infer = infer_gelu,
};

const struct gp_op_def gp_op_tanh = {
	.name = "tanh",
	.inputs_min = 1,
	.inputs_max = 1,
	.sequence = GP_SEQUENCE_KEPT,
	.infer = gp_infer_same,
};

const struct gp_op_def gp_op_add = {
	.name = "add",
	.inputs_min = 2,
	.inputs_max = GP_NODE_MAX_INPUTS,
	.sequence = GP_SEQUENCE_KEPT,
	.infer = infer_add,
};

const struct gp_op_def gp_op_dropout = {
	.name = "dropout",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(dropout_attributes),
	.attr = dropout_attributes,
	.sequence = GP_SEQUENCE_KEPT,
	.infer = infer_dropout,
};

const struct gp_op_def gp_op_identity = {
	.name = "identity",
	.inputs_min = 1,
	.inputs_max = 1,
	.sequence = GP_SEQUENCE_KEPT,
	.infer = infer_identity,
};
