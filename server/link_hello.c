/* SPDX-License-Identifier: Apache-2.0
 *
 * Who comes and who comes back: HELLO, the session that a resume token names,
 * WELCOME. PROTOCOL.md sections 5.2 and 5.6. Whether the client is let
 * in is asked of credentials.c. Test: tests/unit/test_server.c, tests/unit/test_resume_tokens.c
 */
#include "server/link.h"

#include <string.h>

#include "common/base/log.h"
#include "server/measure.h"
#include "server/session_status.h"
#include "server/usage.h"

/* Returns how many there are. */
static size_t list_precisions(const struct gp_server_devices *d, uint32_t out[GP_PRECISIONS])
{
	size_t n = 0;
	for (uint32_t p = 0; p < GP_PRECISIONS; p++)
		if (gp_server_devices_support(d, (enum gp_precision)p))
			out[n++] = p;
	return n;
}

static void write_place(const struct gp_body *b, struct gp_place *here, Gpsplit__Place *out)
{
	int up, down;
	gp_body_tensors(b, &up, &down);
	gp_body_place(b, here);
	gp_place_write(here, up, down, out);
}

static enum gp_status send_welcome(struct gp_server_link *l, bool resumed, struct gp_err *err)
{
	const struct gp_server *srv = l->srv;
	Gpsplit__Limits limits = GPSPLIT__LIMITS__INIT;
	const uint64_t own = gp_limits_find(srv->limits, l->proof.who)->memory_bytes;
	limits.memory_bytes = own < srv->session_memory_bytes ? own : srv->session_memory_bytes;
	limits.frame_bytes =
		srv->session_memory_bytes < GP_FRAME_BYTES_MAX ? srv->session_memory_bytes : GP_FRAME_BYTES_MAX;
	limits.window = (uint32_t)srv->set.window;
	limits.segment_bytes = GP_SEGMENT_BYTES_SERVED;
	limits.step_timeout_ms = (uint32_t)(srv->set.step_timeout_s * 1000);
	uint32_t precisions[GP_PRECISIONS];
	char devices[GP_SERVER_DEVICES_TEXT];
	Gpsplit__Welcome welcome = GPSPLIT__WELCOME__INIT;
	welcome.version = GP_PROTO_VERSION;
	welcome.agent = (char *)"gpserverd " GP_VERSION;
	welcome.session = l->session->id;
	welcome.limits = &limits;
	welcome.precision = precisions;
	welcome.n_precision = list_precisions(&srv->devices, precisions);
	welcome.device = (char *)gp_server_devices_text(&srv->devices, devices);
	if (srv->set.resume_window_s > 0)
		welcome.resume_token = (ProtobufCBinaryData){GP_TOKEN_BYTES, l->session->token[0]};
	welcome.resumed = resumed;
	welcome.checkpoint = resumed ? gp_body_checkpoint_step(l->session->body) : l->stored;
	Gpsplit__Measuring measuring = GPSPLIT__MEASURING__INIT;
	if (!resumed && gp_server_measure_offer(srv, &measuring))
		welcome.measuring = &measuring;
	if (!resumed && l->session->checkpoints && !srv->state)
		welcome.checkpoint_error = (char *)GP_BODY_NO_CHECKPOINTS;
	if (!resumed) {
		welcome.stored = l->session->theirs;
		welcome.n_stored = (size_t)l->session->theirs_count;
	}
	welcome.last_step = resumed ? gp_body_steps(l->session->body) : 0;
	Gpsplit__Place place = GPSPLIT__PLACE__INIT;
	struct gp_place here;
	welcome.keeps_place = true;
	if (resumed && l->has_place) {
		write_place(l->session->body, &here, &place);
		welcome.place = &place;
	}
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	m.body_case = GPSPLIT__CONTROL__BODY_WELCOME;
	m.welcome = &welcome;
	return gp_control_send(l->ch, &m, err);
}

static struct gp_span span_of(ProtobufCBinaryData bytes)
{
	return (struct gp_span){bytes.data, bytes.len};
}

/* A new connection has the token: the old one, if it still stands, is of no use to anybody. `same`: its client has left it by
 * itself, so that nobody is waited for who reads why. */
static void take_over(struct gp_server_session *s, bool same)
{
	static const char text[] = "taken over by a new connection";
	if (s->link)
		s->link->abandoned = same;
	if (s->successor)
		gp_server_link_stop(s->successor, GP_CANCELED, text);
	if (s->link && s->link->state == GP_LINK_RUN)
		gp_server_link_park(s->link, GP_CANCELED, text);
	else if (s->link)
		gp_server_link_stop(s->link, GP_CANCELED, text);
}

static enum gp_status claim(struct gp_server_link *l, struct gp_server_session *s, const Gpsplit__Hello *hello,
			    struct gp_err *err)
{
	int up, down;
	gp_body_tensors(s->body, &up, &down);
	l->has_place = hello->place != NULL;
	if (l->has_place)
		GP_TRY(gp_place_read(hello->place, down, up, &l->client_place, err));
	take_over(s, true);
	if (s->ending) /* a server that stops has no use for a session that nobody has: it has ended just now */
		GP_FAIL(err, GP_BUSY, GP_SERVER_STOPS);
	l->state = GP_LINK_WELCOME;
	l->client_steps = hello->last_step;
	l->client_hash = hello->state_hash;
	l->claimed = s;
	gp_server_session_claim(s, l, hello->last_step, !l->has_place);
	return GP_OK;
}

