/* SPDX-License-Identifier: Apache-2.0
 *
 * A channel speaks the record layer over a connection: preface, control
 * messages, tensor frames cut into segments by priority, heartbeats and
 * deadlines, byte accounting. Sessions sit on top. PROTOCOL.md sections 2-4.
 *
 * Sending: control messages are copied into a bounded queue; frames are queued
 * by pointer, one queue per class. The writer takes the most urgent class first and keeps little ahead of the link
 * (send_ahead.h), so that a frame waits for one or two segments of a less urgent one and for little that the kernel holds.
 *
 * Receiving: every length is checked against a limit before it is used; frame
 * bytes are copied straight into a buffer that the owner gives for that frame.
 *
 * Ending: `ended` says why. When the peer or the owner's callback broke the
 * protocol, the sending side still works: queue a last control message (Error)
 * and close with `flush`. Frames that are not yet through come back by `sent`.
 *
 * Threads: loop thread only. Callbacks run from the loop, never inside a call
 * of the owner, and may call any gp_channel function, also gp_channel_close.
 * Steady state allocates nothing.
 * Test: tests/unit/test_channel.c; fuzz: tests/fuzz/fuzz_channel.c
 */
#ifndef GP_CHANNEL_H
#define GP_CHANNEL_H

#include "common/wire/account.h"
#include "common/net/conn.h"
#include "common/wire/frame.h"

/* Links that damage data one after the other, without a committed step or an answered chunk of an evaluation between: so
 * many, and either end gives up. PROTOCOL.md section 5.6. */
#define GP_DAMAGES_MOST 3

/* One tensor on its way in or out. Owned by a session's pool; the channel borrows it between send and `sent`,
 * and between `frame_begin` and `frame`. */
struct gp_frame {
	struct gp_frame_head head;
	uint8_t *payload;
	size_t cap;
	/* 0, or: bytes after which the payload is the same memory again, which has `wrap` + GP_SEGMENT_BYTES_MAX
	 * bytes. For probes, whose bytes mean nothing. */
	uint32_t wrap;
	uint64_t tensor_bytes;                 /* for accounting: bytes before the codec */
	uint64_t uncompressed_bytes;           /* and without an insertion, where that differs; 0: as tensor_bytes */
	uint64_t padding_bytes;                /* of tensor_bytes, as far as the sender knows */
	uint64_t queued_ns, first_ns, last_ns; /* monotonic: queued, first byte, last byte at the kernel */
	struct gp_frame *next;                 /* the holder's list link */
	void *owner;                           /* the session's */
	/* channel-private while sending or receiving: bytes of header and payload done */
	uint64_t at;
	uint64_t timed_bytes; /* received: see gp_kind_account */
};

struct gp_channel;

struct gp_channel_cbs {
	/* The peer's preface arrived and its version fits. */
	void (*opened)(void *arg);
	/* (optional) A control message of so many bytes, within the limit, begins to come; nothing is set aside for it yet.
	 * Return a failure to end the channel with it. */
	enum gp_status (*control_begin)(void *arg, uint32_t bytes, struct gp_err *err);
	/* One control message, bytes valid during the call. Return a failure to end the channel with it. */
	enum gp_status (*control)(void *arg, struct gp_span msg, struct gp_err *err);
	/* A frame header arrived and passed the header checks and the frame limit. Check type, step, chunk, length and
	 * give a buffer with cap >= head->payload_len, or fail: the channel then ends. */
	enum gp_status (*frame_begin)(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
				      struct gp_err *err);
	/* The frame is complete. Its checksum is not verified yet: gp_frame_verify, off the loop. */
	enum gp_status (*frame)(void *arg, struct gp_frame *f, struct gp_err *err);
	/* The last byte of a sent frame is with the kernel: the frame is the owner's again. On a dying channel too. */
	void (*sent)(void *arg, struct gp_frame *f);
	/* The channel is over; runs exactly once, unless gp_channel_close came first. After it only `sent` may run, for
	 * frames still under way. GP_OK: orderly end by the peer. Half-received frames: gp_channel_take_partial. Free
	 * the channel with gp_channel_close. */
	void (*ended)(void *arg, enum gp_status status, const struct gp_err *err);
	/* (optional) nothing is left to be written. */
	void (*drained)(void *arg);
};

struct gp_channel_options {
	uint32_t segment_bytes; /* 0 = default */
	uint32_t heartbeat_ms;  /* ping when nothing was sent, or nothing came, for so long; 0 = default 2000; at most a
				      * third of the idle timeout */
	uint32_t idle_timeout_ms;    /* peer is dead when nothing came for so long; 0 = default 15000 */
	uint32_t write_timeout_ms;   /* peer is stuck when a write makes no progress for so long; 0 = default 30000 */
	uint32_t preface_timeout_ms; /* 0 = default 5000 */
	uint32_t control_bytes_max;  /* 0 = GP_CONTROL_BYTES_MAX; raise or lower with gp_channel_set_control_max */
	uint32_t control_queue_bytes_max; /* unsent control bytes before the channel ends; 0 = default 8 MiB */
	uint64_t frame_bytes_max; /* payload of one received frame; 0 = GP_FRAME_BYTES_MAX; gp_channel_set_frame_max */
};

