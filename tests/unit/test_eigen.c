/* SPDX-License-Identifier: Apache-2.0
 *
 * Eigenvectors of symmetric matrices.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/insert/eigen.h"
#include "common/base/rng.h"
#include "tests/unit/ok.h"

enum { MOST = 60 };

static double matrix[MOST * MOST], vectors[MOST * MOST], value[MOST];

/* x' x of drawn rows: fewer rows than columns leave eigenvalues of 0. */
static void draw(int64_t n, int64_t rows)
{
	static double x[MOST * MOST];
	const uint64_t stream = gp_rng_stream(GP_RNG_INIT, gp_rng_name_id("matrix"));
	for (int64_t i = 0; i < rows * n; i++)
		x[i] = (double)gp_rng_normal(7, stream, (uint64_t)i) * (double)(i % n + 1);
	memset(matrix, 0, sizeof matrix);
	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = 0; i < n; i++)
			for (int64_t k = 0; k < n; k++)
				matrix[i * n + k] += x[r * n + i] * x[r * n + k];
	memcpy(vectors, matrix, sizeof vectors);
}

static void check_decomposition(int64_t n)
{
	OK(gp_eigen_symmetric(vectors, value, n, &err));
	for (int64_t i = 0; i < n; i++) {
		double largest = 0;
		assert_true(i == 0 || value[i] <= value[i - 1]);
		for (int64_t k = 0; k < n; k++) {
			double product = 0, overlap = 0;
			for (int64_t j = 0; j < n; j++) {
				product += matrix[k * n + j] * vectors[i * n + j];
				overlap += vectors[k * n + j] * vectors[i * n + j];
			}
			assert_true(fabs(product - value[i] * vectors[i * n + k]) <= 1e-9 * fmax(1, value[0]));
			assert_true(fabs(overlap - (i == k)) <= 1e-10);
			if (fabs(vectors[i * n + k]) > fabs(largest))
				largest = vectors[i * n + k];
		}
		assert_true(largest > 0);
	}
}

static void vectors_are_orthonormal_and_belong_to_falling_eigenvalues(void **state)
{
	(void)state;
	for (int64_t n = 1; n <= 7; n++) {
		draw(n, n + 3);
		check_decomposition(n);
	}
	draw(MOST, MOST);
	check_decomposition(MOST);
}

static void few_rows_and_equal_eigenvalues_are_no_hindrance(void **state)
{
	(void)state;
	draw(MOST, 5);
	check_decomposition(MOST);
	assert_true(value[4] > 1 && fabs(value[5]) < 1e-6);
	memset(matrix, 0, sizeof matrix);
	for (int i = 0; i < 9; i++)
		matrix[i * 9 + i] = i < 4 ? 2 : 5;
	memcpy(vectors, matrix, sizeof vectors);
	check_decomposition(9);
	assert_true(value[4] == 5 && value[5] == 2);
	memset(vectors, 0, sizeof vectors);
	memset(matrix, 0, sizeof matrix);
	check_decomposition(4);
}

/* As subtracting leaves them of features that never change: beside the others, of which there are `large`. */
static void add_roundings(int64_t large, uint64_t seed)
{
	const uint64_t stream = gp_rng_stream(GP_RNG_INIT, gp_rng_name_id("roundings"));
	for (int64_t i = 0; i < MOST; i++)
		for (int64_t k = 0; k <= i; k++) {
			const double rounding = 1e-12 * (double)gp_rng_normal(seed, stream, (uint64_t)(i * MOST + k));
			const double x = i < large ? matrix[i * MOST + k] : 0;
			matrix[i * MOST + k] = matrix[k * MOST + i] = x + rounding;
		}
}

static void what_roundings_leave_is_no_hindrance(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		draw(MOST, 3);
		add_roundings(20, seed);
		memcpy(vectors, matrix, sizeof vectors);
		check_decomposition(MOST);
	}
}

static void what_is_not_finite_is_refused(void **state)
{
	(void)state;
	memset(vectors, 0, sizeof vectors);
	vectors[3] = NAN;
	assert_int_equal(gp_eigen_symmetric(vectors, value, 3, &err), GP_INVALID);
}

static void large_and_small_matrices_are_no_hindrance(void **state)
{
	(void)state;
	static const double sizes[] = {1e-300, 1e-170, 1e160, 1e300};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		double plain[5], turned[25];
		draw(5, 3);
		memcpy(vectors, matrix, sizeof vectors);
		assert_int_equal(gp_eigen_symmetric(vectors, value, 5, &err), GP_OK);
		memcpy(plain, value, sizeof plain);
		memcpy(turned, vectors, sizeof turned);
		for (int k = 0; k < 25; k++)
			vectors[k] = matrix[k] * sizes[i];
		assert_int_equal(gp_eigen_symmetric(vectors, value, 5, &err), GP_OK);
		for (int k = 0; k < 5; k++)
			assert_true(fabs(value[k] / sizes[i] - plain[k]) <= 1e-9 * fabs(plain[0]));
		for (int k = 0; k < 15;
		     k++) /* two of the five directions are drawn, and the rest are of no eigenvalue */
			assert_true(fabs(vectors[k] - turned[k]) <= 1e-6);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vectors_are_orthonormal_and_belong_to_falling_eigenvalues),
		cmocka_unit_test(few_rows_and_equal_eigenvalues_are_no_hindrance),
		cmocka_unit_test(what_roundings_leave_is_no_hindrance),
		cmocka_unit_test(large_and_small_matrices_are_no_hindrance),
		cmocka_unit_test(what_is_not_finite_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
