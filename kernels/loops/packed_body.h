/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks with a scale, coded and packed in registers: the loops of packed_loops.h, written with the registers of
 * packed_vec_avx2.h or packed_vec_avx512.h, whichever was included before. What has no loop here (clip=mse, stochastic
 * rounding, blocks that are no multiple of a register) is coded and packed one after the other.
 *
 * Encoding goes by parts of about 1024 elements: the reaches of some blocks, as many as a register has lanes, then their scales
 * side by side, and when all blocks of a part have theirs, codes, four registers at a time. A part's scales are made before the
 * codes of the part in front of it, so that nothing waits for divisions.
 *
 * Only for packed_loops_avx2.c and packed_loops_avx512.c.
 *
 * Threads: any; the functions touch only memory that they are given. Test: tests/unit/test_packed_loops.c
 */
#ifndef GP_PACKED_BODY_H
#define GP_PACKED_BODY_H

#include "kernels/loops/packed_loops.h"

#include "kernels/loops/codec_loops.h"
#include "kernels/loops/mx_format.h"

enum { BLOCKS = LANES, CHUNK = 4 * LANES }; /* blocks and elements that are coded at a time */
enum { PART = 1024 };                       /* no part has more elements */
enum { VECTORS = PART / LANES + LANES };    /* registers of a part, and room to write too many */
enum { LINE = 16 };                         /* elements of a cache line */

/* Asks for the line that comes a page later, which need not exist: processors do not follow a stream over the end of a
 * page by themselves. */
GP_INLINE void ask_for(const float *x)
{
	__builtin_prefetch((const char *)((uintptr_t)x + 4096), 0, 3);
}

GP_INLINE ints magnitude(floats v)
{
	return i_and(i_of(v), i_all(0x7fffffff));
}

/* 1 / v, or 0 where v is not above 0. */
GP_INLINE floats inverse_of(floats v)
{
	const floats none = f_all(0), one = f_all(1);
	return f_where_less(none, v, f_div(one, f_where_less(none, v, v, one)), none);
}

/* --- the largest of each block ---------------------------------------------------------------------------------- */

/* Lane i: bits of the largest magnitude of block i of x[0..n), at most BLOCKS blocks; 0 where there is none. */
GP_INLINE ints largest_of(const float *x, size_t n, size_t size)
{
	ints top[BLOCKS];
	size_t blocks = 0, at = 0;
	for (; at + size <= n; blocks++) {
		ints most = i_all(0);
#pragma GCC unroll 4
		for (size_t line = 0; line < size / LINE; line++, at += LINE) {
			ask_for(x + at);
			for (size_t k = 0; k < LINE; k += LANES)
				most = i_max(most, magnitude(f_load(x + at + k)));
		}
		for (size_t k = size / LINE * LINE; k < size; k += LANES, at += LANES)
			most = i_max(most, magnitude(f_load(x + at)));
		top[blocks] = most;
	}
	if (at < n) {
		ints most = i_all(0);
		for (; at < n; at += LANES)
			most = i_max(most, magnitude(f_some(x + at, n - at)));
		top[blocks++] = most;
	}
	for (; blocks < BLOCKS; blocks++)
		top[blocks] = i_all(0);
	return fold_all(MOST_INT, top);
}

/* Least and largest of each block, 0 being among them; NaN is neither. */
GP_INLINE void range_of(const float *x, size_t n, size_t size, floats *least, floats *most)
{
	ints low[BLOCKS], high[BLOCKS];
	size_t blocks = 0;
	for (size_t at = 0; at < n; blocks++) {
		const size_t end = at + size < n ? at + size : n;
		floats a = f_all(0), b = a;
		for (; at + LANES <= end; at += LANES) {
			a = f_min(f_load(x + at), a);
			b = f_max(f_load(x + at), b);
		}
		if (at < end) {
			a = f_min(f_some(x + at, end - at), a);
			b = f_max(f_some(x + at, end - at), b);
			at = end;
		}
		low[blocks] = i_of(a);
		high[blocks] = i_of(b);
	}
	for (; blocks < BLOCKS; blocks++)
		low[blocks] = high[blocks] = i_all(0);
	*least = f_of(fold_all(LEAST, low));
	*most = f_of(fold_all(MOST, high));
}

