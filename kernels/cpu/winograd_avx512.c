/* SPDX-License-Identifier: Apache-2.0
 *
 * Transforms of Winograd's 3x3 convolutions with AVX-512, 16 channels at a
 * time. One function per axis and direction; a square is transformed by its
 * columns and then by its rows. See winograd.h. Test: tests/unit/test_winograd.c
 */
#include "kernels/cpu/winograd.h"

#include <immintrin.h>

#include "kernels/cpu/simd.h"

#define LANES    GP_WINO_LANES
#define TAPS     GP_WINO_TAPS
#define MAX_SIDE 6
#define MAX_TILE 4
#define MAX_CELL (MAX_SIDE * MAX_SIDE)
#define ROW_MASK ((__mmask16)0x1ff) /* the filter of one pair of channels */
#define AHEAD    6                  /* input channels */

#define STREAM_FLOATS (1 << 18)

bool gp_wino_supported(void)
{
	return gp_cpu_isa() == GP_CPU_AVX512;
}

/* --- kinds ------------------------------------------------------------------------------------------------------ */

GP_INLINE int side_of(const int kind)
{
	return kind == GP_WINO_4 ? 6 : kind == GP_WINO_2 ? 3 : 1;
}

GP_INLINE int patch_of(const int kind)
{
	return kind == GP_WINO_4 ? 6 : kind;
}

enum gp_wino_kind gp_wino_choose(const struct gp_wino *g, int64_t pad_bottom, int64_t pad_right)
{
	bool padded_by_one = g->pad_top == 1 && g->pad_left == 1 && pad_bottom == 1 && pad_right == 1;
	if (padded_by_one && g->h == g->w && g->h <= 2)
		return g->h == 1 ? GP_WINO_1 : GP_WINO_2;
	return GP_WINO_4;
}

int64_t gp_wino_points(enum gp_wino_kind kind)
{
	return (int64_t)side_of((int)kind) * side_of((int)kind);
}

/* Tiles per image, upwards and across. */
static int64_t tile_rows(const struct gp_wino *g)
{
	return (g->out_h + (int64_t)g->kind - 1) / (int64_t)g->kind;
}

static int64_t tile_cols(const struct gp_wino *g)
{
	return (g->out_w + (int64_t)g->kind - 1) / (int64_t)g->kind;
}

int64_t gp_wino_tiles(const struct gp_wino *g)
{
	return g->images * tile_rows(g) * tile_cols(g);
}

/* A tile's image and its first output. */
struct place {
	int64_t image, y, x;
};

static struct place place_of(const struct gp_wino *g, int64_t tile)
{
	const int64_t cols = tile_cols(g), rows = tile_rows(g), kind = (int64_t)g->kind;
	return (struct place){tile / (rows * cols), tile / cols % rows * kind, tile % cols * kind};
}

static __mmask16 lanes_at(int64_t c, int64_t channels)
{
	return channels - c >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << (channels - c)) - 1);
}

/* --- one axis --------------------------------------------------------------------------------------------------- */

GP_INLINE __m512 times(float f, __m512 a)
{
	return _mm512_mul_ps(_mm512_set1_ps(f), a);
}

/* f a + b */
GP_INLINE __m512 fma1(float f, __m512 a, __m512 b)
{
	return _mm512_fmadd_ps(_mm512_set1_ps(f), a, b);
}

GP_INLINE __m512 add(__m512 a, __m512 b)
{
	return _mm512_add_ps(a, b);
}

GP_INLINE __m512 sub(__m512 a, __m512 b)
{
	return _mm512_sub_ps(a, b);
}

/* Patch to points. */
GP_INLINE void input_axis(const int kind, __m512 *p, const __m512 *d)
{
	if (kind == GP_WINO_1) {
		p[0] = d[0];
	} else if (kind == GP_WINO_2) {
		p[0] = d[0];
		p[1] = add(d[0], d[1]);
		p[2] = d[1];
	} else {
		const __m512 even1 = fma1(-2.25f, d[2], d[4]), odd1 = fma1(-2.25f, d[1], d[3]);
		const __m512 even2 = fma1(-0.25f, d[2], d[4]), odd2 = fma1(-0.25f, d[1], d[3]);
		p[0] = fma1(0.5625f, d[0], fma1(-2.5f, d[2], d[4]));
		p[1] = fma1(0.5f, odd1, even1);
		p[2] = fma1(-0.5f, odd1, even1);
		p[3] = fma1(1.5f, odd2, even2);
		p[4] = fma1(-1.5f, odd2, even2);
		p[5] = fma1(0.5625f, d[1], fma1(-2.5f, d[3], d[5]));
	}
}

