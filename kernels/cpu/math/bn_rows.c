/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization's loops, each compiled per instruction set and, where it
 * contains one, per activation. See bn_rows.h. Test: tests/unit/test_bn_rows.c
 */
#include "kernels/cpu/math/bn_rows.h"

#include <string.h>

#include "kernels/cpu/math/bn_loops.h"
#include "kernels/loops/simd.h"

#define BLOCK_MIN    48 /* rows */
#define BLOCK_MAX    128
#define SHIFT_ROWS   4
#define ENOUGH_WIDTH 64
#define TILE         1024 /* columns whose sums are kept at hand; no folded row is wider */

/* --- shape ------------------------------------------------------------------------------------------------------ */

int64_t gp_bn_block(int64_t pixels)
{
	if (pixels < BLOCK_MIN)
		return (BLOCK_MIN + pixels - 1) / pixels * pixels;
	for (int64_t block = BLOCK_MIN; block <= BLOCK_MAX; block++)
		if (pixels % block == 0)
			return block;
	return BLOCK_MIN;
}

static int64_t gcd(int64_t a, int64_t b)
{
	while (b) {
		int64_t t = a % b;
		a = b;
		b = t;
	}
	return a;
}

static int64_t choose_fold(int64_t channels)
{
	if (channels >= ENOUGH_WIDTH)
		return 1;
	int64_t fold = 16 / gcd(channels, 16);
	while (fold * channels < ENOUGH_WIDTH)
		fold *= 2;
	return fold;
}

struct gp_bn gp_bn_shape(int64_t images, int64_t pixels, int64_t channels)
{
	struct gp_bn s = {.rows = images * pixels, .channels = channels, .fold = choose_fold(channels)};
	s.width = s.fold * channels;
	s.block = gp_bn_block(pixels);
	s.blocks = (s.rows + s.block - 1) / s.block;
	return s;
}

void gp_bn_fold_out(const struct gp_bn *s, float *vec)
{
	for (int64_t i = s->channels; i < s->width; i++)
		vec[i] = vec[i - s->channels];
}

/* --- loops ------------------------------------------------------------------------------------------------------ */

GP_INLINE float activate(float v, enum cpu_act act)
{
	if (act == CPU_ACT_NONE)
		return v;
	v = v < 0.0f ? 0.0f : v;
	return act == CPU_ACT_RELU6 && v > 6.0f ? 6.0f : v;
}

GP_INLINE float masked(float g, float v, enum cpu_act act)
{
	if (act == CPU_ACT_NONE)
		return g;
	if (act == CPU_ACT_RELU)
		return v > 0.0f ? g : 0.0f;
	return v > 0.0f && v < 6.0f ? g : 0.0f;
}

/* `n` columns of `rows` rows that are `stride` floats apart; sum and dot (+=). */
GP_INLINE void value_columns_body(const float *restrict x, int64_t rows, int64_t stride, int64_t n,
				  const float *restrict shift, float *restrict sum, float *restrict dot)
{
	int64_t r = 0;
	for (; r + 4 <= rows; r += 4) {
		const float *x0 = x + r * stride, *x1 = x0 + stride, *x2 = x1 + stride, *x3 = x2 + stride;
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			float d0 = x0[i] - shift[i], d1 = x1[i] - shift[i];
			float d2 = x2[i] - shift[i], d3 = x3[i] - shift[i];
			sum[i] += (d0 + d1) + (d2 + d3);
			dot[i] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
		}
	}
	for (; r < rows; r++) {
		const float *xr = x + r * stride;
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			float d = xr[i] - shift[i];
			sum[i] += d;
			dot[i] += d * d;
		}
	}
}
GP_CPU_CLONES(value_columns,
	      (const float *x, int64_t rows, int64_t stride, int64_t n, const float *shift, float *sum, float *dot),
	      (x, rows, stride, n, shift, sum, dot))

GP_INLINE void apply_columns(const float *x, float *out, int64_t rows, int64_t width, int64_t n,
			     const float *restrict a, const float *restrict b, enum cpu_act act)
{
	for (int64_t r = 0; r < rows; r++) {
		const float *xr = x + r * width;
		float *yr = out + r * width;
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			yr[i] = activate(xr[i] * a[i] + b[i], act);
	}
}