/* --- scales of up to BLOCKS blocks ------------------------------------------------------------------------------ */

/* What the elements of each register of a part are multiplied by, and what is added to their levels. */
struct factors {
	float inverse[VECTORS];
	int32_t zero[VECTORS];
};

/* What `step_of` and `clipped_least` of block_loops.c do, for lanes. */
GP_INLINE floats zero_points(floats scale, floats inverse, floats reach, floats least, float top)
{
	const floats covered = f_mul(scale, f_all(top)), rounder = f_all(0x1.8p23f);
	const floats share = f_div(covered, f_where_less(covered, reach, reach, f_all(1)));
	const floats low = f_where_less(covered, reach, f_mul(least, share), least);
	const floats negative = f_of(i_xor(i_of(low), i_all(INT32_MIN)));
	const floats zero = f_min(f_max(f_mul(negative, inverse), f_all(0)), f_all(top));
	return f_sub(f_add(zero, rounder), rounder);
}

/* Writes the scales of `blocks` blocks with these reaches. Returns what they are worth. */
GP_INLINE floats put_scales(const struct gp_block_form *form, floats reach, float top, size_t blocks, uint8_t *scales)
{
	const floats t = f_div(reach, f_all(top));
	if (!form->e8m0)
		return f_mul(put_halves(f_mul(t, f_all(form->by_unit)), blocks, scales), f_all(form->unit));
	const ints up = i_add(i_of(t), i_all(0x7fffff));
	const ints exponent = i_min_unsigned(i_max_unsigned(i_right(up, 23), i_all(1)), i_all(254));
	put_bytes(exponent, blocks, scales);
	return f_of(i_left(exponent, 23));
}

/* Scales, zero points and factors of the blocks of x[0..n), at most BLOCKS of them. Returns the bits of the largest reach, or
 * magnitude where that is more, of each. `vector`: the first register of x in its part. */
GP_INLINE ints measure_some(const struct gp_block_form *form, bool asym, float top, const float *x, size_t n,
			    uint8_t *scales, uint8_t *zeros, size_t vector, struct factors *f)
{
	const size_t size = form->size, blocks = (n + size - 1) / size;
	ints largest = largest_of(x, n, size);
	floats least = f_all(0), reach = f_of(largest);
	if (asym) {
		floats most;
		range_of(x, n, size, &least, &most);
		reach = f_sub(most, least);
		largest = i_max(largest, magnitude(reach));
	}
	const floats scale = put_scales(form, reach, top, blocks, scales), inverse = inverse_of(scale);
	spread(inverse, blocks, size / LANES, f->inverse + vector);
	if (asym) {
		const ints zero = i_round(zero_points(scale, inverse, reach, least, top));
		put_bytes(zero, blocks, zeros);
		spread(f_of(zero), blocks, size / LANES, (float *)f->zero + vector);
	}
	return largest;
}

/* The same for a part. */
GP_INLINE ints measure(const struct gp_block_form *form, bool asym, float top, const float *x, size_t n,
		       uint8_t *scales, uint8_t *zeros, struct factors *f)
{
	const size_t most = BLOCKS * form->size;
	ints largest = i_all(0);
	for (size_t at = 0; at < n; at += most, scales += BLOCKS * (form->e8m0 ? 1 : 2), zeros += BLOCKS) {
		const size_t here = n - at < most ? n - at : most;
		largest = i_max(largest, measure_some(form, asym, top, x + at, here, scales, zeros, at / LANES, f));
	}
	return largest;
}

/* --- block ------------------------------------------------------------------------------------------------------ */

/* Levels, or codes where `zero` is added, of a register. */
GP_INLINE ints level_of(floats x, float inverse, bool asym, int32_t zero)
{
	const ints level = i_round(f_mul(x, f_all(inverse)));
	return asym ? i_add(level, i_all(zero)) : level;
}

