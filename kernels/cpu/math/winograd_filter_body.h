/* SPDX-License-Identifier: Apache-2.0
 *
 * Winograd's 3x3 convolutions over vec.h, for winograd_filter_avx2.c and the files like it: filters to points,
 * gradients of points back to filters, a vector of channels at a time, from and to PyTorch's layout. See winograd.h.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_winograd.c
 */
#ifndef GP_CPU_WINOGRAD_FILTER_BODY_H
#define GP_CPU_WINOGRAD_FILTER_BODY_H

#include "kernels/cpu/math/gemm_parts.h"
#include "kernels/cpu/math/winograd_kinds.h"

#define AHEAD 6 /* input channels */

#define STREAM_FLOATS (1 << 18)

/* --- one axis --------------------------------------------------------------------------------------------------- */

/* Two taps, for stride 2: n + 1 points for n outputs. */
GP_INLINE void two_filter(const int n, gp_vec *p, gp_vec a, gp_vec b)
{
	if (n == 2) {
		p[0] = a;
		p[1] = add(a, b);
		p[2] = b;
	} else {
		const gp_vec quarter = times(0.25f, b), half = times(0.5f, a), sixth = times(1.0f / 6.0f, a);
		p[0] = sub(vec_zero(), add(half, quarter));
		p[1] = sub(half, quarter);
		p[2] = add(quarter, sixth);
		p[3] = sub(quarter, sixth);
		p[4] = b;
	}
}

GP_INLINE void two_taps(const int n, gp_vec *a, gp_vec *b, const gp_vec *p)
{
	if (n == 2) {
		*a = add(p[0], p[1]);
		*b = add(p[1], p[2]);
	} else {
		*a = fma1(1.0f / 6.0f, sub(p[2], p[3]), times(0.5f, sub(p[1], p[0])));
		*b = fma1(0.25f, sub(add(p[2], p[3]), add(p[0], p[1])), p[4]);
	}
}

/* Three taps to points. */
GP_INLINE void filter_axis(const int kind, gp_vec *p, const gp_vec *w)
{
	const int n = base_of(kind);
	if (is_half(kind) || is_twice(kind)) {
		two_filter(n, p, w[0], w[2]);
#pragma GCC unroll 4
		for (int i = 0; i < n; i++)
			p[n + 1 + i] = w[1];
	} else if (kind == GP_WINO_4) {
		const gp_vec even1 = fma1(0.25f, w[2], w[0]), odd1 = times(0.5f, w[1]);
		const gp_vec even2 = fma1(1.0f / 9.0f, w[0], times(0.25f, w[2])), odd2 = times(1.0f / 6.0f, w[1]);
		p[0] = times(16.0f / 9.0f, w[0]);
		p[1] = sub(sub(vec_zero(), even1), odd1);
		p[2] = sub(odd1, even1);
		p[3] = add(even2, odd2);
		p[4] = sub(even2, odd2);
		p[5] = w[2];
	} else if (kind == GP_WINO_2) {
		p[0] = sub(w[0], w[1]);
		p[1] = w[1];
		p[2] = sub(w[2], w[1]);
	} else {
		p[0] = w[1];
	}
}

/* Gradients of points to taps: filter_axis transposed. */
GP_INLINE void taps_axis(const int kind, gp_vec *w, const gp_vec *p)
{
	const int n = base_of(kind);
	if (is_half(kind)) {
		two_taps(n, &w[0], &w[2], p);
		w[1] = p[n + 1];
#pragma GCC unroll 4
		for (int i = 1; i < n; i++)
			w[1] = add(w[1], p[n + 1 + i]);
	} else if (kind == GP_WINO_4) {
		const gp_vec sum1 = add(p[1], p[2]), sum2 = add(p[3], p[4]);
		w[0] = fma1(16.0f / 9.0f, p[0], fma1(1.0f / 9.0f, sum2, sub(vec_zero(), sum1)));
		w[1] = fma1(1.0f / 6.0f, sub(p[3], p[4]), times(0.5f, sub(p[2], p[1])));
		w[2] = fma1(0.25f, sub(sum2, sum1), p[5]);
	} else if (kind == GP_WINO_2) {
		w[0] = p[0];
		w[1] = sub(sub(p[1], p[0]), p[2]);
		w[2] = p[2];
	} else {
		w[0] = w[2] = vec_zero();
		w[1] = p[0];
	}
}

