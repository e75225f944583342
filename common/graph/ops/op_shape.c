/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that move values without computing: attributes, shapes, builders. flatten
 * makes (C*H*W), in PyTorch's order, of (H,W,C). Test: tests/unit/test_graph.c
 */
#include "common/graph/ops/op_shape.h"

static enum gp_status infer_flatten(struct gp_infer *io, struct gp_err *err)
{
	GP_TRY(gp_check_dtype(io, 0, GP_F32, err));
	io->out[0].shape = gp_shape1((int64_t)gp_shape_elements(&io->in[0]->shape));
	return GP_OK;
}

static enum gp_status infer_shortcut_pad(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_shortcut_attr a = gp_shortcut_attr(io->node);
	GP_TRY(gp_check_image(io, 0, err));
	GP_TRY(gp_check_range("stride", a.stride, 1, GP_OP_MAX_WINDOW, err));
	GP_TRY(gp_check_range("zero channels before", a.before, 0, GP_OP_MAX_FEATURES, err));
	GP_TRY(gp_check_range("zero channels after", a.after, 0, GP_OP_MAX_FEATURES, err));
	const struct gp_shape *in = &io->in[0]->shape;
	io->out[0].shape = gp_shape3((in->dim[0] - 1) / a.stride + 1, (in->dim[1] - 1) / a.stride + 1,
				     a.before + in->dim[2] + a.after);
	return GP_OK;
}

static bool same_but_last(const struct gp_shape *a, const struct gp_shape *b)
{
	for (int d = 0; d < a->ndim - 1; d++)
		if (a->dim[d] != b->dim[d])
			return false;
	return a->ndim == b->ndim;
}

static enum gp_status infer_concat(struct gp_infer *io, struct gp_err *err)
{
	char a[64], b[64];
	struct gp_shape shape = io->in[0]->shape;
	for (int i = 0; i < io->node->inputs; i++) {
		GP_TRY(gp_check_dtype(io, i, GP_F32, err));
		if (!same_but_last(&shape, &io->in[i]->shape))
			GP_FAIL(err, GP_INVALID, "inputs 0 and %d differ in more than their last dimension: %s and %s",
				i, gp_shape_text(&io->in[0]->shape, a, sizeof a),
				gp_shape_text(&io->in[i]->shape, b, sizeof b));
		if (i > 0)
			shape.dim[shape.ndim - 1] += io->in[i]->shape.dim[shape.ndim - 1];
	}
	io->out[0].shape = shape;
	return GP_OK;
}

static enum gp_status infer_split(struct gp_infer *io, struct gp_err *err)
{
	const int32_t parts = gp_split_attr(io->node).parts;
	struct gp_shape shape = io->in[0]->shape;
	GP_TRY(gp_check_dtype(io, 0, GP_F32, err));
	GP_TRY(gp_check_range("parts", parts, 1, GP_NODE_MAX_OUTPUTS, err));
	if (shape.dim[shape.ndim - 1] % parts)
		GP_FAIL(err, GP_INVALID, "%d parts do not divide a last dimension of %lld", parts,
			(long long)shape.dim[shape.ndim - 1]);
	shape.dim[shape.ndim - 1] /= parts;
	for (int i = 0; i < parts; i++)
		io->out[i] = (struct gp_type){GP_F32, shape};
	io->outputs = parts;
	return GP_OK;
}

static enum gp_status infer_swap_last(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_shape *in = &io->in[0]->shape;
	GP_TRY(gp_check_dtype(io, 0, GP_F32, err));
	if (in->ndim != 2)
		GP_FAIL(err, GP_INVALID, "swap_last takes two dimensions, not %d", in->ndim);
	io->out[0].shape = gp_shape2(in->dim[1], in->dim[0]);
	return GP_OK;
}

int gp_graph_shortcut_pad(struct gp_graph *g, const char *name, int in, int stride, int before, int after,
			  struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_SHORTCUT_PAD};
	gp_set_shortcut_attr(&n, (struct gp_shortcut_attr){.stride = stride, .before = before, .after = after});
	return gp_graph_append(g, n, name, 1, &in, err);
}

int gp_graph_concat(struct gp_graph *g, const char *name, int inputs, const int *in, struct gp_err *err)
{
	return gp_graph_append(g, (struct gp_node){.op = GP_OP_CONCAT}, name, inputs, in, err);
}

int gp_graph_split(struct gp_graph *g, const char *name, int in, int parts, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_SPLIT};
	gp_set_split_attr(&n, (struct gp_split_attr){.parts = parts});
	return gp_graph_append(g, n, name, 1, &in, err);
}

static const struct gp_op_attr shortcut_attributes[] = {{"stride", false}, {"before", false}, {"after", false}};
static const struct gp_op_attr split_attributes[] = {{"parts", false}};

const struct gp_op_def gp_op_flatten = {
	.name = "flatten",
	.inputs_min = 1,
	.inputs_max = 1,
	.infer = infer_flatten,
};

const struct gp_op_def gp_op_shortcut_pad = {
	.name = "shortcut_pad",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(shortcut_attributes),
	.attr = shortcut_attributes,
	.infer = infer_shortcut_pad,
};

const struct gp_op_def gp_op_concat = {
	.name = "concat",
	.inputs_min = 1,
	.inputs_max = GP_NODE_MAX_INPUTS,
	.sequence = GP_SEQUENCE_BY_ROW,
	.infer = infer_concat,
};

const struct gp_op_def gp_op_split = {
	.name = "split",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(split_attributes),
	.attr = split_attributes,
	.sequence = GP_SEQUENCE_BY_ROW,
	.infer = infer_split,
};

/* The last dimension becomes the positions: a chunk of fewer positions has other features behind it, so all are needed. */
const struct gp_op_def gp_op_swap_last = {
	.name = "swap_last",
	.inputs_min = 1,
	.inputs_max = 1,
	.infer = infer_swap_last,
};