/* Takes `conn` (also on failure) and begins to read and to send the preface. */
enum gp_status gp_channel_new(uv_loop_t *loop, struct gp_conn *conn, const struct gp_channel_options *options,
			      const struct gp_channel_cbs *cbs, void *arg, struct gp_channel **out, struct gp_err *err);

/* Copies `msg` (a packed Control message). GP_PEER when nothing can be sent any more, GP_NOMEM over the queue limit: the
 * channel then ends. */
enum gp_status gp_channel_send_control(struct gp_channel *ch, struct gp_span msg, struct gp_err *err);
/* The same, written in place: `pack` gets room for `bytes` bytes inside this call. */
enum gp_status gp_channel_send_packed(struct gp_channel *ch, size_t bytes, void (*pack)(const void *what, uint8_t *out),
				      const void *what, struct gp_err *err);
/* Sets memory aside, so that messages of up to `bytes` are sent without any allocation. Until then the channel of a peer
 * that nobody knows yet takes as little memory as it can. */
enum gp_status gp_channel_reserve_control(struct gp_channel *ch, uint32_t bytes, struct gp_err *err);
/* Borrows `f` until `sent`. head.type decides the class; head.checksum and payload_len must be filled in. Never fails:
 * on a dead channel `sent` runs soon, from the loop. */
void gp_channel_send_frame(struct gp_channel *ch, struct gp_frame *f);
/* Memory of a longer message is given back when the message under way has been delivered, or before the next. */
void gp_channel_set_control_max(struct gp_channel *ch, uint32_t bytes);
void gp_channel_set_frame_max(struct gp_channel *ch, uint64_t bytes);
/* What the session agreed on, within GP_SEGMENT_BYTES_MIN..MAX; for frames that are queued from now on. */
void gp_channel_set_segment_bytes(struct gp_channel *ch, uint32_t bytes);
/* Frames queued or under way in a class. */
int gp_channel_backlog(const struct gp_channel *ch, enum gp_class klass);
/* Back-pressure: stop and resume taking bytes from the peer (the idle deadline is suspended while stopped). What is read
 * already, 256 KiB at most, is still delivered. */
void gp_channel_pause(struct gp_channel *ch, bool paused);
/* For a callback whose answer takes time on another thread: nothing that comes behind the message is delivered until
 * gp_channel_go_on. Up to 256 KiB of it are kept meanwhile, so that the end of the connection is still noticed. */
#define GP_CHANNEL_KEPT_BYTES ((size_t)512 << 10) /* memory for that at most, and for the read that passes it */
void gp_channel_hold(struct gp_channel *ch);
void gp_channel_go_on(struct gp_channel *ch);

/* Ends the channel: if `flush`, queued control messages are written first and the peer gets the time to read them (at
 * most 1 s in all). Frames still borrowed come back through `sent`, then `closed` (may be NULL) runs once, then the
 * channel is gone. Call it once; from any callback. */
void gp_channel_close(struct gp_channel *ch, bool flush, void (*closed)(void *arg), void *arg);
/* After `ended` or gp_channel_close, until `closed` returns: takes back a frame that frame_begin gave and that never
 * completed; NULL when there is none (left). */
struct gp_frame *gp_channel_take_partial(struct gp_channel *ch);

/* Our counts and, where there is TCP, the kernel's. */
const struct gp_account *gp_channel_account(const struct gp_channel *ch);
struct gp_account *gp_channel_account_mut(struct gp_channel *ch);
void gp_channel_figures(const struct gp_channel *ch, struct gp_tcp_figures *out);
const char *gp_channel_peer(const struct gp_channel *ch);
/* Who the peer's certificate says it is, and that certificate's subject; "" without one (conn.h). */
const char *gp_channel_identity(const struct gp_channel *ch);
const char *gp_channel_subject(const struct gp_channel *ch);
/* Sends a PING, unless one waits for its answer: it measures the round trip, see gp_channel_ping_answered. */
void gp_channel_ping(struct gp_channel *ch);
/* The last PING that the peer has answered: its bytes as a little-endian number, when it was handed to the connection, and when
 * its PONG came. answered_ns 0: none yet. */
struct gp_ping_answered {
	uint64_t value, sent_ns, answered_ns;
};
struct gp_ping_answered gp_channel_ping_answered(const struct gp_channel *ch);
/* The last PING of the peer, and when it came; at_ns 0: none has. */
struct gp_ping_taken {
	uint64_t value, at_ns;
};
struct gp_ping_taken gp_channel_ping_taken(const struct gp_channel *ch);
/* Smoothed round trip of heartbeats in microseconds, 0 before the first. */
uint32_t gp_channel_rtt_us(const struct gp_channel *ch);

/* Any thread. GP_DAMAGED when the payload does not match head.checksum. */
enum gp_status gp_frame_verify(const struct gp_frame *f, struct gp_err *err);

#endif
