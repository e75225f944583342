/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks with a scale, coded and packed in registers, with AVX-512. What has no
 * loop here (clip=mse, stochastic rounding, blocks that are no multiple of 16)
 * is coded and packed one after the other. See packed_loops.h.
 * Test: tests/unit/test_packed_loops.c
 *
 * Encoding goes by parts of about 1024 elements: the reaches of up to 16 blocks,
 * then their scales side by side, and when all blocks of a part have theirs, codes, 64 at a
 * time. A part's scales are made before the codes of the part in front of it, so that nothing
 * waits for divisions.
 */
#include "kernels/loops/packed_loops.h"

#include <immintrin.h>
#include <string.h>

#include "kernels/loops/codec_loops.h"
#include "kernels/loops/mx_format.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, BLOCKS = 16, CHUNK = 64 }; /* elements of a register; blocks and elements that are coded at a time */
enum { PART = 1024 };                         /* no part has more elements */
enum { VECTORS = PART / LANES + LANES };      /* registers of a part, and room to write too many */

static const struct gp_packed_parts parts = {&gp_block_loops_avx512, &gp_codec_loops_avx512};

/* Lanes [0, n) of 16. */
INLINE __mmask16 first_lanes(size_t n)
{
	return n >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

/* Asks for the line that comes a page later, which need not exist: processors do not follow a stream over the end of a
 * page by themselves. */
INLINE void ask_for(const float *x)
{
	_mm_prefetch((const char *)((uintptr_t)x + 4096), _MM_HINT_T0);
}

INLINE __m512i magnitude(__m512 v)
{
	return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
}

/* Bits of `low` where `mask` has ones, else those of `high`. */
INLINE __m512i joined(__m512i mask, __m512i low, __m512i high)
{
	return _mm512_ternarylogic_epi64(mask, low, high, 0xca);
}

/* --- the largest of each block ---------------------------------------------------------------------------------- */

enum fold { MOST_INT, MOST, LEAST };

INLINE __m512i folded(enum fold how, __m512i a, __m512i b)
{
	const __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
	return how == MOST_INT ? _mm512_max_epi32(a, b)
	       : how == MOST   ? _mm512_castps_si512(_mm512_max_ps(x, y))
			       : _mm512_castps_si512(_mm512_min_ps(x, y));
}

/* Two registers to one: halves, then quarters, then the pairs of quarters, then neighbours. */
INLINE __m512i fold_halves(enum fold how, __m512i a, __m512i b)
{
	return folded(how, _mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
}

INLINE __m512i fold_quarters(enum fold how, __m512i a, __m512i b)
{
	return folded(how, _mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

INLINE __m512i fold_pairs(enum fold how, __m512i a, __m512i b)
{
	return folded(how, _mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

INLINE __m512i fold_neighbours(enum fold how, __m512i a, __m512i b)
{
	const __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
	return folded(how, _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
		      _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd)));
}

/* Lane i: the largest, or least, of register i. */
INLINE __m512i fold_all(enum fold how, const __m512i *v)
{
	__m512i quarter[4];
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		quarter[i] =
			fold_quarters(how, fold_halves(how, v[i], v[4 + i]), fold_halves(how, v[8 + i], v[12 + i]));
	return fold_neighbours(how, fold_pairs(how, quarter[0], quarter[1]), fold_pairs(how, quarter[2], quarter[3]));
}

/* Lane i: bits of the largest magnitude of block i of x[0..n), at most BLOCKS blocks; 0 where there is none. */
INLINE __m512i largest_of(const float *x, size_t n, size_t size)
{
	__m512i top[BLOCKS];
	size_t blocks = 0, at = 0;
	for (; at + size <= n; blocks++) {
		__m512i most = _mm512_setzero_si512();
#pragma GCC unroll 4
		for (const size_t end = at + size; at < end; at += LANES) {
			ask_for(x + at);
			most = _mm512_max_epi32(most, magnitude(_mm512_loadu_ps(x + at)));
		}
		top[blocks] = most;
	}
	if (at < n) {
		__m512i most = _mm512_setzero_si512();
		for (; at < n; at += LANES)
			most = _mm512_max_epi32(most, magnitude(_mm512_maskz_loadu_ps(first_lanes(n - at), x + at)));
		top[blocks++] = most;
	}
	for (; blocks < BLOCKS; blocks++)
		top[blocks] = _mm512_setzero_si512();
	return fold_all(MOST_INT, top);
}

/* Least and largest of each block, 0 being among them; NaN is neither. */
INLINE void range_of(const float *x, size_t n, size_t size, __m512 *least, __m512 *most)
{
	__m512i low[BLOCKS], high[BLOCKS];
	size_t blocks = 0;
	for (size_t at = 0; at < n; blocks++) {
		const size_t end = at + size < n ? at + size : n;
		__m512 a = _mm512_setzero_ps(), b = a;
		for (; at < end; at += LANES) {
			const __m512 v = _mm512_maskz_loadu_ps(first_lanes(end - at), x + at);
			a = _mm512_min_ps(v, a);
			b = _mm512_max_ps(v, b);
		}
		at = end;
		low[blocks] = _mm512_castps_si512(a);
		high[blocks] = _mm512_castps_si512(b);
	}
	for (; blocks < BLOCKS; blocks++)
		low[blocks] = high[blocks] = _mm512_setzero_si512();
	*least = _mm512_castsi512_ps(fold_all(LEAST, low));
	*most = _mm512_castsi512_ps(fold_all(MOST, high));
}

/* --- scales of up to 16 blocks ---------------------------------------------------------------------------------- */

/* What the elements of each register of a part are multiplied by, and what is added to their levels. */
struct factors {
	float inverse[VECTORS];
	int32_t zero[VECTORS];
};

/* Lane i of v for each of the `each` registers of block i. Writes up to LANES too many. */
INLINE void spread(__m512 v, size_t blocks, size_t each, float *out)
{
	const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	float value[LANES];
	if (each < LANES && (each & (each - 1)) == 0) {
		const __m128i shift = _mm_cvtsi32_si128(__builtin_ctzll(each));
		for (size_t i = 0; i < blocks * each; i += LANES) {
			const __m512i at = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)i));
			_mm512_storeu_ps(out + i, _mm512_permutexvar_ps(_mm512_srl_epi32(at, shift), v));
		}
		return;
	}
	_mm512_storeu_ps(value, v);
	for (size_t b = 0; b < blocks; b++, out += each)
		for (size_t i = 0; i < each; i += LANES)
			_mm512_storeu_ps(out + i, _mm512_set1_ps(value[b]));
}

/* What `step_of` and `clipped_least` of block_loops.c do, for lanes. */
INLINE __m512 zero_points(__m512 scale, __m512 inverse, __m512 reach, __m512 least, float top)
{
	const __m512 covered = _mm512_mul_ps(scale, _mm512_set1_ps(top)), rounder = _mm512_set1_ps(0x1.8p23f);
	const __mmask16 clipped = _mm512_cmp_ps_mask(covered, reach, _CMP_LT_OQ);
	const __m512 share = _mm512_maskz_div_ps(clipped, covered, reach);
	const __m512 low = _mm512_mask_mul_ps(least, clipped, least, share);
	const __m512 negative = _mm512_xor_ps(low, _mm512_set1_ps(-0.0f));
	const __m512 zero = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(negative, inverse), _mm512_setzero_ps()),
					  _mm512_set1_ps(top));
	return _mm512_sub_ps(_mm512_add_ps(zero, rounder), rounder);
}

