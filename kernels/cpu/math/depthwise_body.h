/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise 3x3 convolutions over vec.h, for depthwise_avx2.c, depthwise_avx512.c and depthwise_neon.c: for one or two
 * vectors of channels at a time, all nine weights (or sums) of each stay in registers while a row goes by. Where every
 * operand is loaded by an instruction of its own, some neighbouring outputs go together, each of whose sums is still added
 * up in its own order, so that what several of them meet is loaded once. See depthwise.h.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_depthwise.c
 */
#ifndef GP_CPU_DEPTHWISE_BODY_H
#define GP_CPU_DEPTHWISE_BODY_H

#include <stddef.h>

#include "kernels/cpu/math/depthwise_kernels.h"
#include "kernels/cpu/math/vec.h"

#define SIDE        3
#define TILE_FLOATS 2048
#define TWO_FIT     (VEC_REGISTERS == 32 && VEC_TAKES_MEMORY) /* two vectors of channels */
#define TOGETHER    (VEC_TAKES_MEMORY ? 1 : 4)                /* neighbouring outputs */

/* Channels [at, at + VEC_LANES * nv), the last vector's by mask. */
struct block {
	int64_t at;
	gp_vec_mask mask;
};

/* Rows of the source image that the three rows of taps meet: row[k] for weight rows first_tap + k. */
struct window {
	const float *row[SIDE];
	int rows, first_tap;
};

/* Stride-1 window over `h` rows of `width` floats that begins at row `top`. */
static struct window window_at(struct gp_dw_rows image, int64_t h, int64_t width, int64_t top)
{
	struct window win = {.first_tap = top < 0 ? (int)-top : 0};
	for (int k = win.first_tap; k < SIDE && top + k < h; k++)
		win.row[win.rows++] = gp_depthwise_row(image, top + k, width);
	return win;
}

/* Outputs whose three columns of taps are inside a row of w pixels. */
struct span {
	int64_t from, to;
};

static struct span inside(int64_t w, int64_t out_w, int64_t stride, int64_t pad)
{
	int64_t from = (pad + stride - 1) / stride, to = w + pad < SIDE ? 0 : (w + pad - SIDE) / stride + 1;
	from = from < out_w ? from : out_w;
	to = to < out_w ? to : out_w;
	return (struct span){from, to > from ? to : from};
}

/*
 * Outputs of one row that go through all their channels before the next ones: memory is then read in order. It is
 * written in columns, which no hardware foresees: with every output the one a tile further is asked for.
 */
static int64_t tile_pixels(int64_t channels)
{
	int64_t pixels = TILE_FLOATS / channels;
	return pixels < 8 ? 8 : pixels;
}

GP_INLINE gp_vec load(const float *p, int j, const int nv, gp_vec_mask mask, const bool masked)
{
	return masked && j == nv - 1 ? vec_load_first(mask, p + j * VEC_LANES) : vec_load(p + j * VEC_LANES);
}

GP_INLINE void store(float *p, int j, const int nv, gp_vec_mask mask, const bool masked, gp_vec v)
{
	if (masked && j == nv - 1)
		vec_store_first(p + j * VEC_LANES, mask, v);
	else
		vec_store(p + j * VEC_LANES, v);
}

/* What a pixel at the border meets: all channels of pixels, and the weights of their taps, in the order of sums. */
struct met {
	const float *pixel[GP_DW_TAPS], *weight[GP_DW_TAPS];
	int count;
};

GP_INLINE void meet(struct met *m, const float *pixel, const float *weight)
{
	m->pixel[m->count] = pixel;
	m->weight[m->count++] = weight;
}

/* finish: NULL, none. */
GP_INLINE void sum_vector(float *y, const struct met *m, int64_t c, gp_vec_mask mask, const struct gp_finish *finish)
{
	gp_vec sum = finish ? vec_load(finish->bias + c) : vec_zero();
	for (int i = 0; i < m->count; i++)
		sum = vec_fma(vec_load(m->weight[i] + c), vec_load_first(mask, m->pixel[i] + c), sum);
	if (finish)
		sum = vec_limit(sum, vec_all(finish->low), vec_all(finish->high));
	vec_store_first(y + c, mask, sum);
}

