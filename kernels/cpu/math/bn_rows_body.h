/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization's loops over vec.h, for bn_rows_avx2.c, bn_rows_avx512.c and bn_rows_neon.c, for the three that
 * contain an activation: compilers turn its comparisons into mask arithmetic instead of vector minima. Same operations in
 * the same order as bn_rows.c's, so that results are the same, bit for bit.
 *
 * Threads: any; rows and sums are the caller's. Test: tests/unit/test_bn_rows.c
 */
#ifndef GP_CPU_BN_ROWS_BODY_H
#define GP_CPU_BN_ROWS_BODY_H

#include "kernels/cpu/math/bn_loops.h"
#include "kernels/cpu/math/vec.h"

#define LINE_VECTORS (VEC_LINE / VEC_LANES)
#define AHEAD        8192 /* floats: rows come in short runs, between which the processor's own prefetching loses the thread */

/* Before a loop over a line's vectors. No higher number: where there is but one, compilers take it for the loop around. */
#if VEC_LANES < 8
#define EACH_OF_LINE _Pragma("GCC unroll 4")
#else
#define EACH_OF_LINE _Pragma("GCC unroll 2")
#endif

/* A not-a-number stays one: the second operand is what a comparison with it gives. */
GP_INLINE gp_vec activate(gp_vec v, enum cpu_act act)
{
	if (act == CPU_ACT_NONE)
		return v;
	v = vec_larger(vec_zero(), v);
	return act == CPU_ACT_RELU6 ? vec_smaller(vec_all(6.0f), v) : v;
}

GP_INLINE gp_vec masked(gp_vec g, gp_vec v, enum cpu_act act)
{
	if (act == CPU_ACT_NONE)
		return g;
	if (act == CPU_ACT_RELU6)
		return vec_if_between(v, vec_zero(), vec_all(6.0f), g);
	return vec_if_above(v, vec_zero(), g);
}

GP_INLINE gp_vec load(const float *p, gp_vec_mask lanes)
{
	return vec_load_first(lanes, p);
}

GP_INLINE gp_vec affine(gp_vec x, const float *a, const float *b, gp_vec_mask lanes)
{
	return vec_add(vec_mul(x, load(a, lanes)), load(b, lanes));
}

/* --- out = act(a x + b) ------------------------------------------------------------------------------------------- */

GP_INLINE void apply_vector(const float *x, float *out, const float *a, const float *b, gp_vec_mask lanes,
			    enum cpu_act act)
{
	vec_store_first(out, lanes, activate(affine(load(x, lanes), a, b, lanes), act));
}

GP_INLINE void apply(const float *x, float *out, int64_t rows, int64_t width, int64_t n, const float *a, const float *b,
		     enum cpu_act act)
{
	for (int64_t r = 0; r < rows; r++, x += width, out += width) {
		int64_t i = 0;
		while (i + VEC_LINE <= n) {
			vec_soon_second(x + i + AHEAD);
			EACH_OF_LINE
			for (int v = 0; v < LINE_VECTORS; v++, i += VEC_LANES)
				apply_vector(x + i, out + i, a + i, b + i, VEC_ALL, act);
		}
		for (; i < n; i += VEC_LANES)
			apply_vector(x + i, out + i, a + i, b + i, vec_first(n - i), act);
	}
}

/* --- dx = (g - grad_mean - (x - mean) k) scale -------------------------------------------------------------------- */

GP_INLINE void gradient_vector(const float *dout, const float *x, float *dx, int64_t i, gp_vec_mask lanes,
			       float *const *vec, enum cpu_act act)
{
	const gp_vec xv = load(x, lanes);
	gp_vec g = load(dout, lanes);
	if (act != CPU_ACT_NONE)
		g = masked(g, affine(xv, vec[BN_A] + i, vec[BN_B] + i, lanes), act);
	gp_vec slope = vec_mul(vec_sub(xv, load(vec[BN_MEAN] + i, lanes)), load(vec[BN_K] + i, lanes));
	g = vec_sub(vec_sub(g, load(vec[BN_GRAD_MEAN] + i, lanes)), slope);
	vec_store_first(dx, lanes, vec_mul(g, load(vec[BN_SCALE] + i, lanes)));
}

GP_INLINE void gradient(const float *dout, const float *x, float *dx, int64_t rows, int64_t width, int64_t n,
			float *const *vec, enum cpu_act act)
{
	for (int64_t r = 0; r < rows; r++, dout += width, x += width, dx += width) {
		int64_t i = 0;
		while (i + VEC_LINE <= n) {
			vec_soon_second(x + i + AHEAD);
			vec_soon_second(dout + i + AHEAD);
			EACH_OF_LINE
			for (int v = 0; v < LINE_VECTORS; v++, i += VEC_LANES)
				gradient_vector(dout + i, x + i, dx + i, i, VEC_ALL, vec, act);
		}
		for (; i < n; i += VEC_LANES)
			gradient_vector(dout + i, x + i, dx + i, i, vec_first(n - i), vec, act);
	}
}

