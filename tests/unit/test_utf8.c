/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 (client/text/utf8.h): every code point there and back, and what bytes
 * become that are none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "client/text/utf8.h"

static void every_code_point_goes_there_and_back(void **state)
{
	(void)state;
	for (int32_t c = 0; c <= 0x10FFFF; c++) {
		char bytes[GP_UTF8_MOST];
		int32_t back;
		if (c >= 0xD800 && c <= 0xDFFF)
			continue;
		const size_t n = gp_utf8_write(c, bytes);
		if (gp_utf8_read(bytes, n, &back) != n || back != c)
			fail_msg("U+%04X comes back as U+%04X", (unsigned)c, (unsigned)back);
		for (size_t less = 1; less < n; less++) {
			if (gp_utf8_read(bytes, less, &back) != less || back != -1)
				fail_msg("the first %zu bytes of U+%04X are taken for a character", less, (unsigned)c);
		}
	}
}

static void expect_repaired(const char *text, const char *wanted)
{
	char out[64];
	const struct gp_text t = gp_text_of(text);
	const size_t bytes = gp_utf8_repaired_bytes(t);
	assert_in_range(bytes, 0, sizeof out - 1);
	gp_utf8_repair(t, out);
	out[bytes] = '\0';
	assert_string_equal(out, wanted);
}

#define BAD "\xEF\xBF\xBD"

/* The examples of Unicode 15, tables 3-8 to 3-11. */
static void each_longest_part_is_replaced_once(void **state)
{
	(void)state;
	expect_repaired("caf\xC3\xA9", "caf\xC3\xA9");
	expect_repaired("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", BAD BAD BAD BAD BAD BAD BAD BAD "A");
	expect_repaired("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", BAD BAD BAD BAD BAD BAD BAD BAD "A");
	expect_repaired("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", BAD BAD BAD BAD BAD "A" BAD BAD "B");
	expect_repaired("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", BAD BAD BAD BAD "A");
	expect_repaired("", "");
}

static void blank_texts_are_white_space_alone(void **state)
{
	(void)state;
	static const char *const blank[] = {"",
					    " ",
					    "\t\r\n\f\v ",
					    "\xC2\xA0",
					    "\xC2\x85",
					    "\xE1\x9A\x80",
					    "\xE2\x80\x80\xE2\x80\x8A",
					    "\xE2\x80\xA8",
					    "\xE2\x80\xAF",
					    "\xE2\x81\x9F",
					    "\xE3\x80\x80 "};
	static const char *const full[] = {"a", " a", "a ", "\xE2\x80\x8B", "\x01", "\xFF", " \xFF", "\xC2"};
	for (size_t i = 0; i < sizeof blank / sizeof blank[0]; i++)
		assert_true(gp_utf8_is_blank(gp_text_of(blank[i])));
	for (size_t i = 0; i < sizeof full / sizeof full[0]; i++)
		assert_false(gp_utf8_is_blank(gp_text_of(full[i])));
	assert_true(gp_utf8_is(gp_text_of("caf\xC3\xA9")) && gp_utf8_is(gp_text_of("")));
	assert_false(gp_utf8_is(gp_text_of("caf\xC3")) || gp_utf8_is(gp_text_of("\x80 a")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_point_goes_there_and_back),
		cmocka_unit_test(each_longest_part_is_replaced_once),
		cmocka_unit_test(blank_texts_are_white_space_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
