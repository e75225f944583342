/* SPDX-License-Identifier: Apache-2.0
 *
 * Tied weights (device.h: tie_grads, tie_values) on the GPU. The
 * optimizer walks over all trained parameters at once, the follower too, whose
 * values are then replaced. Test: tests/unit/test_tie.c
 */
#include "kernels/cuda/ops/k_elementwise.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"

/* Both lie as PyTorch has them: tables and matrices do. Two plans have streams of their own. */
static enum gp_status begin(struct cuda_plan *p, int lead, struct cuda_plan *q, int follower, struct gp_err *err)
{
	if (!gp_cuda_is_plain(p, lead) || !gp_cuda_is_plain(q, follower))
		GP_FAIL(err, GP_INTERNAL, "%s and %s lie in different orders", p->base.spec.graph->param[lead].name,
			q->base.spec.graph->param[follower].name);
	gp_cuda_behind_all(q);
	return p == q ? GP_OK : gp_cuda_wait(q, err);
}

enum gp_status gp_cuda_tie_grads(struct gp_plan *plan, int lead, struct gp_plan *other, int follower,
				 struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan, *q = (struct cuda_plan *)other;
	GP_TRY(begin(p, lead, q, follower, err));
	float *const to = p->grads + p->param[lead].offset;
	gpk_add(gp_cuda_behind_all(p), GP_RT_F32, to, to, q->grads + q->param[follower].offset,
		(int64_t)plan->spec.graph->param[lead].count);
	return gp_cuda_wait(p, err);
}

enum gp_status gp_cuda_tie_values(struct gp_plan *plan, int lead, struct gp_plan *other, int follower,
				  struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan, *q = (struct cuda_plan *)other;
	GP_TRY(begin(p, lead, q, follower, err));
	gp_rt_copy(gp_cuda_behind_all(p), q->values + q->param[follower].offset, p->values + p->param[lead].offset,
		   plan->spec.graph->param[lead].count * sizeof(float));
	q->packs_stale = q->narrow_stale = true;
	return gp_cuda_wait(p, err);
}
