/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to conn_tls.c (life, reading) and conn_tls_out.c (writing).
 * Everybody else: conn_tls.h.
 *
 * Out: the owner's writes wait in a queue, are cut into TLS records, which never
 * mix two writes, and go record by record into a slot; a slot is one write of
 * the inner connection and remembers whose writes end in it. What OpenSSL has to
 * say itself (handshake, alerts, key updates) goes into slots, too.
 * In: OpenSSL takes what it wants from the inner connection's read; what it must
 * not take yet, because the owner has stopped reading, is kept (`kept`), and
 * the inner connection stops.
 *
 * Threads: the loop's thread. Test: tests/unit/test_conn_tls.c
 */
#ifndef GP_CONN_TLS_IMPL_H
#define GP_CONN_TLS_IMPL_H

#include <openssl/ssl.h>

#include "common/net/conn_tls.h"
#include "common/net/tls_reason.h"

#define RECORD_BYTES      16384 /* of plaintext, at most (RFC 8446, 5.1) */
#define RECORD_WIRE_BYTES (RECORD_BYTES + 256)
#define SLOTS             4
#define SLOT_BYTES        (4 * RECORD_WIRE_BYTES) /* two segments of a channel lie in four slots */

struct tls_conn;

struct tls_slot {
	struct gp_conn_write w; /* the inner connection's */
	struct tls_conn *conn;
	uint8_t *bytes;
	size_t len, owners;                      /* bytes in it; those that belong to writes of the owner */
	struct gp_conn_write *ends, **ends_tail; /* writes whose last byte is here */
	bool busy;
};

struct tls_conn {
	struct gp_conn base;
	struct gp_conn *inner; /* NULL once it is closed */
	uv_timer_t timer;      /* what must not run inside a call; when closing: the end of lingering */
	SSL *ssl;
	struct gp_tls_failure failure;
	uint64_t rekey, records;
	uint64_t records_read, said_between; /* of the peer, since the handshake: its data; its messages to OpenSSL */
	bool floods;                         /* too many of the latter */
	bool begun, established, reading, inner_reading;
	bool inner_over, inner_dead; /* nothing more comes from it; it takes nothing more, either */
	/* out */
	struct tls_slot slot[SLOTS], *fill;
	struct gp_conn_write *head, **tail; /* not encrypted yet */
	unsigned at_buf;                    /* progress within head */
	size_t at_byte;
	uint64_t queued_bytes;
	bool shut, said_goodbye; /* the owner wants to end; close_notify is in a slot */
	uint8_t gather[RECORD_BYTES];
	/* in */
	struct gp_span in; /* of the inner read under way */
	uint8_t *held;
	size_t held_at, held_len;
	uint32_t wanted; /* the owner's hint */
	bool in_read;
	uint64_t partial; /* ciphertext of a record that is not complete yet */
	uint8_t plain[RECORD_BYTES];
	/* the end */
	bool failed, ending, told, closing; /* failed: TLS is over; ending: there is a reason; told: `ended` ran */
	bool lingers;                       /* closing, but the peer has a moment to read our alert */
	struct gp_err why;
	void (*closed_cb)(void *arg);
	void *closed_arg;
};

static inline struct tls_conn *tls_of(struct gp_conn *c)
{
	return (struct tls_conn *)c;
}

/* conn_tls.c */
/* After a call of OpenSSL that failed for good: an alert to the peer, the reason to the owner. */
void gp_tls_fail(struct tls_conn *c);
/* Reading begins, and with it the handshake. */
void gp_tls_begin(struct tls_conn *c);
/* A slot has come back: OpenSSL may have waited for it. */
void gp_tls_slot_back(struct tls_conn *c);

/* conn_tls_out.c */
/* One slot, for the handshake. */
void gp_tls_out_init(struct tls_conn *c);
/* The handshake is through: the others. When memory is out, the first does. */
void gp_tls_out_ready(struct tls_conn *c);
/* Gives every write back as canceled. */
void gp_tls_out_deinit(struct tls_conn *c);
/* A slot with room for so many bytes, or NULL until one comes back. */
struct tls_slot *gp_tls_slot_for(struct tls_conn *c, size_t bytes);
/* Hands the slot that is being filled to the inner connection. */
void gp_tls_flush(struct tls_conn *c);
/* Encrypts what waits as far as there are slots. */
void gp_tls_pump(struct tls_conn *c);
void gp_tls_write(struct gp_conn *conn, struct gp_conn_write *w, const uv_buf_t *bufs, unsigned nbufs);
void gp_tls_shutdown(struct gp_conn *conn);
uint64_t gp_tls_unsent(const struct gp_conn *conn);

#endif
