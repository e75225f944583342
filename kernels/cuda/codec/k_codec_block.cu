/* SPDX-License-Identifier: Apache-2.0
 *
 * `block` with a scale for each block: in one pass by tiles where blocks are a
 * power of two; else, and where clips are tried, scales first and codes then;
 * one pass back. What is done for a block is in gpk_scales.h. See
 * k_codec_block.h. Test: tests/unit/test_cuda_codec_block.c
 */
#include "kernels/cuda/codec/k_codec_block.h"

#include "kernels/cuda/codec/gpk_reach.h"
#include "kernels/cuda/runtime/gpk_rows.h"

#define SMALLEST      16 /* elements of a block */
#define SAMPLED       64 /* blocks */
#define GUESS_THREADS (SAMPLED * GPK_BLOCK_LANES)
#define WARPS         (GPK_CODEC_THREADS / GPK_WARP)

/* --- the unit ---------------------------------------------------------------------------------------------------- */

GPK_DEVICE void put_unit(const struct gp_block_form &form, uint32_t top, struct gpk_block_answer *answer)
{
	answer->unit = form.e8m0 ? 1 : gpk_unit_for(form, __uint_as_float(top));
	answer->top = 0;
}

GPK_KERNEL settle(struct gp_block_form form, struct gpk_block_answer *answer)
{
	put_unit(form, form.e8m0 ? 0 : answer->top, answer);
}

extern "C" void gpk_block_unit(struct gp_rt_stream *s, const struct gp_block_form *form,
			       struct gpk_block_answer *answer)
{
	GPK_LAUNCH(s, settle, 1, 1, 0, *form, answer);
}

/* A block of GUESS_THREADS: GPK_BLOCK_LANES for each of the sampled ones. */
template <bool ASYM>
GPK_KERNEL GPK_BOUNDS(GUESS_THREADS)
	guess(struct gp_block_form form, const float *x, int64_t n, struct gpk_block_answer *answer)
{
	GPK_SHARED(uint32_t, room, [GUESS_THREADS / GPK_WARP]);
	const int64_t size = (int64_t)form.size, count = (n + size - 1) / size;
	const int64_t sampled = count < SAMPLED ? count : SAMPLED, team = threadIdx.x / GPK_BLOCK_LANES;
	const int64_t at = team < sampled ? team * count / sampled * size : n, end = at + size < n ? at + size : n;
	const struct gpk_extent e = gpk_extent_of_lane<ASYM>(x, at, end, (int)threadIdx.x % GPK_BLOCK_LANES);
	const uint32_t top = gpk_block_max(gpk_top_of<ASYM>(e), room);
	if (threadIdx.x == 0)
		put_unit(form, top, answer);
}

extern "C" void gpk_block_guess(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n,
				struct gpk_block_answer *answer)
{
	if (form->e8m0)
		gpk_block_unit(s, form, answer);
	else if (form->asym)
		GPK_LAUNCH(s, guess<true>, 1, GUESS_THREADS, 0, *form, x, n, answer);
	else
		GPK_LAUNCH(s, guess<false>, 1, GUESS_THREADS, 0, *form, x, n, answer);
}

/* --- one pass: blocks of a power of two --------------------------------------------------------------------------- */

/* The block: the extents over groups of `threads` of its threads. */
template <bool ASYM> GPK_DEVICE struct gpk_extent of_team(struct gpk_extent e, int threads, struct gpk_extent *part)
{
	if (threads <= GPK_WARP)
		return gpk_extent_over<ASYM>(e, threads);
	const int warps = threads / GPK_WARP, warp = (int)threadIdx.x / GPK_WARP, first = warp / warps * warps;
	e = gpk_extent_over<ASYM>(e, GPK_WARP);
	if (threadIdx.x % GPK_WARP == 0)
		part[warp] = e;
	__syncthreads();
	for (int w = first; w < first + warps; w++)
		gpk_widen_by<ASYM>(&e, part[w]);
	__syncthreads();
	return e;
}

/* Tiles are whole blocks of 2^shift elements; threads have eight elements of one block each. */
template <bool ASYM, bool DRAWN>
GPK_KERNEL encode_tiles(struct gp_block_form form, const float *x, int64_t n, int shift, struct gpk_block_draws draws,
			struct gpk_block_body body, struct gpk_block_answer *answer)
{
	GPK_CODEC_ROOM(room);
	GPK_SHARED(struct gpk_extent, part, [WARPS]);
	const int threads = 1 << shift >> 3;
	uint32_t top = 0;
	form.asym = ASYM; /* which the compiler then knows */
	gpk_use_unit(&form, answer->unit);
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		const int64_t at = tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP;
		struct gpk_extent e = {0, 0, 0};
		float v[8];
		unsigned code[8];
		uint32_t drawn[4] = {};
		gpk_load8(x, at, n, 0, v);
		GPK_UNROLL
		for (int i = 0; i < 8; i++)
			gpk_widen<ASYM>(&e, v[i]);
		e = of_team<ASYM>(e, threads, part);
		top = max(top, gpk_top_of<ASYM>(e));
		const float reach = gpk_reach_of<ASYM>(e);
		const uint32_t scale = gpk_scale_code(form, reach);
		const struct gp_block_step step = gpk_step_of(form, gpk_scale_value(form, scale), reach, e.least);
		if (threadIdx.x % (unsigned)threads == 0 && at < n)
			gpk_put_scale(form, body, at >> shift, scale, step.zero);
		gpk_draw8<DRAWN>(draws.seed, draws.stream, at, drawn);
		GPK_UNROLL
		for (int i = 0; i < 8; i++)
			code[i] = at + i < n ? gpk_code_of<DRAWN>(v[i], step, drawn[i / 2], i) : 0;
		gpk_store_codes(body.codes, form.bits, tile, n, code, room);
	}
	gpk_tell_top(top, answer);
}

