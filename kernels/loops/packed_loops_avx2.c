/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks with a scale, coded and packed in registers, with AVX2 (and F16C). As
 * packed_loops_avx512.c, with registers of 8 elements: up to 8 blocks at a time,
 * and codes 32 at a time. See packed_loops.h. Test: tests/unit/test_packed_loops.c
 */
#include "kernels/loops/packed_loops.h"

#include <string.h>

#include "kernels/loops/avx2.h"
#include "kernels/loops/codec_loops.h"
#include "kernels/loops/mx_format.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, BLOCKS = 8, CHUNK = 32 }; /* elements of a register; blocks and elements that are coded at a time */
enum { PART = 1024 };                       /* no part has more elements */
enum { VECTORS = PART / LANES + LANES };    /* registers of a part, and room to write too many */

static const struct gp_packed_parts parts = {&gp_block_loops_avx2, &gp_codec_loops_avx2};

INLINE __m256i int_of(__m256 v)
{
	return _mm256_castps_si256(v);
}

INLINE __m256 float_of(__m256i v)
{
	return _mm256_castsi256_ps(v);
}

INLINE __m256i magnitude(__m256 v)
{
	return _mm256_and_si256(int_of(v), _mm256_set1_epi32(0x7fffffff));
}

/* Bits of `low` where `mask` has ones, else those of `high`. */
INLINE __m256i joined(__m256i mask, __m256i low, __m256i high)
{
	return _mm256_or_si256(_mm256_and_si256(mask, low), _mm256_andnot_si256(mask, high));
}

/* The first n of x, then zeros. */
INLINE __m256 some_of(const float *x, size_t n)
{
	float v[LANES] = {0};
	memcpy(v, x, n * sizeof *x);
	return _mm256_loadu_ps(v);
}

/* --- the largest of each block ---------------------------------------------------------------------------------- */

enum fold { MOST_INT, MOST, LEAST };

INLINE __m256i folded(enum fold how, __m256i a, __m256i b)
{
	return how == MOST_INT ? _mm256_max_epi32(a, b)
	       : how == MOST   ? int_of(_mm256_max_ps(float_of(a), float_of(b)))
			       : int_of(_mm256_min_ps(float_of(a), float_of(b)));
}

