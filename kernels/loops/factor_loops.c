/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled for AVX2 and without from one source, with GCC's vector types of 32
 * bytes. There is no version for AVX-512: on Zen 4 one with vectors of 64 bytes
 * was slower (0.83 against 0.95 G elements/s at rank 8, where half of each is
 * empty), and this one compiled for it, too. Separate multiplications and
 * additions cost that processor nothing against fused ones, for they have pipes
 * of their own. See factor_loops.h. Test: tests/unit/test_factor_loops.c
 */
#include "kernels/loops/factor_loops.h"

#include <string.h>

#include "kernels/loops/simd.h"

enum { TILE = 4, LANES = GP_FACTOR_LANES, DOUBLES = 4 };

#if defined(__x86_64__)
#define CLONES(name, params, args)                                                                                     \
	static void name##_portable params                                                                             \
	{                                                                                                              \
		name##_body args;                                                                                      \
	}                                                                                                              \
	__attribute__((target("avx2"))) static void name##_avx2 params                                                 \
	{                                                                                                              \
		name##_body args;                                                                                      \
	}                                                                                                              \
	static void name params                                                                                        \
	{                                                                                                              \
		if (gp_isa() >= GP_ISA_AVX2)                                                                           \
			name##_avx2 args;                                                                              \
		else                                                                                                   \
			name##_portable args;                                                                          \
	}
#else
#define CLONES(name, params, args) GP_CPU_CLONES(name, params, args)
#endif

/* Unaligned views of floats and doubles. */
typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(32), aligned(8), may_alias));

/* --- Gram matrix ------------------------------------------------------------------------------------------------ */

/* TILE rows of t' t from row i on, nv vectors of columns from column j on. */
GP_INLINE void gram_tile(float *sums, const float *t, int64_t rows, int64_t n, int64_t i, int64_t j, const int nv)
{
	floats sum[TILE][2];
#pragma GCC unroll 4
	for (int m = 0; m < TILE; m++)
#pragma GCC unroll 2
		for (int v = 0; v < nv; v++)
			sum[m][v] = (floats){0};
	for (int64_t r = 0; r < rows; r++, t += n) {
		floats b[2];
#pragma GCC unroll 2
		for (int v = 0; v < nv; v++)
			b[v] = *(const floats *)(t + j + v * LANES);
#pragma GCC unroll 4
		for (int m = 0; m < TILE; m++)
#pragma GCC unroll 2
			for (int v = 0; v < nv; v++)
				sum[m][v] += t[i + m] * b[v];
	}
#pragma GCC unroll 4
	for (int m = 0; m < TILE; m++)
#pragma GCC unroll 2
		for (int v = 0; v < nv; v++)
			*(floats *)(sums + (i + m) * n + j + v * LANES) = sum[m][v];
}

GP_INLINE void gram_body(double *g, const float *t, int64_t rows, int64_t n, float *sums)
{
	for (int64_t i = 0; i < n; i += TILE) {
		int64_t j = i / LANES * LANES;
		for (; j + 2 * LANES <= n; j += 2 * LANES)
			gram_tile(sums, t, rows, n, i, j, 2);
		if (j < n)
			gram_tile(sums, t, rows, n, i, j, 1);
		for (int64_t m = i; m < i + TILE; m++) {
			double *to = g + m * n;
			const float *from = sums + m * n;
#pragma omp simd
			for (int64_t k = i / LANES * LANES; k < n; k++)
				to[k] += (double)from[k];
		}
	}
}
CLONES(gram, (double *g, const float *t, int64_t rows, int64_t n, float *sums), (g, t, rows, n, sums))

void gp_factor_gram(double *g, const float *t, int64_t rows, int64_t n, float *sums)
{
	gram(g, t, rows, n, sums);
}

GP_INLINE void gram_exact_body(double *g, const float *t, int64_t rows, int64_t n, double *restrict wide)
{
	for (int64_t r = 0; r < rows; r += 4) {
		const int64_t here = rows - r < 4 ? rows - r : 4;
		for (int64_t k = 0; k < 4 * n; k++)
			wide[k] = k < here * n ? (double)t[r * n + k] : 0;
		for (int64_t i = 0; i < n; i++) {
			const double a0 = wide[i], a1 = wide[n + i], a2 = wide[2 * n + i], a3 = wide[3 * n + i];
			double *restrict to = g + i * n;
#pragma omp simd
			for (int64_t j = i / LANES * LANES; j < n; j++)
				to[j] = to[j] + a0 * wide[j] + a1 * wide[n + j] + a2 * wide[2 * n + j] +
					a3 * wide[3 * n + j];
		}
	}
}
CLONES(gram_exact, (double *g, const float *t, int64_t rows, int64_t n, double *wide), (g, t, rows, n, wide))

