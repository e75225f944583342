/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans whose maps lie encoded (kernels/plan/plan_store.h): coding them when the
 * walk says so. See cpu_plan.h, cpu_code.h.
 * Test: tests/unit/test_plan_store.c
 */
#include <string.h>

#include "kernels/cpu/plan/cpu_code.h"
#include "kernels/plan/plan_store.h"

#define NONE GP_WALK_NONE

static void code_piece(struct cpu_plan *p, int slot, enum cpu_way way, const struct gp_stored *s)
{
	const uint64_t floats = (uint64_t)gp_walk_stored_floats(&p->walk, s);
	const int plain = way == CPU_ENCODE ? s->buf : p->walk.buf[s->buf].again;
	float *x = gp_cpu_buf(p, slot, plain);
	uint8_t *coded = gp_cpu_buf(p, slot, s->coded);
	uint8_t *rest = coded + p->walk.buf[s->coded].bytes - s->rest;
	gp_cpu_code(p, CPU_CODER_MAPS, way, x, coded, floats);
	if (s->rest > 0)
		memcpy(way == CPU_ENCODE ? (void *)rest : (void *)(x + floats),
		       way == CPU_ENCODE ? (void *)(x + floats) : (void *)rest, s->rest);
}

void gp_cpu_store_after(struct cpu_plan *p, int slot, int node, int *at)
{
	const struct gp_walk *w = &p->walk;
	for (; *at < w->stored && w->encodes[*at].after <= node; ++*at)
		if (w->encodes[*at].coded != NONE)
			code_piece(p, slot, CPU_ENCODE, &w->encodes[*at]);
}

void gp_cpu_store_before(struct cpu_plan *p, int slot, int node, int *at)
{
	const struct gp_walk *w = &p->walk;
	for (; *at < w->stored && w->decodes[*at].before >= node; ++*at)
		if (w->decodes[*at].coded != NONE)
			code_piece(p, slot, CPU_DECODE, &w->decodes[*at]);
}

void gp_cpu_store_edges(struct cpu_plan *p, int slot)
{
	const struct gp_walk *w = &p->walk;
	for (int i = 0; i < w->stored; i++)
		if (w->encodes[i].coded == NONE)
			gp_cpu_code(p, CPU_CODER_MAPS, CPU_ROUND_TRIP, gp_cpu_buf(p, slot, w->encodes[i].buf), NULL,
				    (uint64_t)gp_walk_stored_floats(w, &w->encodes[i]));
}
