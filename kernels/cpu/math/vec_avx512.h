/* SPDX-License-Identifier: Apache-2.0
 *
 * vec.h with AVX-512; only for that header.
 *
 * Threads: any; pure functions. Test: tests/unit/test_gemm.c, tests/unit/test_bn_rows.c
 */
#ifndef GP_CPU_VEC_AVX512_H
#define GP_CPU_VEC_AVX512_H

#include "kernels/cpu/math/turn_avx512.h"

#define VEC_LANES        16
#define VEC_REGISTERS    32
#define VEC_SCALARS      1
#define VEC_TAKES_MEMORY 1

typedef __m512 gp_vec;
typedef __mmask16 gp_vec_mask; /* the lanes that count: some of the first, or VEC_ALL */

#define VEC_ALL ((gp_vec_mask)0xffff)

/* The first `n` lanes: all where n is larger, none where it is not positive. */
GP_INLINE gp_vec_mask vec_first(int64_t n)
{
	return n >= VEC_LANES ? VEC_ALL : n > 0 ? (gp_vec_mask)((1u << n) - 1) : (gp_vec_mask)0;
}

GP_INLINE gp_vec vec_zero(void)
{
	return _mm512_setzero_ps();
}

GP_INLINE gp_vec vec_all(float x)
{
	return _mm512_set1_ps(x);
}

GP_INLINE gp_vec vec_load(const float *at)
{
	return _mm512_loadu_ps(at);
}

GP_INLINE void vec_store(float *at, gp_vec v)
{
	_mm512_storeu_ps(at, v);
}

/* Past the caches; `at` is a multiple of the vector's size. vec_fence ends such stores. */
GP_INLINE void vec_stream(float *at, gp_vec v)
{
	_mm512_stream_ps(at, v);
}

GP_INLINE void vec_fence(void)
{
	_mm_sfence();
}

/* Lanes that do not count are 0, or are not written, and nothing is read or written where they would lie. */
GP_INLINE gp_vec vec_load_first(gp_vec_mask lanes, const float *at)
{
	return _mm512_maskz_loadu_ps(lanes, at);
}

GP_INLINE void vec_store_first(float *at, gp_vec_mask lanes, gp_vec v)
{
	_mm512_mask_storeu_ps(at, lanes, v);
}

GP_INLINE gp_vec vec_add(gp_vec a, gp_vec b)
{
	return _mm512_add_ps(a, b);
}

GP_INLINE gp_vec vec_sub(gp_vec a, gp_vec b)
{
	return _mm512_sub_ps(a, b);
}

GP_INLINE gp_vec vec_mul(gp_vec a, gp_vec b)
{
	return _mm512_mul_ps(a, b);
}

/* a b + c, rounded once. */
GP_INLINE gp_vec vec_fma(gp_vec a, gp_vec b, gp_vec c)
{
	return _mm512_fmadd_ps(a, b, c);
}

/* VEC_SCALARS neighbours in memory, and scalar `i` of such times b, + c, rounded once. vec_all gives them as one, number 0. */
GP_INLINE gp_vec vec_scalars(const float *at)
{
	return _mm512_set1_ps(*at);
}

GP_INLINE gp_vec vec_fma_scalar(gp_vec scalars, const int i, gp_vec b, gp_vec c)
{
	(void)i;
	return vec_fma(scalars, b, c);
}

/* a > b ? a : b, and a < b ? a : b: b where either is NaN. vec_smaller's `a` is neither NaN nor 0. */
GP_INLINE gp_vec vec_larger(gp_vec a, gp_vec b)
{
	return _mm512_max_ps(a, b);
}

GP_INLINE gp_vec vec_smaller(gp_vec a, gp_vec b)
{
	return _mm512_min_ps(a, b);
}

/* v > low ? g : 0, and low < v < high ? g : 0: 0 where v is NaN. */
GP_INLINE gp_vec vec_if_above(gp_vec v, gp_vec low, gp_vec g)
{
	return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, low, _CMP_GT_OQ), g);
}

GP_INLINE gp_vec vec_if_between(gp_vec v, gp_vec low, gp_vec high, gp_vec g)
{
	const __mmask16 above = _mm512_cmp_ps_mask(v, low, _CMP_GT_OQ);
	return _mm512_maskz_mov_ps(_mm512_mask_cmp_ps_mask(above, v, high, _CMP_LT_OQ), g);
}

/* Lane i is float `column` at at[i]. */
GP_INLINE gp_vec vec_column(const float *const at[VEC_LANES], int column)
{
	float lane[VEC_LANES];
	for (int i = 0; i < VEC_LANES; i++)
		lane[i] = at[i][column];
	return vec_load(lane);
}

/* VEC_LANES rows, turned over: row i of the result has lane i of every row. */
GP_INLINE void vec_turn(gp_vec row[VEC_LANES])
{
	gp_turn(row);
}

#endif