/* Codes of levels beyond the top are the top's: numbers are cut off as they become narrower, and then once more. */
GP_INLINE ints codes_of(const ints *level, int bits, bool asym)
{
	const ints low = to_words(level[0], level[1]), high = to_words(level[2], level[3]);
	if (asym)
		return ordered(b_min_unsigned(to_bytes_unsigned(low, high), b_all((1 << bits) - 1)));
	const ints top = b_all((1 << (bits - 1)) - 1), least = b_sub(i_all(0), top);
	const ints narrow = b_min(b_max(to_bytes(low, high), least), top);
	return ordered(b_add(narrow, b_all(1 << (bits - 1))));
}

/* What is left of n elements behind `before`. */
GP_INLINE size_t left_of(size_t n, size_t before)
{
	return n > before ? n - before : 0;
}

GP_INLINE void write_codes(const struct factors *f, int bits, bool asym, const float *x, size_t n, uint8_t *packed)
{
	const uint8_t *end = packed + (n * (size_t)bits + 7) / 8;
	ints level[4];
	size_t i = 0;
	for (; i + CHUNK <= n && end - packed >= chunk_room(bits); i += CHUNK, packed += CHUNK / 8 * bits) {
#pragma GCC unroll 4
		for (size_t k = 0; k < 4; k++)
			level[k] = level_of(f_load(x + i + k * LANES), f->inverse[i / LANES + k], asym,
					    asym ? f->zero[i / LANES + k] : 0);
		put_chunk(codes_of(level, bits, asym), bits, packed);
	}
	for (; i < n; i += CHUNK, packed += CHUNK / 8 * bits) {
#pragma GCC unroll 4
		for (size_t k = 0; k < 4; k++)
			level[k] = level_of(f_some(x + i + k * LANES, left_of(n, i + k * LANES)),
					    f->inverse[i / LANES + k], asym, asym ? f->zero[i / LANES + k] : 0);
		put_some(codes_of(level, bits, asym), n - i < CHUNK ? n - i : CHUNK, bits, packed);
	}
}

GP_INLINE uint32_t encode_bits(const struct gp_block_form *form, int bits, bool asym, const float *x, size_t n,
			       uint8_t *scales, uint8_t *zeros, uint8_t *packed)
{
	const size_t blocks = PART / form->size, part = blocks * form->size, scale_bytes = form->e8m0 ? 1 : 2;
	const float top = (float)(asym ? (1 << bits) - 1 : (1 << (bits - 1)) - 1);
	struct factors f[2];
	size_t here = n < part ? n : part;
	ints largest = measure(form, asym, top, x, here, scales, zeros, &f[0]);
	for (size_t at = 0, k = 0, next; at < n; at += part, here = next, k ^= 1) {
		next = n - at - here < part ? n - at - here : part;
		if (next) {
			scales += blocks * scale_bytes;
			zeros += blocks;
			largest =
				i_max(largest, measure(form, asym, top, x + at + here, next, scales, zeros, &f[k ^ 1]));
		}
		write_codes(&f[k], bits, asym, x + at, here, packed + at / 8 * (size_t)bits);
	}
	return largest_lane(largest);
}

/* --- unpacking -------------------------------------------------------------------------------------------------- */

/* Per code of a register: the four bytes from its first one on, and by how many bits they are too far left. */
struct unpacker {
	ints bytes, shift;
};

GP_INLINE struct unpacker unpacker_of(int bits)
{
	uint8_t byte[4 * LANES];
	uint32_t shift[LANES];
	for (int i = 0; i < LANES; i++) {
		shift[i] = (uint32_t)(i * bits) % 8;
		for (int b = 0; b < 4; b++)
			byte[4 * i + b] = i * bits / 8 + b < 16 ? (uint8_t)(i * bits / 8 + b) : 0x80;
	}
	return (struct unpacker){i_load(byte), i_load(shift)};
}

/* LANES codes in the lowest bits of lanes; bits above them are not zero. */
GP_INLINE ints unpacked(const struct unpacker *u, __m128i in)
{
	return i_right_each(pick_bytes(in, u->bytes), u->shift);
}

/* 2^23 + code: an integer in the lowest bits of a float. */
#define INTEGER      0x1p23f
#define INTEGER_BITS 0x4b000000

