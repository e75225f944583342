/* SPDX-License-Identifier: Apache-2.0
 *
 * Level quantizers with AVX-512. The levels stay in registers: a step of the
 * search is a permutation by the node's number, not a gather. See level_loops.h
 * for what each loop gives. Test: tests/unit/test_level_loops.c
 */
#include "kernels/loops/level_loops.h"

#include "kernels/loops/avx512.h"

enum { SIDE_BY_SIDE = 4 };

static double squares(const float *x, size_t n)
{
	__m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
	for (size_t i = 0; i < n; i += 16) {
		const __m512 v = _mm512_maskz_loadu_ps(first_lanes(n - i), x + i);
		const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
		const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
		low = _mm512_fmadd_pd(a, a, low); /* the squares are exact: contraction changes nothing */
		high = _mm512_fmadd_pd(b, b, high);
	}
	low = _mm512_add_pd(low, high);
	const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(low), _mm512_extractf64x4_pd(low, 1));
	const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
	return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

static uint32_t largest(const float *x, size_t n)
{
	__m512i top = _mm512_setzero_si512();
	for (size_t i = 0; i < n; i += 16) {
		const __m512i u = _mm512_maskz_loadu_epi32(first_lanes(n - i), x + i);
		top = _mm512_max_epu32(top, _mm512_and_si512(u, word(0x7fffffffu)));
	}
	return _mm512_reduce_max_epu32(top);
}

/* table[the lower bits of i], for tables of 16, 32, ... numbers. */
GP_INLINE __m512 lookup_16(const float *table, __m512i i)
{
	return _mm512_permutexvar_ps(i, _mm512_load_ps(table));
}

GP_INLINE __m512 lookup_32(const float *table, __m512i i)
{
	return _mm512_permutex2var_ps(_mm512_load_ps(table), i, _mm512_load_ps(table + 16));
}

GP_INLINE __m512 choose(__m512i i, uint32_t bit, __m512 without, __m512 with)
{
	return _mm512_mask_mov_ps(without, _mm512_test_epi32_mask(i, word(bit)), with);
}

GP_INLINE __m512 lookup_64(const float *table, __m512i i)
{
	return choose(i, 32, lookup_32(table, i), lookup_32(table + 32, i));
}

GP_INLINE __m512 lookup_128(const float *table, __m512i i)
{
	return choose(i, 64, lookup_64(table, i), lookup_64(table + 64, i));
}

GP_INLINE __m512 lookup_256(const float *table, __m512i i)
{
	return choose(i, 128, lookup_128(table, i), lookup_128(table + 128, i));
}

GP_INLINE __m512 lookup(const float *table, __m512i i, int bits)
{
	switch (bits) {
	case 8:
		return lookup_256(table, i);
	case 7:
		return lookup_128(table, i);
	case 6:
		return lookup_64(table, i);
	case 5:
		return lookup_32(table, i);
	default:
		return lookup_16(table, i);
	}
}

/* Node j of this round of the search: j is in [2^round, 2^(round + 1)). */
GP_INLINE __m512 node(const float *tree, __m512i j, int round)
{
	return round < 4 ? lookup_16(tree, j) : lookup(tree + (1 << round), j, round);
}

