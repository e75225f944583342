/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of a channel: opening, deadlines, ending. The bytes are channel_send.c
 * and channel_recv.c. PROTOCOL.md section 3.3 (deadlines).
 * Test: tests/unit/test_channel.c, tests/unit/test_channel_life.c
 */
#include "common/wire/channel_impl.h"

#include <string.h>

#define MS_NS                       1000000ull
#define HEARTBEAT_MS_DEFAULT        2000
#define IDLE_TIMEOUT_MS_DEFAULT     15000
#define WRITE_TIMEOUT_MS_DEFAULT    30000
#define PREFACE_TIMEOUT_MS_DEFAULT  5000
#define CONTROL_QUEUE_BYTES_DEFAULT (8u << 20)
#define FLUSH_MS                    1000
#define TICK_MS_MIN                 5
#define TICK_MS_MAX                 250

static void on_timer(uv_timer_t *timer);

void gp_channel_kick(struct gp_channel *ch)
{
	/* From within the timer 1 ms: libuv would run a timer of 0 again before it looks at anything else. */
	uv_timer_start(&ch->timer, on_timer, ch->in_timer ? 1 : 0, ch->tick_ms);
}

void gp_channel_fail(struct gp_channel *ch, const struct gp_err *err)
{
	if (ch->over || ch->closing)
		return;
	ch->over = true;
	ch->end_status = err->code;
	ch->end_err = *err;
	if (err->code == GP_PROTO || err->code == GP_DAMAGED)
		gp_err_prefix(&ch->end_err, "%s", ch->peer);
	gp_channel_kick(ch);
}

static void end_now(struct gp_channel *ch, enum gp_status status, const char *text)
{
	struct gp_err err = {0};
	gp_err_set(&err, status, 0, __FILE__, __LINE__, "%s", text);
	gp_channel_fail(ch, &err);
}

/* TLS in the place of a preface: an alert (a server that asks for TLS) or a handshake record. */
static bool begins_as_tls(const struct receiver *r)
{
	return r->state == RECV_PREFACE && r->have >= 3 && (r->small[0] == 0x15 || r->small[0] == 0x16) &&
	       r->small[1] == 0x03;
}

/* gp_conn_cbs.ended */
static void on_conn_ended(void *arg, enum gp_status status, const char *why)
{
	struct gp_channel *ch = arg;
	char text[256];
	ch->link_over = true;
	if (status != GP_OK || gp_receiver_between(ch)) {
		end_now(ch, status, why);
	} else if (begins_as_tls(&ch->recv)) {
		snprintf(text, sizeof text, "%s and speaks TLS (--tls or --tls-ca)", why);
		end_now(ch, GP_DENIED, text); /* not GP_PEER: another connection would end as this one */
	} else {
		const bool early = ch->recv.state == RECV_PREFACE;
		snprintf(text, sizeof text, "%s %s", why,
			 early ? "before it said who it is" : "in the middle of a message");
		end_now(ch, GP_PEER, text);
	}
	gp_channel_kick(ch);
}

static void on_conn_closed(void *arg)
{
	struct gp_channel *ch = arg;
	ch->conn = NULL;
	gp_channel_kick(ch);
}

static void close_conn(struct gp_channel *ch)
{
	if (!ch->conn || ch->conn_closing)
		return;
	ch->conn_closing = true;
	if (ch->conn->ops->figures)
		ch->conn->ops->figures(ch->conn, &ch->figures);
	ch->conn->ops->close(ch->conn, on_conn_closed, ch);
}

static void on_timer_closed(uv_handle_t *h)
{
	struct gp_channel *ch = h->data;
	gp_sender_give_back(ch); /* queued since the last settle() */
	if (ch->closed_cb)
		ch->closed_cb(ch->closed_arg);
	gp_receiver_deinit(ch);
	gp_sender_deinit(ch);
	gp_free(ch);
}

/* Writes what has to be written, says so to the peer, and waits until it hung up: closing earlier, with bytes of the
 * peer unread, would reset the connection and could take our last message from the peer's buffer. */
static bool flush_goes_on(struct gp_channel *ch)
{
	if (!ch->flush || !ch->conn || ch->conn_closing || ch->link_over || ch->send.dead ||
	    gp_now_ns() >= ch->close_deadline_ns)
		return false;
	gp_sender_pump(ch);
	if (gp_sender_idle(ch) && !ch->shut) {
		ch->shut = true;
		ch->conn->ops->shutdown(ch->conn);
		ch->conn->ops->read_start(ch->conn);
	}
	return true;
}

static void advance_close(struct gp_channel *ch)
{
	if (flush_goes_on(ch))
		return;
	close_conn(ch);
	if (!ch->conn && !uv_is_closing((uv_handle_t *)&ch->timer))
		uv_close((uv_handle_t *)&ch->timer, on_timer_closed);
}

static void tell_owner(struct gp_channel *ch)
{
	if (!ch->over || ch->told || ch->closing)
		return;
	ch->told = true;
	ch->cbs.ended(ch->arg, ch->end_status, &ch->end_err);
}