/* --- two passes: blocks of any size, scales of the least error ---------------------------------------------------- */

/* Half a warp has a block; warps stay together. */
template <bool ASYM, bool MSE>
GPK_KERNEL measure(struct gp_block_form form, const float *x, int64_t n, struct gpk_block_body body,
		   struct gpk_block_answer *answer)
{
	GPK_SHARED(double, errors, [MSE ? GPK_BLOCK_TEAMS : 1][GPK_BLOCK_LANES][GP_BLOCK_RATIOS + 1]);
	const int64_t size = (int64_t)form.size, count = (n + size - 1) / size,
		      step = (int64_t)gridDim.x * GPK_BLOCK_TEAMS;
	const int lane = (int)threadIdx.x % GPK_BLOCK_LANES, team = (int)threadIdx.x / GPK_BLOCK_LANES, side = team % 2;
	uint32_t top = 0;
	form.asym = ASYM; /* which the compiler then knows */
	gpk_use_unit(&form, answer->unit);
	for (int64_t b = (int64_t)blockIdx.x * GPK_BLOCK_TEAMS + team; b - side < count; b += step) {
		const int64_t from = b * size, to = from + size < n ? from + size : n;
		const struct gpk_extent e = gpk_extent_of_lane<ASYM>(x, from, to, lane);
		const float reach = gpk_reach_of<ASYM>(e);
		const uint32_t scale = MSE ? gpk_least_error(form, x, from, to, lane, reach, e.least, errors[team])
					   : gpk_scale_code(form, reach);
		top = max(top, gpk_top_of<ASYM>(e));
		if (lane == 0 && b < count)
			gpk_put_scale(form, body, b, scale,
				      gpk_step_of(form, gpk_scale_value(form, scale), reach, e.least).zero);
	}
	gpk_tell_top(top, answer);
}

/* Neighbours, SMALLEST at most, lie in one block or in two: the first `rest` of them in the first. */
struct two_steps {
	struct gp_block_step first, second;
	uint32_t rest;
	bool fine; /* whether an encoder can have written their scales */
};

/* The step of neighbour `i`, chosen field by field, so that all of it stays in registers. */
GPK_DEVICE struct gp_block_step step_at(const struct two_steps &s, int i)
{
	const bool first = (uint32_t)i < s.rest;
	return {first ? s.first.scale : s.second.scale, first ? s.first.inverse : s.second.inverse,
		first ? s.first.low : s.second.low, first ? s.first.high : s.second.high,
		first ? s.first.zero : s.second.zero};
}

GPK_DEVICE struct gp_block_step step_in(const struct gp_block_form &form, const struct gpk_block_body &body, int64_t i,
					bool *fine)
{
	const uint32_t code = gpk_scale_at(form, body, i);
	const int zero = gpk_zero_at(form, body, i);
	*fine &= gpk_scale_fine(form, code, zero);
	return gpk_step_with(form, gpk_scale_value(form, code), (float)zero);
}

/* The steps of elements at..at + few - 1, few <= SMALLEST. */
GPK_DEVICE struct two_steps steps_of(const struct gp_block_form &form, const struct gpk_block_body &body,
				     struct gpk_divisor size, int64_t at, int64_t n, uint32_t few)
{
	struct two_steps steps = {};
	uint32_t inside = (uint32_t)at;
	steps.fine = true;
	if (at >= n)
		return steps;
	const int64_t block = gpk_split(&inside, size);
	steps.rest = size.by - inside;
	steps.first = steps.second = step_in(form, body, block, &steps.fine);
	if (steps.rest < few && at + steps.rest < n)
		steps.second = step_in(form, body, block + 1, &steps.fine);
	return steps;
}

