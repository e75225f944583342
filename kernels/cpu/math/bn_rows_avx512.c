/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization's loops with AVX-512, for the three that contain an
 * activation: compilers turn its comparisons into mask arithmetic instead of
 * vector minima. Same operations in the same order as bn_rows.c's, so that
 * results are the same, bit for bit. Test: tests/unit/test_bn_rows.c
 */
#include <immintrin.h>

#include "kernels/cpu/math/bn_loops.h"
#include "kernels/loops/simd.h"

#define LANES 16
#define AHEAD 8192 /* floats: rows come in short runs, between which the processor's own prefetching loses the thread */

GP_INLINE __mmask16 lanes_at(int64_t i, int64_t n)
{
	return n - i >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << (n - i)) - 1);
}

/* A not-a-number stays one: the second operand is what a comparison with it gives. */
GP_INLINE __m512 activate(__m512 v, enum cpu_act act)
{
	if (act == CPU_ACT_NONE)
		return v;
	v = _mm512_max_ps(_mm512_setzero_ps(), v);
	return act == CPU_ACT_RELU6 ? _mm512_min_ps(_mm512_set1_ps(6.0f), v) : v;
}

GP_INLINE __m512 masked(__m512 g, __m512 v, enum cpu_act act)
{
	if (act == CPU_ACT_NONE)
		return g;
	__mmask16 open = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GT_OQ);
	if (act == CPU_ACT_RELU6)
		open = _mm512_mask_cmp_ps_mask(open, v, _mm512_set1_ps(6.0f), _CMP_LT_OQ);
	return _mm512_maskz_mov_ps(open, g);
}

GP_INLINE __m512 load(const float *p, __mmask16 lanes)
{
	return _mm512_maskz_loadu_ps(lanes, p);
}

GP_INLINE __m512 affine(__m512 x, const float *a, const float *b, __mmask16 lanes)
{
	return _mm512_add_ps(_mm512_mul_ps(x, load(a, lanes)), load(b, lanes));
}

/* --- out = act(a x + b) ------------------------------------------------------------------------------------------- */

GP_INLINE void apply_vector(const float *x, float *out, const float *a, const float *b, __mmask16 lanes,
			    enum cpu_act act)
{
	_mm_prefetch((const char *)(x + AHEAD), _MM_HINT_T1);
	_mm512_mask_storeu_ps(out, lanes, activate(affine(load(x, lanes), a, b, lanes), act));
}

GP_INLINE void apply(const float *x, float *out, int64_t rows, int64_t width, int64_t n, const float *a, const float *b,
		     enum cpu_act act)
{
	for (int64_t r = 0; r < rows; r++, x += width, out += width) {
		int64_t i = 0;
		for (; i + LANES <= n; i += LANES)
			apply_vector(x + i, out + i, a + i, b + i, 0xffff, act);
		if (i < n)
			apply_vector(x + i, out + i, a + i, b + i, lanes_at(i, n), act);
	}
}

/* --- dx = (g - grad_mean - (x - mean) k) scale -------------------------------------------------------------------- */

GP_INLINE void gradient_vector(const float *dout, const float *x, float *dx, int64_t i, __mmask16 lanes,
			       float *const *vec, enum cpu_act act)
{
	_mm_prefetch((const char *)(x + AHEAD), _MM_HINT_T1);
	_mm_prefetch((const char *)(dout + AHEAD), _MM_HINT_T1);
	const __m512 xv = load(x, lanes);
	__m512 g = load(dout, lanes);
	if (act != CPU_ACT_NONE)
		g = masked(g, affine(xv, vec[BN_A] + i, vec[BN_B] + i, lanes), act);
	__m512 slope = _mm512_mul_ps(_mm512_sub_ps(xv, load(vec[BN_MEAN] + i, lanes)), load(vec[BN_K] + i, lanes));
	g = _mm512_sub_ps(_mm512_sub_ps(g, load(vec[BN_GRAD_MEAN] + i, lanes)), slope);
	_mm512_mask_storeu_ps(dx, lanes, _mm512_mul_ps(g, load(vec[BN_SCALE] + i, lanes)));
}