/* Points to outputs. */
GP_INLINE void output_axis(const int kind, __m512 *y, const __m512 *p)
{
	if (kind == GP_WINO_1) {
		y[0] = p[0];
	} else if (kind == GP_WINO_2) {
		y[0] = add(p[1], p[2]);
		y[1] = add(p[1], p[0]);
	} else {
		const __m512 sum1 = add(p[1], p[2]), diff1 = sub(p[1], p[2]);
		const __m512 sum2 = add(p[3], p[4]), diff2 = sub(p[3], p[4]);
		y[0] = add(add(p[0], sum1), sum2);
		y[1] = fma1(1.5f, diff2, times(0.5f, diff1));
		y[2] = fma1(2.25f, sum2, times(0.25f, sum1));
		y[3] = fma1(3.375f, diff2, fma1(0.125f, diff1, p[5]));
	}
}

/* Gradients of outputs to points: output_axis transposed. */
GP_INLINE void gradient_axis(const int kind, __m512 *p, const __m512 *dy)
{
	if (kind == GP_WINO_1) {
		p[0] = dy[0];
	} else if (kind == GP_WINO_2) {
		p[0] = dy[1];
		p[1] = add(dy[0], dy[1]);
		p[2] = dy[0];
	} else {
		const __m512 even1 = fma1(0.25f, dy[2], dy[0]), odd1 = fma1(0.125f, dy[3], times(0.5f, dy[1]));
		const __m512 even2 = fma1(2.25f, dy[2], dy[0]), odd2 = fma1(3.375f, dy[3], times(1.5f, dy[1]));
		p[0] = dy[0];
		p[1] = add(even1, odd1);
		p[2] = sub(even1, odd1);
		p[3] = add(even2, odd2);
		p[4] = sub(even2, odd2);
		p[5] = dy[3];
	}
}

/* Three taps to points. */
GP_INLINE void filter_axis(const int kind, __m512 *p, const __m512 *w)
{
	if (kind == GP_WINO_1) {
		p[0] = w[1];
	} else if (kind == GP_WINO_2) {
		p[0] = sub(w[0], w[1]);
		p[1] = w[1];
		p[2] = sub(w[2], w[1]);
	} else {
		const __m512 even1 = fma1(0.25f, w[2], w[0]), odd1 = times(0.5f, w[1]);
		const __m512 even2 = fma1(1.0f / 9.0f, w[0], times(0.25f, w[2])), odd2 = times(1.0f / 6.0f, w[1]);
		p[0] = times(16.0f / 9.0f, w[0]);
		p[1] = sub(sub(_mm512_setzero_ps(), even1), odd1);
		p[2] = sub(odd1, even1);
		p[3] = add(even2, odd2);
		p[4] = sub(even2, odd2);
		p[5] = w[2];
	}
}

/* Gradients of points to taps: filter_axis transposed. */
GP_INLINE void taps_axis(const int kind, __m512 *w, const __m512 *p)
{
	if (kind == GP_WINO_1) {
		w[0] = w[2] = _mm512_setzero_ps();
		w[1] = p[0];
	} else if (kind == GP_WINO_2) {
		w[0] = p[0];
		w[1] = sub(sub(p[1], p[0]), p[2]);
		w[2] = p[2];
	} else {
		const __m512 sum1 = add(p[1], p[2]), sum2 = add(p[3], p[4]);
		w[0] = fma1(16.0f / 9.0f, p[0], fma1(1.0f / 9.0f, sum2, sub(_mm512_setzero_ps(), sum1)));
		w[1] = fma1(1.0f / 6.0f, sub(p[3], p[4]), times(0.5f, sub(p[2], p[1])));
		w[2] = fma1(0.25f, sub(sum2, sum1), p[5]);
	}
}

typedef void (*axis_fn)(const int kind, __m512 *out, const __m512 *in);

/* `from` x `from` values to `to` x `to`: columns, then rows. */
GP_INLINE void both_axes(const int kind, axis_fn axis, const int from, const int to, __m512 *out, const __m512 *in)
{
	__m512 half[MAX_SIDE][MAX_SIDE];
#pragma GCC unroll 6
	for (int j = 0; j < from; j++) {
		__m512 column[MAX_SIDE], turned[MAX_SIDE];
#pragma GCC unroll 6
		for (int i = 0; i < from; i++)
			column[i] = in[i * from + j];
		axis(kind, turned, column);
#pragma GCC unroll 6
		for (int i = 0; i < to; i++)
			half[i][j] = turned[i];
	}
#pragma GCC unroll 6
	for (int i = 0; i < to; i++)
		axis(kind, out + i * to, half[i]);
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
	for (int64_t c = 0; c < channels; c += LANES) {
		const __mmask16 mask = lanes_at(c, channels);
		__m512 in[MAX_CELL], out[MAX_CELL];
#pragma GCC unroll 36
		for (int i = 0; i < n * n; i++)
			in[i] = _mm512_maskz_loadu_ps(mask, pixel[i] + c);
		both_axes(kind, axis, n, side, out, in);
#pragma GCC unroll 36
		for (int i = 0; i < side * side; i++)
			_mm512_storeu_ps(v.at + i * v.stride + c, out[i]);
	}
}

