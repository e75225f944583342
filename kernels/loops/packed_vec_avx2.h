/* SPDX-License-Identifier: Apache-2.0
 *
 * A register of 8 elements for packed_body.h, with AVX2 and F16C, on ARM64 what SIMDe makes of them: `floats` or `ints` of 32
 * bits (i_), which hold words of 16 bits (w_) and bytes (b_), too. Only what is not evident from its name is described here;
 * packed_vec_avx512.h has the same functions.
 *
 * Only for packed_loops_avx2.c.
 *
 * Threads: any; the functions touch only memory that they are given. Test: tests/unit/test_packed_loops.c
 */
#ifndef GP_PACKED_VEC_AVX2_H
#define GP_PACKED_VEC_AVX2_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/loops/avx2.h"

enum { LANES = 8 };
typedef __m256 floats;
typedef __m256i ints;

/* --- floats ----------------------------------------------------------------------------------------------------- */

GP_INLINE floats f_all(float v)
{
	return _mm256_set1_ps(v);
}

GP_INLINE floats f_load(const float *x)
{
	return _mm256_loadu_ps(x);
}

/* The first n of x, then zeros; all of them where n is larger than LANES. */
GP_INLINE floats f_some(const float *x, size_t n)
{
	float v[LANES] = {0};
	if (n >= LANES)
		return _mm256_loadu_ps(x);
	if (n > 0)
		memcpy(v, x, n * sizeof *x);
	return _mm256_loadu_ps(v);
}

GP_INLINE void f_store(float *x, floats v)
{
	_mm256_storeu_ps(x, v);
}

GP_INLINE void f_store_some(float *x, size_t n, floats v)
{
	float y[LANES];
	_mm256_storeu_ps(y, v);
	memcpy(x, y, n * sizeof *x);
}

/* The same bits. */
GP_INLINE floats f_of(ints v)
{
	return _mm256_castsi256_ps(v);
}

/* The same numbers. */
GP_INLINE floats f_from(ints v)
{
	return _mm256_cvtepi32_ps(v);
}

GP_INLINE floats f_add(floats a, floats b)
{
	return _mm256_add_ps(a, b);
}

GP_INLINE floats f_sub(floats a, floats b)
{
	return _mm256_sub_ps(a, b);
}

GP_INLINE floats f_mul(floats a, floats b)
{
	return _mm256_mul_ps(a, b);
}

GP_INLINE floats f_div(floats a, floats b)
{
	return _mm256_div_ps(a, b);
}

/* b, where one of the two is NaN; so does f_max. */
GP_INLINE floats f_min(floats a, floats b)
{
	return _mm256_min_ps(a, b);
}

GP_INLINE floats f_max(floats a, floats b)
{
	return _mm256_max_ps(a, b);
}

/* a < b ? yes : no; NaN is not less. */
GP_INLINE floats f_where_less(floats a, floats b, floats yes, floats no)
{
	return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

/* --- integers --------------------------------------------------------------------------------------------------- */

GP_INLINE ints i_all(int32_t v)
{
	return _mm256_set1_epi32(v);
}

GP_INLINE ints i_load(const void *from)
{
	return _mm256_loadu_si256((const __m256i *)from);
}

/* The same bits. */
GP_INLINE ints i_of(floats v)
{
	return _mm256_castps_si256(v);
}

/* To nearest, ties to even. */
GP_INLINE ints i_round(floats v)
{
	return _mm256_cvtps_epi32(v);
}

GP_INLINE ints i_add(ints a, ints b)
{
	return _mm256_add_epi32(a, b);
}

GP_INLINE ints i_sub(ints a, ints b)
{
	return _mm256_sub_epi32(a, b);
}

GP_INLINE ints i_and(ints a, ints b)
{
	return _mm256_and_si256(a, b);
}

GP_INLINE ints i_or(ints a, ints b)
{
	return _mm256_or_si256(a, b);
}

GP_INLINE ints i_xor(ints a, ints b)
{
	return _mm256_xor_si256(a, b);
}

GP_INLINE ints i_min(ints a, ints b)
{
	return _mm256_min_epi32(a, b);
}

GP_INLINE ints i_max(ints a, ints b)
{
	return _mm256_max_epi32(a, b);
}

GP_INLINE ints i_min_unsigned(ints a, ints b)
{
	return _mm256_min_epu32(a, b);
}

GP_INLINE ints i_max_unsigned(ints a, ints b)
{
	return _mm256_max_epu32(a, b);
}

GP_INLINE ints i_left(ints v, int bits)
{
	return _mm256_slli_epi32(v, bits);
}

GP_INLINE ints i_right(ints v, int bits)
{
	return _mm256_srli_epi32(v, bits);
}

GP_INLINE ints i_right_each(ints v, ints bits)
{
	return _mm256_srlv_epi32(v, bits);
}

/* a < b, with signs, ? yes : no. */
GP_INLINE floats i_where_less(ints a, ints b, floats yes, floats no)
{
	return _mm256_blendv_ps(no, yes, f_of(_mm256_cmpgt_epi32(b, a)));
}

/* (v & mask) | other */
GP_INLINE ints masked_or(ints v, ints mask, ints other)
{
	return i_or(i_and(v, mask), other);
}

/* All ones in the lanes from n on, 1 <= n <= LANES. */
GP_INLINE ints ones_from(ints v, size_t n)
{
	static const int32_t on[2 * LANES] = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1};
	return i_or(v, i_load(on + LANES - n));
}

