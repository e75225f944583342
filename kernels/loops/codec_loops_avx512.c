/* SPDX-License-Identifier: Apache-2.0
 *
 * Codec loops for AVX-512 (F, BW, DQ, VL). Same results, bit for bit, as
 * codec_loops_portable.c. Tables of up to 16 partitions live in one register
 * and are looked up with a permutation; larger ones are gathered.
 * See codec_loops.h. Test: tests/unit/test_codec_loops.c
 */
#include "kernels/loops/codec_loops.h"

#include <string.h>

#include "kernels/loops/avx512.h"

/* Asks for the line that comes a page later, which need not exist: processors do not follow a stream over the end of a
 * page by themselves. */
static inline void ask_for(const float *x)
{
	_mm_prefetch((const char *)((uintptr_t)x + 4096), _MM_HINT_T0);
}

struct extremes {
	__m512 min, max, poison;
};

static inline void widen(struct extremes *e, __m512 v)
{
	e->min = _mm512_min_ps(e->min, v);
	e->max = _mm512_max_ps(e->max, v);
	e->poison = _mm512_fmadd_ps(v, _mm512_setzero_ps(), e->poison);
}

static bool range(const float *x, size_t n, float *min, float *max)
{
	const __m512 first = _mm512_set1_ps(x[0]);
	struct extremes a = {first, first, _mm512_setzero_ps()}, b = a;
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		ask_for(x + i);
		ask_for(x + i + 16);
		widen(&a, _mm512_loadu_ps(x + i));
		widen(&b, _mm512_loadu_ps(x + i + 16));
	}
	for (; i < n; i += 16)
		widen(&a, _mm512_mask_loadu_ps(first, first_lanes(n - i), x + i));
	const __m512 poison = _mm512_add_ps(a.poison, b.poison);
	if (_mm512_cmp_ps_mask(poison, poison, _CMP_UNORD_Q))
		return false;
	*min = _mm512_reduce_min_ps(_mm512_min_ps(a.min, b.min)) + 0.0f;
	*max = _mm512_reduce_max_ps(_mm512_max_ps(a.max, b.max)) + 0.0f;
	return true;
}

/* Called with constant `count` and `points` (some window does not choose), so that everything about a window stays in
 * registers. */
static inline __attribute__((always_inline)) size_t sift_windows(const float *x, size_t n, struct gp_window *windows,
								 int count, bool points, float *chosen)
{
	const __m512i one = _mm512_set1_epi32(1);
	__m512 lo[GP_SIFT_WINDOWS], hi[GP_SIFT_WINDOWS];
	__m512i above[GP_SIFT_WINDOWS], inside[GP_SIFT_WINDOWS];
	__mmask16 choosing[GP_SIFT_WINDOWS];
	size_t used = 0;
#pragma GCC unroll 4
	for (int w = 0; w < count; w++) {
		lo[w] = _mm512_set1_ps(windows[w].lo);
		hi[w] = _mm512_set1_ps(windows[w].hi);
		above[w] = inside[w] = _mm512_setzero_si512();
		choosing[w] = windows[w].choose ? 0xffff : 0;
	}
	for (size_t i = 0; i + 16 <= n; i += 16) {
		const __m512 v = _mm512_loadu_ps(x + i);
		__mmask16 chosen_lanes = 0;
#pragma GCC unroll 4
		for (int w = 0; w < count; w++) {
			/* NaN is above, and not inside. */
			const __mmask16 over = _mm512_cmp_ps_mask(v, lo[w], _CMP_NLE_UQ);
			__mmask16 in = _mm512_mask_cmp_ps_mask(over, v, hi[w], _CMP_LT_OQ);
			above[w] = _mm512_mask_add_epi32(above[w], over, above[w], one);
			inside[w] = _mm512_mask_add_epi32(inside[w], in, inside[w], one);
			if (points)
				in = _kand_mask16(in, choosing[w]);
			chosen_lanes = w ? _kor_mask16(chosen_lanes, in) : in;
		}
		/* Compressed in a register: to memory it is microcoded on some processors. */
		_mm512_storeu_ps(chosen + used, _mm512_maskz_compress_ps(chosen_lanes, v));
		used += (size_t)_mm_popcnt_u32(chosen_lanes);
	}
#pragma GCC unroll 4
	for (int w = 0; w < count; w++) {
		windows[w].at_or_below += n - (uint64_t)_mm512_reduce_add_epi32(above[w]);
		windows[w].inside += (uint64_t)_mm512_reduce_add_epi32(inside[w]);
	}
	return used;
}

