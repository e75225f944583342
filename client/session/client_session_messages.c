/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said in a session: HELLO and OPEN, and what every message of the server means. See client_session_impl.h. Test:
 * tests/unit/test_client_session.c, tests/unit/test_resume.c
 */
#include "client/session/client_session_impl.h"

#include <string.h>

#include "client/job/security.h"
#include "client/trace/timeline.h"
#include "common/base/log.h"
#include "common/wire/graph_msg.h"

/* GP_PEER: the connection is dead, which the channel tells a moment later. */
enum gp_status gp_client_session_check_sent(struct gp_client_session *s, enum gp_status status,
					    const struct gp_err *err)
{
	if (status == GP_PEER)
		gp_client_session_lose(s, status, err->text);
	return status;
}

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

enum gp_status gp_client_session_send_hello(struct gp_client_session *s, struct gp_err *err)
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
	hello.moves = s->open->run && s->open->restart && s->open->reconnect_for_s > 0;
	Gpsplit__Place place = GPSPLIT__PLACE__INIT;
	struct gp_place here;
	int up, down;
	s->has_place = false;
	if (s->confirmed && s->has_token) {
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
	return gp_client_session_check_sent(s, gp_control_send(s->ch, &m, err), err);
}

/* A checkpoint has its own. */
static bool sends_weights(const struct gp_client_session *s)
{
	return s->open->weights && s->steps == 0;
}

/* They decide what is kept, and are of no interest else. */
static void add_blocks(const struct gp_client_open *o, Gpsplit__Open *open, uint32_t block[GP_GRAPH_MAX_NODES])
{
	const struct gp_graph *g = o->body;
	if (!o->spec->recompute)
		return;
	for (int i = 1; i < g->blocks; i++)
		block[i - 1] = (uint32_t)(g->block[i].first_node - g->inputs);
	open->n_block = (size_t)(g->blocks - 1);
	open->block = block;
}

