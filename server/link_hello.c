/* SPDX-License-Identifier: Apache-2.0
 *
 * Who comes to a session and who comes back: HELLO, the run that a resume token
 * names, WELCOME. PROTOCOL.md sections 5.2 and 5.6. Whether the client is let
 * in is asked of credentials.c. Test: tests/unit/test_server.c, tests/unit/test_resume_tokens.c
 */
#include "server/link.h"

#include <string.h>

#include "common/base/log.h"

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
		gp_server_session_stop(r->successor, GP_CANCELED, text);
	if (r->session && r->session->state == STATE_RUN)
		gp_server_session_park(r->session, GP_CANCELED, text);
	else if (r->session)
		gp_server_session_stop(r->session, GP_CANCELED, text);
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
		gp_server_session_stop(s, status, err.text);
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
	gp_server_session_sent(s, send_welcome(s, true, &err), &err);
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

enum gp_status gp_server_session_hello(struct gp_server_session *s, const Gpsplit__Hello *hello, struct gp_err *err)
{
	char agent[64], who[GP_SERVER_WHO_BYTES];
	GP_TRY(check_hello(hello, err));
	GP_TRY(gp_server_admit(&s->srv->credentials, s->ch, (struct gp_span){hello->token.data, hello->token.len}, who,
			       err));
	gp_server_session_meet(s);
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
