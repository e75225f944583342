/* SPDX-License-Identifier: Apache-2.0
 *
 * Small graphs of language models: curves, layer norms, attention, rows of a
 * sequence, an encoder. op_graphs.h has the table of all cases. Not a test by
 * itself.
 */
#ifndef GP_TEST_OP_GRAPHS_LANGUAGE_H
#define GP_TEST_OP_GRAPHS_LANGUAGE_H

#include "tests/unit/op_case.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_rows.h"
#include "common/graph/ops/op_shape.h"
#include "common/graph/ops/op_take_rows.h"

static inline struct gp_graph *gelu_of(bool approximate)
{
	struct gp_graph *g = begin(5, 7, 13);
	return end(g, gp_graph_gelu(g, "act", 0, approximate, &err));
}

static inline struct gp_graph *gelu(void)
{
	return gelu_of(false);
}

static inline struct gp_graph *gelu_by_tanh(void)
{
	return gelu_of(true);
}

static inline struct gp_graph *tanh_alone(void)
{
	struct gp_graph *g = begin(3, 5, 19);
	return end(g, gp_graph_unary(g, GP_OP_TANH, "act", 0, &err));
}

/* Their gradients meet, and what they read is read by others, too. */
static inline struct gp_graph *curves_of_many_readers(void)
{
	struct gp_graph *g = begin(0, 0, 37);
	int r = gp_graph_unary(g, GP_OP_TANH, "r", 0, &err), a = gp_graph_gelu(g, "a", r, false, &err);
	int b = gp_graph_gelu(g, "b", r, true, &err), c = gp_graph_unary(g, GP_OP_TANH, "c", r, &err);
	return end(g, sum_of(g, "s", 4, (const int[]){a, b, c, r}));
}

static inline struct gp_graph *linear_then_gelu(void)
{
	struct gp_graph *g = begin(0, 0, 24);
	int x = gp_graph_gelu(g, "act", gp_graph_linear(g, "in", 0, 37, true, &err), false, &err);
	x = gp_graph_linear(g, "out", x, 24, true, &err);
	x = gp_graph_gelu(g, "again", gp_graph_linear(g, "more", x, 11, false, &err), true, &err);
	return end(g, x);
}

static inline int layer_norm_of(struct gp_graph *g, const char *name, int in, int residual, float p)
{
	return gp_graph_layer_norm(g, name, in, residual, (struct gp_layer_norm_attr){.eps = 1e-5f, .p = p}, &err);
}

static inline struct gp_graph *layer_norm(void)
{
	struct gp_graph *g = begin(4, 3, 21);
	return end(g, layer_norm_of(g, "n", 0, -1, 0.0f));
}

static inline struct gp_graph *layer_norm_of_one_row(void)
{
	struct gp_graph *g = begin(0, 0, 1030);
	return end(g, layer_norm_of(g, "n", 0, -1, 0.4f));
}

/* Too long to be held, sixteen bytes at once in every precision. */
static inline struct gp_graph *layer_norm_of_long_rows(void)
{
	struct gp_graph *g = begin(0, 0, 1040);
	return end(g, layer_norm_of(g, "n", 0, 0, 0.4f));
}

static inline struct gp_graph *layer_norm_with_residual(void)
{
	struct gp_graph *g = begin_sequence(7, 24, false);
	int x = gp_graph_linear(g, "before", 0, 24, true, &err);
	return end(g, layer_norm_of(g, "n", x, 0, 0.0f));
}

/* Residuals that others read, one that is the value itself, and dropouts that begin within a block of draws. */
static inline struct gp_graph *layer_norms_with_dropout(void)
{
	struct gp_graph *g = begin_sequence(5, 37, false);
	int a = layer_norm_of(g, "a", gp_graph_linear(g, "before", 0, 37, true, &err), 0, 0.3f);
	int b = layer_norm_of(g, "b", gp_graph_linear(g, "between", a, 37, false, &err), a, 0.1f);
	return end(g, layer_norm_of(g, "c", b, b, 0.5f));
}

static inline struct gp_graph *frozen_layer_norms(void)
{
	return frozen(layer_norms_with_dropout(), "[abc].*");
}

static inline struct gp_graph *layer_norms_without_their_biases(void)
{
	return frozen(layer_norms_with_dropout(), "[abc].bias");
}

static inline int attention_by(struct gp_graph *g, const char *name, const int qkv[3], int heads, float p)
{
	return gp_graph_attention(g, name, qkv, 1, (struct gp_attention_attr){.heads = heads, .p = p}, &err);
}

/* Queries, keys and values are one. */
static inline struct gp_graph *attention_of_one_value(void)
{
	struct gp_graph *g = begin_sequence(6, 20, true);
	return end(g, attention_by(g, "a", (const int[]){0, 0, 0}, 1, 0.0f));
}

