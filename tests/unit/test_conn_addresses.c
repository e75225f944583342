/* SPDX-License-Identifier: Apache-2.0
 *
 * A name with several addresses (common/net/conn.h): one that refuses or never answers leaves time for those behind it, and the
 * caller is told which there are. What names stand for is this test's own affair: it takes the place of uv_getaddrinfo.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/net/conn.h"

#define PORTS_MAX 3

static uint16_t port[PORTS_MAX]; /* of 127.0.0.1: what each address of the name leads to */
static int ports;
static uv_getaddrinfo_cb answered;

int __real_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb, const char *node,
			  const char *service, const struct addrinfo *hints);
int __wrap_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb, const char *node,
			  const char *service, const struct addrinfo *hints);

/* The library frees what it is given as one list. */
static void answer(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *last = list;
	assert_int_equal(status, 0);
	for (int i = 1; i < ports; i++) {
		char service[8];
		snprintf(service, sizeof service, "%u", port[i]);
		assert_int_equal(getaddrinfo("127.0.0.1", service, &hints, &last->ai_next), 0);
		last = last->ai_next;
	}
	answered(req, status, list);
}

int __wrap_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb, const char *node,
			  const char *service, const struct addrinfo *hints)
{
	char first[8];
	if (strcmp(node, "name.example") != 0)
		return __real_uv_getaddrinfo(loop, req, cb, node, service, hints);
	answered = cb;
	snprintf(first, sizeof first, "%u", port[0]);
	return __real_uv_getaddrinfo(loop, req, answer, "127.0.0.1", first, hints);
}

/* A socket that listens on loopback; `full`: its queue is full, so that who connects gets no answer. */
struct host {
	int listening, fds[8];
	uint16_t port;
};

static void host_open(struct host *h, bool full)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof sa;
	h->listening = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(h->listening, (struct sockaddr *)&sa, len), 0);
	assert_int_equal(listen(h->listening, full ? 0 : 8), 0);
	assert_int_equal(getsockname(h->listening, (struct sockaddr *)&sa, &len), 0);
	h->port = ntohs(sa.sin_port);
	for (int i = 0; i < 8; i++) {
		h->fds[i] = full ? socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0) : -1;
		if (full)
			(void)!connect(h->fds[i], (struct sockaddr *)&sa, len);
	}
}

static void host_close(struct host *h)
{
	for (int i = 0; i < 8; i++)
		if (h->fds[i] >= 0)
			close(h->fds[i]);
	close(h->listening);
}

struct outcome {
	struct gp_connector *k;
	bool done, connected;
	enum gp_status status;
	char text[GP_ERR_TEXT];
	int addresses, at;
};

static void on_done(void *arg, struct gp_conn *c, const struct gp_err *err)
{
	struct outcome *o = arg;
	char address[PORTS_MAX][GP_TCP_NUMERIC];
	o->done = true;
	o->connected = c != NULL;
	o->addresses = gp_tcp_connect_addresses(o->k, address, PORTS_MAX, &o->at);
	for (int i = 0; i < o->addresses; i++)
		assert_string_equal(address[i], "127.0.0.1");
	if (c)
		c->ops->close(c, NULL, NULL);
	else
		snprintf(o->text, sizeof o->text, "%s", err->text);
	o->status = c ? GP_OK : err->code;
}

static struct outcome connect_within(uint64_t timeout_ms)
{
	struct outcome o = {.done = false};
	struct gp_err err;
	uv_loop_t loop;
	uv_loop_init(&loop);
	assert_int_equal(gp_tcp_connect(&loop, "name.example", 1, timeout_ms, on_done, &o, &o.k, &err), GP_OK);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_true(o.done);
	assert_int_equal(uv_loop_close(&loop), 0);
	return o;
}

static uint16_t nobodys_port(void)
{
	struct host h;
	host_open(&h, false);
	host_close(&h);
	return h.port;
}

static void one_that_refuses_is_followed_by_the_next(void **state)
{
	(void)state;
	struct host there;
	host_open(&there, false);
	port[0] = nobodys_port();
	port[1] = there.port;
	ports = 2;
	const struct outcome o = connect_within(60000);
	assert_true(o.connected);
	assert_int_equal(o.addresses, 2);
	assert_int_equal(o.at, 1);
	host_close(&there);
}

/* Both of the first two take their third of the time, and no more. */
static void those_that_never_answer_leave_time_for_the_next(void **state)
{
	(void)state;
	struct host full[2], there;
	host_open(&full[0], true);
	host_open(&full[1], true);
	host_open(&there, false);
	port[0] = full[0].port;
	port[1] = full[1].port;
	port[2] = there.port;
	ports = 3;
	const struct outcome o = connect_within(30000);
	assert_true(o.connected);
	assert_int_equal(o.at, 2);
	for (int i = 0; i < 2; i++)
		host_close(&full[i]);
	host_close(&there);
}

static void when_none_answers_all_of_the_time_has_passed(void **state)
{
	(void)state;
	struct host full[2];
	host_open(&full[0], true);
	host_open(&full[1], true);
	port[0] = full[0].port;
	port[1] = full[1].port;
	ports = 2;
	const struct outcome o = connect_within(400);
	assert_int_equal(o.status, GP_TIMEOUT);
	assert_non_null(strstr(o.text, "cannot connect to name.example:1: no answer within 0.4 s"));
	assert_int_equal(o.at, -1);
	for (int i = 0; i < 2; i++)
		host_close(&full[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_refuses_is_followed_by_the_next),
		cmocka_unit_test(those_that_never_answer_leave_time_for_the_next),
		cmocka_unit_test(when_none_answers_all_of_the_time_has_passed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
