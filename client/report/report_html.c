/* SPDX-License-Identifier: Apache-2.0
 *
 * See report_html.h. Test: tests/unit/test_report.c
 */
#include "client/report/report_html.h"

#include <stdarg.h>
#include <string.h>

#include "common/base/mem.h"

#define PUT_MOST 1024

void gp_html_deinit(struct gp_html *h)
{
	gp_free(h->text);
	*h = (struct gp_html){0};
}

static bool make_room(struct gp_html *h, size_t more)
{
	if (h->too_long || h->no_memory)
		return false;
	if (more > GP_HTML_MOST - h->length) {
		h->too_long = true;
		return false;
	}
	if (h->length + more <= h->room)
		return true;
	size_t room = h->room ? h->room : 65536;
	while (room < h->length + more)
		room *= 2;
	char *text = gp_realloc(h->text, room, 1);
	h->no_memory = !text;
	if (text) {
		h->text = text;
		h->room = room;
	}
	return text;
}

static void add(struct gp_html *h, const char *bytes, size_t length)
{
	if (!make_room(h, length))
		return;
	memcpy(h->text + h->length, bytes, length);
	h->length += length;
}

void gp_html_put(struct gp_html *h, const char *fmt, ...)
{
	char text[PUT_MOST];
	va_list args;
	va_start(args, fmt);
	const int n = vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	gp_require(n >= 0 && n < PUT_MOST);
	add(h, text, (size_t)n);
}

void gp_html_put_all(struct gp_html *h, const char *markup)
{
	add(h, markup, strlen(markup));
}

/* Bytes of the character that begins here; 0: it is no UTF-8, or none that XML has. */
static size_t character_at(const unsigned char *c)
{
	const size_t length = c[0] < 0x80   ? 1
			      : c[0] < 0xc2 ? 0
			      : c[0] < 0xe0 ? 2
			      : c[0] < 0xf0 ? 3
			      : c[0] < 0xf5 ? 4
					    : 0;
	for (size_t i = 1; i < length; i++)
		if ((c[i] & 0xc0) != 0x80)
			return 0;
	if (length == 1 && (c[0] < 0x20 || c[0] == 0x7f) && c[0] != '\t' && c[0] != '\n')
		return 0;
	if (length == 2 && c[0] == 0xc2 && c[1] < 0xa0)
		return 0; /* more control characters */
	if (length == 3 && ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0)))
		return 0; /* written too long; half of a pair */
	if (length == 3 && c[0] == 0xef && c[1] == 0xbf && c[2] >= 0xbe)
		return 0;
	if (length == 4 && ((c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] >= 0x90)))
		return 0;
	return length;
}

static const char *entity(char c)
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\'':
		return "&#39;";
	default:
		return NULL;
	}
}

/* Returns how many bytes of the text it took. */
static size_t put_character(struct gp_html *h, const char *text)
{
	const char *as = entity(*text);
	const size_t length = character_at((const unsigned char *)text);
	if (as)
		add(h, as, strlen(as));
	else if (length == 0)
		add(h, "?", 1);
	else
		add(h, text, length);
	return length ? length : 1;
}

void gp_html_text(struct gp_html *h, const char *text)
{
	while (text && *text)
		text += put_character(h, text);
}

void gp_html_long_text(struct gp_html *h, const char *text)
{
	while (text && *text) {
		const bool may_break = strchr(",:;+/", *text);
		text += put_character(h, text);
		if (may_break && *text)
			add(h, "<wbr/>", 6);
	}
}

void gp_html_long_cell(struct gp_html *h, const char *text)
{
	gp_html_put(h, "<td class=\"long\">");
	gp_html_long_text(h, *text ? text : "-");
	gp_html_put(h, "</td>");
}

void gp_html_append(struct gp_html *h, const struct gp_html *other)
{
	h->too_long |= other->too_long;
	h->no_memory |= other->no_memory;
	if (other->length > 0)
		add(h, other->text, other->length);
}

enum gp_status gp_html_check(const struct gp_html *h, struct gp_err *err)
{
	if (h->no_memory)
		GP_FAIL(err, GP_NOMEM, "out of memory for a page of %zu bytes", h->length);
	if (h->too_long)
		GP_FAIL(err, GP_INVALID, "the page would be longer than %u MiB: give fewer logs", GP_HTML_MOST >> 20);
	return GP_OK;
}

static bool is_base64(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
}

static uint32_t digit(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	return (uint32_t)(strchr(digits, c) - digits);
}

/* The number that begins at a byte, most significant byte first. */
static uint32_t number_at(const char *base64, size_t byte)
{
	uint32_t n = 0;
	for (size_t i = byte; i < byte + 4; i++) {
		const char *four = base64 + i / 3 * 4;
		const uint32_t three =
			digit(four[0]) << 18 | digit(four[1]) << 12 | digit(four[2]) << 6 | digit(four[3]);
		n = n << 8 | (three >> (16 - 8 * (i % 3)) & 255);
	}
	return n;
}

/* Behind the eight bytes that every PNG begins with and the length of its first chunk: its name, width and height. A
 * picture of few bytes may have a great many pixels, all of which a browser unpacks. */
static bool is_small(const char *base64, size_t digits)
{
	enum { HEADER_DIGITS = 32, NAME = 12, WIDTH = 16, HEIGHT = 20 };
	return digits >= HEADER_DIGITS && number_at(base64, NAME) == 0x49484452 &&
	       number_at(base64, WIDTH) <= GP_HTML_PICTURE_SIDE && number_at(base64, HEIGHT) <= GP_HTML_PICTURE_SIDE;
}

bool gp_html_is_picture(const char *uri)
{
	/* the eight bytes that every PNG begins with, and the length of its first chunk */
	static const char begin[] = "data:image/png;base64,iVBORw0KGgoAAAAN";
	if (!uri || strncmp(uri, begin, sizeof begin - 1) != 0 || strlen(uri) > GP_HTML_PICTURE_MOST)
		return false;
	const char *at = uri + sizeof "data:image/png;base64," - 1, *first = at;
	while (is_base64(*at))
		at++;
	const size_t digits = (size_t)(at - first), pads = strlen(at);
	return (digits + pads) % 4 == 0 && pads <= 2 && strspn(at, "=") == pads && is_small(first, digits);
}
