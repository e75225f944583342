/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection through the emulated link. See link_tunnel.h. A flow is one
 * direction: reads fill its queue until that is full, then TCP holds the sender
 * back; a timer sends on what has arrived. Test: tests/unit/test_link_relay.c
 */
#include "client/link/link_tunnel.h"

#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "client/link/link_queue.h"
#include "common/base/log.h"

#define READ_BYTES_MAX   (256u << 10) /* of one read callback (conn_tcp.c) */
#define LOOKAHEAD_NS     500000u      /* timers count milliseconds: what is due by then goes now */
#define SETTLE_MS        1
#define SETTLE_TURNS_MAX 500
#define SOCKET_S         1e-3 /* of the rate */
#define SOCKET_BYTES_MIN (12 << 10)
#define SOCKET_BYTES_MAX (4 << 20)

enum state {
	STATE_JOINING, /* the target is not connected yet */
	STATE_OPEN,
	STATE_STALLED,    /* nothing is passed on; the senders run into full buffers */
	STATE_SETTLING,   /* the last bytes before a reset are on their way to the receiver */
	STATE_SWALLOWING, /* everything is taken, nothing passed on */
	STATE_CLOSING,
};

enum ending { ENDING_NONE, ENDING_FIN, ENDING_RESET };

struct flow {
	struct gp_link_tunnel *tunnel;
	int direction;
	struct gp_conn *from, *to;
	struct gp_link_queue queue;
	struct gp_link_pace pace;
	struct gp_conn_write write;
	size_t writing;     /* bytes of the write under way, 0 = none */
	uint64_t sent;      /* bytes that the receiver's kernel has */
	uint64_t end_ns;    /* when the ending arrives */
	enum ending ending; /* of `from` */
	bool reading, end_passed;
	bool deaf; /* nobody takes the bytes any more */
};

struct gp_link_tunnel {
	struct gp_link_tunnel *next;
	uv_loop_t *loop;
	uv_timer_t timer;
	struct gp_link_tunnel_spec spec;
	struct flow flow[2];
	enum state state;
	struct flow *settling;
	uint64_t resume_ns;
	int settle_turns, open_handles;
};

struct gp_link_tunnel **gp_link_tunnel_next(struct gp_link_tunnel *t)
{
	return &t->next;
}

static const char *direction_name(int direction)
{
	return direction == GP_LINK_UP ? "up" : "down";
}

/* Closing. */

static void release(struct gp_link_tunnel *t)
{
	if (--t->open_handles > 0)
		return;
	t->spec.gone(t->spec.arg, t);
	for (int d = 0; d < 2; d++)
		gp_link_queue_deinit(&t->flow[d].queue);
	gp_free(t);
}

static void on_conn_closed(void *arg)
{
	release(arg);
}

static void on_timer_closed(uv_handle_t *h)
{
	release(h->data);
}

static int socket_of(const struct gp_conn *c)
{
	return c->ops->socket ? c->ops->socket(c) : -1;
}

