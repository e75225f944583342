/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP server (common/http/http_server.h) before clients that are no browsers: over sockets, so that they can say
 * anything, slowly or not at all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/clock.h"
#include "common/http/http_server.h"

#define LARGE (8u << 20)

struct site {
	struct gp_http_server *server;
	uint16_t port;
	atomic_int asked, sent;
	char *lent; /* LARGE bytes that several answers are sent from */
	char token[64];
};

static void count_sent(void *arg)
{
	atomic_fetch_add(&((struct site *)arg)->sent, 1);
}

/* On the server's thread; what it leaves in the site is read when the answer has come. */
static void answer(void *arg, const struct gp_http_request *q, struct gp_http_reply *out)
{
	struct site *s = arg;
	atomic_fetch_add(&s->asked, 1);
	snprintf(s->token, sizeof s->token, "%.*s", (int)q->token.len,
		 q->token.data ? (const char *)q->token.data : "");
	if (strcmp(q->path, "/large") == 0)
		*out = (struct gp_http_reply){200, "text/plain", NULL, 0, gp_calloc(LARGE, 1), LARGE, NULL, NULL};
	else if (strcmp(q->path, "/lent") == 0)
		*out = (struct gp_http_reply){200, "text/plain", NULL, 0, s->lent, LARGE, count_sent, s};
	else if (strcmp(q->path, "/") == 0)
		*out = (struct gp_http_reply){200,  "text/plain", NULL, 0, gp_strdup(q->peer), strlen(q->peer),
					      NULL, NULL};
}

static void open_site(struct site *s, double request_s)
{
	struct gp_err err;
	memset(s, 0, sizeof *s);
	const struct gp_http_settings set = {.host = "127.0.0.1",
					     .loopback = true,
					     .name = "--metrics",
					     .request_s = request_s,
					     .idle_s = 3600, /* no answer ends because this machine stands still */
					     .answer = answer,
					     .arg = s};
	if (gp_http_server_start(&set, &s->server, &err) != GP_OK)
		fail_msg("%s", err.text);
	s->port = gp_http_server_port(s->server);
}