template <bool DRAWN>
GPK_KERNEL encode_measured(struct gp_block_form form, const float *x, int64_t n, struct gpk_divisor size,
			   struct gpk_block_draws draws, struct gpk_block_body body,
			   const struct gpk_block_answer *answer)
{
	GPK_CODEC_ROOM(room);
	gpk_use_unit(&form, answer->unit);
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		const int64_t at = tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP;
		const struct two_steps steps = steps_of(form, body, size, at, n, 8);
		float v[8];
		unsigned code[8];
		uint32_t drawn[4] = {};
		gpk_load8(x, at, n, 0, v);
		gpk_draw8<DRAWN>(draws.seed, draws.stream, at, drawn);
		GPK_UNROLL
		for (int i = 0; i < 8; i++) {
			code[i] = at + i < n ? gpk_code_of<DRAWN>(v[i], step_at(steps, i), drawn[i / 2], i) : 0;
		}
		gpk_store_codes(body.codes, form.bits, tile, n, code, room);
	}
}

/* --- launches ---------------------------------------------------------------------------------------------------- */

template <bool ASYM>
static void queue_measure(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n,
			  const struct gpk_block_body *body, struct gpk_block_answer *answer)
{
	const unsigned blocks = gpk_team_blocks(gpk_div_up(n, (int64_t)form->size));
	if (form->mse)
		GPK_LAUNCH(s, (measure<ASYM, true>), blocks, GPK_CODEC_THREADS, 0, *form, x, n, *body, answer);
	else
		GPK_LAUNCH(s, (measure<ASYM, false>), blocks, GPK_CODEC_THREADS, 0, *form, x, n, *body, answer);
}

template <bool DRAWN>
static void queue_both(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n,
		       const struct gpk_block_draws *draws, const struct gpk_block_body *body,
		       struct gpk_block_answer *answer)
{
	if (form->asym)
		queue_measure<true>(s, form, x, n, body, answer);
	else
		queue_measure<false>(s, form, x, n, body, answer);
	GPK_LAUNCH(s, encode_measured<DRAWN>, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, *form, x, n,
		   gpk_divisor_of((int64_t)form->size), *draws, *body, answer);
}

template <bool ASYM, bool DRAWN>
static void queue_tiles(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n, int shift,
			const struct gpk_block_draws *draws, const struct gpk_block_body *body,
			struct gpk_block_answer *answer)
{
	GPK_LAUNCH(s, (encode_tiles<ASYM, DRAWN>), gpk_blocks(n, GPK_CODEC_TILE, GPK_BLOCK_MOST), GPK_CODEC_THREADS, 0,
		   *form, x, n, shift, *draws, *body, answer);
}

extern "C" void gpk_block_encode(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n,
				 const struct gpk_block_draws *draws, const struct gpk_block_body *body,
				 struct gpk_block_answer *answer)
{
	int shift = 0;
	while ((size_t)1 << shift < form->size)
		shift++;
	const bool tiles = (size_t)1 << shift == form->size && !form->mse;
	if (!tiles && form->stochastic)
		queue_both<true>(s, form, x, n, draws, body, answer);
	else if (!tiles)
		queue_both<false>(s, form, x, n, draws, body, answer);
	else if (form->asym && form->stochastic)
		queue_tiles<true, true>(s, form, x, n, shift, draws, body, answer);
	else if (form->asym)
		queue_tiles<true, false>(s, form, x, n, shift, draws, body, answer);
	else if (form->stochastic)
		queue_tiles<false, true>(s, form, x, n, shift, draws, body, answer);
	else
		queue_tiles<false, false>(s, form, x, n, shift, draws, body, answer);
}

/* --- back -------------------------------------------------------------------------------------------------------- */

GPK_KERNEL decode(struct gp_block_form form, struct gpk_block_body body, int64_t n, struct gpk_divisor size, float unit,
		  float *x, uint32_t *bad)
{
	GPK_CODEC_ROOM(room);
	bool raised = false;
	gpk_use_unit(&form, unit);
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		gpk_load_codes(body.codes, form.bits, tile, n, room);
		for (int half = 0; half < 2; half++) {
			const int local = half * (GPK_CODEC_TILE / 2) + (int)threadIdx.x * 4;
			const int64_t at = tile * GPK_CODEC_TILE + local;
			const struct two_steps steps = steps_of(form, body, size, at, n, 4);
			unsigned code[4];
			float v[4];
			gpk_codes4(room, form.bits, local, code);
			raised |= !steps.fine;
			GPK_UNROLL
			for (int i = 0; i < 4; i++) {
				const struct gp_block_step step = step_at(steps, i);
				/* Without a zero point the lowest code has no level. */
				raised |= !form.asym && code[i] == 0 && at + i < n;
				v[i] = ((float)code[i] - step.zero) * step.scale;
			}
			gpk_store4(x, at, n, v);
		}
		__syncthreads();
	}
	gpk_flag(bad, raised);
}

extern "C" void gpk_block_decode(struct gp_rt_stream *s, const struct gp_block_form *form,
				 const struct gpk_block_body *body, int64_t n, float unit, float *x, uint32_t *bad)
{
	GPK_LAUNCH(s, decode, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, *form, *body, n,
		   gpk_divisor_of((int64_t)form->size), unit, x, bad);
}
