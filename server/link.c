/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection: deadlines, which message is for whom, the ways out and the
 * order in which things are torn down. PROTOCOL.md section 5. Who comes and who
 * comes back is in link_hello.c, what OPEN asks for in link_open.c, what
 * outlives the connection in session.c.
 *
 * Threads: loop thread. Test: tests/unit/test_server.c
 */
#include "server/link.h"

#include "common/base/log.h"
#include "server/measure.h"
#include "server/opening.h"
#include "server/rebalance.h"
#include "server/session_status.h"

#define SPILL_BYTES             (1u << 20) /* memory of one unpacked message; that of an OPEN: opening.c */
#define BUSY_RETRY_MS           1000
/* A client that comes back has two accepted connections for a moment. */
#define CONNECTIONS_PER_SESSION 2

static void enter_strangers(struct gp_server_link *l)
{
	struct gp_server *srv = l->srv;
	l->stranger = true;
	l->older = srv->newest_stranger;
	if (l->older)
		l->older->newer = l;
	else
		srv->oldest_stranger = l;
	srv->newest_stranger = l;
	srv->stranger_count++;
}

void gp_server_link_meet(struct gp_server_link *l)
{
	struct gp_server *srv = l->srv;
	if (!l->stranger)
		return;
	l->stranger = false;
	if (l->newer)
		l->newer->older = l->older;
	else
		srv->newest_stranger = l->older;
	if (l->older)
		l->older->newer = l->newer;
	else
		srv->oldest_stranger = l->newer;
	srv->stranger_count--;
}

/* With so many strangers, the server does not wait until one that it turns away has read why. */
static bool strangers_crowd(const struct gp_server *srv)
{
	return 2 * srv->stranger_count > srv->set.max_unopened;
}

static void handshake_over(struct gp_server_link *l)
{
	if (l->shaking)
		gp_visitors_handshake_over(l->srv->log.visitors, l->address);
	l->shaking = false;
}

static void reap(struct gp_server_link *l)
{
	if (!l->channel_closed || !l->timer_closed)
		return;
	struct gp_server *srv = l->srv;
	gp_server_link_meet(l);
	gp_server_measure_free(l);
	gp_control_arena_deinit(&l->arena);
	if (l->prev)
		l->prev->next = l->next;
	else
		srv->links = l->next;
	if (l->next)
		l->next->prev = l->prev;
	gp_free(l);
	gp_server_link_gone(srv);
}

static void channel_closed(void *arg)
{
	struct gp_server_link *l = arg;
	l->channel_closed = true;
	if (l->session && l->session->body)
		for (struct gp_frame *f; (f = gp_channel_take_partial(l->ch));)
			gp_body_frame_lost(l->session->body, f);
	gp_tally_keep_link(l);
	if (l->session) {
		gp_server_session_keep_figures(l->session, l->ch);
		gp_server_session_release(l->session);
	}
	l->session = NULL;
	reap(l);
}

static void timer_closed(uv_handle_t *h)
{
	struct gp_server_link *l = h->data;
	l->timer_closed = true;
	reap(l);
}

/* A stranger, or a client that there was no room for. */
static void log_refusal(const struct gp_server_link *l, enum gp_status status, const char *text)
{
	const bool left = status == GP_OK || status == GP_PEER;
	const struct gp_log_event e = {.name = left ? "connection_left" : "connection_refused",
				       .reason = gp_status_name(status),
				       .client = l->proof.who,
				       .address = l->peer};
	gp_tally_refused(&l->srv->tally, status, left);
	if (gp_server_tells_stranger(l->srv))
		gp_server_event(l->srv, &l->client, GP_LOG_WARN, &e, "connection %llu of %s ended: %s",
				(unsigned long long)l->id, l->peer, text);
}

