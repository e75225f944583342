/* SPDX-License-Identifier: Apache-2.0
 *
 * The channel over TCP on loopback: the same rules with a kernel in between,
 * its figures, and that a steady state allocates nothing.
 */
#include "channel_rig.h"

#include <sys/socket.h>

#include "common/net/conn_tcp.h"
#include "tests/unit/tcp_counts.h"
#include "common/base/fault.h"

struct link {
	uv_loop_t loop;
	struct gp_listener *listener;
	struct rig_end server, client;
	struct gp_conn *server_conn, *client_conn;
	int accepted, connected;
};

static void on_accepted(void *arg, struct gp_conn *c)
{
	struct link *l = arg;
	l->server_conn = c;
	l->accepted++;
}

static void on_connected(void *arg, struct gp_conn *c, const struct gp_err *err)
{
	struct link *l = arg;
	assert_non_null(c);
	assert_null(err);
	l->client_conn = c;
	l->connected++;
}

static void link_connect(struct link *l)
{
	struct gp_err err;
	memset(l, 0, sizeof *l);
	uv_loop_init(&l->loop);
	assert_int_equal(gp_tcp_listen(&l->loop, "127.0.0.1", 0, 8, on_accepted, l, &l->listener, &err), GP_OK);
	const uint16_t port = gp_listener_port(l->listener);
	assert_int_equal(gp_tcp_connect(&l->loop, "127.0.0.1", port, 5000, on_connected, l, NULL, &err), GP_OK);
	rig_run_until(&l->loop, &l->accepted, 1);
	rig_run_until(&l->loop, &l->connected, 1);
}

static void link_open(struct link *l, const struct gp_channel_options *o)
{
	link_connect(l);
	rig_open(&l->loop, &l->server, l->server_conn, o);
	rig_open(&l->loop, &l->client, l->client_conn, o);
	rig_run_until(&l->loop, &l->server.opened, 1);
	rig_run_until(&l->loop, &l->client.opened, 1);
}

static void link_close(struct link *l)
{
	gp_listener_close(l->listener);
	rig_close_and_wait(&l->loop, &l->client);
	rig_close_and_wait(&l->loop, &l->server);
	rig_finish_loop(&l->loop);
}

static void a_large_frame_crosses_tcp_intact(void **state)
{
	(void)state;
	struct link l;
	link_open(&l, NULL);
	struct gp_frame *f = rig_frame_new(GP_FRAME_ACT_UP, 13 << 20);
	gp_channel_send_frame(l.client.ch, f);
	rig_run_until(&l.loop, &l.server.frames, 1);
	rig_run_until(&l.loop, &l.client.sent, 1);
	assert_int_equal(l.server.ended, 0);
	link_close(&l);
	rig_frame_free(f);
}

static _Atomic uint64_t uv_allocations;

static void *counted_malloc(size_t n)
{
	uv_allocations++;
	return malloc(n);
}

static void *counted_realloc(void *p, size_t n)
{
	uv_allocations++;
	return realloc(p, n);
}

static void *counted_calloc(size_t count, size_t n)
{
	uv_allocations++;
	return calloc(count, n);
}

/* A receiver that reuses one buffer per type, as a session's pool does. */
struct pool_end {
	struct gp_channel *ch;
	struct gp_frame frame[GP_FRAME_TYPE_COUNT];
	int frames, controls, sent, ended, closed;
};

static void pool_opened(void *arg)
{
	(void)arg;
}

static enum gp_status pool_control(void *arg, struct gp_span msg, struct gp_err *err)
{
	(void)msg;
	(void)err;
	((struct pool_end *)arg)->controls++;
	return GP_OK;
}

static enum gp_status pool_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out, struct gp_err *err)
{
	struct pool_end *e = arg;
	(void)err;
	*out = &e->frame[head->type];
	return GP_OK;
}

static enum gp_status pool_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	((struct pool_end *)arg)->frames++;
	return gp_frame_verify(f, err);
}

static void pool_sent(void *arg, struct gp_frame *f)
{
	(void)f;
	((struct pool_end *)arg)->sent++;
}

static void pool_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	(void)status;
	(void)err;
	((struct pool_end *)arg)->ended++;
}

static void pool_closed(void *arg)
{
	((struct pool_end *)arg)->closed++;
}