/* The whole vectors of x. */
static size_t sift_whole(const float *x, size_t n, struct gp_window *windows, int count, bool points, float *chosen)
{
#define SIFT(c)                                                                                                        \
	case c:                                                                                                        \
		return points ? sift_windows(x, n, windows, c, true, chosen)                                           \
			      : sift_windows(x, n, windows, c, false, chosen);
	switch (count) {
		SIFT(1)
		SIFT(2)
		SIFT(3)
		SIFT(4)
	}
#undef SIFT
	return 0;
}

static size_t sift(const float *x, size_t n, struct gp_window *windows, int count, float *chosen)
{
	const size_t whole = n & ~(size_t)15;
	bool points = false;
	for (int w = 0; w < count; w++)
		points |= !windows[w].choose;
	const size_t used = sift_whole(x, whole, windows, count, points, chosen);
	return used + gp_codec_loops_portable.sift(x + whole, n - whole, windows, count, chosen + used);
}

/* Up to 16 entries of a table column in a register; up to four are repeated in each 128-bit lane, within which a
 * permutation is cheaper. */
static inline __m512 column_of(const float *table, int split)
{
	return split <= 2 ? _mm512_broadcast_f32x4(_mm_loadu_ps(table)) : _mm512_loadu_ps(table);
}

static inline __m512 look_up(__m512 column, const float *table, __m512i index, int split)
{
	if (split <= 2)
		return _mm512_permutevar_ps(column, index);
	return split <= 4 ? _mm512_permutexvar_ps(index, column) : _mm512_i32gather_ps(index, table, 4);
}

/* A table in registers. */
struct quantizer {
	const struct gp_quant_table *table;
	__m512 middle;   /* min[parts / 2] in every lane: where the search begins */
	__m512 upper[4]; /* mins moved down by 1, 2, 4, 8: lane p is min[p + half] */
	__m512 mins, steps, divisors;
	__m512i half; /* parts / 2 */
	__m512i top;  /* highest level, also the mask of a code's level */
	__m128i bits;
};

static inline struct quantizer quantizer_of(const struct gp_quant_table *t, int split)
{
	return (struct quantizer){.table = t,
				  .middle = _mm512_set1_ps(t->min[1 << t->split >> 1]),
				  .upper = {column_of(t->min + 1, split), column_of(t->min + 2, split),
					    column_of(t->min + 4, split), column_of(t->min + 8, split)},
				  .mins = column_of(t->min, split),
				  .steps = column_of(t->step, split),
				  .divisors = column_of(t->divisor, split),
				  .half = _mm512_set1_epi32(1 << t->split >> 1),
				  .top = _mm512_set1_epi32((1 << t->bits) - 1),
				  .bits = _mm_cvtsi32_si128(t->bits)};
}

/* For vectors side by side, step by step: each is one long chain of dependent instructions. */
#define EACH for (int k = 0; k < count; k++)
enum { SIDE_BY_SIDE = 4 };

/* The partition of each lane. Called with a constant `split` up to 4, so that the search is unrolled. */
static inline __attribute__((always_inline)) void partitions_of(const struct quantizer *q, int split, int count,
								const __m512 *v, __m512i *p)
{
	__mmask16 reached[SIDE_BY_SIDE];
	if (split == 0) {
		EACH p[k] = _mm512_setzero_si512();
		return;
	}
	EACH reached[k] = _mm512_cmp_ps_mask(v[k], q->middle, _CMP_GE_OQ);
	EACH p[k] = _mm512_maskz_mov_epi32(reached[k], q->half);
#pragma GCC unroll 4
	for (int bit = split - 2; bit >= 0; bit--) {
		__m512 from[SIDE_BY_SIDE];
		EACH from[k] = look_up(q->upper[bit & 3], q->table->min + (1 << bit), p[k], split);
		EACH reached[k] = _mm512_cmp_ps_mask(v[k], from[k], _CMP_GE_OQ);
		EACH p[k] = _mm512_mask_add_epi32(p[k], reached[k], p[k], _mm512_set1_epi32(1 << bit));
	}
}

