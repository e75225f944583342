/* SPDX-License-Identifier: Apache-2.0
 *
 * What a low-rank factorisation computes with: Gram matrices and products of
 * tall matrices, and steps of a subspace iteration on a small symmetric one.
 * Every result is one chain of additions in a fixed order, without fused
 * operations, so that all instruction sets give the same bits.
 * Who uses it: common/codec/stages/poweriter.c.
 *
 * Threads: any; a call starts none. Test: tests/unit/test_factor_loops.c
 *
 * Matrices lie row after row; a stride is the distance of two rows in floats.
 * "Padded" is rounded up to whole vectors of GP_FACTOR_LANES, filled with zeros.
 */
#ifndef GP_FACTOR_LOOPS_H
#define GP_FACTOR_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

#define GP_FACTOR_LANES 8
#define GP_FACTOR_BLOCK 128 /* rows whose Gram matrix is summed in fp32 before it is added in fp64 */

static inline int64_t gp_factor_padded(int64_t n)
{
	return (n + GP_FACTOR_LANES - 1) / GP_FACTOR_LANES * GP_FACTOR_LANES;
}

/* g (n, n) += t' t on and above the diagonal, with up to GP_FACTOR_BLOCK rows of t (rows, n), n padded. `sums` has n * n
 * floats to work with. */
void gp_factor_gram(double *g, const float *t, int64_t rows, int64_t n, float *sums);
/* The same with products and sums in fp64; `wide` has 4 * n doubles to work with. */
void gp_factor_gram_exact(double *g, const float *t, int64_t rows, int64_t n, double *wide);

/* out (rows, n; stride n) = a (rows, k; stride lda) b (k, n; stride padded n). */
void gp_factor_product(float *out, const float *a, int64_t lda, const float *b, int64_t rows, int64_t k, int64_t n);

/* w (r, n) = v (r, n) g, with the symmetric g (n, n) whole. n padded. */
void gp_factor_apply(double *w, const double *v, const double *g, int64_t r, int64_t n);
/* Sum of a[i] * b[i]. n padded. */
double gp_factor_dot(const double *a, const double *b, int64_t n);
/* a += c * b; a *= c. n padded. */
void gp_factor_add(double *a, double c, const double *b, int64_t n);
void gp_factor_scale(double *a, double c, int64_t n);

#endif
