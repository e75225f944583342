/* SPDX-License-Identifier: Apache-2.0
 *
 * See report_curves.h. Test: tests/unit/test_report.c
 */
#include "client/report/report_curves.h"

#include <math.h>

#include "common/base/mem.h"

#define LINES_OF_RUN 3
#define LINES_MOST   (GP_REPORT_RUNS_MAX * LINES_OF_RUN)

struct gp_curves {
	int lines;
	struct gp_chart_line line[LINES_MOST];
	char name[LINES_MOST][GP_REPORT_TEXT + 16];
	double x[LINES_MOST][GP_SERIES_POINTS], y[LINES_MOST][GP_SERIES_POINTS];
};

static const struct {
	const char *word, *title;
	enum gp_unit unit;
} axis_of[GP_AGAINSTS] = {
	[GP_AGAINST_STEPS] = {"steps", "steps", GP_UNIT_COUNT},
	[GP_AGAINST_BYTES] = {"bytes", "bytes sent and received", GP_UNIT_BYTES},
	[GP_AGAINST_TIME] = {"time", "time", GP_UNIT_SECONDS},
};

enum gp_status gp_curves_new(struct gp_curves **out, struct gp_err *err)
{
	return gp_alloc_array((void **)out, 1, sizeof **out, err);
}

static const struct gp_series *series_of(const struct gp_report_run *r, int of)
{
	if (of == GP_CURVE_STEP)
		return &r->step;
	if (of == GP_CURVE_EVAL)
		return &r->eval;
	return of < GP_CURVE_PRIVACY ? &r->codec_error[of - GP_CURVE_CODEC_ERROR] : &r->privacy[of - GP_CURVE_PRIVACY];
}

static double x_at(const struct gp_series *s, int i, enum gp_against against, bool local)
{
	switch (against) {
	case GP_AGAINST_BYTES:
		return local ? NAN : s->point[i].bytes;
	case GP_AGAINST_TIME:
		return s->point[i].time_s;
	default:
		return (double)s->point[i].last;
	}
}

/* The mean of the points around each one. */
static void smooth(const double *from, double *to, int count)
{
	const int reach = count * GP_CURVE_SMOOTH;
	for (int i = 0; i < count; i++) {
		double sum = 0;
		int known = 0;
		for (int k = i - reach; k <= i + reach; k++)
			if (k >= 0 && k < count && isfinite(from[k])) {
				sum += from[k];
				known++;
			}
		to[i] = known && isfinite(from[i]) ? sum / known : NAN;
	}
}

static int add_line(struct gp_curves *c, const struct gp_report_run *r, const struct gp_series *s, int figure,
		    enum gp_against against, int style)
{
	const int n = c->lines++;
	for (int i = 0; i < s->count; i++) {
		c->x[n][i] = x_at(s, i, against, r->head.local);
		c->y[n][i] = gp_series_mean(s, i, figure);
	}
	snprintf(c->name[n], sizeof c->name[n], "%s", r->name);
	c->line[n] = (struct gp_chart_line){
		.name = c->name[n], .style = style, .count = s->count, .x = c->x[n], .y = c->y[n]};
	return n;
}

static void add_run(struct gp_curves *c, const struct gp_curve *what, enum gp_against against,
		    const struct gp_report_run *r, int style, bool alone)
{
	const struct gp_series *s = series_of(r, what->of);
	if (s->figures > 0) {
		const int n = add_line(c, r, s, what->figure, against, style);
		if (what->noisy && s->count * GP_CURVE_SMOOTH > 0) {
			const int mean = add_line(c, r, s, what->figure, against, style);
			smooth(c->y[n], c->y[mean], s->count);
			c->line[n].kind = GP_LINE_FAINT;
		}
	}
	if (what->val_figure >= 0) {
		const int n = add_line(c, r, &r->eval, what->val_figure, against, alone ? style + 1 : style);
		c->line[n].kind = GP_LINE_DOTS;
		snprintf(c->name[n], sizeof c->name[n], "%s, validation", r->name);
	}
}

bool gp_curve_is_known(const struct gp_curve *c, const struct gp_report_run *run, int runs)
{
	for (int i = 0; i < runs; i++) {
		const struct gp_series *s = series_of(&run[i], c->of);
		if (s->figures > 0 && isfinite(gp_series_mean_of_all(s, c->figure)))
			return true;
		if (c->val_figure >= 0 && isfinite(gp_series_mean_of_all(&run[i].eval, c->val_figure)))
			return true;
	}
	return false;
}

void gp_curve_draw(struct gp_html *h, struct gp_curves *room, const struct gp_curve *c, enum gp_against against,
		   const struct gp_report_run *run, int runs)
{
	char title[96];
	room->lines = 0;
	for (int i = 0; i < runs; i++)
		add_run(room, c, against, &run[i], i, runs == 1);
	snprintf(title, sizeof title, "%s against %s", c->title, axis_of[against].word);
	const struct gp_chart chart = {.title = title,
				       .x_title = axis_of[against].title,
				       .y_title = c->y_title,
				       .x_unit = axis_of[against].unit,
				       .y_unit = c->unit,
				       .from_zero = c->from_zero,
				       .line = room->line,
				       .lines = room->lines};
	gp_chart_draw(h, &chart);
}
