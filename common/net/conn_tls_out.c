/* SPDX-License-Identifier: Apache-2.0
 *
 * The writing half of a TLS connection: from the owner's writes to slots of
 * ciphertext. See conn_tls_impl.h. Test: tests/unit/test_conn_tls.c
 */
#include "common/net/conn_tls_impl.h"

#include <string.h>

#include <openssl/err.h>

/* Slots. */

static void on_slot_written(void *arg, enum gp_status status);

void gp_tls_flush(struct tls_conn *c)
{
	struct tls_slot *s = c->fill;
	if (!s || (!s->len && !s->ends))
		return;
	const uv_buf_t buf = uv_buf_init((char *)s->bytes, (unsigned)s->len);
	c->fill = NULL;
	s->busy = true;
	s->w.cb = on_slot_written;
	s->w.arg = s;
	c->inner->ops->write(c->inner, &s->w, &buf, 1);
}

static struct tls_slot *free_slot(struct tls_conn *c)
{
	for (int i = 0; i < SLOTS; i++) {
		struct tls_slot *s = &c->slot[i];
		if (!s->busy && s->bytes)
			return s;
	}
	return NULL;
}

struct tls_slot *gp_tls_slot_for(struct tls_conn *c, size_t bytes)
{
	if (c->fill && SLOT_BYTES - c->fill->len >= bytes)
		return c->fill;
	gp_tls_flush(c);
	if (!c->fill)
		c->fill = free_slot(c);
	return c->fill;
}

/* Writing. */

/* The bytes of the next record: in place where one buffer has enough of them, else gathered from several. */
static const uint8_t *next_bytes(struct tls_conn *c, size_t *len)
{
	const struct gp_conn_write *w = c->head;
	const uint8_t *first = (const uint8_t *)w->bufs[c->at_buf].base + c->at_byte;
	size_t at = c->at_byte, n = w->bufs[c->at_buf].len - at;
	*len = n < RECORD_BYTES ? n : RECORD_BYTES;
	if (n >= RECORD_BYTES || c->at_buf + 1 == w->nbufs)
		return first;
	*len = 0;
	for (unsigned i = c->at_buf; i < w->nbufs && *len < RECORD_BYTES; i++, at = 0) {
		n = w->bufs[i].len - at;
		n = n < RECORD_BYTES - *len ? n : RECORD_BYTES - *len;
		memcpy(c->gather + *len, w->bufs[i].base + at, n);
		*len += n;
	}
	return c->gather;
}

static void advance(struct tls_conn *c, size_t n)
{
	const struct gp_conn_write *w = c->head;
	c->queued_bytes -= n;
	for (c->at_byte += n; c->at_buf < w->nbufs && c->at_byte >= w->bufs[c->at_buf].len; c->at_buf++)
		c->at_byte -= w->bufs[c->at_buf].len;
}

static struct gp_conn_write *pop_write(struct tls_conn *c)
{
	struct gp_conn_write *w = c->head;
	c->head = w->next;
	if (!c->head)
		c->tail = &c->head;
	c->at_buf = 0;
	c->at_byte = 0;
	w->next = NULL;
	return w;
}

static void change_keys(struct tls_conn *c)
{
	if (++c->records < c->rekey)
		return;
	c->records = 0;
	SSL_key_update(c->ssl, SSL_KEY_UPDATE_NOT_REQUESTED); /* goes ahead of the record */
}

/* Encrypts one record of the first write into s. False: TLS failed. */
static bool encrypt_record(struct tls_conn *c, struct tls_slot *s)
{
	size_t len, done = 0;
	const size_t before = s->len;
	const uint8_t *bytes = next_bytes(c, &len);
	change_keys(c);
	ERR_clear_error();
	if (SSL_write_ex(c->ssl, bytes, len, &done) != 1) {
		gp_tls_fail(c);
		return false;
	}
	c->head->bytes += s->len - before;
	s->owners += s->len - before;
	advance(c, done);
	return true;
}

/* Puts the next piece of the first write into s. */
static bool write_some(struct tls_conn *c, struct tls_slot *s)
{
	if (c->at_buf < c->head->nbufs && !encrypt_record(c, s))
		return false;
	if (c->at_buf < c->head->nbufs)
		return true;
	struct gp_conn_write *w = pop_write(c);
	*s->ends_tail = w;
	s->ends_tail = &w->next;
	return true;
}

