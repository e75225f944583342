/* SPDX-License-Identifier: Apache-2.0
 *
 * gpserverd and the service manager. See service.h. Test: tests/e2e/service.sh
 */
#include "server/service.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/conn.h"

#define STATUS_MS      2000
#define SPARE_SECONDS  5 /* beyond --drain-for, to leave */
#define BEATS_PER_LIFE 3 /* of the watchdog, one of which may be late */

static int socket_option(int fd, int option)
{
	int value = 0;
	socklen_t len = sizeof value;
	return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : -1;
}

/* "127.0.0.1:4400" of a listening TCP socket. */
static enum gp_status address_of(int fd, char out[GP_SERVICE_ADDRESS], struct gp_err *err)
{
	struct sockaddr_storage at = {0};
	socklen_t len = sizeof at;
	char host[INET6_ADDRSTRLEN];
	const bool named = getsockname(fd, (struct sockaddr *)&at, &len) == 0;
	const bool v6 = at.ss_family == AF_INET6;
	const struct sockaddr_in *in = (const struct sockaddr_in *)&at;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&at;
	if (!named || (!v6 && at.ss_family != AF_INET) || socket_option(fd, SO_TYPE) != SOCK_STREAM ||
	    socket_option(fd, SO_ACCEPTCONN) != 1)
		GP_FAIL(err, GP_INVALID,
			"the service manager handed over something else than a TCP socket that listens; the socket "
			"unit needs ListenStream=ADDRESS:PORT and Accept=no");
	inet_ntop(at.ss_family, v6 ? (const void *)&in6->sin6_addr : (const void *)&in->sin_addr, host, sizeof host);
	gp_addr_format(host, ntohs(v6 ? in6->sin6_port : in->sin_port), out, GP_SERVICE_ADDRESS);
	return GP_OK;
}

static enum gp_status take_socket(struct gp_service *s, struct gp_server_settings *set, struct gp_err *err)
{
	const int count = gp_notify_sockets();
	if (count == 0)
		return GP_OK;
	if (count > 1)
		GP_FAIL(err, GP_INVALID,
			"the service manager handed over %d sockets, and one is taken; give the socket unit one "
			"ListenStream=",
			count);
	GP_TRY(address_of(GP_NOTIFY_FIRST_SOCKET, s->address, err));
	set->listen_fd = GP_NOTIFY_FIRST_SOCKET;
	set->listen = s->address;
	return GP_OK;
}

enum gp_status gp_service_open(struct gp_service *s, struct gp_server_settings *set, struct gp_err *err)
{
	struct gp_err why;
	memset(s, 0, sizeof *s);
	if (gp_notify_open(&s->notify, &why) != GP_OK)
		gp_log(main, GP_LOG_WARN, "%s", why.text);
	const enum gp_status status = take_socket(s, set, err);
	if (status != GP_OK)
		gp_notify_close(&s->notify);
	return status;
}

static void tell_status(struct gp_service *s)
{
	char text[GP_NOTIFY_TEXT / 2];
	const struct gp_server *srv = s->srv;
	if (s->stopping)
		snprintf(text, sizeof text, "stopping: %d sessions have not ended yet", srv->session_count);
	else
		snprintf(text, sizeof text, "%d sessions of %lld, %d connections", srv->session_count,
			 (long long)srv->set.max_sessions, srv->link_count);
	if (strcmp(text, s->told) != 0 && gp_notify_send(&s->notify, "STATUS=%s", text))
		strcpy(s->told, text);
}

static void on_timer(uv_timer_t *timer)
{
	struct gp_service *s = timer->data;
	if (s->notify.watchdog_us > 0)
		gp_notify_send(&s->notify, "WATCHDOG=1");
	tell_status(s);
}

static uint64_t period_ms(const struct gp_service *s)
{
	const uint64_t beat = s->notify.watchdog_us / 1000 / BEATS_PER_LIFE;
	if (s->notify.watchdog_us == 0 || beat > STATUS_MS)
		return STATUS_MS;
	return beat > 0 ? beat : 1;
}

void gp_service_ready(struct gp_service *s, const struct gp_server *srv)
{
	if (s->notify.fd < 0)
		return;
	s->srv = srv;
	s->runs = true;
	uv_timer_init(srv->loop, &s->timer);
	s->timer.data = s;
	uv_timer_start(&s->timer, on_timer, 0, period_ms(s));
	uv_unref((uv_handle_t *)&s->timer);
	gp_notify_send(&s->notify, "READY=1");
}

void gp_service_reloading(const struct gp_service *s)
{
	gp_notify_send(&s->notify, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(gp_now_ns() / 1000));
}

void gp_service_reloaded(const struct gp_service *s)
{
	gp_notify_send(&s->notify, "READY=1");
}

void gp_service_stopping(struct gp_service *s, double seconds)
{
	s->stopping = true;
	gp_notify_send(&s->notify, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%.0f", (seconds + SPARE_SECONDS) * 1e6);
	if (s->runs)
		tell_status(s);
}

void gp_service_close(struct gp_service *s)
{
	if (s->runs)
		uv_close((uv_handle_t *)&s->timer, NULL);
	s->runs = false;
	gp_notify_close(&s->notify);
}
