/* SPDX-License-Identifier: Apache-2.0
 *
 * The link emulator (client/link/link_relay.h) between two blocking sockets: what
 * passes, how fast, and where it fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/link_thread.h"

struct rig {
	struct link_thread *link;
	int listener;
	int end[2]; /* the connecting one and the accepted one */
	char target[32];
};

static int listen_anywhere(char address[32])
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof a;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	snprintf(address, 32, "127.0.0.1:%u", ntohs(a.sin_port));
	return fd;
}

/* Nothing in here may hang: 20 s are more than any read has to wait. */
static void set_options(int fd)
{
	const int on = 1;
	const struct timeval patience = {.tv_sec = 20};
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

static int connect_to(const char *address)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	a.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	set_options(fd);
	return fd;
}

/* One more connection through the link. */
static void join(struct rig *r)
{
	r->end[0] = connect_to(r->link->address);
	r->end[1] = accept(r->listener, NULL, NULL);
	assert_true(r->end[1] >= 0);
	set_options(r->end[1]);
}

static void part(struct rig *r)
{
	close(r->end[0]);
	close(r->end[1]);
}

static void rig_open(struct rig *r, const struct gp_link_shape *shape, const struct gp_link_faults *faults)
{
	const struct gp_link_faults none = LINK_NO_FAULTS;
	r->listener = listen_anywhere(r->target);
	struct gp_link_spec spec = {.to = r->target, .faults = faults ? *faults : none};
	if (shape)
		spec.shape[GP_LINK_UP] = spec.shape[GP_LINK_DOWN] = *shape;
	r->link = link_thread_start(&spec);
	join(r);
}

static struct gp_link_counts rig_close(struct rig *r)
{
	part(r);
	close(r->listener);
	return link_thread_stop(r->link);
}

static uint8_t pattern(uint64_t at)
{
	return (uint8_t)(at * 167 ^ at >> 8);
}

static void put_pattern(int fd, uint64_t first, size_t len)
{
	uint8_t bytes[4096];
	while (len > 0) {
		const size_t n = len < sizeof bytes ? len : sizeof bytes;
		for (size_t i = 0; i < n; i++)
			bytes[i] = pattern(first + i);
		ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return; /* cut, as the test wanted */
		first += (uint64_t)sent;
		len -= (size_t)sent;
	}
}

/* Reads until `want` bytes or the end are there; counts bytes that differ from the pattern and says where the last did. Errno
 * of the end in *error: 0 orderly, EAGAIN nothing came for so long. */
static size_t get_pattern(int fd, size_t want, uint64_t *wrong_at, int *error)
{
	uint8_t bytes[4096];
	size_t got = 0;
	*error = 0;
	while (got < want) {
		const size_t n = want - got < sizeof bytes ? want - got : sizeof bytes;
		ssize_t r = recv(fd, bytes, n, 0);
		if (r < 0 && errno == EINTR)
			continue; /* with a timeout, being stopped and continued is enough (signal(7)) */
		if (r <= 0) {
			*error = r < 0 ? errno : 0;
			return got;
		}
		for (ssize_t i = 0; i < r; i++)
			if (bytes[i] != pattern(got + (size_t)i))
				*wrong_at = got + (size_t)i;
		got += (size_t)r;
	}
	return got;
}

/* One byte, within the patience of set_options. */
static uint8_t get_byte(int fd)
{
	uint8_t byte = 0;
	ssize_t n;
	while ((n = recv(fd, &byte, 1, 0)) < 0 && errno == EINTR)
		;
	assert_int_equal(n, 1);
	return byte;
}

static double now_s(void)
{
	return (double)uv_hrtime() * 1e-9;
}

struct sending {
	pthread_t thread;
	int fd;
	size_t len;
};

static void *send_main(void *arg)
{
	struct sending *s = arg;
	put_pattern(s->fd, 0, s->len);
	return NULL;
}

