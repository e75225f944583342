/* SPDX-License-Identifier: Apache-2.0
 *
 * Codec loops for AVX2 (with FMA, F16C, BMI2). Same results, bit for bit, as
 * codec_loops_portable.c, which also does the elements behind the last full
 * register. Tables of up to 16 partitions live in registers.
 * See codec_loops.h. Test: tests/unit/test_codec_loops.c
 */
#include "kernels/loops/codec_loops.h"

#include <string.h>

#include "kernels/loops/avx2.h"

#define REST gp_codec_loops_portable

struct extremes {
	__m256 min, max, poison;
};

static inline void widen(struct extremes *e, __m256 v)
{
	e->min = _mm256_min_ps(e->min, v);
	e->max = _mm256_max_ps(e->max, v);
	e->poison = _mm256_fmadd_ps(v, _mm256_setzero_ps(), e->poison);
}

/* The extremes of the lanes and of what is in *min and *max already. */
static void reduce(const struct extremes *e, float *min, float *max)
{
	float lo[8], hi[8];
	_mm256_storeu_ps(lo, e->min);
	_mm256_storeu_ps(hi, e->max);
	for (int i = 0; i < 8; i++) {
		*min = lo[i] < *min ? lo[i] : *min;
		*max = hi[i] > *max ? hi[i] : *max;
	}
	*min += 0.0f;
	*max += 0.0f;
}

static bool range(const float *x, size_t n, float *min, float *max)
{
	const __m256 first = _mm256_set1_ps(x[0]);
	struct extremes a = {first, first, _mm256_setzero_ps()}, b = a;
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		widen(&a, _mm256_loadu_ps(x + i));
		widen(&b, _mm256_loadu_ps(x + i + 8));
	}
	float lo = x[0], hi = x[0];
	if (i < n && !REST.range(x + i, n - i, &lo, &hi))
		return false;
	const __m256 poison = _mm256_add_ps(a.poison, b.poison);
	if (_mm256_movemask_ps(_mm256_cmp_ps(poison, poison, _CMP_UNORD_Q)))
		return false;
	reduce(&a, &lo, &hi);
	reduce(&b, &lo, &hi);
	*min = lo;
	*max = hi;
	return true;
}

/* The chosen lanes moved to the front. */
static inline __m256 compress(__m256 v, unsigned lanes)
{
	const uint64_t bytes = _pdep_u64(lanes, 0x0101010101010101u) * 0xff;
	const uint64_t order = _pext_u64(0x0706050403020100u, bytes);
	return _mm256_permutevar8x32_ps(v, _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)order)));
}

static uint64_t sum_lanes(__m256i v)
{
	uint32_t lane[8], sum = 0;
	_mm256_storeu_si256((__m256i *)lane, v);
	for (int i = 0; i < 8; i++)
		sum += lane[i];
	return sum;
}

/* Called with a constant `count`, so that everything about a window stays in registers. */
static inline __attribute__((always_inline)) size_t sift_windows(const float *x, size_t n, struct gp_window *windows,
								 int count, float *chosen)
{
	__m256i below[GP_SIFT_WINDOWS], inside[GP_SIFT_WINDOWS];
	size_t used = 0;
#pragma GCC unroll 4
	for (int w = 0; w < count; w++)
		below[w] = inside[w] = _mm256_setzero_si256();
	for (size_t i = 0; i + 8 <= n; i += 8) {
		const __m256 v = _mm256_loadu_ps(x + i);
		__m256 chosen_lanes = _mm256_setzero_ps();
#pragma GCC unroll 4
		for (int w = 0; w < count; w++) {
			const __m256 under = _mm256_cmp_ps(v, _mm256_set1_ps(windows[w].lo), _CMP_LE_OQ);
			const __m256 left = _mm256_cmp_ps(v, _mm256_set1_ps(windows[w].hi), _CMP_LT_OQ);
			const __m256 in = _mm256_andnot_ps(under, left);
			/* A lane of a true comparison is -1. */
			below[w] = _mm256_sub_epi32(below[w], _mm256_castps_si256(under));
			inside[w] = _mm256_sub_epi32(inside[w], _mm256_castps_si256(in));
			if (windows[w].choose)
				chosen_lanes = _mm256_or_ps(chosen_lanes, in);
		}
		const unsigned lanes = (unsigned)_mm256_movemask_ps(chosen_lanes);
		_mm256_storeu_ps(chosen + used, compress(v, lanes));
		used += (size_t)_mm_popcnt_u32(lanes);
	}
#pragma GCC unroll 4
	for (int w = 0; w < count; w++) {
		windows[w].at_or_below += sum_lanes(below[w]);
		windows[w].inside += sum_lanes(inside[w]);
	}
	return used;
}

