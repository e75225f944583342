/* SPDX-License-Identifier: Apache-2.0
 *
 * `block` with a scale for each channel: one pass over the tensor for the
 * ranges (threads keep to their channels, blocks leave a line each), one over the
 * lines, one over the channels for their scales, one for the codes; two back.
 * What is done for a channel is in gpk_scales.h. See k_codec_channel.h.
 * Test: tests/unit/test_cuda_codec_block.c
 */
#include "kernels/cuda/codec/k_codec_channel.h"

#include "kernels/cuda/codec/gpk_scales.h"
#include "kernels/cuda/runtime/gpk_rows.h"

#define WIDE  32 /* channels, or fours of them, that a block looks at side by side */
#define DEEP  (GPK_CODEC_THREADS / WIDE)
#define WARPS (GPK_CODEC_THREADS / GPK_WARP)

/* CUDA blocks that look for ranges, about so many at most: those with the same channels divide the rows into parts, and each
 * writes a line. And rows that a thread reads before there is a further part. */
#ifdef __CUDACC__
#define RANGE_BLOCKS 264
#define THREAD_ROWS  8
#else
#define RANGE_BLOCKS 5
#define THREAD_ROWS  2
#endif

/* What lies in the room of a pass: how each channel is coded, its range, and its ranges in the parts of the rows. */
struct channels {
	float2 *how; /* to encode: 1 / scale and zero point; to decode: scale and zero point */
	float *least, *most;
	float *lines; /* for each part of the rows the least of every channel, then the most */
};

static struct channels channels_in(void *room, int64_t channels)
{
	struct channels c;
	c.how = (float2 *)room;
	c.least = (float *)(c.how + channels);
	c.most = c.least + channels;
	c.lines = c.most + channels;
	return c;
}

/* How threads share the channels. `width`: channels of a thread, 4 where rows are aligned and a multiple of 4, else 1. */
static struct gpk_tile tile_of(int64_t channels, int width)
{
	return gpk_tile_of(channels / width, WIDE, GPK_CODEC_THREADS);
}

static unsigned parts_of(struct gpk_tile tile, int64_t rows)
{
	return gpk_blocks(rows, tile.deep * THREAD_ROWS, gpk_div_up(RANGE_BLOCKS, tile.tiles));
}

static int64_t most_parts(int64_t rows, int64_t channels)
{
	const int64_t one = parts_of(tile_of(channels, 1), rows);
	const int64_t four = channels % 4 ? 0 : parts_of(tile_of(channels, 4), rows);
	return one > four ? one : four;
}

extern "C" uint64_t gpk_channel_room(int64_t rows, int64_t channels, bool encodes)
{
	const int64_t floats = encodes ? 4 + 2 * most_parts(rows, channels) : 2;
	return (uint64_t)(floats * channels) * sizeof(float);
}

/* --- ranges ------------------------------------------------------------------------------------------------------ */

/* The least and the most of a channel, from what the CUDA block's threads have found in its `deep` rows of threads. */
GPK_DEVICE float2 of_column(const float2 *held, int columns, int deep, int column)
{
	float2 range = held[column];
	for (int y = 1; y < deep; y++) {
		const float2 other = held[y * columns + column];
		range = make_float2(fminf(range.x, other.x), fmaxf(range.y, other.y));
	}
	return range;
}

