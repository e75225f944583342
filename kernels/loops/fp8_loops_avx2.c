/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit floating point with AVX2, 32 elements at a time; what is left over is
 * the portable loops'. See fp8_loops.h. Test: tests/unit/test_fp8_loops.c
 */
#include "kernels/loops/fp8_loops.h"

#include <math.h>

#include "kernels/loops/avx2.h"

#define REST gp_fp8_loops_portable

/* Magnitudes have no sign bit, so signed comparisons do. */
GP_INLINE __m256i round_magnitude(__m256i u, uint32_t largest, uint32_t smallest_normal, int shift, uint32_t rebase,
				  float magic)
{
	u = _mm256_min_epu32(u, word(largest));
	const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, shift), word(1));
	const __m256i half = word((1u << (shift - 1)) - 1 - rebase);
	const __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, half), odd), shift);
	const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(u), _mm256_set1_ps(magic));
	const __m256i small = _mm256_sub_epi32(_mm256_castps_si256(sum), _mm256_castps_si256(_mm256_set1_ps(magic)));
	return _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(word(smallest_normal), u));
}

GP_INLINE __m256i magnitude_to_e5m2(__m256i u)
{
	return round_magnitude(u, 0x47600000u, 0x38800000u, 21, 112u << 23, 0x1p7f);
}

GP_INLINE __m256i magnitude_to_e4m3(__m256i u)
{
	return round_magnitude(u, 0x43e00000u, 0x3c800000u, 20, 120u << 23, 0x1p14f);
}

GP_INLINE __m256i with_sign(__m256i code, __m256i u)
{
	return _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi32(u, 24), word(0x80)));
}

/* Four times eight codes below 256 to bytes, in order: packing works within halves, so they are put right after. */
GP_INLINE void store_codes(const __m256i code[4], uint8_t *out)
{
	const __m256i a = _mm256_packus_epi32(code[0], code[1]), b = _mm256_packus_epi32(code[2], code[3]);
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	_mm256_storeu_si256((void *)out, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order));
}

GP_INLINE bool narrow(const float *x, size_t n, uint8_t *out, __m256i (*convert)(__m256i))
{
	__m256i top = _mm256_setzero_si256(), code[4];
	for (size_t i = 0; i + 32 <= n; i += 32) {
		for (int k = 0; k < 4; k++) {
			const __m256i u = _mm256_loadu_si256((const void *)(x + i + 8 * k));
			const __m256i magnitude = _mm256_and_si256(u, word(0x7fffffffu));
			top = _mm256_max_epu32(top, magnitude);
			code[k] = with_sign(convert(magnitude), u);
		}
		store_codes(code, out + i);
	}
	return _mm256_movemask_epi8(_mm256_cmpgt_epi32(top, word(0x7f7fffffu))) == 0;
}

static bool to_e5m2(const float *x, size_t n, uint8_t *out)
{
	const size_t done = n - n % 32;
	const bool fine = narrow(x, n, out, magnitude_to_e5m2);
	return REST.to_e5m2(x + done, n - done, out + done) && fine;
}

static bool to_e4m3(const float *x, size_t n, uint8_t *out)
{
	const size_t done = n - n % 32;
	const bool fine = narrow(x, n, out, magnitude_to_e4m3);
	return REST.to_e4m3(x + done, n - done, out + done) && fine;
}

GP_INLINE bool all_below(__m128i top, int limit)
{
	const __m128i at_least = _mm_max_epu8(top, _mm_set1_epi8((char)limit));
	return _mm_movemask_epi8(_mm_cmpeq_epi8(at_least, top)) == 0;
}

GP_INLINE void store_halves(__m256i half, float factor, float *x)
{
	const __m256 f = _mm256_set1_ps(factor);
	_mm256_storeu_ps(x, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), f));
	_mm256_storeu_ps(x + 8, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), f));
}

/* Half precision is E5M2 with eight more bits of mantissa. */
static bool from_e5m2(const uint8_t *in, size_t n, float *x)
{
	__m128i top = _mm_setzero_si128();
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		const __m128i b = _mm_loadu_si128((const void *)(in + i));
		top = _mm_max_epu8(top, _mm_and_si128(b, _mm_set1_epi8(0x7f)));
		store_halves(_mm256_slli_epi16(_mm256_cvtepu8_epi16(b), 8), 1, x + i);
	}
	const bool fine = all_below(top, 0x7c);
	return REST.from_e5m2(in + i, n - i, x + i) && fine;
}

