/* SPDX-License-Identifier: Apache-2.0
 *
 * What an optimizer remembers, in PyTorch's layouts: as floats, or encoded (GP_STRUCT_STATE, moment_store.h) and decoded in
 * blocks while an update runs, so that no array is ever decoded as a whole.
 *
 * Adam's second moment is encoded as its square root, which has half the range of exponents: a codec with as many steps for
 * both moments then represents the divisor of the update as well as its dividend. Codecs round small values, some of them to
 * 0; a first moment that survives where the second one does not would be divided by almost nothing. Exact moments never do
 * that: with b1^2 < b2, Cauchy and Schwarz give
 *   |first| <= (1 - b1) / sqrt((1 - b2) (1 - b1^2 / b2)) sqrt(second)
 * so decoded moments are held to that: a root below 0 becomes 0, and the first moment is limited by the root. An update of
 * moments within this limit gives moments within it. So no element moves further than Adam can move it, and one whose root is
 * 0 moves by its new gradient alone. Other betas are refused (kernels/plan/plan_check.c).
 * Tests: tests/unit/test_plan_coded.c, tests/unit/test_cpu_undo.c
 */
#include "kernels/cpu/plan/cpu_moments.h"

#include <math.h>
#include <string.h>

#include "common/codec/moment_store.h"
#include "kernels/cpu/plan/cpu_code.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/loops/simd.h"

/* --- layout ------------------------------------------------------------------------------------------------------- */

int gp_cpu_optim_states(const struct gp_plan *plan)
{
	return plan->spec.train ? gp_optim_states(&plan->spec.optim) : 0;
}

static const struct gp_codec_spec *codec_of(const struct cpu_plan *p)
{
	return gp_cpu_optim_states(&p->base) > 0 ? gp_cpu_codec(p, GP_STRUCT_STATE) : NULL;
}

bool gp_cpu_moments_coded(const struct cpu_plan *p)
{
	return codec_of(p) != NULL;
}

uint64_t gp_cpu_moment_bytes(const struct cpu_plan *p, int index)
{
	const struct gp_param *q = &p->base.spec.graph->param[index];
	return gp_cpu_align(codec_of(p) ? gp_moment_bytes(codec_of(p), q->count) : q->count * sizeof(float));
}

static bool has_moments(const struct gp_graph *g, int index)
{
	return g->param[index].trained && !g->param[index].follows;
}

/* Floats of one block, or of the largest parameter. */
static uint64_t room_floats(const struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	uint64_t most = 0;
	for (int i = 0; i < g->params; i++)
		if (has_moments(g, i) && g->param[i].count > most)
			most = g->param[i].count;
	return most < GP_STORE_BLOCK ? gp_cpu_align(most * sizeof(float)) / sizeof(float) : GP_STORE_BLOCK;
}

uint64_t gp_cpu_moments_room(const struct cpu_plan *p)
{
	if (!codec_of(p))
		return 0;
	return (uint64_t)p->threads * (uint64_t)gp_cpu_optim_states(&p->base) * room_floats(p) * sizeof(float);
}

/* Where one block of an array is decoded; behind the room to unpack gradients. */
static float *room_of(const struct cpu_plan *p, int part, int which)
{
	const uint64_t number = (uint64_t)(part * gp_cpu_optim_states(&p->base) + which);
	return (float *)(void *)(p->scratch + p->unpack_bytes) + number * room_floats(p);
}

static char *moment_at(const struct cpu_plan *p, int index, int which)
{
	return p->moment + (uint64_t)which * p->state_bytes + p->param[index].state_offset;
}

float *gp_cpu_moment(const struct cpu_plan *p, int index, int which)
{
	return (float *)(void *)moment_at(p, index, which);
}

/* --- a block ------------------------------------------------------------------------------------------------------ */

static int64_t floats_of(const struct cpu_plan *p, int index, int64_t block)
{
	const int64_t left = (int64_t)p->base.spec.graph->param[index].count - block * GP_STORE_BLOCK;
	return left < GP_STORE_BLOCK ? left : GP_STORE_BLOCK;
}

static uint8_t *code_of(const struct cpu_plan *p, int index, int which)
{
	return (uint8_t *)moment_at(p, index, which);
}

static uint64_t count_of(const struct cpu_plan *p, int index)
{
	return p->base.spec.graph->param[index].count;
}

static float first_per_root(const struct gp_optim *o)
{
	const double b1 = o->beta1, b2 = o->beta2;
	return (float)((1.0 - b1) / sqrt((1.0 - b2) * (1.0 - b1 * b1 / b2)));
}

/* From first moments and the roots of second ones, as they were decoded. */
GP_INLINE void keep_within_body(float *restrict first, float *restrict second, int64_t n, float most)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		const float root = second[i] > 0.0f ? second[i] : 0.0f, limit = most * root;
		const float m = first[i] > limit ? limit : first[i];
		first[i] = m < -limit ? -limit : m;
		second[i] = root * root;
	}
}
GP_CPU_CLONES(keep_within, (float *first, float *second, int64_t n, float most), (first, second, n, most))

/* Both may be the same. */
GP_INLINE void take_roots_body(float *to, const float *from, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		to[i] = sqrtf(from[i]);
}
GP_CPU_CLONES(take_roots, (float *to, const float *from, int64_t n), (to, from, n))

