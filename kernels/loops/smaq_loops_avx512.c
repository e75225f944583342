/* SPDX-License-Identifier: Apache-2.0
 *
 * `smaq` with AVX-512. See smaq_loops.h for what each loop gives,
 * smaq_loops_portable.c for the reference. Test: tests/unit/test_smaq_loops.c
 */
#include "kernels/loops/smaq_loops.h"

#include <stdbool.h>

#include "kernels/loops/avx512.h"

GP_INLINE __m512d take_origin(__m256 x, double origin)
{
	return _mm512_sub_pd(_mm512_cvtps_pd(x), _mm512_set1_pd(origin));
}

static void add(const float *x, size_t n, float origin, struct gp_smaq_sums *sums)
{
	const size_t whole = n - n % GP_SMAQ_LANES;
	__m512d sum[2], squares[2];
	for (int h = 0; h < 2; h++) {
		sum[h] = _mm512_loadu_pd(sums->sum + 8 * h);
		squares[h] = _mm512_loadu_pd(sums->squares + 8 * h);
	}
	for (size_t i = 0; i < whole; i += GP_SMAQ_LANES)
		for (int h = 0; h < 2; h++) {
			const __m512d d = take_origin(_mm256_loadu_ps(x + i + 8 * h), (double)origin);
			sum[h] = _mm512_add_pd(sum[h], d);
			squares[h] = _mm512_add_pd(squares[h], _mm512_mul_pd(d, d));
		}
	for (int h = 0; h < 2; h++) {
		_mm512_storeu_pd(sums->sum + 8 * h, sum[h]);
		_mm512_storeu_pd(sums->squares + 8 * h, squares[h]);
	}
	gp_smaq_loops_portable.add(x + whole, n - whole, origin, sums);
}

/* What is added to numbers of levels before they are truncated: from draws, but 1/2 where x is 0. */
GP_INLINE __m512 drawn(__m512 x, __mmask16 lanes, const uint16_t *draws)
{
	const __m512 half = _mm512_set1_ps(0.5f), unit = _mm512_set1_ps(0x1p-16f);
	const __m512i draw = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, draws));
	const __m512 h = _mm512_mul_ps(_mm512_add_ps(_mm512_cvtepi32_ps(draw), half), unit);
	return _mm512_mask_mov_ps(h, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ), half);
}

/* `draws_given`, whether draws != NULL, is a constant where this is called, so that each of its two uses has a loop without
 * branches. */
GP_INLINE size_t quantize_body(const struct gp_smaq *s, const float *x, size_t n, const uint16_t *draws,
			       uint16_t *codes, uint16_t *extras, bool draws_given)
{
	const __m512 mean = _mm512_set1_ps(s->mean), divisor = _mm512_set1_ps(s->divisor), one = _mm512_set1_ps(1);
	const __m512 main_scale = _mm512_set1_ps(s->main_scale), outlier_scale = _mm512_set1_ps(s->outlier_scale);
	const __m512 top = _mm512_set1_ps(s->top), half = _mm512_set1_ps(s->half);
	const __m512i low = word((1u << s->low_bits) - 1), sign_bit = word(1u << s->low_bits);
	const __m512i flag_bit = word(2u << s->low_bits);
	const __m128i shift = _mm_cvtsi32_si128(s->low_bits);
	size_t count = 0;
	for (size_t i = 0; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m512 v = _mm512_mask_loadu_ps(mean, lanes, x + i);
		const __m512 z = _mm512_div_ps(_mm512_sub_ps(v, mean), divisor);
		const __m512 a = _mm512_abs_ps(z);
		const __mmask16 flag = _mm512_cmp_ps_mask(a, one, _CMP_GT_OQ);
		const __m512 near = _mm512_mul_ps(a, main_scale);
		const __m512 q = _mm512_mask_mul_ps(near, flag, _mm512_sub_ps(a, one), outlier_scale);
		const __m512 h = draws_given ? drawn(v, lanes, draws + i) : half;
		const __m512 most = _mm512_mask_mov_ps(main_scale, flag, top);
		const __m512i m = _mm512_cvttps_epi32(_mm512_min_ps(_mm512_add_ps(q, h), most));
		__m512i code = _mm512_and_si512(m, low);
		code = _mm512_mask_or_epi32(code, _mm512_movepi32_mask(_mm512_castps_si512(z)), code, sign_bit);
		code = _mm512_mask_or_epi32(code, flag, code, flag_bit);
		_mm256_mask_storeu_epi16(codes + i, lanes, _mm512_cvtepi32_epi16(code));
		const __m512i extra = _mm512_maskz_compress_epi32(flag, _mm512_srl_epi32(m, shift));
		_mm256_storeu_si256((__m256i *)(extras + count), _mm512_cvtepi32_epi16(extra));
		count += (size_t)__builtin_popcount(flag);
	}
	return count;
}

static size_t quantize(const struct gp_smaq *s, const float *x, size_t n, const uint16_t *draws, uint16_t *codes,
		       uint16_t *extras)
{
	return draws ? quantize_body(s, x, n, draws, codes, extras, true)
		     : quantize_body(s, x, n, NULL, codes, extras, false);
}

static size_t dequantize(const struct gp_smaq *s, const uint16_t *codes, size_t n, const uint16_t *extras, float *x)
{
	const __m512 mean = _mm512_set1_ps(s->mean), std = _mm512_set1_ps(s->std), one = _mm512_set1_ps(1);
	const __m512 main_scale = _mm512_set1_ps(s->main_scale), outlier_scale = _mm512_set1_ps(s->outlier_scale);
	const __m512i low = word((1u << s->low_bits) - 1), sign_bit = word(1u << s->low_bits);
	const __m512i flag_bit = word(2u << s->low_bits), minus = word(0x80000000u);
	const __m128i shift = _mm_cvtsi32_si128(s->low_bits);
	size_t count = 0;
	for (size_t i = 0; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m512i code = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, codes + i));
		const __mmask16 flag = _mm512_test_epi32_mask(code, flag_bit);
		const __m512i extra = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(extras + count)));
		const __m512i high = _mm512_sll_epi32(_mm512_maskz_expand_epi32(flag, extra), shift);
		const __m512 m = _mm512_cvtepi32_ps(_mm512_or_si512(_mm512_and_si512(code, low), high));
		__m512 a = _mm512_div_ps(m, _mm512_mask_mov_ps(main_scale, flag, outlier_scale));
		a = _mm512_mask_add_ps(a, flag, a, one);
		const __mmask16 negative = _mm512_test_epi32_mask(code, sign_bit);
		const __m512i bits = _mm512_castps_si512(a);
		const __m512 z = _mm512_castsi512_ps(_mm512_mask_or_epi32(bits, negative, bits, minus));
		_mm512_mask_storeu_ps(x + i, lanes, _mm512_add_ps(_mm512_mul_ps(z, std), mean));
		count += (size_t)__builtin_popcount(flag);
	}
	return count;
}

const struct gp_smaq_loops gp_smaq_loops_avx512 = {
	.add = add,
	.quantize = quantize,
	.dequantize = dequantize,
};