GP_INLINE void gradient_sum_columns(const float *restrict dout, const float *restrict x, int64_t rows, int64_t stride,
				    int64_t n, const float *restrict a, const float *restrict b,
				    const float *restrict mean, float *restrict sum, float *restrict dot,
				    enum cpu_act act)
{
	int64_t r = 0;
	for (; r + 2 <= rows; r += 2) {
		const float *x0 = x + r * stride, *x1 = x0 + stride;
		const float *d0 = dout + r * stride, *d1 = d0 + stride;
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			float g0 = masked(d0[i], x0[i] * a[i] + b[i], act);
			float g1 = masked(d1[i], x1[i] * a[i] + b[i], act);
			sum[i] += g0 + g1;
			dot[i] += g0 * (x0[i] - mean[i]) + g1 * (x1[i] - mean[i]);
		}
	}
	for (; r < rows; r++) {
		const float *xr = x + r * stride, *dr = dout + r * stride;
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			float g = masked(dr[i], xr[i] * a[i] + b[i], act);
			sum[i] += g;
			dot[i] += g * (xr[i] - mean[i]);
		}
	}
}

GP_INLINE void gradient_columns(const float *dout, const float *restrict x, float *dx, int64_t rows, int64_t width,
				int64_t n, float *const *vec, enum cpu_act act)
{
	const float *restrict a = vec[BN_A], *restrict b = vec[BN_B], *restrict mean = vec[BN_MEAN];
	const float *restrict gm = vec[BN_GRAD_MEAN], *restrict k = vec[BN_K], *restrict scale = vec[BN_SCALE];
	for (int64_t r = 0; r < rows; r++) {
		const float *xr = x + r * width, *dr = dout + r * width;
		float *o = dx + r * width;
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			float g = masked(dr[i], xr[i] * a[i] + b[i], act);
			o[i] = (g - gm[i] - (xr[i] - mean[i]) * k[i]) * scale[i];
		}
	}
}

/* What is left of gradient_columns where statistics are constants and there is no activation: x is not read. */
GP_INLINE void scale_columns_body(const float *dout, float *dx, int64_t rows, int64_t width, int64_t n,
				  const float *restrict scale)
{
	for (int64_t r = 0; r < rows; r++) {
		const float *dr = dout + r * width;
		float *o = dx + r * width;
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			o[i] = dr[i] * scale[i];
	}
}
GP_CPU_CLONES(scale_columns, (const float *dout, float *dx, int64_t rows, int64_t width, int64_t n, const float *scale),
	      (dout, dx, rows, width, n, scale))

/* One set per activation, so that it is a constant inside the loops; AVX2, AVX-512 and NEON have their own (bn_rows_body.h). */
#define PER_ACT(suffix, act)                                                                                           \
	GP_INLINE void gp_bn_apply_##suffix##_body(const float *x, float *out, int64_t rows, int64_t width, int64_t n, \
						   const float *a, const float *b)                                     \
	{                                                                                                              \
		apply_columns(x, out, rows, width, n, a, b, act);                                                      \
	}                                                                                                              \
	GP_CPU_PORTABLE_CLONE(                                                                                         \
		gp_bn_apply_##suffix,                                                                                  \
		(const float *x, float *out, int64_t rows, int64_t width, int64_t n, const float *a, const float *b),  \
		(x, out, rows, width, n, a, b))                                                                        \
	GP_INLINE void gp_bn_gradient_sum_##suffix##_body(const float *dout, const float *x, int64_t rows,             \
							  int64_t stride, int64_t n, const float *a, const float *b,   \
							  const float *mean, float *sum, float *dot)                   \
	{                                                                                                              \
		gradient_sum_columns(dout, x, rows, stride, n, a, b, mean, sum, dot, act);                             \
	}                                                                                                              \
	GP_CPU_PORTABLE_CLONE(gp_bn_gradient_sum_##suffix,                                                             \
			      (const float *dout, const float *x, int64_t rows, int64_t stride, int64_t n,             \
			       const float *a, const float *b, const float *mean, float *sum, float *dot),             \
			      (dout, x, rows, stride, n, a, b, mean, sum, dot))                                        \
	GP_INLINE void gp_bn_gradient_##suffix##_body(const float *dout, const float *x, float *dx, int64_t rows,      \
						      int64_t width, int64_t n, float *const *vec)                     \
	{                                                                                                              \
		gradient_columns(dout, x, dx, rows, width, n, vec, act);                                               \
	}                                                                                                              \
	GP_CPU_PORTABLE_CLONE(gp_bn_gradient_##suffix,                                                                 \
			      (const float *dout, const float *x, float *dx, int64_t rows, int64_t width, int64_t n,   \
			       float *const *vec),                                                                     \
			      (dout, x, dx, rows, width, n, vec))

PER_ACT(none, CPU_ACT_NONE)
PER_ACT(relu, CPU_ACT_RELU)
PER_ACT(relu6, CPU_ACT_RELU6)