static void log_end(const struct gp_server_link *l, enum gp_status status, const char *text)
{
	if (!l->session) {
		log_refusal(l, status, text);
		return;
	}
	struct gp_server_session *s = l->session;
	const enum gp_log_level level = status == GP_OK || s->moved ? GP_LOG_INFO : GP_LOG_WARN;
	const char *name = s->ready                               ? "session_ended"
			   : status == GP_OK || status == GP_PEER ? "session_left"
								  : "session_refused";
	char title[GP_SESSION_TITLE], spent[GP_SESSION_SPENT];
	s->end_reason = status;
	gp_server_session_event(s, level, name, gp_status_name(status),
				"%s ended after %s and %llu steps, at step %llu: %s (%.0f MiB, process peak %.0f MiB)",
				gp_server_session_title(s, title), gp_server_session_spent(s, spent),
				(unsigned long long)gp_server_session_steps(s),
				(unsigned long long)(s->body ? gp_body_steps(s->body) : 0), text,
				(double)s->memory_bytes / 1048576, (double)gp_mem_peak_rss_bytes() / 1048576);
}

/* Other servers are the affair of clients that this one has let in, and of no stranger. */
static void tell_end(struct gp_server_link *l, enum gp_status status, const char *text)
{
	const struct gp_server *srv = l->srv;
	const bool moved = l->session && l->session->moved;
	const bool sent_away = status == GP_CANCELED && (srv->draining || srv->stopping || moved);
	const uint32_t retry_ms = l->retry_ms > 0 ? l->retry_ms : BUSY_RETRY_MS;
	const char *servers[GP_ERROR_SERVERS];
	size_t count = 0;
	struct gp_err ignored;
	if (!l->stranger && (status == GP_BUSY || sent_away))
		count = gp_advertise_names(&srv->elsewhere, servers);
	gp_control_send_elsewhere(l->ch, status, text, status == GP_BUSY ? retry_ms : 0, servers, count, &ignored);
}

/* Ends the connection, with a word to the client unless it has gone or everything is well. */
static void close_connection(struct gp_server_link *l, enum gp_status status, const char *text)
{
	const bool tell = !l->ended && status != GP_OK;
	l->state = GP_LINK_CLOSED;
	handshake_over(l);
	if (l->claimed)
		gp_server_session_unclaim(l->claimed);
	l->claimed = NULL;
	if (tell)
		tell_end(l, status, text);
	gp_channel_close(l->ch, tell && !l->abandoned && !(l->stranger && strangers_crowd(l->srv)), channel_closed, l);
	uv_close((uv_handle_t *)&l->timer, timer_closed);
}

void gp_server_link_retry_after(struct gp_server_link *l, uint32_t ms)
{
	l->retry_ms = ms;
}

/* Ends link and session for good; parking is the other way out. */
void gp_server_link_stop(struct gp_server_link *l, enum gp_status status, const char *text)
{
	if (l->state == GP_LINK_CLOSED)
		return;
	log_end(l, status, text);
	if (l->session)
		gp_server_session_end(l->session);
	close_connection(l, status, text);
}

void gp_server_link_park(struct gp_server_link *l, enum gp_status status, const char *text)
{
	char title[GP_SESSION_TITLE];
	gp_server_session_event(l->session, GP_LOG_WARN, "session_parked", gp_status_name(status),
				"%s is parked for %g s at step %llu: %s", gp_server_session_title(l->session, title),
				l->srv->set.resume_window_s, (unsigned long long)gp_body_steps(l->session->body), text);
	gp_server_session_park(l->session);
	close_connection(l, status, text);
}

/* A link that has damaged data is cut, without a word that might be damaged, too: the client comes back over another. */
void gp_server_link_lose(struct gp_server_link *l, enum gp_status status, const char *text)
{
	l->ended |= status == GP_DAMAGED;
	if (l->state == GP_LINK_RUN && status == GP_DAMAGED)
		gp_server_session_note_damage(l->session);
	if (l->state == GP_LINK_RUN && gp_server_session_may_park(l->session))
		gp_server_link_park(l, status, text);
	else
		gp_server_link_stop(l, status, text);
}

/* A message that could not be sent: GP_PEER when the connection is dead, which the channel tells a moment later. */
void gp_server_link_sent(struct gp_server_link *l, enum gp_status status, const struct gp_err *err)
{
	if (status == GP_PEER)
		gp_server_link_lose(l, status, err->text);
	else if (status != GP_OK)
		gp_server_link_stop(l, status, err->text);
}

/* A session that is not open yet is begun somewhere else, or later: its client may come again. */
void gp_server_link_retire(struct gp_server_link *l)
{
	gp_server_link_stop(l, l->state == GP_LINK_RUN ? GP_CANCELED : GP_BUSY, GP_SERVER_STOPS);
}