/* Writes the scales of `blocks` blocks with these reaches. Returns what they are worth. */
INLINE __m512 put_scales(const struct gp_block_form *form, __m512 reach, float top, size_t blocks, uint8_t *scales)
{
	const __m512 t = _mm512_div_ps(reach, _mm512_set1_ps(top));
	const __mmask16 lanes = first_lanes(blocks);
	if (form->e8m0) {
		const __m512i up = _mm512_add_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(0x7fffff));
		const __m512i exponent = _mm512_min_epu32(
			_mm512_max_epu32(_mm512_srli_epi32(up, 23), _mm512_set1_epi32(1)), _mm512_set1_epi32(254));
		_mm_mask_storeu_epi8(scales, lanes, _mm512_cvtepi32_epi8(exponent));
		return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
	}
	const __m256i above = _mm512_cvtps_ph(_mm512_mul_ps(t, _mm512_set1_ps(form->by_unit)),
					      _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
	const __m256i half = _mm256_min_epu16(above, _mm256_set1_epi16(0x7bff));
	_mm256_mask_storeu_epi16(scales, lanes, half);
	return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(form->unit));
}

/* Scales, zero points and factors of the blocks of x[0..n), at most BLOCKS of them. Returns the bits of the largest reach, or
 * magnitude where that is more, of each. `vector`: the first register of x in its part. */
INLINE __m512i measure_some(const struct gp_block_form *form, bool asym, float top, const float *x, size_t n,
			    uint8_t *scales, uint8_t *zeros, size_t vector, struct factors *f)
{
	const size_t size = form->size, blocks = (n + size - 1) / size;
	__m512i largest = largest_of(x, n, size);
	__m512 least = _mm512_setzero_ps(), reach = _mm512_castsi512_ps(largest);
	if (asym) {
		__m512 most;
		range_of(x, n, size, &least, &most);
		reach = _mm512_sub_ps(most, least);
		largest = _mm512_max_epi32(largest, magnitude(reach));
	}
	const __m512 scale = put_scales(form, reach, top, blocks, scales);
	const __mmask16 some = _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_GT_OQ);
	const __m512 inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(1), scale);
	spread(inverse, blocks, size / LANES, f->inverse + vector);
	if (asym) {
		const __m512i zero = _mm512_cvtps_epi32(zero_points(scale, inverse, reach, least, top));
		_mm_mask_storeu_epi8(zeros, first_lanes(blocks), _mm512_cvtepi32_epi8(zero));
		spread(_mm512_castsi512_ps(zero), blocks, size / LANES, (float *)f->zero + vector);
	}
	return largest;
}

