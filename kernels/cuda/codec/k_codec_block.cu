/* SPDX-License-Identifier: Apache-2.0
 *
 * `block` with a scale for each block: in one pass by tiles where blocks are a
 * power of two; else, and where clips are tried, scales first and codes then;
 * one pass back. What is done for a block is in gpk_scales.h. See
 * k_codec_block.h. Test: tests/unit/test_cuda_codec_block.c
 */
#include "kernels/cuda/codec/k_codec_block.h"

#include "kernels/cuda/codec/gpk_scales.h"
#include "kernels/cuda/runtime/gpk_rows.h"

#define LANES         GP_BLOCK_LANES /* threads that measure a block: half a warp */
#define TEAMS         (GPK_CODEC_THREADS / LANES)
#define SMALLEST      16 /* elements of a block */
#define SAMPLED       64 /* blocks */
#define GUESS_THREADS (SAMPLED * LANES)
#define WARPS         (GPK_CODEC_THREADS / GPK_WARP)

/* Blocks of a launch, each of which makes an atomic on the same word when it has done. */
#ifdef __CUDACC__
#define MOST_BLOCKS 2112
#else
#define MOST_BLOCKS 3
#endif

/* --- reaches ----------------------------------------------------------------------------------------------------- */

/* Some elements of a block, and 0: bits of the largest magnitude; with a zero point, least and most. */
struct extent {
	uint32_t top;
	float least, most;
};

template <bool ASYM> GPK_DEVICE void widen(struct extent *e, float v)
{
	e->top = max(e->top, gpk_magnitude(v));
	if (ASYM) {
		e->least = fminf(e->least, v);
		e->most = fmaxf(e->most, v);
	}
}

template <bool ASYM> GPK_DEVICE void widen_by(struct extent *e, struct extent other)
{
	e->top = max(e->top, other.top);
	if (ASYM) {
		e->least = fminf(e->least, other.least);
		e->most = fmaxf(e->most, other.most);
	}
}

/* Over `threads` neighbours, a power of two up to a warp; each gets it. All threads of the warp. */
template <bool ASYM> GPK_DEVICE struct extent of_neighbours(struct extent e, int threads)
{
	for (int d = 1; d < threads; d *= 2) {
		struct extent other;
		other.top = __shfl_xor_sync(GPK_ALL_LANES, e.top, d);
		other.least = ASYM ? __shfl_xor_sync(GPK_ALL_LANES, e.least, d) : 0;
		other.most = ASYM ? __shfl_xor_sync(GPK_ALL_LANES, e.most, d) : 0;
		widen_by<ASYM>(&e, other);
	}
	return e;
}

template <bool ASYM> GPK_DEVICE float reach_of(struct extent e)
{
	return ASYM ? fabsf(e.most - e.least) : __uint_as_float(e.top); /* never -0 */
}

/* Its bits, or the largest magnitude's where that is more. */
template <bool ASYM> GPK_DEVICE uint32_t top_of(struct extent e)
{
	return max(e.top, gpk_magnitude(reach_of<ASYM>(e)));
}

/* What lane `lane` of LANES finds in a block. */
template <bool ASYM> GPK_DEVICE struct extent extent_of_lane(const float *x, int64_t from, int64_t to, int lane)
{
	struct extent e = {0, 0, 0};
	GPK_UNROLL_BY(8)
	for (int64_t i = from + lane; i < to; i += LANES)
		widen<ASYM>(&e, x[i]);
	return of_neighbours<ASYM>(e, LANES);
}

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

