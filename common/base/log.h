/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines on stderr: "2026-01-02T03:04:05.678Z info session: text".
 * Levels per area, set by --log all=info,codec=debug: info per session, debug
 * per step, trace per frame. Library code logs at debug or below; only whoever
 * gives up logs higher.
 *
 * Threads: any. Test: tests/unit/test_log.c
 */
#ifndef GP_LOG_H
#define GP_LOG_H

#include "common/base/status.h"

enum gp_log_level { GP_LOG_ERROR, GP_LOG_WARN, GP_LOG_INFO, GP_LOG_DEBUG, GP_LOG_TRACE };

/* Areas, used by gp_log_configure and in the line. */
#define GP_LOG_AREAS(X) X(main) X(net) X(session) X(sched) X(codec) X(device) X(data) X(model)

enum gp_log_area {
#define X(name) GP_LOG_AREA_##name,
	GP_LOG_AREAS(X)
#undef X
		GP_LOG_AREA_COUNT
};

/* "all=info,net=trace"; levels error|warn|info|debug|trace. Call before threads start. */
enum gp_status gp_log_configure(const char *spec, struct gp_err *err);
bool gp_log_enabled(enum gp_log_area area, enum gp_log_level level);
void gp_log_write(enum gp_log_area area, enum gp_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* gp_log(session, GP_LOG_INFO, "client %s joined", name); arguments are not evaluated when off. */
#define gp_log(area, level, ...)                                                                                       \
	do {                                                                                                           \
		if (gp_log_enabled(GP_LOG_AREA_##area, (level)))                                                       \
			gp_log_write(GP_LOG_AREA_##area, (level), __VA_ARGS__);                                        \
	} while (0)

#endif
