/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of runs as curves: which series of a run becomes a line of which chart, against steps, bytes or time.
 *
 * Threads: one at a time. Test: tests/unit/test_report.c
 */
#ifndef GP_REPORT_CURVES_H
#define GP_REPORT_CURVES_H

#include "client/report/report_chart.h"
#include "client/report/report_page.h"

enum gp_against { GP_AGAINST_STEPS, GP_AGAINST_BYTES, GP_AGAINST_TIME, GP_AGAINSTS };

/* Series of a run. */
enum gp_curve_of {
	GP_CURVE_STEP,
	GP_CURVE_EVAL,
	GP_CURVE_CODEC_ERROR,                                           /* one of each direction */
	GP_CURVE_PRIVACY = GP_CURVE_CODEC_ERROR + GP_REPORT_DIRECTIONS, /* the same */
	GP_CURVES = GP_CURVE_PRIVACY + GP_REPORT_DIRECTIONS
};

/* What a chart shows of every run. */
struct gp_curve {
	const char *title, *y_title;
	enum gp_unit unit;
	bool from_zero;
	int of, figure; /* enum gp_curve_of; of that series */
	bool noisy;     /* a moving mean is drawn, and faint what it is of */
	int val_figure; /* of GP_CURVE_EVAL, as dots; -1: none */
};

/* Memory for the lines of one chart; gp_free. */
struct gp_curves;
enum gp_status gp_curves_new(struct gp_curves **out, struct gp_err *err);

/* Points on both sides of one that its moving mean has. */
#define GP_CURVE_SMOOTH 1 / 40 /* of the points of a line */

/* Whether any run has a point of it. */
bool gp_curve_is_known(const struct gp_curve *c, const struct gp_report_run *run, int runs);
void gp_curve_draw(struct gp_html *h, struct gp_curves *room, const struct gp_curve *c, enum gp_against against,
		   const struct gp_report_run *run, int runs);

#endif
