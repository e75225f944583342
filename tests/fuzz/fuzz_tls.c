/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: whatever a peer or somebody on the way does to the bytes, and
 * wherever the owner closes, a TLS end gives its owner a prefix of what the
 * other end wrote and nothing else, ends at most once and with words, and gives
 * every write back exactly once (common/net/conn_tls.h).
 *
 * Input: byte 0: bits 0-1 who is there (0: bytes against a server, 1: bytes
 * against a client, 2 and 3: client and server, the bytes are edits on the
 * way), bits 2-3 the size of reads, bit 4 the server asks for a certificate,
 * bit 5 the client has one; byte 1: after how many callbacks an end closes (0:
 * at the end), bit 7: the client instead of the server. Edits are of 4 bytes:
 * bit 7 the way, other bits what (0 xor, 1 drop, 2 insert, 3 cut), 2 of place, value.
 */
#include <string.h>
#include <unistd.h>

#include "common/wire/account.h"
#include "common/net/conn_tls.h"
#include "memory_file.h"

#define WRITES      2
#define WRITE_BYTES 16600 /* two records */
#define EDITS_MAX   16
#define IDLE_TURNS  8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A certificate for localhost that is its own CA, and its key. */
static const char identity_pem[] = "-----BEGIN CERTIFICATE-----\n"
				   "MIIBijCCATGgAwIBAgIUUbgyjTT6XOz/ZQqcKJS6cFxuOSswCgYIKoZIzj0EAwIw\n"
				   "DzENMAsGA1UEAwwEZnV6ejAgFw0yNjExMjAyMjQ3NDNaGA8yMTI2MTAyNzIyNDc0\n"
				   "M1owDzENMAsGA1UEAwwEZnV6ejBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAK9\n"
				   "5PDRfQEfr4v10+CrK9AYF3nsnbWQpIUN+sUzIV7P9E7+DYPANFtxOksWlJW58MxY\n"
				   "ML2jv61AK3OS+e0arRGjaTBnMB0GA1UdDgQWBBSVySjHv4KHRkmQ3Ll4qTayc14p\n"
				   "rjAfBgNVHSMEGDAWgBSVySjHv4KHRkmQ3Ll4qTayc14prjAPBgNVHRMBAf8EBTAD\n"
				   "AQH/MBQGA1UdEQQNMAuCCWxvY2FsaG9zdDAKBggqhkjOPQQDAgNHADBEAiB++c+a\n"
				   "6fbyDrKFnMH6X5L/Oow9NdZLbyJtwybdjJlr0gIgUcqSoyp5Wwfu89vY6Jg04Vt9\n"
				   "m9LavW8rLt/Dc58OFWw=\n"
				   "-----END CERTIFICATE-----\n"
				   "-----BEGIN PRIVATE KEY-----\n"
				   "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgYrXhYkuyId9iHQrq\n"
				   "lqMmzjx/wsZfFm3rSAMdRy0uIjWhRANCAAQCveTw0X0BH6+L9dPgqyvQGBd57J21\n"
				   "kKSFDfrFMyFez/RO/g2DwDRbcTpLFpSVufDMWDC9o7+tQCtzkvntGq0R\n"
				   "-----END PRIVATE KEY-----\n";

struct end {
	struct gp_conn *c;
	struct gp_conn_write w[WRITES];
	int writes, given_back, ended, closed, until_close;
	size_t received;
};

struct edit {
	uint8_t way, what, value;
	uint16_t at;
};

/* Somebody on the way, between two pairs; or, alone, one who only sends. */
struct relay {
	struct gp_conn *c[2]; /* what leads to the client, to the server */
	struct edit edit[EDITS_MAX];
	int edits;
	uint64_t passed[2];
};

struct parcel {
	struct gp_conn_write w;
	uint8_t bytes[];
};

static uv_loop_t loop;
static struct gp_tls *server_tls[2], *client_tls[2]; /* without and with a certificate of the client */
static uint8_t text[WRITE_BYTES];
static struct end client, server;
static struct relay relay;
static uint64_t sunk; /* parcels that arrived */

