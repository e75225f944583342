/* SPDX-License-Identifier: Apache-2.0
 *
 * A register of 16 elements for packed_body.h, with AVX-512. What each function does is said in packed_vec_avx2.h.
 *
 * Only for packed_loops_avx512.c.
 *
 * Threads: any; the functions touch only memory that they are given. Test: tests/unit/test_packed_loops.c
 */
#ifndef GP_PACKED_VEC_AVX512_H
#define GP_PACKED_VEC_AVX512_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/loops/avx512.h"

enum { LANES = 16 };
typedef __m512 floats;
typedef __m512i ints;

/* --- floats ----------------------------------------------------------------------------------------------------- */

GP_INLINE floats f_all(float v)
{
	return _mm512_set1_ps(v);
}

GP_INLINE floats f_load(const float *x)
{
	return _mm512_loadu_ps(x);
}

GP_INLINE floats f_some(const float *x, size_t n)
{
	return _mm512_maskz_loadu_ps(first_lanes(n), x);
}

GP_INLINE void f_store(float *x, floats v)
{
	_mm512_storeu_ps(x, v);
}

GP_INLINE void f_store_some(float *x, size_t n, floats v)
{
	_mm512_mask_storeu_ps(x, first_lanes(n), v);
}

GP_INLINE floats f_of(ints v)
{
	return _mm512_castsi512_ps(v);
}

GP_INLINE floats f_from(ints v)
{
	return _mm512_cvtepi32_ps(v);
}

GP_INLINE floats f_add(floats a, floats b)
{
	return _mm512_add_ps(a, b);
}

GP_INLINE floats f_sub(floats a, floats b)
{
	return _mm512_sub_ps(a, b);
}

GP_INLINE floats f_mul(floats a, floats b)
{
	return _mm512_mul_ps(a, b);
}

GP_INLINE floats f_div(floats a, floats b)
{
	return _mm512_div_ps(a, b);
}

GP_INLINE floats f_min(floats a, floats b)
{
	return _mm512_min_ps(a, b);
}

GP_INLINE floats f_max(floats a, floats b)
{
	return _mm512_max_ps(a, b);
}

GP_INLINE floats f_where_less(floats a, floats b, floats yes, floats no)
{
	return _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), yes);
}

/* --- integers --------------------------------------------------------------------------------------------------- */

GP_INLINE ints i_all(int32_t v)
{
	return _mm512_set1_epi32(v);
}

GP_INLINE ints i_load(const void *from)
{
	return _mm512_loadu_si512(from);
}

GP_INLINE ints i_of(floats v)
{
	return _mm512_castps_si512(v);
}

GP_INLINE ints i_round(floats v)
{
	return _mm512_cvtps_epi32(v);
}

GP_INLINE ints i_add(ints a, ints b)
{
	return _mm512_add_epi32(a, b);
}

GP_INLINE ints i_sub(ints a, ints b)
{
	return _mm512_sub_epi32(a, b);
}

GP_INLINE ints i_and(ints a, ints b)
{
	return _mm512_and_si512(a, b);
}

GP_INLINE ints i_or(ints a, ints b)
{
	return _mm512_or_si512(a, b);
}

GP_INLINE ints i_xor(ints a, ints b)
{
	return _mm512_xor_si512(a, b);
}

GP_INLINE ints i_min(ints a, ints b)
{
	return _mm512_min_epi32(a, b);
}

GP_INLINE ints i_max(ints a, ints b)
{
	return _mm512_max_epi32(a, b);
}

GP_INLINE ints i_min_unsigned(ints a, ints b)
{
	return _mm512_min_epu32(a, b);
}

GP_INLINE ints i_max_unsigned(ints a, ints b)
{
	return _mm512_max_epu32(a, b);
}

GP_INLINE ints i_left(ints v, int bits)
{
	return _mm512_slli_epi32(v, (unsigned)bits);
}

GP_INLINE ints i_right(ints v, int bits)
{
	return _mm512_srli_epi32(v, (unsigned)bits);
}

GP_INLINE ints i_right_each(ints v, ints bits)
{
	return _mm512_srlv_epi32(v, bits);
}

GP_INLINE floats i_where_less(ints a, ints b, floats yes, floats no)
{
	return _mm512_mask_mov_ps(no, _mm512_cmplt_epi32_mask(a, b), yes);
}

GP_INLINE ints masked_or(ints v, ints mask, ints other)
{
	return _mm512_ternarylogic_epi32(v, mask, other, 0xea);
}

