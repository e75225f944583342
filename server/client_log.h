/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of the log about clients: each client may fill so many a minute
 * (--client-lines), what it does beyond that is one line that says how many were
 * left out, after a minute or when the server stops. Errors and what --log shows
 * below info are not limited.
 *
 * Threads: loop thread. Test: tests/unit/test_visitors.c, tests/e2e/limits.sh
 */
#ifndef GP_CLIENT_LOG_H
#define GP_CLIENT_LOG_H

#include <uv.h>

#include "common/base/log.h"
#include "common/net/visitors.h"

/* Whom a line is about: a name that was proved, else an address. */
struct gp_client_tag {
	struct gp_visitor_key key;
	char name[64];
};

struct gp_client_log {
	struct gp_visitors *visitors;
	uv_loop_t *loop;
	uv_timer_t timer; /* since something was left out */
	bool has_timer;
};

/* Makes the table of visitors, too. On failure nothing is left. */
enum gp_status gp_client_log_init(struct gp_client_log *log, uv_loop_t *loop, const struct gp_visitor_limits *limits,
				  struct gp_err *err);
/* Says what was left out. The loop has to run once more. Fine on zeros. */
void gp_client_log_deinit(struct gp_client_log *log);

/* `peer` is an address with a port, as connections have it. */
void gp_client_tag_address(struct gp_client_tag *tag, const char *peer);
void gp_client_tag_name(struct gp_client_tag *tag, const char *who);
/* A line of the area "session" about this client. */
void gp_client_log_write(struct gp_client_log *log, const struct gp_client_tag *about, enum gp_log_level level,
			 const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The same with what a program may look for; `text` is whole. */
void gp_client_log_event(struct gp_client_log *log, const struct gp_client_tag *about, enum gp_log_level level,
			 const struct gp_log_event *event, const char *text);

#endif
