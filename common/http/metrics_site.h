/* SPDX-License-Identifier: Apache-2.0
 *
 * --metrics of both programs: an HTTP server (http_server.h) of a few paths, and who may read them. On loopback everybody on
 * this machine may. Any other address has TLS, and paths that are `guarded` need a token of a file, as "Authorization: Bearer
 * TOKEN", a client certificate, or both; an address that guesses tokens is refused for a while. What a path answers is up to
 * the program.
 *
 * Threads: check, start, reload and stop are one caller's; answers run on the site's own thread.
 * Test: tests/unit/test_metrics_site.c, tests/e2e/metrics.sh
 */
#ifndef GP_METRICS_SITE_H
#define GP_METRICS_SITE_H

#include "common/http/http_server.h"

#define GP_METRICS_SITE_URL 320

struct gp_metrics_route {
	const char *path; /* "/metrics" */
	bool guarded;     /* there is something of somebody in it */
	void (*answer)(void *arg, struct gp_http_reply *out);
};

struct gp_metrics_site_settings {
	const char *address; /* "ADDR:PORT"; port 0: a free one */
	/* Files, for addresses that are not loopback; NULL: none. `ca`: of clients' certificates; `tokens`: as of --tokens. */
	const char *cert, *key, *ca, *tokens;
	bool insecure; /* no TLS and nothing to show are wanted */
	/* How messages call the options, and what others could read: "--tls-cert and --tls-key", "--tokens or
	 * --tls-client-ca", "names and figures of clients". */
	const char *tls_options, *proof_options, *what;
	const char *insecure_option; /* NULL: there is none */
	const struct gp_metrics_route *route;
	int routes;
	void *arg; /* of the answers */
};

struct gp_metrics_site;

/* Whether it may be served like this: GP_USAGE. Opens and reads nothing. */
enum gp_status gp_metrics_site_check(const struct gp_metrics_site_settings *set, struct gp_err *err);
/* Whether its address is of loopback, where tokens and certificates are not asked for. */
bool gp_metrics_site_is_open(const struct gp_metrics_site_settings *set);
/* The texts and routes of the settings must outlive it. GP_INVALID: the port is taken, or a file is wrong. */
enum gp_status gp_metrics_site_start(const struct gp_metrics_site_settings *set, struct gp_metrics_site **out,
				     struct gp_err *err);
/* Reads tokens and certificates again. Where tokens cannot be read everything stays as it was; where certificates cannot, those
 * that there are stay, beside the new tokens. */
enum gp_status gp_metrics_site_reload(struct gp_metrics_site *s, struct gp_err *err);
/* "http://127.0.0.1:9440/"; returns `out`. */
const char *gp_metrics_site_url(const struct gp_metrics_site *s, char out[GP_METRICS_SITE_URL]);
void gp_metrics_site_stop(struct gp_metrics_site *s); /* NULL is fine */

#endif
