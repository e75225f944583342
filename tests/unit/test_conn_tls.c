/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS over the pair in memory, byte by byte and at once: what crosses, what is
 * refused and in which words, cuts at any byte, closing at any time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/wire/account.h"
#include "common/net/conn_tls_impl.h"
#include "tests/unit/tls_files.h"

#define DEADLINE_NS 600000000000ull /* a test that gets here has failed */
#define BLOCK_BYTES (1u << 20)

struct side {
	struct gp_conn *c, *inner;
	struct gp_conn_write w[4];
	int written, canceled, ended, closed;
	enum gp_status status;
	char why[GP_ERR_TEXT];
	uint8_t *in;
	size_t in_len, in_cap, largest;
	bool stop_in_read, close_in_read;
	int reads, moments; /* calls of `read`, and different times of the bytes that they brought */
	uint64_t moment;
};

struct rig {
	uv_loop_t loop;
	struct side client, server;
};

static uint8_t block[BLOCK_BYTES];

static void turn(struct rig *r)
{
	uv_run(&r->loop, UV_RUN_NOWAIT);
}

static void run_until(struct rig *r, const int *counter, int value)
{
	const uint64_t begin = gp_now_ns();
	while (*counter < value) {
		uv_run(&r->loop, UV_RUN_ONCE);
		if (gp_now_ns() - begin > DEADLINE_NS)
			fail_msg("nothing happened for ten minutes");
	}
}

static void run_until_read(struct rig *r, const struct side *s, size_t bytes)
{
	const uint64_t begin = gp_now_ns();
	while (s->in_len < bytes) {
		uv_run(&r->loop, UV_RUN_ONCE);
		if (gp_now_ns() - begin > DEADLINE_NS)
			fail_msg("%zu of %zu bytes came, and no more within ten minutes", s->in_len, bytes);
	}
}

static void on_closed(void *arg)
{
	struct side *s = arg;
	s->closed++;
	s->c = NULL;
}

static void on_read(void *arg, const uint8_t *data, size_t len)
{
	struct side *s = arg;
	assert_true(s->in_len + len <= s->in_cap);
	memcpy(s->in + s->in_len, data, len);
	s->in_len += len;
	s->reads++;
	s->moments += s->c->read_ns != s->moment;
	s->moment = s->c->read_ns;
	if (len > s->largest)
		s->largest = len;
	if (s->stop_in_read)
		s->c->ops->read_stop(s->c);
	if (s->close_in_read)
		s->c->ops->close(s->c, on_closed, s);
}

static void on_ended(void *arg, enum gp_status status, const char *why)
{
	struct side *s = arg;
	s->ended++;
	s->status = status;
	snprintf(s->why, sizeof s->why, "%s", why);
}

static void on_written(void *arg, enum gp_status status)
{
	struct side *s = arg;
	if (status == GP_OK)
		s->written++;
	else
		s->canceled++;
}

static void use(struct side *s, struct gp_conn *c)
{
	s->c = c;
	s->in_cap = 4 * BLOCK_BYTES;
	s->in = malloc(s->in_cap);
	c->cbs = (struct gp_conn_cbs){.read = on_read, .ended = on_ended};
	c->arg = s;
	c->ops->read_start(c);
}

static struct gp_conn *wrap(struct rig *r, struct gp_conn *inner, struct gp_tls *tls, const char *host)
{
	struct gp_conn *c;
	struct gp_err err;
	if (!tls)
		return inner; /* an end without TLS */
	if (gp_tls_wrap(&r->loop, inner, tls, host, &c, &err) != GP_OK)
		fail_msg("%s", err.text);
	gp_tls_free(tls); /* the connection has what it needs */
	return c;
}

