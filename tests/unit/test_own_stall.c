/* SPDX-License-Identifier: Apache-2.0
 *
 * An end that stood still itself (a stopped process, a machine that is
 * suspended or has too much to do) does not blame its peer for that time: what
 * the peer sent meanwhile is read after the timers. Peers that die are
 * test_dead_peer.c.
 */
#include "channel_rig.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/unit/raw_peer.h"
#include "tests/unit/server_thread.h"

static const struct gp_channel_options hasty = {
	.heartbeat_ms = 20,
	.idle_timeout_ms = 200,
	.write_timeout_ms = 200,
	.preface_timeout_ms = 200,
};

struct pair {
	uv_loop_t loop;
	struct rig_end a, b;
};

static void pair_open(struct pair *p)
{
	struct gp_conn *a, *b;
	memset(p, 0, sizeof *p);
	uv_loop_init(&p->loop);
	rig_join(&p->loop, 0, &a, &b);
	rig_open(&p->loop, &p->a, a, &hasty);
	rig_open(&p->loop, &p->b, b, &hasty);
}

static void pair_close(struct pair *p)
{
	rig_close_and_wait(&p->loop, &p->a);
	rig_close_and_wait(&p->loop, &p->b);
	rig_finish_loop(&p->loop);
}

static void a_channel_whose_loop_stood_still_blames_nobody(void **state)
{
	(void)state;
	struct pair p;
	pair_open(&p);
	for (int i = 0; i < 6; i++) { /* at once, before the preface, and then in turns with heartbeats */
		usleep(300000);
		for (int n = 0; n < 10; n++)
			uv_run(&p.loop, UV_RUN_ONCE);
		if (p.a.ended + p.b.ended > 0)
			fail_msg("%s", p.a.ended ? p.a.err.text : p.b.err.text);
	}
	assert_int_equal(p.a.opened + p.b.opened, 2);
	pair_close(&p);
}

static void a_last_word_leaves_after_the_loop_stood_still(void **state)
{
	(void)state;
	struct pair p;
	struct gp_err err;
	pair_open(&p);
	rig_run_until(&p.loop, &p.a.opened, 1);
	assert_int_equal(gp_channel_send_control(p.a.ch, (struct gp_span){(const uint8_t *)"bye", 3}, &err), GP_OK);
	rig_close(&p.a, true);
	usleep(1200000); /* longer than it may take */
	rig_run_until(&p.loop, &p.b.ended, 1);
	assert_int_equal(p.b.controls, 1);
	assert_int_equal(p.b.status, GP_OK);
	pair_close(&p);
}

/* Holds a server's loop still until the gate opens. */
struct stall {
	uv_async_t async;
	atomic_bool begun, gate;
};

static void hold_still(uv_async_t *async)
{
	struct stall *s = async->data;
	atomic_store(&s->begun, true);
	while (!atomic_load(&s->gate))
		usleep(1000);
	uv_close((uv_handle_t *)async, NULL);
}

static int connect_to(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	const struct timeval patience = {.tv_sec = 20};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	return fd;
}

static void a_server_that_stood_still_takes_the_hello_that_came_meanwhile(void **state)
{
	(void)state;
	static uint8_t room[1 << 16];
	struct stall stall = {.async = {.data = &stall}};
	struct gp_server_settings set = server_thread_settings();
	set.handshake_timeout_s = 1;
	struct server_thread *server = server_thread_prepare(&set);
	assert_int_equal(uv_async_init(&server->loop, &stall.async, hold_still), 0);
	server_thread_run(server);
	struct raw_peer c = {.fd = connect_to(server->port), .body = room, .body_cap = sizeof room};
	put_preface(&c);
	uv_async_send(&stall.async);
	while (!atomic_load(&stall.begun))
		usleep(1000);
	put_hello(&c, GP_PROTO_VERSION);
	usleep(1500000);
	atomic_store(&stall.gate, true);
	Gpsplit__Control *m = get_control(&c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_WELCOME)
		fail_msg("got %s '%s'", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "");
	gpsplit__control__free_unpacked(m, NULL);
	close(c.fd);
	server_thread_stop(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_channel_whose_loop_stood_still_blames_nobody),
		cmocka_unit_test(a_last_word_leaves_after_the_loop_stood_still),
		cmocka_unit_test(a_server_that_stood_still_takes_the_hello_that_came_meanwhile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
