/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of bfloat16 pairs beside a portable reference, for every
 * tile, panel and remainder, on ARM64 bit for bit; rounding beside the reference
 * for values of every kind. Skipped where the processor lacks AVX512_BF16, on
 * ARM64 FEAT_BF16.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "kernels/cpu/math/bf16.h"
#include "kernels/cpu/math/gemm.h"
#include "tests/unit/bf16_reference.h"

static const int64_t sizes[][3] = {/* rows, k, n */
				   {1, 1, 1},     {2, 3, 5},    {7, 16, 16},   {24, 24, 144}, {49, 144, 24},
				   {130, 17, 33}, {259, 5, 63}, {300, 64, 64}, {31, 96, 65},  {53, 7, 81},
				   {40, 32, 160}, {15, 1, 96},  {129, 41, 112}};
#define SIZES (sizeof sizes / sizeof sizes[0])
#define GUARD 0x5a5a5a5au

/* Caller frees. */
static float *draw(int64_t count, uint64_t stream)
{
	float *v = gp_calloc((size_t)count + 1, sizeof *v);
	assert_non_null(v);
	for (int64_t i = 0; i < count + 1; i++)
		v[i] = gp_rng_normal(9, gp_rng_stream(GP_RNG_SYNTHETIC, stream), (uint64_t)i);
	return v;
}

/* `count` words and one that must stay as it is. Caller frees. */
static uint32_t *words(int64_t count)
{
	uint32_t *v = gp_calloc((size_t)count + 1, sizeof *v);
	assert_non_null(v);
	v[count] = GUARD;
	return v;
}

static uint32_t *columns_of(const float *a, int64_t rows, int64_t k)
{
	const int64_t count = rows * gp_gemm_bf16_pairs(k);
	uint32_t *pairs = words(count);
	gp_gemm_bf16_pair_columns(pairs, a, rows, k);
	assert_int_equal(pairs[count], GUARD);
	return pairs;
}

static uint32_t *rows_of(const float *a, int64_t rows, int64_t n)
{
	const int64_t count = gp_gemm_bf16_pairs(rows) * n;
	uint32_t *pairs = words(count);
	gp_gemm_bf16_pair_rows(pairs, a, rows, n);
	assert_int_equal(pairs[count], GUARD);
	return pairs;
}

static uint32_t *pack(const float *b, int64_t k, int64_t n, bool transposed)
{
	const int64_t count = gp_gemm_bf16_packed_count(k, n);
	uint32_t *packed = words(count);
	gp_gemm_bf16_pack(packed, b, k, n, transposed);
	assert_int_equal(packed[count], GUARD);
	return packed;
}

static uint32_t pair(float low, float high)
{
	return (uint32_t)bf16_round(low) | (uint32_t)bf16_round(high) << 16;
}

/* Products are exact, so the reference sums them in double; `scale` is the sum of their magnitudes. */
static void expect_close(float got, double want, double scale)
{
	if (!(fabs((double)got - want) <= 2e-6 * scale + 1e-30))
		fail_msg("%.9g instead of %.9g", (double)got, want);
}

static void add_product(double *sum, double *scale, float a, float b)
{
	const double term = (double)bf16_rounded(a) * (double)bf16_rounded(b);
	*sum += term;
	*scale += fabs(term);
}

static void rounding_is_to_the_nearest_and_even(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	float in[71];
	static const uint32_t special[] = {0x00000000, 0x80000000, 0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001,
					   0x3f807fff, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
					   0x00000001, 0x007fffff, 0x80400000, 0x00800000, 0x7f7f7fff, 0xffc12345};
	enum { SPECIAL = sizeof special / sizeof special[0] };
	memcpy(in, special, sizeof special);
	for (int i = SPECIAL; i < 71; i++)
		in[i] = gp_rng_normal(2, gp_rng_stream(GP_RNG_SYNTHETIC, 7), (uint64_t)i) * ldexpf(1.0f, i - 40);
	for (int n = 0; n <= 71; n++) {
		uint16_t out[72];
		memset(out, 0x5a, sizeof out);
		gp_bf16_round(out, in, n);
		for (int i = 0; i < n; i++)
			if (out[i] != bf16_round(in[i]))
				fail_msg("%a becomes %04x, not %04x", (double)in[i], out[i], bf16_round(in[i]));
		assert_int_equal(out[n], 0x5a5a);
	}
}