/* The same for a part. */
INLINE __m512i measure(const struct gp_block_form *form, bool asym, float top, const float *x, size_t n,
		       uint8_t *scales, uint8_t *zeros, struct factors *f)
{
	const size_t most = BLOCKS * form->size;
	__m512i largest = _mm512_setzero_si512();
	for (size_t at = 0; at < n; at += most, scales += BLOCKS * (form->e8m0 ? 1 : 2), zeros += BLOCKS) {
		const size_t here = n - at < most ? n - at : most;
		largest = _mm512_max_epi32(largest,
					   measure_some(form, asym, top, x + at, here, scales, zeros, at / LANES, f));
	}
	return largest;
}

/* --- packing ---------------------------------------------------------------------------------------------------- */

/* Behind each other: the first `bits` bytes of each half of 16 bytes. */
static const uint8_t close_gaps[9][16] = {
	[3] = {0, 1, 2, 8, 9, 10, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
	[5] = {0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 128, 128, 128, 128, 128, 128},
	[6] = {0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 128, 128, 128, 128},
	[7] = {0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 128, 128},
};

/* 64 codes, a byte each, to 8 * bits bytes. */
INLINE void put_chunk(__m512i codes, int bits, uint8_t *out)
{
	if (bits == 8) {
		_mm512_storeu_si512(out, codes);
		return;
	}
	const __m512i twos = joined(_mm512_set1_epi16((short)((1 << bits) - 1)), codes,
				    _mm512_srli_epi16(codes, (unsigned)(8 - bits)));
	if (bits == 4) {
		_mm256_storeu_si256((__m256i *)out, _mm512_cvtepi16_epi8(twos));
		return;
	}
	const __m512i fours = joined(_mm512_set1_epi32((1 << 2 * bits) - 1), twos,
				     _mm512_srli_epi32(twos, (unsigned)(16 - 2 * bits)));
	if (bits == 2) {
		_mm_storeu_si128((__m128i *)out, _mm512_cvtepi32_epi8(fours));
		return;
	}
	const __m512i eights = joined(_mm512_set1_epi64((1 << 4 * bits) - 1), fours,
				      _mm512_srli_epi64(fours, (unsigned)(32 - 4 * bits)));
	const __m512i order = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)close_gaps[bits]));
	const __m512i closed = _mm512_shuffle_epi8(eights, order);
	_mm_storeu_si128((__m128i *)out, _mm512_castsi512_si128(closed));
	_mm_storeu_si128((__m128i *)(out + 2 * bits), _mm512_extracti32x4_epi32(closed, 1));
	/* What a store writes too many has to be within the chunk. */
	const __mmask16 own = (__mmask16)((1 << 2 * bits) - 1);
	_mm_mask_storeu_epi8(out + 4 * bits, bits < 4 ? own : 0xffff, _mm512_extracti32x4_epi32(closed, 2));
	_mm_mask_storeu_epi8(out + 6 * bits, own, _mm512_extracti32x4_epi32(closed, 3));
}

/* The first n codes of 64. */
INLINE void put_some(__m512i codes, size_t n, int bits, uint8_t *out)
{
	uint8_t packed[CHUNK];
	put_chunk(_mm512_maskz_mov_epi8(~UINT64_C(0) >> (CHUNK - n), codes), bits, packed);
	memcpy(out, packed, (n * (size_t)bits + 7) / 8);
}

/* Bytes of four registers of numbers that have been packed twice, each time within quarters, in order. */
INLINE __m512i ordered(__m512i bytes)
{
	return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes);
}

/* --- block ------------------------------------------------------------------------------------------------------ */

/* Levels, or codes where `zero` is added, of 16 elements. */
INLINE __m512i level_of(__m512 x, float inverse, bool asym, int32_t zero)
{
	const __m512i level = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse)));
	return asym ? _mm512_add_epi32(level, _mm512_set1_epi32(zero)) : level;
}

/* Codes of levels beyond the top are the top's: numbers are cut off as they become narrower, and then once more. */
INLINE __m512i codes_of(const __m512i *level, int bits, bool asym)
{
	const __m512i low = _mm512_packs_epi32(level[0], level[1]), high = _mm512_packs_epi32(level[2], level[3]);
	if (asym)
		return ordered(
			_mm512_min_epu8(_mm512_packus_epi16(low, high), _mm512_set1_epi8((char)((1 << bits) - 1))));
	const __m512i top = _mm512_set1_epi8((char)((1 << (bits - 1)) - 1));
	const __m512i least = _mm512_sub_epi8(_mm512_setzero_si512(), top);
	const __m512i narrow = _mm512_min_epi8(_mm512_max_epi8(_mm512_packs_epi16(low, high), least), top);
	return ordered(_mm512_add_epi8(narrow, _mm512_set1_epi8((char)(1 << (bits - 1)))));
}

