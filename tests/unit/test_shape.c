/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes (common/shape.h): products, limits, text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/shape.h"

static void counts_within_the_limit_are_exact(void **state)
{
	(void)state;
	struct gp_err err;
	uint64_t n = 0;
	struct gp_shape s = {.ndim = 4, .dim = {8, 112, 112, 32}};
	assert_int_equal(gp_shape_count(&s, 1u << 30, &n, &err), GP_OK);
	assert_int_equal(n, 8 * 112 * 112 * 32);
	assert_int_equal(gp_shape_elements(&s), n);
	struct gp_shape scalar = {0};
	assert_int_equal(gp_shape_count(&scalar, 1, &n, &err), GP_OK);
	assert_int_equal(n, 1);
}

static void zero_negative_and_overflowing_dimensions_are_refused(void **state)
{
	(void)state;
	struct gp_err err;
	uint64_t n = 42;
	struct gp_shape zero = {.ndim = 2, .dim = {4, 0}};
	struct gp_shape negative = {.ndim = 1, .dim = {-3}};
	struct gp_shape huge = {.ndim = 3, .dim = {INT64_MAX, INT64_MAX, INT64_MAX}};
	struct gp_shape over = {.ndim = 2, .dim = {1001, 1}};
	struct gp_shape deep = {.ndim = GP_MAX_DIMS + 1};
	assert_int_equal(gp_shape_count(&zero, UINT64_MAX, &n, &err), GP_INVALID);
	assert_int_equal(gp_shape_count(&negative, UINT64_MAX, &n, &err), GP_INVALID);
	assert_int_equal(gp_shape_count(&huge, UINT64_MAX, &n, &err), GP_INVALID);
	assert_int_equal(gp_shape_count(&over, 1000, &n, &err), GP_INVALID);
	assert_int_equal(gp_shape_count(&deep, 1000, &n, &err), GP_INVALID);
	assert_int_equal(n, 42);
}

static void batch_goes_in_front_and_text_reads_well(void **state)
{
	(void)state;
	char text[64], tiny[4];
	struct gp_shape sample = {.ndim = 3, .dim = {28, 28, 1}};
	struct gp_shape s = gp_shape_batched(&sample, 16);
	assert_string_equal(gp_shape_text(&s, text, sizeof text), "16x28x28x1");
	assert_string_equal(gp_shape_text(&s, tiny, sizeof tiny), "16x");
	assert_false(gp_shape_equal(&s, &sample));
	struct gp_shape t = s;
	assert_true(gp_shape_equal(&s, &t));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_within_the_limit_are_exact),
		cmocka_unit_test(zero_negative_and_overflowing_dimensions_are_refused),
		cmocka_unit_test(batch_goes_in_front_and_text_reads_well),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