static void sum_met(float *y, const struct met *m, int64_t channels, const struct gp_finish *finish)
{
	int64_t c = 0;
	for (; c + VEC_LANES <= channels; c += VEC_LANES)
		sum_vector(y, m, c, VEC_ALL, finish);
	if (c < channels)
		sum_vector(y, m, c, vec_first(channels - c), finish);
}

/* --- convolution ------------------------------------------------------------------------------------------------ */

/* What a row is computed for: outputs; outputs that a batch norm and its activation finish; gradients of inputs, for which
 * weights are turned round. */
enum row_use { OUTPUTS, FINISHED, GRADIENTS };

struct row_job { /* y (out_w pixels) from a window over rows of w pixels */
	float *y;
	struct window win;
	const float *weight;
	const struct gp_finish *finish; /* FINISHED; else NULL */
	int64_t w, out_w, channels, lanes, stride, pad;
};

GP_INLINE const float *tap(const struct row_job *job, int ky, int kx, const enum row_use use)
{
	int t = (job->win.first_tap + ky) * SIDE + kx;
	return job->weight + (use == GRADIENTS ? GP_DW_TAPS - 1 - t : t) * job->lanes;
}

/* One output pixel, columns checked one by one. */
static void border_pixel(const struct row_job *job, int64_t ox, const enum row_use use)
{
	struct met m = {.count = 0};
	for (int ky = 0; ky < job->win.rows; ky++) {
		for (int kx = 0; kx < SIDE; kx++) {
			int64_t ix = ox * job->stride - job->pad + kx;
			if (ix >= 0 && ix < job->w)
				meet(&m, job->win.row[ky] + ix * job->channels, tap(job, ky, kx, use));
		}
	}
	sum_met(job->y + ox * job->channels, &m, job->channels, job->finish);
}

/* A block of channels, its weights, what its sums begin with and are limited to (FINISHED), and the pixels that the next output
 * meets in each row. */
struct pixels {
	gp_vec weight[SIDE][SIDE][2], start[2], low, high;
	const float *x[SIDE];
	int64_t channels, next; /* next: floats from an output to that of the next tile */
};

/* `n` neighbouring outputs; with n = 1 any stride will do. */
GP_INLINE void outputs(const struct pixels *p, float *y, gp_vec_mask mask, const int64_t stride, const int n,
		       const int rows, const int nv, const bool masked, const enum row_use use)
{
#pragma GCC unroll 2
	for (int j = 0; j < nv; j++) {
		gp_vec sum[TOGETHER];
#pragma GCC unroll 4
		for (int o = 0; o < n; o++)
			sum[o] = use == FINISHED ? p->start[j] : vec_zero();
#pragma GCC unroll 3
		for (int ky = 0; ky < rows; ky++)
#pragma GCC unroll 9
			for (int column = 0; column < (n - 1) * stride + SIDE; column++) {
				const gp_vec x = load(p->x[ky] + column * p->channels, j, nv, mask, masked);
#pragma GCC unroll 4
				for (int o = 0; o < n; o++) {
					const int64_t kx = column - o * stride;
					if (kx >= 0 && kx < SIDE)
						sum[o] = vec_fma(p->weight[ky][kx][j], x, sum[o]);
				}
			}
#pragma GCC unroll 4
		for (int o = 0; o < n; o++) {
			vec_soon_written(y + o * p->channels + p->next + j * VEC_LANES);
			if (use == FINISHED)
				sum[o] = vec_limit(sum[o], p->low, p->high);
			store(y + o * p->channels, j, nv, mask, masked, sum[o]);
		}
	}
}

