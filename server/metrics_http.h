/* SPDX-License-Identifier: Apache-2.0
 *
 * --metrics: figures, health and the live page over HTTP.
 *
 *     /          the live page, which reads /sessions
 *     /metrics   Prometheus' text
 *     /sessions  JSON
 *     /healthz   200 while the loop thread lives, else 503
 *     /readyz    200 while the server takes sessions, else 503
 *
 * Who may read them is settled in common/http/metrics_site.h: /metrics and /sessions have names and figures of clients, and want
 * what these have to show; the page itself and the two words about health have nothing of anybody in them.
 *
 * Threads: loop thread; what answers is a thread of its own, which has snapshots (metrics_snapshot.h), the contents of
 * files, and nothing else. Test: tests/e2e/metrics.sh, tests/unit/test_server_metrics.c
 */
#ifndef GP_METRICS_HTTP_H
#define GP_METRICS_HTTP_H

#include "common/http/metrics_site.h"

struct gp_metrics;
struct gp_metrics_http;
struct gp_server_settings;

/* Whether set->metrics may be served: GP_USAGE, as gp_server_credentials_check of --listen. */
enum gp_status gp_metrics_http_check(const struct gp_server_settings *set, struct gp_err *err);
/* `m` outlives it, as do the settings. */
enum gp_status gp_metrics_http_start(struct gp_metrics *m, const struct gp_server_settings *set,
				     struct gp_metrics_http **out, struct gp_err *err);
/* Reads certificates and tokens again; on failure the old ones stay. NULL is fine. */
enum gp_status gp_metrics_http_reload(struct gp_metrics_http *h, struct gp_err *err);
/* "http://127.0.0.1:9440/"; returns `out`. */
const char *gp_metrics_http_url(const struct gp_metrics_http *h, char out[GP_METRICS_SITE_URL]);
void gp_metrics_http_stop(struct gp_metrics_http *h); /* NULL is fine */

#endif