GP_INLINE bool any_equal(ints v, int32_t to)
{
	return _mm256_movemask_epi8(_mm256_cmpeq_epi32(v, i_all(to))) != 0;
}

/* None is negative. */
GP_INLINE uint32_t largest_lane(ints v)
{
	uint32_t lane[LANES], most = 0;
	_mm256_storeu_si256((__m256i *)lane, v);
	for (int i = 0; i < LANES; i++)
		most = lane[i] > most ? lane[i] : most;
	return most;
}

/* --- bytes and words -------------------------------------------------------------------------------------------- */

/* Numbers of half the size, cut off at its ends. Four registers of numbers become one of bytes by two such steps, and
 * `ordered` brings these into order. */
GP_INLINE ints to_words(ints a, ints b)
{
	return _mm256_packs_epi32(a, b);
}

GP_INLINE ints to_bytes(ints a, ints b)
{
	return _mm256_packs_epi16(a, b);
}

GP_INLINE ints to_bytes_unsigned(ints a, ints b)
{
	return _mm256_packus_epi16(a, b);
}

GP_INLINE ints ordered(ints bytes)
{
	return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

GP_INLINE ints w_right(ints v, int bits)
{
	return _mm256_srli_epi16(v, bits);
}

GP_INLINE ints b_all(int v)
{
	return _mm256_set1_epi8((char)v);
}

GP_INLINE ints b_add(ints a, ints b)
{
	return _mm256_add_epi8(a, b);
}

GP_INLINE ints b_sub(ints a, ints b)
{
	return _mm256_sub_epi8(a, b);
}

GP_INLINE ints b_min(ints a, ints b)
{
	return _mm256_min_epi8(a, b);
}

GP_INLINE ints b_max(ints a, ints b)
{
	return _mm256_max_epi8(a, b);
}

GP_INLINE ints b_min_unsigned(ints a, ints b)
{
	return _mm256_min_epu8(a, b);
}

/* Bytes of the 16, where `which` is below 16; else 0. */
GP_INLINE ints pick_bytes(__m128i from, ints which)
{
	return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(from), which);
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

/* The lowest bytes of the first n lanes. The usual case is apart: memcpy of a constant length is one instruction. */
GP_INLINE void put_bytes(ints v, size_t n, uint8_t *out)
{
	const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
	const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm_setzero_si128());
	const uint64_t all = (uint64_t)_mm_cvtsi128_si64(bytes);
	if (n == LANES)
		memcpy(out, &all, LANES);
	else
		memcpy(out, &all, n);
}

/* n bytes, at most LANES, a lane each, then zeros. */
GP_INLINE ints get_bytes(const uint8_t *in, size_t n)
{
	uint64_t all = 0;
	if (n == LANES)
		memcpy(&all, in, LANES);
	else
		memcpy(&all, in, n);
	return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)all));
}

/* n bytes, at most LANES, then zeros. */
GP_INLINE __m128i some_bytes(const uint8_t *in, size_t n)
{
	uint64_t v = 0;
	memcpy(&v, in, n);
	return _mm_cvtsi64_si128((long long)v);
}

/* The first n as fp16, rounded up, at most its largest number. Returns what they are then. */
GP_INLINE floats put_halves(floats v, size_t n, uint8_t *out)
{
	uint16_t halves[LANES];
	const __m128i above = _mm256_cvtps_ph(v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
	const __m128i half = _mm_min_epu16(above, _mm_set1_epi16(0x7bff));
	_mm_storeu_si128((__m128i *)halves, half);
	if (n == LANES)
		memcpy(out, halves, sizeof halves);
	else
		memcpy(out, halves, 2 * n);
	return _mm256_cvtph_ps(half);
}

GP_INLINE floats get_halves(const uint8_t *in, size_t n)
{
	uint16_t halves[LANES] = {0};
	if (n == LANES)
		memcpy(halves, in, sizeof halves);
	else
		memcpy(halves, in, 2 * n);
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves));
}

/* Lane i of v for each of the `each` registers of block i. Writes up to LANES too many. */
GP_INLINE void spread(floats v, size_t blocks, size_t each, float *out)
{
	float value[LANES];
	f_store(value, v);
	for (size_t b = 0; b < blocks; b++, out += each)
		for (size_t i = 0; i < each; i += LANES)
			f_store(out + i, f_all(value[b]));
}

/* --- the largest of each block ---------------------------------------------------------------------------------- */

enum fold { MOST_INT, MOST, LEAST };

GP_INLINE ints folded(enum fold how, ints a, ints b)
{
	return how == MOST_INT ? i_max(a, b)
	       : how == MOST   ? i_of(f_max(f_of(a), f_of(b)))
			       : i_of(f_min(f_of(a), f_of(b)));
}