INLINE void write_codes(const struct factors *f, int bits, bool asym, const float *x, size_t n, uint8_t *packed)
{
	__m512i level[4];
	size_t i = 0;
	for (; i + CHUNK <= n; i += CHUNK, packed += CHUNK / 8 * bits) {
#pragma GCC unroll 4
		for (size_t k = 0; k < 4; k++)
			level[k] = level_of(_mm512_loadu_ps(x + i + k * LANES), f->inverse[i / LANES + k], asym,
					    asym ? f->zero[i / LANES + k] : 0);
		put_chunk(codes_of(level, bits, asym), bits, packed);
	}
	if (i == n)
		return;
#pragma GCC unroll 4
	for (size_t k = 0; k < 4; k++) {
		const __mmask16 lanes = i + k * LANES < n ? first_lanes(n - i - k * LANES) : 0;
		level[k] = level_of(_mm512_maskz_loadu_ps(lanes, x + i + k * LANES), f->inverse[i / LANES + k], asym,
				    asym ? f->zero[i / LANES + k] : 0);
	}
	put_some(codes_of(level, bits, asym), n - i, bits, packed);
}

/* Elements of a part of blocks of this size: whole blocks. */
INLINE size_t part_of(size_t size)
{
	return PART / size * size;
}

INLINE uint32_t encode_bits(const struct gp_block_form *form, int bits, bool asym, const float *x, size_t n,
			    uint8_t *scales, uint8_t *zeros, uint8_t *packed)
{
	const size_t part = part_of(form->size), blocks = part / form->size, scale_bytes = form->e8m0 ? 1 : 2;
	const float top = (float)(asym ? (1 << bits) - 1 : (1 << (bits - 1)) - 1);
	struct factors f[2];
	size_t here = n < part ? n : part;
	__m512i largest = measure(form, asym, top, x, here, scales, zeros, &f[0]);
	for (size_t at = 0, k = 0, next; at < n; at += part, here = next, k ^= 1) {
		next = n - at - here < part ? n - at - here : part;
		if (next) {
			scales += blocks * scale_bytes;
			zeros += blocks;
			largest = _mm512_max_epi32(
				largest, measure(form, asym, top, x + at + here, next, scales, zeros, &f[k ^ 1]));
		}
		write_codes(&f[k], bits, asym, x + at, here, packed + at / 8 * (size_t)bits);
	}
	return (uint32_t)_mm512_reduce_max_epi32(largest);
}

/* --- unpacking -------------------------------------------------------------------------------------------------- */

/* Per code of 16, in 2 * bits bytes: the four bytes from its first one on, and by how many bits they are too far left. */
struct unpacker {
	__m512i bytes, shift;
};

INLINE struct unpacker unpacker_of(int bits)
{
	uint8_t byte[64];
	uint32_t shift[LANES];
	for (int i = 0; i < LANES; i++) {
		shift[i] = (uint32_t)(i * bits) % 8;
		for (int b = 0; b < 4; b++)
			byte[4 * i + b] = i * bits / 8 + b < 16 ? (uint8_t)(i * bits / 8 + b) : 0x80;
	}
	return (struct unpacker){_mm512_loadu_si512(byte), _mm512_loadu_si512(shift)};
}

/* 16 codes in the lowest bits of lanes; bits above them are not zero. */
INLINE __m512i unpacked(const struct unpacker *u, __m128i in)
{
	return _mm512_srlv_epi32(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(in), u->bytes), u->shift);
}

/* Bytes [0, n) of 16. */
INLINE __m128i some_bytes(const uint8_t *in, size_t n)
{
	return _mm_maskz_loadu_epi8(first_lanes(n), in);
}

/* 2^23 + code: an integer in the lowest bits of a float. */
#define INTEGER      0x1p23f
#define INTEGER_BITS 0x4b000000

INLINE __m512i integer_of(__m512i code, int bits)
{
	return _mm512_ternarylogic_epi32(code, _mm512_set1_epi32((1 << bits) - 1), _mm512_set1_epi32(INTEGER_BITS),
					 0xea);
}

/* What the values of a block are made with, and the least integer among its codes so far. */
struct values {
	__m512 scale, zero;
	__m512i least;
};

INLINE __m512 values_of(struct values *v, __m512i code, int bits, bool asym)
{
	const __m512i integer = integer_of(code, bits);
	if (!asym)
		v->least = _mm512_min_epu32(v->least, integer);
	return _mm512_mul_ps(_mm512_sub_ps(_mm512_castsi512_ps(integer), v->zero), v->scale);
}