static size_t sift(const float *x, size_t n, struct gp_window *windows, int count, float *chosen)
{
	const size_t whole = n & ~(size_t)7;
	size_t used = 0;
	switch (count) {
	case 1:
		used = sift_windows(x, whole, windows, 1, chosen);
		break;
	case 2:
		used = sift_windows(x, whole, windows, 2, chosen);
		break;
	case 3:
		used = sift_windows(x, whole, windows, 3, chosen);
		break;
	case 4:
		used = sift_windows(x, whole, windows, 4, chosen);
		break;
	}
	return used + REST.sift(x + whole, n - whole, windows, count, chosen + used);
}

/* A table column of up to 16 entries. */
struct column {
	const float *memory;
	__m256 low, high;
};

static inline struct column column_of(const float *table)
{
	return (struct column){table, _mm256_loadu_ps(table), _mm256_loadu_ps(table + 8)};
}

static inline __m256 look_up(const struct column *c, __m256i index, int split)
{
	if (split <= 3)
		return _mm256_permutevar8x32_ps(c->low, index);
	if (split > 4)
		return _mm256_i32gather_ps(c->memory, index, 4);
	return _mm256_blendv_ps(_mm256_permutevar8x32_ps(c->low, index), _mm256_permutevar8x32_ps(c->high, index),
				_mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}

/* Eight codes of eight elements. alone: partitions have one level; the quotients of kmeans, which has such ones, are too
 * small to be normal numbers, and slow. */
static inline __attribute__((always_inline)) __m256i codes_of(__m256 v, const struct column *min,
							      const struct column *divisor, int split, bool alone,
							      __m256i top, __m128i bits)
{
	__m256i p = _mm256_setzero_si256();
	for (int half = 1 << split >> 1; half; half >>= 1) {
		const __m256i next = _mm256_add_epi32(p, _mm256_set1_epi32(half));
		const __m256 reached = _mm256_cmp_ps(v, look_up(min, next, split), _CMP_GE_OQ);
		p = _mm256_blendv_epi8(p, next, _mm256_castps_si256(reached));
	}
	if (alone)
		return p;
	const __m256 above = _mm256_sub_ps(v, look_up(min, p, split));
	const __m256i level = _mm256_cvtps_epi32(_mm256_div_ps(above, look_up(divisor, p, split)));
	return _mm256_or_si256(_mm256_sll_epi32(p, bits), _mm256_min_epi32(level, top));
}

/* Sixteen 32-bit values below 2^16 as 16-bit ones, in order. */
static inline __m256i narrow(__m256i a, __m256i b)
{
	return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

static inline __attribute__((always_inline)) void quantize_split(const struct gp_quant_table *t, int split,
								 const float *x, size_t n, uint16_t *codes)
{
	const struct column min = column_of(t->min), divisor = column_of(t->divisor);
	const __m256i top = _mm256_set1_epi32((1 << t->bits) - 1);
	const __m128i bits = _mm_cvtsi32_si128(t->bits);
	const bool alone = t->bits == 0;
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		const __m256i a = codes_of(_mm256_loadu_ps(x + i), &min, &divisor, split, alone, top, bits);
		const __m256i b = codes_of(_mm256_loadu_ps(x + i + 8), &min, &divisor, split, alone, top, bits);
		_mm256_storeu_si256((__m256i *)(codes + i), narrow(a, b));
	}
	REST.quantize(t, x + i, n - i, codes + i);
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

static inline __attribute__((always_inline)) void dequantize_split(const struct gp_quant_table *t, int split,
								   const uint16_t *codes, size_t n, float *x)
{
	const struct column min = column_of(t->min), step = column_of(t->step);
	const __m256i mask = _mm256_set1_epi32((1 << t->bits) - 1);
	const __m128i bits = _mm_cvtsi32_si128(t->bits);
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		const __m256i code = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(codes + i)));
		const __m256i p = _mm256_srl_epi32(code, bits);
		const __m256 level = _mm256_cvtepi32_ps(_mm256_and_si256(code, mask));
		const __m256 scaled = _mm256_mul_ps(level, look_up(&step, p, split));
		_mm256_storeu_ps(x + i, _mm256_add_ps(scaled, look_up(&min, p, split)));
	}
	REST.dequantize(t, codes + i, n - i, x + i);
}