static inline __attribute__((always_inline)) void codes_of(const struct quantizer *q, int split, int count,
							   const __m512 *v, __m512i *code)
{
	__m512 above[SIDE_BY_SIDE], divisor[SIDE_BY_SIDE];
	__m512i p[SIDE_BY_SIDE];
	partitions_of(q, split, count, v, p);
	if (q->table->bits == 0) { /* the quotients of kmeans are too small to be normal numbers, and slow */
		EACH code[k] = p[k];
		return;
	}
	EACH above[k] = _mm512_sub_ps(v[k], look_up(q->mins, q->table->min, p[k], split));
	EACH divisor[k] = look_up(q->divisors, q->table->divisor, p[k], split);
	EACH above[k] = _mm512_div_ps(above[k], divisor[k]);
	EACH code[k] = _mm512_min_epi32(_mm512_cvtps_epi32(above[k]), q->top);
	EACH code[k] = _mm512_or_si512(_mm512_sll_epi32(p[k], q->bits), code[k]);
}

/* 32 numbers below 2^16 as 16-bit ones, in order. A whole line is stored: who loads it need not wait for its halves. */
static inline __m512i narrow(__m512i a, __m512i b)
{
	return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_packus_epi32(a, b));
}

static inline __attribute__((always_inline)) void quantize_split(const struct gp_quant_table *t, int split,
								 const float *x, size_t n, uint16_t *codes)
{
	const struct quantizer q = quantizer_of(t, split);
	__m512 v[SIDE_BY_SIDE];
	__m512i code[SIDE_BY_SIDE];
	size_t i = 0;
	for (; i + 16 * SIDE_BY_SIDE <= n; i += 16 * SIDE_BY_SIDE) {
		for (int k = 0; k < SIDE_BY_SIDE; k++) {
			ask_for(x + i + 16 * k);
			v[k] = _mm512_loadu_ps(x + i + 16 * k);
		}
		codes_of(&q, split, SIDE_BY_SIDE, v, code);
		for (int k = 0; k < SIDE_BY_SIDE; k += 2)
			_mm512_storeu_si512(codes + i + 16 * k, narrow(code[k], code[k + 1]));
	}
	for (; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		v[0] = _mm512_maskz_loadu_ps(lanes, x + i);
		codes_of(&q, split, 1, v, code);
		_mm256_mask_storeu_epi16(codes + i, lanes, _mm512_cvtepi32_epi16(code[0]));
	}
}

static void quantize(const struct gp_quant_table *t, const float *x, size_t n, uint16_t *codes)
{
	switch (t->split) {
	case 0:
		quantize_split(t, 0, x, n, codes);
		return;
	case 1:
		quantize_split(t, 1, x, n, codes);
		return;
	case 2:
		quantize_split(t, 2, x, n, codes);
		return;
	case 3:
		quantize_split(t, 3, x, n, codes);
		return;
	case 4:
		quantize_split(t, 4, x, n, codes);
		return;
	default:
		quantize_split(t, t->split, x, n, codes);
	}
}

static inline __attribute__((always_inline)) __m512 values_of(const struct quantizer *q, int split, __m256i codes)
{
	const __m512i code = _mm512_cvtepu16_epi32(codes), p = _mm512_srl_epi32(code, q->bits);
	const __m512 level = _mm512_cvtepi32_ps(_mm512_and_si512(code, q->top));
	const __m512 scaled = _mm512_mul_ps(level, look_up(q->steps, q->table->step, p, split));
	return _mm512_add_ps(scaled, look_up(q->mins, q->table->min, p, split));
}

