/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit floating point with AVX-512. See fp8_loops.h for what each loop gives,
 * fp8_loops_portable.c for the reference. Test: tests/unit/test_fp8_loops.c
 */
#include "kernels/loops/fp8_loops.h"

#include <math.h>
#include <string.h>

#include "kernels/loops/avx512.h"

enum { BLOCK = 512 }; /* elements between two loops of s2fp8: stays in L1 */

GP_INLINE __m512i round_magnitude(__m512i u, uint32_t largest, uint32_t smallest_normal, int shift, uint32_t rebase,
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

GP_INLINE __m512i magnitude_to_e5m2(__m512i u)
{
	return round_magnitude(u, 0x47600000u, 0x38800000u, 21, 112u << 23, 0x1p7f);
}

GP_INLINE __m512i magnitude_to_e4m3(__m512i u)
{
	return round_magnitude(u, 0x43e00000u, 0x3c800000u, 20, 120u << 23, 0x1p14f);
}

/* The sign bit of u over the code. */
GP_INLINE __m512i with_sign(__m512i code, __m512i u)
{
	return _mm512_ternarylogic_epi32(code, _mm512_srli_epi32(u, 24), word(0x80), 0xf8); /* a | b & c */
}

/* 64 numbers below 256, of four vectors, as bytes. Whole lines are stored: pieces of one were measured to cost half
 * the speed where the output is not in the cache. */
GP_INLINE void store_64(const __m512i v[4], uint8_t *out)
{
	const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	const __m512i low = _mm512_packus_epi32(v[0], v[1]), high = _mm512_packus_epi32(v[2], v[3]);
	_mm512_storeu_si512(out, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}

GP_INLINE bool narrow(const float *x, size_t n, uint8_t *out, __m512i (*convert)(__m512i))
{
	__m512i top = _mm512_setzero_si512(), code[4];
	size_t i = 0;
	for (; i + 64 <= n; i += 64) {
		for (int k = 0; k < 4; k++) {
			const __m512i u = _mm512_loadu_si512(x + i + 16 * k);
			const __m512i magnitude = _mm512_and_si512(u, word(0x7fffffffu));
			top = _mm512_max_epu32(top, magnitude);
			code[k] = with_sign(convert(magnitude), u);
		}
		store_64(code, out + i);
	}
	for (; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m512i u = _mm512_maskz_loadu_epi32(lanes, x + i);
		const __m512i magnitude = _mm512_and_si512(u, word(0x7fffffffu));
		top = _mm512_max_epu32(top, magnitude);
		_mm_mask_storeu_epi8(out + i, lanes, _mm512_cvtepi32_epi8(with_sign(convert(magnitude), u)));
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

GP_INLINE __m512i take_bytes(__m512i top, __m512i b)
{
	return _mm512_max_epu8(top, _mm512_and_si512(b, _mm512_set1_epi8(0x7f)));
}

GP_INLINE bool all_below(__m512i top, int limit)
{
	return _mm512_cmpge_epu8_mask(top, _mm512_set1_epi8((char)limit)) == 0;
}

/* 16 bytes of 64. */
#define QUARTER(b, k) _mm512_extracti32x4_epi32(b, k)

/* False when some byte is `limit` or more without its sign. */
GP_INLINE bool widen(const uint8_t *in, size_t n, float *x, int limit, __m512 (*convert)(__m128i))
{
	__m512i top = _mm512_setzero_si512();
	size_t i = 0;
	for (; i + 64 <= n; i += 64) {
		const __m512i b = _mm512_loadu_si512(in + i);
		top = take_bytes(top, b);
		_mm512_storeu_ps(x + i, convert(QUARTER(b, 0)));
		_mm512_storeu_ps(x + i + 16, convert(QUARTER(b, 1)));
		_mm512_storeu_ps(x + i + 32, convert(QUARTER(b, 2)));
		_mm512_storeu_ps(x + i + 48, convert(QUARTER(b, 3)));
	}
	for (; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m128i b = _mm_maskz_loadu_epi8(lanes, in + i);
		top = take_bytes(top, _mm512_zextsi128_si512(b));
		_mm512_mask_storeu_ps(x + i, lanes, convert(b));
	}
	return all_below(top, limit);
}

/* Half precision is E5M2 with eight more bits of mantissa. */
GP_INLINE __m512 widen_e5m2(__m128i b)
{
	return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(b), 8));
}

/* E4M3 in half precision is too small by the difference of the biases, 2^8. */
GP_INLINE __m512 widen_e4m3(__m128i b)
{
	const __m256i wide = _mm256_slli_epi16(_mm256_cvtepu8_epi16(b), 7); /* seeeemmm0000000 one place low */
	const __m256i sign = _mm256_and_si256(_mm256_slli_epi16(wide, 1), _mm256_set1_epi16((short)0x8000));
	const __m256i half = _mm256_or_si256(_mm256_and_si256(wide, _mm256_set1_epi16(0x3fff)), sign);
	return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(0x1p8f));
}

static bool from_e5m2(const uint8_t *in, size_t n, float *x)
{
	return widen(in, n, x, 0x7c, widen_e5m2);
}

static bool from_e4m3(const uint8_t *in, size_t n, float *x)
{
	return widen(in, n, x, 0x7f, widen_e4m3);
}

/* Asks for a line that is read later; it need not exist. */
GP_INLINE void ask_for(const float *x, size_t ahead)
{
	_mm_prefetch((const char *)((uintptr_t)x + ahead * sizeof *x), _MM_HINT_T0);
}

/* What is known of a full block. */
struct log_block {
	__m512 product, exponents;
	__m512i top;
	__mmask16 nonzero;
};

/* Zeros count as 1: exponent 0, mantissa 1. Asks for what comes three blocks later: two readers a page apart are no stream
 * that processors follow. */
GP_INLINE void add_vector(const float *x, struct log_block *b)
{
	ask_for(x, 3 * GP_LOG_BLOCK);
	const __m512i u = _mm512_and_si512(_mm512_loadu_si512(x), word(0x7fffffffu));
	const __m512 v = _mm512_castsi512_ps(u), one = _mm512_set1_ps(1);
	const __mmask16 some = _mm512_test_epi32_mask(u, u);
	const __m512 m = _mm512_mask_getmant_ps(one, some, v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
	b->nonzero &= some;
	b->top = _mm512_max_epu32(b->top, u);
	b->exponents = _mm512_add_ps(b->exponents, _mm512_maskz_getexp_ps(some, v));
	b->product = _mm512_mul_ps(b->product, m);
}

static void add_block(const struct log_block *b, struct gp_log_sum *sum)
{
	float lane[GP_LOG_LANES];
	const uint32_t one = b->nonzero == 0xffff ? 0 : 0x3f800000u;
	const uint32_t largest = _mm512_reduce_max_epu32(_mm512_max_epu32(b->top, word(one)));
	sum->largest = largest > sum->largest ? largest : sum->largest;
	if (sum->largest >= 0x7f800000u)
		return; /* nothing of this is a number any more */
	_mm512_storeu_ps(lane, b->product);
	gp_log_sum_take(sum, lane);
	sum->exponents += _mm512_reduce_add_epi32(_mm512_cvttps_epi32(b->exponents));
}

/* Two blocks side by side: a block's product is one chain of multiplications. */
static void add_logs(const float *x, size_t n, struct gp_log_sum *sum)
{
	const struct log_block empty = {_mm512_set1_ps(1), _mm512_setzero_ps(), _mm512_setzero_si512(), 0xffff};
	size_t at = 0;
	sum->product = sum->product > 0 ? sum->product : 1;
	for (; at + 2 * GP_LOG_BLOCK <= n; at += 2 * GP_LOG_BLOCK) {
		struct log_block a = empty, b = empty;
		for (size_t i = at; i < at + GP_LOG_BLOCK; i += GP_LOG_LANES) {
			add_vector(x + i, &a);
			add_vector(x + i + GP_LOG_BLOCK, &b);
		}
		add_block(&a, sum);
		add_block(&b, sum);
	}
	gp_fp8_loops_portable.add_logs(x + at, n - at, sum);
}

/* -inf for 0. */
GP_INLINE __m512 log2_of(__m512 v)
{
	const __m512 m = _mm512_getmant_ps(v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
	const __m512 z = _mm512_sub_ps(m, _mm512_set1_ps(1));
	__m512 p = _mm512_set1_ps(GP_LOG2_P3);
	p = _mm512_fmadd_ps(z, p, _mm512_set1_ps(GP_LOG2_P2));
	p = _mm512_fmadd_ps(z, p, _mm512_set1_ps(GP_LOG2_P1));
	p = _mm512_fmadd_ps(z, p, _mm512_set1_ps(GP_LOG2_P0));
	return _mm512_fmadd_ps(z, p, _mm512_getexp_ps(v));
}

/* t - floor(t) as a difference: the instruction for it takes as long as the two. */
GP_INLINE __m512 exp2_of(__m512 t)
{
	const __m512 whole = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
	const __m512 f = _mm512_sub_ps(t, whole);
	__m512 p = _mm512_set1_ps(GP_EXP2_Q2);
	p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(GP_EXP2_Q1));
	p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(GP_EXP2_Q0));
	p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(1));
	return _mm512_scalef_ps(p, whole);
}

