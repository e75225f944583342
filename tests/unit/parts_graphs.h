/* SPDX-License-Identifier: Apache-2.0
 *
 * Small graphs of which every node is a block, so that they can be cut anywhere, residual blocks and attention included.
 * For parts_rig.h.
 */
#ifndef GP_TEST_PARTS_GRAPHS_H
#define GP_TEST_PARTS_GRAPHS_H

#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_rows.h"
#include "common/graph/ops/op_shape.h"
#include "tests/unit/ok.h"

enum { BATCH = 3, SLOTS = 2, CHUNKS = 3, STEPS = 2, CLASSES = 4, SEED = 5, VOCAB = 7 };

static inline void begin(struct gp_graph *g)
{
	char name[16];
	snprintf(name, sizeof name, "b%d", g->blocks);
	OK(gp_graph_begin_block(g, name, &err));
}

static inline int conv(struct gp_graph *g, const char *name, int in, int channels, int kernel, int stride, int groups)
{
	begin(g);
	return gp_graph_conv(g, name, in, channels, kernel, stride, kernel / 2, groups, false, &err);
}

static inline int norm(struct gp_graph *g, const char *name, int in)
{
	begin(g);
	return gp_graph_batch_norm(g, name, in, 1e-5f, 0.1f, &err);
}

static inline int unary(struct gp_graph *g, enum gp_op op, const char *name, int in)
{
	begin(g);
	return gp_graph_unary(g, op, name, in, &err);
}

static inline int sum(struct gp_graph *g, const char *name, int a, int b)
{
	begin(g);
	return gp_graph_sum(g, name, a, b, &err);
}

static inline struct gp_graph *end(struct gp_graph *g, int last)
{
	if (last < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(g, &err));
	return g;
}

static inline int classify(struct gp_graph *g, int x)
{
	x = unary(g, GP_OP_GLOBAL_AVG_POOL, "pool", x);
	x = unary(g, GP_OP_FLATTEN, "flat", x);
	begin(g);
	return gp_graph_linear(g, "fc", x, CLASSES, true, &err);
}

/* Identity, projection, and a value that four nodes read, one of them behind a second addition. */
static inline struct gp_graph *build_residuals(void)
{
	const struct gp_shape image = {.ndim = 3, .dim = {8, 8, 3}};
	struct gp_graph *g = gp_graph_new("residuals", &image, &err);
	int x = unary(g, GP_OP_RELU, "stem", norm(g, "stem_bn", conv(g, "stem_conv", 0, 16, 3, 1, 1)));
	int y = unary(g, GP_OP_RELU, "a0", norm(g, "a0_bn", conv(g, "a0_conv", x, 16, 3, 1, 1)));
	y = norm(g, "a1_bn", conv(g, "a1_conv", y, 16, 3, 1, 1));
	x = unary(g, GP_OP_RELU, "a", sum(g, "a_sum", y, x));
	y = unary(g, GP_OP_RELU6, "b0", norm(g, "b0_bn", conv(g, "b0_conv", x, 24, 1, 1, 1)));
	y = unary(g, GP_OP_RELU6, "b1", norm(g, "b1_bn", conv(g, "b1_conv", y, 24, 3, 2, 24)));
	y = norm(g, "b2_bn", conv(g, "b2_conv", y, 20, 1, 1, 1));
	int down = norm(g, "down_bn", conv(g, "down_conv", x, 20, 1, 2, 1));
	begin(g);
	int pad = gp_graph_shortcut_pad(g, "pad", x, 2, 2, 2, &err);
	begin(g);
	y = gp_graph_append(g, (struct gp_node){.op = GP_OP_ADD}, "b_sum", 3, (const int[]){y, down, pad}, &err);
	return end(g, classify(g, y));
}

/* Depthwise blocks whose sum has no activation behind it, as MobileNetV2's. */
static inline struct gp_graph *build_inverted(void)
{
	const struct gp_shape image = {.ndim = 3, .dim = {6, 6, 8}};
	struct gp_graph *g = gp_graph_new("inverted", &image, &err);
	int x = norm(g, "stem_bn", conv(g, "stem_conv", 0, 16, 1, 1, 1));
	for (int i = 0; i < 2; i++) {
		char name[6][16];
		static const char *const what[] = {"expand", "expand_bn", "expand_act", "deep", "project", "sum"};
		for (int k = 0; k < 6; k++)
			snprintf(name[k], sizeof name[k], "%s%d", what[k], i);
		int y = norm(g, name[1], conv(g, name[0], x, 32, 1, 1, 1));
		y = conv(g, name[3], unary(g, GP_OP_RELU6, name[2], y), 32, 3, 1, 32);
		y = conv(g, name[4], y, 16, 1, 1, 1);
		x = sum(g, name[5], x, y);
	}
	return end(g, classify(g, x));
}

