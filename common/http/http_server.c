/* SPDX-License-Identifier: Apache-2.0
 *
 * See http_server.h. Everything of libmicrohttpd runs on one thread, which polls for it, so that slow requests can be
 * ended from there, too: it has limits of its own for connections and for the time without a byte only.
 * Test: tests/unit/test_http_server.c
 */
#include "common/http/http_server.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/http/http_pem.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/conn.h"

#define LISTEN_BACKLOG 64
#define TURN_MS        1000 /* how often slow requests are looked for */
#define NO_ROOM_MS     100  /* until a connection that could not be accepted is tried again */
#define NICE           10   /* whoever asks often takes next to no time from those that train */
#define PRIORITIES     "NORMAL:-VERS-ALL:+VERS-TLS1.3"
#define NOTHING_LOADED "default-src 'none'; frame-ancestors 'none'"
#define TEXT_TYPE      "text/plain; charset=utf-8"

/* One connection, in the thread's list. */
struct peer {
	struct gp_http_server *server;
	struct MHD_Connection *connection;
	struct peer *prev, *next;
	uint64_t since_ns; /* its begin, or the end of its last request */
	size_t body_bytes; /* of the answer under way */
	bool ended;
};

struct gp_http_server {
	struct gp_http_settings set;
	char *cert_path, *key_path, *ca_path;
	uint16_t port;
	int listen_fd, wake_fd;
	pthread_t thread;
	struct MHD_Daemon *daemon; /* of the thread, once it runs */
	struct peer *peers;
	int peer_count;
	size_t bodies_bytes;
	atomic_bool stopping;
	pthread_mutex_t mutex; /* around what reload hands over */
	struct gp_http_pem fresh;
	bool reloaded;
	struct gp_http_pem pem; /* in use */
};

/* A certificate that was asked for, came, and was issued by the CA for clients. */
static bool is_certified(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
					 .data = (uint8_t *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
	unsigned status = 1;
	return info && info->tls_session &&
	       gnutls_certificate_verify_peers((gnutls_session_t)info->tls_session, &purpose, 1, &status) == 0 &&
	       status == 0;
}

/* --- connections ------------------------------------------------------------------------------------------------- */

static struct peer *peer_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	return info ? info->socket_context : NULL;
}

static void forget(struct gp_http_server *s, struct peer *p)
{
	s->bodies_bytes -= p->body_bytes;
	if (p->prev)
		p->prev->next = p->next;
	else
		s->peers = p->next;
	if (p->next)
		p->next->prev = p->prev;
	s->peer_count--;
	gp_free(p);
}

/* The library closes what was shut down. */
static void end_peer(struct peer *p)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(p->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (info)
		shutdown(info->connect_fd, SHUT_RDWR);
	p->ended = true;
}

static void end_slow(struct gp_http_server *s)
{
	const uint64_t now = gp_now_ns();
	const double most = s->set.request_s > 0.0 ? s->set.request_s : GP_HTTP_REQUEST_S;
	for (struct peer *p = s->peers; p; p = p->next)
		if (!p->ended && (double)(now - p->since_ns) * 1e-9 >= most)
			end_peer(p);
}

/* Whoever keeps its connections busy could keep all others away. */
static void make_place(struct gp_http_server *s)
{
	struct peer *oldest = NULL;
	if (s->peer_count < GP_HTTP_CONNECTIONS)
		return;
	for (struct peer *p = s->peers; p; p = p->next)
		if (!p->ended && (!oldest || p->since_ns < oldest->since_ns))
			oldest = p;
	if (oldest)
		end_peer(oldest);
}

static void on_connection(void *arg, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what)
{
	struct gp_http_server *s = arg;
	struct peer *p = *context;
	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (p)
			forget(s, p);
		*context = NULL;
		return;
	}
	p = gp_calloc(1, sizeof *p); /* without one, nothing is answered */
	if (!p)
		return;
	p->server = s;
	p->connection = c;
	p->since_ns = gp_now_ns();
	p->next = s->peers;
	if (s->peers)
		s->peers->prev = p;
	s->peers = p;
	s->peer_count++;
	*context = p;
	make_place(s);
}