/* Two registers to one: halves, then the pairs of halves, then neighbours. */
INLINE __m256i fold_halves(enum fold how, __m256i a, __m256i b)
{
	return folded(how, _mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

INLINE __m256i fold_pairs(enum fold how, __m256i a, __m256i b)
{
	return folded(how, _mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

INLINE __m256i fold_neighbours(enum fold how, __m256i a, __m256i b)
{
	return folded(how, int_of(_mm256_shuffle_ps(float_of(a), float_of(b), 0x88)),
		      int_of(_mm256_shuffle_ps(float_of(a), float_of(b), 0xdd)));
}

/* Lane i: the largest, or least, of register i. */
INLINE __m256i fold_all(enum fold how, const __m256i *v)
{
	const __m256i a = fold_pairs(how, fold_halves(how, v[0], v[4]), fold_halves(how, v[1], v[5]));
	const __m256i b = fold_pairs(how, fold_halves(how, v[2], v[6]), fold_halves(how, v[3], v[7]));
	return fold_neighbours(how, a, b);
}

/* Asks for the line that comes a page later, which need not exist: processors do not follow a stream over the end of a
 * page by themselves. */
INLINE void ask_for(const float *x)
{
	_mm_prefetch((const char *)((uintptr_t)x + 4096), _MM_HINT_T0);
}

/* Lane i: bits of the largest magnitude of block i of x[0..n), at most BLOCKS blocks; 0 where there is none. */
INLINE __m256i largest_of(const float *x, size_t n, size_t size)
{
	__m256i top[BLOCKS];
	size_t blocks = 0, at = 0;
	for (; at + size <= n; blocks++) {
		__m256i most = _mm256_setzero_si256();
		const size_t end = at + size;
		for (; at + 2 * LANES <= end; at += 2 * LANES) {
			ask_for(x + at);
			most = _mm256_max_epi32(most, magnitude(_mm256_loadu_ps(x + at)));
			most = _mm256_max_epi32(most, magnitude(_mm256_loadu_ps(x + at + LANES)));
		}
		for (; at < end; at += LANES)
			most = _mm256_max_epi32(most, magnitude(_mm256_loadu_ps(x + at)));
		top[blocks] = most;
	}
	if (at < n) {
		__m256i most = _mm256_setzero_si256();
		for (; at + LANES <= n; at += LANES)
			most = _mm256_max_epi32(most, magnitude(_mm256_loadu_ps(x + at)));
		if (at < n)
			most = _mm256_max_epi32(most, magnitude(some_of(x + at, n - at)));
		top[blocks++] = most;
	}
	for (; blocks < BLOCKS; blocks++)
		top[blocks] = _mm256_setzero_si256();
	return fold_all(MOST_INT, top);
}

/* Least and largest of each block, 0 being among them; NaN is neither. */
INLINE void range_of(const float *x, size_t n, size_t size, __m256 *least, __m256 *most)
{
	__m256i low[BLOCKS], high[BLOCKS];
	size_t blocks = 0;
	for (size_t at = 0; at < n; blocks++) {
		const size_t end = at + size < n ? at + size : n;
		__m256 a = _mm256_setzero_ps(), b = a;
		for (; at < end; at += LANES) {
			const __m256 v = at + LANES <= end ? _mm256_loadu_ps(x + at) : some_of(x + at, end - at);
			a = _mm256_min_ps(v, a);
			b = _mm256_max_ps(v, b);
		}
		at = end;
		low[blocks] = int_of(a);
		high[blocks] = int_of(b);
	}
	for (; blocks < BLOCKS; blocks++)
		low[blocks] = high[blocks] = _mm256_setzero_si256();
	*least = float_of(fold_all(LEAST, low));
	*most = float_of(fold_all(MOST, high));
}

/* --- scales of up to 8 blocks ----------------------------------------------------------------------------------- */

/* What the elements of each register of a part are multiplied by, and what is added to their levels. */
struct factors {
	float inverse[VECTORS];
	int32_t zero[VECTORS];
};

/* Lane i of v for each of the `each` registers of block i. Writes up to LANES too many. */
INLINE void spread(const float *v, size_t blocks, size_t each, float *out)
{
	for (size_t b = 0; b < blocks; b++, out += each)
		for (size_t i = 0; i < each; i += LANES)
			_mm256_storeu_ps(out + i, _mm256_set1_ps(v[b]));
}

/* The lowest bytes of the first n of 8 numbers. The usual case is apart: memcpy of a constant length is one instruction. */
INLINE void put_bytes(__m256i v, size_t n, uint8_t *out)
{
	const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
	const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm_setzero_si128());
	const uint64_t all = (uint64_t)_mm_cvtsi128_si64(bytes);
	if (n == LANES)
		memcpy(out, &all, LANES);
	else
		memcpy(out, &all, n);
}

/* n bytes, then zeros. */
INLINE __m256i get_bytes(const uint8_t *in, size_t n)
{
	uint64_t all = 0;
	if (n == LANES)
		memcpy(&all, in, LANES);
	else
		memcpy(&all, in, n);
	return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)all));
}

/* What `step_of` and `clipped_least` of block_loops.c do, for lanes. */
INLINE __m256 zero_points(__m256 scale, __m256 inverse, __m256 reach, __m256 least, float top)
{
	const __m256 covered = _mm256_mul_ps(scale, _mm256_set1_ps(top)), rounder = _mm256_set1_ps(0x1.8p23f);
	const __m256 clipped = _mm256_cmp_ps(covered, reach, _CMP_LT_OQ);
	const __m256 share = _mm256_div_ps(covered, _mm256_blendv_ps(_mm256_set1_ps(1), reach, clipped));
	const __m256 low = _mm256_blendv_ps(least, _mm256_mul_ps(least, share), clipped);
	const __m256 negative = _mm256_xor_ps(low, _mm256_set1_ps(-0.0f));
	const __m256 zero = _mm256_min_ps(_mm256_max_ps(_mm256_mul_ps(negative, inverse), _mm256_setzero_ps()),
					  _mm256_set1_ps(top));
	return _mm256_sub_ps(_mm256_add_ps(zero, rounder), rounder);
}

