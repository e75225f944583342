/* SPDX-License-Identifier: Apache-2.0
 *
 * See report_gantt.h. Test: tests/unit/test_report.c
 */
#include "client/report/report_gantt.h"

#include <math.h>
#include <stdlib.h>

#include "client/report/report_axis.h"

/* In units of the picture. */
#define WIDTH   1100
#define LEFT    150
#define RIGHT   1086
#define TOP     8
#define ROW     18 /* a bar and what is free below it */
#define BAR     15
#define GAP     8 /* between lanes */
#define DIGIT   7
#define X_TICKS 8

#define ROWS_MOST 6 /* of a lane: what would need more lies over others */

enum lane {
	LANE_COMPUTE,
	LANE_CODEC,
	LANE_UP_SENT,
	LANE_UP_RECEIVED,
	LANE_SERVER_CODEC,
	LANE_SERVER_COMPUTE,
	LANE_DOWN_SENT,
	LANE_DOWN_RECEIVED,
	LANES,
	NOT_SHOWN
};

static const char *const lane_name[LANES] = {
	"client computes", "client's codecs", "sent up",   "arrives at server",
	"server's codecs", "server computes", "sent down", "arrives at client",
};

/* The lane of each stage, and its colour: that of what bounds a step. */
static const struct {
	enum lane lane;
	enum gp_bound bound;
	bool backward;
} look[GP_AT_STAGES] = {
	[GP_AT_HEAD_FORWARD] = {LANE_COMPUTE, GP_BOUND_HEAD, false},
	[GP_AT_ACT_UP_ENCODE] = {LANE_CODEC, GP_BOUND_CODEC, false},
	[GP_AT_ACT_UP_SENT] = {LANE_UP_SENT, GP_BOUND_UP_WIRE, false},
	[GP_AT_ACT_UP_RECEIVED] = {LANE_UP_RECEIVED, GP_BOUND_UP_WIRE, false},
	[GP_AT_ACT_UP_DECODE] = {LANE_SERVER_CODEC, GP_BOUND_CODEC, false},
	[GP_AT_BODY_FORWARD] = {LANE_SERVER_COMPUTE, GP_BOUND_BODY, false},
	[GP_AT_ACT_DOWN_ENCODE] = {LANE_SERVER_CODEC, GP_BOUND_CODEC, false},
	[GP_AT_ACT_DOWN_SENT] = {LANE_DOWN_SENT, GP_BOUND_DOWN_WIRE, false},
	[GP_AT_ACT_DOWN_RECEIVED] = {LANE_DOWN_RECEIVED, GP_BOUND_DOWN_WIRE, false},
	[GP_AT_ACT_DOWN_DECODE] = {LANE_CODEC, GP_BOUND_CODEC, false},
	[GP_AT_TAIL] = {LANE_COMPUTE, GP_BOUND_TAIL, false},
	[GP_AT_GRAD_UP_ENCODE] = {LANE_CODEC, GP_BOUND_CODEC, true},
	[GP_AT_GRAD_UP_SENT] = {LANE_UP_SENT, GP_BOUND_UP_WIRE, true},
	[GP_AT_GRAD_UP_RECEIVED] = {LANE_UP_RECEIVED, GP_BOUND_UP_WIRE, true},
	[GP_AT_GRAD_UP_DECODE] = {LANE_SERVER_CODEC, GP_BOUND_CODEC, true},
	[GP_AT_BODY_BACKWARD] = {LANE_SERVER_COMPUTE, GP_BOUND_BODY, true},
	[GP_AT_GRAD_DOWN_ENCODE] = {LANE_SERVER_CODEC, GP_BOUND_CODEC, true},
	[GP_AT_GRAD_DOWN_SENT] = {LANE_DOWN_SENT, GP_BOUND_DOWN_WIRE, true},
	[GP_AT_GRAD_DOWN_RECEIVED] = {LANE_DOWN_RECEIVED, GP_BOUND_DOWN_WIRE, true},
	[GP_AT_GRAD_DOWN_DECODE] = {LANE_CODEC, GP_BOUND_CODEC, true},
	[GP_AT_HEAD_BACKWARD] = {LANE_COMPUTE, GP_BOUND_HEAD, true},
	[GP_AT_CHUNK_DONE] = {NOT_SHOWN, GP_BOUND_HEAD, false},
	[GP_AT_BODY_UPDATE] = {LANE_SERVER_COMPUTE, GP_BOUND_OTHERS, false},
	[GP_AT_BODY_CHECKPOINT] = {NOT_SHOWN, GP_BOUND_OTHERS, false},
	[GP_AT_TAIL_FORWARD] = {NOT_SHOWN, GP_BOUND_TAIL, false}, /* parts of GP_AT_TAIL */
	[GP_AT_LOSS] = {NOT_SHOWN, GP_BOUND_TAIL, false},
	[GP_AT_TAIL_BACKWARD] = {NOT_SHOWN, GP_BOUND_TAIL, true},
	[GP_AT_UPDATE] = {LANE_COMPUTE, GP_BOUND_OTHERS, false},
	[GP_AT_COMMIT] = {NOT_SHOWN, GP_BOUND_OTHERS, false},
	[GP_AT_SQUARES] = {NOT_SHOWN, GP_BOUND_OTHERS, false},
	[GP_AT_STEP] = {NOT_SHOWN, GP_BOUND_OTHERS, false},
	[GP_AT_BATCH] = {NOT_SHOWN, GP_BOUND_OTHERS, false},
	[GP_AT_CHECKPOINT] = {NOT_SHOWN, GP_BOUND_OTHERS, false},
	[GP_AT_VALIDATION] = {NOT_SHOWN, GP_BOUND_OTHERS, false},
	[GP_AT_STATISTICS] = {NOT_SHOWN, GP_BOUND_OTHERS, false},
	[GP_AT_MODEL_FORWARD] = {LANE_COMPUTE, GP_BOUND_BODY, false},
	[GP_AT_MODEL_LOSS] = {LANE_COMPUTE, GP_BOUND_TAIL, false},
	[GP_AT_MODEL_BACKWARD] = {LANE_COMPUTE, GP_BOUND_BODY, true},
};