/* CUDA block (x, y) has every gridDim.y-th group of rows, for `lanes` times V channels; a thread has V of these. */
template <int V>
GPK_KERNEL find_ranges(const float *x, int64_t rows, int64_t channels, int lanes, float *lines,
		       struct gpk_block_answer *answer)
{
	GPK_SHARED(float2, held, [GPK_CODEC_THREADS * V]);
	GPK_SHARED(uint32_t, room, [WARPS]);
	const int lane = (int)threadIdx.x % lanes, y = (int)threadIdx.x / lanes, deep = GPK_CODEC_THREADS / lanes;
	const int columns = lanes * V;
	const int64_t begin = (int64_t)blockIdx.x * columns, first = begin + lane * V;
	const int64_t step = (int64_t)gridDim.y * deep;
	float least[V] = {}, most[V] = {};
	uint32_t top = 0;
	if (y < deep && first < channels) {
		GPK_UNROLL_BY(4)
		for (int64_t row = (int64_t)blockIdx.y * deep + y; row < rows; row += step) {
			float v[V];
			gpk_read<float, V>(v, x + row * channels + first);
			GPK_UNROLL
			for (int i = 0; i < V; i++) {
				top = max(top, gpk_magnitude(v[i]));
				least[i] = fminf(least[i], v[i]);
				most[i] = fmaxf(most[i], v[i]);
			}
		}
	}
	if (y < deep)
		for (int i = 0; i < V; i++)
			held[y * columns + lane * V + i] = make_float2(least[i], most[i]);
	top = gpk_block_max(top, room);
	if (threadIdx.x == 0 && top >= 0x7f800000u)
		atomicMax(&answer->top, top);
	if ((int)threadIdx.x >= columns || begin + threadIdx.x >= channels)
		return;
	const float2 range = of_column(held, columns, deep, (int)threadIdx.x);
	float *const line = lines + 2 * channels * blockIdx.y + begin + threadIdx.x;
	line[0] = range.x;
	line[channels] = range.y;
}

GPK_DEVICE float reach_of(const struct gp_block_form &form, float least, float most)
{
	return fabsf(form.asym ? most - least : fmaxf(-least, most)); /* never -0 */
}

/* Each warp reads some of the lines of 32 channels. */
GPK_KERNEL join_ranges(struct gp_block_form form, struct channels c, int64_t channels, int parts,
		       struct gpk_block_answer *answer)
{
	GPK_SHARED(float2, held, [GPK_CODEC_THREADS]);
	GPK_SHARED(uint32_t, room, [WARPS]);
	const int lane = (int)threadIdx.x % WIDE, y = (int)threadIdx.x / WIDE;
	const int64_t channel = (int64_t)blockIdx.x * WIDE + lane;
	float2 range = make_float2(0, 0);
	uint32_t top = 0;
	GPK_UNROLL_BY(8)
	for (int part = y; part < parts && channel < channels; part += DEEP) {
		const float *const line = c.lines + 2 * channels * part + channel;
		range = make_float2(fminf(range.x, line[0]), fmaxf(range.y, line[channels]));
	}
	held[threadIdx.x] = range;
	__syncthreads();
	if (y == 0 && channel < channels) {
		range = of_column(held, WIDE, DEEP, lane);
		c.least[channel] = range.x;
		c.most[channel] = range.y;
		top = gpk_magnitude(reach_of(form, range.x, range.y));
	}
	top = gpk_block_max(top, room);
	if (threadIdx.x == 0)
		atomicMax(&answer->top, top);
}

template <int V>
static unsigned queue_ranges(struct gp_rt_stream *s, const float *x, int64_t rows, int64_t channels, float *lines,
			     struct gpk_block_answer *answer)
{
	const struct gpk_tile tile = tile_of(channels, V);
	const unsigned parts = parts_of(tile, rows);
	GPK_LAUNCH(s, find_ranges<V>, dim3((unsigned)tile.tiles, parts), GPK_CODEC_THREADS, 0, x, rows, channels,
		   tile.lanes, lines, answer);
	return parts;
}

/* --- scales ------------------------------------------------------------------------------------------------------ */

/* Sets the unit by the largest reach of all channels. One thread tells it to the host. */
GPK_DEVICE void settle_unit(struct gp_block_form *form, struct gpk_block_answer *answer)
{
	gpk_use_unit(form, form->e8m0 ? 1 : gpk_unit_for(*form, __uint_as_float(answer->top)));
	if (blockIdx.x == 0 && threadIdx.x == 0)
		answer->unit = form->unit;
}

GPK_DEVICE void put_channel(const struct gp_block_form &form, const struct channels &c,
			    const struct gpk_block_body &body, int64_t channel, uint32_t code, float reach)
{
	const struct gp_block_step step = gpk_step_of(form, gpk_scale_value(form, code), reach, c.least[channel]);
	gpk_put_scale(form, body, channel, code, step.zero);
	c.how[channel] = make_float2(step.inverse, step.zero);
}

