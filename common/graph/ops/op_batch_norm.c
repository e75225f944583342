/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization: attributes, parameters, builder. Test: tests/unit/test_graph.c
 */
#include "common/graph/ops/op_batch_norm.h"

static enum gp_status infer_batch_norm(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_bn_attr a = gp_bn_attr(io->node);
	const struct gp_shape *in = &io->in[0]->shape;
	GP_TRY(gp_check_dtype(io, 0, GP_F32, err));
	if (in->ndim != 1 && in->ndim != 3)
		GP_FAIL(err, GP_INVALID, "batch norm takes (F) or (H,W,C), not %d dimensions", in->ndim);
	if (!(a.eps >= 1e-12f && a.eps <= 1.0f) || !(a.momentum >= 0.0f && a.momentum <= 1.0f))
		GP_FAIL(err, GP_INVALID, "eps %g must be in 1e-12..1 and momentum %g in 0..1", (double)a.eps,
			(double)a.momentum);
	const struct gp_shape c = gp_shape1(in->dim[in->ndim - 1]);
	io->out[0] = *io->in[0];
	GP_TRY(gp_infer_param(io, GP_PARAM_WEIGHT, c, GP_INIT_ONES, 0, err));
	GP_TRY(gp_infer_param(io, GP_PARAM_BIAS, c, GP_INIT_ZEROS, 0, err));
	GP_TRY(gp_infer_param(io, GP_PARAM_RUNNING_MEAN, c, GP_INIT_ZEROS, 0, err));
	return gp_infer_param(io, GP_PARAM_RUNNING_VAR, c, GP_INIT_ONES, 0, err);
}

int gp_graph_batch_norm(struct gp_graph *g, const char *name, int in, float eps, float momentum, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_BATCH_NORM};
	gp_set_bn_attr(&n, (struct gp_bn_attr){.eps = eps, .momentum = momentum});
	return gp_graph_append(g, n, name, 1, &in, err);
}

static const struct gp_op_attr attributes[] = {{"eps", true}, {"momentum", true}};

const struct gp_op_def gp_op_batch_norm = {
	.name = "batch_norm",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(attributes),
	.attr = attributes,
	.infer = infer_batch_norm,
};
