/* SPDX-License-Identifier: Apache-2.0
 *
 * Small graphs of batch norms that a device may fuse with an activation or a
 * residual, of frozen ones, and of every mode: op_graphs.h has the table of all
 * cases. Not a test by itself.
 */
#ifndef GP_TEST_OP_GRAPHS_NORM_H
#define GP_TEST_OP_GRAPHS_NORM_H

#include "tests/unit/op_graphs_picture.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"

static inline int norm(struct gp_graph *g, const char *name, int in)
{
	return gp_graph_batch_norm(g, name, in, 1e-5f, 0.1f, &err);
}

static inline struct gp_graph *norms_with_activations(void)
{
	struct gp_graph *g = begin(5, 3, 13);
	int six = gp_graph_unary(g, GP_OP_RELU6, "six", norm(g, "a", 0), &err);
	int relu = gp_graph_unary(g, GP_OP_RELU, "relu", norm(g, "b", 0), &err);
	return end(g, gp_graph_sum(g, "s", six, relu, &err));
}

static inline struct gp_graph *norm_with_residual_and_activation(void)
{
	struct gp_graph *g = begin(5, 3, 16);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), s = gp_graph_sum(g, "s", norm(g, "a", r), r, &err);
	s = gp_graph_unary(g, GP_OP_RELU, "act", s, &err);
	int t = gp_graph_sum(g, "t", s, norm(g, "b", s), &err);
	return end(g, gp_graph_unary(g, GP_OP_RELU6, "six", t, &err));
}

/* The residual's gradient is the sum's own: two have it, and neither may spoil it for the other. */
static inline struct gp_graph *norm_with_residual_alone(void)
{
	struct gp_graph *g = begin(4, 3, 7);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), s = gp_graph_sum(g, "s", norm(g, "a", r), r, &err);
	return end(g, gp_graph_sum(g, "t", norm(g, "b", s), s, &err));
}

/* As behind a projection: one of them takes the sum, the other is its residual. */
static inline struct gp_graph *two_norms_that_meet(void)
{
	struct gp_graph *g = begin(3, 3, 10);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), a = norm(g, "a", r), b = norm(g, "b", 0);
	return end(g, gp_graph_unary(g, GP_OP_RELU6, "act", gp_graph_sum(g, "s", b, a, &err), &err));
}

/* Read by two, so that nothing can be taken over. */
static inline struct gp_graph *norm_of_two_readers(void)
{
	struct gp_graph *g = begin(3, 3, 9);
	int b = norm(g, "b", 0), c = norm(g, "c", 0), r = gp_graph_unary(g, GP_OP_RELU, "r", b, &err);
	int s = gp_graph_sum(g, "s", r, b, &err);
	return end(g, gp_graph_sum(g, "t", gp_graph_sum(g, "twice", c, c, &err), s, &err));
}

/* The sum is read besides the activation: it is taken over, the activation is not. */
static inline struct gp_graph *sum_of_two_readers(void)
{
	struct gp_graph *g = begin(3, 4, 8);
	int s = gp_graph_sum(g, "s", norm(g, "b", 0), 0, &err), r = gp_graph_unary(g, GP_OP_RELU, "r", s, &err);
	return end(g, gp_graph_sum(g, "t", r, s, &err));
}

/* Others read what the norm reads, before the sum that it might have been folded into. */
static inline struct gp_graph *norm_between_readers(void)
{
	struct gp_graph *g = begin(4, 3, 8);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), n = norm(g, "n", r);
	int c = gp_graph_conv(g, "c", r, 8, 1, 1, 0, 1, false, &err), s = gp_graph_sum(g, "s", n, c, &err);
	return end(g, gp_graph_sum(g, "t", gp_graph_unary(g, GP_OP_RELU, "act", s, &err), r, &err));
}

/* --- frozen parameters -------------------------------------------------------------------------------------------- */

static inline struct gp_graph *frozen_norm(void)
{
	return frozen(batch_norm(), "*");
}

static inline struct gp_graph *frozen_norms_with_activations(void)
{
	return frozen(norms_with_activations(), "*");
}

static inline struct gp_graph *frozen_norm_with_residual_and_activation(void)
{
	return frozen(norm_with_residual_and_activation(), "a.*");
}

static inline struct gp_graph *frozen_norm_with_residual_alone(void)
{
	return frozen(norm_with_residual_alone(), "*");
}

static inline struct gp_graph *norms_without_their_weights(void)
{
	return frozen(norm_with_residual_and_activation(), "*.weight");
}

static inline struct gp_graph *norms_without_their_biases(void)
{
	return frozen(residuals(), "*_bn.bias");
}

static inline struct gp_graph *frozen_convolutions(void)
{
	return frozen(residuals(), "[ab][01].weight");
}

/* --- modes of batch norm ------------------------------------------------------------------------------------------ */

static inline struct gp_graph *in_mode(struct gp_graph *g, enum gp_bn_mode mode)
{
	struct gp_bn_attr how = {.mode = mode};
	if (mode == GP_BN_RENORM) {
		how.r_max = 2.0f;
		how.d_max = 1.0f;
	}
	assert_true(gp_graph_set_batch_norm(g, &how, &err) > 0);
	return g;
}

#define IN_MODE(graph, suffix, mode)                                                                                   \
	static inline struct gp_graph *graph##_##suffix(void)                                                          \
	{                                                                                                              \
		return in_mode(graph(), mode);                                                                         \
	}

IN_MODE(batch_norm_of_rows, deferred, GP_BN_DEFERRED)
IN_MODE(residuals, deferred, GP_BN_DEFERRED)
IN_MODE(batch_norm, running, GP_BN_RUNNING)
IN_MODE(batch_norm_of_rows, running, GP_BN_RUNNING)
IN_MODE(inverted_residuals, running, GP_BN_RUNNING)
IN_MODE(residuals, running, GP_BN_RUNNING)
IN_MODE(norms_with_activations, running, GP_BN_RUNNING)
IN_MODE(norm_with_residual_alone, running, GP_BN_RUNNING)
IN_MODE(norms_without_their_weights, running, GP_BN_RUNNING)
IN_MODE(frozen_norm_with_residual_and_activation, running, GP_BN_RUNNING)
IN_MODE(batch_norm_of_rows, renorm, GP_BN_RENORM)
IN_MODE(inverted_residuals, renorm, GP_BN_RENORM)
IN_MODE(residuals, renorm, GP_BN_RENORM)
IN_MODE(norms_with_activations, renorm, GP_BN_RENORM)
IN_MODE(norms_without_their_biases, renorm, GP_BN_RENORM)

#endif