/* Takes the steps that are due on the way from over to gone. Only from the timer. */
static void settle(struct gp_channel *ch)
{
	if (!ch->over && !ch->closing)
		return;
	gp_sender_give_back(ch);
	if (ch->link_over || ch->send.dead)
		close_conn(ch); /* the writes that are outstanding come back */
	if (!ch->conn_closing || !ch->conn)
		tell_owner(ch);
	if (ch->closing)
		advance_close(ch);
}

static bool passed(uint64_t now, uint64_t since, uint32_t ms)
{
	return now > since && now - since > ms * MS_NS;
}

static void time_out(struct gp_channel *ch, const char *what, uint32_t ms)
{
	char text[256];
	snprintf(text, sizeof text, "%s %s %.3g s", ch->peer, what, ms * 1e-3);
	end_now(ch, GP_TIMEOUT, text);
}

/* The peer must take bytes of the writes outstanding from time to time. */
static bool write_stalls(struct gp_channel *ch, uint64_t now)
{
	struct sender *s = &ch->send;
	const uint64_t unsent = ch->conn->ops->unsent(ch->conn);
	if (!s->busy || unsent != s->unsent)
		s->progress_ns = now;
	s->unsent = unsent;
	return passed(now, s->progress_ns, ch->options.write_timeout_ms);
}

/* Moves a moment, since which something is waited for, by `late`; never past now, because differences are taken
 * unsigned. */
static void postpone(uint64_t *since, uint64_t late, uint64_t now)
{
	*since = *since + late < now ? *since + late : now;
}

/* When the loop itself stood still (stopped process, long callback), the peer is not to blame: what it sent meanwhile is
 * read after the timers. Half of the shortest deadline at most passes without being forgiven. */
static void forgive_own_stall(struct gp_channel *ch, uint64_t now)
{
	const uint64_t late = now - ch->tick_ns;
	ch->tick_ns = now;
	if (late < 2 * ch->tick_ms * MS_NS)
		return;
	postpone(&ch->opened_ns, late, now);
	postpone(&ch->recv.last_ns, late, now);
	postpone(&ch->send.progress_ns, late, now);
	ch->close_deadline_ns += late;
}

/* A ping is sent beside bytes of ours, too, when the peer has been silent: a peer that only takes bytes proves by
 * its answer that it lives. */
static bool heartbeat_due(const struct gp_channel *ch, uint64_t now)
{
	const uint32_t ms = ch->options.heartbeat_ms;
	return (gp_sender_idle(ch) && passed(now, ch->send.last_ns, ms)) ||
	       (passed(now, ch->recv.last_ns, ms) && passed(now, ch->send.ping_ns, ms) && !ch->send.ping_due);
}

static void check_deadlines(struct gp_channel *ch, uint64_t now)
{
	const struct gp_channel_options *o = &ch->options;
	gp_receiver_tick(ch, now);
	if (ch->recv.paused)
		ch->recv.last_ns = now;
	if (ch->recv.state == RECV_PREFACE && passed(now, ch->opened_ns, o->preface_timeout_ms))
		time_out(ch, "did not say who it is within", o->preface_timeout_ms);
	else if (passed(now, ch->recv.last_ns, o->idle_timeout_ms))
		time_out(ch, "sent nothing for", o->idle_timeout_ms);
	else if (write_stalls(ch, now))
		time_out(ch, "took no bytes for", o->write_timeout_ms);
	else if (heartbeat_due(ch, now))
		gp_sender_ping(ch);
}

static void on_timer(uv_timer_t *timer)
{
	struct gp_channel *ch = timer->data;
	const uint64_t now = gp_now_ns();
	ch->in_timer = true;
	forgive_own_stall(ch, now);
	if (!ch->over && !ch->closing)
		check_deadlines(ch, now);
	settle(ch);
	ch->in_timer = false;
}

static uint32_t or_default(uint32_t value, uint32_t fallback)
{
	return value ? value : fallback;
}