static const struct {
	void (*apply)(const float *x, float *out, int64_t rows, int64_t width, int64_t n, const float *a,
		      const float *b);
	void (*gradient_sum)(const float *dout, const float *x, int64_t rows, int64_t stride, int64_t n, const float *a,
			     const float *b, const float *mean, float *sum, float *dot);
	void (*gradient)(const float *dout, const float *x, float *dx, int64_t rows, int64_t width, int64_t n,
			 float *const *vec);
} loops[] = {
	[CPU_ACT_NONE] = {gp_bn_apply_none, gp_bn_gradient_sum_none, gp_bn_gradient_none},
	[CPU_ACT_RELU] = {gp_bn_apply_relu, gp_bn_gradient_sum_relu, gp_bn_gradient_relu},
	[CPU_ACT_RELU6] = {gp_bn_apply_relu6, gp_bn_gradient_sum_relu6, gp_bn_gradient_relu6},
};

/* --- rows ------------------------------------------------------------------------------------------------------- */

/* `rows` rows as whole folded rows and the elements of a last, incomplete one. */
struct folded {
	int64_t rows, tail;
};

static struct folded folded(const struct gp_bn *s, int64_t rows)
{
	return (struct folded){rows / s->fold, rows % s->fold * s->channels};
}

void gp_bn_apply(const struct gp_bn *s, enum cpu_act act, const float *x, float *out, int64_t rows, float *const *vec)
{
	const struct folded f = folded(s, rows);
	const int64_t at = f.rows * s->width;
	loops[act].apply(x, out, f.rows, s->width, s->width, vec[BN_A], vec[BN_B]);
	if (f.tail)
		loops[act].apply(x + at, out + at, 1, s->width, f.tail, vec[BN_A], vec[BN_B]);
}

void gp_bn_gradient(const struct gp_bn *s, enum cpu_act act, const float *dout, const float *x, float *dx, int64_t rows,
		    float *const *vec)
{
	const struct folded f = folded(s, rows);
	const int64_t at = f.rows * s->width;
	if (s->fixed && act == CPU_ACT_NONE) {
		scale_columns(dout, dx, f.rows, s->width, s->width, vec[BN_SCALE]);
		if (f.tail)
			scale_columns(dout + at, dx + at, 1, s->width, f.tail, vec[BN_SCALE]);
		return;
	}
	loops[act].gradient(dout, x, dx, f.rows, s->width, s->width, vec);
	if (f.tail)
		loops[act].gradient(dout + at, x + at, dx + at, 1, s->width, f.tail, vec);
}

/* --- sums of a block -------------------------------------------------------------------------------------------- */

/* Sums of up to TILE columns; `n` of them are there. */
struct sums {
	float sum[TILE], dot[TILE], shift[TILE];
	int64_t n;
};

static void clear(struct sums *t, int64_t n)
{
	t->n = n;
	memset(t->sum, 0, (size_t)n * sizeof *t->sum);
	memset(t->dot, 0, (size_t)n * sizeof *t->dot);
}

/* Adds folded columns up, so that only the first `channels` remain. */
static void fold_in(const struct gp_bn *s, struct sums *t)
{
	const float *sum = t->sum + s->channels, *dot = t->dot + s->channels;
	for (int64_t f = 1; f < s->fold; f++, sum += s->channels, dot += s->channels) {
		for (int64_t i = 0; i < s->channels; i++) {
			t->sum[i] += sum[i];
			t->dot[i] += dot[i];
		}
	}
}

/* Columns [at, at + n) are near the mean of the first rows: sums of squares of the rest are then exact. */
static void find_shift(const struct gp_bn *s, const float *x, int64_t rows, struct sums *t)
{
	const int64_t few = rows < SHIFT_ROWS ? rows : SHIFT_ROWS, n = s->fold > 1 ? s->channels : t->n;
	for (int64_t i = 0; i < n; i++) {
		float sum = 0.0f;
		for (int64_t r = 0; r < few; r++)
			sum += x[r * s->channels + i];
		t->shift[i] = sum / (float)few;
	}
	for (int64_t i = n; i < t->n; i++)
		t->shift[i] = t->shift[i - s->channels];
}

