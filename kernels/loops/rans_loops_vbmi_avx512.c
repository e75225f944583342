/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved rANS for processors whose AVX-512 has VBMI, VBMI2 and BITALG (Intel
 * from Ice Lake, AMD from Zen 4): no gathers. A table of 256 bytes lies in four
 * registers, and 64 bytes are looked up in it by two permutations and a choice. What
 * is looked up for a symbol has 24 bits, hence three such tables:
 *   bits 0..11   4096 - freq
 *   bits 12..23  start
 * Which symbol a place in 0..4095 belongs to: in a string of 4096 bits, those are set
 * where the range of a symbol begins; the symbol is the one of the last set bit up to
 * the place, and its number among the symbols that have a frequency is how many are
 * set up to there. For each 16 bits a table has how many are set before them.
 *
 * Why not the frequency itself: it may be 4096. And decoding needs the other number:
 *   freq * (x >> 12) + x % 4096 - start = x - (x >> 12) * less - start, less = 4096 - freq
 * See rans_loops.h. Test: tests/unit/test_codec_rans_loops.c
 */
#include "kernels/loops/rans_loops_avx512.h"

#include <string.h>

#include "kernels/loops/avx512.h"

enum { LANES = 16, VECTORS = GP_RANS_LANES / LANES, START_AT = GP_RANS_BITS };

/* --- tables ----------------------------------------------------------------------------------------------------- */

/* 64 bytes of a table of 256. `upper`: where the index is 128 or more. */
GP_INLINE __m512i look_up(const uint8_t *table, __m512i index, __mmask64 upper)
{
	const __m512i lower_half =
		_mm512_permutex2var_epi8(_mm512_loadu_si512(table), index, _mm512_loadu_si512(table + 64));
	const __m512i upper_half =
		_mm512_permutex2var_epi8(_mm512_loadu_si512(table + 128), index, _mm512_loadu_si512(table + 192));
	return _mm512_mask_blend_epi8(upper, lower_half, upper_half);
}

/* Four registers of 16 numbers become, and come from, 64 bytes in which each 128 bits have four bytes of every register:
 * that is what unpacking and packing make of them. This brings such bytes into the order of the registers, and back. */
GP_INLINE __m512i turned(__m512i bytes)
{
	return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes);
}

struct three {
	__m512i part[GP_RANS_PARTS];
};

GP_INLINE struct three look_up_parts(const struct gp_rans_parts *t, __m512i index, __mmask64 upper)
{
	return (struct three){{look_up(t->part[0], index, upper), look_up(t->part[1], index, upper),
			       look_up(t->part[2], index, upper)}};
}

/* To four registers of 16 numbers. */
GP_INLINE void join_parts(const struct three *t, __m512i *e)
{
	const __m512i none = _mm512_setzero_si512();
	const __m512i low = _mm512_unpacklo_epi8(t->part[0], t->part[1]);
	const __m512i high = _mm512_unpackhi_epi8(t->part[0], t->part[1]);
	const __m512i low_above = _mm512_unpacklo_epi8(t->part[2], none);
	const __m512i high_above = _mm512_unpackhi_epi8(t->part[2], none);
	e[0] = _mm512_unpacklo_epi16(low, low_above);
	e[1] = _mm512_unpackhi_epi16(low, low_above);
	e[2] = _mm512_unpacklo_epi16(high, high_above);
	e[3] = _mm512_unpackhi_epi16(high, high_above);
}

GP_INLINE __m512i less_of(__m512i e)
{
	return _mm512_and_si512(e, _mm512_set1_epi32(GP_RANS_TOTAL - 1));
}

GP_INLINE __m512i start_of(__m512i e)
{
	return _mm512_srli_epi32(e, START_AT);
}

GP_INLINE void put_parts(struct gp_rans_parts *t, int at, __m512i e)
{
	for (int k = 0; k < GP_RANS_PARTS; k++, e = _mm512_srli_epi32(e, 8))
		_mm_storeu_si128((__m128i *)(t->part[k] + at), _mm512_cvtepi32_epi8(e));
}

