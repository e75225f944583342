/* SPDX-License-Identifier: Apache-2.0
 *
 * The links of a client's session, one after the other: the first, and those
 * after a broken one, with back-off. PROTOCOL.md section 5.6. What is
 * said on them is in client_session.c.
 * Test: tests/unit/test_resume.c
 */
#include "client/session/client_session_impl.h"

#include <math.h>

#include "client/job/security.h"
#include "client/trace/timeline.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/net/srv.h"

#define PAUSE_MS_FIRST           100
#define PAUSE_MS_MOST            5000
#define SENT_AWAY_MS             5000 /* for so long a server that has sent the session to others is not asked for it */
/* Connections that may break before the server has said who it is: a link that is cut does so seldom, somebody else's
 * port always. */
#define STRANGE_MOST             3
/* Links that break without a gain are no reason to give up while they are so few: each may have lasted for long. */
#define STANDSTILL_LINKS         3
#define STANDSTILL_PAUSE_MS_MOST 1000

/* Life of one link. */

static void channel_closed(void *arg)
{
	struct gp_client_session *s = arg;
	struct gp_tcp_figures tcp;
	for (struct gp_frame *f; (f = gp_channel_take_partial(s->ch));)
		if (f != &s->param_down)
			s->frames->frame_lost(s->arg, f);
	gp_account_add(&s->account, gp_channel_account(s->ch));
	gp_channel_figures(s->ch, &tcp);
	gp_tcp_figures_add(&s->past_tcp, &tcp);
	if (gp_channel_rtt_us(s->ch) > 0)
		s->rtt_us = gp_channel_rtt_us(s->ch);
	s->ch = NULL;
}

void gp_client_session_hang_up(struct gp_client_session *s, bool flush)
{
	struct gp_err ignored;
	if (s->connecting)
		gp_tcp_connect_cancel(s->connecting);
	s->linked = false;
	gp_client_session_tell_monitor(s);
	if (!s->ch)
		return;
	const struct gp_err *why = s->status != GP_OK ? &s->err : &s->lost_err;
	const bool tell = (s->status != GP_OK || s->declines) && !s->peer_gave_up;
	if (tell)
		gp_control_send_error(s->ch, why->code, why->text, 0, &ignored);
	gp_channel_close(s->ch, flush || tell, channel_closed, s);
	while (s->ch)
		gp_loop_turn(s->loop);
	gp_free(s->param_up);
	s->param_up = NULL;
}

/* The name may have other addresses, at which to ask if this one is of no use. */
static void note_addresses(struct gp_client_session *s)
{
	char address[GP_SERVER_ADDRESSES][GP_TCP_NUMERIC];
	int at;
	const int count = gp_tcp_connect_addresses(s->connecting, address, GP_SERVER_ADDRESSES, &at);
	gp_server_list_connected(&s->servers, address, count, at);
}

/* A server that is far has no say about what listens on this machine: note_others looks at names, and this at where they lead. */
static enum gp_status check_named(struct gp_client_session *s, struct gp_conn *conn, struct gp_err *err)
{
	const struct gp_server_entry *e = gp_server_list_at(&s->servers);
	s->near = gp_client_is_near(conn);
	if (!e->told || e->by_near || !s->near)
		return GP_OK;
	conn->ops->close(conn, NULL, NULL);
	GP_FAIL(err, GP_PEER, "server %s, which another server has named, leads to this machine itself", e->text);
}

static void on_connected(void *arg, struct gp_conn *conn, const struct gp_err *why)
{
	struct gp_client_session *s = arg;
	struct gp_err err;
	note_addresses(s);
	s->connecting = NULL;
	s->progress_ns = gp_now_ns();
	s->strange += conn && !s->met;
	s->reached = conn != NULL;
	if (!conn) {
		gp_client_session_lose(s, why->code, why->text);
		return;
	}
	gp_server_list_reached(&s->servers);
	const char *name = gp_server_list_at(&s->servers)->host;
	if (check_named(s, conn, &err) != GP_OK) {
		gp_client_session_refuse(s, err.code, err.text);
		return;
	}
	if (s->open->security && gp_client_secure(s->open->security, s->loop, name, &conn, &err) != GP_OK) {
		gp_client_session_refuse(s, err.code, err.text);
		return;
	}
	struct gp_channel_options options = {
		.idle_timeout_ms = (uint32_t)(s->open->idle_timeout_s * 1000),
		.preface_timeout_ms = (uint32_t)(s->open->connect_timeout_s * 1000),
		.control_bytes_max = GP_CONTROL_STEADY_BYTES,
	};
	if (gp_client_session_clips_norm(s))
		options.control_bytes_max += (uint32_t)s->body->params * (uint32_t)sizeof(double);
	s->state = GP_LINK_PREFACE;
	if (gp_channel_new(s->loop, conn, &options, &gp_client_session_channel_cbs, s, &s->ch, &err) != GP_OK)
		gp_client_session_fail(s, err.code, err.text);
}

