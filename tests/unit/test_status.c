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

/* C1, as characters and as bytes; marks, embeddings, overrides and isolates of direction; separators of lines. What stands
 * next to them in Unicode stays. */
static void controls_beyond_ascii_do_not_reach_a_terminal_either(void **state)
{
	static const char *const hidden[] = {"\302\200",     "\302\233",     "\302\237",     "\330\234",
					     "\342\200\216", "\342\200\217", "\342\200\250", "\342\200\251",
					     "\342\200\252", "\342\200\256", "\342\201\246", "\342\201\251",
					     "\200",         "\233"};
	static const char *const shown[] = {"\302\240",     "\330\233",     "\342\200\215", "\342\200\220",
					    "\342\200\257", "\342\201\245", "\342\201\252", "\340\262\240",
					    "\344",         "\360\237\230\200"};
	char text[16], wanted[16];
	(void)state;
	for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
		snprintf(text, sizeof text, "<%s>", hidden[i]);
		snprintf(wanted, sizeof wanted, "<%.*s>", (int)strlen(hidden[i]), "???");
		gp_hide_control_characters(text);
		assert_string_equal(text, wanted);
	}
	for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
		snprintf(text, sizeof text, "<%s>", shown[i]);
		snprintf(wanted, sizeof wanted, "<%s>", shown[i]);
		gp_hide_control_characters(text);
		assert_string_equal(text, wanted);
	}
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
	        cmocka_unit_test(controls_beyond_ascii_do_not_reach_a_terminal_either),
	        cmocka_unit_test(exit_statuses_follow_the_contract),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