/* Exponents of 2, clamped. n: a multiple of 16. */
GP_INLINE void to_exponents(const float *x, size_t n, float alpha, float beta, float *t)
{
	const __m512 low = _mm512_set1_ps(GP_S2FP8_LOW), high = _mm512_set1_ps(GP_S2FP8_HIGH);
	const __m512 a = _mm512_set1_ps(alpha), b = _mm512_set1_ps(beta);
	for (size_t i = 0; i < n; i += 16) {
		ask_for(x + i, 2 * BLOCK);
		const __m512 y = _mm512_fmadd_ps(a, log2_of(_mm512_loadu_ps(x + i)), b);
		_mm512_store_ps(t + i, _mm512_min_ps(_mm512_max_ps(y, low), high));
	}
}

/* E5M2 of 2^t with the sign of x, over half precision, in the lower bytes. */
GP_INLINE __m512i squeeze_32(const float *t, const float *x)
{
	__m256i half[2];
	for (int k = 0; k < 2; k++) {
		const __m512i y = _mm512_castps_si512(exp2_of(_mm512_load_ps(t + 16 * k)));
		const __m512i v = _mm512_loadu_si512(x + 16 * k);
		const __m512i with_sign_bit =
			_mm512_ternarylogic_epi32(y, v, word(0x80000000u), 0xd8); /* of v, else y */
		half[k] = _mm512_cvtps_ph(_mm512_castsi512_ps(with_sign_bit), _MM_FROUND_TO_NEAREST_INT);
	}
	const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1);
	return _mm512_srli_epi16(_mm512_add_epi16(both, _mm512_set1_epi16(0x80)), 8);
}

