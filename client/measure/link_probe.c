/* SPDX-License-Identifier: Apache-2.0
 *
 * The conversation of a measurement: HELLO, MEASURE, PROBE and the frames, and what
 * the server answers. PROTOCOL.md section 5.8. See link_measure_impl.h.
 *
 * Test: tests/unit/test_server_measure.c, tests/e2e/measure.sh
 */
#include "client/measure/link_measure_impl.h"

#include <math.h>
#include <string.h>

#include "client/job/security.h"
#include "common/wire/control_states.h"

#define SERVER_S 0.9 /* part of the server's time that is made use of */

static void fail(struct gp_measure *m, const struct gp_err *err)
{
	if (m->over)
		return;
	m->over = true;
	m->err = *err;
}

void gp_measure_fail(struct gp_measure *m, enum gp_status status, const char *text)
{
	struct gp_err err;
	gp_err_set(&err, status, 0, __FILE__, __LINE__, "%s", text);
	fail(m, &err);
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

static void check_sent(struct gp_measure *m, enum gp_status status, const struct gp_err *err)
{
	if (status != GP_OK && status != GP_PEER) /* a dead connection is told by the channel */
		fail(m, err);
}

static void send_hello(struct gp_measure *m)
{
	struct gp_err err;
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control c = GPSPLIT__CONTROL__INIT;
	hello.version = GP_PROTO_VERSION;
	hello.agent = (char *)"gpclient " GP_VERSION;
	if (m->spec->security)
		hello.token =
			(ProtobufCBinaryData){strlen(m->spec->security->token), (uint8_t *)m->spec->security->token};
	c.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	c.hello = &hello;
	m->state = GP_LINK_WELCOME;
	check_sent(m, gp_control_send(m->ch, &c, &err), &err);
}

void gp_measure_send_begin(struct gp_measure *m)
{
	struct gp_err err;
	Gpsplit__Measure measure = GPSPLIT__MEASURE__INIT;
	Gpsplit__Control c = GPSPLIT__CONTROL__INIT;
	c.body_case = GPSPLIT__CONTROL__BODY_MEASURE;
	c.measure = &measure;
	m->state = GP_LINK_MEASURE;
	m->began_ns = m->heard_ns = gp_now_ns();
	check_sent(m, gp_control_send(m->ch, &c, &err), &err);
}

void gp_measure_send_probe(struct gp_measure *m, uint32_t number, uint64_t bytes, uint64_t tag)
{
	struct gp_err err;
	Gpsplit__Probe probe = GPSPLIT__PROBE__INIT;
	Gpsplit__Control c = GPSPLIT__CONTROL__INIT;
	probe.number = number;
	probe.bytes = bytes;
	probe.tag = tag;
	c.body_case = GPSPLIT__CONTROL__BODY_PROBE;
	c.probe = &probe;
	m->probes_left--;
	check_sent(m, gp_control_send(m->ch, &c, &err), &err);
}

static enum gp_status on_welcome(struct gp_measure *m, const Gpsplit__Welcome *w, struct gp_err *err)
{
	const Gpsplit__Measuring *g = w->measuring;
	if (w->version != GP_PROTO_VERSION)
		GP_FAIL(err, GP_PROTO, "the server speaks version %u of the protocol, this client version %d",
			w->version, GP_PROTO_VERSION);
	gp_text_sanitize(w->agent, m->out->agent, sizeof m->out->agent);
	if (!g || g->time_ms == 0 || g->bytes == 0 || g->frame_bytes == 0 || g->probes < 2 * GP_IDLE_TRIPS)
		GP_FAIL(err, GP_PEER,
			"server %s measures no links: it is too old for that, or was started with --measure 0",
			m->spec->server);
	m->session = w->session;
	m->frame_most = g->frame_bytes;
	m->bytes_left = g->bytes;
	m->probes_left = g->probes;
	m->seconds = fmin(m->spec->seconds, g->time_ms * 1e-3 * SERVER_S);
	if (w->limits)
		gp_channel_set_segment_bytes(m->ch, w->limits->segment_bytes);
	m->welcomed = true;
	return GP_OK;
}

static void note_kernel(struct gp_measure *m, const Gpsplit__Probed *p)
{
	struct gp_way_figures *down = &m->out->way[GP_WAY_DOWN];
	if (p->acked_bytes == 0)
		return;
	down->kernel = true;
	down->bytes = p->acked_bytes;
	down->retransmitted_bytes = p->retransmitted_bytes;
}

static enum gp_status trip_over(struct gp_measure *m, const Gpsplit__Probed *p, struct gp_err *err)
{
	if (!m->trip_under_way || p->number + 1 != m->trips)
		GP_FAIL(err, GP_PROTO, "server %s answers a probe that was not sent", m->spec->server);
	m->trip_under_way = false;
	if (m->into && m->into->count < GP_TRIPS_MAX)
		m->into->s[m->into->count++] = (double)(gp_now_ns() - m->trip_ns) * 1e-9;
	return GP_OK;
}

/* A frame down is whole by then: its answer is sent behind it. */
static enum gp_status frame_over(struct gp_measure *m, int way, const Gpsplit__Probed *p, struct gp_err *err)
{
	if (p->number != m->through[way] || p->number >= m->asked[way] || (way == GP_WAY_DOWN && p->number >= m->come))
		GP_FAIL(err, GP_PROTO, "server %s answers for a frame that is not due", m->spec->server);
	const int slot = (int)(p->number % GP_PROBES_UNDER_WAY);
	m->through[way]++;
	m->done_bytes += m->size[way][slot];
	m->last_ns = gp_now_ns();
	m->took_s = (double)(m->last_ns - m->frame_ns[slot]) * 1e-9;
	m->took_bytes = m->size[way][slot];
	if (way == GP_WAY_DOWN)
		m->tag[slot] = p->tag;
	if (m->mark && m->marks < GP_MEASURE_MARKS)
		m->mark[m->marks++] = (struct gp_measure_mark){m->last_ns, m->done_bytes};
	return GP_OK;
}

static enum gp_status on_probed(struct gp_measure *m, const Gpsplit__Probed *p, struct gp_err *err)
{
	note_kernel(m, p);
	m->heard_ns = gp_now_ns();
	switch (p->kind) {
	case GP_PROBED_ANSWER:
		return trip_over(m, p, err);
	case GP_PROBED_DOWN:
		return frame_over(m, GP_WAY_DOWN, p, err);
	case GP_PROBED_UP:
		return frame_over(m, GP_WAY_UP, p, err);
	default:
		GP_FAIL(err, GP_PROTO, "server %s answers a probe of unknown kind %u", m->spec->server, p->kind);
	}
}

static enum gp_status on_error(struct gp_measure *m, const Gpsplit__Error *e, struct gp_err *err)
{
	char text[256];
	m->time_over = e->code == GP_TIMEOUT;
	const bool known = e->code == GP_BUSY || e->code == GP_DENIED || e->code == GP_TIMEOUT;
	gp_err_set(err, known ? (enum gp_status)e->code : GP_PEER, 0, __FILE__, __LINE__, "server %s: %s",
		   m->spec->server, gp_text_sanitize(e->text, text, sizeof text));
	return err->code;
}

static enum gp_status dispatch(struct gp_measure *m, const Gpsplit__Control *c, struct gp_err *err)
{
	GP_TRY(gp_control_check(GP_END_SERVER, m->state, c, err));
	switch (c->body_case) {
	case GPSPLIT__CONTROL__BODY_WELCOME:
		m->state = GP_LINK_OPEN;
		return on_welcome(m, c->welcome, err);
	case GPSPLIT__CONTROL__BODY_PROBED:
		return on_probed(m, c->probed, err);
	case GPSPLIT__CONTROL__BODY_ERROR:
		return on_error(m, c->error, err);
	default:
		GP_FAIL(err, GP_PROTO, "a %s message is not for a measuring client", gp_control_name(c));
	}
}

/* --- the channel ------------------------------------------------------------------------------------------------- */

static void channel_opened(void *arg)
{
	send_hello(arg);
}

static enum gp_status channel_control(void *arg, struct gp_span bytes, struct gp_err *err)
{
	struct gp_measure *m = arg;
	const Gpsplit__Control *c;
	enum gp_status status = gp_control_unpack(&m->arena, bytes, &c, err);
	if (status == GP_OK)
		status = dispatch(m, c, err);
	gp_control_arena_reset(&m->arena);
	if (status != GP_OK)
		fail(m, err);
	return status;
}

static enum gp_status channel_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
					  struct gp_err *err)
{
	struct gp_measure *m = arg;
	enum gp_status status = gp_frame_check(GP_END_SERVER, m->state, m->session, head, err);
	const int slot = (int)(head->chunk % GP_PROBES_UNDER_WAY);
	const bool due = head->chunk == m->come && head->chunk < m->asked[GP_WAY_DOWN] &&
			 head->payload_len == m->size[GP_WAY_DOWN][slot];
	if (status == GP_OK && !due)
		status = gp_err_set(err, GP_PROTO, 0, __FILE__, __LINE__, "server %s sends a frame that is not due",
				    m->spec->server);
	if (status != GP_OK)
		fail(m, err);
	*out = &m->frame[GP_WAY_DOWN][slot];
	return status;
}