bool gp_server_link_drain(struct gp_server_link *l)
{
	if (l->state == GP_LINK_CLOSED)
		return false;
	const bool opening = l->state == GP_LINK_OPEN || l->state == GP_LINK_LOAD || l->state == GP_LINK_MEASURE;
	if (l->srv->draining && (opening || (l->state == GP_LINK_RUN && gp_body_between_steps(l->session->body))))
		gp_server_link_retire(l);
	return true;
}

void gp_server_link_stepped(struct gp_server_link *l)
{
	if (l->srv->draining && l->state == GP_LINK_RUN)
		gp_server_link_retire(l);
	else
		gp_server_rebalance_stepped(l);
}

struct gp_server_link *gp_server_link_next(struct gp_server_link *l)
{
	return l->next;
}

/* Control messages. */

static enum gp_status on_commit(struct gp_server_link *l, const Gpsplit__Commit *m, struct gp_err *err)
{
	const struct gp_body_commit c = {.step = m->step,
					 .lr = m->lr,
					 .grad_norm = m->grad_norm,
					 .checkpoint = m->checkpoint,
					 .rank = m->rank,
					 .ranks = m->n_rank,
					 .rung = m->rung,
					 .rungs = m->n_rung};
	GP_TRY(gp_body_commit(l->session->body, &c, err));
	if (m->told)
		gp_server_session_told_loss(l->session, m->told->loss);
	return GP_OK;
}

static enum gp_status on_error(struct gp_server_link *l, const Gpsplit__Error *m, struct gp_err *err)
{
	char text[256];
	l->ended = true;
	GP_FAIL(err, GP_PEER, "the client gave up: %s", gp_text_sanitize(m->text, text, sizeof text));
}

static enum gp_status dispatch(struct gp_server_link *l, const Gpsplit__Control *m, struct gp_err *err)
{
	GP_TRY(gp_control_check(GP_END_CLIENT, l->state, m, err));
	if (l->state == GP_LINK_RUN)
		gp_server_session_confirm(l->session);
	switch (m->body_case) {
	case GPSPLIT__CONTROL__BODY_HELLO:
		return gp_server_link_hello(l, m->hello, err);
	case GPSPLIT__CONTROL__BODY_COMMIT:
		return on_commit(l, m->commit, err);
	case GPSPLIT__CONTROL__BODY_FETCH_PARAMS:
		return gp_body_fetch_params(l->session->body, err);
	case GPSPLIT__CONTROL__BODY_MEASURE:
		return gp_server_measure_begin(l, err);
	case GPSPLIT__CONTROL__BODY_PROBE:
		return gp_server_measure_probe(l, m->probe, err);
	case GPSPLIT__CONTROL__BODY_BYE:
		gp_server_link_stop(l, GP_OK, "the client said bye");
		return GP_OK;
	case GPSPLIT__CONTROL__BODY_ERROR:
		return on_error(l, m->error, err);
	default:
		GP_FAIL(err, GP_PROTO, "a %s message is not for a server", gp_control_name(m));
	}
}

/* What the channel reports. A failure ends the session here, with a word to the client. */

static void channel_opened(void *arg)
{
	struct gp_server_link *l = arg;
	l->state = GP_LINK_HELLO;
	handshake_over(l);
}

static enum gp_status take_control(struct gp_server_link *l, struct gp_span bytes, struct gp_err *err)
{
	const Gpsplit__Control *m;
	if (l->state == GP_LINK_OPEN && !gp_server_measure_asked(l, bytes))
		return gp_server_opening_begin(l, bytes, err);
	GP_TRY(gp_control_unpack(&l->arena, bytes, &m, err));
	return dispatch(l, m, err);
}

/* Only OPEN is long, and only reading OPEN takes much. */
static enum gp_status channel_control_begin(void *arg, uint32_t bytes, struct gp_err *err)
{
	struct gp_server_link *l = arg;
	const enum gp_status status =
		l->state == GP_LINK_OPEN && !l->session->opening ? gp_server_opening_expect(l, bytes, err) : GP_OK;
	if (status != GP_OK)
		gp_server_link_stop(l, status, err->text);
	return status;
}

