/* SPDX-License-Identifier: Apache-2.0
 *
 * One row of `gpclient bench` as a process of its own: this program again, as `gpclient train`, so that a row that
 * crashes ends nothing but itself. Where the row's link is simulated, the relay of `gpclient link` runs here meanwhile
 * (client/link/link_relay.h).
 *
 * Threads: the main thread; blocks until the row is over. Test: tests/e2e/bench.sh
 */
#ifndef GP_BENCH_CHILD_H
#define GP_BENCH_CHILD_H

#include <signal.h>

#include "client/bench/bench_rows.h"

struct gp_bench_child {
	const char *server; /* HOST:PORT */
	const struct gp_bench_link *link;
	double connect_timeout_s;
	const char **argv;                 /* "train" and its options, but for --server; the list ends with NULL */
	const char *said;                  /* a file that gets all it prints */
	const volatile sig_atomic_t *stop; /* a signal has come: the row is ended, too */
	/* Called a few times a second while the row runs, with its newest warning (or ""). NULL: it is not wanted. */
	void (*wait)(void *arg, double seconds, const char *warning);
	void *arg;
};

#define GP_BENCH_ARGS 160 /* words of a command line, at most */

/* Runs it to its end. GP_OK: it ended with status 0. Else the class of its exit status, and as text its last line on
 * standard error, or the signal that ended it; GP_CANCELED where `stop` was set. */
enum gp_status gp_bench_child_run(const struct gp_bench_child *c, struct gp_err *err);

#endif