static bool can_write(const struct tls_conn *c)
{
	return c->established && !c->failed && !c->inner_dead && !c->closing;
}

static void say_goodbye(struct tls_conn *c)
{
	if (!c->shut || c->said_goodbye || c->head || c->closing || c->inner_dead)
		return;
	ERR_clear_error();
	if (can_write(c) && SSL_shutdown(c->ssl) < 0 && SSL_get_error(c->ssl, -1) == SSL_ERROR_WANT_WRITE)
		return; /* again when a slot is back */
	gp_tls_flush(c);
	c->said_goodbye = true;
	c->inner->ops->shutdown(c->inner);
}

void gp_tls_pump(struct tls_conn *c)
{
	struct tls_slot *s;
	while (c->head && can_write(c) && (s = gp_tls_slot_for(c, RECORD_WIRE_BYTES)))
		if (!write_some(c, s))
			return;
	if (!c->closing && !c->inner_dead)
		gp_tls_flush(c);
	if (c->established)
		say_goodbye(c);
}

static void report_writes(struct tls_conn *c, struct gp_conn_write *w, enum gp_status status)
{
	while (w) {
		struct gp_conn_write *next = w->next;
		if (status == GP_OK)
			c->base.bytes_written += w->bytes;
		w->cb(w->arg, status);
		w = next;
	}
}

/* gp_conn_write_cb */
static void on_slot_written(void *arg, enum gp_status status)
{
	struct tls_slot *s = arg;
	struct tls_conn *c = s->conn;
	struct gp_conn_write *w = s->ends;
	if (status == GP_OK)
		c->base.bytes_written += s->len - s->owners;
	s->len = s->owners = 0;
	s->ends = NULL;
	s->ends_tail = &s->ends;
	s->busy = false;
	report_writes(c, w, status);
	if (c->closing || status != GP_OK)
		return;
	gp_tls_slot_back(c);
}

void gp_tls_write(struct gp_conn *conn, struct gp_conn_write *w, const uv_buf_t *bufs, unsigned nbufs)
{
	struct tls_conn *c = tls_of(conn);
	gp_require(nbufs >= 1 && nbufs <= GP_CONN_WRITE_BUFS && !c->shut && !c->closing);
	w->conn = conn;
	w->next = NULL;
	w->bytes = 0;
	w->nbufs = 0;
	for (unsigned i = 0; i < nbufs; i++) {
		if (bufs[i].len)
			w->bufs[w->nbufs++] = bufs[i];
		c->queued_bytes += bufs[i].len;
	}
	*c->tail = w;
	c->tail = &w->next;
	gp_tls_begin(c);
	gp_tls_pump(c);
}

void gp_tls_shutdown(struct gp_conn *conn)
{
	struct tls_conn *c = tls_of(conn);
	c->shut = true;
	gp_tls_pump(c);
}

uint64_t gp_tls_unsent(const struct gp_conn *conn)
{
	const struct tls_conn *c = (const struct tls_conn *)conn;
	return c->queued_bytes + (c->inner ? c->inner->ops->unsent(c->inner) : 0);
}

void gp_tls_out_init(struct tls_conn *c)
{
	c->tail = &c->head;
	for (int i = 0; i < SLOTS; i++) {
		c->slot[i].conn = c;
		c->slot[i].ends_tail = &c->slot[i].ends;
	}
	c->slot[0].bytes = gp_alloc_aligned(SLOT_BYTES);
}

void gp_tls_out_ready(struct tls_conn *c)
{
	for (int i = 1; i < SLOTS; i++)
		c->slot[i].bytes = gp_alloc_aligned(SLOT_BYTES);
}

void gp_tls_out_deinit(struct tls_conn *c)
{
	for (int i = 0; i < SLOTS; i++) {
		report_writes(c, c->slot[i].ends, GP_CANCELED); /* encrypted, but never handed on */
		gp_free_aligned(c->slot[i].bytes);
	}
	report_writes(c, c->head, GP_CANCELED);
}
