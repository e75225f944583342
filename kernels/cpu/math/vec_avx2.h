/* SPDX-License-Identifier: Apache-2.0
 *
 * vec.h with AVX2 and FMA; only for that header. vec_avx512.h says what the functions give.
 *
 * Threads: any; pure functions. Test: tests/unit/test_gemm.c, tests/unit/test_bn_rows.c
 */
#ifndef GP_CPU_VEC_AVX2_H
#define GP_CPU_VEC_AVX2_H

#include <immintrin.h>

#define VEC_LANES        8
#define VEC_REGISTERS    16
#define VEC_SCALARS      1
#define VEC_TAKES_MEMORY 1

typedef __m256 gp_vec;
typedef int64_t gp_vec_mask; /* how many of the first lanes count: a register for it would be one too many in tiles */

#define VEC_ALL ((gp_vec_mask)VEC_LANES)

GP_INLINE gp_vec_mask vec_first(int64_t n)
{
	return n >= VEC_LANES ? VEC_ALL : n > 0 ? n : 0;
}

GP_INLINE __m256i vec_bits_of(gp_vec_mask lanes)
{
	static const int32_t bits[2 * VEC_LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
	return _mm256_loadu_si256((const __m256i *)(bits + VEC_LANES - lanes));
}

GP_INLINE gp_vec vec_zero(void)
{
	return _mm256_setzero_ps();
}

GP_INLINE gp_vec vec_all(float x)
{
	return _mm256_set1_ps(x);
}

GP_INLINE gp_vec vec_load(const float *at)
{
	return _mm256_loadu_ps(at);
}

GP_INLINE void vec_store(float *at, gp_vec v)
{
	_mm256_storeu_ps(at, v);
}

GP_INLINE void vec_stream(float *at, gp_vec v)
{
	_mm256_stream_ps(at, v);
}

GP_INLINE void vec_fence(void)
{
	_mm_sfence();
}

/* Whole vectors do not pay for masks, which take some processors long. */
GP_INLINE gp_vec vec_load_first(gp_vec_mask lanes, const float *at)
{
	return lanes == VEC_ALL ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, vec_bits_of(lanes));
}

GP_INLINE void vec_store_first(float *at, gp_vec_mask lanes, gp_vec v)
{
	if (lanes == VEC_ALL)
		_mm256_storeu_ps(at, v);
	else
		_mm256_maskstore_ps(at, vec_bits_of(lanes), v);
}

GP_INLINE gp_vec vec_add(gp_vec a, gp_vec b)
{
	return _mm256_add_ps(a, b);
}

GP_INLINE gp_vec vec_sub(gp_vec a, gp_vec b)
{
	return _mm256_sub_ps(a, b);
}

GP_INLINE gp_vec vec_mul(gp_vec a, gp_vec b)
{
	return _mm256_mul_ps(a, b);
}

GP_INLINE gp_vec vec_fma(gp_vec a, gp_vec b, gp_vec c)
{
	return _mm256_fmadd_ps(a, b, c);
}

GP_INLINE gp_vec vec_scalars(const float *at)
{
	return _mm256_set1_ps(*at);
}

GP_INLINE gp_vec vec_fma_scalar(gp_vec scalars, const int i, gp_vec b, gp_vec c)
{
	(void)i;
	return vec_fma(scalars, b, c);
}

GP_INLINE gp_vec vec_larger(gp_vec a, gp_vec b)
{
	return _mm256_max_ps(a, b);
}

GP_INLINE gp_vec vec_smaller(gp_vec a, gp_vec b)
{
	return _mm256_min_ps(a, b);
}

GP_INLINE gp_vec vec_if_above(gp_vec v, gp_vec low, gp_vec g)
{
	return _mm256_and_ps(_mm256_cmp_ps(v, low, _CMP_GT_OQ), g);
}

GP_INLINE gp_vec vec_if_between(gp_vec v, gp_vec low, gp_vec high, gp_vec g)
{
	return vec_if_above(v, low, _mm256_and_ps(_mm256_cmp_ps(v, high, _CMP_LT_OQ), g));
}

GP_INLINE gp_vec vec_column(const float *const at[VEC_LANES], int column)
{
	return _mm256_setr_ps(at[0][column], at[1][column], at[2][column], at[3][column], at[4][column], at[5][column],
			      at[6][column], at[7][column]);
}

GP_INLINE void vec_turn(gp_vec row[VEC_LANES])
{
	__m256 pair[VEC_LANES], four[VEC_LANES];
#pragma GCC unroll 4
	for (int i = 0; i < VEC_LANES; i += 2) {
		pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
		pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
	}
#pragma GCC unroll 2
	for (int i = 0; i < VEC_LANES; i += 4) {
#pragma GCC unroll 2
		for (int k = 0; k < 2; k++) {
			const __m256d low = _mm256_castps_pd(pair[i + k]), high = _mm256_castps_pd(pair[i + k + 2]);
			four[i + 2 * k] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
			four[i + 2 * k + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
		}
	}
#pragma GCC unroll 4
	for (int i = 0; i < VEC_LANES / 2; i++) {
		row[i] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x20);
		row[i + 4] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x31);
	}
}

#endif
