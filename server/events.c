/* SPDX-License-Identifier: Apache-2.0
 *
 * See events.h. Test: tests/unit/test_server_metrics.c
 */
#include "server/events.h"

#include <stdarg.h>
#include <time.h>

#include "server/session.h"

static int64_t wall_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void keep_note(struct gp_events *events, const struct gp_log_event *e, const char *text)
{
	const uint64_t number = ++events->count;
	struct gp_event_note *n = &events->note[number % GP_EVENTS_KEPT];
	*n = (struct gp_event_note){
		.number = number, .time_ms = wall_ms(), .name = e->name, .reason = e->reason, .session = e->session};
	snprintf(n->client, sizeof n->client, "%s", e->client ? e->client : "");
	snprintf(n->address, sizeof n->address, "%s", e->address ? e->address : "");
	snprintf(n->text, sizeof n->text, "%.*s", (int)sizeof n->text - 1, text);
}

static void tell(struct gp_server *srv, const struct gp_client_tag *about, enum gp_log_level level,
		 const struct gp_log_event *e, const char *fmt, va_list ap) __attribute__((format(printf, 5, 0)));

static void tell(struct gp_server *srv, const struct gp_client_tag *about, enum gp_log_level level,
		 const struct gp_log_event *e, const char *fmt, va_list ap)
{
	char text[1024];
	vsnprintf(text, sizeof text, fmt, ap);
	keep_note(&srv->events, e, text);
	gp_client_log_event(&srv->log, about, level, e, text);
}

void gp_server_event(struct gp_server *srv, const struct gp_client_tag *about, enum gp_log_level level,
		     const struct gp_log_event *e, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	tell(srv, about, level, e, fmt, ap);
	va_end(ap);
}

void gp_server_session_event(struct gp_server_session *s, enum gp_log_level level, const char *name, const char *reason,
			     const char *fmt, ...)
{
	va_list ap;
	const struct gp_log_event e = {.name = name,
				       .reason = reason,
				       .client = s->who,
				       .address = s->address,
				       .session = s->id,
				       .step = s->body ? gp_body_steps(s->body) : 0};
	va_start(ap, fmt);
	tell(s->srv, &s->client, level, &e, fmt, ap);
	va_end(ap);
}