/* What the values of a block are made with, and the least integer among its codes so far. */
struct values {
	floats scale, zero;
	ints least;
};

GP_INLINE floats values_of(struct values *v, ints code, int bits, bool asym)
{
	const ints integer = masked_or(code, i_all((1 << bits) - 1), i_all(INTEGER_BITS));
	if (!asym)
		v->least = i_min_unsigned(v->least, integer);
	return f_mul(f_sub(f_of(integer), v->zero), v->scale);
}

/* A block of x[0..n). Reads 16 bytes at once, as long as there are so many before `end`. */
GP_INLINE void read_block(const struct unpacker *u, struct values *v, int bits, bool asym, const uint8_t *in,
			  const uint8_t *end, size_t n, float *x)
{
	size_t i = 0;
	for (; i + LANES <= n && end - in >= 16; i += LANES, in += LANES / 8 * bits)
		f_store(x + i, values_of(v, unpacked(u, _mm_loadu_si128((const __m128i *)in)), bits, asym));
	for (; i < n; i += LANES, in += LANES / 8 * bits) {
		const size_t here = n - i < LANES ? n - i : LANES;
		const ints code = ones_from(unpacked(u, some_bytes(in, (here * (size_t)bits + 7) / 8)), here);
		f_store_some(x + i, here, values_of(v, code, bits, asym)); /* codes that do not count are all ones */
	}
}

/* What the scales of up to BLOCKS blocks are worth. */
GP_INLINE floats scales_of(const struct gp_block_form *form, const uint8_t *scales, size_t blocks)
{
	if (form->e8m0)
		return f_of(i_left(get_bytes(scales, blocks), 23));
	return f_mul(get_halves(scales, blocks), f_all(form->unit));
}

