/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's side of a session: what is said, and waiting for answers. See
 * client_session.h. Test: tests/unit/test_engine.c, tests/unit/test_resume.c
 */
#include "client/session/client_session_impl.h"

#include <string.h>

#include "client/job/security.h"
#include "client/trace/timeline.h"
#include "common/wire/graph_msg.h"
#include "common/base/log.h"

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
	s->standstill = (struct gp_client_standstill){0};
}

void gp_client_session_move(struct gp_client_session *s)
{
	if (s->keeps_place)
		s->standstill = (struct gp_client_standstill){0};
}

/* A user who waits for the end of training does not wait for the end of --reconnect-for. */
static void check_stop(struct gp_client_session *s)
{
	char text[192];
	if (!s->returning || !s->open->stop || !*s->open->stop)
		return;
	snprintf(text, sizeof text, "stopped by a signal after %llu steps, while reconnecting to server %s",
		 (unsigned long long)s->steps, s->open->server);
	gp_client_session_fail(s, GP_CANCELED, text);
}

/* PROTOCOL.md section 5.4: only while somebody waits for the server. A process that was stopped blames nobody for it. */
static void check_deadline(uv_timer_t *timer)
{
	struct gp_client_session *s = timer->data;
	const uint64_t now = gp_now_ns();
	char text[192];
	if (now - s->tick_ns > 2 * DEADLINE_TICK_MS * 1000000ull)
		s->progress_ns = now;
	s->tick_ns = now;
	check_stop(s);
	if (!s->waiting || (double)(now - s->progress_ns) * 1e-9 < s->patience_s)
		return;
	snprintf(text, sizeof text, "server %s answers, but has made no progress for %g s", s->open->server,
		 s->patience_s);
	if (s->opened && s->state < GP_LINK_RUN)
		gp_client_session_lose(s, GP_TIMEOUT, text); /* the session may still be resumed over another link */
	else
		gp_client_session_fail(s, GP_TIMEOUT, text);
}

static void run_until(struct gp_client_session *s, const bool *flag)
{
	s->progress_ns = gp_now_ns();
	s->waiting = true;
	while (!*flag && s->status == GP_OK && !s->lost)
		uv_run(s->loop, UV_RUN_ONCE);
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
		uv_run(s->loop, UV_RUN_ONCE);
	if (s->status == GP_OK)
		return GP_OK;
	*err = s->err;
	return s->status;
}

/* GP_PEER: the connection is dead, which the channel tells a moment later. */
static enum gp_status check_sent(struct gp_client_session *s, enum gp_status status, const struct gp_err *err)
{
	if (status == GP_PEER)
		gp_client_session_lose(s, status, err->text);
	return status;
}

/* Control messages. */

/* A live client has the step that it is at, too. Last comes 0: a client that writes checkpoints can always begin anew. */
static size_t list_checkpoints(const struct gp_client_session *s, uint64_t out[GP_CHECKPOINTS_MAX])
{
	uint64_t stored[GP_CHECKPOINTS_MAX];
	size_t n = 0;
	if (!s->open->run)
		return 0;
	const int count = gp_run_state_list(s->open->run, stored);
	if (s->opened && s->steps > 0)
		out[n++] = s->steps;
	for (int i = 0; i < count && n < GP_CHECKPOINTS_MAX - 1; i++)
		if (!s->opened || stored[i] < s->steps)
			out[n++] = stored[i];
	out[n++] = 0;
	return n;
}