/* Takes the settings; NULL: that end speaks in the clear. */
static struct rig *rig_new(size_t chunk, struct gp_tls *client, const char *host, struct gp_tls *server)
{
	struct rig *r = calloc(1, sizeof *r);
	struct gp_err err;
	uv_loop_init(&r->loop);
	assert_int_equal(gp_mem_pair(&r->loop, chunk, &r->client.inner, &r->server.inner, &err), GP_OK);
	use(&r->server, wrap(r, r->server.inner, server, NULL));
	use(&r->client, wrap(r, r->client.inner, client, host));
	return r;
}

static struct rig *rig_good(size_t chunk)
{
	return rig_new(chunk, tls_client("client", "ca"), "localhost", tls_server("server", "ca"));
}

static void close_side(struct rig *r, struct side *s)
{
	if (!s->c)
		return;
	s->c->ops->close(s->c, on_closed, s);
	run_until(r, &s->closed, 1);
}

static void rig_free(struct rig *r)
{
	close_side(r, &r->client);
	close_side(r, &r->server);
	uv_run(&r->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&r->loop), 0);
	free(r->client.in);
	free(r->server.in);
	free(r);
}

static void write_bufs(struct side *s, int slot, const uv_buf_t *bufs, unsigned nbufs)
{
	s->w[slot].cb = on_written;
	s->w[slot].arg = s;
	s->c->ops->write(s->c, &s->w[slot], bufs, nbufs);
}

static void write_text(struct side *s, int slot, const char *text)
{
	const uv_buf_t buf = uv_buf_init((char *)text, (unsigned)strlen(text));
	write_bufs(s, slot, &buf, 1);
}

static void write_block(struct side *s, int slot, size_t bytes)
{
	const uv_buf_t buf = uv_buf_init((char *)block, (unsigned)bytes);
	write_bufs(s, slot, &buf, 1);
}

static void bytes_cross_both_ways_in_order_whatever_the_reads(void **state)
{
	(void)state;
	static const size_t chunks[] = {0, 1, 7, 1000};
	for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
		struct rig *r = rig_good(chunks[i]);
		const uv_buf_t bufs[3] = {uv_buf_init((char *)"one ", 4), uv_buf_init((char *)"", 0),
					  uv_buf_init((char *)"two ", 4)};
		write_bufs(&r->client, 0, bufs, 3);
		write_bufs(&r->client, 1, bufs + 1, 1); /* nothing at all is a write, too */
		write_text(&r->client, 2, "three");
		write_text(&r->server, 0, "four");
		assert_int_equal(r->client.written, 0); /* not inside the call */
		run_until(r, &r->client.written, 3);
		run_until(r, &r->server.written, 1);
		run_until_read(r, &r->server, 13);
		run_until_read(r, &r->client, 4);
		assert_memory_equal(r->server.in, "one two three", 13);
		assert_memory_equal(r->client.in, "four", 4);
		assert_int_equal(r->client.c->ops->unsent(r->client.c), 0);
		assert_true(r->server.c->secure);
		assert_string_equal(r->server.c->identity, "uri:urn:gpsplit:edge-1");
		assert_string_equal(r->server.c->subject, "edge-1");
		assert_string_equal(r->client.c->identity, "dns:localhost");
		assert_string_equal(r->client.c->subject, "gpsplit test server");
		rig_free(r);
	}
}