GP_INLINE void load_states(__m512i *to, const uint32_t *x)
{
	for (int v = 0; v < VECTORS; v++)
		to[v] = _mm512_loadu_si512(x + v * LANES);
}

GP_INLINE void store_states(uint32_t *x, const __m512i *from)
{
	for (int v = 0; v < VECTORS; v++)
		_mm512_storeu_si512(x + v * LANES, from[v]);
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* Which symbols are listed: all those whose entry is the escape's. */
struct escape {
	__m512i middle, upper; /* bytes 1 and 2 of the entry: no other symbol has that start */
	uint64_t lanes;        /* all, or none where nothing is listed */
};

static struct escape make_tables(const uint32_t *entry, struct gp_rans_parts *t)
{
	__m512i highest = _mm512_setzero_si512();
	unsigned any = 0;
	for (int s = 0; s < 256; s += LANES) {
		const __m512i from = _mm512_loadu_si512(entry + s);
		const __m512i freq = _mm512_and_si512(from, _mm512_set1_epi32(GP_RANS_LISTED - 1));
		const __m512i start = _mm512_srli_epi32(from, GP_RANS_START_AT);
		const __m512i less = _mm512_sub_epi32(_mm512_set1_epi32(GP_RANS_TOTAL), freq);
		const __m512i e = _mm512_or_si512(less, _mm512_slli_epi32(start, START_AT));
		const __mmask16 listed = _mm512_test_epi32_mask(from, _mm512_set1_epi32(GP_RANS_LISTED));
		highest = _mm512_mask_max_epu32(highest, listed, highest, e);
		any |= listed;
		put_parts(t, s, e);
	}
	const unsigned e = _mm512_reduce_max_epu32(highest);
	return (struct escape){.middle = _mm512_set1_epi8((char)(e >> 8)),
			       .upper = _mm512_set1_epi8((char)(e >> 16)),
			       .lanes = any ? UINT64_MAX : 0};
}

/* x / freq, or 1 less, as everything is rounded towards 0: the quotient is below 2^19. */
GP_INLINE __m512i divide(__m512i x, __m512i freq)
{
	const __m512 quotient = _mm512_div_round_ps(_mm512_cvt_roundepi32_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC),
						    _mm512_cvtepi32_ps(freq), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
	return _mm512_cvttps_epi32(quotient);
}

/* The state after a symbol, from one that has room for it. */
GP_INLINE __m512i next_state(__m512i x, __m512i freq, __m512i less, __m512i start)
{
	const __m512i q = divide(x, freq), rest = _mm512_sub_epi32(x, _mm512_mullo_epi32(q, freq));
	const __mmask16 one_more = _mm512_cmpge_epu32_mask(rest, freq);
	const __m512i next = _mm512_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(q, GP_RANS_BITS), rest), start);
	return _mm512_mask_add_epi32(next, one_more, next, less);
}

/* The lower words of the marked states of two registers, behind each other and ending before *words. */
GP_INLINE void write_words(__m512i first, __m512i second, __mmask32 lanes, uint8_t **words)
{
	const __m512i lower_words = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30,
						     28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
	const __m512i all = _mm512_permutex2var_epi16(first, lower_words, second);
	const unsigned count = (unsigned)_mm_popcnt_u32(lanes);
	*words -= 2 * count;
	/* Compressed in a register: to memory it is microcoded on some processors. */
	_mm512_mask_storeu_epi16(*words, _bzhi_u32(UINT32_MAX, count), _mm512_maskz_compress_epi16(lanes, all));
}

/* Symbols for two registers of states. */
GP_INLINE void encode_two(const __m512i *e, __m512i *x, uint8_t **words)
{
	__m512i less[2], freq[2];
	__mmask16 full[2];
#pragma GCC unroll 2
	for (int v = 0; v < 2; v++) {
		less[v] = less_of(e[v]);
		freq[v] = _mm512_sub_epi32(_mm512_set1_epi32(GP_RANS_TOTAL), less[v]);
		full[v] = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(x[v], 31 - GP_RANS_BITS), freq[v]);
	}
	write_words(x[0], x[1], _mm512_kunpackw(full[1], full[0]), words);
