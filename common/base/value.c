/* SPDX-License-Identifier: Apache-2.0
 *
 * Values from text. See value.h. Test: tests/unit/test_value.c
 */
#include "common/base/value.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/status.h"

enum { NUMBER_LIMIT = 64, DECIMALS_MAX = 6, DIGITS_MAX = 9 };

/* A finite decimal number at the start of `text`; NULL if there is none, else where it ends. */
static const char *scan_real(const char *text, double *out)
{
	const char *digits = text + (*text == '-' || *text == '+');
	if (!isdigit((unsigned char)digits[0]) && !(digits[0] == '.' && isdigit((unsigned char)digits[1])))
		return NULL;
	if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))
		return NULL;
	char *end;
	double v = strtod(text, &end);
	if (!isfinite(v))
		return NULL;
	*out = v;
	return end;
}

bool gp_parse_i64(const char *text, int64_t *out)
{
	const char *digits = text + (*text == '-' || *text == '+');
	if (!isdigit((unsigned char)*digits))
		return false;
	char *end;
	errno = 0;
	long long v = strtoll(text, &end, 10);
	if (*end || errno)
		return false;
	*out = v;
	return true;
}

bool gp_parse_real(const char *text, double *out)
{
	double v;
	const char *end = scan_real(text, &v);
	if (!end || *end)
		return false;
	*out = v;
	return true;
}

/* "", "k", "kB", "KiB", ...: the power of two it stands for, -1 when it is none of these. */
static int size_shift(const char *suffix)
{
	static const char letters[] = "kmgt";
	if (!*suffix || strcmp(suffix, "B") == 0)
		return 0;
	const char *at = strchr(letters, tolower((unsigned char)*suffix));
	if (!at)
		return -1;
	suffix++;
	if (*suffix && strcmp(suffix, "B") != 0 && strcmp(suffix, "iB") != 0)
		return -1;
	return 10 * ((int)(at - letters) + 1);
}

bool gp_parse_size(const char *text, int64_t *out)
{
	const char *digits_end = text + strspn(text, "0123456789");
	int shift;
	if (digits_end > text && *digits_end != '.') { /* whole numbers stay exact above 2^53 */
		errno = 0;
		unsigned long long n = strtoull(text, NULL, 10);
		shift = size_shift(digits_end);
		if (errno || shift < 0 || n > (uint64_t)INT64_MAX >> shift)
			return false;
		*out = (int64_t)(n << shift);
		return true;
	}
	double v;
	const char *end = scan_real(text, &v);
	if (!end || v < 0 || (shift = size_shift(end)) < 0 || v >= ldexp(1.0, 63 - shift))
		return false;
	*out = (int64_t)ldexp(v, shift);
	return true;
}

struct unit {
	const char *suffix;
	double factor;
};

static bool parse_with_unit(const char *text, const struct unit *units, int count, double *out)
{
	double v;
	const char *end = scan_real(text, &v);
	if (!end || v < 0)
		return false;
	for (int i = 0; i < count; i++)
		if (strcmp(end, units[i].suffix) == 0 && isfinite(v * units[i].factor)) {
			*out = v * units[i].factor;
			return true;
		}
	return false;
}

bool gp_parse_rate(const char *text, double *out)
{
	/* "Mb" and "bps" are left out on purpose: they mean bits to some and bytes to others (tc among them). */
	static const struct unit units[] = {
		{"", 1},         {"bit", 1},      {"kbit", 1e3}, {"mbit", 1e6},   {"gbit", 1e9},   {"Kbit", 1e3},
		{"Mbit", 1e6},   {"Gbit", 1e9},   {"bit/s", 1},  {"kbit/s", 1e3}, {"mbit/s", 1e6}, {"gbit/s", 1e9},
		{"Mbit/s", 1e6}, {"Gbit/s", 1e9}, {"B", 8},      {"kB", 8e3},     {"KB", 8e3},     {"MB", 8e6},
		{"GB", 8e9},     {"B/s", 8},      {"kB/s", 8e3}, {"MB/s", 8e6},   {"GB/s", 8e9},
	};
	return parse_with_unit(text, units, (int)(sizeof units / sizeof units[0]), out);
}