static void large_transfers_cross_both_ways_and_cost_little_more(void **state)
{
	(void)state;
	struct rig *r = rig_good(0);
	const uv_buf_t bufs[3] = {uv_buf_init((char *)block, 16), uv_buf_init((char *)block + 16, 70000),
				  uv_buf_init((char *)block + 70016, BLOCK_BYTES - 70016)};
	for (int i = 0; i < 3; i++) {
		write_bufs(&r->client, i, bufs, 3);
		write_block(&r->server, i, BLOCK_BYTES);
	}
	assert_true(r->client.c->ops->unsent(r->client.c) >= 3 * BLOCK_BYTES);
	run_until(r, &r->client.written, 3);
	run_until(r, &r->server.written, 3);
	run_until_read(r, &r->server, 3 * BLOCK_BYTES);
	run_until_read(r, &r->client, 3 * BLOCK_BYTES);
	for (size_t i = 0; i < 3; i++) {
		assert_memory_equal(r->server.in + i * BLOCK_BYTES, block, BLOCK_BYTES);
		assert_memory_equal(r->client.in + i * BLOCK_BYTES, block, BLOCK_BYTES);
	}
	assert_true(r->client.w[0].bytes > BLOCK_BYTES && r->client.w[0].bytes < BLOCK_BYTES + BLOCK_BYTES / 500);
	assert_int_equal(r->client.c->bytes_written, r->client.inner->bytes_written);
	assert_int_equal(r->client.c->bytes_written, r->server.c->bytes_read);
	assert_int_equal(r->server.c->bytes_written, r->client.c->bytes_read);
	/* Records that came together have one time, that of the inner connection's read. */
	assert_true(r->server.moments > 0 && r->server.reads > 2 * r->server.moments);
	assert_true(r->server.moment == r->server.inner->read_ns);
	rig_free(r);
}

static void keys_change_under_way_and_nobody_notices(void **state)
{
	(void)state;
	struct gp_tls *client = tls_client("client", "ca"), *server = tls_server("server", "ca");
	gp_tls_set_rekey(client, 2);
	gp_tls_set_rekey(server, 3);
	struct rig *r = rig_new(100, client, "localhost", server);
	for (int i = 0; i < 3; i++) {
		write_block(&r->client, i, BLOCK_BYTES);
		write_block(&r->server, i, BLOCK_BYTES);
	}
	run_until_read(r, &r->server, 3 * BLOCK_BYTES);
	run_until_read(r, &r->client, 3 * BLOCK_BYTES);
	assert_memory_equal(r->server.in + 2 * BLOCK_BYTES, block, BLOCK_BYTES);
	assert_int_equal(r->client.c->bytes_written, r->server.c->bytes_read);
	rig_free(r);
}