void gp_cpu_moments_load(const struct cpu_plan *p, int index, int64_t block, int part, float *moment[2])
{
	struct gp_store_coder *c = p->coder[GP_STRUCT_STATE][part];
	const int states = gp_cpu_optim_states(&p->base);
	for (int which = 0; which < states; which++) {
		moment[which] = room_of(p, part, which);
		gp_moment_decode(c, code_of(p, index, which), count_of(p, index), (uint64_t)block, moment[which]);
	}
	if (states > 1)
		keep_within(moment[0], moment[1], floats_of(p, index, block), first_per_root(&p->base.spec.optim));
}

static void store(const struct cpu_plan *p, int index, int which, int64_t block, int part, const float *x)
{
	struct gp_store_coder *c = p->coder[GP_STRUCT_STATE][part];
	float *room = room_of(p, part, which);
	if (which == 1) {
		take_roots(room, x, floats_of(p, index, block));
		x = room;
	}
	const struct gp_moment_draw draw = {gp_plan_moment_array(&p->base.spec, index, which), p->optim_steps};
	gp_moment_encode(c, &draw, x, count_of(p, index), (uint64_t)block, code_of(p, index, which));
}

void gp_cpu_moments_store(const struct cpu_plan *p, int index, int64_t block, int part)
{
	for (int which = 0; which < gp_cpu_optim_states(&p->base); which++)
		store(p, index, which, block, part, room_of(p, part, which));
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

void gp_cpu_moments_clear(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	if (!p->moment)
		return;
	memset(p->moment, 0, p->memory.optim);
	if (!codec_of(p))
		return;
	memset(room_of(p, 0, 0), 0, gp_cpu_moments_room(p));
	for (int i = 0; i < g->params; i++)
		for (uint64_t block = 0; has_moments(g, i) && block < gp_store_blocks(g->param[i].count); block++)
			gp_cpu_moments_store(p, i, (int64_t)block, 0);
}

static enum gp_status check(const struct gp_plan *plan, int index, int which, struct gp_err *err)
{
	const struct gp_graph *g = plan->spec.graph;
	if (index < 0 || index >= g->params || !has_moments(g, index) || which < 0 ||
	    which >= gp_cpu_optim_states(plan))
		GP_FAIL(err, GP_INTERNAL, "%s has no optimizer state %d of parameter %d", g->name, which, index);
	return GP_OK;
}

enum gp_status gp_cpu_optim_get(struct gp_plan *plan, int index, int which, float *out, struct gp_err *err)
{
	const struct cpu_plan *p = (const struct cpu_plan *)plan;
	GP_TRY(check(plan, index, which, err));
	const uint64_t count = count_of(p, index);
	if (!codec_of(p))
		memcpy(out, gp_cpu_moment(p, index, which), count * sizeof *out);
	for (uint64_t block = 0; codec_of(p) && block < gp_store_blocks(count); block++) {
		float *moment[2];
		gp_cpu_moments_load(p, index, (int64_t)block, 0, moment);
		memcpy(out + block * GP_STORE_BLOCK, moment[which],
		       (size_t)floats_of(p, index, (int64_t)block) * sizeof *out);
	}
	return GP_OK;
}

enum gp_status gp_cpu_optim_set(struct gp_plan *plan, int index, int which, const float *in, struct gp_err *err)
{
	const struct cpu_plan *p = (const struct cpu_plan *)plan;
	GP_TRY(check(plan, index, which, err));
	const uint64_t count = count_of(p, index);
	if (!codec_of(p))
		memcpy(gp_cpu_moment(p, index, which), in, count * sizeof *in);
	for (uint64_t block = 0; codec_of(p) && block < gp_store_blocks(count); block++)
		store(p, index, which, (int64_t)block, 0, in + block * GP_STORE_BLOCK);
	return GP_OK;
}

uint64_t gp_cpu_optim_code_bytes(const struct gp_plan *plan, int index)
{
	const struct gp_codec_spec *codec = codec_of((const struct cpu_plan *)plan);
	return codec ? gp_moment_bytes(codec, plan->spec.graph->param[index].count) : 0;
}

enum gp_status gp_cpu_optim_code_get(struct gp_plan *plan, int index, int which, uint8_t *out, struct gp_err *err)
{
	GP_TRY(check(plan, index, which, err));
	memcpy(out, moment_at((const struct cpu_plan *)plan, index, which), gp_cpu_optim_code_bytes(plan, index));
	return GP_OK;
}

enum gp_status gp_cpu_optim_code_set(struct gp_plan *plan, int index, int which, const uint8_t *in, struct gp_err *err)
{
	const struct cpu_plan *p = (const struct cpu_plan *)plan;
	GP_TRY(check(plan, index, which, err));
	const struct gp_param *q = &plan->spec.graph->param[index];
	if (gp_moment_accept(p->coder[GP_STRUCT_STATE][0], in, q->count, err) != GP_OK)
		return gp_err_prefix(err, "optimizer state %d of %s", which, q->name);
	memcpy(moment_at(p, index, which), in, gp_cpu_optim_code_bytes(plan, index));
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
