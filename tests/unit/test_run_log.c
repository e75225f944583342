/* SPDX-License-Identifier: Apache-2.0
 *
 * What the header of --log-json shows of a command line (client/log/run_log.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "client/log/run_log.h"

static void assert_shown(const char **argv, int argc, const char *wanted)
{
	json_t *list = gp_run_log_command(argc, (char **)argv);
	char *text = json_dumps(list, JSON_COMPACT);
	assert_non_null(text);
	assert_string_equal(text, wanted);
	free(text);
	json_decref(list);
}

#define SHOWN(wanted, ...)                                                                                             \
	do {                                                                                                           \
		const char *argv[] = {__VA_ARGS__};                                                                    \
		assert_shown(argv, sizeof argv / sizeof argv[0], wanted);                                              \
	} while (0)

static void the_command_line_is_shown_argument_by_argument(void **state)
{
	(void)state;
	SHOWN("[\"--model\",\"cnn\",\"--steps=3\"]", "--model", "cnn", "--steps=3");
	SHOWN("[\"a b\",\"\\\"\"]", "a b", "\"");
}

/* Somebody may have given the token itself in place of its file. */
static void what_may_be_a_secret_is_left_out(void **state)
{
	(void)state;
	SHOWN("[\"--token-file\",\"(left out)\",\"--seed\",\"3\"]", "--token-file", "s3cret", "--seed", "3");
	SHOWN("[\"--token-file=(left out)\",\"--seed\"]", "--token-file=s3cret", "--seed");
	SHOWN("[\"--tls-key\",\"(left out)\"]", "--tls-key", "--token-file");
	SHOWN("[\"--token-file\"]", "--token-file");
	SHOWN("[\"--token-file=(left out)\"]", "--token-file=");
}

static void bytes_that_are_no_text_are_replaced(void **state)
{
	(void)state;
	json_t *list;
	const char *argv[] = {"caf\xe9"};
	list = gp_run_log_command(1, (char **)argv);
	assert_int_equal(json_array_size(list), 1);
	assert_non_null(json_string_value(json_array_get(list, 0)));
	json_decref(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_command_line_is_shown_argument_by_argument),
		cmocka_unit_test(what_may_be_a_secret_is_left_out),
		cmocka_unit_test(bytes_that_are_no_text_are_replaced),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
