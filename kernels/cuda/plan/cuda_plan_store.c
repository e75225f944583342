/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans whose maps lie encoded (kernels/plan/plan_store.h), on the GPU: a launch
 * for each when the walk says so, behind the forward of the last node that reads
 * it and ahead of the backward of the first. Nothing that an op keeps beside
 * values is a map here, so every stored piece is a value, of the plan's type. See
 * cuda_code.h. Test: tests/unit/test_plan_store.c
 */
#include "kernels/cuda/plan/cuda_code.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/plan/plan_store.h"

#define NONE GP_WALK_NONE

void gp_cuda_store_after(struct cuda_plan *p, int slot, int node, int *at)
{
	const struct gp_walk *w = &p->walk;
	for (; *at < w->stored && w->encodes[*at].after <= node; ++*at) {
		const struct gp_stored *s = &w->encodes[*at];
		if (s->coded != NONE)
			gpk_store_encode(p->stream, &p->store[CUDA_CODEC_MAPS], p->type, gp_cuda_buf(p, slot, s->buf),
					 gp_walk_stored_floats(w, s), gp_cuda_buf(p, slot, s->coded));
	}
}

void gp_cuda_store_before(struct cuda_plan *p, int slot, int node, int *at)
{
	const struct gp_walk *w = &p->walk;
	for (; *at < w->stored && w->decodes[*at].before >= node; ++*at) {
		const struct gp_stored *s = &w->decodes[*at];
		if (s->coded != NONE)
			gpk_store_decode(p->track[CUDA_BACKWARDS].stream, &p->store[CUDA_CODEC_MAPS], p->type,
					 gp_cuda_buf(p, slot, s->coded), gp_walk_stored_floats(w, s),
					 gp_cuda_buf(p, slot, w->buf[s->buf].again));
	}
}

/* IO buffers are fp32. */
void gp_cuda_store_edges(struct cuda_plan *p, int slot)
{
	const struct gp_walk *w = &p->walk;
	for (int i = 0; i < w->stored; i++)
		if (w->encodes[i].coded == NONE)
			gpk_store_round_trip(p->track[CUDA_BACKWARDS].stream, &p->store[CUDA_CODEC_MAPS], GP_RT_F32,
					     gp_cuda_buf(p, slot, w->encodes[i].buf),
					     gp_walk_stored_floats(w, &w->encodes[i]), p->coding);
}
