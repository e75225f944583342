/* SPDX-License-Identifier: Apache-2.0
 *
 * See eigen.h. Rows are what is worked on, as they lie in memory: the matrix of
 * eigenvectors is kept transposed. Test: tests/unit/test_eigen.c
 */
#include "client/insert/eigen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

#define TURNS_MOST 60 /* for one eigenvalue; three are usual */

static double dot(const double *a, const double *b, int64_t n)
{
	double sum[4] = {0}; /* in the same order everywhere */
	for (int64_t i = 0; i < n; i++)
		sum[i & 3] += a[i] * b[i];
	return sum[0] + sum[1] + sum[2] + sum[3];
}

/* y += c x */
static void add(double *y, const double *x, double c, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] += c * x[i];
}

/* --- to a tridiagonal matrix ------------------------------------------------------------------------------------- */

struct work {
	double *a;             /* (n,n); both triangles from `mirror` on */
	double *q;             /* (n,n): rows are turned along */
	double *d, *e, *v, *p; /* diagonal, what is beside it, a reflection's vector, A v */
	int64_t n;
};

static void mirror(const struct work *w)
{
	for (int64_t i = 0; i < w->n; i++)
		for (int64_t k = 0; k < i; k++)
			w->a[k * w->n + i] = w->a[i * w->n + k];
}

/* The reflection I - 2 v v' that zeroes column k below the place under the diagonal; v has length 1. False: nothing to do. */
static bool make_reflection(const struct work *w, int64_t k)
{
	const double *column = w->a + k * w->n; /* symmetric: a row */
	const int64_t from = k + 1, rest = w->n - from;
	const double norm = sqrt(dot(column + from, column + from, rest));
	w->e[k] = column[from];
	if (rest < 2 || norm == fabs(column[from]))
		return false;
	memset(w->v, 0, (size_t)w->n * sizeof *w->v);
	memcpy(w->v + from, column + from, (size_t)rest * sizeof *w->v);
	w->e[k] = column[from] > 0 ? -norm : norm;
	w->v[from] -= w->e[k];
	const double scale = 1 / sqrt(dot(w->v + from, w->v + from, rest));
	for (int64_t i = from; i < w->n; i++)
		w->v[i] *= scale;
	return true;
}

/* A becomes H A H of the rows and columns from `from` on: A - v p' - p v', p = 2 (A v - (v' A v) v). */
static void reflect(const struct work *w, int64_t from)
{
	const int64_t n = w->n, rest = n - from;
	for (int64_t i = from; i < n; i++)
		w->p[i] = 2 * dot(w->a + i * n + from, w->v + from, rest);
	add(w->p + from, w->v + from, -dot(w->p + from, w->v + from, rest), rest);
	for (int64_t i = from; i < n; i++) {
		add(w->a + i * n + from, w->p + from, -w->v[i], rest);
		add(w->a + i * n + from, w->v + from, -w->p[i], rest);
	}
}

/* Rows of q become those of H q, where H is symmetric: q - 2 v (v' q). */
static void reflect_vectors(const struct work *w, int64_t from)
{
	const int64_t n = w->n;
	memset(w->p, 0, (size_t)n * sizeof *w->p);
	for (int64_t i = from; i < n; i++)
		add(w->p, w->q + i * n, w->v[i], n);
	for (int64_t i = from; i < n; i++)
		add(w->q + i * n, w->p, -2 * w->v[i], n);
}

static void to_tridiagonal(const struct work *w)
{
	const int64_t n = w->n;
	mirror(w);
	memset(w->q, 0, (size_t)(n * n) * sizeof *w->q);
	for (int64_t i = 0; i < n; i++)
		w->q[i * n + i] = 1;
	for (int64_t k = 0; k < n; k++) {
		w->d[k] = w->a[k * n + k];
		w->e[k] = 0;
		if (k + 1 < n && make_reflection(w, k)) {
			reflect(w, k + 1);
			reflect_vectors(w, k + 1);
		}
	}
}

/* --- QL ---------------------------------------------------------------------------------------------------------- */

/* What is next to nothing beside the largest row. Beside its own two numbers of the diagonal it cannot be asked for: where they
 * are roundings of larger ones, all of a size, it would take hundreds of sweeps. */
static double find_least(const struct work *w)
{
	double largest = 0;
	for (int64_t i = 0; i < w->n; i++)
		largest = fmax(largest, fabs(w->d[i]) + fabs(w->e[i]));
	return 0x1p-52 * largest;
}

