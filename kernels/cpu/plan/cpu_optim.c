/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates over a plan's parameters. Formulas and their order of
 * operations are those of torch.optim (PyTorch 1.13): SGD with momentum,
 * Nesterov and weight decay; Adam and AdamW without amsgrad. Moments begin at
 * zero, which makes the first momentum buffer the gradient itself.
 * Tests: tests/unit/test_cpu_ops.c, tests/unit/test_optim_steps.c, tests/unit/test_cpu_undo.c,
 * tests/unit/test_decay.c
 */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "common/graph/decay.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/cpu_profile.h"
#include "kernels/loops/simd.h"

#define GRAIN 16

struct update {                        /* of one parameter */
	float *value, *first, *second; /* first, second: moments, NULL where not kept */
	const float *grad;
	int64_t n;
	const struct gp_optim *o;
	float lr, decay;
	float step_size, root_scale; /* Adam: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
};

GP_INLINE void sgd_range_body(const struct update *u, int64_t from, int64_t to)
{
	float *restrict value = u->value;
	const float *restrict grad = u->grad;
	const float decay = u->decay, lr = u->lr;
#pragma omp simd
	for (int64_t i = from; i < to; i++)
		value[i] -= lr * (grad[i] + decay * value[i]);
}
GP_CPU_CLONES(sgd_range, (const struct update *u, int64_t from, int64_t to), (u, from, to))

GP_INLINE void momentum_range_body(const struct update *u, int64_t from, int64_t to)
{
	float *restrict value = u->value, *restrict first = u->first;
	const float *restrict grad = u->grad;
	const float decay = u->decay, lr = u->lr, momentum = u->o->momentum;
	const float ahead = u->o->nesterov ? momentum : 0.0f, own = u->o->nesterov ? 1.0f : 0.0f;
#pragma omp simd
	for (int64_t i = from; i < to; i++) {
		float g = grad[i] + decay * value[i];
		float m = momentum * first[i] + g;
		first[i] = m;
		value[i] -= lr * (own != 0.0f ? g + ahead * m : m);
	}
}
GP_CPU_CLONES(momentum_range, (const struct update *u, int64_t from, int64_t to), (u, from, to))

GP_INLINE void adam_range_body(const struct update *u, int64_t from, int64_t to)
{
	float *restrict value = u->value, *restrict first = u->first, *restrict second = u->second;
	const float *restrict grad = u->grad;
	const bool decoupled = u->o->kind == GP_OPTIM_ADAMW;
	const float shrink = decoupled ? (float)(1.0 - (double)u->lr * (double)u->decay) : 1.0f,
		    l2 = decoupled ? 0.0f : u->decay;
	const float b1 = (float)u->o->beta1, b2 = (float)u->o->beta2, eps = u->o->eps;
	const float c1 = (float)(1.0 - u->o->beta1), c2 = (float)(1.0 - u->o->beta2);
	const float step_size = u->step_size, root_scale = u->root_scale;
#pragma omp simd
	for (int64_t i = from; i < to; i++) {
		float v = value[i] * shrink;
		float g = grad[i] + l2 * v;
		first[i] = b1 * first[i] + c1 * g;
		second[i] = b2 * second[i] + c2 * g * g;
		value[i] = v - step_size * first[i] / (sqrtf(second[i]) * root_scale + eps);
	}
}
GP_CPU_CLONES(adam_range, (const struct update *u, int64_t from, int64_t to), (u, from, to))

static void update_part(void *arg, int part, int parts)
{
	const struct update *u = arg;
	struct gp_cpu_range r = gp_cpu_share(u->n, GRAIN, part, parts);
	if (u->o->kind != GP_OPTIM_SGD)
		adam_range(u, r.from, r.to);
	else if (u->first)
		momentum_range(u, r.from, r.to);
	else
		sgd_range(u, r.from, r.to);
}

enum gp_status gp_cpu_dense_grad(struct cpu_plan *p, int index, const float **out, struct gp_err *err)
{
	const struct gp_param *q = &p->base.spec.graph->param[index];
	struct cpu_node *n = &p->node[q->node];
	*out = p->grads + p->param[index].grad_offset;
	if (q->role != GP_PARAM_WEIGHT || !n->op->grad_dense || n->plain_grad)
		return GP_OK;
	*out = (const float *)p->scratch;
	return n->op->grad_dense(p, n, (float *)p->scratch, err);
}

/* `grad` lies in the plan's own memory, as it is or as a dense copy. */
static void replace_grad(const struct cpu_plan *p, int index, const float *grad)
{
	struct gp_decay_rule rule;
	if (gp_decays_rule(p->base.spec.decays, p->base.spec.graph, index, p->optim_steps - 1, &rule))
		gp_decay_replace(&rule, (float *)grad);
}

static enum gp_status update_param(struct cpu_plan *p, int index, float lr, struct gp_err *err)
{
	const struct gp_param *q = &p->base.spec.graph->param[index];
	const struct gp_optim *o = &p->base.spec.optim;
	struct update u = {.value = p->values + p->param[index].value_offset, .n = (int64_t)q->count, .o = o, .lr = lr};
	u.decay = q->decay ? o->weight_decay : 0.0f;
	if (p->moment)
		u.first = p->moment + p->param[index].state_offset;
	if (o->kind != GP_OPTIM_SGD) {
		double t = (double)p->optim_steps;
		u.second = u.first + p->state_floats;
		u.step_size = (float)((double)lr / (1.0 - pow(o->beta1, t)));
		u.root_scale = (float)(1.0 / sqrt(1.0 - pow(o->beta2, t)));
	}
	GP_TRY(gp_cpu_dense_grad(p, index, &u.grad, err));
	replace_grad(p, index, u.grad);
	gp_cpu_parallel(gp_cpu_parts(p->threads, u.n), update_part, &u);
	return GP_OK;
}

enum gp_status gp_cpu_optim_step(struct gp_plan *plan, float lr, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	const struct gp_graph *g = plan->spec.graph;
	if (!plan->spec.train)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was made for evaluation only", g->name);
	uint64_t start = gp_cpu_profile_start(p);
	omp_set_num_threads(p->threads);
	if (!p->have_grads && p->grads)
		memset(p->grads, 0, p->memory.grads);
	p->optim_steps++;
	for (int i = 0; i < g->params; i++)
		if (g->param[i].trained && !g->param[i].follows)
			GP_TRY(update_param(p, i, lr, err));
	gp_cpu_bn_end_step(p);
	p->have_grads = p->undo_saved = false;
	p->packs_stale = true;
	gp_cpu_profile_other(p, CPU_PROFILE_UPDATE, start);
	return GP_OK;
}

/* --- what an optimizer remembers, in PyTorch's layouts ------------------------------------------------------------ */

int gp_cpu_optim_states(const struct gp_plan *plan)
{
	return plan->spec.train ? gp_optim_states(&plan->spec.optim) : 0;
}

static enum gp_status find_state(struct gp_plan *plan, int index, int which, float **out, struct gp_err *err)
{
	const struct cpu_plan *p = (const struct cpu_plan *)plan;
	const struct gp_graph *g = plan->spec.graph;
	if (index < 0 || index >= g->params || !g->param[index].trained || g->param[index].follows || which < 0 ||
	    which >= gp_cpu_optim_states(plan))
		GP_FAIL(err, GP_INTERNAL, "%s has no optimizer state %d of parameter %d", g->name, which, index);
	*out = p->moment + (uint64_t)which * p->state_floats + p->param[index].state_offset;
	return GP_OK;
}

enum gp_status gp_cpu_optim_get(struct gp_plan *plan, int index, int which, float *out, struct gp_err *err)
{
	float *state;
	GP_TRY(find_state(plan, index, which, &state, err));
	memcpy(out, state, plan->spec.graph->param[index].count * sizeof *out);
	return GP_OK;
}

enum gp_status gp_cpu_optim_set(struct gp_plan *plan, int index, int which, const float *in, struct gp_err *err)
{
	float *state;
	GP_TRY(find_state(plan, index, which, &state, err));
	memcpy(state, in, plan->spec.graph->param[index].count * sizeof *in);
	return GP_OK;
}

uint64_t gp_cpu_optim_count_get(const struct gp_plan *plan)
{
	return ((const struct cpu_plan *)plan)->optim_steps;
}

void gp_cpu_optim_count_set(struct gp_plan *plan, uint64_t updates)
{
	((struct cpu_plan *)plan)->optim_steps = updates;
}