/* As many whole groups of outputs as there are from ox on; where the next ones begin. */
GP_INLINE int64_t grouped_outputs(struct pixels *p, float *y, struct span span, const int64_t stride, const int rows,
				  const enum row_use use)
{
	int64_t ox = span.from;
	for (; ox + TOGETHER <= span.to; ox += TOGETHER, y += TOGETHER * p->channels) {
		outputs(p, y, VEC_ALL, stride, TOGETHER, rows, 1, false, use);
#pragma GCC unroll 3
		for (int ky = 0; ky < rows; ky++)
			p->x[ky] += TOGETHER * stride * p->channels;
	}
	return ox;
}

GP_INLINE void take_finish(struct pixels *p, const struct gp_finish *finish, int64_t channel, const int nv)
{
#pragma GCC unroll 2
	for (int j = 0; j < nv; j++)
		p->start[j] = vec_load(finish->bias + channel + j * VEC_LANES);
	p->low = vec_all(finish->low);
	p->high = vec_all(finish->high);
}

GP_INLINE void inside_pixels(const struct row_job *job, struct span span, struct block b, const int rows, const int nv,
			     const bool masked, const enum row_use use)
{
	struct pixels p = {.channels = job->channels, .next = (span.to - span.from) * job->channels};
	const int64_t step = job->stride * job->channels;
	int64_t ox = span.from;
	if (use == FINISHED)
		take_finish(&p, job->finish, b.at, nv);
#pragma GCC unroll 3
	for (int ky = 0; ky < rows; ky++) {
		p.x[ky] = job->win.row[ky] + (span.from * job->stride - job->pad) * job->channels + b.at;
#pragma GCC unroll 3
		for (int kx = 0; kx < SIDE; kx++)
#pragma GCC unroll 2
			for (int j = 0; j < nv; j++)
				p.weight[ky][kx][j] = vec_load(tap(job, ky, kx, use) + b.at + j * VEC_LANES);
	}
	if (TOGETHER > 1 && !masked)
		ox = job->stride == 1 ? grouped_outputs(&p, job->y + ox * job->channels + b.at, span, 1, rows, use)
				      : grouped_outputs(&p, job->y + ox * job->channels + b.at, span, 2, rows, use);
	float *y = job->y + ox * job->channels + b.at;
	for (; ox < span.to; ox++, y += job->channels) {
		outputs(&p, y, b.mask, 1, 1, rows, nv, masked, use);
#pragma GCC unroll 3
		for (int ky = 0; ky < rows; ky++)
			p.x[ky] += step;
	}
}

GP_INLINE void row_block(const struct row_job *job, struct span span, struct block b, const int nv, const bool masked,
			 const enum row_use use)
{
	if (job->win.rows == 3)
		inside_pixels(job, span, b, 3, nv, masked, use);
	else if (job->win.rows == 2)
		inside_pixels(job, span, b, 2, nv, masked, use);
	else if (job->win.rows == 1)
		inside_pixels(job, span, b, 1, nv, masked, use);
	else
		inside_pixels(job, span, b, 0, nv, masked, use);
}

GP_INLINE void border_pixels(const struct row_job *job, struct span span, const enum row_use use)
{
	for (int64_t ox = span.from; ox < span.to; ox++)
		border_pixel(job, ox, use);
}

GP_INLINE void whole_row(const struct row_job *job, const enum row_use use)
{
	const struct span all = inside(job->w, job->out_w, job->stride, job->pad);
	const int64_t tile = tile_pixels(job->channels);
	border_pixels(job, (struct span){0, all.from}, use);
	for (int64_t ox = all.from; ox < all.to; ox += tile) {
		struct span span = {ox, ox + tile < all.to ? ox + tile : all.to};
		int64_t c = 0;
		for (; TWO_FIT && c + 2 * VEC_LANES <= job->channels; c += 2 * VEC_LANES)
			row_block(job, span, (struct block){c, VEC_ALL}, 2, false, use);
		for (; c + VEC_LANES <= job->channels; c += VEC_LANES)
			row_block(job, span, (struct block){c, VEC_ALL}, 1, false, use);
		if (c < job->channels)
			row_block(job, span, (struct block){c, vec_first(job->channels - c)}, 1, true, use);
	}
	border_pixels(job, (struct span){all.to, job->out_w}, use);
}

