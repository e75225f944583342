/* SPDX-License-Identifier: Apache-2.0
 *
 * One GET over loopback, as plain as it can be. Not a test by itself.
 */
#ifndef GP_TEST_HTTP_GET_H
#define GP_TEST_HTTP_GET_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/mem.h"

/* The body of the answer, for gp_free; *status: of HTTP. */
static inline char *http_get(uint16_t port, const char *path, int *status)
{
	const struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	char request[128];
	size_t n = 0, room = 1 << 20;
	char *text = gp_calloc(room, 1);
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
	snprintf(request, sizeof request, "GET %s HTTP/1.0\r\n\r\n", path);
	assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
	for (ssize_t got; (got = recv(fd, text + n, room - 1 - n, 0)) > 0;)
		n += (size_t)got;
	close(fd);
	assert_int_equal(sscanf(text, "HTTP/1.%*d %d", status), 1);
	char *body = strstr(text, "\r\n\r\n");
	assert_non_null(body);
	memmove(text, body + 4, strlen(body + 4) + 1);
	return text;
}

#endif
