/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to clients, for an operator and for whoever has to account for it: a line of the log, whose JSON form has
 * the event's stable name (server/README.md lists them), and a note among the newest GP_EVENTS_KEPT, which the live page
 * shows. Lines are limited by --client-lines as all others about a client; notes are not.
 *
 * Threads: loop thread. Test: tests/unit/test_server_metrics.c, tests/e2e/log_format.sh
 */
#ifndef GP_EVENTS_H
#define GP_EVENTS_H

#include "common/base/log.h"
#include "server/client_log.h"

#define GP_EVENTS_KEPT 64

struct gp_server;
struct gp_server_session;

struct gp_event_note {
	uint64_t number;           /* 1 for the first of all; 0: there is none here */
	int64_t time_ms;           /* of the clock on the wall, since 1970 */
	const char *name, *reason; /* static; reason: NULL without one */
	uint64_t session;
	char client[80], address[64], text[200];
};

struct gp_events {
	uint64_t count;
	struct gp_event_note note[GP_EVENTS_KEPT]; /* a ring: number n is at n % GP_EVENTS_KEPT */
};

/* `e` has name and reason, and may have a session's number and step; the client is that of the tag. */
void gp_server_event(struct gp_server *srv, const struct gp_client_tag *about, enum gp_log_level level,
		     const struct gp_log_event *e, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* The session's: its number, step, client and address are filled in. `reason`: NULL without one. */
void gp_server_session_event(struct gp_server_session *s, enum gp_log_level level, const char *name, const char *reason,
			     const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#endif
