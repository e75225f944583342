/* SPDX-License-Identifier: Apache-2.0
 *
 * Level quantizers with AVX2, 8 elements at a time; what is left over is the
 * portable loops'. See level_loops.h. Test: tests/unit/test_level_loops.c
 */
#include "kernels/loops/level_loops.h"

#include <string.h>

#include "kernels/loops/avx2.h"

#define REST gp_level_loops_portable

GP_INLINE __m256d add_squares(__m256d sum, __m128 v)
{
	const __m256d wide = _mm256_cvtps_pd(v);
	return _mm256_fmadd_pd(wide, wide, sum); /* the squares are exact: contraction changes nothing */
}

static double squares(const float *x, size_t n)
{
	__m256d sum[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
	float last[GP_LEVEL_LANES] = {0};
	size_t i = 0;
	for (; i + GP_LEVEL_LANES <= n; i += GP_LEVEL_LANES)
		for (int k = 0; k < 4; k++)
			sum[k] = add_squares(sum[k], _mm_loadu_ps(x + i + 4 * k));
	if (i < n)
		memcpy(last, x + i, (n - i) * sizeof *x);
	for (int k = 0; k < 4; k++)
		sum[k] = add_squares(sum[k], _mm_loadu_ps(last + 4 * k));
	const __m256d four = _mm256_add_pd(_mm256_add_pd(sum[0], sum[2]), _mm256_add_pd(sum[1], sum[3]));
	const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
	return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

static uint32_t largest(const float *x, size_t n)
{
	__m256i top = _mm256_setzero_si256();
	uint32_t lane[8];
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		const __m256i u = _mm256_loadu_si256((const void *)(x + i));
		top = _mm256_max_epu32(top, _mm256_and_si256(u, word(0x7fffffffu)));
	}
	_mm256_storeu_si256((void *)lane, top);
	uint32_t most = REST.largest(x + i, n - i);
	for (int k = 0; k < 8; k++)
		most = lane[k] > most ? lane[k] : most;
	return most;
}

/* table[i], for i below 2^bits. */
GP_INLINE __m256 lookup_16(const float *table, __m256i i)
{
	const __m256 low = _mm256_permutevar8x32_ps(_mm256_load_ps(table), i);
	const __m256 high = _mm256_permutevar8x32_ps(_mm256_load_ps(table + 8), i);
	return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
}

GP_INLINE __m256 lookup(const float *table, __m256i i, int bits)
{
	if (bits <= 3)
		return _mm256_permutevar8x32_ps(_mm256_load_ps(table), i);
	return bits == 4 ? lookup_16(table, i) : _mm256_i32gather_ps(table, i, 4);
}

/* Node j of this round of the search: j is in [2^round, 2^(round + 1)). */
GP_INLINE __m256 node(const float *tree, __m256i j, int round)
{
	return lookup(tree, j, round + 1);
}

GP_INLINE __m256i code_of(const float *tree, int bits, __m256 r, __m128i draws)
{
	__m256 l = _mm256_set1_ps(-1), u = _mm256_set1_ps(1);
	__m256i j = word(1);
	for (int round = 0; round < bits; round++) {
		const __m256 pivot = node(tree, j, round);
		const __m256 right = _mm256_cmp_ps(r, pivot, _CMP_GE_OQ); /* all ones, -1 as a number, where true */
		l = _mm256_blendv_ps(l, pivot, right);
		u = _mm256_blendv_ps(pivot, u, right);
		j = _mm256_sub_epi32(_mm256_add_epi32(j, j), _mm256_castps_si256(right));
	}
	const __m256 h = _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(draws));
	const __m256 draw = _mm256_mul_ps(_mm256_add_ps(h, _mm256_set1_ps(0.5f)), _mm256_set1_ps(0x1p-16f));
	const __m256 limit = _mm256_mul_ps(draw, _mm256_sub_ps(u, l));
	const __m256 up = _mm256_cmp_ps(limit, _mm256_sub_ps(r, l), _CMP_LT_OQ);
	return _mm256_sub_epi32(_mm256_sub_epi32(j, word(1u << bits)), _mm256_castps_si256(up));
}

/* Eight codes below 2^16. */
GP_INLINE void store_codes(__m256i code, uint16_t *out)
{
	_mm_storeu_si128((void *)out,
			 _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1)));
}

GP_INLINE size_t quantize_to(int bits, const float *tree, const float *x, size_t n, float norm, const uint16_t *draws,
			     uint16_t *codes)
{
	const __m256 divisor = _mm256_set1_ps(norm);
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		const __m256 r = _mm256_div_ps(_mm256_loadu_ps(x + i), divisor);
		store_codes(code_of(tree, bits, r, _mm_loadu_si128((const void *)(draws + i))), codes + i);
	}
	return i;
}

GP_INLINE size_t dequantize_from(int bits, const float *level, const uint16_t *codes, size_t n, float norm, float *x)
{
	const __m256 factor = _mm256_set1_ps(norm);
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		const __m256i code = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(codes + i)));
		_mm256_storeu_ps(x + i, _mm256_mul_ps(lookup(level, code, bits), factor));
	}
	return i;
}

/* One copy of the loops per width. */
#define WIDTHS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

static void quantize(const struct gp_level_table *t, const float *x, size_t n, float norm, const uint16_t *draws,
		     uint16_t *codes)
{
#define QUANTIZE(bits)                                                                                                 \
	case bits:                                                                                                     \
		done = quantize_to(bits, t->tree, x, n, norm, draws, codes);                                           \
		break;
	size_t done = 0;
	switch (t->bits) {
		WIDTHS(QUANTIZE)
	}
	REST.quantize(t, x + done, n - done, norm, draws + done, codes + done);
}

static void dequantize(const struct gp_level_table *t, const uint16_t *codes, size_t n, float norm, float *x)
{
#define DEQUANTIZE(bits)                                                                                               \
	case bits:                                                                                                     \
		done = dequantize_from(bits, t->level, codes, n, norm, x);                                             \
		break;
	size_t done = 0;
	switch (t->bits) {
		WIDTHS(DEQUANTIZE)
	}
	REST.dequantize(t, codes + done, n - done, norm, x + done);
}

const struct gp_level_loops gp_level_loops_avx2 = {
	.squares = squares,
	.largest = largest,
	.quantize = quantize,
	.dequantize = dequantize,
};