static void pairs_are_neighbours_and_odd_ends_are_zero(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	for (size_t i = 0; i < SIZES; i++) {
		const int64_t rows = sizes[i][0], k = sizes[i][1], pairs = (k + 1) / 2;
		float *a = draw(rows * k, 1);
		uint32_t *columns = columns_of(a, rows, k), *below = rows_of(a, rows, k);
		for (int64_t r = 0; r < rows; r++)
			for (int64_t l = 0; l < pairs; l++)
				assert_int_equal(columns[r * pairs + l],
						 pair(a[r * k + 2 * l], 2 * l + 1 < k ? a[r * k + 2 * l + 1] : 0.0f));
		for (int64_t r = 0; r < rows; r += 2)
			for (int64_t l = 0; l < k; l++)
				assert_int_equal(below[r / 2 * k + l],
						 pair(a[r * k + l], r + 1 < rows ? a[(r + 1) * k + l] : 0.0f));
		gp_free(a);
		gp_free(columns);
		gp_free(below);
	}
}

static void columns_of_a_wider_matrix_pair_as_a_matrix_of_their_own(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	for (size_t i = 0; i < SIZES; i++) {
		const int64_t rows = sizes[i][0], n = sizes[i][2], stride = n + 7, count = gp_gemm_bf16_pairs(rows) * n;
		float *wide = draw(rows * stride, 1), *own = draw(rows * n, 2);
		for (int64_t r = 0; r < rows; r++)
			memcpy(own + r * n, wide + r * stride + 5, (size_t)n * sizeof *own);
		uint32_t *want = rows_of(own, rows, n), *got = words(count);
		gp_gemm_bf16_pair_some(got, wide + 5, stride, rows, n);
		assert_memory_equal(got, want, (size_t)(count + 1) * sizeof *got);
		gp_free(wide);
		gp_free(own);
		gp_free(want);
		gp_free(got);
	}
}

static void product_agrees_with_the_reference(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	for (size_t i = 0; i < SIZES; i++) {
		const int64_t rows = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
		float *a = draw(rows * k, 0), *b = draw(k * n, 1), *c = draw(rows * n, 2);
		const float guard = c[rows * n];
		uint32_t *pairs = columns_of(a, rows, k), *packed = pack(b, k, n, false);
		gp_gemm_bf16(c, pairs, packed, rows, k, n, NULL);
		for (int64_t r = 0; r < rows; r++) {
			for (int64_t j = 0; j < n; j++) {
				double want = 0.0, scale = 0.0;
				for (int64_t l = 0; l < k; l++)
					add_product(&want, &scale, a[r * k + l], b[l * n + j]);
				expect_close(c[r * n + j], want, scale);
			}
		}
		assert_true(c[rows * n] == guard);
		gp_free(a);
		gp_free(b);
		gp_free(c);
		gp_free(pairs);
		gp_free(packed);
	}
}

static void transposed_matrix_packs_to_the_same(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	static const int64_t shapes[][2] = {{7, 81}, {8, 48}, {300, 17}, {129, 64}};
	for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
		const int64_t k = shapes[s][0], n = shapes[s][1];
		float *b = draw(k * n, 3), *t = draw(k * n, 4);
		for (int64_t i = 0; i < k; i++)
			for (int64_t j = 0; j < n; j++)
				t[j * k + i] = b[i * n + j];
		uint32_t *x = pack(b, k, n, false), *y = pack(t, k, n, true);
		assert_memory_equal(x, y, (size_t)gp_gemm_bf16_packed_count(k, n) * sizeof *x);
		gp_free(b);
		gp_free(t);
		gp_free(x);
		gp_free(y);
	}
}