static enum gp_status send_hello(struct gp_client_session *s, struct gp_err *err)
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	hello.version = GP_PROTO_VERSION;
	hello.agent = (char *)"gpclient " GP_VERSION;
	if (s->open->security) {
		hello.token.data = (uint8_t *)s->open->security->token;
		hello.token.len = strlen(s->open->security->token);
	}
	uint64_t checkpoint[GP_CHECKPOINTS_MAX];
	hello.n_checkpoint = list_checkpoints(s, checkpoint);
	hello.checkpoint = checkpoint;
	hello.run_id = (ProtobufCBinaryData){sizeof s->run_id, s->run_id};
	Gpsplit__Place place = GPSPLIT__PLACE__INIT;
	struct gp_place here;
	int up, down;
	s->has_place = false;
	if (s->opened && s->has_token) {
		hello.resume_token = (ProtobufCBinaryData){sizeof s->token, s->token};
		hello.last_step = s->steps;
		s->has_place = s->keeps_place && s->frames->place(s->arg, &here, &up, &down);
		if (s->has_place) {
			gp_place_write(&here, down, up, &place);
			hello.place = &place;
		} else {
			hello.state_hash = s->frames->state_hash(s->arg);
		}
	}
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	s->hello_ns = gp_now_ns();
	return check_sent(s, gp_control_send(s->ch, &m, err), err);
}

/* A checkpoint has its own. */
static bool sends_weights(const struct gp_client_session *s)
{
	return s->open->weights && s->steps == 0;
}

static enum gp_status send_graph(struct gp_client_session *s, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	Gpsplit__Open open = GPSPLIT__OPEN__INIT;
	struct gp_session_parts parts;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	if (o->spec->window > s->window_limit && o->window_given)
		GP_FAIL(err, GP_INVALID, "--window %d is over the server's limit of %d", o->spec->window,
			s->window_limit);
	s->window = o->spec->window < s->window_limit ? o->spec->window : s->window_limit;
	if (s->window_most > 0 && s->window > s->window_most)
		s->window = s->window_most;
	GP_TRY(gp_graph_to_msg(o->body, &open.graph, err));
	struct gp_session_spec spec = *o->spec;
	spec.window = s->window;
	gp_session_spec_write(&spec, &open, &parts);
	open.weights = sends_weights(s) ? (uint32_t)o->body->params : 0;
	open.intervals = o->timeline != NULL;
	open.restore_step = s->steps;
	open.state_hash = s->steps > 0 ? s->frames->state_hash(s->arg) : 0;
	m.body_case = GPSPLIT__CONTROL__BODY_OPEN;
	m.open = &open;
	enum gp_status status = check_sent(s, gp_control_send(s->ch, &m, err), err);
	gp_graph_msg_free(open.graph);
	return status;
}

/* Borrows the values of `weights` until READY. */
static enum gp_status send_weights(struct gp_client_session *s, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	if (!sends_weights(s))
		return GP_OK;
	s->param_up = gp_calloc((size_t)o->body->params, sizeof *s->param_up);
	s->params_sent = 0;
	if (!s->param_up)
		GP_FAIL(err, GP_NOMEM, "out of memory for %d parameters", o->body->params);
	for (int i = 0; i < o->body->params; i++) {
		const struct gp_param *p = &o->body->param[i];
		struct gp_frame *f = &s->param_up[i];
		f->payload = (uint8_t *)o->weights->value[gp_graph_find_param(o->weights->graph, p->name)];
		f->cap = f->tensor_bytes = p->count * sizeof(float);
		f->head = (struct gp_frame_head){.type = GP_FRAME_PARAM_UP,
						 .chunk = (uint32_t)i,
						 .session = s->id,
						 .payload_len = f->cap,
						 .checksum = gp_frame_checksum(f->payload, f->cap)};
		gp_channel_send_frame(s->ch, f);
	}
	return GP_OK;
}

enum gp_status gp_client_session_send_open(struct gp_client_session *s, struct gp_err *err)
{
	s->state = GP_LINK_LOAD;
	s->committed = s->steps;
	s->all_committed = true;
	GP_TRY(send_graph(s, err));
	return send_weights(s, err);
}

/* A server that does not know the field would ignore it in OPEN, and compute in fp32. */
static enum gp_status check_precision(const struct gp_client_session *s, const Gpsplit__Welcome *m, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	if (o->spec->precision == GP_PRECISION_FP32)
		return GP_OK;
	for (size_t i = 0; i < m->n_precision; i++)
		if (m->precision[i] == (uint32_t)o->spec->precision)
			return GP_OK;
	GP_FAIL(err, GP_PEER, "server %s cannot compute in %s; use --precision fp32 or another server", o->server,
		gp_precision_name(o->spec->precision));
}