/* Writes the scales of `blocks` blocks with these reaches. Returns what they are worth. */
INLINE __m256 put_scales(const struct gp_block_form *form, __m256 reach, float top, size_t blocks, uint8_t *scales)
{
	const __m256 t = _mm256_div_ps(reach, _mm256_set1_ps(top));
	uint16_t halves[LANES];
	if (form->e8m0) {
		const __m256i up = _mm256_add_epi32(int_of(t), _mm256_set1_epi32(0x7fffff));
		const __m256i exponent = _mm256_min_epu32(
			_mm256_max_epu32(_mm256_srli_epi32(up, 23), _mm256_set1_epi32(1)), _mm256_set1_epi32(254));
		put_bytes(exponent, blocks, scales);
		return float_of(_mm256_slli_epi32(exponent, 23));
	}
	const __m128i above = _mm256_cvtps_ph(_mm256_mul_ps(t, _mm256_set1_ps(form->by_unit)),
					      _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
	const __m128i half = _mm_min_epu16(above, _mm_set1_epi16(0x7bff));
	_mm_storeu_si128((__m128i *)halves, half);
	if (blocks == LANES)
		memcpy(scales, halves, sizeof halves);
	else
		memcpy(scales, halves, 2 * blocks);
	return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(form->unit));
}

/* 1 / v, or 0 where v is not above 0. */
INLINE __m256 inverse_of(__m256 v)
{
	const __m256 some = _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_GT_OQ);
	const __m256 divisor = _mm256_blendv_ps(_mm256_set1_ps(1), v, some);
	return _mm256_and_ps(some, _mm256_div_ps(_mm256_set1_ps(1), divisor));
}

/* Scales, zero points and factors of the blocks of x[0..n). Returns the bits of the largest reach, or magnitude where that
 * is more, of each. */
INLINE __m256i measure(const struct gp_block_form *form, bool asym, float top, const float *x, size_t n,
		       uint8_t *scales, uint8_t *zeros, struct factors *f)
{
	const size_t size = form->size, blocks = (n + size - 1) / size;
	float values[LANES];
	__m256i largest = largest_of(x, n, size);
	__m256 least = _mm256_setzero_ps(), reach = float_of(largest);
	if (asym) {
		__m256 most;
		range_of(x, n, size, &least, &most);
		reach = _mm256_sub_ps(most, least);
		largest = _mm256_max_epi32(largest, magnitude(reach));
	}
	const __m256 scale = put_scales(form, reach, top, blocks, scales), inverse = inverse_of(scale);
	_mm256_storeu_ps(values, inverse);
	spread(values, blocks, size / LANES, f->inverse);
	if (asym) {
		const __m256i zero = _mm256_cvtps_epi32(zero_points(scale, inverse, reach, least, top));
		put_bytes(zero, blocks, zeros);
		_mm256_storeu_ps(values, float_of(zero));
		spread(values, blocks, size / LANES, (float *)f->zero);
	}
	return largest;
}

/* --- packing ---------------------------------------------------------------------------------------------------- */

/* Behind each other: the first `bits` bytes of each half of 16 bytes. */
static const uint8_t close_gaps[9][16] = {
	[2] = {0, 1, 8, 9, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
	[3] = {0, 1, 2, 8, 9, 10, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128},
	[5] = {0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 128, 128, 128, 128, 128, 128},
	[6] = {0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 128, 128, 128, 128},
	[7] = {0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 128, 128},
};

/* 32 codes, a byte each, to 4 * bits bytes. Writes 16 bytes at out and, but for 4 bits, at out + 2 * bits. */
INLINE void put_chunk(__m256i codes, int bits, uint8_t *out)
{
	if (bits == 8) {
		_mm256_storeu_si256((__m256i *)out, codes);
		return;
	}
	const __m256i twos =
		joined(_mm256_set1_epi16((short)((1 << bits) - 1)), codes, _mm256_srli_epi16(codes, 8 - bits));
	if (bits == 4) {
		const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(twos, twos), 0x08);
		_mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(bytes));
		return;
	}
	const __m256i fours =
		joined(_mm256_set1_epi32((1 << 2 * bits) - 1), twos, _mm256_srli_epi32(twos, 16 - 2 * bits));
	const __m256i eights =
		joined(_mm256_set1_epi64x((1 << 4 * bits) - 1), fours, _mm256_srli_epi64(fours, 32 - 4 * bits));
	const __m256i order = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)close_gaps[bits]));
	const __m256i closed = _mm256_shuffle_epi8(eights, order);
	_mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(closed));
	_mm_storeu_si128((__m128i *)(out + 2 * bits), _mm256_extracti128_si256(closed, 1));
}