static void rows_do_not_depend_on_their_neighbours(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	for (size_t i = 0; i < SIZES; i++) {
		const int64_t rows = sizes[i][0], k = sizes[i][1], n = sizes[i][2], pairs = (k + 1) / 2;
		float *a = draw(rows * k, 0), *b = draw(k * n, 1), *all = draw(rows * n, 2), *one = draw(n, 3);
		uint32_t *left = columns_of(a, rows, k), *packed = pack(b, k, n, false);
		gp_gemm_bf16(all, left, packed, rows, k, n, NULL);
		for (int64_t r = 0; r < rows; r++) {
			gp_gemm_bf16(one, left + r * pairs, packed, 1, k, n, NULL);
			assert_memory_equal(one, all + r * n, (size_t)n * sizeof *one);
		}
		gp_free(a);
		gp_free(b);
		gp_free(all);
		gp_free(one);
		gp_free(left);
		gp_free(packed);
	}
}

/* c[k][n] = before + sum over rows of a[r][k] b[r][n]; before NULL: zero. */
static void check_transposed(const float *c, const float *a, const float *b, const float *before, const int64_t *size)
{
	for (int64_t i = 0; i < size[1]; i++) {
		for (int64_t j = 0; j < size[2]; j++) {
			double want = before ? (double)before[i * size[2] + j] : 0.0, scale = fabs(want);
			for (int64_t r = 0; r < size[0]; r++)
				add_product(&want, &scale, a[r * size[1] + i], b[r * size[2] + j]);
			expect_close(c[i * size[2] + j], want, scale);
		}
	}
}

static void transposed_product_agrees_with_the_reference_and_accumulates(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	for (size_t i = 0; i < SIZES; i++) {
		const int64_t rows = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
		float *a = draw(rows * k, 4), *b = draw(rows * n, 5), *c = draw(k * n, 6), *before = draw(k * n, 6);
		const float guard = c[k * n];
		uint32_t *left = rows_of(a, rows, k), *right = rows_of(b, rows, n);
		gp_gemm_bf16_transposed(c, left, right, rows, k, n, false, NULL);
		check_transposed(c, a, b, before, sizes[i]);
		gp_gemm_bf16_transposed(c, left, right, rows, k, n, true, NULL);
		check_transposed(c, a, b, NULL, sizes[i]);
		assert_true(c[k * n] == guard);
		gp_free(a);
		gp_free(b);
		gp_free(c);
		gp_free(before);
		gp_free(left);
		gp_free(right);
	}
}

/* One chain over `count` values of each side, `step_a` and `step_b` floats apart, as BFDOT adds it up. */
static float chain(const float *a, int64_t step_a, const float *b, int64_t step_b, int64_t count)
{
	float sum = 0.0f;
	for (int64_t l = 0; l < count; l += 2) {
		const bool two = l + 1 < count;
		const float left[2] = {bf16_rounded(a[l * step_a]), two ? bf16_rounded(a[(l + 1) * step_a]) : 0.0f};
		const float right[2] = {bf16_rounded(b[l * step_b]), two ? bf16_rounded(b[(l + 1) * step_b]) : 0.0f};
		sum = bf16_dot_odd(sum, left, right);
	}
	return sum;
}

static void expect_bits(float got, float want)
{
	if (memcmp(&got, &want, sizeof got) != 0)
		fail_msg("%a instead of %a", (double)got, (double)want);
}

static void check_bits_of_products(const int64_t *size)
{
	const int64_t rows = size[0], k = size[1], n = size[2];
	float *a = draw(rows * k, 0), *b = draw(k * n, 1), *c = draw(rows * n, 2);
	uint32_t *pairs = columns_of(a, rows, k), *packed = pack(b, k, n, false);
	gp_gemm_bf16(c, pairs, packed, rows, k, n, NULL);
	for (int64_t r = 0; r < rows; r++)
		for (int64_t j = 0; j < n; j++)
			expect_bits(c[r * n + j], chain(a + r * k, 1, b + j, n, k));
	gp_free(a);
	gp_free(b);
	gp_free(c);
	gp_free(pairs);
	gp_free(packed);
}

