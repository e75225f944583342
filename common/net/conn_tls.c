/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS over another connection: handshake, reading, the end. The other half is
 * conn_tls_out.c; how both work says conn_tls_impl.h. Wire format: RFC 8446.
 * Test: tests/unit/test_conn_tls.c
 */
#include "common/net/conn_tls_impl.h"

#include <pthread.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#define LINGER_MS        1000
/* Messages of the peer behind its handshake that are for OpenSSL alone, as new keys and tickets: so many at any time, and one
 * with so many records of data. Each new key costs as much time as several kilobytes, in one call of OpenSSL for all that
 * have come: without a limit a peer could keep this thread busy for seconds. */
#define SAID_AT_FIRST    16
#define RECORDS_FOR_EACH 64

static void on_soon(uv_timer_t *timer);

static void soon(struct tls_conn *c)
{
	if (!c->closing)
		uv_timer_start(&c->timer, on_soon, 0, 0);
}

/* The first reason stays; the owner hears of it from the loop. */
static void end(struct tls_conn *c, const struct gp_err *why)
{
	if (c->ending)
		return;
	c->ending = true;
	c->why = *why;
	soon(c);
}

/* OpenSSL's view of the inner connection. */

static int bio_write(BIO *bio, const char *data, int len)
{
	struct tls_conn *c = BIO_get_data(bio);
	BIO_clear_retry_flags(bio);
	struct tls_slot *s = c->inner && !c->inner_dead ? gp_tls_slot_for(c, 1) : NULL;
	if (!s) {
		BIO_set_retry_write(bio);
		return -1;
	}
	const size_t room = SLOT_BYTES - s->len, n = (size_t)len < room ? (size_t)len : room;
	memcpy(s->bytes + s->len, data, n);
	s->len += n;
	return (int)n;
}

static size_t take(struct gp_span *from, void *to, size_t len)
{
	const size_t n = len < from->len ? len : from->len;
	memcpy(to, from->data, n);
	from->data += n;
	from->len -= n;
	return n;
}

static int bio_read(BIO *bio, char *out, int len)
{
	struct tls_conn *c = BIO_get_data(bio);
	size_t n;
	BIO_clear_retry_flags(bio);
	if (c->floods)
		return -1;
	if (c->held_at < c->held_len) {
		struct gp_span held = {c->held + c->held_at, c->held_len - c->held_at};
		n = take(&held, out, (size_t)len);
		c->held_at += n;
	} else if (c->in.len) {
		n = take(&c->in, out, (size_t)len);
	} else {
		BIO_set_retry_read(bio);
		return -1;
	}
	c->base.bytes_read += n;
	c->partial += n;
	return (int)n;
}

static long bio_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
	(void)bio;
	(void)num;
	(void)ptr;
	return cmd == BIO_CTRL_FLUSH; /* slots are flushed when OpenSSL has returned */
}

/* OpenSSL's callback for every message of TLS itself. */
static void note_message(int ours, int version, int type, const void *bytes, size_t len, SSL *ssl, void *arg)
{
	struct tls_conn *c = arg;
	const uint64_t rekey = c->rekey / 2 < RECORDS_FOR_EACH ? c->rekey / 2 : RECORDS_FOR_EACH;
	(void)version;
	(void)bytes;
	(void)len;
	(void)ssl;
	if (ours || type != SSL3_RT_HANDSHAKE || !c->established)
		return;
	c->said_between++;
	c->floods |= c->said_between > SAID_AT_FIRST + c->records_read / (rekey > 0 ? rekey : 1);
}

static BIO_METHOD *bio_method;

static void make_bio_method(void)
{
	bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "gpsplit connection");
	if (!bio_method)
		return;
	BIO_meth_set_write(bio_method, bio_write);
	BIO_meth_set_read(bio_method, bio_read);
	BIO_meth_set_ctrl(bio_method, bio_ctrl);
}

/* Failing. */

/* An alert in the clear, for a peer that does not speak TLS but recognises the record (channel.c); it is no secret. */
static void refuse_in_the_clear(struct tls_conn *c)
{
	static const uint8_t alert[] = {SSL3_RT_ALERT, 3, 3, 0, 2, SSL3_AL_FATAL, SSL_AD_PROTOCOL_VERSION};
	struct tls_slot *s = gp_tls_slot_for(c, sizeof alert);
	if (!s)
		return;
	memcpy(s->bytes + s->len, alert, sizeof alert);
	s->len += sizeof alert;
}