struct drawing {
	const struct gp_report_timeline *t;
	struct gp_axis x;
	int rows[LANES], top[LANES];            /* of each lane */
	unsigned char row[GP_REPORT_INTERVALS]; /* of each interval */
	int height;
};

static bool is_shown(const struct gp_report_interval *i)
{
	return look[i->stage].lane < LANES;
}

/* Intervals of a lane that overlap lie in rows of their own. */
static void place(struct drawing *d)
{
	double busy[LANES][ROWS_MOST];
	for (int l = 0; l < LANES; l++)
		for (int k = 0; k < ROWS_MOST; k++)
			busy[l][k] = -INFINITY;
	for (int n = 0; n < d->t->count; n++) {
		const struct gp_report_interval *i = &d->t->interval[n];
		const enum lane l = look[i->stage].lane;
		int k = 0;
		if (!is_shown(i))
			continue;
		while (k + 1 < ROWS_MOST && busy[l][k] > i->begin_s + 1e-9)
			k++;
		busy[l][k] = fmax(busy[l][k], i->end_s);
		d->row[n] = (unsigned char)k;
		d->rows[l] = d->rows[l] > k ? d->rows[l] : k + 1;
	}
	d->height = TOP;
	for (int l = 0; l < LANES; l++) {
		d->top[l] = d->height;
		d->height += d->rows[l] ? d->rows[l] * ROW + GAP : 0;
	}
}

static void fit(struct drawing *d)
{
	double low = 0, high = isfinite(d->t->seconds) ? d->t->seconds : 0;
	for (int n = 0; n < d->t->count; n++)
		if (is_shown(&d->t->interval[n])) {
			low = fmin(low, d->t->interval[n].begin_s);
			high = fmax(high, d->t->interval[n].end_s);
		}
	d->x = gp_axis_around(low, high, GP_UNIT_SECONDS, X_TICKS);
	d->x.low = low;
	d->x.high = high > low ? high : d->x.high;
}

static double x_of(const struct drawing *d, double s)
{
	return LEFT + (s - d->x.low) / (d->x.high - d->x.low) * (RIGHT - LEFT);
}

static void draw_lanes(struct gp_html *h, const struct drawing *d)
{
	for (int l = 0; l < LANES; l++)
		if (d->rows[l])
			gp_html_put(h,
				    "<rect class=\"lane\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
				    "<text class=\"ty\" x=\"%d\" y=\"%.1f\">%s</text>",
				    LEFT, d->top[l] - 2, RIGHT - LEFT, d->rows[l] * ROW + 1, LEFT - 8,
				    d->top[l] + d->rows[l] * ROW / 2.0 + 3, lane_name[l]);
}

