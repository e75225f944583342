/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server on loopback with its loop on a thread of its own, for tests.
 */
#ifndef GP_TEST_SERVER_THREAD_H
#define GP_TEST_SERVER_THREAD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <cmocka.h>

#include "common/base/mem.h"
#include "server/server.h"

struct server_thread {
	pthread_t thread;
	uv_loop_t loop;
	uv_async_t stop, drain;
	bool joined;
	struct gp_server server;
	uint16_t port;
	char address[32];
};

static void server_thread_stopped(void *arg)
{
	struct server_thread *t = arg;
	uv_close((uv_handle_t *)&t->stop, NULL);
	uv_close((uv_handle_t *)&t->drain, NULL);
	gp_server_deinit(&t->server);
}

static void server_thread_on_stop(uv_async_t *a)
{
	struct server_thread *t = a->data;
	gp_server_stop(&t->server, server_thread_stopped, t);
}

static void server_thread_on_drain(uv_async_t *a)
{
	struct server_thread *t = a->data;
	gp_server_drain(&t->server, server_thread_stopped, t);
}

static void *server_thread_main(void *arg)
{
	struct server_thread *t = arg;
	uv_run(&t->loop, UV_RUN_DEFAULT);
	return NULL;
}

/* Sessions are not kept when their link breaks. No deadline passes on a slow machine: tests of one set it. */
static inline struct gp_server_settings server_thread_settings(void)
{
	return (struct gp_server_settings){.listen = "127.0.0.1:0",
					   .device = "cpu",
					   .threads = 1,
					   .codec_threads = 2,
					   .max_sessions = 4,
					   .max_unopened = 16,
					   .session_memory_bytes = 256 << 20,
					   .window = 8,
					   .task_time_s = 1e6,
					   .handshake_timeout_s = 3600,
					   .step_timeout_s = 3600,
					   .idle_timeout_s = 3600};
}

/* Until server_thread_run, its loop is the caller's. */
static inline struct server_thread *server_thread_prepare(const struct gp_server_settings *set)
{
	struct server_thread *t = gp_calloc(1, sizeof *t);
	struct gp_err err = {0};
	assert_non_null(t);
	assert_int_equal(uv_loop_init(&t->loop), 0);
	if (gp_server_start(&t->server, &t->loop, set, &err) != GP_OK)
		fail_msg("%s", err.text);
	t->port = gp_server_port(&t->server);
	snprintf(t->address, sizeof t->address, "127.0.0.1:%u", t->port);
	uv_async_init(&t->loop, &t->stop, server_thread_on_stop);
	uv_async_init(&t->loop, &t->drain, server_thread_on_drain);
	t->stop.data = t->drain.data = t;
	return t;
}

static inline void server_thread_run(struct server_thread *t)
{
	assert_int_equal(pthread_create(&t->thread, NULL, server_thread_main, t), 0);
}

static inline struct server_thread *server_thread_start_with(const struct gp_server_settings *set)
{
	struct server_thread *t = server_thread_prepare(set);
	server_thread_run(t);
	return t;
}

static inline struct server_thread *server_thread_start(void)
{
	const struct gp_server_settings set = server_thread_settings();
	return server_thread_start_with(&set);
}

/* The server ends when its sessions have ended; who calls server_thread_join waits for that. */
static inline void server_thread_drain(struct server_thread *t)
{
	uv_async_send(&t->drain);
}

/* Ends every session. */
static inline void server_thread_end(struct server_thread *t)
{
	uv_async_send(&t->stop);
}

static inline void server_thread_join(struct server_thread *t)
{
	if (!t->joined)
		pthread_join(t->thread, NULL);
	t->joined = true;
}

/* Ends every session and the loop, unless that was done before; checks that nothing is left. */
static inline void server_thread_stop(struct server_thread *t)
{
	if (!t->joined)
		server_thread_end(t);
	server_thread_join(t);
	assert_int_equal(t->server.link_count, 0);
	assert_int_equal(t->server.session_count, 0);
	assert_int_equal(t->server.memory_used_bytes, 0);
	for (int i = 0; i < GP_SERVER_DEVICES_MAX; i++) {
		assert_int_equal(t->server.devices.device[i].used_bytes, 0);
		assert_int_equal(t->server.devices.device[i].sessions, 0);
	}
	assert_int_equal(uv_loop_close(&t->loop), 0);
	gp_free(t);
}

#endif
