/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoded optimizer state on the GPU. See cuda_moments.h.
 * Tests: tests/unit/test_plan_coded.c, tests/unit/test_cpu_undo.c
 */
#include "kernels/cuda/plan/cuda_moments.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/moment_store.h"
#include "kernels/cuda/ops/k_optim.h"
#include "kernels/cuda/plan/cuda_code.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"

/* --- layout ------------------------------------------------------------------------------------------------------- */

const struct gp_codec_spec *gp_cuda_moments_codec(const struct cuda_plan *p)
{
	return gp_cuda_optim_states(&p->base) > 0 ? gp_cuda_codec(p, GP_STRUCT_STATE) : NULL;
}

static const struct gpk_store *store_of(const struct cuda_plan *p)
{
	return &p->store[GP_STRUCT_STATE];
}

static bool has_moments(const struct gp_graph *g, int index)
{
	return g->param[index].trained && !g->param[index].follows;
}

void gp_cuda_moments_place(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	const struct gp_codec_spec *codec = gp_cuda_moments_codec(p);
	for (int i = 0; codec && i < g->params; i++) {
		if (!has_moments(g, i))
			continue;
		p->param[i].state_offset = p->state_bytes;
		p->state_bytes += gp_cuda_align(gp_moment_bytes(codec, g->param[i].count));
	}
}

static int64_t floats_of(const struct gpk_piece *piece)
{
	const int64_t left = piece->count - piece->first;
	return left < GP_STORE_BLOCK ? left : GP_STORE_BLOCK;
}

/* Bytes of a room's places are a multiple of those that the device allocates. */
static int64_t room_floats_of(const struct gpk_piece *piece)
{
	return (int64_t)(gp_cuda_align((uint64_t)floats_of(piece) * sizeof(float)) / sizeof(float));
}

/* As many as the room takes follow each other; one that begins it anew is at 0. */
void gp_cuda_moments_rooms(const struct cuda_plan *p, struct gpk_piece *table)
{
	int64_t at = 0;
	for (int i = 0; i < p->own_pieces; i++) {
		const int64_t floats = room_floats_of(&table[i]);
		if (at + floats > gpk_moments_most())
			at = 0;
		table[i].room = at;
		at += floats;
	}
}

/* Pieces [from, end) are worked on together. */
static int end_of_group(const struct cuda_plan *p, int from)
{
	const struct gpk_piece *table = gp_cuda_host_pieces(p);
	int end = from + 1;
	while (end < p->own_pieces && table[end].room > 0)
		end++;
	return end;
}

/* Floats of the room of one moment: as many as all pieces have, or gpk_moments_most. */
static int64_t room_floats(const struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	int64_t all = 0;
	for (int i = 0; i < g->params; i++)
		if (has_moments(g, i))
			all += (int64_t)(gp_cuda_align(g->param[i].count * sizeof(float)) / sizeof(float));
	return all < gpk_moments_most() ? all : gpk_moments_most();
}

uint64_t gp_cuda_moments_room(const struct cuda_plan *p)
{
	if (!gp_cuda_moments_codec(p))
		return 0;
	return (uint64_t)gp_cuda_optim_states(&p->base) * (uint64_t)room_floats(p) * sizeof(float);
}

/* Where moment `which` is decoded. */
static float *room_of(const struct cuda_plan *p, int which)
{
	return (float *)(void *)p->track[CUDA_FORWARDS].scratch + which * room_floats(p);
}

static uint8_t *state_of(const struct cuda_plan *p, int which)
{
	return p->state + (uint64_t)which * p->state_bytes;
}

/* --- updates ------------------------------------------------------------------------------------------------------ */

static void load(const struct cuda_plan *p, int from, int end)
{
	for (int which = 0; which < gp_cuda_optim_states(&p->base); which++)
		gpk_moments_decode(p->stream, store_of(p), gp_cuda_pieces(p) + from, end - from, state_of(p, which),
				   room_of(p, which));
}

