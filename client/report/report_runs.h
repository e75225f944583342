/* SPDX-License-Identifier: Apache-2.0
 *
 * What the runs of a report are, and what they have come to: the table that opens a page, a row for each, and the cards of
 * a page about one.
 *
 * Threads: any. Tests: tests/unit/test_report.c, tests/e2e/report.sh
 */
#ifndef GP_REPORT_RUNS_H
#define GP_REPORT_RUNS_H

#include "client/report/report_html.h"
#include "client/report/report_run.h"

void gp_report_put_runs(struct gp_html *h, const struct gp_report_run *run, int runs);
/* Nothing, where the log has no step. */
void gp_report_put_cards(struct gp_html *h, const struct gp_report_run *r);

/* The name of run `n`, with its colour where there are several. */
void gp_report_put_name(struct gp_html *h, const struct gp_report_run *run, int runs, int n);
bool gp_report_same_codecs(const struct gp_report_head *head);
/* The sum of some figures of a mean step, without those that are not known. */
double gp_report_sum_of_figures(const struct gp_report_run *r, int first, int count);

#endif