GP_INLINE void outputs_row(const struct gp_dw *g, float *y, struct gp_dw_rows x, const float *weight,
			   const struct gp_finish *finish, int64_t oy, const enum row_use use)
{
	struct row_job job = {.y = y, .weight = weight, .w = g->w, .out_w = g->out_w, .pad = g->pad_left};
	job.finish = finish;
	job.channels = g->channels;
	job.lanes = g->lanes;
	job.stride = g->stride;
	job.win = window_at(x, g->h, g->w * g->channels, oy * g->stride - g->pad_top);
	whole_row(&job, use);
}

static void forward_row(const struct gp_dw *g, float *y, struct gp_dw_rows x, const float *weight, int64_t oy)
{
	outputs_row(g, y, x, weight, NULL, oy, OUTPUTS);
}

static void finished_row(const struct gp_dw *g, float *y, struct gp_dw_rows x, const float *weight,
			 const struct gp_finish *finish, int64_t oy)
{
	outputs_row(g, y, x, weight, finish, oy, FINISHED);
}

/* --- input gradient --------------------------------------------------------------------------------------------- */

/* With stride 1 it is the convolution of dy with the weights turned round. */
static void data_row_stride1(const struct gp_dw *g, float *dx, struct gp_dw_rows dy, const float *weight, int64_t iy)
{
	struct row_job job = {.y = dx, .weight = weight, .w = g->out_w, .out_w = g->w, .stride = 1};
	job.pad = SIDE - 1 - g->pad_left;
	job.channels = g->channels;
	job.lanes = g->lanes;
	job.win = window_at(dy, g->out_h, g->out_w * g->channels, iy - (SIDE - 1 - g->pad_top));
	whole_row(&job, GRADIENTS);
}

/* Rows of dy and of weights that meet row iy of dx with stride 2. */
struct data_rows {
	const float *dy[2], *weight[2];
	int rows;
};

static struct data_rows data_rows_at(const struct gp_dw *g, struct gp_dw_rows dy, const float *weight, int64_t iy)
{
	struct data_rows d = {.rows = 0};
	for (int64_t ky = (iy + g->pad_top) % 2; ky < SIDE; ky += 2) {
		int64_t oy = (iy + g->pad_top - ky) / 2;
		if (iy + g->pad_top < ky || oy >= g->out_h)
			continue;
		d.dy[d.rows] = gp_depthwise_row(dy, oy, g->out_w * g->channels);
		d.weight[d.rows++] = weight + ky * SIDE * g->lanes;
	}
	return d;
}

static void data_border(const struct gp_dw *g, float *dx, const struct data_rows *d, int64_t ix)
{
	struct met m = {.count = 0};
	for (int r = 0; r < d->rows; r++) {
		for (int64_t kx = (ix + g->pad_left) % 2; kx < SIDE; kx += 2) {
			int64_t ox = (ix + g->pad_left - kx) / 2;
			if (ix + g->pad_left >= kx && ox < g->out_w)
				meet(&m, d->dy[r] + ox * g->channels, d->weight[r] + kx * g->lanes);
		}
	}
	sum_met(dx + ix * g->channels, &m, g->channels, NULL);
}

/* A block of channels, its weights and the pixels of dy that the next pair meets in each row. */
struct pair_pixels {
	gp_vec weight[2][SIDE];
	const float *dy[2];
	int64_t channels, next; /* next: floats from a pair to that of the next tile */
};

