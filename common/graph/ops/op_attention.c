/* SPDX-License-Identifier: Apache-2.0
 *
 * Self-attention: attributes, shapes, costs, builder. Test: tests/unit/test_graph_language.c
 */
#include "common/graph/ops/op_attention.h"

#include "common/base/mem.h"

enum { Q, K, V, LENGTH, INPUTS };

static enum gp_status check_inputs(const struct gp_infer *io, struct gp_err *err)
{
	for (int i = Q; i <= V; i++)
		GP_TRY(gp_check_dtype(io, i, GP_F32, err));
	GP_TRY(gp_check_dtype(io, LENGTH, GP_I32, err));
	const struct gp_shape *q = &io->in[Q]->shape, *length = &io->in[LENGTH]->shape;
	if (q->ndim != 2 || !gp_shape_equal(q, &io->in[K]->shape) || !gp_shape_equal(q, &io->in[V]->shape))
		GP_FAIL(err, GP_INVALID, "attention takes queries, keys and values (S,F) of one shape");
	if (length->ndim != 1 || length->dim[0] != 1)
		GP_FAIL(err, GP_INVALID, "attention takes one length a sample");
	return GP_OK;
}

static enum gp_status infer_attention(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_attention_attr a = gp_attention_attr(io->node);
	GP_TRY(check_inputs(io, err));
	const struct gp_shape *q = &io->in[Q]->shape;
	GP_TRY(gp_check_range("heads", a.heads, 1, q->dim[1], err));
	if (q->dim[1] % a.heads != 0)
		GP_FAIL(err, GP_INVALID, "attention has %lld features, not a multiple of its %d heads",
			(long long)q->dim[1], (int)a.heads);
	if (!(a.p >= 0.0f && a.p < 1.0f))
		GP_FAIL(err, GP_INVALID, "dropout probability is %g; it must be in [0,1)", (double)a.p);
	io->out[0] = *io->in[Q];
	uint64_t pairs;
	if (!gp_mul_ok(2 * (uint64_t)q->dim[0], (uint64_t)q->dim[0], &pairs) ||
	    !gp_mul_ok(pairs, (uint64_t)q->dim[1], &io->node->macs))
		GP_FAIL(err, GP_INVALID, "the attention is too large");
	return GP_OK;
}

int gp_graph_attention(struct gp_graph *g, const char *name, const int qkv[3], int length,
		       struct gp_attention_attr attr, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_ATTENTION};
	gp_set_attention_attr(&n, attr);
	return gp_graph_append(g, n, name, INPUTS, (const int[]){qkv[Q], qkv[K], qkv[V], length}, err);
}

static const struct gp_op_attr attributes[] = {{"heads", false}, {"p", true}};

const struct gp_op_def gp_op_attention = {
	.name = "attention",
	.inputs_min = INPUTS,
	.inputs_max = INPUTS,
	.attrs = GP_OP_ATTR_COUNT(attributes),
	.attr = attributes,
	.sequence = GP_SEQUENCE_KEPT,
	.beside = (uint64_t)1 << LENGTH,
	.told_by = (uint64_t)1 << LENGTH,
	.infer = infer_attention,
};
