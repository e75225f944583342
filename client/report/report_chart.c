/* SPDX-License-Identifier: Apache-2.0
 *
 * See report_chart.h. Test: tests/unit/test_report.c
 */
#include "client/report/report_chart.h"

#include <math.h>
#include <string.h>

/* In units of the picture. */
#define WIDTH  440
#define HEIGHT 264
#define LEFT   54
#define RIGHT  428
#define TOP    30
#define BOTTOM 218

#define OUTLINE_MOST 1.5 /* times the height of the bars: what of an outline is higher, is cut off */

#define Y_TICKS 5
#define X_TICKS 5

struct frame {
	const struct gp_chart *chart;
	struct gp_axis x, y;
};

static bool is_point(const struct gp_chart_line *l, int i)
{
	return isfinite(l->x[i]) && isfinite(l->y[i]);
}

bool gp_chart_has_points(const struct gp_chart *c)
{
	for (int n = 0; n < c->lines; n++)
		for (int i = 0; i < c->line[n].count; i++)
			if (is_point(&c->line[n], i))
				return true;
	return false;
}

static struct frame frame_of(const struct gp_chart *c)
{
	double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
	for (int n = 0; n < c->lines; n++)
		for (int i = 0; i < c->line[n].count; i++) {
			const double at[2] = {c->line[n].x[i], c->line[n].y[i]};
			for (int d = 0; d < 2 && is_point(&c->line[n], i); d++) {
				low[d] = fmin(low[d], at[d]);
				high[d] = fmax(high[d], at[d]);
			}
		}
	if (c->from_zero)
		low[1] = fmin(low[1], 0);
	struct frame f = {.chart = c,
			  .x = gp_axis_around(low[0], high[0], c->x_unit, X_TICKS),
			  .y = gp_axis_around(low[1], high[1], c->y_unit, Y_TICKS)};
	f.x.low = low[0] > f.x.low && high[0] > low[0] ? low[0] : f.x.low; /* no empty room beside the lines */
	f.x.high = high[0] < f.x.high && high[0] > low[0] ? high[0] : f.x.high;
	return f;
}

static double share_of(const struct gp_axis *a, double value)
{
	const double share = (value - a->low) / (a->high - a->low);
	return isfinite(share) ? fmin(fmax(share, 0), 1) : 0;
}

static double x_of(const struct frame *f, double value)
{
	return LEFT + share_of(&f->x, value) * (RIGHT - LEFT);
}

static double y_of(const struct frame *f, double value)
{
	return BOTTOM - share_of(&f->y, value) * (BOTTOM - TOP);
}

static bool shows(const struct gp_axis *a, double tick)
{
	const double room = (a->high - a->low) * 1e-9;
	return tick >= a->low - room && tick <= a->high + room;
}

static void draw_axes(struct gp_html *h, const struct frame *f)
{
	char text[GP_AXIS_TEXT];
	for (int i = 0; i < f->y.ticks; i++) {
		const double y = y_of(f, f->y.tick[i]);
		gp_html_put(h,
			    "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"ty\" x=\"%d\" y=\"%.1f\">%s</text>",
			    LEFT, y, RIGHT, LEFT - 6, y + 4, gp_axis_text(&f->y, f->y.tick[i], text));
	}
	for (int i = 0; i < f->x.ticks; i++) {
		if (!shows(&f->x, f->x.tick[i]))
			continue;
		const double x = x_of(f, f->x.tick[i]);
		const bool last = x > RIGHT - 16; /* its text ends with the picture */
		gp_html_put(h,
			    "<path class=\"axis\" d=\"M%.1f %dv4\"/><text class=\"%s\" x=\"%.1f\" y=\"%d\">%s</text>",
			    x, BOTTOM, last ? "ty" : "tx", last ? fmin(x + 11, WIDTH - 1) : x, BOTTOM + 17,
			    gp_axis_text(&f->x, f->x.tick[i], text));
	}
	gp_html_put(h, "<path class=\"axis\" d=\"M%d %dH%d\"/>", LEFT, BOTTOM, RIGHT);
}

static void put_title(struct gp_html *h, const char *title, const struct gp_axis *a)
{
	gp_html_text(h, title);
	if (*a->suffix)
		gp_html_put(h, " (%s)", a->suffix);
}

static void draw_titles(struct gp_html *h, const struct frame *f)
{
	gp_html_put(h, "<text class=\"lx\" x=\"%d\" y=\"%d\">", (LEFT + RIGHT) / 2, BOTTOM + 37);
	put_title(h, f->chart->x_title, &f->x);
	gp_html_put(h, "</text><text class=\"ly\" x=\"%d\" y=\"14\">", 4);
	put_title(h, f->chart->y_title, &f->y);
	gp_html_put(h, "</text>");
}