static enum gp_status resume(const struct gp_server_link *l, struct gp_server_session *s, struct gp_err *err)
{
	if (l->has_place) /* what codecs remember differs by the frames that have not come: PROTOCOL.md 5.6 */
		GP_TRY(gp_body_check_place(s->body, l->client_steps, &l->client_place, err));
	else
		GP_TRY(gp_server_session_check_rewound(s, l->client_hash, err));
	return gp_server_session_resume(s, err);
}

/* PROTOCOL.md section 5.6. */
void gp_server_link_take(struct gp_server_link *l, struct gp_server_session *s)
{
	struct gp_err err;
	char title[GP_SESSION_TITLE];
	l->claimed = NULL;
	enum gp_status status = resume(l, s, &err);
	if (status != GP_OK) {
		s->end_reason = status;
		gp_server_session_end(s);
		gp_server_link_stop(l, status, err.text);
		return;
	}
	l->session = s;
	s->link = l;
	gp_body_attach(s->body, l->ch);
	gp_channel_reserve_control(l->ch, gp_body_message_bytes(s->body), &err); /* else messages allocate */
	l->state = GP_LINK_RUN;
	l->progress_ns = gp_now_ns();
	gp_server_session_prove(s, &l->proof, &l->client, l->peer);
	if (s->using) /* whoever asked for the run meanwhile: its client is here */
		gp_state_dir_unwant(l->srv->state, s->stored_as);
	l->srv->tally.resumed++;
	gp_server_session_event(s, GP_LOG_INFO, "session_resumed", NULL, "%s goes on at step %llu over a new link",
				gp_server_session_title(s, title), (unsigned long long)gp_body_steps(s->body));
	gp_server_link_sent(l, send_welcome(l, true, &err), &err);
	if (l->state == GP_LINK_RUN && l->has_place)
		gp_body_go_on(s->body, l->client_steps, &l->client_place);
	gp_server_link_drain(l);
}

void gp_server_link_welcome(struct gp_server_link *l, uint64_t stored)
{
	struct gp_err err;
	l->stored = stored;
	l->state = GP_LINK_OPEN;
	gp_channel_set_control_max(l->ch, GP_CONTROL_BYTES_MAX);
	l->progress_ns = gp_now_ns(); /* it is the client's turn from here on */
	gp_server_link_sent(l, send_welcome(l, false, &err), &err);
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

/* A token from an address that has sent too many wrong ones is not even looked at: GP_BUSY, as a right one may be let in
 * a little later. */
static enum gp_status admit(struct gp_server_link *l, struct gp_span token, struct gp_err *err)
{
	struct gp_server *srv = l->srv;
	const bool guess = srv->credentials.tokens && token.len > 0;
	if (guess && !gp_visitors_may_try_token(srv->log.visitors, l->address, gp_now_ns()))
		GP_FAIL(err, GP_BUSY,
			"too many wrong tokens came from your address; it is listened to again within a minute");
	enum gp_status status = gp_server_admit(&srv->credentials, l->ch, token, &l->proof, err);
	if (status == GP_DENIED && guess)
		gp_visitors_wrong_token(srv->log.visitors, l->address, gp_now_ns());
	if (status == GP_OK && l->proof.who[0])
		gp_client_tag_name(&l->client, l->proof.who);
	return status;
}

/* The subject of a certificate stands beside the name, for people: it proves nothing. */
static void log_hello(struct gp_server_link *l, const Gpsplit__Hello *hello)
{
	char agent[64], subject[96] = "";
	const char *text = gp_channel_subject(l->ch), *who = l->proof.who;
	if (text[0])
		snprintf(subject, sizeof subject, " (its certificate says \"%s\")", text);
	gp_client_log_write(&l->srv->log, &l->client, GP_LOG_INFO, "connection %llu: %s (%s)%s%s%s",
			    (unsigned long long)l->id, l->peer, gp_text_sanitize(hello->agent, agent, sizeof agent),
			    who[0] ? ": " : "", who, subject);
}

void gp_server_links_revoke(struct gp_server *srv)
{
	for (struct gp_server_link *l = srv->links, *next; l; l = next) {
		next = l->next;
		if (gp_server_revoked(&srv->credentials, &l->proof))
			gp_server_link_stop(l, GP_DENIED, GP_SERVER_REVOKED);
	}
}

enum gp_status gp_server_link_hello(struct gp_server_link *l, const Gpsplit__Hello *hello, struct gp_err *err)
{
	const char *who = l->proof.who;
	GP_TRY(check_hello(hello, err));
	GP_TRY(admit(l, span_of(hello->token), err));
	GP_TRY(gp_usage_begin_link(l->srv, who, gp_now_ns(), &l->retry_ms, err));
	gp_server_link_meet(l);
	log_hello(l, hello);
	struct gp_server_session *s = gp_server_session_find(l->srv, span_of(hello->resume_token));
	if (s && strcmp(s->who, who) != 0)
		s = NULL; /* somebody else's */
	if (s && s->ready)
		return claim(l, s, hello, err);
	if (l->srv->draining || l->srv->stopping)
		GP_FAIL(err, GP_BUSY, GP_SERVER_STOPS);
	if (s)
		take_over(s, false);
	GP_TRY(gp_server_session_new(l->srv, l, span_of(hello->run_id), who, &l->client, &l->session, err));
	gp_server_session_prove(l->session, &l->proof, &l->client, l->peer);
	l->session->moves = hello->moves;
	l->state = GP_LINK_WELCOME;
	return gp_server_session_find_stored(l->session, hello->checkpoint, hello->n_checkpoint, err);
}