static void pool_open(uv_loop_t *loop, struct pool_end *e, struct gp_conn *c)
{
	static const struct gp_channel_cbs cbs = {
		.opened = pool_opened,
		.control = pool_control,
		.frame_begin = pool_begin,
		.frame = pool_frame,
		.sent = pool_sent,
		.ended = pool_ended,
	};
	struct gp_err err;
	memset(e, 0, sizeof *e);
	for (int t = 0; t < GP_FRAME_TYPE_COUNT; t++)
		e->frame[t] = (struct gp_frame){.payload = malloc(1 << 20), .cap = 1 << 20};
	assert_int_equal(gp_channel_new(loop, c, NULL, &cbs, e, &e->ch, &err), GP_OK);
}

static void pool_close(uv_loop_t *loop, struct pool_end *e)
{
	gp_channel_close(e->ch, false, pool_closed, e);
	rig_run_until(loop, &e->closed, 1);
	for (int t = 0; t < GP_FRAME_TYPE_COUNT; t++)
		free(e->frame[t].payload);
}

/* One step's traffic: two frames up, two down, a control message each way. */
static void play_step(uv_loop_t *loop, struct pool_end *client, struct pool_end *server, struct gp_frame *f[4],
		      int step)
{
	static const uint8_t commit[24];
	struct gp_err err;
	for (int i = 0; i < 4; i++)
		gp_channel_send_frame(i % 2 ? server->ch : client->ch, f[i]);
	assert_int_equal(gp_channel_send_control(client->ch, (struct gp_span){commit, sizeof commit}, &err), GP_OK);
	assert_int_equal(gp_channel_send_control(server->ch, (struct gp_span){commit, sizeof commit}, &err), GP_OK);
	rig_run_until(loop, &server->frames, 2 * step);
	rig_run_until(loop, &client->frames, 2 * step);
	rig_run_until(loop, &server->controls, step);
	rig_run_until(loop, &client->controls, step);
	rig_run_until(loop, &server->sent, 2 * step);
	rig_run_until(loop, &client->sent, 2 * step);
	assert_int_equal(client->ended + server->ended, 0);
}

/* Without TCP_NOTSENT_LOWAT the kernel takes megabytes, and an urgent frame would wait behind them. */
static void the_kernel_holds_little_that_is_unsent_and_an_urgent_frame_overtakes_the_rest(void **state)
{
	(void)state;
	struct link l;
	struct gp_tcp_figures k;
	const uint64_t most = 4 * GP_SEGMENT_BYTES_DEFAULT;
	struct gp_frame *bulk = rig_frame_new(GP_FRAME_ACT_UP, 24 << 20);
	struct gp_frame *urgent = rig_frame_new(GP_FRAME_GRAD_UP, 1000);
	link_open(&l, NULL);
	gp_channel_pause(l.server.ch, true);
	gp_channel_send_frame(l.client.ch, bulk);
	uint64_t before;
	do { /* until the receiver's window is full */
		before = bulk->at;
		for (int i = 0; i < 20; i++) {
			uv_run(&l.loop, UV_RUN_NOWAIT);
			uv_sleep(5);
		}
	} while (bulk->at != before);
	assert_true(bulk->at < bulk->head.payload_len);
	gp_channel_figures(l.client.ch, &k);
	assert_true(k.notsent_bytes <= most);
	const uint64_t committed = bulk->at;
	gp_channel_send_frame(l.client.ch, urgent);
	gp_channel_pause(l.server.ch, false);
	rig_run_until(&l.loop, &l.server.frames, 1);
	assert_int_equal(l.server.events[0], GP_FRAME_GRAD_UP);
	assert_true(l.server.bulk_at_urgent <= committed);
	rig_run_until(&l.loop, &l.client.sent, 2);
	link_close(&l);
	rig_frame_free(bulk);
	rig_frame_free(urgent);
}

