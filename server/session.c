/* SPDX-License-Identifier: Apache-2.0
 *
 * One client's session on the server, as long as its connection: handshake,
 * deadlines, control messages and the order in which things are torn down.
 * PROTOCOL.md section 5. What OPEN asks for is read in open.c, what is computed
 * is in body.c, what outlives the connection in run.c. Loop thread. Test: tests/unit/test_server.c
 */
#include <string.h>

#include "common/control.h"
#include "common/log.h"
#include "server/body.h"
#include "server/open.h"
#include "server/run.h"
#include "server/server.h"

#define DEADLINE_TICK_MS        250
#define OPEN_SPILL_BYTES        (16u << 20) /* memory of one unpacked OPEN: 4096 nodes fit many times */
#define BUSY_RETRY_MS           1000
/* Of those whose HELLO was accepted: a client that comes back has two for a moment. */
#define CONNECTIONS_PER_SESSION 2

/* RESUME: until the run that it asked for is at rest. */
enum session_state { STATE_PREFACE, STATE_HELLO, STATE_OPEN, STATE_BUILD, STATE_RESUME, STATE_RUN, STATE_CLOSING };

struct gp_server_session {
	struct gp_server *srv;
	struct gp_server_session *prev, *next;
	struct gp_server_session *older, *newer; /* while it is a stranger */
	struct gp_channel *ch;
	struct gp_server_run *run;          /* from HELLO on, until the channel is gone */
	struct gp_server_run *claimed;      /* while it is waited for */
	uint64_t client_steps, client_hash; /* of a HELLO that resumes */
	uint64_t stored;                    /* step of the newest checkpoint that both sides have */
	struct gp_control_arena arena;
	uv_timer_t timer;
	enum session_state state;
	uint64_t id, progress_ns, began_ns;
	uint64_t waited_ns; /* since then for the HELLO of a stranger */
	uint64_t tick_ns;   /* when the deadlines were last looked at */
	char peer[64];
	bool channel_closed, timer_closed, ended;
	bool stranger; /* until its HELLO is accepted */
};

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

static void leave_strangers(struct gp_server_session *s)
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
	leave_strangers(s);
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
	unsigned long long steps = r && r->body ? gp_body_steps(r->body) : 0;
	const struct gp_kind_account *made = gp_channel_account(s->ch)->sent.kind;
	double computed = (double)(made[GP_FRAME_ACT_DOWN].stage_ns[GP_STAGE_COMPUTE] +
				   made[GP_FRAME_GRAD_DOWN].stage_ns[GP_STAGE_COMPUTE]) *
			  1e-9;
	enum gp_log_level level = status == GP_OK ? GP_LOG_INFO : GP_LOG_WARN;
	gp_log(session, level,
	       "session %llu of %s ended after %.1f s (%.1f s computing) and %llu steps: %s (%.0f MiB, process peak "
	       "%.0f MiB)",
	       (unsigned long long)s->id, s->peer, seconds, computed, steps, text,
	       r ? (double)r->memory_bytes / 1048576 : 0.0, (double)gp_mem_peak_rss_bytes() / 1048576);
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

/* The one way out for good. */
static void end_session(struct gp_server_session *s, enum gp_status status, const char *text)
{
	if (s->state == STATE_CLOSING)
		return;
	log_end(s, status, text);
	if (s->run)
		gp_server_run_end(s->run);
	close_connection(s, status, text);
}

/* The way out when the client may come back. */
static void park(struct gp_server_session *s, enum gp_status status, const char *text)
{
	gp_log(session, GP_LOG_WARN, "session %llu of %s is kept for %g s at step %llu: %s", (unsigned long long)s->id,
	       s->peer, s->srv->set.resume_window_s, (unsigned long long)gp_body_steps(s->run->body), text);
	gp_server_run_park(s->run);
	close_connection(s, status, text);
}

static void lose_link(struct gp_server_session *s, enum gp_status status, const char *text)
{
	if (s->state == STATE_RUN && s->srv->set.resume_window_s > 0)
		park(s, status, text);
	else
		end_session(s, status, text);
}

