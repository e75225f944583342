/* SPDX-License-Identifier: Apache-2.0
 *
 * Winograd's 3x3 convolutions with AVX-512: filters to points, gradients of
 * points back to filters, 16 channels at a time, from and to PyTorch's layout.
 * See winograd.h. Test: tests/unit/test_winograd.c
 */
#include "kernels/cpu/math/winograd.h"

#include "kernels/cpu/math/winograd_kinds.h"

#define ROW_MASK ((__mmask16)0x1ff) /* the filter of one pair of channels */
#define AHEAD    6                  /* input channels */

#define STREAM_FLOATS (1 << 18)

/* --- one axis --------------------------------------------------------------------------------------------------- */

/* Two taps, for stride 2: n + 1 points for n outputs. */
GP_INLINE void two_filter(const int n, __m512 *p, __m512 a, __m512 b)
{
	if (n == 2) {
		p[0] = a;
		p[1] = add(a, b);
		p[2] = b;
	} else {
		const __m512 quarter = times(0.25f, b), half = times(0.5f, a), sixth = times(1.0f / 6.0f, a);
		p[0] = sub(_mm512_setzero_ps(), add(half, quarter));
		p[1] = sub(half, quarter);
		p[2] = add(quarter, sixth);
		p[3] = sub(quarter, sixth);
		p[4] = b;
	}
}

