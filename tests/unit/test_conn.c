/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections: TCP on loopback, listening, connecting and their errors, and
 * the pair in memory that other tests stand on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/wire/account.h"
#include "common/net/conn.h"
#include "common/base/fault.h"

#define DEADLINE_NS 600000000000ull /* a test that gets here has failed */

struct side {
	struct gp_conn *c;
	struct gp_conn_write w[3];
	int opened, failed, written, canceled, ended, closed;
	enum gp_status status;
	char why[200];
	struct gp_err err;
	uint8_t in[4 << 20];
	size_t in_len, largest;
};

struct rig {
	uv_loop_t loop;
	struct gp_listener *listener;
	struct side a, b; /* a connects or is first, b accepts or is second */
};

static void run_until(struct rig *r, const int *counter, int value)
{
	const uint64_t begin = gp_now_ns();
	while (*counter < value) {
		uv_run(&r->loop, UV_RUN_ONCE);
		if (gp_now_ns() - begin > DEADLINE_NS)
			fail_msg("nothing happened for ten minutes");
	}
}

static void on_read(void *arg, const uint8_t *data, size_t len)
{
	struct side *s = arg;
	assert_true(s->in_len + len <= sizeof s->in);
	memcpy(s->in + s->in_len, data, len);
	s->in_len += len;
	if (len > s->largest)
		s->largest = len;
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

static void on_closed(void *arg)
{
	struct side *s = arg;
	s->closed++;
	s->c = NULL;
}

static void use(struct side *s, struct gp_conn *c)
{
	s->c = c;
	c->cbs = (struct gp_conn_cbs){.read = on_read, .ended = on_ended};
	c->arg = s;
	c->ops->read_start(c);
	s->opened++;
}

static void on_accepted(void *arg, struct gp_conn *c)
{
	use(&((struct rig *)arg)->b, c);
}

static void on_connected(void *arg, struct gp_conn *c, const struct gp_err *err)
{
	struct side *s = &((struct rig *)arg)->a;
	if (c) {
		assert_null(err);
		use(s, c);
		return;
	}
	s->failed++;
	s->err = *err;
}

static struct rig *rig_new(void)
{
	struct rig *r = calloc(1, sizeof *r);
	uv_loop_init(&r->loop);
	return r;
}

static struct rig *rig_tcp(const char *addr)
{
	struct rig *r = rig_new();
	struct gp_err err;
	assert_int_equal(gp_tcp_listen(&r->loop, addr, 0, 8, on_accepted, r, &r->listener, &err), GP_OK);
	const uint16_t port = gp_listener_port(r->listener);
	assert_true(port != 0);
	assert_int_equal(gp_tcp_connect(&r->loop, addr, port, 5000, on_connected, r, NULL, &err), GP_OK);
	run_until(r, &r->a.opened, 1);
	run_until(r, &r->b.opened, 1);
	return r;
}

static struct rig *rig_mem(size_t chunk)
{
	struct rig *r = rig_new();
	struct gp_conn *a, *b;
	struct gp_err err;
	assert_int_equal(gp_mem_pair(&r->loop, chunk, &a, &b, &err), GP_OK);
	use(&r->a, a);
	use(&r->b, b);
	return r;
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
	if (r->listener)
		gp_listener_close(r->listener);
	close_side(r, &r->a);
	close_side(r, &r->b);
	uv_run(&r->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&r->loop), 0);
	free(r);
}

static void write_bytes(struct side *s, int slot, const char *x, const char *y, const char *z)
{
	const uv_buf_t bufs[3] = {uv_buf_init((char *)x, (unsigned)strlen(x)),
				  uv_buf_init((char *)y, (unsigned)strlen(y)),
				  uv_buf_init((char *)z, (unsigned)strlen(z))};
	s->w[slot].cb = on_written;
	s->w[slot].arg = s;
	s->c->ops->write(s->c, &s->w[slot], bufs, 3);
}

static void check_bytes_cross_in_order(struct rig *r)
{
	write_bytes(&r->a, 0, "one ", "two ", "three ");
	write_bytes(&r->a, 1, "four ", "", "five");
	assert_int_equal(r->a.written, 0); /* not inside the call */
	run_until(r, &r->a.written, 2);
	while (r->b.in_len < 23)
		uv_run(&r->loop, UV_RUN_ONCE);
	assert_memory_equal(r->b.in, "one two three four five", 23);
	assert_int_equal(r->a.c->bytes_written, 23);
	assert_int_equal(r->b.c->bytes_read, 23);
	assert_int_equal(r->a.c->ops->unsent(r->a.c), 0);
}

