/* SPDX-License-Identifier: Apache-2.0
 *
 * Which depthwise convolutions of a CUDA plan work for the batch norms on
 * their two sides, and these for them (struct cuda_node). Such a network is
 * mostly launches that each read and write everything once: what a neighbour
 * does as it reads or writes saves a launch and two passes over memory. The
 * bits are those of ops apart, so that it does not matter where a network is
 * cut. See k_depthwise.h. Test: tests/unit/test_cuda_depthwise_norm.c
 */
#include "kernels/cuda/plan/cuda_plan.h"

#include "common/graph/ops/op_conv.h"
#include "kernels/cuda/plan/cuda_code.h"

/* What makes the node's first input, if it reads nothing else and nothing else reads that; else NULL. */
static struct cuda_node *sole_maker(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct gp_graph *g = p->base.spec.graph;
	struct cuda_node *maker = &p->node[g->value[n->base.in[0]].node];
	if (n->base.inputs != 1 || maker->base.absent || maker->base.first_value != n->base.in[0])
		return NULL;
	if (!gp_walk_same_part(&p->walk, &maker->base, &n->base))
		return NULL;
	return gp_cuda_only_reader(p, maker) == n ? maker : NULL;
}

static bool is_batch_norm(const struct cuda_node *n)
{
	return n && !n->base.absent && n->op == &gp_cuda_op_batch_norm;
}

static bool hosts(const struct cuda_plan *p, const struct cuda_node *n, bool *chains)
{
	return n && gp_cuda_depthwise_hosts(p, n, chains);
}

/* What a chained convolution reads has to stay until the batch norm behind it: nothing runs between the two. */
static bool follows(const struct cuda_plan *p, const struct cuda_node *first, const struct cuda_node *second)
{
	for (int i = first->base.index + 1; i < second->base.index; i++)
		if (!p->node[i].base.absent)
			return false;
	return true;
}

static void apply_in(struct cuda_node *norm, struct cuda_node *conv)
{
	conv->before = norm;
	norm->conv = conv;
	norm->base.unwritten = true;
}

/* `n` and what is before it are of few rows. */
static bool chain(struct cuda_plan *p, struct cuda_node *n, struct cuda_node *conv)
{
	struct cuda_node *first = sole_maker(p, conv);
	if (!is_batch_norm(first) || first->base.inputs != 1 || first->fed_by || first->conv || !follows(p, conv, n))
		return false;
	apply_in(first, conv);
	conv->behind = n;
	n->fed_by = conv;
	conv->chained = true;
	conv->leaves_dx = first->base.trains;
	return true;
}

static void share_with_maker(struct cuda_plan *p, struct cuda_node *n)
{
	struct cuda_node *conv = n->base.inputs == 1 ? sole_maker(p, n) : NULL;
	bool chains;
	if (!hosts(p, conv, &chains) || gp_conv_attr(conv->base.g).bias)
		return;
	if (chains && chain(p, n, conv))
		return;
	if (gp_cuda_bn_is_small(p, n) || !gp_cuda_bn_takes_statistics(p, n))
		return;
	conv->behind = n;
	n->fed_by = conv;
}

static void share_with_reader(struct cuda_plan *p, struct cuda_node *n)
{
	struct cuda_node *conv = gp_cuda_only_reader(p, n);
	bool chains;
	if (n->base.inputs != 1 || gp_cuda_bn_is_small(p, n) || !hosts(p, conv, &chains) ||
	    !gp_walk_same_part(&p->walk, &n->base, &conv->base))
		return;
	apply_in(n, conv);
	conv->returns = n->base.trains;
}

void gp_cuda_share_batch_norms(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = g->inputs; i < g->nodes; i++)
		if (is_batch_norm(&p->node[i])) {
			share_with_maker(p, &p->node[i]);
			share_with_reader(p, &p->node[i]);
		}
}