/* The first n codes of 32, in exactly as many bytes as they take. */
INLINE void put_some(__m256i codes, size_t n, int bits, uint8_t *out)
{
	uint8_t byte[CHUNK] = {0}, packed[CHUNK + 16], all[CHUNK];
	_mm256_storeu_si256((__m256i *)all, codes);
	memcpy(byte, all, n);
	put_chunk(_mm256_loadu_si256((const __m256i *)byte), bits, packed);
	memcpy(out, packed, (n * (size_t)bits + 7) / 8);
}

/* Bytes of four registers of numbers that have been packed twice, each time within halves, in order. */
INLINE __m256i ordered(__m256i bytes)
{
	return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* How many bytes from the beginning of a chunk on have to be its own, or those of later chunks. */
INLINE ptrdiff_t chunk_room(int bits)
{
	return bits == 4 || bits == 8 ? 4 * bits : 2 * bits + 16;
}

/* --- block ------------------------------------------------------------------------------------------------------ */

/* Levels, or codes where `zero` is added, of 8 elements. */
INLINE __m256i level_of(__m256 x, float inverse, bool asym, int32_t zero)
{
	const __m256i level = _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(inverse)));
	return asym ? _mm256_add_epi32(level, _mm256_set1_epi32(zero)) : level;
}

/* Codes of levels beyond the top are the top's: numbers are cut off as they become narrower, and then once more. */
INLINE __m256i codes_of(const __m256i *level, int bits, bool asym)
{
	const __m256i low = _mm256_packs_epi32(level[0], level[1]), high = _mm256_packs_epi32(level[2], level[3]);
	if (asym)
		return ordered(
			_mm256_min_epu8(_mm256_packus_epi16(low, high), _mm256_set1_epi8((char)((1 << bits) - 1))));
	const __m256i top = _mm256_set1_epi8((char)((1 << (bits - 1)) - 1));
	const __m256i least = _mm256_sub_epi8(_mm256_setzero_si256(), top);
	const __m256i narrow = _mm256_min_epi8(_mm256_max_epi8(_mm256_packs_epi16(low, high), least), top);
	return ordered(_mm256_add_epi8(narrow, _mm256_set1_epi8((char)(1 << (bits - 1)))));
}

/* Register k of a chunk of which n elements are left. */
INLINE __m256 chunk_part(const float *x, size_t n, size_t k)
{
	const size_t before = k * LANES;
	return n >= before + LANES ? _mm256_loadu_ps(x + before)
	       : n > before        ? some_of(x + before, n - before)
				   : _mm256_setzero_ps();
}

INLINE void write_codes(const struct factors *f, int bits, bool asym, const float *x, size_t n, uint8_t *packed)
{
	const uint8_t *end = packed + (n * (size_t)bits + 7) / 8;
	__m256i level[4];
	for (size_t i = 0; i < n; i += CHUNK, packed += CHUNK / 8 * bits) {
		const size_t left = n - i;
		const float *inverse = f->inverse + i / LANES;
		const int32_t *zero = f->zero + i / LANES;
		if (left >= CHUNK && end - packed >= chunk_room(bits)) {
#pragma GCC unroll 4
			for (size_t k = 0; k < 4; k++)
				level[k] = level_of(_mm256_loadu_ps(x + i + k * LANES), inverse[k], asym,
						    asym ? zero[k] : 0);
			put_chunk(codes_of(level, bits, asym), bits, packed);
			continue;
		}
#pragma GCC unroll 4
		for (size_t k = 0; k < 4; k++)
			level[k] = level_of(chunk_part(x + i, left, k), inverse[k], asym, asym ? zero[k] : 0);
		put_some(codes_of(level, bits, asym), left < CHUNK ? left : CHUNK, bits, packed);
	}
}

INLINE uint32_t most_of(__m256i v)
{
	uint32_t lane[LANES], most = 0;
	_mm256_storeu_si256((__m256i *)lane, v);
	for (int i = 0; i < LANES; i++)
		most = lane[i] > most ? lane[i] : most;
	return most;
}

INLINE uint32_t encode_bits(const struct gp_block_form *form, int bits, bool asym, const float *x, size_t n,
			    uint8_t *scales, uint8_t *zeros, uint8_t *packed)
{
	const size_t size = form->size, blocks = PART / size < BLOCKS ? PART / size : BLOCKS, part = blocks * size;
	const float top = (float)(asym ? (1 << bits) - 1 : (1 << (bits - 1)) - 1);
	__m256i largest = _mm256_setzero_si256();
	struct factors f;
	for (size_t at = 0; at < n; at += part, scales += blocks * (form->e8m0 ? 1 : 2), zeros += blocks) {
		const size_t here = n - at < part ? n - at : part;
		largest = _mm256_max_epi32(largest, measure(form, asym, top, x + at, here, scales, zeros, &f));
		write_codes(&f, bits, asym, x + at, here, packed + at / 8 * (size_t)bits);
	}
	return most_of(largest);
}