static void a_steady_state_allocates_nothing_neither_here_nor_in_libuv(void **state)
{
	(void)state;
	struct link l;
	struct pool_end client, server;
	struct gp_frame *f[4];
	const enum gp_frame_type types[4] = {GP_FRAME_ACT_UP, GP_FRAME_ACT_DOWN, GP_FRAME_GRAD_UP, GP_FRAME_GRAD_DOWN};
	for (int i = 0; i < 4; i++)
		f[i] = rig_frame_new(types[i], (1 << 20) - (size_t)i * 300000);
	link_connect(&l);
	pool_open(&l.loop, &server, l.server_conn);
	pool_open(&l.loop, &client, l.client_conn);
	uint64_t ours = 0, libuvs = 0;
	for (int step = 1; step <= 30; step++) {
		play_step(&l.loop, &client, &server, f, step);
		if (step == 10) {
			ours = gp_mem_calls();
			libuvs = uv_allocations;
		}
	}
	assert_true(uv_allocations > 0); /* the counter counts */
	assert_int_equal(gp_mem_calls(), ours);
	assert_int_equal(uv_allocations, libuvs);
	pool_close(&l.loop, &client);
	pool_close(&l.loop, &server);
	gp_listener_close(l.listener);
	rig_finish_loop(&l.loop);
	for (int i = 0; i < 4; i++)
		rig_frame_free(f[i]);
}

static void our_bytes_are_the_kernels_bytes(void **state)
{
	(void)state;
	struct link l;
	struct gp_tcp_figures k;
	struct gp_err err;
	double up, down;
	link_open(&l, NULL);
	gp_channel_figures(l.client.ch, &k);
	assert_int_equal(k.valid, kernel_counts_bytes());
	if (!k.valid)
		skip();
	struct gp_frame *f = rig_frame_new(GP_FRAME_ACT_UP, 2000000);
	struct gp_frame *g = rig_frame_new(GP_FRAME_GRAD_DOWN, 700000);
	gp_channel_send_frame(l.client.ch, f);
	gp_channel_send_frame(l.server.ch, g);
	assert_int_equal(gp_channel_send_control(l.client.ch, (struct gp_span){(const uint8_t *)"abc", 3}, &err),
			 GP_OK);
	rig_run_until(&l.loop, &l.server.frames, 1);
	rig_run_until(&l.loop, &l.client.frames, 1);
	rig_run_until(&l.loop, &l.client.sent, 1);
	const struct gp_account *a = gp_channel_account(l.client.ch);
	do { /* the last acknowledgement may still be under way */
		uv_run(&l.loop, UV_RUN_NOWAIT);
		gp_channel_figures(l.client.ch, &k);
	} while (k.bytes_acked < a->sent.wire_bytes);
	assert_true(k.bytes_acked - a->sent.wire_bytes <= 1); /* the SYN counts as one */
	assert_true(k.bytes_received - a->received.wire_bytes <= 1);
	assert_int_equal(rig_sum(&a->sent), l.client_conn->bytes_written);
	assert_int_equal(rig_sum(&a->received), l.client_conn->bytes_read);
	gp_account_kernel_diff(a, &k, &up, &down);
	assert_true(up >= 0 && up < 0.0001 && down >= 0 && down < 0.0001);
	assert_true(k.rtt_us > 0);
	link_close(&l);
	rig_frame_free(f);
	rig_frame_free(g);
}

static void the_last_word_reaches_a_peer_that_is_still_sending(void **state)
{
	(void)state;
	struct link l;
	struct gp_err err;
	link_open(&l, NULL);
	struct gp_frame *f[8];
	for (int i = 0; i < 8; i++) {
		f[i] = rig_frame_new(GP_FRAME_ACT_UP, 4 << 20);
		gp_channel_send_frame(l.client.ch, f[i]);
	}
	l.server.fail_begin = true;
	rig_run_until(&l.loop, &l.server.ended, 1);
	assert_int_equal(gp_channel_send_control(l.server.ch, (struct gp_span){(const uint8_t *)"no", 2}, &err), GP_OK);
	rig_close(&l.server, true);
	rig_run_until(&l.loop, &l.client.controls, 1);
	assert_memory_equal(l.client.control, "no", 2);
	link_close(&l);
	assert_int_equal(l.client.sent, 8);
	for (int i = 0; i < 8; i++)
		rig_frame_free(f[i]);
}

static void a_peer_that_resets_the_connection_is_named(void **state)
{
	(void)state;
	struct link l;
	uv_os_fd_t fd;
	link_open(&l, NULL);
	const struct linger abort_it = {.l_onoff = 1};
	assert_int_equal(uv_fileno((uv_handle_t *)&((struct gp_tcp_conn *)l.client_conn)->tcp, &fd), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort_it, sizeof abort_it), 0);
	rig_close_and_wait(&l.loop, &l.client);
	rig_run_until(&l.loop, &l.server.ended, 1);
	assert_int_equal(l.server.status, GP_PEER);
	assert_non_null(strstr(l.server.err.text, "127.0.0.1:"));
	assert_non_null(strstr(l.server.err.text, "closed the connection (connection reset by peer)"));
	link_close(&l);
}