static uint32_t clamp(uint32_t v, uint32_t lo, uint32_t hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

static void set_options(struct gp_channel *ch, const struct gp_channel_options *o)
{
	static const struct gp_channel_options none = {0};
	o = o ? o : &none;
	ch->options = (struct gp_channel_options){
		.segment_bytes = clamp(or_default(o->segment_bytes, GP_SEGMENT_BYTES_DEFAULT), GP_SEGMENT_BYTES_MIN,
				       GP_SEGMENT_BYTES_MAX),
		.heartbeat_ms = or_default(o->heartbeat_ms, HEARTBEAT_MS_DEFAULT),
		.idle_timeout_ms = or_default(o->idle_timeout_ms, IDLE_TIMEOUT_MS_DEFAULT),
		.write_timeout_ms = or_default(o->write_timeout_ms, WRITE_TIMEOUT_MS_DEFAULT),
		.preface_timeout_ms = or_default(o->preface_timeout_ms, PREFACE_TIMEOUT_MS_DEFAULT),
		.control_bytes_max =
			clamp(or_default(o->control_bytes_max, GP_CONTROL_BYTES_MAX), 1, GP_CONTROL_BYTES_MAX),
		.control_queue_bytes_max = or_default(o->control_queue_bytes_max, CONTROL_QUEUE_BYTES_DEFAULT),
		.frame_bytes_max = o->frame_bytes_max ? o->frame_bytes_max : GP_FRAME_BYTES_MAX,
	};
	/* A deadline that is shorter than the peer's heartbeats is kept alive by ours. */
	if (ch->options.heartbeat_ms > ch->options.idle_timeout_ms / 3)
		ch->options.heartbeat_ms = ch->options.idle_timeout_ms / 3;
	o = &ch->options;
	uint32_t least = o->heartbeat_ms < o->idle_timeout_ms ? o->heartbeat_ms : o->idle_timeout_ms;
	least = o->write_timeout_ms < least ? o->write_timeout_ms : least;
	least = o->preface_timeout_ms < least ? o->preface_timeout_ms : least;
	ch->tick_ms = clamp(least / 4, TICK_MS_MIN, TICK_MS_MAX);
}

static void start(struct gp_channel *ch)
{
	uv_timer_init(ch->loop, &ch->timer);
	ch->timer.data = ch;
	ch->opened_ns = ch->tick_ns = ch->recv.last_ns = ch->send.last_ns = ch->send.progress_ns = gp_now_ns();
	uv_timer_start(&ch->timer, on_timer, ch->tick_ms, ch->tick_ms);
	ch->conn->cbs = (struct gp_conn_cbs){.read = gp_receiver_read, .ended = on_conn_ended};
	ch->conn->arg = ch;
	ch->conn->ops->read_start(ch->conn);
	gp_sender_pump(ch); /* the preface */
}

enum gp_status gp_channel_new(uv_loop_t *loop, struct gp_conn *conn, const struct gp_channel_options *options,
			      const struct gp_channel_cbs *cbs, void *arg, struct gp_channel **out, struct gp_err *err)
{
	struct gp_channel *ch;
	enum gp_status status = gp_alloc_array((void **)&ch, 1, sizeof *ch, err);
	if (status != GP_OK) {
		conn->ops->close(conn, NULL, NULL);
		return status;
	}
	ch->loop = loop;
	ch->conn = conn;
	ch->cbs = *cbs;
	ch->arg = arg;
	memcpy(ch->peer, conn->peer, sizeof ch->peer);
	set_options(ch, options);
	gp_receiver_init(ch);
	gp_sender_init(ch);
	start(ch);
	*out = ch;
	return GP_OK;
}

void gp_channel_pause(struct gp_channel *ch, bool paused)
{
	if (ch->recv.paused == paused || gp_channel_deaf(ch))
		return;
	ch->recv.paused = paused;
	ch->recv.last_ns = gp_now_ns();
	if (paused)
		ch->conn->ops->read_stop(ch->conn);
	else
		ch->conn->ops->read_start(ch->conn);
}

void gp_channel_close(struct gp_channel *ch, bool flush, void (*closed)(void *arg), void *arg)
{
	gp_require(!ch->closing);
	if (ch->recv.held)
		gp_channel_pause(ch, false);
	ch->closing = true;
	ch->flush = flush;
	ch->closed_cb = closed;
	ch->closed_arg = arg;
	ch->close_deadline_ns = gp_now_ns() + FLUSH_MS * MS_NS;
	if (!flush && ch->conn && ch->conn_closing && ch->conn->ops->hurry)
		ch->conn->ops->hurry(ch->conn);
	gp_channel_kick(ch);
}

void gp_channel_set_segment_bytes(struct gp_channel *ch, uint32_t bytes)
{
	ch->options.segment_bytes = clamp(bytes, GP_SEGMENT_BYTES_MIN, GP_SEGMENT_BYTES_MAX);
}

const struct gp_account *gp_channel_account(const struct gp_channel *ch)
{
	return &ch->account;
}

struct gp_account *gp_channel_account_mut(struct gp_channel *ch)
{
	return &ch->account;
}

void gp_channel_figures(const struct gp_channel *ch, struct gp_tcp_figures *out)
{
	*out = ch->figures;
	if (ch->conn && !ch->conn_closing && ch->conn->ops->figures)
		ch->conn->ops->figures(ch->conn, out);
}

const char *gp_channel_peer(const struct gp_channel *ch)
{
	return ch->peer;
}

const char *gp_channel_identity(const struct gp_channel *ch)
{
	return ch->conn ? ch->conn->identity : "";
}

const char *gp_channel_subject(const struct gp_channel *ch)
{
	return ch->conn ? ch->conn->subject : "";
}

enum gp_status gp_frame_verify(const struct gp_frame *f, struct gp_err *err)
{
	if (gp_frame_checksum(f->payload, (size_t)f->head.payload_len) == f->head.checksum)
		return GP_OK;
	GP_FAIL(err, GP_DAMAGED, "the checksum of %s frame %u of step %llu does not match its payload",
		gp_frame_type_name(f->head.type), f->head.chunk, (unsigned long long)f->head.step);
}