static void dequantize(const struct gp_quant_table *t, const uint16_t *codes, size_t n, float *x)
{
	if (t->split <= 3)
		dequantize_split(t, 3, codes, n, x);
	else if (t->split == 4)
		dequantize_split(t, 4, codes, n, x);
	else
		dequantize_split(t, t->split, codes, n, x);
}

/* 16 codes to 2 * width bytes; writes 16 bytes at out and at out + width. */
static inline void pack_16(const uint16_t *codes, int width, uint8_t *out)
{
	const __m256i v = _mm256_loadu_si256((const __m256i *)codes);
	/* Two codes per 32 bits, four per 64, eight per 128, always from bit 0. */
	const __m256i pairs = _mm256_or_si256(_mm256_and_si256(v, _mm256_set1_epi32(0xffff)),
					      _mm256_sll_epi32(_mm256_srli_epi32(v, 16), _mm_cvtsi32_si128(width)));
	const __m256i fours =
		_mm256_or_si256(_mm256_and_si256(pairs, _mm256_set1_epi64x(0xffffffff)),
				_mm256_sll_epi64(_mm256_srli_epi64(pairs, 32), _mm_cvtsi32_si128(2 * width)));
	const __m256i swapped = _mm256_shuffle_epi32(fours, 0x4e);
	const __m256i right = _mm256_set_epi64x(64 - 4 * width, 0, 64 - 4 * width, 0);
	const __m256i left = _mm256_set_epi64x(64, 4 * width, 64, 4 * width);
	const __m256i eights = _mm256_or_si256(_mm256_srlv_epi64(fours, right), _mm256_sllv_epi64(swapped, left));
	_mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(eights));
	_mm_storeu_si128((__m128i *)(out + width), _mm256_extracti128_si256(eights, 1));
}

/* Everything but whole bytes. The last codes go through a block with room for the stores of 16 bytes. */
static void pack_bits(const uint16_t *codes, size_t n, int width, uint8_t *out)
{
	const uint8_t *end = out + (n * (size_t)width + 7) / 8;
	size_t i = 0;
	for (; i + 16 <= n && end - out >= width + 16; i += 16, out += 2 * width)
		pack_16(codes + i, width, out);
	while (i < n) {
		uint16_t last[16] = {0};
		uint8_t packed[2 * 16 + 16];
		size_t count = n - i < 16 ? n - i : 16, bytes = (count * (size_t)width + 7) / 8;
		memcpy(last, codes + i, count * sizeof *codes);
		pack_16(last, width, packed);
		memcpy(out, packed, bytes);
		out += bytes;
		i += count;
	}
}

static void pack_bytes(const uint16_t *codes, size_t n, uint8_t *out)
{
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		const __m256i a = _mm256_loadu_si256((const __m256i *)(codes + i));
		const __m256i b = _mm256_loadu_si256((const __m256i *)(codes + i + 16));
		_mm256_storeu_si256((__m256i *)(out + i), _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8));
	}
	REST.pack(codes + i, n - i, 8, out + i);
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
	__m256i bytes, shift, mask;
};

static struct unpacker unpacker_of(int width)
{
	uint8_t byte[32];
	uint32_t shift[8];
	for (int i = 0; i < 8; i++) {
		const int bit = i * width;
		shift[i] = (uint32_t)bit % 8;
		for (int b = 0; b < 4; b++)
			byte[4 * i + b] = bit / 8 + b < 16 ? (uint8_t)(bit / 8 + b) : 0x80;
	}
	return (struct unpacker){_mm256_loadu_si256((const __m256i *)byte), _mm256_loadu_si256((const __m256i *)shift),
				 _mm256_set1_epi32((1 << width) - 1)};
}