/* --- unpacking -------------------------------------------------------------------------------------------------- */

/* Per code of 8, in `bits` bytes: the four bytes from its first one on, and by how many bits they are too far left. */
struct unpacker {
	__m256i bytes, shift;
};

INLINE struct unpacker unpacker_of(int bits)
{
	uint8_t byte[32];
	uint32_t shift[LANES];
	for (int i = 0; i < LANES; i++) {
		shift[i] = (uint32_t)(i * bits) % 8;
		for (int b = 0; b < 4; b++)
			byte[4 * i + b] = (uint8_t)(i * bits / 8 + b);
	}
	return (struct unpacker){_mm256_loadu_si256((const __m256i *)byte), _mm256_loadu_si256((const __m256i *)shift)};
}

/* 8 codes in the lowest bits of lanes; bits above them are not zero. */
INLINE __m256i unpacked(const struct unpacker *u, __m128i in)
{
	return _mm256_srlv_epi32(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(in), u->bytes), u->shift);
}

/* n bytes, at most 8, then zeros. */
INLINE __m128i some_bytes(const uint8_t *in, size_t n)
{
	uint64_t v = 0;
	memcpy(&v, in, n);
	return _mm_cvtsi64_si128((long long)v);
}

/* 2^23 + code: an integer in the lowest bits of a float. */
#define INTEGER      0x1p23f
#define INTEGER_BITS 0x4b000000

/* What the values of a block are made with, and the least integer among its codes so far. */
struct values {
	__m256 scale, zero;
	__m256i least;
};

INLINE __m256 values_of(struct values *v, __m256i code, int bits, bool asym)
{
	const __m256i integer = _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi32((1 << bits) - 1)),
						_mm256_set1_epi32(INTEGER_BITS));
	if (!asym)
		v->least = _mm256_min_epu32(v->least, integer);
	return _mm256_mul_ps(_mm256_sub_ps(float_of(integer), v->zero), v->scale);
}

INLINE void read_some(const struct unpacker *u, struct values *v, int bits, bool asym, const uint8_t *in, size_t n,
		      float *x)
{
	static const int32_t on[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
	const __m256i off =
		_mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(on + LANES - n)), _mm256_set1_epi32(-1));
	float y[LANES];
	/* Codes that do not count are all ones. */
	const __m256i code = unpacked(u, some_bytes(in, (n * (size_t)bits + 7) / 8));
	_mm256_storeu_ps(y, values_of(v, _mm256_or_si256(code, off), bits, asym));
	memcpy(x, y, n * sizeof *x);
}

/* A block of x[0..n). Reads 16 bytes at once, as long as there are so many before `end`. */
INLINE void read_block(const struct unpacker *u, struct values *v, int bits, bool asym, const uint8_t *in,
		       const uint8_t *end, size_t n, float *x)
{
	size_t i = 0;
	for (; i + LANES <= n && end - in >= 16; i += LANES, in += bits)
		_mm256_storeu_ps(x + i, values_of(v, unpacked(u, _mm_loadu_si128((const __m128i *)in)), bits, asym));
	for (; i < n; i += LANES, in += bits)
		read_some(u, v, bits, asym, in, n - i < LANES ? n - i : LANES, x + i);
}

/* What the scales of up to 8 blocks are worth. */
INLINE __m256 scales_of(const struct gp_block_form *form, const uint8_t *scales, size_t blocks)
{
	const size_t count = blocks < BLOCKS ? blocks : BLOCKS;
	uint16_t halves[LANES] = {0};
	if (form->e8m0)
		return float_of(_mm256_slli_epi32(get_bytes(scales, count), 23));
	if (count == LANES)
		memcpy(halves, scales, sizeof halves);
	else
		memcpy(halves, scales, 2 * count);
	return _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves)), _mm256_set1_ps(form->unit));
}