void gp_tls_fail(struct tls_conn *c)
{
	struct gp_err err = {0};
	gp_tls_reason(&c->failure, &err);
	if (c->floods)
		gp_err_set(&err, GP_PEER, 0, __FILE__, __LINE__, "%s changes its TLS keys again and again",
			   c->base.peer);
	c->failed = true;
	if (c->failure.server && gp_tls_peer_is_plain(&c->failure))
		refuse_in_the_clear(c);
	gp_tls_flush(c); /* the alert */
	end(c, &err);
}

/* True when the call only has to wait for the peer or for a slot. */
static bool may_go_on(struct tls_conn *c, int rc)
{
	const int e = SSL_get_error(c->ssl, rc);
	return e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE;
}

void gp_tls_begin(struct tls_conn *c)
{
	if (c->begun)
		return;
	c->begun = c->inner_reading = true;
	c->inner->ops->read_start(c->inner);
	soon(c); /* a client speaks first */
}

/* Reading. */

/* False ends the connection: a certificate that names nobody must not pass for no certificate. */
static bool note_identity(struct tls_conn *c)
{
	struct gp_err err = {0};
	X509 *cert = SSL_get1_peer_certificate(c->ssl);
	if (!cert)
		return true;
	gp_tls_subject(X509_get_subject_name(cert), c->base.subject, sizeof c->base.subject);
	const bool known = gp_cert_identity(cert, c->base.identity, &err) == GP_OK;
	X509_free(cert);
	if (!known)
		end(c, &err);
	return known;
}

/* True once it is through. */
static bool shake_hands(struct tls_conn *c)
{
	if (c->established)
		return true;
	ERR_clear_error();
	const int rc = SSL_do_handshake(c->ssl);
	if (rc != 1) {
		if (!may_go_on(c, rc))
			gp_tls_fail(c);
		return false;
	}
	c->established = true;
	gp_tls_out_ready(c);
	return note_identity(c);
}

static void end_orderly(struct tls_conn *c)
{
	struct gp_err why = {.code = GP_OK};
	snprintf(why.text, sizeof why.text, "%s closed the connection", c->base.peer);
	end(c, &why);
}

/* Hands one record to the owner. False when there is none for now. */
static bool read_record(struct tls_conn *c)
{
	size_t n = 0;
	ERR_clear_error();
	if (SSL_read_ex(c->ssl, c->plain, sizeof c->plain, &n) == 1) {
		c->partial = 0;
		c->records_read++;
		c->base.cbs.read(c->base.arg, c->plain, n);
		return true;
	}
	if (SSL_get_error(c->ssl, 0) == SSL_ERROR_ZERO_RETURN)
		end_orderly(c);
	else if (!may_go_on(c, 0))
		gp_tls_fail(c);
	return false;
}

/* Lets OpenSSL take what has arrived. */
static void pull(struct tls_conn *c)
{
	if (!c->begun || c->ending || c->closing)
		return;
	const bool fresh = !c->established;
	if (shake_hands(c))
		while (c->reading && !c->ending && !c->closing && read_record(c))
			continue;
	if (c->closing || c->inner_dead)
		return;
	gp_tls_flush(c); /* what OpenSSL had to say */
	if (fresh && c->established)
		gp_tls_pump(c);
}

static bool stopped(const struct tls_conn *c)
{
	return c->established && !c->reading;
}

/* Keeps the rest of a read that the owner does not want yet: no more than one of the inner connection's reads. */
static void hold(struct tls_conn *c)
{
	struct gp_err err = {0};
	uint8_t *p = gp_realloc(c->held, c->in.len, 1);
	if (!p) {
		gp_err_set(&err, GP_NOMEM, 0, __FILE__, __LINE__, "out of memory for %zu bytes of %s", c->in.len,
			   c->base.peer);
		end(c, &err);
		return;
	}
	memcpy(p, c->in.data, c->in.len);
	c->held = p;
	c->held_at = 0;
	c->held_len = c->in.len;
}

static void follow_owner(struct tls_conn *c)
{
	const bool want = c->begun && (c->failed || (!stopped(c) && c->held_at == c->held_len));
	if (!c->inner || c->inner_over || want == c->inner_reading)
		return;
	c->inner_reading = want;
	if (want)
		c->inner->ops->read_start(c->inner);
	else
		c->inner->ops->read_stop(c->inner);
}

void gp_tls_slot_back(struct tls_conn *c)
{
	pull(c);
	gp_tls_pump(c);
	if (!c->closing)
		follow_owner(c);
}

static void note_first(struct gp_tls_failure *f, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len && f->first_len < sizeof f->first; i++)
		f->first[f->first_len++] = data[i];
}