void gp_bn_sum_values(const struct gp_bn *s, const float *x, int64_t rows, float *sums)
{
	const struct folded f = folded(s, rows);
	struct sums t;
	for (int64_t at = 0; at < s->width; at += TILE) {
		clear(&t, s->width - at < TILE ? s->width - at : TILE);
		find_shift(s, x + at, rows, &t);
		value_columns(x + at, f.rows, s->width, t.n, t.shift, t.sum, t.dot);
		if (f.tail)
			value_columns(x + f.rows * s->width, 1, s->width, f.tail, t.shift, t.sum, t.dot);
		fold_in(s, &t);
		float *mean = sums + at, *squares = mean + s->channels;
		for (int64_t i = 0; i < t.n && i < s->channels; i++) {
			float step = t.sum[i] / (float)rows;
			mean[i] = t.shift[i] + step;
			squares[i] = t.dot[i] - t.sum[i] * step;
		}
	}
}

void gp_bn_sum_gradients(const struct gp_bn *s, enum cpu_act act, const float *dout, const float *x, int64_t rows,
			 float *const *vec, float *sums)
{
	const struct folded f = folded(s, rows);
	const int64_t tail = f.rows * s->width;
	struct sums t;
	for (int64_t at = 0; at < s->width; at += TILE) {
		const float *a = vec[BN_A] + at, *b = vec[BN_B] + at, *mean = vec[BN_MEAN] + at;
		clear(&t, s->width - at < TILE ? s->width - at : TILE);
		loops[act].gradient_sum(dout + at, x + at, f.rows, s->width, t.n, a, b, mean, t.sum, t.dot);
		if (f.tail)
			loops[act].gradient_sum(dout + tail, x + tail, 1, s->width, f.tail, a, b, mean, t.sum, t.dot);
		fold_in(s, &t);
		for (int64_t i = 0; i < t.n && i < s->channels; i++) {
			sums[at + i] = t.sum[i];
			sums[s->channels + at + i] = t.dot[i];
		}
	}
}

/* --- totals ----------------------------------------------------------------------------------------------------- */

static double rows_of(const struct gp_bn *s, int64_t block)
{
	return (double)(block < s->blocks - 1 ? s->block : s->rows - (s->blocks - 1) * s->block);
}

GP_INLINE void add_scaled_body(double *restrict total, const float *restrict value, double scale, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		total[i] += (double)value[i] * scale;
}
GP_CPU_CLONES(add_scaled, (double *total, const float *value, double scale, int64_t n), (total, value, scale, n))

GP_INLINE void add_spread_body(double *restrict total, const float *restrict mean, const float *restrict squares,
			       const double *restrict centre, double rows, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		double d = (double)mean[i] - centre[i];
		total[i] += (double)squares[i] + rows * (d * d);
	}
}
GP_CPU_CLONES(add_spread,
	      (double *total, const float *mean, const float *squares, const double *centre, double rows, int64_t n),
	      (total, mean, squares, centre, rows, n))

/* Chan, Golub and LeVeque's merge of groups, over all blocks at once. */
void gp_bn_total_values(const struct gp_bn *s, const float *sums, double *mean, double *var)
{
	const int64_t n = s->channels;
	memset(mean, 0, (size_t)n * sizeof *mean);
	memset(var, 0, (size_t)n * sizeof *var);
	for (int64_t block = 0; block < s->blocks; block++)
		add_scaled(mean, sums + block * 2 * n, rows_of(s, block), n);
	for (int64_t i = 0; i < n; i++)
		mean[i] /= (double)s->rows;
	for (int64_t block = 0; block < s->blocks; block++) {
		const float *at = sums + block * 2 * n;
		add_spread(var, at, at + n, mean, rows_of(s, block), n);
	}
	for (int64_t i = 0; i < n; i++)
		var[i] = var[i] > 0.0 ? var[i] / (double)s->rows : 0.0;
}

void gp_bn_merge(int64_t channels, struct gp_bn_merged *merged, int64_t rows, const double *mean, const double *var)
{
	const double before = (double)merged->rows, more = (double)rows, all = before + more;
	for (int64_t i = 0; i < channels; i++) {
		const double away = mean[i] - (before > 0.0 ? merged->mean[i] : mean[i]);
		const double squares = before > 0.0 ? merged->squares[i] : 0.0;
		merged->mean[i] = mean[i] - away * (before / all);
		merged->squares[i] = squares + (var[i] * more + away * away * (before * more / all));
	}
	merged->rows += rows;
}

void gp_bn_total_gradients(const struct gp_bn *s, const float *sums, double *sum, double *dot)
{
	const int64_t n = s->channels;
	memset(sum, 0, (size_t)n * sizeof *sum);
	memset(dot, 0, (size_t)n * sizeof *dot);
	for (int64_t block = 0; block < s->blocks; block++) {
		add_scaled(sum, sums + block * 2 * n, 1.0, n);
		add_scaled(dot, sums + block * 2 * n + n, 1.0, n);
	}
}
