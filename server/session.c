/* SPDX-License-Identifier: Apache-2.0
 *
 * One client's session on the server: handshake, deadlines, control messages
 * and the order in which things are torn down. PROTOCOL.md section 5. What is
 * computed is in body.c. Loop thread. Test: tests/unit/test_server.c
 */
#include <string.h>

#include "common/control.h"
#include "common/graph_msg.h"
#include "common/log.h"
#include "server/body.h"
#include "server/server.h"

#define DEADLINE_TICK_MS 250
#define OPEN_SPILL_BYTES (64u << 20) /* memory of one unpacked OPEN: 4096 nodes fit many times */
#define BUSY_RETRY_MS    5000

enum session_state { STATE_PREFACE, STATE_HELLO, STATE_OPEN, STATE_BUILD, STATE_RUN, STATE_CLOSING };

struct gp_server_session {
	struct gp_server *srv;
	struct gp_server_session *prev, *next;
	struct gp_channel *ch;
	struct gp_body *body;
	struct gp_control_arena arena;
	uv_timer_t timer;
	enum session_state state;
	uint64_t id, progress_ns, memory_bytes, began_ns;
	char peer[64];
	bool channel_closed, timer_closed, ended;
};

static void reap(struct gp_server_session *s)
{
	if (!s->channel_closed || !s->timer_closed || (s->body && gp_body_busy(s->body)))
		return;
	struct gp_server *srv = s->srv;
	gp_body_free(s->body);
	gp_control_arena_deinit(&s->arena);
	if (s->prev)
		s->prev->next = s->next;
	else
		srv->sessions = s->next;
	if (s->next)
		s->next->prev = s->prev;
	srv->memory_used_bytes -= s->memory_bytes;
	gp_free(s);
	gp_server_session_gone(srv);
}

static void channel_closed(void *arg)
{
	struct gp_server_session *s = arg;
	s->channel_closed = true;
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
	double seconds = (double)(gp_now_ns() - s->began_ns) * 1e-9;
	unsigned long long steps = s->body ? gp_body_steps(s->body) : 0;
	const struct gp_kind_account *made = gp_channel_account(s->ch)->sent.kind;
	double computed = (double)(made[GP_FRAME_ACT_DOWN].stage_ns[GP_STAGE_COMPUTE] +
				   made[GP_FRAME_GRAD_DOWN].stage_ns[GP_STAGE_COMPUTE]) *
			  1e-9;
	enum gp_log_level level = status == GP_OK ? GP_LOG_INFO : GP_LOG_WARN;
	gp_log(session, level,
	       "session %llu of %s ended after %.1f s (%.1f s computing) and %llu steps: %s (%.0f MiB, process peak "
	       "%.0f MiB)",
	       (unsigned long long)s->id, s->peer, seconds, computed, steps, text, (double)s->memory_bytes / 1048576,
	       (double)gp_mem_peak_rss_bytes() / 1048576);
}

/* The one way out. Tells the client why unless it has gone or everything is well. */
static void end_session(struct gp_server_session *s, enum gp_status status, const char *text)
{
	if (s->state == STATE_CLOSING)
		return;
	s->state = STATE_CLOSING;
	log_end(s, status, text);
	if (s->body)
		gp_body_stop(s->body);
	bool tell = !s->ended && status != GP_OK;
	struct gp_err ignored;
	if (tell)
		gp_control_send_error(s->ch, status, text, status == GP_BUSY ? BUSY_RETRY_MS : 0, &ignored);
	gp_channel_close(s->ch, tell, channel_closed, s);
	uv_close((uv_handle_t *)&s->timer, timer_closed);
}

void gp_server_session_stop(struct gp_server_session *s, enum gp_status code, const char *text)
{
	end_session(s, code, text);
}

struct gp_server_session *gp_server_session_next(struct gp_server_session *s)
{
	return s->next;
}

/* What the body reports. */

static void body_failed(void *arg, enum gp_status status, struct gp_err *err)
{
	end_session(arg, status, err->text);
}

static void body_idle(void *arg)
{
	reap(arg);
}

static void body_ready(void *arg)
{
	struct gp_server_session *s = arg;
	struct gp_err err;
	Gpsplit__Ready ready = GPSPLIT__READY__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	ready.memory_bytes = s->memory_bytes;
	ready.threads = (uint32_t)s->srv->device->threads;
	ready.device = (char *)s->srv->device->ops->name;
	ready.clips = true;
	m.body_case = GPSPLIT__CONTROL__BODY_READY;
	m.ready = &ready;
	s->state = STATE_RUN;
	s->progress_ns = gp_now_ns();
	if (gp_control_send(s->ch, &m, &err) != GP_OK)
		end_session(s, err.code, err.text);
}

