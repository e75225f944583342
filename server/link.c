/* SPDX-License-Identifier: Apache-2.0
 *
 * One client's session on the server, as long as its connection: deadlines,
 * which message is for whom, the ways out and the order in which things are torn
 * down. PROTOCOL.md section 5. Who comes and who comes back is in
 * link_hello.c, what OPEN asks for in link_open.c, what outlives the
 * connection in session.c. Loop thread. Test: tests/unit/test_server.c
 */
#include "server/link.h"

#include "common/base/log.h"

#define DEADLINE_TICK_MS        250
#define OPEN_SPILL_BYTES        (16u << 20) /* memory of one unpacked OPEN: 4096 nodes fit many times */
#define BUSY_RETRY_MS           1000
/* Of those whose HELLO was accepted: a client that comes back has two for a moment. */
#define CONNECTIONS_PER_SESSION 2

static void enter_strangers(struct gp_server_session *s)
{
	struct gp_server *srv = s->srv;
	s->stranger = true;
	s->older = srv->newest_stranger;
	if (s->older)
		s->older->newer = s;
	else
		srv->oldest_stranger = s;
	srv->newest_stranger = s;
	srv->stranger_count++;
}

void gp_server_session_meet(struct gp_server_session *s)
{
	struct gp_server *srv = s->srv;
	if (!s->stranger)
		return;
	s->stranger = false;
	if (s->newer)
		s->newer->older = s->older;
	else
		srv->newest_stranger = s->older;
	if (s->older)
		s->older->newer = s->newer;
	else
		srv->oldest_stranger = s->newer;
	srv->stranger_count--;
}

/* With so many of them, none is waited for until it has read why it was turned away. */
static bool strangers_crowd(const struct gp_server *srv)
{
	return 2 * srv->stranger_count > srv->set.max_unopened;
}

static void reap(struct gp_server_session *s)
{
	if (!s->channel_closed || !s->timer_closed)
		return;
	struct gp_server *srv = s->srv;
	gp_server_session_meet(s);
	gp_control_arena_deinit(&s->arena);
	if (s->prev)
		s->prev->next = s->next;
	else
		srv->sessions = s->next;
	if (s->next)
		s->next->prev = s->prev;
	gp_free(s);
	gp_server_session_gone(srv);
}

static void channel_closed(void *arg)
{
	struct gp_server_session *s = arg;
	s->channel_closed = true;
	if (s->run)
		gp_server_run_release(s->run);
	s->run = NULL;
	reap(s);
}

static void timer_closed(uv_handle_t *h)
{
	struct gp_server_session *s = h->data;
	s->timer_closed = true;
	reap(s);
}

static void log_end(const struct gp_server_session *s, enum gp_status status, const char *text)
{
	if (!s->run) { /* of a stranger, or of a client that there was no room for */
		if (gp_server_tells_stranger(s->srv))
			gp_log(session, GP_LOG_WARN, "connection %llu of %s ended: %s", (unsigned long long)s->id,
			       s->peer, text);
		return;
	}
	double seconds = (double)(gp_now_ns() - s->began_ns) * 1e-9;
	const struct gp_server_run *r = s->run;
	unsigned long long steps = r->body ? gp_body_steps(r->body) : 0;
	const struct gp_kind_account *made = gp_channel_account(s->ch)->sent.kind;
	double computed = (double)(made[GP_FRAME_ACT_DOWN].stage_ns[GP_STAGE_COMPUTE] +
				   made[GP_FRAME_GRAD_DOWN].stage_ns[GP_STAGE_COMPUTE]) *
			  1e-9;
	enum gp_log_level level = status == GP_OK ? GP_LOG_INFO : GP_LOG_WARN;
	gp_log(session, level,
	       "session %llu of %s ended after %.1f s (%.1f s computing) and %llu steps: %s (%.0f MiB, process peak "
	       "%.0f MiB)",
	       (unsigned long long)s->id, s->peer, seconds, computed, steps, text, (double)r->memory_bytes / 1048576,
	       (double)gp_mem_peak_rss_bytes() / 1048576);
}

/* The connection ends, with a word to the client unless it has gone or everything is well. */
static void close_connection(struct gp_server_session *s, enum gp_status status, const char *text)
{
	struct gp_err ignored;
	const bool tell = !s->ended && status != GP_OK;
	s->state = STATE_CLOSING;
	if (s->claimed)
		gp_server_run_unclaim(s->claimed);
	s->claimed = NULL;
	if (tell)
		gp_control_send_error(s->ch, status, text, status == GP_BUSY ? BUSY_RETRY_MS : 0, &ignored);
	gp_channel_close(s->ch, tell && !(s->stranger && strangers_crowd(s->srv)), channel_closed, s);
	uv_close((uv_handle_t *)&s->timer, timer_closed);
}

/* The one way out for good; parking is the other. */
void gp_server_session_stop(struct gp_server_session *s, enum gp_status status, const char *text)
{
	if (s->state == STATE_CLOSING)
		return;
	log_end(s, status, text);
	if (s->run)
		gp_server_run_end(s->run);
	close_connection(s, status, text);
}

