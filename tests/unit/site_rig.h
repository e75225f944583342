/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server whose clients have names, for tests: its files can be read again
 * while it runs, what can be seen of its sessions from other threads is counted,
 * and clients show tokens. Not a test by itself.
 */
#ifndef GP_TEST_SITE_RIG_H
#define GP_TEST_SITE_RIG_H

#include "tests/unit/server_rig.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "server/session.h"

#define ONE   "0123456789abcdef-one"
#define TWO   "0123456789abcdef-two"
#define THREE "0123456789abcdef-three"

static char token_path[] = "/tmp/gp-tokens-XXXXXX";

static inline void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static inline void write_tokens(const char *text)
{
	write_file(token_path, text);
}

struct site {
	struct fixture f;
	uv_async_t reload;
	uv_prepare_t watch;
	atomic_int parked, reloads, alive;
	atomic_uint_least64_t memory_used, share_used; /* share_used: of the newest session, if it is open */
	enum gp_status credentials, limits;            /* what became of the last reload */
	struct gp_err limits_err;
	atomic_bool closing;
};

static inline int count_sessions(const struct site *s, bool parked)
{
	int n = 0;
	for (const struct gp_server_session *at = s->f.server->server.sessions; at; at = at->next)
		n += !at->ending && (!parked || !at->link);
	return n;
}

static inline void on_turn(uv_prepare_t *watch)
{
	struct site *s = watch->data;
	atomic_store(&s->parked, count_sessions(s, true));
	atomic_store(&s->memory_used, s->f.server->server.memory_used_bytes);
	const struct gp_server_session *newest = s->f.server->server.sessions;
	atomic_store(&s->share_used, newest && newest->ready ? gp_body_share_used(newest->body) : 0);
}

static inline void on_reload(uv_async_t *a)
{
	struct site *s = a->data;
	struct gp_err err;
	if (atomic_load(&s->closing)) {
		uv_close((uv_handle_t *)&s->reload, NULL);
		uv_close((uv_handle_t *)&s->watch, NULL);
		return;
	}
	s->credentials = gp_server_reload(&s->f.server->server, &err);
	if (s->credentials == GP_OK)
		s->credentials = gp_server_reload_metrics(&s->f.server->server, &err);
	s->limits = gp_server_reload_limits(&s->f.server->server, &s->limits_err);
	atomic_store(&s->alive, count_sessions(s, false));
	atomic_fetch_add(&s->reloads, 1);
}

static inline void site_start(struct site *s, const struct gp_server_settings *set)
{
	memset(s, 0, sizeof *s);
	s->f.server = server_thread_prepare(set);
	s->f.port = s->f.server->port;
	s->f.body = make_body();
	uv_async_init(&s->f.server->loop, &s->reload, on_reload);
	uv_prepare_init(&s->f.server->loop, &s->watch);
	s->reload.data = s->watch.data = s;
	uv_prepare_start(&s->watch, on_turn);
	server_thread_run(s->f.server);
}

/* As SIGHUP does; what became of it is in `credentials` and `limits`. */
static inline void site_reload_any(struct site *s)
{
	const int before = atomic_load(&s->reloads);
	uv_async_send(&s->reload);
	while (atomic_load(&s->reloads) == before)
		usleep(1000);
}

static inline void site_reload(struct site *s)
{
	site_reload_any(s);
	assert_int_equal(s->credentials, GP_OK);
	assert_int_equal(s->limits, GP_OK);
}

static inline void site_await_parked(struct site *s, int count)
{
	while (atomic_load(&s->parked) != count)
		usleep(1000);
}

static inline void site_stop(struct site *s)
{
	atomic_store(&s->closing, true);
	uv_async_send(&s->reload);
	server_thread_stop(s->f.server);
	gp_graph_free(s->f.body);
}

static inline void put_hello_with(struct raw_peer *c, const char *token)
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	hello.version = GP_PROTO_VERSION;
	hello.token = (ProtobufCBinaryData){strlen(token), (uint8_t *)token};
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(c, &m);
}

static inline void say_hello(struct raw_peer *c, const struct site *s, const char *token)
{
	client_connect(c, &s->f);
	put_preface(c);
	put_hello_with(c, token);
}

/* Returns the memory that it is told it may take. */
static inline uint64_t be_welcome(struct raw_peer *c, const struct site *s, const char *token)
{
	say_hello(c, s, token);
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_WELCOME)
		fail_msg("got %s '%s' instead of welcome", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "");
	c->session = m->welcome->session;
	const uint64_t memory = m->welcome->limits->memory_bytes;
	gpsplit__control__free_unpacked(m, NULL);
	return memory;
}

/* Returns the memory that the session takes. */
static inline uint64_t open_session(struct raw_peer *c, const struct site *s, const char *token)
{
	be_welcome(c, s, token);
	put_open(c, s->f.body, NULL);
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_READY)
		fail_msg("got %s '%s' instead of ready", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "");
	const uint64_t memory = m->ready->memory_bytes;
	gpsplit__control__free_unpacked(m, NULL);
	return memory;
}

/* Returns its retry_ms. */
static inline uint32_t expect_code(struct raw_peer *c, enum gp_status code, const char *part)
{
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_ERROR || m->error->code != (uint32_t)code ||
	    !strstr(m->error->text, part))
		fail_msg("got %s '%s', expected an error %d with '%s'", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "", code, part);
	const uint32_t retry_ms = m->error->retry_ms;
	gpsplit__control__free_unpacked(m, NULL);
	client_close(c);
	return retry_ms;
}

#endif