static void store(const struct cuda_plan *p, int which, int from, int end)
{
	gpk_moments_encode(p->stream, store_of(p), gp_cuda_pieces(p) + from, end - from, room_of(p, which), which,
			   gp_moment_first_draw(p->optim_steps), state_of(p, which));
}

void gp_cuda_moments_clear(struct cuda_plan *p)
{
	const int states = gp_cuda_optim_states(&p->base);
	if (!p->state)
		return;
	gp_rt_fill(p->stream, p->state, 0, (uint64_t)states * p->state_bytes);
	gp_rt_fill(p->stream, room_of(p, 0), 0, gp_cuda_moments_room(p));
	for (int from = 0, end; from < p->own_pieces; from = end) {
		end = end_of_group(p, from);
		for (int which = 0; which < states; which++)
			store(p, which, from, end);
	}
}

static float first_per_root(const struct gp_optim *o)
{
	const double b1 = o->beta1, b2 = o->beta2;
	return (float)((1.0 - b1) / sqrt((1.0 - b2) * (1.0 - b1 * b1 / b2)));
}

/* Nobody reads the gradients of those that follow others, whose values are replaced. */
static void clear_followers(const struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = 0; i < g->params; i++)
		if (g->param[i].trained && g->param[i].follows)
			gp_rt_fill(p->stream, p->grads + p->param[i].offset, 0, g->param[i].count * sizeof(float));
}