static void on_records(void *arg, const struct gp_srv_answer *a, const struct gp_err *why)
{
	struct gp_client_session *s = arg;
	struct gp_server_place place[GP_SRV_MAX];
	s->looking = NULL;
	if (!a) {
		gp_client_session_lose(s, why->code, why->text);
		return;
	}
	for (int i = 0; i < a->count; i++) {
		place[i].port = a->target[i].port;
		snprintf(place[i].host, sizeof place[i].host, "%s", a->target[i].host);
	}
	gp_server_list_looked_up(&s->servers, place, a->count);
}

static double seconds_since(uint64_t begin_ns)
{
	return (double)(gp_now_ns() - begin_ns) * 1e-9;
}

/* Where the servers of srv:NAME are. The timer of deadlines ends the wait for a name server that is silent. */
static enum gp_status ask_for_records(struct gp_client_session *s, double timeout_s, struct gp_err *err)
{
	const uint64_t begin_ns = gp_now_ns();
	const char *name = gp_server_list_at(&s->servers)->host;
	GP_TRY(gp_srv_look_up(s->loop, name, on_records, s, &s->looking, err));
	while (s->looking && s->status == GP_OK && seconds_since(begin_ns) < timeout_s)
		gp_loop_turn(s->loop);
	if (s->looking) {
		gp_srv_cancel(s->looking);
		s->looking = NULL;
		gp_err_set(err, GP_TIMEOUT, 0, __FILE__, __LINE__, "srv:%s: no answer of a name server within %.3g s",
			   name, timeout_s);
		gp_client_session_lose(s, GP_TIMEOUT, err->text);
	}
	if (s->status == GP_OK && !s->lost)
		return GP_OK;
	*err = s->status != GP_OK ? s->err : s->lost_err;
	return err->code;
}

static enum gp_status dial(struct gp_client_session *s, double timeout_s, struct gp_err *err)
{
	s->state = GP_LINK_PREFACE;
	if (gp_server_list_wants_records(&s->servers))
		GP_TRY(ask_for_records(s, timeout_s, err));
	const struct gp_server_place to = gp_server_list_place(&s->servers);
	return gp_tcp_connect(s->loop, to.host, to.port, (uint64_t)(timeout_s * 1000), on_connected, s, &s->connecting,
			      err);
}

/* A server that is lost again and again before it comes further than one has come before would be asked without end. Steps that
 * are done once more between two losses are no gain. */
static bool comes_further(struct gp_client_session *s)
{
	char text[GP_ERR_TEXT];
	if (!s->opened || s->rewinds < GP_CLIENT_REWINDS_MOST)
		return true;
	snprintf(text, sizeof text,
		 "server %.100s has lost this session %u times without coming further than step %llu; see its log, or "
		 "take a smaller --checkpoint-every",
		 gp_client_session_server(s), s->rewinds + 1, (unsigned long long)s->furthest);
	gp_client_session_fail(s, GP_PEER, text);
	return false;
}

/* The server has lost a session of which steps are committed: goes on from a checkpoint, if there is one. */
static enum gp_status start_over(struct gp_client_session *s, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	enum gp_status status;
	if (o->restart && !comes_further(s)) {
		*err = s->err;
		return err->code;
	}
	if (o->restart)
		status = o->restart(o->restart_arg, s->server_checkpoint, err);
	else
		status = gp_err_set(err, GP_PEER, 0, __FILE__, __LINE__,
				    "server %s no longer has this session of %llu steps (it was restarted, or the link "
				    "was down for longer than its --resume-window), and there is no checkpoint",
				    gp_client_session_server(s), (unsigned long long)s->steps);
	if (status != GP_OK)
		gp_client_session_fail(s, status, err->text);
	return status == GP_OK ? gp_client_session_send_open(s, err) : status;
}