/* Two registers to one: halves, then the pairs of halves, then neighbours. */
GP_INLINE ints fold_halves(enum fold how, ints a, ints b)
{
	return folded(how, _mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

GP_INLINE ints fold_pairs(enum fold how, ints a, ints b)
{
	return folded(how, _mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

GP_INLINE ints fold_neighbours(enum fold how, ints a, ints b)
{
	return folded(how, i_of(_mm256_shuffle_ps(f_of(a), f_of(b), 0x88)),
		      i_of(_mm256_shuffle_ps(f_of(a), f_of(b), 0xdd)));
}

/* Lane i: the largest, or least, of register i of LANES. */
GP_INLINE ints fold_all(enum fold how, const ints *v)
{
	const ints a = fold_pairs(how, fold_halves(how, v[0], v[4]), fold_halves(how, v[1], v[5]));
	const ints b = fold_pairs(how, fold_halves(how, v[2], v[6]), fold_halves(how, v[3], v[7]));
	return fold_neighbours(how, a, b);
}

/* --- packing ---------------------------------------------------------------------------------------------------- */

/* Bits of `low` where `mask` has ones, else those of `high`. */
GP_INLINE ints joined(ints mask, ints low, ints high)
{
	return _mm256_or_si256(_mm256_and_si256(mask, low), _mm256_andnot_si256(mask, high));
}

/* Behind each other: the first `bits` bytes of each half of 16 bytes. */
static const uint8_t close_gaps[9][16] = {
	[2] = {0, 1, 8, 9, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
	[3] = {0, 1, 2, 8, 9, 10, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
	[5] = {0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 128, 128, 128, 128, 128, 128},
	[6] = {0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 128, 128, 128, 128},
	[7] = {0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 128, 128},
};

/* 32 codes, a byte each, to 4 * bits bytes. Writes 16 bytes at out and, but for 4 bits, at out + 2 * bits. */
GP_INLINE void put_chunk(ints codes, int bits, uint8_t *out)
{
	if (bits == 8) {
		_mm256_storeu_si256((ints *)out, codes);
		return;
	}
	const ints twos =
		joined(_mm256_set1_epi16((short)((1 << bits) - 1)), codes, _mm256_srli_epi16(codes, 8 - bits));
	if (bits == 4) {
		const ints bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(twos, twos), 0x08);
		_mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(bytes));
		return;
	}
	const ints fours = joined(_mm256_set1_epi32((1 << 2 * bits) - 1), twos, _mm256_srli_epi32(twos, 16 - 2 * bits));
	const ints eights =
		joined(_mm256_set1_epi64x((1 << 4 * bits) - 1), fours, _mm256_srli_epi64(fours, 32 - 4 * bits));
	const ints order = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)close_gaps[bits]));
	const ints closed = _mm256_shuffle_epi8(eights, order);
	_mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(closed));
	_mm_storeu_si128((__m128i *)(out + 2 * bits), _mm256_extracti128_si256(closed, 1));
}

/* The first n codes of a chunk, in exactly as many bytes as they take. */
GP_INLINE void put_some(ints codes, size_t n, int bits, uint8_t *out)
{
	uint8_t byte[4 * LANES] = {0}, packed[4 * LANES + 16], all[4 * LANES];
	_mm256_storeu_si256((ints *)all, codes);
	memcpy(byte, all, n);
	put_chunk(_mm256_loadu_si256((const ints *)byte), bits, packed);
	memcpy(out, packed, (n * (size_t)bits + 7) / 8);
}

/* How many bytes from the beginning of a chunk on have to be its own, or those of later chunks. */
GP_INLINE ptrdiff_t chunk_room(int bits)
{
	return bits == 4 || bits == 8 ? 4 * bits : 2 * bits + 16;
}

/* --- E2M1 ------------------------------------------------------------------------------------------------------- */

/* What `narrowed` of packed_body.h does, for E2M1: the number to add and what to take away from the sum's bits are looked up by
 * the exponent, which is at least that of 2^-3, what is below being 0 anyway, and below 16. */
GP_INLINE ints narrowed_to_e2m1(floats x)
{
	const int m = 0x4a800000, step = 1 << 23; /* 2^22, and the next power */
	const ints magic = _mm256_setr_epi32(m + step, m + 2 * step, m + 2 * step, 0, m, m, m, m);
	const ints minus = _mm256_setr_epi32(m + step - 2, m + 2 * step - 4, m + 2 * step - 4, 0, m, m, m, m);
	const ints v = i_max(i_and(i_of(x), i_all(0x7fffffff)), i_of(f_all(0x1p-3f))), exponent = i_right(v, 23);
	const floats sum = f_add(f_of(v), f_of(_mm256_permutevar8x32_epi32(magic, exponent)));
	return i_sub(i_of(sum), _mm256_permutevar8x32_epi32(minus, exponent));
}

/* The values of codes, in the lowest bits of lanes. */
GP_INLINE floats e2m1_values(ints code, floats scale)
{
	const floats numbers = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
	const ints sign = i_and(i_left(code, 28), i_all(INT32_MIN));
	return f_of(i_or(i_of(_mm256_permutevar8x32_ps(f_mul(numbers, scale), code)), sign));
}

#endif