bool gp_parse_time(const char *text, double *out)
{
	static const struct unit units[] = {
		{"", 1},   {"s", 1},    {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9},
		{"m", 60}, {"min", 60}, {"h", 3600},  {"d", 86400},
	};
	return parse_with_unit(text, units, (int)(sizeof units / sizeof units[0]), out);
}

static bool parse_bool(const char *text, bool *out)
{
	static const char *const words[2][4] = {{"false", "no", "off", "0"}, {"true", "yes", "on", "1"}};
	for (int v = 0; v < 2; v++)
		for (int i = 0; i < 4; i++)
			if (strcasecmp(text, words[v][i]) == 0) {
				*out = v;
				return true;
			}
	return false;
}

/* Every value is m / 10^d rounded once, so that printing and parsing again gives the same double. */
static bool parse_decimal(const char *text, int decimals, double *out)
{
	static const double power[DECIMALS_MAX + 1] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};
	double whole = 0;
	int digits = 0, behind = -1;
	gp_require(decimals >= 0 && decimals <= DECIMALS_MAX);
	for (; *text; text++) {
		if (*text == '.' && behind < 0 && decimals > 0 && digits > 0) {
			behind = 0;
			continue;
		}
		if (*text < '0' || *text > '9' || ++digits > DIGITS_MAX)
			return false;
		whole = whole * 10 + (*text - '0');
		behind += behind >= 0;
	}
	if (digits == 0 || behind == 0 || behind > decimals)
		return false;
	*out = whole / power[behind > 0 ? behind : 0];
	return true;
}

const char *gp_decimal_text(double value, int decimals, char text[GP_SHOWN])
{
	snprintf(text, GP_SHOWN, "%.*f", decimals, value);
	if (decimals > 0) {
		char *end = text + strlen(text);
		while (end[-1] == '0')
			*--end = '\0';
		if (end[-1] == '.')
			end[-1] = '\0';
	}
	return text;
}

static const char *number_text(const struct gp_value_form *f, double v, char text[GP_SHOWN])
{
	static const char letters[] = {' ', 'k', 'M', 'G', 'T'};
	int k = 0;
	if (f->type == GP_VALUE_DECIMAL)
		return gp_decimal_text(v, f->decimals, text);
	if (f->type == GP_VALUE_SIZE)
		for (; k < 4 && v >= 1024 && fmod(v, 1024) == 0; k++)
			v /= 1024;
	if (f->type == GP_VALUE_INT || f->type == GP_VALUE_SIZE)
		snprintf(text, GP_SHOWN, k ? "%.0f%c" : "%.0f", v, letters[k]);
	else
		snprintf(text, GP_SHOWN, "%g%s", v,
			 f->type == GP_VALUE_TIME   ? "s"
			 : f->type == GP_VALUE_RATE ? "bit"
						    : "");
	return text;
}

static bool is_number(const struct gp_value_form *f)
{
	return f->type != GP_VALUE_BOOL && f->type != GP_VALUE_TEXT && f->type != GP_VALUE_CHOICE;
}

static bool in_range(const struct gp_value_form *f, double v)
{
	return (f->or_zero && v == 0) || (v >= f->min && (f->below_max ? v < f->max : v <= f->max));
}

static bool has_range(const struct gp_value_form *f)
{
	return is_number(f) && (f->min != 0 || f->max != 0);
}

