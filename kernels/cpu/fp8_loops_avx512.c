/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit floating point with AVX-512. See fp8_loops.h for what each loop gives,
 * fp8_loops_portable.c for the reference. Test: tests/unit/test_fp8_loops.c
 */
#include "kernels/cpu/fp8_loops.h"

#include <immintrin.h>
#include <math.h>

#define INLINE static inline __attribute__((always_inline))

INLINE __m512i word(uint32_t u)
{
	return _mm512_set1_epi32((int)u);
}

INLINE __mmask16 first_lanes(size_t n)
{
	return n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
}

INLINE __m512i round_magnitude(__m512i u, uint32_t largest, uint32_t smallest_normal, int shift, uint32_t rebase,
			       float magic)
{
	u = _mm512_min_epu32(u, word(largest));
	const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, (unsigned)shift), word(1));
	const __m512i half = word((1u << (shift - 1)) - 1 - rebase);
	const __m512i normal = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, half), odd), (unsigned)shift);
	const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(u), _mm512_set1_ps(magic));
	const __m512i small = _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_castps_si512(_mm512_set1_ps(magic)));
	return _mm512_mask_mov_epi32(normal, _mm512_cmplt_epu32_mask(u, word(smallest_normal)), small);
}

INLINE __m512i magnitude_to_e5m2(__m512i u)
{
	return round_magnitude(u, 0x47600000u, 0x38800000u, 21, 112u << 23, 0x1p7f);
}

INLINE __m512i magnitude_to_e4m3(__m512i u)
{
	return round_magnitude(u, 0x43e00000u, 0x3c800000u, 20, 120u << 23, 0x1p14f);
}

/* The sign bit of u over the code. */
INLINE __m128i with_sign(__m512i code, __m512i u)
{
	const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(u, 24), word(0x80));
	return _mm512_cvtepi32_epi8(_mm512_or_si512(code, sign));
}

INLINE bool narrow(const float *x, size_t n, uint8_t *out, __m512i (*convert)(__m512i))
{
	__m512i top = _mm512_setzero_si512();
	for (size_t i = 0; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m512i u = _mm512_maskz_loadu_epi32(lanes, x + i);
		const __m512i magnitude = _mm512_and_si512(u, word(0x7fffffffu));
		top = _mm512_max_epu32(top, magnitude);
		_mm_mask_storeu_epi8(out + i, lanes, with_sign(convert(magnitude), u));
	}
	return _mm512_cmpge_epu32_mask(top, word(0x7f800000u)) == 0;
}

static bool to_e5m2(const float *x, size_t n, uint8_t *out)
{
	return narrow(x, n, out, magnitude_to_e5m2);
}

static bool to_e4m3(const float *x, size_t n, uint8_t *out)
{
	return narrow(x, n, out, magnitude_to_e4m3);
}

INLINE bool all_below(__m128i top, int limit)
{
	return _mm_cmpge_epu8_mask(top, _mm_set1_epi8((char)limit)) == 0;
}

/* Half precision is E5M2 with eight more bits of mantissa. */
static bool from_e5m2(const uint8_t *in, size_t n, float *x)
{
	__m128i top = _mm_setzero_si128();
	for (size_t i = 0; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m128i b = _mm_maskz_loadu_epi8(lanes, in + i);
		top = _mm_max_epu8(top, _mm_and_si128(b, _mm_set1_epi8(0x7f)));
		const __m256i half = _mm256_slli_epi16(_mm256_cvtepu8_epi16(b), 8);
		_mm512_mask_storeu_ps(x + i, lanes, _mm512_cvtph_ps(half));
	}
	return all_below(top, 0x7c);
}

/* E4M3 in half precision is too small by the difference of the biases, 2^8. */
static bool from_e4m3(const uint8_t *in, size_t n, float *x)
{
	__m128i top = _mm_setzero_si128();
	for (size_t i = 0; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m128i b = _mm_maskz_loadu_epi8(lanes, in + i);
		top = _mm_max_epu8(top, _mm_and_si128(b, _mm_set1_epi8(0x7f)));
		const __m256i wide = _mm256_slli_epi16(_mm256_cvtepu8_epi16(b), 7); /* seeeemmm0000000 one place low */
		const __m256i sign = _mm256_and_si256(_mm256_slli_epi16(wide, 1), _mm256_set1_epi16((short)0x8000));
		const __m256i half = _mm256_or_si256(_mm256_and_si256(wide, _mm256_set1_epi16(0x3fff)), sign);
		_mm512_mask_storeu_ps(x + i, lanes, _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(0x1p8f)));
	}
	return all_below(top, 0x7f);
}