/* A thread has a channel. */
GPK_KERNEL find_scales(struct gp_block_form form, struct channels c, int64_t channels, struct gpk_block_body body,
		       struct gpk_block_answer *answer)
{
	const int64_t channel = (int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x;
	settle_unit(&form, answer);
	if (channel >= channels)
		return;
	const float reach = reach_of(form, c.least[channel], c.most[channel]);
	put_channel(form, c, body, channel, gpk_scale_code(form, reach), reach);
}

/* A warp tries one of the ratios for 32 channels, row after row, as the sums are defined. */
GPK_KERNEL GPK_BOUNDS(GPK_WARP *GP_BLOCK_RATIOS)
	try_scales(struct gp_block_form form, const float *x, int64_t rows, int64_t channels, struct channels c,
		   struct gpk_block_body body, struct gpk_block_answer *answer)
{
	GPK_SHARED(double, errors, [GP_BLOCK_RATIOS][GPK_WARP]);
	const int lane = (int)threadIdx.x % GPK_WARP, ratio = (int)threadIdx.x / GPK_WARP;
	const int64_t channel = (int64_t)blockIdx.x * GPK_WARP + lane;
	const bool mine = channel < channels;
	const float least = mine ? c.least[channel] : 0, reach = mine ? reach_of(form, least, c.most[channel]) : 0;
	double error = 0;
	int best = 0;
	settle_unit(&form, answer);
	const uint32_t code = gpk_scale_code(form, reach * gpk_clip_ratio(ratio));
	const struct gp_block_step step = gpk_step_of(form, gpk_scale_value(form, code), reach, least);
	GPK_UNROLL_BY(8)
	for (int64_t row = 0; row < rows && mine; row++)
		error = gpk_add_error(error, x[row * channels + channel], step);
	errors[ratio][lane] = error;
	__syncthreads();
	if (ratio || !mine)
		return;
	for (int k = 1; k < GP_BLOCK_RATIOS; k++)
		best = errors[k][lane] < errors[best][lane] ? k : best;
	put_channel(form, c, body, channel, gpk_scale_code(form, reach * gpk_clip_ratio(best)), reach);
}

/* --- codes ------------------------------------------------------------------------------------------------------- */

/* How the elements at..at + N - 1 are coded. `even`: they are of one row, and read two at a time. */
template <int N>
GPK_DEVICE void how_of(const float2 *all, struct gpk_divisor channels, bool even, int64_t at, float2 how[N])
{
	uint32_t channel = (uint32_t)at;
	gpk_split(&channel, channels);
	GPK_UNROLL
	for (int i = 0; i < N; i += 2) {
		if (even) {
			const float4 two = reinterpret_cast<const float4 *>(all)[(channel + i) / 2];
			how[i] = make_float2(two.x, two.y);
			how[i + 1] = make_float2(two.z, two.w);
			continue;
		}
		how[i] = all[channel];
		channel = channel + 1 < channels.by ? channel + 1 : 0;
		how[i + 1] = all[channel];
		channel = channel + 1 < channels.by ? channel + 1 : 0;
	}
}

template <bool DRAWN>
GPK_KERNEL encode(struct gp_block_form form, const float *x, int64_t n, struct gpk_divisor channels, const float2 *all,
		  struct gpk_block_draws draws, uint8_t *codes)
{
	GPK_CODEC_ROOM(room);
	const float top = gpk_top_level(form);
	const bool even = channels.by % 8 == 0;
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		const int64_t at = tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP;
		float v[8];
		float2 how[8];
		unsigned code[8];
		uint32_t drawn[4] = {};
		gpk_load8(x, at, n, 0, v);
		how_of<8>(all, channels, even, at, how);
		gpk_draw8<DRAWN>(draws.seed, draws.stream, at, drawn);
		GPK_UNROLL
		for (int i = 0; i < 8; i++) {
			const float zero = how[i].y;
			const struct gp_block_step step = {0, how[i].x, form.asym ? -zero : -top,
							   form.asym ? top - zero : top, zero};
			code[i] = at + i < n ? gpk_code_of<DRAWN>(v[i], step, drawn[i / 2], i) : 0;
		}
		gpk_store_codes(codes, form.bits, tile, n, code, room);
	}
}

