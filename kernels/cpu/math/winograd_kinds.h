/* SPDX-License-Identifier: Apache-2.0
 *
 * What winograd_avx512.c (images) and winograd_filter_avx512.c (filters) have
 * in common: sizes of each kind of tile, and going through a square by its
 * columns and then its rows. Not for anybody else: AVX-512 only. See winograd.h.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_winograd.c
 */
#ifndef GP_CPU_WINOGRAD_KINDS_H
#define GP_CPU_WINOGRAD_KINDS_H

#include <immintrin.h>

#include "kernels/loops/simd.h"
#include "kernels/cpu/math/winograd.h"

#define LANES    GP_WINO_LANES
#define TAPS     GP_WINO_TAPS
#define MAX_SIDE 9
#define MAX_TILE 8
#define MAX_CELL (MAX_SIDE * MAX_SIDE)

/* --- kinds ------------------------------------------------------------------------------------------------------ */

GP_INLINE bool is_half(const int kind)
{
	return kind == GP_WINO_HALF_2 || kind == GP_WINO_HALF_4;
}

GP_INLINE bool is_twice(const int kind)
{
	return kind == GP_WINO_TWICE_2 || kind == GP_WINO_TWICE_4;
}

/* Per axis: gradients that belong to a tile, or outputs of a tile that is not backwards. */
GP_INLINE int base_of(const int kind)
{
	if (kind == GP_WINO_1)
		return 1;
	return kind == GP_WINO_2 || kind == GP_WINO_HALF_2 || kind == GP_WINO_TWICE_2 ? 2 : 4;
}

GP_INLINE int tile_of(const int kind)
{
	return is_twice(kind) ? 2 * base_of(kind) : base_of(kind);
}

GP_INLINE int side_of(const int kind)
{
	if (is_half(kind) || is_twice(kind))
		return 2 * base_of(kind) + 1;
	return kind == GP_WINO_4 ? 6 : kind == GP_WINO_2 ? 3 : 1;
}

/* fn, made for each kind; those that run backwards have no gradients. */
#define KIND_CASE(kind, fn, g, ...)                                                                                    \
	case kind:                                                                                                     \
		fn(g, kind, __VA_ARGS__);                                                                              \
		break;
#define FORWARD_CASES(...)                                                                                             \
	KIND_CASE(GP_WINO_1, __VA_ARGS__)                                                                              \
	KIND_CASE(GP_WINO_2, __VA_ARGS__)                                                                              \
	KIND_CASE(GP_WINO_4, __VA_ARGS__)                                                                              \
	KIND_CASE(GP_WINO_HALF_2, __VA_ARGS__)                                                                         \
	KIND_CASE(GP_WINO_HALF_4, __VA_ARGS__)
#define BACKWARD_CASES(...)                                                                                            \
	KIND_CASE(GP_WINO_TWICE_2, __VA_ARGS__)                                                                        \
	KIND_CASE(GP_WINO_TWICE_4, __VA_ARGS__)

GP_INLINE __mmask16 lanes_at(int64_t c, int64_t channels)
{
	return channels - c >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << (channels - c)) - 1);
}

/* --- arithmetic ------------------------------------------------------------------------------------------------- */

GP_INLINE __m512 times(float f, __m512 a)
{
	return _mm512_mul_ps(_mm512_set1_ps(f), a);
}

/* f a + b */
GP_INLINE __m512 fma1(float f, __m512 a, __m512 b)
{
	return _mm512_fmadd_ps(_mm512_set1_ps(f), a, b);
}

GP_INLINE __m512 add(__m512 a, __m512 b)
{
	return _mm512_add_ps(a, b);
}

GP_INLINE __m512 sub(__m512 a, __m512 b)
{
	return _mm512_sub_ps(a, b);
}

typedef void (*axis_fn)(const int kind, __m512 *out, const __m512 *in);

/* `from` x `from` values to `to` x `to`: columns, then rows. */
GP_INLINE void both_axes(const int kind, axis_fn axis, const int from, const int to, __m512 *out, const __m512 *in)
{
	__m512 half[MAX_SIDE][MAX_SIDE];
#pragma GCC unroll 9
	for (int j = 0; j < from; j++) {
		__m512 column[MAX_SIDE], turned[MAX_SIDE];
#pragma GCC unroll 9
		for (int i = 0; i < from; i++)
			column[i] = in[i * from + j];
		axis(kind, turned, column);
#pragma GCC unroll 9
		for (int i = 0; i < to; i++)
			half[i][j] = turned[i];
	}
#pragma GCC unroll 9
	for (int i = 0; i < to; i++)
		axis(kind, out + i * to, half[i]);
}

#endif