/* Otherwise the user would learn it only when the first checkpoint is due. */
static enum gp_status check_checkpoints(struct gp_client_session *s, const Gpsplit__Welcome *m, struct gp_err *err)
{
	char text[256];
	s->stored_count = m->n_stored < GP_CHECKPOINTS_MAX ? m->n_stored : GP_CHECKPOINTS_MAX;
	for (size_t i = 0; i < s->stored_count; i++)
		s->stored[i] = m->stored[i];
	if (!s->open->run || !m->checkpoint_error || !*m->checkpoint_error)
		return GP_OK;
	gp_text_sanitize(m->checkpoint_error, text, sizeof text);
	GP_TRY(gp_run_state_check_start(s->open->run, s->open->server, NULL, 0, text, err));
	gp_err_set(err, GP_PEER, 0, __FILE__, __LINE__, "server %s: %s", s->open->server, text);
	return gp_run_state_refused(s->open->run, err);
}

static enum gp_status check_limits(const struct gp_client_session *s, const Gpsplit__Limits *limits, struct gp_err *err)
{
	if (!limits || limits->window < 1 || limits->step_timeout_ms > GP_STEP_TIMEOUT_MS_MAX)
		GP_FAIL(err, GP_PROTO,
			"server %s gave limits that no session can keep: a window of %u chunks and a step timeout of "
			"%u ms (at least 1 chunk, at most %u ms)",
			s->open->server, limits ? limits->window : 0, limits ? limits->step_timeout_ms : 0,
			GP_STEP_TIMEOUT_MS_MAX);
	return GP_OK;
}

/* What came whole up there over the last link need not go again. */
static void note_server_place(struct gp_client_session *s)
{
	uint64_t has = 0;
	for (int i = 0; i < GP_GRAPH_MAX_PORTS; i++)
		has += s->server_place.act[i] + s->server_place.grad[i];
	if (has != s->server_has)
		gp_client_session_move(s);
	s->server_has = has;
}

/* A server that has resumed the session answers to where this end is. */
static enum gp_status take_place(struct gp_client_session *s, const Gpsplit__Welcome *m, struct gp_err *err)
{
	struct gp_place here;
	int up, down;
	s->keeps_place = m->keeps_place;
	s->has_place &= m->resumed;
	if (!s->has_place)
		return GP_OK;
	if (!m->place || !s->frames->place(s->arg, &here, &up, &down))
		GP_FAIL(err, GP_PROTO, "server %s resumed the session, and does not say where it is within the step",
			s->open->server);
	GP_TRY(gp_place_read(m->place, up, down, &s->server_place, err));
	note_server_place(s);
	return GP_OK;
}

static enum gp_status on_welcome(struct gp_client_session *s, const Gpsplit__Welcome *m, struct gp_err *err)
{
	char agent[64];
	if (m->version != GP_PROTO_VERSION)
		GP_FAIL(err, GP_PROTO, "the server speaks version %u of the protocol, this client version %d",
			m->version, GP_PROTO_VERSION);
	GP_TRY(check_limits(s, m->limits, err));
	GP_TRY(check_precision(s, m, err));
	GP_TRY(check_checkpoints(s, m, err));
	if (m->resume_token.len > 0 && m->resume_token.len != GP_TOKEN_BYTES)
		GP_FAIL(err, GP_PROTO, "server %s gave a resume token of %zu bytes, not %d", s->open->server,
			m->resume_token.len, GP_TOKEN_BYTES);
	if (m->resumed && !(s->opened && s->has_token))
		GP_FAIL(err, GP_PROTO, "server %s resumed a session, which was not asked for", s->open->server);
	s->has_token = m->resume_token.len > 0;
	if (s->has_token)
		memcpy(s->token, m->resume_token.data, GP_TOKEN_BYTES);
	if (m->resumed && m->session != s->id)
		GP_FAIL(err, GP_PROTO, "server %s resumed session %llu, not session %llu", s->open->server,
			(unsigned long long)m->session, (unsigned long long)s->id);
	GP_TRY(take_place(s, m, err));
	s->id = m->session;
	s->server_limit_bytes = m->limits->memory_bytes;
	s->window_limit = m->limits->window > INT32_MAX ? INT32_MAX : (int)m->limits->window;
	gp_log(session, GP_LOG_INFO, "session %llu with %s", (unsigned long long)s->id,
	       gp_text_sanitize(m->agent, agent, sizeof agent));
	gp_channel_set_segment_bytes(s->ch, m->limits->segment_bytes);
	if (m->limits->step_timeout_ms * 1e-3 >
	    s->patience_s) /* a plan may take longer to build than an answer to HELLO */
		s->patience_s = m->limits->step_timeout_ms * 1e-3;
	s->server_steps = m->last_step;
	s->server_checkpoint = m->checkpoint;
	s->resumed = m->resumed;
	s->welcome_ns = gp_now_ns();
	s->welcomed = true;
	s->state = m->resumed ? GP_LINK_RUN : GP_LINK_OPEN;
	const bool prepares = s->open->restart || gp_client_session_chooses_window(s); /* not within a callback */
	return m->resumed || s->steps > 0 || prepares ? GP_OK : gp_client_session_send_open(s, err);
}

