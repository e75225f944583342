/* SPDX-License-Identifier: Apache-2.0
 *
 * lanes.h in one register of AVX-512; only for that header.
 *
 * Threads: any; pure functions. Test: tests/unit/test_lanes.c
 */
#ifndef GP_CPU_LANES_AVX512_H
#define GP_CPU_LANES_AVX512_H

#include "kernels/cpu/math/turn_avx512.h"

struct lanes {
	__m512 v;
};

/* Tiles of a product (lanes_product.h): at most so many vectors wide, and then so many rows high. */
#define LANES_TILE_VECTORS    4
#define LANES_TILE_ROWS(wide) ((wide) == 4 ? 6 : (wide) == 3 ? 8 : 12)

GP_INLINE struct lanes lanes_load(const float *at)
{
	return (struct lanes){_mm512_loadu_ps(at)};
}

GP_INLINE void lanes_store(float *at, struct lanes x)
{
	_mm512_storeu_ps(at, x.v);
}

/* The first `n` of the sixteen, or all where n is larger; the others are 0, or are not written. */
GP_INLINE __mmask16 lanes_first(int64_t n)
{
	return (__mmask16)(n >= LANES ? 0xffff : (1u << n) - 1);
}

GP_INLINE struct lanes lanes_load_some(const float *at, int64_t n)
{
	return (struct lanes){_mm512_maskz_loadu_ps(lanes_first(n), at)};
}

GP_INLINE void lanes_store_some(float *at, struct lanes x, int64_t n)
{
	_mm512_mask_storeu_ps(at, lanes_first(n), x.v);
}

GP_INLINE struct lanes lanes_all(float x)
{
	return (struct lanes){_mm512_set1_ps(x)};
}

GP_INLINE struct lanes lanes_add(struct lanes a, struct lanes b)
{
	return (struct lanes){_mm512_add_ps(a.v, b.v)};
}

GP_INLINE struct lanes lanes_subtract(struct lanes a, struct lanes b)
{
	return (struct lanes){_mm512_sub_ps(a.v, b.v)};
}

GP_INLINE struct lanes lanes_multiply(struct lanes a, struct lanes b)
{
	return (struct lanes){_mm512_mul_ps(a.v, b.v)};
}

/* a b + c, rounded once. */
GP_INLINE struct lanes lanes_fma(struct lanes a, struct lanes b, struct lanes c)
{
	return (struct lanes){_mm512_fmadd_ps(a.v, b.v, c.v)};
}

/* a > b ? a : b, and a < b ? a : b: b where either is NaN. */
GP_INLINE struct lanes lanes_larger(struct lanes a, struct lanes b)
{
	return (struct lanes){_mm512_max_ps(a.v, b.v)};
}

GP_INLINE struct lanes lanes_smaller(struct lanes a, struct lanes b)
{
	return (struct lanes){_mm512_min_ps(a.v, b.v)};
}

/* x < limit ? 0 : y */
GP_INLINE struct lanes lanes_unless_below(struct lanes x, float limit, struct lanes y)
{
	return (struct lanes){_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(limit), _CMP_NLT_UQ), y.v)};
}

/* word < threshold ? 0 : y */
GP_INLINE struct lanes lanes_unless_word_below(const uint32_t *word, uint32_t threshold, struct lanes y)
{
	const __m512i words = _mm512_loadu_si512(word), limit = _mm512_set1_epi32((int)threshold);
	return (struct lanes){_mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(words, limit), y.v)};
}

/* 2^n, of n + 1.5 * 2^23. */
GP_INLINE struct lanes lanes_power(struct lanes x)
{
	const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(x.v), 23);
	return (struct lanes){_mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(127 << 23)))};
}

/* Lane i and i + 8, then i and i + 4, and so on. */
GP_INLINE float lanes_sum(struct lanes x)
{
	const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
	const __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
	const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
	return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Without NaN. */
GP_INLINE float lanes_largest(struct lanes x)
{
	const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
	const __m128 four = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
	const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
	return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* Sixteen rows, turned over: row i of the result has lane i of every row. */
GP_INLINE void lanes_turn(struct lanes row[LANES])
{
	__m512 v[LANES];
#pragma GCC unroll 16
	for (int i = 0; i < LANES; i++)
		v[i] = row[i].v;
	gp_turn(v);
#pragma GCC unroll 16
	for (int i = 0; i < LANES; i++)
		row[i].v = v[i];
}

#endif
