/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's side of a session: its life, waiting for answers, and what the channel reports. What is said:
 * client_session_messages.c. See client_session.h. Test: tests/unit/test_engine.c, tests/unit/test_resume.c
 */
#include "client/session/client_session_impl.h"

#include <string.h>

#include "client/job/security.h"
#include "client/monitor/run_monitor.h"
#include "client/trace/timeline.h"
#include "common/wire/graph_msg.h"
#include "common/base/log.h"
#include "common/base/loop.h"

#define ARENA_SPILL_BYTES (1u << 20)
#define DEADLINE_TICK_MS  250
#define PING_EVERY_NS     UINT64_C(1000000000)
#define PINGS_AT_FIRST    4 /* of a link: in so many steps, as the shortest round trip counts */

void gp_client_session_fail(struct gp_client_session *s, enum gp_status status, const char *text)
{
	if (s->status != GP_OK)
		return;
	s->status = gp_err_set(&s->err, status, 0, __FILE__, __LINE__, "%s", text);
	s->state = GP_LINK_CLOSED;
	s->linked = false;
}

void gp_client_session_gain(struct gp_client_session *s)
{
	s->damages = 0;
	s->moves = 0;
	s->standstill = (struct gp_client_standstill){0};
	if (s->committed <= s->furthest)
		return;
	s->furthest = s->committed;
	s->rewinds = 0;
}

void gp_client_session_move(struct gp_client_session *s)
{
	if (!s->keeps_place || s->moves >= GP_CLIENT_MOVES_MOST)
		return;
	s->moves += s->standstill.begin_ns > 0;
	s->standstill = (struct gp_client_standstill){0};
}

/* A user who waits for the end of training does not wait for the end of --reconnect-for. */
static void check_stop(struct gp_client_session *s)
{
	char text[GP_ERR_TEXT];
	if (!s->returning || !s->open->stop || !*s->open->stop)
		return;
	snprintf(text, sizeof text, "stopped by a signal after %llu steps, while reconnecting to server %.200s",
		 (unsigned long long)s->steps, gp_client_session_server(s));
	gp_client_session_fail(s, GP_CANCELED, text);
}

void gp_client_session_tell_monitor(const struct gp_client_session *s)
{
	if (!s->open->monitor)
		return;
	struct gp_run_link link = {.reconnects = s->reconnects, .window = s->window, .linked = s->linked};
	gp_client_session_figures(s, &link.account, &link.tcp, &link.rtt_us);
	gp_run_monitor_link(s->open->monitor, &link);
}

/* A frame that takes long to cross is progress all the while. */
static void note_progress(struct gp_client_session *s, uint64_t now)
{
	const uint64_t bytes = s->ch ? gp_account_frame_bytes(gp_channel_account(s->ch)) : 0;
	if (bytes >= s->progress_bytes && bytes - s->progress_bytes < GP_PROGRESS_BYTES)
		return;
	s->progress_bytes = bytes; /* fewer than before: of another channel */
	s->progress_ns = now;
}

/* PROTOCOL.md section 5.4: only while somebody waits for the server. A process that was stopped blames nobody for it. */
static void check_deadline(uv_timer_t *timer)
{
	struct gp_client_session *s = timer->data;
	const uint64_t now = gp_now_ns();
	char text[GP_ERR_TEXT];
	if (now - s->tick_ns > 2 * DEADLINE_TICK_MS * 1000000ull)
		s->progress_ns = now;
	s->tick_ns = now;
	note_progress(s, now);
	gp_client_session_tell_monitor(s);
	check_stop(s);
	if (!s->waiting || (double)(now - s->progress_ns) * 1e-9 < s->patience_s)
		return;
	snprintf(text, sizeof text, "server %.200s answers, but has made no progress for %g s",
		 gp_client_session_server(s), s->patience_s);
	if (s->state < GP_LINK_RUN)
		gp_client_session_lose(s, GP_TIMEOUT, text); /* over another link, or at another server, it may go on */
	else
		gp_client_session_fail(s, GP_TIMEOUT, text);
}

static void run_until(struct gp_client_session *s, const bool *flag)
{
	s->progress_ns = gp_now_ns();
	s->waiting = true;
	while (!*flag && s->status == GP_OK && !s->lost)
		gp_loop_turn(s->loop);
	s->waiting = false;
}