/* What the server says of a checkpoint. */
static enum gp_status note_checkpoint(struct gp_client_session *s, const Gpsplit__Committed *m, struct gp_err *err)
{
	char text[256];
	if (!s->last_commit.checkpoint)
		return GP_OK;
	if (m->checkpoint)
		return s->frames->checkpointed(s->arg, m->step, NULL, err);
	if (m->checkpoint_error && *m->checkpoint_error)
		gp_text_sanitize(m->checkpoint_error, text, sizeof text);
	else
		snprintf(text, sizeof text, "it has written none");
	return s->frames->checkpointed(s->arg, m->step, text, err);
}

static enum gp_status check_ranks(const struct gp_client_session *s, const Gpsplit__Committed *m, struct gp_err *err)
{
	const struct gp_decay_ranks *r = &s->last_commit.ranks;
	if (m->n_rank != (size_t)r->count ||
	    (r->count > 0 && memcmp(m->rank, r->rank, m->n_rank * sizeof *m->rank) != 0))
		GP_FAIL(err, GP_PROTO, "server %s has other ranks than the commit of step %llu named", s->open->server,
			(unsigned long long)m->step);
	return GP_OK;
}

static enum gp_status check_rungs(const struct gp_client_session *s, const Gpsplit__Committed *m, struct gp_err *err)
{
	const struct gp_rungs *r = &s->last_commit.rungs;
	if (m->n_rung != (size_t)r->count ||
	    (r->count > 0 && memcmp(m->rung, r->rung, m->n_rung * sizeof *m->rung) != 0))
		GP_FAIL(err, GP_PROTO, "server %s has other codecs than the commit of step %llu named", s->open->server,
			(unsigned long long)m->step);
	return GP_OK;
}

/* False: the rung is none of this session, or a number cannot be. */
static bool read_survey(const struct gp_client_session *s, const Gpsplit__Surveyed *m, struct gp_committed_survey *out)
{
	const bool down = m->direction == GP_ACT_DOWN || m->direction == GP_GRAD_DOWN;
	if (!down || m->rung >= (uint32_t)s->open->spec->ladder[m->direction].rungs || m->tensor_bytes == 0 ||
	    !(m->error >= 0) || !(m->cosine >= -1 && m->cosine <= 1))
		return false;
	*out = (struct gp_committed_survey){.direction = (enum gp_direction)m->direction,
					    .rung = (int)m->rung,
					    .tensor_bytes = m->tensor_bytes,
					    .payload_bytes = m->payload_bytes,
					    .error = m->error,
					    .cosine = m->cosine};
	return true;
}

