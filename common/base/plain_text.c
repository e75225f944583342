/* SPDX-License-Identifier: Apache-2.0
 *
 * See plain_text.h. Test: tests/unit/test_plain_text.c
 */
#include "common/base/plain_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* RFC 3629, section 4: which second bytes a first byte may have. */
static bool second_fits(uint8_t first, uint8_t second)
{
	switch (first) {
	case 0xE0:
		return second >= 0xA0 && second <= 0xBF;
	case 0xED:
		return second >= 0x80 && second <= 0x9F;
	case 0xF0:
		return second >= 0x90 && second <= 0xBF;
	case 0xF4:
		return second >= 0x80 && second <= 0x8F;
	default:
		return second >= 0x80 && second <= 0xBF;
	}
}

size_t gp_utf8_character(const char *at)
{
	const uint8_t first = (uint8_t)at[0];
	const size_t bytes = first < 0x80   ? 1
			     : first < 0xC2 ? 0
			     : first < 0xE0 ? 2
			     : first < 0xF0 ? 3
			     : first < 0xF5 ? 4
					    : 0;
	if (bytes > 1 && !second_fits(first, (uint8_t)at[1])) /* the NUL at the end fits nowhere */
		return 0;
	for (size_t i = 2; i < bytes; i++)
		if (((uint8_t)at[i] & 0xC0) != 0x80)
			return 0;
	return bytes;
}

static size_t write_character(const char *at, size_t bytes, char out[8])
{
	const uint8_t c = (uint8_t)at[0];
	if (bytes == 0)
		return (size_t)sprintf(out, "\xEF\xBF\xBD");
	if (c == '"' || c == '\\')
		return (size_t)sprintf(out, "\\%c", c);
	if (c < 0x20 || c == 0x7F)
		return (size_t)sprintf(out, "\\u%04x", c);
	memcpy(out, at, bytes);
	return bytes;
}

size_t gp_json_string(const char *text, char *out, size_t size)
{
	size_t n = 0;
	out[n++] = '"';
	for (const char *at = text; *at;) {
		char one[8];
		const size_t bytes = gp_utf8_character(at), written = write_character(at, bytes, one);
		if (n + written + 2 > size)
			break;
		memcpy(out + n, one, written);
		n += written;
		at += bytes > 0 ? bytes : 1;
	}
	out[n++] = '"';
	out[n] = '\0';
	return n;
}