extern "C" void gpk_channel_encode(struct gp_rt_stream *s, const struct gp_block_form *form, const float *x,
				   int64_t rows, int64_t channels, const struct gpk_block_draws *draws,
				   const struct gpk_block_body *body, void *room, struct gpk_block_answer *answer)
{
	const struct channels c = channels_in(room, channels);
	const struct gpk_divisor by = gpk_divisor_of(channels);
	const int64_t n = rows * channels;
	const bool four = channels % 4 == 0 && (uintptr_t)x % 16 == 0;
	gp_rt_fill(s, answer, 0, sizeof *answer);
	const unsigned parts = four ? queue_ranges<4>(s, x, rows, channels, c.lines, answer)
				    : queue_ranges<1>(s, x, rows, channels, c.lines, answer);
	GPK_LAUNCH(s, join_ranges, (unsigned)gpk_div_up(channels, WIDE), GPK_CODEC_THREADS, 0, *form, c, channels,
		   (int)parts, answer);
	if (form->mse)
		GPK_LAUNCH(s, try_scales, (unsigned)gpk_div_up(channels, GPK_WARP), GPK_WARP * GP_BLOCK_RATIOS, 0,
			   *form, x, rows, channels, c, *body, answer);
	else
		GPK_LAUNCH(s, find_scales, (unsigned)gpk_div_up(channels, GPK_CODEC_THREADS), GPK_CODEC_THREADS, 0,
			   *form, c, channels, *body, answer);
	if (form->stochastic)
		GPK_LAUNCH(s, encode<true>, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, *form, x, n, by, c.how, *draws,
			   body->codes);
	else
		GPK_LAUNCH(s, encode<false>, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, *form, x, n, by, c.how, *draws,
			   body->codes);
}

/* --- back -------------------------------------------------------------------------------------------------------- */

GPK_KERNEL read_scales(struct gp_block_form form, struct gpk_block_body body, int64_t channels, float unit, float2 *all,
		       uint32_t *bad)
{
	const int64_t channel = (int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x;
	bool raised = false;
	gpk_use_unit(&form, unit);
	if (channel < channels) {
		const uint32_t code = gpk_scale_at(form, body, channel);
		const int zero = gpk_zero_at(form, body, channel);
		raised = !gpk_scale_fine(form, code, zero);
		all[channel] = make_float2(gpk_scale_value(form, code), (float)zero);
	}
	gpk_flag(bad, raised);
}

GPK_KERNEL decode(struct gp_block_form form, const uint8_t *codes, int64_t n, struct gpk_divisor channels,
		  const float2 *all, float *x, uint32_t *bad)
{
	GPK_CODEC_ROOM(room);
	const bool even = channels.by % 4 == 0;
	bool raised = false;
	for (int64_t tile = blockIdx.x; tile * GPK_CODEC_TILE < n; tile += gridDim.x) {
		gpk_load_codes(codes, form.bits, tile, n, room);
		for (int half = 0; half < 2; half++) {
			const int local = half * (GPK_CODEC_TILE / 2) + (int)threadIdx.x * 4;
			const int64_t at = tile * GPK_CODEC_TILE + local;
			float2 how[4];
			unsigned code[4];
			float v[4];
			how_of<4>(all, channels, even, at, how);
			gpk_codes4(room, form.bits, local, code);
			GPK_UNROLL
			for (int i = 0; i < 4; i++) {
				/* Without a zero point the lowest code has no level. */
				raised |= !form.asym && code[i] == 0 && at + i < n;
				v[i] = ((float)code[i] - how[i].y) * how[i].x;
			}
			gpk_store4(x, at, n, v);
		}
		__syncthreads();
	}
	gpk_flag(bad, raised);
}

extern "C" void gpk_channel_decode(struct gp_rt_stream *s, const struct gp_block_form *form,
				   const struct gpk_block_body *body, int64_t rows, int64_t channels, float unit,
				   void *room, float *x, uint32_t *bad)
{
	const struct channels c = channels_in(room, channels);
	const int64_t n = rows * channels;
	GPK_LAUNCH(s, read_scales, (unsigned)gpk_div_up(channels, GPK_CODEC_THREADS), GPK_CODEC_THREADS, 0, *form,
		   *body, channels, unit, c.how, bad);
	GPK_LAUNCH(s, decode, gpk_codec_blocks(n), GPK_CODEC_THREADS, 0, *form, body->codes, n,
		   gpk_divisor_of(channels), c.how, x, bad);
}
