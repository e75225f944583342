/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking a step back on the GPU. What a training forward changes for good is
 * running statistics of batch norms that move with every chunk, which lie behind
 * what is trained. They are kept when a step's first forward begins; gradients
 * become zero again, and statistics that were merged are forgotten. Test: tests/unit/test_cuda_plan.c
 */
#include "kernels/cuda/plan/cuda_plan_impl.h"

static uint64_t moved_bytes(const struct cuda_plan *p)
{
	return (p->moved_floats - p->trained_floats) * sizeof(float);
}

uint64_t gp_cuda_undo_bytes(const struct cuda_plan *p)
{
	return p->base.spec.undo && p->base.spec.train ? gp_cuda_align(moved_bytes(p)) : 0;
}

void gp_cuda_undo_save(struct cuda_plan *p)
{
	if (p->undo && !p->undo_saved)
		gp_rt_copy(p->stream, p->undo, p->values + p->trained_floats, moved_bytes(p));
	p->undo_saved = true;
}

void gp_cuda_bn_forget(struct cuda_plan *p)
{
	if (p->merged)
		gp_rt_fill(p->stream, p->merged, 0, p->merged_doubles * sizeof(double));
}

/* Only queues: the next forward comes after, and its backward after that. */
void gp_cuda_step_undo(struct gp_plan *plan)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	gp_require(plan->spec.undo || !plan->spec.train);
	struct gp_rt_stream *s = gp_cuda_behind_all(p);
	if (p->undo && p->undo_saved)
		gp_rt_copy(s, p->values + p->trained_floats, p->undo, moved_bytes(p));
	if (p->grads)
		gp_rt_fill(s, p->grads, 0, p->trained_floats * sizeof(float));
	if (p->calibrated == 0)
		gp_cuda_bn_forget(p);
	p->undo_saved = p->grads_coded = false;
	for (int i = 0; i < plan->spec.slots; i++)
		p->slot[i].forwarded = false;
}
