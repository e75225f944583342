/* SPDX-License-Identifier: Apache-2.0
 *
 * A Gantt chart of one step: what both ends and the link did when, a lane for each of them, a bar for each chunk.
 *
 * Threads: one at a time. Test: tests/unit/test_report.c
 */
#ifndef GP_REPORT_GANTT_H
#define GP_REPORT_GANTT_H

#include "client/report/report_html.h"
#include "client/report/report_run.h"

/* Nothing where no interval is known. */
void gp_gantt_draw(struct gp_html *h, const struct gp_report_run *r);

#endif