GP_INLINE void two_taps(const int n, __m512 *a, __m512 *b, const __m512 *p)
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
GP_INLINE void filter_axis(const int kind, __m512 *p, const __m512 *w)
{
	const int n = base_of(kind);
	if (is_half(kind) || is_twice(kind)) {
		two_filter(n, p, w[0], w[2]);
#pragma GCC unroll 4
		for (int i = 0; i < n; i++)
			p[n + 1 + i] = w[1];
	} else if (kind == GP_WINO_4) {
		const __m512 even1 = fma1(0.25f, w[2], w[0]), odd1 = times(0.5f, w[1]);
		const __m512 even2 = fma1(1.0f / 9.0f, w[0], times(0.25f, w[2])), odd2 = times(1.0f / 6.0f, w[1]);
		p[0] = times(16.0f / 9.0f, w[0]);
		p[1] = sub(sub(_mm512_setzero_ps(), even1), odd1);
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
GP_INLINE void taps_axis(const int kind, __m512 *w, const __m512 *p)
{
	const int n = base_of(kind);
	if (is_half(kind)) {
		two_taps(n, &w[0], &w[2], p);
		w[1] = p[n + 1];
#pragma GCC unroll 4
		for (int i = 1; i < n; i++)
			w[1] = add(w[1], p[n + 1 + i]);
	} else if (kind == GP_WINO_4) {
		const __m512 sum1 = add(p[1], p[2]), sum2 = add(p[3], p[4]);
		w[0] = fma1(16.0f / 9.0f, p[0], fma1(1.0f / 9.0f, sum2, sub(_mm512_setzero_ps(), sum1)));
		w[1] = fma1(1.0f / 6.0f, sub(p[3], p[4]), times(0.5f, sub(p[2], p[1])));
		w[2] = fma1(0.25f, sub(sum2, sum1), p[5]);
	} else if (kind == GP_WINO_2) {
		w[0] = p[0];
		w[1] = sub(sub(p[1], p[0]), p[2]);
		w[2] = p[2];
	} else {
		w[0] = w[2] = _mm512_setzero_ps();
		w[1] = p[0];
	}
}

/* --- filters ---------------------------------------------------------------------------------------------------- */

/* 16 x 16 floats, rows to columns. */
GP_INLINE void transpose(__m512 *r)
{
	__m512 a[LANES];
#pragma GCC unroll 8
	for (int i = 0; i < LANES; i += 2) {
		a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
		a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
	}
#pragma GCC unroll 4
	for (int i = 0; i < LANES; i += 4) {
		r[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
		r[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
		r[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
		r[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		a[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
		a[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
		a[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
		a[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		r[i] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0x88);
		r[i + 8] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0xdd);
		r[i + 4] = _mm512_shuffle_f32x4(a[i + 4], a[i + 12], 0x88);
		r[i + 12] = _mm512_shuffle_f32x4(a[i + 4], a[i + 12], 0xdd);
	}
}

/* Nine taps of `lanes` filters that lie `stride` floats apart. */
GP_INLINE void load_taps(__m512 *tap, const float *w, int64_t stride, int64_t lanes, bool turned)
{
	__m512 row[LANES];
#pragma GCC unroll 16
	for (int i = 0; i < LANES; i++)
		row[i] = _mm512_maskz_loadu_ps(i < lanes ? ROW_MASK : 0, w + (i < lanes ? i * stride : 0));
	transpose(row);
#pragma GCC unroll 9
	for (int t = 0; t < TAPS; t++)
		tap[t] = turned ? row[TAPS - 1 - t] : row[t];
}

/* The processor does not see through 16 strides at once. */
GP_INLINE void prefetch_taps(const float *w, int64_t stride)
{
#pragma GCC unroll 16
	for (int i = 0; i < LANES; i++)
		_mm_prefetch((const char *)(w + i * stride), _MM_HINT_T0);
}

GP_INLINE void filters(const struct gp_wino *g, const int kind, struct gp_wino_matrices u,
		       const struct gp_wino_filter *f, int64_t from, int64_t width)
{
	const int side = side_of(kind);
	const int64_t lanes = gp_wino_lanes(g->in);
	for (int64_t o = 0; o < width; o += LANES) {
		int64_t outs = g->out - from - o;
		for (int64_t i = 0; i < lanes; i++) {
			__m512 tap[TAPS], point[MAX_CELL];
			const float *w = f->weight + (from + o) * f->out_stride + i * f->in_stride;
			prefetch_taps(w + AHEAD * f->in_stride, f->out_stride);
			load_taps(tap, w, f->out_stride, i < g->in ? outs : 0, f->turned);
			both_axes(kind, filter_axis, 3, side, point, tap);
#pragma GCC unroll 81
			for (int p = 0; p < side * side; p++)
				_mm512_storeu_ps(u.at + p * u.stride + i * width + o, point[p]);
		}
	}
}

void gp_wino_filters(const struct gp_wino *g, struct gp_wino_matrices u, const struct gp_wino_filter *f, int64_t from,
		     int64_t width)
{
	switch (g->kind) {
		FORWARD_CASES(filters, g, u, f, from, width)
		BACKWARD_CASES(filters, g, u, f, from, width)
	}
}

/* Nine taps of 16 filters, one after another. */
GP_INLINE void pack_taps(float *packed, const __m512 *tap)
{
	__m512 row[LANES];
#pragma GCC unroll 16
	for (int i = 0; i < LANES; i++)
		row[i] = i < TAPS ? tap[i] : _mm512_setzero_ps();
	transpose(row);
#pragma GCC unroll 16
	for (int i = 0; i < LANES; i++) /* each one's rest is overwritten by the next */
		_mm512_storeu_ps(packed + i * TAPS, row[i]);
}

enum put { PUT, PUT_ADD, PUT_STREAM }; /* stream: past the caches, to whole cache lines */

GP_INLINE void put_vector(float *to, __m512 v, __mmask16 mask, enum put put)
{
	if (put == PUT_STREAM)
		_mm512_stream_ps(to, v);
	else if (put == PUT)
		_mm512_mask_storeu_ps(to, mask, v);
	else
		_mm512_mask_storeu_ps(to, mask, add(_mm512_maskz_loadu_ps(mask, to), v));
}

/* `next`: where the next call goes. */
GP_INLINE void put_taps(float *grad, const __m512 *tap, int64_t lanes, enum put put, const float *next)
{
	float packed[LANES * LANES];
	pack_taps(packed, tap);
#pragma GCC unroll 9
	for (int t = 0; t < TAPS; t++) {
		const int64_t left = lanes * TAPS - t * LANES;
		if (put == PUT_ADD)
			_mm_prefetch((const char *)(next + t * LANES), _MM_HINT_T0);
		if (left > 0)
			put_vector(grad + t * LANES, _mm512_loadu_ps(packed + t * LANES), lanes_at(0, left), put);
	}
}

/* A gradient that no cache keeps until it is read is not read into one to be written, either. */
static enum put way_to_put(const struct gp_wino *g, const float *grad, bool fresh)
{
	bool aligned = (uintptr_t)grad % sizeof(__m512) == 0 && g->in % LANES == 0;
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
		for (int64_t i = 0; i < part->ins; i += LANES) {
			__m512 point[MAX_CELL], tap[TAPS];
#pragma GCC unroll 81
			for (int p = 0; p < side * side; p++)
				point[p] = _mm512_loadu_ps(du.at + p * du.stride + i);
			both_axes(kind, taps_axis, side, 3, tap, point);
			put_taps(row + i * TAPS, tap, part->ins - i, put, row + (g->in + i) * TAPS);
		}
	}
	_mm_sfence();
}

void gp_wino_gradient(const struct gp_wino *g, float *grad, struct gp_wino_matrices du, const struct gp_wino_part *part,
		      bool fresh)
{
	const enum put put = way_to_put(g, grad, fresh);
	switch (g->kind) {
		FORWARD_CASES(gradient, g, grad, du, part, put)
	default:
		break;
	}
}