/* Tells the inner connection how many bytes the owner waits for. Plaintext takes no fewer bytes on the wire, and
 * what OpenSSL holds of a record is counted as if all of it were plaintext. It may have taken more since the owner
 * said what it wants, so this runs at the end of a read. */
static void pass_hint(struct tls_conn *c)
{
	const uint64_t missing = c->wanted > c->partial ? c->wanted - c->partial : 1;
	if (c->inner && !c->inner_over && c->inner->ops->read_hint)
		c->inner->ops->read_hint(c->inner, (uint32_t)missing);
}

/* gp_conn_cbs.read of the inner connection. */
static void on_inner_read(void *arg, const uint8_t *data, size_t len)
{
	struct tls_conn *c = arg;
	if (c->ending || c->closing)
		return; /* taken, so that the peer can read our alert */
	note_first(&c->failure, data, len);
	c->base.read_ns = c->inner->read_ns;
	c->in = (struct gp_span){data, len};
	c->in_read = true;
	pull(c);
	c->in_read = false;
	if (c->in.len && !c->ending && !c->closing)
		hold(c);
	c->in = (struct gp_span){0};
	if (c->closing)
		return;
	pass_hint(c);
	follow_owner(c);
}

static void tls_read_start(struct gp_conn *conn)
{
	struct tls_conn *c = tls_of(conn);
	c->reading = true;
	gp_tls_begin(c);
	if (c->held_at < c->held_len)
		soon(c); /* first what was kept, then the inner connection again */
	else
		follow_owner(c);
}

static void tls_read_stop(struct gp_conn *conn)
{
	struct tls_conn *c = tls_of(conn);
	c->reading = false;
	if (!c->in.len)
		follow_owner(c);
}

static void tls_read_hint(struct gp_conn *conn, uint32_t bytes)
{
	struct tls_conn *c = tls_of(conn);
	c->wanted = bytes;
	if (!c->in_read)
		pass_hint(c);
}

static void tls_hold(struct gp_conn *conn, uint32_t bytes)
{
	const struct tls_conn *c = tls_of(conn);
	if (c->inner && c->inner->ops->hold)
		c->inner->ops->hold(c->inner, bytes);
}

static void tls_figures(struct gp_conn *conn, struct gp_tcp_figures *out)
{
	struct tls_conn *c = tls_of(conn);
	if (c->inner && c->inner->ops->figures)
		c->inner->ops->figures(c->inner, out);
	else
		memset(out, 0, sizeof *out);
}

static int tls_socket(const struct gp_conn *conn)
{
	const struct tls_conn *c = (const struct tls_conn *)conn;
	return c->inner && c->inner->ops->socket ? c->inner->ops->socket(c->inner) : -1;
}

/* The end. */

static void on_soon(uv_timer_t *timer)
{
	struct tls_conn *c = timer->data;
	if (!c->ending)
		pull(c);
	if (c->closing)
		return;
	follow_owner(c);
	if (!c->ending || c->told)
		return;
	c->told = true;
	c->base.cbs.ended(c->base.arg, c->why.code, c->why.text);
}

static void on_timer_closed(uv_handle_t *h)
{
	struct tls_conn *c = h->data;
	gp_tls_out_deinit(c);
	if (c->closed_cb)
		c->closed_cb(c->closed_arg);
	SSL_free(c->ssl);
	gp_free(c->held);
	gp_free(c);
}