static void body_measured(void *arg, uint64_t step, const double *sum, int n)
{
	struct gp_server_session *s = arg;
	struct gp_err err;
	if (gp_control_send_grad_squares(s->ch, step, sum, n, &err) != GP_OK)
		end_session(s, err.code, err.text);
}

static void body_committed(void *arg, uint64_t step)
{
	struct gp_server_session *s = arg;
	struct gp_err err;
	gp_log(session, GP_LOG_DEBUG, "session %llu committed step %llu", (unsigned long long)s->id,
	       (unsigned long long)step);
	if (gp_control_send_committed(s->ch, step, &err) != GP_OK)
		end_session(s, err.code, err.text);
}

static void body_params_sent(void *arg, uint32_t count)
{
	struct gp_server_session *s = arg;
	struct gp_err err;
	if (gp_control_send_params_done(s->ch, count, &err) != GP_OK)
		end_session(s, err.code, err.text);
}

/* Control messages. */

/* Returns how many there are. */
static size_t list_precisions(const struct gp_device *dev, uint32_t out[GP_PRECISIONS])
{
	size_t n = 0;
	for (uint32_t p = 0; p < GP_PRECISIONS; p++)
		if (gp_device_supports(dev, (enum gp_precision)p))
			out[n++] = p;
	return n;
}

static enum gp_status on_hello(struct gp_server_session *s, const Gpsplit__Hello *hello, struct gp_err *err)
{
	char agent[64];
	if (hello->version != GP_PROTO_VERSION)
		GP_FAIL(err, GP_PROTO, "the client speaks version %u of the protocol, this server version %d",
			hello->version, GP_PROTO_VERSION);
	if (hello->resume_token.len > 0)
		GP_FAIL(err, GP_UNSUPPORTED, "this server keeps no sessions to resume");
	gp_log(session, GP_LOG_INFO, "session %llu: %s (%s)", (unsigned long long)s->id, s->peer,
	       gp_text_sanitize(hello->agent, agent, sizeof agent));
	Gpsplit__Limits limits = GPSPLIT__LIMITS__INIT;
	limits.memory_bytes = s->srv->session_memory_bytes;
	limits.frame_bytes =
		s->srv->session_memory_bytes < GP_FRAME_BYTES_MAX ? s->srv->session_memory_bytes : GP_FRAME_BYTES_MAX;
	limits.window = (uint32_t)s->srv->set.window;
	limits.segment_bytes = GP_SEGMENT_BYTES_DEFAULT;
	limits.step_timeout_ms = (uint32_t)(s->srv->set.step_timeout_s * 1000);
	uint32_t precisions[GP_PRECISIONS];
	Gpsplit__Welcome welcome = GPSPLIT__WELCOME__INIT;
	welcome.version = GP_PROTO_VERSION;
	welcome.agent = (char *)"gpserverd " GP_VERSION;
	welcome.session = s->id;
	welcome.limits = &limits;
	welcome.precision = precisions;
	welcome.n_precision = list_precisions(s->srv->device, precisions);
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	m.body_case = GPSPLIT__CONTROL__BODY_WELCOME;
	m.welcome = &welcome;
	s->state = STATE_OPEN;
	return gp_control_send(s->ch, &m, err);
}

static enum gp_status check_range(const char *what, uint32_t value, uint32_t most, struct gp_err *err)
{
	if (value < 1 || value > most)
		GP_FAIL(err, GP_INVALID, "open: %s is %u; 1 to %u is possible here", what, value, most);
	return GP_OK;
}

/* What is a wrong flag to a user at a terminal is an invalid message here. */
static enum gp_status refuse_open(struct gp_err *err, const char *what)
{
	err->code = GP_INVALID;
	return gp_err_prefix(err, "open: %s", what);
}

static enum gp_status read_optimizer(const Gpsplit__Optimizer *m, struct gp_optim *o, struct gp_err *err)
{
	if (!m)
		GP_FAIL(err, GP_PROTO, "open: no optimizer");
	*o = (struct gp_optim){.kind = (enum gp_optim_kind)m->kind,
			       .momentum = m->momentum,
			       .nesterov = m->nesterov,
			       .weight_decay = m->weight_decay,
			       .beta1 = m->beta1,
			       .beta2 = m->beta2,
			       .eps = m->eps,
			       .clip_norm = m->clip_norm,
			       .clip_value = m->clip_value};
	return gp_optim_check(o, err) == GP_OK ? GP_OK : refuse_open(err, "optimizer");
}

