/* SPDX-License-Identifier: Apache-2.0
 *
 * See distance_correlation.h. Test: tests/unit/test_distance_correlation.c
 */
#include "client/privacy/distance_correlation.h"

#include <math.h>

#include "common/base/mem.h"

#define PIECE        4096                /* numbers of a sample at a time: all samples' pieces stay in the cache */
#define MOST_NUMBERS (UINT64_C(1) << 26) /* 256 MiB */

int gp_distance_samples(int64_t samples, uint64_t each)
{
	const uint64_t room = each > 0 ? MOST_NUMBERS / each : MOST_NUMBERS;
	int64_t n = samples < GP_DISTANCE_SAMPLES ? samples : GP_DISTANCE_SAMPLES;
	if ((uint64_t)n > room)
		n = room < GP_DISTANCE_LEAST ? GP_DISTANCE_LEAST : (int64_t)room;
	return (int)(n < samples ? n : samples);
}

static float squares(const float *restrict x, const float *restrict y, size_t count)
{
	float sum = 0;
#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < count; i++)
		sum += (x[i] - y[i]) * (x[i] - y[i]);
	return sum;
}

void gp_distance_add(const float *x, int n, size_t each, double *squared)
{
	const size_t rows = (size_t)n;
	for (size_t at = 0; at < each; at += PIECE) {
		const size_t count = each - at < PIECE ? each - at : PIECE;
		for (size_t i = 0; i < rows; i++)
			for (size_t j = 0; j < i; j++)
				squared[i * rows + j] += (double)squares(x + i * each + at, x + j * each + at, count);
	}
	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < i; j++)
			squared[j * rows + i] = squared[i * rows + j];
}

void gp_distance_roots(double *squared, int n)
{
	for (size_t i = 0; i < (size_t)n * (size_t)n; i++)
		squared[i] = sqrt(squared[i]);
}

/* One set of distances: the sums of its rows, and of all. */
struct sums {
	double *row, all;
};

static struct sums add_up(const double *a, int n, double *row)
{
	struct sums s = {.row = row};
	for (int i = 0; i < n; i++) {
		row[i] = 0;
		for (int j = 0; j < n; j++)
			row[i] += a[(size_t)i * (size_t)n + (size_t)j];
		s.all += row[i];
	}
	return s;
}

/* Sums of products of the centred distances: of a with itself, of a with b, of b with itself. */
struct products {
	double aa, ab, bb;
};

/* `row` and `all`: what sums of a row and of all are divided by; the diagonal is 0 where it does not count. */
static struct products multiply(const double *a, const struct sums *sa, const double *b, const struct sums *sb, int n,
				double row, double all, bool diagonal)
{
	struct products p = {0};
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			const size_t at = (size_t)i * (size_t)n + (size_t)j;
			const double x = a[at] - (sa->row[i] + sa->row[j]) / row + sa->all / all;
			const double y = b[at] - (sb->row[i] + sb->row[j]) / row + sb->all / all;
			if (i == j && !diagonal)
				continue;
			p.aa += x * x;
			p.ab += x * y;
			p.bb += y * y;
		}
	return p;
}

/* The square of the correlation; NaN stays. */
static double share(const struct products *p)
{
	const double size = sqrt(p->aa) * sqrt(p->bb);
	return size == 0 ? 0 : p->ab / size;
}

static double root(double squared)
{
	return squared <= 0 ? 0 : squared >= 1 ? 1 : sqrt(squared);
}

enum gp_status gp_distance_correlate(const double *a, const double *b, int n, struct gp_distance_correlation *out,
				     struct gp_err *err)
{
	void *rows;
	gp_require(n >= GP_DISTANCE_LEAST);
	GP_TRY(gp_alloc_array(&rows, 2 * (size_t)n, sizeof(double), err));
	const struct sums sa = add_up(a, n, rows), sb = add_up(b, n, (double *)rows + n);
	const double d = n;
	const struct products plain = multiply(a, &sa, b, &sb, n, d, d * d, true);
	const struct products centred = multiply(a, &sa, b, &sb, n, d - 2, (d - 1) * (d - 2), false);
	gp_free(rows);
	*out = (struct gp_distance_correlation){.plain = root(share(&plain)), .squared = share(&centred)};
	out->corrected = root(out->squared);
	return GP_OK;
}

enum gp_status gp_distance_correlation(const float *x, size_t x_each, const float *y, size_t y_each, int n,
				       struct gp_distance_correlation *out, struct gp_err *err)
{
	const size_t cells = (size_t)n * (size_t)n;
	double *const d = gp_calloc(2 * cells, sizeof *d);
	if (!d)
		GP_FAIL(err, GP_NOMEM, "out of memory for the distances of %d samples", n);
	gp_distance_add(x, n, x_each, d);
	gp_distance_add(y, n, y_each, d + cells);
	gp_distance_roots(d, n);
	gp_distance_roots(d + cells, n);
	const enum gp_status status = gp_distance_correlate(d, d + cells, n, out, err);
	gp_free(d);
	return status;
}
