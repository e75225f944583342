/* SPDX-License-Identifier: Apache-2.0
 *
 * Small graphs of activations, sums, linear layers, dropout and shortcuts, and of
 * ops with many inputs and outputs: op_graphs.h has the table of all cases. Not a
 * test by itself.
 */
#ifndef GP_TEST_OP_GRAPHS_BASIC_H
#define GP_TEST_OP_GRAPHS_BASIC_H

#include "tests/unit/op_case.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_shape.h"

static inline struct gp_graph *relu(void)
{
	struct gp_graph *g = begin(5, 7, 13);
	return end(g, gp_graph_unary(g, GP_OP_RELU, "act", 0, &err));
}

static inline struct gp_graph *relu6_behind_a_view(void)
{
	struct gp_graph *g = begin(1, 1, 61);
	int x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", 0, &err);
	return end(g, gp_graph_unary(g, GP_OP_RELU6, "act", x, &err));
}

static inline struct gp_graph *views_alone(void)
{
	struct gp_graph *g = begin(1, 1, 9);
	int x = gp_graph_dropout(g, "drop", 0, 0.0f, &err);
	x = gp_graph_shortcut_pad(g, "shortcut", x, 1, 0, 0, &err);
	return end(g, gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err));
}

/* The input has three readers, one value is added to itself, and a gradient that is handed on has two owners. */
static inline struct gp_graph *sums(void)
{
	struct gp_graph *g = begin(3, 5, 7);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), s = gp_graph_unary(g, GP_OP_RELU6, "s", 0, &err);
	int a = gp_graph_sum(g, "a", r, s, &err);
	a = gp_graph_sum(g, "twice", a, a, &err);
	a = gp_graph_sum(g, "again", a, r, &err);
	return end(g, gp_graph_sum(g, "y", a, 0, &err));
}

static inline struct gp_graph *linear(void)
{
	struct gp_graph *g = begin(0, 0, 37);
	int x = gp_graph_linear(g, "first", 0, 19, true, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "act", x, &err);
	return end(g, gp_graph_linear(g, "second", x, 11, false, &err));
}

/* Two linear layers and a sum read one value: contributions to its gradient are added by the ops. */
static inline struct gp_graph *linear_of_many_readers(void)
{
	struct gp_graph *g = begin(0, 0, 24);
	int r = gp_graph_linear(g, "in", 0, 24, true, &err);
	int a = gp_graph_linear(g, "a", r, 24, true, &err), b = gp_graph_linear(g, "b", r, 24, true, &err);
	a = gp_graph_sum(g, "s", a, b, &err);
	return end(g, gp_graph_sum(g, "t", a, r, &err));
}

static inline struct gp_graph *flatten_then_linear(void)
{
	struct gp_graph *g = begin(6, 7, 35);
	int x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", 0, &err);
	return end(g, gp_graph_linear(g, "linear", x, 5, true, &err));
}

static inline struct gp_graph *flatten_alone(void)
{
	struct gp_graph *g = begin(9, 5, 33);
	return end(g, gp_graph_unary(g, GP_OP_FLATTEN, "flat", 0, &err));
}

static inline struct gp_graph *dropout(void)
{
	struct gp_graph *g = begin(0, 0, 1021);
	int x = gp_graph_dropout(g, "first", 0, 0.3f, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "act", x, &err);
	return end(g, gp_graph_dropout(g, "second", x, 0.5f, &err));
}

static inline struct gp_graph *shortcuts(void)
{
	struct gp_graph *g = begin(7, 5, 6);
	int a = gp_graph_shortcut_pad(g, "a", 0, 2, 3, 4, &err), b = gp_graph_shortcut_pad(g, "b", 0, 2, 0, 7, &err);
	return end(g, gp_graph_sum(g, "y", a, b, &err));
}

/* Sixteen bytes of channels at once, in every precision. */
static inline struct gp_graph *shortcuts_of_vectors(void)
{
	struct gp_graph *g = begin(6, 5, 16);
	int a = gp_graph_shortcut_pad(g, "a", 0, 2, 8, 8, &err), b = gp_graph_shortcut_pad(g, "b", 0, 2, 0, 16, &err);
	return end(g, gp_graph_sum(g, "y", a, b, &err));
}

static inline struct gp_graph *global_pool(void)
{
	struct gp_graph *g = begin(5, 6, 43);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err);
	int a = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "a", r, &err);
	int b = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "b", r, &err);
	a = gp_graph_sum(g, "s", a, b, &err);
	a = gp_graph_unary(g, GP_OP_FLATTEN, "flat", a, &err);
	return end(g, gp_graph_linear(g, "linear", a, 3, true, &err));
}

