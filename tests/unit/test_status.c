/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors and exit statuses (common/base/status.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/status.h"

static enum gp_status fails(struct gp_err *err)
{
	GP_FAIL(err, GP_INVALID, "file %s is %d bytes short", "x.idx", 7);
}

static enum gp_status forwards(struct gp_err *err)
{
	GP_TRY(fails(err));
	return GP_OK;
}

static void failure_is_forwarded_with_its_text_and_place(void **state)
{
	(void)state;
	struct gp_err err = {0};
	assert_int_equal(forwards(&err), GP_INVALID);
	assert_string_equal(err.text, "file x.idx is 7 bytes short");
	assert_non_null(strstr(err.file, "test_status.c"));
	gp_err_prefix(&err, "reading %s", "data");
	assert_string_equal(err.text, "reading data: file x.idx is 7 bytes short");
}

/* Names in files and texts of peers may hold what moves a terminal's cursor. */
static void control_characters_do_not_reach_a_terminal(void **state)
{
	(void)state;
	struct gp_err err = {0};
	gp_err_set(&err, GP_INVALID, 0, __FILE__, __LINE__, "key '%s' is wrong", "\033]0;title\177");
	assert_string_equal(err.text, "key '?]0;title?' is wrong");
	gp_err_prefix(&err, "file %s", "J\303\266rg\r");
	assert_string_equal(err.text, "file J\303\266rg?: key '?]0;title?' is wrong");
}

static void exit_statuses_follow_the_contract(void **state)
{
	(void)state;
	assert_int_equal(gp_status_exit(GP_OK), 0);
	assert_int_equal(gp_status_exit(GP_USAGE), 2);
	assert_int_equal(gp_status_exit(GP_INVALID), 3);
	assert_int_equal(gp_status_exit(GP_PEER), 4);
	assert_int_equal(gp_status_exit(GP_TIMEOUT), 4);
	assert_int_equal(gp_status_exit(GP_DEVICE), 5);
	assert_int_equal(gp_status_exit(GP_IO), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(failure_is_forwarded_with_its_text_and_place),
	        cmocka_unit_test(control_characters_do_not_reach_a_terminal),
	        cmocka_unit_test(exit_statuses_follow_the_contract),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
