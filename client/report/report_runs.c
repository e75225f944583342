/* SPDX-License-Identifier: Apache-2.0
 *
 * See report_runs.h. Tests: tests/unit/test_report.c, tests/e2e/report.sh
 */
#include "client/report/report_runs.h"

#include <math.h>
#include <string.h>

#include "client/report/report_axis.h"
#include "client/report/report_chart.h"
#include "common/wire/direction.h"

void gp_report_put_name(struct gp_html *h, const struct gp_report_run *run, int runs, int n)
{
	if (runs > 1)
		gp_chart_swatch(h, n);
	gp_html_put(h, " ");
	gp_html_long_text(h, run[n].name);
}

static void put_text_of_unit(struct gp_html *h, enum gp_unit unit, double value)
{
	char text[GP_AXIS_TEXT];
	gp_html_put_all(h, gp_unit_text(unit, value, text));
}

static void put_score(struct gp_html *h, const struct gp_report_run *r)
{
	if (isfinite(r->val_acc))
		gp_html_put(h, "%.2f %%", 100 * r->val_acc);
	else if (isfinite(r->val_pearson))
		gp_html_put(h, "r = %.4f", r->val_pearson);
	else if (isfinite(r->val_perplexity))
		gp_html_put(h, "perplexity %.4g", r->val_perplexity);
	else
		gp_html_put(h, "-");
}

/* The median, where the log has its end. */
static void put_time_per_batch(struct gp_html *h, const struct gp_report_run *r)
{
	put_text_of_unit(h, GP_UNIT_SECONDS,
			 isfinite(r->median_s) ? r->median_s : gp_series_mean_of_all(&r->step, GP_STEP_SECONDS));
	if (!isfinite(r->median_s))
		gp_html_put(h, " (mean)");
}

static void put_bound(struct gp_html *h, const struct gp_report_run *r)
{
	double sum = 0, most = 0;
	int largest = -1;
	for (int i = 0; i < GP_BOUND_COUNT; i++) {
		const double part = gp_series_mean_of_all(&r->step, GP_STEP_BOUND + i);
		if (!(part > 0))
			continue;
		sum += part;
		largest = part > most ? i : largest;
		most = fmax(most, part);
	}
	if (largest < 0 || !isfinite(sum))
		gp_html_put(h, "-");
	else
		gp_html_put(h, "%s %.0f %%", gp_bound_name((enum gp_bound)largest), 100 * most / sum);
}

/* A log of an attack, for one. */
static bool has_training(const struct gp_report_run *r)
{
	return r->processes > 0 || r->step.count > 0;
}

static void put_state(struct gp_html *h, const struct gp_report_run *r)
{
	static const char *const text[] = {"no end: killed, or still under way", "done", "stopped by a signal",
					   "failed: "};
	gp_html_put(h, "%s", text[r->state]);
	if (r->state == GP_RUN_FAILED)
		gp_html_text(h, r->message);
	if (r->processes > 1)
		gp_html_put(h, " (%d processes)", r->processes);
}

bool gp_report_same_codecs(const struct gp_report_head *head)
{
	for (int d = 1; d < GP_DIRECTIONS; d++)
		if (strcmp(head->codec[d], head->codec[0]) != 0)
			return false;
	return true;
}

static void put_codec(struct gp_html *h, const struct gp_report_run *r)
{
	if (r->head.local) {
		gp_html_put(h, "%s", r->processes ? "local run" : "-");
	} else if (gp_report_same_codecs(&r->head)) {
		gp_html_long_text(h, r->head.codec[0]);
	} else {
		for (int d = 0; d < GP_DIRECTIONS; d++) {
			gp_html_put(h, "%s%s ", d ? "<br/>" : "", gp_direction_info[d].name);
			gp_html_long_text(h, r->head.codec[d]);
		}
	}
}

/* How the run saved memory: maps that are kept encoded change its gradients. */
static void put_memory(struct gp_html *h, const struct gp_report_head *head)
{
	if (head->compress[0]) {
		gp_html_put(h, "<br/>--compress ");
		gp_html_long_text(h, head->compress);
	}
	if (head->recompute)
		gp_html_put(h, "<br/>--recompute");
}

static void put_integer(struct gp_html *h, double n)
{
	if (isfinite(n))
		gp_html_put(h, "%.0f", n);
	else
		gp_html_put(h, "-");
}

static bool is_insertion(const char *text)
{
	return *text && strcmp(text, "none") != 0;
}

static void put_cut_cell(struct gp_html *h, const struct gp_report_head *head)
{
	gp_html_put(h, "<td class=\"cut\">");
	gp_html_long_text(h, *head->cut ? head->cut : "-");
	if (is_insertion(head->insert_up)) {
		gp_html_put(h, "<br/>up ");
		gp_html_long_text(h, head->insert_up);
	}
	if (is_insertion(head->insert_down)) {
		gp_html_put(h, "<br/>down ");
		gp_html_long_text(h, head->insert_down);
	}
	gp_html_put(h, "</td>");
}

static void put_bytes_cell(struct gp_html *h, const struct gp_report_run *r, double bytes)
{
	gp_html_put(h, "<td class=\"n\">");
	put_text_of_unit(h, GP_UNIT_BYTES, r->head.local ? NAN : bytes);
	gp_html_put(h, "</td>");
}

