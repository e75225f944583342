/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking a step back that was begun and will be begun again. What a training
 * forward changes for good is the running statistics of batch norms that move
 * with every chunk. They are kept when a step's first forward begins; of
 * gradients, and of statistics that are merged until the step ends, it is enough
 * to know that there are none.
 * Test: tests/unit/test_cpu_undo.c
 */
#include <string.h>

#include "common/graph/ops/op_batch_norm.h"
#include "kernels/cpu/plan/cpu_plan.h"

static bool moves(const struct gp_graph *g, const struct gp_param *q)
{
	const bool statistic = q->role == GP_PARAM_RUNNING_MEAN || q->role == GP_PARAM_RUNNING_VAR;
	return statistic && gp_bn_moves(g, &g->node[q->node]) && !gp_bn_is_deferred(&g->node[q->node]);
}

uint64_t gp_cpu_undo_floats(const struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	uint64_t sum = 0;
	for (int i = 0; p->base.spec.undo && p->base.spec.train && i < g->params; i++)
		sum += moves(g, &g->param[i]) ? g->param[i].count : 0;
	return sum;
}

static void copy_statistics(struct cpu_plan *p, bool back)
{
	const struct gp_graph *g = p->base.spec.graph;
	float *kept = p->undo;
	for (int i = 0; i < g->params; i++) {
		if (!moves(g, &g->param[i]))
			continue;
		float *value = p->values + p->param[i].value_offset;
		memcpy(back ? value : kept, back ? kept : value, g->param[i].count * sizeof *value);
		kept += g->param[i].count;
	}
}

void gp_cpu_undo_save(struct cpu_plan *p)
{
	if (p->undo && !p->undo_saved)
		copy_statistics(p, false);
	p->undo_saved = true;
}

void gp_cpu_step_undo(struct gp_plan *plan)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(plan->spec.undo || !plan->spec.train);
	if (p->undo && p->undo_saved)
		copy_statistics(p, true);
	if (p->calibrated == 0)
		gp_cpu_bn_forget(p);
	gp_cpu_forget_clipping(p);
	p->undo_saved = p->have_grads = false;
	for (int s = 0; s < plan->spec.slots; s++)
		p->slot[s].forwarded = false;
}
