/* SPDX-License-Identifier: Apache-2.0
 *
 * Options, the values: numbers, sizes, rates and times from text, and storing
 * them in a settings struct with a message that names the flag. Knows neither
 * argv nor files (options.c). Test: tests/unit/test_options.c
 */
#include "common/options/options_internal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "common/base/mem.h"

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

const char *gp_opt_place(const struct gp_opt_source *from, const char *name, char *text)
{
	if (from->file)
		snprintf(text, GP_OPT_PLACE, "%.80s:%d: %s", from->file, from->line, name);
	else
		snprintf(text, GP_OPT_PLACE, "--%s", name);
	return text;
}

enum gp_status gp_opt_code(const struct gp_opt_source *from)
{
	return from->file ? GP_INVALID : GP_USAGE;
}

const char *gp_opt_printable(const char *user, char *text)
{
	enum { KEEP = 60 };
	size_t n = strnlen(user, KEEP + 1);
	size_t kept = n > KEEP ? KEEP : n;
	for (size_t i = 0; i < kept; i++)
		text[i] = iscntrl((unsigned char)user[i]) ? '?' : user[i];
	strcpy(text + kept, n > KEEP ? "..." : "");
	return text;
}

static void format_number(const struct gp_opt *o, double v, char *text, size_t size)
{
	static const char letters[] = {' ', 'k', 'M', 'G', 'T'};
	int k = 0;
	if (o->type == GP_OPT_SIZE)
		for (; k < 4 && v >= 1024 && fmod(v, 1024) == 0; k++)
			v /= 1024;
	if (o->type == GP_OPT_INT || o->type == GP_OPT_SIZE)
		snprintf(text, size, k ? "%.0f%c" : "%.0f", v, letters[k]);
	else
		snprintf(text, size, "%g%s", v, o->type == GP_OPT_TIME ? "s" : o->type == GP_OPT_RATE ? "bit" : "");
}

const char *gp_opt_range_text(const struct gp_opt *o, char *text)
{
	enum { NUMBER = 40 };
	char low[NUMBER], high[NUMBER];
	text[0] = '\0';
	if ((o->min == 0 && o->max == 0) || o->type == GP_OPT_FLAG || o->type == GP_OPT_TEXT ||
	    o->type == GP_OPT_CHOICE)
		return text;
	format_number(o, o->min, low, sizeof low);
	format_number(o, o->max, high, sizeof high);
	if (o->max >= 0x1p62)
		snprintf(text, GP_OPT_PLACE, "at least %s", low);
	else if (o->below_max)
		snprintf(text, GP_OPT_PLACE, "at least %s, below %s", low, high);
	else
		snprintf(text, GP_OPT_PLACE, "%s..%s", low, high);
	return text;
}

static enum gp_status check_range(const struct gp_opt *o, double v, const char *text, const struct gp_opt_source *from,
				  struct gp_err *err)
{
	bool in_range = v >= o->min && (o->below_max ? v < o->max : v <= o->max);
	if ((o->min == 0 && o->max == 0) || in_range)
		return GP_OK;
	char place[GP_OPT_PLACE], range[GP_OPT_PLACE], shown[GP_OPT_PLACE];
	GP_FAIL(err, gp_opt_code(from), "%s: %s is out of range (%s)", gp_opt_place(from, o->name, place),
		gp_opt_printable(text, shown), gp_opt_range_text(o, range));
}

static enum gp_status malformed(const struct gp_opt *o, const char *text, const struct gp_opt_source *from,
				struct gp_err *err)
{
	static const char *const wanted[] = {
		[GP_OPT_FLAG] = "yes or no",
		[GP_OPT_INT] = "a whole number",
		[GP_OPT_REAL] = "a number",
		[GP_OPT_TEXT] = "text",
		[GP_OPT_CHOICE] = "a choice",
		[GP_OPT_SIZE] = "a size such as 4096, 64k, 2M or 1G",
		[GP_OPT_RATE] = "a rate such as 100mbit, 1gbit or 12.5MB (bytes)",
		[GP_OPT_TIME] = "a time such as 20ms, 1.5s or 2m",
	};
	char place[GP_OPT_PLACE], shown[GP_OPT_PLACE];
	GP_FAIL(err, gp_opt_code(from), "%s: '%s' is not %s", gp_opt_place(from, o->name, place),
		gp_opt_printable(text, shown), wanted[o->type]);
}

static enum gp_status store_int(const struct gp_opt *o, const char *text, const struct gp_opt_source *from,
				int64_t *field, struct gp_err *err)
{
	int64_t v;
	if (!(o->type == GP_OPT_SIZE ? gp_parse_size(text, &v) : gp_parse_i64(text, &v)))
		return malformed(o, text, from, err);
	GP_TRY(check_range(o, (double)v, text, from, err));
	*field = v;
	return GP_OK;
}

static enum gp_status store_real(const struct gp_opt *o, const char *text, const struct gp_opt_source *from,
				 double *field, struct gp_err *err)
{
	double v;
	bool ok = o->type == GP_OPT_RATE   ? gp_parse_rate(text, &v)
		  : o->type == GP_OPT_TIME ? gp_parse_time(text, &v)
					   : gp_parse_real(text, &v);
	if (!ok)
		return malformed(o, text, from, err);
	GP_TRY(check_range(o, v, text, from, err));
	*field = v;
	return GP_OK;
}

/* Index of `text` among the '|'-separated choices, -1 when it is none. */
static int choice_index(const char *choices, const char *text)
{
	size_t len = strlen(text);
	for (int i = 0;; i++) {
		size_t n = strcspn(choices, "|");
		if (n == len && memcmp(choices, text, n) == 0)
			return i;
		if (!choices[n])
			return -1;
		choices += n + 1;
	}
}

static enum gp_status store_choice(const struct gp_opt *o, const char *text, const struct gp_opt_source *from,
				   int *field, struct gp_err *err)
{
	int index = choice_index(o->choices, text);
	if (index < 0) {
		char place[GP_OPT_PLACE], shown[GP_OPT_PLACE];
		GP_FAIL(err, gp_opt_code(from), "%s: '%s' is not one of %s", gp_opt_place(from, o->name, place),
			gp_opt_printable(text, shown), o->choices);
	}
	*field = index;
	return GP_OK;
}

enum gp_status gp_opt_store(const struct gp_opt *o, const char *text, const struct gp_opt_source *from, void *settings,
			    struct gp_options_result *r, struct gp_err *err)
{
	void *field = (char *)settings + o->offset;
	switch (o->type) {
	case GP_OPT_FLAG:
		return parse_bool(text, field) ? GP_OK : malformed(o, text, from, err);
	case GP_OPT_INT:
	case GP_OPT_SIZE:
		return store_int(o, text, from, field, err);
	case GP_OPT_REAL:
	case GP_OPT_RATE:
	case GP_OPT_TIME:
		return store_real(o, text, from, field, err);
	case GP_OPT_CHOICE:
		return store_choice(o, text, from, field, err);
	case GP_OPT_TEXT:
		return gp_opt_keep(r, text, field, err);
	}
	gp_require(!"a known option type");
	return GP_INTERNAL;
}
