/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of pointwise convolutions: right within rounding for every
 * tile, panel and remainder, and each row's result independent of the rows
 * computed with it; the same bits with AVX2, AVX-512 and NEON. Skipped where
 * the processor has none of them.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "kernels/cpu/math/gemm.h"
#include "tests/unit/each_isa.h"
#include "tests/unit/same_bits.h"

#define BITS 0x7102a7734a00dff3u /* of all products, on every processor */

static const int64_t sizes[][3] = {/* rows, k, n */
				   {1, 1, 1},     {2, 3, 5},    {7, 16, 16},   {24, 24, 144}, {49, 144, 24},
				   {130, 17, 33}, {259, 5, 63}, {300, 64, 64}, {31, 96, 65},  {53, 7, 81},
				   {40, 32, 160}, {15, 1, 96},  {129, 40, 112}};

#define SIZES (sizeof sizes / sizeof sizes[0])

/* Caller frees. */
static float *draw(int64_t count, uint64_t stream)
{
	float *v = gp_calloc((size_t)count, sizeof *v);
	assert_non_null(v);
	for (int64_t i = 0; i < count; i++)
		v[i] = 2.0f * gp_rng_uniform(9, gp_rng_stream(GP_RNG_SYNTHETIC, stream), (uint64_t)i) - 1.0f;
	return v;
}

static float *pack(const float *b, int64_t k, int64_t n, bool transposed)
{
	float *packed = gp_calloc((size_t)gp_gemm_packed_count(k, n), sizeof *packed);
	assert_non_null(packed);
	gp_gemm_pack(packed, b, k, n, transposed);
	return packed;
}

/* `scale`: sum of the magnitudes that were added up. */
static void expect_close(float got, double want, double scale)
{
	if (!(fabs((double)got - want) <= 2e-6 * scale + 1e-30))
		fail_msg("%.9g instead of %.9g", (double)got, want);
}

static void check_product(const float *c, const float *a, const float *b, const int64_t *size)
{
	for (int64_t r = 0; r < size[0]; r++) {
		for (int64_t j = 0; j < size[2]; j++) {
			double want = 0.0, scale = 0.0;
			for (int64_t l = 0; l < size[1]; l++) {
				double term = (double)a[r * size[1] + l] * (double)b[l * size[2] + j];
				want += term;
				scale += fabs(term);
			}
			expect_close(c[r * size[2] + j], want, scale);
		}
	}
}

static void product_is_right_for_all_sizes(void **state)
{
	(void)state;
	if (!gp_gemm_supported())
		skip();
	for (size_t i = 0; i < SIZES; i++) {
		const int64_t rows = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
		float *a = draw(rows * k, 0), *b = draw(k * n, 1), *c = draw(rows * n + 1, 2);
		const float guard = c[rows * n];
		float *packed = pack(b, k, n, false);
		gp_gemm(c, a, packed, rows, k, n);
		check_product(c, a, b, sizes[i]);
		assert_true(c[rows * n] == guard);
		gp_free(a);
		gp_free(b);
		gp_free(c);
		gp_free(packed);
	}
}

static void transposed_matrix_packs_to_the_same(void **state)
{
	(void)state;
	if (!gp_gemm_supported())
		skip();
	float *b = draw(7 * 81, 3), *t = gp_calloc(7 * 81, sizeof *t);
	for (int i = 0; i < 7; i++)
		for (int j = 0; j < 81; j++)
			t[j * 7 + i] = b[i * 81 + j];
	float *x = pack(b, 7, 81, false), *y = pack(t, 7, 81, true);
	assert_memory_equal(x, y, (size_t)gp_gemm_packed_count(7, 81) * sizeof *x);
	gp_free(b);
	gp_free(t);
	gp_free(x);
	gp_free(y);
}

