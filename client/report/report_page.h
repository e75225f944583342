/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of gpclient report: one file, well-formed, that asks no other machine and no other file for anything, and
 * is whole where scripts are off. A section shows what at least one run has, and is left out where none has it.
 *
 * Threads: one at a time. Tests: tests/unit/test_report.c, tests/e2e/report.sh
 */
#ifndef GP_REPORT_PAGE_H
#define GP_REPORT_PAGE_H

#include "client/report/report_html.h"
#include "client/report/report_run.h"

#define GP_REPORT_RUNS_MAX 16

/* `run`: 1 to GP_REPORT_RUNS_MAX of them. Sorts the intervals of their timelines. GP_INVALID: the page would be
 * too long. */
enum gp_status gp_report_page(struct gp_html *h, const struct gp_report_run *run, int runs, struct gp_err *err);

#endif
