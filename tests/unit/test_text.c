/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of text (common/base/text.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "common/base/text.h"

static void a_text_is_cut_at_every_separator(void **state)
{
	(void)state;
	static const char *const parts[] = {"a", "", "bc", ""};
	struct gp_text piece, rest = gp_text_of("a,,bc,");
	for (int i = 0; i < 4; i++) {
		assert_true(gp_text_cut(&rest, ',', &piece));
		assert_true(gp_text_is(piece, parts[i]));
	}
	assert_false(gp_text_cut(&rest, ',', &piece));
	rest = gp_text_of("");
	assert_true(gp_text_cut(&rest, ',', &piece) && piece.len == 0);
	assert_false(gp_text_cut(&rest, ',', &piece));
}

static void a_piece_is_compared_whole(void **state)
{
	(void)state;
	const struct gp_text t = {"cnn:width", 3};
	assert_true(gp_text_is(t, "cnn"));
	assert_false(gp_text_is(t, "cn") || gp_text_is(t, "cnn:") || gp_text_is(t, ""));
}

static void copies_and_appends_stay_in_their_room(void **state)
{
	(void)state;
	char four[4] = "xyz", text[8] = "ab";
	assert_true(gp_text_copy((struct gp_text){"abcdef", 3}, four, sizeof four));
	assert_string_equal(four, "abc");
	assert_false(gp_text_copy((struct gp_text){"abcdef", 4}, four, sizeof four));
	assert_string_equal(four, "");
	assert_true(gp_text_copy((struct gp_text){NULL, 0}, four, sizeof four));
	gp_text_append(text, sizeof text, "%d-%s", 12, "cdefgh");
	assert_string_equal(text, "ab12-cd");
	gp_text_append(text, sizeof text, "more");
	assert_string_equal(text, "ab12-cd");
}

static void shown_text_is_short_and_printable(void **state)
{
	(void)state;
	char long_text[100], shown[GP_SHOWN];
	memset(long_text, 'a', sizeof long_text);
	assert_string_equal(gp_text_shown((struct gp_text){"a\r\nb\033", 5}, shown), "a??b?");
	gp_text_shown((struct gp_text){long_text, 60}, shown);
	assert_int_equal(strlen(shown), 60);
	gp_text_shown((struct gp_text){long_text, 61}, shown);
	assert_int_equal(strlen(shown), 63);
	assert_string_equal(shown + 60, "...");
}

static void choices_are_found_by_their_whole_word(void **state)
{
	(void)state;
	assert_int_equal(gp_choice_index("sgd|adam|adamw", gp_text_of("sgd")), 0);
	assert_int_equal(gp_choice_index("sgd|adam|adamw", gp_text_of("adamw")), 2);
	assert_int_equal(gp_choice_index("sgd|adam|adamw", gp_text_of("ada")), -1);
	assert_int_equal(gp_choice_index("sgd|adam|adamw", gp_text_of("")), -1);
}

static void a_slip_or_an_unfinished_word_names_what_was_meant(void **state)
{
	(void)state;
	static const char *const names[] = {"cifar10", "cifar100", "folder", "synthetic", "sortquant", "idx"};
	enum { NAMES = sizeof names / sizeof names[0] };
	assert_string_equal(gp_nearest_name("cifar1", names, NAMES), "cifar10");
	assert_string_equal(gp_nearest_name("floder", names, NAMES), "folder");
	assert_string_equal(gp_nearest_name("synthetics", names, NAMES), "synthetic");
	assert_string_equal(gp_nearest_name("sortquatn", names, NAMES), "sortquant");
	assert_string_equal(gp_nearest_name("idz", names, NAMES), "idx");
	assert_string_equal(gp_nearest_name("so", names, NAMES), "sortquant");
	assert_string_equal(gp_nearest_name("IDX", names, NAMES), "idx");
	assert_string_equal(gp_nearest_name("Cifar-100", names, NAMES), "cifar100");
}

static void far_words_are_not_guessed(void **state)
{
	(void)state;
	static const char *const names[] = {"cifar10", "ef", "fp8", "raw"};
	static const char *const far[] = {"imagenet", "", "f", "foo", "int8", "r", "x"};
	char very_long[200];
	memset(very_long, 'c', sizeof very_long - 1);
	very_long[sizeof very_long - 1] = '\0';
	for (size_t i = 0; i < sizeof far / sizeof far[0]; i++)
		assert_null(gp_nearest_name(far[i], names, 4));
	assert_null(gp_nearest_name(very_long, names, 4));
	assert_null(gp_nearest_name("cifar10", names, 0));
}

static void values_of_json_are_counted_outside_of_strings(void **state)
{
	(void)state;
	assert_int_equal(gp_json_marks(gp_text_of("")), 0);
	assert_int_equal(gp_json_marks(gp_text_of("{\"a\":[1,2,{}]}")), 6);
	assert_int_equal(gp_json_marks(gp_text_of("\"{[:,\"")), 0);
	assert_int_equal(gp_json_marks(gp_text_of("\"\\\"{\",[")), 2);
	assert_int_equal(gp_json_marks(gp_text_of("\"\\")), 0);
	assert_int_equal(gp_json_marks((struct gp_text){"[],", 2}), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_text_is_cut_at_every_separator),
		cmocka_unit_test(a_piece_is_compared_whole),
		cmocka_unit_test(copies_and_appends_stay_in_their_room),
		cmocka_unit_test(shown_text_is_short_and_printable),
		cmocka_unit_test(choices_are_found_by_their_whole_word),
		cmocka_unit_test(a_slip_or_an_unfinished_word_names_what_was_meant),
		cmocka_unit_test(far_words_are_not_guessed),
		cmocka_unit_test(values_of_json_are_counted_outside_of_strings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
