/* SPDX-License-Identifier: Apache-2.0
 *
 * A fully connected layer: attributes, parameters, builder. Test: tests/unit/test_graph.c
 */
#include "common/graph/ops/op_linear.h"

#include "common/base/mem.h"

static enum gp_status infer_linear(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_linear_attr a = gp_linear_attr(io->node);
	const struct gp_shape *in = &io->in[0]->shape;
	GP_TRY(gp_check_dtype(io, 0, GP_F32, err));
	GP_TRY(gp_check_range("out_features", a.out_features, 1, GP_OP_MAX_FEATURES, err));
	GP_TRY(gp_check_range("bias", a.bias, 0, 1, err));
	if (in->ndim != 1 && in->ndim != 2)
		GP_FAIL(err, GP_INVALID, "linear takes (F) or (S,F), not %d dimensions; put a flatten before it",
			in->ndim);
	const int64_t features = in->dim[in->ndim - 1];
	io->out[0].shape = *in;
	io->out[0].shape.dim[in->ndim - 1] = a.out_features;
	GP_TRY(gp_infer_weight_and_bias(io, gp_shape2(a.out_features, features), features, a.bias, a.out_features,
					err));
	const uint64_t rows = in->ndim == 2 ? (uint64_t)in->dim[0] : 1;
	if (!gp_mul_ok(rows, io->param[0].count, &io->node->macs))
		GP_FAIL(err, GP_INVALID, "the linear layer is too large");
	return GP_OK;
}

int gp_graph_linear(struct gp_graph *g, const char *name, int in, int out_features, bool bias, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_LINEAR};
	gp_set_linear_attr(&n, (struct gp_linear_attr){.out_features = out_features, .bias = bias});
	return gp_graph_append(g, n, name, 1, &in, err);
}

static const struct gp_op_attr attributes[] = {{"out_features", false}, {"bias", false}};

const struct gp_op_def gp_op_linear = {
	.name = "linear",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(attributes),
	.attr = attributes,
	.sequence = GP_SEQUENCE_BY_ROW,
	.infer = infer_linear,
};
