/* SPDX-License-Identifier: Apache-2.0
 *
 * The links of a client's session, one after the other: the first, and those
 * after a broken one, with back-off. PROTOCOL.md section 5.6. What is
 * said on them is in client_session.c.
 * Test: tests/unit/test_resume.c
 */
#include "client/session/client_session_impl.h"

#include "client/job/security.h"
#include "client/trace/timeline.h"
#include "common/base/log.h"

#define PAUSE_MS_FIRST           100
#define PAUSE_MS_MOST            5000
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
	if (!s->ch)
		return;
	const bool tell = s->status != GP_OK && !s->peer_gave_up;
	if (tell)
		gp_control_send_error(s->ch, s->status, s->err.text, 0, &ignored);
	gp_channel_close(s->ch, flush || tell, channel_closed, s);
	while (s->ch)
		uv_run(s->loop, UV_RUN_ONCE);
	gp_free(s->param_up);
	s->param_up = NULL;
}

static void on_connected(void *arg, struct gp_conn *conn, const struct gp_err *why)
{
	struct gp_client_session *s = arg;
	struct gp_err err;
	s->connecting = NULL;
	s->strange += conn && !s->met;
	s->reached = conn != NULL;
	if (!conn) {
		gp_client_session_lose(s, why->code, why->text);
		return;
	}
	if (s->open->security && gp_client_secure(s->open->security, s->loop, s->host, &conn, &err) != GP_OK) {
		gp_client_session_fail(s, err.code, err.text);
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

static enum gp_status dial(struct gp_client_session *s, double timeout_s, struct gp_err *err)
{
	uint16_t port;
	enum gp_status status = gp_addr_parse(s->open->server, s->host, &port, err);
	if (status != GP_OK)
		return gp_err_prefix(err, "--server");
	s->state = GP_LINK_PREFACE;
	return gp_tcp_connect(s->loop, s->host, port, (uint64_t)(timeout_s * 1000), on_connected, s, &s->connecting,
			      err);
}

/* The server has lost a session of which steps are committed: goes on from a checkpoint, if there is one. */
static enum gp_status start_over(struct gp_client_session *s, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	enum gp_status status;
	if (o->restart)
		status = o->restart(o->restart_arg, s->server_checkpoint, err);
	else
		status = gp_err_set(err, GP_PEER, 0, __FILE__, __LINE__,
				    "server %s no longer has this session of %llu steps (it was restarted, or the link "
				    "was down for longer than its --resume-window), and there is no checkpoint",
				    o->server, (unsigned long long)s->steps);
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

static enum gp_status open_or_start_over(struct gp_client_session *s, struct gp_err *err)
{
	GP_TRY(choose_window(s, err));
	return s->steps > 0 || s->open->restart ? start_over(s, err) : gp_client_session_send_open(s, err);
}

static enum gp_status wait_until_ready(struct gp_client_session *s, struct gp_err *err)
{
	if (s->state == GP_LINK_OPEN)
		GP_TRY(open_or_start_over(s, err));
	GP_TRY(gp_client_session_await(s, &s->ready, err));
	gp_free(s->param_up); /* the channel has none of them any more */
	s->param_up = NULL;
	return GP_OK;
}

/* Makes one link, up to the point where steps may begin. */
static enum gp_status attempt(struct gp_client_session *s, double timeout_s, struct gp_err *err)
{
	s->lost = s->welcomed = s->resumed = s->answered = s->ready = s->peer_gave_up = false;
	s->patience_s = s->open->connect_timeout_s;
	GP_TRY(dial(s, timeout_s, err));
	GP_TRY(gp_client_session_await(s, &s->welcomed, err));
	if (!s->resumed)
		GP_TRY(wait_until_ready(s, err));
	s->opened = s->linked = true;
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
		uv_run(s->loop, UV_RUN_ONCE);
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

static double seconds_since(uint64_t begin_ns)
{
	return (double)(gp_now_ns() - begin_ns) * 1e-9;
}

static enum gp_status give_up(struct gp_client_session *s, const struct gp_err *last, struct gp_err *err)
{
	enum gp_status status =
		gp_err_set(err, last->code, 0, __FILE__, __LINE__, "gave up reconnecting to server %s after %g s: %s",
			   s->open->server, s->open->reconnect_for_s, last->text);
	gp_client_session_fail(s, status, err->text);
	return status;
}

/* A server that has no room has said when to come again: before that it would say the same. */
static void wait_as_told(struct gp_client_session *s)
{
	const double most = s->open->reconnect_for_s * 1000;
	if (s->retry_ms > 0)
		pause_for(s, (double)s->retry_ms < most ? s->retry_ms : (uint64_t)most);
}

/* Tries until a connection stands, the session fails for good, or time is up. */
static enum gp_status keep_trying(struct gp_client_session *s, uint64_t begin_ns, struct gp_err *err)
{
	const double limit = s->open->reconnect_for_s;
	uint64_t pause = PAUSE_MS_FIRST;
	s->returning = true;
	wait_as_told(s);
	if (s->status != GP_OK) {
		*err = s->err;
		return s->status;
	}
	for (;;) {
		double left = limit - seconds_since(begin_ns);
		double timeout = s->open->connect_timeout_s < left ? s->open->connect_timeout_s : left;
		s->retry_ms = 0;
		enum gp_status status = attempt(s, timeout > 0.1 ? timeout : 0.1, err);
		s->returning = status != GP_OK;
		if (status == GP_OK)
			return GP_OK;
		gp_client_session_hang_up(s, false);
		if (s->has_place && s->resumed)
			s->frames->lost(s->arg); /* the server may have gone on before the link broke again */
		if (s->status != GP_OK || !s->lost) {
			gp_client_session_fail(s, status, err->text);
			return status;
		}
		left = limit - seconds_since(begin_ns);
		if (left <= 0)
			return give_up(s, &s->lost_err, err);
		uint64_t ms = s->retry_ms > pause ? s->retry_ms : jittered(pause);
		gp_log(session, GP_LOG_DEBUG, "%s; again in %llu ms", s->lost_err.text, (unsigned long long)ms);
		pause_for(s, (double)ms < left * 1000 ? ms : (uint64_t)(left * 1000));
		if (s->status != GP_OK) {
			*err = s->err;
			return s->status;
		}
		pause = pause * 2 < PAUSE_MS_MOST ? pause * 2 : PAUSE_MS_MOST;
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
		what, seconds_since(n->begin_ns), s->open->server, n->links,
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
	const bool cut_early = s->reached && s->strange <= STRANGE_MOST;
	return s->open->reconnect_for_s > 0 && (s->met || run_resumes(s) || cut_early) &&
	       (s->has_token || s->steps == 0 || s->open->restart);
}

static void end_damaged(struct gp_client_session *s, const char *last)
{
	char text[GP_ERR_TEXT];
	snprintf(text, sizeof text,
		 "the link to server %s damages data: bytes came with a wrong checksum on %d links in a row, without a "
		 "committed step between; the last: %s",
		 s->open->server, s->damages, last);
	gp_client_session_fail(s, GP_DAMAGED, text);
}

void gp_client_session_lose(struct gp_client_session *s, enum gp_status status, const char *text)
{
	if (s->status != GP_OK || s->lost)
		return;
	s->linked = false;
	s->damages += status == GP_DAMAGED;
	if (!can_come_back(s) || status == GP_DENIED) {
		gp_client_session_fail(s, status, text);
		return;
	}
	if (s->damages >= GP_DAMAGES_MOST) {
		end_damaged(s, text);
		return;
	}
	s->lost = true;
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
	const bool busy = status == GP_BUSY || s->window_most > 0;
	if (busy || (!s->met && !s->reached) || s->state == GP_LINK_LOAD)
		gp_log(session, GP_LOG_WARN, "%s; trying again for %g s", s->lost_err.text, s->open->reconnect_for_s);
	gp_client_session_hang_up(s, false);
	status = keep_trying(s, gp_now_ns(), err);
	s->reconnects += status == GP_OK && !busy;
	return status;
}

enum gp_status gp_client_session_recover(struct gp_client_session *s, struct gp_err *err)
{
	const uint64_t begin_ns = gp_now_ns();
	gp_log(session, GP_LOG_WARN, "%s; reconnecting", s->lost_err.text);
	gp_client_session_hang_up(s, false);
	s->frames->lost(s->arg);
	count_broken(s);
	if (stands_still(s))
		end_standstill(s);
	else
		pause_in_standstill(s);
	if (s->status == GP_OK)
		keep_trying(s, gp_now_ns(), err);
	if (s->status != GP_OK) {
		*err = s->err;
		return s->status;
	}
	s->reconnects++;
	gp_log(session, GP_LOG_WARN, "connected to server %s again after %.1f s, at step %llu", s->open->server,
	       seconds_since(begin_ns), (unsigned long long)s->steps);
	const bool rewound = s->rewound;
	s->rewound = false;
	if (rewound)
		GP_FAIL(err, GP_CANCELED, "the server was lost; the run goes on from step %llu",
			(unsigned long long)s->steps);
	s->frames->resumed(s->arg, s->has_place ? &s->server_place : NULL);
	if (s->status != GP_OK)
		*err = s->err;
	return s->status;
}
