/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved rANS with AVX2 and BMI2: 64 states in eight registers, tables
 * gathered. See rans_loops.h. Test: tests/unit/test_codec_rans_loops.c
 */
#include "kernels/loops/rans_loops.h"

#include "kernels/loops/avx2.h"
#include "kernels/loops/rans_listed.h"

enum { LANES = 8, VECTORS = GP_RANS_LANES / LANES };

GP_INLINE unsigned lanes_of(__m256i compared)
{
	return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(compared));
}

#if defined(__x86_64__)
/* To a register of zeros: a gather keeps what its target had where it is masked, and so waits for who wrote it last. gcc
 * leaves the zeros out where it knows that nothing is masked. */
GP_INLINE __m256i gathered(const uint32_t *table, __m256i index)
{
	__m256i all = _mm256_set1_epi32(-1);
	__asm__("" : "+x"(all));
	return _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), (const int *)table, index, all, 4);
}
#else
GP_INLINE __m256i gathered(const uint32_t *table, __m256i index)
{
	return _mm256_i32gather_epi32((const int *)table, index, 4);
}
#endif

/* A byte of ones per lane. */
GP_INLINE uint64_t spread(unsigned lanes)
{
	return _pdep_u64(lanes, 0x0101010101010101u) * 0xff;
}

GP_INLINE __m256i order_of(uint64_t bytes)
{
	return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
}

/* The low halves of all lanes, in order. */
GP_INLINE __m128i low_halves(__m256i v)
{
	const __m256i halves = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0x08));
}

/* Words of the marked lanes, behind each other and ending before *words. Writes 16 bytes, of which those in front are
 * overwritten by what follows: each symbol to come has room for 2. */
GP_INLINE void write_words(__m256i x, unsigned lanes, uint8_t **words)
{
	const unsigned count = (unsigned)_mm_popcnt_u32(lanes), half = 32 - 4 * count;
	const uint64_t order = _pext_u64(0x0706050403020100u, spread(lanes)) << half << half;
	_mm_storeu_si128((__m128i *)(*words - 16), low_halves(_mm256_permutevar8x32_epi32(x, order_of(order))));
	*words -= 2 * count;
}

/* x / freq, or 1 less: the quotient is below 2^19, and is off by less than 0.08 before 0.125 is taken away. */
GP_INLINE __m256i divide(__m256i x, __m256i freq)
{
	const __m256 quotient = _mm256_div_ps(_mm256_cvtepi32_ps(x), _mm256_cvtepi32_ps(freq));
	return _mm256_cvttps_epi32(_mm256_sub_ps(quotient, _mm256_set1_ps(0.125f)));
}

/* Returns the lanes whose symbols are to be listed. */
GP_INLINE uint64_t encode_vector(const uint32_t *entry, const uint8_t *symbols, __m256i *state, uint8_t **words)
{
	const __m256i e = gathered(entry, _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)symbols)));
	const __m256i freq = _mm256_and_si256(e, _mm256_set1_epi32(GP_RANS_LISTED - 1));
	const __m256i start = _mm256_srli_epi32(e, GP_RANS_START_AT);
	const __m256i kept = _mm256_cmpgt_epi32(freq, _mm256_srli_epi32(*state, 31 - GP_RANS_BITS));
	write_words(*state, ~lanes_of(kept) & 0xff, words);
	const __m256i x = _mm256_blendv_epi8(_mm256_srli_epi32(*state, 16), *state, kept);
	const __m256i q = divide(x, freq), rest = _mm256_sub_epi32(x, _mm256_mullo_epi32(q, freq));
	const __m256i enough = _mm256_cmpgt_epi32(freq, rest);
	const __m256i next = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(q, GP_RANS_BITS), rest), start);
	const __m256i step = _mm256_sub_epi32(_mm256_set1_epi32(GP_RANS_TOTAL), freq);
	*state = _mm256_add_epi32(next, _mm256_andnot_si256(enough, step));
	return lanes_of(_mm256_slli_epi32(e, 31 - GP_RANS_LISTED_AT));
}

static bool encode(const uint32_t *entry, const uint8_t *symbols, size_t groups, struct gp_rans_sink *sink)
{
	__m256i x[VECTORS];
	uint8_t *words = sink->words;
	for (int v = 0; v < VECTORS; v++)
		x[v] = _mm256_loadu_si256((const __m256i *)(sink->x + v * LANES));
	for (size_t g = groups; g-- > 0;) {
		const uint8_t *group = symbols + g * GP_RANS_LANES;
		uint64_t listed = 0;
#pragma GCC unroll 8
		for (int v = VECTORS - 1; v >= 0; v--)
			listed |= encode_vector(entry, group + v * LANES, &x[v], &words) << v * LANES;
		if (listed && !gp_rans_list_symbols(group, listed, sink))
			return false;
	}
	for (int v = 0; v < VECTORS; v++)
		_mm256_storeu_si256((__m256i *)(sink->x + v * LANES), x[v]);
	sink->words = words;
	return true;
}