static enum gp_status channel_control(void *arg, struct gp_span bytes, struct gp_err *err)
{
	struct gp_server_link *l = arg;
	l->progress_ns = gp_now_ns();
	const enum gp_status status = take_control(l, bytes, err);
	if (status != GP_OK)
		gp_server_link_stop(l, status, err->text);
	gp_control_arena_reset(&l->arena);
	return GP_OK;
}

static enum gp_status channel_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
					  struct gp_err *err)
{
	struct gp_server_link *l = arg;
	enum gp_status status = gp_frame_check(GP_END_CLIENT, l->state, l->session ? l->session->id : 0, head, err);
	if (status == GP_OK && l->measure)
		status = gp_server_measure_frame_begin(l, head, out, err);
	else if (status == GP_OK)
		status = gp_body_frame_begin(l->session->body, head, out, err);
	if (status != GP_OK)
		gp_server_link_stop(l, status, err->text);
	return status;
}

static enum gp_status channel_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	struct gp_server_link *l = arg;
	l->progress_ns = gp_now_ns();
	if (l->measure)
		return gp_server_measure_frame(l, err);
	gp_server_session_confirm(l->session);
	gp_body_frame(l->session->body, f);
	return GP_OK;
}

static void channel_sent(void *arg, struct gp_frame *f)
{
	struct gp_server_link *l = arg;
	l->progress_ns = gp_now_ns();
	if (l->measure) {
		gp_server_measure_sent(l, f);
		return;
	}
	gp_body_frame_sent(l->session->body, f);
	gp_server_link_drain(l);
}

static void channel_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct gp_server_link *l = arg;
	const char *text = status == GP_OK ? "the client closed the connection" : err->text;
	l->ended = true;
	if (status == GP_OK || status == GP_PEER || status == GP_TIMEOUT || status == GP_DAMAGED)
		gp_server_link_lose(l, status == GP_OK ? GP_PEER : status, text);
	else
		gp_server_link_stop(l, status, text);
}

/* Deadlines. */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* When the daemon itself stood still, what the client sent meanwhile is read after the timers. */
static void forgive_own_stall(struct gp_server_link *l, uint64_t now)
{
	const uint64_t late = now - l->tick_ns;
	l->tick_ns = now;
	if (late < 2 * GP_SERVER_TICK_MS * 1000000ull)
		return;
	l->waited_ns = earlier(l->waited_ns + late, now);
	l->progress_ns = earlier(l->progress_ns + late, now);
}

/* Whether nothing goes on before the client has sent or read something. */
static bool is_clients_turn(const struct gp_server_link *l)
{
	return !gp_body_busy(l->session->body) && (l->state == GP_LINK_LOAD || gp_body_awaits_client(l->session->body));
}

/* A client is waited for from when its turn came, and a frame that takes long to cross is progress all the while. */
static void note_progress(struct gp_server_link *l, uint64_t now)
{
	const uint64_t bytes = l->ch ? gp_account_frame_bytes(gp_channel_account(l->ch)) : l->progress_bytes;
	if ((l->state != GP_LINK_LOAD && l->state != GP_LINK_RUN) ||
	    (is_clients_turn(l) && bytes - l->progress_bytes < GP_PROGRESS_BYTES))
		return;
	l->progress_ns = now;
	l->progress_bytes = bytes;
}

static void check_deadline(uv_timer_t *timer)
{
	struct gp_server_link *l = timer->data;
	const struct gp_server_settings *set = &l->srv->set;
	const uint64_t now = gp_now_ns();
	forgive_own_stall(l, now);
	note_progress(l, now);
	if (l->session)
		gp_server_session_sample(l->session);
	double waited = (double)(now - (l->stranger ? l->waited_ns : l->progress_ns)) * 1e-9;
	char text[128];
	const bool reads = l->session && l->session->opening;
	if (l->state < GP_LINK_LOAD && l->state != GP_LINK_WELCOME && !reads && waited > set->handshake_timeout_s) {
		snprintf(text, sizeof text, "no handshake within %g s", set->handshake_timeout_s);
		gp_server_link_stop(l, GP_TIMEOUT, text);
	} else if (l->state == GP_LINK_LOAD && waited > set->step_timeout_s) {
		snprintf(text, sizeof text, "the weights did not arrive within %g s", set->step_timeout_s);
		gp_server_link_stop(l, GP_TIMEOUT, text);
	} else if (l->state == GP_LINK_RUN && waited > set->step_timeout_s) {
		snprintf(text, sizeof text, "no progress within a step for %g s", set->step_timeout_s);
		gp_server_link_stop(l, GP_TIMEOUT, text);
	} else if (gp_server_measure_expired(l, now)) {
		snprintf(text, sizeof text, "measured for %g s, which is all that there is (--measure)",
			 set->measure_s);
		gp_server_link_stop(l, GP_TIMEOUT, text);
	}
	gp_server_link_drain(l);
}

