/* SPDX-License-Identifier: Apache-2.0
 *
 * The link emulator on a loop and a thread of its own, for tests.
 */
#ifndef GP_TEST_LINK_THREAD_H
#define GP_TEST_LINK_THREAD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <stdatomic.h>
#include <cmocka.h>

#include "client/link/link_relay.h"

struct link_thread {
	pthread_t thread;
	uv_loop_t loop;
	uv_async_t stop;
	uv_prepare_t prepare;
	struct gp_link_relay relay;
	_Atomic uint64_t fault_ns; /* when the first drop or stall was; 0: not yet */
	_Atomic uint64_t taken[2]; /* bytes of each direction that have passed or were swallowed */
	atomic_bool connected;     /* through the relay is some connection */
	char address[32];
};

#define LINK_NO_FAULTS                                                                                                 \
	{                                                                                                              \
		.direction = GP_LINK_BOTH, .stall_after = GP_LINK_NEVER, .drop_after = GP_LINK_NEVER,                  \
		.corrupt_byte = GP_LINK_NEVER, .seed = 1                                                               \
	}

static void link_thread_on_stop(uv_async_t *a)
{
	struct link_thread *t = a->data;
	gp_link_relay_stop(&t->relay);
	uv_close((uv_handle_t *)a, NULL);
	uv_close((uv_handle_t *)&t->prepare, NULL);
}

static void link_thread_on_prepare(uv_prepare_t *prepare)
{
	struct link_thread *t = prepare->data;
	if (t->relay.counts.drops + t->relay.counts.stalls > 0 && atomic_load(&t->fault_ns) == 0)
		atomic_store(&t->fault_ns, uv_hrtime());
	for (int d = 0; d < 2; d++)
		atomic_store(&t->taken[d], t->relay.counts.bytes[d] + t->relay.counts.swallowed[d]);
	atomic_store(&t->connected, t->relay.tunnels != NULL);
}

static void *link_thread_main(void *arg)
{
	struct link_thread *t = arg;
	uv_run(&t->loop, UV_RUN_DEFAULT);
	return NULL;
}

/* `listen` and the time for a connection may be left out of `spec`. `to` must stay until the stop. */
static inline struct link_thread *link_thread_start(const struct gp_link_spec *spec)
{
	struct link_thread *t = gp_calloc(1, sizeof *t);
	struct gp_err err = {0};
	struct gp_link_spec s = *spec;
	s.listen = "127.0.0.1:0";
	s.connect_timeout_s = spec->connect_timeout_s > 0 ? spec->connect_timeout_s : 5;
	assert_non_null(t);
	assert_int_equal(uv_loop_init(&t->loop), 0);
	if (gp_link_relay_start(&t->relay, &t->loop, &s, &err) != GP_OK)
		fail_msg("%s", err.text);
	snprintf(t->address, sizeof t->address, "127.0.0.1:%u", gp_link_relay_port(&t->relay));
	uv_async_init(&t->loop, &t->stop, link_thread_on_stop);
	uv_prepare_init(&t->loop, &t->prepare);
	uv_prepare_start(&t->prepare, link_thread_on_prepare);
	t->stop.data = t->prepare.data = t;
	assert_int_equal(pthread_create(&t->thread, NULL, link_thread_main, t), 0);
	return t;
}

/* Ends the relay, checks that nothing is left of it, and gives its counters. */
static inline struct gp_link_counts link_thread_stop(struct link_thread *t)
{
	uv_async_send(&t->stop);
	pthread_join(t->thread, NULL);
	assert_null(t->relay.tunnels);
	assert_int_equal(uv_loop_close(&t->loop), 0);
	const struct gp_link_counts counts = t->relay.counts;
	gp_free(t);
	return counts;
}

#endif
