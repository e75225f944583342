/* SPDX-License-Identifier: Apache-2.0
 *
 * Means over windows, and back. See downsample_loops.h.
 * Test: tests/unit/test_codec_downsample.c
 */
#include "kernels/loops/downsample_loops.h"

#include <string.h>

#include "kernels/loops/simd.h"

GP_INLINE int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

GP_INLINE void add(const float *restrict x, int64_t n, float *restrict y)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] += x[i];
}

GP_INLINE void divide(float *restrict y, int64_t n, float by)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] /= by;
}

/* One window of rows * columns pixels of c channels; `line` elements from one row of the image to the next. */
GP_INLINE void mean_window(const float *restrict x, int64_t rows, int64_t columns, int64_t c, int64_t line,
			   float *restrict y)
{
	memcpy(y, x, (size_t)c * sizeof *y);
	for (int64_t row = 0; row < rows; row++)
		for (int64_t column = row == 0; column < columns; column++)
			add(x + row * line + column * c, c, y);
	divide(y, c, (float)(rows * columns));
}

GP_INLINE void mean_body(const struct gp_windows *p, const float *restrict x, float *restrict y)
{
	const int64_t line = p->w * p->c;
	for (int64_t image = 0; image < p->n; image++, x += p->h * line)
		for (int64_t top = 0; top < p->h; top += p->fh)
			for (int64_t left = 0; left < p->w; left += p->fw, y += p->c)
				mean_window(x + top * line + left * p->c, smaller(p->fh, p->h - top),
					    smaller(p->fw, p->w - left), p->c, line, y);
}

GP_CPU_CLONES(mean, (const struct gp_windows *p, const float *x, float *y), (p, x, y))

void gp_windows_mean(const struct gp_windows *p, const float *x, float *y)
{
	mean(p, x, y);
}

/* One row of windows to the first of its rows; returns where the next begins. */
static const float *spread_row(const struct gp_windows *p, const float *restrict y, float *restrict x)
{
	for (int64_t left = 0; left < p->w; left += p->fw, y += p->c)
		for (int64_t column = left; column < smaller(left + p->fw, p->w); column++)
			memcpy(x + column * p->c, y, (size_t)p->c * sizeof *x);
	return y;
}

void gp_windows_spread(const struct gp_windows *p, const float *y, float *x)
{
	const int64_t line = p->w * p->c;
	for (int64_t image = 0; image < p->n; image++, x += p->h * line)
		for (int64_t top = 0; top < p->h; top += p->fh) {
			y = spread_row(p, y, x + top * line);
			for (int64_t row = top + 1; row < smaller(top + p->fh, p->h); row++)
				memcpy(x + row * line, x + top * line, (size_t)line * sizeof *x);
		}
}
