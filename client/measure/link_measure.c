/* SPDX-License-Identifier: Apache-2.0
 *
 * See link_measure.h. Every frame of either way is answered by PROBED, and what
 * the link carries is read off the times of these answers: from one to the next
 * there are no round trips in it.
 *
 * Test: tests/unit/test_server_measure.c, tests/e2e/measure.sh
 */
#include "client/measure/link_measure_impl.h"

#include <math.h>
#include <string.h>

#include "client/measure/machine_time.h"
#include "common/base/loop.h"
#include "common/base/rng.h"

#define WRAP_BYTES      (1u << 20)
#define BLOCK_BYTES     ((size_t)WRAP_BYTES + GP_SEGMENT_BYTES_MAX)
#define SIZE_TRIES      3
#define SIZE_AGAIN_S    0.1 /* a frame that takes longer is sent once */
#define FIRST_BYTES     (32u << 10)
#define RATE_BYTES_MOST (32u << 20) /* of a frame of the full link */
#define RATE_FRAMES     8           /* of the bytes for a way, at least */
#define GROWTH          8.0         /* of frames, from one to the next */
#define FRAME_S         0.05        /* that such a frame should take, beside a round trip */
#define SETTLE          0.5         /* part of the time on a full link that is not looked at: TCP begins slowly */
#define TICK_MS         50
#define TRIP_PAUSE_S    20e-3 /* between two round trips on a full link */
#define ARENA_BYTES     (64u << 10)
#define PATIENCES_MOST                                                                                                 \
	8 /* for all of it: its parts are begun within the time, and a frame under way may outlast it by one */

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
 * for its heartbeats, is not waited for. Nor is one that answers small probes alone. */