enum gp_status gp_client_session_await(struct gp_client_session *s, const bool *flag, struct gp_err *err)
{
	run_until(s, flag);
	if (s->status != GP_OK)
		*err = s->err;
	else if (!*flag)
		*err = s->lost_err;
	else
		return GP_OK;
	return err->code;
}

enum gp_status gp_client_session_wait(struct gp_client_session *s, const bool *flag, struct gp_err *err)
{
	for (;;) {
		run_until(s, flag);
		if (s->status != GP_OK) {
			*err = s->err;
			return s->status;
		}
		if (*flag)
			return GP_OK;
		GP_TRY(gp_client_session_recover(s, err));
	}
}

enum gp_status gp_client_session_wait_here(struct gp_client_session *s, const bool *flag, struct gp_err *err)
{
	while (!*flag && s->status == GP_OK)
		gp_loop_turn(s->loop);
	if (s->status == GP_OK)
		return GP_OK;
	*err = s->err;
	return s->status;
}

void gp_client_session_ping(struct gp_client_session *s)
{
	if (!s->linked || !s->open->timeline)
		return;
	const struct gp_ping_answered ping = gp_channel_ping_answered(s->ch);
	gp_timeline_answered(s->open->timeline, &ping);
	const bool early = s->pings > 0 && s->pings < PINGS_AT_FIRST;
	s->pings++;
	if (early || gp_now_ns() - ping.answered_ns > PING_EVERY_NS)
		gp_channel_ping(s->ch);
}

/* Parameters coming down. */

static enum gp_status param_begin(struct gp_client_session *s, const struct gp_frame_head *head, struct gp_frame **out,
				  struct gp_err *err)
{
	if (!s->fetch_into || s->param_down_next >= s->body->params || head->chunk != (uint32_t)s->param_down_next)
		GP_FAIL(err, GP_PROTO, "param_down of parameter %u is not expected", head->chunk);
	if (head->codec != 0 || head->step != s->committed)
		GP_FAIL(err, GP_PROTO, "param_down of parameter %u is of step %llu and codec %u, not raw of step %llu",
			head->chunk, (unsigned long long)head->step, head->codec, (unsigned long long)s->committed);
	const struct gp_param *p = &s->body->param[head->chunk];
	struct gp_frame *f = &s->param_down;
	f->payload = (uint8_t *)s->fetch_into->value[gp_graph_find_param(s->fetch_into->graph, p->name)];
	f->cap = f->tensor_bytes = p->count * sizeof(float);
	if (head->payload_len != f->cap)
		GP_FAIL(err, GP_PROTO, "parameter %s came with %llu bytes, not %zu", p->name,
			(unsigned long long)head->payload_len, f->cap);
	s->param_down_next++;
	*out = f;
	return GP_OK;
}

/* What the channel reports. */

static void channel_opened(void *arg)
{
	struct gp_client_session *s = arg;
	struct gp_err err;
	s->state = GP_LINK_WELCOME;
	s->met = true;
	s->progress_ns = gp_now_ns();
	if (gp_client_session_send_hello(s, &err) != GP_OK && !s->lost)
		gp_client_session_fail(s, err.code, err.text);
}

/* A link that this end has given up may still bring what was on its way: a damaged tensor is due again, and nothing that
 * comes behind it is. */
static enum gp_status check_not_lost(const struct gp_client_session *s, struct gp_err *err)
{
	if (s->lost)
		GP_FAIL(err, GP_PEER, "this link was given up");
	return GP_OK;
}

static enum gp_status channel_control(void *arg, struct gp_span bytes, struct gp_err *err)
{
	struct gp_client_session *s = arg;
	const Gpsplit__Control *m;
	GP_TRY(check_not_lost(s, err));
	enum gp_status status = gp_control_unpack(&s->arena, bytes, &m, err);
	if (status == GP_OK && m->body_case != GPSPLIT__CONTROL__BODY_INTERVALS) /* figures are no progress */
		s->progress_ns = gp_now_ns();
	if (status == GP_OK)
		status = gp_client_session_dispatch(s, m, err);
	if (status != GP_OK)
		gp_client_session_refuse(s, status, err->text);
	return status;
}

static enum gp_status channel_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
					  struct gp_err *err)
{
	struct gp_client_session *s = arg;
	GP_TRY(check_not_lost(s, err));
	enum gp_status status = gp_frame_check(GP_END_SERVER, s->state, s->id, head, err);
	if (status == GP_OK && head->type == GP_FRAME_PARAM_DOWN)
		status = param_begin(s, head, out, err);
	else if (status == GP_OK)
		status = s->frames->frame_begin(s->arg, head, out, err);
	if (status != GP_OK)
		gp_client_session_fail(s, status, err->text);
	return status;
}

