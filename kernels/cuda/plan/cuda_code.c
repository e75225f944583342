/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs of a CUDA plan, pieces of its parameters, gradients and parameters that
 * are coded. See cuda_code.h. Tests: tests/unit/test_plan_store.c,
 * tests/unit/test_plan_coded.c
 */
#include "kernels/cuda/plan/cuda_code.h"

#include "common/base/rng.h"
#include "common/codec/moment_store.h"
#include "kernels/cuda/codec/cuda_stored.h"
#include "kernels/cuda/plan/cuda_moments.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/plan/plan_store.h"

/* --- codecs ------------------------------------------------------------------------------------------------------- */

const struct gp_codec_spec *gp_cuda_codec(const struct cuda_plan *p, int which)
{
	const struct gp_plan_spec *spec = &p->base.spec;
	if (!spec->train)
		return NULL;
	return which == CUDA_CODEC_MAPS ? spec->maps : spec->coded[which];
}

enum gp_status gp_cuda_codecs_prepare(struct cuda_plan *p, struct gp_err *err)
{
	for (int i = 0; i < CUDA_CODECS; i++)
		if (gp_cuda_codec(p, i))
			GP_TRY(gp_cuda_stored(gp_cuda_codec(p, i), &p->store[i], err));
	return GP_OK;
}

/* --- pieces of parameters ----------------------------------------------------------------------------------------- */

static bool codes_params(const struct cuda_plan *p)
{
	return gp_cuda_codec(p, GP_STRUCT_WEIGHTS) || gp_cuda_codec(p, GP_STRUCT_WEIGHT_GRADS) ||
	       gp_cuda_codec(p, GP_STRUCT_STATE);
}

static int pieces_of(const struct gp_param *q)
{
	return (int)gp_store_blocks(q->count);
}

/* Those of followers come last: the update leaves them alone. */
void gp_cuda_pieces_count(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int follows = 0; codes_params(p) && follows < 2; follows++) {
		for (int i = 0; i < g->params; i++) {
			if (!g->param[i].trained || g->param[i].follows != follows)
				continue;
			p->param[i].first_piece = p->pieces;
			p->pieces += pieces_of(&g->param[i]);
		}
		if (!follows)
			p->own_pieces = p->pieces;
	}
	gp_cuda_moments_place(p);
}

const struct gpk_piece *gp_cuda_pieces(const struct cuda_plan *p)
{
	return (const struct gpk_piece *)(p->extra + p->at.pieces);
}

const struct gpk_piece *gp_cuda_host_pieces(const struct cuda_plan *p)
{
	return (const struct gpk_piece *)(p->host_room + p->at.pieces);
}

static struct gpk_piece piece_of(const struct cuda_plan *p, int index)
{
	const struct gp_param *q = &p->base.spec.graph->param[index];
	struct gpk_piece piece = {.at = (int64_t)p->param[index].offset,
				  .code = p->param[index].state_offset,
				  .count = (int64_t)q->count};
	if (gp_cuda_is_plain(p, index))
		return piece;
	gp_cuda_param_steps(p, index, piece.step);
	for (int axis = 0; axis < 4; axis++)
		piece.dim[axis] = q->shape.dim[axis];
	return piece;
}

void gp_cuda_pieces_fill(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	struct gpk_piece *table = (struct gpk_piece *)(p->host_room + p->at.pieces);
	for (int i = 0; p->pieces > 0 && i < g->params; i++) {
		for (int k = 0; g->param[i].trained && k < pieces_of(&g->param[i]); k++) {
			struct gpk_piece *piece = &table[p->param[i].first_piece + k];
			*piece = piece_of(p, i);
			piece->first = (int64_t)k * GP_STORE_BLOCK;
			for (int which = 0; which < 2; which++)
				piece->stream[which] =
					gp_rng_stream(GP_RNG_ROUNDING, gp_plan_moment_array(&p->base.spec, i, which));
		}
	}
	gp_cuda_moments_rooms(p, table);
}

/* --- rooms -------------------------------------------------------------------------------------------------------- */

static uint64_t room_of(const struct cuda_plan *p, int which, uint64_t blocks)
{
	return gp_cuda_codec(p, which) ? (uint64_t)gpk_store_slots(blocks) * p->store[which].block_bytes : 0;
}

static uint64_t larger_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

uint64_t gp_cuda_coding_bytes(const struct cuda_plan *p)
{
	const struct gp_walk *w = &p->walk;
	uint64_t edge = 0, value = 0;
	for (int i = 0; i < w->stored; i++)
		if (w->encodes[i].coded == GP_WALK_NONE)
			edge = larger_of(edge, (uint64_t)gp_walk_stored_floats(w, &w->encodes[i]));
	for (int v = 0; v < w->spec->graph->values; v++)
		if (w->needs[v])
			value = larger_of(value, (uint64_t)gp_walk_elements(w, v));
	return gp_cuda_align(larger_of(room_of(p, CUDA_CODEC_MAPS, gp_store_blocks(edge)),
				       room_of(p, GP_STRUCT_GRAD_MAPS, gp_store_blocks(value))));
}

uint64_t gp_cuda_update_room(const struct cuda_plan *p)
{
	const uint64_t blocks = (uint64_t)p->pieces;
	const uint64_t codes =
		larger_of(room_of(p, GP_STRUCT_WEIGHTS, blocks), room_of(p, GP_STRUCT_WEIGHT_GRADS, blocks));
	return gp_cuda_align(larger_of(codes, gp_cuda_moments_room(p)));
}

/* --- gradients of values ------------------------------------------------------------------------------------------ */

/* What the node has computed, not what it hands on, and before other contributions are added: so it does not matter whose plan
 * adds them. */
void gp_cuda_gradient_code(struct cuda_plan *p, const struct cuda_node *n, void *dx, int64_t count)
{
	if (gp_cuda_codec(p, GP_STRUCT_GRAD_MAPS) && !n->moves)
		gpk_store_round_trip(p->track[CUDA_BACKWARDS].stream, &p->store[GP_STRUCT_GRAD_MAPS], p->type, dx,
				     count, p->coding);
}

/* --- parameters and their gradients ------------------------------------------------------------------------------- */

static void code_pieces(const struct cuda_plan *p, int which, int pieces, const float *from, float *to)
{
	gpk_store_round_trip_pieces(p->stream, &p->store[which], gp_cuda_pieces(p), pieces, from, to,
				    (uint8_t *)p->track[CUDA_FORWARDS].scratch);
}

void gp_cuda_grads_code(struct cuda_plan *p)
{
	if (gp_cuda_codec(p, GP_STRUCT_WEIGHT_GRADS) && !p->grads_coded)
		code_pieces(p, GP_STRUCT_WEIGHT_GRADS, p->own_pieces, p->grads, p->grads);
	p->grads_coded = true;
}

bool gp_cuda_keeps_decoded(const struct cuda_plan *p)
{
	return gp_cuda_codec(p, GP_STRUCT_WEIGHTS) && !p->base.spec.no_master;
}

void gp_cuda_weights_decode(struct cuda_plan *p)
{
	if (p->decoded)
		code_pieces(p, GP_STRUCT_WEIGHTS, p->pieces, p->values, p->decoded);
}

/* One that follows another (gp_graph_tie) gets its values. */
void gp_cuda_weights_updated(struct cuda_plan *p)
{
	if (gp_cuda_codec(p, GP_STRUCT_WEIGHTS) && p->base.spec.no_master)
		code_pieces(p, GP_STRUCT_WEIGHTS, p->own_pieces, p->values, p->values);
}