GP_INLINE void gradient(const float *dout, const float *x, float *dx, int64_t rows, int64_t width, int64_t n,
			float *const *vec, enum cpu_act act)
{
	for (int64_t r = 0; r < rows; r++, dout += width, x += width, dx += width) {
		int64_t i = 0;
		for (; i + LANES <= n; i += LANES)
			gradient_vector(dout + i, x + i, dx + i, i, 0xffff, vec, act);
		if (i < n)
			gradient_vector(dout + i, x + i, dx + i, i, lanes_at(i, n), vec, act);
	}
}

/* --- sums of g and g (x - mean) ----------------------------------------------------------------------------------- */

/* g and g (x - mean) of one vector. */
struct pair {
	__m512 g, dot;
};

GP_INLINE struct pair gradient_pair(const float *dout, const float *x, __m512 a, __m512 b, __m512 mean, __mmask16 lanes,
				    enum cpu_act act)
{
	const __m512 xv = load(x, lanes);
	__m512 g = masked(load(dout, lanes), _mm512_add_ps(_mm512_mul_ps(xv, a), b), act);
	return (struct pair){g, _mm512_mul_ps(g, _mm512_sub_ps(xv, mean))};
}

GP_INLINE void gradient_sum_vector(const float *dout, const float *x, int64_t rows, int64_t stride, const float *at[3],
				   float *sum, float *dot, __mmask16 lanes, enum cpu_act act)
{
	const __m512 a = load(at[0], lanes), b = load(at[1], lanes), mean = load(at[2], lanes);
	__m512 s = load(sum, lanes), d = load(dot, lanes);
	int64_t r = 0;
	for (; r + 2 <= rows; r += 2, dout += 2 * stride, x += 2 * stride) {
		struct pair p = gradient_pair(dout, x, a, b, mean, lanes, act);
		struct pair q = gradient_pair(dout + stride, x + stride, a, b, mean, lanes, act);
		s = _mm512_add_ps(s, _mm512_add_ps(p.g, q.g));
		d = _mm512_add_ps(d, _mm512_add_ps(p.dot, q.dot));
	}
	if (r < rows) {
		struct pair p = gradient_pair(dout, x, a, b, mean, lanes, act);
		s = _mm512_add_ps(s, p.g);
		d = _mm512_add_ps(d, p.dot);
	}
	_mm512_mask_storeu_ps(sum, lanes, s);
	_mm512_mask_storeu_ps(dot, lanes, d);
}

GP_INLINE void gradient_sum(const float *dout, const float *x, int64_t rows, int64_t stride, int64_t n, const float *a,
			    const float *b, const float *mean, float *sum, float *dot, enum cpu_act act)
{
	for (int64_t i = 0; i < n; i += LANES) {
		const float *at[3] = {a + i, b + i, mean + i};
		gradient_sum_vector(dout + i, x + i, rows, stride, at, sum + i, dot + i, lanes_at(i, n), act);
	}
}

#define PER_ACT(suffix, act)                                                                                           \
	void gp_bn_apply_##suffix##_avx512(const float *x, float *out, int64_t rows, int64_t width, int64_t n,         \
					   const float *a, const float *b)                                             \
	{                                                                                                              \
		apply(x, out, rows, width, n, a, b, act);                                                              \
	}                                                                                                              \
	void gp_bn_gradient_##suffix##_avx512(const float *dout, const float *x, float *dx, int64_t rows,              \
					      int64_t width, int64_t n, float *const *vec)                             \
	{                                                                                                              \
		gradient(dout, x, dx, rows, width, n, vec, act);                                                       \
	}                                                                                                              \
	void gp_bn_gradient_sum_##suffix##_avx512(const float *dout, const float *x, int64_t rows, int64_t stride,     \
						  int64_t n, const float *a, const float *b, const float *mean,        \
						  float *sum, float *dot)                                              \
	{                                                                                                              \
		gradient_sum(dout, x, rows, stride, n, a, b, mean, sum, dot, act);                                     \
	}

PER_ACT(none, CPU_ACT_NONE)
PER_ACT(relu, CPU_ACT_RELU)
PER_ACT(relu6, CPU_ACT_RELU6)