static enum gp_status read_codecs(const Gpsplit__Open *m, struct gp_codec_spec codec[4], struct gp_err *err)
{
	static const char *const names[4] = {"codec_act_up", "codec_act_down", "codec_grad_up", "codec_grad_down"};
	const char *text[4] = {m->codec_act_up, m->codec_act_down, m->codec_grad_up, m->codec_grad_down};
	for (int i = 0; i < 4; i++)
		if (gp_codec_spec_parse(text[i], &codec[i], err) != GP_OK)
			return refuse_open(err, names[i]);
	return GP_OK;
}

static enum gp_status read_precision(const struct gp_device *dev, uint32_t number, enum gp_precision *out,
				     struct gp_err *err)
{
	if (number >= GP_PRECISIONS)
		GP_FAIL(err, GP_UNSUPPORTED, "open: this server knows no precision %u", number);
	if (!gp_device_supports(dev, (enum gp_precision)number))
		GP_FAIL(err, GP_UNSUPPORTED, "open: the device of this server (%s) cannot compute in %s",
			dev->ops->name, gp_precision_name((enum gp_precision)number));
	*out = (enum gp_precision)number;
	return GP_OK;
}

static enum gp_status read_open(struct gp_server_session *s, const Gpsplit__Open *m, struct gp_body_spec *spec,
				struct gp_err *err)
{
	GP_TRY(check_range("window", m->window, (uint32_t)s->srv->set.window, err));
	GP_TRY(check_range("chunks", m->chunks, 1u << 20, err));
	GP_TRY(check_range("chunk_samples", m->chunk_samples, 1u << 20, err));
	*spec = (struct gp_body_spec){.session = s->id,
				      .seed = m->seed,
				      .chunk_samples = (int)m->chunk_samples,
				      .window = (int)m->window,
				      .chunks = (int)m->chunks,
				      .eval_only = m->eval_only,
				      .weights = m->weights};
	GP_TRY(read_optimizer(m->optimizer, &spec->optim, err));
	GP_TRY(read_codecs(m, spec->codec, err));
	GP_TRY(read_precision(s->srv->device, m->precision, &spec->precision, err));
	if (!m->graph)
		GP_FAIL(err, GP_PROTO, "open: no graph");
	return gp_graph_from_msg(m->graph, s->srv->session_memory_bytes / sizeof(float), &spec->graph, err);
}

static enum gp_status reserve_memory(struct gp_server_session *s, uint64_t bytes, struct gp_err *err)
{
	struct gp_server *srv = s->srv;
	if (bytes > srv->session_memory_bytes)
		GP_FAIL(err, GP_NOMEM,
			"this session needs %.0f MiB, the server allows %.0f MiB; use smaller chunks or a smaller "
			"window",
			(double)bytes / 1048576, (double)srv->session_memory_bytes / 1048576);
	if (bytes > srv->memory_limit_bytes - srv->memory_used_bytes)
		GP_FAIL(err, GP_BUSY, "this session needs %.0f MiB, but other sessions have taken the server's memory",
			(double)bytes / 1048576);
	s->memory_bytes = bytes;
	srv->memory_used_bytes += bytes;
	return GP_OK;
}

static enum gp_status on_open(struct gp_server_session *s, const Gpsplit__Open *m, struct gp_err *err)
{
	static const struct gp_body_cbs cbs = {.ready = body_ready,
					       .failed = body_failed,
					       .measured = body_measured,
					       .committed = body_committed,
					       .params_sent = body_params_sent,
					       .idle = body_idle};
	struct gp_server *srv = s->srv;
	struct gp_body_spec spec;
	uint64_t bytes;
	GP_TRY(read_open(s, m, &spec, err));
	enum gp_status status = gp_body_estimate(srv->device, &spec, &bytes, err);
	if (status == GP_OK)
		status = reserve_memory(s, bytes, err);
	if (status != GP_OK) {
		gp_graph_free(spec.graph);
		return status;
	}
	gp_log(session, GP_LOG_INFO,
	       "session %llu: %d nodes, %llu parameters, %d samples a chunk, window %d, %s, %.0f MiB",
	       (unsigned long long)s->id, spec.graph->nodes, (unsigned long long)spec.graph->param_elements,
	       spec.chunk_samples, spec.window, gp_precision_name(spec.precision), (double)bytes / 1048576);
	GP_TRY(gp_body_new(srv->device, srv->compute, srv->codec, s->ch, &spec, &cbs, s, &s->body, err));
	s->state = STATE_BUILD;
	gp_channel_set_control_max(s->ch, GP_CONTROL_STEADY_BYTES);
	return GP_OK;
}

