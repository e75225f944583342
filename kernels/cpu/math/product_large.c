/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of large matrices in pieces that stay in the caches. See product.h. Test: tests/unit/test_product.c
 */
#include <string.h>

#include "kernels/cpu/math/product.h"

#define COLUMNS 64   /* of a piece of b: panels that share a block of a */
#define INNER   1024 /* of a piece of b */
#define ROWS    48   /* of a block of a and c; a multiple of every tile's height */

_Static_assert(COLUMNS *INNER == GP_PRODUCT_ROOM, "the room holds a piece");

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Rows of up to COLUMNS floats, as panels; what is behind the last column becomes 0. */
static void pack(float *packed, const float *b, int64_t stride, int64_t columns, int64_t inner)
{
	for (int64_t j = 0; j < columns; j += GP_PRODUCT_PANEL) {
		const int64_t width = least(GP_PRODUCT_PANEL, columns - j);
		for (int64_t i = 0; i < inner; i++) {
			float *to = packed + gp_product_packed_at(inner, i, j);
			memcpy(to, b + i * stride + j, (size_t)width * sizeof *to);
			for (int64_t k = width; k < GP_PRODUCT_PANEL; k++)
				to[k] = 0.0f;
		}
	}
}

/* c += or = a b for columns from `column` and an inner index from `first` on, with what is packed of b. */
static void multiply_blocks(const struct gp_product *p, const float *packed, int64_t column, int64_t columns,
			    int64_t first, int64_t inner)
{
	const float *a = p->a + (p->turned ? first * p->lda : first);
	for (int64_t row = 0; row < p->rows; row += ROWS)
		gp_product(&(struct gp_product){.c = p->c + row * p->ldc + column,
						.ldc = p->ldc,
						.a = a + (p->turned ? row : row * p->lda),
						.lda = p->lda,
						.b = packed,
						.rows = least(ROWS, p->rows - row),
						.inner = inner,
						.columns = columns,
						.turned = p->turned,
						.onto = p->onto || first > 0});
}

void gp_product_large(const struct gp_product *p, bool b_turned, float *room)
{
	for (int64_t column = 0; column < p->columns; column += COLUMNS) {
		const int64_t columns = least(COLUMNS, p->columns - column);
		for (int64_t first = 0; first == 0 || first < p->inner; first += INNER) {
			const int64_t inner = least(INNER, p->inner - first);
			if (b_turned)
				gp_product_pack_turned(room, p->b + column * p->ldb + first, p->ldb, columns, inner);
			else
				pack(room, p->b + first * p->ldb + column, p->ldb, columns, inner);
			multiply_blocks(p, room, column, columns, first, inner);
		}
	}
}