static enum gp_status open_channel(struct gp_server_link *l, struct gp_conn *conn, struct gp_err *err)
{
	static const struct gp_channel_cbs cbs = {.opened = channel_opened,
						  .control_begin = channel_control_begin,
						  .control = channel_control,
						  .frame_begin = channel_frame_begin,
						  .frame = channel_frame,
						  .sent = channel_sent,
						  .ended = channel_ended};
	struct gp_channel_options options = {
		.segment_bytes = GP_SEGMENT_BYTES_SERVED,
		.idle_timeout_ms = (uint32_t)(l->srv->set.idle_timeout_s * 1000),
		.preface_timeout_ms = (uint32_t)(l->srv->set.handshake_timeout_s * 1000),
		.control_bytes_max = GP_CONTROL_STEADY_BYTES, /* until HELLO has told who it is */
	};
	return gp_channel_new(l->srv->loop, conn, &options, &cbs, l, &l->ch, err);
}

static void enlist(struct gp_server_link *l)
{
	struct gp_server *srv = l->srv;
	l->next = srv->links;
	if (srv->links)
		srv->links->prev = l;
	srv->links = l;
	srv->link_count++;
}

/* Drops the connection that has been a stranger for longest: an honest client needs only a few round trips to
 * introduce itself. */
static void make_room(struct gp_server *srv)
{
	const int64_t known = CONNECTIONS_PER_SESSION * srv->set.max_sessions;
	struct gp_server_link *l = srv->oldest_stranger;
	if (srv->stranger_count <= srv->set.max_unopened && srv->link_count <= known + srv->set.max_unopened)
		return;
	while (l && l->state == GP_LINK_CLOSED)
		l = l->newer;
	if (l)
		gp_server_link_stop(l, GP_BUSY, "the server has too many connections that are not opened");
}

void gp_server_link_new(struct gp_server *srv, struct gp_conn *conn)
{
	struct gp_err err = {0};
	struct gp_server_link *l = gp_calloc(1, sizeof *l);
	if (!l) {
		gp_log(session, GP_LOG_ERROR, "out of memory for a connection of %s", conn->peer);
		if (conn->secure)
			gp_visitors_handshake_over(srv->log.visitors, gp_visitor_of_address(conn->peer));
		conn->ops->close(conn, NULL, NULL);
		return;
	}
	gp_control_arena_init(&l->arena, SPILL_BYTES);
	l->srv = srv;
	l->id = ++srv->next_link;
	srv->tally.connections++;
	l->waited_ns = l->tick_ns = l->progress_ns = gp_now_ns();
	snprintf(l->peer, sizeof l->peer, "%s", conn->peer);
	l->shaking = conn->secure;
	l->address = gp_visitor_of_address(conn->peer);
	gp_client_tag_address(&l->client, conn->peer);
	if (open_channel(l, conn, &err) != GP_OK) {
		gp_log(session, GP_LOG_ERROR, "connection of %s: %s", l->peer, err.text);
		handshake_over(l);
		gp_control_arena_deinit(&l->arena);
		gp_free(l);
		return;
	}
	uv_timer_init(srv->loop, &l->timer);
	l->timer.data = l;
	uv_timer_start(&l->timer, check_deadline, GP_SERVER_TICK_MS, GP_SERVER_TICK_MS);
	enlist(l);
	enter_strangers(l);
	if (srv->stopping)
		gp_server_link_retire(l);
	else
		make_room(srv);
}
