/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections that want nothing good, for tests/bench/hostile.sh and
 * tests/e2e/hostile.sh: to a port of this host, for a bounded time.
 *
 * Usage: hostile PORT slow COUNT SECONDS     COUNT at once, a byte a second each; closed ones come back
 *        hostile PORT garbage COUNT SECONDS  COUNT in all, evenly spread; 64 random bytes each, then they hang up
 *        hostile PORT silent COUNT SECONDS   COUNT at once that say nothing; closed ones stay away
 * Prints: opened N refused N closed_by_server N
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 20000
#define TURN_S          0.02
#define GARBAGE_LIFE_S  0.5

enum mode { SLOW, GARBAGE, SILENT };

struct one {
	int fd; /* -1: closed */
	double since, wrote;
	size_t at;
};

static struct one one[CONNECTIONS_MAX];
static struct pollfd polled[CONNECTIONS_MAX];
static long opened, refused, closed_by_server;
static int port;
static const unsigned char preface[16] = "gpsplit\n\1\0\1";

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void open_one(struct one *o)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	*o = (struct one){.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .since = now()};
	o->wrote = o->since - (double)(rand() % 1000) * 1e-3; /* not all in the same moment */
	if (o->fd >= 0 && (connect(o->fd, (struct sockaddr *)&a, sizeof a) == 0 || errno == EINPROGRESS)) {
		opened++;
		return;
	}
	refused++;
	if (o->fd >= 0)
		close(o->fd);
	o->fd = -1;
}

static void close_one(struct one *o)
{
	close(o->fd);
	o->fd = -1;
}

/* Takes what the server says; true when it has hung up. */
static bool hung_up(struct one *o)
{
	char bytes[512];
	for (;;) {
		ssize_t n = recv(o->fd, bytes, sizeof bytes, 0);
		if (n > 0)
			continue;
		return !(n < 0 && (errno == EAGAIN || errno == EINTR));
	}
}

static void speak(struct one *o, enum mode mode, double t)
{
	unsigned char bytes[64];
	if (mode == SLOW && t - o->wrote >= 1.0) {
		o->wrote += 1.0;
		(void)!send(o->fd, &preface[o->at++ % sizeof preface], 1, MSG_NOSIGNAL);
	} else if (mode == GARBAGE && o->at == 0) {
		for (size_t i = 0; i < sizeof bytes; i++)
			bytes[i] = (unsigned char)rand();
		o->at += send(o->fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0;
	}
}

static void drop_dead(int count, enum mode mode, double t)
{
	for (int i = 0; i < count; i++)
		polled[i] = (struct pollfd){.fd = one[i].fd, .events = POLLIN};
	if (poll(polled, (nfds_t)count, 0) < 0)
		return;
	for (int i = 0; i < count; i++) {
		if (one[i].fd < 0)
			continue;
		if (polled[i].revents && hung_up(&one[i])) {
			closed_by_server++;
			close_one(&one[i]);
		} else if (mode == GARBAGE && t - one[i].since > GARBAGE_LIFE_S) {
			close_one(&one[i]);
		}
	}
}

/* Garbage comes evenly over the time; the others all at once, and slow ones again. */
static void open_due(int count, enum mode mode, double begin, double seconds, double t)
{
	const double due = mode == GARBAGE ? count * (t - begin) / seconds : count;
	for (int i = 0; i < count && (mode == SLOW || opened + refused < (long)due); i++)
		if (one[i].fd < 0)
			open_one(&one[i]);
}

static void run(enum mode mode, int count, double seconds)
{
	const double begin = now();
	for (int i = 0; i < count; i++)
		one[i].fd = -1;
	for (double t = begin; t - begin < seconds; t = now()) {
		open_due(count, mode, begin, seconds, t);
		for (int i = 0; i < count; i++)
			if (one[i].fd >= 0)
				speak(&one[i], mode, t);
		drop_dead(count, mode, t);
		const struct timespec turn = {.tv_nsec = (long)(TURN_S * 1e9)};
		nanosleep(&turn, NULL);
	}
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"slow", "garbage", "silent"};
	int mode = 0, count = argc == 5 ? atoi(argv[3]) : 0;
	while (argc == 5 && mode < 3 && strcmp(argv[2], names[mode]) != 0)
		mode++;
	if (argc != 5 || mode == 3 || count < 1 || count > CONNECTIONS_MAX) {
		fprintf(stderr, "usage: hostile PORT slow|garbage|silent COUNT SECONDS\n");
		return 2;
	}
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	port = atoi(argv[1]);
	run((enum mode)mode, count, atof(argv[4]));
	printf("opened %ld refused %ld closed_by_server %ld\n", opened, refused, closed_by_server);
	return 0;
}