static void tcp_bytes_cross_in_order(void **state)
{
	(void)state;
	struct rig *r = rig_tcp("127.0.0.1");
	check_bytes_cross_in_order(r);
	assert_memory_equal(r->a.c->peer, "127.0.0.1:", 10);
	rig_free(r);
}

static void tcp_over_ipv6_names_its_peer_in_brackets(void **state)
{
	(void)state;
	struct rig *probe = rig_new();
	struct gp_listener *l;
	struct gp_err err;
	if (gp_tcp_listen(&probe->loop, "::1", 0, 8, on_accepted, probe, &l, &err) != GP_OK) {
		rig_free(probe);
		skip(); /* no IPv6 here */
	}
	gp_listener_close(l);
	rig_free(probe);
	struct rig *r = rig_tcp("::1");
	check_bytes_cross_in_order(r);
	assert_memory_equal(r->a.c->peer, "[::1]:", 6);
	rig_free(r);
}

static void memory_bytes_cross_in_order_in_reads_of_the_chosen_size(void **state)
{
	(void)state;
	for (size_t chunk = 0; chunk < 4; chunk++) {
		struct rig *r = rig_mem(chunk);
		check_bytes_cross_in_order(r);
		assert_true(chunk == 0 || r->b.largest <= chunk);
		rig_free(r);
	}
}

static void check_orderly_end(struct rig *r)
{
	write_bytes(&r->a, 0, "last", " ", "words");
	r->a.c->ops->shutdown(r->a.c);
	run_until(r, &r->b.ended, 1);
	assert_int_equal(r->b.status, GP_OK);
	assert_non_null(strstr(r->b.why, "closed the connection"));
	assert_int_equal(r->b.in_len, 10);
	write_bytes(&r->b, 0, "still", " ", "here"); /* the other half is open */
	run_until(r, &r->b.written, 1);
	while (r->a.in_len < 10)
		uv_run(&r->loop, UV_RUN_ONCE);
	assert_int_equal(r->a.ended, 0);
	rig_free(r);
}

static void shutdown_ends_one_direction_behind_the_bytes_queued(void **state)
{
	(void)state;
	check_orderly_end(rig_tcp("127.0.0.1"));
	check_orderly_end(rig_mem(2));
}

static void check_close_cancels(struct rig *r, size_t bytes)
{
	static char block[8 << 20];
	const uv_buf_t buf = uv_buf_init(block, (unsigned)bytes);
	r->b.c->ops->read_stop(r->b.c);
	for (int i = 0; i < 3; i++) {
		r->a.w[i].cb = on_written;
		r->a.w[i].arg = &r->a;
		r->a.c->ops->write(r->a.c, &r->a.w[i], &buf, 1);
	}
	assert_true(r->a.c->ops->unsent(r->a.c) > 0);
	close_side(r, &r->a);
	assert_int_equal(r->a.written + r->a.canceled, 3);
	assert_true(r->a.canceled > 0);
	assert_int_equal(r->a.ended, 0);
	rig_free(r);
}

static void close_runs_the_callback_of_every_write(void **state)
{
	(void)state;
	check_close_cancels(rig_tcp("127.0.0.1"), 8 << 20);
	check_close_cancels(rig_mem(0), 100);
}

static void a_stopped_reader_gets_nothing_until_it_starts_again(void **state)
{
	(void)state;
	struct rig *r = rig_tcp("127.0.0.1");
	r->b.c->ops->read_stop(r->b.c);
	write_bytes(&r->a, 0, "a", "b", "c");
	run_until(r, &r->a.written, 1);
	for (int i = 0; i < 20; i++)
		uv_run(&r->loop, UV_RUN_NOWAIT);
	assert_int_equal(r->b.in_len, 0);
	r->b.c->ops->read_start(r->b.c);
	while (r->b.in_len < 3)
		uv_run(&r->loop, UV_RUN_ONCE);
	rig_free(r);
}

static void a_cut_memory_link_ends_both_sides_after_the_bytes_before_the_cut(void **state)
{
	(void)state;
	struct rig *r = rig_mem(0);
	gp_mem_cut_after(r->a.c, 7);
	write_bytes(&r->a, 0, "0123", "4567", "89");
	run_until(r, &r->a.ended, 1);
	run_until(r, &r->b.ended, 1);
	assert_int_equal(r->b.in_len, 7);
	assert_int_equal(r->a.status, GP_PEER);
	assert_int_equal(r->b.status, GP_PEER);
	rig_free(r);
}