static enum gp_status choose_window(struct gp_client_session *s, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	const double round_trip_s = (double)(s->welcome_ns - s->hello_ns) * 1e-9;
	if (!gp_client_session_chooses_window(s))
		return GP_OK;
	s->window_chosen = true;
	const enum gp_status status = o->choose_window(o->choose_window_arg, round_trip_s, s->window_limit, err);
	if (status != GP_OK)
		gp_client_session_fail(s, status, err->text);
	return status;
}

/* A session that begins there would lose what this side has. */
static bool lacks_run(const struct gp_client_session *s)
{
	const struct gp_client_open *o = s->open;
	if (s->server_checkpoint > 0)
		return false;
	return s->steps > 0 || (!s->opened && o->run && gp_run_state_newest(o->run) > 0);
}

/* When no server has anything of the run it begins again, if it may, at the one that has said so last. So it does when a
 * whole round has found nothing, though some did not answer. */
static bool begins_again_here(struct gp_client_session *s)
{
	struct gp_err ignored;
	if (gp_server_list_lacks(&s->servers))
		return true;
	return s->servers.rounds > 0 && !gp_server_list_spares(&s->servers) && s->open->run &&
	       gp_run_state_check_start(s->open->run, gp_client_session_server(s), s->stored, s->stored_count, NULL,
					&ignored) == GP_OK;
}

static enum gp_status open_or_start_over(struct gp_client_session *s, struct gp_err *err)
{
	if (lacks_run(s) && !begins_again_here(s)) {
		gp_err_set(err, GP_PEER, 0, __FILE__, __LINE__, "server %s has no checkpoint of this run",
			   gp_client_session_server(s));
		gp_client_session_lose(s, GP_PEER, err->text);
		return GP_PEER;
	}
	GP_TRY(choose_window(s, err));
	return s->steps > 0 || s->open->restart ? start_over(s, err) : gp_client_session_send_open(s, err);
}

static enum gp_status wait_until_ready(struct gp_client_session *s, struct gp_err *err)
{
	const enum gp_status status = s->state == GP_LINK_OPEN ? open_or_start_over(s, err) : GP_OK;
	if (status != GP_OK) {
		gp_client_session_refuse(s, status, err->text); /* where nothing was said of it yet */
		return status;
	}
	GP_TRY(gp_client_session_await(s, &s->ready, err));
	gp_free(s->param_up); /* the channel has none of them any more */
	s->param_up = NULL;
	return GP_OK;
}

/* Makes one link, up to the point where steps may begin. */
static enum gp_status attempt(struct gp_client_session *s, double timeout_s, struct gp_err *err)
{
	s->lost = s->welcomed = s->resumed = s->answered = s->ready = s->peer_gave_up = s->sent_away = false;
	s->declines = false;
	s->patience_s = s->open->connect_timeout_s;
	GP_TRY(dial(s, timeout_s, err));
	GP_TRY(gp_client_session_await(s, &s->welcomed, err));
	if (!s->resumed)
		GP_TRY(wait_until_ready(s, err));
	s->rewinds += s->opened && !s->resumed;
	s->opened = s->linked = s->confirmed = true;
	gp_server_list_found(&s->servers);
	gp_client_session_tell_monitor(s);
	gp_timeline_linked(s->open->timeline, s->tells, (uint32_t)s->window);
	s->pings = 0;
	if (s->open->timeline)
		gp_channel_ping(s->ch);
	if (s->resumed)
		return gp_client_session_go_on(s, err);
	return s->rewound ? GP_OK : gp_client_session_fetch_again(s, err);
}

/* Back-off. */

static void on_pause_over(uv_timer_t *timer)
{
	struct gp_client_session *s = timer->data;
	s->pausing = false;
}

static void pause_for(struct gp_client_session *s, uint64_t ms)
{
	s->pausing = true;
	uv_update_time(s->loop);
	uv_timer_start(&s->pause, on_pause_over, ms, 0);
	while (s->pausing && s->status == GP_OK)
		gp_loop_turn(s->loop);
	uv_timer_stop(&s->pause);
}

/* The pause, from half of it to all of it at random, so that the clients of a server that was away do not come back
 * together. */
static uint64_t jittered(uint64_t ms)
{
	struct gp_err ignored;
	uint16_t draw = 0;
	gp_random_bytes(&draw, sizeof draw, &ignored);
	return ms / 2 + ms / 2 * draw / UINT16_MAX;
}

