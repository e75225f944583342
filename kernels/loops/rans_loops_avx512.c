/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved rANS with AVX-512: 64 states in four registers, tables gathered.
 * See rans_loops.h. Test: tests/unit/test_codec_rans_loops.c
 */
#include "kernels/loops/rans_loops.h"

#include "kernels/loops/avx512.h"
#include "kernels/loops/rans_loops_avx512.h"
#include "kernels/loops/rans_listed.h"

enum { LANES = 16, VECTORS = GP_RANS_LANES / LANES };

/* To a register of zeros: a gather keeps what its target had where it is masked, and so waits for who wrote it last. gcc
 * leaves the zeros out where it knows that nothing is masked. */
GP_INLINE __m512i gathered(const uint32_t *table, __m512i index)
{
	__mmask16 all = 0xffff;
	__asm__("" : "+Yk"(all));
	return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), all, index, table, 4);
}

/* Words of the marked lanes, behind each other and ending before *words. */
GP_INLINE void write_words(__m512i x, __mmask16 lanes, uint8_t **words)
{
	const unsigned count = (unsigned)_mm_popcnt_u32(lanes);
	const __m256i packed = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(lanes, x));
	*words -= 2 * count;
	_mm256_mask_storeu_epi16(*words, (__mmask16)_bzhi_u32(0xffff, count), packed);
}

/* x / freq, or 1 less, as everything is rounded towards 0: the quotient is below 2^19. */
GP_INLINE __m512i divide(__m512i x, __m512i freq)
{
	const __m512 quotient = _mm512_div_round_ps(_mm512_cvt_roundepi32_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC),
						    _mm512_cvtepi32_ps(freq), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
	return _mm512_cvttps_epi32(quotient);
}

/* Returns the entries of the symbols. */
GP_INLINE __m512i encode_vector(const uint32_t *entry, const uint8_t *symbols, __m512i *state, uint8_t **words)
{
	const __m512i e = gathered(entry, _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)symbols)));
	const __m512i freq = _mm512_and_si512(e, _mm512_set1_epi32(GP_RANS_LISTED - 1));
	const __m512i start = _mm512_srli_epi32(e, GP_RANS_START_AT);
	const __mmask16 full = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(*state, 31 - GP_RANS_BITS), freq);
	write_words(*state, full, words);
	const __m512i x = _mm512_mask_srli_epi32(*state, full, *state, 16);
	const __m512i q = divide(x, freq), rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(q, freq));
	const __mmask16 one_more = _mm512_cmpge_epu32_mask(rest, freq);
	const __m512i next = _mm512_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(q, GP_RANS_BITS), rest), start);
	const __m512i step = _mm512_sub_epi32(_mm512_set1_epi32(GP_RANS_TOTAL), freq);
	*state = _mm512_mask_add_epi32(next, one_more, next, step);
	return e;
}

GP_INLINE uint64_t listed_lanes(const __m512i *e)
{
	uint64_t lanes = 0;
#pragma GCC unroll 4
	for (int v = 0; v < VECTORS; v++)
		lanes |= (uint64_t)_mm512_test_epi32_mask(e[v], _mm512_set1_epi32(GP_RANS_LISTED)) << v * LANES;
	return lanes;
}

static bool encode(const uint32_t *entry, const uint8_t *symbols, size_t groups, struct gp_rans_sink *sink)
{
	__m512i x[VECTORS];
	uint8_t *words = sink->words;
	for (int v = 0; v < VECTORS; v++)
		x[v] = _mm512_loadu_si512(sink->x + v * LANES);
	for (size_t g = groups; g-- > 0;) {
		const uint8_t *group = symbols + g * GP_RANS_LANES;
		__m512i e[VECTORS];
		/* A page ahead: processors do not follow a stream over the end of a page by themselves. */
		_mm_prefetch((const char *)((uintptr_t)group - 4096), _MM_HINT_T0);
		__builtin_prefetch((void *)((uintptr_t)words - 4096), 1);
#pragma GCC unroll 4
		for (int v = VECTORS - 1; v >= 0; v--)
			e[v] = encode_vector(entry, group + v * LANES, &x[v], &words);
		const __m512i any = _mm512_or_si512(_mm512_or_si512(e[0], e[1]), _mm512_or_si512(e[2], e[3]));
		if (_mm512_test_epi32_mask(any, _mm512_set1_epi32(GP_RANS_LISTED)) &&
		    !gp_rans_list_symbols(group, listed_lanes(e), sink))
			return false;
	}
	for (int v = 0; v < VECTORS; v++)
		_mm512_storeu_si512(sink->x + v * LANES, x[v]);
	sink->words = words;
	return true;
}