/* A block of x[0..n). Reads 16 bytes at once, as long as there are so many before `end`. */
INLINE void read_block(const struct unpacker *u, struct values *v, int bits, bool asym, const uint8_t *in,
		       const uint8_t *end, size_t n, float *x)
{
	size_t i = 0;
	for (; i + LANES <= n && end - in >= 16; i += LANES, in += 2 * bits)
		_mm512_storeu_ps(x + i, values_of(v, unpacked(u, _mm_loadu_si128((const __m128i *)in)), bits, asym));
	for (; i < n; i += LANES, in += 2 * bits) {
		const size_t here = n - i < LANES ? n - i : LANES;
		const __mmask16 lanes = first_lanes(here);
		const __m128i bytes = some_bytes(in, (here * (size_t)bits + 7) / 8);
		/* Codes that do not count are all ones. */
		const __m512i code = _mm512_mask_mov_epi32(_mm512_set1_epi32(-1), lanes, unpacked(u, bytes));
		_mm512_mask_storeu_ps(x + i, lanes, values_of(v, code, bits, asym));
	}
}

/* What the scales of up to 16 blocks are worth. */
INLINE __m512 scales_of(const struct gp_block_form *form, const uint8_t *scales, size_t blocks)
{
	const __mmask16 lanes = first_lanes(blocks);
	if (form->e8m0)
		return _mm512_castsi512_ps(
			_mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lanes, scales)), 23));
	return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, scales)), _mm512_set1_ps(form->unit));
}

INLINE bool decode_bits(const struct gp_block_form *form, int bits, bool asym, const uint8_t *scales,
			const uint8_t *zeros, const uint8_t *packed, size_t n, float *x)
{
	const size_t size = form->size;
	const uint8_t *end = packed + (n * (size_t)bits + 7) / 8;
	const struct unpacker u = unpacker_of(bits);
	struct values v = {.zero = _mm512_set1_ps(INTEGER + (float)(1 << (bits - 1))),
			   .least = _mm512_set1_epi32(INTEGER_BITS + 1)};
	float scale[BLOCKS];
	size_t block = 0;
	for (size_t at = 0; at < n; at += size, block++) {
		if (block % BLOCKS == 0) {
			const size_t left = (n - at + size - 1) / size;
			_mm512_storeu_ps(scale, scales_of(form, scales + block * (form->e8m0 ? 1 : 2), left));
		}
		v.scale = _mm512_set1_ps(scale[block % BLOCKS]);
		if (asym)
			v.zero = _mm512_set1_ps(INTEGER + (float)zeros[block]);
		read_block(&u, &v, bits, asym, packed + at / 8 * (size_t)bits, end, n - at < size ? n - at : size,
			   x + at);
	}
	return _mm512_cmplt_epu32_mask(v.least, _mm512_set1_epi32(INTEGER_BITS + 1)) == 0;
}

/* --- one copy of the loops for each width ----------------------------------------------------------------------- */

#define WIDTHS(X) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

static uint32_t encode(const struct gp_block_form *form, const float *x, size_t n, const uint16_t *draws,
		       uint8_t *scales, uint8_t *zeros, uint16_t *room, uint8_t *packed)
{
#define ENCODE(bits)                                                                                                   \
	case bits:                                                                                                     \
		return form->asym ? encode_bits(form, bits, true, x, n, scales, zeros, packed)                         \
				  : encode_bits(form, bits, false, x, n, scales, zeros, packed);
	if (form->size % LANES == 0 && !form->mse && !form->stochastic)
		switch (form->bits) {
			WIDTHS(ENCODE)
		}
	return gp_packed_encode(&parts, form, x, n, draws, scales, zeros, room, packed);
}

static bool decode(const struct gp_block_form *form, const uint8_t *scales, const uint8_t *zeros, const uint8_t *packed,
		   uint16_t *room, size_t n, float *x)
{
#define DECODE(bits)                                                                                                   \
	case bits:                                                                                                     \
		return form->asym ? decode_bits(form, bits, true, scales, zeros, packed, n, x)                         \
				  : decode_bits(form, bits, false, scales, zeros, packed, n, x);
	if (form->size % LANES == 0)
		switch (form->bits) {
			WIDTHS(DECODE)
		}
	return gp_packed_decode(&parts, form, scales, zeros, packed, room, n, x);
}

/* --- small floating-point numbers ------------------------------------------------------------------------------- */

/* 16 numbers' magnitudes in a format: to nearest, ties to even; numbers that are too large give more than the largest code.
 * The sum of a number below 2^(e + 1) and 2^(e + 23 - mantissa) has the rounded one in its lowest bits, in units of the last
 * place; e is the number's exponent, or the least one. */
