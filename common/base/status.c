/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors: filling, prefixing and printing `struct gp_err`. No logging policy
 * here. Test: tests/unit/test_status.c
 */
#include "common/base/status.h"

#include <stdarg.h>
#include <string.h>

void gp_hide_control_characters(char *text)
{
	for (; *text; text++)
		if (((unsigned char)*text < 0x20 && *text != '\n' && *text != '\t') || *text == 0x7f)
			*text = '?';
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