INLINE bool decode_bits(const struct gp_block_form *form, int bits, bool asym, const uint8_t *scales,
			const uint8_t *zeros, const uint8_t *packed, size_t n, float *x)
{
	const size_t size = form->size;
	const uint8_t *end = packed + (n * (size_t)bits + 7) / 8;
	const struct unpacker u = unpacker_of(bits);
	const __m256i lowest = _mm256_set1_epi32(INTEGER_BITS);
	struct values v = {.zero = _mm256_set1_ps(INTEGER + (float)(1 << (bits - 1))),
			   .least = _mm256_set1_epi32(INTEGER_BITS + 1)};
	float scale[BLOCKS];
	size_t block = 0;
	for (size_t at = 0; at < n; at += size, block++) {
		if (block % BLOCKS == 0) {
			const size_t left = (n - at + size - 1) / size;
			_mm256_storeu_ps(scale, scales_of(form, scales + block * (form->e8m0 ? 1 : 2), left));
		}
		v.scale = _mm256_set1_ps(scale[block % BLOCKS]);
		if (asym)
			v.zero = _mm256_set1_ps(INTEGER + (float)zeros[block]);
		read_block(&u, &v, bits, asym, packed + at / 8 * (size_t)bits, end, n - at < size ? n - at : size,
			   x + at);
	}
	return _mm256_movemask_epi8(_mm256_cmpeq_epi32(v.least, lowest)) == 0;
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

/* 8 numbers' magnitudes in a format: to nearest, ties to even; numbers that are too large give more than the largest code.
 * The sum of a number below 2^(e + 1) and 2^(e + 23 - mantissa) has the rounded one in its lowest bits, in units of the last
 * place; e is the number's exponent, or the least one. */
INLINE __m256i narrowed(const struct gp_mx_small *f, __m256i u)
{
	const int shift = 23 - f->mantissa;
	const __m256i power =
		_mm256_and_si256(_mm256_max_epi32(u, _mm256_set1_epi32(f->normal)), _mm256_set1_epi32(0x7f800000));
	const __m256i magic = _mm256_add_epi32(power, _mm256_set1_epi32(shift << 23));
	const __m256i places = _mm256_sub_epi32(int_of(_mm256_add_ps(float_of(u), float_of(magic))), magic);
	const __m256i before =
		_mm256_sub_epi32(_mm256_srli_epi32(power, shift), _mm256_set1_epi32((128 - f->bias) << f->mantissa));
	return _mm256_add_epi32(places, before);
}

/* The same for E2M1: the number to add and what to take away from the sum's bits are looked up by the exponent, which is at
 * least that of 2^-3, what is below being 0 anyway, and below 16. */
INLINE __m256i narrowed_to_e2m1(__m256i u)
{
	const int m = 0x4a800000, step = 1 << 23; /* 2^22, and the next power */
	const __m256i magic = _mm256_setr_epi32(m + step, m + 2 * step, m + 2 * step, 0, m, m, m, m);
	const __m256i minus = _mm256_setr_epi32(m + step - 2, m + 2 * step - 4, m + 2 * step - 4, 0, m, m, m, m);
	const __m256i v = _mm256_max_epi32(u, int_of(_mm256_set1_ps(0x1p-3f))), exponent = _mm256_srli_epi32(v, 23);
	const __m256 sum = _mm256_add_ps(float_of(v), float_of(_mm256_permutevar8x32_epi32(magic, exponent)));
	return _mm256_sub_epi32(int_of(sum), _mm256_permutevar8x32_epi32(minus, exponent));
}

/* The values of 8 magnitudes. */
INLINE __m256 widened(const struct gp_mx_small *f, __m256i magnitudes)
{
	const __m256i bits = _mm256_slli_epi32(magnitudes, 23 - f->mantissa);
	const __m256i normal = _mm256_add_epi32(bits, _mm256_set1_epi32((127 - f->bias) << 23));
	const __m256 below = _mm256_mul_ps(_mm256_cvtepi32_ps(magnitudes), _mm256_set1_ps(f->step));
	const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(1 << f->mantissa), magnitudes);
	return _mm256_blendv_ps(float_of(normal), below, float_of(small));
}