static inline struct gp_graph *self_attention_of(int64_t positions, int features, int heads, float p)
{
	struct gp_graph *g = begin_sequence(positions, features, true);
	const int q = gp_graph_linear(g, "q", 0, features, true, &err),
		  k = gp_graph_linear(g, "k", 0, features, false, &err),
		  v = gp_graph_linear(g, "v", 0, features, true, &err);
	int x = attention_by(g, "a", (const int[]){q, k, v}, heads, p);
	return end(g, gp_graph_linear(g, "out", x, features, true, &err));
}

static inline struct gp_graph *self_attention(void)
{
	return self_attention_of(7, 24, 3, 0.0f);
}

static inline struct gp_graph *self_attention_with_dropout(void)
{
	return self_attention_of(5, 16, 2, 0.4f);
}

static inline struct gp_graph *add_rows_of(struct gp_add_rows_attr attr)
{
	struct gp_graph *g = begin_sequence(6, 21, false);
	return end(g, gp_graph_add_rows(g, "rows", gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), attr, &err));
}

static inline struct gp_graph *positions(void)
{
	return add_rows_of((struct gp_add_rows_attr){.rows = 9, .first = 2, .step = 1});
}

static inline struct gp_graph *one_of_rows(void)
{
	return add_rows_of((struct gp_add_rows_attr){.rows = 3, .first = 1, .step = 0});
}

/* A row that is taken twice, and one that is an output besides. */
static inline struct gp_graph *taken_rows(void)
{
	struct gp_graph *g = begin_sequence(5, 19, false);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), first = gp_graph_take_row(g, "first", r, 0, &err);
	int again = gp_graph_take_row(g, "again", r, 0, &err), last = gp_graph_take_row(g, "last", r, 4, &err);
	return end_many(g, 2, (const int[]){sum_of(g, "s", 3, (const int[]){first, again, last}), last});
}

/*
 * All of it: tokens, positions, a layer of an encoder, and what reads its first row. Keys have no bias: what all keys have in
 * common changes no weight, so that its gradient is what rounding leaves of 0, which devices need not agree on.
 */
static inline struct gp_graph *encoder(void)
{
	struct gp_graph *g = gp_graph_new_empty("case", &err);
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {7}}}, length = {GP_I32, {.ndim = 1, .dim = {1}}};
	const struct gp_add_rows_attr place = {.rows = 10, .first = 2, .step = 1}, kind = {.rows = 1};
	assert_int_equal(gp_graph_add_input(g, "ids", &ids, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "length", &length, &err), 1);
	OK(gp_graph_begin_block(g, "block", &err));
	int x = gp_graph_embedding(g, "tokens", 0, 8, 16, &err);
	x = gp_graph_add_rows(g, "kind", gp_graph_add_rows(g, "place", x, place, &err), kind, &err);
	const int in = layer_norm_of(g, "n0", x, -1, 0.0f);
	const int q = gp_graph_linear(g, "q", in, 16, true, &err), k = gp_graph_linear(g, "k", in, 16, false, &err),
		  v = gp_graph_linear(g, "v", in, 16, true, &err);
	x = gp_graph_linear(g, "o", attention_by(g, "a", (const int[]){q, k, v}, 2, 0.1f), 16, true, &err);
	const int middle = layer_norm_of(g, "n1", x, in, 0.1f);
	x = gp_graph_gelu(g, "act", gp_graph_linear(g, "f0", middle, 40, true, &err), false, &err);
	x = layer_norm_of(g, "n2", gp_graph_linear(g, "f1", x, 16, true, &err), middle, 0.1f);
	x = gp_graph_linear(g, "pooler", gp_graph_take_row(g, "first", x, 0, &err), 16, true, &err);
	return end(g, gp_graph_linear(g, "fc", gp_graph_unary(g, GP_OP_TANH, "tanh", x, &err), 3, true, &err));
}

static inline struct gp_graph *linear_along_the_positions(void)
{
	struct gp_graph *g = begin_sequence(9, 6, false);
	int x = gp_graph_unary(g, GP_OP_SWAP_LAST, "swap", 0, &err);
	x = gp_graph_linear(g, "there", x, 4, false, &err);
	x = gp_graph_linear(g, "back", x, 9, false, &err);
	return end(g, gp_graph_unary(g, GP_OP_SWAP_LAST, "again", x, &err));
}

/* --- rows that an input names -------------------------------------------------------------------------------------- */

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

static inline struct gp_graph *numbered_rows(void)
{
	struct gp_graph *g = begin_numbered(7, 24, 3);
	return end(g, gp_graph_take_rows(g, "rows", 0, 1, &err));
}

/* More than there are, so that some are taken several times; and numbers beyond the last row. */
static inline struct gp_graph *numbered_rows_again(void)
{
	struct gp_graph *g = begin_numbered(5, 19, 11);
	const int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err);
	return end(g, gp_graph_take_rows(g, "rows", r, 1, &err));
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
	return end(g, gp_graph_linear(g, "decoder", x, 33, true, &err));
}

#endif
