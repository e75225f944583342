/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans whose maps lie encoded (kernels/plan/plan_store.h): coding them when the
 * walk says so, in blocks that the compute threads share. See cpu_plan.h.
 * Test: tests/unit/test_plan_store.c
 */
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/codec_store.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/plan/plan_store.h"

#define NONE GP_WALK_NONE

uint64_t gp_cpu_store_bytes(const struct cpu_plan *p)
{
	if (!gp_walk_stores(&p->walk))
		return 0;
	return (uint64_t)p->threads * gp_store_coder_bytes(p->base.spec.maps);
}

enum gp_status gp_cpu_store_new(struct cpu_plan *p, struct gp_err *err)
{
	void *list;
	if (!gp_walk_stores(&p->walk))
		return GP_OK;
	GP_TRY(gp_alloc_array(&list, (size_t)p->threads, sizeof *p->coder, err));
	p->coder = list;
	for (int i = 0; i < p->threads; i++)
		GP_TRY(gp_store_coder_new(p->base.spec.maps, &p->coder[i], err));
	return GP_OK;
}

void gp_cpu_store_free(struct cpu_plan *p)
{
	for (int i = 0; p->coder && i < p->threads; i++)
		gp_store_coder_free(p->coder[i]);
	gp_free(p->coder);
	p->coder = NULL;
}

enum way { ENCODE, DECODE, ROUND_TRIP };

struct job {
	struct gp_store_coder *const *coder;
	enum way way;
	float *x;
	uint8_t *coded;
	uint64_t floats;
};

static void code_part(void *arg, int part, int parts)
{
	const struct job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share((int64_t)gp_store_blocks(job->floats), 1, part, parts);
	struct gp_store_coder *c = job->coder[part];
	for (int64_t block = r.from; block < r.to; block++) {
		if (job->way == ENCODE)
			gp_store_encode(c, job->x, job->floats, (uint64_t)block, job->coded);
		else if (job->way == DECODE)
			gp_store_decode(c, job->coded, job->floats, (uint64_t)block, job->x);
		else
			gp_store_round_trip(c, job->x, job->floats, (uint64_t)block);
	}
}

static void code(struct cpu_plan *p, enum way way, float *x, uint8_t *coded, uint64_t floats)
{
	struct job job = {p->coder, way, x, coded, floats};
	gp_cpu_parallel(gp_cpu_parts(p->threads, (int64_t)floats), code_part, &job);
}

static void code_piece(struct cpu_plan *p, int slot, enum way way, const struct gp_stored *s)
{
	const uint64_t floats = (uint64_t)gp_walk_stored_floats(&p->walk, s);
	const int plain = way == ENCODE ? s->buf : p->walk.buf[s->buf].again;
	float *x = gp_cpu_buf(p, slot, plain);
	uint8_t *coded = gp_cpu_buf(p, slot, s->coded);
	uint8_t *rest = coded + p->walk.buf[s->coded].bytes - s->rest;
	code(p, way, x, coded, floats);
	if (s->rest > 0)
		memcpy(way == ENCODE ? (void *)rest : (void *)(x + floats),
		       way == ENCODE ? (void *)(x + floats) : (void *)rest, s->rest);
}

void gp_cpu_store_after(struct cpu_plan *p, int slot, int node, int *at)
{
	const struct gp_walk *w = &p->walk;
	for (; *at < w->stored && w->encodes[*at].after <= node; ++*at)
		if (w->encodes[*at].coded != NONE)
			code_piece(p, slot, ENCODE, &w->encodes[*at]);
}

void gp_cpu_store_before(struct cpu_plan *p, int slot, int node, int *at)
{
	const struct gp_walk *w = &p->walk;
	for (; *at < w->stored && w->decodes[*at].before >= node; ++*at)
		if (w->decodes[*at].coded != NONE)
			code_piece(p, slot, DECODE, &w->decodes[*at]);
}

void gp_cpu_store_edges(struct cpu_plan *p, int slot)
{
	const struct gp_walk *w = &p->walk;
	for (int i = 0; i < w->stored; i++)
		if (w->encodes[i].coded == NONE)
			code(p, ROUND_TRIP, gp_cpu_buf(p, slot, w->encodes[i].buf), NULL,
			     (uint64_t)gp_walk_stored_floats(w, &w->encodes[i]));
}