static bool turn(struct gp_measure *m)
{
	const double patience_s = m->seconds + 2 * m->spec->connect_timeout_s;
	if (!m->over)
		gp_loop_turn(&m->loop);
	if (m->began_ns > 0 && since(m->heard_ns) > patience_s)
		gp_measure_fail(m, GP_TIMEOUT, "the server answers no probes");
	if (m->began_ns > 0 && since(m->began_ns) > PATIENCES_MOST * patience_s) {
		m->time_over = true; /* what is known by now is told */
		gp_measure_fail(m, GP_TIMEOUT, "the server answers too few of the probes");
	}
	return !m->over;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

static void begin_trip(struct gp_measure *m, struct gp_trips *into)
{
	const bool rests = into != &m->idle && since(m->trip_ns) < TRIP_PAUSE_S;
	if (m->trip_under_way || rests || m->probes_left <= 2 * GP_PROBES_UNDER_WAY)
		return;
	m->into = into;
	m->trip_under_way = true;
	m->trip_ns = gp_now_ns();
	gp_measure_send_probe(m, m->trips++, 0, 0);
}

/* One round trip after the other, with nothing else on the link. */
static void measure_idle(struct gp_measure *m, double seconds)
{
	const uint64_t begin = gp_now_ns();
	while (m->idle.count < GP_IDLE_TRIPS && (m->idle.count == 0 || since(begin) < seconds)) {
		begin_trip(m, &m->idle);
		if (!turn(m))
			return;
	}
}

static bool has_room(const struct gp_measure *m, int way, uint64_t bytes)
{
	const uint32_t slot = m->asked[way] % GP_PROBES_UNDER_WAY;
	return m->asked[way] - m->through[way] < GP_PROBES_UNDER_WAY && bytes <= m->bytes_left &&
	       bytes <= m->frame_most && m->probes_left > 0 && !(way == GP_WAY_UP && m->busy[slot]);
}

static void send_up(struct gp_measure *m, uint32_t number, uint64_t bytes)
{
	struct gp_frame *f = &m->frame[GP_WAY_UP][number % GP_PROBES_UNDER_WAY];
	f->head = (struct gp_frame_head){
		.type = GP_FRAME_PROBE_UP, .chunk = number, .session = m->session, .payload_len = bytes};
	m->busy[number % GP_PROBES_UNDER_WAY] = true;
	m->probes_left--;
	gp_channel_send_frame(m->ch, f);
}

/* Sends a frame up, or asks for one down. False: no further one may be under way now, or the server allows no more bytes. */
static bool begin_frame(struct gp_measure *m, int way, uint64_t bytes)
{
	if (!has_room(m, way, bytes))
		return false;
	const uint32_t number = m->asked[way]++;
	m->size[way][number % GP_PROBES_UNDER_WAY] = bytes;
	m->frame_ns[number % GP_PROBES_UNDER_WAY] = gp_now_ns();
	m->bytes_left -= bytes;
	if (way == GP_WAY_UP)
		send_up(m, number, bytes);
	else
		gp_measure_send_probe(m, number, bytes,
				      number < GP_PROBES_UNDER_WAY ? 0 : m->tag[number % GP_PROBES_UNDER_WAY]);
	return true;
}

static bool none_under_way(const struct gp_measure *m, int way)
{
	return m->asked[way] == m->through[way];
}

/* Frames grow until each takes longer than a round trip, so that the link is full with two under way. */
static uint64_t next_size(const struct gp_measure *m, uint64_t size, uint64_t most)
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
static void find_rate(const struct gp_measure_mark *mark, int marks, uint64_t begin_ns, struct gp_way_figures *out)
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

/* Begins frames until the time is over, and GP_PROBES_UNDER_WAY of them in any case: on a busy machine the time may be
 * over before the first one is answered, and a rate takes two answers. */
static void fill(struct gp_measure *m, int way, const struct filling *f)
{
	while ((since(f->begin_ns) < f->seconds || m->asked[way] - f->first < GP_PROBES_UNDER_WAY) &&
	       m->bytes_left >= f->left + f->size && begin_frame(m, way, f->size))
		;
}

static bool is_filled(const struct gp_measure *m, int way, const struct filling *f)
{
	const bool used_up = m->bytes_left < f->left + f->size || m->probes_left == 0;
	return none_under_way(m, way) && (since(f->begin_ns) >= f->seconds || used_up);
}

static void measure_full(struct gp_measure *m, int way, double seconds, uint64_t bytes)
{
	struct filling f = {.begin_ns = gp_now_ns(),
			    .size_most = least(least(RATE_BYTES_MOST, m->frame_most), bytes / RATE_FRAMES),
			    .left = m->bytes_left > bytes ? m->bytes_left - bytes : 0,
			    .seconds = seconds,
			    .first = m->asked[way]};
	f.size = least(FIRST_BYTES, f.size_most);
	const uint64_t worked_ns = gp_thread_ns();
	const double machine_s = gp_machine_busy_s(GP_MACHINE_TIME_FILE);
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
	if (m->done_bytes > 0) {
		/* NaN where it is not known. */
		const double busy_s = gp_machine_busy_s(GP_MACHINE_TIME_FILE) - machine_s;
		m->out->way[way].byte_s = (double)(gp_thread_ns() - worked_ns) * 1e-9 / (double)m->done_bytes;
		m->out->way[way].machine_byte_s = fmax(busy_s, 0) / (double)m->done_bytes;
	}
}

/* Seconds from the frame's beginning to its answer. NaN: it is over. */
static double time_frame(struct gp_measure *m, int way, uint64_t bytes)
{
	const uint64_t begin = gp_now_ns();
	if (!begin_frame(m, way, bytes))
		return NAN;
	while (!none_under_way(m, way))
		if (!turn(m))
			return NAN;
	return (double)(m->last_ns - begin) * 1e-9;
}

static double expected_s(const struct gp_measure *m, int way, uint64_t bytes)
{
	return (double)bytes / m->out->way[way].bytes_per_s + m->out->idle.median;
}

/* The fastest of a few: the others were disturbed. */
static void measure_size(struct gp_measure *m, struct gp_size_figures *s, int way, double deadline_s)
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

static void measure_sizes(struct gp_measure *m)
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

static void measure_all(struct gp_measure *m)
{
	const uint64_t bytes = m->bytes_left / 4;
	gp_measure_send_begin(m);
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

static void note_figures(struct gp_measure *m)
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

static enum gp_status make_blocks(struct gp_measure *m, struct gp_err *err)
{
	GP_TRY(gp_alloc_array((void **)&m->block, 2, BLOCK_BYTES, err));
	GP_TRY(gp_alloc_array((void **)&m->mark, GP_MEASURE_MARKS, sizeof *m->mark, err));
	const uint64_t seed = gp_now_ns(); /* bytes that no device on the way makes smaller */
	for (size_t at = 0; at < BLOCK_BYTES; at += 16) {
		uint32_t draw[4];
		gp_rng_block(seed, 0, at, draw);
		memcpy(m->block + at, draw, sizeof draw);
	}
	for (int way = 0; way < GP_WAYS; way++)
		for (int i = 0; i < GP_PROBES_UNDER_WAY; i++) {
			struct gp_frame *f = &m->frame[way][i];
			f->payload = m->block + (way == GP_WAY_DOWN ? BLOCK_BYTES : 0);
			f->cap = BLOCK_BYTES;
			f->wrap = WRAP_BYTES;
		}
	return GP_OK;
}

static enum gp_status connect_to(struct gp_measure *m, struct gp_err *err)
{
	uint16_t port;
	const uint64_t begin = gp_now_ns();
	GP_TRY(gp_addr_parse_remote(m->spec->server, m->host, &port, err));
	GP_TRY(gp_tcp_connect(&m->loop, m->host, port, (uint64_t)(m->spec->connect_timeout_s * 1000),
			      gp_measure_connected, m, &m->connecting, err));
	char text[GP_ERR_TEXT];
	snprintf(text, sizeof text, "server %s does not answer (--connect-timeout)", m->spec->server);
	while (!m->welcomed && turn(m))
		if (m->connected && since(begin) > 2 * m->spec->connect_timeout_s)
			gp_measure_fail(m, GP_TIMEOUT, text);
	*err = m->err;
	return m->over ? err->code : GP_OK;
}

static void hang_up(struct gp_measure *m)
{
	struct gp_err ignored;
	if (m->connecting)
		gp_tcp_connect_cancel(m->connecting);
	if (m->channel_open) {
		const bool bye = !m->over && gp_control_send_bye(m->ch, &ignored) == GP_OK;
		gp_channel_close(m->ch, bye, gp_measure_closed, m);
	}
	uv_close((uv_handle_t *)&m->timer, NULL);
	uv_run(&m->loop, UV_RUN_DEFAULT);
}

static enum gp_status run(struct gp_measure *m, struct gp_err *err)
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
	struct gp_measure *m = gp_calloc(1, sizeof *m);
	*out = (struct gp_link_figures){.server = spec->server, .idle = gp_trips_figures(&(struct gp_trips){0})};
	for (int way = 0; way < GP_WAYS; way++)
		out->way[way] = (struct gp_way_figures){.bytes_per_s = NAN, .loaded = out->idle};
	if (!m)
		GP_FAIL(err, GP_NOMEM, "out of memory for measuring");
	m->spec = spec;
	m->out = out;
	enum gp_status status = gp_loop_init(&m->loop, err);
	if (status != GP_OK) {
		gp_free(m);
		return status;
	}
	uv_timer_init(&m->loop, &m->timer);
	uv_timer_start(&m->timer, on_tick, TICK_MS, TICK_MS);
	gp_control_arena_init(&m->arena, ARENA_BYTES);
	status = run(m, err);
	hang_up(m);
	uv_loop_close(&m->loop);
	gp_control_arena_deinit(&m->arena);
	gp_free(m->block);
	gp_free(m->mark);
	gp_free(m);
	return status;
}