static void draw_axis(struct gp_html *h, const struct drawing *d)
{
	char text[GP_AXIS_TEXT];
	for (int i = 0; i < d->x.ticks; i++) {
		const double x = x_of(d, d->x.tick[i]);
		if (x < LEFT - 1 || x > RIGHT + 1)
			continue;
		gp_html_put(h,
			    "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"tx\" x=\"%.1f\" y=\"%d\">%s</text>",
			    x, TOP - 2, d->height, x, d->height + 15, gp_axis_text(&d->x, d->x.tick[i], text));
	}
	gp_html_put(h, "<text class=\"lx\" x=\"%d\" y=\"%d\">time since the step began (%s)</text>", (LEFT + RIGHT) / 2,
		    d->height + 34, d->x.suffix);
	if (isfinite(d->t->seconds) && d->t->seconds > 0)
		gp_html_put(h, "<path class=\"mark\" d=\"M%.1f %dV%d\"/>", x_of(d, d->t->seconds), TOP - 4, d->height);
	gp_html_put(h, "<path class=\"mark\" d=\"M%.1f %dV%d\"/>", x_of(d, 0), TOP - 4, d->height);
}

static void draw_bar(struct gp_html *h, const struct drawing *d, int n)
{
	char from[GP_AXIS_TEXT], took[GP_AXIS_TEXT], chunk[24] = "";
	const struct gp_report_interval *i = &d->t->interval[n];
	const double x = x_of(d, i->begin_s), width = fmax(x_of(d, i->end_s) - x, 0.8);
	const int y = d->top[look[i->stage].lane] + d->row[n] * ROW;
	if (i->chunk >= 0)
		snprintf(chunk, sizeof chunk, ", chunk %d", i->chunk);
	gp_html_put(h,
		    "<g><title>%s%s: at %s for %s</title><rect class=\"b%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
		    "height=\"%d\"/>",
		    gp_interval_stage_name(i->stage), chunk, gp_unit_text(GP_UNIT_SECONDS, i->begin_s, from),
		    gp_unit_text(GP_UNIT_SECONDS, i->end_s - i->begin_s, took), look[i->stage].bound, x, y, width, BAR);
	if (look[i->stage].backward)
		gp_html_put(h, "<rect class=\"back\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"3\"/>", x, y + BAR - 3,
			    width);
	if (i->chunk >= 0 && width > (i->chunk > 9 ? 3 : 2) * DIGIT)
		gp_html_put(h, "<text class=\"in b%dt\" x=\"%.2f\" y=\"%d\">%d</text>", look[i->stage].bound,
			    x + width / 2, y + 11, i->chunk);
	gp_html_put(h, "</g>");
}

/* In words: what each lane was busy for. */
static void describe(struct gp_html *h, const struct drawing *d)
{
	char text[GP_AXIS_TEXT];
	gp_html_put(h, "<desc>What was busy for how long in step %llu:", (unsigned long long)d->t->step);
	for (int l = 0; l < LANES; l++) {
		double sum = 0;
		for (int n = 0; n < d->t->count; n++)
			if (look[d->t->interval[n].stage].lane == (enum lane)l)
				sum += d->t->interval[n].end_s - d->t->interval[n].begin_s;
		if (d->rows[l])
			gp_html_put(h, " %s: %s;", lane_name[l], gp_unit_text(GP_UNIT_SECONDS, sum, text));
	}
	gp_html_put(h, " chunks are numbered from 0.</desc>");
}

static int by_begin(const void *a, const void *b)
{
	const struct gp_report_interval *x = a, *y = b;
	return (x->begin_s > y->begin_s) - (x->begin_s < y->begin_s);
}

void gp_gantt_draw(struct gp_html *h, const struct gp_report_run *r)
{
	struct drawing d = {.t = &r->timeline};
	bool any = false;
	for (int n = 0; n < r->timeline.count; n++)
		any |= is_shown(&r->timeline.interval[n]);
	if (!any)
		return;
	qsort(r->timeline.interval, (size_t)r->timeline.count, sizeof *r->timeline.interval, by_begin);
	fit(&d);
	place(&d);
	gp_html_put(h, "<figure class=\"gantt\"><figcaption>Step %llu: ", (unsigned long long)r->timeline.step);
	gp_html_text(h, r->name);
	gp_html_put(h,
		    "</figcaption><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"one step, scrolls "
		    "sideways\">"
		    "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Gantt chart of step %llu\">",
		    WIDTH, d.height + 42, (unsigned long long)r->timeline.step);
	describe(h, &d);
	draw_lanes(h, &d);
	draw_axis(h, &d);
	for (int n = 0; n < d.t->count; n++)
		if (is_shown(&d.t->interval[n]))
			draw_bar(h, &d, n);
	gp_html_put(h, "</svg></div></figure>\n");
}
