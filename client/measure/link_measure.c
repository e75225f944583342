/* SPDX-License-Identifier: Apache-2.0
 *
 * See link_measure.h. Every frame of either way is answered by PROBED, and what
 * the link carries is read off the times of these answers: from one to the next
 * there are no round trips in it.
 *
 * Test: tests/unit/test_server_measure.c, tests/e2e/measure.sh
 */
#include "client/measure/link_measure.h"

#include <math.h>
#include <string.h>

#include "client/job/security.h"
#include "common/base/rng.h"
#include "common/wire/control_states.h"

#define WRAP_BYTES      (1u << 20)
#define BLOCK_BYTES     ((size_t)WRAP_BYTES + GP_SEGMENT_BYTES_MAX)
#define UNDER_WAY       2 /* frames of one way */
#define IDLE_TRIPS      20
#define SIZE_TRIES      3
#define SIZE_AGAIN_S    0.1 /* a frame that takes longer is sent once */
#define FIRST_BYTES     (32u << 10)
#define RATE_BYTES_MOST (32u << 20) /* of a frame of the full link */
#define RATE_FRAMES     8           /* of the bytes for a way, at least */
#define GROWTH          8.0         /* of frames, from one to the next */
#define FRAME_S         0.05        /* that such a frame should take, beside a round trip */
#define SETTLE          0.5         /* part of the time on a full link that is not looked at: TCP begins slowly */
#define SERVER_S        0.9         /* part of the server's time that is made use of */
#define TICK_MS         50
#define TRIP_PAUSE_S    20e-3 /* between two round trips on a full link */
#define ARENA_BYTES     (64u << 10)

enum { ANSWER, DOWN, UP }; /* kinds of PROBED */

/* An answer to a frame: when it came, and the payload that was through by then. */
struct mark {
	uint64_t ns, bytes;
};

struct measure {
	const struct gp_link_measure_spec *spec;
	struct gp_link_figures *out;
	uv_loop_t loop;
	uv_timer_t timer;
	char host[256];
	struct gp_connector *connecting;
	struct gp_channel *ch;
	struct gp_control_arena arena;
	enum gp_link_state state;
	bool welcomed, connected, over, channel_open;
	bool time_over;    /* the server says so */
	struct gp_err err; /* why it is over */
	uint64_t began_ns, session, frame_most, bytes_left;
	uint64_t heard_ns; /* the newest answer to a probe */
	uint32_t probes_left;
	double seconds;
	uint8_t *block; /* to send from, then to receive into */
	/* round trips: one is under way at a time */
	uint32_t trips;
	bool trip_under_way;
	uint64_t trip_ns;
	struct gp_trips *into;
	struct gp_trips idle, loaded[GP_WAYS];
	/* frames, by way */
	struct gp_frame frame[GP_WAYS][UNDER_WAY];
	uint32_t asked[GP_WAYS], through[GP_WAYS], come; /* come: whole frames from the server */
	bool busy[UNDER_WAY];                            /* frames up that the channel has */
	uint64_t size[GP_WAYS][UNDER_WAY], tag[UNDER_WAY];
	uint64_t frame_ns[UNDER_WAY]; /* when it began, of the way that is measured now */
	double took_s;                /* of the frame that was answered last */
	uint64_t took_bytes;
	uint64_t done_bytes, last_ns; /* of the way that is measured now: what was answered, and when last */
	struct mark *mark;            /* of a full link */
	int marks;
};

enum { MARKS_MAX = 4096 };

static void fail(struct measure *m, const struct gp_err *err)
{
	if (m->over)
		return;
	m->over = true;
	m->err = *err;
}