static void draw_dots(struct gp_html *h, const struct frame *f, const struct gp_chart_line *l)
{
	enum { DOTS_MOST = 60 };
	if (l->kind != GP_LINE_DOTS || l->count > DOTS_MOST)
		return;
	for (int i = 0; i < l->count; i++)
		if (is_point(l, i))
			gp_html_put(h, "<circle class=\"d s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
				    l->style % GP_CHART_COLOURS, x_of(f, l->x[i]), y_of(f, l->y[i]));
}

/* A point alone between two gaps would not be seen: it gets a length of its own. */
static void draw_line(struct gp_html *h, const struct frame *f, const struct gp_chart_line *l)
{
	bool drawn = false;
	gp_html_put(h, "<path class=\"%s s%d p%d\"", l->kind == GP_LINE_FAINT ? "f" : "l", l->style % GP_CHART_COLOURS,
		    (l->style + l->style / GP_CHART_COLOURS) % GP_CHART_COLOURS);
	if (l->kind != GP_LINE_FAINT) {
		gp_html_put(h, " data-name=\"");
		gp_html_text(h, l->name);
		gp_html_put(h, "\"");
	}
	gp_html_put(h, " d=\"");
	for (int i = 0; i < l->count; i++) {
		const bool is = is_point(l, i);
		if (is)
			gp_html_put(h, "%s%.1f %.1f", drawn ? "L" : "M", x_of(f, l->x[i]), y_of(f, l->y[i]));
		if (is && !drawn && (i + 1 == l->count || !is_point(l, i + 1)))
			gp_html_put(h, "h.1");
		drawn = is;
	}
	gp_html_put(h, "\"/>");
	draw_dots(h, f, l);
}

/* --- in words ---------------------------------------------------------------------------------------------------- */

struct extent {
	double first, least, most, last;
	int points;
};

static struct extent extent_of(const struct gp_chart_line *l)
{
	struct extent e = {.points = 0};
	for (int i = 0; i < l->count; i++) {
		if (!is_point(l, i))
			continue;
		e.first = e.points ? e.first : l->y[i];
		e.least = e.points ? fmin(e.least, l->y[i]) : l->y[i];
		e.most = e.points ? fmax(e.most, l->y[i]) : l->y[i];
		e.last = l->y[i];
		e.points++;
	}
	return e;
}

static void put_value(struct gp_html *h, enum gp_unit unit, double value)
{
	char text[GP_AXIS_TEXT];
	gp_html_put_all(h, gp_unit_text(unit, value, text));
}

static void describe(struct gp_html *h, const struct gp_chart *c)
{
	gp_html_put(h, "<desc>");
	gp_html_text(h, c->y_title);
	gp_html_put(h, " against ");
	gp_html_text(h, c->x_title);
	gp_html_put(h, ".");
	for (int n = 0; n < c->lines; n++) {
		const struct extent e = extent_of(&c->line[n]);
		if (c->line[n].kind == GP_LINE_FAINT || e.points == 0)
			continue;
		gp_html_put(h, " ");
		gp_html_text(h, c->line[n].name);
		gp_html_put(h, ": from ");
		put_value(h, c->y_unit, e.first);
		gp_html_put(h, " to ");
		put_value(h, c->y_unit, e.last);
		gp_html_put(h, ".");
	}
	gp_html_put(h, "</desc>");
}

static void put_table(struct gp_html *h, const struct gp_chart *c)
{
	gp_html_put(
		h,
		"<details><summary>Numbers</summary><div class=\"scroll\"><table><thead><tr><th scope=\"col\">line</th>"
		"<th scope=\"col\">first</th><th scope=\"col\">least</th><th scope=\"col\">most</th>"
		"<th scope=\"col\">last</th></tr></thead><tbody>");
	for (int n = 0; n < c->lines; n++) {
		const struct extent e = extent_of(&c->line[n]);
		const double value[] = {e.first, e.least, e.most, e.last};
		if (c->line[n].kind == GP_LINE_FAINT || e.points == 0)
			continue;
		gp_html_put(h, "<tr><th scope=\"row\">");
		gp_html_text(h, c->line[n].name);
		gp_html_put(h, "</th>");
		for (int i = 0; i < 4; i++) {
			gp_html_put(h, "<td>");
			put_value(h, c->y_unit, value[i]);
			gp_html_put(h, "</td>");
		}
		gp_html_put(h, "</tr>");
	}
	gp_html_put(h, "</tbody></table></div></details>");
}

/* --- charts ------------------------------------------------------------------------------------------------------ */

static void put_numbers_of_axis(struct gp_html *h, char name, const struct gp_axis *a)
{
	gp_html_put(h, " data-%c0=\"%.9g\" data-%c1=\"%.9g\" data-%cu=\"%s\"", name, a->low / a->scale, name,
		    a->high / a->scale, name, a->suffix);
}

