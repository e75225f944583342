/* SPDX-License-Identifier: Apache-2.0
 *
 * Tied weights (device.h: tie_grads, tie_values): one addition of
 * their gradients, and one copy of their values. Test: tests/unit/test_tie.c
 */
#include <omp.h>
#include <string.h>

#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/loops/simd.h"

#define GRAIN 16

struct pair {
	float *to;
	const float *from;
	int64_t n;
};

GP_INLINE void add_range_body(float *restrict to, const float *restrict from, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		to[i] += from[i];
}
GP_CPU_CLONES(add_range, (float *to, const float *from, int64_t n), (to, from, n))

static void add_part(void *arg, int part, int parts)
{
	const struct pair *a = arg;
	const struct gp_cpu_range r = gp_cpu_share(a->n, GRAIN, part, parts);
	add_range(a->to + r.from, a->from + r.from, r.to - r.from);
}

static void copy_part(void *arg, int part, int parts)
{
	const struct pair *a = arg;
	const struct gp_cpu_range r = gp_cpu_share(a->n, GRAIN, part, parts);
	memcpy(a->to + r.from, a->from + r.from, (size_t)(r.to - r.from) * sizeof *a->to);
}

/* The gradient of the one that leads, which lies as PyTorch has it; zeros where no chunk has added to it. */
static enum gp_status find_gradient(struct cpu_plan *p, int lead, float **out, struct gp_err *err)
{
	const struct gp_param *q = &p->base.spec.graph->param[lead];
	const struct cpu_node *n = &p->node[q->node];
	if (n->op->grad_dense && !n->plain_grad)
		GP_FAIL(err, GP_INTERNAL, "nothing can be added to the gradient of %s", q->name);
	if (!p->have_grads)
		memset(p->grads, 0, p->memory.grads);
	p->have_grads = true;
	*out = p->grads + p->param[lead].grad_offset;
	return GP_OK;
}

enum gp_status gp_cpu_tie_grads(struct gp_plan *plan, int lead, struct gp_plan *other, int follower, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan, *q = (struct cpu_plan *)other;
	struct pair a = {.n = (int64_t)plan->spec.graph->param[lead].count};
	if (!q->have_grads)
		return GP_OK;
	omp_set_num_threads(p->threads);
	GP_TRY(find_gradient(p, lead, &a.to, err));
	GP_TRY(gp_cpu_dense_grad(q, follower, &a.from, err));
	gp_cpu_parallel(gp_cpu_parts(p->threads, a.n), add_part, &a);
	return GP_OK;
}

enum gp_status gp_cpu_tie_values(struct gp_plan *plan, int lead, struct gp_plan *other, int follower,
				 struct gp_err *err)
{
	const struct cpu_plan *p = (const struct cpu_plan *)plan;
	struct cpu_plan *q = (struct cpu_plan *)other;
	struct pair a = {.to = q->values + q->param[follower].value_offset,
			 .from = p->values + p->param[lead].value_offset,
			 .n = (int64_t)plan->spec.graph->param[lead].count};
	(void)err;
	omp_set_num_threads(p->threads);
	gp_cpu_parallel(gp_cpu_parts(p->threads, a.n), copy_part, &a);
	q->packs_stale = true;
	return GP_OK;
}