/* Chains over GEMM_BLOCK rows each are added up in fp32. */
static void check_bits_of_transposed_products(const int64_t *size)
{
	const int64_t rows = size[0], m = size[1], n = size[2];
	float *a = draw(rows * m, 4), *b = draw(rows * n, 5), *c = draw(m * n, 6);
	uint32_t *left = rows_of(a, rows, m), *right = rows_of(b, rows, n);
	gp_gemm_bf16_transposed(c, left, right, rows, m, n, true, NULL);
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < n; j++) {
			float want = 0.0f;
			for (int64_t r = 0; r < rows; r += GEMM_BLOCK) {
				const int64_t here = rows - r < GEMM_BLOCK ? rows - r : GEMM_BLOCK;
				const float part = chain(a + r * m + i, m, b + r * n + j, n, here);
				want = r ? want + part : part;
			}
			expect_bits(c[i * n + j], want);
		}
	gp_free(a);
	gp_free(b);
	gp_free(c);
	gp_free(left);
	gp_free(right);
}

static void on_arm64_bits_are_those_of_sums_rounded_to_odd(void **state)
{
	(void)state;
#if !defined(__aarch64__)
	skip();
#endif
	if (!gp_bf16_supported())
		skip();
	for (size_t i = 0; i < SIZES; i++) {
		check_bits_of_products(sizes[i]);
		check_bits_of_transposed_products(sizes[i]);
	}
}

/* Whatever the processor: the reference itself, by sums that are known. */
static void the_reference_rounds_to_odd(void **state)
{
	(void)state;
	expect_bits(bf16_add_odd(1.0f, 0x1p-24f), 1.0f + 0x1p-23f);
	expect_bits(bf16_add_odd(1.0f, 0x1p-120f), 1.0f + 0x1p-23f);
	expect_bits(bf16_add_odd(1.0f + 0x1p-23f, 0x1p-24f), 1.0f + 0x1p-23f);
	expect_bits(bf16_add_odd(1.0f + 0x1p-23f, -0x1p-24f), 1.0f + 0x1p-23f);
	expect_bits(bf16_add_odd(1.0f + 0x1p-22f, -0x1p-60f), 1.0f + 0x1p-23f);
	expect_bits(bf16_add_odd(-3.0f, -0x1p-60f), -3.0f - 0x1p-22f);
	expect_bits(bf16_add_odd(1.5f, 2.25f), 3.75f);
}

static void transposed_product_of_no_rows_is_zero(void **state)
{
	(void)state;
	float c[6] = {1, 2, 3, 4, 5, 6};
	if (!gp_bf16_supported())
		skip();
	gp_gemm_bf16_transposed(c, NULL, NULL, 0, 2, 3, false, NULL);
	assert_true(c[5] == 6.0f);
	gp_gemm_bf16_transposed(c, NULL, NULL, 0, 2, 3, true, NULL);
	for (int i = 0; i < 6; i++)
		assert_true(c[i] == 0.0f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounding_is_to_the_nearest_and_even),
		cmocka_unit_test(pairs_are_neighbours_and_odd_ends_are_zero),
		cmocka_unit_test(columns_of_a_wider_matrix_pair_as_a_matrix_of_their_own),
		cmocka_unit_test(product_agrees_with_the_reference),
		cmocka_unit_test(transposed_matrix_packs_to_the_same),
		cmocka_unit_test(rows_do_not_depend_on_their_neighbours),
		cmocka_unit_test(transposed_product_agrees_with_the_reference_and_accumulates),
		cmocka_unit_test(transposed_product_of_no_rows_is_zero),
		cmocka_unit_test(on_arm64_bits_are_those_of_sums_rounded_to_odd),
		cmocka_unit_test(the_reference_rounds_to_odd),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
