/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization: attributes, parameters, builder. Test: tests/unit/test_graph.c
 */
#include "common/graph/ops/op_batch_norm.h"

#define MOST_LIMIT 1e6f

static enum gp_status check_mode(const struct gp_bn_attr *a, struct gp_err *err)
{
	if (a->mode < 0 || a->mode >= GP_BN_MODES)
		GP_FAIL(err, GP_INVALID, "batch norm has no mode %d", (int)a->mode);
	if (a->mode == GP_BN_RENORM) {
		if (!(a->r_max >= 1.0f && a->r_max <= MOST_LIMIT) || !(a->d_max >= 0.0f && a->d_max <= MOST_LIMIT))
			GP_FAIL(err, GP_INVALID, "r_max %g must be in 1..%g and d_max %g in 0..%g", (double)a->r_max,
				(double)MOST_LIMIT, (double)a->d_max, (double)MOST_LIMIT);
		return gp_check_range("warmup", a->warmup, 0, INT32_MAX, err);
	}
	if (a->r_max != 0.0f || a->d_max != 0.0f || a->warmup != 0)
		GP_FAIL(err, GP_INVALID, "r_max, d_max and warmup are of another mode than %d", (int)a->mode);
	return GP_OK;
}

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
	GP_TRY(check_mode(&a, err));
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

static void set_mode(struct gp_node *n, const struct gp_bn_attr *how)
{
	struct gp_bn_attr a = *how;
	a.eps = gp_bn_attr(n).eps;
	a.momentum = gp_bn_attr(n).momentum;
	gp_set_bn_attr(n, a);
}

int gp_graph_set_batch_norm(struct gp_graph *g, const struct gp_bn_attr *how, struct gp_err *err)
{
	int count = 0;
	if (check_mode(how, err) != GP_OK)
		return -1;
	for (int i = g->inputs; i < g->nodes; i++) {
		if (g->node[i].op != GP_OP_BATCH_NORM)
			continue;
		set_mode(&g->node[i], how);
		count++;
	}
	return count;
}

bool gp_bn_moves(const struct gp_graph *g, const struct gp_node *n)
{
	return n->op == GP_OP_BATCH_NORM && gp_bn_attr(n).mode != GP_BN_RUNNING && gp_graph_is_trained(g, n);
}

static const struct gp_op_attr attributes[] = {{"eps", true},   {"momentum", true}, {"mode", false},
					       {"r_max", true}, {"d_max", true},    {"warmup", false}};

const struct gp_op_def gp_op_batch_norm = {
	.name = "batch_norm",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(attributes),
	.attr = attributes,
	.optional = 4,
	.infer = infer_batch_norm,
};
