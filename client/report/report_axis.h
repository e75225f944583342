/* SPDX-License-Identifier: Apache-2.0
 *
 * An axis of a chart: the round numbers at which it has marks, and how they are written with their unit, which all
 * marks of an axis share.
 *
 * Threads: any; pure functions. Test: tests/unit/test_report.c
 */
#ifndef GP_REPORT_AXIS_H
#define GP_REPORT_AXIS_H

#include <stdbool.h>

enum gp_unit {
	GP_UNIT_NONE,
	GP_UNIT_COUNT, /* whole numbers: steps */
	GP_UNIT_SHARE, /* 0.25 is written 25 %, and so on */
	GP_UNIT_SECONDS,
	GP_UNIT_BYTES,
	GP_UNIT_BYTES_PER_S,
	GP_UNITS
};

#define GP_AXIS_TICKS 12
#define GP_AXIS_TEXT  32

struct gp_axis {
	enum gp_unit unit;
	double low, high;   /* the first and the last mark, around all values */
	double scale;       /* values are divided by it before they are written */
	const char *suffix; /* of the unit: "MB"; "" where there is none */
	int decimals;
	int ticks;
	double tick[GP_AXIS_TICKS];
};

/* Values from low to high, as no finite number may be either; `wanted`: about so many marks, 2 to 8. */
struct gp_axis gp_axis_around(double low, double high, enum gp_unit unit, int wanted);
/* A mark of the axis, without its unit: "0.25". Returns text. */
const char *gp_axis_text(const struct gp_axis *a, double value, char text[GP_AXIS_TEXT]);
/* A value by itself, with four digits that count and its unit: "12.34 MB"; "-" where it is not finite. Returns text. */
const char *gp_unit_text(enum gp_unit unit, double value, char text[GP_AXIS_TEXT]);

#endif
