/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm: attributes, shapes, parameters, builder. Test: tests/unit/test_graph_language.c
 */
#include "common/graph/ops/op_layer_norm.h"

static enum gp_status infer_layer_norm(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_layer_norm_attr a = gp_layer_norm_attr(io->node);
	GP_TRY(gp_check_same_shapes(io, err));
	if (!(a.eps > 0.0f && a.eps <= 1.0f))
		GP_FAIL(err, GP_INVALID, "eps of a layer norm is %g; it must be in (0,1]", (double)a.eps);
	if (!(a.p >= 0.0f && a.p < 1.0f))
		GP_FAIL(err, GP_INVALID, "dropout probability is %g; it must be in [0,1)", (double)a.p);
	io->out[0] = *io->in[0];
	const struct gp_shape *in = &io->in[0]->shape, features = gp_shape1(in->dim[in->ndim - 1]);
	GP_TRY(gp_check_range("features", features.dim[0], 1, GP_OP_MAX_FEATURES, err));
	GP_TRY(gp_infer_param(io, GP_PARAM_WEIGHT, features, GP_INIT_ONES, 0, err));
	return gp_infer_param(io, GP_PARAM_BIAS, features, GP_INIT_ZEROS, 0, err);
}

int gp_graph_layer_norm(struct gp_graph *g, const char *name, int in, int residual, struct gp_layer_norm_attr attr,
			struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_LAYER_NORM};
	gp_set_layer_norm_attr(&n, attr);
	return gp_graph_append(g, n, name, residual < 0 ? 1 : 2, (const int[]){in, residual}, err);
}

static const struct gp_op_attr attributes[] = {{"eps", true}, {"p", true}};

const struct gp_op_def gp_op_layer_norm = {
	.name = "layer_norm",
	.inputs_min = 1,
	.inputs_max = 2,
	.attrs = GP_OP_ATTR_COUNT(attributes),
	.attr = attributes,
	.sequence = GP_SEQUENCE_BY_ROW,
	.infer = infer_layer_norm,
};