static enum gp_status on_running(struct gp_server_session *s, const Gpsplit__Control *m, struct gp_err *err)
{
	switch (m->body_case) {
	case GPSPLIT__CONTROL__BODY_COMMIT:
		return gp_body_commit(s->body, m->commit->step, m->commit->lr, m->commit->grad_norm, err);
	case GPSPLIT__CONTROL__BODY_FETCH_PARAMS:
		return gp_body_fetch_params(s->body, err);
	default:
		GP_FAIL(err, GP_PROTO, "a %s message is not expected while steps run", gp_control_name(m));
	}
}

static enum gp_status dispatch(struct gp_server_session *s, const Gpsplit__Control *m, struct gp_err *err)
{
	char text[256];
	if (m->body_case == GPSPLIT__CONTROL__BODY_BYE) {
		end_session(s, GP_OK, "the client said bye");
		return GP_OK;
	}
	if (m->body_case == GPSPLIT__CONTROL__BODY_ERROR) {
		s->ended = true;
		GP_FAIL(err, GP_PEER, "the client gave up: %s", gp_text_sanitize(m->error->text, text, sizeof text));
	}
	if (s->state == STATE_HELLO && m->body_case == GPSPLIT__CONTROL__BODY_HELLO)
		return on_hello(s, m->hello, err);
	if (s->state == STATE_OPEN && m->body_case == GPSPLIT__CONTROL__BODY_OPEN)
		return on_open(s, m->open, err);
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
		end_session(s, status, err->text);
	gp_control_arena_reset(&s->arena); /* an OPEN is large, and nothing of it is needed any more */
	return GP_OK;
}

static enum gp_status channel_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
					  struct gp_err *err)
{
	struct gp_server_session *s = arg;
	enum gp_status status;
	if (s->state == STATE_BUILD || s->state == STATE_RUN)
		status = gp_body_frame_begin(s->body, head, out, err);
	else
		status = gp_err_set(err, GP_PROTO, 0, __FILE__, __LINE__, "a tensor frame before open");
	if (status != GP_OK)
		end_session(s, status, err->text);
	return status;
}

static enum gp_status channel_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	(void)err;
	struct gp_server_session *s = arg;
	s->progress_ns = gp_now_ns();
	gp_body_frame(s->body, f);
	return GP_OK;
}

static void channel_sent(void *arg, struct gp_frame *f)
{
	struct gp_server_session *s = arg;
	s->progress_ns = gp_now_ns();
	gp_body_frame_sent(s->body, f);
}

static void channel_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct gp_server_session *s = arg;
	s->ended = true;
	end_session(s, status == GP_OK ? GP_PEER : status,
		    status == GP_OK ? "the client closed the connection" : err->text);
}

/* Deadlines. */

static void check_deadline(uv_timer_t *timer)
{
	struct gp_server_session *s = timer->data;
	const struct gp_server_settings *set = &s->srv->set;
	double waited = (double)(gp_now_ns() - s->progress_ns) * 1e-9;
	char text[128];
	if (s->state < STATE_BUILD && waited > set->handshake_timeout_s) {
		snprintf(text, sizeof text, "no handshake within %g s", set->handshake_timeout_s);
		end_session(s, GP_TIMEOUT, text);
	} else if (s->state == STATE_BUILD && waited > set->step_timeout_s && !gp_body_busy(s->body)) {
		snprintf(text, sizeof text, "the weights did not arrive within %g s", set->step_timeout_s);
		end_session(s, GP_TIMEOUT, text);
	} else if (s->state == STATE_RUN && gp_body_in_step(s->body) && waited > set->step_timeout_s &&
		   !gp_body_busy(s->body)) {
		snprintf(text, sizeof text, "no progress within a step for %g s", set->step_timeout_s);
		end_session(s, GP_TIMEOUT, text);
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

void gp_server_session_new(struct gp_server *srv, struct gp_conn *conn)
{
	struct gp_err err = {0};
	struct gp_server_session *s = gp_calloc(1, sizeof *s);
	if (!s || gp_control_arena_init(&s->arena, OPEN_SPILL_BYTES, &err) != GP_OK) {
		gp_log(session, GP_LOG_ERROR, "out of memory for a session of %s", conn->peer);
		gp_free(s);
		conn->ops->close(conn, NULL, NULL);
		return;
	}
	s->srv = srv;
	s->id = ++srv->next_session;
	s->began_ns = s->progress_ns = gp_now_ns();
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
	if (srv->stopping)
		end_session(s, GP_CANCELED, "the server is stopping");
	else if (srv->session_count > srv->set.max_sessions)
		end_session(s, GP_BUSY, "the server has no room for another session");
}
