/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ops [THREADS [SAMPLES [POSITIONS [FEATURES [HEADS [REPEATS]]]]]]: times of the ops of language models, alone and
 * forward and backward, with the bytes that they have to move at least: of a chunk of a layer of RoBERTa-base where
 * nothing else is said (1 thread, 8 samples of 128 positions, 768 features, 12 heads). relu shows what moving the bytes
 * of an activation takes, the linear layers what multiplying does.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_rows.h"
#include "common/graph/plan_profile.h"
#include "kernels/device_registry.h"

enum { THREADS, SAMPLES, POSITIONS, FEATURES, HEADS, REPEATS, NUMBERS };

struct bench {
	int number[NUMBERS];
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan *plan;
};

static int norm(struct gp_graph *g, const char *name, int in, int residual, float p, struct gp_err *err)
{
	return gp_graph_layer_norm(g, name, in, residual, (struct gp_layer_norm_attr){.eps = 1e-5f, .p = p}, err);
}

/* What is four times as wide as the rest of the layer. */
static int add_wide(struct gp_graph *g, int x, int features, struct gp_err *err)
{
	x = gp_graph_linear(g, "widen", x, 4 * features, true, err);
	x = gp_graph_unary(g, GP_OP_RELU, "relu", x, err);
	x = gp_graph_gelu(g, "gelu", x, false, err);
	x = gp_graph_gelu(g, "gelu_tanh", x, true, err);
	x = gp_graph_unary(g, GP_OP_TANH, "tanh", x, err);
	x = gp_graph_dropout(g, "dropout", x, 0.1f, err);
	return gp_graph_linear(g, "narrow", x, features, true, err);
}

static enum gp_status build(struct bench *b, struct gp_err *err)
{
	const int *n = b->number;
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {n[POSITIONS], n[FEATURES]}}};
	const struct gp_type length = {GP_I32, {.ndim = 1, .dim = {1}}};
	struct gp_graph *g = b->graph = gp_graph_new_empty("ops", err);
	if (!g || gp_graph_add_input(g, "x", &x, err) < 0 || gp_graph_add_input(g, "length", &length, err) < 0)
		return err->code;
	GP_TRY(gp_graph_begin_block(g, "block", err));
	const struct gp_add_rows_attr each = {.rows = n[POSITIONS], .step = 1}, one = {.rows = 2};
	int at = gp_graph_add_rows(g, "a_row_each", 0, each, err);
	const int first = norm(g, "norm", gp_graph_add_rows(g, "one_row_for_all", at, one, err), -1, 0.0f, err);
	at = gp_graph_attention(g, "attention", (const int[]){first, first, first}, 1,
				(struct gp_attention_attr){.heads = n[HEADS], .p = 0.1f}, err);
	const int middle = norm(g, "norm-residual", at, first, 0.0f, err);
	at = norm(g, "norm-residual-dropout", add_wide(g, middle, n[FEATURES], err), middle, 0.1f, err);
	at = gp_graph_take_row(g, "first_row", at, 0, err);
	return at < 0 ? err->code : gp_graph_finish(g, err);
}

static enum gp_status make_plan(struct bench *b, struct gp_err *err)
{
	const struct gp_plan_spec spec = {.graph = b->graph,
					  .batch = b->number[SAMPLES],
					  .slots = 1,
					  .train = true,
					  .grad_inputs = 1,
					  .seed = 1,
					  .optim = {.kind = GP_OPTIM_SGD}};
	GP_TRY(gp_device_open("cpu", b->number[THREADS], &b->dev, err));
	return b->dev->ops->plan_new(b->dev, &spec, &b->plan, err);
}

static void fill(struct bench *b)
{
	float *x = b->plan->ops->buffer(b->plan, 0, GP_BUF_INPUT, 0);
	float *dout = b->plan->ops->buffer(b->plan, 0, GP_BUF_GRAD_OUTPUT, 0);
	int32_t *length = b->plan->ops->buffer(b->plan, 0, GP_BUF_INPUT, 1);
	const int64_t outputs = (int64_t)b->number[SAMPLES] * b->number[FEATURES];
	for (int64_t i = 0; i < outputs * b->number[POSITIONS]; i++)
		x[i] = gp_rng_normal(1, 1, (uint64_t)i);
	for (int64_t i = 0; i < outputs; i++)
		dout[i] = gp_rng_normal(1, 2, (uint64_t)i);
	for (int i = 0; i < b->number[SAMPLES]; i++)
		length[i] = b->number[POSITIONS];
}

static enum gp_status run(struct bench *b, struct gp_err *err)
{
	const struct gp_plan_profile *profile = NULL;
	for (int i = -1; i < b->number[REPEATS]; i++) {
		if (i == 0) /* the first run is none that counts */
			GP_TRY(gp_plan_profile_begin(b->plan, &profile, err));
		GP_TRY(b->plan->ops->forward(b->plan, 0, GP_TRAIN, (uint64_t)(i + 1), err));
		GP_TRY(b->plan->ops->backward(b->plan, 0, err));
	}
	gp_plan_profile_print(stdout, "ops", b->plan, profile);
	return GP_OK;
}

static enum gp_status bench(struct bench *b, struct gp_err *err)
{
	for (int i = 0; i < NUMBERS; i++)
		if (b->number[i] < 1)
			GP_FAIL(err, GP_USAGE, "all numbers must be 1 or more");
	GP_TRY(build(b, err));
	GP_TRY(make_plan(b, err));
	fill(b);
	return run(b, err);
}

int main(int argc, char **argv)
{
	struct gp_err err = {0};
	struct bench b = {.number = {1, 8, 128, 768, 12, 20}};
	gp_threads_prepare(argv);
	for (int i = 1; i < argc && i <= NUMBERS; i++)
		b.number[i - 1] = atoi(argv[i]);
	const enum gp_status status = bench(&b, &err);
	if (status != GP_OK)
		gp_err_print(&err, "bench_ops");
	if (b.plan)
		b.plan->ops->plan_free(b.plan);
	if (b.dev)
		b.dev->ops->close(b.dev);
	gp_graph_free(b.graph);
	return gp_status_exit(status);
}