/* --- filters ---------------------------------------------------------------------------------------------------- */

#define TAP_ROWS                                                                                                       \
	((TAPS + VEC_LANES - 2) / VEC_LANES) /* vectors of a filter's taps, but for the last one that goes alone */

/*
 * Nine taps of VEC_LANES filters that lie `stride` floats apart, of which `lanes` are there. A vector of 16 holds all nine
 * of one filter; of 8 or 4, all but the last, which goes its own way.
 */
GP_INLINE void load_taps(gp_vec *tap, const float *w, int64_t stride, int64_t lanes, bool turned)
{
	static const float none[TAPS];
	const float *at[VEC_LANES];
	gp_vec row[TAP_ROWS][VEC_LANES], last = vec_zero();
#pragma GCC unroll 16
	for (int i = 0; i < VEC_LANES; i++) {
		at[i] = i < lanes ? w + i * stride : none;
#pragma GCC unroll 2
		for (int r = 0; r < TAP_ROWS; r++)
			row[r][i] = vec_load_first(vec_first(TAPS - r * VEC_LANES), at[i] + r * VEC_LANES);
	}
#pragma GCC unroll 2
	for (int r = 0; r < TAP_ROWS; r++)
		vec_turn(row[r]);
	if (VEC_LANES < TAPS)
		last = vec_column(at, TAPS - 1);
#pragma GCC unroll 9
	for (int t = 0; t < TAPS; t++) {
		const int back = TAPS - 1 - t;
		const gp_vec plain = t < TAP_ROWS * VEC_LANES ? row[t / VEC_LANES][t % VEC_LANES] : last;
		tap[t] = !turned ? plain : back < TAP_ROWS * VEC_LANES ? row[back / VEC_LANES][back % VEC_LANES] : last;
	}
}

/* The processor does not see through 16 strides at once. */
GP_INLINE void prefetch_taps(const float *w, int64_t stride)
{
#pragma GCC unroll 16
	for (int i = 0; i < VEC_LANES; i++)
		vec_soon(w + i * stride);
}

/* Filters to output channels [from, from + width), which are a panel of gemm.h's. */
GP_INLINE void filter_panel(const struct gp_wino *g, const int kind, struct gp_wino_matrices u,
			    const struct gp_wino_filter *f, int64_t from, int64_t width)
{
	const int side = side_of(kind);
	const int64_t lanes = gp_wino_lanes(g->in);
	for (int64_t o = 0; o < width; o += VEC_LANES) {
		int64_t outs = g->out - from - o;
		for (int64_t i = 0; i < lanes; i++) {
			gp_vec tap[TAPS], point[MAX_CELL];
			const float *w = f->weight + (from + o) * f->out_stride + i * f->in_stride;
			prefetch_taps(w + AHEAD * f->in_stride, f->out_stride);
			load_taps(tap, w, f->out_stride, i < g->in ? outs : 0, f->turned);
			both_axes(kind, filter_axis, 3, side, point, tap);
#pragma GCC unroll 81
			for (int p = 0; p < side * side; p++)
				vec_store(u.at + p * u.stride + i * width + o, point[p]);
		}
	}
}

GP_INLINE void filters(const struct gp_wino *g, const int kind, struct gp_wino_matrices u,
		       const struct gp_wino_filter *f, int64_t from, int64_t width)
{
	const struct panels panels = panels_of(width);
	for (int64_t p = 0; p < panels.count; p++) {
		const int64_t begin = panel_at(&panels, p) * VEC_LANES;
		const struct gp_wino_matrices panel = {u.at + begin * gp_wino_lanes(g->in), u.stride};
		filter_panel(g, kind, panel, f, from + begin, panel_at(&panels, p + 1) * VEC_LANES - begin);
	}
}

