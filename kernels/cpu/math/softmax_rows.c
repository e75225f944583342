/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax of long rows. See softmax_rows.h. Test: tests/unit/test_softmax_rows.c
 */
#include "kernels/cpu/math/softmax_rows.h"

#include <math.h>

#include "kernels/cpu/math/exp.h"

#define WIDE  64   /* sums side by side, added up in their order: the same with vectors of any width */
#define BLOCK 4096 /* numbers whose sums stay in single precision: 64 in each */

GP_INLINE float larger(float a, float b)
{
	return gp_float_choose(gp_mask_below(a, b), b, a);
}

GP_INLINE void largest_body(float *out, const float *x, int64_t n)
{
	float most[WIDE], all = -INFINITY;
	int64_t i = 0;
	for (int j = 0; j < WIDE; j++)
		most[j] = -INFINITY;
	for (; i + WIDE <= n; i += WIDE) {
#pragma omp simd
		for (int j = 0; j < WIDE; j++)
			most[j] = larger(most[j], x[i + j]);
	}
	for (; i < n; i++)
		all = larger(all, x[i]);
	for (int j = 0; j < WIDE; j++)
		all = larger(all, most[j]);
	*out = all;
}
GP_CPU_CLONES(largest, (float *out, const float *x, int64_t n), (out, x, n))

/* At most a block: its sum. */
GP_INLINE double block_sum(float *restrict out, const float *restrict x, int64_t n, float most, bool keeps)
{
	float sum[WIDE] = {0};
	double all = 0.0;
	int64_t i = 0;
	for (; i + WIDE <= n; i += WIDE) {
#pragma omp simd
		for (int j = 0; j < WIDE; j++) {
			const float e = gp_exp_negative(x[i + j] - most);
			sum[j] += e;
			if (keeps)
				out[i + j] = e;
		}
	}
	for (; i < n; i++) {
		const float e = gp_exp_negative(x[i] - most);
		all += (double)e;
		if (keeps)
			out[i] = e;
	}
	for (int j = 0; j < WIDE; j++)
		all += (double)sum[j];
	return all;
}

GP_INLINE void sum_body(double *sum, const float *x, int64_t n, float most)
{
	*sum = 0.0;
	for (int64_t i = 0; i < n; i += BLOCK)
		*sum += block_sum(NULL, x + i, n - i < BLOCK ? n - i : BLOCK, most, false);
}
GP_CPU_CLONES(sum, (double *sum, const float *x, int64_t n, float most), (sum, x, n, most))

GP_INLINE void exps_body(double *sum, float *out, const float *x, int64_t n, float most)
{
	*sum = 0.0;
	for (int64_t i = 0; i < n; i += BLOCK)
		*sum += block_sum(out + i, x + i, n - i < BLOCK ? n - i : BLOCK, most, true);
}
GP_CPU_CLONES(exps, (double *sum, float *out, const float *x, int64_t n, float most), (sum, out, x, n, most))

GP_INLINE void scale_body(float *x, int64_t n, float factor)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] *= factor;
}
GP_CPU_CLONES(scale, (float *x, int64_t n, float factor), (x, n, factor))

float gp_softmax_largest(const float *x, int64_t n)
{
	float most = 0.0f;
	largest(&most, x, n);
	return most;
}

double gp_softmax_exps(float *out, const float *x, int64_t n, float most)
{
	double all = 0.0;
	if (out)
		exps(&all, out, x, n, most);
	else
		sum(&all, x, n, most);
	return all;
}

void gp_softmax_scale(float *x, int64_t n, float factor)
{
	scale(x, n, factor);
}