/* A block of GUESS_THREADS: LANES for each of the sampled ones. */
template <bool ASYM>
GPK_KERNEL GPK_BOUNDS(GUESS_THREADS)
	guess(struct gp_block_form form, const float *x, int64_t n, struct gpk_block_answer *answer)
{
	GPK_SHARED(uint32_t, room, [GUESS_THREADS / GPK_WARP]);
	const int64_t size = (int64_t)form.size, count = (n + size - 1) / size;
	const int64_t sampled = count < SAMPLED ? count : SAMPLED, team = threadIdx.x / LANES;
	const int64_t at = team < sampled ? team * count / sampled * size : n, end = at + size < n ? at + size : n;
	const struct extent e = extent_of_lane<ASYM>(x, at, end, (int)threadIdx.x % LANES);
	const uint32_t top = gpk_block_max(top_of<ASYM>(e), room);
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

/* The block: tells the largest of what its threads have seen. */
GPK_DEVICE void tell_top(uint32_t top, struct gpk_block_answer *answer)
{
	GPK_SHARED(uint32_t, room, [WARPS]);
	top = gpk_block_max(top, room);
	if (threadIdx.x == 0)
		atomicMax(&answer->top, top);
}

/* --- one pass: blocks of a power of two --------------------------------------------------------------------------- */

/* The block: the extents over groups of `threads` of its threads. */
template <bool ASYM> GPK_DEVICE struct extent of_team(struct extent e, int threads, struct extent *part)
{
	if (threads <= GPK_WARP)
		return of_neighbours<ASYM>(e, threads);
	const int warps = threads / GPK_WARP, warp = (int)threadIdx.x / GPK_WARP, first = warp / warps * warps;
	e = of_neighbours<ASYM>(e, GPK_WARP);
	if (threadIdx.x % GPK_WARP == 0)
		part[warp] = e;
	__syncthreads();
	for (int w = first; w < first + warps; w++)
		widen_by<ASYM>(&e, part[w]);
	__syncthreads();
	return e;
}

/* Tiles are whole blocks of 2^shift elements; threads have eight elements of one block each. */
template <bool ASYM, bool DRAWN>
GPK_KERNEL encode_tiles(struct gp_block_form form, const float *x, int64_t n, int shift, struct gpk_block_draws draws,
			struct gpk_block_body body, struct gpk_block_answer *answer)
{
	GPK_CODEC_ROOM(room);
	GPK_SHARED(struct extent, part, [WARPS]);
	const int threads = 1 << shift >> 3;
	uint32_t top = 0;
	form.asym = ASYM; /* which the compiler then knows */
	gpk_use_unit(&form, answer->unit);
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		const int64_t at = tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP;
		struct extent e = {0, 0, 0};
		float v[8];
		unsigned code[8];
		uint32_t drawn[4] = {};
		gpk_load8(x, at, n, 0, v);
		GPK_UNROLL
		for (int i = 0; i < 8; i++)
			widen<ASYM>(&e, v[i]);
		e = of_team<ASYM>(e, threads, part);
		top = max(top, top_of<ASYM>(e));
		const float reach = reach_of<ASYM>(e);
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
	tell_top(top, answer);
}

/* --- two passes: blocks of any size, scales of the least error ---------------------------------------------------- */

/* The first of the ratios with the least sum of squared errors, of which each lane brings its part. Every lane of a team
 * gets it. `room`: of the team. All threads of the warp. */
GPK_DEVICE int least_of(const double (&sum)[GP_BLOCK_RATIOS], int lane, double (*room)[GP_BLOCK_RATIOS + 1])
{
	double error = 0;
	int best = lane % GP_BLOCK_RATIOS;
	GPK_UNROLL
	for (int k = 0; k < GP_BLOCK_RATIOS; k++)
		room[lane][k] = sum[k];
	__syncwarp();
	for (int i = 0; i < LANES; i++)
		error += room[i][best];
	for (int d = 1; d < GP_BLOCK_RATIOS; d *= 2) {
		const double other = __shfl_xor_sync(GPK_ALL_LANES, error, d);
		const int its = __shfl_xor_sync(GPK_ALL_LANES, best, d);
		if (other < error || (other == error && its < best)) {
			error = other;
			best = its;
		}
	}
	__syncwarp();
	return best;
}

/* The scale, of those of eight ratios, under which a block's sum of squared errors is least: each lane adds up its
 * elements in their order, and the lanes come one after another, as on the host. */
GPK_DEVICE uint32_t least_error(const struct gp_block_form &form, const float *x, int64_t from, int64_t to, int lane,
				float reach, float least, double (*room)[GP_BLOCK_RATIOS + 1])
{
	struct gp_block_step step[GP_BLOCK_RATIOS];
	double sum[GP_BLOCK_RATIOS] = {};
	GPK_UNROLL
	for (int k = 0; k < GP_BLOCK_RATIOS; k++) {
		const uint32_t code = gpk_scale_code(form, reach * gpk_clip_ratio(k));
		step[k] = gpk_step_of(form, gpk_scale_value(form, code), reach, least);
	}
	for (int64_t i = from + lane; i < to; i += LANES) {
		const float v = x[i];
		GPK_UNROLL
		for (int k = 0; k < GP_BLOCK_RATIOS; k++)
			sum[k] = gpk_add_error(sum[k], v, step[k]);
	}
	return gpk_scale_code(form, reach * gpk_clip_ratio(least_of(sum, lane, room)));
}

/* Half a warp has a block; warps stay together. */
template <bool ASYM, bool MSE>
GPK_KERNEL measure(struct gp_block_form form, const float *x, int64_t n, struct gpk_block_body body,
		   struct gpk_block_answer *answer)
{
	GPK_SHARED(double, errors, [MSE ? TEAMS : 1][LANES][GP_BLOCK_RATIOS + 1]);
	const int64_t size = (int64_t)form.size, count = (n + size - 1) / size, step = (int64_t)gridDim.x * TEAMS;
	const int lane = (int)threadIdx.x % LANES, team = (int)threadIdx.x / LANES, side = team % 2;
	uint32_t top = 0;
	form.asym = ASYM; /* which the compiler then knows */
	gpk_use_unit(&form, answer->unit);
	for (int64_t b = (int64_t)blockIdx.x * TEAMS + team; b - side < count; b += step) {
		const int64_t from = b * size, to = from + size < n ? from + size : n;
		const struct extent e = extent_of_lane<ASYM>(x, from, to, lane);
		const float reach = reach_of<ASYM>(e);
		const uint32_t scale = MSE ? least_error(form, x, from, to, lane, reach, e.least, errors[team])
					   : gpk_scale_code(form, reach);
		top = max(top, top_of<ASYM>(e));
		if (lane == 0 && b < count)
			gpk_put_scale(form, body, b, scale,
				      gpk_step_of(form, gpk_scale_value(form, scale), reach, e.least).zero);
	}
	tell_top(top, answer);
}

/* A few neighbours lie in one block or two: the first `rest` of them in the first. */
struct two_steps {
	struct gp_block_step first, second;
	uint32_t rest;
	bool fine; /* whether an encoder can have written their scales */
};

/* That of neighbour `i`, field by field, so that all of it stays in registers. */
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
	const unsigned blocks = gpk_blocks(gpk_div_up(n, (int64_t)form->size), TEAMS, MOST_BLOCKS);
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
	GPK_LAUNCH(s, (encode_tiles<ASYM, DRAWN>), gpk_blocks(n, GPK_CODEC_TILE, MOST_BLOCKS), GPK_CODEC_THREADS, 0,
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