/* Where the matrix falls apart behind row `from`: the first place beside the diagonal that is next to nothing. */
static int64_t find_end(const struct work *w, int64_t from, double least)
{
	int64_t m = from;
	while (m + 1 < w->n && fabs(w->e[m]) > least)
		m++;
	return m;
}

static void turn_rows(double *a, double *b, double c, double s, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		const double x = a[i], y = b[i];
		b[i] = s * x + c * y;
		a[i] = c * x - s * y;
	}
}

/* One sweep over rows from..m, with the shift of Wilkinson. */
static void sweep(const struct work *w, int64_t from, int64_t m)
{
	double *const d = w->d, *const e = w->e;
	double g = (d[from + 1] - d[from]) / (2 * e[from]), s = 1, c = 1, p = 0;
	g = d[m] - d[from] + e[from] / (g + copysign(hypot(g, 1), g));
	for (int64_t i = m - 1; i >= from; i--) {
		const double f = s * e[i], b = c * e[i], r = hypot(f, g);
		if (i + 1 < m)
			e[i + 1] = r;
		if (r == 0) { /* it falls apart here */
			d[i + 1] -= p;
			return;
		}
		s = f / r;
		c = g / r;
		g = d[i + 1] - p;
		const double t = (d[i] - g) * s + 2 * c * b;
		p = s * t;
		d[i + 1] = g + p;
		g = c * t - b;
		turn_rows(w->q + i * w->n, w->q + (i + 1) * w->n, c, s, w->n);
	}
	d[from] -= p;
	e[from] = g;
}

static enum gp_status to_diagonal(const struct work *w, struct gp_err *err)
{
	const double least = find_least(w);
	for (int64_t from = 0; from < w->n; from++) {
		int64_t m, turns = 0;
		while ((m = find_end(w, from, least)) != from) {
			if (++turns > TURNS_MOST)
				GP_FAIL(err, GP_INTERNAL, "the eigenvalues of a matrix were not found");
			sweep(w, from, m);
		}
	}
	return GP_OK;
}

/* --- order ------------------------------------------------------------------------------------------------------- */

static void make_positive(double *row, int64_t n)
{
	int64_t largest = 0;
	for (int64_t i = 1; i < n; i++)
		if (fabs(row[i]) > fabs(row[largest]))
			largest = i;
	const double sign = row[largest] < 0 ? -1 : 1;
	for (int64_t i = 0; i < n; i++)
		row[i] *= sign;
}

/* Rows of q by falling eigenvalue into a; of equal ones the first comes first. */
static void write_sorted(const struct work *w, double *value)
{
	const int64_t n = w->n;
	for (int64_t i = 0; i < n; i++) {
		int64_t place = 0;
		for (int64_t k = 0; k < n; k++)
			place += w->d[k] > w->d[i] || (w->d[k] == w->d[i] && k < i);
		value[place] = w->d[i];
		memcpy(w->a + place * n, w->q + i * n, (size_t)n * sizeof *w->a);
		make_positive(w->a + place * n, n);
	}
}

/* So that no square becomes zero or infinite; the vectors stay the same. */
static void scale_matrix(const struct work *w, double largest)
{
	for (int64_t i = 0; i < w->n && largest > 0; i++)
		for (int64_t k = 0; k <= i; k++)
			w->a[i * w->n + k] /= largest;
}

enum gp_status gp_eigen_symmetric(double *a, double *value, int64_t n, struct gp_err *err)
{
	const size_t size = (size_t)n;
	void *memory;
	double largest = 0;
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k <= i; k++) {
			if (!isfinite(a[i * n + k]))
				GP_FAIL(err, GP_INVALID, "a matrix has elements that are not finite");
			largest = fmax(largest, fabs(a[i * n + k]));
		}
	GP_TRY(gp_alloc_array(&memory, size * (size + 4), sizeof(double), err));
	double *const m = memory;
	const struct work w = {.a = a,
			       .q = m,
			       .d = m + size * size,
			       .e = m + size * (size + 1),
			       .v = m + size * (size + 2),
			       .p = m + size * (size + 3),
			       .n = n};
	scale_matrix(&w, largest);
	to_tridiagonal(&w);
	const enum gp_status status = to_diagonal(&w, err);
	if (status == GP_OK)
		write_sorted(&w, value);
	for (int64_t i = 0; i < n && status == GP_OK && largest > 0; i++)
		value[i] *= largest;
	gp_free(memory);
	return status;
}