/* What crosses in the direction that gives away most. */
static void put_correlation_cell(struct gp_html *h, const struct gp_report_run *r)
{
	double most = NAN;
	int where = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const struct gp_series *s = &r->privacy[d];
		const double mean = s->figures > 0 ? gp_series_mean_of_all(s, GP_PRIVACY_INPUTS) : NAN;
		if (isfinite(mean) && !(mean <= most)) {
			most = mean;
			where = d;
		}
	}
	if (isfinite(most))
		gp_html_put(h, "<td class=\"n\">%.3f %s</td>", most, gp_direction_info[where].name);
	else
		gp_html_put(h, "<td class=\"n\">-</td>");
}

static void put_result_cells(struct gp_html *h, const struct gp_report_run *r)
{
	gp_html_put(h, "<td class=\"n\">");
	put_score(h, r);
	gp_html_put(h, "</td><td class=\"n\">");
	put_time_per_batch(h, r);
	gp_html_put(h, "</td><td class=\"n\">");
	put_bound(h, r);
	gp_html_put(h, "</td>");
	put_bytes_cell(h, r, r->up_bytes);
	put_bytes_cell(h, r, r->down_bytes);
	put_correlation_cell(h, r);
	gp_html_put(h, "<td class=\"n\">%llu of ", (unsigned long long)r->steps);
	put_integer(h, r->processes ? r->head.total_steps : NAN);
	gp_html_put(h, "</td>");
}

static void put_settings_cells(struct gp_html *h, const struct gp_report_run *r)
{
	gp_html_put(h, "<td class=\"long\">");
	put_codec(h, r);
	put_memory(h, &r->head);
	gp_html_put(h, "</td>");
	put_cut_cell(h, &r->head);
	gp_html_put(h, "<td class=\"n\">");
	put_integer(h, r->processes ? r->head.batch : NAN);
	gp_html_put(h, " / ");
	put_integer(h, r->processes ? r->head.chunks : NAN);
	gp_html_put(h, "</td>");
	gp_html_long_cell(h, r->head.model);
	gp_html_long_cell(h, r->head.data);
	gp_html_put(h, "<td class=\"long\">");
	put_state(h, r);
	gp_html_put(h, "</td>");
}

#define COLUMNS 14

void gp_report_put_runs(struct gp_html *h, const struct gp_report_run *run, int runs)
{
	static const char *const column[COLUMNS] = {
		"run",   "accuracy", "time per batch", "bound by", "sent", "received", "correlation", "steps",
		"codec", "cut",      "batch / chunks", "model",    "data", "ended"};
	gp_html_put(
		h, "<h2 id=\"runs\">Runs</h2><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table of "
		   "runs, scrolls sideways\"><table class=\"all\"><thead><tr>");
	for (int i = 0; i < COLUMNS; i++)
		gp_html_put(h, "<th scope=\"col\">%s</th>", column[i]);
	gp_html_put(h, "</tr></thead><tbody>");
	for (int i = 0; i < runs; i++) {
		gp_html_put(h, "<tr><th scope=\"row\">");
		gp_report_put_name(h, run, runs, i);
		gp_html_put(h, "</th>");
		if (has_training(&run[i])) {
			put_result_cells(h, &run[i]);
			put_settings_cells(h, &run[i]);
		} else {
			gp_html_put(h, "<td colspan=\"%d\">no training in this log%s</td>", COLUMNS - 1,
				    run[i].attacks > 0 ? "; its attack is under <a href=\"#privacy\">Privacy</a>" : "");
		}
		gp_html_put(h, "</tr>\n");
	}
	gp_html_put(
		h,
		"</tbody></table></div>\n<p class=\"note\">Accuracy is of the last validation. Time per batch is the "
		"median of the newest process. Sent and received: by the steps, on the wire, without "
		"evaluations. Correlation: the distance correlation of the inputs and what crosses, the mean over the "
		"run (--privacy-every), in the direction in which it is largest.</p>\n");
}

double gp_report_sum_of_figures(const struct gp_report_run *r, int first, int count)
{
	double sum = 0;
	for (int i = 0; i < count; i++) {
		const double mean = gp_series_mean_of_all(&r->step, first + i);
		sum += isfinite(mean) ? mean : 0;
	}
	return sum;
}

static void begin_card(struct gp_html *h, const char *name)
{
	gp_html_put(h, "<div><dt>%s</dt><dd>", name);
}

/* What one run has come to, at a glance. */
void gp_report_put_cards(struct gp_html *h, const struct gp_report_run *r)
{
	if (r->step.count == 0)
		return;
	const double payload = gp_report_sum_of_figures(r, GP_STEP_PAYLOAD, GP_DIRECTIONS),
		     tensors = gp_report_sum_of_figures(r, GP_STEP_UNCOMPRESSED, GP_DIRECTIONS);
	gp_html_put(h, "<dl class=\"cards\">");
	begin_card(h, "validation");
	put_score(h, r);
	gp_html_put(h, "</dd></div>");
	begin_card(h, "steps");
	gp_html_put(h, "%llu</dd></div>", (unsigned long long)r->steps);
	begin_card(h, "time per batch");
	put_time_per_batch(h, r);
	gp_html_put(h, "</dd></div>");
	begin_card(h, "bound by");
	put_bound(h, r);
	gp_html_put(h, "</dd></div>");
	if (payload > 0) {
		begin_card(h, "payload per batch");
		put_text_of_unit(h, GP_UNIT_BYTES, payload);
		gp_html_put(h, "</dd></div>");
		begin_card(h, "compressed");
		gp_html_put(h, "%.2f times</dd></div>", tensors / payload);
	}
	gp_html_put(h, "</dl>\n");
}
