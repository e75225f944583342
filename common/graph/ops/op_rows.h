/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a sequence (S,F): add_rows adds those of a table to them, one after
 * another (learned positions) or the same one to all (one type of tokens);
 * take_row gives one of them, as a classifier reads the first.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph_language.c
 */
#ifndef GP_OP_ROWS_H
#define GP_OP_ROWS_H

#include "common/graph/op.h"

struct gp_add_rows_attr {
	int32_t rows;  /* of the table: weight (rows,F), drawn from a standard normal distribution as torch.nn.Embedding */
	int32_t first; /* row for position 0 */
	int32_t step;  /* 1: position s gets row first + s; 0: all get row `first` */
};
GP_OP_ATTRIBUTES(add_rows)

struct gp_take_row_attr {
	int32_t row;
};
GP_OP_ATTRIBUTES(take_row)

/* f32 (S,F) -> f32 (S,F) */
int gp_graph_add_rows(struct gp_graph *g, const char *name, int in, struct gp_add_rows_attr attr, struct gp_err *err);
/* f32 (S,F) -> f32 (F) */
int gp_graph_take_row(struct gp_graph *g, const char *name, int in, int row, struct gp_err *err);

#endif