/* --- sums of g and g (x - mean) ----------------------------------------------------------------------------------- */

/* g and g (x - mean) of one vector. */
struct pair {
	gp_vec g, dot;
};

GP_INLINE struct pair gradient_pair(const float *dout, const float *x, gp_vec a, gp_vec b, gp_vec mean,
				    gp_vec_mask lanes, enum cpu_act act)
{
	const gp_vec xv = load(x, lanes);
	gp_vec g = masked(load(dout, lanes), vec_add(vec_mul(xv, a), b), act);
	return (struct pair){g, vec_mul(g, vec_sub(xv, mean))};
}

/* `nv` vectors of columns; at: a, b and mean there. */
GP_INLINE void gradient_sum_vectors(const float *dout, const float *x, int64_t rows, int64_t stride, const float *at[3],
				    float *sum, float *dot, gp_vec_mask lanes, enum cpu_act act, const int nv)
{
	gp_vec a[LINE_VECTORS], b[LINE_VECTORS], mean[LINE_VECTORS], s[LINE_VECTORS], d[LINE_VECTORS];
	int64_t r = 0;
	EACH_OF_LINE
	for (int v = 0; v < nv; v++) {
		a[v] = load(at[0] + v * VEC_LANES, lanes);
		b[v] = load(at[1] + v * VEC_LANES, lanes);
		mean[v] = load(at[2] + v * VEC_LANES, lanes);
		s[v] = load(sum + v * VEC_LANES, lanes);
		d[v] = load(dot + v * VEC_LANES, lanes);
	}
	for (; r + 2 <= rows; r += 2, dout += 2 * stride, x += 2 * stride) {
		EACH_OF_LINE
		for (int v = 0; v < nv; v++) {
			const float *dv = dout + v * VEC_LANES, *xv = x + v * VEC_LANES;
			struct pair p = gradient_pair(dv, xv, a[v], b[v], mean[v], lanes, act);
			struct pair q = gradient_pair(dv + stride, xv + stride, a[v], b[v], mean[v], lanes, act);
			s[v] = vec_add(s[v], vec_add(p.g, q.g));
			d[v] = vec_add(d[v], vec_add(p.dot, q.dot));
		}
	}
	EACH_OF_LINE
	for (int v = 0; v < nv; v++) {
		if (r < rows) {
			struct pair p =
				gradient_pair(dout + v * VEC_LANES, x + v * VEC_LANES, a[v], b[v], mean[v], lanes, act);
			s[v] = vec_add(s[v], p.g);
			d[v] = vec_add(d[v], p.dot);
		}
		vec_store_first(sum + v * VEC_LANES, lanes, s[v]);
		vec_store_first(dot + v * VEC_LANES, lanes, d[v]);
	}
}

/* Line by line of the cache. */
GP_INLINE void gradient_sum(const float *dout, const float *x, int64_t rows, int64_t stride, int64_t n, const float *a,
			    const float *b, const float *mean, float *sum, float *dot, enum cpu_act act)
{
	int64_t i = 0;
	for (; i + VEC_LINE <= n; i += VEC_LINE) {
		const float *at[3] = {a + i, b + i, mean + i};
		gradient_sum_vectors(dout + i, x + i, rows, stride, at, sum + i, dot + i, VEC_ALL, act, LINE_VECTORS);
	}
	for (; i < n; i += VEC_LANES) {
		const float *at[3] = {a + i, b + i, mean + i};
		gradient_sum_vectors(dout + i, x + i, rows, stride, at, sum + i, dot + i, vec_first(n - i), act, 1);
	}
}

/* The functions of bn_loops.h for one activation. */
#define GP_BN_PER_ACT(suffix, act)                                                                                     \
	void gp_bn_apply_##suffix(const float *x, float *out, int64_t rows, int64_t width, int64_t n, const float *a,  \
				  const float *b)                                                                      \
	{                                                                                                              \
		apply(x, out, rows, width, n, a, b, act);                                                              \
	}                                                                                                              \
	void gp_bn_gradient_##suffix(const float *dout, const float *x, float *dx, int64_t rows, int64_t width,        \
				     int64_t n, float *const *vec)                                                     \
	{                                                                                                              \
		gradient(dout, x, dx, rows, width, n, vec, act);                                                       \
	}                                                                                                              \
	void gp_bn_gradient_sum_##suffix(const float *dout, const float *x, int64_t rows, int64_t stride, int64_t n,   \
					 const float *a, const float *b, const float *mean, float *sum, float *dot)    \
	{                                                                                                              \
		gradient_sum(dout, x, rows, stride, n, a, b, mean, sum, dot, act);                                     \
	}

#endif