static enum gp_status channel_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	struct gp_client_session *s = arg;
	s->progress_ns = gp_now_ns();
	enum gp_status status = f == &s->param_down ? gp_frame_verify(f, err) : s->frames->frame(s->arg, f, err);
	s->params_arrived += f == &s->param_down && status == GP_OK;
	if (status != GP_OK)
		gp_client_session_take_failure(s, status, err->text);
	return status;
}

static void channel_sent(void *arg, struct gp_frame *f)
{
	struct gp_client_session *s = arg;
	s->progress_ns = gp_now_ns();
	if (f->head.type == GP_FRAME_PARAM_UP) {
		s->params_sent++;
		s->ready = s->answered && gp_client_session_weights_are_back(s);
	} else {
		s->frames->sent(s->arg, f);
	}
}

static void channel_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct gp_client_session *s = arg;
	char text[GP_ERR_TEXT];
	const bool ours = s->status != GP_OK; /* this end gives up, and says why */
	const bool gone =
		!ours && (status == GP_OK || status == GP_PEER || status == GP_TIMEOUT || status == GP_DAMAGED);
	s->peer_gave_up |= gone;
	snprintf(text, sizeof text, "server %s closed the connection", gp_client_session_server(s));
	if (status != GP_OK)
		snprintf(text, sizeof text, "%s", err->text);
	if (gone)
		gp_client_session_lose(s, status == GP_OK ? GP_PEER : status, text);
	else /* an ERROR that only asks for another connection ends the channel, too */
		gp_client_session_refuse(s, status, text);
}

const struct gp_channel_cbs gp_client_session_channel_cbs = {.opened = channel_opened,
							     .control = channel_control,
							     .frame_begin = channel_frame_begin,
							     .frame = channel_frame,
							     .sent = channel_sent,
							     .ended = channel_ended};

/* Life. */

static void open_timers(struct gp_client_session *s)
{
	uv_timer_init(s->loop, &s->timer);
	uv_timer_init(s->loop, &s->pause);
	s->timer.data = s->pause.data = s;
	s->timers_open = 2;
	uv_timer_start(&s->timer, check_deadline, DEADLINE_TICK_MS, DEADLINE_TICK_MS);
}

enum gp_status gp_client_session_open(struct gp_client_session *s, uv_loop_t *loop, const struct gp_client_open *open,
				      const struct gp_client_frames *frames, void *arg, struct gp_err *err)
{
	memset(s, 0, sizeof *s);
	s->loop = loop;
	s->open = open;
	s->body = open->body;
	s->frames = frames;
	s->arg = arg;
	if (open->run)
		memcpy(s->run_id, gp_run_state_id(open->run), sizeof s->run_id);
	else
		GP_TRY(gp_random_bytes(s->run_id, sizeof s->run_id, err));
	GP_TRY(gp_server_list_parse(&s->servers, open->server, err));
	gp_control_arena_init(&s->arena, ARENA_SPILL_BYTES);
	if (gp_client_session_clips_norm(s))
		GP_TRY(gp_control_arena_reserve(&s->arena, GP_CONTROL_SQUARES_BYTES(s->body->params), err));
	open_timers(s);
	enum gp_status status = gp_client_session_connect(s, err);
	if (status != GP_OK) {
		gp_client_session_fail(s, status, err->text);
		gp_client_session_close(s);
	}
	return status;
}

static enum gp_status send_commit(struct gp_client_session *s, struct gp_err *err)
{
	s->committed_ns = gp_now_ns();
	return gp_client_session_check_sent(s, gp_control_send_commit(s->ch, &s->last_commit, err), err);
}

enum gp_status gp_client_session_commit(struct gp_client_session *s, const struct gp_commit *c, struct gp_err *err)
{
	gp_require(c->step == s->steps && s->committed == s->steps);
	s->last_commit = *c;
	s->steps++;
	s->all_committed = false;
	enum gp_status status = s->linked ? send_commit(s, err) : GP_OK;
	return status == GP_PEER ? GP_OK : status; /* lost: said again when the session is resumed */
}

void gp_client_session_set_body(struct gp_client_session *s, const struct gp_graph *body)
{
	s->body = body;
}

