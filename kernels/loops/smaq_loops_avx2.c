/* SPDX-License-Identifier: Apache-2.0
 *
 * `smaq` with AVX2. See smaq_loops.h for what each loop gives,
 * smaq_loops_portable.c for the reference. Test: tests/unit/test_smaq_loops.c
 */
#include "kernels/loops/smaq_loops.h"

#include <stdbool.h>

#include "kernels/loops/avx2.h"

#define REST gp_smaq_loops_portable

/* One byte of ones per bit set. */
GP_INLINE uint64_t mask_bytes(unsigned flags)
{
	return _pdep_u64(flags, UINT64_C(0x0101010101010101)) * 0xff;
}

static const uint64_t ramp = UINT64_C(0x0706050403020100);

/* Lanes with a flag to the front; and front lanes to where the flags are, garbage elsewhere. */
GP_INLINE __m256i compress(__m256i v, unsigned flags)
{
	const __m128i index = _mm_cvtsi64_si128((long long)_pext_u64(ramp, mask_bytes(flags)));
	return _mm256_permutevar8x32_epi32(v, _mm256_cvtepu8_epi32(index));
}

GP_INLINE __m256i expand(__m256i v, unsigned flags)
{
	const __m128i index = _mm_cvtsi64_si128((long long)_pdep_u64(ramp, mask_bytes(flags)));
	return _mm256_permutevar8x32_epi32(v, _mm256_cvtepu8_epi32(index));
}

GP_INLINE void store_words(uint16_t *out, __m256i v)
{
	const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
	_mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(packed));
}

GP_INLINE __m256i load_words(const uint16_t *in)
{
	return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)in));
}

GP_INLINE unsigned flags_of(__m256 v)
{
	return (unsigned)_mm256_movemask_ps(v);
}

static void add(const float *x, size_t n, float origin, struct gp_smaq_sums *sums)
{
	const size_t whole = n - n % GP_SMAQ_LANES;
	const __m256d from = _mm256_set1_pd((double)origin);
	__m256d sum[4], squares[4];
	for (int h = 0; h < 4; h++) {
		sum[h] = _mm256_loadu_pd(sums->sum + 4 * h);
		squares[h] = _mm256_loadu_pd(sums->squares + 4 * h);
	}
	for (size_t i = 0; i < whole; i += GP_SMAQ_LANES)
		for (int h = 0; h < 4; h++) {
			const __m256d d = _mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * h)), from);
			sum[h] = _mm256_add_pd(sum[h], d);
			squares[h] = _mm256_add_pd(squares[h], _mm256_mul_pd(d, d));
		}
	for (int h = 0; h < 4; h++) {
		_mm256_storeu_pd(sums->sum + 4 * h, sum[h]);
		_mm256_storeu_pd(sums->squares + 4 * h, squares[h]);
	}
	REST.add(x + whole, n - whole, origin, sums);
}

/* What is added to numbers of levels before they are truncated: from draws, but 1/2 where x is 0. */
GP_INLINE __m256 drawn(__m256 x, const uint16_t *draws)
{
	const __m256 half = _mm256_set1_ps(0.5f), unit = _mm256_set1_ps(0x1p-16f);
	const __m256 h = _mm256_mul_ps(_mm256_add_ps(_mm256_cvtepi32_ps(load_words(draws)), half), unit);
	return _mm256_blendv_ps(h, half, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ));
}

/* `draws_given`, whether draws != NULL, is a constant where this is called, so that each of its two uses has a loop without
 * branches. */
