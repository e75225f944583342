/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's end of a session. See session.h. Test: tests/unit/test_engine.c
 */
#include "client/session.h"

#include <string.h>

#include "common/graph_msg.h"
#include "common/log.h"

#define ARENA_SPILL_BYTES (1u << 20)
#define DEADLINE_TICK_MS  250

enum { STATE_CONNECT, STATE_PREFACE, STATE_WELCOME, STATE_READY, STATE_RUN, STATE_OVER };

void gp_client_session_fail(struct gp_client_session *s, enum gp_status status, const char *text)
{
	if (s->status != GP_OK)
		return;
	s->status = gp_err_set(&s->err, status, 0, __FILE__, __LINE__, "%s", text);
	s->state = STATE_OVER;
}

/* PROTOCOL.md section 5.4: only while somebody waits for the server. */
static void check_deadline(uv_timer_t *timer)
{
	struct gp_client_session *s = timer->data;
	char text[192];
	if (!s->waiting || (double)(gp_now_ns() - s->progress_ns) * 1e-9 < s->patience_s)
		return;
	snprintf(text, sizeof text, "server %s answers, but has made no progress for %g s", s->open->server,
		 s->patience_s);
	gp_client_session_fail(s, GP_TIMEOUT, text);
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

enum gp_status gp_client_session_wait(struct gp_client_session *s, const bool *flag, struct gp_err *err)
{
	s->progress_ns = gp_now_ns();
	s->waiting = true;
	enum gp_status status = gp_client_session_wait_here(s, flag, err);
	s->waiting = false;
	return status;
}

/* Control messages. */

static enum gp_status send_hello(struct gp_client_session *s, struct gp_err *err)
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	hello.version = GP_PROTO_VERSION;
	hello.agent = (char *)"gpclient " GP_VERSION;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	return gp_control_send(s->ch, &m, err);
}

static void fill_optimizer(const struct gp_optim *o, Gpsplit__Optimizer *m)
{
	m->kind = (uint32_t)o->kind;
	m->momentum = o->momentum;
	m->nesterov = o->nesterov;
	m->weight_decay = o->weight_decay;
	m->beta1 = o->beta1;
	m->beta2 = o->beta2;
	m->eps = o->eps;
	m->clip_norm = o->clip_norm;
	m->clip_value = o->clip_value;
}

static enum gp_status send_open(struct gp_client_session *s, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	Gpsplit__Open open = GPSPLIT__OPEN__INIT;
	Gpsplit__Optimizer optimizer = GPSPLIT__OPTIMIZER__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	if (o->window > s->window_limit)
		GP_FAIL(err, GP_INVALID, "--window %d is over the server's limit of %d", o->window, s->window_limit);
	GP_TRY(gp_graph_to_msg(o->body, &open.graph, err));
	fill_optimizer(&o->optim, &optimizer);
	open.optimizer = &optimizer;
	open.seed = o->seed;
	open.chunk_samples = (uint32_t)o->chunk_samples;
	open.window = (uint32_t)o->window;
	open.chunks = (uint32_t)o->chunks;
	open.precision = (uint32_t)o->precision;
	open.eval_only = o->eval_only;
	open.codec_act_up = (char *)o->codec[0].text;
	open.codec_act_down = (char *)o->codec[1].text;
	open.codec_grad_up = (char *)o->codec[2].text;
	open.codec_grad_down = (char *)o->codec[3].text;
	open.weights = o->weights ? (uint32_t)o->body->params : 0;
	m.body_case = GPSPLIT__CONTROL__BODY_OPEN;
	m.open = &open;
	enum gp_status status = gp_control_send(s->ch, &m, err);
	gp_graph_msg_free(open.graph);
	return status;
}

