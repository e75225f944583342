/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding and masked mean: attributes, shapes, parameters, builders.
 * Test: tests/unit/test_graph_parts.c
 */
#include "common/graph/ops/op_embedding.h"

static enum gp_status infer_embedding(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_embedding_attr a = gp_embedding_attr(io->node);
	GP_TRY(gp_check_dtype(io, 0, GP_I32, err));
	if (io->in[0]->shape.ndim != 1)
		GP_FAIL(err, GP_INVALID, "embedding takes token ids (S), not %d dimensions", io->in[0]->shape.ndim);
	GP_TRY(gp_check_range("vocab", a.vocab, 1, GP_OP_MAX_FEATURES, err));
	GP_TRY(gp_check_range("features", a.features, 1, GP_OP_MAX_FEATURES, err));
	io->out[0].shape = gp_shape2(io->in[0]->shape.dim[0], a.features);
	return gp_infer_param(io, GP_PARAM_WEIGHT, gp_shape2(a.vocab, a.features), GP_INIT_NORMAL, 1.0f, err);
}

static enum gp_status infer_masked_mean(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_shape *x = &io->in[0]->shape, *mask = &io->in[1]->shape;
	GP_TRY(gp_check_dtype(io, 0, GP_F32, err));
	GP_TRY(gp_check_dtype(io, 1, GP_I32, err));
	if (x->ndim != 2 || mask->ndim != 1 || x->dim[0] != mask->dim[0])
		GP_FAIL(err, GP_INVALID, "masked mean takes (S,F) and a mask (S) of the same S");
	io->out[0].shape = gp_shape1(x->dim[1]);
	return GP_OK;
}

int gp_graph_embedding(struct gp_graph *g, const char *name, int in, int vocab, int features, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_EMBEDDING};
	gp_set_embedding_attr(&n, (struct gp_embedding_attr){.vocab = vocab, .features = features});
	return gp_graph_append(g, n, name, 1, &in, err);
}

int gp_graph_masked_mean(struct gp_graph *g, const char *name, int in, int mask, struct gp_err *err)
{
	return gp_graph_append(g, (struct gp_node){.op = GP_OP_MASKED_MEAN}, name, 2, (const int[]){in, mask}, err);
}

static const struct gp_op_attr embedding_attributes[] = {{"vocab", false}, {"features", false}};

const struct gp_op_def gp_op_embedding = {
	.name = "embedding",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(embedding_attributes),
	.attr = embedding_attributes,
	.sequence = GP_SEQUENCE_KEPT,
	.infer = infer_embedding,
};

const struct gp_op_def gp_op_masked_mean = {
	.name = "masked_mean",
	.inputs_min = 2,
	.inputs_max = 2,
	.sequence = GP_SEQUENCE_ENDS,
	.told_by = (uint64_t)1 << 1, /* the mask */
	.infer = infer_masked_mean,
};
