/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes (common/base/shape.h): products, limits, text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/base/shape.h"

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

static void zero_dimensions_count_as_nothing_where_they_are_allowed(void **state)
{
	(void)state;
	struct gp_err err;
	uint64_t n = 42;
	struct gp_shape zero = {.ndim = 3, .dim = {4, 0, 5}};
	struct gp_shape negative = {.ndim = 2, .dim = {0, -1}};
	struct gp_shape long_loop = {.ndim = 2, .dim = {INT64_MAX, 0}};
	struct gp_shape two = {.ndim = 1, .dim = {2}};
	assert_int_equal(gp_shape_count_or_zero(&negative, 100, &n, &err), GP_INVALID);
	assert_int_equal(gp_shape_count_or_zero(&long_loop, 100, &n, &err), GP_INVALID);
	assert_int_equal(n, 42);
	assert_int_equal(gp_shape_count_or_zero(&zero, 100, &n, &err), GP_OK);
	assert_int_equal(n, 0);
	assert_int_equal(gp_shape_count_or_zero(&two, 100, &n, &err), GP_OK);
	assert_int_equal(n, 2);
}

static void batch_goes_in_front_and_text_reads_well(void **state)
{
	(void)state;
	char text[64], tiny[4];
	struct gp_shape sample = {.ndim = 3, .dim = {28, 28, 1}};
	struct gp_shape s = gp_shape_batched(&sample, 16);
	assert_string_equal(gp_shape_text(&s, text, sizeof text), "16x28x28x1");
	assert_string_equal(gp_shape_text(&(struct gp_shape){0}, text, sizeof text), "scalar");
	assert_string_equal(gp_shape_text(&s, tiny, sizeof tiny), "16x");
	assert_false(gp_shape_equal(&s, &sample));
	struct gp_shape t = s;
	assert_true(gp_shape_equal(&s, &t));
}

static void channels_first_text_becomes_channels_last(void **state)
{
	(void)state;
	static const char *const wrong[] = {"",         "3",       "3x32",    "3x32x32x1", "3x32x32 ",
					    " 3x32x32", "+3x1x1",  "0x32x32", "3x032x32",  "3x32x",
					    "x32x32",   "3x-1x32", "3X32x1",  "3x65537x1", "3x99999999999999999999x1"};
	struct gp_shape s = {.ndim = 1, .dim = {7}};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		if (gp_shape_parse_chw(wrong[i], &s))
			fail_msg("'%s' was taken for a shape", wrong[i]);
		assert_true(s.ndim == 1 && s.dim[0] == 7);
	}
	assert_true(gp_shape_parse_chw("3x32x48", &s));
	assert_true(s.ndim == 3 && s.dim[0] == 32 && s.dim[1] == 48 && s.dim[2] == 3);
	assert_true(gp_shape_parse_chw("65536x1x10", &s));
	assert_true(s.dim[0] == 1 && s.dim[1] == 10 && s.dim[2] == 65536);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_within_the_limit_are_exact),
		cmocka_unit_test(zero_negative_and_overflowing_dimensions_are_refused),
		cmocka_unit_test(zero_dimensions_count_as_nothing_where_they_are_allowed),
		cmocka_unit_test(batch_goes_in_front_and_text_reads_well),
		cmocka_unit_test(channels_first_text_becomes_channels_last),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