static void rows_do_not_depend_on_their_neighbours(void **state)
{
	(void)state;
	if (!gp_gemm_supported())
		skip();
	for (size_t i = 0; i < SIZES; i++) {
		const int64_t rows = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
		float *a = draw(rows * k, 0), *b = draw(k * n, 1), *all = draw(rows * n, 2), *one = draw(n, 3);
		float *packed = pack(b, k, n, false);
		gp_gemm(all, a, packed, rows, k, n);
		for (int64_t r = 0; r < rows; r++) {
			gp_gemm(one, a + r * k, packed, 1, k, n);
			assert_memory_equal(one, all + r * n, (size_t)n * sizeof *one);
		}
		gp_free(a);
		gp_free(b);
		gp_free(all);
		gp_free(one);
		gp_free(packed);
	}
}

/* c[k][n] (+)= sum over rows of a[r][k] b[r][n] */
static void check_transposed(const float *c, const float *a, const float *b, const float *before, const int64_t *size)
{
	for (int64_t i = 0; i < size[1]; i++) {
		for (int64_t j = 0; j < size[2]; j++) {
			double want = before ? (double)before[i * size[2] + j] : 0.0, scale = fabs(want);
			for (int64_t r = 0; r < size[0]; r++) {
				double term = (double)a[r * size[1] + i] * (double)b[r * size[2] + j];
				want += term;
				scale += fabs(term);
			}
			expect_close(c[i * size[2] + j], want, scale);
		}
	}
}

static void transposed_product_is_right_and_accumulates(void **state)
{
	(void)state;
	if (!gp_gemm_supported())
		skip();
	for (size_t i = 0; i < SIZES; i++) {
		const int64_t rows = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
		float *a = draw(rows * k, 4), *b = draw(rows * n, 5), *c = draw(k * n + 1, 6), *before = draw(k * n, 6);
		const float guard = c[k * n];
		gp_gemm_transposed(c, a, b, rows, k, n, false, NULL);
		check_transposed(c, a, b, before, sizes[i]);
		gp_gemm_transposed(c, a, b, rows, k, n, true, NULL);
		check_transposed(c, a, b, NULL, sizes[i]);
		assert_true(c[k * n] == guard);
		gp_free(a);
		gp_free(b);
		gp_free(c);
		gp_free(before);
	}
}

static void transposed_product_of_no_rows_is_zero(void **state)
{
	(void)state;
	float c[6] = {1, 2, 3, 4, 5, 6};
	if (!gp_gemm_supported())
		skip();
	gp_gemm_transposed(c, NULL, NULL, 0, 2, 3, false, NULL);
	assert_true(c[5] == 6.0f);
	gp_gemm_transposed(c, NULL, NULL, 0, 2, 3, true, NULL);
	for (int i = 0; i < 6; i++)
		assert_true(c[i] == 0.0f);
}

static void every_processor_gives_the_same_bits(void **state)
{
	(void)state;
	uint64_t bits = BITS_BEGIN;
	if (!gp_gemm_supported())
		skip();
	for (size_t i = 0; i < SIZES; i++) {
		const int64_t rows = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
		float *a = draw(rows * k, 0), *b = draw(k * n, 1), *d = draw(rows * n, 7), *c = draw(rows * n, 8);
		float *t = draw(k * n, 9), *packed = pack(b, k, n, false);
		gp_gemm(c, a, packed, rows, k, n);
		gp_gemm_transposed(t, a, d, rows, k, n, false, NULL);
		bits = bits_of(bits_of(bits, c, rows * n), t, k * n);
		gp_free(a);
		gp_free(b);
		gp_free(c);
		gp_free(d);
		gp_free(t);
		gp_free(packed);
	}
	assert_int_equal(bits, BITS);
}

static int all_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(product_is_right_for_all_sizes),
		cmocka_unit_test(transposed_matrix_packs_to_the_same),
		cmocka_unit_test(rows_do_not_depend_on_their_neighbours),
		cmocka_unit_test(transposed_product_is_right_and_accumulates),
		cmocka_unit_test(transposed_product_of_no_rows_is_zero),
		cmocka_unit_test(every_processor_gives_the_same_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return each_isa(all_tests);
}