static void a_send_that_fails_at_any_point_ends_the_channel_and_returns_the_frames(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	for (uint64_t nth = 1; nth <= 12; nth++) {
		struct link l;
		struct gp_frame *f[2];
		link_open(&l, NULL);
		gp_fault_arm(GP_FAULT_SEND, nth);
		for (int i = 0; i < 2; i++) {
			f[i] = rig_frame_new(GP_FRAME_ACT_UP, 1 << 20);
			gp_channel_send_frame(l.client.ch, f[i]);
		}
		rig_run_until(&l.loop, &l.client.ended, 1);
		gp_fault_arm(GP_FAULT_SEND, 0);
		rig_run_until(&l.loop, &l.server.ended, 1);
		link_close(&l);
		assert_int_equal(l.client.sent, 2);
		for (int i = 0; i < 2; i++)
			rig_frame_free(f[i]);
	}
}

/* The other end of a link on its own thread and loop: what ThreadSanitizer looks at. */
struct far_end {
	uv_thread_t thread;
	uint16_t port;
	struct pool_end end;
	uv_loop_t loop;
	struct gp_conn *conn;
	int connected, frames;
};

static void far_connected(void *arg, struct gp_conn *c, const struct gp_err *err)
{
	struct far_end *far = arg;
	(void)err;
	far->conn = c;
	far->connected++;
}

static void far_main(void *arg)
{
	struct far_end *far = arg;
	struct gp_err err;
	struct gp_frame *f = rig_frame_new(GP_FRAME_ACT_UP, 1 << 20);
	uv_loop_init(&far->loop);
	gp_tcp_connect(&far->loop, "127.0.0.1", far->port, 5000, far_connected, far, NULL, &err);
	rig_run_until(&far->loop, &far->connected, 1);
	pool_open(&far->loop, &far->end, far->conn);
	for (int i = 1; i <= far->frames; i++) {
		gp_channel_send_frame(far->end.ch, f);
		rig_run_until(&far->loop, &far->end.sent, i);
	}
	rig_run_until(&far->loop, &far->end.frames, far->frames);
	pool_close(&far->loop, &far->end);
	rig_finish_loop(&far->loop);
	rig_frame_free(f);
}

static void two_threads_with_a_loop_each_exchange_frames(void **state)
{
	(void)state;
	struct link l = {0};
	struct gp_err err;
	struct far_end far = {.frames = 10};
	struct gp_frame *f = rig_frame_new(GP_FRAME_GRAD_DOWN, 1 << 20);
	uv_loop_init(&l.loop);
	assert_int_equal(gp_tcp_listen(&l.loop, "127.0.0.1", 0, 8, on_accepted, &l, &l.listener, &err), GP_OK);
	far.port = gp_listener_port(l.listener);
	uv_thread_create(&far.thread, far_main, &far);
	rig_run_until(&l.loop, &l.accepted, 1);
	rig_open(&l.loop, &l.server, l.server_conn, NULL);
	for (int i = 1; i <= far.frames; i++) {
		gp_channel_send_frame(l.server.ch, f);
		rig_run_until(&l.loop, &l.server.sent, i);
	}
	rig_run_until(&l.loop, &l.server.frames, far.frames);
	rig_run_until(&l.loop, &l.server.ended, 1);
	assert_int_equal(l.server.status, GP_OK);
	uv_thread_join(&far.thread);
	link_close(&l);
	rig_frame_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_large_frame_crosses_tcp_intact),
		cmocka_unit_test(the_kernel_holds_little_that_is_unsent_and_an_urgent_frame_overtakes_the_rest),
		cmocka_unit_test(a_steady_state_allocates_nothing_neither_here_nor_in_libuv),
		cmocka_unit_test(our_bytes_are_the_kernels_bytes),
		cmocka_unit_test(the_last_word_reaches_a_peer_that_is_still_sending),
		cmocka_unit_test(a_peer_that_resets_the_connection_is_named),
		cmocka_unit_test(a_send_that_fails_at_any_point_ends_the_channel_and_returns_the_frames),
		cmocka_unit_test(two_threads_with_a_loop_each_exchange_frames),
	};
	uv_replace_allocator(counted_malloc, counted_realloc, counted_calloc,
			     free); /* before any other call of libuv */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