void gp_factor_gram_exact(double *g, const float *t, int64_t rows, int64_t n, double *wide)
{
	gram_exact(g, t, rows, n, wide);
}

/* --- product ---------------------------------------------------------------------------------------------------- */

/* mr rows, nv vectors of which the first `left` floats exist. */
GP_INLINE void product_tile(float *out, int64_t ldo, const float *a, int64_t lda, const float *b, int64_t ldb,
			    int64_t k, int64_t left, const int mr, const int nv)
{
	floats sum[TILE][2];
#pragma GCC unroll 4
	for (int m = 0; m < mr; m++)
#pragma GCC unroll 2
		for (int v = 0; v < nv; v++)
			sum[m][v] = (floats){0};
	for (int64_t l = 0; l < k; l++, b += ldb) {
#pragma GCC unroll 4
		for (int m = 0; m < mr; m++)
#pragma GCC unroll 2
			for (int v = 0; v < nv; v++)
				sum[m][v] += a[m * lda + l] * *(const floats *)(b + v * LANES);
	}
#pragma GCC unroll 4
	for (int m = 0; m < mr; m++)
#pragma GCC unroll 2
		for (int v = 0; v < nv; v++) {
			const int64_t here = left - v * LANES;
			if (here >= LANES)
				*(floats *)(out + m * ldo + v * LANES) = sum[m][v];
			else
				memcpy(out + m * ldo + v * LANES, &sum[m][v], (size_t)here * sizeof *out);
		}
}

GP_INLINE void product_body(float *out, const float *a, int64_t lda, const float *b, int64_t rows, int64_t k, int64_t n)
{
	const int64_t ldb = gp_factor_padded(n);
	for (int64_t j = 0; j < n; j += 2 * LANES) {
		int64_t i = 0;
		const bool two = n - j > LANES;
		for (; i + TILE <= rows && two; i += TILE)
			product_tile(out + i * n + j, n, a + i * lda, lda, b + j, ldb, k, n - j, TILE, 2);
		for (; i + TILE <= rows; i += TILE)
			product_tile(out + i * n + j, n, a + i * lda, lda, b + j, ldb, k, n - j, TILE, 1);
		for (; i < rows && two; i++)
			product_tile(out + i * n + j, n, a + i * lda, lda, b + j, ldb, k, n - j, 1, 2);
		for (; i < rows; i++)
			product_tile(out + i * n + j, n, a + i * lda, lda, b + j, ldb, k, n - j, 1, 1);
	}
}
CLONES(product, (float *out, const float *a, int64_t lda, const float *b, int64_t rows, int64_t k, int64_t n),
       (out, a, lda, b, rows, k, n))

void gp_factor_product(float *out, const float *a, int64_t lda, const float *b, int64_t rows, int64_t k, int64_t n)
{
	product(out, a, lda, b, rows, k, n);
}

/* --- small and in fp64 ------------------------------------------------------------------------------------------ */

GP_INLINE void apply_body(double *w, const double *v, const double *g, int64_t r, int64_t n)
{
	memset(w, 0, (size_t)(r * n) * sizeof *w);
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < r; k++) {
			const double a = v[k * n + i];
			const double *from = g + i * n;
			double *to = w + k * n;
			for (int64_t j = 0; j < n; j += DOUBLES)
				*(doubles *)(to + j) += a * *(const doubles *)(from + j);
		}
}
CLONES(apply, (double *w, const double *v, const double *g, int64_t r, int64_t n), (w, v, g, r, n))

void gp_factor_apply(double *w, const double *v, const double *g, int64_t r, int64_t n)
{
	apply(w, v, g, r, n);
}

GP_INLINE void dot_body(const double *a, const double *b, int64_t n, double *out)
{
	doubles sum = {0};
	for (int64_t i = 0; i < n; i += DOUBLES)
		sum += *(const doubles *)(a + i) * *(const doubles *)(b + i);
	*out = 0;
	for (int i = 0; i < DOUBLES; i++)
		*out += sum[i];
}
CLONES(dot, (const double *a, const double *b, int64_t n, double *out), (a, b, n, out))

double gp_factor_dot(const double *a, const double *b, int64_t n)
{
	double out = 0;
	dot(a, b, n, &out);
	return out;
}

GP_INLINE void add_body(double *a, double c, const double *b, int64_t n)
{
	for (int64_t i = 0; i < n; i += DOUBLES)
		*(doubles *)(a + i) += c * *(const doubles *)(b + i);
}
CLONES(add, (double *a, double c, const double *b, int64_t n), (a, c, b, n))

void gp_factor_add(double *a, double c, const double *b, int64_t n)
{
	add(a, c, b, n);
}

void gp_factor_scale(double *a, double c, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		a[i] *= c;
}
