/* SPDX-License-Identifier: Apache-2.0
 *
 * See report_page.h. Tests: tests/unit/test_report.c, tests/e2e/report.sh
 */
#include "client/report/report_page.h"

#include <math.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <string.h>

#include "client/report/report_bars.h"
#include "client/report/report_curves.h"
#include "client/report/report_gantt.h"
#include "client/report/report_runs.h"
#include "client/report/report_style.h"
#include "common/base/mem.h"
#include "common/wire/direction.h"

struct page {
	struct gp_html *h;
	const struct gp_report_run *run;
	int runs;
	struct gp_curves *curves;
};

/* --- head -------------------------------------------------------------------------------------------------------- */

/* The browser runs no script but this one, and asks nobody for anything, whatever should ever get into the page. */
static void put_policy(struct gp_html *h)
{
	unsigned char digest[SHA256_DIGEST_LENGTH], base64[4 * (SHA256_DIGEST_LENGTH / 3 + 1) + 1];
	SHA256((const unsigned char *)gp_report_script, strlen(gp_report_script), digest);
	EVP_EncodeBlock(base64, digest, sizeof digest);
	gp_html_put(
		h,
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
		"script-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'\"/>\n",
		(const char *)base64);
}

static void put_head(struct page *p)
{
	struct gp_html *h = p->h;
	gp_html_put(h, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
	put_policy(h);
	gp_html_put(
		h,
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>gpsplit report: ");
	gp_html_text(h, p->run[0].name);
	if (p->runs > 1)
		gp_html_put(h, " and %d more", p->runs - 1);
	gp_html_put(h, "</title>\n<style>");
	gp_html_put_all(h, gp_report_style);
	gp_html_put(h, "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#runs\">to the runs</a>\n");
}

static void put_runs(struct page *p)
{
	gp_report_put_runs(p->h, p->run, p->runs);
}

static void put_notices(struct page *p)
{
	for (int i = 0; i < p->runs; i++)
		for (int k = 0; k < p->run[i].notices; k++) {
			gp_html_put(p->h, "<p class=\"notice\">");
			gp_html_text(p->h, p->run[i].name);
			gp_html_put(p->h, ": ");
			gp_html_text(p->h, p->run[i].notice[k]);
			gp_html_put(p->h, ".</p>\n");
		}
}

/* --- curves ------------------------------------------------------------------------------------------------------ */

static void put_legend(struct page *p)
{
	if (p->runs == 1)
		return;
	gp_html_put(p->h, "<ul class=\"legend\">");
	for (int i = 0; i < p->runs; i++) {
		gp_html_put(p->h, "<li>");
		gp_report_put_name(p->h, p->run, p->runs, i);
		gp_html_put(p->h, "</li>");
	}
	gp_html_put(p->h, "</ul>\n");
}

static void put_legend_of_learning(struct page *p)
{
	struct gp_html *h = p->h;
	put_legend(p);
	if (p->runs == 1) {
		gp_html_put(h, "<ul class=\"legend\"><li>");
		gp_chart_swatch(h, 0);
		gp_html_put(h, " training</li><li>");
		gp_chart_swatch(h, 1);
		gp_html_put(h, " validation, with dots</li></ul>\n");
	} else {
		gp_html_put(h, "<p class=\"note\">Lines are of training; those with dots of validation.</p>\n");
	}
}

/* How many records a point is the mean of. */
static void put_thinned(struct page *p)
{
	bool any = false;
	for (int i = 0; i < p->runs; i++)
		any |= p->run[i].step.each > 1;
	gp_html_put(p->h, "<p class=\"note\">Faint lines, where there are any, are single points, strong ones their "
			  "moving mean.");
	if (any)
		gp_html_put(p->h,
			    " Long runs are thinned: at most %d points are drawn, each the mean of all steps it stands "
			    "for (",
			    GP_SERIES_POINTS);
	for (int i = 0, n = 0; i < p->runs; i++)
		if (p->run[i].step.each > 1) {
			gp_html_put(p->h, "%s", n++ ? "; " : "");
			gp_html_text(p->h, p->run[i].name);
			gp_html_put(p->h, ": %u steps", p->run[i].step.each);
		}
	gp_html_put(p->h, "%s</p>\n", any ? ")." : "");
}

static bool any_known(const struct page *p, const struct gp_curve *list, int count)
{
	for (int i = 0; i < count; i++)
		if (gp_curve_is_known(&list[i], p->run, p->runs))
			return true;
	return false;
}

static void draw_curves(struct page *p, const struct gp_curve *list, int count, enum gp_against first,
			enum gp_against last)
{
	gp_html_put(p->h, "<div class=\"charts\">\n");
	for (int i = 0; i < count; i++)
		for (int a = (int)first; a <= (int)last; a++)
			if (gp_curve_is_known(&list[i], p->run, p->runs))
				gp_curve_draw(p->h, p->curves, &list[i], (enum gp_against)a, p->run, p->runs);
	gp_html_put(p->h, "</div>\n");
}

#define COUNT(list) (int)(sizeof list / sizeof list[0])

static void put_learning(struct page *p)
{
	static const struct gp_curve list[] = {
		{"Loss", "loss", GP_UNIT_NONE, false, GP_CURVE_STEP, GP_STEP_LOSS, true, GP_EVAL_LOSS},
		{"Accuracy", "accuracy", GP_UNIT_SHARE, false, GP_CURVE_STEP, GP_STEP_ACC, true, GP_EVAL_ACC},
		{"Correlation (Pearson) in validation", "r", GP_UNIT_NONE, false, GP_CURVE_EVAL, GP_EVAL_PEARSON, false,
		 -1},
	};
	static const struct gp_curve rates[] = {
		{"Learning rate", "learning rate", GP_UNIT_NONE, true, GP_CURVE_STEP, GP_STEP_LR, false, -1},
		{"Norm of the gradients, before clipping", "norm", GP_UNIT_NONE, true, GP_CURVE_STEP, GP_STEP_NORM,
		 true, -1},
	};
	if (!any_known(p, list, COUNT(list)))
		return;
	gp_html_put(p->h, "<h2 id=\"learning\">Loss and accuracy</h2>\n");
	put_legend_of_learning(p);
	put_thinned(p);
	draw_curves(p, list, COUNT(list), GP_AGAINST_STEPS, GP_AGAINST_TIME);
	draw_curves(p, rates, COUNT(rates), GP_AGAINST_STEPS, GP_AGAINST_STEPS);
}

static void put_link(struct page *p)
{
	static const struct gp_curve list[] = {
		{"Rate up", "acknowledged by the server", GP_UNIT_BYTES_PER_S, true, GP_CURVE_STEP, GP_STEP_UP_RATE,
		 true, -1},
		{"Rate down", "received", GP_UNIT_BYTES_PER_S, true, GP_CURVE_STEP, GP_STEP_DOWN_RATE, true, -1},
		{"Round trip", "round trip", GP_UNIT_SECONDS, true, GP_CURVE_STEP, GP_STEP_RTT_S, true, -1},
	};
	if (!any_known(p, list, COUNT(list)))
		return;
	gp_html_put(p->h, "<h2 id=\"link\">The link</h2>\n<p class=\"about\">Bytes that the kernel counted during a "
			  "step, by the step's "
			  "time: what the link carried, not what it could carry. The round trip is the kernel's, "
			  "smoothed.</p>\n");
	put_legend(p);
	draw_curves(p, list, COUNT(list), GP_AGAINST_TIME, GP_AGAINST_TIME);
}

/* --- time and bytes ---------------------------------------------------------------------------------------------- */

static void fill_bars(const struct page *p, struct gp_bar *bar, int first, int count, const char *const *note)
{
	for (int i = 0; i < p->runs; i++) {
		bar[i] = (struct gp_bar){.name = p->run[i].name, .note = note ? note[i] : NULL};
		for (int k = 0; k < count; k++)
			bar[i].part[k] = gp_series_mean_of_all(&p->run[i].step, first + k);
	}
}

static const char *codec_note(const struct gp_report_run *r)
{
	return r->head.local ? "local run" : gp_report_same_codecs(&r->head) ? r->head.codec[0] : "several codecs";
}

static void put_time(struct page *p)
{
	static const struct gp_curve step[] = {
		{"Time of a step", "time of a step", GP_UNIT_SECONDS, true, GP_CURVE_STEP, GP_STEP_SECONDS, true, -1}};
	static const int colour[GP_BARS_PARTS] = {0, 1, 2, 3, 4, 5, 6, 7}, stage_colour[] = {3, 5, 6, 0, 4, 7};
	static const char *const stage[] = {"computing", "encoding", "queued", "on the wire", "decoding", "waiting"};
	const char *bound[GP_BOUND_COUNT], *note[GP_REPORT_RUNS_MAX];
	struct gp_bar bar[GP_REPORT_RUNS_MAX];
	for (int i = 0; i < GP_BOUND_COUNT; i++)
		bound[i] = gp_bound_name((enum gp_bound)i);
	for (int i = 0; i < p->runs; i++)
		note[i] = codec_note(&p->run[i]);
	if (!any_known(p, step, 1))
		return;
	gp_html_put(p->h, "<h2 id=\"time\">Where the time went</h2>\n<p class=\"about\">A step is as long as its "
			  "critical path: the first "
			  "chart splits the mean step by what it waited for, and its parts add up to the step. The "
			  "second one has what "
			  "each stage of this side took in a step, in all chunks; stages run at the same time, so that "
			  "these add up to more.</p>\n");
	fill_bars(p, bar, GP_STEP_BOUND, GP_BOUND_COUNT, note);
	gp_bars_draw(p->h, &(struct gp_bars){"What bounded a step", "time per batch", GP_UNIT_SECONDS, bound, colour,
					     GP_BOUND_COUNT, bar, p->runs});
	fill_bars(p, bar, GP_STEP_COMPUTE, GP_STEP_STAGES, note);
	gp_bars_draw(p->h, &(struct gp_bars){"Time in each stage, of this side", "time per batch, all stages",
					     GP_UNIT_SECONDS, stage, stage_colour, GP_STEP_STAGES, bar, p->runs});
	put_legend(p);
	draw_curves(p, step, 1, GP_AGAINST_STEPS, GP_AGAINST_TIME);
}

static void put_bytes(struct page *p)
{
	static const int colour[] = {0, 1, 5, 3};
	const char *name[GP_DIRECTIONS], *note[GP_REPORT_RUNS_MAX];
	char text[GP_REPORT_RUNS_MAX][64];
	struct gp_bar bar[GP_REPORT_RUNS_MAX];
	double most = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		name[d] = gp_direction_info[d].name;
	for (int i = 0; i < p->runs; i++) {
		const double payload = gp_report_sum_of_figures(&p->run[i], GP_STEP_PAYLOAD, GP_DIRECTIONS),
			     tensors = gp_report_sum_of_figures(&p->run[i], GP_STEP_UNCOMPRESSED, GP_DIRECTIONS);
		most = fmax(most, payload);
		note[i] = text[i];
		snprintf(text[i], sizeof text[i], "%.2f times smaller than without codec and insertion",
			 payload > 0 ? fmin(tensors / payload, 1e9) : 1);
	}
	if (!(most > 0))
		return;
	gp_html_put(p->h, "<h2 id=\"bytes\">Bytes</h2>\n");
	fill_bars(p, bar, GP_STEP_PAYLOAD, GP_DIRECTIONS, note);
	gp_bars_draw(p->h, &(struct gp_bars){"Payload of a batch by direction", "payload bytes per batch",
					     GP_UNIT_BYTES, name, colour, GP_DIRECTIONS, bar, p->runs});
}

static void put_gantt(struct page *p)
{
	bool any = false;
	for (int i = 0; i < p->runs; i++)
		any |= p->run[i].timeline.count > 0;
	if (!any)
		return;
	gp_html_put(p->h,
		    "<h2 id=\"step\">One step</h2>\n<p class=\"about\">The newest step of which the log has the times, "
		    "without those that took more than twice the mean; both ends are on this side's clock. A bar is a "
		    "chunk, with its number where there is room; one with a dark foot belongs to the backward pass. "
		    "Dotted lines are the step's begin and end.</p>\n<ul class=\"legend\">");
	for (int i = 0; i < GP_BOUND_LATENCY; i++)
		gp_html_put(p->h, "<li><span class=\"key b%d\"></span>%s</li>", i, gp_bound_name((enum gp_bound)i));
	gp_html_put(p->h, "<li><span class=\"key b7\"></span>update</li><li><span class=\"key "
			  "backkey\"></span>backward</li></ul>\n");
	for (int i = 0; i < p->runs; i++)
		gp_gantt_draw(p->h, &p->run[i]);
}

/* --- codecs and privacy ------------------------------------------------------------------------------------------ */

static void put_decisions_of(struct page *p, int n)
{
	const struct gp_report_run *r = &p->run[n];
	struct gp_html *h = p->h;
	if (r->decisions == 0)
		return;
	gp_html_put(h, "<h3>Decisions of auto: ");
	gp_report_put_name(p->h, p->run, p->runs, n);
	gp_html_put(h, "</h3><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table of "
		       "decisions\"><table><thead><tr>"
		       "<th scope=\"col\">step</th><th scope=\"col\">direction</th><th scope=\"col\">from</th><th "
		       "scope=\"col\">to</th>"
		       "<th scope=\"col\">reason</th></tr></thead><tbody>");
	for (int i = 0; i < r->decisions; i++) {
		const struct gp_report_decision *d = &r->decision[i];
		gp_html_put(h, "<tr><td class=\"n\">%llu</td>", (unsigned long long)d->step);
		gp_html_long_cell(h, d->direction);
		gp_html_long_cell(h, d->from);
		gp_html_long_cell(h, d->to);
		gp_html_long_cell(h, d->reason);
		gp_html_put(h, "</tr>");
	}
	gp_html_put(h, "</tbody></table></div>\n");
	if (r->decisions_left_out > 0)
		gp_html_put(h, "<p class=\"note\">%d later decisions are left out.</p>\n", r->decisions_left_out);
}

static void put_codec_error(struct page *p)
{
	struct gp_curve list[2 * GP_DIRECTIONS];
	char title[2 * GP_DIRECTIONS][64];
	bool any = false;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; i < 2; i++) {
			snprintf(title[2 * d + i], sizeof title[0], "%s of %s", i ? "Cosine" : "Relative error",
				 gp_direction_info[d].name);
			list[2 * d + i] = (struct gp_curve){
				title[2 * d + i],         i ? "cosine" : "relative error",        GP_UNIT_NONE, i == 0,
				GP_CURVE_CODEC_ERROR + d, i ? GP_CODEC_COSINE : GP_CODEC_REL_ERR, true,         -1};
		}
	for (int i = 0; i < p->runs; i++)
		any |= p->run[i].decisions > 0;
	const bool curves = any_known(p, list, COUNT(list));
	if (!any && !curves)
		return;
	gp_html_put(p->h, "<h2 id=\"codec\">What the codec loses</h2>\n<p class=\"about\">A tensor before the codec is "
			  "compared with what "
			  "comes out of it: the error's norm divided by the tensor's, and the cosine of the angle "
			  "between both.</p>\n");
	put_legend(p);
	if (curves)
		draw_curves(p, list, COUNT(list), GP_AGAINST_STEPS, GP_AGAINST_STEPS);
	for (int i = 0; i < p->runs; i++)
		put_decisions_of(p, i);
}

static void put_pictures(struct gp_html *h, const struct gp_report_attack *a)
{
	gp_html_put(h, "<div class=\"pictures\">");
	for (int i = 0; i < a->pictures; i++) {
		gp_html_put(h, "<figure><img alt=\"input %d\" src=\"", i + 1);
		gp_html_text(h, json_string_value(a->original[i]));
		gp_html_put(h, "\"/> <img alt=\"input %d as the attack restores it\" src=\"", i + 1);
		gp_html_text(h, json_string_value(a->restored[i]));
		gp_html_put(h, "\"/><figcaption>input, restored</figcaption></figure>");
	}
	gp_html_put(h, "</div>\n");
}

/* Beside the PSNR stands what it would be without having seen anything. */
static void put_attack_figures(struct gp_html *h, const struct gp_report_attack *a)
{
	if (isfinite(a->psnr_db))
		gp_html_put(h, "PSNR of the restored pictures: %.4g dB", a->psnr_db);
	else
		gp_html_put(h, "PSNR of the restored pictures: -");
	if (isfinite(a->mean_picture_psnr_db))
		gp_html_put(h, "; the mean picture in place of each has %.4g dB", a->mean_picture_psnr_db);
	if (isfinite(a->distance_correlation))
		gp_html_put(h, "; distance correlation %.3f", a->distance_correlation);
	gp_html_put(h, ".");
}

static void put_attack(struct page *p, const struct gp_report_run *r)
{
	struct gp_html *h = p->h;
	for (int i = 0; i < r->attacks; i++) {
		const struct gp_report_attack *a = &r->attack[i];
		gp_html_put(h, "<h3>Attack: ");
		gp_html_text(h, a->model);
		gp_html_put(h, ", cut ");
		gp_html_text(h, a->cut);
		gp_html_put(h, ", ");
		gp_html_text(h, a->codec);
		gp_html_put(h, "</h3><p>");
		put_attack_figures(h, a);
		gp_html_put(h, "</p>\n");
		if (a->pictures > 0)
			put_pictures(h, a);
	}
	if (r->attacks_left_out > 0)
		gp_html_put(h, "<p class=\"note\">%d more attacks are left out.</p>\n", r->attacks_left_out);
}

static void put_privacy(struct page *p)
{
	struct gp_curve list[GP_DIRECTIONS * GP_PRIVACY_FIGURES];
	char title[GP_DIRECTIONS * GP_PRIVACY_FIGURES][64];
	bool any = false;
	for (int i = 0; i < COUNT(list); i++) {
		const int d = i / GP_PRIVACY_FIGURES, figure = i % GP_PRIVACY_FIGURES;
		snprintf(title[i], sizeof title[0], "Distance correlation of %s and %s",
			 figure == GP_PRIVACY_LABELS ? "labels" : "inputs", gp_direction_info[d].name);
		list[i] = (struct gp_curve){
			title[i], "distance correlation", GP_UNIT_NONE, true, GP_CURVE_PRIVACY + d, figure, true, -1};
	}
	for (int i = 0; i < p->runs; i++)
		any |= p->run[i].attacks > 0;
	const bool curves = any_known(p, list, COUNT(list));
	if (!any && !curves)
		return;
	gp_html_put(p->h,
		    "<h2 id=\"privacy\">What the cut gives away</h2>\n<p class=\"about\">Distance "
		    "correlation of the batch's inputs, or of its labels, and what crosses the link, behind the "
		    "codec: 0 where they are independent, 1 where one tells the other. Runs can be compared where "
		    "as many samples were measured. An attack trains a decoder that restores inputs from what "
		    "crosses: the higher its PSNR, the more is given away. Neither a low number nor an attack that "
		    "fails proves that a cut is safe.</p>\n");
	put_legend(p);
	if (curves)
		draw_curves(p, list, COUNT(list), GP_AGAINST_STEPS, GP_AGAINST_STEPS);
	for (int i = 0; i < p->runs; i++)
		put_attack(p, &p->run[i]);
}

static const struct gp_report_histogram *histogram_of(const struct gp_report_run *r,
						      const struct gp_report_histogram *like)
{
	for (int k = 0; k < r->histograms; k++)
		if (strcmp(r->histogram[k].what, like->what) == 0 && strcmp(r->histogram[k].of, like->of) == 0)
			return &r->histogram[k];
	return NULL;
}

/* The same values of all runs beside each other, where this run is the first that has them. */
static void draw_histograms(struct page *p, int first, const struct gp_report_histogram *like)
{
	for (int i = 0; i < first; i++)
		if (histogram_of(&p->run[i], like))
			return;
	for (int i = first; i < p->runs; i++) {
		const struct gp_report_histogram *g = histogram_of(&p->run[i], like);
		if (g)
			gp_chart_draw_histogram(p->h, g, i, p->runs > 1 ? p->run[i].name : NULL);
	}
}

static void put_histograms(struct page *p)
{
	bool any = false;
	for (int i = 0; i < p->runs; i++)
		any |= p->run[i].histograms > 0;
	if (!any)
		return;
	gp_html_put(p->h, "<h2 id=\"values\">Values</h2>\n<p class=\"about\">Histograms of samples of values, in "
			  "float32 and before any "
			  "codec on this side, behind the codec of what arrives: the newest step of which the log has "
			  "them, filled, and the "
			  "first one, as an outline.</p>\n");
	put_legend(p);
	gp_html_put(p->h, "<div class=\"charts\">\n");
	for (int i = 0; i < p->runs; i++)
		for (int k = 0; k < p->run[i].histograms; k++)
			draw_histograms(p, i, &p->run[i].histogram[k]);
	gp_html_put(p->h, "</div>\n");
}

/* --- the page ---------------------------------------------------------------------------------------------------- */

struct section {
	const char *id, *name;
	void (*put)(struct page *p);
};

static const struct section sections[] = {
	{"runs", "Runs", put_runs},           {"learning", "Loss and accuracy", put_learning},
	{"time", "Time", put_time},           {"step", "One step", put_gantt},
	{"link", "Link", put_link},           {"bytes", "Bytes", put_bytes},
	{"codec", "Codec", put_codec_error},  {"privacy", "Privacy", put_privacy},
	{"values", "Values", put_histograms},
};

/* Which sections the page has shows when they have been written. */
static void put_body(struct page *p, struct gp_html *nav)
{
	for (int i = 0; i < COUNT(sections); i++) {
		const size_t before = p->h->length;
		sections[i].put(p);
		if (p->h->length > before)
			gp_html_put(nav, "<li><a href=\"#%s\">%s</a></li>", sections[i].id, sections[i].name);
	}
}

/* To the minute, where it is written as logs write it. */
static void put_date(struct gp_html *h, const char *iso)
{
	char text[24];
	if (strlen(iso) < 16 || iso[10] != 'T') {
		gp_html_text(h, iso);
		return;
	}
	snprintf(text, sizeof text, "%.10s %.5s UTC", iso, iso + 11);
	gp_html_text(h, text);
}

static void put_header(struct page *p)
{
	const struct gp_report_run *r = &p->run[0];
	struct gp_html *h = p->h;
	gp_html_put(h, "<header>\n<h1>");
	if (p->runs > 1)
		gp_html_put(h, "%d runs beside each other", p->runs);
	else
		gp_html_text(h, r->head.model[0] ? r->head.model : r->name);
	gp_html_put(h, "</h1>\n<p>gpsplit report");
	if (p->runs == 1 && r->head.data[0]) {
		gp_html_put(h, ": ");
		gp_html_text(h, r->head.data);
	}
	if (p->runs == 1 && r->head.begun[0]) {
		gp_html_put(h, ", begun ");
		put_date(h, r->head.begun);
	}
	gp_html_put(h, "</p>\n");
}

static void put_all(struct page *p, struct gp_html *body, struct gp_html *nav)
{
	struct gp_html *h = p->h;
	put_head(p);
	put_header(p);
	p->h = body;
	put_notices(p);
	if (p->runs == 1)
		gp_report_put_cards(body, p->run);
	put_body(p, nav);
	p->h = h;
	gp_html_put(h, "<nav aria-label=\"sections\"><ul>");
	gp_html_append(h, nav);
	gp_html_put(h, "</ul></nav>\n</header>\n<main>\n");
	gp_html_append(h, body);
	gp_html_put(h, "</main>\n<footer>Made by gpclient report " GP_VERSION
		       ". Move the pointer over a chart, or focus it and use the "
		       "arrow keys, for its numbers.</footer>\n<script>");
	gp_html_put_all(h, gp_report_script);
	gp_html_put(h, "</script>\n</body>\n</html>\n");
}

enum gp_status gp_report_page(struct gp_html *h, const struct gp_report_run *run, int runs, struct gp_err *err)
{
	struct page p = {.h = h, .run = run, .runs = runs};
	struct gp_html body = {0}, nav = {0};
	gp_require(runs > 0 && runs <= GP_REPORT_RUNS_MAX);
	GP_TRY(gp_curves_new(&p.curves, err));
	put_all(&p, &body, &nav);
	gp_html_deinit(&body);
	gp_html_deinit(&nav);
	gp_free(p.curves);
	return gp_html_check(h, err);
}