static void on_completed(void *arg, struct MHD_Connection *c, void **request, enum MHD_RequestTerminationCode why)
{
	struct gp_http_server *s = arg;
	struct peer *p = peer_of(c);
	(void)why;
	*request = NULL;
	if (!p)
		return;
	s->bodies_bytes -= p->body_bytes;
	p->body_bytes = 0;
	p->since_ns = gp_now_ns();
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

void gp_http_reply_text(struct gp_http_reply *out, int status, const char *text)
{
	out->status = status;
	out->type = TEXT_TYPE;
	out->body = gp_strdup(text);
	out->length = out->body ? strlen(text) : 0;
}

static void add_headers(struct MHD_Response *r, const struct gp_http_reply *reply)
{
	char seconds[16];
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
	MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
	MHD_add_response_header(r, "Cross-Origin-Resource-Policy", "same-origin");
	MHD_add_response_header(r, "Content-Security-Policy", reply->policy ? reply->policy : NOTHING_LOADED);
	if (reply->status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (reply->status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	if (reply->retry_s > 0) {
		snprintf(seconds, sizeof seconds, "%u", reply->retry_s);
		MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
	}
}

static void release(const struct gp_http_reply *reply)
{
	if (reply->sent)
		reply->sent(reply->body_of);
	else
		gp_free(reply->body);
}

static struct MHD_Response *response_of(const struct gp_http_reply *reply)
{
	return reply->sent ? MHD_create_response_from_buffer_with_free_callback_cls(reply->length, reply->body,
										    reply->sent, reply->body_of)
			   : MHD_create_response_from_buffer_with_free_callback(reply->length, reply->body, gp_free);
}

/* Takes the body. */
static enum MHD_Result send_reply(struct peer *p, struct MHD_Connection *c, struct gp_http_reply *reply)
{
	struct gp_http_server *s = p->server;
	if (s->bodies_bytes >= GP_HTTP_BODIES_MOST || reply->length > GP_HTTP_BODIES_MOST - s->bodies_bytes) {
		release(reply);
		*reply = (struct gp_http_reply){.retry_s = 1};
		gp_http_reply_text(reply, MHD_HTTP_SERVICE_UNAVAILABLE, "too many answers are being read\n");
	}
	struct MHD_Response *r = response_of(reply);
	if (!r) {
		release(reply);
		return MHD_NO;
	}
	add_headers(r, reply);
	const enum MHD_Result result = MHD_queue_response(c, (unsigned)reply->status, r);
	if (result == MHD_YES) {
		p->body_bytes = reply->length;
		s->bodies_bytes += reply->length;
	}
	MHD_destroy_response(r);
	return result;
}

static enum MHD_Result refuse(struct peer *p, struct MHD_Connection *c, int status, const char *text)
{
	struct gp_http_reply reply = {0};
	gp_http_reply_text(&reply, status, text);
	return send_reply(p, c, &reply);
}

/* "localhost:9440", "127.0.0.1", "[::1]:9440" */
static bool names_loopback(const char *text)
{
	char host[256];
	const char *end = text[0] == '[' ? strchr(text, ']') : text + strcspn(text, ":");
	const char *begin = text + (text[0] == '[');
	if (!end || (size_t)(end - begin) >= sizeof host)
		return false;
	snprintf(host, sizeof host, "%.*s", (int)(end - begin), begin);
	return gp_addr_is_loopback(host);
}

static struct gp_span bearer(struct MHD_Connection *c)
{
	static const char scheme[] = "Bearer ";
	const char *text = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
	if (!text || strncasecmp(text, scheme, sizeof scheme - 1) != 0)
		return (struct gp_span){NULL, 0};
	text += sizeof scheme - 1;
	return (struct gp_span){(const uint8_t *)text, strlen(text)};
}

static void write_address(struct MHD_Connection *c, char out[64])
{
	char host[NI_MAXHOST];
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *addr = info ? info->client_addr : NULL;
	const socklen_t len =
		addr && addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	out[0] = '\0';
	if (addr && getnameinfo(addr, len, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0)
		gp_addr_format(host, 0, out, 64);
}

static bool has_content(struct MHD_Connection *c)
{
	const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
	return (length && strcmp(length, "0") != 0) ||
	       MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

/* What is refused before its path is looked at; 0: nothing. */
static int misfit(const struct gp_http_server *s, struct MHD_Connection *c, const char *method, const char **why)
{
	const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
		*why = "only GET and HEAD are answered here\n";
		return MHD_HTTP_METHOD_NOT_ALLOWED;
	}
	if (has_content(c)) {
		*why = "no request here has content\n";
		return MHD_HTTP_BAD_REQUEST;
	}
	if (s->set.loopback && host && !names_loopback(host)) {
		*why = "this address is for programs of this machine: Host has to be localhost, 127.0.0.1 or [::1]\n";
		return MHD_HTTP_FORBIDDEN;
	}
	return 0;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path, const char *method,
				  const char *version, const char *data, size_t *bytes, void **request)
{
	static char begun;
	struct gp_http_server *s = arg;
	struct peer *p = peer_of(c);
	const char *why = NULL;
	char address[64];
	(void)version;
	(void)data;
	if (!p || *bytes > 0)
		return MHD_NO;
	const int wrong = misfit(s, c, method, &why);
	if (wrong)
		return refuse(p, c, wrong, why);
	if (!*request) { /* answered behind the request's end, so that the connection stays for the next one */
		*request = &begun;
		return MHD_YES;
	}
	write_address(c, address);
	const struct gp_http_request q = {
		.path = path, .token = bearer(c), .peer = address, .certified = s->pem.ca && is_certified(c)};
	struct gp_http_reply reply = {0};
	s->set.answer(s->set.arg, &q, &reply);
	if (reply.status == 0)
		gp_http_reply_text(&reply, MHD_HTTP_NOT_FOUND, "there is nothing here\n");
	gp_log(net, GP_LOG_DEBUG, "http: %s asks for %s: %d", address, path, reply.status);
	return send_reply(p, c, &reply);
}

/* --- the thread -------------------------------------------------------------------------------------------------- */

static void on_library_log(void *arg, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

static void on_library_log(void *arg, const char *fmt, va_list ap)
{
	char text[512];
	(void)arg;
	vsnprintf(text, sizeof text, fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	gp_log(net, GP_LOG_DEBUG, "http: %s", text);
}

static void add_option(struct MHD_OptionItem *list, int *count, enum MHD_OPTION option, intptr_t value, void *pointer)
{
	list[(*count)++] = (struct MHD_OptionItem){option, value, pointer};
}

/* Its own copy of the listening socket, which the library closes with the daemon. */
static struct MHD_Daemon *start_daemon(struct gp_http_server *s)
{
	struct MHD_OptionItem list[16];
	int n = 0;
	const int fd = fcntl(s->listen_fd, F_DUPFD_CLOEXEC, 0);
	unsigned flags = MHD_USE_EPOLL | MHD_USE_ERROR_LOG;
	if (fd < 0)
		return NULL;
	add_option(list, &n, MHD_OPTION_LISTEN_SOCKET, fd, NULL);
	add_option(list, &n, MHD_OPTION_CONNECTION_LIMIT, GP_HTTP_CONNECTIONS, NULL);
	add_option(list, &n, MHD_OPTION_CONNECTION_TIMEOUT, s->set.idle_s > 0 ? s->set.idle_s : GP_HTTP_IDLE_S, NULL);
	add_option(list, &n, MHD_OPTION_CONNECTION_MEMORY_LIMIT, GP_HTTP_HEAD_BYTES, NULL);
	if (!s->set.loopback)
		add_option(list, &n, MHD_OPTION_PER_IP_CONNECTION_LIMIT, GP_HTTP_OF_ADDRESS, NULL);
	add_option(list, &n, MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, s);
	add_option(list, &n, MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, s);
	if (s->pem.cert) {
		flags |= MHD_USE_TLS;
		add_option(list, &n, MHD_OPTION_HTTPS_MEM_CERT, 0, s->pem.cert);
		add_option(list, &n, MHD_OPTION_HTTPS_MEM_KEY, 0, s->pem.key);
		add_option(list, &n, MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)PRIORITIES);
	}
	if (s->pem.ca)
		add_option(list, &n, MHD_OPTION_HTTPS_MEM_TRUST, 0, s->pem.ca);
	add_option(list, &n, MHD_OPTION_END, 0, NULL);
	struct MHD_Daemon *d = MHD_start_daemon(flags, s->port, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER,
						on_library_log, NULL, MHD_OPTION_ARRAY, list, MHD_OPTION_END);
	if (!d)
		close(fd);
	return d;
}

static bool take_fresh(struct gp_http_server *s, struct gp_http_pem *out)
{
	pthread_mutex_lock(&s->mutex);
	const bool reloaded = s->reloaded;
	*out = s->fresh;
	s->fresh = (struct gp_http_pem){0};
	s->reloaded = false;
	pthread_mutex_unlock(&s->mutex);
	return reloaded;
}

/* The old daemon goes on until there is a new one, so that there is one whatever fails. */
static void restart(struct gp_http_server *s)
{
	struct gp_http_pem fresh, old = s->pem;
	if (!take_fresh(s, &fresh))
		return;
	s->pem = fresh;
	struct MHD_Daemon *next = start_daemon(s);
	if (next) {
		MHD_stop_daemon(s->daemon); /* its connections are forgotten by on_connection */
		s->daemon = next;
	} else {
		gp_log(main, GP_LOG_ERROR, "%s: the new certificate cannot be served; the old one stays", s->set.name);
		s->pem = old;
		old = fresh;
	}
	gp_http_pem_free(&old);
}

static int poll_ms(struct gp_http_server *s)
{
	MHD_UNSIGNED_LONG_LONG ms;
	return MHD_get_timeout(s->daemon, &ms) == MHD_YES && ms < TURN_MS ? (int)ms : TURN_MS;
}

static int epoll_of(struct gp_http_server *s)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	return info ? info->epoll_fd : -1;
}

/* Without a descriptor to accept a connection with, the library tries again at once, and for ever. */
static void pause_without_room(const struct gp_http_server *s)
{
	struct pollfd waiting = {.fd = s->listen_fd, .events = POLLIN}, woken = {.fd = s->wake_fd, .events = POLLIN};
	if (!s->peers && poll(&waiting, 1, 0) == 1)
		poll(&woken, 1, NO_ROOM_MS);
}

static void *run(void *arg)
{
	struct gp_http_server *s = arg;
	uint64_t count;
	setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
	pthread_setname_np(pthread_self(), "gp-http");
	while (!atomic_load(&s->stopping)) {
		struct pollfd fds[2] = {{.fd = s->wake_fd, .events = POLLIN}, {.fd = epoll_of(s), .events = POLLIN}};
		poll(fds, 2, poll_ms(s));
		if (fds[0].revents && read(s->wake_fd, &count, sizeof count) == sizeof count)
			restart(s);
		MHD_run(s->daemon);
		end_slow(s);
		pause_without_room(s);
	}
	MHD_stop_daemon(s->daemon);
	return NULL;
}

static void wake(const struct gp_http_server *s)
{
	const uint64_t one = 1;
	if (write(s->wake_fd, &one, sizeof one) != sizeof one)
		gp_log(net, GP_LOG_DEBUG, "http: the thread cannot be woken: %s", strerror(errno));
}

/* --- from outside ------------------------------------------------------------------------------------------------ */

static int listen_at(const struct addrinfo *a)
{
	const int yes = 1;
	const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0)
		return fd;
	const int code = errno;
	close(fd);
	errno = code;
	return -1;
}

static uint16_t bound_port(int fd)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof addr;
	if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
		return 0;
	return ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
						: ((struct sockaddr_in *)&addr)->sin_port);
}

static enum gp_status open_listener(struct gp_http_server *s, struct gp_err *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *found;
	char port[8], at[300];
	snprintf(port, sizeof port, "%u", s->set.port);
	gp_addr_format(s->set.host, s->set.port, at, sizeof at);
	const int code = getaddrinfo(s->set.host, port, &hints, &found);
	if (code != 0) /* as of --listen */
		GP_FAIL(err, GP_INVALID, "%s: cannot listen on %s: %s", s->set.name, at,
			code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
	s->listen_fd = listen_at(found);
	const int failed = errno;
	freeaddrinfo(found);
	if (s->listen_fd < 0) {
		const enum gp_status status = gp_addr_fail_listen(s->set.host, s->set.port, failed, err);
		gp_err_prefix(err, "%s", s->set.name);
		return status;
	}
	s->port = bound_port(s->listen_fd);
	return GP_OK;
}

static enum gp_status copy_paths(struct gp_http_server *s, struct gp_err *err)
{
	const struct gp_http_settings *set = &s->set;
	s->cert_path = set->cert ? gp_strdup(set->cert) : NULL;
	s->key_path = set->key ? gp_strdup(set->key) : NULL;
	s->ca_path = set->ca ? gp_strdup(set->ca) : NULL;
	if ((set->cert && !s->cert_path) || (set->key && !s->key_path) || (set->ca && !s->ca_path))
		GP_FAIL(err, GP_NOMEM, "out of memory for %s", set->name);
	return GP_OK;
}

/* The program's signals are for its other threads. */
static int start_thread(struct gp_http_server *s)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	const int code = pthread_create(&s->thread, NULL, run, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

static enum gp_status start(struct gp_http_server *s, struct gp_err *err)
{
	GP_TRY(copy_paths(s, err));
	GP_TRY(gp_http_pem_read(s->set.name, s->cert_path, s->key_path, s->ca_path, &s->pem, err));
	GP_TRY(open_listener(s, err));
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wake_fd < 0)
		GP_FAIL(err, GP_IO, "%s: %s", s->set.name, strerror(errno));
	s->daemon = start_daemon(s);
	if (!s->daemon)
		GP_FAIL(err, GP_IO, "%s: the HTTP server does not start (--log net=debug says more)", s->set.name);
	const int code = start_thread(s);
	if (code != 0) {
		MHD_stop_daemon(s->daemon);
		GP_FAIL(err, GP_IO, "%s: no thread: %s", s->set.name, strerror(code));
	}
	return GP_OK;
}

static void free_server(struct gp_http_server *s)
{
	if (s->listen_fd >= 0)
		close(s->listen_fd);
	if (s->wake_fd >= 0)
		close(s->wake_fd);
	gp_http_pem_free(&s->pem);
	gp_http_pem_free(&s->fresh);
	gp_free(s->cert_path);
	gp_free(s->key_path);
	gp_free(s->ca_path);
	pthread_mutex_destroy(&s->mutex);
	gp_free(s);
}

enum gp_status gp_http_server_start(const struct gp_http_settings *set, struct gp_http_server **out, struct gp_err *err)
{
	struct gp_http_server *s;
	GP_TRY(gp_alloc_array((void **)&s, 1, sizeof *s, err));
	s->set = *set;
	s->listen_fd = s->wake_fd = -1;
	pthread_mutex_init(&s->mutex, NULL);
	const enum gp_status status = start(s, err);
	if (status != GP_OK)
		free_server(s);
	else
		*out = s;
	return status;
}

uint16_t gp_http_server_port(const struct gp_http_server *s)
{
	return s->port;
}

enum gp_status gp_http_server_reload(struct gp_http_server *s, struct gp_err *err)
{
	struct gp_http_pem fresh = {0};
	if (!s->cert_path)
		return GP_OK;
	GP_TRY(gp_http_pem_read(s->set.name, s->cert_path, s->key_path, s->ca_path, &fresh, err));
	pthread_mutex_lock(&s->mutex);
	struct gp_http_pem unused = s->fresh;
	s->fresh = fresh;
	s->reloaded = true;
	pthread_mutex_unlock(&s->mutex);
	gp_http_pem_free(&unused);
	wake(s);
	return GP_OK;
}

void gp_http_server_stop(struct gp_http_server *s)
{
	if (!s)
		return;
	atomic_store(&s->stopping, true);
	wake(s);
	pthread_join(s->thread, NULL);
	free_server(s);
}
