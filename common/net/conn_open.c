/* SPDX-License-Identifier: Apache-2.0
 *
 * How TCP connections come to be: listening and accepting, resolving and
 * connecting. Moving bytes is conn_tcp.c. Test: tests/unit/test_conn.c
 */
#include "common/net/conn_tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"

#define ACCEPTS_PER_TURN 16
#define ACCEPT_PAUSE_MS  100

/*
 * The listening socket is ours, not a uv_tcp_t: when descriptors run out, libuv's accept loop either drops the pending
 * clients or turns without end; here accepting pauses and the clients wait in the backlog.
 */
struct gp_listener {
	uv_poll_t poll;
	uv_timer_t pause;
	int fd, open_handles;
	uint16_t port;
	uv_loop_t *loop;
	void (*accepted)(void *arg, struct gp_conn *c);
	void *arg;
};

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer)
{
	struct gp_listener *l = timer->data;
	uv_poll_start(&l->poll, UV_READABLE, on_readable);
}

static void pause_accepting(struct gp_listener *l, int os_error)
{
	gp_log(net, GP_LOG_DEBUG, "accepting pauses: %s", strerror(os_error));
	uv_poll_stop(&l->poll);
	uv_timer_start(&l->pause, on_pause_over, ACCEPT_PAUSE_MS, 0);
}

static void take_socket(struct gp_listener *l, int fd)
{
	struct gp_tcp_conn *c = gp_tcp_conn_new(l->loop);
	if (!c) {
		close(fd);
		pause_accepting(l, ENOMEM);
		return;
	}
	if (uv_tcp_open(&c->tcp, fd)) {
		close(fd);
		c->base.ops->close(&c->base, NULL, NULL);
		return;
	}
	gp_tcp_conn_ready(c);
	l->accepted(l->arg, &c->base);
}

static bool is_listening(const struct gp_listener *l)
{
	return uv_is_active((const uv_handle_t *)&l->poll);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct gp_listener *l = poll->data;
	(void)status;
	(void)events;
	for (int i = 0; i < ACCEPTS_PER_TURN && is_listening(l); i++) { /* the callback may close the listener */
		const int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			take_socket(l, fd);
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			return;
		else if (errno != EINTR && errno != ECONNABORTED)
			pause_accepting(l, errno);
	}
}

/* Numeric or by name, blocking: done once, at start. */
static enum gp_status resolve_local(uv_loop_t *loop, const char *addr, uint16_t port, struct sockaddr_storage *out,
				    socklen_t *len, struct gp_err *err)
{
	char service[8];
	snprintf(service, sizeof service, "%u", port);
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
	uv_getaddrinfo_t req;
	const int rc = uv_getaddrinfo(loop, &req, NULL, addr, service, &hints);
	if (rc)
		GP_FAIL(err, GP_INVALID, "cannot listen on %s: %s", addr, uv_strerror(rc));
	memcpy(out, req.addrinfo->ai_addr, req.addrinfo->ai_addrlen);
	*len = req.addrinfo->ai_addrlen;
	uv_freeaddrinfo(req.addrinfo);
	return GP_OK;
}

enum gp_status gp_addr_fail_listen(const char *addr, uint16_t port, int os_error, struct gp_err *err)
{
	char text[320];
	gp_addr_format(addr, port, text, sizeof text);
	switch (os_error) {
	case EADDRINUSE:
		GP_FAIL(err, GP_INVALID, "cannot listen on %s: another program listens there already", text);
	case EADDRNOTAVAIL:
		GP_FAIL(err, GP_INVALID, "cannot listen on %s: this host has no such address", text);
	case EACCES:
		GP_FAIL(err, GP_INVALID, "cannot listen on %s: not permitted (ports below 1024 need privileges)", text);
	default:
		GP_FAIL(err, GP_IO, "cannot listen on %s: %s", text, strerror(os_error));
	}
}

