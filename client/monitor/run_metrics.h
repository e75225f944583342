/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of a training under way (run_monitor.h) as Prometheus reads them. client/README.md says what each of them means.
 *
 * Threads: any. Test: tests/unit/test_run_monitor.c
 */
#ifndef GP_RUN_METRICS_H
#define GP_RUN_METRICS_H

#include "client/monitor/run_monitor.h"

struct gp_metric_text;

/* Appends all families. What became of it: gp_metric_text_check. */
void gp_run_metrics_write(const struct gp_run_figures *f, struct gp_metric_text *t);

#endif
