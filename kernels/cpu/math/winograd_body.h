/* SPDX-License-Identifier: Apache-2.0
 *
 * Winograd's 3x3 convolutions over vec.h, for winograd_avx2.c, winograd_avx512.c and winograd_neon.c: images and their
 * gradients to points, products back to images, a vector of channels at a time. Filters are in winograd_filter_body.h. See
 * winograd.h.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_winograd.c
 */
#ifndef GP_CPU_WINOGRAD_BODY_H
#define GP_CPU_WINOGRAD_BODY_H

#include <stddef.h>

#include "kernels/cpu/math/winograd_kinds.h"

/* --- kinds ------------------------------------------------------------------------------------------------------ */

GP_INLINE int patch_of(const int kind)
{
	if (is_twice(kind))
		return base_of(kind) + 1;
	return kind == GP_WINO_4 || is_half(kind) ? side_of(kind) : base_of(kind);
}

/* First input of the patch for the tile whose first output is at `at`. */
GP_INLINE int64_t patch_at(const int kind, int64_t at, int64_t pad)
{
	if (is_half(kind))
		return 2 * at - pad;
	if (is_twice(kind))
		return at / 2;
	return kind == GP_WINO_4 ? at - pad : 0;
}

/* A tile's image and its first output. */
struct place {
	int64_t image, y, x;
};

static struct place place_of(const struct gp_wino *g, int64_t tile)
{
	const int64_t cols = tile_cols(g), rows = tile_rows(g), size = tile_of((int)g->kind);
	return (struct place){tile / (rows * cols), tile / cols % rows * size, tile % cols * size};
}

/* The points 1/2, -1/2, 3/2, -3/2, which all kinds with four outputs have, from x, x^2, x^3 and x^4. */
GP_INLINE void quad_input(gp_vec *p, gp_vec x1, gp_vec x2, gp_vec x3, gp_vec x4)
{
	const gp_vec even1 = fma1(-2.25f, x2, x4), odd1 = fma1(-2.25f, x1, x3);
	const gp_vec even2 = fma1(-0.25f, x2, x4), odd2 = fma1(-0.25f, x1, x3);
	p[0] = fma1(0.5f, odd1, even1);
	p[1] = fma1(-0.5f, odd1, even1);
	p[2] = fma1(1.5f, odd2, even2);
	p[3] = fma1(-1.5f, odd2, even2);
}

/* The points 0 and infinity: the same sum, one input apart. */
GP_INLINE gp_vec end_input(gp_vec x0, gp_vec x2, gp_vec x4)
{
	return fma1(0.5625f, x0, fma1(-2.5f, x2, x4));
}

/* `first`: of the point 0, `last`: of infinity. */
GP_INLINE void quad_output(gp_vec *y, const gp_vec *p, gp_vec first, gp_vec last)
{
	const gp_vec sum1 = add(p[0], p[1]), diff1 = sub(p[0], p[1]);
	const gp_vec sum2 = add(p[2], p[3]), diff2 = sub(p[2], p[3]);
	y[0] = add(add(first, sum1), sum2);
	y[1] = fma1(1.5f, diff2, times(0.5f, diff1));
	y[2] = fma1(2.25f, sum2, times(0.25f, sum1));
	y[3] = fma1(3.375f, diff2, fma1(0.125f, diff1, last));
}

GP_INLINE void quad_gradient(gp_vec *p, const gp_vec *dy)
{
	const gp_vec even1 = fma1(0.25f, dy[2], dy[0]), odd1 = fma1(0.125f, dy[3], times(0.5f, dy[1]));
	const gp_vec even2 = fma1(2.25f, dy[2], dy[0]), odd2 = fma1(3.375f, dy[3], times(1.5f, dy[1]));
	p[0] = add(even1, odd1);
	p[1] = sub(even1, odd1);
	p[2] = add(even2, odd2);
	p[3] = sub(even2, odd2);
}

/* --- two taps, for stride 2: n + 1 points for n outputs --------------------------------------------------------- */

GP_INLINE void two_input(const int n, gp_vec *p, const gp_vec *d)
{
	if (n == 2) {
		p[0] = sub(d[0], d[1]);
		p[1] = d[1];
		p[2] = sub(d[1], d[2]);
	} else {
		quad_input(p, d[0], d[1], d[2], d[3]);
		p[4] = end_input(d[0], d[2], d[4]);
	}
}

GP_INLINE void two_output(const int n, gp_vec *y, const gp_vec *p)
{
	if (n == 2) {
		y[0] = add(p[0], p[1]);
		y[1] = sub(p[1], p[2]);
	} else {
		quad_output(y, p, vec_zero(), p[4]);
	}
}