/* "server A:1", "servers A:1, B:2 and C:3" */
static const char *title(const struct gp_client_session *s, char out[GP_SERVERS_TEXT + 16])
{
	char names[GP_SERVERS_TEXT];
	snprintf(out, GP_SERVERS_TEXT + 16, "server%s %s", s->servers.count > 1 ? "s" : "",
		 s->servers.count > 1 ? gp_server_list_names(&s->servers, names) : gp_client_session_server(s));
	return out;
}

static enum gp_status give_up(struct gp_client_session *s, const struct gp_err *last, struct gp_err *err)
{
	char to[GP_SERVERS_TEXT + 16];
	enum gp_status status =
		gp_err_set(err, last->code, 0, __FILE__, __LINE__, "gave up reconnecting to %s after %g s: %s",
			   title(s, to), s->open->reconnect_for_s, last->text);
	gp_client_session_fail(s, status, err->text);
	return status;
}

/* Every server that is listed is asked once, whatever --reconnect-for says. */
static bool asks_first_time(const struct gp_client_session *s)
{
	return !s->opened && s->servers.rounds == 0;
}

static double time_left(const struct gp_client_session *s, uint64_t begin_ns)
{
	return asks_first_time(s) ? INFINITY : s->open->reconnect_for_s - seconds_since(begin_ns);
}

/* No server keeps a client beyond the time that its user has set, as one would that refuses every OPEN and asks for the next. */
static bool may_stay(const struct gp_client_session *s, uint64_t begin_ns)
{
	return s->stays && seconds_since(begin_ns) + s->retry_ms * 1e-3 < s->open->reconnect_for_s;
}

/*
 * Says who is asked next, and returns after how many milliseconds. A server that has no room has said when to come again:
 * before that it would say the same. *pause_ms grows with every pause.
 */
static uint64_t take_turn(struct gp_client_session *s, uint64_t begin_ns, uint64_t *pause_ms)
{
	const int was = s->servers.at;
	const uint64_t now = gp_now_ns();
	uint64_t ms = jittered(*pause_ms);
	if (may_stay(s, begin_ns)) {
		ms = s->retry_ms > ms ? s->retry_ms : ms;
	} else {
		s->window_most = 0; /* that was another one's memory */
		gp_server_list_defer(&s->servers, now, s->retry_ms);
		ms = gp_server_list_next(&s->servers, now, ms);
	}
	s->stays = false;
	s->retry_ms = 0;
	if (ms > 0)
		*pause_ms = *pause_ms * 2 < PAUSE_MS_MOST ? *pause_ms * 2 : PAUSE_MS_MOST;
	if (s->servers.at != was && s->servers.rounds == 0)
		gp_log(session, GP_LOG_WARN, "%s; trying server %s", s->lost_err.text, gp_client_session_server(s));
	else
		gp_log(session, GP_LOG_DEBUG, "%s; again in %llu ms", s->lost_err.text, (unsigned long long)ms);
	return ms;
}

/* After an attempt that has failed: gets ready for the next. */
static enum gp_status clear_away(struct gp_client_session *s, enum gp_status status, struct gp_err *err)
{
	gp_client_session_hang_up(s, false);
	if (s->has_place && s->resumed)
		s->frames->lost(s->arg); /* the server may have gone on before the link broke again */
	if (s->status == GP_OK && s->lost)
		return GP_OK;
	gp_client_session_fail(s, status, err->text);
	return status;
}

/* Tries until a connection stands, the session fails for good, or time is up. `again`: the server that was asked last is
 * asked again before any other. */
static enum gp_status keep_trying(struct gp_client_session *s, uint64_t begin_ns, bool again, struct gp_err *err)
{
	uint64_t pause_ms = PAUSE_MS_FIRST;
	s->returning = true;
	for (;;) {
		const uint64_t wait_ms = again ? 0 : take_turn(s, begin_ns, &pause_ms);
		double left = time_left(s, begin_ns);
		if (!again && left <= 0)
			return give_up(s, &s->lost_err, err);
		pause_for(s, (double)wait_ms < left * 1000 ? wait_ms : (uint64_t)(left * 1000));
		if (s->status != GP_OK) {
			*err = s->err;
			return s->status;
		}
		again = false;
		left = time_left(s, begin_ns);
		const double timeout = s->open->connect_timeout_s < left ? s->open->connect_timeout_s : left;
		const enum gp_status status = attempt(s, timeout > 0.1 ? timeout : 0.1, err);
		s->returning = status != GP_OK;
		if (status == GP_OK)
			return GP_OK;
		GP_TRY(clear_away(s, status, err));
	}
}

