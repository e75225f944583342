/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of product.h over lanes.h, for one instruction set: each of product_portable.c, product_avx2.c,
 * product_avx512.c and product_neon.c includes this once and gives its two functions names. Only for those files.
 *
 * Threads: any; they touch only memory that they are given. Test: tests/unit/test_product.c
 */
#ifndef GP_CPU_PRODUCT_BODY_H
#define GP_CPU_PRODUCT_BODY_H

#include "kernels/cpu/math/lanes_product.h"
#include "kernels/cpu/math/product.h"

#define TAIL_ROWS  48  /* of a result whose last columns are fewer than LANES, at a time */
#define TAIL_INNER 256 /* rows of a right side whose last columns are fewer than LANES, at a time */

_Static_assert(LANES == GP_PRODUCT_PANEL, "a panel is as wide as the lanes");

static void run(const struct lanes_product *p, bool turned)
{
	if (turned)
		lanes_multiply_turned(p);
	else
		lanes_multiply_matrix(p);
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void copy_rows(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t rows, int64_t width)
{
	for (int64_t i = 0; i < rows; i++)
		lanes_store_some(to + i * ldt, lanes_load_some(from + i * ldf, width), width);
}

/* Element (row, first of the inner index) of a, which is where a part of it begins. */
static const float *left_at(const struct gp_product *p, int64_t row, int64_t inner)
{
	return p->turned ? p->a + inner * p->lda + row : p->a + row * p->lda + inner;
}

/* Rows [row, row + rows) of columns [column, columns), which are fewer than LANES, by way of a room with whole vectors. */
static void multiply_tail(const struct gp_product *p, int64_t column, int64_t row, int64_t rows)
{
	float c[TAIL_ROWS * LANES], b[TAIL_INNER * LANES];
	float *const out = p->c + row * p->ldc + column;
	const int64_t width = p->columns - column, step = p->ldb ? TAIL_INNER : p->inner;
	bool onto = p->onto;
	if (onto)
		copy_rows(c, LANES, out, p->ldc, rows, width);
	int64_t i = 0;
	do {
		const int64_t inner = least(step, p->inner - i);
		const float *right = p->b + column * p->inner;
		if (p->ldb) {
			for (int64_t k = 0; k < inner; k++)
				lanes_store(b + k * LANES, lanes_load_some(p->b + (i + k) * p->ldb + column, width));
			right = b;
		}
		run(
			&(struct lanes_product){
				c, LANES, left_at(p, row, i), p->lda, {right, LANES}, rows, inner, LANES, onto},
			p->turned);
		onto = true;
		i += step;
	} while (i < p->inner);
	copy_rows(out, p->ldc, c, LANES, rows, width);
}

static void multiply(const struct gp_product *p)
{
	const int64_t whole = p->columns / LANES * LANES, wide = p->ldb ? whole : LANES;
	for (int64_t column = 0; column < whole; column += wide) {
		const struct lanes_right right = {p->b + (p->ldb ? column : column * p->inner),
						  p->ldb ? p->ldb : LANES};
		run(&(struct lanes_product){p->c + column, p->ldc, p->a, p->lda, right, p->rows, p->inner, wide,
					    p->onto},
		    p->turned);
	}
	for (int64_t row = 0; whole < p->columns && row < p->rows; row += TAIL_ROWS)
		multiply_tail(p, whole, row, least(TAIL_ROWS, p->rows - row));
}

/* Panel by panel: with wider ones lanes_pack_turned would lay out those of its own tiles. */
static void pack_turned(float *packed, const float *b, int64_t stride, int64_t columns, int64_t inner)
{
	for (int64_t j = 0; j < columns; j += LANES)
		lanes_pack_turned(packed + j * inner, b + j * stride, stride, least(LANES, columns - j), inner);
}

#endif