static void make_filters(const struct gp_wino *g, struct gp_wino_matrices u, const struct gp_wino_filter *f,
			 int64_t from, int64_t width)
{
	switch (g->kind) {
		FORWARD_CASES(filters, g, u, f, from, width)
		BACKWARD_CASES(filters, g, u, f, from, width)
	}
}

/* Nine taps of VEC_LANES filters, one after another: VEC_LANES of a filter at a time, and the last for itself. */
GP_INLINE void pack_taps(float *packed, const gp_vec *tap)
{
	float last[VEC_LANES];
#pragma GCC unroll 2
	for (int t = 0; t < TAP_ROWS * VEC_LANES; t += VEC_LANES) {
		gp_vec row[VEC_LANES];
#pragma GCC unroll 16
		for (int i = 0; i < VEC_LANES; i++)
			row[i] = t + i < TAPS ? tap[t + i] : vec_zero();
		vec_turn(row);
#pragma GCC unroll 16
		for (int i = 0; i < VEC_LANES; i++) /* each one's rest is overwritten by the next */
			vec_store(packed + i * TAPS + t, row[i]);
	}
	if (VEC_LANES < TAPS) {
		vec_store(last, tap[TAPS - 1]);
#pragma GCC unroll 16
		for (int i = 0; i < VEC_LANES; i++)
			packed[i * TAPS + TAPS - 1] = last[i];
	}
}

enum put { PUT, PUT_ADD, PUT_STREAM }; /* stream: past the caches, to whole vectors */

GP_INLINE void put_vector(float *to, gp_vec v, gp_vec_mask mask, enum put put)
{
	if (put == PUT_STREAM)
		vec_stream(to, v);
	else if (put == PUT)
		vec_store_first(to, mask, v);
	else
		vec_store_first(to, mask, add(vec_load_first(mask, to), v));
}

/* `next`: where the next call goes. */
GP_INLINE void put_taps(float *grad, const gp_vec *tap, int64_t lanes, enum put put, const float *next)
{
	float packed[VEC_LANES * VEC_LINE];
	pack_taps(packed, tap);
#pragma GCC unroll 9
	for (int t = 0; t < TAPS; t++) {
		const int64_t left = lanes * TAPS - t * VEC_LANES;
		if (put == PUT_ADD)
			vec_soon(next + t * VEC_LANES);
		if (left > 0)
			put_vector(grad + t * VEC_LANES, vec_load(packed + t * VEC_LANES), vec_first(left), put);
	}
}

/* A gradient that no cache keeps until it is read is not read into one to be written, either. */
static enum put way_to_put(const struct gp_wino *g, const float *grad, bool fresh)
{
	bool aligned = (uintptr_t)grad % sizeof(gp_vec) == 0 && g->in % VEC_LANES == 0;
	if (!fresh)
		return PUT_ADD;
	return aligned && g->in * g->out * TAPS >= STREAM_FLOATS ? PUT_STREAM : PUT;
}

GP_INLINE void gradient(const struct gp_wino *g, const int kind, float *grad, struct gp_wino_matrices du,
			const struct gp_wino_part *part, enum put put)
{
	const int side = side_of(kind);
	for (int64_t o = 0; o < part->outs; o++, du.at += gp_wino_lanes(part->ins)) {
		float *row = grad + ((part->out + o) * g->in + part->in) * TAPS;
		for (int64_t i = 0; i < part->ins; i += VEC_LANES) {
			gp_vec point[MAX_CELL], tap[TAPS];
#pragma GCC unroll 81
			for (int p = 0; p < side * side; p++)
				point[p] = vec_load(du.at + p * du.stride + i);
			both_axes(kind, taps_axis, side, 3, tap, point);
			put_taps(row + i * TAPS, tap, part->ins - i, put, row + (g->in + i) * TAPS);
		}
	}
	vec_fence();
}

static void make_gradient(const struct gp_wino *g, float *grad, struct gp_wino_matrices du,
			  const struct gp_wino_part *part, bool fresh)
{
	const enum put put = way_to_put(g, grad, fresh);
	switch (g->kind) {
		FORWARD_CASES(gradient, g, grad, du, part, put)
	default:
		break;
	}
}

#endif