void gp_cuda_moments_update(struct cuda_plan *p, const struct gpk_update *update)
{
	const int states = gp_cuda_optim_states(&p->base);
	const float most = states > 1 ? first_per_root(&p->base.spec.optim) : 0.0f;
	struct gpk_update u = *update;
	u.first = room_of(p, 0);
	u.second = states > 1 ? room_of(p, 1) : NULL;
	for (int from = 0, end; from < p->own_pieces; from = end) {
		end = end_of_group(p, from);
		load(p, from, end);
		gpk_optim_step_pieces(p->stream, &u, gp_cuda_pieces(p) + from, end - from, most);
		for (int which = 0; which < states; which++)
			store(p, which, from, end);
	}
	clear_followers(p);
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

static enum gp_status check(const struct gp_plan *plan, int index, int which, struct gp_err *err)
{
	const struct gp_graph *g = plan->spec.graph;
	if (index < 0 || index >= g->params || !has_moments(g, index) || which < 0 ||
	    which >= gp_cuda_optim_states(plan))
		GP_FAIL(err, GP_INTERNAL, "%s has no optimizer state %d of parameter %d", g->name, which, index);
	return GP_OK;
}

/* What a decoded block stands for, from both of Adam's: gpk_optim_step_pieces. */
static void keep_within(float *first, float *second, int64_t n, float most)
{
	for (int64_t i = 0; i < n; i++) {
		const float root = second[i] > 0.0f ? second[i] : 0.0f, limit = most * root;
		const float m = first[i] > limit ? limit : first[i];
		first[i] = m < -limit ? -limit : m;
		second[i] = root * root;
	}
}

/* Moments of one piece to `moment`, a block each. */
static enum gp_status get_piece(struct cuda_plan *p, int piece, float *moment[2], struct gp_err *err)
{
	const struct gpk_piece *at = &gp_cuda_host_pieces(p)[piece];
	const int states = gp_cuda_optim_states(&p->base);
	load(p, piece, piece + 1);
	for (int which = 0; which < states; which++)
		gp_rt_copy_down(p->stream, moment[which], room_of(p, which) + at->room,
				(size_t)floats_of(at) * sizeof(float));
	GP_TRY(gp_cuda_wait(p, err));
	if (states > 1)
		keep_within(moment[0], moment[1], floats_of(at), first_per_root(&p->base.spec.optim));
	return GP_OK;
}

static enum gp_status set_piece(struct cuda_plan *p, int piece, int which, const float *in, float *room,
				struct gp_err *err)
{
	const struct gpk_piece *at = &gp_cuda_host_pieces(p)[piece];
	const int64_t n = floats_of(at);
	for (int64_t i = 0; i < n; i++)
		room[i] = which == 1 ? sqrtf(in[i]) : in[i];
	gp_rt_copy_up(p->stream, room_of(p, which) + at->room, room, (size_t)n * sizeof(float));
	store(p, which, piece, piece + 1);
	return gp_cuda_wait(p, err);
}

static enum gp_status two_blocks(float *out[2], struct gp_err *err)
{
	void *mem;
	GP_TRY(gp_alloc_array(&mem, 2 * GP_STORE_BLOCK, sizeof **out, err));
	out[0] = mem;
	out[1] = out[0] + GP_STORE_BLOCK;
	return GP_OK;
}

enum gp_status gp_cuda_moments_get(struct cuda_plan *p, int index, int which, float *out, struct gp_err *err)
{
	float *moment[2];
	GP_TRY(check(&p->base, index, which, err));
	GP_TRY(two_blocks(moment, err));
	const uint64_t blocks = gp_store_blocks(p->base.spec.graph->param[index].count);
	enum gp_status status = GP_OK;
	gp_cuda_behind_all(p);
	for (uint64_t block = 0; status == GP_OK && block < blocks; block++) {
		const int piece = p->param[index].first_piece + (int)block;
		status = get_piece(p, piece, moment, err);
		if (status == GP_OK)
			memcpy(out + block * GP_STORE_BLOCK, moment[which],
			       (size_t)floats_of(&gp_cuda_host_pieces(p)[piece]) * sizeof *out);
	}
	gp_free(moment[0]);
	return status;
}

enum gp_status gp_cuda_moments_set(struct cuda_plan *p, int index, int which, const float *in, struct gp_err *err)
{
	float *room[2];
	GP_TRY(check(&p->base, index, which, err));
	GP_TRY(two_blocks(room, err));
	const uint64_t blocks = gp_store_blocks(p->base.spec.graph->param[index].count);
	enum gp_status status = GP_OK;
	gp_cuda_behind_all(p);
	for (uint64_t block = 0; status == GP_OK && block < blocks; block++)
		status = set_piece(p, p->param[index].first_piece + (int)block, which, in + block * GP_STORE_BLOCK,
				   room[0], err);
	gp_free(room[0]);
	return status;
}

/* --- codes, as they lie ------------------------------------------------------------------------------------------- */

uint64_t gp_cuda_optim_code_bytes(const struct gp_plan *plan, int index)
{
	const struct gp_codec_spec *codec = gp_cuda_moments_codec((const struct cuda_plan *)plan);
	return codec ? gp_moment_bytes(codec, plan->spec.graph->param[index].count) : 0;
}

enum gp_status gp_cuda_optim_code_get(struct gp_plan *plan, int index, int which, uint8_t *out, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	GP_TRY(check(plan, index, which, err));
	gp_rt_copy_down(gp_cuda_behind_all(p), out, state_of(p, which) + p->param[index].state_offset,
			gp_cuda_optim_code_bytes(plan, index));
	return gp_cuda_wait(p, err);
}

/* The host's decoder says whether they are codes; the device's takes their word for it. */
static enum gp_status accept(const struct cuda_plan *p, const struct gp_param *q, int which, const uint8_t *in,
			     struct gp_err *err)
{
	struct gp_store_coder *c;
	GP_TRY(gp_store_coder_new(gp_cuda_moments_codec(p), &c, err));
	enum gp_status status = gp_moment_accept(c, in, q->count, err);
	gp_store_coder_free(c);
	if (status != GP_OK)
		return gp_err_prefix(err, "optimizer state %d of %s", which, q->name);
	return GP_OK;
}

enum gp_status gp_cuda_optim_code_set(struct gp_plan *plan, int index, int which, const uint8_t *in, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	GP_TRY(check(plan, index, which, err));
	GP_TRY(accept(p, &plan->spec.graph->param[index], which, in, err));
	gp_rt_copy_up(gp_cuda_behind_all(p), state_of(p, which) + p->param[index].state_offset, in,
		      gp_cuda_optim_code_bytes(plan, index));
	return gp_cuda_wait(p, err);
}
