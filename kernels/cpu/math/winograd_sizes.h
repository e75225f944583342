/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of each kind of tile of winograd.h: constants where the kind is one. Only for files of kernels/cpu/math.
 *
 * Threads: any; pure functions. Test: tests/unit/test_winograd.c
 */
#ifndef GP_CPU_WINOGRAD_SIZES_H
#define GP_CPU_WINOGRAD_SIZES_H

#include "kernels/cpu/math/winograd.h"
#include "kernels/loops/simd.h"

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

/* Tiles per image, upwards and across. */
GP_INLINE int64_t tile_rows(const struct gp_wino *g)
{
	const int64_t tile = tile_of((int)g->kind);
	return (g->out_h + tile - 1) / tile;
}

GP_INLINE int64_t tile_cols(const struct gp_wino *g)
{
	const int64_t tile = tile_of((int)g->kind);
	return (g->out_w + tile - 1) / tile;
}

#endif
