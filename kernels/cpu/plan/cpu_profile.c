/* SPDX-License-Identifier: Apache-2.0
 *
 * A CPU plan's profile: times as measured, work as the graph says it. See
 * cpu_profile.h; printing is common/graph/plan_profile.c.
 * Test: tests/unit/test_cpu_profile.c
 */
#include "kernels/cpu/plan/cpu_profile.h"

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/plan/plan_work.h"

struct cpu_profile {
	struct gp_plan_profile base;
	struct gp_node_profile node[];
};

enum gp_status gp_cpu_profile(struct gp_plan *plan, const struct gp_plan_profile **out, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	size_t nodes = (size_t)plan->spec.graph->nodes;
	struct cpu_profile *profile = gp_calloc(1, sizeof *profile + nodes * sizeof profile->node[0]);
	if (!profile)
		GP_FAIL(err, GP_NOMEM, "out of memory for the profile of %s", plan->spec.graph->name);
	profile->base.node = profile->node;
	gp_cpu_profile_free(p);
	p->profile = profile;
	*out = &profile->base;
	return GP_OK;
}

void gp_cpu_profile_free(struct cpu_plan *p)
{
	gp_free(p->profile);
	p->profile = NULL;
}

uint64_t gp_cpu_profile_start(const struct cpu_plan *p)
{
	return p->profile ? gp_now_ns() : 0;
}

static void add_call(struct gp_node_profile *row, int way, uint64_t start)
{
	uint64_t ns = gp_now_ns() - start;
	if (row->calls[way]++ == 0 || ns < row->best_ns[way])
		row->best_ns[way] = ns;
	row->ns[way] += ns;
}

void gp_cpu_profile_node(struct cpu_plan *p, const struct cpu_node *n, int way, uint64_t start)
{
	if (!start || !p->profile)
		return;
	struct gp_node_profile *row = &p->profile->node[n->base.index];
	add_call(row, way, start);
	row->bytes[way] += gp_plan_work_bytes(&p->walk, &n->base, way == CPU_PROFILE_BACKWARD);
	row->flops[way] += gp_plan_work_flops(&p->walk, &n->base, way == CPU_PROFILE_BACKWARD);
}

void gp_cpu_profile_other(struct cpu_plan *p, enum cpu_profile_other which, uint64_t start)
{
	if (!start || !p->profile)
		return;
	struct gp_plan_profile *base = &p->profile->base;
	struct gp_node_profile *const rows[] = {&base->loss, &base->update, &base->pack};
	const struct gp_plan_memory *m = &p->memory;
	const uint64_t bytes[] = {0, 2 * (m->params - p->pack_bytes) + m->grads + 2 * m->optim, m->params};
	add_call(rows[which], 0, start);
	rows[which]->bytes[0] += bytes[which];
}