static void send_begin(struct sending *s, int fd, size_t len)
{
	*s = (struct sending){.fd = fd, .len = len};
	assert_int_equal(pthread_create(&s->thread, NULL, send_main, s), 0);
}

static void bytes_pass_both_ways_at_once_unchanged(void **state)
{
	(void)state;
	enum { BYTES = 8 << 20 };
	struct rig r;
	struct sending up, down;
	uint64_t wrong = UINT64_MAX;
	int error;
	rig_open(&r, NULL, NULL);
	send_begin(&up, r.end[0], BYTES);
	send_begin(&down, r.end[1], BYTES);
	assert_int_equal(get_pattern(r.end[1], BYTES, &wrong, &error), BYTES);
	assert_int_equal(get_pattern(r.end[0], BYTES, &wrong, &error), BYTES);
	pthread_join(up.thread, NULL);
	pthread_join(down.thread, NULL);
	assert_true(wrong == UINT64_MAX);
	struct gp_link_counts c = rig_close(&r);
	assert_int_equal(c.connections, 1);
	assert_int_equal(c.bytes[GP_LINK_UP], BYTES);
	assert_int_equal(c.bytes[GP_LINK_DOWN], BYTES);
	assert_int_equal(c.drops + c.stalls + c.corrupted[0] + c.corrupted[1], 0);
}

/* A half-closed connection goes on the other way. */
static void an_orderly_end_is_passed_on_behind_the_bytes(void **state)
{
	(void)state;
	const struct gp_link_shape shape = {.delay_s = 0.02};
	struct rig r;
	uint64_t wrong = UINT64_MAX;
	int error;
	rig_open(&r, &shape, NULL);
	put_pattern(r.end[0], 0, 5000);
	shutdown(r.end[0], SHUT_WR);
	assert_int_equal(get_pattern(r.end[1], 6000, &wrong, &error), 5000);
	assert_int_equal(error, 0);
	put_pattern(r.end[1], 0, 3000);
	assert_int_equal(get_pattern(r.end[0], 3000, &wrong, &error), 3000);
	close(r.end[1]);
	r.end[1] = -1;
	assert_int_equal(get_pattern(r.end[0], 1, &wrong, &error), 0);
	assert_int_equal(error, 0);
	rig_close(&r);
}