GP_INLINE void read_tiles(const struct gp_wino *g, const int kind, struct gp_wino_matrices v, const float *x,
			  const float *zeros, int64_t from, int64_t to)
{
	const int64_t top = kind == GP_WINO_4 ? g->pad_top : 0, left = kind == GP_WINO_4 ? g->pad_left : 0;
	const float *pixel[MAX_CELL];
	for (int64_t t = from; t < to; t++, v.at += gp_wino_lanes(g->in)) {
		const struct place at = place_of(g, t);
		find_pixels(pixel, x + at.image * g->h * g->w * g->in, g->h, g->w, g->in, at.y - top, at.x - left,
			    patch_of(kind), zeros);
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
			    kind, zeros);
		pixels_to_points(kind, gradient_axis, kind, d, pixel, g->out);
	}
}

void gp_wino_read(const struct gp_wino *g, struct gp_wino_matrices v, const float *x, const float *zeros, int64_t from,
		  int64_t to)
{
	if (g->kind == GP_WINO_4)
		read_tiles(g, GP_WINO_4, v, x, zeros, from, to);
	else if (g->kind == GP_WINO_2)
		read_tiles(g, GP_WINO_2, v, x, zeros, from, to);
	else
		read_tiles(g, GP_WINO_1, v, x, zeros, from, to);
}

void gp_wino_read_gradient(const struct gp_wino *g, struct gp_wino_matrices d, const float *dy, const float *zeros,
			   int64_t from, int64_t to)
{
	if (g->kind == GP_WINO_4)
		read_gradients(g, GP_WINO_4, d, dy, zeros, from, to);
	else if (g->kind == GP_WINO_2)
		read_gradients(g, GP_WINO_2, d, dy, zeros, from, to);
	else
		read_gradients(g, GP_WINO_1, d, dy, zeros, from, to);
}

/* Outputs of one tile and one vector; y: the tile's first pixel, of which rows x cols are in the image. */
GP_INLINE void write_vector(const struct gp_wino *g, const int kind, float *y, struct gp_wino_matrices m, int64_t rows,
			    int64_t cols, __mmask16 mask)
{
	const int side = side_of(kind);
	__m512 in[MAX_CELL], out[MAX_TILE * MAX_TILE];
#pragma GCC unroll 36
	for (int i = 0; i < side * side; i++)
		in[i] = _mm512_loadu_ps(m.at + i * m.stride);
	both_axes(kind, output_axis, side, kind, out, in);
#pragma GCC unroll 4
	for (int i = 0; i < kind; i++)
#pragma GCC unroll 4
		for (int j = 0; j < kind; j++)
			if (i < rows && j < cols)
				_mm512_mask_storeu_ps(y + (i * g->out_w + j) * g->out, mask, out[i * kind + j]);
}

GP_INLINE void write_tiles(const struct gp_wino *g, const int kind, float *y, struct gp_wino_matrices m,
			   int64_t channel, int64_t width, int64_t from, int64_t to)
{
	const int64_t end = channel + width < g->out ? channel + width : g->out;
	for (int64_t t = from; t < to; t++, m.at += width) {
		const struct place at = place_of(g, t);
		float *first = y + ((at.image * g->out_h + at.y) * g->out_w + at.x) * g->out;
		for (int64_t c = channel; c < end; c += LANES)
			write_vector(g, kind, first + c, (struct gp_wino_matrices){m.at + c - channel, m.stride},
				     g->out_h - at.y, g->out_w - at.x, lanes_at(c, end));
	}
}

void gp_wino_write(const struct gp_wino *g, float *y, struct gp_wino_matrices m, int64_t channel, int64_t width,
		   int64_t from, int64_t to)
{
	if (g->kind == GP_WINO_4)
		write_tiles(g, GP_WINO_4, y, m, channel, width, from, to);
	else if (g->kind == GP_WINO_2)
		write_tiles(g, GP_WINO_2, y, m, channel, width, from, to);
	else
		write_tiles(g, GP_WINO_1, y, m, channel, width, from, to);
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
#pragma GCC unroll 36
			for (int p = 0; p < side * side; p++)
				_mm512_storeu_ps(u.at + p * u.stride + i * width + o, point[p]);
		}
	}
}

void gp_wino_filters(const struct gp_wino *g, struct gp_wino_matrices u, const struct gp_wino_filter *f, int64_t from,
		     int64_t width)
{
	if (g->kind == GP_WINO_4)
		filters(g, GP_WINO_4, u, f, from, width);
	else if (g->kind == GP_WINO_2)
		filters(g, GP_WINO_2, u, f, from, width);
	else
		filters(g, GP_WINO_1, u, f, from, width);
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
#pragma GCC unroll 36
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
	if (g->kind == GP_WINO_4)
		gradient(g, GP_WINO_4, grad, du, part, put);
	else if (g->kind == GP_WINO_2)
		gradient(g, GP_WINO_2, grad, du, part, put);
	else
		gradient(g, GP_WINO_1, grad, du, part, put);
}
