/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines on stderr: "2026-01-02T03:04:05.678Z info session: text", or, as
 * gp_log_set_format says, objects of JSON, one a line. Levels per area, set by
 * --log all=info,codec=debug: info per session, debug per step, trace per
 * frame. Library code logs at debug or below; only whoever gives up logs
 * higher. Where stderr is a stream of journald's, each line begins with its
 * priority, as journald reads it ("<6>").
 *
 * A line is written by whoever logs it, until gp_log_start: from then on a
 * thread of the log's own writes, so that nobody waits for a slow reader. What
 * does not fit into its queue (log_queue.h) is left out, and one line counts it.
 *
 * Threads: any. Test: tests/unit/test_log.c, tests/e2e/log_format.sh
 */
#ifndef GP_LOG_H
#define GP_LOG_H

#include "common/base/status.h"

enum gp_log_level { GP_LOG_ERROR, GP_LOG_WARN, GP_LOG_INFO, GP_LOG_DEBUG, GP_LOG_TRACE };

/* Areas, used by gp_log_configure and in the line. */
#define GP_LOG_AREAS(X) X(main) X(net) X(session) X(codec) X(data) X(model)

enum gp_log_area {
#define X(name) GP_LOG_AREA_##name,
	GP_LOG_AREAS(X)
#undef X
		GP_LOG_AREA_COUNT
};

enum gp_log_format { GP_LOG_TEXT, GP_LOG_JSON };
#define GP_LOG_FORMATS "text|json"

/* What a program may look for in a line, beside its text: in lines of JSON alone. NULL and 0: not there. */
struct gp_log_event {
	const char *name;   /* stable, as "session_ended" */
	const char *reason; /* stable */
	const char *client, *address;
	uint64_t session, step; /* step: with a session */
};

/* "all=info,net=trace"; levels error|warn|info|debug|trace. Call before threads start. */
enum gp_status gp_log_configure(const char *spec, struct gp_err *err);
/* One of GP_LOG_FORMATS. Finds out whether stderr is journald's, too. Call before threads start. */
enum gp_status gp_log_set_format(const char *format, struct gp_err *err);
/* From here on a thread writes. Where there is none to be had, lines are written as before. Call before other threads
 * start. */
void gp_log_start(void);
/* Waits until all is written, for so long at most, and ends the thread, unless it is stuck in a write. Other threads may go
 * on logging: from then on they write their lines themselves. */
void gp_log_stop(double seconds);
/* Lines that were left out so far. */
uint64_t gp_log_dropped(void);

bool gp_log_enabled(enum gp_log_area area, enum gp_log_level level);
void gp_log_write(enum gp_log_area area, enum gp_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same about something that a program may look for. */
void gp_log_write_event(enum gp_log_area area, enum gp_log_level level, const struct gp_log_event *event,
			const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* A line for whoever has started the program, as it is, without a time; a line of JSON is that of the event. */
void gp_log_announce(const struct gp_log_event *event, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* gp_log(session, GP_LOG_INFO, "client %s joined", name); arguments are not evaluated when off. */
#define gp_log(area, level, ...)                                                                                       \
	do {                                                                                                           \
		if (gp_log_enabled(GP_LOG_AREA_##area, (level)))                                                       \
			gp_log_write(GP_LOG_AREA_##area, (level), __VA_ARGS__);                                        \
	} while (0)

#endif