/* Links that break before anything is gained. */

/* The broken link's bytes are in s->account by now. */
static void count_broken(struct gp_client_session *s)
{
	struct gp_client_standstill *n = &s->standstill;
	if (n->begin_ns > 0)
		n->links++;
	else
		*n = (struct gp_client_standstill){.begin_ns = gp_now_ns(),
						   .sent_bytes = s->account.sent.wire_bytes,
						   .received_bytes = s->account.received.wire_bytes};
}

static bool stands_still(const struct gp_client_session *s)
{
	return s->standstill.links >= STANDSTILL_LINKS &&
	       seconds_since(s->standstill.begin_ns) >= s->open->reconnect_for_s;
}

/* What did not come about, and what could help. Each tensor of a chunk counts, in an evaluation each chunk; where the server
 * does not keep its place a step begins anew with its first chunk, so that only a smaller step is easier to carry. */
static void standstill_texts(const struct gp_client_session *s, const char **what, const char **advice)
{
	if (s->fetch_into) {
		*what = "the body's parameters have not arrived";
		*advice = "they have to cross one link as a whole";
	} else if (s->evaluating) {
		*what = "no chunk of the evaluation was answered";
		*advice = "a smaller --batch, more --chunks or a --codec that compresses more makes chunks smaller";
	} else if (s->keeps_place) {
		*what = "no tensor of a step has come through";
		*advice = "each tensor of a chunk has to cross one link as a whole: more --chunks, a smaller --batch "
			  "or a --codec that compresses more makes it smaller";
	} else {
		*what = "no step was committed";
		*advice = "a step has to cross one link as a whole: a smaller --batch or a --codec that compresses "
			  "more makes "
			  "it smaller";
	}
}

static void end_standstill(struct gp_client_session *s)
{
	const struct gp_client_standstill *n = &s->standstill;
	const char *what, *advice;
	char text[GP_ERR_TEXT];
	standstill_texts(s, &what, &advice);
	snprintf(
		text, sizeof text,
		"%s for %.0f s: the link to server %s broke %u times, after %.1f kB up and %.1f kB down on average; %s",
		what, seconds_since(n->begin_ns), gp_client_session_server(s), n->links,
		(double)(s->account.sent.wire_bytes - n->sent_bytes) * 1e-3 / n->links,
		(double)(s->account.received.wire_bytes - n->received_bytes) * 1e-3 / n->links, advice);
	gp_client_session_fail(s, GP_PEER, text);
}

/* The first links after a gain are replaced at once. */
static void pause_in_standstill(struct gp_client_session *s)
{
	const double limit = s->open->reconnect_for_s * 1000;
	double ms = PAUSE_MS_FIRST;
	for (uint32_t i = 1; i < s->standstill.links && ms < STANDSTILL_PAUSE_MS_MOST; i++)
		ms *= 2;
	if (ms > STANDSTILL_PAUSE_MS_MOST)
		ms = STANDSTILL_PAUSE_MS_MOST;
	s->returning = true;
	if (s->standstill.links > 0)
		pause_for(s, jittered((uint64_t)(ms < limit ? ms : limit)));
}

/* What the rest of the session calls. */

/* Its server may be on its way, too. */
static bool run_resumes(const struct gp_client_session *s)
{
	return s->open->run && gp_run_state_resumes(s->open->run);
}

/* Whether a new connection could go on where this one ended. */
static bool can_come_back(const struct gp_client_session *s)
{
	const bool cut_early = s->reached && s->strange <= STRANGE_MOST * s->servers.count;
	return s->open->reconnect_for_s > 0 && (s->met || run_resumes(s) || cut_early) &&
	       (s->has_token || s->steps == 0 || s->open->restart);
}

/* Servers that nobody has asked yet. */
static bool has_others(const struct gp_client_session *s)
{
	return asks_first_time(s) && gp_server_list_has_more(&s->servers);
}

static void end_of_list(struct gp_client_session *s, enum gp_status status, const char *last)
{
	char text[GP_ERR_TEXT], to[GP_SERVERS_TEXT + 16];
	if (s->servers.count > 1 && !s->opened)
		snprintf(text, sizeof text, "none of the %s takes the session; the last: %s", title(s, to), last);
	else
		snprintf(text, sizeof text, "%s", last);
	gp_client_session_fail(s, status, text);
}

