/* SPDX-License-Identifier: Apache-2.0
 *
 * `block` with a budget: one pass for the reaches, by which the host chooses
 * bits; one for scales and codes, half a warp for each block; one back, by groups
 * of eight elements. Codes of a group are whole bytes at any address. What is
 * done for a block is in gpk_scales.h and gpk_reach.h. See k_codec_budget.h.
 * Test: tests/unit/test_cuda_codec_block.c
 */
#include "kernels/cuda/codec/k_codec_budget.h"

#include "kernels/cuda/codec/gpk_reach.h"
#include "kernels/cuda/runtime/gpk_rows.h"

template <bool ASYM>
GPK_KERNEL measure(struct gp_block_form form, const float *x, int64_t n, float *reach, struct gpk_block_answer *answer)
{
	const int64_t size = (int64_t)form.size, count = (n + size - 1) / size;
	const int64_t step = (int64_t)gridDim.x * GPK_BLOCK_TEAMS;
	const int lane = (int)threadIdx.x % GPK_BLOCK_LANES, team = (int)threadIdx.x / GPK_BLOCK_LANES, side = team % 2;
	uint32_t top = 0;
	for (int64_t b = (int64_t)blockIdx.x * GPK_BLOCK_TEAMS + team; b - side < count; b += step) {
		const int64_t from = b * size, to = from + size < n ? from + size : n;
		const struct gpk_extent e = gpk_extent_of_lane<ASYM>(x, from, to, lane);
		top = max(top, gpk_top_of<ASYM>(e));
		if (lane == 0 && b < count)
			reach[b] = __uint_as_float(gpk_top_of<ASYM>(e));
	}
	gpk_tell_top(top, answer);
}

extern "C" void gpk_budget_measure(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n,
				   float *reach, struct gpk_block_answer *answer)
{
	const unsigned blocks = gpk_team_blocks(gpk_div_up(n, (int64_t)form->size));
	if (form->asym)
		GPK_LAUNCH(s, measure<true>, blocks, GPK_CODEC_THREADS, 0, *form, x, n, reach, answer);
	else
		GPK_LAUNCH(s, measure<false>, blocks, GPK_CODEC_THREADS, 0, *form, x, n, reach, answer);
}

/* --- codes ------------------------------------------------------------------------------------------------------- */

/* `count` of eight codes, those behind them 0. No byte behind the last bit is touched: another block's may be there. */
GPK_DEVICE void put_group(uint8_t *to, const unsigned code[8], int width, int count)
{
	uint64_t low, high;
	gpk_pack8(code, width, &low, &high);
	gpk_put_packed<uint8_t>(to, (count * width + 7) / 8, low, high);
}

/* The eight codes from there on, also where they are fewer. */
GPK_DEVICE uint64_t group_at(const uint8_t *from, int width)
{
	uint64_t all = 0;
	for (int i = 0; i < width; i++)
		all |= (uint64_t)from[i] << (8 * i);
	return all;
}

/* Half a warp: the codes of a block, which begin at `to`, eight elements of a lane at a time. */
template <bool DRAWN>
GPK_DEVICE void put_codes(const float *x, int64_t from, int64_t to, int lane, const struct gp_block_step &step,
			  const struct gpk_block_draws &draws, int width, uint8_t *out)
{
	for (int64_t at = from + lane * 8; at < to; at += GPK_BLOCK_LANES * 8, out += GPK_BLOCK_LANES * width) {
		float v[8];
		unsigned code[8];
		uint32_t drawn[4] = {};
		gpk_load8(x, at, to, 0, v);
		gpk_draw8<DRAWN>(draws.seed, draws.stream, at, drawn);
		GPK_UNROLL
		for (int i = 0; i < 8; i++)
			code[i] = at + i < to ? gpk_code_of<DRAWN>(v[i], step, drawn[i / 2], i) : 0;
		put_group(out + lane * width, code, width, (int)(to - at < 8 ? to - at : 8));
	}
}