static void fail_with(struct measure *m, enum gp_status status, const char *text)
{
	struct gp_err err;
	gp_err_set(&err, status, 0, __FILE__, __LINE__, "%s", text);
	fail(m, &err);
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

static void check_sent(struct measure *m, enum gp_status status, const struct gp_err *err)
{
	if (status != GP_OK && status != GP_PEER) /* a dead connection is told by the channel */
		fail(m, err);
}

static void send_hello(struct measure *m)
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

static void send_measure(struct measure *m)
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

static void send_probe(struct measure *m, uint32_t number, uint64_t bytes, uint64_t tag)
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

static enum gp_status on_welcome(struct measure *m, const Gpsplit__Welcome *w, struct gp_err *err)
{
	const Gpsplit__Measuring *g = w->measuring;
	if (w->version != GP_PROTO_VERSION)
		GP_FAIL(err, GP_PROTO, "the server speaks version %u of the protocol, this client version %d",
			w->version, GP_PROTO_VERSION);
	gp_text_sanitize(w->agent, m->out->agent, sizeof m->out->agent);
	if (!g || g->time_ms == 0 || g->bytes == 0 || g->frame_bytes == 0 || g->probes < 2 * IDLE_TRIPS)
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

static void note_kernel(struct measure *m, const Gpsplit__Probed *p)
{
	struct gp_way_figures *down = &m->out->way[GP_WAY_DOWN];
	if (p->acked_bytes == 0)
		return;
	down->kernel = true;
	down->bytes = p->acked_bytes;
	down->retransmitted_bytes = p->retransmitted_bytes;
}

static enum gp_status trip_over(struct measure *m, const Gpsplit__Probed *p, struct gp_err *err)
{
	if (!m->trip_under_way || p->number + 1 != m->trips)
		GP_FAIL(err, GP_PROTO, "server %s answers a probe that was not sent", m->spec->server);
	m->trip_under_way = false;
	if (m->into && m->into->count < GP_TRIPS_MAX)
		m->into->s[m->into->count++] = (double)(gp_now_ns() - m->trip_ns) * 1e-9;
	return GP_OK;
}

/* A frame down is whole by then: its answer is sent behind it. */
static enum gp_status frame_over(struct measure *m, int way, const Gpsplit__Probed *p, struct gp_err *err)
{
	if (p->number != m->through[way] || p->number >= m->asked[way] || (way == GP_WAY_DOWN && p->number >= m->come))
		GP_FAIL(err, GP_PROTO, "server %s answers for a frame that is not due", m->spec->server);
	const int slot = (int)(p->number % UNDER_WAY);
	m->through[way]++;
	m->done_bytes += m->size[way][slot];
	m->last_ns = gp_now_ns();
	m->took_s = (double)(m->last_ns - m->frame_ns[slot]) * 1e-9;
	m->took_bytes = m->size[way][slot];
	if (way == GP_WAY_DOWN)
		m->tag[slot] = p->tag;
	if (m->mark && m->marks < MARKS_MAX)
		m->mark[m->marks++] = (struct mark){m->last_ns, m->done_bytes};
	return GP_OK;
}

static enum gp_status on_probed(struct measure *m, const Gpsplit__Probed *p, struct gp_err *err)
{
	note_kernel(m, p);
	m->heard_ns = gp_now_ns();
	switch (p->kind) {
	case ANSWER:
		return trip_over(m, p, err);
	case DOWN:
		return frame_over(m, GP_WAY_DOWN, p, err);
	case UP:
		return frame_over(m, GP_WAY_UP, p, err);
	default:
		GP_FAIL(err, GP_PROTO, "server %s answers a probe of unknown kind %u", m->spec->server, p->kind);
	}
}

static enum gp_status on_error(struct measure *m, const Gpsplit__Error *e, struct gp_err *err)
{
	char text[256];
	m->time_over = e->code == GP_TIMEOUT;
	const bool known = e->code == GP_BUSY || e->code == GP_DENIED || e->code == GP_TIMEOUT;
	gp_err_set(err, known ? (enum gp_status)e->code : GP_PEER, 0, __FILE__, __LINE__, "server %s: %s",
		   m->spec->server, gp_text_sanitize(e->text, text, sizeof text));
	return err->code;
}

static enum gp_status dispatch(struct measure *m, const Gpsplit__Control *c, struct gp_err *err)
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
	struct measure *m = arg;
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
	struct measure *m = arg;
	enum gp_status status = gp_frame_check(GP_END_SERVER, m->state, m->session, head, err);
	const int slot = (int)(head->chunk % UNDER_WAY);
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
	struct measure *m = arg;
	(void)f;
	(void)err;
	m->come++;
	return GP_OK;
}

static void channel_sent(void *arg, struct gp_frame *f)
{
	struct measure *m = arg;
	m->busy[f->head.chunk % UNDER_WAY] = false;
}

static void channel_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct measure *m = arg;
	char text[GP_ERR_TEXT];
	snprintf(text, sizeof text, "server %s closed the connection", m->spec->server);
	if (status == GP_OK)
		fail_with(m, GP_PEER, text);
	else
		fail(m, err);
}