static enum gp_status tell_committed(struct gp_client_session *s, const Gpsplit__Committed *m, struct gp_err *err)
{
	struct gp_committed c = {.link_bytes = m->link_bytes, .link_busy_us = m->link_busy_us};
	if (m->n_surveyed > GP_COMMITTED_SURVEYED)
		GP_FAIL(err, GP_PROTO, "server %s surveyed %zu codecs; there are %d at most", s->open->server,
			m->n_surveyed, GP_COMMITTED_SURVEYED);
	for (size_t i = 0; i < m->n_surveyed; i++)
		if (!read_survey(s, m->surveyed[i], &c.survey[c.surveyed++]))
			GP_FAIL(err, GP_PROTO, "server %s surveyed what this session has not", s->open->server);
	if (gp_session_has_ladder(s->open->spec))
		s->frames->committed(s->arg, m->step, &c);
	return GP_OK;
}

static void note_committed(const struct gp_client_session *s)
{
	gp_timeline_note_times(s->open->timeline, GP_AT_COMMIT, s->committed * (uint64_t)s->open->spec->chunks,
			       s->committed_ns, gp_now_ns());
}

static enum gp_status on_committed(struct gp_client_session *s, const Gpsplit__Committed *m, struct gp_err *err)
{
	const uint64_t step = m->step;
	if (s->committed >= s->steps || step != s->committed)
		GP_FAIL(err, GP_PROTO, "the server committed step %llu, which was not asked for",
			(unsigned long long)step);
	GP_TRY(check_ranks(s, m, err));
	GP_TRY(check_rungs(s, m, err));
	GP_TRY(tell_committed(s, m, err));
	note_committed(s);
	s->committed++;
	s->all_committed = s->committed == s->steps;
	gp_client_session_gain(s);
	return note_checkpoint(s, m, err);
}

static enum gp_status on_params_done(struct gp_client_session *s, uint32_t count, struct gp_err *err)
{
	if (!s->fetch_into || s->params_arrived != s->body->params || count != (uint32_t)s->body->params)
		GP_FAIL(err, GP_PROTO, "the server sent %d of %d parameters", s->params_arrived, s->body->params);
	s->params_done = true;
	return GP_OK;
}

bool gp_client_session_clips_norm(const struct gp_client_session *s)
{
	return s->open->spec->optim.clip_norm > 0.0 && !s->open->spec->eval_only;
}

/* Whether the channel is through with the frames that have the weights. */
static bool weights_are_back(const struct gp_client_session *s)
{
	return !sends_weights(s) || s->params_sent == s->body->params;
}

/* Whether all of their bytes were given to the connection. When its last write has ended, the channel learns only in the
 * next turn of the loop, and READY may come before. */
static bool weights_have_left(const struct gp_client_session *s)
{
	const struct gp_frame *last = &s->param_up[s->body->params - 1];
	return last->at == GP_FRAME_HEADER_BYTES + last->head.payload_len;
}

static enum gp_status on_ready(struct gp_client_session *s, const Gpsplit__Ready *m, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	if (!weights_are_back(s) && !weights_have_left(s))
		GP_FAIL(err, GP_PROTO, "server %s is ready before it has the weights", o->server);
	if (!m->clips && !o->spec->eval_only && (o->spec->optim.clip_norm > 0.0 || o->spec->optim.clip_value > 0.0))
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old to clip gradients", o->server);
	if (!m->calibrates && o->spec->calibrates)
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old to take statistics anew (--recalibrate)", o->server);
	if (!m->decays && o->spec->decays.count > 0)
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old for decaying ranks (--insert decay)", o->server);
	if (!m->ladders && gp_session_has_ladder(o->spec))
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old to change codecs (--codec auto); name a codec",
			o->server);
	s->takes_lengths = m->lengths && o->spec->lengths;
	if (o->spec->lengths && !m->lengths)
		gp_log(session, GP_LOG_WARN,
		       "server %s (%s) computes all positions of every chunk: padding is not left out", o->server,
		       m->device[0] ? "its device does" : "it is too old");
	s->tells = m->intervals && o->timeline;
	if (o->traces && !m->intervals)
		gp_log(session, GP_LOG_WARN,
		       "server %s is too old to tell when it did what: --trace has this side alone, and bound_by "
		       "guesses "
		       "at the server's",
		       o->server);
	s->server_memory_bytes = m->memory_bytes;
	s->server_device_bytes = m->device_memory_bytes;
	gp_text_sanitize(m->device, s->server_device, sizeof s->server_device);
	gp_log(session, GP_LOG_INFO, "session %llu runs on %s", (unsigned long long)s->id, s->server_device);
	s->state = GP_LINK_RUN;
	s->answered = true;
	s->ready = weights_are_back(s);
	return GP_OK;
}