static enum gp_status send_graph(struct gp_client_session *s, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	Gpsplit__Open open = GPSPLIT__OPEN__INIT;
	struct gp_session_parts parts;
	uint32_t block[GP_GRAPH_MAX_NODES];
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
	add_blocks(o, &open, block);
	open.weights = sends_weights(s) ? (uint32_t)o->body->params : 0;
	open.intervals = o->timeline != NULL;
	open.restore_step = s->steps;
	open.state_hash = s->steps > 0 ? s->frames->state_hash(s->arg) : 0;
	m.body_case = GPSPLIT__CONTROL__BODY_OPEN;
	m.open = &open;
	enum gp_status status = gp_client_session_check_sent(s, gp_control_send(s->ch, &m, err), err);
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

/* What there was at another server is given up. */
static void take_offer(struct gp_client_session *s)
{
	s->id = s->offer.id;
	s->has_token = s->offer.has_token;
	s->keeps_place = s->offer.keeps_place;
	memcpy(s->token, s->offer.token, GP_TOKEN_BYTES);
}

enum gp_status gp_client_session_send_open(struct gp_client_session *s, struct gp_err *err)
{
	take_offer(s);
	s->confirmed = false;
	s->state = GP_LINK_LOAD;
	s->renewed = s->opened;
	if (s->renewed && !s->open->restart)
		s->frames->renewed(s->arg);
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
	GP_FAIL(err, GP_PEER, "server %s cannot compute in %s; use --precision fp32 or another server",
		gp_client_session_server(s), gp_precision_name(o->spec->precision));
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
	GP_TRY(gp_run_state_check_start(s->open->run, gp_client_session_server(s), NULL, 0, text, err));
	gp_err_set(err, GP_PEER, 0, __FILE__, __LINE__, "server %s: %s", gp_client_session_server(s), text);
	return gp_run_state_refused(s->open->run, err);
}

static enum gp_status check_limits(const struct gp_client_session *s, const Gpsplit__Limits *limits, struct gp_err *err)
{
	if (!limits || limits->window < 1 || limits->step_timeout_ms > GP_STEP_TIMEOUT_MS_MAX)
		GP_FAIL(err, GP_PROTO,
			"server %s gave limits that no session can keep: a window of %u chunks and a step timeout of "
			"%u ms (at least 1 chunk, at most %u ms)",
			gp_client_session_server(s), limits ? limits->window : 0, limits ? limits->step_timeout_ms : 0,
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
	s->has_place &= m->resumed;
	if (!s->has_place)
		return GP_OK;
	if (!m->place || !s->frames->place(s->arg, &here, &up, &down))
		GP_FAIL(err, GP_PROTO, "server %s resumed the session, and does not say where it is within the step",
			gp_client_session_server(s));
	GP_TRY(gp_place_read(m->place, up, down, &s->server_place, err));
	note_server_place(s);
	return GP_OK;
}

static void note_offer(struct gp_client_session *s, const Gpsplit__Welcome *m)
{
	s->offer.id = m->session;
	s->offer.keeps_place = m->keeps_place;
	s->offer.has_token = m->resume_token.len > 0;
	if (s->offer.has_token)
		memcpy(s->offer.token, m->resume_token.data, GP_TOKEN_BYTES);
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
		GP_FAIL(err, GP_PROTO, "server %s gave a resume token of %zu bytes, not %d",
			gp_client_session_server(s), m->resume_token.len, GP_TOKEN_BYTES);
	if (m->resumed && !(s->confirmed && s->has_token))
		GP_FAIL(err, GP_PROTO, "server %s resumed a session, which was not asked for",
			gp_client_session_server(s));
	if (m->resumed && m->session != s->id)
		GP_FAIL(err, GP_PROTO, "server %s resumed session %llu, not session %llu", gp_client_session_server(s),
			(unsigned long long)m->session, (unsigned long long)s->id);
	note_offer(s, m);
	if (m->resumed)
		take_offer(s);
	GP_TRY(take_place(s, m, err));
	s->server_limit_bytes = m->limits->memory_bytes;
	s->window_limit = m->limits->window > INT32_MAX ? INT32_MAX : (int)m->limits->window;
	gp_log(session, GP_LOG_INFO, "session %llu with %s", (unsigned long long)m->session,
	       gp_text_sanitize(m->agent, agent, sizeof agent));
	gp_channel_set_segment_bytes(s->ch, m->limits->segment_bytes > 0 ? m->limits->segment_bytes
									 : GP_SEGMENT_BYTES_DEFAULT);
	if (m->limits->step_timeout_ms * 1e-3 >
	    s->patience_s) /* a plan may take longer to build than an answer to HELLO */
		s->patience_s = m->limits->step_timeout_ms * 1e-3;
	if (s->open->patience_s > 0 && s->patience_s > s->open->patience_s)
		s->patience_s = s->open->patience_s;
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
		GP_FAIL(err, GP_PROTO, "server %s has other ranks than the commit of step %llu named",
			gp_client_session_server(s), (unsigned long long)m->step);
	return GP_OK;
}

static enum gp_status check_rungs(const struct gp_client_session *s, const Gpsplit__Committed *m, struct gp_err *err)
{
	const struct gp_rungs *r = &s->last_commit.rungs;
	if (m->n_rung != (size_t)r->count ||
	    (r->count > 0 && memcmp(m->rung, r->rung, m->n_rung * sizeof *m->rung) != 0))
		GP_FAIL(err, GP_PROTO, "server %s has other codecs than the commit of step %llu named",
			gp_client_session_server(s), (unsigned long long)m->step);
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
		GP_FAIL(err, GP_PROTO, "server %s surveyed %zu codecs; there are %d at most",
			gp_client_session_server(s), m->n_surveyed, GP_COMMITTED_SURVEYED);
	for (size_t i = 0; i < m->n_surveyed; i++)
		if (!read_survey(s, m->surveyed[i], &c.survey[c.surveyed++]))
			GP_FAIL(err, GP_PROTO, "server %s surveyed codecs that this session does not have",
				gp_client_session_server(s));
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
bool gp_client_session_weights_are_back(const struct gp_client_session *s)
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

/* A server that does not know the field computes in fp32. */
static enum gp_status read_choice(const struct gp_client_session *s, const Gpsplit__Choice *m,
				  enum gp_precision *precision, struct gp_precision_trial *trial, struct gp_err *err)
{
	const char *server = gp_client_session_server(s);
	*trial = (struct gp_precision_trial){0};
	*precision = GP_PRECISION_FP32;
	if (!m)
		return GP_OK;
	if (m->precision >= GP_PRECISIONS || m->n_trial > GP_PRECISIONS)
		GP_FAIL(err, GP_PROTO, "server %s has chosen precision %u of %zu, which cannot be", server,
			m->precision, m->n_trial);
	for (size_t i = 0; i < m->n_trial; i++) {
		const Gpsplit__Trial *t = m->trial[i];
		if (t->precision >= GP_PRECISIONS || !(t->pass_s > 0 && t->pass_s < 1e9))
			GP_FAIL(err, GP_PROTO, "server %s has tried precision %u in %g s, which cannot be", server,
				t->precision, t->pass_s);
		trial->pass_s[t->precision] = t->pass_s;
	}
	*precision = (enum gp_precision)m->precision;
	return GP_OK;
}

static enum gp_status take_choice(struct gp_client_session *s, const Gpsplit__Choice *m, struct gp_err *err)
{
	enum gp_precision precision;
	struct gp_precision_trial trial;
	if (!s->open->spec->choose_precision)
		return GP_OK;
	GP_TRY(read_choice(s, m, &precision, &trial, err));
	s->open->chosen(s->open->chosen_arg, precision, &trial);
	return GP_OK;
}

static enum gp_status check_coded(const struct gp_client_session *s, uint32_t codes, struct gp_err *err)
{
	const struct gp_session_spec *spec = s->open->spec;
	const uint32_t lacks = gp_session_coded_bits(spec) & ~codes;
	for (int i = 0; i < GP_STRUCTS; i++)
		if (lacks >> i & 1)
			GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old for --compress %s=%s; leave that out",
				gp_client_session_server(s), gp_structure_name[i], spec->coded[i].text);
	return GP_OK;
}

static enum gp_status on_ready(struct gp_client_session *s, const Gpsplit__Ready *m, struct gp_err *err)
{
	const struct gp_client_open *o = s->open;
	if (!gp_client_session_weights_are_back(s) && !weights_have_left(s))
		GP_FAIL(err, GP_PROTO, "server %s is ready before it has the weights", gp_client_session_server(s));
	if (!m->clips && !o->spec->eval_only && (o->spec->optim.clip_norm > 0.0 || o->spec->optim.clip_value > 0.0))
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old to clip gradients", gp_client_session_server(s));
	if (!m->calibrates && o->spec->calibrates)
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old to take statistics anew (--recalibrate)",
			gp_client_session_server(s));
	if (!m->decays && o->spec->decays.count > 0)
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old for decaying ranks (--insert decay)",
			gp_client_session_server(s));
	if (!m->ladders && gp_session_has_ladder(o->spec))
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old to change codecs (--codec auto); name a codec",
			gp_client_session_server(s));
	if (!m->recomputes && o->spec->recompute)
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old to compute blocks a second time (--recompute)",
			gp_client_session_server(s));
	if (!m->encodes_maps && gp_session_maps(o->spec))
		GP_FAIL(err, GP_UNSUPPORTED, "server %s is too old to keep maps encoded (--compress)",
			gp_client_session_server(s));
	GP_TRY(take_choice(s, m->choice, err));
	GP_TRY(check_coded(s, m->codes, err));
	s->takes_lengths = m->lengths && o->spec->lengths;
	if (o->spec->lengths && !m->lengths)
		gp_log(session, GP_LOG_WARN,
		       "server %s (%s) computes all positions of every chunk: padding is not left out",
		       gp_client_session_server(s), m->device[0] ? "its device does" : "it is too old");
	s->tells = m->intervals && o->timeline;
	if (o->traces && !m->intervals)
		gp_log(session, GP_LOG_WARN,
		       "server %s is too old to tell when it did what: --trace has this side alone, and bound_by "
		       "guesses "
		       "at the server's",
		       gp_client_session_server(s));
	s->server_memory_bytes = m->memory_bytes;
	s->server_device_bytes = m->device_memory_bytes;
	gp_text_sanitize(m->device, s->server_device, sizeof s->server_device);
	gp_log(session, GP_LOG_INFO, "session %llu runs on %s", (unsigned long long)s->id, s->server_device);
	s->state = GP_LINK_RUN;
	s->answered = true;
	s->ready = gp_client_session_weights_are_back(s);
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
	s->stays = true;
	gp_log(session, GP_LOG_INFO, "server %s has no memory for %d chunks in flight: it is asked for %d",
	       gp_client_session_server(s), s->window, s->window_most);
	return true;
}