enum gp_status gp_client_session_settle(struct gp_client_session *s, struct gp_err *err)
{
	return gp_client_session_wait(s, &s->all_committed, err);
}

void gp_client_session_rewind(struct gp_client_session *s, uint64_t step, bool again)
{
	s->rewound |= s->opened && (again || step != s->steps);
	if (s->rewound)
		s->fetch_into =
			NULL; /* parameters of that step may have other shapes; its caller hears of GP_CANCELED */
	s->steps = s->committed = step;
	s->all_committed = true;
}

static enum gp_status ask_for_params(struct gp_client_session *s, struct gp_err *err)
{
	s->param_down_next = s->params_arrived = 0;
	return gp_client_session_check_sent(s, gp_control_send_fetch_params(s->ch, err), err);
}

enum gp_status gp_client_session_fetch_again(struct gp_client_session *s, struct gp_err *err)
{
	return s->fetch_into && !s->params_done ? ask_for_params(s, err) : GP_OK;
}

/* COMMITTED was lost with the link; WELCOME says what it would have said about the checkpoint, except for the
 * reason. */
static enum gp_status make_up_for_answer(struct gp_client_session *s, struct gp_err *err)
{
	const bool has_one = s->server_checkpoint == s->server_steps;
	return s->frames->checkpointed(s->arg, s->last_commit.step,
				       has_one ? NULL : "it has none; why not, the link has lost", err);
}

enum gp_status gp_client_session_go_on(struct gp_client_session *s, struct gp_err *err)
{
	const uint64_t at = s->server_steps;
	if (at < s->committed || at > s->steps || at + 1 < s->steps) {
		gp_err_set(err, GP_PROTO, 0, __FILE__, __LINE__,
			   "server %s resumed the session at step %llu, this side is at %llu",
			   gp_client_session_server(s), (unsigned long long)at, (unsigned long long)s->steps);
		gp_client_session_fail(s, GP_PROTO, err->text);
		return GP_PROTO;
	}
	const bool answer_lost = s->committed < at && s->last_commit.checkpoint;
	const bool gains = s->committed < at;
	s->committed = at;
	s->all_committed = at == s->steps;
	if (gains)
		gp_client_session_gain(s);
	if (answer_lost && make_up_for_answer(s, err) != GP_OK) {
		gp_client_session_fail(s, err->code, err->text);
		return err->code;
	}
	if (!s->all_committed)
		GP_TRY(send_commit(s, err));
	return gp_client_session_fetch_again(s, err);
}

enum gp_status gp_client_session_fetch(struct gp_client_session *s, struct gp_weights *w, struct gp_err *err)
{
	GP_TRY(gp_client_session_settle(s, err));
	s->params_done = false;
	s->fetch_into = w;
	enum gp_status status = s->linked ? ask_for_params(s, err) : GP_OK;
	if (status == GP_OK || s->lost)
		status = gp_client_session_wait(s, &s->params_done, err);
	s->fetch_into = NULL;
	return status;
}

const char *gp_client_session_server(const struct gp_client_session *s)
{
	return s->servers.title;
}

void gp_client_session_figures(const struct gp_client_session *s, struct gp_account *account,
			       struct gp_tcp_figures *tcp, uint32_t *rtt_us)
{
	struct gp_tcp_figures now;
	*account = s->account;
	*tcp = s->past_tcp;
	*rtt_us = s->rtt_us;
	if (!s->ch)
		return;
	gp_account_add(account, gp_channel_account(s->ch));
	gp_channel_figures(s->ch, &now);
	gp_tcp_figures_add(tcp, &now);
	if (gp_channel_rtt_us(s->ch) > 0)
		*rtt_us = gp_channel_rtt_us(s->ch);
}

static void timer_closed(uv_handle_t *h)
{
	struct gp_client_session *s = h->data;
	s->timers_open--;
}

void gp_client_session_close(struct gp_client_session *s)
{
	struct gp_err ignored;
	const bool bye = s->linked && gp_control_send_bye(s->ch, &ignored) == GP_OK;
	gp_client_session_hang_up(s, bye);
	if (s->timers_open) {
		uv_close((uv_handle_t *)&s->timer, timer_closed);
		uv_close((uv_handle_t *)&s->pause, timer_closed);
	}
	while (s->timers_open)
		gp_loop_turn(s->loop);
	gp_control_arena_deinit(&s->arena);
}
