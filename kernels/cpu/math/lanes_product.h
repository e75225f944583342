/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of small matrices that lie in the caches, for loops over lanes.h:
 * tiles of a few rows and vectors of the result are kept in registers. Every
 * element is one chain of fused multiply-adds over the inner index, ascending,
 * from zero or from what is there: no result depends on the size of a tile, so
 * all instruction sets give the same bits. Products of large matrices that
 * come packed are gemm.h's.
 *
 * Only for kernels/cpu/math.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_cpu_attention.c
 */
#ifndef GP_CPU_LANES_PRODUCT_H
#define GP_CPU_LANES_PRODUCT_H

#include <stdbool.h>

#include "kernels/cpu/math/lanes.h"

/* The right side: whole vectors wide. Rows lie `stride` floats apart; or, with 0, in panels (lanes_panel). */
struct lanes_right {
	const float *at;
	int64_t stride;
};

/*
 * c (rows, columns) = a b with a (rows, inner) and b (inner, columns); turned: a lies in memory as (inner, rows). Rows of c
 * and of what lies as a begin ldc and lda floats apart; `columns` is a multiple of LANES. onto: c += a b.
 */
struct lanes_product {
	float *c;
	int64_t ldc;
	const float *a;
	int64_t lda;
	struct lanes_right b;
	int64_t rows, inner, columns;
	bool onto;
};

/* Panels: neighbouring columns, at most as wide as a tile and all of about one width. The first column of panel p. */
static inline int64_t lanes_panels(int64_t columns)
{
	return (columns / LANES + LANES_TILE_VECTORS - 1) / LANES_TILE_VECTORS;
}

static inline int64_t lanes_panel(int64_t columns, int64_t p)
{
	return columns / LANES * p / lanes_panels(columns) * LANES;
}

/* Rows [row, row + high) of a panel that begins with this column; `b` is its first row there. */
GP_INLINE void product_tile(const struct lanes_product *p, int64_t row, int64_t column, const float *b, int64_t ldb,
			    const bool turned, const int high, const int wide)
{
	struct lanes sum[12][LANES_TILE_VECTORS];
	const int64_t inner = p->inner, lda = p->lda, ldc = p->ldc;
	const float *a = p->a + (turned ? row : row * lda);
	float *c = p->c + row * ldc + column;
#pragma GCC unroll 12
	for (int i = 0; i < high; i++)
#pragma GCC unroll 4
		for (int j = 0; j < wide; j++)
			sum[i][j] = p->onto ? lanes_load(c + i * ldc + j * LANES) : lanes_all(0.0f);
	for (int64_t l = 0; l < inner; l++, a += turned ? lda : 1, b += ldb) {
		struct lanes right[LANES_TILE_VECTORS];
#pragma GCC unroll 4
		for (int j = 0; j < wide; j++)
			right[j] = lanes_load(b + j * LANES);
#pragma GCC unroll 12
		for (int i = 0; i < high; i++) {
			const struct lanes left = lanes_all(turned ? a[i] : a[i * lda]);
#pragma GCC unroll 4
			for (int j = 0; j < wide; j++)
				sum[i][j] = lanes_fma(left, right[j], sum[i][j]);
		}
	}
#pragma GCC unroll 12
	for (int i = 0; i < high; i++)
#pragma GCC unroll 4
		for (int j = 0; j < wide; j++)
			lanes_store(c + i * ldc + j * LANES, sum[i][j]);
}

GP_INLINE void product_panel(const struct lanes_product *p, int64_t column, const float *b, int64_t ldb,
			     const bool turned, const int wide)
{
	const int most = LANES_TILE_ROWS(wide);
	int64_t row = 0;
	for (; row + most <= p->rows; row += most)
		product_tile(p, row, column, b, ldb, turned, most, wide);
	for (; row + 4 <= p->rows; row += 4)
		product_tile(p, row, column, b, ldb, turned, 4, wide);
	for (; row + 2 <= p->rows; row += 2)
		product_tile(p, row, column, b, ldb, turned, 2, wide);
	if (row < p->rows)
		product_tile(p, row, column, b, ldb, turned, 1, wide);
}

/* A loop for each width of a panel, so that the loops of its tiles are unrolled. */
GP_INLINE void product_panels(const struct lanes_product *p, const bool turned)
{
	for (int64_t k = 0; k < lanes_panels(p->columns); k++) {
		const int64_t column = lanes_panel(p->columns, k), columns = lanes_panel(p->columns, k + 1) - column;
		const int64_t ldb = p->b.stride ? p->b.stride : columns, wide = columns / LANES;
		const float *b = p->b.at + (p->b.stride ? column : column * p->inner);
		if (LANES_TILE_VECTORS >= 4 && wide == 4)
			product_panel(p, column, b, ldb, turned, 4);
		else if (LANES_TILE_VECTORS >= 3 && wide == 3)
			product_panel(p, column, b, ldb, turned, 3);
		else if (LANES_TILE_VECTORS >= 2 && wide == 2)
			product_panel(p, column, b, ldb, turned, 2);
		else
			product_panel(p, column, b, ldb, turned, 1);
	}
}

static void lanes_multiply_matrix(const struct lanes_product *p)
{
	product_panels(p, false);
}

static void lanes_multiply_turned(const struct lanes_product *p)
{
	product_panels(p, true);
}

/* Turns 16 rows of 16 floats over; of rows and floats that are not there it makes zeros, or nothing. */
GP_INLINE void lanes_turn_block(float *to, int64_t ldt, const float *from, int64_t stride, int64_t rows, int64_t floats)
{
	struct lanes row[LANES];
#pragma GCC unroll 16
	for (int64_t j = 0; j < LANES; j++)
		row[j] = lanes_load_some(j < rows ? from + j * stride : from, j < rows ? floats : 0);
	lanes_turn(row);
#pragma GCC unroll 16
	for (int64_t i = 0; i < LANES; i++)
		if (i < floats)
			lanes_store(to + i * ldt, row[i]);
}

/*
 * Packs what lies as (columns, inner), rows `stride` floats apart, into panels of (inner, whole(columns)); columns that are
 * not there become 0.
 */
static void lanes_pack_turned(float *to, const float *from, int64_t stride, int64_t columns, int64_t inner)
{
	const int64_t whole = lanes_whole(columns);
	for (int64_t k = 0; k < lanes_panels(whole); k++) {
		const int64_t begin = lanes_panel(whole, k), wide = lanes_panel(whole, k + 1) - begin;
		for (int64_t j = 0; j < wide; j += LANES)
			for (int64_t l = 0; l < inner; l += LANES)
				lanes_turn_block(to + (begin * inner + l * wide + j), wide,
						 from + (begin + j) * stride + l, stride, columns - begin - j,
						 inner - l);
	}
}

#endif