#pragma GCC unroll 2
	for (int v = 0; v < 2; v++) {
		const __m512i room = _mm512_mask_srli_epi32(x[v], full[v], x[v], 16);
		x[v] = next_state(room, freq[v], less[v], start_of(e[v]));
	}
}

/* The marked symbols in front of what is listed. False: there is no room for all. */
GP_INLINE bool list_symbols(__m512i symbols, uint64_t lanes, struct gp_rans_sink *sink)
{
	const unsigned count = (unsigned)_mm_popcnt_u64(lanes);
	if ((size_t)(sink->listed - sink->listed_begin) < count)
		return false;
	sink->listed -= count;
	_mm512_mask_storeu_epi8(sink->listed, _bzhi_u64(UINT64_MAX, count), _mm512_maskz_compress_epi8(lanes, symbols));
	return true;
}

/* The symbols of a group, of which the bytes of `parts` are the escape's. They are in the order of the tables' bytes. */
GP_INLINE uint64_t listed_lanes(const struct three *t, const struct escape *escape)
{
	const __mmask64 alike = _mm512_cmpeq_epi8_mask(t->part[1], escape->middle);
	return _mm512_mask_cmpeq_epi8_mask(alike & escape->lanes, t->part[2], escape->upper);
}

/* False: too many are to be listed. */
GP_INLINE bool encode_group(const struct gp_rans_parts *t, const struct escape *escape, const uint8_t *symbols,
			    __m512i *x, uint8_t **words, struct gp_rans_sink *sink)
{
	const __m512i in_order = _mm512_loadu_si512(symbols), index = turned(in_order);
	const struct three parts = look_up_parts(t, index, _mm512_movepi8_mask(index));
	const uint64_t listed = listed_lanes(&parts, escape);
	__m512i e[VECTORS];
	join_parts(&parts, e);
	encode_two(e + 2, x + 2, words);
	encode_two(e, x, words);
	if (!listed)
		return true;
	return list_symbols(in_order, _mm512_movepi8_mask(turned(_mm512_movm_epi8(listed))), sink);
}

