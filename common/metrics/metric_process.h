/* SPDX-License-Identifier: Apache-2.0
 *
 * What Prometheus' own libraries tell of every process, under the names that they use: when it started, memory, processor
 * time.
 *
 * Threads: any. Test: tests/e2e/metrics.sh
 */
#ifndef GP_METRIC_PROCESS_H
#define GP_METRIC_PROCESS_H

#include "common/metrics/metric_text.h"

/* `started_ms`: of the clock on the wall, since 1970. */
void gp_metric_process(struct gp_metric_text *t, int64_t started_ms);

#endif