INLINE __m512i narrowed(const struct gp_mx_small *f, __m512i u)
{
	const unsigned shift = (unsigned)(23 - f->mantissa);
	const __m512i power =
		_mm512_and_si512(_mm512_max_epi32(u, _mm512_set1_epi32(f->normal)), _mm512_set1_epi32(0x7f800000));
	const __m512i magic = _mm512_add_epi32(power, _mm512_set1_epi32((int)shift << 23));
	const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(u), _mm512_castsi512_ps(magic));
	const __m512i places = _mm512_sub_epi32(_mm512_castps_si512(sum), magic);
	const __m512i before =
		_mm512_sub_epi32(_mm512_srli_epi32(power, shift), _mm512_set1_epi32((128 - f->bias) << f->mantissa));
	return _mm512_add_epi32(places, before);
}

/* The same for E2M1: the number to add and what to take away from the sum's bits are looked up by the exponent, which is at
 * least that of 2^-3, what is below being 0 anyway, and below 16. */
INLINE __m512i narrowed_to_e2m1(__m512 x)
{
	const int m = 0x4a800000, step = 1 << 23; /* 2^22, and the next power */
	const __m512i magic =
		_mm512_setr_epi32(m + step, m + 2 * step, m + 2 * step, 0, 0, 0, 0, 0, 0, 0, 0, 0, m, m, m, m);
	const __m512i minus = _mm512_setr_epi32(m + step - 2, m + 2 * step - 4, m + 2 * step - 4, 0, 0, 0, 0, 0, 0, 0,
						0, 0, m, m, m, m);
	const __m512 v = _mm512_range_ps(x, _mm512_set1_ps(0x1p-3f), 0x0b);
	const __m512i exponent = _mm512_srli_epi32(_mm512_castps_si512(v), 23);
	const __m512 sum = _mm512_add_ps(v, _mm512_castsi512_ps(_mm512_permutexvar_epi32(exponent, magic)));
	return _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_permutexvar_epi32(exponent, minus));
}

/* The values of 16 magnitudes. */
INLINE __m512 widened(const struct gp_mx_small *f, __m512i magnitudes)
{
	const __m512i bits = _mm512_slli_epi32(magnitudes, (unsigned)(23 - f->mantissa));
	const __m512i normal = _mm512_add_epi32(bits, _mm512_set1_epi32((127 - f->bias) << 23));
	const __m512 below = _mm512_mul_ps(_mm512_cvtepi32_ps(magnitudes), _mm512_set1_ps(f->step));
	return _mm512_mask_mov_ps(_mm512_castsi512_ps(normal),
				  _mm512_cmplt_epi32_mask(magnitudes, _mm512_set1_epi32(1 << f->mantissa)), below);
}

/* Codes of 64 elements. Signs: those of numbers stay as these are cut off to bytes. */
INLINE __m512i small_codes(const struct gp_mx_small *f, const __m512 *x, const float *inverse)
{
	const int width = f->exponent + f->mantissa;
	__m512i m[4];
#pragma GCC unroll 4
	for (size_t k = 0; k < 4; k++) {
		const __m512 scaled = _mm512_mul_ps(x[k], _mm512_set1_ps(inverse[k]));
		m[k] = width == 3 ? narrowed_to_e2m1(scaled) : narrowed(f, magnitude(scaled));
	}
	const __m512i most = _mm512_set1_epi8((char)(f->numbers - 1));
	const __m512i magnitudes = _mm512_min_epu8(
		_mm512_packus_epi16(_mm512_packs_epi32(m[0], m[1]), _mm512_packs_epi32(m[2], m[3])), most);
	const __m512i signs =
		_mm512_packs_epi16(_mm512_packs_epi32(_mm512_castps_si512(x[0]), _mm512_castps_si512(x[1])),
				   _mm512_packs_epi32(_mm512_castps_si512(x[2]), _mm512_castps_si512(x[3])));
	const __m512i sign =
		_mm512_and_si512(_mm512_srli_epi16(signs, (unsigned)(7 - width)), _mm512_set1_epi8((char)(1 << width)));
	return ordered(_mm512_or_si512(magnitudes, sign));
}

INLINE void write_small(const struct gp_mx_small *f, const float *inverse, const float *x, size_t n, uint8_t *packed)
{
	const int bits = 1 + f->exponent + f->mantissa;
	__m512 v[4];
	size_t i = 0;
	for (; i + CHUNK <= n; i += CHUNK, packed += CHUNK / 8 * bits) {
#pragma GCC unroll 4
		for (size_t k = 0; k < 4; k++)
			v[k] = _mm512_loadu_ps(x + i + k * LANES);
		put_chunk(small_codes(f, v, inverse + i / LANES), bits, packed);
	}
	if (i == n)
		return;
#pragma GCC unroll 4
	for (size_t k = 0; k < 4; k++) {
		const __mmask16 lanes = i + k * LANES < n ? first_lanes(n - i - k * LANES) : 0;
		v[k] = _mm512_maskz_loadu_ps(lanes, x + i + k * LANES);
	}
	put_some(small_codes(f, v, inverse + i / LANES), n - i, bits, packed);
}