/* Codes of `count` vectors at once: a search is one chain of dependent instructions, several run side by side. */
GP_INLINE void search(const float *tree, int bits, int count, const __m512 *r, const __m256i *draws, __m512i *code)
{
	__m512 l[SIDE_BY_SIDE], u[SIDE_BY_SIDE];
	__m512i j[SIDE_BY_SIDE];
	for (int k = 0; k < count; k++) {
		l[k] = _mm512_set1_ps(-1);
		u[k] = _mm512_set1_ps(1);
		j[k] = word(1);
	}
	for (int round = 0; round < bits; round++)
		for (int k = 0; k < count; k++) {
			const __m512 pivot = node(tree, j[k], round);
			const __mmask16 right = _mm512_cmp_ps_mask(r[k], pivot, _CMP_GE_OQ);
			l[k] = _mm512_mask_mov_ps(l[k], right, pivot);
			u[k] = _mm512_mask_mov_ps(pivot, right, u[k]);
			j[k] = _mm512_add_epi32(j[k], j[k]);
			j[k] = _mm512_mask_add_epi32(j[k], right, j[k], word(1));
		}
	for (int k = 0; k < count; k++) {
		const __m512 h = _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(draws[k]));
		const __m512 draw = _mm512_mul_ps(_mm512_add_ps(h, _mm512_set1_ps(0.5f)), _mm512_set1_ps(0x1p-16f));
		const __m512 limit = _mm512_mul_ps(draw, _mm512_sub_ps(u[k], l[k]));
		const __mmask16 up = _mm512_cmp_ps_mask(limit, _mm512_sub_ps(r[k], l[k]), _CMP_LT_OQ);
		code[k] = _mm512_sub_epi32(j[k], word(1u << bits));
		code[k] = _mm512_mask_add_epi32(code[k], up, code[k], word(1));
	}
}

GP_INLINE void quantize_to(int bits, const float *tree, const float *x, size_t n, float norm, const uint16_t *draws,
			   uint16_t *codes)
{
	const __m512 divisor = _mm512_set1_ps(norm);
	__m512 r[SIDE_BY_SIDE];
	__m256i h[SIDE_BY_SIDE];
	__m512i code[SIDE_BY_SIDE];
	size_t i = 0;
	for (; i + 16 * SIDE_BY_SIDE <= n; i += 16 * SIDE_BY_SIDE) {
		for (int k = 0; k < SIDE_BY_SIDE; k++) {
			r[k] = _mm512_div_ps(_mm512_loadu_ps(x + i + 16 * k), divisor);
			h[k] = _mm256_loadu_si256((const void *)(draws + i + 16 * k));
		}
		search(tree, bits, SIDE_BY_SIDE, r, h, code);
		for (int k = 0; k < SIDE_BY_SIDE; k++)
			_mm256_storeu_si256((void *)(codes + i + 16 * k), _mm512_cvtepi32_epi16(code[k]));
	}
	for (; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		r[0] = _mm512_div_ps(_mm512_maskz_loadu_ps(lanes, x + i), divisor);
		h[0] = _mm256_maskz_loadu_epi16(lanes, draws + i);
		search(tree, bits, 1, r, h, code);
		_mm512_mask_cvtepi32_storeu_epi16(codes + i, lanes, code[0]);
	}
}

GP_INLINE void dequantize_from(int bits, const float *level, const uint16_t *codes, size_t n, float norm, float *x)
{
	const __m512 factor = _mm512_set1_ps(norm);
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		const __m512i code = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(codes + i)));
		_mm512_storeu_ps(x + i, _mm512_mul_ps(lookup(level, code, bits), factor));
	}
	if (i < n) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m512i code = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, codes + i));
		_mm512_mask_storeu_ps(x + i, lanes, _mm512_mul_ps(lookup(level, code, bits), factor));
	}
}

/* One copy of the loops per width. */
#define WIDTHS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

static void quantize(const struct gp_level_table *t, const float *x, size_t n, float norm, const uint16_t *draws,
		     uint16_t *codes)
{
#define QUANTIZE(bits)                                                                                                 \
	case bits:                                                                                                     \
		quantize_to(bits, t->tree, x, n, norm, draws, codes);                                                  \
		break;
	switch (t->bits) {
		WIDTHS(QUANTIZE)
	}
}

static void dequantize(const struct gp_level_table *t, const uint16_t *codes, size_t n, float norm, float *x)
{
#define DEQUANTIZE(bits)                                                                                               \
	case bits:                                                                                                     \
		dequantize_from(bits, t->level, codes, n, norm, x);                                                    \
		break;
	switch (t->bits) {
		WIDTHS(DEQUANTIZE)
	}
}

const struct gp_level_loops gp_level_loops_avx512 = {
	.squares = squares,
	.largest = largest,
	.quantize = quantize,
	.dequantize = dequantize,
};