static void on_closed(void *arg)
{
	struct end *e = arg;
	e->closed++;
	e->c = NULL;
}

static void close_end(struct end *e)
{
	if (e->c && !e->until_close) {
		e->until_close = -1;
		e->c->ops->close(e->c, on_closed, e);
	}
}

static void count_callback(struct end *e)
{
	gp_require(e->until_close >= 0 && !e->closed);
	if (e->until_close > 0 && --e->until_close == 0)
		close_end(e);
}

static void on_read(void *arg, const uint8_t *data, size_t len)
{
	struct end *e = arg;
	gp_require(len > 0 && e->received + len <= sizeof text * WRITES);
	for (size_t i = 0; i < len; i++)
		gp_require(data[i] == text[(e->received + i) % WRITE_BYTES]);
	e->received += len;
	count_callback(e);
}

static void on_ended(void *arg, enum gp_status status, const char *why)
{
	struct end *e = arg;
	(void)status;
	gp_require(e->ended++ == 0 && why[0]);
	if (e->until_close == 0)
		close_end(e);
	else
		count_callback(e);
}

static void on_written(void *arg, enum gp_status status)
{
	struct end *e = arg;
	(void)status;
	gp_require(++e->given_back <= e->writes && !e->closed);
}

static void use(struct end *e, struct gp_conn *c)
{
	const uv_buf_t bufs[2] = {uv_buf_init((char *)text, 100), uv_buf_init((char *)text + 100, WRITE_BYTES - 100)};
	e->c = c;
	c->cbs = (struct gp_conn_cbs){.read = on_read, .ended = on_ended};
	c->arg = e;
	c->ops->read_start(c);
	for (; e->writes < WRITES; e->writes++) {
		e->w[e->writes].cb = on_written;
		e->w[e->writes].arg = e;
		c->ops->write(c, &e->w[e->writes], bufs, 2);
	}
	c->ops->shutdown(c);
}

static void on_parcel_sent(void *arg, enum gp_status status)
{
	(void)status;
	sunk++;
	free(arg);
}

static void send_bytes(struct gp_conn *to, const uint8_t *bytes, size_t len)
{
	struct parcel *p = len ? malloc(sizeof *p + len) : NULL;
	if (!p)
		return;
	memcpy(p->bytes, bytes, len);
	p->w.cb = on_parcel_sent;
	p->w.arg = p;
	const uv_buf_t buf = uv_buf_init((char *)p->bytes, (unsigned)len);
	to->ops->write(to, &p->w, &buf, 1);
}

static void drop_link(void)
{
	for (int i = 0; i < 2; i++)
		if (relay.c[i])
			relay.c[i]->ops->close(relay.c[i], NULL, NULL);
	relay.c[0] = relay.c[1] = NULL;
}

/* Passes bytes on, edited. `way` 0: to the client. */
static void pass(int way, const uint8_t *data, size_t len)
{
	static uint8_t out[1 << 16];
	size_t n = 0;
	for (size_t i = 0; i < len && relay.c[way]; i++, relay.passed[way]++) {
		uint8_t byte = data[i];
		bool drop = false, cut = false;
		for (int k = 0; k < relay.edits; k++) {
			const struct edit *e = &relay.edit[k];
			if (e->way != way || e->at != relay.passed[way])
				continue;
			if (e->what == 0)
				byte ^= e->value;
			else if (e->what == 2 && n < sizeof out / 2)
				out[n++] = e->value;
			drop |= e->what == 1;
			cut |= e->what == 3;
		}
		if (!drop)
			out[n++] = byte;
		if (cut || n + EDITS_MAX >= sizeof out) {
			send_bytes(relay.c[way], out, n);
			n = 0;
		}
		if (cut)
			drop_link();
	}
	if (relay.c[way])
		send_bytes(relay.c[way], out, n);
}

static void on_from_client(void *arg, const uint8_t *data, size_t len)
{
	(void)arg;
	pass(1, data, len);
}

static void on_from_server(void *arg, const uint8_t *data, size_t len)
{
	(void)arg;
	pass(0, data, len);
}

static void on_side_ended(void *arg, enum gp_status status, const char *why)
{
	(void)arg;
	(void)status;
	(void)why;
	drop_link();
}

