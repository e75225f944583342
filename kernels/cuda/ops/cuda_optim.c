/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates on the GPU: one launch over all parameters, with the
 * formulas and the order of operations of cpu_optim.c (torch.optim, PyTorch
 * 1.13). Test: tests/unit/test_cuda_train.c
 */
#include <math.h>

#include "common/graph/decay.h"
#include "kernels/cuda/ops/k_optim.h"
#include "kernels/cuda/plan/cuda_code.h"
#include "kernels/cuda/plan/cuda_moments.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/cuda/plan/cuda_profile.h"

static void describe_adam(struct gpk_update *u, const struct cuda_plan *p, float lr)
{
	const struct gp_optim *o = &p->base.spec.optim;
	const double t = (double)p->optim_steps;
	u->kind = GPK_ADAM;
	u->second = u->first ? u->first + p->trained_floats : NULL;
	u->b1 = (float)o->beta1;
	u->b2 = (float)o->beta2;
	u->c1 = (float)(1.0 - o->beta1);
	u->c2 = (float)(1.0 - o->beta2);
	u->eps = o->eps;
	u->step_size = (float)((double)lr / (1.0 - pow(o->beta1, t)));
	u->root_scale = (float)(1.0 / sqrt(1.0 - pow(o->beta2, t)));
	if (o->kind == GP_OPTIM_ADAMW) {
		u->shrink = (float)(1.0 - (double)lr * (double)o->weight_decay);
		u->decay = 0.0f;
	}
}

static struct gpk_update describe(const struct cuda_plan *p, float lr)
{
	const struct gp_optim *o = &p->base.spec.optim;
	struct gpk_update u = {
		.kind = gp_cuda_optim_states(&p->base) > 0 ? GPK_MOMENTUM : GPK_SGD,
		.value = p->values,
		.grad = p->grads,
		.first = p->moment,
		.narrow = gp_cuda_codec(p, GP_STRUCT_WEIGHTS) ? NULL : p->narrow,
		.n = (int64_t)p->trained_floats,
		.decayed = (int64_t)p->decayed_floats,
		.lr = lr,
		.decay = o->weight_decay,
		.shrink = 1.0f,
		.momentum = o->momentum,
		.nesterov = o->nesterov,
	};
	if (o->kind != GP_OPTIM_SGD)
		describe_adam(&u, p, lr);
	return u;
}

/* Weights of linear layers lie as PyTorch has them. */
static void replace_grads(const struct cuda_plan *p, struct gp_rt_stream *stream)
{
	const struct gp_graph *g = p->base.spec.graph;
	struct gp_decay_rule rule;
	for (int i = 0; p->base.spec.decays && i < g->params; i++) {
		if (!gp_decays_rule(p->base.spec.decays, g, i, p->optim_steps - 1, &rule))
			continue;
		const struct gpk_signs r = {.grad = p->grads + p->param[i].offset,
					    .rows = rule.rows,
					    .columns = rule.columns,
					    .first_row = rule.first_row,
					    .first_column = rule.first_column,
					    .l1 = rule.l1};
		gpk_replace_by_signs(stream, &r);
	}
}

enum gp_status gp_cuda_queue_optim_step(struct gp_plan *plan, float lr, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	GP_TRY(gp_cuda_check_training(plan, err));
	const uint64_t start = gp_cuda_profile_clock(p);
	p->optim_steps++;
	const struct gpk_update u = describe(p, lr);
	struct gp_rt_stream *const stream = gp_cuda_behind_all(p);
	gp_cuda_grads_code(p);
	replace_grads(p, stream);
	if (p->state)
		gp_cuda_moments_update(p, &u);
	else
		gpk_optim_step(stream, &u);
	gp_cuda_weights_updated(p);
	gp_cuda_bn_end_step(p);
	gp_rt_event_record(p->update_done, p->stream);
	p->packs_stale = true;
	p->narrow_stale = p->narrow_stale || !u.narrow; /* else they were made with the update */
	p->undo_saved = p->grads_coded = false;
	if (!p->profile)
		return GP_OK;
	GP_TRY(gp_rt_event_wait(p->update_done, err));
	gp_cuda_profile_other(p, CUDA_PROFILE_UPDATE, start);
	return GP_OK;
}

enum gp_status gp_cuda_optim_step(struct gp_plan *plan, float lr, struct gp_err *err)
{
	GP_TRY(gp_cuda_queue_optim_step(plan, lr, err));
	return gp_cuda_wait_for(plan, GP_SLOT_UPDATE, err);
}

int gp_cuda_optim_states(const struct gp_plan *plan)
{
	return plan->spec.train ? gp_optim_states(&plan->spec.optim) : 0;
}

uint64_t gp_cuda_optim_count_get(const struct gp_plan *plan)
{
	return ((const struct cuda_plan *)plan)->optim_steps;
}

void gp_cuda_optim_count_set(struct gp_plan *plan, uint64_t updates)
{
	((struct cuda_plan *)plan)->optim_steps = updates;
}