GP_INLINE size_t quantize_body(const struct gp_smaq *s, const float *x, size_t n, const uint16_t *draws,
			       uint16_t *codes, uint16_t *extras, bool draws_given)
{
	const __m256 mean = _mm256_set1_ps(s->mean), divisor = _mm256_set1_ps(s->divisor), one = _mm256_set1_ps(1);
	const __m256 main_scale = _mm256_set1_ps(s->main_scale), outlier_scale = _mm256_set1_ps(s->outlier_scale);
	const __m256 top = _mm256_set1_ps(s->top), minus = _mm256_set1_ps(-0.0f), half = _mm256_set1_ps(s->half);
	const __m256i low = _mm256_set1_epi32((1 << s->low_bits) - 1), flag_bit = _mm256_set1_epi32(2 << s->low_bits);
	const __m128i shift = _mm_cvtsi32_si128(s->low_bits), sign_shift = _mm_cvtsi32_si128(31 - s->low_bits);
	const size_t whole = n & ~(size_t)7;
	size_t count = 0;
	for (size_t i = 0; i < whole; i += 8) {
		const __m256 v = _mm256_loadu_ps(x + i), z = _mm256_div_ps(_mm256_sub_ps(v, mean), divisor);
		const __m256 a = _mm256_andnot_ps(minus, z), outlier = _mm256_cmp_ps(a, one, _CMP_GT_OQ);
		const __m256 far = _mm256_mul_ps(_mm256_sub_ps(a, one), outlier_scale);
		const __m256 q = _mm256_blendv_ps(_mm256_mul_ps(a, main_scale), far, outlier);
		const __m256 h = draws_given ? drawn(v, draws + i) : half;
		const __m256 most = _mm256_blendv_ps(main_scale, top, outlier);
		const __m256i m = _mm256_cvttps_epi32(_mm256_min_ps(_mm256_add_ps(q, h), most));
		const __m256i sign = _mm256_srl_epi32(_mm256_castps_si256(_mm256_and_ps(z, minus)), sign_shift);
		const __m256i flag = _mm256_and_si256(_mm256_castps_si256(outlier), flag_bit);
		store_words(codes + i, _mm256_or_si256(_mm256_and_si256(m, low), _mm256_or_si256(sign, flag)));
		const unsigned flags = flags_of(outlier);
		store_words(extras + count, compress(_mm256_srl_epi32(m, shift), flags));
		count += (size_t)__builtin_popcount(flags);
	}
	return count + REST.quantize(s, x + whole, n - whole, draws_given ? draws + whole : NULL, codes + whole,
				     extras + count);
}

static size_t quantize(const struct gp_smaq *s, const float *x, size_t n, const uint16_t *draws, uint16_t *codes,
		       uint16_t *extras)
{
	return draws ? quantize_body(s, x, n, draws, codes, extras, true)
		     : quantize_body(s, x, n, NULL, codes, extras, false);
}

static size_t dequantize(const struct gp_smaq *s, const uint16_t *codes, size_t n, const uint16_t *extras, float *x)
{
	const __m256 mean = _mm256_set1_ps(s->mean), std = _mm256_set1_ps(s->std), one = _mm256_set1_ps(1);
	const __m256 main_scale = _mm256_set1_ps(s->main_scale), outlier_scale = _mm256_set1_ps(s->outlier_scale);
	const __m256 minus = _mm256_set1_ps(-0.0f);
	const __m256i low = _mm256_set1_epi32((1 << s->low_bits) - 1);
	const __m128i shift = _mm_cvtsi32_si128(s->low_bits), sign_shift = _mm_cvtsi32_si128(31 - s->low_bits);
	const __m128i flag_shift = _mm_cvtsi32_si128(30 - s->low_bits);
	const size_t whole = n & ~(size_t)7;
	size_t count = 0;
	for (size_t i = 0; i < whole; i += 8) {
		const __m256i code = load_words(codes + i);
		const __m256i outlier = _mm256_srai_epi32(_mm256_sll_epi32(code, flag_shift), 31);
		const unsigned flags = flags_of(_mm256_castsi256_ps(outlier));
		const __m256i extra = _mm256_and_si256(expand(load_words(extras + count), flags), outlier);
		const __m256i m = _mm256_or_si256(_mm256_and_si256(code, low), _mm256_sll_epi32(extra, shift));
		const __m256 far = _mm256_castsi256_ps(outlier);
		const __m256 scale = _mm256_blendv_ps(main_scale, outlier_scale, far);
		const __m256 a = _mm256_add_ps(_mm256_and_ps(far, one), _mm256_div_ps(_mm256_cvtepi32_ps(m), scale));
		const __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(_mm256_sll_epi32(code, sign_shift)), minus);
		_mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_mul_ps(_mm256_or_ps(a, sign), std), mean));
		count += (size_t)__builtin_popcount(flags);
	}
	return count + REST.dequantize(s, codes + whole, n - whole, extras + count, x + whole);
}

const struct gp_smaq_loops gp_smaq_loops_avx2 = {
	.add = add,
	.quantize = quantize,
	.dequantize = dequantize,
};