static void on_inner_closed(void *arg)
{
	struct tls_conn *c = arg;
	c->inner = NULL;
	uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

static void close_inner(struct tls_conn *c)
{
	uv_timer_stop(&c->timer);
	c->lingers = false;
	c->inner_over = c->inner_dead = true;
	c->inner->ops->close(c->inner, on_inner_closed, c);
}

static void on_lingered(uv_timer_t *timer)
{
	close_inner(timer->data);
}

/* What an end of the stream without close_notify means. */
static enum gp_status explain_cut(const struct tls_conn *c, const char *why, struct gp_err *err)
{
	const char *const side = c->failure.server ? "client" : "server";
	if (c->established)
		GP_FAIL(err, GP_PEER, "%s without a TLS goodbye: the connection was cut", why);
	GP_FAIL(err, GP_PEER, "%s %s closed the connection during the TLS handshake", side, c->base.peer);
}

/* gp_conn_cbs.ended of the inner connection. */
static void on_inner_ended(void *arg, enum gp_status status, const char *why)
{
	struct tls_conn *c = arg;
	struct gp_err err = {0};
	c->inner_over = true;
	c->inner_dead = status != GP_OK;
	if (c->closing) {
		close_inner(c);
		return;
	}
	if (status == GP_OK)
		explain_cut(c, why, &err);
	else
		gp_err_set(&err, status, 0, __FILE__, __LINE__, "%s", why);
	end(c, &err);
}

/* Gives the peer the time to read our alert. */
static void linger(struct tls_conn *c)
{
	if (!c->said_goodbye)
		c->inner->ops->shutdown(c->inner);
	follow_owner(c);
	c->lingers = true;
	uv_update_time(c->timer.loop);
	uv_timer_start(&c->timer, on_lingered, LINGER_MS, 0);
}

static void tls_close(struct gp_conn *conn, void (*closed)(void *arg), void *arg)
{
	struct tls_conn *c = tls_of(conn);
	gp_require(!c->closing);
	c->closing = true;
	c->closed_cb = closed;
	c->closed_arg = arg;
	if (c->failed && !c->inner_over)
		linger(c);
	else
		close_inner(c);
}

static void tls_hurry(struct gp_conn *conn)
{
	struct tls_conn *c = tls_of(conn);
	if (c->lingers)
		close_inner(c);
}

static const struct gp_conn_ops tls_ops = {
	.name = "tls",
	.write = gp_tls_write,
	.read_start = tls_read_start,
	.read_stop = tls_read_stop,
	.shutdown = gp_tls_shutdown,
	.unsent = gp_tls_unsent,
	.close = tls_close,
	.hurry = tls_hurry,
	.read_hint = tls_read_hint,
	.hold = tls_hold,
	.figures = tls_figures,
	.socket = tls_socket,
};

/* Making one. */

static bool expect_host(SSL *ssl, const char *host)
{
	if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1)
		return true;
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static enum gp_status open_session(struct tls_conn *c, const struct gp_tls *tls, const char *host, struct gp_err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make_bio_method);
	c->ssl = gp_tls_session(tls);
	BIO *bio = c->ssl && bio_method ? BIO_new(bio_method) : NULL;
	if (!bio) {
		ERR_clear_error();
		GP_FAIL(err, GP_NOMEM, "out of memory for TLS with %s", c->base.peer);
	}
	BIO_set_data(bio, c);
	BIO_set_init(bio, 1);
	SSL_set_bio(c->ssl, bio, bio);
	SSL_set_app_data(c->ssl, &c->failure);
	SSL_set_msg_callback(c->ssl, note_message);
	SSL_set_msg_callback_arg(c->ssl, c);
	SSL_set_verify(c->ssl, SSL_get_verify_mode(c->ssl), gp_tls_note_verify);
	if (gp_tls_is_server(tls)) {
		SSL_set_accept_state(c->ssl);
		return GP_OK;
	}
	SSL_set_connect_state(c->ssl);
	if (!expect_host(c->ssl, host))
		GP_FAIL(err, GP_USAGE, "'%.100s' cannot be the name in a certificate", host);
	return GP_OK;
}

static void init(struct tls_conn *c, uv_loop_t *loop, struct gp_conn *inner, const struct gp_tls *tls, const char *host)
{
	c->base.ops = &tls_ops;
	c->base.secure = true;
	memcpy(c->base.peer, inner->peer, sizeof c->base.peer);
	c->inner = inner;
	c->rekey = gp_tls_rekey(tls);
	c->failure.server = gp_tls_is_server(tls);
	memcpy(c->failure.peer, inner->peer, sizeof c->failure.peer);
	snprintf(c->failure.host, sizeof c->failure.host, "%s", host ? host : "");
	gp_tls_out_init(c);
	uv_timer_init(loop, &c->timer);
	c->timer.data = c;
	inner->cbs = (struct gp_conn_cbs){.read = on_inner_read, .ended = on_inner_ended};
	inner->arg = c;
}

enum gp_status gp_tls_wrap(uv_loop_t *loop, struct gp_conn *inner, const struct gp_tls *tls, const char *host,
			   struct gp_conn **out, struct gp_err *err)
{
	struct tls_conn *c;
	gp_require(host || gp_tls_is_server(tls));
	enum gp_status status = gp_alloc_array((void **)&c, 1, sizeof *c, err);
	if (status != GP_OK) {
		inner->ops->close(inner, NULL, NULL);
		return status;
	}
	init(c, loop, inner, tls, host);
	status = c->slot[0].bytes ? open_session(c, tls, host, err)
				  : gp_err_set(err, GP_NOMEM, 0, __FILE__, __LINE__, "out of memory for TLS with %s",
					       c->base.peer);
	if (status != GP_OK) {
		tls_close(&c->base, NULL, NULL);
		return status;
	}
	*out = &c->base;
	return GP_OK;
}
