/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of codec keys to and from text: whole numbers, decimal fractions with
 * a fixed number of digits, words. Every value is m / 10^d rounded once, so
 * that printing and parsing again gives the same double. Runs on text from a
 * peer. Test: tests/unit/test_codec_spec.c
 */
#include "common/codec/codec_impl.h"

#include <math.h>
#include <stdarg.h>

static const double power[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};
enum { DECIMALS_MAX = 6, DIGITS_MAX = 9 };

static bool parse_word(const struct gp_codec_key *key, const char *text, size_t len, double *value)
{
	for (int i = 0; i <= (int)key->max; i++)
		if (strlen(key->words[i]) == len && memcmp(key->words[i], text, len) == 0) {
			*value = i;
			return true;
		}
	return false;
}

/* digits [ "." digits ], nine digits at most. */
static bool parse_number(const struct gp_codec_key *key, const char *text, size_t len, double *value)
{
	double whole = 0;
	int digits = 0, behind = -1;
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '.' && behind < 0 && key->decimals > 0 && digits > 0) {
			behind = 0;
			continue;
		}
		if (text[i] < '0' || text[i] > '9' || ++digits > DIGITS_MAX)
			return false;
		whole = whole * 10 + (text[i] - '0');
		behind += behind >= 0;
	}
	if (digits == 0 || behind == 0 || behind > key->decimals)
		return false;
	*value = whole / power[behind > 0 ? behind : 0];
	return *value >= key->min && *value <= key->max;
}

bool gp_codec_key_parse(const struct gp_codec_key *key, const char *text, size_t len, double *value)
{
	return key->words ? parse_word(key, text, len, value) : parse_number(key, text, len, value);
}

const char *gp_codec_key_print(const struct gp_codec_key *key, double value, char text[GP_CODEC_KEY_TEXT])
{
	if (key->words) {
		snprintf(text, GP_CODEC_KEY_TEXT, "%s", key->words[(int)value]);
		return text;
	}
	gp_require(key->decimals <= DECIMALS_MAX);
	snprintf(text, GP_CODEC_KEY_TEXT, "%.*f", key->decimals, value);
	if (key->decimals > 0) {
		char *end = text + strlen(text);
		while (end[-1] == '0')
			*--end = '\0';
		if (end[-1] == '.')
			end[-1] = '\0';
	}
	return text;
}

void gp_codec_append(char *text, size_t size, const char *fmt, ...)
{
	size_t used = strlen(text);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text + used, size - used, fmt, ap);
	va_end(ap);
}

/* "1..16", "e5m2|e4m3" behind what text holds. */
static void append_range(const struct gp_codec_key *key, char *text, size_t size)
{
	char low[GP_CODEC_KEY_TEXT], high[GP_CODEC_KEY_TEXT];
	if (!key->words) {
		gp_codec_append(text, size, "%s..%s", gp_codec_key_print(key, key->min, low),
				gp_codec_key_print(key, key->max, high));
		return;
	}
	for (int i = 0; i <= (int)key->max; i++)
		gp_codec_append(text, size, "%s%s", i ? "|" : "", key->words[i]);
}

const char *gp_codec_key_allowed(const struct gp_codec_key *key, char *text, size_t size)
{
	text[0] = '\0';
	gp_codec_append(text, size, "%s",
			key->words      ? "one of "
			: key->decimals ? "a number in "
					: "a whole number in ");
	append_range(key, text, size);
	if (key->decimals)
		gp_codec_append(text, size, " with up to %d decimals", key->decimals);
	return text;
}

const char *gp_codec_ops_keys_text(const struct gp_codec_ops *ops, char *text, size_t size)
{
	char initial[GP_CODEC_KEY_TEXT];
	text[0] = '\0';
	for (int i = 0; i < ops->keys; i++) {
		gp_codec_append(text, size, "%s%s=", i ? ", " : "", ops->key[i].name);
		append_range(&ops->key[i], text, size);
		gp_codec_append(text, size, " (%s)", gp_codec_key_print(&ops->key[i], ops->key[i].initial, initial));
	}
	return text;
}