GP_INLINE void two_gradient(const int n, gp_vec *p, const gp_vec *dy)
{
	if (n == 2) {
		p[0] = dy[0];
		p[1] = add(dy[0], dy[1]);
		p[2] = sub(vec_zero(), dy[1]);
	} else {
		quad_gradient(p, dy);
		p[4] = dy[3];
	}
}

/* --- one axis: with stride 2, the points of two taps come before those of the middle one ------------------------ */

/* Patch to points. */
GP_INLINE void input_axis(const int kind, gp_vec *p, const gp_vec *d)
{
	const int n = base_of(kind);
	if (is_half(kind)) {
		gp_vec outer[MAX_SIDE];
#pragma GCC unroll 5
		for (int i = 0; i <= n; i++)
			outer[i] = d[2 * i];
		two_input(n, p, outer);
#pragma GCC unroll 4
		for (int i = 0; i < n; i++)
			p[n + 1 + i] = d[2 * i + 1];
	} else if (is_twice(kind)) {
		two_input(n, p, d);
#pragma GCC unroll 4
		for (int i = 0; i < n; i++)
			p[n + 1 + i] = d[i];
	} else if (kind == GP_WINO_4) {
		p[0] = end_input(d[0], d[2], d[4]);
		quad_input(p + 1, d[1], d[2], d[3], d[4]);
		p[5] = end_input(d[1], d[3], d[5]);
	} else {
		p[0] = d[0];
		if (kind == GP_WINO_2) {
			p[1] = add(d[0], d[1]);
			p[2] = d[1];
		}
	}
}

/* Points to outputs. */
GP_INLINE void output_axis(const int kind, gp_vec *y, const gp_vec *p)
{
	const int n = base_of(kind);
	if (is_half(kind) || is_twice(kind)) {
		gp_vec outer[MAX_TILE];
		two_output(n, outer, p);
#pragma GCC unroll 4
		for (int i = 0; i < n; i++) {
			if (is_half(kind)) {
				y[i] = add(outer[i], p[n + 1 + i]);
			} else {
				y[2 * i] = p[n + 1 + i];
				y[2 * i + 1] = outer[i];
			}
		}
	} else if (kind == GP_WINO_4) {
		quad_output(y, p + 1, p[0], p[5]);
	} else if (kind == GP_WINO_2) {
		y[0] = add(p[1], p[2]);
		y[1] = add(p[1], p[0]);
	} else {
		y[0] = p[0];
	}
}

/* Gradients of outputs to points: output_axis transposed. */
GP_INLINE void gradient_axis(const int kind, gp_vec *p, const gp_vec *dy)
{
	const int n = base_of(kind);
	if (is_half(kind)) {
		two_gradient(n, p, dy);
#pragma GCC unroll 4
		for (int i = 0; i < n; i++)
			p[n + 1 + i] = dy[i];
	} else if (kind == GP_WINO_4) {
		p[0] = dy[0];
		quad_gradient(p + 1, dy);
		p[5] = dy[3];
	} else if (kind == GP_WINO_2) {
		p[0] = dy[1];
		p[1] = add(dy[0], dy[1]);
		p[2] = dy[0];
	} else {
		p[0] = dy[0];
	}
}

/* --- images ----------------------------------------------------------------------------------------------------- */

/* The n x n pixels from (y, x) on; those outside the image are `zeros`. */
static void find_pixels(const float **pixel, const float *image, int64_t h, int64_t w, int64_t channels, int64_t y,
			int64_t x, int n, const float *zeros)
{
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			bool inside = y + i >= 0 && y + i < h && x + j >= 0 && x + j < w;
			pixel[i * n + j] = inside ? image + ((y + i) * w + x + j) * channels : zeros;
		}
}

/* n x n pixels to all points. */
GP_INLINE void pixels_to_points(const int kind, axis_fn axis, const int n, struct gp_wino_matrices v,
				const float *const *pixel, int64_t channels)
{
	const int side = side_of(kind);
	for (int64_t c = 0; c < gp_wino_lanes(channels); c += VEC_LANES) {
		const gp_vec_mask mask = vec_first(channels - c);
		gp_vec in[MAX_CELL], out[MAX_CELL];
#pragma GCC unroll 81
		for (int i = 0; i < n * n; i++)
			in[i] = vec_load_first(mask, pixel[i] + c);
		both_axes(kind, axis, n, side, out, in);
#pragma GCC unroll 81
		for (int i = 0; i < side * side; i++)
			vec_store(v.at + i * v.stride + c, out[i]);
	}
}