static bool encode(const uint32_t *entry, const uint8_t *symbols, size_t groups, struct gp_rans_sink *sink)
{
	struct gp_rans_parts t;
	const struct escape escape = make_tables(entry, &t);
	__m512i x[VECTORS];
	uint8_t *words = sink->words;
	load_states(x, sink->x);
	for (size_t g = groups; g-- > 0;) {
		const uint8_t *group = symbols + g * GP_RANS_LANES;
		/* A page ahead: processors do not follow a stream over the end of a page by themselves. */
		_mm_prefetch((const char *)((uintptr_t)group - 4096), _MM_HINT_T0);
		__builtin_prefetch((void *)((uintptr_t)words - 4096), 1);
		if (!encode_group(&t, &escape, group, x, &words, sink))
			return false;
	}
	store_states(sink->x, x);
	sink->words = words;
	return true;
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

/* Symbols that have a frequency are numbered in their order. `before` is one less, modulo 256: so the number of a place's
 * symbol is `before` of its 16 bits and how many of these are set up to the place. */
static void prepare(const uint16_t *freq, union gp_rans_lookup *lookup)
{
	struct gp_rans_ranges *r = &lookup->ranges;
	uint16_t begins[GP_RANS_TOTAL / 16] = {0};
	uint32_t e[256] = {0};
	unsigned start = 0;
	int n = 0;
	for (int s = 0; s < 256; s++) {
		if (freq[s] == 0)
			continue;
		begins[start / 16] |= (uint16_t)(1u << start % 16);
		r->symbol[n] = (uint8_t)s;
		e[n++] = (uint32_t)(GP_RANS_TOTAL - freq[s]) | start << START_AT;
		start += freq[s];
	}
	memset(r->symbol + n, 0, (size_t)(256 - n));
	for (int s = 0; s < 256; s += LANES)
		put_parts(&r->of, s, _mm512_loadu_si512(e + s));
	unsigned before = 255;
	for (int b = 0; b < GP_RANS_TOTAL / 16; b++) {
		r->before[b] = (uint8_t)before;
		r->begins[0][b] = (uint8_t)begins[b];
		r->begins[1][b] = (uint8_t)(begins[b] >> 8);
		before += (unsigned)_mm_popcnt_u32(begins[b]);
	}
}

/* How many of 16 bits are set, from the lowest to the one that the place names. */
GP_INLINE __m512i begun(__m512i bits, __m512i places)
{
	const __m512i above = _mm512_andnot_si512(places, _mm512_set1_epi16(15));
	return _mm512_popcnt_epi16(_mm512_sllv_epi16(bits, above));
}

/* The numbers of the symbols of 64 states. */
GP_INLINE __m512i find_numbers(const struct gp_rans_ranges *r, const __m512i *x)
{
	const __m512i all = _mm512_set1_epi32(GP_RANS_TOTAL - 1);
	const __m512i low = _mm512_packus_epi32(_mm512_and_si512(x[0], all), _mm512_and_si512(x[1], all));
	const __m512i high = _mm512_packus_epi32(_mm512_and_si512(x[2], all), _mm512_and_si512(x[3], all));
	const __m512i index = _mm512_packus_epi16(_mm512_srli_epi16(low, 4), _mm512_srli_epi16(high, 4));
	const __mmask64 upper = _mm512_movepi8_mask(index);
	const __m512i a = look_up(r->begins[0], index, upper), b = look_up(r->begins[1], index, upper);
	const __m512i here =
		_mm512_packus_epi16(begun(_mm512_unpacklo_epi8(a, b), low), begun(_mm512_unpackhi_epi8(a, b), high));
	return _mm512_add_epi8(look_up(r->before, index, upper), here);
}

/* The states after symbols, before those below GP_RANS_LOW have their words; *low: which those are. */
GP_INLINE __m512i step_back(__m512i x, __m512i e, __mmask16 *low)
{
	const __m512i product = _mm512_mullo_epi32(_mm512_srli_epi32(x, GP_RANS_BITS), less_of(e));
	const __m512i next = _mm512_sub_epi32(_mm512_sub_epi32(x, start_of(e)), product);
	*low = _mm512_cmplt_epu32_mask(next, _mm512_set1_epi32(GP_RANS_LOW));
	return next;
}

/* Symbols for two registers of states. */
GP_INLINE void decode_two(const __m512i *e, __m512i *x, const uint8_t **words)
{
	/* Lower words from the words that come, upper words from what the lower ones were. */
	const __m512i first =
		_mm512_setr_epi32(0x200000, 0x220001, 0x240002, 0x260003, 0x280004, 0x2a0005, 0x2c0006, 0x2e0007,
				  0x300008, 0x320009, 0x34000a, 0x36000b, 0x38000c, 0x3a000d, 0x3c000e, 0x3e000f);
	const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi32(16));
	__mmask16 low[2];
	const __m512i a = step_back(x[0], e[0], &low[0]), b = step_back(x[1], e[1], &low[1]);
	const __mmask32 lanes = _mm512_kunpackw(low[1], low[0]);
	const __m512i come = _mm512_maskz_expand_epi16(lanes, _mm512_loadu_si512(*words));
	*words += 2 * _mm_popcnt_u32(lanes);
	x[0] = _mm512_mask_mov_epi32(a, low[0], _mm512_permutex2var_epi16(come, first, a));
	x[1] = _mm512_mask_mov_epi32(b, low[1], _mm512_permutex2var_epi16(come, second, b));
}

GP_INLINE void decode_group(const struct gp_rans_ranges *r, __m512i *x, const uint8_t **words, uint8_t *symbols)
{
	const __m512i number = find_numbers(r, x);
	const __mmask64 upper = _mm512_movepi8_mask(number);
	const struct three parts = look_up_parts(&r->of, number, upper);
	__m512i e[VECTORS];
	join_parts(&parts, e);
	_mm512_storeu_si512(symbols, turned(look_up(r->symbol, number, upper)));
	decode_two(e, x, words);
	decode_two(e + 2, x + 2, words);
}

