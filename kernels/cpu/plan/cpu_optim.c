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

#include "common/codec/codec_store.h"
#include "common/graph/decay.h"
#include "kernels/cpu/plan/cpu_code.h"
#include "kernels/cpu/plan/cpu_moments.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_profile.h"
#include "kernels/loops/simd.h"

#define GRAIN 16

struct update {                        /* of one parameter, or one block of it */
	float *value, *first, *second; /* first, second: moments, NULL where not kept */
	const float *grad;
	int64_t n;
	const struct gp_optim *o;
	const struct cpu_plan *plan;
	int index;
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

static void update_range(const struct update *u, int64_t from, int64_t to)
{
	if (u->o->kind != GP_OPTIM_SGD)
		adam_range(u, from, to);
	else if (u->first)
		momentum_range(u, from, to);
	else
		sgd_range(u, from, to);
}

static void update_part(void *arg, int part, int parts)
{
	const struct update *u = arg;
	struct gp_cpu_range r = gp_cpu_share(u->n, GRAIN, part, parts);
	update_range(u, r.from, r.to);
}

/* The same where moments lie encoded. */
static void update_blocks(void *arg, int part, int parts)
{
	const struct update *u = arg;
	const struct gp_cpu_range r = gp_cpu_share((int64_t)gp_store_blocks((uint64_t)u->n), 1, part, parts);
	for (int64_t block = r.from; block < r.to; block++) {
		const int64_t at = block * GP_STORE_BLOCK, left = u->n - at;
		struct update v = *u;
		float *moment[2] = {NULL};
		gp_cpu_moments_load(u->plan, u->index, block, part, moment);
		v.value += at;
		v.grad += at;
		v.first = moment[0];
		v.second = moment[1];
		update_range(&v, 0, left < GP_STORE_BLOCK ? left : GP_STORE_BLOCK);
		gp_cpu_moments_store(u->plan, u->index, block, part);
	}
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
	const bool coded = gp_cpu_moments_coded(p);
	struct update u = {.value = p->values + p->param[index].value_offset,
			   .n = (int64_t)q->count,
			   .o = o,
			   .plan = p,
			   .index = index,
			   .lr = lr};
	u.decay = q->decay ? o->weight_decay : 0.0f;
	if (p->moment && !coded)
		u.first = gp_cpu_moment(p, index, 0);
	if (o->kind != GP_OPTIM_SGD) {
		double t = (double)p->optim_steps;
		u.second = coded ? NULL : gp_cpu_moment(p, index, 1);
		u.step_size = (float)((double)lr / (1.0 - pow(o->beta1, t)));
		u.root_scale = (float)(1.0 / sqrt(1.0 - pow(o->beta2, t)));
	}
	GP_TRY(gp_cpu_final_grad(p, index, &u.grad, err));
	replace_grad(p, index, u.grad);
	gp_cpu_parallel(gp_cpu_parts(p->threads, u.n), coded ? update_blocks : update_part, &u);
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
	gp_cpu_weights_updated(p);
	gp_cpu_bn_end_step(p);
	gp_cpu_forget_clipping(p);
	p->have_grads = p->undo_saved = false;
	p->packs_stale = true;
	gp_cpu_profile_other(p, CPU_PROFILE_UPDATE, start);
	return GP_OK;
}
