/* SPDX-License-Identifier: Apache-2.0
 *
 * Charts of a report as inline SVG: lines over an axis, and histograms. They are whole without scripts: marks, units,
 * titles, and in words and in a table what they show. Colours come from the page's style (report_style.c): a line's
 * style is its number, which decides colour and dashes.
 *
 * Threads: one at a time. Test: tests/unit/test_report.c
 */
#ifndef GP_REPORT_CHART_H
#define GP_REPORT_CHART_H

#include "client/report/report_axis.h"
#include "client/report/report_html.h"
#include "client/report/report_run.h"

#define GP_CHART_COLOURS 8

enum gp_line_kind {
	GP_LINE_PLAIN,
	GP_LINE_FAINT, /* behind the others, and of no interest by itself */
	GP_LINE_DOTS   /* with a dot at each point */
};

struct gp_chart_line {
	const char *name; /* of a log: shown as text */
	int style, count;
	enum gp_line_kind kind;
	const double *x, *y; /* not finite: the line has a gap there */
};

struct gp_chart {
	const char *title, *x_title, *y_title; /* of this program */
	enum gp_unit x_unit, y_unit;
	bool from_zero; /* the axis of y begins at 0 */
	const struct gp_chart_line *line;
	int lines;
};

/* Whether any line has a point. */
bool gp_chart_has_points(const struct gp_chart *c);
/* Nothing where it has none. */
void gp_chart_draw(struct gp_html *h, const struct gp_chart *c);

/* The newest histogram as bars, the first as an outline. `name` is of a log. */
void gp_chart_draw_histogram(struct gp_html *h, const struct gp_report_histogram *g, int style, const char *name);

/* A piece of a line of this style, for legends. */
void gp_chart_swatch(struct gp_html *h, int style);

#endif
