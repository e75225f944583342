/* SPDX-License-Identifier: Apache-2.0
 *
 * See utf8.h. Test: tests/unit/test_utf8.c
 */
#include "client/text/utf8.h"

#include <string.h>

#include "common/base/status.h"

/* What the first byte of a character says: how many follow it, and between what the first of these lies. */
struct lead {
	int following;
	uint8_t low, high;
	int32_t bits;
};

static struct lead lead_of(uint8_t byte)
{
	if (byte >= 0xC2 && byte <= 0xDF)
		return (struct lead){1, 0x80, 0xBF, byte & 0x1F};
	if (byte >= 0xE0 && byte <= 0xEF) /* no overlong forms, no surrogates */
		return (struct lead){2, byte == 0xE0 ? 0xA0 : 0x80, byte == 0xED ? 0x9F : 0xBF, byte & 0x0F};
	if (byte >= 0xF0 && byte <= 0xF4) /* up to U+10FFFF */
		return (struct lead){3, byte == 0xF0 ? 0x90 : 0x80, byte == 0xF4 ? 0x8F : 0xBF, byte & 0x07};
	return (struct lead){.following = 0};
}

size_t gp_utf8_read(const char *text, size_t bytes, int32_t *point)
{
	const uint8_t *p = (const uint8_t *)text;
	*point = p[0] < 0x80 ? p[0] : -1;
	if (p[0] < 0x80)
		return 1;
	const struct lead lead = lead_of(p[0]);
	int32_t value = lead.bits;
	uint8_t low = lead.low, high = lead.high;
	for (int i = 1; i <= lead.following; i++) {
		if ((size_t)i >= bytes || p[i] < low || p[i] > high)
			return (size_t)i;
		value = value << 6 | (p[i] & 0x3F);
		low = 0x80;
		high = 0xBF;
	}
	if (lead.following)
		*point = value;
	return (size_t)lead.following + 1;
}

size_t gp_utf8_write(int32_t point, char out[GP_UTF8_MOST])
{
	gp_require(point >= 0 && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF));
	uint8_t *p = (uint8_t *)out;
	if (point < 0x80) {
		p[0] = (uint8_t)point;
		return 1;
	}
	const int following = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
	static const uint8_t mark[] = {0, 0xC0, 0xE0, 0xF0};
	for (int i = following; i > 0; i--, point >>= 6)
		p[i] = (uint8_t)(0x80 | (point & 0x3F));
	p[0] = (uint8_t)(mark[following] | point);
	return (size_t)following + 1;
}

bool gp_utf8_is(struct gp_text text)
{
	int32_t point = 0;
	for (size_t i = 0; i < text.len && point >= 0;)
		i += gp_utf8_read(text.at + i, text.len - i, &point);
	return point >= 0;
}

static bool is_white(int32_t c)
{
	return (c >= 0x9 && c <= 0xD) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool gp_utf8_is_blank(struct gp_text text)
{
	int32_t point = ' ';
	for (size_t i = 0; i < text.len && is_white(point);)
		i += gp_utf8_read(text.at + i, text.len - i, &point);
	return is_white(point);
}

size_t gp_utf8_repaired_bytes(struct gp_text text)
{
	size_t bytes = 0;
	for (size_t i = 0, n; i < text.len; i += n) {
		int32_t point;
		n = gp_utf8_read(text.at + i, text.len - i, &point);
		bytes += point < 0 ? 3 : n;
	}
	return bytes;
}

void gp_utf8_repair(struct gp_text text, char *out)
{
	for (size_t i = 0, n; i < text.len; i += n) {
		int32_t point;
		n = gp_utf8_read(text.at + i, text.len - i, &point);
		if (point >= 0) {
			memcpy(out, text.at + i, n);
			out += n;
		} else {
			out += gp_utf8_write(GP_REPLACEMENT, out);
		}
	}
}