/* Norms of values that others read as well, between them and the sum that would take them over. */
static inline struct gp_graph *build_norms(void)
{
	const struct gp_shape image = {.ndim = 3, .dim = {5, 4, 8}};
	struct gp_graph *g = gp_graph_new("norms", &image, &err);
	int x = unary(g, GP_OP_RELU, "r", conv(g, "stem", 0, 16, 3, 1, 1));
	int n = norm(g, "n", x), c = conv(g, "c", x, 16, 1, 1, 1);
	int s = sum(g, "s", sum(g, "t", n, c), x);
	n = norm(g, "m", s);
	c = conv(g, "d", s, 16, 3, 1, 16);
	x = unary(g, GP_OP_RELU6, "act", sum(g, "u", s, n));
	return end(g, classify(g, sum(g, "v", sum(g, "w", x, c), s)));
}

/* Token ids and a mask from the data; the mask crosses both cuts where they lie before its reader. */
static inline struct gp_graph *build_tokens(void)
{
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {6}}}, row = {GP_F32, {.ndim = 1, .dim = {5}}};
	struct gp_graph *g = gp_graph_new_empty("tokens", &err);
	assert_int_equal(gp_graph_add_input(g, "ids", &ids, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "mask", &ids, &err), 1);
	assert_int_equal(gp_graph_add_input(g, "extra", &row, &err), 2);
	begin(g);
	int x = gp_graph_embedding(g, "table", 0, VOCAB, 8, &err);
	begin(g);
	int y = gp_graph_linear(g, "mix", x, 8, true, &err);
	x = sum(g, "mixed", unary(g, GP_OP_RELU, "mix_act", y), x);
	begin(g);
	const int half = gp_graph_split(g, "halves", x, 2, &err);
	x = sum(g, "folded", half, half + 1);
	begin(g);
	x = gp_graph_masked_mean(g, "mean", x, 1, &err);
	begin(g);
	x = gp_graph_concat(g, "joined", 3, (const int[]){x, 2, x}, &err);
	begin(g);
	x = gp_graph_dropout(g, "drop", x, 0.2f, &err);
	begin(g);
	return end(g, gp_graph_linear(g, "fc", x, CLASSES, true, &err));
}

static inline int linear(struct gp_graph *g, const char *name, int in, int out)
{
	begin(g);
	return gp_graph_linear(g, name, in, out, true, &err);
}

static inline int layer_norm(struct gp_graph *g, const char *name, int in, int residual)
{
	begin(g);
	return gp_graph_layer_norm(g, name, in, residual, (struct gp_layer_norm_attr){.eps = 1e-5f, .p = 0.1f}, &err);
}

/* A layer of an encoder; the lengths cross where they lie before the attention. */
static inline struct gp_graph *build_encoder(void)
{
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {6}}}, one = {GP_I32, {.ndim = 1, .dim = {1}}};
	struct gp_graph *g = gp_graph_new_empty("encoder", &err);
	assert_int_equal(gp_graph_add_input(g, "ids", &ids, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "length", &one, &err), 1);
	begin(g);
	int x = gp_graph_embedding(g, "tokens", 0, VOCAB, 16, &err);
	begin(g);
	x = gp_graph_add_rows(g, "place", x, (struct gp_add_rows_attr){.rows = 8, .first = 2, .step = 1}, &err);
	begin(g);
	x = gp_graph_add_rows(g, "kind", x, (struct gp_add_rows_attr){.rows = 2}, &err);
	const int in = layer_norm(g, "n0", x, -1), q = linear(g, "q", in, 16), k = linear(g, "k", in, 16),
		  v = linear(g, "v", in, 16);
	begin(g);
	x = gp_graph_attention(g, "a", (const int[]){q, k, v}, 1, (struct gp_attention_attr){.heads = 2, .p = 0.2f},
			       &err);
	const int middle = layer_norm(g, "n1", linear(g, "o", x, 16), in);
	x = linear(g, "f0", middle, 24);
	begin(g);
	x = gp_graph_gelu(g, "act", x, false, &err);
	x = layer_norm(g, "n2", linear(g, "f1", x, 16), middle);
	begin(g);
	x = gp_graph_take_row(g, "first", x, 0, &err);
	return end(g, linear(g, "fc", unary(g, GP_OP_TANH, "tanh", x), CLASSES));
}

#endif