GP_INLINE ints ones_from(ints v, size_t n)
{
	return _mm512_mask_mov_epi32(_mm512_set1_epi32(-1), first_lanes(n), v);
}

GP_INLINE bool any_equal(ints v, int32_t to)
{
	return _mm512_cmpeq_epi32_mask(v, _mm512_set1_epi32(to)) != 0;
}

GP_INLINE uint32_t largest_lane(ints v)
{
	return (uint32_t)_mm512_reduce_max_epi32(v);
}

/* --- bytes and words -------------------------------------------------------------------------------------------- */

GP_INLINE ints to_words(ints a, ints b)
{
	return _mm512_packs_epi32(a, b);
}

GP_INLINE ints to_bytes(ints a, ints b)
{
	return _mm512_packs_epi16(a, b);
}

GP_INLINE ints to_bytes_unsigned(ints a, ints b)
{
	return _mm512_packus_epi16(a, b);
}

GP_INLINE ints ordered(ints bytes)
{
	return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes);
}

GP_INLINE ints w_right(ints v, int bits)
{
	return _mm512_srli_epi16(v, (unsigned)bits);
}

GP_INLINE ints b_all(int v)
{
	return _mm512_set1_epi8((char)v);
}

GP_INLINE ints b_add(ints a, ints b)
{
	return _mm512_add_epi8(a, b);
}

GP_INLINE ints b_sub(ints a, ints b)
{
	return _mm512_sub_epi8(a, b);
}

GP_INLINE ints b_min(ints a, ints b)
{
	return _mm512_min_epi8(a, b);
}

GP_INLINE ints b_max(ints a, ints b)
{
	return _mm512_max_epi8(a, b);
}

GP_INLINE ints b_min_unsigned(ints a, ints b)
{
	return _mm512_min_epu8(a, b);
}

GP_INLINE ints pick_bytes(__m128i from, ints which)
{
	return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(from), which);
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

GP_INLINE void put_bytes(ints v, size_t n, uint8_t *out)
{
	_mm_mask_storeu_epi8(out, first_lanes(n), _mm512_cvtepi32_epi8(v));
}

GP_INLINE ints get_bytes(const uint8_t *in, size_t n)
{
	return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), in));
}

GP_INLINE __m128i some_bytes(const uint8_t *in, size_t n)
{
	return _mm_maskz_loadu_epi8(first_lanes(n), in);
}

GP_INLINE floats put_halves(floats v, size_t n, uint8_t *out)
{
	const __m256i above = _mm512_cvtps_ph(v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
	const __m256i half = _mm256_min_epu16(above, _mm256_set1_epi16(0x7bff));
	_mm256_mask_storeu_epi16(out, first_lanes(n), half);
	return _mm512_cvtph_ps(half);
}

GP_INLINE floats get_halves(const uint8_t *in, size_t n)
{
	return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), in));
}