/* As no gpsplit does it. */
static void change_keys(struct side *s, int times)
{
	struct tls_conn *c = tls_of(s->c);
	for (int i = 0; i < times; i++) {
		assert_int_equal(SSL_key_update(c->ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
		assert_int_equal(SSL_do_handshake(c->ssl), 1);
	}
	gp_tls_flush(c);
}

static void a_peer_that_does_nothing_but_change_keys_is_cut_off(void **state)
{
	(void)state;
	struct rig *r = rig_good(0);
	for (int i = 0; i < 3; i++) { /* they stand for nothing as long as they are few */
		write_text(&r->client, i, "hello");
		write_text(&r->server, i, "hello");
		run_until_read(r, &r->server, 5 * (size_t)(i + 1));
		run_until_read(r, &r->client, 5 * (size_t)(i + 1));
		change_keys(&r->client, 4);
		change_keys(&r->server, 4);
	}
	const uint64_t read = r->server.c->bytes_read;
	change_keys(&r->client, 1000);
	run_until(r, &r->server.ended, 1);
	assert_int_equal(r->server.status, GP_PEER);
	assert_non_null(strstr(r->server.why, "changes its TLS keys again and again"));
	assert_true(r->server.c->bytes_read - read < 10 * 64);
	rig_free(r);
}

static void one_that_lingers_goes_at_once_when_its_place_is_needed(void **state)
{
	(void)state;
	struct rig *r = rig_new(0, NULL, NULL, tls_server("server", "ca"));
	write_text(&r->client, 0, "this is no TLS at all");
	run_until(r, &r->server.ended, 1);
	struct gp_conn *c = r->server.c;
	c->ops->close(c, on_closed, &r->server);
	c->ops->hurry(c);
	c->ops->hurry(c);
	for (int i = 0; i < 10; i++) /* it would linger for a second */
		turn(r);
	assert_int_equal(r->server.closed, 1);
	rig_free(r);
}

static void shutdown_ends_one_direction_behind_the_bytes_queued(void **state)
{
	(void)state;
	for (size_t chunk = 0; chunk < 2; chunk++) {
		struct rig *r = rig_good(chunk);
		write_block(&r->client, 0, 400000);
		write_text(&r->client, 1, "last words");
		r->client.c->ops->shutdown(r->client.c);
		run_until(r, &r->server.ended, 1);
		assert_int_equal(r->server.status, GP_OK);
		assert_non_null(strstr(r->server.why, "closed the connection"));
		assert_int_equal(r->server.in_len, 400010);
		write_text(&r->server, 0, "still here"); /* the other half is open */
		run_until(r, &r->server.written, 1);
		run_until_read(r, &r->client, 10);
		assert_int_equal(r->client.ended, 0);
		rig_free(r);
	}
}

static void an_end_without_a_goodbye_is_an_error(void **state)
{
	(void)state;
	struct rig *r = rig_good(0);
	write_text(&r->client, 0, "hello");
	run_until_read(r, &r->server, 5);
	r->client.inner->ops->shutdown(r->client.inner); /* as if somebody had cut the stream */
	run_until(r, &r->server.ended, 1);
	assert_int_equal(r->server.status, GP_PEER);
	assert_non_null(strstr(r->server.why, "without a TLS goodbye"));
	rig_free(r);
}

static void a_stopped_reader_gets_nothing_until_it_starts_again(void **state)
{
	(void)state;
	static const size_t chunks[] = {0, 1, 20000};
	for (size_t i = 0; i < 3; i++) {
		struct rig *r = rig_good(chunks[i]);
		write_block(&r->client, 0, 200000);
		r->server.stop_in_read = true; /* after every record */
		while (r->server.in_len < 200000) {
			const size_t before = r->server.in_len;
			for (int n = 0; n < 400; n++)
				turn(r);
			assert_true(r->server.in_len - before <= 16384);
			r->server.c->ops->read_start(r->server.c);
		}
		run_until(r, &r->client.written, 1);
		assert_memory_equal(r->server.in, block, 200000);
		rig_free(r);
	}
}

static void a_peer_that_does_not_read_holds_writes_back(void **state)
{
	(void)state;
	struct rig *r = rig_good(0);
	write_text(&r->client, 0, "x");
	run_until_read(r, &r->server, 1);
	r->server.c->ops->read_stop(r->server.c);
	for (int i = 0; i < 3; i++)
		write_block(&r->client, i, BLOCK_BYTES);
	for (int n = 0; n < 100; n++)
		turn(r);
	assert_int_equal(r->client.written, 1);
	assert_true(r->client.c->ops->unsent(r->client.c) > 2 * BLOCK_BYTES);
	r->server.c->ops->read_start(r->server.c);
	run_until(r, &r->client.written, 4);
	rig_free(r);
}

static void close_gives_every_write_back(void **state)
{
	(void)state;
	for (int handshake = 0; handshake < 2; handshake++) {
		struct rig *r = rig_good(0);
		if (!handshake) {
			write_text(&r->client, 0, "x");
			run_until(r, &r->client.written, 1);
			r->server.c->ops->read_stop(r->server.c);
			turn(r);
		}
		r->client.written = 0;
		for (int i = 0; i < 3; i++)
			write_block(&r->client, i, BLOCK_BYTES);
		turn(r);
		close_side(r, &r->client);
		assert_int_equal(r->client.written + r->client.canceled, 3);
		assert_true(r->client.canceled > 0);
		assert_int_equal(r->client.ended, 0);
		rig_free(r);
	}
}

static void closing_at_any_moment_leaves_nothing(void **state)
{
	(void)state;
	for (int turns = 0; turns < 12; turns++) {
		for (int who = 0; who < 2; who++) {
			struct rig *r = rig_good(300);
			write_block(&r->client, 0, 5000);
			write_block(&r->server, 0, 5000);
			for (int i = 0; i < turns; i++)
				turn(r);
			close_side(r, who ? &r->client : &r->server);
			rig_free(r);
		}
	}
}

static void closing_in_a_read_callback_is_allowed(void **state)
{
	(void)state;
	struct rig *r = rig_good(0);
	r->server.close_in_read = true;
	write_block(&r->client, 0, 100000);
	run_until(r, &r->server.closed, 1);
	assert_true(r->server.in_len <= 16384);
	rig_free(r);
}

/* Bytes of a good conversation from the client; then the cut at each of them. */
static void a_cut_at_any_byte_ends_both_sides_with_an_error(void **state)
{
	(void)state;
	struct rig *good = rig_good(0);
	write_text(&good->client, 0, "hello");
	run_until_read(good, &good->server, 5);
	const uint64_t total = good->client.inner->bytes_written;
	rig_free(good);
	struct gp_tls *client = tls_client("client", "ca"), *server = tls_server("server", "ca");
	for (uint64_t at = 0; at < total; at += 1 + total / 97) {
		struct rig *r = calloc(1, sizeof *r);
		struct gp_err err;
		uv_loop_init(&r->loop);
		assert_int_equal(gp_mem_pair(&r->loop, 0, &r->client.inner, &r->server.inner, &err), GP_OK);
		assert_int_equal(gp_tls_wrap(&r->loop, r->server.inner, server, NULL, &r->server.c, &err), GP_OK);
		assert_int_equal(gp_tls_wrap(&r->loop, r->client.inner, client, "localhost", &r->client.c, &err),
				 GP_OK);
		use(&r->server, r->server.c);
		use(&r->client, r->client.c);
		gp_mem_cut_after(r->client.inner, at);
		write_text(&r->client, 0, "hello");
		run_until(r, &r->client.ended, 1);
		run_until(r, &r->server.ended, 1);
		assert_int_equal(r->client.status, GP_PEER);
		assert_int_equal(r->server.status, GP_PEER);
		assert_int_equal(r->server.in_len, 0);
		rig_free(r);
	}
	gp_tls_free(client);
	gp_tls_free(server);
}

/* Both ends end, with these words. */
static void check_refusal(struct rig *r, enum gp_status client, const char *client_why, enum gp_status server,
			  const char *server_why)
{
	write_text(&r->client, 0, "gpsplit\n, HELLO and what a client sends at once");
	run_until(r, &r->server.ended, 1);
	r->server.c->ops->close(r->server.c, on_closed, &r->server); /* at once, as a server does */
	run_until(r, &r->client.ended, 1);
	close_side(r, &r->client);
	run_until(r, &r->server.closed, 1);
	if (!strstr(r->client.why, client_why) || !strstr(r->server.why, server_why))
		fail_msg("client: '%s', server: '%s'", r->client.why, r->server.why);
	assert_int_equal(r->client.status, client);
	assert_int_equal(r->server.status, server);
	assert_int_equal(r->server.in_len, 0);
	rig_free(r);
}

static void a_client_without_a_certificate_is_refused_on_both_sides(void **state)
{
	(void)state;
	for (size_t chunk = 0; chunk < 2; chunk++)
		check_refusal(rig_new(chunk, tls_client(NULL, "ca"), "localhost", tls_server("server", "ca")),
			      GP_DENIED, "it asks for a certificate, and none was given (--tls-cert and --tls-key)",
			      GP_DENIED, "has no certificate, and this server asks for one");
}

static void an_expired_certificate_is_named_and_refused(void **state)
{
	(void)state;
	check_refusal(rig_new(0, tls_client("expired", "ca"), "localhost", tls_server("server", "ca")), GP_DENIED,
		      "it refuses our certificate: expired", GP_DENIED, "(\"edge-2\") is refused: it has expired");
}

static void a_certificate_of_a_foreign_ca_is_refused(void **state)
{
	(void)state;
	check_refusal(rig_new(0, tls_client("foreign", "ca"), "localhost", tls_server("server", "ca")), GP_DENIED,
		      "does not trust the CA that issued it", GP_DENIED,
		      "(\"edge-3\") is refused: it comes from no CA that is trusted here");
}

static void a_servers_certificate_does_not_do_for_a_client(void **state)
{
	(void)state;
	check_refusal(rig_new(0, tls_client("server", "ca"), "localhost", tls_server("server", "ca")), GP_DENIED,
		      "refuses our certificate", GP_DENIED, "was not issued for this end of a link");
}

static void a_foreign_server_is_refused_by_the_client(void **state)
{
	(void)state;
	check_refusal(rig_new(0, tls_client("client", "ca"), "localhost", tls_server("foreign-server", "ca")),
		      GP_DENIED,
		      "the certificate of server memory:b (\"foreign test server\") is refused: it comes from no CA",
		      GP_DENIED, "refuses our certificate: it does not trust the CA");
}

/* A server may send its CA's certificate along. */
static void what_is_wrong_with_the_ca_is_told_of_the_server(void **state)
{
	(void)state;
	char command[256];
	snprintf(command, sizeof command,
		 "cd %s && cat foreign-server.pem foreign-ca.pem >chain.pem && cp foreign-server.key chain.key",
		 tls_dir);
	assert_int_equal(system(command), 0);
	check_refusal(
		rig_new(0, tls_client("client", "ca"), "localhost", tls_server("chain", "ca")), GP_DENIED,
		"the certificate of server memory:b (\"foreign test server\") is refused because of its CA (\"foreign "
		"test CA\"): it comes from no CA that is trusted here (--tls-ca)",
		GP_DENIED, "refuses our certificate: it does not trust the CA");
}

static void a_server_of_another_name_is_refused(void **state)
{
	(void)state;
	check_refusal(rig_new(0, tls_client("client", "ca"), "other.example", tls_server("server", "ca")), GP_DENIED,
		      "it is not for 'other.example'; --tls-name names another", GP_DENIED, "refuses our certificate");
	check_refusal(rig_new(0, tls_client("client", "ca"), "10.1.2.3", tls_server("server", "ca")), GP_DENIED,
		      "it is not for '10.1.2.3'", GP_DENIED, "refuses our certificate");
}

static void a_certificate_without_a_name_is_known_by_its_key(void **state)
{
	(void)state;
	struct rig *r = rig_new(0, tls_client("unnamed", "ca"), "localhost", tls_server("server", "ca"));
	write_text(&r->client, 0, "hello");
	run_until_read(r, &r->server, 5);
	assert_string_equal(r->server.c->subject, "");
	assert_memory_equal(r->server.c->identity, "key:", 4);
	assert_int_equal(strlen(r->server.c->identity), 4 + 64);
	rig_free(r);
}

static void names_and_addresses_of_the_certificate_are_taken(void **state)
{
	(void)state;
	static const char *const hosts[] = {"localhost", "127.0.0.1", "::1", "edge.example"};
	for (size_t i = 0; i < 4; i++) {
		struct rig *r = rig_new(0, tls_client(NULL, "ca"), hosts[i], tls_server("server", NULL));
		write_text(&r->client, 0, "hello");
		run_until_read(r, &r->server, 5);
		assert_string_equal(r->server.c->identity, "");
		rig_free(r);
	}
}

static void a_client_in_the_clear_is_told_so(void **state)
{
	(void)state;
	for (size_t chunk = 0; chunk < 2; chunk++) {
		struct rig *r = rig_new(chunk, NULL, NULL, tls_server("server", "ca"));
		write_text(&r->client, 0, "gpsplit\n and so on");
		run_until(r, &r->server.ended, 1);
		assert_int_equal(r->server.status, GP_DENIED);
		assert_non_null(strstr(r->server.why, "speaks without TLS"));
		run_until_read(r, &r->client, 7);
		assert_memory_equal(r->client.in, "\x15\x03\x03\x00\x02\x02\x46", 7); /* alert: protocol version */
		rig_free(r);
	}
}

static void a_server_in_the_clear_is_recognized(void **state)
{
	(void)state;
	struct rig *r = rig_new(1, tls_client("client", "ca"), "localhost", NULL);
	write_text(&r->server, 0, "gpsplit\n and so on");
	run_until(r, &r->client.ended, 1);
	assert_int_equal(r->client.status, GP_DENIED);
	assert_non_null(strstr(r->client.why, "speaks without TLS: leave --tls out"));
	rig_free(r);
}

static void garbage_is_no_handshake(void **state)
{
	(void)state;
	static const char *const texts[] = {"GET / HTTP/1.1\r\n\r\n",
					    "\x16\x03\x01\x02\x00 and then nothing of the kind",
					    "SSH-2.0-OpenSSH_9.2\r\n"};
	for (size_t i = 0; i < 3; i++) {
		struct rig *r = rig_new(1, NULL, NULL, tls_server("server", "ca"));
		const uv_buf_t buf = uv_buf_init((char *)block, 100000);
		const uv_buf_t begin = uv_buf_init((char *)texts[i], 18);
		write_bufs(&r->client, 0, &begin, 1);
		write_bufs(&r->client, 1, &buf, 1);
		run_until(r, &r->server.ended, 1);
		assert_int_equal(r->server.status, i == 1 ? GP_DAMAGED : GP_PROTO); /* TLS as it may be after damage */
		assert_int_equal(r->server.in_len, 0);
		rig_free(r);
	}
}

static void a_damaged_record_ends_the_link_with_its_reason(void **state)
{
	(void)state;
	struct rig *r = rig_good(0);
	struct gp_conn_write w = {.cb = on_written, .arg = &r->client};
	const uv_buf_t forged = uv_buf_init((char *)"\x17\x03\x03\x00\x20 thirty-two bytes of nobody's key", 37);
	write_text(&r->client, 0, "hello");
	run_until_read(r, &r->server, 5);
	r->client.inner->ops->write(r->client.inner, &w, &forged, 1); /* past our end's TLS */
	run_until(r, &r->server.ended, 1);
	assert_int_equal(r->server.status, GP_DAMAGED);
	assert_non_null(strstr(r->server.why, "broke TLS"));
	run_until(r, &r->client.ended, 1);
	assert_int_equal(r->client.status, GP_PEER);
	rig_free(r);
}

static void a_refused_peer_that_never_hangs_up_is_left_after_a_second(void **state)
{
	(void)state;
	struct rig *r = rig_new(0, tls_client(NULL, "ca"), "localhost", tls_server("server", "ca"));
	run_until(r, &r->server.ended, 1);
	r->client.c->ops->read_stop(r->client.c);
	const uint64_t begin = gp_now_ns();
	close_side(r, &r->server);
	assert_true(gp_now_ns() - begin > 990000000ull); /* the loop's clock has milliseconds */
	rig_free(r);
}

static void a_steady_transfer_allocates_nothing_of_ours(void **state)
{
	(void)state;
	struct rig *r = rig_good(0);
	uint64_t calls = 0;
	for (int i = 0; i < 30; i++) {
		if (i == 10)
			calls = gp_mem_calls();
		r->client.written = r->server.written = 0;
		r->client.in_len = r->server.in_len = 0;
		write_block(&r->client, 0, 300000);
		write_block(&r->client, 1, 300000);
		write_block(&r->server, 0, 300000);
		run_until(r, &r->client.written, 2);
		run_until(r, &r->server.written, 1);
	}
	assert_int_equal(gp_mem_calls(), calls);
	rig_free(r);
}

/* The inner connection's hint, as its kernel would keep it. */
static struct gp_conn_ops hinted_ops;
static uint64_t last_hint;
static size_t hint_total;

static void keep_hint(struct gp_conn *c, uint32_t bytes)
{
	(void)c;
	last_hint = bytes;
}

static void read_and_hint(void *arg, const uint8_t *data, size_t len)
{
	struct side *s = arg;
	on_read(arg, data, len);
	s->c->ops->read_hint(s->c, s->in_len < hint_total ? (uint32_t)(hint_total - s->in_len) : 1);
}

/* A hint above what is still to come would be a wait for ever. */
static void a_hint_never_asks_for_more_than_is_still_to_come(void **state)
{
	(void)state;
	static const size_t chunks[] = {7, 1000, 16406, 20000, 40000};
	hint_total = 300000;
	for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
		struct rig *r = rig_good(chunks[i]);
		hinted_ops = *r->server.inner->ops;
		hinted_ops.read_hint = keep_hint;
		r->server.inner->ops = &hinted_ops;
		r->server.c->cbs.read = read_and_hint;
		last_hint = 1;
		write_block(&r->client, 0, hint_total);
		while (r->server.in_len < hint_total) {
			assert_true(last_hint <= 1 || last_hint <= r->client.c->ops->unsent(r->client.c));
			turn(r);
		}
		rig_free(r);
	}
}

static int set_up(void **state)
{
	for (size_t i = 0; i < sizeof block; i++)
		block[i] = (uint8_t)(i * 131 + (i >> 8) * 7 + (i >> 16));
	return tls_files_make(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_cross_both_ways_in_order_whatever_the_reads),
		cmocka_unit_test(large_transfers_cross_both_ways_and_cost_little_more),
		cmocka_unit_test(keys_change_under_way_and_nobody_notices),
		cmocka_unit_test(a_peer_that_does_nothing_but_change_keys_is_cut_off),
		cmocka_unit_test(one_that_lingers_goes_at_once_when_its_place_is_needed),
		cmocka_unit_test(shutdown_ends_one_direction_behind_the_bytes_queued),
		cmocka_unit_test(an_end_without_a_goodbye_is_an_error),
		cmocka_unit_test(a_stopped_reader_gets_nothing_until_it_starts_again),
		cmocka_unit_test(a_peer_that_does_not_read_holds_writes_back),
		cmocka_unit_test(close_gives_every_write_back),
		cmocka_unit_test(closing_at_any_moment_leaves_nothing),
		cmocka_unit_test(closing_in_a_read_callback_is_allowed),
		cmocka_unit_test(a_cut_at_any_byte_ends_both_sides_with_an_error),
		cmocka_unit_test(a_client_without_a_certificate_is_refused_on_both_sides),
		cmocka_unit_test(an_expired_certificate_is_named_and_refused),
		cmocka_unit_test(a_certificate_of_a_foreign_ca_is_refused),
		cmocka_unit_test(a_servers_certificate_does_not_do_for_a_client),
		cmocka_unit_test(a_foreign_server_is_refused_by_the_client),
		cmocka_unit_test(what_is_wrong_with_the_ca_is_told_of_the_server),
		cmocka_unit_test(a_server_of_another_name_is_refused),
		cmocka_unit_test(a_certificate_without_a_name_is_known_by_its_key),
		cmocka_unit_test(names_and_addresses_of_the_certificate_are_taken),
		cmocka_unit_test(a_client_in_the_clear_is_told_so),
		cmocka_unit_test(a_server_in_the_clear_is_recognized),
		cmocka_unit_test(garbage_is_no_handshake),
		cmocka_unit_test(a_damaged_record_ends_the_link_with_its_reason),
		cmocka_unit_test(a_refused_peer_that_never_hangs_up_is_left_after_a_second),
		cmocka_unit_test(a_hint_never_asks_for_more_than_is_still_to_come),
		cmocka_unit_test(a_steady_transfer_allocates_nothing_of_ours),
	};
	return cmocka_run_group_tests(tests, set_up, tls_files_remove);
}