/* E4M3 in half precision is too small by the difference of the biases, 2^8. */
static bool from_e4m3(const uint8_t *in, size_t n, float *x)
{
	__m128i top = _mm_setzero_si128();
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		const __m128i b = _mm_loadu_si128((const void *)(in + i));
		top = _mm_max_epu8(top, _mm_and_si128(b, _mm_set1_epi8(0x7f)));
		const __m256i wide = _mm256_slli_epi16(_mm256_cvtepu8_epi16(b), 7);
		const __m256i sign = _mm256_and_si256(_mm256_slli_epi16(wide, 1), _mm256_set1_epi16((short)0x8000));
		store_halves(_mm256_or_si256(_mm256_and_si256(wide, _mm256_set1_epi16(0x3fff)), sign), 0x1p8f, x + i);
	}
	const bool fine = all_below(top, 0x7f);
	return REST.from_e4m3(in + i, n - i, x + i) && fine;
}

/* Bits of a magnitude other than 0: subnormals times 2^32, and what that adds to the exponent. */
GP_INLINE __m256i lift(__m256i u, __m256i *bias)
{
	const __m256i small = _mm256_cmpgt_epi32(word(0x00800000u), u);
	*bias = word(127);
	if (__builtin_expect(_mm256_movemask_epi8(small), 0)) {
		const __m256 scaled = _mm256_mul_ps(_mm256_castsi256_ps(u), _mm256_set1_ps(0x1p32f));
		u = _mm256_blendv_epi8(u, _mm256_castps_si256(scaled), small);
		*bias = _mm256_blendv_epi8(*bias, word(127 + 32), small);
	}
	return u;
}

GP_INLINE __m256 mantissa(__m256i u)
{
	return _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(u, word(0x007fffffu)), word(0x3f800000u)));
}

/* Bits of a magnitude, of one where x is 0. */
GP_INLINE __m256i magnitude_or_one(__m256i v, __m256i *zero)
{
	const __m256i u = _mm256_and_si256(v, word(0x7fffffffu));
	*zero = _mm256_cmpeq_epi32(u, _mm256_setzero_si256());
	return _mm256_blendv_epi8(u, word(0x3f800000u), *zero);
}

/* One full block: lanes 0..7 and 8..15. */
static void add_block(const float *x, struct gp_log_sum *sum)
{
	__m256 product[2] = {_mm256_set1_ps(1), _mm256_set1_ps(1)};
	__m256i exponents = _mm256_setzero_si256(), top = word(sum->largest), bias, zero;
	float lane[GP_LOG_LANES];
	int32_t e[8];
	uint32_t m[8];
	for (size_t i = 0; i < GP_LOG_BLOCK; i += 8) {
		__m256i u = magnitude_or_one(_mm256_loadu_si256((const void *)(x + i)), &zero);
		top = _mm256_max_epu32(top, u);
		u = lift(u, &bias);
		exponents = _mm256_add_epi32(exponents, _mm256_sub_epi32(_mm256_srli_epi32(u, 23), bias));
		product[i / 8 % 2] = _mm256_mul_ps(product[i / 8 % 2], mantissa(u));
	}
	_mm256_storeu_ps(lane, product[0]);
	_mm256_storeu_ps(lane + 8, product[1]);
	gp_log_sum_take(sum, lane);
	_mm256_storeu_si256((void *)e, exponents);
	_mm256_storeu_si256((void *)m, top);
	for (int k = 0; k < 8; k++) {
		sum->exponents += e[k];
		sum->largest = m[k] > sum->largest ? m[k] : sum->largest;
	}
}

static void add_logs(const float *x, size_t n, struct gp_log_sum *sum)
{
	size_t at = 0;
	sum->product = sum->product > 0 ? sum->product : 1;
	for (; at + GP_LOG_BLOCK <= n; at += GP_LOG_BLOCK)
		add_block(x + at, sum);
	REST.add_logs(x + at, n - at, sum);
}

