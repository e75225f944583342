/* SPDX-License-Identifier: Apache-2.0
 *
 * A TCP connection on libuv: reading, writing, ending, the kernel's figures.
 * How one comes to be is conn_open.c. No wire format here.
 * Test: tests/unit/test_conn.c
 */
#include "common/net/conn_tcp.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/clock.h"
#include "common/base/fault.h"

#define RCVLOWAT_MAX     (32 << 10)
#define READ_BUF_BYTES   (256u << 10)
#define UNSENT_BYTES     (128u << 10) /* until the owner says how much it may be */

/*
 * Bytes are handed on inside the read callback, so one buffer serves all connections of a loop: ten thousand that say
 * nothing cost no memory for reading. Loops may run in different threads.
 */
struct gp_tcp_room {
	uv_loop_t *loop;
	int users;
	struct gp_tcp_room *next;
	uint8_t bytes[READ_BUF_BYTES];
};

static pthread_mutex_t rooms_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gp_tcp_room *rooms;

static struct gp_tcp_room *enter_room(uv_loop_t *loop)
{
	pthread_mutex_lock(&rooms_lock);
	struct gp_tcp_room *r = rooms;
	while (r && r->loop != loop)
		r = r->next;
	if (!r && (r = gp_calloc(1, sizeof *r))) {
		r->loop = loop;
		r->next = rooms;
		rooms = r;
	}
	if (r)
		r->users++;
	pthread_mutex_unlock(&rooms_lock);
	return r;
}

static void leave_room(struct gp_tcp_room *room)
{
	pthread_mutex_lock(&rooms_lock);
	if (--room->users == 0) {
		struct gp_tcp_room **at = &rooms;
		while (*at != room)
			at = &(*at)->next;
		*at = room->next;
		gp_free(room);
	}
	pthread_mutex_unlock(&rooms_lock);
}

static struct gp_tcp_conn *tcp_of(struct gp_conn *c)
{
	return (struct gp_tcp_conn *)c;
}

static void end(struct gp_tcp_conn *c, enum gp_status status, const char *why)
{
	if (c->over || c->closing)
		return;
	c->over = true;
	uv_read_stop((uv_stream_t *)&c->tcp);
	c->base.cbs.ended(c->base.arg, status, why);
}

static void end_with_error(struct gp_tcp_conn *c, int uv_error)
{
	char why[160];
	if (uv_error == UV_ECONNRESET || uv_error == UV_EPIPE)
		snprintf(why, sizeof why, "%s closed the connection (%s)", c->base.peer, uv_strerror(uv_error));
	else
		snprintf(why, sizeof why, "connection to %s lost: %s", c->base.peer, uv_strerror(uv_error));
	end(c, GP_PEER, why);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
	(void)suggested;
	const struct gp_tcp_conn *c = h->data;
	*buf = uv_buf_init((char *)c->room->bytes, READ_BUF_BYTES);
}

/* Has the kernel acknowledge what was read at once (TCP_QUICKACK, which holds until something is sent). By itself it may wait
 * for 40 ms, so that the acknowledgement can go with data of ours. The sender's kernel counts that wait as time in which the
 * link was busy, and whoever divides bytes by it (send_ahead.h, --codec auto) takes a fast link for a slow one. */
static void acknowledge(struct gp_tcp_conn *c)
{
	const int on = 1;
	uv_os_fd_t fd;
	if (uv_fileno((uv_handle_t *)&c->tcp, &fd) == 0)
		setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
	struct gp_tcp_conn *c = stream->data;
	if (nread > 0) {
		if ((size_t)nread < buf->len) /* nothing else has come yet */
			acknowledge(c);
		c->base.bytes_read += (uint64_t)nread;
		c->base.read_ns = gp_now_ns();
		c->base.cbs.read(c->base.arg, (const uint8_t *)buf->base, (size_t)nread);
	} else if (nread == UV_EOF) {
		char why[160];
		snprintf(why, sizeof why, "%s closed the connection", c->base.peer);
		end(c, GP_OK, why);
	} else if (nread < 0) {
		end_with_error(c, (int)nread);
	}
}

static void tcp_read_start(struct gp_conn *conn)
{
	struct gp_tcp_conn *c = tcp_of(conn);
	if (!c->over && !c->closing)
		uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

static void tcp_read_stop(struct gp_conn *conn)
{
	uv_read_stop((uv_stream_t *)&tcp_of(conn)->tcp);
}

static void on_written(uv_write_t *req, int status)
{
	struct gp_conn_write *w = req->data;
	struct gp_tcp_conn *c = tcp_of(w->conn);
	if (status == 0) {
		c->base.bytes_written += w->bytes;
		w->cb(w->arg, GP_OK);
		return;
	}
	w->cb(w->arg, status == UV_ECANCELED ? GP_CANCELED : GP_PEER);
	if (status != UV_ECANCELED)
		end_with_error(c, status);
}

static void cancel_failed(struct gp_tcp_conn *c)
{
	while (c->failed) {
		struct gp_conn_write *w = c->failed;
		c->failed = w->next;
		w->cb(w->arg, GP_CANCELED);
	}
}

static void on_soon(uv_timer_t *timer)
{
	struct gp_tcp_conn *c = timer->data;
	cancel_failed(c);
	end_with_error(c, UV_EPIPE);
}

/* The Nth write meets a connection that has just died (GP_FAULT=send:N). */
static void inject_fault(struct gp_tcp_conn *c)
{
	uv_os_fd_t fd;
	if (gp_fault_hit(GP_FAULT_SEND) && uv_fileno((uv_handle_t *)&c->tcp, &fd) == 0)
		shutdown(fd, SHUT_RDWR);
}

static void tcp_write(struct gp_conn *conn, struct gp_conn_write *w, const uv_buf_t *bufs, unsigned nbufs)
{
	struct gp_tcp_conn *c = tcp_of(conn);
	gp_require(nbufs >= 1 && nbufs <= GP_CONN_WRITE_BUFS && !c->closing);
	w->conn = conn;
	w->uv.data = w;
	w->bytes = 0;
	for (unsigned i = 0; i < nbufs; i++)
		w->bytes += bufs[i].len;
	inject_fault(c);
	if (uv_write(&w->uv, (uv_stream_t *)&c->tcp, bufs, nbufs, on_written) == 0)
		return;
	w->next = c->failed;
	c->failed = w;
	uv_timer_start(&c->soon, on_soon, 0, 0);
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
	(void)req;
	(void)status; /* an error shows in reading or writing too */
}

static void tcp_shutdown(struct gp_conn *conn)
{
	struct gp_tcp_conn *c = tcp_of(conn);
	uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shutdown);
}

