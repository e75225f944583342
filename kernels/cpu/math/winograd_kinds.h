/* SPDX-License-Identifier: Apache-2.0
 *
 * What winograd_body.h (images) and winograd_filter_body.h (filters) have in
 * common: sizes of each kind of tile, and going through a square by its columns
 * and then its rows. Not for anybody else. See winograd.h.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_winograd.c
 */
#ifndef GP_CPU_WINOGRAD_KINDS_H
#define GP_CPU_WINOGRAD_KINDS_H

#include "kernels/cpu/math/vec.h"
#include "kernels/cpu/math/winograd_kernels.h"
#include "kernels/cpu/math/winograd_sizes.h"

#define TAPS     GP_WINO_TAPS
#define MAX_SIDE 9
#define MAX_TILE 8
#define MAX_CELL (MAX_SIDE * MAX_SIDE)

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

/* --- arithmetic ------------------------------------------------------------------------------------------------- */

GP_INLINE gp_vec times(float f, gp_vec a)
{
	return vec_mul(vec_all(f), a);
}

/* f a + b */
GP_INLINE gp_vec fma1(float f, gp_vec a, gp_vec b)
{
	return vec_fma(vec_all(f), a, b);
}

GP_INLINE gp_vec add(gp_vec a, gp_vec b)
{
	return vec_add(a, b);
}

GP_INLINE gp_vec sub(gp_vec a, gp_vec b)
{
	return vec_sub(a, b);
}

typedef void (*axis_fn)(const int kind, gp_vec *out, const gp_vec *in);

/* `from` x `from` values to `to` x `to`: columns, then rows. */
GP_INLINE void both_axes(const int kind, axis_fn axis, const int from, const int to, gp_vec *out, const gp_vec *in)
{
	gp_vec half[MAX_SIDE][MAX_SIDE];
#pragma GCC unroll 9
	for (int j = 0; j < from; j++) {
		gp_vec column[MAX_SIDE], turned[MAX_SIDE];
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
