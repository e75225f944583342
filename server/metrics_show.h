/* SPDX-License-Identifier: Apache-2.0
 *
 * A snapshot of the server's figures (metrics_snapshot.h) as others read it: Prometheus' text, and JSON for the live page and
 * for scripts. server/README.md says what each figure means.
 *
 * Threads: the reader's of the snapshot. Test: tests/unit/test_metrics_show.c, tests/e2e/metrics.sh
 */
#ifndef GP_METRICS_SHOW_H
#define GP_METRICS_SHOW_H

#include <stddef.h>

#include "server/metrics_snapshot.h"

struct gp_metric_text;

/* Appends all families. What became of it: gp_metric_text_check. */
void gp_metrics_show_text(const struct gp_metrics_snapshot *s, struct gp_metric_text *t);
/* One JSON object, to be freed with gp_free; NULL: out of memory. `now_ns`: gp_now_ns. */
char *gp_metrics_show_json(const struct gp_metrics_snapshot *s, uint64_t now_ns, size_t *length);

#endif