/* `n` neighbouring pairs: columns 2 q - pad (taps 0 and 2) and the one right of it (tap 1). */
GP_INLINE void pairs(struct pair_pixels *p, float *at, gp_vec_mask mask, const int n, const int rows, const bool masked)
{
	const int64_t channels = p->channels;
	gp_vec even[TOGETHER], odd[TOGETHER];
#pragma GCC unroll 4
	for (int i = 0; i < n; i++)
		even[i] = odd[i] = vec_zero();
#pragma GCC unroll 2
	for (int r = 0; r < rows; r++) {
		gp_vec here = vec_zero(), before;
#pragma GCC unroll 4
		for (int i = 0; i < n; i++, p->dy[r] += channels) {
			before = here;
			here = load(p->dy[r], 0, 1, mask, masked);
			if (i == 0)
				before = load(p->dy[r] - channels, 0, 1, mask, masked);
			even[i] = vec_fma(p->weight[r][0], here, even[i]);
			even[i] = vec_fma(p->weight[r][2], before, even[i]);
			odd[i] = vec_fma(p->weight[r][1], here, odd[i]);
		}
	}
#pragma GCC unroll 4
	for (int i = 0; i < n; i++, at += 2 * channels) {
		vec_soon_written(at + p->next);
		vec_soon_written(at + p->next + channels);
		store(at, 0, 1, mask, masked, even[i]);
		store(at + channels, 0, 1, mask, masked, odd[i]);
	}
}

GP_INLINE void data_pairs(const struct gp_dw *g, float *dx, const struct data_rows *d, struct span q, struct block b,
			  const int rows, const bool masked)
{
	struct pair_pixels p = {.channels = g->channels, .next = 2 * (q.to - q.from) * g->channels};
	float *at = dx + (2 * q.from - g->pad_left) * g->channels + b.at;
#pragma GCC unroll 2
	for (int r = 0; r < rows; r++) {
		p.dy[r] = d->dy[r] + q.from * g->channels + b.at;
#pragma GCC unroll 3
		for (int kx = 0; kx < SIDE; kx++)
			p.weight[r][kx] = vec_load(d->weight[r] + kx * g->lanes + b.at);
	}
	int64_t i = q.from;
	for (; TOGETHER > 1 && !masked && i + TOGETHER <= q.to; i += TOGETHER, at += TOGETHER * 2 * g->channels)
		pairs(&p, at, VEC_ALL, TOGETHER, rows, false);
	for (; i < q.to; i++, at += 2 * g->channels)
		pairs(&p, at, b.mask, 1, rows, masked);
}

GP_INLINE void data_block(const struct gp_dw *g, float *dx, const struct data_rows *d, struct span q, struct block b,
			  const bool masked)
{
	if (d->rows == 2)
		data_pairs(g, dx, d, q, b, 2, masked);
	else if (d->rows == 1)
		data_pairs(g, dx, d, q, b, 1, masked);
	else
		data_pairs(g, dx, d, q, b, 0, masked);
}

static void data_borders(const struct gp_dw *g, float *dx, const struct data_rows *d, int64_t from, int64_t to)
{
	for (int64_t ix = from; ix < to; ix++)
		data_border(g, dx, d, ix);
}

/* Pairs with both columns inside dx and both taps inside dy. */
static struct span whole_pairs(const struct gp_dw *g)
{
	struct span q = {(g->pad_left + 1) / 2, (g->w + g->pad_left) / 2};
	q.from = q.from < 1 ? 1 : q.from;
	q.to = q.to < g->out_w ? q.to : g->out_w;
	q.to = q.to > q.from ? q.to : q.from;
	return q;
}

static void data_row_stride2(const struct gp_dw *g, float *dx, struct gp_dw_rows dy, const float *weight, int64_t iy)
{
	const struct data_rows d = data_rows_at(g, dy, weight, iy);
	const struct span all = whole_pairs(g);
	const int64_t tile = tile_pixels(g->channels), left = 2 * all.from - g->pad_left;
	data_borders(g, dx, &d, 0, left < g->w ? left : g->w);
	for (int64_t at = all.from; at < all.to; at += tile) {
		struct span q = {at, at + tile < all.to ? at + tile : all.to};
		int64_t c = 0;
		for (; c + VEC_LANES <= g->channels; c += VEC_LANES)
			data_block(g, dx, &d, q, (struct block){c, VEC_ALL}, false);
		if (c < g->channels)
			data_block(g, dx, &d, q, (struct block){c, vec_first(g->channels - c)}, true);
	}
	data_borders(g, dx, &d, 2 * all.to - g->pad_left, g->w);
}

