/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a sequence: attributes, shapes, parameters, builders. Test: tests/unit/test_graph_language.c
 */
#include "common/graph/ops/op_rows.h"

static enum gp_status check_sequence(const struct gp_infer *io, const char *op, struct gp_err *err)
{
	GP_TRY(gp_check_dtype(io, 0, GP_F32, err));
	if (io->in[0]->shape.ndim != 2)
		GP_FAIL(err, GP_INVALID, "%s takes (S,F), not %d dimensions", op, io->in[0]->shape.ndim);
	return GP_OK;
}

static enum gp_status infer_add_rows(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_add_rows_attr a = gp_add_rows_attr(io->node);
	GP_TRY(check_sequence(io, "add_rows", err));
	const struct gp_shape *in = &io->in[0]->shape;
	GP_TRY(gp_check_range("rows", a.rows, 1, GP_OP_MAX_FEATURES, err));
	GP_TRY(gp_check_range("step", a.step, 0, 1, err));
	GP_TRY(gp_check_range("first", a.first, 0, a.rows - 1, err));
	if (a.step && in->dim[0] > a.rows - a.first)
		GP_FAIL(err, GP_INVALID, "%lld positions, and rows for %d of them", (long long)in->dim[0],
			(int)(a.rows - a.first));
	io->out[0] = *io->in[0];
	return gp_infer_param(io, GP_PARAM_WEIGHT, gp_shape2(a.rows, in->dim[1]), GP_INIT_NORMAL, 1.0f, err);
}

static enum gp_status infer_take_row(struct gp_infer *io, struct gp_err *err)
{
	GP_TRY(check_sequence(io, "take_row", err));
	GP_TRY(gp_check_range("row", gp_take_row_attr(io->node).row, 0, io->in[0]->shape.dim[0] - 1, err));
	io->out[0].shape = gp_shape1(io->in[0]->shape.dim[1]);
	io->reads_padding = gp_take_row_attr(io->node).row > 0;             /* every sample has one position at least */
	io->needs_all = gp_take_row_attr(io->node).row >= GP_SEQUENCE_STEP; /* a short chunk has no such row */
	return GP_OK;
}

int gp_graph_add_rows(struct gp_graph *g, const char *name, int in, struct gp_add_rows_attr attr, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_ADD_ROWS};
	gp_set_add_rows_attr(&n, attr);
	return gp_graph_append(g, n, name, 1, &in, err);
}

int gp_graph_take_row(struct gp_graph *g, const char *name, int in, int row, struct gp_err *err)
{
	struct gp_node n = {.op = GP_OP_TAKE_ROW};
	gp_set_take_row_attr(&n, (struct gp_take_row_attr){.row = row});
	return gp_graph_append(g, n, name, 1, &in, err);
}

static const struct gp_op_attr add_rows_attributes[] = {{"rows", false}, {"first", false}, {"step", false}};
static const struct gp_op_attr take_row_attributes[] = {{"row", false}};

const struct gp_op_def gp_op_add_rows = {
	.name = "add_rows",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(add_rows_attributes),
	.attr = add_rows_attributes,
	.sequence = GP_SEQUENCE_KEPT,
	.infer = infer_add_rows,
};

const struct gp_op_def gp_op_take_row = {
	.name = "take_row",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(take_row_attributes),
	.attr = take_row_attributes,
	.sequence = GP_SEQUENCE_ENDS,
	.infer = infer_take_row,
};
