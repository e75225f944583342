/* SPDX-License-Identifier: Apache-2.0
 *
 * What products of floats and of bfloat16 pairs have in common: panels, heights of
 * tiles, asking memory for lines ahead of time. Only for gemm_body.h,
 * gemm_bf16_body.h and winograd_filter_body.h, which makes panels itself.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_gemm.c,
 * tests/unit/test_gemm_bf16.c
 */
#ifndef GP_CPU_GEMM_PARTS_H
#define GP_CPU_GEMM_PARTS_H

#include "kernels/cpu/math/gemm.h"
#include "kernels/cpu/math/vec.h"

#define MAX_NV      (VEC_REGISTERS == 32 ? 4 : 3)
#define TILE_ROWS   24          /* a multiple of every tile's height */
#define BLOCK_BYTES (128 << 10) /* rows of a and c that stay in L2 while panels go by */
#define FEW_FLOATS  6144        /* of a packed matrix that stays in L1: rows are then gone through once */
#define SMALL_TILES (VEC_LANES < VEC_LINE)
/* Rows by which memory is asked for what will be written before it is; 0: those of a tile. Small tiles are soon done. */
#define WRITE_AHEAD (SMALL_TILES ? TILE_ROWS : 0)

/*
 * Heights of tiles, the highest first, for each width in vectors, which comes before them. The highest leave registers for a
 * row of the right side and for what of the left side they are multiplied with.
 */
#define SIZES 4
#if VEC_REGISTERS < 32
#define PRODUCT_TILES(ROW)    ROW(1, 8, 4, 2, 1) ROW(2, 6, 4, 2, 1) ROW(3, 4, 3, 2, 1)
#define TRANSPOSED_TILES(ROW) PRODUCT_TILES(ROW)
#define TRANSPOSED_NV         MAX_NV
#elif VEC_SCALARS == 1
#define PRODUCT_TILES(ROW)    ROW(1, 8, 4, 2, 1) ROW(2, 8, 4, 2, 1) ROW(3, 8, 4, 2, 1) ROW(4, 6, 4, 2, 1)
#define TRANSPOSED_TILES(ROW) ROW(1, 16, 8, 4, 1) ROW(2, 12, 8, 4, 1) ROW(3, 8, 4, 2, 1) ROW(4, 6, 4, 2, 1)
#define TRANSPOSED_NV         MAX_NV
#else
#define PRODUCT_TILES(ROW)    ROW(1, 8, 4, 2, 1) ROW(2, 8, 4, 2, 1) ROW(3, 6, 4, 2, 1) ROW(4, 4, 3, 2, 1)
#define TRANSPOSED_TILES(ROW) ROW(1, 16, 8, 4, 1) ROW(2, 12, 8, 4, 1) ROW(3, 8, 4, 2, 1)
#define TRANSPOSED_NV         3 /* whose tiles are whole registers of scalars high */
#endif

/* --- panels ----------------------------------------------------------------------------------------------------- */

struct panels {
	int64_t vectors, count;
};

/* With few registers pairs of vectors, and three where one is left over; else as even as possible, and none exceeds `most`. */
static inline struct panels panels_within(int64_t n, int64_t most)
{
	int64_t vectors = (n + VEC_LANES - 1) / VEC_LANES;
	if (VEC_REGISTERS < 32)
		return (struct panels){vectors, vectors < 2 ? vectors : vectors / 2};
	return (struct panels){vectors, (vectors + most - 1) / most};
}

static inline struct panels panels_of(int64_t n)
{
	return panels_within(n, MAX_NV);
}

/* First vector of panel p. */
static inline int64_t panel_at(const struct panels *p, int64_t panel)
{
	if (VEC_REGISTERS < 32)
		return panel < p->count ? 2 * panel : p->vectors;
	return p->vectors * panel / p->count;
}

/* Rows per block, where a row of a has k floats and one of c n: a multiple of every tile height. */
static inline int64_t block_rows(int64_t k, int64_t n)
{
	int64_t rows = BLOCK_BYTES / ((int64_t)sizeof(float) * (k + n)) / TILE_ROWS * TILE_ROWS;
	if (SMALL_TILES && k * n <= FEW_FLOATS)
		return TILE_ROWS;
	return rows < TILE_ROWS ? TILE_ROWS : rows;
}

/* --- reading ahead ---------------------------------------------------------------------------------------------- */

/*
 * Floats by which reading ahead moves on with every step of an inner index. A tile of AVX2 takes a quarter of the time that
 * the widest of AVX-512 takes for a step: with whole lines more would be asked for at once than a processor keeps track of;
 * with a quarter of them not all that the next rows are made from would be, where there are few channels.
 */
#define FETCH_STEP (VEC_REGISTERS == 32 ? VEC_LINE : VEC_LINE / 2)

/* Lines a tile asks for, `step` floats apart. */
struct ahead {
	const float *at;
	int64_t step;
};

/* The next `lines` lines; without any left, `idle` over and over, which is in the cache. */
static inline struct ahead take(struct gp_fetch *next, int64_t lines, const void *idle)
{
	for (int i = 0; next && i < GEMM_FETCHES; i++) {
		struct gp_fetch_range *r = &next->range[i];
		if (r->at >= r->end)
			continue;
		const struct ahead ahead = {r->at, FETCH_STEP};
		r->at += lines * FETCH_STEP;
		return ahead;
	}
	return (struct ahead){idle, 0};
}

GP_INLINE void fetch(const struct ahead *ahead, int64_t line)
{
	vec_soon_second(ahead->at + line * ahead->step);
}

/* A tile further down: memory is asked for its lines while this one is computed. */
GP_INLINE void will_write(const float *c, int64_t ldc, const int mr, const int nv)
{
	const int step = VEC_LANES < VEC_LINE / 2 ? 2 : 1;
#pragma GCC unroll 8
	for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
		for (int j = 0; j < nv; j += step)
			vec_soon_written(c + i * ldc + j * VEC_LANES);
}

#endif
