/* SPDX-License-Identifier: Apache-2.0
 *
 * Values that a user or a peer wrote (common/base/value.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "common/base/value.h"

static void each_type_takes_what_is_documented(void **state)
{
	(void)state;
	int64_t n = 0;
	double v = 0;
	assert_true(gp_parse_i64("-9223372036854775808", &n) && n == INT64_MIN);
	assert_false(gp_parse_i64("9223372036854775808", &n));
	assert_false(gp_parse_i64("", &n) || gp_parse_i64(" 1", &n) || gp_parse_i64("1 ", &n) ||
		     gp_parse_i64("1e3", &n));
	assert_true(gp_parse_real("1e-4", &v) && v == 1e-4);
	assert_true(gp_parse_real("-.5", &v) && v == -0.5);
	assert_false(gp_parse_real("inf", &v) || gp_parse_real("1e999", &v) || gp_parse_real("-", &v));
	assert_true(gp_parse_size("1G", &n) && n == 1 << 30);
	assert_true(gp_parse_size("1.5k", &n) && n == 1536);
	assert_true(gp_parse_size("2MiB", &n) && n == 2 << 20);
	assert_true(gp_parse_size("9007199254740993", &n) && n == 9007199254740993);
	assert_false(gp_parse_size("-1", &n) || gp_parse_size("9000000T", &n) || gp_parse_size("1x", &n) ||
		     gp_parse_size("1e30", &n) || gp_parse_size("k", &n) || gp_parse_size("1kb", &n));
	assert_true(gp_parse_rate("12.5MB", &v) && v == 1e8);
	assert_true(gp_parse_rate("1gbit", &v) && v == 1e9);
	assert_true(gp_parse_rate("300", &v) && v == 300);
	assert_false(gp_parse_rate("-1mbit", &v) || gp_parse_rate("1 mbit", &v));
	assert_true(gp_parse_time("2m", &v) && v == 120);
	assert_true(gp_parse_time("250us", &v) && v > 2.499e-4 && v < 2.501e-4);
	assert_false(gp_parse_time("-1s", &v) || gp_parse_time("1y", &v) || gp_parse_time("", &v));
}

static void assert_refused(const struct gp_value_form *form, const char *text, const char *wanted)
{
	char why[GP_VALUE_WHY];
	union gp_value v = {.whole = 77};
	assert_false(gp_value_parse(form, gp_text_of(text), &v, why));
	assert_string_equal(why, wanted);
	assert_int_equal(v.whole, 77);
}

static void refusals_say_what_is_allowed(void **state)
{
	(void)state;
	const struct gp_value_form batch = {.type = GP_VALUE_INT, .min = 1, .max = 64};
	const struct gp_value_form any = {.type = GP_VALUE_INT};
	const struct gp_value_form rate = {.type = GP_VALUE_REAL, .min = 0, .max = 1, .below_max = true};
	const struct gp_value_form bits = {.type = GP_VALUE_DECIMAL, .min = 1, .max = 1048576};
	const struct gp_value_form ratio = {.type = GP_VALUE_DECIMAL, .min = 0.0001, .max = 1, .decimals = 4};
	const struct gp_value_form budget = {
		.type = GP_VALUE_DECIMAL, .min = 2, .max = 8, .or_zero = true, .decimals = 2};
	const struct gp_value_form word = {.type = GP_VALUE_CHOICE, .choices = "sgd|adam"};
	const struct gp_value_form yes = {.type = GP_VALUE_BOOL};
	const struct gp_value_form size = {.type = GP_VALUE_SIZE, .min = 1024, .max = 0x1p62};
	assert_refused(&batch, "many", "'many' is not a whole number (1..64)");
	assert_refused(&batch, "", "'' is not a whole number (1..64)");
	assert_refused(&batch, "65", "65 is out of range (1..64)");
	assert_refused(&any, "1.5", "'1.5' is not a whole number");
	assert_refused(&any, "a\033[2Jb", "'a?[2Jb' is not a whole number");
	assert_refused(&any,
		       "a\xc2\x9b"
		       "2Jb\xc2\xa7",
		       "'a??2Jb\xc2\xa7' is not a whole number");
	assert_refused(&rate, "1", "1 is out of range (at least 0, below 1)");
	assert_refused(&rate, "nan", "'nan' is not a number (at least 0, below 1)");
	assert_refused(&bits, "4.5", "'4.5' is not a whole number (1..1048576)");
	assert_refused(&bits, "2000000", "2000000 is out of range (1..1048576)");
	assert_refused(&ratio, "0.00001", "'0.00001' is not a number with up to 4 decimals (0.0001..1)");
	assert_refused(&budget, "1.5", "1.5 is out of range (0 or 2..8)");
	assert_refused(&budget, "9", "9 is out of range (0 or 2..8)");
	assert_refused(&budget, "few", "'few' is not a number with up to 2 decimals (0 or 2..8)");
	assert_refused(&word, "sg", "'sg' is not one of sgd|adam");
	assert_refused(&word, "sgd|adam", "'sgd|adam' is not one of sgd|adam");
	assert_refused(&yes, "maybe", "'maybe' is not yes or no");
	assert_refused(&size, "7", "7 is out of range (at least 1k)");
	assert_refused(&any, "111111111111111111111111111111111111111111111111111111111111111111",
		       "'111111111111111111111111111111111111111111111111111111111111...' is not a whole number");
}

static void pieces_of_a_longer_text_are_values(void **state)
{
	(void)state;
	const struct gp_value_form batch = {.type = GP_VALUE_INT, .min = 1, .max = 64};
	char why[GP_VALUE_WHY];
	union gp_value v;
	assert_true(gp_value_parse(&batch, (struct gp_text){"123", 2}, &v, why));
	assert_int_equal(v.whole, 12);
	assert_false(gp_value_parse(&batch, (struct gp_text){"1\0002", 3}, &v, why));
}

static void yes_and_no_have_four_spellings_each(void **state)
{
	(void)state;
	static const char *const yes[] = {"yes", "on", "true", "1", "YES"}, *const no[] = {"no", "off", "False", "0"};
	const struct gp_value_form form = {.type = GP_VALUE_BOOL};
	char why[GP_VALUE_WHY];
	union gp_value v;
	for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
		assert_true(gp_value_parse(&form, gp_text_of(yes[i]), &v, why) && v.yes);
	for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
		assert_true(gp_value_parse(&form, gp_text_of(no[i]), &v, why) && !v.yes);
}

static void decimals_print_as_what_parses_to_them(void **state)
{
	(void)state;
	const struct gp_value_form form = {.type = GP_VALUE_DECIMAL, .min = 0.000001, .max = 999, .decimals = 6};
	char why[GP_VALUE_WHY], text[GP_SHOWN];
	union gp_value v, again;
	for (int i = 1; i < 1000000; i += 97) {
		snprintf(text, sizeof text, "%d.%06d", i % 999, i);
		assert_true(gp_value_parse(&form, gp_text_of(text), &v, why));
		gp_decimal_text(v.real, 6, text);
		assert_true(gp_value_parse(&form, gp_text_of(text), &again, why));
		assert_true(v.real == again.real);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_type_takes_what_is_documented),
		cmocka_unit_test(refusals_say_what_is_allowed),
		cmocka_unit_test(pieces_of_a_longer_text_are_values),
		cmocka_unit_test(yes_and_no_have_four_spellings_each),
		cmocka_unit_test(decimals_print_as_what_parses_to_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