static int connect_to(const struct site *s)
{
	const struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(s->port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
	return fd;
}

static void say(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Up to the end of the connection. */
static void read_all(int fd, char *out, size_t size)
{
	size_t n = 0;
	for (ssize_t got; n < size - 1 && (got = recv(fd, out + n, size - 1 - n, 0)) > 0;)
		n += (size_t)got;
	out[n] = '\0';
	close(fd);
}

static void ask(const struct site *s, const char *request, char *out, size_t size)
{
	const int fd = connect_to(s);
	say(fd, request);
	read_all(fd, out, size);
}

static void expect_status(const struct site *s, const char *request, int status, const char *part)
{
	char text[4096];
	int got = 0;
	ask(s, request, text, sizeof text);
	sscanf(text, "HTTP/1.%*d %d", &got);
	if (got != status || (part && !strstr(text, part)))
		fail_msg("'%.60s' is answered with '%s' instead of %d and '%s'", request, text, status,
			 part ? part : "");
}

static void paths_are_answered_and_others_are_not_there(void **state)
{
	struct site s;
	(void)state;
	open_site(&s, 0);
	expect_status(&s, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200, "\r\n\r\n127.0.0.1:0");
	expect_status(&s, "GET / HTTP/1.0\r\n\r\n", 200, "Content-Security-Policy: default-src 'none'");
	expect_status(&s, "GET /?a=b HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: close\r\n\r\n", 200, "nosniff");
	expect_status(&s, "GET /nothing HTTP/1.1\r\nHost: [::1]:7\r\nConnection: close\r\n\r\n", 404, "nothing here");
	expect_status(&s, "GET /%2e%2e/etc/passwd HTTP/1.0\r\n\r\n", 404, NULL);
	expect_status(&s, "HEAD / HTTP/1.0\r\n\r\n", 200, "Content-Length: 11");
	gp_http_server_stop(s.server);
}

static void a_token_is_found_behind_its_scheme_alone(void **state)
{
	struct site s;
	(void)state;
	open_site(&s, 0);
	expect_status(&s, "GET / HTTP/1.0\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n", 200, NULL);
	assert_string_equal(s.token, "0123456789abcdef");
	expect_status(&s, "GET / HTTP/1.0\r\nauthorization: bearer x\r\n\r\n", 200, NULL);
	assert_string_equal(s.token, "x");
	expect_status(&s, "GET / HTTP/1.0\r\nAuthorization: Basic 0123456789abcdef\r\n\r\n", 200, NULL);
	assert_string_equal(s.token, "");
	gp_http_server_stop(s.server);
}

static void what_is_no_request_for_reading_is_refused(void **state)
{
	struct site s;
	char text[40000];
	(void)state;
	open_site(&s, 0);
	expect_status(&s, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nabcde", 405,
		      "Allow: GET, HEAD");
	expect_status(&s, "DELETE / HTTP/1.0\r\n\r\n", 405, NULL);
	expect_status(&s, "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nabcde", 400,
		      "no request here has content");
	expect_status(&s, "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
		      NULL);
	expect_status(&s, "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413,
		      NULL);
	expect_status(&s, "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 403,
		      "for programs of this machine");
	expect_status(&s, "GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\nConnection: close\r\n\r\n", 403, NULL);
	expect_status(&s, "GET / HTTP/1.1\r\nHost: 192.0.2.1\r\nConnection: close\r\n\r\n", 403, NULL);
	expect_status(&s, "GET / HTTP/1.1\r\nHost: [::1\r\nConnection: close\r\n\r\n", 403, NULL);
	assert_int_equal(atomic_load(&s.asked), 0);
	int n = snprintf(text, sizeof text, "GET /");
	memset(text + n, 'a', 30000);
	strcpy(text + n + 30000, " HTTP/1.0\r\n\r\n");
	expect_status(&s, text, 414, NULL);
	n = snprintf(text, sizeof text, "GET / HTTP/1.0\r\nX: ");
	memset(text + n, 'a', 30000);
	strcpy(text + n + 30000, "\r\n\r\n");
	expect_status(&s, text, 431, NULL);
	ask(&s, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", text,
	    sizeof text); /* TLS: any answer, or none */
	expect_status(&s, "GET / HTTP/1.0\r\n\r\n", 200, NULL);
	gp_http_server_stop(s.server);
}

/* Those that say nothing do not keep the others from their answer. */
static void clients_that_say_nothing_are_not_waited_for(void **state)
{
	struct site s;
	int silent[GP_HTTP_CONNECTIONS];
	(void)state;
	open_site(&s, 2.0);
	for (int i = 0; i < GP_HTTP_CONNECTIONS / 2; i++)
		silent[i] = connect_to(&s);
	expect_status(&s, "GET / HTTP/1.0\r\n\r\n", 200, NULL);
	for (int i = GP_HTTP_CONNECTIONS / 2; i < GP_HTTP_CONNECTIONS; i++)
		silent[i] = connect_to(&s);
	expect_status(&s, "GET / HTTP/1.0\r\n\r\n", 200, NULL);
	for (int i = 0; i < GP_HTTP_CONNECTIONS; i++)
		close(silent[i]);
	gp_http_server_stop(s.server);
}

/* Asks over each again, and throws away what has been answered; those that were ended stay so. */
static void keep_busy(const int *fd, int count)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	char text[4096];
	for (int i = 0; i < count; i++) {
		(void)send(fd[i], request, sizeof request - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
		while (recv(fd[i], text, sizeof text, MSG_DONTWAIT) > 0)
			;
	}
}

static void clients_that_always_ask_do_not_keep_others_away(void **state)
{
	struct site s;
	int busy[GP_HTTP_CONNECTIONS];
	(void)state;
	open_site(&s, 0);
	for (int i = 0; i < GP_HTTP_CONNECTIONS; i++) {
		busy[i] = connect_to(&s);
		keep_busy(&busy[i], 1);
	}
	const int fd = connect_to(&s);
	struct pollfd answered = {.fd = fd, .events = POLLIN};
	say(fd, "GET / HTTP/1.0\r\n\r\n");
	const uint64_t until = gp_now_ns() + UINT64_C(60000000000);
	while (poll(&answered, 1, 200) == 0 && gp_now_ns() < until)
		keep_busy(busy, GP_HTTP_CONNECTIONS);
	assert_true(answered.revents & POLLIN);
	close(fd);
	for (int i = 0; i < GP_HTTP_CONNECTIONS; i++)
		close(busy[i]);
	gp_http_server_stop(s.server);
}

static double processor_seconds(void)
{
	struct rusage used;
	assert_int_equal(getrusage(RUSAGE_SELF, &used), 0);
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static void without_descriptors_the_thread_does_not_spin(void **state)
{
	struct site s;
	struct rlimit before, none;
	char text[4096];
	(void)state;
	open_site(&s, 0);
	const struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(s.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	const int fd = socket(AF_INET, SOCK_STREAM, 0), next = dup(fd);
	assert_true(next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
	say(fd, "GET / HTTP/1.0\r\n\r\n");
	const double used = processor_seconds();
	sleep(2);
	const double more = processor_seconds() - used;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	read_all(fd, text, sizeof text);
	assert_non_null(strstr(text, " 200 "));
	if (more > 0.2)
		fail_msg("%.2f s of the processor's time were used for nothing", more);
	gp_http_server_stop(s.server);
}

/* A byte now and then keeps the idle time from passing, but not that of the whole request. */
static void a_request_that_trickles_is_ended(void **state)
{
	struct site s;
	char c;
	(void)state;
	open_site(&s, 1.0);
	const int fd = connect_to(&s);
	ssize_t sent = 1;
	say(fd, "GET / HTTP/1.1\r\nX: ");
	while (sent == 1 && recv(fd, &c, 1, MSG_DONTWAIT) != 0) {
		usleep(20000);
		sent = send(fd, "a", 1, MSG_NOSIGNAL);
	}
	close(fd);
	assert_int_equal(atomic_load(&s.asked), 0);
	gp_http_server_stop(s.server);
}

#define SLOW 32 /* clients that ask for a large answer and do not read it */

static void ask_without_reading(const struct site *s, const char *request, int fd[SLOW])
{
	for (int i = 0; i < SLOW; i++) {
		fd[i] = connect_to(s);
		say(fd[i], request);
	}
}

static void close_all(const int fd[SLOW])
{
	for (int i = 0; i < SLOW; i++)
		close(fd[i]);
}

/* An answer's bytes count until it is gone: the server does not hold more than GP_HTTP_BODIES_MOST of them. No request is
 * ended for its age here, however slow the machine is. */
static void answers_that_nobody_reads_have_a_limit(void **state)
{
	struct site s;
	int slow[SLOW], answered = 0;
	char text[256];
	(void)state;
	open_site(&s, 3600.0);
	ask_without_reading(&s, "GET /large HTTP/1.0\r\n\r\n", slow);
	for (int i = 0; i < SLOW; i++) {
		int status = 0;
		assert_true(recv(slow[i], text, 20, MSG_WAITALL) == 20);
		sscanf(text, "HTTP/1.%*d %d", &status);
		answered += status == 200;
	}
	if (answered > (int)(GP_HTTP_BODIES_MOST / LARGE))
		fail_msg("%d answers of %u bytes are held at a time", answered, LARGE);
	assert_true(answered > 0);
	close_all(slow);
	gp_http_server_stop(s.server);
}

/* The same clients keep others away only until their requests are older than the server allows. */
static void answers_that_nobody_reads_have_an_end(void **state)
{
	struct site s;
	int slow[SLOW];
	char text[256];
	(void)state;
	open_site(&s, 0.5);
	ask_without_reading(&s, "GET /large HTTP/1.0\r\n\r\n", slow);
	do
		ask(&s, "GET /large HTTP/1.0\r\n\r\n", text, 20);
	while (!strstr(text, " 200"));
	close_all(slow);
	gp_http_server_stop(s.server);
}

/* Each answer gives the body back once, whether it was read, refused for its size or broken off. */
static void a_body_that_is_lent_is_given_back(void **state)
{
	struct site s;
	int slow[SLOW];
	char text[256];
	(void)state;
	open_site(&s, 3600.0);
	s.lent = gp_calloc(LARGE, 1);
	assert_non_null(s.lent);
	ask_without_reading(&s, "GET /lent HTTP/1.0\r\n\r\n", slow);
	for (int i = 0; i < SLOW; i++)
		assert_true(recv(slow[i], text, 20, MSG_WAITALL) == 20);
	assert_true(atomic_load(&s.sent) >= SLOW - (int)(GP_HTTP_BODIES_MOST / LARGE));
	assert_true(atomic_load(&s.sent) < SLOW);
	close_all(slow);
	gp_http_server_stop(s.server);
	assert_int_equal(atomic_load(&s.asked), SLOW);
	assert_int_equal(atomic_load(&s.sent), SLOW);
	gp_free(s.lent);
}

static void a_connection_stays_for_the_next_request(void **state)
{
	struct site s;
	char text[2048];
	(void)state;
	open_site(&s, 0);
	const int fd = connect_to(&s);
	say(fd, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: "
		"close\r\n\r\n");
	read_all(fd, text, sizeof text);
	assert_non_null(strstr(text, "200 OK"));
	assert_non_null(strstr(text, "404 Not Found"));
	gp_http_server_stop(s.server);
}

static void a_port_that_is_taken_is_named(void **state)
{
	struct site s;
	struct gp_http_server *second;
	struct gp_err err;
	(void)state;
	open_site(&s, 0);
	const struct gp_http_settings set = {.host = "127.0.0.1",
					     .port = s.port,
					     .loopback = true,
					     .name = "--metrics",
					     .answer = answer,
					     .arg = &s};
	assert_int_equal(gp_http_server_start(&set, &second, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "--metrics: cannot listen on 127.0.0.1:"));
	assert_non_null(strstr(err.text, "another program listens there already"));
	gp_http_server_stop(s.server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_are_answered_and_others_are_not_there),
		cmocka_unit_test(a_token_is_found_behind_its_scheme_alone),
		cmocka_unit_test(what_is_no_request_for_reading_is_refused),
		cmocka_unit_test(clients_that_say_nothing_are_not_waited_for),
		cmocka_unit_test(clients_that_always_ask_do_not_keep_others_away),
		cmocka_unit_test(without_descriptors_the_thread_does_not_spin),
		cmocka_unit_test(a_request_that_trickles_is_ended),
		cmocka_unit_test(answers_that_nobody_reads_have_a_limit),
		cmocka_unit_test(answers_that_nobody_reads_have_an_end),
		cmocka_unit_test(a_body_that_is_lent_is_given_back),
		cmocka_unit_test(a_connection_stays_for_the_next_request),
		cmocka_unit_test(a_port_that_is_taken_is_named),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