void gp_server_session_park(struct gp_server_session *s, enum gp_status status, const char *text)
{
	gp_log(session, GP_LOG_WARN, "session %llu of %s is kept for %g s at step %llu: %s", (unsigned long long)s->id,
	       s->peer, s->srv->set.resume_window_s, (unsigned long long)gp_body_steps(s->run->body), text);
	gp_server_run_park(s->run);
	close_connection(s, status, text);
}

static void lose_link(struct gp_server_session *s, enum gp_status status, const char *text)
{
	if (s->state == STATE_RUN && s->srv->set.resume_window_s > 0)
		gp_server_session_park(s, status, text);
	else
		gp_server_session_stop(s, status, text);
}

/* A message that could not be sent: GP_PEER when the connection is dead, which the channel tells a moment later. */
void gp_server_session_sent(struct gp_server_session *s, enum gp_status status, const struct gp_err *err)
{
	if (status == GP_PEER)
		lose_link(s, status, err->text);
	else if (status != GP_OK)
		gp_server_session_stop(s, status, err->text);
}

struct gp_server_session *gp_server_session_next(struct gp_server_session *s)
{
	return s->next;
}

/* Control messages. */

static enum gp_status on_commit(struct gp_server_session *s, const Gpsplit__Commit *m, struct gp_err *err)
{
	GP_TRY(gp_body_commit(s->run->body, m->step, m->lr, m->grad_norm, err));
	if (m->checkpoint)
		gp_body_keep(s->run->body);
	return GP_OK;
}

static enum gp_status on_running(struct gp_server_session *s, const Gpsplit__Control *m, struct gp_err *err)
{
	gp_server_run_confirm(s->run);
	switch (m->body_case) {
	case GPSPLIT__CONTROL__BODY_COMMIT:
		return on_commit(s, m->commit, err);
	case GPSPLIT__CONTROL__BODY_FETCH_PARAMS:
		return gp_body_fetch_params(s->run->body, err);
	default:
		GP_FAIL(err, GP_PROTO, "a %s message is not expected while steps run", gp_control_name(m));
	}
}

static enum gp_status dispatch(struct gp_server_session *s, const Gpsplit__Control *m, struct gp_err *err)
{
	char text[256];
	if (m->body_case == GPSPLIT__CONTROL__BODY_BYE) {
		gp_server_session_stop(s, GP_OK, "the client said bye");
		return GP_OK;
	}
	if (m->body_case == GPSPLIT__CONTROL__BODY_ERROR) {
		s->ended = true;
		GP_FAIL(err, GP_PEER, "the client gave up: %s", gp_text_sanitize(m->error->text, text, sizeof text));
	}
	if (s->state == STATE_HELLO && m->body_case == GPSPLIT__CONTROL__BODY_HELLO)
		return gp_server_session_hello(s, m->hello, err);
	if (s->state == STATE_OPEN && m->body_case == GPSPLIT__CONTROL__BODY_OPEN)
		return gp_server_session_open(s, m->open, err);
	if (s->state == STATE_RUN)
		return on_running(s, m, err);
	GP_FAIL(err, GP_PROTO, "a %s message is not expected in this state", gp_control_name(m));
}

/* What the channel reports. A failure ends the session here, with a word to the client. */

static void channel_opened(void *arg)
{
	struct gp_server_session *s = arg;
	s->state = STATE_HELLO;
}

static enum gp_status channel_control(void *arg, struct gp_span bytes, struct gp_err *err)
{
	struct gp_server_session *s = arg;
	const Gpsplit__Control *m;
	s->progress_ns = gp_now_ns();
	enum gp_status status = gp_control_unpack(&s->arena, bytes, &m, err);
	if (status == GP_OK)
		status = dispatch(s, m, err);
	if (status != GP_OK)
		gp_server_session_stop(s, status, err->text);
	gp_control_arena_reset(&s->arena); /* an OPEN is large, and nothing of it is needed any more */
	return GP_OK;
}

static enum gp_status channel_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
					  struct gp_err *err)
{
	struct gp_server_session *s = arg;
	enum gp_status status;
	if (s->state == STATE_BUILD || s->state == STATE_RUN)
		status = gp_body_frame_begin(s->run->body, head, out, err);
	else
		status = gp_err_set(err, GP_PROTO, 0, __FILE__, __LINE__, "a tensor frame before open");
	if (status != GP_OK)
		gp_server_session_stop(s, status, err->text);
	return status;
}

static enum gp_status channel_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	(void)err;
	struct gp_server_session *s = arg;
	s->progress_ns = gp_now_ns();
	gp_server_run_confirm(s->run);
	gp_body_frame(s->run->body, f);
	return GP_OK;
}

static void channel_sent(void *arg, struct gp_frame *f)
{
	struct gp_server_session *s = arg;
	s->progress_ns = gp_now_ns();
	gp_body_frame_sent(s->run->body, f);
}

