/* SPDX-License-Identifier: Apache-2.0
 *
 * Bars of several parts, one for each run, over one scale: elements whose width is a share, so that their texts keep
 * their size on any screen. A table below has all numbers.
 *
 * Threads: one at a time. Test: tests/unit/test_report.c
 */
#ifndef GP_REPORT_BARS_H
#define GP_REPORT_BARS_H

#include "client/report/report_axis.h"
#include "client/report/report_html.h"

#define GP_BARS_PARTS 8

struct gp_bar {
	const char *name; /* of a log */
	const char *note; /* of a log; NULL: none */
	double part[GP_BARS_PARTS];
};

struct gp_bars {
	const char *title, *x_title; /* of this program, as all names of parts */
	enum gp_unit unit;
	const char *const *part_name;
	const int *part_colour; /* b0, b1, ... of the page's style */
	int parts;
	const struct gp_bar *bar; /* parts that are not known: NaN */
	int bars;
};

/* Nothing where no part of any bar is above 0. */
void gp_bars_draw(struct gp_html *h, const struct gp_bars *b);

#endif
