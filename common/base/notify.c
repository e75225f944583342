/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol of systemd's sd_notify(3). See notify.h. Test: tests/unit/test_notify.c
 */
#include "common/base/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKETS_MOST 1024

/* A whole number from 1 on; 0 where the variable is missing or says something else. */
static uint64_t number_of(const char *variable)
{
	const char *text = getenv(variable);
	char *end;
	if (!text || text[0] < '0' || text[0] > '9')
		return 0;
	errno = 0;
	const unsigned long long value = strtoull(text, &end, 10);
	return errno || *end ? 0 : value;
}

/* WATCHDOG_PID and LISTEN_PID: variables that a parent left behind are not for this process. */
static bool is_for_us(const char *variable)
{
	return number_of(variable) == (uint64_t)getpid();
}

/* "/run/systemd/notify", or "@name" for one in the abstract namespace. */
static enum gp_status address_of(const char *path, struct sockaddr_un *out, socklen_t *len, struct gp_err *err)
{
	const size_t length = strlen(path);
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	if ((path[0] != '/' && path[0] != '@') || length < 2 || length >= sizeof out->sun_path)
		GP_FAIL(err, GP_INVALID, "NOTIFY_SOCKET=%.40s names no socket: the service manager is told nothing",
			path);
	memcpy(out->sun_path, path, length);
	if (path[0] == '@')
		out->sun_path[0] = '\0';
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	return GP_OK;
}

enum gp_status gp_notify_open(struct gp_notify *n, struct gp_err *err)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address;
	socklen_t len;
	*n = (struct gp_notify){.fd = -1};
	if (!path || !path[0])
		return GP_OK;
	GP_TRY(address_of(path, &address, &len, err));
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&address, len)) {
		const int os_error = errno;
		if (fd >= 0)
			close(fd);
		GP_FAIL(err, GP_INVALID, "NOTIFY_SOCKET=%s: %s: the service manager is told nothing", path,
			strerror(os_error));
	}
	n->fd = fd;
	if (!getenv("WATCHDOG_PID") || is_for_us("WATCHDOG_PID"))
		n->watchdog_us = number_of("WATCHDOG_USEC");
	return GP_OK;
}

void gp_notify_close(struct gp_notify *n)
{
	if (n->fd >= 0)
		close(n->fd);
	*n = (struct gp_notify){.fd = -1};
}

bool gp_notify_send(const struct gp_notify *n, const char *fmt, ...)
{
	char text[GP_NOTIFY_TEXT];
	va_list args;
	if (n->fd < 0)
		return false;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	const ssize_t length = (ssize_t)strlen(text);
	return send(n->fd, text, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT) == length;
}

int gp_notify_sockets(void)
{
	const uint64_t count = is_for_us("LISTEN_PID") ? number_of("LISTEN_FDS") : 0;
	return count <= SOCKETS_MOST ? (int)count : 0;
}