static void connecting_to_a_closed_port_says_so_and_what_to_check(void **state)
{
	(void)state;
	struct rig *r = rig_new();
	struct gp_err err;
	char expected[128];
	struct gp_listener *l;
	assert_int_equal(gp_tcp_listen(&r->loop, "127.0.0.1", 0, 8, on_accepted, r, &l, &err), GP_OK);
	const uint16_t port = gp_listener_port(l);
	gp_listener_close(l);
	uv_run(&r->loop, UV_RUN_DEFAULT);
	assert_int_equal(gp_tcp_connect(&r->loop, "localhost", port, 5000, on_connected, r, NULL, &err), GP_OK);
	run_until(r, &r->a.failed, 1);
	assert_int_equal(r->a.err.code, GP_PEER);
	snprintf(expected, sizeof expected,
		 "cannot connect to localhost:%u: connection refused (is gpserverd running there?)", port);
	assert_string_equal(r->a.err.text, expected);
	rig_free(r);
}

static void an_unknown_host_is_named(void **state)
{
	(void)state;
	struct rig *r = rig_new();
	struct gp_err err;
	assert_int_equal(gp_tcp_connect(&r->loop, "no-such-host.invalid", 4040, 20000, on_connected, r, NULL, &err),
			 GP_OK);
	run_until(r, &r->a.failed, 1);
	assert_true(r->a.err.code == GP_PEER || r->a.err.code == GP_TIMEOUT); /* a resolver may be slow to say no */
	assert_non_null(strstr(r->a.err.text, "no-such-host.invalid:4040"));
	rig_free(r);
}

/* A listening socket whose backlog is full: further connects get no answer. */
struct full_house {
	int listening, fds[8];
	uint16_t port;
};

static void fill(struct full_house *h)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof sa;
	h->listening = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(h->listening, (struct sockaddr *)&sa, len), 0);
	assert_int_equal(listen(h->listening, 0), 0);
	assert_int_equal(getsockname(h->listening, (struct sockaddr *)&sa, &len), 0);
	h->port = ntohs(sa.sin_port);
	for (int i = 0; i < 8; i++) {
		h->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)!connect(h->fds[i], (struct sockaddr *)&sa, len);
	}
}

static void empty(struct full_house *h)
{
	for (int i = 0; i < 8; i++)
		close(h->fds[i]);
	close(h->listening);
}

static void a_host_that_does_not_answer_is_given_up_after_the_timeout(void **state)
{
	(void)state;
	struct rig *r = rig_new();
	struct full_house house;
	struct gp_err err;
	fill(&house);
	assert_int_equal(gp_tcp_connect(&r->loop, "127.0.0.1", house.port, 100, on_connected, r, NULL, &err), GP_OK);
	run_until(r, &r->a.failed, 1);
	assert_int_equal(r->a.err.code, GP_TIMEOUT);
	assert_non_null(strstr(r->a.err.text, "no answer within 0.1 s"));
	empty(&house);
	rig_free(r);
}

/* Whether it is still looking up the name or waits for the host. The loop then has nothing left. */
static void connecting_can_be_canceled(void **state)
{
	(void)state;
	struct full_house house;
	fill(&house);
	for (int turns = 0; turns < 2; turns++) {
		struct rig *r = rig_new();
		struct gp_connector *k;
		struct gp_err err;
		assert_int_equal(gp_tcp_connect(&r->loop, "127.0.0.1", house.port, 3600000, on_connected, r, &k, &err),
				 GP_OK);
		for (int i = 0; i < turns; i++)
			uv_run(&r->loop, UV_RUN_ONCE);
		gp_tcp_connect_cancel(k);
		assert_int_equal(r->a.failed, 1);
		assert_int_equal(r->a.err.code, GP_CANCELED);
		rig_free(r);
	}
	empty(&house);
}

static void an_address_in_use_is_said_clearly(void **state)
{
	(void)state;
	struct rig *r = rig_new();
	struct gp_listener *second;
	struct gp_err err;
	assert_int_equal(gp_tcp_listen(&r->loop, "127.0.0.1", 0, 8, on_accepted, r, &r->listener, &err), GP_OK);
	const uint16_t port = gp_listener_port(r->listener);
	assert_int_equal(gp_tcp_listen(&r->loop, "127.0.0.1", port, 8, on_accepted, r, &second, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "another program listens there already"));
	assert_int_equal(gp_tcp_listen(&r->loop, "203.0.113.7", 0, 8, on_accepted, r, &second, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "this host has no such address"));
	assert_int_equal(gp_tcp_listen(&r->loop, "not an address", 0, 8, on_accepted, r, &second, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "cannot listen on not an address"));
	rig_free(r);
}