static size_t decode(const union gp_rans_lookup *lookup, uint32_t *x, const uint8_t **words, const uint8_t *end,
		     size_t groups, uint8_t *symbols)
{
	const uint8_t *p = *words;
	__m512i state[VECTORS];
	size_t g = 0;
	load_states(state, x);
	for (; g < groups && end - p >= GP_RANS_GROUP_BYTES; g++)
		decode_group(&lookup->ranges, state, &p, symbols + g * GP_RANS_LANES);
	store_states(x, state);
	*words = p;
	return g;
}

static size_t decode_both(const struct gp_rans_source *first, const struct gp_rans_source *second, size_t groups,
			  uint8_t *first_symbols, uint8_t *second_symbols)
{
	const uint8_t *p = *first->words, *q = *second->words;
	__m512i x[VECTORS], y[VECTORS];
	size_t g = 0;
	load_states(x, first->x);
	load_states(y, second->x);
	for (; g < groups && first->end - p >= GP_RANS_GROUP_BYTES && second->end - q >= GP_RANS_GROUP_BYTES; g++) {
		decode_group(&first->lookup->ranges, x, &p, first_symbols + g * GP_RANS_LANES);
		decode_group(&second->lookup->ranges, y, &q, second_symbols + g * GP_RANS_LANES);
	}
	store_states(first->x, x);
	store_states(second->x, y);
	*first->words = p;
	*second->words = q;
	return g;
}

/* Reads 64 bytes of the list at a time. */
static bool fill(uint8_t *symbols, size_t n, uint8_t escape, const uint8_t **listed, const uint8_t *end)
{
	const __m512i wanted = _mm512_set1_epi8((char)escape);
	const uint8_t *next = *listed;
	size_t i = 0;
	for (; i + 64 <= n && end - next >= 64; i += 64) {
		const __m512i v = _mm512_loadu_si512(symbols + i);
		const __mmask64 found = _mm512_cmpeq_epi8_mask(v, wanted);
		_mm512_storeu_si512(symbols + i, _mm512_mask_expand_epi8(v, found, _mm512_loadu_si512(next)));
		next += _mm_popcnt_u64(found);
	}
	*listed = next;
	return gp_rans_fill_avx512(symbols + i, n - i, escape, listed, end);
}

static unsigned join_part(const struct gp_rans_parts *t, unsigned at)
{
	return t->part[0][at] | (unsigned)t->part[1][at] << 8 | (unsigned)t->part[2][at] << 16;
}

static void decode_some(const union gp_rans_lookup *lookup, uint32_t *x, const uint8_t **words, size_t n,
			uint8_t *symbols)
{
	const struct gp_rans_ranges *r = &lookup->ranges;
	for (size_t i = 0; i < n; i++) {
		const unsigned at = x[i] % GP_RANS_TOTAL / 16;
		const unsigned bits = r->begins[0][at] | (unsigned)r->begins[1][at] << 8;
		const unsigned number = (uint8_t)(r->before[at] + _mm_popcnt_u32(bits & ((2u << x[i] % 16) - 1)));
		const unsigned e = join_part(&r->of, number);
		x[i] -= (x[i] >> GP_RANS_BITS) * (e % GP_RANS_TOTAL) + (e >> START_AT);
		symbols[i] = r->symbol[number];
		if (x[i] < GP_RANS_LOW) {
			x[i] = x[i] << 16 | (uint32_t)(*words)[1] << 8 | (*words)[0];
			*words += 2;
		}
	}
}

const struct gp_rans_loops gp_rans_loops_vbmi_avx512 = {.encode = encode,
							.prepare = prepare,
							.decode = decode,
							.decode_both = decode_both,
							.decode_some = decode_some,
							.fill = fill,
							.narrow = gp_rans_narrow_avx512,
							.widen = gp_rans_widen_avx512};