template <bool ASYM, bool MSE>
GPK_KERNEL encode(struct gp_block_form form, const float *x, int64_t n, struct gpk_block_draws draws,
		  const struct gpk_block_place *places, struct gpk_block_body body)
{
	GPK_SHARED(double, errors, [MSE ? GPK_BLOCK_TEAMS : 1][GPK_BLOCK_LANES][GP_BLOCK_RATIOS + 1]);
	const int64_t size = (int64_t)form.size, count = (n + size - 1) / size;
	const int64_t next = (int64_t)gridDim.x * GPK_BLOCK_TEAMS;
	const int lane = (int)threadIdx.x % GPK_BLOCK_LANES, team = (int)threadIdx.x / GPK_BLOCK_LANES, side = team % 2;
	form.asym = ASYM; /* which the compiler then knows */
	for (int64_t b = (int64_t)blockIdx.x * GPK_BLOCK_TEAMS + team; b - side < count; b += next) {
		const struct gpk_block_place place = places[b < count ? b : 0];
		const int64_t from = b * size, to = from + size < n ? from + size : n;
		const struct gpk_extent e = gpk_extent_of_lane<ASYM>(x, from, to, lane);
		const float reach = gpk_reach_of<ASYM>(e);
		form.bits = (int)place.width;
		const uint32_t scale = MSE ? gpk_least_error(form, x, from, to, lane, reach, e.least, errors[team])
					   : gpk_scale_code(form, reach);
		const struct gp_block_step step = gpk_step_of(form, gpk_scale_value(form, scale), reach, e.least);
		if (lane == 0 && b < count)
			gpk_put_scale(form, body, b, scale, step.zero);
		if (form.stochastic)
			put_codes<true>(x, from, to, lane, step, draws, form.bits, body.codes + place.at);
		else
			put_codes<false>(x, from, to, lane, step, draws, form.bits, body.codes + place.at);
	}
}

extern "C" void gpk_budget_encode(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x, int64_t n,
				  const struct gpk_block_draws *draws, const struct gpk_block_place *places,
				  const struct gpk_block_body *body)
{
	const unsigned blocks = gpk_team_blocks(gpk_div_up(n, (int64_t)form->size));
	if (form->asym && form->mse)
		GPK_LAUNCH(s, (encode<true, true>), blocks, GPK_CODEC_THREADS, 0, *form, x, n, *draws, places, *body);
	else if (form->asym)
		GPK_LAUNCH(s, (encode<true, false>), blocks, GPK_CODEC_THREADS, 0, *form, x, n, *draws, places, *body);
	else if (form->mse)
		GPK_LAUNCH(s, (encode<false, true>), blocks, GPK_CODEC_THREADS, 0, *form, x, n, *draws, places, *body);
	else
		GPK_LAUNCH(s, (encode<false, false>), blocks, GPK_CODEC_THREADS, 0, *form, x, n, *draws, places, *body);
}

/* --- back -------------------------------------------------------------------------------------------------------- */

/* A thread has eight elements, which are of one block. */
GPK_KERNEL decode(struct gp_block_form form, struct gpk_block_body body, const struct gpk_block_place *places,
		  int64_t n, struct gpk_divisor size, float *x, uint32_t *bad)
{
	const int64_t step = (int64_t)gridDim.x * GPK_CODEC_TILE;
	bool raised = false;
	for (int64_t at = ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) * 8; at < n; at += step) {
		uint32_t inside = (uint32_t)at;
		const uint32_t block = gpk_split(&inside, size);
		const struct gpk_block_place place = places[block];
		const uint32_t scale = gpk_scale_at(form, body, block);
		float v[8];
		form.bits = (int)place.width;
		const int zero = gpk_zero_at(form, body, block);
		const float by = gpk_scale_value(form, scale);
		uint64_t codes = group_at(body.codes + place.at + inside / 8 * place.width, form.bits);
		raised |= !gpk_scale_fine(form, scale, zero);
		GPK_UNROLL
		for (int i = 0; i < 8; i++, codes >>= form.bits) {
			const int code = (int)(codes & ((1u << form.bits) - 1));
			/* Without a zero point the lowest code has no level. */
			raised |= !form.asym && code == 0 && at + i < n;
			v[i] = (float)(code - zero) * by;
		}
		gpk_store4(x, at, n, v);
		gpk_store4(x, at + 4, n, v + 4);
	}
	gpk_flag(bad, raised);
}

extern "C" void gpk_budget_decode(struct gp_rt_stream *s, const struct gp_block_form *form,
				  const struct gpk_block_body *body, const struct gpk_block_place *places, int64_t n,
				  float *x, uint32_t *bad)
{
	GPK_LAUNCH(s, decode, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, *form, *body, places, n,
		   gpk_divisor_of((int64_t)form->size), x, bad);
}
