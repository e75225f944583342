/* SPDX-License-Identifier: Apache-2.0
 *
 * lanes.h in two registers of AVX2; only for that header. lanes_avx512.h says
 * what the functions give.
 *
 * Threads: any; pure functions. Test: tests/unit/test_lanes.c
 */
#ifndef GP_CPU_LANES_AVX2_H
#define GP_CPU_LANES_AVX2_H

#include <immintrin.h>

struct lanes {
	__m256 v[2];
};

#define LANES_TILE_VECTORS    1
#define LANES_TILE_ROWS(wide) 6

GP_INLINE struct lanes lanes_load(const float *at)
{
	return (struct lanes){{_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}};
}

GP_INLINE void lanes_store(float *at, struct lanes x)
{
	_mm256_storeu_ps(at, x.v[0]);
	_mm256_storeu_ps(at + 8, x.v[1]);
}

GP_INLINE struct lanes lanes_all(float x)
{
	return (struct lanes){{_mm256_set1_ps(x), _mm256_set1_ps(x)}};
}

#define LANES_BINARY(name, instruction)                                                                                \
	GP_INLINE struct lanes lanes_##name(struct lanes a, struct lanes b)                                            \
	{                                                                                                              \
		return (struct lanes){{instruction(a.v[0], b.v[0]), instruction(a.v[1], b.v[1])}};                     \
	}
LANES_BINARY(add, _mm256_add_ps)
LANES_BINARY(subtract, _mm256_sub_ps)
LANES_BINARY(multiply, _mm256_mul_ps)
LANES_BINARY(larger, _mm256_max_ps)
LANES_BINARY(smaller, _mm256_min_ps)
#undef LANES_BINARY

GP_INLINE struct lanes lanes_fma(struct lanes a, struct lanes b, struct lanes c)
{
	return (struct lanes){{_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}};
}

GP_INLINE struct lanes lanes_unless_below(struct lanes x, float limit, struct lanes y)
{
	const __m256 all = _mm256_set1_ps(limit);
	for (int i = 0; i < 2; i++)
		y.v[i] = _mm256_andnot_ps(_mm256_cmp_ps(x.v[i], all, _CMP_LT_OQ), y.v[i]);
	return y;
}

/* AVX2 compares signed numbers: both sides move by 2^31. */
GP_INLINE struct lanes lanes_unless_word_below(const uint32_t *word, uint32_t threshold, struct lanes y)
{
	const __m256i half = _mm256_set1_epi32(INT32_MIN), limit = _mm256_set1_epi32((int)(threshold ^ 0x80000000u));
	for (int i = 0; i < 2; i++) {
		const __m256i words = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(word + 8 * i)), half);
		y.v[i] = _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, words)), y.v[i]);
	}
	return y;
}

GP_INLINE struct lanes lanes_power(struct lanes x)
{
	for (int i = 0; i < 2; i++) {
		const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(x.v[i]), 23);
		x.v[i] = _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(127 << 23)));
	}
	return x;
}

GP_INLINE float lanes_sum(struct lanes x)
{
	const __m256 half = _mm256_add_ps(x.v[0], x.v[1]);
	const __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
	const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
	return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

GP_INLINE float lanes_largest(struct lanes x)
{
	const __m256 half = _mm256_max_ps(x.v[0], x.v[1]);
	const __m128 four = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
	const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
	return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* Eight rows of eight floats. */
GP_INLINE void lanes_turn_eight(__m256 row[8])
{
	__m256 pair[8], four[8];
	for (int i = 0; i < 8; i += 2) {
		pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
		pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
	}
	for (int i = 0; i < 8; i += 4) {
		for (int k = 0; k < 2; k++) {
			const __m256d low = _mm256_castps_pd(pair[i + k]), high = _mm256_castps_pd(pair[i + k + 2]);
			four[i + 2 * k] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
			four[i + 2 * k + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
		}
	}
	for (int i = 0; i < 4; i++) {
		row[i] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x20);
		row[i + 4] = _mm256_permute2f128_ps(four[i], four[i + 4], 0x31);
	}
}

GP_INLINE void lanes_turn(struct lanes row[LANES])
{
	__m256 block[2][2][8];
	for (int i = 0; i < LANES; i++)
		for (int k = 0; k < 2; k++)
			block[i / 8][k][i % 8] = row[i].v[k];
	for (int i = 0; i < 4; i++)
		lanes_turn_eight(block[i / 2][i % 2]);
	for (int i = 0; i < LANES; i++)
		for (int k = 0; k < 2; k++)
			row[i].v[k] = block[k][i / 8][i % 8];
}

#endif