static enum gp_status channel_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	struct gp_measure *m = arg;
	(void)f;
	(void)err;
	m->come++;
	return GP_OK;
}

static void channel_sent(void *arg, struct gp_frame *f)
{
	struct gp_measure *m = arg;
	m->busy[f->head.chunk % GP_PROBES_UNDER_WAY] = false;
}

static void channel_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct gp_measure *m = arg;
	char text[GP_ERR_TEXT];
	snprintf(text, sizeof text, "server %s closed the connection", m->spec->server);
	if (status == GP_OK)
		gp_measure_fail(m, GP_PEER, text);
	else
		fail(m, err);
}

void gp_measure_closed(void *arg)
{
	struct gp_measure *m = arg;
	m->channel_open = false;
}

void gp_measure_connected(void *arg, struct gp_conn *conn, const struct gp_err *why)
{
	static const struct gp_channel_cbs cbs = {.opened = channel_opened,
						  .control = channel_control,
						  .frame_begin = channel_frame_begin,
						  .frame = channel_frame,
						  .sent = channel_sent,
						  .ended = channel_ended};
	struct gp_measure *m = arg;
	struct gp_err err;
	const struct gp_channel_options options = {.preface_timeout_ms = (uint32_t)(m->spec->connect_timeout_s * 1000),
						   .control_bytes_max = GP_CONTROL_STEADY_BYTES,
						   .frame_bytes_max = GP_FRAME_BYTES_MAX};
	m->connecting = NULL;
	if (!conn) {
		fail(m, why);
		return;
	}
	if (m->spec->security && gp_client_secure(m->spec->security, &m->loop, m->host, &conn, &err) != GP_OK) {
		fail(m, &err);
		return;
	}
	m->out->tls = conn->secure;
	m->state = GP_LINK_PREFACE;
	if (gp_channel_new(&m->loop, conn, &options, &cbs, m, &m->ch, &err) == GP_OK)
		m->connected = m->channel_open = true;
	else
		fail(m, &err);
}