/* A message that could not be sent: GP_PEER when the connection is dead, which the channel tells a moment later. */
static void check_sent(struct gp_server_session *s, enum gp_status status, const struct gp_err *err)
{
	if (status == GP_PEER)
		lose_link(s, status, err->text);
	else if (status != GP_OK)
		end_session(s, status, err->text);
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

static struct gp_server_session *session_of(void *run)
{
	return ((struct gp_server_run *)run)->session;
}

static void body_failed(void *arg, enum gp_status status, struct gp_err *err)
{
	struct gp_server_run *r = arg;
	if (status == GP_DEVICE) {
		char title[GP_DEVICE_TITLE];
		gp_err_prefix(err, "%s", gp_device_title(r->device->dev, title));
		gp_server_device_failed(r->device);
	}
	end_session(r->session, status, err->text);
}

static void body_idle(void *arg)
{
	gp_server_run_settle(arg);
}

static void body_ready(void *arg)
{
	struct gp_server_run *r = arg;
	struct gp_server_session *s = r->session;
	struct gp_err err;
	Gpsplit__Ready ready = GPSPLIT__READY__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	char device[GP_DEVICE_TITLE];
	ready.memory_bytes = r->memory_bytes;
	ready.device_memory_bytes = r->device_bytes;
	ready.threads = (uint32_t)r->device->dev->threads;
	ready.device = (char *)gp_device_title(r->device->dev, device);
	ready.clips = true;
	m.body_case = GPSPLIT__CONTROL__BODY_READY;
	m.ready = &ready;
	s->state = STATE_RUN;
	r->ready = true;
	s->progress_ns = gp_now_ns();
	check_sent(s, gp_control_send(s->ch, &m, &err), &err);
}

static void body_measured(void *arg, uint64_t step, const double *sum, int n)
{
	struct gp_server_session *s = session_of(arg);
	struct gp_err err;
	check_sent(s, gp_control_send_grad_squares(s->ch, step, sum, n, &err), &err);
}

static void body_committed(void *arg, uint64_t step)
{
	struct gp_server_session *s = session_of(arg);
	struct gp_err err;
	gp_log(session, GP_LOG_DEBUG, "session %llu committed step %llu", (unsigned long long)s->id,
	       (unsigned long long)step);
	check_sent(s, gp_control_send_committed(s->ch, step, &err), &err);
}

static void body_kept(void *arg, uint64_t step, const char *why)
{
	struct gp_server_session *s = session_of(arg);
	struct gp_err err;
	gp_log(session, why && s->srv->state ? GP_LOG_WARN : GP_LOG_DEBUG, "session %llu committed step %llu, %s %s",
	       (unsigned long long)s->id, (unsigned long long)step, why ? "without a checkpoint:" : "with",
	       why ? why : "a checkpoint");
	check_sent(s, gp_control_send_kept(s->ch, step, why, &err), &err);
}

static void body_params_sent(void *arg, uint32_t count)
{
	struct gp_server_session *s = session_of(arg);
	struct gp_err err;
	check_sent(s, gp_control_send_params_done(s->ch, count, &err), &err);
}

/* Control messages. */

/* Returns how many there are. */
static size_t list_precisions(const struct gp_server_devices *d, uint32_t out[GP_PRECISIONS])
{
	size_t n = 0;
	for (uint32_t p = 0; p < GP_PRECISIONS; p++)
		if (gp_server_devices_support(d, (enum gp_precision)p))
			out[n++] = p;
	return n;
}

static enum gp_status send_welcome(struct gp_server_session *s, bool resumed, struct gp_err *err)
{
	const struct gp_server *srv = s->srv;
	Gpsplit__Limits limits = GPSPLIT__LIMITS__INIT;
	limits.memory_bytes = srv->session_memory_bytes;
	limits.frame_bytes =
		srv->session_memory_bytes < GP_FRAME_BYTES_MAX ? srv->session_memory_bytes : GP_FRAME_BYTES_MAX;
	limits.window = (uint32_t)srv->set.window;
	limits.segment_bytes = GP_SEGMENT_BYTES_DEFAULT;
	limits.step_timeout_ms = (uint32_t)(srv->set.step_timeout_s * 1000);
	uint32_t precisions[GP_PRECISIONS];
	char devices[GP_SERVER_DEVICES_TEXT];
	Gpsplit__Welcome welcome = GPSPLIT__WELCOME__INIT;
	welcome.version = GP_PROTO_VERSION;
	welcome.agent = (char *)"gpserverd " GP_VERSION;
	welcome.session = s->id;
	welcome.limits = &limits;
	welcome.precision = precisions;
	welcome.n_precision = list_precisions(&srv->devices, precisions);
	welcome.device = (char *)gp_server_devices_text(&srv->devices, devices);
	if (srv->set.resume_window_s > 0)
		welcome.resume_token = (ProtobufCBinaryData){GP_TOKEN_BYTES, s->run->token[0]};
	welcome.resumed = resumed;
	welcome.checkpoint = resumed ? gp_body_kept_step(s->run->body) : s->stored;
	if (!resumed && s->run->keeps && !srv->state)
		welcome.checkpoint_error = (char *)GP_BODY_KEEPS_NONE;
	welcome.last_step = resumed ? gp_body_steps(s->run->body) : 0;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	m.body_case = GPSPLIT__CONTROL__BODY_WELCOME;
	m.welcome = &welcome;
	return gp_control_send(s->ch, &m, err);
}

static struct gp_span span_of(ProtobufCBinaryData bytes)
{
	return (struct gp_span){bytes.data, bytes.len};
}

/* A new connection has the token: the old one, if it still stands, is of no use to anybody. */
static void take_over(struct gp_server_run *r)
{
	static const char text[] = "taken over by a new connection";
	if (r->successor)
		end_session(r->successor, GP_CANCELED, text);
	if (r->session && r->session->state == STATE_RUN)
		park(r->session, GP_CANCELED, text);
	else if (r->session)
		end_session(r->session, GP_CANCELED, text);
}

static void claim(struct gp_server_session *s, struct gp_server_run *r, const Gpsplit__Hello *hello)
{
	take_over(r);
	s->state = STATE_RESUME;
	s->client_steps = hello->last_step;
	s->client_hash = hello->state_hash;
	s->claimed = r;
	gp_server_run_claim(r, s);
}

/* PROTOCOL.md section 5.6. */
void gp_server_session_take(struct gp_server_session *s, struct gp_server_run *r)
{
	struct gp_err err;
	s->claimed = NULL;
	enum gp_status status = gp_server_run_resume(r, s->client_steps, s->client_hash, &err);
	if (status != GP_OK) {
		gp_server_run_end(r);
		end_session(s, status, err.text);
		return;
	}
	s->run = r;
	r->session = s;
	gp_body_attach(r->body, s->ch, s->id);
	gp_channel_reserve_control(s->ch, gp_body_message_bytes(r->body), &err); /* else messages allocate */
	gp_channel_set_control_max(s->ch, GP_CONTROL_STEADY_BYTES);
	s->state = STATE_RUN;
	s->progress_ns = gp_now_ns();
	gp_log(session, GP_LOG_INFO, "session %llu of %s goes on from step %llu", (unsigned long long)s->id, s->peer,
	       (unsigned long long)gp_body_steps(r->body));
	check_sent(s, send_welcome(s, true, &err), &err);
}

static enum gp_status check_hello(const Gpsplit__Hello *hello, struct gp_err *err)
{
	if (hello->version != GP_PROTO_VERSION)
		GP_FAIL(err, GP_PROTO, "the client speaks version %u of the protocol, this server version %d",
			hello->version, GP_PROTO_VERSION);
	if (hello->resume_token.len > 0 && hello->resume_token.len != GP_TOKEN_BYTES)
		GP_FAIL(err, GP_PROTO, "hello: a resume token of %zu bytes, not %d", hello->resume_token.len,
			GP_TOKEN_BYTES);
	if (hello->run_id.len > 0 && hello->run_id.len != GP_RUN_ID_BYTES)
		GP_FAIL(err, GP_PROTO, "hello: the id of a run has %d bytes, not %zu", GP_RUN_ID_BYTES,
			hello->run_id.len);
	if (hello->n_checkpoint > GP_CHECKPOINTS_MAX)
		GP_FAIL(err, GP_PROTO, "hello: %zu checkpoints, over %d", hello->n_checkpoint, GP_CHECKPOINTS_MAX);
	return GP_OK;
}

static enum gp_status on_hello(struct gp_server_session *s, const Gpsplit__Hello *hello, struct gp_err *err)
{
	char agent[64], who[GP_SERVER_WHO_BYTES];
	GP_TRY(check_hello(hello, err));
	GP_TRY(gp_server_admit(&s->srv->credentials, s->ch, (struct gp_span){hello->token.data, hello->token.len}, who,
			       err));
	leave_strangers(s);
	gp_channel_set_control_max(s->ch, GP_CONTROL_BYTES_MAX); /* for OPEN */
	gp_log(session, GP_LOG_INFO, "session %llu: %s (%s)%s%s", (unsigned long long)s->id, s->peer,
	       gp_text_sanitize(hello->agent, agent, sizeof agent), who[0] ? ": " : "", who);
	struct gp_server_run *r = gp_server_run_find(s->srv, span_of(hello->resume_token));
	if (r && strcmp(r->who, who) != 0)
		r = NULL; /* somebody else's */
	if (r && r->ready) {
		claim(s, r, hello);
		return GP_OK;
	}
	if (r)
		take_over(r);
	GP_TRY(gp_server_run_new(s->srv, s, span_of(hello->run_id), who, &s->run, err));
	GP_TRY(gp_server_run_stored(s->run, hello->checkpoint, hello->n_checkpoint, &s->stored, err));
	s->state = STATE_OPEN;
	return send_welcome(s, false, err);
}

/* Of the server's account, `bytes` for this session in all. */
static enum gp_status reserve_memory(struct gp_server_run *r, uint64_t bytes, struct gp_err *err)
{
	struct gp_server *srv = r->srv;
	if (bytes > srv->session_memory_bytes)
		GP_FAIL(err, GP_NOMEM,
			"this session needs %.0f MiB, the server allows %.0f MiB; use smaller chunks or a smaller "
			"window",
			(double)bytes / 1048576, (double)srv->session_memory_bytes / 1048576);
	if (bytes > srv->memory_limit_bytes - (srv->memory_used_bytes - r->memory_bytes))
		GP_FAIL(err, GP_BUSY, "this session needs %.0f MiB, but other sessions have taken the server's memory",
			(double)bytes / 1048576);
	srv->memory_used_bytes += bytes - r->memory_bytes;
	r->memory_bytes = bytes;
	return GP_OK;
}

static struct gp_body_place place_of(const struct gp_server_run *r)
{
	return (struct gp_body_place){r->device->dev, r->device->compute};
}

static void log_memory(const struct gp_server_run *r)
{
	char title[GP_DEVICE_TITLE], own[64] = "";
	if (r->device->memory_bytes > 0)
		snprintf(own, sizeof own, "%.0f MiB of its memory, ", (double)r->device_bytes / 1048576);
	gp_log(session, GP_LOG_INFO, "session %llu: %s, %s%.0f MiB", (unsigned long long)r->session->id,
	       gp_device_title(r->device->dev, title), own, (double)r->memory_bytes / 1048576);
}

/* A device that has no room for it does not matter where another one has. */
static enum gp_status body_estimated(void *arg, const struct gp_body_need *need, struct gp_body_place *at,
				     struct gp_err *err)
{
	struct gp_server_run *r = arg;
	struct gp_err none;
	GP_TRY(reserve_memory(r, need->host, err));
	enum gp_status status =
		gp_server_device_reserve(&r->srv->devices, r->device, r->device_bytes, need->device, err);
	if (status != GP_OK && gp_server_run_place(r, &none) == GP_OK) {
		*at = place_of(r);
		return GP_OK;
	}
	if (status != GP_OK)
		return status;
	r->device_bytes = need->device;
	log_memory(r);
	return GP_OK;
}

static enum gp_status on_open(struct gp_server_session *s, const Gpsplit__Open *m, struct gp_err *err)
{
	static const struct gp_body_cbs cbs = {.estimated = body_estimated,
					       .ready = body_ready,
					       .failed = body_failed,
					       .measured = body_measured,
					       .committed = body_committed,
					       .kept = body_kept,
					       .params_sent = body_params_sent,
					       .idle = body_idle};
	struct gp_server *srv = s->srv;
	struct gp_body_spec spec;
	const struct gp_body_workers workers = {.build = srv->build, .codec = srv->codec, .disk = srv->disk};
	GP_TRY(gp_server_open_read(srv, s->id, m, &spec, err));
	enum gp_status status = gp_server_run_use_state(s->run, m->restore_step, &spec, err);
	if (status == GP_OK)
		status = reserve_memory(s->run, gp_body_staging_bytes(&spec), err);
	s->run->precision = spec.precision;
	if (status == GP_OK)
		status = gp_server_run_place(s->run, err);
	if (status != GP_OK) {
		gp_graph_free(spec.graph);
		return status;
	}
	gp_log(session, GP_LOG_INFO, "session %llu: %d nodes, %llu parameters, %d samples a chunk, window %d, %s",
	       (unsigned long long)s->id, spec.graph->nodes, (unsigned long long)spec.graph->param_elements,
	       spec.chunk_samples, spec.window, gp_precision_name(spec.precision));
	const struct gp_body_place at = place_of(s->run);
	GP_TRY(gp_body_new(&at, &workers, s->ch, &spec, &cbs, s->run, &s->run->body, err));
	s->state = STATE_BUILD;
	gp_channel_set_control_max(s->ch, GP_CONTROL_STEADY_BYTES);
	return GP_OK;
}

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
		status = gp_body_frame_begin(s->run->body, head, out, err);
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
		end_session(s, status, text);
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
		end_session(s, GP_TIMEOUT, text);
	} else if (s->state == STATE_BUILD && waited > set->step_timeout_s && !gp_body_busy(s->run->body)) {
		snprintf(text, sizeof text, "the weights did not arrive within %g s", set->step_timeout_s);
		end_session(s, GP_TIMEOUT, text);
	} else if (s->state == STATE_RUN && gp_body_awaits_client(s->run->body) && waited > set->step_timeout_s &&
		   !gp_body_busy(s->run->body)) {
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
		end_session(s, GP_BUSY, "the server has too many connections that are not opened");
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
		end_session(s, GP_CANCELED, "the server is stopping");
	else
		make_room(srv);
}