/* Borrows the values of `weights` until READY. */
static enum gp_status send_weights(struct gp_client_session *s, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	if (!o->weights)
		return GP_OK;
	s->param_up = gp_calloc((size_t)o->body->params, sizeof *s->param_up);
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

/* A server that does not know the field would ignore it in OPEN, and compute in fp32. */
static enum gp_status check_precision(const struct gp_client_session *s, const Gpsplit__Welcome *m, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	if (o->precision == GP_PRECISION_FP32)
		return GP_OK;
	for (size_t i = 0; i < m->n_precision; i++)
		if (m->precision[i] == (uint32_t)o->precision)
			return GP_OK;
	GP_FAIL(err, GP_PEER, "server %s cannot compute in %s; use --precision fp32 or another server", o->server,
		gp_precision_name(o->precision));
}

static enum gp_status on_welcome(struct gp_client_session *s, const Gpsplit__Welcome *m, struct gp_err *err)
{
	char agent[64];
	if (m->version != GP_PROTO_VERSION || !m->limits)
		GP_FAIL(err, GP_PROTO, "the server speaks version %u of the protocol, this client version %d",
			m->version, GP_PROTO_VERSION);
	GP_TRY(check_precision(s, m, err));
	s->id = m->session;
	s->window_limit = m->limits->window > INT32_MAX ? INT32_MAX : (int)m->limits->window;
	gp_log(session, GP_LOG_INFO, "session %llu with %s", (unsigned long long)s->id,
	       gp_text_sanitize(m->agent, agent, sizeof agent));
	gp_channel_set_segment_bytes(s->ch, m->limits->segment_bytes);
	s->step_timeout_s = m->limits->step_timeout_ms * 1e-3;
	if (s->step_timeout_s > s->patience_s) /* building a plan may take longer than an answer to HELLO */
		s->patience_s = s->step_timeout_s;
	s->state = STATE_READY;
	GP_TRY(send_open(s, err));
	return send_weights(s, err);
}

static enum gp_status on_committed(struct gp_client_session *s, uint64_t step, struct gp_err *err)
{
	if (s->committed >= s->commits_sent || step != s->committed)
		GP_FAIL(err, GP_PROTO, "the server committed step %llu, which was not asked for",
			(unsigned long long)step);
	s->committed++;
	s->all_committed = s->committed == s->commits_sent;
	return GP_OK;
}

static enum gp_status on_params_done(struct gp_client_session *s, uint32_t count, struct gp_err *err)
{
	if (!s->fetch_into || s->params_arrived != s->body->params || count != (uint32_t)s->body->params)
		GP_FAIL(err, GP_PROTO, "the server sent %d of %d parameters", s->params_arrived, s->body->params);
	s->params_done = true;
	return GP_OK;
}

static bool clips_norm(const struct gp_client_session *s)
{
	return s->open->optim.clip_norm > 0.0 && !s->open->eval_only;
}

static enum gp_status on_ready(struct gp_client_session *s, const Gpsplit__Ready *m, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	if (o->weights && s->params_sent < s->body->params)
		GP_FAIL(err, GP_PROTO, "server %s is ready before it has the weights", o->server);
	if (!m->clips && !o->eval_only && (o->optim.clip_norm > 0.0 || o->optim.clip_value > 0.0))
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old to clip gradients", o->server);
	s->server_memory_bytes = m->memory_bytes;
	s->state = STATE_RUN;
	s->connected = true;
	return GP_OK;
}

static enum gp_status dispatch(struct gp_client_session *s, const Gpsplit__Control *m, struct gp_err *err)
{
	char text[256];
	switch (m->body_case) {
	case GPSPLIT__CONTROL__BODY_WELCOME:
		if (s->state == STATE_WELCOME)
			return on_welcome(s, m->welcome, err);
		break;
	case GPSPLIT__CONTROL__BODY_READY:
		if (s->state == STATE_READY)
			return on_ready(s, m->ready, err);
		break;
	case GPSPLIT__CONTROL__BODY_GRAD_SQUARES:
		if (s->state == STATE_RUN && clips_norm(s))
			return s->frames->grad_squares(s->arg, m->grad_squares->step, m->grad_squares->sum,
						       m->grad_squares->n_sum, err);
		break;
	case GPSPLIT__CONTROL__BODY_COMMITTED:
		return on_committed(s, m->committed->step, err);
	case GPSPLIT__CONTROL__BODY_PARAMS_DONE:
		return on_params_done(s, m->params_done->count, err);
	case GPSPLIT__CONTROL__BODY_ERROR:
		s->peer_gave_up = true;
		GP_FAIL(err, m->error->code == GP_BUSY ? GP_BUSY : GP_PEER, "server %s: %s", s->open->server,
			gp_text_sanitize(m->error->text, text, sizeof text));
	case GPSPLIT__CONTROL__BODY_BYE:
		GP_FAIL(err, GP_PEER, "server %s said bye before the work was done", s->open->server);
	default:
		break;
	}
	GP_FAIL(err, GP_PROTO, "server %s sent a %s message that is not expected here", s->open->server,
		gp_control_name(m));
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
	s->state = STATE_WELCOME;
	if (send_hello(s, &err) != GP_OK)
		gp_client_session_fail(s, err.code, err.text);
}

static enum gp_status channel_control(void *arg, struct gp_span bytes, struct gp_err *err)
{
	struct gp_client_session *s = arg;
	const Gpsplit__Control *m;
	s->progress_ns = gp_now_ns();
	enum gp_status status = gp_control_unpack(&s->arena, bytes, &m, err);
	if (status == GP_OK)
		status = dispatch(s, m, err);
	if (status != GP_OK)
		gp_client_session_fail(s, status, err->text);
	return status;
}

static enum gp_status channel_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
					  struct gp_err *err)
{
	struct gp_client_session *s = arg;
	enum gp_status status;
	if (s->state != STATE_RUN || head->session != s->id)
		status = gp_err_set(err, GP_PROTO, 0, __FILE__, __LINE__, "a tensor frame is not expected here");
	else if (head->type == GP_FRAME_PARAM_DOWN)
		status = param_begin(s, head, out, err);
	else
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
		gp_client_session_fail(s, status, err->text);
	return status;
}