/* Statuses of the peer's ERROR that this side ends with as well; all others become GP_PEER. */
static enum gp_status error_code(uint32_t code)
{
	return code == GP_BUSY || code == GP_DENIED || code == GP_DEVICE ? (enum gp_status)code : GP_PEER;
}

/* A device may fail once and work again, or the server may have another one. If it fails twice without a step
 * between, it does not. */
static bool device_may_recover(struct gp_client_session *s)
{
	if (!s->open->restart || s->steps < s->device_failed_after)
		return false;
	s->device_failed_after = s->steps + 1;
	return true;
}

bool gp_client_session_chooses_window(const struct gp_client_session *s)
{
	return s->open->choose_window && !s->window_chosen;
}

/* A smaller window takes less of the server's memory. */
static bool narrows_window(struct gp_client_session *s, uint32_t code)
{
	const struct gp_client_open *o = s->open;
	if (!o->choose_window || o->reconnect_for_s <= 0 || s->state != GP_LINK_LOAD || s->window <= GP_WINDOW_FIRST ||
	    (code != GP_NOMEM && code != GP_BUSY))
		return false;
	s->window_most = s->window / 2 > GP_WINDOW_FIRST ? s->window / 2 : GP_WINDOW_FIRST;
	gp_log(session, GP_LOG_INFO, "server %s has no memory for %d chunks in flight: it is asked for %d", o->server,
	       s->window, s->window_most);
	return true;
}

/* Whether another connection is worth trying: when there is no room for us now; when the server stops, or has lost a
 * checkpoint, and there is one to go on from; when a device failed and there is a checkpoint; when the opening took
 * too long, as when this process was stopped for a while. */
static bool error_passes(struct gp_client_session *s, uint32_t code)
{
	if (code == GP_DEVICE)
		return device_may_recover(s);
	if (narrows_window(s, code))
		return true;
	return (code == GP_BUSY && (s->returning || !s->opened)) || (code == GP_CANCELED && s->open->restart) ||
	       (code == GP_TIMEOUT && s->state < GP_LINK_RUN);
}

/* What the user can do when the server's device has failed for good. */
static const char *advice(const struct gp_client_session *s, enum gp_status status)
{
	if (status != GP_DEVICE || s->steps == 0)
		return "";
	return s->open->run ? "; go on with --resume when it works again"
			    : "; only a run with --checkpoint can go on after this";
}

static enum gp_status on_error(struct gp_client_session *s, const Gpsplit__Error *m, struct gp_err *err)
{
	char text[256];
	const enum gp_status status = error_code(m->code);
	const bool passes = error_passes(s, m->code);
	gp_err_set(err, status, 0, __FILE__, __LINE__, "server %s: %s%s", s->open->server,
		   gp_text_sanitize(m->text, text, sizeof text), passes ? "" : advice(s, status));
	s->retry_ms = m->retry_ms;
	if (passes)
		gp_client_session_lose(s, status, err->text);
	else
		s->peer_gave_up = true;
	return status;
}

static enum gp_status on_grad_squares(struct gp_client_session *s, const Gpsplit__GradSquares *m, struct gp_err *err)
{
	if (!gp_client_session_clips_norm(s))
		GP_FAIL(err, GP_PROTO, "a grad_squares message is not expected without clip_norm");
	return s->frames->grad_squares(s->arg, m->step, m->sum, m->n_sum, err);
}