GP_INLINE void spread(floats v, size_t blocks, size_t each, float *out)
{
	const ints lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	float value[LANES];
	if (each < LANES && (each & (each - 1)) == 0) {
		const __m128i shift = _mm_cvtsi32_si128(__builtin_ctzll(each));
		for (size_t i = 0; i < blocks * each; i += LANES) {
			const ints at = _mm512_srl_epi32(i_add(lanes, i_all((int)i)), shift);
			f_store(out + i, _mm512_permutexvar_ps(at, v));
		}
		return;
	}
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

/* Two registers to one: halves, then quarters, then the pairs of quarters, then neighbours. */
GP_INLINE ints fold_halves(enum fold how, ints a, ints b)
{
	return folded(how, _mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
}

GP_INLINE ints fold_quarters(enum fold how, ints a, ints b)
{
	return folded(how, _mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

GP_INLINE ints fold_pairs(enum fold how, ints a, ints b)
{
	return folded(how, _mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

GP_INLINE ints fold_neighbours(enum fold how, ints a, ints b)
{
	return folded(how, i_of(_mm512_shuffle_ps(f_of(a), f_of(b), 0x88)),
		      i_of(_mm512_shuffle_ps(f_of(a), f_of(b), 0xdd)));
}

GP_INLINE ints fold_all(enum fold how, const ints *v)
{
	ints quarter[4];
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		quarter[i] =
			fold_quarters(how, fold_halves(how, v[i], v[4 + i]), fold_halves(how, v[8 + i], v[12 + i]));
	return fold_neighbours(how, fold_pairs(how, quarter[0], quarter[1]), fold_pairs(how, quarter[2], quarter[3]));
}

/* --- packing ---------------------------------------------------------------------------------------------------- */

/* Bits of `low` where `mask` has ones, else those of `high`. */
GP_INLINE ints joined(ints mask, ints low, ints high)
{
	return _mm512_ternarylogic_epi64(mask, low, high, 0xca);
}

/* Behind each other: the first `bits` bytes of each half of 16 bytes. */
static const uint8_t close_gaps[9][16] = {
	[3] = {0, 1, 2, 8, 9, 10, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
	[5] = {0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 128, 128, 128, 128, 128, 128},
	[6] = {0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 128, 128, 128, 128},
	[7] = {0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 128, 128},
};

/* 64 codes, a byte each, to 8 * bits bytes. */
GP_INLINE void put_chunk(ints codes, int bits, uint8_t *out)
{
	if (bits == 8) {
		_mm512_storeu_si512(out, codes);
		return;
	}
	const ints twos = joined(_mm512_set1_epi16((short)((1 << bits) - 1)), codes,
				 _mm512_srli_epi16(codes, (unsigned)(8 - bits)));
	if (bits == 4) {
		_mm256_storeu_si256((__m256i *)out, _mm512_cvtepi16_epi8(twos));
		return;
	}
	const ints fours = joined(_mm512_set1_epi32((1 << 2 * bits) - 1), twos,
				  _mm512_srli_epi32(twos, (unsigned)(16 - 2 * bits)));
	if (bits == 2) {
		_mm_storeu_si128((__m128i *)out, _mm512_cvtepi32_epi8(fours));
		return;
	}
	const ints eights = joined(_mm512_set1_epi64((1 << 4 * bits) - 1), fours,
				   _mm512_srli_epi64(fours, (unsigned)(32 - 4 * bits)));
	const ints order = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)close_gaps[bits]));
	const ints closed = _mm512_shuffle_epi8(eights, order);
	_mm_storeu_si128((__m128i *)out, _mm512_castsi512_si128(closed));
	_mm_storeu_si128((__m128i *)(out + 2 * bits), _mm512_extracti32x4_epi32(closed, 1));
	/* What a store writes too many has to be within the chunk. */
	const __mmask16 own = (__mmask16)((1 << 2 * bits) - 1);
	_mm_mask_storeu_epi8(out + 4 * bits, bits < 4 ? own : 0xffff, _mm512_extracti32x4_epi32(closed, 2));
	_mm_mask_storeu_epi8(out + 6 * bits, own, _mm512_extracti32x4_epi32(closed, 3));
}

/* The first n codes of 64. */
GP_INLINE void put_some(ints codes, size_t n, int bits, uint8_t *out)
{
	uint8_t packed[4 * LANES];
	put_chunk(_mm512_maskz_mov_epi8(~UINT64_C(0) >> (4 * LANES - n), codes), bits, packed);
	memcpy(out, packed, (n * (size_t)bits + 7) / 8);
}

GP_INLINE ptrdiff_t chunk_room(int bits)
{
	return 8 * bits;
}

/* --- E2M1 ------------------------------------------------------------------------------------------------------- */

GP_INLINE ints narrowed_to_e2m1(floats x)
{
	const int m = 0x4a800000, step = 1 << 23; /* 2^22, and the next power */
	const ints magic =
		_mm512_setr_epi32(m + step, m + 2 * step, m + 2 * step, 0, 0, 0, 0, 0, 0, 0, 0, 0, m, m, m, m);
	const ints minus = _mm512_setr_epi32(m + step - 2, m + 2 * step - 4, m + 2 * step - 4, 0, 0, 0, 0, 0, 0, 0, 0,
					     0, m, m, m, m);
	const floats v = _mm512_range_ps(x, _mm512_set1_ps(0x1p-3f), 0x0b);
	const ints exponent = _mm512_srli_epi32(_mm512_castps_si512(v), 23);
	const floats sum = _mm512_add_ps(v, _mm512_castsi512_ps(_mm512_permutexvar_epi32(exponent, magic)));
	return _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_permutexvar_epi32(exponent, minus));
}

GP_INLINE floats e2m1_values(ints code, floats scale)
{
	const floats numbers = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
	return f_mul(_mm512_permutexvar_ps(code, numbers), scale);
}

#endif