GP_INLINE __m512i decode_vector(const uint32_t *table, __m512i x, const uint8_t **words, uint8_t *symbols)
{
	const __m512i e = gathered(table, _mm512_and_si512(x, _mm512_set1_epi32(GP_RANS_TOTAL - 1)));
	const __m512i high = _mm512_srli_epi32(x, GP_RANS_BITS);
	const __m512i less =
		_mm512_and_si512(_mm512_srli_epi32(e, GP_RANS_FREQ_AT), _mm512_set1_epi32(GP_RANS_TOTAL - 1));
	const __m512i rest = _mm512_add_epi32(high, _mm512_srli_epi32(e, GP_RANS_REST_AT));
	const __m512i next = _mm512_add_epi32(_mm512_mullo_epi32(less, high), rest);
	const __mmask16 low = _mm512_cmplt_epu32_mask(next, _mm512_set1_epi32(GP_RANS_LOW));
	const __m512i come = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)*words));
	*words += 2 * _mm_popcnt_u32(low);
	_mm_storeu_si128((__m128i *)symbols, _mm512_cvtepi32_epi8(e));
	return _mm512_mask_or_epi32(next, low, _mm512_slli_epi32(next, 16), _mm512_maskz_expand_epi32(low, come));
}

static size_t decode(const union gp_rans_lookup *lookup, uint32_t *x, const uint8_t **words, const uint8_t *end,
		     size_t groups, uint8_t *symbols)
{
	const uint8_t *p = *words;
	__m512i state[VECTORS];
	size_t g = 0;
	for (int v = 0; v < VECTORS; v++)
		state[v] = _mm512_loadu_si512(x + v * LANES);
	for (; g < groups && end - p >= GP_RANS_GROUP_BYTES; g++)
#pragma GCC unroll 4
		for (int v = 0; v < VECTORS; v++)
			state[v] = decode_vector(lookup->place, state[v], &p, symbols + g * GP_RANS_LANES + v * LANES);
	for (int v = 0; v < VECTORS; v++)
		_mm512_storeu_si512(x + v * LANES, state[v]);
	*words = p;
	return g;
}

bool gp_rans_fill_avx512(uint8_t *symbols, size_t n, uint8_t escape, const uint8_t **listed, const uint8_t *end)
{
	const __m512i wanted = _mm512_set1_epi8((char)escape);
	size_t i = 0;
	for (; i + 64 <= n; i += 64) {
		uint64_t found = _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(symbols + i), wanted);
		for (; found; found &= found - 1) {
			if (*listed == end)
				return false;
			symbols[i + (size_t)__builtin_ctzll(found)] = *(*listed)++;
		}
	}
	return gp_rans_loops_portable.fill(symbols + i, n - i, escape, listed, end);
}

void gp_rans_narrow_avx512(const uint16_t *codes, size_t n, uint8_t *symbols)
{
	size_t i = 0;
	for (; i + 32 <= n; i += 32)
		_mm256_storeu_si256((__m256i *)(symbols + i), _mm512_cvtepi16_epi8(_mm512_loadu_si512(codes + i)));
	gp_rans_loops_portable.narrow(codes + i, n - i, symbols + i);
}

void gp_rans_widen_avx512(const uint8_t *symbols, size_t n, uint16_t *codes)
{
	size_t i = 0;
	for (; i + 32 <= n; i += 32)
		_mm512_storeu_si512(codes + i,
				    _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(symbols + i))));
	gp_rans_loops_portable.widen(symbols + i, n - i, codes + i);
}

const struct gp_rans_loops gp_rans_loops_avx512 = {.encode = encode,
						   .prepare = gp_rans_prepare_places,
						   .decode = decode,
						   .decode_some = gp_rans_decode_places,
						   .fill = gp_rans_fill_avx512,
						   .narrow = gp_rans_narrow_avx512,
						   .widen = gp_rans_widen_avx512};