/* n: a multiple of 64, at most BLOCK. Two loops: in one, the chain of dependent instructions from x to its code is longer
 * than processors look ahead, which was measured to take 1.4 times as long. */
GP_INLINE void squeeze_block(const float *x, size_t n, float alpha, float beta, uint8_t *out)
{
	const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	_Alignas(64) float t[BLOCK];
	to_exponents(x, n, alpha, beta, t);
	for (size_t i = 0; i < n; i += 64) {
		const __m512i low = squeeze_32(t + i, x + i), high = squeeze_32(t + i + 32, x + i + 32);
		_mm512_storeu_si512(out + i, _mm512_permutexvar_epi64(order, _mm512_packus_epi16(low, high)));
	}
}

static void to_s2fp8(const float *x, size_t n, float alpha, float beta, uint8_t *out)
{
	size_t i = 0;
	for (; i + BLOCK <= n; i += BLOCK)
		squeeze_block(x + i, BLOCK, alpha, beta, out + i);
	for (; i < n; i += 64) {
		const size_t count = n - i < 64 ? n - i : 64;
		float last[64] = {0};
		uint8_t code[64];
		memcpy(last, x + i, count * sizeof *x);
		squeeze_block(last, 64, alpha, beta, code);
		memcpy(out + i, code, count);
	}
}

/* 128 entries in eight registers: the low five bits choose within two of them, the next two between the four pairs. */
GP_INLINE __m512 look_up(const __m512 t[8], __m128i b)
{
	const __m512i index = _mm512_cvtepu8_epi32(b);
	const __mmask16 bit5 = _mm512_test_epi32_mask(index, word(32)), bit6 = _mm512_test_epi32_mask(index, word(64));
	const __m512 low = _mm512_mask_mov_ps(_mm512_permutex2var_ps(t[0], index, t[1]), bit5,
					      _mm512_permutex2var_ps(t[2], index, t[3]));
	const __m512 high = _mm512_mask_mov_ps(_mm512_permutex2var_ps(t[4], index, t[5]), bit5,
					       _mm512_permutex2var_ps(t[6], index, t[7]));
	const __m512i value = _mm512_castps_si512(_mm512_mask_mov_ps(low, bit6, high));
	return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(value, _mm512_slli_epi32(index, 24), word(0x80000000u),
							     0xf8)); /* a | b & c */
}

static bool from_s2fp8(const uint8_t *in, size_t n, const float table[128], float *x)
{
	__m512i top = _mm512_setzero_si512();
	__m512 t[8];
	size_t i = 0;
	for (int k = 0; k < 8; k++)
		t[k] = _mm512_loadu_ps(table + 16 * k);
	for (; i + 64 <= n; i += 64) {
		const __m512i b = _mm512_loadu_si512(in + i);
		top = take_bytes(top, b);
		_mm512_storeu_ps(x + i, look_up(t, QUARTER(b, 0)));
		_mm512_storeu_ps(x + i + 16, look_up(t, QUARTER(b, 1)));
		_mm512_storeu_ps(x + i + 32, look_up(t, QUARTER(b, 2)));
		_mm512_storeu_ps(x + i + 48, look_up(t, QUARTER(b, 3)));
	}
	for (; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m128i b = _mm_maskz_loadu_epi8(lanes, in + i);
		top = take_bytes(top, _mm512_zextsi128_si512(b));
		_mm512_mask_storeu_ps(x + i, lanes, look_up(t, b));
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