/* Whether another connection is worth trying: when there is no room for us now; when the server stops, or has lost a
 * checkpoint, and there is one to go on from or nothing to lose; when a device failed and there is a checkpoint; when the
 * opening took too long, as when this process was stopped for a while. */
static bool error_passes(struct gp_client_session *s, uint32_t code)
{
	if (code == GP_DEVICE)
		return device_may_recover(s);
	if (narrows_window(s, code))
		return true;
	return (code == GP_BUSY && (s->returning || !s->opened)) ||
	       (code == GP_CANCELED && (s->open->restart || s->steps == 0)) ||
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

/* A server that has no room, or stops, may name others. What it names is checked here, and by the user's --follow. */
static void note_others(struct gp_client_session *s, const Gpsplit__Error *m)
{
	char host[256];
	uint16_t port;
	struct gp_err ignored;
	const struct gp_server_entry *by = gp_server_list_at(&s->servers);
	if (!s->open->security || (m->code != GP_BUSY && m->code != GP_CANCELED))
		return;
	for (size_t i = 0; i < m->n_servers && i < GP_ERROR_SERVERS; i++) {
		if (!gp_addr_is_plain(m->servers[i]) || gp_addr_parse(m->servers[i], host, &port, &ignored) != GP_OK)
			continue;
		const bool follows = gp_client_may_follow(s->open->security, by->host, host);
		if (follows && gp_server_list_tell(&s->servers, m->servers[i], s->near))
			gp_log(session, GP_LOG_INFO, "server %s names another one: %s", by->text, m->servers[i]);
		else if (!follows)
			gp_log(session, GP_LOG_DEBUG, "server %s names %s, which --follow does not allow", by->text,
			       m->servers[i]);
	}
}

static enum gp_status on_error(struct gp_client_session *s, const Gpsplit__Error *m, struct gp_err *err)
{
	char text[256];
	const enum gp_status status = error_code(m->code);
	const bool passes = error_passes(s, m->code);
	s->sent_away = passes && s->state == GP_LINK_RUN;
	s->stays |= m->code == GP_CANCELED && s->state == GP_LINK_LOAD &&
		    s->open->restart; /* an older checkpoint may be of use there */
	if (passes)
		note_others(s, m);
	gp_err_set(err, status, 0, __FILE__, __LINE__, "server %s: %s%s", gp_client_session_server(s),
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

enum gp_status gp_client_session_dispatch(struct gp_client_session *s, const Gpsplit__Control *m, struct gp_err *err)
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
