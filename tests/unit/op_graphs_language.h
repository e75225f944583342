/* SPDX-License-Identifier: Apache-2.0
 *
 * Small graphs of language models for tests that compare devices: op_graphs.h
 * has the table of all cases. Not a test by itself.
 */
#ifndef GP_TEST_OP_GRAPHS_LANGUAGE_H
#define GP_TEST_OP_GRAPHS_LANGUAGE_H

#include "tests/unit/device_pair.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_take_rows.h"

/* Inputs "x" (positions,features), or of ids, and "numbers" (taken): those that tests draw are -1 to 7. */
static inline struct gp_graph *begin_numbered(int64_t positions, int64_t features, int64_t taken)
{
	struct gp_graph *g = gp_graph_new_empty("case", &err);
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {positions, features}}};
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {positions}}};
	const struct gp_type numbers = {GP_I32, {.ndim = 1, .dim = {taken}}};
	assert_int_equal(gp_graph_add_input(g, "x", features ? &x : &ids, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "numbers", &numbers, &err), 1);
	OK(gp_graph_begin_block(g, "block", &err));
	return g;
}

static inline struct gp_graph *end_numbered(struct gp_graph *g, int last)
{
	if (last < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(g, &err));
	return g;
}

static inline struct gp_graph *numbered_rows(void)
{
	struct gp_graph *g = begin_numbered(7, 24, 3);
	return end_numbered(g, gp_graph_take_rows(g, "rows", 0, 1, &err));
}

/* More than there are, so that some are taken several times; and numbers beyond the last row. */
static inline struct gp_graph *numbered_rows_again(void)
{
	struct gp_graph *g = begin_numbered(5, 19, 11);
	const int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err);
	return end_numbered(g, gp_graph_take_rows(g, "rows", r, 1, &err));
}

/* The head over rows of a sequence that others read, too. */
static inline struct gp_graph *masked_language_model(void)
{
	struct gp_graph *g = begin_numbered(9, 0, 4);
	const struct gp_layer_norm_attr norm = {.eps = 1e-5f};
	const int words = gp_graph_embedding(g, "words", 0, 8, 16, &err);
	int x = gp_graph_linear(g, "l", words, 16, true, &err);
	x = gp_graph_take_rows(g, "rows", gp_graph_sum(g, "s", words, x, &err), 1, &err);
	x = gp_graph_gelu(g, "gelu", gp_graph_linear(g, "dense", x, 16, true, &err), false, &err);
	x = gp_graph_layer_norm(g, "norm", x, -1, norm, &err);
	return end_numbered(g, gp_graph_linear(g, "decoder", x, 33, true, &err));
}

#endif