/* The next words, in the marked lanes; zero in the others. */
GP_INLINE __m256i read_words(const uint8_t *words, unsigned lanes)
{
	const uint64_t bytes = spread(lanes);
	const __m256i come = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)words));
	const __m256i chosen = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)bytes));
	const __m256i order = order_of(_pdep_u64(0x0706050403020100u, bytes));
	return _mm256_and_si256(_mm256_permutevar8x32_epi32(come, order), chosen);
}

GP_INLINE __m256i decode_vector(const uint32_t *table, __m256i x, const uint8_t **words, uint8_t *symbols)
{
	const __m256i places = _mm256_set1_epi32(GP_RANS_TOTAL - 1);
	const __m256i e = gathered(table, _mm256_and_si256(x, places));
	const __m256i high = _mm256_srli_epi32(x, GP_RANS_BITS);
	const __m256i less = _mm256_and_si256(_mm256_srli_epi32(e, GP_RANS_FREQ_AT), places);
	const __m256i rest = _mm256_add_epi32(high, _mm256_srli_epi32(e, GP_RANS_REST_AT));
	const __m256i next = _mm256_add_epi32(_mm256_mullo_epi32(less, high), rest);
	const __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)GP_RANS_LOW), next);
	const unsigned lanes = lanes_of(low);
	const __m256i filled = _mm256_or_si256(_mm256_slli_epi32(next, 16), read_words(*words, lanes));
	*words += 2 * _mm_popcnt_u32(lanes);
	const __m128i codes = low_halves(_mm256_and_si256(e, _mm256_set1_epi32(255)));
	_mm_storel_epi64((__m128i *)symbols, _mm_packus_epi16(codes, codes));
	return _mm256_blendv_epi8(next, filled, low);
}

static size_t decode(const union gp_rans_lookup *lookup, uint32_t *x, const uint8_t **words, const uint8_t *end,
		     size_t groups, uint8_t *symbols)
{
	const uint8_t *p = *words;
	__m256i state[VECTORS];
	size_t g = 0;
	for (int v = 0; v < VECTORS; v++)
		state[v] = _mm256_loadu_si256((const __m256i *)(x + v * LANES));
	for (; g < groups && end - p >= GP_RANS_GROUP_BYTES; g++)
#pragma GCC unroll 8
		for (int v = 0; v < VECTORS; v++)
			state[v] = decode_vector(lookup->place, state[v], &p, symbols + g * GP_RANS_LANES + v * LANES);
	for (int v = 0; v < VECTORS; v++)
		_mm256_storeu_si256((__m256i *)(x + v * LANES), state[v]);
	*words = p;
	return g;
}

static bool fill(uint8_t *symbols, size_t n, uint8_t escape, const uint8_t **listed, const uint8_t *end)
{
	const __m256i wanted = _mm256_set1_epi8((char)escape);
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		const __m256i v = _mm256_loadu_si256((const __m256i *)(symbols + i));
		unsigned found = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, wanted));
		for (; found; found &= found - 1) {
			if (*listed == end)
				return false;
			symbols[i + (size_t)__builtin_ctz(found)] = *(*listed)++;
		}
	}
	return gp_rans_loops_portable.fill(symbols + i, n - i, escape, listed, end);
}

static void narrow(const uint16_t *codes, size_t n, uint8_t *symbols)
{
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		const __m256i a = _mm256_loadu_si256((const __m256i *)(codes + i));
		const __m256i b = _mm256_loadu_si256((const __m256i *)(codes + i + 16));
		_mm256_storeu_si256((__m256i *)(symbols + i),
				    _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8));
	}
	gp_rans_loops_portable.narrow(codes + i, n - i, symbols + i);
}

static void widen(const uint8_t *symbols, size_t n, uint16_t *codes)
{
	size_t i = 0;
	for (; i + 16 <= n; i += 16)
		_mm256_storeu_si256((__m256i *)(codes + i),
				    _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(symbols + i))));
	gp_rans_loops_portable.widen(symbols + i, n - i, codes + i);
}

const struct gp_rans_loops gp_rans_loops_avx2 = {.encode = encode,
						 .prepare = gp_rans_prepare_places,
						 .decode = decode,
						 .decode_some = gp_rans_decode_places,
						 .fill = fill,
						 .narrow = narrow,
						 .widen = widen};