/* Codes of 32 elements. Signs: those of numbers stay as these are cut off to bytes. */
INLINE __m256i small_codes(const struct gp_mx_small *f, const __m256 *x, const float *inverse)
{
	const int width = f->exponent + f->mantissa;
	__m256i m[4];
#pragma GCC unroll 4
	for (size_t k = 0; k < 4; k++) {
		const __m256i scaled = magnitude(_mm256_mul_ps(x[k], _mm256_set1_ps(inverse[k])));
		m[k] = width == 3 ? narrowed_to_e2m1(scaled) : narrowed(f, scaled);
	}
	const __m256i most = _mm256_set1_epi8((char)(f->numbers - 1));
	const __m256i magnitudes = _mm256_min_epu8(
		_mm256_packus_epi16(_mm256_packs_epi32(m[0], m[1]), _mm256_packs_epi32(m[2], m[3])), most);
	const __m256i signs = _mm256_packs_epi16(_mm256_packs_epi32(int_of(x[0]), int_of(x[1])),
						 _mm256_packs_epi32(int_of(x[2]), int_of(x[3])));
	const __m256i sign =
		_mm256_and_si256(_mm256_srli_epi16(signs, 7 - width), _mm256_set1_epi8((char)(1 << width)));
	return ordered(_mm256_or_si256(magnitudes, sign));
}

INLINE void write_small(const struct gp_mx_small *f, const float *inverse, const float *x, size_t n, uint8_t *packed)
{
	const int bits = 1 + f->exponent + f->mantissa;
	const uint8_t *end = packed + (n * (size_t)bits + 7) / 8;
	__m256 v[4];
	for (size_t i = 0; i < n; i += CHUNK, packed += CHUNK / 8 * bits) {
		const size_t left = n - i;
		if (left >= CHUNK && end - packed >= chunk_room(bits)) {
#pragma GCC unroll 4
			for (size_t k = 0; k < 4; k++)
				v[k] = _mm256_loadu_ps(x + i + k * LANES);
			put_chunk(small_codes(f, v, inverse + i / LANES), bits, packed);
			continue;
		}
#pragma GCC unroll 4
		for (size_t k = 0; k < 4; k++)
			v[k] = chunk_part(x + i, left, k);
		put_some(small_codes(f, v, inverse + i / LANES), left < CHUNK ? left : CHUNK, bits, packed);
	}
}

INLINE uint32_t mx_encode_format(const struct gp_mx_small *f, const float *x, size_t n, uint8_t *scales,
				 uint8_t *packed)
{
	const int bits = 1 + f->exponent + f->mantissa;
	__m256i largest = _mm256_setzero_si256();
	float inverses[LANES], inverse[VECTORS];
	for (size_t at = 0; at < n; at += BLOCKS * GP_MX_BLOCK, scales += BLOCKS) {
		const size_t here = n - at < BLOCKS * GP_MX_BLOCK ? n - at : BLOCKS * GP_MX_BLOCK;
		const size_t blocks = (here + GP_MX_BLOCK - 1) / GP_MX_BLOCK;
		const __m256i top = largest_of(x + at, here, GP_MX_BLOCK);
		const __m256i exponent =
			_mm256_max_epi32(_mm256_sub_epi32(_mm256_srli_epi32(top, 23), _mm256_set1_epi32(f->emax)),
					 _mm256_setzero_si256());
		put_bytes(exponent, blocks, scales);
		_mm256_storeu_ps(inverses,
				 float_of(_mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(254), exponent), 23)));
		spread(inverses, blocks, GP_MX_BLOCK / LANES, inverse);
		write_small(f, inverse, x + at, here, packed + at / 8 * (size_t)bits);
		largest = _mm256_max_epi32(largest, top);
	}
	return most_of(largest);
}

/* *most: the largest magnitude so far. */
INLINE __m256 small_values(const struct gp_mx_small *f, __m256i code, __m256 scale, __m256i *most)
{
	const int width = f->exponent + f->mantissa;
	const __m256i magnitudes = _mm256_and_si256(code, _mm256_set1_epi32((1 << width) - 1));
	const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(code, 31 - width), _mm256_set1_epi32(INT32_MIN));
	if (width == 3) {
		const __m256 numbers = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
		return _mm256_or_ps(_mm256_permutevar8x32_ps(_mm256_mul_ps(numbers, scale), code), float_of(sign));
	}
	if (width == 7)
		*most = _mm256_max_epi32(*most, magnitudes);
	return _mm256_or_ps(_mm256_mul_ps(widened(f, magnitudes), scale), float_of(sign));
}

/* x[0..n), at most LANES elements. */
INLINE void read_some_small(const struct gp_mx_small *f, const struct unpacker *u, __m256 scale, const uint8_t *in,
			    size_t n, float *x, __m256i *most)
{
	const int bits = 1 + f->exponent + f->mantissa;
	float y[LANES];
	_mm256_storeu_ps(y, small_values(f, unpacked(u, some_bytes(in, (n * (size_t)bits + 7) / 8)), scale, most));
	memcpy(x, y, n * sizeof *x);
}