static struct gp_conn *wrap(struct gp_conn *inner, const struct gp_tls *tls, const char *host)
{
	struct gp_conn *c;
	struct gp_err err;
	gp_require(gp_tls_wrap(&loop, inner, tls, host, &c, &err) == GP_OK);
	return c;
}

/* The end `e` on one side of a pair, the relay on the other. */
static void open_end(struct end *e, size_t chunk, const struct gp_tls *tls, bool is_server)
{
	struct gp_conn *inner, *outer;
	struct gp_err err;
	gp_require(gp_mem_pair(&loop, chunk, &inner, &outer, &err) == GP_OK);
	outer->cbs = (struct gp_conn_cbs){.read = is_server ? on_from_server : on_from_client, .ended = on_side_ended};
	outer->ops->read_start(outer);
	relay.c[is_server] = outer;
	use(e, wrap(inner, tls, is_server ? NULL : "localhost"));
}

static void read_edits(const uint8_t *data, size_t size)
{
	for (; size >= 4 && relay.edits < EDITS_MAX; data += 4, size -= 4)
		relay.edit[relay.edits++] = (struct edit){.way = data[0] >> 7,
							  .what = data[0] & 3,
							  .at = (uint16_t)(data[1] | data[2] << 8),
							  .value = data[3]};
}

static uint64_t progress(const struct end *e)
{
	return e->received + (uint64_t)(e->given_back + e->ended + e->closed);
}

/* Turns the loop until nothing moves any more. */
static void play(void)
{
	uint64_t moved = 0;
	for (int idle = 0; idle < IDLE_TURNS; idle++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		const uint64_t now = relay.passed[0] + relay.passed[1] + sunk + progress(&client) + progress(&server);
		if (now != moved)
			idle = 0;
		moved = now;
	}
}

static void finish(struct end *e)
{
	e->until_close = e->until_close > 0 ? 0 : e->until_close;
	close_end(e);
}

static void check(const struct end *e)
{
	gp_require(e->given_back == e->writes && e->ended <= 1 && e->closed == (e->writes > 0));
}

static void load(void)
{
	char path[32];
	struct gp_err err;
	const int fd = memory_file((const uint8_t *)identity_pem, sizeof identity_pem - 1, path);
	const struct gp_tls_files all = {path, path, path}, without_ca = {path, path, NULL}, ca = {NULL, NULL, path};
	uv_loop_init(&loop);
	gp_require(gp_tls_server_new(&without_ca, &server_tls[0], &err) == GP_OK);
	gp_require(gp_tls_server_new(&all, &server_tls[1], &err) == GP_OK);
	gp_require(gp_tls_client_new(&ca, &client_tls[0], &err) == GP_OK);
	gp_require(gp_tls_client_new(&all, &client_tls[1], &err) == GP_OK);
	for (int i = 0; i < 2; i++) {
		gp_tls_set_rekey(server_tls[i], 4);
		gp_tls_set_rekey(client_tls[i], 4);
	}
	for (size_t i = 0; i < sizeof text; i++)
		text[i] = (uint8_t)(i * 131 + (i >> 8));
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t chunks[4] = {0, 1, 17, 4096};
	if (size < 2)
		return 0;
	if (!server_tls[0])
		load();
	const int who = data[0] & 3;
	const size_t chunk = chunks[data[0] >> 2 & 3];
	client = server = (struct end){0};
	relay = (struct relay){0};
	(data[1] & 0x80 ? &client : &server)->until_close = data[1] & 0x7f;
	if (who != 1)
		open_end(&server, chunk, server_tls[data[0] >> 4 & 1], true);
	if (who != 0)
		open_end(&client, chunk, client_tls[data[0] >> 5 & 1], false);
	if (who < 2)
		send_bytes(relay.c[who == 0], data + 2, size - 2);
	else
		read_edits(data + 2, size - 2);
	play();
	finish(&client);
	finish(&server);
	drop_link();
	uv_run(&loop, UV_RUN_DEFAULT);
	check(&client);
	check(&server);
	return 0;
}