GP_INLINE bool decode_bits(const struct gp_block_form *form, int bits, bool asym, const uint8_t *scales,
			   const uint8_t *zeros, const uint8_t *packed, size_t n, float *x)
{
	const size_t size = form->size;
	const uint8_t *end = packed + (n * (size_t)bits + 7) / 8;
	const struct unpacker u = unpacker_of(bits);
	struct values v = {.zero = f_all(INTEGER + (float)(1 << (bits - 1))), .least = i_all(INTEGER_BITS + 1)};
	float scale[BLOCKS];
	size_t block = 0;
	for (size_t at = 0; at < n; at += size, block++) {
		if (block % BLOCKS == 0) {
			const size_t left = (n - at + size - 1) / size;
			f_store(scale,
				scales_of(form, scales + block * (form->e8m0 ? 1 : 2), left < BLOCKS ? left : BLOCKS));
		}
		v.scale = f_all(scale[block % BLOCKS]);
		if (asym)
			v.zero = f_all(INTEGER + (float)zeros[block]);
		read_block(&u, &v, bits, asym, packed + at / 8 * (size_t)bits, end, n - at < size ? n - at : size,
			   x + at);
	}
	return !any_equal(v.least, INTEGER_BITS);
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

/* Magnitudes of numbers in a format: to nearest, ties to even; numbers that are too large give more than the largest code.
 * The sum of a number below 2^(e + 1) and 2^(e + 23 - mantissa) has the rounded one in its lowest bits, in units of the last
 * place; e is the number's exponent, or the least one. */
GP_INLINE ints narrowed(const struct gp_mx_small *f, ints u)
{
	const int shift = 23 - f->mantissa;
	const ints power = i_and(i_max(u, i_all(f->normal)), i_all(0x7f800000));
	const ints magic = i_add(power, i_all(shift << 23));
	const ints places = i_sub(i_of(f_add(f_of(u), f_of(magic))), magic);
	const ints before = i_sub(i_right(power, shift), i_all((128 - f->bias) << f->mantissa));
	return i_add(places, before);
}

/* The values of magnitudes. */
GP_INLINE floats widened(const struct gp_mx_small *f, ints magnitudes)
{
	const ints normal = i_add(i_left(magnitudes, 23 - f->mantissa), i_all((127 - f->bias) << 23));
	const floats below = f_mul(f_from(magnitudes), f_all(f->step));
	return i_where_less(magnitudes, i_all(1 << f->mantissa), below, f_of(normal));
}

/* Codes of a chunk. Signs: those of numbers stay as these are cut off to bytes. */
GP_INLINE ints small_codes(const struct gp_mx_small *f, const floats *x, const float *inverse)
{
	const int width = f->exponent + f->mantissa;
	ints m[4];
#pragma GCC unroll 4
	for (size_t k = 0; k < 4; k++) {
		const floats scaled = f_mul(x[k], f_all(inverse[k]));
		m[k] = width == 3 ? narrowed_to_e2m1(scaled) : narrowed(f, magnitude(scaled));
	}
	const ints magnitudes =
		b_min_unsigned(to_bytes_unsigned(to_words(m[0], m[1]), to_words(m[2], m[3])), b_all(f->numbers - 1));
	const ints signs = to_bytes(to_words(i_of(x[0]), i_of(x[1])), to_words(i_of(x[2]), i_of(x[3])));
	return ordered(i_or(magnitudes, i_and(w_right(signs, 7 - width), b_all(1 << width))));
}

GP_INLINE void write_small(const struct gp_mx_small *f, const float *inverse, const float *x, size_t n, uint8_t *packed)
{
	const int bits = 1 + f->exponent + f->mantissa;
	const uint8_t *end = packed + (n * (size_t)bits + 7) / 8;
	floats v[4];
	size_t i = 0;
	for (; i + CHUNK <= n && end - packed >= chunk_room(bits); i += CHUNK, packed += CHUNK / 8 * bits) {
#pragma GCC unroll 4
		for (size_t k = 0; k < 4; k++)
			v[k] = f_load(x + i + k * LANES);
		put_chunk(small_codes(f, v, inverse + i / LANES), bits, packed);
	}
	for (; i < n; i += CHUNK, packed += CHUNK / 8 * bits) {
#pragma GCC unroll 4
		for (size_t k = 0; k < 4; k++)
			v[k] = f_some(x + i + k * LANES, left_of(n, i + k * LANES));
		put_some(small_codes(f, v, inverse + i / LANES), n - i < CHUNK ? n - i : CHUNK, bits, packed);
	}
}

/* Scales and factors of a part. Returns the largest magnitudes. */
GP_INLINE ints measure_mx(const struct gp_mx_small *f, const float *x, size_t n, uint8_t *scales, float *inverse)
{
	enum { SOME = BLOCKS * GP_MX_BLOCK };
	ints largest = i_all(0);
	for (size_t at = 0; at < n; at += SOME, scales += BLOCKS, inverse += SOME / LANES) {
		const size_t here = n - at < SOME ? n - at : SOME, blocks = (here + GP_MX_BLOCK - 1) / GP_MX_BLOCK;
		const ints top = largest_of(x + at, here, GP_MX_BLOCK);
		const ints exponent = i_max(i_sub(i_right(top, 23), i_all(f->emax)), i_all(0));
		put_bytes(exponent, blocks, scales);
		spread(f_of(i_left(i_sub(i_all(254), exponent), 23)), blocks, GP_MX_BLOCK / LANES, inverse);
		largest = i_max(largest, top);
	}
	return largest;
}

GP_INLINE uint32_t mx_encode_format(const struct gp_mx_small *f, const float *x, size_t n, uint8_t *scales,
				    uint8_t *packed)
{
	const size_t bits = (size_t)(1 + f->exponent + f->mantissa);
	ints largest = i_all(0);
	float inverse[VECTORS];
	for (size_t at = 0; at < n; at += PART, scales += PART / GP_MX_BLOCK) {
		const size_t here = n - at < PART ? n - at : PART;
		largest = i_max(largest, measure_mx(f, x + at, here, scales, inverse));
		write_small(f, inverse, x + at, here, packed + at / 8 * bits);
	}
	return largest_lane(largest);
}

/* *most: the largest magnitude so far, where not all codes are numbers. */
GP_INLINE floats small_values(const struct gp_mx_small *f, ints code, floats scale, ints *most)
{
	const int width = f->exponent + f->mantissa;
	if (width == 3)
		return e2m1_values(code, scale);
	const ints magnitudes = i_and(code, i_all((1 << width) - 1));
	if (width == 7)
		*most = i_max(*most, magnitudes);
	const ints value = i_of(f_mul(widened(f, magnitudes), scale));
	return f_of(masked_or(i_left(code, 31 - width), i_all(INT32_MIN), value));
}

GP_INLINE floats power_values(const uint8_t *scales, size_t blocks)
{
	const ints exponent = get_bytes(scales, blocks);
	return i_where_less(exponent, i_all(1), f_all(0x1p-127f), f_of(i_left(exponent, 23)));
}

/* What the scales of up to BLOCKS blocks of nvfp4 are worth. */
GP_INLINE floats nv_values(float whole, const uint8_t *scales, size_t blocks)
{
	return f_mul(widened(&gp_mx_smalls[GP_MX_E4M3], get_bytes(scales, blocks)), f_all(whole));
}

/* Blocks of `size` elements, 16 or 32; whole: that of nvfp4, whose scales are numbers of their own. Returns the largest
 * magnitude of a code, where not all are numbers. */
GP_INLINE uint32_t decode_small(const struct gp_mx_small *f, size_t size, float whole, const uint8_t *scales,
				const uint8_t *packed, size_t n, float *x)
{
	const size_t bits = (size_t)(1 + f->exponent + f->mantissa), part = BLOCKS * size, step = LANES / 8 * bits;
	const uint8_t *end = packed + (n * bits + 7) / 8;
	const struct unpacker u = unpacker_of((int)bits);
	/* What is multiplied by one scale in a go: a block; with long registers a register, which is the faster there. */
	const size_t run = (int)LANES < (int)LINE ? size : LANES;
	ints most = i_all(0);
	float scale[BLOCKS];
	for (size_t at = 0, here; at < n; at += part, scales += BLOCKS) {
		here = n - at < part ? n - at : part;
		const size_t blocks = (here + size - 1) / size;
		f_store(scale, size == GP_MX_BLOCK ? power_values(scales, blocks) : nv_values(whole, scales, blocks));
		size_t i = 0;
		for (; i + run <= here && end - packed >= (ptrdiff_t)(run / LANES * step + 16); i += run) {
			const floats all = f_all(scale[i / size]);
			for (size_t k = 0; k < run; k += LANES, packed += step) {
				const ints code = unpacked(&u, _mm_loadu_si128((const __m128i *)packed));
				f_store(x + at + i + k, small_values(f, code, all, &most));
			}
		}
		for (; i < here; i += LANES, packed += step) {
			const size_t some = here - i < LANES ? here - i : LANES;
			const ints code = unpacked(&u, some_bytes(packed, (some * bits + 7) / 8));
			f_store_some(x + at + i, some, small_values(f, code, f_all(scale[i / size]), &most));
		}
	}
	return largest_lane(most);
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

/* Writes the scales of up to BLOCKS blocks; `inverse` gets what the registers of their elements are multiplied by. */
GP_INLINE void nv_scales(float whole, floats largest, size_t blocks, uint8_t *scales, float *inverse)
{
	const struct gp_mx_small *f = &gp_mx_smalls[GP_MX_E4M3];
	const ints code = narrowed(f, magnitude(f_div(largest, f_all(6 * whole))));
	const ints scale = i_min(code, i_all(f->numbers - 1));
	const floats factor = inverse_of(f_mul(widened(f, scale), f_all(whole)));
	put_bytes(scale, blocks, scales);
	if ((int)GP_NVFP4_BLOCK == (int)LANES)
		f_store(inverse, factor);
	else
		spread(factor, blocks, GP_NVFP4_BLOCK / LANES, inverse);
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
			const floats largest = f_of(largest_of(x + at + i, some, GP_NVFP4_BLOCK));
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

#define GP_PACKED_LOOPS                                                                                                \
	{                                                                                                              \
		.encode = encode, .decode = decode, .mx_encode = mx_encode, .mx_decode = mx_decode,                    \
		.nv_encode = nv_encode, .nv_decode = nv_decode                                                         \
	}

#endif