static void data_row(const struct gp_dw *g, float *dx, struct gp_dw_rows dy, const float *weight, int64_t iy)
{
	if (g->stride == 1)
		data_row_stride1(g, dx, dy, weight, iy);
	else
		data_row_stride2(g, dx, dy, weight, iy);
}

/* --- weight gradient -------------------------------------------------------------------------------------------- */

GP_INLINE void add_vector(float *grad, const float *dy, const float *x, int64_t c, gp_vec_mask mask)
{
	vec_store(grad + c, vec_fma(vec_load_first(mask, dy + c), vec_load_first(mask, x + c), vec_load(grad + c)));
}

/* What one pixel of dy and one of x give to the weights of a tap. */
static void add_products(float *grad, const float *dy, const float *x, int64_t channels)
{
	int64_t c = 0;
	for (; c + VEC_LANES <= channels; c += VEC_LANES)
		add_vector(grad, dy, x, c, VEC_ALL);
	if (c < channels)
		add_vector(grad, dy, x, c, vec_first(channels - c));
}

static void weights_border(const struct gp_dw *g, float *grad, const struct window *win, const float *dy, int64_t ox)
{
	for (int ky = 0; ky < win->rows; ky++) {
		for (int kx = 0; kx < SIDE; kx++) {
			int64_t ix = ox * g->stride - g->pad_left + kx;
			if (ix >= 0 && ix < g->w)
				add_products(grad + ((win->first_tap + ky) * SIDE + kx) * g->lanes,
					     dy + ox * g->channels, win->row[ky] + ix * g->channels, g->channels);
		}
	}
}

/* A block of channels, sums for its weights, and the pixels of x that the next one of dy meets in each row. */
struct weight_sums {
	gp_vec sum[SIDE][SIDE][2];
	const float *x[SIDE];
	int64_t channels;
};

/* Adds what `n` neighbouring pixels of dy give; with n = 1 any stride will do. */
GP_INLINE void weigh(struct weight_sums *s, const float *dy, gp_vec_mask mask, const int64_t stride, const int n,
		     const int rows, const int nv, const bool masked)
{
#pragma GCC unroll 2
	for (int j = 0; j < nv; j++) {
		gp_vec d[TOGETHER];
#pragma GCC unroll 4
		for (int o = 0; o < n; o++)
			d[o] = load(dy + o * s->channels, j, nv, mask, masked);
#pragma GCC unroll 3
		for (int ky = 0; ky < rows; ky++)
#pragma GCC unroll 9
			for (int column = 0; column < (n - 1) * stride + SIDE; column++) {
				const gp_vec x = load(s->x[ky] + column * s->channels, j, nv, mask, masked);
#pragma GCC unroll 4
				for (int o = 0; o < n; o++) {
					const int64_t kx = column - o * stride;
					if (kx >= 0 && kx < SIDE)
						s->sum[ky][kx][j] = vec_fma(d[o], x, s->sum[ky][kx][j]);
				}
			}
	}
}

/* As many whole groups of pixels of dy as there are from the span's first on; where the next ones begin. */
GP_INLINE int64_t weigh_groups(struct weight_sums *s, const float *dy, struct span span, const int64_t stride,
			       const int rows)
{
	int64_t ox = span.from;
	for (; ox + TOGETHER <= span.to; ox += TOGETHER, dy += TOGETHER * s->channels) {
		weigh(s, dy, VEC_ALL, stride, TOGETHER, rows, 1, false);
#pragma GCC unroll 3
		for (int ky = 0; ky < rows; ky++)
			s->x[ky] += TOGETHER * stride * s->channels;
	}
	return ox;
}