static uint64_t tcp_unsent(const struct gp_conn *conn)
{
	const struct gp_tcp_conn *c = (const struct gp_tcp_conn *)conn;
	return uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp);
}

static void on_handle_closed(uv_handle_t *h)
{
	struct gp_tcp_conn *c = h->data;
	if (--c->open_handles)
		return;
	cancel_failed(c);
	if (c->closed_cb)
		c->closed_cb(c->closed_arg);
	leave_room(c->room);
	gp_free(c);
}

static void tcp_close(struct gp_conn *conn, void (*closed)(void *arg), void *arg)
{
	struct gp_tcp_conn *c = tcp_of(conn);
	gp_require(!c->closing);
	c->closing = true;
	c->closed_cb = closed;
	c->closed_arg = arg;
	uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
	uv_close((uv_handle_t *)&c->soon, on_handle_closed);
}

/* SO_RCVLOWAT: at 100 Mbit/s a read per packet costs half a core. The kernel wakes us for the end of the stream and
 * when its buffer is full, whatever the mark. */
static void tcp_read_hint(struct gp_conn *conn, uint32_t bytes)
{
	struct gp_tcp_conn *c = tcp_of(conn);
	uv_os_fd_t fd;
	int mark = bytes < RCVLOWAT_MAX ? (int)bytes : RCVLOWAT_MAX;
	if (c->rcvlowat == (uint32_t)mark || uv_fileno((uv_handle_t *)&c->tcp, &fd) != 0)
		return;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark) == 0)
		c->rcvlowat = (uint32_t)mark;
}

static void tcp_hold(struct gp_conn *conn, uint32_t bytes)
{
	const int unsent = (int)bytes;
	uv_os_fd_t fd;
	if (uv_fileno((uv_handle_t *)&tcp_of(conn)->tcp, &fd) == 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
}

static void tcp_figures(struct gp_conn *conn, struct gp_tcp_figures *out)
{
	uv_os_fd_t fd;
	memset(out, 0, sizeof *out);
	if (uv_fileno((uv_handle_t *)&tcp_of(conn)->tcp, &fd) == 0)
		gp_tcp_info_read(fd, out);
}

static int tcp_socket(const struct gp_conn *conn)
{
	const struct gp_tcp_conn *c = (const struct gp_tcp_conn *)conn;
	uv_os_fd_t fd;
	return uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0 ? fd : -1;
}

static const struct gp_conn_ops tcp_ops = {
	.name = "tcp",
	.write = tcp_write,
	.read_start = tcp_read_start,
	.read_stop = tcp_read_stop,
	.shutdown = tcp_shutdown,
	.unsent = tcp_unsent,
	.close = tcp_close,
	.read_hint = tcp_read_hint,
	.hold = tcp_hold,
	.figures = tcp_figures,
	.socket = tcp_socket,
};

struct gp_tcp_conn *gp_tcp_conn_new(uv_loop_t *loop)
{
	struct gp_tcp_conn *c = gp_calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->room = enter_room(loop);
	if (!c->room) {
		gp_free(c);
		return NULL;
	}
	c->base.ops = &tcp_ops;
	uv_tcp_init(loop, &c->tcp);
	uv_timer_init(loop, &c->soon);
	c->tcp.data = c;
	c->soon.data = c;
	c->open_handles = 2;
	return c;
}

static void name_peer(struct gp_tcp_conn *c)
{
	struct sockaddr_storage addr;
	int len = sizeof addr;
	char host[48] = "?";
	if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&addr, &len) == 0)
		uv_ip_name((const struct sockaddr *)&addr, host, sizeof host);
	/* sin_port and sin6_port lie at the same place */
	gp_addr_format(host, ntohs(((const struct sockaddr_in *)&addr)->sin_port), c->base.peer, sizeof c->base.peer);
}

void gp_tcp_conn_ready(struct gp_tcp_conn *c)
{
	uv_tcp_nodelay(&c->tcp, 1);
	tcp_hold(&c->base, UNSENT_BYTES);
	name_peer(c);
}

static void set_sigpipe(void)
{
	struct sigaction old;
	if (sigaction(SIGPIPE, NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
		signal(SIGPIPE, SIG_IGN);
}

void gp_tcp_ignore_sigpipe(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, set_sigpipe);
}