/* How many of the bytes before a reset came. It takes along what the link had not read yet. */
static size_t bytes_before_reset(void)
{
	const struct linger at_once = {.l_onoff = 1};
	const struct gp_link_shape shape = {.delay_s = 0.02};
	struct rig r;
	uint64_t wrong = UINT64_MAX;
	int error;
	rig_open(&r, &shape, NULL);
	put_pattern(r.end[0], 0, 1);
	assert_int_equal(get_pattern(r.end[1], 1, &wrong, &error), 1); /* now the link knows both ends */
	put_pattern(r.end[1], 0, 5000);
	usleep(5000);
	setsockopt(r.end[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(r.end[1]);
	r.end[1] = -1;
	const size_t got = get_pattern(r.end[0], 6000, &wrong, &error);
	assert_true(wrong == UINT64_MAX);
	assert_int_equal(error, ECONNRESET);
	rig_close(&r);
	return got;
}

static void a_reset_is_passed_on_behind_the_bytes(void **state)
{
	(void)state;
	size_t got = 0;
	for (int try = 0; try < 100 && got < 5000; try++)
		got = bytes_before_reset();
	assert_int_equal(got, 5000);
}

/* Seconds that `bytes` take from end 0 to end 1. */
static double time_bytes(const struct gp_link_shape *shape, size_t bytes)
{
	struct rig r;
	struct sending up;
	uint64_t wrong = UINT64_MAX;
	int error;
	rig_open(&r, shape, NULL);
	const double begin = now_s();
	send_begin(&up, r.end[0], bytes);
	assert_int_equal(get_pattern(r.end[1], bytes, &wrong, &error), bytes);
	const double took = now_s() - begin;
	pthread_join(up.thread, NULL);
	rig_close(&r);
	return took;
}

/* Never faster. How much slower is for the machine to say: tries are made until one is as good as it should be, and
 * none fails the test by itself. What is due when is exact in test_link_pace.c. */
static void a_rate_is_never_exceeded_and_nearly_reached(void **state)
{
	(void)state;
	const size_t bytes = 1250000; /* 0.2 s at 50 mbit/s */
	const struct gp_link_shape shape = {.rate_bps = 50e6};
	double best = 10;
	for (int try = 0; try < 20 && best > 0.21; try++) {
		const double took = time_bytes(&shape, bytes);
		assert_true(took > 0.95 * 0.2);
		best = took < best ? took : best;
	}
	print_message("%zu bytes at 50 mbit/s took %.3f s\n", bytes, best);
	assert_true(best < 10 * 0.2);
}

/* At a rate that empties no buffer between two looks at it. */
static void a_rate_holds_the_sender_back(void **state)
{
	(void)state;
	const struct gp_link_shape shape = {.rate_bps = 8e4};
	const struct timeval patience = {.tv_usec = 100000};
	static uint8_t bytes[64 << 10];
	struct rig r;
	rig_open(&r, &shape, NULL);
	setsockopt(r.end[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	size_t taken = 0;
	ssize_t n;
	while (taken < 32u << 20 && (n = send(r.end[0], bytes, sizeof bytes, MSG_NOSIGNAL)) > 0)
		taken += (size_t)n;
	assert_true(taken < 16u << 20); /* buffers of three sockets and one queue */
	rig_close(&r);
}

static void a_delay_is_never_shortened_and_little_is_added(void **state)
{
	(void)state;
	const struct gp_link_shape shape = {.delay_s = 0.01};
	struct rig r;
	const uint8_t byte = 1;
	double best = 10;
	rig_open(&r, &shape, NULL);
	for (int try = 0; try < 200 && (try < 10 || best > 0.012); try++) {
		const double begin = now_s();
		assert_int_equal(send(r.end[0], &byte, 1, 0), 1);
		assert_int_equal(get_byte(r.end[1]), byte);
		const double took = now_s() - begin;
		assert_true(took > 0.008);
		best = took < best ? took : best;
	}
	print_message("a byte took %.4f s over a link of 10 ms\n", best);
	assert_true(best < 10 * 0.01);
	rig_close(&r);
}

static struct gp_link_faults fault(enum gp_link_direction direction)
{
	struct gp_link_faults f = LINK_NO_FAULTS;
	f.direction = direction;
	return f;
}

/* Sends 100000 bytes each way, one after the other, and expects that exactly `want` arrive upwards, then this errno. */
static void expect_cut(enum gp_link_drop_mode mode, size_t at, size_t want, int want_error)
{
	struct gp_link_faults f = fault(GP_LINK_UP);
	struct rig r;
	struct sending up;
	uint64_t wrong = UINT64_MAX;
	int error;
	f.drop_after = (int64_t)at;
	f.drop_mode = mode;
	rig_open(&r, NULL, &f);
	send_begin(&up, r.end[0], 100000);
	const size_t got = get_pattern(r.end[1], 200000, &wrong, &error);
	if (got != want || error != want_error)
		fail_msg("cut at %zu: %zu bytes came, then errno %d", at, got, error);
	assert_true(wrong == UINT64_MAX);
	pthread_join(up.thread, NULL);
	assert_int_equal(get_pattern(r.end[0], 1, &wrong, &error), 0);
	assert_int_not_equal(error, EAGAIN); /* a reset may have been told to send() already */
	struct gp_link_counts c = rig_close(&r);
	assert_int_equal(c.drops, 1);
	assert_int_equal(c.bytes[GP_LINK_UP], want);
}

static void a_drop_lets_exactly_so_many_bytes_pass(void **state)
{
	(void)state;
	static const size_t at[] = {0, 1, 16, 4095, 65536, 99999};
	for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
		expect_cut(GP_LINK_RESET, at[i], at[i], ECONNRESET);
		expect_cut(GP_LINK_FIN, at[i], at[i], 0);
	}
}

/* Until the relay has so many bytes, whatever became of them. */
static void await_taken(struct rig *r, enum gp_link_direction d, uint64_t bytes)
{
	const double begin = now_s();
	while (atomic_load(&r->link->taken[d]) < bytes) {
		if (now_s() - begin > 60)
			fail_msg("the relay took %llu bytes", (unsigned long long)atomic_load(&r->link->taken[d]));
		usleep(1000);
	}
}

static void a_half_open_connection_swallows_bytes_and_ends(void **state)
{
	(void)state;
	const struct timeval soon = {.tv_usec = 200000};
	struct gp_link_faults f = fault(GP_LINK_DOWN);
	struct rig r;
	uint64_t wrong = UINT64_MAX;
	int error;
	f.drop_after = 1000;
	f.drop_mode = GP_LINK_HALF;
	rig_open(&r, NULL, &f);
	put_pattern(r.end[1], 0, 1000);
	assert_int_equal(get_pattern(r.end[0], 1000, &wrong, &error), 1000);
	put_pattern(r.end[1], 1000, 4 << 20);
	put_pattern(r.end[0], 0, 4 << 20); /* more than buffers hold */
	setsockopt(r.end[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
	setsockopt(r.end[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
	shutdown(r.end[1], SHUT_WR);
	await_taken(&r, GP_LINK_UP, 4 << 20);
	await_taken(&r, GP_LINK_DOWN, 1000 + (4 << 20));
	assert_int_equal(get_pattern(r.end[0], 1, &wrong, &error), 0);
	assert_int_equal(error, EAGAIN);
	assert_int_equal(get_pattern(r.end[1], 1, &wrong, &error), 0);
	assert_int_equal(error, EAGAIN);
	struct gp_link_counts c = rig_close(&r);
	assert_int_equal(c.bytes[GP_LINK_DOWN], 1000);
	assert_int_equal(c.swallowed[GP_LINK_DOWN], 4 << 20);
	assert_int_equal(c.swallowed[GP_LINK_UP] + c.bytes[GP_LINK_UP], 4 << 20);
}

static void a_stall_is_silence_both_ways_and_then_everything_comes(void **state)
{
	(void)state;
	struct gp_link_faults f = fault(GP_LINK_UP);
	struct rig r;
	uint64_t wrong = UINT64_MAX;
	int error;
	f.stall_after = 1000;
	f.stall_s = 0.3;
	rig_open(&r, NULL, &f);
	const double begin = now_s();
	put_pattern(r.end[0], 0, 3000);
	assert_int_equal(get_pattern(r.end[1], 1000, &wrong, &error), 1000);
	put_pattern(r.end[1], 0, 10);
	assert_int_equal(get_pattern(r.end[0], 10, &wrong, &error), 10);
	assert_true(now_s() - begin > 0.29);
	uint64_t rest_wrong = UINT64_MAX; /* the pattern goes on at 1000 */
	for (uint64_t i = 1000; i < 3000; i++)
		if (get_byte(r.end[1]) != pattern(i))
			rest_wrong = i;
	assert_true(wrong == UINT64_MAX && rest_wrong == UINT64_MAX);
	assert_int_equal(rig_close(&r).stalls, 1);
}

static void a_stall_without_an_end_lasts(void **state)
{
	(void)state;
	const struct timeval soon = {.tv_usec = 200000};
	struct gp_link_faults f = fault(GP_LINK_BOTH);
	struct rig r;
	uint64_t wrong = UINT64_MAX;
	int error;
	f.stall_after = 0;
	rig_open(&r, NULL, &f);
	put_pattern(r.end[0], 0, 100);
	setsockopt(r.end[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
	assert_int_equal(get_pattern(r.end[1], 1, &wrong, &error), 0);
	assert_int_equal(error, EAGAIN);
	rig_close(&r);
}

/* Until the relay has let go of both; the test's own limit of time ends a wait in vain. */
static void await_let_go(const struct rig *r)
{
	while (atomic_load(&r->link->connected))
		usleep(1000);
}

static void a_stall_without_an_end_is_over_when_both_ends_are_gone(void **state)
{
	(void)state;
	struct gp_link_faults f = fault(GP_LINK_BOTH);
	struct rig r;
	f.stall_after = 0;
	rig_open(&r, NULL, &f);
	put_pattern(r.end[0], 0, 1 << 20); /* more than the relay holds, so that it does not read on */
	while (atomic_load(&r.link->fault_ns) == 0)
		usleep(1000);
	part(&r);
	await_let_go(&r);
	close(r.listener);
	link_thread_stop(r.link);
}

/* The bytes behind which the drop comes are still on their way when both ends have gone. */
static void a_drop_behind_the_end_of_both_lets_go(void **state)
{
	(void)state;
	const struct gp_link_shape slow = {.delay_s = 0.3};
	static const enum gp_link_drop_mode mode[] = {GP_LINK_FIN, GP_LINK_HALF};
	for (size_t i = 0; i < sizeof mode / sizeof mode[0]; i++) {
		struct gp_link_faults f = fault(GP_LINK_UP);
		struct rig r;
		f.drop_after = 1000;
		f.drop_mode = mode[i];
		rig_open(&r, &slow, &f);
		put_pattern(r.end[0], 0, 3000);
		part(&r);
		await_let_go(&r);
		close(r.listener);
		assert_int_equal(link_thread_stop(r.link).drops, 1);
	}
}

/* A server whose queue of connections is full answers nobody. */
static void a_relay_that_still_connects_stops_at_once(void **state)
{
	(void)state;
	const struct gp_link_faults none = LINK_NO_FAULTS;
	char target[32];
	const int listener = listen_anywhere(target);
	assert_int_equal(listen(listener, 0), 0);
	const int fills = connect_to(target);
	const struct gp_link_spec spec = {.to = target, .faults = none, .connect_timeout_s = 3600};
	struct link_thread *link = link_thread_start(&spec);
	const int end = connect_to(link->address);
	while (!atomic_load(&link->connected))
		usleep(1000);
	assert_int_equal(link_thread_stop(link).refused, 0);
	close(end);
	close(fills);
	close(listener);
}

static void exactly_the_named_byte_is_corrupted(void **state)
{
	(void)state;
	static const uint64_t at[] = {0, 1, 4096, 77777, 299999};
	for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
		struct gp_link_faults f = fault(GP_LINK_DOWN);
		struct rig r;
		struct sending down;
		uint64_t wrong = UINT64_MAX, up_wrong = UINT64_MAX;
		int error;
		f.corrupt_byte = (int64_t)at[i];
		rig_open(&r, NULL, &f);
		send_begin(&down, r.end[1], 300000);
		assert_int_equal(get_pattern(r.end[0], 300000, &wrong, &error), 300000);
		assert_int_equal(wrong, at[i]);
		put_pattern(r.end[0], 0, 300000);
		assert_int_equal(get_pattern(r.end[1], 300000, &up_wrong, &error), 300000);
		assert_true(up_wrong == UINT64_MAX);
		pthread_join(down.thread, NULL);
		struct gp_link_counts c = rig_close(&r);
		assert_int_equal(c.corrupted[GP_LINK_DOWN], 1);
		assert_int_equal(c.corrupted[GP_LINK_UP], 0);
	}
}

static void a_trickle_brings_every_byte(void **state)
{
	(void)state;
	struct gp_link_faults f = fault(GP_LINK_BOTH);
	struct rig r;
	struct sending up;
	uint64_t wrong = UINT64_MAX;
	int error;
	f.trickle = true;
	rig_open(&r, NULL, &f);
	send_begin(&up, r.end[0], 5000);
	assert_int_equal(get_pattern(r.end[1], 5000, &wrong, &error), 5000);
	assert_true(wrong == UINT64_MAX);
	pthread_join(up.thread, NULL);
	rig_close(&r);
}

static void later_connections_are_left_alone_with_times(void **state)
{
	(void)state;
	struct gp_link_faults f = fault(GP_LINK_UP);
	struct rig r;
	uint64_t wrong = UINT64_MAX;
	int error;
	f.drop_after = 10;
	f.times = 2;
	rig_open(&r, NULL, &f);
	for (int n = 0; n < 4; n++) {
		put_pattern(r.end[0], 0, 100);
		assert_int_equal(get_pattern(r.end[1], 100, &wrong, &error), n < 2 ? 10 : 100);
		part(&r);
		join(&r);
	}
	struct gp_link_counts c = rig_close(&r);
	assert_int_equal(c.drops, 2);
	assert_int_equal(c.connections, 5);
}

static void a_target_that_refuses_closes_the_connection(void **state)
{
	(void)state;
	struct rig r;
	r.listener = listen_anywhere(r.target);
	close(r.listener); /* nobody listens there now */
	const struct gp_link_faults none = LINK_NO_FAULTS;
	const struct gp_link_spec spec = {.to = r.target, .faults = none};
	r.link = link_thread_start(&spec);
	int fd = connect_to(r.link->address);
	uint64_t wrong;
	int error;
	assert_int_equal(get_pattern(fd, 1, &wrong, &error), 0);
	assert_int_not_equal(error, EAGAIN);
	close(fd);
	struct gp_link_counts c = link_thread_stop(r.link);
	assert_int_equal(c.refused, 1);
}

/* Whoever is connected, and whatever lies in the queues. */
static void stopping_leaves_nothing_behind(void **state)
{
	(void)state;
	const struct gp_link_shape shape = {.rate_bps = 1e6, .delay_s = 500};
	struct rig r;
	rig_open(&r, &shape, NULL);
	put_pattern(r.end[0], 0, 50000);
	struct gp_link_counts c = link_thread_stop(r.link);
	assert_int_equal(c.bytes[GP_LINK_UP], 0);
	part(&r);
	close(r.listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_pass_both_ways_at_once_unchanged),
		cmocka_unit_test(an_orderly_end_is_passed_on_behind_the_bytes),
		cmocka_unit_test(a_reset_is_passed_on_behind_the_bytes),
		cmocka_unit_test(a_rate_is_never_exceeded_and_nearly_reached),
		cmocka_unit_test(a_rate_holds_the_sender_back),
		cmocka_unit_test(a_delay_is_never_shortened_and_little_is_added),
		cmocka_unit_test(a_drop_lets_exactly_so_many_bytes_pass),
		cmocka_unit_test(a_half_open_connection_swallows_bytes_and_ends),
		cmocka_unit_test(a_stall_is_silence_both_ways_and_then_everything_comes),
		cmocka_unit_test(a_stall_without_an_end_lasts),
		cmocka_unit_test(a_stall_without_an_end_is_over_when_both_ends_are_gone),
		cmocka_unit_test(a_drop_behind_the_end_of_both_lets_go),
		cmocka_unit_test(a_relay_that_still_connects_stops_at_once),
		cmocka_unit_test(exactly_the_named_byte_is_corrupted),
		cmocka_unit_test(a_trickle_brings_every_byte),
		cmocka_unit_test(later_connections_are_left_alone_with_times),
		cmocka_unit_test(a_target_that_refuses_closes_the_connection),
		cmocka_unit_test(stopping_leaves_nothing_behind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
