/* SPDX-License-Identifier: Apache-2.0
 *
 * Log levels per area (common/base/log.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/log.h"

static void areas_take_their_own_levels(void **state)
{
	(void)state;
	struct gp_err err;
	assert_int_equal(gp_log_configure("all=error,codec=debug", &err), GP_OK);
	assert_true(gp_log_enabled(GP_LOG_AREA_codec, GP_LOG_DEBUG));
	assert_false(gp_log_enabled(GP_LOG_AREA_codec, GP_LOG_TRACE));
	assert_false(gp_log_enabled(GP_LOG_AREA_net, GP_LOG_WARN));
	assert_true(gp_log_enabled(GP_LOG_AREA_net, GP_LOG_ERROR));
}

static void wrong_specs_name_what_is_wrong(void **state)
{
	(void)state;
	struct gp_err err;
	assert_int_equal(gp_log_configure("codec", &err), GP_USAGE);
	assert_non_null(strstr(err.text, "codec"));
	assert_int_equal(gp_log_configure("codec=loud", &err), GP_USAGE);
	assert_non_null(strstr(err.text, "loud"));
	assert_int_equal(gp_log_configure("all=info,kodec=info", &err), GP_USAGE);
	assert_non_null(strstr(err.text, "kodec"));
}

static int evaluated(int *counter)
{
	return ++*counter;
}

static void arguments_of_silent_lines_are_not_evaluated(void **state)
{
	(void)state;
	struct gp_err err;
	int counter = 0;
	assert_int_equal(gp_log_configure("all=error", &err), GP_OK);
	gp_log(net, GP_LOG_DEBUG, "%d", evaluated(&counter));
	assert_int_equal(counter, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(areas_take_their_own_levels),
		cmocka_unit_test(wrong_specs_name_what_is_wrong),
		cmocka_unit_test(arguments_of_silent_lines_are_not_evaluated),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