static void channel_closed(void *arg)
{
	struct measure *m = arg;
	m->channel_open = false;
}

static void on_connected(void *arg, struct gp_conn *conn, const struct gp_err *why)
{
	static const struct gp_channel_cbs cbs = {.opened = channel_opened,
						  .control = channel_control,
						  .frame_begin = channel_frame_begin,
						  .frame = channel_frame,
						  .sent = channel_sent,
						  .ended = channel_ended};
	struct measure *m = arg;
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

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static double since(uint64_t ns)
{
	return (double)(gp_now_ns() - ns) * 1e-9;
}

/* Nothing is to be done: the timer makes the loop turn, so that whoever waits in it for a time looks at the clock. */
static void on_tick(uv_timer_t *timer)
{
	(void)timer;
}

/* False: it is over. No frame is begun that should take longer than all of the time: a server that is silent for longer, but
 * for its heartbeats, is not waited for. */
static bool turn(struct measure *m)
{
	const double patience_s = m->seconds + 2 * m->spec->connect_timeout_s;
	if (!m->over)
		uv_run(&m->loop, UV_RUN_ONCE);
	if (m->began_ns > 0 && since(m->heard_ns) > patience_s)
		fail_with(m, GP_TIMEOUT, "the server answers no probes");
	return !m->over;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

static void begin_trip(struct measure *m, struct gp_trips *into)
{
	const bool rests = into != &m->idle && since(m->trip_ns) < TRIP_PAUSE_S;
	if (m->trip_under_way || rests || m->probes_left <= 2 * UNDER_WAY)
		return;
	m->into = into;
	m->trip_under_way = true;
	m->trip_ns = gp_now_ns();
	send_probe(m, m->trips++, 0, 0);
}

/* One round trip after the other, with nothing else on the link. */
static void measure_idle(struct measure *m, double seconds)
{
	const uint64_t begin = gp_now_ns();
	while (m->idle.count < IDLE_TRIPS && (m->idle.count == 0 || since(begin) < seconds)) {
		begin_trip(m, &m->idle);
		if (!turn(m))
			return;
	}
}

static bool has_room(const struct measure *m, int way, uint64_t bytes)
{
	const uint32_t slot = m->asked[way] % UNDER_WAY;
	return m->asked[way] - m->through[way] < UNDER_WAY && bytes <= m->bytes_left && bytes <= m->frame_most &&
	       m->probes_left > 0 && !(way == GP_WAY_UP && m->busy[slot]);
}

static void send_up(struct measure *m, uint32_t number, uint64_t bytes)
{
	struct gp_frame *f = &m->frame[GP_WAY_UP][number % UNDER_WAY];
	f->head = (struct gp_frame_head){
		.type = GP_FRAME_PROBE_UP, .chunk = number, .session = m->session, .payload_len = bytes};
	m->busy[number % UNDER_WAY] = true;
	m->probes_left--;
	gp_channel_send_frame(m->ch, f);
}

/* Sends a frame up, or asks for one down. False: no further one may be under way now, or the server allows no more bytes. */
static bool begin_frame(struct measure *m, int way, uint64_t bytes)
{
	if (!has_room(m, way, bytes))
		return false;
	const uint32_t number = m->asked[way]++;
	m->size[way][number % UNDER_WAY] = bytes;
	m->frame_ns[number % UNDER_WAY] = gp_now_ns();
	m->bytes_left -= bytes;
	if (way == GP_WAY_UP)
		send_up(m, number, bytes);
	else
		send_probe(m, number, bytes, number < UNDER_WAY ? 0 : m->tag[number % UNDER_WAY]);
	return true;
}

static bool none_under_way(const struct measure *m, int way)
{
	return m->asked[way] == m->through[way];
}

/* Frames grow until each takes longer than a round trip, so that the link is full with two under way. */
static uint64_t next_size(const struct measure *m, uint64_t size, uint64_t most)
{
	const double wanted_s = m->out->idle.median + FRAME_S;
	const double alone_s = fmax(m->took_s - m->out->idle.median, 1e-6);
	const double grown = (double)size * fmin(1.5 * wanted_s / alone_s, GROWTH);
	if (alone_s >= wanted_s || size >= most)
		return size;
	return grown < (double)most ? (uint64_t)grown : most;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* From the first to the last answer in the later part of the time: bytes that were through, divided by the time between. */
static void find_rate(const struct mark *mark, int marks, uint64_t begin_ns, struct gp_way_figures *out)
{
	int first = 0;
	if (marks < 2)
		return;
	const uint64_t settled = begin_ns + (uint64_t)(SETTLE * (double)(mark[marks - 1].ns - begin_ns));
	while (first < marks - 2 && mark[first].ns < settled)
		first++;
	const double seconds = (double)(mark[marks - 1].ns - mark[first].ns) * 1e-9;
	out->seconds = seconds;
	if (seconds > 0)
		out->bytes_per_s = (double)(mark[marks - 1].bytes - mark[first].bytes) / seconds;
}

/* A way that is kept full. */
struct filling {
	uint64_t begin_ns, size, size_most;
	uint64_t left; /* bytes of the session that this way has to leave for what follows */
	double seconds;
	uint32_t first; /* number of its first frame */
};

/* Begins frames until the time is over, and UNDER_WAY of them in any case: on a busy machine the time may be over before the
 * first one is answered, and a rate takes two answers. */
static void fill(struct measure *m, int way, const struct filling *f)
{
	while ((since(f->begin_ns) < f->seconds || m->asked[way] - f->first < UNDER_WAY) &&
	       m->bytes_left >= f->left + f->size && begin_frame(m, way, f->size))
		;
}

static bool is_filled(const struct measure *m, int way, const struct filling *f)
{
	const bool used_up = m->bytes_left < f->left + f->size || m->probes_left == 0;
	return none_under_way(m, way) && (since(f->begin_ns) >= f->seconds || used_up);
}

static void measure_full(struct measure *m, int way, double seconds, uint64_t bytes)
{
	struct filling f = {.begin_ns = gp_now_ns(),
			    .size_most = least(least(RATE_BYTES_MOST, m->frame_most), bytes / RATE_FRAMES),
			    .left = m->bytes_left > bytes ? m->bytes_left - bytes : 0,
			    .seconds = seconds,
			    .first = m->asked[way]};
	f.size = least(FIRST_BYTES, f.size_most);
	const uint64_t worked_ns = gp_thread_ns();
	m->marks = 0;
	m->done_bytes = 0;
	for (int seen = 0;;) {
		if (m->marks > seen && m->took_bytes == f.size) /* else it is of the time before they grew */
			f.size = next_size(m, f.size, f.size_most);
		seen = m->marks;
		fill(m, way, &f);
		begin_trip(m, &m->loaded[way]);
		if (is_filled(m, way, &f) || !turn(m))
			break;
	}
	find_rate(m->mark, m->marks, f.begin_ns, &m->out->way[way]);
	if (m->done_bytes > 0)
		m->out->way[way].byte_s = (double)(gp_thread_ns() - worked_ns) * 1e-9 / (double)m->done_bytes;
}

/* Seconds from the frame's beginning to its answer. NaN: it is over. */
static double time_frame(struct measure *m, int way, uint64_t bytes)
{
	const uint64_t begin = gp_now_ns();
	if (!begin_frame(m, way, bytes))
		return NAN;
	while (!none_under_way(m, way))
		if (!turn(m))
			return NAN;
	return (double)(m->last_ns - begin) * 1e-9;
}

static double expected_s(const struct measure *m, int way, uint64_t bytes)
{
	return (double)bytes / m->out->way[way].bytes_per_s + m->out->idle.median;
}

/* The fastest of a few: the others were disturbed. */
static void measure_size(struct measure *m, struct gp_size_figures *s, int way, double deadline_s)
{
	for (int i = 0; i < SIZE_TRIES; i++) {
		if (!(since(m->began_ns) + expected_s(m, way, s->bytes) < deadline_s))
			return;
		const double seconds = time_frame(m, way, s->bytes);
		const double rate = seconds > 0 ? (double)s->bytes / seconds : NAN;
		s->bytes_per_s[way] = fmax(s->bytes_per_s[way], rate); /* of a number and NaN, the number */
		if (!(seconds < SIZE_AGAIN_S))
			return;
	}
}

static void measure_sizes(struct measure *m)
{
	static const uint64_t bytes[] = {64u << 10, 256u << 10, 1u << 20, 4u << 20, 16u << 20, 64u << 20, 128u << 20};
	const int sizes = (int)(sizeof bytes / sizeof bytes[0]);
	const double begin = since(m->began_ns);
	m->marks = 0;
	for (int i = 0; i < sizes; i++) {
		struct gp_size_figures *s = &m->out->size[m->out->sizes++];
		*s = (struct gp_size_figures){.bytes = bytes[i], .bytes_per_s = {NAN, NAN}};
		for (int way = 0; way < GP_WAYS && !m->over; way++)
			measure_size(m, s, way, begin + (m->seconds - begin) * (2 * i + way + 1) / (2 * sizes));
	}
	for (int i = 0; i < sizes && !m->over;
	     i++) /* what the time of the small ones has left goes to the large ones */
		for (int way = 0; way < GP_WAYS && !m->over; way++)
			if (isnan(m->out->size[i].bytes_per_s[way]))
				measure_size(m, &m->out->size[i], way, m->seconds);
}

static void measure_all(struct measure *m)
{
	const uint64_t bytes = m->bytes_left / 4;
	send_measure(m);
	measure_idle(m, 0.1 * m->seconds);
	m->out->idle = gp_trips_figures(&m->idle);
	for (int way = 0; way < GP_WAYS && !m->over; way++)
		measure_full(m, way, 0.25 * m->seconds, bytes);
	while (!m->over && m->trip_under_way)
		turn(m);
	if (!m->over)
		measure_sizes(m);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* How far the kernel lets a buffer grow: the last of three numbers. 0: not known. */
static uint64_t buffer_most(const char *path)
{
	unsigned long long least, first, most;
	FILE *f = fopen(path, "r");
	const bool read = f && fscanf(f, "%llu %llu %llu", &least, &first, &most) == 3;
	if (f)
		fclose(f);
	return read ? most : 0;
}

static void note_figures(struct measure *m)
{
	struct gp_link_figures *out = m->out;
	struct gp_tcp_figures tcp;
	struct gp_way_figures *up = &out->way[GP_WAY_UP];
	out->seconds = since(m->began_ns);
	for (int way = 0; way < GP_WAYS; way++)
		out->way[way].loaded = gp_trips_figures(&m->loaded[way]);
	gp_channel_figures(m->ch, &tcp);
	up->kernel = tcp.valid;
	up->bytes = tcp.bytes_acked;
	up->retransmitted_bytes = tcp.bytes_retransmitted;
	out->kernel_rtt_us = tcp.rtt_us;
	out->kernel_rtt_min_us = tcp.rtt_min_us;
	out->send_buffer_bytes = buffer_most("/proc/sys/net/ipv4/tcp_wmem");
	out->receive_buffer_bytes = buffer_most("/proc/sys/net/ipv4/tcp_rmem");
}

static enum gp_status make_blocks(struct measure *m, struct gp_err *err)
{
	GP_TRY(gp_alloc_array((void **)&m->block, 2, BLOCK_BYTES, err));
	GP_TRY(gp_alloc_array((void **)&m->mark, MARKS_MAX, sizeof *m->mark, err));
	const uint64_t seed = gp_now_ns(); /* bytes that no device on the way makes smaller */
	for (size_t at = 0; at < BLOCK_BYTES; at += 16) {
		uint32_t draw[4];
		gp_rng_block(seed, 0, at, draw);
		memcpy(m->block + at, draw, sizeof draw);
	}
	for (int way = 0; way < GP_WAYS; way++)
		for (int i = 0; i < UNDER_WAY; i++) {
			struct gp_frame *f = &m->frame[way][i];
			f->payload = m->block + (way == GP_WAY_DOWN ? BLOCK_BYTES : 0);
			f->cap = BLOCK_BYTES;
			f->wrap = WRAP_BYTES;
		}
	return GP_OK;
}

static enum gp_status connect_to(struct measure *m, struct gp_err *err)
{
	uint16_t port;
	const uint64_t begin = gp_now_ns();
	GP_TRY(gp_addr_parse(m->spec->server, m->host, &port, err));
	GP_TRY(gp_tcp_connect(&m->loop, m->host, port, (uint64_t)(m->spec->connect_timeout_s * 1000), on_connected, m,
			      &m->connecting, err));
	char text[GP_ERR_TEXT];
	snprintf(text, sizeof text, "server %s does not answer (--connect-timeout)", m->spec->server);
	while (!m->welcomed && turn(m))
		if (m->connected && since(begin) > 2 * m->spec->connect_timeout_s)
			fail_with(m, GP_TIMEOUT, text);
	*err = m->err;
	return m->over ? err->code : GP_OK;
}

static void hang_up(struct measure *m)
{
	struct gp_err ignored;
	if (m->connecting)
		gp_tcp_connect_cancel(m->connecting);
	if (m->channel_open) {
		const bool bye = !m->over && gp_control_send_bye(m->ch, &ignored) == GP_OK;
		gp_channel_close(m->ch, bye, channel_closed, m);
	}
	uv_close((uv_handle_t *)&m->timer, NULL);
	uv_run(&m->loop, UV_RUN_DEFAULT);
}

static enum gp_status run(struct measure *m, struct gp_err *err)
{
	GP_TRY(make_blocks(m, err));
	GP_TRY(connect_to(m, err));
	measure_all(m);
	note_figures(m);
	m->out->cut_short = m->over && m->time_over && m->idle.count > 0;
	*err = m->err;
	return m->over && !m->out->cut_short ? err->code : GP_OK;
}

enum gp_status gp_link_measure(const struct gp_link_measure_spec *spec, struct gp_link_figures *out, struct gp_err *err)
{
	struct measure *m = gp_calloc(1, sizeof *m);
	*out = (struct gp_link_figures){.server = spec->server, .idle = gp_trips_figures(&(struct gp_trips){0})};
	for (int way = 0; way < GP_WAYS; way++)
		out->way[way] = (struct gp_way_figures){.bytes_per_s = NAN, .loaded = out->idle};
	if (!m)
		GP_FAIL(err, GP_NOMEM, "out of memory for measuring");
	m->spec = spec;
	m->out = out;
	const int code = uv_loop_init(&m->loop);
	if (code != 0) {
		gp_free(m);
		GP_FAIL(err, GP_IO, "cannot make an event loop: %s", uv_strerror(code));
	}
	uv_timer_init(&m->loop, &m->timer);
	uv_timer_start(&m->timer, on_tick, TICK_MS, TICK_MS);
	gp_control_arena_init(&m->arena, ARENA_BYTES);
	const enum gp_status status = run(m, err);
	hang_up(m);
	uv_loop_close(&m->loop);
	gp_control_arena_deinit(&m->arena);
	gp_free(m->block);
	gp_free(m->mark);
	gp_free(m);
	return status;
}
