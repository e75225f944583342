/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the link to a server: a measuring session of PROTOCOL.md section 5.8.
 * Not here: the simulated link (client/link), and how figures are shown
 * (link_figures.h).
 *
 * In this order: round trips over the idle link; each way as full as it goes, and
 * round trips meanwhile; single frames of each size. Each part has its share of the
 * time and of the bytes that the server allows, and what does not fit is left out.
 *
 * Threads: the caller's; runs a loop of its own. Test: tests/unit/test_server_measure.c, tests/e2e/measure.sh
 */
#ifndef GP_LINK_MEASURE_H
#define GP_LINK_MEASURE_H

#include "client/measure/link_figures.h"
#include "common/base/status.h"

struct gp_client_security;

struct gp_link_measure_spec {
	const char *server; /* "HOST:PORT"; the figures borrow it */
	const struct gp_client_security *security;
	double connect_timeout_s;
	double seconds; /* to measure for, at most; the server may allow less */
};

/* Connects, measures and hangs up. GP_OK also where the server ended it after the idle round trips: out->cut_short. Otherwise
 * why there are no figures to show, as of gp_client_session_open: the address, the connection, TLS, the token, a server that
 * does not measure or is busy. */
enum gp_status gp_link_measure(const struct gp_link_measure_spec *spec, struct gp_link_figures *out,
			       struct gp_err *err);

#endif
