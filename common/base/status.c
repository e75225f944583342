/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors: filling, prefixing and printing `struct gp_err`. No logging policy
 * here. Test: tests/unit/test_status.c
 */
#include "common/base/status.h"

#include <stdarg.h>
#include <string.h>

#include "common/base/plain_text.h"

static bool is_between(const unsigned char *at, const char *first, const char *last, size_t bytes)
{
	return memcmp(at, first, bytes) >= 0 && memcmp(at, last, bytes) <= 0;
}

/* C0 and DEL; C1 (U+0080 to U+009F), which terminals obey, too, also as single bytes; the characters that turn the direction of
 * what follows, so that a line reads otherwise than it is; and the separators of lines and paragraphs. */
static bool is_control(const unsigned char *at, size_t bytes)
{
	switch (bytes) {
	case 0: /* it is not UTF-8 */
		return *at >= 0x80 && *at <= 0x9F;
	case 1:
		return (*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7F;
	case 2: /* U+061C */
		return is_between(at, "\xC2\x80", "\xC2\x9F", 2) || memcmp(at, "\xD8\x9C", 2) == 0;
	case 3: /* U+200E, U+200F; U+2028 to U+202E; U+2066 to U+2069 */
		return is_between(at, "\xE2\x80\x8E", "\xE2\x80\x8F", 3) ||
		       is_between(at, "\xE2\x80\xA8", "\xE2\x80\xAE", 3) ||
		       is_between(at, "\xE2\x81\xA6", "\xE2\x81\xA9", 3);
	default:
		return false;
	}
}

void gp_hide_control_characters(char *text)
{
	for (char *at = text; *at;) {
		const size_t bytes = gp_utf8_character(at), length = bytes > 0 ? bytes : 1;
		if (is_control((const unsigned char *)at, bytes))
			memset(at, '?', length);
		at += length;
	}
}

enum gp_status gp_err_set(struct gp_err *err, enum gp_status code, int os_code, const char *file, int line,
			  const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof err->text, fmt, ap);
	va_end(ap);
	gp_hide_control_characters(err->text);
	err->code = code;
	err->os_code = os_code;
	err->file = file;
	err->line = line;
	return code;
}

enum gp_status gp_err_prefix(struct gp_err *err, const char *fmt, ...)
{
	char old[GP_ERR_TEXT];
	memcpy(old, err->text, sizeof old);
	old[sizeof old - 1] = '\0';
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof err->text)
		snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", old);
	gp_hide_control_characters(err->text);
	return err->code;
}

void gp_err_print(const struct gp_err *err, const char *program)
{
	fprintf(stderr, "%s: %s\n", program, err->text[0] ? err->text : gp_status_name(err->code));
}

int gp_status_exit(enum gp_status code)
{
	switch (code) {
	case GP_OK:
		return 0;
	case GP_USAGE:
		return 2;
	case GP_INVALID:
	case GP_UNSUPPORTED:
		return 3;
	case GP_PEER:
	case GP_PROTO:
	case GP_TIMEOUT:
	case GP_BUSY:
	case GP_DENIED:
	case GP_DAMAGED:
		return 4;
	case GP_DEVICE:
		return 5;
	default:
		return 1;
	}
}

const char *gp_status_name(enum gp_status code)
{
	static const char *const names[] = {
		[GP_OK] = "ok",
		[GP_USAGE] = "usage",
		[GP_INVALID] = "invalid",
		[GP_PEER] = "peer",
		[GP_PROTO] = "protocol",
		[GP_TIMEOUT] = "timeout",
		[GP_BUSY] = "busy",
		[GP_DEVICE] = "device",
		[GP_NOMEM] = "out of memory",
		[GP_IO] = "i/o",
		[GP_CANCELED] = "canceled",
		[GP_UNSUPPORTED] = "unsupported",
		[GP_INTERNAL] = "internal",
		[GP_DENIED] = "denied",
		[GP_DAMAGED] = "damaged",
	};
	if ((unsigned)code >= sizeof names / sizeof names[0] || !names[code])
		return "unknown";
	return names[code];
}

void gp_require_failed(const char *cond, const char *file, int line)
{
	fprintf(stderr, "gpsplit: internal error: %s does not hold at %s:%d\n", cond, file, line);
	abort();
}
