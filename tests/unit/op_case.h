/* SPDX-License-Identifier: Apache-2.0
 *
 * How the graphs of op_graphs.h begin and end. Not a test by itself. The program
 * has an `err` and an OK() that fails with its text (device_pair.h).
 */
#ifndef GP_TEST_OP_CASE_H
#define GP_TEST_OP_CASE_H

#include "tests/unit/device_pair.h"
#include "common/graph/ops/op_elementwise.h"

/* A graph of one image (H,W,C) or, where h is 0, of one row (C). */
static inline struct gp_graph *begin(int64_t h, int64_t w, int64_t c)
{
	const struct gp_shape image = {.ndim = 3, .dim = {h, w, c}}, row = {.ndim = 1, .dim = {c}};
	struct gp_graph *g = gp_graph_new("case", h ? &image : &row, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	return g;
}

static inline struct gp_graph *end(struct gp_graph *g, int last)
{
	if (last < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(g, &err));
	return g;
}

/* A graph of rows (F), then of i32 (S) where there are ids. */
static inline struct gp_graph *begin_many(int inputs, const int64_t *width, int64_t ids)
{
	struct gp_graph *g = gp_graph_new_empty("case", &err);
	char name[16];
	assert_non_null(g);
	for (int i = 0; i < inputs; i++) {
		snprintf(name, sizeof name, "in%d", i);
		assert_int_equal(
			gp_graph_add_input(g, name, &(struct gp_type){GP_F32, {.ndim = 1, .dim = {width[i]}}}, &err),
			i);
	}
	if (ids)
		assert_true(gp_graph_add_input(g, "ids", &(struct gp_type){GP_I32, {.ndim = 1, .dim = {ids}}}, &err) >=
			    0);
	OK(gp_graph_begin_block(g, "block", &err));
	return g;
}

static inline struct gp_graph *end_many(struct gp_graph *g, int outputs, const int *value)
{
	OK(gp_graph_set_outputs(g, outputs, value, &err));
	return end(g, 0);
}

static inline int sum_of(struct gp_graph *g, const char *name, int inputs, const int *in)
{
	return gp_graph_append(g, (struct gp_node){.op = GP_OP_ADD}, name, inputs, in, &err);
}

/* A graph of one sequence (S,F), then its length where that is read. */
static inline struct gp_graph *begin_sequence(int64_t positions, int64_t features, bool length)
{
	struct gp_graph *g = gp_graph_new_empty("case", &err);
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {positions, features}}};
	const struct gp_type one = {GP_I32, {.ndim = 1, .dim = {1}}};
	assert_non_null(g);
	assert_int_equal(gp_graph_add_input(g, "x", &x, &err), 0);
	if (length)
		assert_int_equal(gp_graph_add_input(g, "length", &one, &err), 1);
	OK(gp_graph_begin_block(g, "block", &err));
	return g;
}

/* What the pattern names is not trained. */
static inline struct gp_graph *frozen(struct gp_graph *g, const char *pattern)
{
	assert_true(gp_graph_freeze(g, pattern) > 0);
	return g;
}

#endif