/* Eight codes from the front of 16 bytes. */
static inline __m256i unpack_8(const struct unpacker *u, const uint8_t *in)
{
	const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)in));
	return _mm256_and_si256(_mm256_srlv_epi32(_mm256_shuffle_epi8(bytes, u->bytes), u->shift), u->mask);
}

static inline void unpack_16(const struct unpacker *u, const uint8_t *in, int width, uint16_t *codes)
{
	_mm256_storeu_si256((__m256i *)codes, narrow(unpack_8(u, in), unpack_8(u, in + width)));
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
	size_t i = 0;
	for (; i + 16 <= n; i += 16)
		_mm256_storeu_si256((__m256i *)(codes + i),
				    _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(in + i))));
	REST.unpack(in + i, n - i, 8, codes + i);
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

/* True when no 16-bit magnitude seen is at or above the format's infinity. */
static bool all_below(__m256i largest, int infinity)
{
	const __m256i at_least = _mm256_max_epu16(largest, _mm256_set1_epi16((short)infinity));
	return _mm256_movemask_epi8(_mm256_cmpeq_epi16(at_least, largest)) == 0;
}

static inline __m256i magnitude_of(__m256i halves)
{
	return _mm256_and_si256(halves, _mm256_set1_epi16(0x7fff));
}

static bool to_fp16(const float *x, size_t n, uint8_t *out)
{
	__m256i largest = _mm256_setzero_si256();
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		const __m128i a = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
		const __m128i b = _mm256_cvtps_ph(_mm256_loadu_ps(x + i + 8), _MM_FROUND_TO_NEAREST_INT);
		const __m256i h = _mm256_set_m128i(b, a);
		largest = _mm256_max_epu16(largest, magnitude_of(h));
		_mm256_storeu_si256((__m256i *)(out + 2 * i), h);
	}
	return REST.to_fp16(x + i, n - i, out + 2 * i) && all_below(largest, 0x7c00);
}

static bool from_fp16(const uint8_t *in, size_t n, float *x)
{
	__m256i largest = _mm256_setzero_si256();
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		const __m256i h = _mm256_loadu_si256((const __m256i *)(in + 2 * i));
		largest = _mm256_max_epu16(largest, magnitude_of(h));
		_mm256_storeu_ps(x + i, _mm256_cvtph_ps(_mm256_castsi256_si128(h)));
		_mm256_storeu_ps(x + i + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
	}
	return REST.from_fp16(in + 2 * i, n - i, x + i) && all_below(largest, 0x7c00);
}

/* Eight bfloat16 in 32-bit lanes; rounding may carry a NaN around to zero, so those are noted apart. */
static inline __m256i round_bf16(const float *x, __m256 *nan)
{
	const __m256 v = _mm256_loadu_ps(x);
	const __m256i u = _mm256_castps_si256(v);
	const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
	*nan = _mm256_or_ps(*nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
	return _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
}

static bool to_bf16(const float *x, size_t n, uint8_t *out)
{
	__m256i largest = _mm256_setzero_si256();
	__m256 nan = _mm256_setzero_ps();
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		const __m256i h = narrow(round_bf16(x + i, &nan), round_bf16(x + i + 8, &nan));
		largest = _mm256_max_epu16(largest, magnitude_of(h));
		_mm256_storeu_si256((__m256i *)(out + 2 * i), h);
	}
	return REST.to_bf16(x + i, n - i, out + 2 * i) && !_mm256_movemask_ps(nan) && all_below(largest, 0x7f80);
}

static bool from_bf16(const uint8_t *in, size_t n, float *x)
{
	__m256i largest = _mm256_setzero_si256();
	size_t i = 0;
	for (; i + 16 <= n; i += 16) {
		const __m256i h = _mm256_loadu_si256((const __m256i *)(in + 2 * i));
		const __m256i a = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(h));
		const __m256i b = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(h, 1));
		largest = _mm256_max_epu16(largest, magnitude_of(h));
		_mm256_storeu_si256((__m256i *)(x + i), _mm256_slli_epi32(a, 16));
		_mm256_storeu_si256((__m256i *)(x + i + 8), _mm256_slli_epi32(b, 16));
	}
	return REST.from_bf16(in + 2 * i, n - i, x + i) && all_below(largest, 0x7f80);
}

const struct gp_codec_loops gp_codec_loops_avx2 = {
	.name = "avx2",
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
