/* SPDX-License-Identifier: Apache-2.0
 *
 * Which activations keep a mask of bits in place of a map. See cpu_plan.h,
 * where it also says where a mask saves nothing. Test: tests/unit/test_plan_masks.c
 */
#include "kernels/cpu/math/saved_bits.h"
#include "kernels/cpu/plan/cpu_code.h"
#include "kernels/plan/plan_again.h"
#include "kernels/plan/plan_store.h"

/* Where maps lie encoded, or their gradients are coded, these have to be what they are in plans of the parts. */
bool gp_cpu_same_part(const struct cpu_plan *p, const struct cpu_node *before, const struct cpu_node *behind)
{
	const int *cut = p->base.spec.cuts;
	const bool coded = gp_walk_stores(&p->walk) || gp_cpu_codec(p, GP_STRUCT_GRAD_MAPS);
	for (int i = 0; coded && i < 2; i++)
		if (before->base.index < cut[i] && behind->base.index >= cut[i])
			return false;
	return true;
}

bool gp_cpu_bn_may_mask(const struct cpu_plan *p, const struct cpu_node *n, const struct cpu_node *reader)
{
	const struct cpu_node *maker = gp_cpu_input(p, n, 0);
	if (n->act == CPU_ACT_NONE || n->base.trains || !n->base.want_dx || p->base.spec.recompute)
		return false;
	if (maker->base.absent || !gp_cpu_same_part(p, maker, n))
		return false;
	return gp_graph_readers(p->base.spec.graph, n->base.in[0]) == 1 && !(reader && reader->base.trains);
}

static bool is_output(const struct cpu_plan *p, int value)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = 0; i < g->outputs; i++)
		if (g->output[i].value == value)
			return true;
	return false;
}

/* Whether `reader` keeps its k-th input, which `maker` has made, or leaves it where it is kept. */
static bool keeps(const struct cpu_plan *p, const struct cpu_node *maker, const struct cpu_node *reader, int k)
{
	const struct gp_walk_node *m = &maker->base, *r = &reader->base;
	if (r->need_grad && (r->saves_in >> k & 1))
		return true;
	if (gp_walk_recomputes(&p->walk) && r->block_needs_grad && !gp_walk_same_block(&p->walk, m->index, r->index))
		return true;
	return !gp_cpu_same_part(p, maker, reader);
}

/* Whether the value stays until backward although its maker does not read it there. */
static bool is_kept(const struct cpu_plan *p, const struct cpu_node *maker, int value)
{
	if (is_output(p, value))
		return true;
	for (int i = maker->base.index + 1; i < p->base.spec.graph->nodes; i++) {
		const struct cpu_node *n = &p->node[i];
		for (int k = 0; k < n->base.inputs; k++) {
			if (n->base.in[k] != value)
				continue;
			if (keeps(p, maker, n, k))
				return true;
			if ((n->base.view || n->base.unwritten) && is_kept(p, maker, n->base.first_value))
				return true;
		}
	}
	return false;
}

/* A codec may not give zeros back as zeros: the smaq of a map around whose mean zero lies makes all of them positive, or all
 * negative. So a decoded map cannot tell where the gradient passes. */
void gp_cpu_choose_masks(struct cpu_plan *p)
{
	const bool coded = gp_walk_stores(&p->walk);
	for (int i = p->base.spec.graph->inputs; i < p->base.spec.graph->nodes; i++) {
		struct cpu_node *n = &p->node[i];
		const bool alone = n->op == &gp_cpu_op_relu || n->op == &gp_cpu_op_relu6;
		if (!alone || n->base.view || !n->base.need_grad)
			continue;
		if (!coded && is_kept(p, n, n->base.first_value))
			continue;
		n->masks = true;
		n->base.saves_out = 0;
		n->base.saved_bytes = gp_mask_bytes(gp_cpu_elements(p, n));
	}
}
