/* SPDX-License-Identifier: Apache-2.0
 *
 * See report_axis.h. Test: tests/unit/test_report.c
 */
#include "client/report/report_axis.h"

#include <math.h>
#include <stdio.h>

#define LARGEST 1e30 /* what lies beyond is drawn at the edge */

struct prefix {
	double from, scale;
	const char *suffix;
};

#define PREFIXES 5

/* By unit, the largest first. */
static const struct prefix prefixes[GP_UNITS][PREFIXES] = {
	[GP_UNIT_NONE] = {{0, 1, ""}},
	[GP_UNIT_COUNT] = {{2e6, 1e6, "million"}, {0, 1, ""}},
	[GP_UNIT_SHARE] = {{0, 0.01, "%"}},
	[GP_UNIT_SECONDS] = {{2 * 3600, 3600, "h"}, {180, 60, "min"}, {1, 1, "s"}, {1e-3, 1e-3, "ms"}, {0, 1e-6, "µs"}},
	[GP_UNIT_BYTES] = {{1e12, 1e12, "TB"}, {1e9, 1e9, "GB"}, {1e6, 1e6, "MB"}, {1e3, 1e3, "kB"}, {0, 1, "B"}},
	[GP_UNIT_BYTES_PER_S] =
		{{1e12, 1e12, "TB/s"}, {1e9, 1e9, "GB/s"}, {1e6, 1e6, "MB/s"}, {1e3, 1e3, "kB/s"}, {0, 1, "B/s"}},
};

static const struct prefix *prefix_of(enum gp_unit unit, double value)
{
	const struct prefix *p = prefixes[unit];
	while (fabs(value) < p->from)
		p++;
	return p;
}

static double bounded(double value)
{
	return isfinite(value) ? fmin(fmax(value, -LARGEST), LARGEST) : 0;
}

/* The round number from which `span` has at most so many. */
static double round_step(double span, int wanted)
{
	static const double nice[] = {1, 2, 5, 10};
	const double rough = span / wanted, power = pow(10, floor(log10(rough)));
	for (int i = 0; i < 4; i++)
		if (nice[i] * power >= rough * 0.999)
			return nice[i] * power;
	return 10 * power;
}

static int decimals_of(double step)
{
	const int digits = (int)ceil(-log10(step) - 1e-9);
	return digits > 0 ? digits : 0;
}

/* Values that are all the same get some room on both sides. */
static void widen(double *low, double *high, enum gp_unit unit)
{
	const double least = unit == GP_UNIT_COUNT ? 1 : fmax(fabs(*high) * 1e-6, 1e-12);
	if (*high - *low >= least)
		return;
	const double more = fmax(fabs(*high) * 0.1, least);
	*low -= *low >= 0 && *low < more ? *low : more;
	*high += more;
}

struct gp_axis gp_axis_around(double low, double high, enum gp_unit unit, int wanted)
{
	low = bounded(low);
	high = fmax(bounded(high), low);
	widen(&low, &high, unit);
	const struct prefix *p = prefix_of(unit, fmax(fabs(low), fabs(high)));
	struct gp_axis a = {.unit = unit, .scale = p->scale, .suffix = p->suffix};
	double step = round_step((high - low) / p->scale, wanted);
	if (unit == GP_UNIT_COUNT && p->scale == 1)
		step = fmax(step, 1);
	const double first = floor(low / p->scale / step + 1e-6), last = ceil(high / p->scale / step - 1e-6);
	for (double n = first; n <= last && a.ticks < GP_AXIS_TICKS; n++)
		a.tick[a.ticks++] = n * step * p->scale;
	a.low = a.tick[0];
	a.high = a.tick[a.ticks - 1];
	a.decimals = decimals_of(step);
	return a;
}

/* Numbers too far from 1 to be written out have an exponent. */
static void number_text(double value, int decimals, char *text, int size)
{
	if (decimals > 6 || fabs(value) >= 1e7)
		snprintf(text, (size_t)size, "%.3g", value);
	else
		snprintf(text, (size_t)size, "%.*f", decimals, value);
}

const char *gp_axis_text(const struct gp_axis *a, double value, char text[GP_AXIS_TEXT])
{
	const double scaled = value / a->scale;
	number_text(scaled == 0 ? 0 : scaled, a->decimals, text, GP_AXIS_TEXT);
	return text;
}

const char *gp_unit_text(enum gp_unit unit, double value, char text[GP_AXIS_TEXT])
{
	char number[GP_AXIS_TEXT - 10];
	const struct prefix *p = prefix_of(unit, value);
	const double scaled = value / p->scale;
	if (!isfinite(scaled)) { /* 1e308 is not, in percent */
		snprintf(text, GP_AXIS_TEXT, "-");
		return text;
	}
	const int whole = fabs(scaled) >= 1 ? (int)floor(log10(fabs(scaled))) : 0;
	if (unit == GP_UNIT_COUNT || scaled == 0 || (unit == GP_UNIT_BYTES && p->scale == 1))
		number_text(scaled, p->scale == 1 ? 0 : 2, number, sizeof number);
	else if (unit == GP_UNIT_SHARE)
		number_text(scaled, 2, number, sizeof number);
	else if (fabs(scaled) < 1e-3)
		snprintf(number, sizeof number, "%.3g", scaled);
	else
		number_text(scaled, whole < 3 ? 3 - whole : 0, number, sizeof number);
	snprintf(text, GP_AXIS_TEXT, "%s%s%s", number, *p->suffix ? " " : "", p->suffix);
	return text;
}