/* More rows than one slice of a bias gradient's sum. */
static inline struct gp_graph *many_rows(void)
{
	struct gp_graph *g = begin(0, 0, 3);
	return end(g, gp_graph_linear(g, "linear", 0, 41, true, &err));
}

static inline struct gp_graph *frozen_biases(void)
{
	return frozen(linear_of_many_readers(), "*.bias");
}

/* --- many inputs and outputs -------------------------------------------------------------------------------------- */

static inline struct gp_graph *sums_of_many(void)
{
	struct gp_graph *g = begin_many(3, (const int64_t[]){37, 37, 37}, 0);
	int a = sum_of(g, "a", 3, (const int[]){0, 1, 2});
	int b = gp_graph_unary(g, GP_OP_RELU, "b", sum_of(g, "five", 5, (const int[]){a, 1, a, 0, 1}), &err);
	return end_many(g, 2, (const int[]){sum_of(g, "c", 4, (const int[]){b, a, b, 2}), a});
}

static inline struct gp_graph *identities(void)
{
	struct gp_graph *g = begin_many(1, (const int64_t[]){24}, 5);
	int a = gp_graph_unary(g, GP_OP_IDENTITY, "a", 0, &err), r = gp_graph_unary(g, GP_OP_RELU, "r", a, &err);
	int b = gp_graph_unary(g, GP_OP_IDENTITY, "b", r, &err), ids = gp_graph_unary(g, GP_OP_IDENTITY, "i", 1, &err);
	return end_many(g, 4, (const int[]){b, ids, a, gp_graph_unary(g, GP_OP_RELU6, "s", b, &err)});
}

static inline struct gp_graph *concats(void)
{
	struct gp_graph *g = begin_many(3, (const int64_t[]){16, 7, 24}, 0);
	int all = gp_graph_concat(g, "all", 4, (const int[]){0, 1, 2, 0}, &err);
	int wide = gp_graph_concat(g, "wide", 2, (const int[]){2, 0}, &err);
	return end_many(g, 2, (const int[]){gp_graph_unary(g, GP_OP_RELU, "r", all, &err), wide});
}

/* Images; nobody reads the second part, one is an output, one is read by a convolution. */
static inline struct gp_graph *splits(void)
{
	struct gp_graph *g = begin(3, 5, 32);
	int part = gp_graph_split(g, "parts", 0, 4, &err),
	    c = gp_graph_conv(g, "c", part + 3, 6, 3, 1, 1, 1, true, &err);
	int thin = gp_graph_split(g, "thin", c, 3, &err);
	int joined = gp_graph_concat(g, "joined", 3, (const int[]){thin + 2, part, thin}, &err);
	return end_many(g, 2, (const int[]){joined, part + 2});
}

static inline struct gp_graph *embedding_of(int64_t ids, int vocab, int features)
{
	struct gp_graph *g = begin_many(0, NULL, ids);
	return end(g, gp_graph_embedding(g, "table", 0, vocab, features, &err));
}

static inline struct gp_graph *embedding(void)
{
	return embedding_of(9, 7, 5);
}

/* Features of several blocks of threads, positions of several rounds. */
static inline struct gp_graph *embedding_of_many(void)
{
	return embedding_of(301, 6, 264);
}

static inline struct gp_graph *masked_mean_of(int64_t positions, int features)
{
	struct gp_graph *g = gp_graph_new_empty("case", &err);
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {positions, features}}};
	const struct gp_type mask = {GP_I32, {.ndim = 1, .dim = {positions}}};
	assert_int_equal(gp_graph_add_input(g, "x", &x, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "mask", &mask, &err), 1);
	OK(gp_graph_begin_block(g, "block", &err));
	return end(g, gp_graph_masked_mean(g, "mean", 0, 1, &err));
}

static inline struct gp_graph *masked_mean(void)
{
	return masked_mean_of(19, 37);
}

/* Where it keeps none, the mean is zeros. */
static inline struct gp_graph *masked_mean_of_one(void)
{
	return masked_mean_of(1, 40);
}

static inline struct gp_graph *tokens(void)
{
	struct gp_graph *g = begin_many(1, (const int64_t[]){3}, 11);
	int x = gp_graph_embedding(g, "table", 1, 8, 16, &err);
	x = gp_graph_linear(g, "mix", x, 16, true, &err);
	x = gp_graph_masked_mean(g, "mean", gp_graph_unary(g, GP_OP_RELU, "act", x, &err), 1, &err);
	x = gp_graph_concat(g, "joined", 2, (const int[]){x, 0}, &err);
	return end(g, gp_graph_linear(g, "fc", x, 4, true, &err));
}

#endif