static inline __attribute__((always_inline)) void dequantize_split(const struct gp_quant_table *t, int split,
								   const uint16_t *codes, size_t n, float *x)
{
	const struct quantizer q = quantizer_of(t, split);
	size_t i = 0;
	for (; i + 16 <= n; i += 16)
		_mm512_storeu_ps(x + i, values_of(&q, split, _mm256_loadu_si256((const __m256i *)(codes + i))));
	const __mmask16 rest = first_lanes(n - i);
	_mm512_mask_storeu_ps(x + i, rest, values_of(&q, split, _mm256_maskz_loadu_epi16(rest, codes + i)));
}

static void dequantize(const struct gp_quant_table *t, const uint16_t *codes, size_t n, float *x)
{
	if (t->split <= 2)
		dequantize_split(t, 2, codes, n, x);
	else if (t->split <= 4)
		dequantize_split(t, 4, codes, n, x);
	else
		dequantize_split(t, t->split, codes, n, x);
}

/* 32 codes to 4 * width bytes; writes 16 bytes at each of out + 0, 1, 2, 3 * width. */
static inline void pack_32(const uint16_t *codes, int width, uint8_t *out)
{
	const __m512i v = _mm512_loadu_si512(codes);
	/* Two codes per 32 bits, four per 64, eight per 128, always from bit 0. */
	const __m512i pairs = _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi32(0xffff)),
					      _mm512_sll_epi32(_mm512_srli_epi32(v, 16), _mm_cvtsi32_si128(width)));
	const __m512i fours =
		_mm512_or_si512(_mm512_and_si512(pairs, _mm512_set1_epi64(0xffffffff)),
				_mm512_sll_epi64(_mm512_srli_epi64(pairs, 32), _mm_cvtsi32_si128(2 * width)));
	const __m512i swapped = _mm512_shuffle_epi32(fours, _MM_PERM_BADC);
	const __m512i right = _mm512_broadcast_i64x2(_mm_set_epi64x(64 - 4 * width, 0));
	const __m512i left = _mm512_broadcast_i64x2(_mm_set_epi64x(64, 4 * width));
	const __m512i eights = _mm512_or_si512(_mm512_srlv_epi64(fours, right), _mm512_sllv_epi64(swapped, left));
	_mm_storeu_si128((__m128i *)out, _mm512_castsi512_si128(eights));
	_mm_storeu_si128((__m128i *)(out + width), _mm512_extracti32x4_epi32(eights, 1));
	_mm_storeu_si128((__m128i *)(out + 2 * width), _mm512_extracti32x4_epi32(eights, 2));
	_mm_storeu_si128((__m128i *)(out + 3 * width), _mm512_extracti32x4_epi32(eights, 3));
}

/* Everything but whole bytes. The last codes go through a block with room for the stores of 16 bytes. */
static void pack_bits(const uint16_t *codes, size_t n, int width, uint8_t *out)
{
	const uint8_t *end = out + (n * (size_t)width + 7) / 8;
	size_t i = 0;
	for (; i + 32 <= n && end - out >= 3 * width + 16; i += 32, out += 4 * width)
		pack_32(codes + i, width, out);
	while (i < n) {
		uint16_t last[32] = {0};
		uint8_t packed[4 * 16 + 16];
		size_t count = n - i < 32 ? n - i : 32, bytes = (count * (size_t)width + 7) / 8;
		memcpy(last, codes + i, count * sizeof *codes);
		pack_32(last, width, packed);
		memcpy(out, packed, bytes);
		out += bytes;
		i += count;
	}
}

static void pack_bytes(const uint16_t *codes, size_t n, uint8_t *out)
{
	const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	size_t i = 0;
	for (; i + 64 <= n; i += 64) {
		const __m512i low = _mm512_loadu_si512(codes + i), high = _mm512_loadu_si512(codes + i + 32);
		_mm512_storeu_si512(out + i, _mm512_permutexvar_epi64(order, _mm512_packus_epi16(low, high)));
	}
	for (; i < n; i += 32) {
		const __mmask32 lanes = n - i >= 32 ? 0xffffffffu : (1u << (n - i)) - 1;
		const __m512i v = _mm512_maskz_loadu_epi16(lanes, codes + i);
		_mm256_mask_storeu_epi8(out + i, lanes, _mm512_cvtepi16_epi8(v));
	}
}

