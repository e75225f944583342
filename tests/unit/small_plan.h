/* SPDX-License-Identifier: Apache-2.0
 *
 * A small graph that trains, with every optimizer, for tests of what plans do
 * around their ops. Not a test by itself; see device_pair.h, which it builds on.
 */
#ifndef GP_TEST_SMALL_PLAN_H
#define GP_TEST_SMALL_PLAN_H

#include "tests/unit/device_pair.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"

enum { BATCH = 3, SLOTS = 2, CLASSES = 5, CHUNKS = 3 };

static const struct gp_optim optimizers[] = {
	{.kind = GP_OPTIM_SGD},
	{.kind = GP_OPTIM_SGD, .momentum = 0.9f},
	{.kind = GP_OPTIM_SGD, .momentum = 0.9f, .nesterov = true, .weight_decay = 1e-3f},
	{.kind = GP_OPTIM_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f, .weight_decay = 1e-3f},
	{.kind = GP_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f, .weight_decay = 1e-2f},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

static inline struct gp_graph *build_graph(void)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {4, 5, 6}};
	struct gp_graph *g = gp_graph_new("small", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	int x = gp_graph_dropout(g, "drop", 0, 0.3f, &err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err);
	x = gp_graph_linear(g, "first", x, 33, true, &err);
	x = gp_graph_unary(g, GP_OP_RELU6, "relu6", x, &err);
	assert_true(gp_graph_linear(g, "second", x, CLASSES, true, &err) > 0);
	g->param[1].decay = false; /* a bias, as builders of transformers have it */
	OK(gp_graph_finish(g, &err));
	return g;
}

static inline struct gp_plan_spec spec_of(const struct gp_optim *optim)
{
	return (struct gp_plan_spec){.batch = BATCH,
				     .slots = SLOTS,
				     .train = true,
				     .grad_inputs = 1,
				     .seed = 9,
				     .undo = true,
				     .optim = *optim};
}

static inline void fill_labels(int32_t *labels, uint64_t chunk)
{
	for (int i = 0; i < BATCH; i++)
		labels[i] = (int32_t)((chunk * 7 + (uint64_t)i * 3) % CLASSES);
}

/* As functions that read a parameter (device_pair.h). */
static inline enum gp_status first_state(struct gp_plan *p, int index, float *out, struct gp_err *e)
{
	return p->ops->optim_get(p, index, 0, out, e);
}

static inline enum gp_status second_state(struct gp_plan *p, int index, float *out, struct gp_err *e)
{
	return p->ops->optim_get(p, index, 1, out, e);
}

#endif