const char *gp_value_range(const struct gp_value_form *f, char text[GP_VALUE_WHY])
{
	char low[GP_SHOWN], high[GP_SHOWN];
	text[0] = '\0';
	if (f->type == GP_VALUE_CHOICE)
		snprintf(text, GP_VALUE_WHY, "%s", f->choices);
	if (!has_range(f))
		return text;
	number_text(f, f->min, low);
	number_text(f, f->max, high);
	if (f->max >= 0x1p62)
		snprintf(text, GP_VALUE_WHY, "at least %s", low);
	else if (f->below_max)
		snprintf(text, GP_VALUE_WHY, "at least %s, below %s", low, high);
	else
		snprintf(text, GP_VALUE_WHY, "%s%s..%s", f->or_zero ? "0 or " : "", low, high);
	return text;
}

static void say_malformed(const struct gp_value_form *f, const char *shown, char why[GP_VALUE_WHY])
{
	static const char *const wanted[] = {
		[GP_VALUE_BOOL] = "yes or no",
		[GP_VALUE_INT] = "a whole number",
		[GP_VALUE_REAL] = "a number",
		[GP_VALUE_TEXT] = "text",
		[GP_VALUE_SIZE] = "a size such as 4096, 64k, 2M or 1G",
		[GP_VALUE_RATE] = "a rate such as 100mbit, 1gbit or 12.5MB (bytes)",
		[GP_VALUE_TIME] = "a time such as 20ms, 1.5s or 2m",
	};
	char range[GP_VALUE_WHY];
	gp_value_range(f, range);
	if (f->type == GP_VALUE_CHOICE)
		snprintf(why, GP_VALUE_WHY, "'%s' is not one of %.120s", shown, range);
	else if (f->type == GP_VALUE_DECIMAL && f->decimals)
		snprintf(why, GP_VALUE_WHY, "'%s' is not a number with up to %d decimals (%.40s)", shown, f->decimals,
			 range);
	else
		snprintf(why, GP_VALUE_WHY, has_range(f) ? "'%s' is not %s (%.60s)" : "'%s' is not %s", shown,
			 wanted[f->type == GP_VALUE_DECIMAL ? GP_VALUE_INT : f->type], range);
}

static bool scan(const struct gp_value_form *f, const char *text, union gp_value *out)
{
	switch (f->type) {
	case GP_VALUE_BOOL:
		return parse_bool(text, &out->yes);
	case GP_VALUE_INT:
		return gp_parse_i64(text, &out->whole);
	case GP_VALUE_SIZE:
		return gp_parse_size(text, &out->whole);
	case GP_VALUE_REAL:
		return gp_parse_real(text, &out->real);
	case GP_VALUE_RATE:
		return gp_parse_rate(text, &out->real);
	case GP_VALUE_TIME:
		return gp_parse_time(text, &out->real);
	case GP_VALUE_DECIMAL:
		return parse_decimal(text, f->decimals, &out->real);
	case GP_VALUE_CHOICE:
		out->choice = gp_choice_index(f->choices, gp_text_of(text));
		return out->choice >= 0;
	case GP_VALUE_TEXT:
		break;
	}
	gp_require(!"a type that is scanned");
	return false;
}

bool gp_value_parse(const struct gp_value_form *f, struct gp_text text, union gp_value *out, char why[GP_VALUE_WHY])
{
	char copy[NUMBER_LIMIT], shown[GP_SHOWN], range[GP_VALUE_WHY];
	union gp_value v;
	if (f->type == GP_VALUE_TEXT) {
		out->text = text;
		return true;
	}
	if (memchr(text.at ? text.at : "", '\0', text.len) || !gp_text_copy(text, copy, sizeof copy) ||
	    !scan(f, copy, &v)) {
		say_malformed(f, gp_text_shown(text, shown), why);
		return false;
	}
	const double number = f->type == GP_VALUE_INT || f->type == GP_VALUE_SIZE ? (double)v.whole
			      : is_number(f)                                      ? v.real
										  : 0;
	if (has_range(f) && !in_range(f, number)) {
		snprintf(why, GP_VALUE_WHY, "%s is out of range (%.100s)", gp_text_shown(text, shown),
			 gp_value_range(f, range));
		return false;
	}
	*out = v;
	return true;
}
