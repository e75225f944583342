/* SPDX-License-Identifier: Apache-2.0
 *
 * See watch.h. Test: tests/unit/test_server_time.c
 */
#include "server/watch.h"

#include "server/handover.h"
#include "server/rebalance.h"
#include "server/session.h"

/* Nobody waits for a client whose body computes, but what takes ten times as long as it was let in for holds a device, or a
 * thread of codecs, from others. */
static void end_overrun(struct gp_server_session *s, const struct gp_body_overrun *o)
{
	char text[192];
	snprintf(text, sizeof text,
		 "%s has run for %.1f s, over ten times the estimate and over --task-time (%g s); use more --chunks",
		 o->what, o->seconds, s->srv->set.task_time_s);
	if (s->link)
		gp_server_link_stop(s->link, GP_TIMEOUT, text);
	if (s->ending)
		return;
	s->end_reason = GP_TIMEOUT;
	gp_server_session_event(s, GP_LOG_WARN, "session_ended", gp_status_name(GP_TIMEOUT),
				"session %llu, parked, ends: %s", (unsigned long long)s->id, text);
	gp_server_session_end(s);
}

/* While the server itself stood still, nothing was measured. */
static void note_stall(struct gp_server *srv, uint64_t now)
{
	const uint64_t late = now - srv->watch.tick_ns;
	srv->watch.tick_ns = now;
	if (late >= 2 * GP_SERVER_TICK_MS * 1000000ull)
		srv->watch.stalled_ns = now;
}

static void look(uv_timer_t *timer)
{
	struct gp_server *srv = timer->data;
	const uint64_t now = gp_now_ns();
	note_stall(srv, now);
	gp_server_handover_look(srv);
	gp_server_rebalance_look(srv);
	for (struct gp_server_session *s = srv->sessions, *next; s; s = next) {
		next = s->next;
		if (!s->body || s->ending)
			continue;
		const struct gp_body_overrun o = gp_body_overrun(s->body, srv->watch.stalled_ns, now);
		if (o.seconds > 0.0)
			end_overrun(s, &o);
	}
}

void gp_server_watch_start(struct gp_server *srv)
{
	srv->watch.tick_ns = gp_now_ns();
	uv_timer_init(srv->loop, &srv->watch.timer);
	srv->watch.timer.data = srv;
	srv->watch.runs = true;
	uv_timer_start(&srv->watch.timer, look, GP_SERVER_TICK_MS, GP_SERVER_TICK_MS);
	uv_unref((uv_handle_t *)&srv->watch.timer); /* a server that has ended otherwise has ended */
}

void gp_server_watch_stop(struct gp_server *srv)
{
	if (srv->watch.runs)
		uv_close((uv_handle_t *)&srv->watch.timer, NULL);
	srv->watch.runs = false;
}