static void channel_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct gp_server_session *s = arg;
	const char *text = status == GP_OK ? "the client closed the connection" : err->text;
	s->ended = true;
	if (status == GP_OK || status == GP_PEER || status == GP_TIMEOUT)
		lose_link(s, status == GP_OK ? GP_PEER : status, text);
	else
		gp_server_session_stop(s, status, text);
}

/* Deadlines. */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* When the daemon itself stood still, what the client sent meanwhile is read after the timers. */
static void forgive_own_stall(struct gp_server_session *s, uint64_t now)
{
	const uint64_t late = now - s->tick_ns;
	s->tick_ns = now;
	if (late < 2 * DEADLINE_TICK_MS * 1000000ull)
		return;
	s->waited_ns = earlier(s->waited_ns + late, now);
	s->progress_ns = earlier(s->progress_ns + late, now);
}

static void check_deadline(uv_timer_t *timer)
{
	struct gp_server_session *s = timer->data;
	const struct gp_server_settings *set = &s->srv->set;
	const uint64_t now = gp_now_ns();
	forgive_own_stall(s, now);
	double waited = (double)(now - (s->stranger ? s->waited_ns : s->progress_ns)) * 1e-9;
	char text[128];
	if (s->state < STATE_BUILD && waited > set->handshake_timeout_s) {
		snprintf(text, sizeof text, "no handshake within %g s", set->handshake_timeout_s);
		gp_server_session_stop(s, GP_TIMEOUT, text);
	} else if (s->state == STATE_BUILD && waited > set->step_timeout_s && !gp_body_busy(s->run->body)) {
		snprintf(text, sizeof text, "the weights did not arrive within %g s", set->step_timeout_s);
		gp_server_session_stop(s, GP_TIMEOUT, text);
	} else if (s->state == STATE_RUN && gp_body_awaits_client(s->run->body) && waited > set->step_timeout_s &&
		   !gp_body_busy(s->run->body)) {
		snprintf(text, sizeof text, "no progress within a step for %g s", set->step_timeout_s);
		gp_server_session_stop(s, GP_TIMEOUT, text);
	}
}

static enum gp_status open_channel(struct gp_server_session *s, struct gp_conn *conn, struct gp_err *err)
{
	static const struct gp_channel_cbs cbs = {.opened = channel_opened,
						  .control = channel_control,
						  .frame_begin = channel_frame_begin,
						  .frame = channel_frame,
						  .sent = channel_sent,
						  .ended = channel_ended};
	struct gp_channel_options options = {
		.idle_timeout_ms = (uint32_t)(s->srv->set.idle_timeout_s * 1000),
		.preface_timeout_ms = (uint32_t)(s->srv->set.handshake_timeout_s * 1000),
		.control_bytes_max = GP_CONTROL_STEADY_BYTES, /* until HELLO has told who it is */
	};
	return gp_channel_new(s->srv->loop, conn, &options, &cbs, s, &s->ch, err);
}

static void link_session(struct gp_server_session *s)
{
	struct gp_server *srv = s->srv;
	s->next = srv->sessions;
	if (srv->sessions)
		srv->sessions->prev = s;
	srv->sessions = s;
	srv->session_count++;
}

/* Whoever has been a stranger for longest goes first: a client that means it takes a few round trips to be none. */
static void make_room(struct gp_server *srv)
{
	const int64_t known = CONNECTIONS_PER_SESSION * srv->set.max_sessions;
	struct gp_server_session *s = srv->oldest_stranger;
	if (srv->stranger_count <= srv->set.max_unopened && srv->session_count <= known + srv->set.max_unopened)
		return;
	while (s && s->state == STATE_CLOSING)
		s = s->newer;
	if (s)
		gp_server_session_stop(s, GP_BUSY, "the server has too many connections that are not opened");
}

void gp_server_session_new(struct gp_server *srv, struct gp_conn *conn)
{
	struct gp_err err = {0};
	struct gp_server_session *s = gp_calloc(1, sizeof *s);
	if (!s) {
		gp_log(session, GP_LOG_ERROR, "out of memory for a session of %s", conn->peer);
		conn->ops->close(conn, NULL, NULL);
		return;
	}
	gp_control_arena_init(&s->arena, OPEN_SPILL_BYTES);
	s->srv = srv;
	s->id = ++srv->next_session;
	s->began_ns = s->waited_ns = s->tick_ns = s->progress_ns = gp_now_ns();
	snprintf(s->peer, sizeof s->peer, "%s", conn->peer);
	if (open_channel(s, conn, &err) != GP_OK) {
		gp_log(session, GP_LOG_ERROR, "session of %s: %s", s->peer, err.text);
		gp_control_arena_deinit(&s->arena);
		gp_free(s);
		return;
	}
	uv_timer_init(srv->loop, &s->timer);
	s->timer.data = s;
	uv_timer_start(&s->timer, check_deadline, DEADLINE_TICK_MS, DEADLINE_TICK_MS);
	link_session(s);
	enter_strangers(s);
	if (srv->stopping)
		gp_server_session_stop(s, GP_CANCELED, "the server is stopping");
	else
		make_room(srv);
}
