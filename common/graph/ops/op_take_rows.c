/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a sequence by number: shapes, builder. Test: tests/unit/test_take_rows.c
 */
#include "common/graph/ops/op_take_rows.h"

enum { ROWS, POSITIONS, INPUTS };

static enum gp_status infer(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_shape *x = &io->in[ROWS]->shape, *positions = &io->in[POSITIONS]->shape;
	GP_TRY(gp_check_dtype(io, ROWS, GP_F32, err));
	GP_TRY(gp_check_dtype(io, POSITIONS, GP_I32, err));
	if (x->ndim != 2 || positions->ndim != 1)
		GP_FAIL(err, GP_INVALID, "take_rows takes (S,F) and positions (P), not %d and %d dimensions", x->ndim,
			positions->ndim);
	io->out[0].shape = gp_shape2(positions->dim[0], x->dim[1]);
	return GP_OK;
}

int gp_graph_take_rows(struct gp_graph *g, const char *name, int in, int positions, struct gp_err *err)
{
	return gp_graph_append(g, (struct gp_node){.op = GP_OP_TAKE_ROWS}, name, INPUTS, (const int[]){in, positions},
			       err);
}

const struct gp_op_def gp_op_take_rows = {
	.name = "take_rows",
	.inputs_min = INPUTS,
	.inputs_max = INPUTS,
	.sequence = GP_SEQUENCE_ENDS,
	.beside = (uint64_t)1 << POSITIONS,
	.told_by = (uint64_t)1 << POSITIONS,
	.infer = infer,
};
