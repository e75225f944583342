/* SPDX-License-Identifier: Apache-2.0
 *
 * Which activations keep a mask of bits in place of a map: see plan_masks.h and,
 * for those behind a frozen batch norm, cpu_plan.h. Test: tests/unit/test_plan_masks.c
 */
#include "kernels/cpu/math/saved_bits.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/plan/plan_masks.h"

bool gp_cpu_bn_may_mask(const struct cpu_plan *p, const struct cpu_node *n, const struct cpu_node *reader)
{
	const struct cpu_node *maker = gp_cpu_input(p, n, 0);
	if (n->act == CPU_ACT_NONE || n->base.trains || !n->base.want_dx || p->base.spec.recompute)
		return false;
	if (maker->base.absent || !gp_walk_same_part(&p->walk, &maker->base, &n->base))
		return false;
	return gp_graph_readers(p->base.spec.graph, n->base.in[0]) == 1 && !(reader && reader->base.trains);
}

void gp_cpu_choose_masks(struct cpu_plan *p)
{
	gp_walk_find_kept(&p->walk);
	for (int i = p->base.spec.graph->inputs; i < p->base.spec.graph->nodes; i++) {
		struct cpu_node *n = &p->node[i];
		const bool alone = n->op == &gp_cpu_op_relu || n->op == &gp_cpu_op_relu6;
		if (!alone || !gp_walk_wants_mask(&p->walk, &n->base))
			continue;
		n->masks = true;
		n->base.saves_out = 0;
		n->base.saved_bytes = gp_mask_bytes(gp_cpu_elements(p, n));
	}
}