GP_INLINE void read_tiles(const struct gp_wino *g, const int kind, struct gp_wino_matrices v, const float *x,
			  const float *zeros, int64_t from, int64_t to)
{
	const float *pixel[MAX_CELL];
	for (int64_t t = from; t < to; t++, v.at += gp_wino_lanes(g->in)) {
		const struct place at = place_of(g, t);
		find_pixels(pixel, x + at.image * g->h * g->w * g->in, g->h, g->w, g->in,
			    patch_at(kind, at.y, g->pad_top), patch_at(kind, at.x, g->pad_left), patch_of(kind), zeros);
		pixels_to_points(kind, input_axis, patch_of(kind), v, pixel, g->in);
	}
}

GP_INLINE void read_gradients(const struct gp_wino *g, const int kind, struct gp_wino_matrices d, const float *dy,
			      const float *zeros, int64_t from, int64_t to)
{
	const float *pixel[MAX_CELL];
	for (int64_t t = from; t < to; t++, d.at += gp_wino_lanes(g->out)) {
		const struct place at = place_of(g, t);
		find_pixels(pixel, dy + at.image * g->out_h * g->out_w * g->out, g->out_h, g->out_w, g->out, at.y, at.x,
			    base_of(kind), zeros);
		pixels_to_points(kind, gradient_axis, base_of(kind), d, pixel, g->out);
	}
}

static void read_images(const struct gp_wino *g, struct gp_wino_matrices v, const float *x, const float *zeros,
			int64_t from, int64_t to)
{
	switch (g->kind) {
		FORWARD_CASES(read_tiles, g, v, x, zeros, from, to)
		BACKWARD_CASES(read_tiles, g, v, x, zeros, from, to)
	}
}

static void read_image_gradients(const struct gp_wino *g, struct gp_wino_matrices d, const float *dy,
				 const float *zeros, int64_t from, int64_t to)
{
	switch (g->kind) {
		FORWARD_CASES(read_gradients, g, d, dy, zeros, from, to)
	default:
		break;
	}
}

GP_INLINE gp_vec finish_output(gp_vec v, struct gp_finish finish)
{
	v = vec_fma(vec_load(finish.scale), v, vec_load(finish.bias));
	return vec_limit(v, vec_all(finish.low), vec_all(finish.high));
}

/* Outputs of one tile and one vector; y: the tile's first pixel, of which rows x cols are in the image. finish: of the vector,
 * if `finished`. */
GP_INLINE void write_vector(const struct gp_wino *g, const int kind, float *y, struct gp_wino_matrices m, int64_t rows,
			    int64_t cols, gp_vec_mask mask, struct gp_finish finish, const bool finished)
{
	const int side = side_of(kind), tile = tile_of(kind);
	gp_vec in[MAX_CELL], out[MAX_TILE * MAX_TILE];
#pragma GCC unroll 81
	for (int i = 0; i < side * side; i++)
		in[i] = vec_load(m.at + i * m.stride);
	both_axes(kind, output_axis, side, tile, out, in);
#pragma GCC unroll 8
	for (int i = 0; i < tile; i++)
#pragma GCC unroll 8
		for (int j = 0; j < tile; j++)
			if (i < rows && j < cols)
				vec_store_first(y + (i * g->out_w + j) * g->out, mask,
						finished ? finish_output(out[i * tile + j], finish)
							 : out[i * tile + j]);
}

GP_INLINE void write_tiles(const struct gp_wino *g, const int kind, float *y, struct gp_wino_matrices m,
			   int64_t channel, int64_t width, int64_t from, int64_t to, const struct gp_finish *finish,
			   const bool finished)
{
	const int64_t end = channel + width < g->out ? channel + width : g->out;
	for (int64_t t = from; t < to; t++, m.at += width) {
		const struct place at = place_of(g, t);
		float *first = y + ((at.image * g->out_h + at.y) * g->out_w + at.x) * g->out;
		for (int64_t c = channel; c < end; c += VEC_LANES) {
			struct gp_finish here = {.bias = NULL};
			if (finished)
				here = gp_finish_from(finish, c);
			write_vector(g, kind, first + c, (struct gp_wino_matrices){m.at + c - channel, m.stride},
				     g->out_h - at.y, g->out_w - at.x, vec_first(end - c), here, finished);
		}
	}
}

static void write_images(const struct gp_wino *g, float *y, struct gp_wino_matrices m, int64_t channel, int64_t width,
			 int64_t from, int64_t to)
{
	switch (g->kind) {
		FORWARD_CASES(write_tiles, g, y, m, channel, width, from, to, NULL, false)
		BACKWARD_CASES(write_tiles, g, y, m, channel, width, from, to, NULL, false)
	}
}

static void write_finished(const struct gp_wino *g, float *y, struct gp_wino_matrices m, int64_t channel, int64_t width,
			   int64_t from, int64_t to, const struct gp_finish *finish)
{
	switch (g->kind) {
		FORWARD_CASES(write_tiles, g, y, m, channel, width, from, to, finish, true)
	default:
		break;
	}
}

#endif