/* Whatever it says of times is taken for what it is: figures for people. */
static enum gp_status on_intervals(struct gp_client_session *s, const Gpsplit__Intervals *m, struct gp_err *err)
{
	struct gp_interval interval[GP_INTERVALS_MAX];
	int count;
	if (!s->tells)
		GP_FAIL(err, GP_PROTO, "an intervals message was not asked for");
	GP_TRY(gp_intervals_read(m, (uint32_t)s->open->spec->chunks, interval, &count, err));
	const struct gp_ping_answered ping = gp_channel_ping_answered(s->ch);
	for (int i = 0; i < count; i++)
		if (interval[i].stage == GP_AT_BODY_FORWARD || interval[i].stage == GP_AT_BODY_BACKWARD ||
		    interval[i].stage == GP_AT_BODY_UPDATE)
			s->body_ns += interval[i].end_ns - interval[i].begin_ns;
	gp_timeline_answered(s->open->timeline, &ping);
	gp_timeline_told(s->open->timeline, m, interval, count);
	return GP_OK;
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

static enum gp_status dispatch(struct gp_client_session *s, const Gpsplit__Control *m, struct gp_err *err)
{
	GP_TRY(gp_control_check(GP_END_SERVER, s->state, m, err));
	switch (m->body_case) {
	case GPSPLIT__CONTROL__BODY_WELCOME:
		return on_welcome(s, m->welcome, err);
	case GPSPLIT__CONTROL__BODY_READY:
		return on_ready(s, m->ready, err);
	case GPSPLIT__CONTROL__BODY_GRAD_SQUARES:
		return on_grad_squares(s, m->grad_squares, err);
	case GPSPLIT__CONTROL__BODY_INTERVALS:
		return on_intervals(s, m->intervals, err);
	case GPSPLIT__CONTROL__BODY_CHUNK_DONE:
		return s->frames->chunk_done(s->arg, m->chunk_done->step, m->chunk_done->chunk, err);
	case GPSPLIT__CONTROL__BODY_COMMITTED:
		return on_committed(s, m->committed, err);
	case GPSPLIT__CONTROL__BODY_PARAMS_DONE:
		return on_params_done(s, m->params_done->count, err);
	case GPSPLIT__CONTROL__BODY_ERROR:
		return on_error(s, m->error, err);
	default:
		GP_FAIL(err, GP_PROTO, "a %s message is not for a client", gp_control_name(m));
	}
}

/* Parameters coming down. */

static enum gp_status param_begin(struct gp_client_session *s, const struct gp_frame_head *head, struct gp_frame **out,
				  struct gp_err *err)
{
	if (!s->fetch_into || s->param_down_next >= s->body->params || head->chunk != (uint32_t)s->param_down_next)
		GP_FAIL(err, GP_PROTO, "param_down of parameter %u is not expected", head->chunk);
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
	if (send_hello(s, &err) != GP_OK && !s->lost)
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
		status = dispatch(s, m, err);
	if (status != GP_OK && !s->lost)
		gp_client_session_fail(s, status, err->text);
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
		s->ready = s->answered && weights_are_back(s);
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
	snprintf(text, sizeof text, "server %s closed the connection", s->open->server);
	if (status != GP_OK)
		snprintf(text, sizeof text, "%s", err->text);
	if (gone)
		gp_client_session_lose(s, status == GP_OK ? GP_PEER : status, text);
	else if (!s->lost) /* an ERROR that only asks for another connection ends the channel, too */
		gp_client_session_fail(s, status, text);
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
	const struct gp_client_commit *c = &s->last_commit;
	s->committed_ns = gp_now_ns();
	return check_sent(
		s,
		gp_control_send_commit(s->ch, c->step, c->lr, c->grad_norm, c->checkpoint, &c->ranks, &c->rungs, err),
		err);
}

enum gp_status gp_client_session_commit(struct gp_client_session *s, const struct gp_client_commit *c,
					struct gp_err *err)
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
	return check_sent(s, gp_control_send_fetch_params(s->ch, err), err);
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
			   "server %s resumed the session at step %llu, this side is at %llu", s->open->server,
			   (unsigned long long)at, (unsigned long long)s->steps);
		gp_client_session_fail(s, GP_PROTO, err->text);
		return GP_PROTO;
	}
	const bool answer_lost = s->committed < at && s->last_commit.checkpoint;
	if (s->committed < at)
		gp_client_session_gain(s);
	s->committed = at;
	s->all_committed = at == s->steps;
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
		uv_run(s->loop, UV_RUN_ONCE);
	gp_control_arena_deinit(&s->arena);
}
