/* SPDX-License-Identifier: Apache-2.0
 *
 * Own matrix products of any shape: every element is one chain of fused multiply-adds, whatever the instruction set, the
 * layout and the pieces (kernels/cpu/math/product.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/isa.h"
#include "common/base/rng.h"
#include "kernels/cpu/math/product.h"

enum { MOST = 1100, SIDE = 70, GAP = 3 };

static float number(uint64_t index)
{
	return (float)(int32_t)gp_rng_u32(5, gp_rng_stream(GP_RNG_SYNTHETIC, 2), index) * 0x1p-31f;
}

static float *numbers(size_t n, uint64_t seed)
{
	float *x = malloc(n * sizeof *x);
	assert_non_null(x);
	for (size_t i = 0; i < n; i++)
		x[i] = number(seed + i);
	return x;
}

/* One shape with all that a product may be asked; `large`: by gp_product_large. */
static void check(int64_t rows, int64_t inner, int64_t columns, bool turned, bool onto, bool packed, bool large)
{
	const int64_t lda = (turned ? rows : inner) + GAP, ldb = (packed ? inner : columns) + GAP, ldc = columns + GAP;
	float *a = numbers((size_t)((turned ? inner : rows) * lda), 1);
	float *b = numbers((size_t)((packed ? columns : inner) * ldb), 7777777), *c = numbers((size_t)(rows * ldc), 99);
	float *want = malloc((size_t)(rows * ldc) * sizeof *want), *room = malloc(GP_PRODUCT_ROOM * sizeof *room);
	float *panels = malloc((size_t)(gp_product_packed_count(inner, columns) + 1) * sizeof *panels);
	memcpy(want, c, (size_t)(rows * ldc) * sizeof *want);
	for (int64_t r = 0; r < rows; r++)
		for (int64_t j = 0; j < columns; j++) {
			float sum = onto ? want[r * ldc + j] : 0.0f;
			for (int64_t i = 0; i < inner; i++)
				sum = fmaf(turned ? a[i * lda + r] : a[r * lda + i],
					   packed ? b[j * ldb + i] : b[i * ldb + j], sum);
			want[r * ldc + j] = sum;
		}
	struct gp_product p = {c, ldc, a, lda, b, ldb, rows, inner, columns, turned, onto};
	if (large) {
		gp_product_large(&p, packed, room);
	} else {
		if (packed) {
			gp_product_pack_turned(panels, b, ldb, columns, inner);
			p.b = panels;
			p.ldb = 0;
		}
		gp_product(&p);
	}
	if (memcmp(c, want, (size_t)(rows * ldc) * sizeof *c) != 0)
		fail_msg("%lld x %lld x %lld, turned %d, onto %d, packed %d, large %d", (long long)rows,
			 (long long)inner, (long long)columns, turned, onto, packed, large);
	free(a), free(b), free(c), free(want), free(room), free(panels);
}

static void every_way(int64_t rows, int64_t inner, int64_t columns)
{
	for (int way = 0; way < 16; way++)
		check(rows, inner, columns, way & 1, way & 2, way & 4, way & 8);
}

static void every_element_is_one_chain(void **state)
{
	(void)state;
	static const int64_t sizes[] = {1, 2, 5, 6, 13, 16, 17, 31, 33, SIDE};
	enum { SIZES = sizeof sizes / sizeof sizes[0] };
	for (enum gp_isa isa = GP_ISA_PORTABLE; isa <= GP_ISA_AVX512; isa++) {
		gp_isa_limit(isa);
		for (int i = 0; i < SIZES * SIZES * SIZES; i += 29)
			every_way(sizes[i % SIZES], sizes[i / SIZES % SIZES], sizes[i / SIZES / SIZES]);
	}
	gp_isa_limit(GP_ISA_AVX512);
}

/* More than a piece of b, and more rows than a block. */
static void pieces_make_no_difference(void **state)
{
	(void)state;
	for (enum gp_isa isa = GP_ISA_PORTABLE; isa <= GP_ISA_AVX512; isa++) {
		gp_isa_limit(isa);
		every_way(7, MOST, 65);
		every_way(100, 40, 129);
	}
	gp_isa_limit(GP_ISA_AVX512);
}

static void without_an_inner_index_the_result_is_zero(void **state)
{
	(void)state;
	float c[40], a = 0, b = 0;
	memset(c, 1, sizeof c);
	gp_product(&(struct gp_product){c, 20, &a, 1, &b, 0, 2, 0, 20, false, false});
	for (int i = 0; i < 40; i++)
		assert_true(c[i] == 0.0f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_element_is_one_chain),
		cmocka_unit_test(pieces_make_no_difference),
		cmocka_unit_test(without_an_inner_index_the_result_is_zero),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