/* One full block. Zeros count as 1: exponent 0, mantissa 1. */
static void add_block(const float *x, struct gp_log_sum *sum)
{
	const __m512 one = _mm512_set1_ps(1);
	__m512 product = one, exponents = _mm512_setzero_ps();
	__m512i top = _mm512_setzero_si512();
	__mmask16 nonzero = 0xffff;
	float lane[GP_LOG_LANES];
	for (size_t i = 0; i < GP_LOG_BLOCK; i += GP_LOG_LANES) {
		const __m512i u = _mm512_and_si512(_mm512_loadu_si512(x + i), word(0x7fffffffu));
		const __m512 v = _mm512_castsi512_ps(u);
		const __mmask16 some = _mm512_test_epi32_mask(u, u);
		const __m512 m = _mm512_mask_getmant_ps(one, some, v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
		nonzero &= some;
		top = _mm512_max_epu32(top, u);
		exponents = _mm512_add_ps(exponents, _mm512_maskz_getexp_ps(some, v));
		product = _mm512_mul_ps(product, m);
	}
	const uint32_t largest = _mm512_reduce_max_epu32(_mm512_max_epu32(
		top, nonzero == 0xffff ? word(sum->largest)
				       : word(sum->largest > 0x3f800000u ? sum->largest : 0x3f800000u)));
	sum->largest = largest;
	if (largest >= 0x7f800000u)
		return; /* nothing of this is a number any more */
	_mm512_storeu_ps(lane, product);
	for (int k = 0; k < GP_LOG_LANES; k++)
		sum->product *= (double)lane[k];
	sum->exponents += _mm512_reduce_add_epi32(_mm512_cvttps_epi32(exponents));
}

static void add_logs(const float *x, size_t n, struct gp_log_sum *sum)
{
	size_t at = 0;
	sum->product = sum->product > 0 ? sum->product : 1;
	for (; at + GP_LOG_BLOCK <= n; at += GP_LOG_BLOCK) {
		int exponent;
		add_block(x + at, sum);
		sum->product = 2 * frexp(sum->product, &exponent);
		sum->exponents += exponent - 1;
	}
	gp_fp8_loops_portable.add_logs(x + at, n - at, sum);
}

/* -inf for 0. */
INLINE __m512 log2_of(__m512 v)
{
	const __m512 m = _mm512_getmant_ps(v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
	const __m512 z = _mm512_sub_ps(m, _mm512_set1_ps(1));
	__m512 p = _mm512_set1_ps(GP_LOG2_P3);
	p = _mm512_fmadd_ps(z, p, _mm512_set1_ps(GP_LOG2_P2));
	p = _mm512_fmadd_ps(z, p, _mm512_set1_ps(GP_LOG2_P1));
	p = _mm512_fmadd_ps(z, p, _mm512_set1_ps(GP_LOG2_P0));
	return _mm512_fmadd_ps(z, p, _mm512_getexp_ps(v));
}

INLINE __m512 exp2_of(__m512 t)
{
	t = _mm512_min_ps(_mm512_max_ps(t, _mm512_set1_ps(GP_S2FP8_LOW)), _mm512_set1_ps(GP_S2FP8_HIGH));
	const __m512 f = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
	__m512 p = _mm512_set1_ps(GP_EXP2_Q2);
	p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(GP_EXP2_Q1));
	p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(GP_EXP2_Q0));
	p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(1));
	return _mm512_scalef_ps(p, t);
}

static void to_s2fp8(const float *x, size_t n, float alpha, float beta, uint8_t *out)
{
	for (size_t i = 0; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m512 v = _mm512_maskz_loadu_ps(lanes, x + i);
		const __m512 y = exp2_of(_mm512_fmadd_ps(_mm512_set1_ps(alpha), log2_of(v), _mm512_set1_ps(beta)));
		const __m512i with_sign_bit = _mm512_ternarylogic_epi32(_mm512_castps_si512(y), _mm512_castps_si512(v),
									word(0x80000000u), 0xd8); /* of v, else y */
		const __m256i half = _mm512_cvtps_ph(_mm512_castsi512_ps(with_sign_bit), _MM_FROUND_TO_NEAREST_INT);
		const __m256i code = _mm256_srli_epi16(_mm256_add_epi16(half, _mm256_set1_epi16(0x80)), 8);
		_mm_mask_storeu_epi8(out + i, lanes, _mm256_cvtepi16_epi8(code));
	}
}

/* 128 entries in eight registers: the low five bits choose within two of them, the next two between the four pairs. */
static bool from_s2fp8(const uint8_t *in, size_t n, const float table[128], float *x)
{
	__m512 t[8];
	__m128i top = _mm_setzero_si128();
	for (int i = 0; i < 8; i++)
		t[i] = _mm512_loadu_ps(table + 16 * i);
	for (size_t i = 0; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m128i b = _mm_maskz_loadu_epi8(lanes, in + i);
		const __m512i index = _mm512_cvtepu8_epi32(b);
		const __mmask16 bit5 = _mm512_test_epi32_mask(index, word(32)),
				bit6 = _mm512_test_epi32_mask(index, word(64));
		top = _mm_max_epu8(top, _mm_and_si128(b, _mm_set1_epi8(0x7f)));
		const __m512 low = _mm512_mask_mov_ps(_mm512_permutex2var_ps(t[0], index, t[1]), bit5,
						      _mm512_permutex2var_ps(t[2], index, t[3]));
		const __m512 high = _mm512_mask_mov_ps(_mm512_permutex2var_ps(t[4], index, t[5]), bit5,
						       _mm512_permutex2var_ps(t[6], index, t[7]));
		const __m512i value = _mm512_castps_si512(_mm512_mask_mov_ps(low, bit6, high));
		const __m512i sign = _mm512_and_si512(_mm512_slli_epi32(index, 24), word(0x80000000u));
		_mm512_mask_storeu_epi32(x + i, lanes, _mm512_or_si512(value, sign));
	}
	return all_below(top, 0x7c);
}

const struct gp_fp8_loops gp_fp8_loops_avx512 = {
	.to_e5m2 = to_e5m2,
	.to_e4m3 = to_e4m3,
	.from_e5m2 = from_e5m2,
	.from_e4m3 = from_e4m3,
	.add_logs = add_logs,
	.to_s2fp8 = to_s2fp8,
	.from_s2fp8 = from_s2fp8,
};