static void pack(const uint16_t *codes, size_t n, int width, uint8_t *out)
{
	if (width == 8)
		pack_bytes(codes, n, out);
	else if (width == 16)
		memcpy(out, codes, 2 * n);
	else
		pack_bits(codes, n, width, out);
}

/* Per code i of 8: the four bytes from byte i * width / 8 on, and by how many bits they are too far left. */
struct unpacker {
	__m512i bytes, shift, mask;
};

static struct unpacker unpacker_of(int width)
{
	uint8_t byte[64];
	uint32_t shift[16];
	for (int i = 0; i < 16; i++) {
		const int bit = i % 8 * width;
		shift[i] = (uint32_t)bit % 8;
		for (int b = 0; b < 4; b++)
			byte[4 * i + b] = bit / 8 + b < 16 ? (uint8_t)(bit / 8 + b) : 0x80;
	}
	return (struct unpacker){_mm512_loadu_si512(byte), _mm512_loadu_si512(shift),
				 _mm512_set1_epi32((1 << width) - 1)};
}

/* 16 codes from 2 * width bytes; reads 16 bytes at in and at in + width. */
static inline void unpack_16(const struct unpacker *u, const uint8_t *in, int width, uint16_t *codes)
{
	const __m256i a = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)in));
	const __m256i b = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(in + width)));
	const __m512i words = _mm512_shuffle_epi8(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1), u->bytes);
	const __m512i code = _mm512_and_si512(_mm512_srlv_epi32(words, u->shift), u->mask);
	_mm256_storeu_si256((__m256i *)codes, _mm512_cvtepi32_epi16(code));
}

static void unpack_bits(const uint8_t *in, size_t n, int width, uint16_t *codes)
{
	const struct unpacker u = unpacker_of(width);
	const uint8_t *end = in + (n * (size_t)width + 7) / 8;
	size_t i = 0;
	for (; i + 16 <= n && end - in >= width + 16; i += 16, in += 2 * width)
		unpack_16(&u, in, width, codes + i);
	while (i < n) {
		uint16_t last[16];
		uint8_t packed[2 * 16 + 16] = {0};
		size_t count = n - i < 16 ? n - i : 16, bytes = (count * (size_t)width + 7) / 8;
		memcpy(packed, in, bytes);
		unpack_16(&u, packed, width, last);
		memcpy(codes + i, last, count * sizeof *codes);
		in += bytes;
		i += count;
	}
}

static void unpack_bytes(const uint8_t *in, size_t n, uint16_t *codes)
{
	for (size_t i = 0; i < n; i += 32) {
		const __mmask32 lanes = n - i >= 32 ? 0xffffffffu : (1u << (n - i)) - 1;
		const __m256i v = _mm256_maskz_loadu_epi8(lanes, in + i);
		_mm512_mask_storeu_epi16(codes + i, lanes, _mm512_cvtepu8_epi16(v));
	}
}

static void unpack(const uint8_t *in, size_t n, int width, uint16_t *codes)
{
	if (width == 8)
		unpack_bytes(in, n, codes);
	else if (width == 16)
		memcpy(codes, in, 2 * n);
	else
		unpack_bits(in, n, width, codes);
}

/* The largest 16-bit magnitude of each lane so far. */
static inline __m512i take_magnitudes(__m512i largest, __m512i h)
{
	return _mm512_max_epu16(largest, _mm512_and_si512(h, _mm512_set1_epi16(0x7fff)));
}

/* True when no 16-bit magnitude seen is at or above the format's infinity. */
static inline bool all_below(__m512i largest, int infinity)
{
	return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16((short)infinity)) == 0;
}