static void end_damaged(struct gp_client_session *s, const char *last)
{
	char text[GP_ERR_TEXT];
	snprintf(text, sizeof text,
		 "the link to server %s damages data: bytes came with a wrong checksum on %d links in a row, without a "
		 "committed step between; the last: %s",
		 gp_client_session_server(s), s->damages, last);
	gp_client_session_fail(s, GP_DAMAGED, text);
}

void gp_client_session_lose(struct gp_client_session *s, enum gp_status status, const char *text)
{
	if (s->status != GP_OK || s->lost)
		return;
	s->linked = false;
	s->damages += status == GP_DAMAGED;
	if (status == GP_DENIED || !(can_come_back(s) || has_others(s))) {
		end_of_list(s, status, text);
		return;
	}
	if (s->damages >= GP_DAMAGES_MOST) {
		end_damaged(s, text);
		return;
	}
	s->lost = true;
	gp_err_set(&s->lost_err, status, 0, __FILE__, __LINE__, "%s", text);
}

void gp_client_session_refuse(struct gp_client_session *s, enum gp_status status, const char *text)
{
	if (s->status != GP_OK || s->lost)
		return;
	const bool loading = s->state == GP_LINK_LOAD;
	if (s->state > GP_LINK_LOAD || (loading && status == GP_DENIED)) { /* denied: another client has the run */
		gp_client_session_fail(s, status, text);
		return;
	}
	if (!gp_server_list_drop(&s->servers) || !(can_come_back(s) || has_others(s))) {
		end_of_list(s, status, text);
		return;
	}
	s->linked = false;
	s->lost = true;
	s->declines = loading;
	gp_err_set(&s->lost_err, status, 0, __FILE__, __LINE__, "%s", text);
}

void gp_client_session_take_failure(struct gp_client_session *s, enum gp_status status, const char *text)
{
	if (status == GP_DAMAGED)
		gp_client_session_lose(s, status, text);
	else
		gp_client_session_fail(s, status, text);
}

enum gp_status gp_client_session_connect(struct gp_client_session *s, struct gp_err *err)
{
	enum gp_status status = attempt(s, s->open->connect_timeout_s, err);
	if (status == GP_OK || s->status != GP_OK || !s->lost)
		return status;
	const bool busy = status == GP_BUSY || s->window_most > 0, others = has_others(s);
	const bool silent = s->state == GP_LINK_WELCOME || s->state == GP_LINK_LOAD; /* to HELLO, or to OPEN */
	if (!others && (busy || (!s->met && !s->reached) || silent))
		gp_log(session, GP_LOG_WARN, "%s; trying again for %g s", s->lost_err.text, s->open->reconnect_for_s);
	gp_client_session_hang_up(s, false);
	status = keep_trying(s, gp_now_ns(), false, err);
	s->reconnects += status == GP_OK && !busy && !others;
	return status;
}

enum gp_status gp_client_session_recover(struct gp_client_session *s, struct gp_err *err)
{
	const uint64_t begin_ns = gp_now_ns();
	const bool away = s->sent_away;
	gp_log(session, GP_LOG_WARN, "%s; reconnecting", s->lost_err.text);
	gp_server_list_search(&s->servers, away);
	if (away && s->lost_err.code == GP_PEER) /* not for its device, or for want of memory */
		gp_server_list_leave(&s->servers, begin_ns, SENT_AWAY_MS);
	s->window_most = 0; /* there may be more memory by now */
	gp_client_session_hang_up(s, false);
	s->frames->lost(s->arg);
	count_broken(s);
	if (stands_still(s))
		end_standstill(s);
	else
		pause_in_standstill(s);
	if (s->status == GP_OK)
		keep_trying(s, gp_now_ns(), !away, err);
	if (s->status != GP_OK) {
		*err = s->err;
		return s->status;
	}
	s->reconnects++;
	gp_log(session, GP_LOG_WARN, "connected to server %s again after %.1f s, at step %llu",
	       gp_client_session_server(s), seconds_since(begin_ns), (unsigned long long)s->steps);
	const bool rewound = s->rewound, renewed = s->renewed;
	s->rewound = s->renewed = false;
	if (rewound)
		GP_FAIL(err, GP_CANCELED, "the server was lost; the run goes on from step %llu",
			(unsigned long long)s->steps);
	s->frames->resumed(s->arg, s->has_place ? &s->server_place : NULL, renewed);
	if (s->status != GP_OK)
		*err = s->err;
	return s->status;
}
