/* SPDX-License-Identifier: Apache-2.0
 *
 * The channel over TCP on loopback: the same rules with a kernel in between,
 * its figures, and that a steady state allocates nothing.
 */
#include "channel_rig.h"

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
	assert_int_equal(gp_tcp_connect(&l->loop, "127.0.0.1", port, 5000, on_connected, l, &err), GP_OK);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_large_frame_crosses_tcp_intact),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