static inline __m512i two_halves(__m256i low, __m256i high)
{
	return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Whole lines are stored, here and below: half lines were measured to cost half the speed where the output is not in
 * the cache. */
static bool to_fp16(const float *x, size_t n, uint8_t *out)
{
	__m512i largest = _mm512_setzero_si512();
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		const __m256i low = _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
		const __m256i high = _mm512_cvtps_ph(_mm512_loadu_ps(x + i + 16), _MM_FROUND_TO_NEAREST_INT);
		const __m512i h = two_halves(low, high);
		largest = take_magnitudes(largest, h);
		_mm512_storeu_si512(out + 2 * i, h);
	}
	for (; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m256i h = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(lanes, x + i), _MM_FROUND_TO_NEAREST_INT);
		largest = take_magnitudes(largest, _mm512_zextsi256_si512(h));
		_mm256_mask_storeu_epi16(out + 2 * i, lanes, h);
	}
	return all_below(largest, 0x7c00);
}

static bool from_fp16(const uint8_t *in, size_t n, float *x)
{
	__m512i largest = _mm512_setzero_si512();
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		const __m512i h = _mm512_loadu_si512(in + 2 * i);
		largest = take_magnitudes(largest, h);
		_mm512_storeu_ps(x + i, _mm512_cvtph_ps(_mm512_castsi512_si256(h)));
		_mm512_storeu_ps(x + i + 16, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)));
	}
	for (; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m256i h = _mm256_maskz_loadu_epi16(lanes, in + 2 * i);
		largest = take_magnitudes(largest, _mm512_zextsi256_si512(h));
		_mm512_mask_storeu_ps(x + i, lanes, _mm512_cvtph_ps(h));
	}
	return all_below(largest, 0x7c00);
}

/* The rounded value's upper half is the result. In integers: the processor's own conversion flushes subnormals. */
static inline __m512i round_to_bf16(__m512i u)
{
	const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
	return _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
}

/* The largest magnitude is that of x: rounding may carry a NaN around to zero. */
static inline __m512i take_words(__m512i largest, __m512i u)
{
	return _mm512_max_epu32(largest, _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff)));
}

static bool to_bf16(const float *x, size_t n, uint8_t *out)
{
	static const uint16_t odds[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
					  33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
	const __m512i upper = _mm512_loadu_si512(odds);
	__m512i largest = _mm512_setzero_si512();
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		const __m512i a = _mm512_loadu_si512(x + i), b = _mm512_loadu_si512(x + i + 16);
		largest = take_words(take_words(largest, a), b);
		const __m512i h = _mm512_permutex2var_epi16(round_to_bf16(a), upper, round_to_bf16(b));
		_mm512_storeu_si512(out + 2 * i, h);
	}
	for (; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m512i u = _mm512_maskz_loadu_epi32(lanes, x + i);
		largest = take_words(largest, u);
		const __m256i h = _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_to_bf16(u), 16));
		_mm256_mask_storeu_epi16(out + 2 * i, lanes, h);
	}
	return _mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(0x7f7f8000)) == 0;
}

static inline __m512i widen_bf16(__m256i h)
{
	return _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
}

static bool from_bf16(const uint8_t *in, size_t n, float *x)
{
	__m512i largest = _mm512_setzero_si512();
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		const __m512i h = _mm512_loadu_si512(in + 2 * i);
		largest = take_magnitudes(largest, h);
		_mm512_storeu_si512(x + i, widen_bf16(_mm512_castsi512_si256(h)));
		_mm512_storeu_si512(x + i + 16, widen_bf16(_mm512_extracti64x4_epi64(h, 1)));
	}
	for (; i < n; i += 16) {
		const __mmask16 lanes = first_lanes(n - i);
		const __m256i h = _mm256_maskz_loadu_epi16(lanes, in + 2 * i);
		largest = take_magnitudes(largest, _mm512_zextsi256_si512(h));
		_mm512_mask_storeu_epi32(x + i, lanes, widen_bf16(h));
	}
	return all_below(largest, 0x7f80);
}

const struct gp_codec_loops gp_codec_loops_avx512 = {
	.name = "avx512",
	.range = range,
	.sift = sift,
	.quantize = quantize,
	.dequantize = dequantize,
	.pack = pack,
	.unpack = unpack,
	.to_fp16 = to_fp16,
	.to_bf16 = to_bf16,
	.from_fp16 = from_fp16,
	.from_bf16 = from_bf16,
};
