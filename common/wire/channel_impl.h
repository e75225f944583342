/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to channel.c (life, deadlines), channel_send.c (queues, writer) and
 * channel_recv.c (parser). Everybody else: channel.h.
 *
 * Life: over = somebody found a reason to end (gp_channel_fail) -> told =
 * `ended` ran -> closing = the owner called gp_channel_close -> conn gone ->
 * timer gone -> `closed`, freed. Steps after the first are taken by one
 * function, settle() in channel.c, from the timer: so no callback runs inside a
 * call of the owner, and nothing is freed under a caller's feet.
 *
 * Threads: the loop's thread. Test: tests/unit/test_channel.c,
 * tests/unit/test_channel_life.c
 */
#ifndef GP_CHANNEL_IMPL_H
#define GP_CHANNEL_IMPL_H

#include "common/wire/channel.h"
#include "common/wire/send_ahead.h"

/* Segments and other records handed to the connection and not yet with the kernel. */
#define WRITES_OUTSTANDING GP_SEND_AHEAD_WRITES

/* A control record, header included. */
struct control_msg {
	struct control_msg *next;
	size_t len, cap;
	uint8_t bytes[];
};

struct write_slot {
	struct gp_conn_write w;
	struct gp_channel *ch;
	bool busy;
	uint8_t head[GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES];
	uint64_t *counter;       /* of the account: gets the bytes */
	struct gp_frame *frame;  /* whose bytes they are, or NULL */
	bool last;               /* the frame ends here: `sent` follows */
	struct control_msg *msg; /* or NULL */
};

struct frame_queue {
	struct gp_frame *head, **tail;
};

struct sender {
	struct write_slot slot[WRITES_OUTSTANDING];
	int busy;
	struct gp_send_ahead ahead;
	bool preface_due, ping_due, pong_due, dead; /* dead: the connection takes no more */
	uint8_t pong[GP_PING_BYTES];
	struct control_msg *control_head, **control_tail, *pool;
	size_t pooled_bytes;     /* of a message in the pool, header included */
	uint64_t control_queued; /* bytes */
	struct frame_queue queue[GP_CLASS_COUNT];
	int backlog[GP_CLASS_COUNT];
	uint64_t last_ns;
	uint64_t conn_bytes; /* bytes_written of the connection that are accounted for */
	/* progress of the writes outstanding */
	uint64_t unsent, progress_ns;
	/* heartbeat */
	uint64_t ping_value, ping_ns;
	uint32_t rtt_us;
	struct gp_ping_answered answered;
	struct gp_ping_taken taken; /* of the peer */
};

enum recv_state { RECV_PREFACE, RECV_RECORD_HEAD, RECV_CONTROL, RECV_HEARTBEAT, RECV_FRAME_HEAD, RECV_PAYLOAD };

struct receiver {
	enum recv_state state;
	uint8_t small[GP_FRAME_HEADER_BYTES]; /* headers and heartbeats that arrive in pieces */
	size_t have;                          /* bytes of the current item in `small` or `control` */
	struct gp_record_head record;
	uint32_t left; /* bytes of the current segment still to come */
	uint8_t *control;
	size_t control_cap;
	uint32_t control_max;
	uint64_t frame_max;
	struct gp_frame *partial[GP_CLASS_COUNT];
	int partials;
	bool paused, held;
	uint8_t *kept; /* what came while held */
	size_t kept_bytes, kept_cap;
	uint64_t *counter;   /* of the account: where the last bytes were counted */
	uint64_t conn_bytes; /* bytes_read of the connection that are accounted for */
	uint64_t now_ns;     /* when the bytes came that are being taken (conn.h: read_ns) */
	/* Whether a frame was under way when they came: then they, and the time since the last ones, count as receiving. */
	bool timed;
	uint64_t last_ns; /* when some were taken last, or the silence began that counts */
};

struct gp_channel {
	uv_loop_t *loop;
	struct gp_conn *conn; /* NULL once it is closed */
	bool conn_closing;
	struct gp_channel_options options;
	struct gp_channel_cbs cbs;
	void *arg;
	struct sender send;
	struct receiver recv;
	struct gp_account account;
	struct gp_tcp_figures figures; /* the last ones, once the connection is closed */
	char peer[64];
	uv_timer_t timer;
	bool in_timer;
	uint64_t tick_ms, tick_ns, opened_ns;
	/* ending */
	bool over, link_over, told, closing, flush, shut;
	enum gp_status end_status;
	struct gp_err end_err;
	uint64_t close_deadline_ns;
	void (*closed_cb)(void *arg);
	void *closed_arg;
};

/* Where byte `at` of the payload is. */
static inline uint8_t *gp_frame_byte(const struct gp_frame *f, uint64_t at)
{
	return f->payload + (f->wrap ? at % f->wrap : at);
}

/* channel.c */
/* Ends the channel for err->code and err->text; the first reason stays. */
void gp_channel_fail(struct gp_channel *ch, const struct gp_err *err);
/* Lets settle() run from the loop. */
void gp_channel_kick(struct gp_channel *ch);
/* Nothing is taken from the peer any more. */
static inline bool gp_channel_deaf(const struct gp_channel *ch)
{
	return ch->over || ch->closing;
}

/* channel_send.c */
void gp_sender_init(struct gp_channel *ch);
void gp_sender_deinit(struct gp_channel *ch);
/* Hands records to the connection while there is room. */
void gp_sender_pump(struct gp_channel *ch);
bool gp_sender_idle(const struct gp_channel *ch);
/* Gives back every frame that no write outstanding refers to. */
void gp_sender_give_back(struct gp_channel *ch);
void gp_sender_ping(struct gp_channel *ch);
void gp_sender_pong(struct gp_channel *ch, const uint8_t ping[GP_PING_BYTES]);
void gp_sender_take_pong(struct gp_channel *ch, const uint8_t pong[GP_PING_BYTES]);

/* channel_recv.c */
void gp_receiver_init(struct gp_channel *ch);
void gp_receiver_deinit(struct gp_channel *ch);
void gp_receiver_tick(struct gp_channel *ch, uint64_t now_ns);
/* gp_conn_cbs.read */
void gp_receiver_read(void *arg, const uint8_t *data, size_t len);
/* True between records and frames: an end of the stream is orderly here. */
bool gp_receiver_between(const struct gp_channel *ch);

#endif