/* Takes every descriptor below `limit`; returns how many. */
static int exhaust_descriptors(int *fds, int limit)
{
	int n = 0;
	while (n < limit && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		n++;
	return n;
}

static void accepting_pauses_while_there_are_no_descriptors_and_goes_on_after(void **state)
{
	(void)state;
	struct rig *r = rig_new();
	struct gp_err err;
	struct rlimit old, low;
	int fds[256];
	assert_int_equal(gp_tcp_listen(&r->loop, "127.0.0.1", 0, 8, on_accepted, r, &r->listener, &err), GP_OK);
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	sa.sin_port = htons(gp_listener_port(r->listener));
	const int client = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(client, (struct sockaddr *)&sa, sizeof sa), 0);
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = 200;
	setrlimit(RLIMIT_NOFILE, &low);
	const int taken = exhaust_descriptors(fds, 256);
	assert_true(taken > 0 && taken < 256);
	const uint64_t begin = gp_now_ns();
	int turns = 0;
	for (; gp_now_ns() - begin < 300 * 1000000ull; turns++)
		uv_run(&r->loop, UV_RUN_ONCE);
	assert_int_equal(r->b.opened, 0);
	assert_true(turns < 50); /* it waits, it does not spin */
	for (int i = 0; i < taken; i++)
		close(fds[i]);
	setrlimit(RLIMIT_NOFILE, &old);
	run_until(r, &r->b.opened, 1); /* the client waited in the backlog */
	close(client);
	rig_free(r);
}

static void running_out_of_memory_while_accepting_drops_that_client_only(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	for (uint64_t nth = 1; nth <= 2; nth++) {
		struct rig *r = rig_new();
		struct gp_err err;
		assert_int_equal(gp_tcp_listen(&r->loop, "127.0.0.1", 0, 8, on_accepted, r, &r->listener, &err), GP_OK);
		const uint16_t port = gp_listener_port(r->listener);
		struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		sa.sin_port = htons(port);
		const int client = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(connect(client, (struct sockaddr *)&sa, sizeof sa), 0);
		const struct timeval moment = {.tv_usec = 1000};
		setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
		const uint64_t begin = gp_now_ns();
		char byte;
		ssize_t n = -1;
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		while (n < 0 && gp_now_ns() - begin < DEADLINE_NS) { /* connected here may be before it is so there */
			uv_run(&r->loop, UV_RUN_NOWAIT);
			n = recv(client, &byte, 1, 0);
		}
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		assert_int_equal(n, 0); /* hung up */
		close(client);
		assert_int_equal(r->b.opened, 0);
		assert_int_equal(gp_tcp_connect(&r->loop, "127.0.0.1", port, 5000, on_connected, r, NULL, &err), GP_OK);
		run_until(r, &r->b.opened, 1);
		run_until(r, &r->a.opened, 1);
		rig_free(r);
	}
}

static void a_peer_that_hung_up_does_not_kill_the_process_by_a_signal(void **state)
{
	(void)state;
	struct rig *r = rig_tcp("127.0.0.1");
	close_side(r, &r->b);
	for (int i = 0; i < 3 && !r->a.ended; i++) { /* the first may still be taken, later ones meet EPIPE */
		write_bytes(&r->a, i, "into", " the ", "void");
		run_until(r, &r->a.written, 1);
		uv_run(&r->loop, UV_RUN_NOWAIT);
	}
	run_until(r, &r->a.ended, 1);
	assert_non_null(strstr(r->a.why, "closed the connection"));
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tcp_bytes_cross_in_order),
		cmocka_unit_test(tcp_over_ipv6_names_its_peer_in_brackets),
		cmocka_unit_test(memory_bytes_cross_in_order_in_reads_of_the_chosen_size),
		cmocka_unit_test(shutdown_ends_one_direction_behind_the_bytes_queued),
		cmocka_unit_test(close_runs_the_callback_of_every_write),
		cmocka_unit_test(a_stopped_reader_gets_nothing_until_it_starts_again),
		cmocka_unit_test(a_cut_memory_link_ends_both_sides_after_the_bytes_before_the_cut),
		cmocka_unit_test(connecting_to_a_closed_port_says_so_and_what_to_check),
		cmocka_unit_test(an_unknown_host_is_named),
		cmocka_unit_test(a_host_that_does_not_answer_is_given_up_after_the_timeout),
		cmocka_unit_test(connecting_can_be_canceled),
		cmocka_unit_test(an_address_in_use_is_said_clearly),
		cmocka_unit_test(accepting_pauses_while_there_are_no_descriptors_and_goes_on_after),
		cmocka_unit_test(running_out_of_memory_while_accepting_drops_that_client_only),
		cmocka_unit_test(a_peer_that_hung_up_does_not_kill_the_process_by_a_signal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
