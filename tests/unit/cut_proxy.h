/* SPDX-License-Identifier: Apache-2.0
 *
 * A link that breaks where it is told to: a relay on loopback, on a thread of
 * its own, between a client and a server.
 */
#ifndef GP_TEST_CUT_PROXY_H
#define GP_TEST_CUT_PROXY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/wire/frame.h"
#include "common/base/mem.h"

enum cut_kind {
	CUT_END,         /* both ends read an end of the stream */
	CUT_RESET,       /* both ends read a reset */
	CUT_CLIENT_ONLY, /* the server does not notice: its connection stands and is silent */
};

/* Bytes that still go through, up and down; 0: no cut. */
struct cut_plan {
	uint64_t up, down;
	enum cut_kind kind;
};

#define CUT_PROXY_LINKS 256

struct cut_link {
	int client, server; /* -1: closed */
	struct cut_plan plan;
	uint64_t up, down;
};

struct cut_proxy {
	pthread_t thread;
	int listener, wake[2];
	_Atomic uint16_t server_port; /* of connections to come */
	char address[32];
	struct cut_plan plan, second; /* of the first connection, if `repeat` of all; and of the second */
	atomic_bool repeat;
	atomic_bool deaf;    /* nobody is let in */
	atomic_bool deafens; /* a cut makes it so */
	atomic_bool mute;    /* who comes is left without an answer */
	atomic_int accepted, cuts;
	struct cut_link link[CUT_PROXY_LINKS];
	int links;
};

static void cut_close(int *fd, bool reset)
{
	const struct linger hard = {.l_onoff = 1, .l_linger = 0};
	if (*fd < 0)
		return;
	if (reset)
		setsockopt(*fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
	close(*fd);
	*fd = -1;
}

static void cut_now(struct cut_proxy *p, struct cut_link *l)
{
	if (atomic_load(&p->deafens))
		atomic_store(&p->deaf, true);
	cut_close(&l->client, l->plan.kind == CUT_RESET);
	if (l->plan.kind != CUT_CLIENT_ONLY)
		cut_close(&l->server, l->plan.kind == CUT_RESET);
	atomic_fetch_add(&p->cuts, 1);
}

static int cut_dial(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
		cut_close(&fd, true);
	return fd;
}

static void cut_accept(struct cut_proxy *p)
{
	if (atomic_load(&p->mute)) {
		usleep(1000);
		return;
	}
	int fd = accept(p->listener, NULL, NULL), on = 1, n = p->links;
	if (fd < 0)
		return;
	if (atomic_load(&p->deaf) || n == CUT_PROXY_LINKS) {
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	struct cut_link *l = &p->link[p->links++];
	*l = (struct cut_link){.client = fd, .server = cut_dial(p->server_port)};
	if (n == 0 || p->repeat)
		l->plan = p->plan;
	else if (n == 1)
		l->plan = p->second;
	if (l->server < 0)
		cut_close(&l->client, false);
	atomic_fetch_add(&p->accepted, 1);
}

/* Moves what is there from one end to the other, up to the cut. False: the link is over. */
static bool cut_move(struct cut_link *l, bool up)
{
	static _Thread_local uint8_t bytes[1 << 16];
	uint64_t *moved = up ? &l->up : &l->down;
	const uint64_t limit = up ? l->plan.up : l->plan.down;
	size_t most = sizeof bytes;
	if (limit && limit > *moved && limit - *moved < most)
		most = (size_t)(limit - *moved);
	ssize_t n = recv(up ? l->client : l->server, bytes, most, 0);
	if (n <= 0)
		return false;
	for (ssize_t at = 0; at < n;) {
		ssize_t sent = send(up ? l->server : l->client, bytes + at, (size_t)(n - at), MSG_NOSIGNAL);
		if (sent <= 0)
			return false;
		at += sent;
	}
	*moved += (uint64_t)n;
	return true;
}

static bool cut_due(const struct cut_link *l)
{
	const bool up = l->plan.up && l->up >= l->plan.up, down = l->plan.down && l->down >= l->plan.down;
	return up || down;
}

/* A side whose bytes are used up is not read any more. */
static bool cut_reads(const struct cut_link *l, bool up)
{
	const uint64_t limit = up ? l->plan.up : l->plan.down;
	return l->client >= 0 && l->server >= 0 && (!limit || (up ? l->up : l->down) < limit);
}

static void cut_serve(struct cut_proxy *p, struct cut_link *l, const struct pollfd fd[2])
{
	for (int i = 0; i < 2 && l->client >= 0; i++) {
		if (!fd[i].revents || !cut_reads(l, i == 0))
			continue;
		if (!cut_move(l, i == 0)) { /* one end has gone: so does the other */
			cut_close(&l->client, false);
			cut_close(&l->server, false);
		} else if (cut_due(l)) {
			cut_now(p, l);
		}
	}
}

static void *cut_proxy_main(void *arg)
{
	struct cut_proxy *p = arg;
	for (;;) {
		struct pollfd fd[2 + 2 * CUT_PROXY_LINKS];
		const int n = p->links;
		fd[0] = (struct pollfd){.fd = p->wake[0], .events = POLLIN};
		fd[1] = (struct pollfd){.fd = p->listener, .events = POLLIN};
		for (int i = 0; i < n; i++) {
			struct cut_link *l = &p->link[i];
			fd[2 + 2 * i] = (struct pollfd){.fd = cut_reads(l, true) ? l->client : -1, .events = POLLIN};
			fd[3 + 2 * i] = (struct pollfd){.fd = cut_reads(l, false) ? l->server : -1, .events = POLLIN};
		}
		poll(fd, (nfds_t)(2 + 2 * n), -1);
		if (fd[0].revents)
			return NULL;
		for (int i = 0; i < n; i++)
			cut_serve(p, &p->link[i], &fd[2 + 2 * i]);
		if (fd[1].revents)
			cut_accept(p);
	}
}

static inline void cut_proxy_begin(struct cut_proxy *p, uint16_t server_port, const struct cut_plan plan[2],
				   bool repeat)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof a;
	memset(p, 0, sizeof *p);
	p->plan = plan[0];
	p->second = plan[1];
	p->repeat = repeat;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p->server_port = server_port;
	p->listener = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(p->listener, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(p->listener, 64), 0);
	assert_int_equal(getsockname(p->listener, (struct sockaddr *)&a, &len), 0);
	snprintf(p->address, sizeof p->address, "127.0.0.1:%u", ntohs(a.sin_port));
	assert_int_equal(pipe(p->wake), 0);
	assert_int_equal(pthread_create(&p->thread, NULL, cut_proxy_main, p), 0);
}

/* The first connection is cut as planned, if `repeat` every one. */
static inline void cut_proxy_start(struct cut_proxy *p, uint16_t server_port, struct cut_plan plan, bool repeat)
{
	const struct cut_plan both[2] = {plan, {0}};
	cut_proxy_begin(p, server_port, both, repeat);
}

/* The first two connections are cut, each as planned. */
static inline void cut_proxy_start_twice(struct cut_proxy *p, uint16_t server_port, const struct cut_plan plan[2])
{
	cut_proxy_begin(p, server_port, plan, false);
}

static inline void cut_proxy_stop(struct cut_proxy *p)
{
	assert_int_equal(write(p->wake[1], "x", 1), 1);
	pthread_join(p->thread, NULL);
	for (int i = 0; i < p->links; i++) {
		cut_close(&p->link[i].client, false);
		cut_close(&p->link[i].server, false);
	}
	close(p->listener);
	close(p->wake[0]);
	close(p->wake[1]);
}

#endif
