/* SPDX-License-Identifier: Apache-2.0
 *
 * See report_bars.h. Test: tests/unit/test_report.c
 */
#include "client/report/report_bars.h"

#include <math.h>

#define TICKS      4
#define NAMED_FROM 9.0 /* percent of the whole width: a part that is narrower has no name in it */

static double part_of(const struct gp_bar *b, int i)
{
	return isfinite(b->part[i]) && b->part[i] > 0 ? b->part[i] : 0;
}

static double sum_of(const struct gp_bars *b, int bar)
{
	double sum = 0;
	for (int i = 0; i < b->parts; i++)
		sum += part_of(&b->bar[bar], i);
	return sum;
}

static bool is_used(const struct gp_bars *b, int part)
{
	for (int i = 0; i < b->bars; i++)
		if (part_of(&b->bar[i], part) > 0)
			return true;
	return false;
}

static void put_legend(struct gp_html *h, const struct gp_bars *b)
{
	gp_html_put(h, "<ul class=\"legend\">");
	for (int i = 0; i < b->parts; i++)
		if (is_used(b, i))
			gp_html_put(h, "<li><span class=\"key b%d\"></span>%s</li>", b->part_colour[i],
				    b->part_name[i]);
	gp_html_put(h, "</ul>");
}

static void put_bar(struct gp_html *h, const struct gp_bars *b, int n, const struct gp_axis *a)
{
	char text[GP_AXIS_TEXT];
	gp_html_put(h, "<div class=\"barname\"><span>");
	gp_html_text(h, b->bar[n].name);
	if (b->bar[n].note) {
		gp_html_put(h, " <small>");
		gp_html_text(h, b->bar[n].note);
		gp_html_put(h, "</small>");
	}
	gp_html_put(h, "</span><b>%s</b></div><div class=\"bar\">", gp_unit_text(b->unit, sum_of(b, n), text));
	for (int i = 0; i < b->parts; i++) {
		const double width = 100 * part_of(&b->bar[n], i) / a->high;
		if (width <= 0)
			continue;
		gp_html_put(h, "<span class=\"b%d b%dt\" style=\"width:%.3f%%\" title=\"%s: %s\">%s</span>",
			    b->part_colour[i], b->part_colour[i], width, b->part_name[i],
			    gp_unit_text(b->unit, b->bar[n].part[i], text), width >= NAMED_FROM ? b->part_name[i] : "");
	}
	gp_html_put(h, "</div>");
}

static void put_scale(struct gp_html *h, const struct gp_bars *b, const struct gp_axis *a)
{
	char text[GP_AXIS_TEXT];
	gp_html_put(h, "<div class=\"scale\">");
	for (int i = 0; i < a->ticks; i++)
		gp_html_put(h, "<span style=\"left:%.2f%%\">%s</span>", 100 * a->tick[i] / a->high,
			    gp_axis_text(a, a->tick[i], text));
	gp_html_put(h, "</div><p class=\"scaletitle\">%s (%s)</p>", b->x_title, a->suffix);
}

static void put_table(struct gp_html *h, const struct gp_bars *b)
{
	char text[GP_AXIS_TEXT];
	gp_html_put(h, "<details><summary>Numbers</summary><div class=\"scroll\" tabindex=\"0\" role=\"group\" "
		       "aria-label=\"table\">"
		       "<table><thead><tr><th scope=\"col\">run</th>");
	for (int i = 0; i < b->parts; i++)
		if (is_used(b, i))
			gp_html_put(h, "<th scope=\"col\">%s</th>", b->part_name[i]);
	gp_html_put(h, "</tr></thead><tbody>");
	for (int n = 0; n < b->bars; n++) {
		gp_html_put(h, "<tr><th scope=\"row\">");
		gp_html_text(h, b->bar[n].name);
		gp_html_put(h, "</th>");
		for (int i = 0; i < b->parts; i++)
			if (is_used(b, i))
				gp_html_put(h, "<td>%s</td>", gp_unit_text(b->unit, b->bar[n].part[i], text));
		gp_html_put(h, "</tr>");
	}
	gp_html_put(h, "</tbody></table></div></details>");
}

void gp_bars_draw(struct gp_html *h, const struct gp_bars *b)
{
	double most = 0;
	for (int n = 0; n < b->bars; n++)
		most = fmax(most, sum_of(b, n));
	if (!(most > 0) || !isfinite(most))
		return;
	const struct gp_axis a = gp_axis_around(0, most, b->unit, TICKS);
	gp_html_put(h, "<figure class=\"bars\"><figcaption>%s</figcaption>", b->title);
	put_legend(h, b);
	gp_html_put(h, "<div class=\"plot\">");
	for (int n = 0; n < b->bars; n++)
		if (sum_of(b, n) > 0)
			put_bar(h, b, n, &a);
	put_scale(h, b, &a);
	gp_html_put(h, "</div>");
	put_table(h, b);
	gp_html_put(h, "</figure>\n");
}