/* The coming close is a reset. */
static void prepare_reset(struct gp_conn *c)
{
	const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
	if (c)
		setsockopt(socket_of(c), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

static void close_tunnel(struct gp_link_tunnel *t, bool reset)
{
	if (t->state == STATE_CLOSING)
		return;
	t->state = STATE_CLOSING;
	for (int d = 0; d < 2; d++) {
		struct gp_conn *c = t->flow[d].from;
		if (reset)
			prepare_reset(c);
		if (c)
			c->ops->close(c, on_conn_closed, t);
	}
	uv_close((uv_handle_t *)&t->timer, on_timer_closed);
}

void gp_link_tunnel_close(struct gp_link_tunnel *t)
{
	close_tunnel(t, false);
}

/* Faults. */

static void begin_stall(struct gp_link_tunnel *t, struct flow *f, uint64_t now_ns)
{
	gp_log(net, GP_LOG_INFO, "connection %llu: silent after %llu bytes %s", (unsigned long long)t->spec.number,
	       (unsigned long long)f->sent, direction_name(f->direction));
	t->spec.counts->stalls++;
	t->spec.plan.stall_at[0] = t->spec.plan.stall_at[1] = UINT64_MAX;
	t->resume_ns = t->spec.stall_ns == 0 ? UINT64_MAX : now_ns + t->spec.stall_ns;
	t->state = STATE_STALLED;
}

static void swallow(struct gp_link_tunnel *t)
{
	t->state = STATE_SWALLOWING;
	for (int d = 0; d < 2; d++) {
		struct flow *f = &t->flow[d];
		if (!f->reading && f->ending == ENDING_NONE)
			f->from->ops->read_start(f->from);
		f->reading = true;
	}
}

static void begin_drop(struct gp_link_tunnel *t, struct flow *f)
{
	static const char *const what[] = {"reset", "ended", "swallowed"};
	gp_log(net, GP_LOG_INFO, "connection %llu: %s after %llu bytes %s", (unsigned long long)t->spec.number,
	       what[t->spec.drop_mode], (unsigned long long)f->sent, direction_name(f->direction));
	t->spec.counts->drops++;
	if (t->spec.drop_mode == GP_LINK_RESET) {
		t->state = STATE_SETTLING;
		t->settling = f;
		return;
	}
	if (t->spec.drop_mode == GP_LINK_FIN)
		for (int d = 0; d < 2; d++)
			if (!t->flow[d].end_passed)
				t->flow[d].to->ops->shutdown(t->flow[d].to);
	swallow(t);
}

/* A reset throws away what the kernel has not sent yet: wait for that, if not for ever. (Waiting for acknowledgements would
 * cost 40 ms each time, because receivers delay them.) */
static void settle(struct gp_link_tunnel *t)
{
	int left = 0;
	if (ioctl(socket_of(t->settling->to), SIOCOUTQNSD, &left) != 0 || left == 0 ||
	    ++t->settle_turns > SETTLE_TURNS_MAX)
		close_tunnel(t, true);
}

/* Sending on. */

static uint64_t fault_at(const struct flow *f)
{
	const struct gp_link_plan *p = &f->tunnel->spec.plan;
	const uint64_t stall = p->stall_at[f->direction], drop = p->drop_at[f->direction];
	return stall < drop ? stall : drop;
}

static void on_written(void *arg, enum gp_status status);

static void send_on(struct flow *f, size_t bytes)
{
	uv_buf_t bufs[2];
	const uint64_t before_fault = fault_at(f) - f->sent;
	if (bytes > before_fault)
		bytes = (size_t)before_fault;
	if (f->tunnel->spec.plan.trickle[f->direction])
		bytes = 1;
	f->writing = bytes;
	f->write.cb = on_written;
	f->write.arg = f;
	const unsigned count = gp_link_queue_peek(&f->queue, bytes, bufs);
	f->to->ops->write(f->to, &f->write, bufs, count);
}

static void pass_ending(struct flow *f)
{
	struct gp_link_tunnel *t = f->tunnel;
	f->end_passed = true;
	if (f->ending == ENDING_RESET) {
		close_tunnel(t, true);
		return;
	}
	f->to->ops->shutdown(f->to);
	if (t->flow[!f->direction].end_passed)
		close_tunnel(t, false);
}

static void pump(struct flow *f, uint64_t now_ns)
{
	struct gp_link_tunnel *t = f->tunnel;
	if (t->state != STATE_OPEN || f->writing > 0)
		return;
	if (f->sent == t->spec.plan.drop_at[f->direction]) {
		begin_drop(t, f);
		return;
	}
	if (f->sent == t->spec.plan.stall_at[f->direction]) {
		begin_stall(t, f, now_ns);
		return;
	}
	const size_t bytes = gp_link_queue_due(&f->queue, now_ns + LOOKAHEAD_NS);
	if (bytes > 0)
		send_on(f, bytes);
	else if (gp_link_queue_empty(&f->queue) && f->ending != ENDING_NONE && !f->end_passed &&
		 f->end_ns <= now_ns + LOOKAHEAD_NS)
		pass_ending(f);
}

/* When there is something to do for this flow next. */
static uint64_t flow_next_ns(const struct flow *f)
{
	if (f->writing > 0)
		return UINT64_MAX;
	if (!gp_link_queue_empty(&f->queue))
		return gp_link_queue_next_ns(&f->queue);
	return f->ending != ENDING_NONE && !f->end_passed ? f->end_ns : UINT64_MAX;
}

static uint64_t next_ns(const struct gp_link_tunnel *t, uint64_t now_ns)
{
	switch (t->state) {
	case STATE_OPEN: {
		const uint64_t up = flow_next_ns(&t->flow[GP_LINK_UP]), down = flow_next_ns(&t->flow[GP_LINK_DOWN]);
		return up < down ? up : down;
	}
	case STATE_STALLED:
		return t->resume_ns;
	case STATE_SETTLING:
		return now_ns + SETTLE_MS * 1000000u;
	default:
		return UINT64_MAX;
	}
}

static void on_timer(uv_timer_t *timer);

/* Both ends are gone, and nothing is passed on any more. */
static bool is_over(const struct gp_link_tunnel *t)
{
	return t->state == STATE_SWALLOWING && t->flow[0].ending != ENDING_NONE && t->flow[1].ending != ENDING_NONE;
}

/* Whether an end is gone while nothing will be passed on any more: the other one's end is then found only by reading on. */
static bool is_of_no_use(const struct gp_link_tunnel *t)
{
	return t->state == STATE_STALLED && t->resume_ns == UINT64_MAX &&
	       (t->flow[0].ending != ENDING_NONE || t->flow[1].ending != ENDING_NONE);
}

/* Does what can be done now and comes back when there is more. */
static void turn(struct gp_link_tunnel *t)
{
	const uint64_t now_ns = uv_hrtime();
	if (t->state == STATE_STALLED && now_ns >= t->resume_ns)
		t->state = STATE_OPEN;
	if (t->state == STATE_SETTLING)
		settle(t);
	for (int d = 0; d < 2; d++)
		pump(&t->flow[d], now_ns);
	if (is_of_no_use(t))
		swallow(t);
	if (is_over(t))
		close_tunnel(t, false);
	if (t->state == STATE_CLOSING)
		return;
	const uint64_t next = next_ns(t, now_ns);
	if (next == UINT64_MAX) {
		uv_timer_stop(&t->timer);
		return;
	}
	const uint64_t wait_ms = next > now_ns ? (next - now_ns + 500000u) / 1000000u : 0;
	uv_update_time(t->loop);
	uv_timer_start(&t->timer, on_timer, wait_ms, 0);
}

static void on_timer(uv_timer_t *timer)
{
	turn(timer->data);
}

static void resume_reading(struct flow *f)
{
	if (f->reading || f->ending != ENDING_NONE || gp_link_queue_room(&f->queue) < READ_BYTES_MAX)
		return;
	f->reading = true;
	f->from->ops->read_start(f->from);
}

/* The receiver is gone. What it sent before that may still be on its way to the other end, so the tunnel goes on. */
static void give_up(struct flow *f)
{
	f->deaf = true;
	f->tunnel->spec.counts->swallowed[f->direction] += f->queue.in - f->queue.out;
	gp_link_queue_take(&f->queue, (size_t)(f->queue.in - f->queue.out));
}

static void on_written(void *arg, enum gp_status status)
{
	struct flow *f = arg;
	struct gp_link_tunnel *t = f->tunnel;
	const size_t bytes = f->writing;
	f->writing = 0;
	if (t->state == STATE_CLOSING)
		return;
	if (status == GP_OK) {
		gp_link_queue_take(&f->queue, bytes);
		f->sent += bytes;
		t->spec.counts->bytes[f->direction] += bytes;
	} else {
		give_up(f);
	}
	resume_reading(f);
	turn(t);
}

/* What the connections report. */

static void corrupt(struct flow *f, uint64_t first, size_t len)
{
	const uint64_t at = f->tunnel->spec.plan.corrupt_at[f->direction];
	if (at < first || at - first >= len)
		return;
	gp_link_queue_flip(&f->queue, at);
	f->tunnel->spec.counts->corrupted[f->direction]++;
	gp_log(net, GP_LOG_INFO, "connection %llu: corrupted byte %llu %s", (unsigned long long)f->tunnel->spec.number,
	       (unsigned long long)at, direction_name(f->direction));
}

static void on_read(void *arg, const uint8_t *data, size_t len)
{
	struct flow *f = arg;
	struct gp_link_tunnel *t = f->tunnel;
	if (t->state == STATE_SWALLOWING || f->deaf) {
		t->spec.counts->swallowed[f->direction] += len;
		return;
	}
	const uint64_t now_ns = uv_hrtime(), first = f->queue.in;
	const size_t piece = gp_link_pace_piece_bytes(&f->pace.shape);
	for (size_t at = 0; at < len; at += piece) {
		const size_t n = len - at < piece ? len - at : piece;
		gp_link_queue_put(&f->queue, data + at, n, gp_link_pace_due(&f->pace, now_ns, n));
	}
	corrupt(f, first, len);
	if (gp_link_queue_room(&f->queue) < READ_BYTES_MAX) {
		f->from->ops->read_stop(f->from);
		f->reading = false;
	}
	turn(t);
}

static void on_ended(void *arg, enum gp_status status, const char *why)
{
	struct flow *f = arg;
	struct gp_link_tunnel *t = f->tunnel;
	(void)why;
	f->ending = status == GP_OK ? ENDING_FIN : ENDING_RESET;
	f->end_ns = gp_link_pace_due(&f->pace, uv_hrtime(), 0);
	turn(t);
}

/* Opening. */

/* Bounds the receive buffer, so that the sender is held back early: with the kernel's own size megabytes would wait
 * there. (The relay has bounded segments: with less room than one, TCP waits for a timer.) */
static void bound_socket(const struct flow *f)
{
	const double bytes = f->pace.shape.rate_bps / 8 * SOCKET_S;
	const int size = bytes < SOCKET_BYTES_MIN   ? SOCKET_BYTES_MIN
			 : bytes > SOCKET_BYTES_MAX ? SOCKET_BYTES_MAX
						    : (int)bytes;
	if (f->pace.shape.rate_bps > 0)
		setsockopt(socket_of(f->from), SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

static enum gp_status open_flow(struct gp_link_tunnel *t, int direction, struct gp_err *err)
{
	struct flow *f = &t->flow[direction];
	const struct gp_link_shape *shape = &t->spec.shape[direction];
	f->tunnel = t;
	f->direction = direction;
	gp_link_pace_init(&f->pace, shape, t->spec.seed, 1 + 2 * t->spec.number + (uint64_t)direction);
	return gp_link_queue_init(&f->queue, gp_link_pace_queue_bytes(shape) + READ_BYTES_MAX, err);
}

enum gp_status gp_link_tunnel_new(uv_loop_t *loop, struct gp_conn *near, const struct gp_link_tunnel_spec *spec,
				  struct gp_link_tunnel **out, struct gp_err *err)
{
	struct gp_link_tunnel *t = NULL;
	enum gp_status status = gp_alloc_array((void **)&t, 1, sizeof *t, err);
	if (status == GP_OK) {
		t->spec = *spec;
		status = open_flow(t, GP_LINK_UP, err);
	}
	if (status == GP_OK)
		status = open_flow(t, GP_LINK_DOWN, err);
	if (status != GP_OK) {
		if (t)
			gp_link_queue_deinit(&t->flow[GP_LINK_UP].queue);
		gp_free(t);
		near->ops->close(near, NULL, NULL);
		return status;
	}
	t->loop = loop;
	t->flow[GP_LINK_UP].from = t->flow[GP_LINK_DOWN].to = near;
	uv_timer_init(loop, &t->timer);
	t->timer.data = t;
	t->open_handles = 3; /* the timer, `near`, and the join that is to come or `far` after it */
	*out = t;
	return GP_OK;
}

static void begin_reading(struct flow *f)
{
	static const struct gp_conn_cbs cbs = {.read = on_read, .ended = on_ended};
	bound_socket(f);
	f->from->cbs = cbs;
	f->from->arg = f;
	f->reading = true;
	f->from->ops->read_start(f->from);
}

void gp_link_tunnel_join(struct gp_link_tunnel *t, struct gp_conn *far)
{
	if (!far || t->state == STATE_CLOSING) {
		close_tunnel(t, true);
		if (far)
			far->ops->close(far, NULL, NULL);
		release(t);
		return;
	}
	t->flow[GP_LINK_DOWN].from = t->flow[GP_LINK_UP].to = far;
	t->state = STATE_OPEN;
	for (int d = 0; d < 2; d++)
		begin_reading(&t->flow[d]);
	turn(t);
}