INLINE __m256 power_values(const uint8_t *scales, size_t blocks)
{
	const __m256i exponent = get_bytes(scales, blocks);
	return _mm256_blendv_ps(float_of(_mm256_slli_epi32(exponent, 23)), _mm256_set1_ps(0x1p-127f),
				float_of(_mm256_cmpeq_epi32(exponent, _mm256_setzero_si256())));
}

/* What the scales of up to 8 blocks of 16 elements are worth. */
INLINE __m256 nv_values(float whole, const uint8_t *scales, size_t blocks)
{
	return _mm256_mul_ps(widened(&gp_mx_smalls[GP_MX_E4M3], get_bytes(scales, blocks)), _mm256_set1_ps(whole));
}

/* Blocks of `size` elements, 16 or 32; whole: that of nvfp4, whose scales are numbers of their own. Returns the largest
 * magnitude of a code, where not all are numbers. */
INLINE uint32_t decode_small(const struct gp_mx_small *f, size_t size, float whole, const uint8_t *scales,
			     const uint8_t *packed, size_t n, float *x)
{
	const size_t bits = (size_t)(1 + f->exponent + f->mantissa), part = BLOCKS * size;
	const uint8_t *end = packed + (n * bits + 7) / 8;
	const struct unpacker u = unpacker_of((int)bits);
	__m256i most = _mm256_setzero_si256();
	float scale[BLOCKS];
	for (size_t at = 0, here; at < n; at += part, scales += BLOCKS) {
		here = n - at < part ? n - at : part;
		const size_t blocks = (here + size - 1) / size;
		_mm256_storeu_ps(scale,
				 size == GP_MX_BLOCK ? power_values(scales, blocks) : nv_values(whole, scales, blocks));
		size_t i = 0;
		for (; i + size <= here && end - packed >= (ptrdiff_t)(size / LANES * bits + 16); i += size)
			for (size_t k = 0; k < size; k += LANES, packed += bits) {
				const __m256i code = unpacked(&u, _mm_loadu_si128((const __m128i *)packed));
				_mm256_storeu_ps(x + at + i + k,
						 small_values(f, code, _mm256_set1_ps(scale[i / size]), &most));
			}
		for (; i < here; i += LANES, packed += bits)
			read_some_small(f, &u, _mm256_set1_ps(scale[i / size]), packed,
					here - i < LANES ? here - i : LANES, x + at + i, &most);
	}
	return most_of(most);
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

/* Writes the scales of up to 8 blocks; `inverse` gets what their elements are multiplied by, twice. */
INLINE void nv_scales(float whole, __m256 largest, size_t blocks, uint8_t *scales, float *inverse)
{
	float values[LANES];
	const struct gp_mx_small *f = &gp_mx_smalls[GP_MX_E4M3];
	const __m256i scale =
		_mm256_min_epi32(narrowed(f, magnitude(_mm256_div_ps(largest, _mm256_set1_ps(6 * whole)))),
				 _mm256_set1_epi32(f->numbers - 1));
	const __m256 value = _mm256_mul_ps(widened(f, scale), _mm256_set1_ps(whole));
	put_bytes(scale, blocks, scales);
	_mm256_storeu_ps(values, inverse_of(value));
	spread(values, blocks, GP_NVFP4_BLOCK / LANES, inverse);
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
			const __m256 largest = float_of(largest_of(x + at + i, some, GP_NVFP4_BLOCK));
			nv_scales(whole, largest, (some + GP_NVFP4_BLOCK - 1) / GP_NVFP4_BLOCK, scales,
				  inverse + i / LANES);
		}
		write_small(&gp_mx_smalls[GP_MX_E2M1], inverse, x + at, here, packed + at / 2);
	}
}

static void nv_decode(float whole, const uint8_t *scales, const uint8_t *packed, uint16_t *room, size_t n, float *x)
{
	(void)room;
	decode_small(&gp_mx_smalls[GP_MX_E2M1], GP_NVFP4_BLOCK, whole, scales, packed, n, x);
}

const struct gp_packed_loops gp_packed_loops_avx2 = {.encode = encode,
						     .decode = decode,
						     .mx_encode = mx_encode,
						     .mx_decode = mx_decode,
						     .nv_encode = nv_encode,
						     .nv_decode = nv_decode};