/* Scales and factors of a part. Returns the largest magnitudes. */
INLINE __m512i measure_mx(const struct gp_mx_small *f, const float *x, size_t n, uint8_t *scales, float *inverse)
{
	__m512i largest = _mm512_setzero_si512();
	for (size_t at = 0; at < n; at += BLOCKS * GP_MX_BLOCK, scales += BLOCKS, inverse += BLOCKS * 2) {
		const size_t here = n - at < BLOCKS * GP_MX_BLOCK ? n - at : BLOCKS * GP_MX_BLOCK;
		const size_t blocks = (here + GP_MX_BLOCK - 1) / GP_MX_BLOCK;
		const __m512i top = largest_of(x + at, here, GP_MX_BLOCK);
		const __m512i exponent =
			_mm512_max_epi32(_mm512_sub_epi32(_mm512_srli_epi32(top, 23), _mm512_set1_epi32(f->emax)),
					 _mm512_setzero_si512());
		_mm_mask_storeu_epi8(scales, first_lanes(blocks), _mm512_cvtepi32_epi8(exponent));
		const __m512i factor = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(254), exponent), 23);
		spread(_mm512_castsi512_ps(factor), blocks, GP_MX_BLOCK / LANES, inverse);
		largest = _mm512_max_epi32(largest, top);
	}
	return largest;
}

INLINE uint32_t mx_encode_format(const struct gp_mx_small *f, const float *x, size_t n, uint8_t *scales,
				 uint8_t *packed)
{
	const size_t bits = (size_t)(1 + f->exponent + f->mantissa);
	__m512i largest = _mm512_setzero_si512();
	float inverse[VECTORS];
	for (size_t at = 0; at < n; at += PART, scales += PART / GP_MX_BLOCK) {
		const size_t here = n - at < PART ? n - at : PART;
		largest = _mm512_max_epi32(largest, measure_mx(f, x + at, here, scales, inverse));
		write_small(f, inverse, x + at, here, packed + at / 8 * bits);
	}
	return (uint32_t)_mm512_reduce_max_epi32(largest);
}

/* The value of each code of E2M1, in units of its scale. */
INLINE __m512 e2m1_values(void)
{
	return _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
}

/* *most: the largest magnitude so far; not of E2M1, all of whose codes are numbers. */
INLINE __m512 small_values(const struct gp_mx_small *f, __m512i code, __m512 scale, __m512i *most)
{
	const int width = f->exponent + f->mantissa;
	if (width == 3)
		return _mm512_mul_ps(_mm512_permutexvar_ps(code, e2m1_values()), scale);
	const __m512i magnitudes = _mm512_and_si512(code, _mm512_set1_epi32((1 << width) - 1));
	*most = _mm512_max_epi32(*most, magnitudes);
	const __m512 value = _mm512_mul_ps(widened(f, magnitudes), scale);
	const __m512i sign = _mm512_slli_epi32(code, (unsigned)(31 - width));
	return _mm512_castsi512_ps(
		_mm512_ternarylogic_epi32(_mm512_castps_si512(value), sign, _mm512_set1_epi32(INT32_MIN), 0xf8));
}

/* x[0..n), at most LANES elements. */
INLINE void read_some_small(const struct gp_mx_small *f, const struct unpacker *u, __m512 scale, const uint8_t *in,
			    size_t n, float *x, __m512i *most)
{
	const int bits = 1 + f->exponent + f->mantissa;
	const __mmask16 lanes = first_lanes(n);
	const __m512i code = unpacked(u, some_bytes(in, (n * (size_t)bits + 7) / 8));
	_mm512_mask_storeu_ps(x, lanes, small_values(f, _mm512_maskz_mov_epi32(lanes, code), scale, most));
}

INLINE __m512 power_values(const uint8_t *scales, size_t blocks)
{
	const __m512i exponent = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first_lanes(blocks), scales));
	return _mm512_mask_mov_ps(_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23)),
				  _mm512_cmpeq_epi32_mask(exponent, _mm512_setzero_si512()), _mm512_set1_ps(0x1p-127f));
}

/* What the scales of up to 16 blocks of 16 elements are worth. */
INLINE __m512 nv_values(float whole, const uint8_t *scales, size_t blocks)
{
	const __m512i code = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first_lanes(blocks), scales));
	return _mm512_mul_ps(widened(&gp_mx_smalls[GP_MX_E4M3], code), _mm512_set1_ps(whole));
}

/* Blocks of `size` elements, 16 or 32; whole: that of nvfp4, whose scales are numbers of their own. Returns the largest
 * magnitude of a code. */