void gp_chart_draw(struct gp_html *h, const struct gp_chart *c)
{
	if (!gp_chart_has_points(c))
		return;
	const struct frame f = frame_of(c);
	gp_html_put(h, "<figure class=\"chart\"><figcaption>");
	gp_html_text(h, c->title);
	gp_html_put(h, "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" tabindex=\"0\" class=\"lines\"", WIDTH,
		    HEIGHT);
	put_numbers_of_axis(h, 'x', &f.x);
	put_numbers_of_axis(h, 'y', &f.y);
	gp_html_put(h, " aria-label=\"");
	gp_html_text(h, c->title);
	gp_html_put(h, "\">");
	describe(h, c);
	draw_axes(h, &f);
	for (int n = 0; n < c->lines; n++)
		if (c->line[n].kind == GP_LINE_FAINT)
			draw_line(h, &f, &c->line[n]);
	for (int n = 0; n < c->lines; n++)
		if (c->line[n].kind != GP_LINE_FAINT)
			draw_line(h, &f, &c->line[n]);
	draw_titles(h, &f);
	gp_html_put(h, "</svg>");
	put_table(h, c);
	gp_html_put(h, "</figure>\n");
}

void gp_chart_swatch(struct gp_html *h, int style)
{
	gp_html_put(h,
		    "<svg class=\"swatch\" viewBox=\"0 0 28 10\" aria-hidden=\"true\"><path class=\"l s%d p%d\" d=\"M1 "
		    "5H27\"/></svg>",
		    style % GP_CHART_COLOURS, (style + style / GP_CHART_COLOURS) % GP_CHART_COLOURS);
}

/* --- histograms -------------------------------------------------------------------------------------------------- */

static float largest_share(const struct gp_report_bins *b)
{
	float most = 0;
	for (int i = 0; i < b->count; i++)
		most = fmaxf(most, b->share[i]);
	return most;
}

/* Shares as heights per unit of x, so that bins of two widths can be compared. */
static double density(const struct gp_report_bins *b, int bin)
{
	return b->share[bin] * b->count / (b->high - b->low);
}

static double largest_density(const struct gp_report_bins *b)
{
	return (double)largest_share(b) * b->count / (b->high - b->low);
}

static void draw_bins(struct gp_html *h, const struct frame *f, const struct gp_report_bins *b, double scale,
		      const char *class)
{
	const double width = (b->high - b->low) / b->count;
	gp_html_put(h, "<path class=\"%s\" d=\"M%.1f %d", class, x_of(f, b->low), BOTTOM);
	for (int i = 0; i < b->count; i++)
		gp_html_put(h, "V%.1fH%.1f", y_of(f, density(b, i) * scale), x_of(f, b->low + (i + 1) * width));
	gp_html_put(h, "V%d\"/>", BOTTOM);
}

static void describe_bins(struct gp_html *h, const struct gp_report_bins *b)
{
	gp_html_put(h, "step %llu: mean %.3g, standard deviation %.3g, from %.3g to %.3g", (unsigned long long)b->step,
		    b->mean, b->std, b->smallest, b->largest);
	if (b->below + b->above > 0)
		gp_html_put(h, ", %.2g %% outside of the chart", 100 * (b->below + b->above));
}

static void put_name(struct gp_html *h, const struct gp_report_histogram *g, const char *name)
{
	gp_html_text(h, g->what);
	gp_html_put(h, ", ");
	gp_html_text(h, g->of);
	if (name) {
		gp_html_put(h, ": ");
		gp_html_text(h, name);
	}
}

void gp_chart_draw_histogram(struct gp_html *h, const struct gp_report_histogram *g, int style, const char *name)
{
	const struct gp_report_bins *new = &g->newest, *old = &g->first;
	const double most = fmax(largest_density(new), fmin(largest_density(old), OUTLINE_MOST * largest_density(new))),
		     width = (new->high - new->low) / new->count;
	const struct gp_chart c = {.x_title = "value", .y_title = "share of values in a bin"};
	struct frame f = {
		.chart = &c,
		.x = gp_axis_around(fmin(new->low, old->low), fmax(new->high, old->high), GP_UNIT_NONE, X_TICKS),
		.y = gp_axis_around(0, most * width, GP_UNIT_SHARE, Y_TICKS)};
	gp_html_put(h, "<figure class=\"chart\"><figcaption>");
	put_name(h, g, name);
	gp_html_put(h, "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"histogram of ", WIDTH,
		    HEIGHT);
	put_name(h, g, name);
	gp_html_put(h, "\"><desc>");
	describe_bins(h, new);
	gp_html_put(h, "</desc>");
	draw_axes(h, &f);
	char class[16];
	snprintf(class, sizeof class, "bin s%d", style % GP_CHART_COLOURS);
	draw_bins(h, &f, new, width, class);
	if (old->step != new->step)
		draw_bins(h, &f, old, width, "was");
	draw_titles(h, &f);
	gp_html_put(h, "</svg><p class=\"note\">filled: ");
	describe_bins(h, new);
	if (old->step != new->step)
		gp_html_put(h, "; outline: step %llu", (unsigned long long)old->step);
	gp_html_put(h, "</p></figure>\n");
}