GP_INLINE void add_sums(const struct gp_dw *g, float *grad, const struct weight_sums *s, int first_tap, const int rows,
			const int nv)
{
#pragma GCC unroll 3
	for (int ky = 0; ky < rows; ky++) {
#pragma GCC unroll 3
		for (int kx = 0; kx < SIDE; kx++) {
			float *at = grad + ((first_tap + ky) * SIDE + kx) * g->lanes;
#pragma GCC unroll 2
			for (int j = 0; j < nv; j++)
				vec_store(at + j * VEC_LANES, vec_add(vec_load(at + j * VEC_LANES), s->sum[ky][kx][j]));
		}
	}
}

GP_INLINE void weights_inside(const struct gp_dw *g, float *grad, const struct window *win, const float *dy,
			      struct span span, struct block b, const int rows, const int nv, const bool masked)
{
	struct weight_sums s = {.channels = g->channels};
	int64_t ox = span.from;
#pragma GCC unroll 3
	for (int ky = 0; ky < rows; ky++) {
		s.x[ky] = win->row[ky] + (span.from * g->stride - g->pad_left) * g->channels + b.at;
#pragma GCC unroll 3
		for (int kx = 0; kx < SIDE; kx++)
#pragma GCC unroll 2
			for (int j = 0; j < nv; j++)
				s.sum[ky][kx][j] = vec_zero();
	}
	if (TOGETHER > 1 && !masked)
		ox = g->stride == 1 ? weigh_groups(&s, dy + ox * g->channels + b.at, span, 1, rows)
				    : weigh_groups(&s, dy + ox * g->channels + b.at, span, 2, rows);
	dy += ox * g->channels + b.at;
	for (; ox < span.to; ox++, dy += g->channels) {
		weigh(&s, dy, b.mask, 1, 1, rows, nv, masked);
#pragma GCC unroll 3
		for (int ky = 0; ky < rows; ky++)
			s.x[ky] += g->stride * g->channels;
	}
	add_sums(g, grad + b.at, &s, win->first_tap, rows, nv);
}

GP_INLINE void weights_block(const struct gp_dw *g, float *grad, const struct window *win, const float *dy,
			     struct span span, struct block b, const int nv, const bool masked)
{
	if (win->rows == 3)
		weights_inside(g, grad, win, dy, span, b, 3, nv, masked);
	else if (win->rows == 2)
		weights_inside(g, grad, win, dy, span, b, 2, nv, masked);
	else if (win->rows == 1)
		weights_inside(g, grad, win, dy, span, b, 1, nv, masked);
}

static void weights_borders(const struct gp_dw *g, float *grad, const struct window *win, const float *dy, int64_t from,
			    int64_t to)
{
	for (int64_t ox = from; ox < to; ox++)
		weights_border(g, grad, win, dy, ox);
}

static void weights_row(const struct gp_dw *g, float *grad, struct gp_dw_rows x, const float *dy, int64_t oy)
{
	const struct window win = window_at(x, g->h, g->w * g->channels, oy * g->stride - g->pad_top);
	const struct span all = inside(g->w, g->out_w, g->stride, g->pad_left);
	const int64_t tile = tile_pixels(g->channels);
	weights_borders(g, grad, &win, dy, 0, all.from);
	for (int64_t ox = all.from; ox < all.to; ox += tile) {
		struct span span = {ox, ox + tile < all.to ? ox + tile : all.to};
		int64_t c = 0;
		for (; TWO_FIT && c + 2 * VEC_LANES <= g->channels; c += 2 * VEC_LANES)
			weights_block(g, grad, &win, dy, span, (struct block){c, VEC_ALL}, 2, false);
		for (; c + VEC_LANES <= g->channels; c += VEC_LANES)
			weights_block(g, grad, &win, dy, span, (struct block){c, VEC_ALL}, 1, false);
		if (c < g->channels)
			weights_block(g, grad, &win, dy, span, (struct block){c, vec_first(g->channels - c)}, 1, true);
	}
	weights_borders(g, grad, &win, dy, all.to, g->out_w);
}

#endif
