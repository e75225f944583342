/* SPDX-License-Identifier: Apache-2.0
 *
 * Anybody's text as a string of JSON (common/base/plain_text.h), read back by a reader of JSON.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "common/base/plain_text.h"

static void check_string(const char *text, const char *wanted)
{
	char out[256];
	json_error_t why;
	const size_t n = gp_json_string(text, out, sizeof out);
	assert_int_equal(n, strlen(out));
	json_t *back = json_loads(out, JSON_DECODE_ANY, &why);
	if (!back)
		fail_msg("%s: %s", out, why.text);
	assert_string_equal(json_string_value(back), wanted);
	json_decref(back);
}

static void strings_come_back_as_they_were(void **state)
{
	(void)state;
	check_string("", "");
	check_string("plain", "plain");
	check_string("\"\\/\b\f\n\r\t\x1b\x7f", "\"\\/\b\f\n\r\t\x1b\x7f");
	check_string("Z\xC3\xBCrich \xE2\x82\xAC \xF0\x9F\x98\x80", "Z\xC3\xBCrich \xE2\x82\xAC \xF0\x9F\x98\x80");
}

static void bytes_that_are_not_utf8_are_replaced(void **state)
{
	(void)state;
	check_string("a\xFF"
		     "b",
		     "a\xEF\xBF\xBD"
		     "b");
	check_string("\xC3\"", "\xEF\xBF\xBD\"");
	check_string("\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

/* Every length of the buffer gives a string that ends. */
static void what_does_not_fit_is_left_out_as_whole_characters(void **state)
{
	(void)state;
	static const char text[] = "a\"\n\xE2\x82\xAC\xFF";
	for (size_t size = 3; size < 32; size++) {
		char out[40];
		memset(out, 'x', sizeof out);
		const size_t n = gp_json_string(text, out, size);
		assert_true(n < size);
		json_t *back = json_loads(out, JSON_DECODE_ANY, NULL);
		assert_non_null(back);
		json_decref(back);
		assert_int_equal(out[size], 'x');
	}
}

/* As the table of RFC 3629, section 4 has them: by trying all sequences of two bytes, and of three with one third byte. */
static void characters_are_those_of_the_rfc(void **state)
{
	(void)state;
	for (unsigned a = 1; a < 256; a++)
		for (unsigned b = 1; b < 256; b++) {
			const char two[] = {(char)a, (char)b, 0}, three[] = {(char)a, (char)b, (char)0x80, 0};
			const bool tail = b >= 0x80 && b <= 0xBF;
			const size_t wanted2 = a < 0x80 ? 1 : a >= 0xC2 && a <= 0xDF && tail ? 2 : 0;
			const bool fits3 = (a == 0xE0 && b >= 0xA0 && b <= 0xBF) ||
					   (a == 0xED && b >= 0x80 && b <= 0x9F) ||
					   (a >= 0xE1 && a <= 0xEF && a != 0xED && tail);
			assert_int_equal(gp_utf8_character(two), wanted2);
			assert_int_equal(gp_utf8_character(three), wanted2 ? wanted2 : fits3 ? 3 : 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_come_back_as_they_were),
		cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
		cmocka_unit_test(what_does_not_fit_is_left_out_as_whole_characters),
		cmocka_unit_test(characters_are_those_of_the_rfc),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
