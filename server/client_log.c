/* SPDX-License-Identifier: Apache-2.0
 *
 * See client_log.h. Test: tests/unit/test_visitors.c, tests/e2e/limits.sh
 */
#include "server/client_log.h"

#include <stdarg.h>
#include <string.h>

#include "common/base/clock.h"

#define LINE_BYTES 1024
#define SUM_UP_MS  60000

static void on_left_out(void *arg, const char *name, uint64_t lines)
{
	(void)arg;
	gp_log(session, GP_LOG_INFO, "%llu more lines about %s were left out (--client-lines)",
	       (unsigned long long)lines, name);
}

enum gp_status gp_client_log_init(struct gp_client_log *log, uv_loop_t *loop, const struct gp_visitor_limits *limits,
				  struct gp_err *err)
{
	memset(log, 0, sizeof *log);
	log->loop = loop;
	return gp_visitors_new(limits, on_left_out, log, &log->visitors, err);
}

void gp_client_log_deinit(struct gp_client_log *log)
{
	if (log->visitors)
		gp_visitors_sum_up(log->visitors);
	if (log->has_timer)
		uv_close((uv_handle_t *)&log->timer, NULL);
	gp_visitors_free(log->visitors);
	log->visitors = NULL;
	log->has_timer = false;
}

static void on_minute_over(uv_timer_t *timer)
{
	struct gp_client_log *log = timer->data;
	gp_visitors_sum_up(log->visitors);
}

static void sum_up_later(struct gp_client_log *log)
{
	if (!log->has_timer)
		uv_timer_init(log->loop, &log->timer);
	log->has_timer = true;
	log->timer.data = log;
	if (!uv_is_active((const uv_handle_t *)&log->timer))
		uv_timer_start(&log->timer, on_minute_over, SUM_UP_MS, 0);
}

void gp_client_tag_address(struct gp_client_tag *tag, const char *peer)
{
	const char *port = strrchr(peer, ':');
	tag->key = gp_visitor_of_address(peer);
	snprintf(tag->name, sizeof tag->name, "%.*s", port ? (int)(port - peer) : (int)strlen(peer), peer);
}

void gp_client_tag_name(struct gp_client_tag *tag, const char *who)
{
	tag->key = gp_visitor_of_name(who);
	snprintf(tag->name, sizeof tag->name, "%s", who);
}

static bool may_tell(struct gp_client_log *log, const struct gp_client_tag *about, enum gp_log_level level)
{
	if (!gp_log_enabled(GP_LOG_AREA_session, level))
		return false;
	if ((level != GP_LOG_INFO && level != GP_LOG_WARN) ||
	    gp_visitors_may_tell(log->visitors, about->key, about->name, gp_now_ns()))
		return true;
	sum_up_later(log);
	return false;
}

void gp_client_log_write(struct gp_client_log *log, const struct gp_client_tag *about, enum gp_log_level level,
			 const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list ap;
	if (!may_tell(log, about, level))
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	gp_log_write(GP_LOG_AREA_session, level, "%s", line);
}

void gp_client_log_event(struct gp_client_log *log, const struct gp_client_tag *about, enum gp_log_level level,
			 const struct gp_log_event *event, const char *text)
{
	if (may_tell(log, about, level))
		gp_log_write_event(GP_LOG_AREA_session, level, event, "%s", text);
}