/* 0 or errno; *fd is set when there is a socket, also on failure. */
static int open_socket(const struct sockaddr_storage *addr, socklen_t len, int backlog, int *fd)
{
	const int on = 1;
	*fd = socket(addr->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return errno;
	if (setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
	    bind(*fd, (const struct sockaddr *)addr, len) || listen(*fd, backlog))
		return errno;
	return 0;
}

static uint16_t bound_port(int fd)
{
	struct sockaddr_storage addr = {0};
	socklen_t len = sizeof addr;
	if (getsockname(fd, (struct sockaddr *)&addr, &len))
		return 0;
	return ntohs(((const struct sockaddr_in *)&addr)->sin_port);
}

static enum gp_status listener_new(uv_loop_t *loop, int fd, struct gp_listener **out, struct gp_err *err)
{
	struct gp_listener *l;
	GP_TRY(gp_alloc_array((void **)&l, 1, sizeof *l, err));
	const int rc = uv_poll_init(loop, &l->poll, fd);
	if (rc) {
		gp_free(l);
		GP_FAIL(err, GP_IO, "cannot watch the listening socket: %s", uv_strerror(rc));
	}
	uv_timer_init(loop, &l->pause);
	l->poll.data = l;
	l->pause.data = l;
	l->open_handles = 2;
	l->loop = loop;
	l->fd = fd;
	l->port = bound_port(fd);
	*out = l;
	return GP_OK;
}

enum gp_status gp_tcp_listen_on(uv_loop_t *loop, int fd, void (*accepted)(void *arg, struct gp_conn *c), void *arg,
				struct gp_listener **out, struct gp_err *err)
{
	struct gp_listener *l = NULL;
	gp_tcp_ignore_sigpipe();
	GP_TRY(listener_new(loop, fd, &l, err));
	l->accepted = accepted;
	l->arg = arg;
	uv_poll_start(&l->poll, UV_READABLE, on_readable);
	*out = l;
	return GP_OK;
}

enum gp_status gp_tcp_listen(uv_loop_t *loop, const char *addr, uint16_t port, int backlog,
			     void (*accepted)(void *arg, struct gp_conn *c), void *arg, struct gp_listener **out,
			     struct gp_err *err)
{
	struct sockaddr_storage sa;
	socklen_t len = 0;
	int fd = -1;
	GP_TRY(resolve_local(loop, addr, port, &sa, &len, err));
	const int os_error = open_socket(&sa, len, backlog, &fd);
	const enum gp_status status = os_error ? gp_addr_fail_listen(addr, port, os_error, err)
					       : gp_tcp_listen_on(loop, fd, accepted, arg, out, err);
	if (status != GP_OK && fd >= 0)
		close(fd);
	return status;
}

uint16_t gp_listener_port(const struct gp_listener *l)
{
	return l->port;
}

void gp_listener_segment(const struct gp_listener *l, int bytes)
{
	setsockopt(l->fd, IPPROTO_TCP, TCP_MAXSEG, &bytes, sizeof bytes);
}

static void on_listener_closed(uv_handle_t *h)
{
	struct gp_listener *l = h->data;
	if (--l->open_handles == 0)
		gp_free(l);
}

void gp_listener_close(struct gp_listener *l)
{
	uv_close((uv_handle_t *)&l->poll, on_listener_closed);
	uv_close((uv_handle_t *)&l->pause, on_listener_closed);
	close(l->fd);
}

/* One gp_tcp_connect: resolve, then try one address after the other until the timer runs out. */
struct gp_connector {
	uv_loop_t *loop;
	uv_getaddrinfo_t resolve;
	uv_connect_t connect;
	uv_timer_t timer;
	struct addrinfo *list, *at;
	struct gp_tcp_conn *conn; /* the attempt under way */
	int pending;              /* requests and handles that still refer to this */
	bool finished, connected; /* `done` ran, and has a connection */
	bool slow;                /* the attempt under way has had its share of the time */
	uint64_t timeout_ms, end_ms; /* end_ms: by the loop's clock */
	int segment; /* bytes; 0: as the kernel has it */
	char where[320]; /* HOST:PORT */
	struct gp_err err;
	void (*done)(void *arg, struct gp_conn *c, const struct gp_err *err);
	void *arg;
};

static void release(struct gp_connector *k)
{
	if (--k->pending)
		return;
	if (k->list)
		uv_freeaddrinfo(k->list);
	gp_free(k);
}

static void on_timer_closed(uv_handle_t *h)
{
	release(h->data);
}

/* Drops the attempt under way, if any; its on_connect runs with UV_ECANCELED. */
static void drop_attempt(struct gp_connector *k)
{
	if (k->conn)
		k->conn->base.ops->close(&k->conn->base, NULL, NULL);
	k->conn = NULL;
}

static void finish(struct gp_connector *k, struct gp_conn *conn)
{
	k->finished = true;
	k->connected = conn != NULL;
	uv_close((uv_handle_t *)&k->timer, on_timer_closed);
	k->done(k->arg, conn, conn ? NULL : &k->err);
}

/* This host has no way to the address, as to ::1 without IPv6: that tells less than what another address answered. */
static bool cannot_be_tried(int uv_error)
{
	return uv_error == UV_EADDRNOTAVAIL || uv_error == UV_ENETUNREACH || uv_error == UV_EAFNOSUPPORT;
}

static void note_failure(struct gp_connector *k, int uv_error)
{
	if (k->err.code != GP_OK && cannot_be_tried(uv_error))
		return;
	const char *text = uv_strerror(uv_error);
	const char *hint = uv_error == UV_ECONNREFUSED ? " (is gpserverd running there?)" : "";
	gp_err_set(&k->err, GP_PEER, uv_error, __FILE__, __LINE__, "cannot connect to %s: %s%s", k->where, text, hint);
}

static void on_connect(uv_connect_t *req, int status);
static void on_connect_timeout(uv_timer_t *timer);

/* An address that never answers leaves as much time to each of those behind it. */
static void share_time(struct gp_connector *k)
{
	const uint64_t now = uv_now(k->loop), left = k->end_ms > now ? k->end_ms - now : 0;
	uint64_t addresses = 0;
	for (const struct addrinfo *a = k->at; a; a = a->ai_next)
		addresses++;
	k->slow = false;
	uv_timer_start(&k->timer, on_connect_timeout, left / addresses, 0);
}

/* A socket with the segment that is wanted. 0 or a libuv error. */
static int bound_segment(struct gp_connector *k)
{
	const int fd = socket(k->at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return uv_translate_sys_error(errno);
	setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &k->segment, sizeof k->segment);
	const int rc = uv_tcp_open(&k->conn->tcp, fd);
	if (rc)
		close(fd);
	return rc;
}

/* Begins an attempt at k->at. 0 or a libuv error. */
static int begin_attempt(struct gp_connector *k)
{
	share_time(k);
	k->conn = gp_tcp_conn_new(k->loop);
	if (!k->conn)
		return UV_ENOMEM;
	int rc = k->segment > 0 ? bound_segment(k) : 0;
	if (rc == 0)
		rc = uv_tcp_connect(&k->connect, &k->conn->tcp, k->at->ai_addr, on_connect);
	if (rc == 0)
		k->pending++;
	else
		drop_attempt(k);
	return rc;
}

static void try_addresses(struct gp_connector *k)
{
	for (; k->at; k->at = k->at->ai_next) {
		const int rc = begin_attempt(k);
		if (rc == 0)
			return;
		note_failure(k, rc);
	}
	finish(k, NULL);
}

static void on_connect(uv_connect_t *req, int status)
{
	struct gp_connector *k = req->data;
	if (k->finished)
		goto out;
	if (status == 0) {
		struct gp_tcp_conn *c = k->conn;
		k->conn = NULL;
		gp_tcp_conn_ready(c);
		finish(k, &c->base);
		goto out;
	}
	drop_attempt(k);
	note_failure(k, k->slow ? UV_ETIMEDOUT : status);
	k->at = k->at->ai_next;
	try_addresses(k);
out:
	release(k);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
	struct gp_connector *k = req->data;
	k->list = k->at = list;
	if (!k->finished && status) {
		gp_err_set(&k->err, GP_PEER, status, __FILE__, __LINE__, "cannot find the host of %s: %s", k->where,
			   uv_strerror(status));
		finish(k, NULL);
	} else if (!k->finished) {
		try_addresses(k);
	}
	release(k);
}

/* k->err says why. */
static void give_up(struct gp_connector *k)
{
	if (!k->list)
		uv_cancel((uv_req_t *)&k->resolve); /* fails while it runs: then it ends by itself */
	drop_attempt(k);
	finish(k, NULL);
}

static void on_connect_timeout(uv_timer_t *timer)
{
	struct gp_connector *k = timer->data;
	k->slow = k->conn && k->at->ai_next;
	if (k->slow) {
		drop_attempt(k); /* on_connect goes on with the next address */
		return;
	}
	gp_err_set(&k->err, GP_TIMEOUT, 0, __FILE__, __LINE__, "cannot connect to %s: no answer within %.3g s",
		   k->where, (double)k->timeout_ms * 1e-3);
	give_up(k);
}

void gp_tcp_connect_cancel(struct gp_connector *k)
{
	gp_err_set(&k->err, GP_CANCELED, 0, __FILE__, __LINE__, "connecting to %s was canceled", k->where);
	give_up(k);
}

void gp_tcp_connect_segment(struct gp_connector *k, int bytes)
{
	k->segment = bytes;
}

int gp_tcp_connect_addresses(const struct gp_connector *k, char out[][GP_TCP_NUMERIC], int most, int *at)
{
	int count = 0;
	*at = -1;
	for (const struct addrinfo *a = k ? k->list : NULL; a && count < most; a = a->ai_next) {
		if (getnameinfo(a->ai_addr, a->ai_addrlen, out[count], GP_TCP_NUMERIC, NULL, 0, NI_NUMERICHOST))
			continue;
		if (a == k->at && k->connected)
			*at = count;
		count++;
	}
	return count;
}

enum gp_status gp_tcp_connect(uv_loop_t *loop, const char *host, uint16_t port, uint64_t timeout_ms,
			      void (*done)(void *arg, struct gp_conn *c, const struct gp_err *err), void *arg,
			      struct gp_connector **out, struct gp_err *err)
{
	struct gp_connector *k;
	char service[8];
	gp_tcp_ignore_sigpipe();
	GP_TRY(gp_alloc_array((void **)&k, 1, sizeof *k, err));
	k->loop = loop;
	k->timeout_ms = timeout_ms;
	k->done = done;
	k->arg = arg;
	k->timer.data = k->resolve.data = k->connect.data = k;
	gp_addr_format(host, port, k->where, sizeof k->where);
	snprintf(service, sizeof service, "%u", port);
	uv_timer_init(loop, &k->timer);
	k->pending = 1;
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	const int rc = uv_getaddrinfo(loop, &k->resolve, on_resolved, host, service, &hints);
	if (rc) {
		uv_close((uv_handle_t *)&k->timer, on_timer_closed);
		GP_FAIL(err, GP_PEER, "cannot find the host of %s: %s", host, uv_strerror(rc));
	}
	k->pending++;
	uv_update_time(loop); /* whoever computed since the loop last turned has not waited for an answer */
	k->end_ms = uv_now(loop) + timeout_ms;
	uv_timer_start(&k->timer, on_connect_timeout, timeout_ms, 0);
	if (out)
		*out = k;
	return GP_OK;
}