INLINE uint32_t decode_small(const struct gp_mx_small *f, size_t size, float whole, const uint8_t *scales,
			     const uint8_t *packed, size_t n, float *x)
{
	const size_t bits = (size_t)(1 + f->exponent + f->mantissa), part = BLOCKS * size;
	const uint8_t *end = packed + (n * bits + 7) / 8;
	const struct unpacker u = unpacker_of((int)bits);
	__m512i most = _mm512_setzero_si512();
	float scale[BLOCKS];
	for (size_t at = 0, here; at < n; at += part, scales += BLOCKS) {
		here = n - at < part ? n - at : part;
		const size_t blocks = (here + size - 1) / size;
		_mm512_storeu_ps(scale,
				 size == GP_MX_BLOCK ? power_values(scales, blocks) : nv_values(whole, scales, blocks));
		size_t i = 0;
		for (; i + LANES <= here && end - packed >= 16; i += LANES, packed += 2 * bits) {
			const __m512i code = unpacked(&u, _mm_loadu_si128((const __m128i *)packed));
			_mm512_storeu_ps(x + at + i, small_values(f, code, _mm512_set1_ps(scale[i / size]), &most));
		}
		for (; i < here; i += LANES, packed += 2 * bits)
			read_some_small(f, &u, _mm512_set1_ps(scale[i / size]), packed,
					here - i < LANES ? here - i : LANES, x + at + i, &most);
	}
	return (uint32_t)_mm512_reduce_max_epi32(most);
}

#define FORMATS(X) X(GP_MX_E2M1) X(GP_MX_E2M3) X(GP_MX_E3M2) X(GP_MX_E4M3) X(GP_MX_E5M2)

static uint32_t mx_encode(enum gp_mx_format format, const float *x, size_t n, uint8_t *scales, uint16_t *room,
			  uint8_t *packed)
{
#define MX_ENCODE(name)                                                                                                \
	case name:                                                                                                     \
		return mx_encode_format(&gp_mx_smalls[name], x, n, scales, packed);
	(void)room;
	switch (format) {
		FORMATS(MX_ENCODE)
	case GP_MX_FORMATS:
		break;
	}
	return 0;
}

static bool mx_decode(enum gp_mx_format format, const uint8_t *scales, const uint8_t *packed, uint16_t *room, size_t n,
		      float *x)
{
#define MX_DECODE(name)                                                                                                \
	case name:                                                                                                     \
		return decode_small(&gp_mx_smalls[name], GP_MX_BLOCK, 0, scales, packed, n, x) <                       \
		       (uint32_t)gp_mx_smalls[name].numbers;
	(void)room;
	switch (format) {
		FORMATS(MX_DECODE)
	case GP_MX_FORMATS:
		break;
	}
	return false;
}

/* Writes the scales of up to 16 blocks; `inverse` gets what their elements are multiplied by. */
INLINE void nv_scales(float whole, __m512 largest, size_t blocks, uint8_t *scales, float *inverse)
{
	const struct gp_mx_small *f = &gp_mx_smalls[GP_MX_E4M3];
	const __m512i scale =
		_mm512_min_epi32(narrowed(f, magnitude(_mm512_div_ps(largest, _mm512_set1_ps(6 * whole)))),
				 _mm512_set1_epi32(f->numbers - 1));
	const __m512 value = _mm512_mul_ps(widened(f, scale), _mm512_set1_ps(whole));
	const __mmask16 some = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_GT_OQ);
	_mm_mask_storeu_epi8(scales, first_lanes(blocks), _mm512_cvtepi32_epi8(scale));
	_mm512_storeu_ps(inverse, _mm512_maskz_div_ps(some, _mm512_set1_ps(1), value));
}

static void nv_encode(float whole, const float *x, size_t n, uint8_t *scales, uint16_t *room, uint8_t *packed)
{
	enum { SOME = BLOCKS * GP_NVFP4_BLOCK };
	float inverse[VECTORS];
	(void)room;
	for (size_t at = 0; at < n; at += PART) {
		const size_t here = n - at < PART ? n - at : PART;
		for (size_t i = 0; i < here; i += SOME, scales += BLOCKS) {
			const size_t some = here - i < SOME ? here - i : SOME;
			const __m512i largest = largest_of(x + at + i, some, GP_NVFP4_BLOCK);
			nv_scales(whole, _mm512_castsi512_ps(largest), (some + GP_NVFP4_BLOCK - 1) / GP_NVFP4_BLOCK,
				  scales, inverse + i / LANES);
		}
		write_small(&gp_mx_smalls[GP_MX_E2M1], inverse, x + at, here, packed + at / 2);
	}
}

static void nv_decode(float whole, const uint8_t *scales, const uint8_t *packed, uint16_t *room, size_t n, float *x)
{
	(void)room;
	decode_small(&gp_mx_smalls[GP_MX_E2M1], GP_NVFP4_BLOCK, whole, scales, packed, n, x);
}

const struct gp_packed_loops gp_packed_loops_avx512 = {.encode = encode,
						       .decode = decode,
						       .mx_encode = mx_encode,
						       .mx_decode = mx_decode,
						       .nv_encode = nv_encode,
						       .nv_decode = nv_decode};