/* u: not 0. */
GP_INLINE __m256 log2_of(__m256i u)
{
	__m256i bias;
	u = lift(u, &bias);
	const __m256 exponent = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(u, 23), bias));
	const __m256 z = _mm256_sub_ps(mantissa(u), _mm256_set1_ps(1));
	__m256 p = _mm256_set1_ps(GP_LOG2_P3);
	p = _mm256_fmadd_ps(z, p, _mm256_set1_ps(GP_LOG2_P2));
	p = _mm256_fmadd_ps(z, p, _mm256_set1_ps(GP_LOG2_P1));
	p = _mm256_fmadd_ps(z, p, _mm256_set1_ps(GP_LOG2_P0));
	return _mm256_fmadd_ps(z, p, exponent);
}

GP_INLINE __m256i exp2_of(__m256 t)
{
	t = _mm256_min_ps(_mm256_max_ps(t, _mm256_set1_ps(GP_S2FP8_LOW)), _mm256_set1_ps(GP_S2FP8_HIGH));
	const __m256 whole = _mm256_floor_ps(t), f = _mm256_sub_ps(t, whole);
	__m256 p = _mm256_set1_ps(GP_EXP2_Q2);
	p = _mm256_fmadd_ps(f, p, _mm256_set1_ps(GP_EXP2_Q1));
	p = _mm256_fmadd_ps(f, p, _mm256_set1_ps(GP_EXP2_Q0));
	p = _mm256_fmadd_ps(f, p, _mm256_set1_ps(1));
	return _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_cvttps_epi32(whole), 23));
}

/* Eight codes in 16 bits each. */
GP_INLINE __m128i squeeze(const float *x, __m256 alpha, __m256 beta)
{
	__m256i zero;
	const __m256i v = _mm256_loadu_si256((const void *)x);
	const __m256 t = _mm256_fmadd_ps(alpha, log2_of(magnitude_or_one(v, &zero)), beta);
	const __m256i y = _mm256_andnot_si256(zero, exp2_of(t));
	const __m256i with_sign_bit = _mm256_or_si256(y, _mm256_and_si256(v, word(0x80000000u)));
	const __m128i half = _mm256_cvtps_ph(_mm256_castsi256_ps(with_sign_bit), _MM_FROUND_TO_NEAREST_INT);
	return _mm_srli_epi16(_mm_add_epi16(half, _mm_set1_epi16(0x80)), 8);
}

static void to_s2fp8(const float *x, size_t n, float alpha, float beta, uint8_t *out)
{
	const __m256 a = _mm256_set1_ps(alpha), b = _mm256_set1_ps(beta);
	size_t i = 0;
	for (; i + 16 <= n; i += 16)
		_mm_storeu_si128((void *)(out + i), _mm_packus_epi16(squeeze(x + i, a, b), squeeze(x + i + 8, a, b)));
	REST.to_s2fp8(x + i, n - i, alpha, beta, out + i);
}

static bool from_s2fp8(const uint8_t *in, size_t n, const float table[128], float *x)
{
	__m128i top = _mm_setzero_si128();
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		const __m128i b = _mm_loadu_si128((const void *)(in + i));
		top = _mm_max_epu8(top, _mm_and_si128(b, _mm_set1_epi8(0x7f)));
		for (int k = 0; k < 2; k++) {
			const __m256i code = _mm256_cvtepu8_epi32(k ? _mm_srli_si128(b, 8) : b);
			const __m256i index = _mm256_and_si256(code, word(0x7f));
			const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(code, 24), word(0x80000000u));
			const __m256 value = _mm256_i32gather_ps(table, index, 4);
			_mm256_storeu_ps(x + i + 8 * k, _mm256_or_ps(value, _mm256_castsi256_ps(sign)));
		}
	}
	const bool fine = all_below(top, 0x7c);
	return REST.from_s2fp8(in + i, n - i, table, x + i) && fine;
}

const struct gp_fp8_loops gp_fp8_loops_avx2 = {
	.to_e5m2 = to_e5m2,
	.to_e4m3 = to_e4m3,
	.from_e5m2 = from_e5m2,
	.from_e4m3 = from_e4m3,
	.add_logs = add_logs,
	.to_s2fp8 = to_s2fp8,
	.from_s2fp8 = from_s2fp8,
};