static void channel_sent(void *arg, struct gp_frame *f)
{
	struct gp_client_session *s = arg;
	s->progress_ns = gp_now_ns();
	if (f->head.type == GP_FRAME_PARAM_UP)
		s->params_sent++;
	else
		s->frames->sent(s->arg, f);
}

static void channel_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct gp_client_session *s = arg;
	char text[128];
	s->peer_gave_up = true; /* nobody is left to be told */
	snprintf(text, sizeof text, "server %s closed the connection", s->open->server);
	gp_client_session_fail(s, status == GP_OK ? GP_PEER : status, status == GP_OK ? text : err->text);
}

/* Opening. */

static void on_connected(void *arg, struct gp_conn *conn, const struct gp_err *why)
{
	static const struct gp_channel_cbs cbs = {.opened = channel_opened,
						  .control = channel_control,
						  .frame_begin = channel_frame_begin,
						  .frame = channel_frame,
						  .sent = channel_sent,
						  .ended = channel_ended};
	struct gp_client_session *s = arg;
	struct gp_err err;
	s->connecting = false;
	if (!conn) {
		gp_client_session_fail(s, why->code, why->text);
		return;
	}
	struct gp_channel_options options = {
		.idle_timeout_ms = (uint32_t)(s->open->idle_timeout_s * 1000),
		.preface_timeout_ms = (uint32_t)(s->open->connect_timeout_s * 1000),
		.control_bytes_max = GP_CONTROL_STEADY_BYTES,
	};
	if (clips_norm(s))
		options.control_bytes_max += (uint32_t)s->body->params * (uint32_t)sizeof(double);
	s->state = STATE_PREFACE;
	if (gp_channel_new(s->loop, conn, &options, &cbs, s, &s->ch, &err) != GP_OK)
		gp_client_session_fail(s, err.code, err.text);
}

static enum gp_status connect_and_wait(struct gp_client_session *s, struct gp_err *err)
{
	char host[256];
	uint16_t port;
	enum gp_status status = gp_addr_parse(s->open->server, host, &port, err);
	if (status != GP_OK)
		return gp_err_prefix(err, "--server");
	s->connecting = true;
	status = gp_tcp_connect(s->loop, host, port, (uint64_t)(s->open->connect_timeout_s * 1000), on_connected, s,
				err);
	if (status != GP_OK) {
		s->connecting = false;
		return status;
	}
	return gp_client_session_wait(s, &s->connected, err);
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
	s->patience_s = open->connect_timeout_s;
	GP_TRY(gp_control_arena_init(&s->arena, ARENA_SPILL_BYTES, err));
	uv_timer_init(loop, &s->timer);
	s->timer.data = s;
	s->timer_open = true;
	uv_timer_start(&s->timer, check_deadline, DEADLINE_TICK_MS, DEADLINE_TICK_MS);
	enum gp_status status = connect_and_wait(s, err);
	if (status != GP_OK) {
		gp_client_session_close(s);
		return status;
	}
	gp_free(s->param_up); /* READY was only taken after the last one had left */
	s->param_up = NULL;
	return GP_OK;
}

enum gp_status gp_client_session_commit(struct gp_client_session *s, uint64_t step, float lr, double grad_norm,
					struct gp_err *err)
{
	s->commits_sent++;
	return gp_control_send_commit(s->ch, step, lr, grad_norm, err);
}

static enum gp_status wait_committed(struct gp_client_session *s, struct gp_err *err)
{
	s->all_committed = s->committed == s->commits_sent;
	return gp_client_session_wait(s, &s->all_committed, err);
}

enum gp_status gp_client_session_fetch(struct gp_client_session *s, struct gp_weights *w, struct gp_err *err)
{
	GP_TRY(wait_committed(s, err));
	s->fetch_into = w;
	s->param_down_next = s->params_arrived = 0;
	s->params_done = false;
	GP_TRY(gp_control_send_fetch_params(s->ch, err));
	enum gp_status status = gp_client_session_wait(s, &s->params_done, err);
	s->fetch_into = NULL;
	return status;
}

static void timer_closed(uv_handle_t *h)
{
	struct gp_client_session *s = h->data;
	s->timer_open = false;
}

static void channel_closed(void *arg)
{
	struct gp_client_session *s = arg;
	s->closed = true;
}

void gp_client_session_close(struct gp_client_session *s)
{
	struct gp_err ignored;
	while (s->connecting)
		uv_run(s->loop, UV_RUN_ONCE);
	if (s->ch) {
		if (s->status == GP_OK)
			gp_control_send_bye(s->ch, &ignored);
		else if (!s->peer_gave_up)
			gp_control_send_error(s->ch, s->status, s->err.text, 0, &ignored);
		gp_channel_close(s->ch, true, channel_closed, s);
		while (!s->closed)
			uv_run(s->loop, UV_RUN_ONCE);
		s->ch = NULL;
	}
	if (s->timer_open)
		uv_close((uv_handle_t *)&s->timer, timer_closed);
	while (s->timer_open)
		uv_run(s->loop, UV_RUN_ONCE);
	gp_free(s->param_up);
	s->param_up = NULL;
	gp_control_arena_deinit(&s->arena);
}
