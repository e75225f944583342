/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses as users write them. No resolving here (conn_tcp.c).
 * Test: tests/unit/test_addr.c
 */
#include "common/net/conn.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define HOST_BYTES 256

static enum gp_status parse_port(const char *text, const char *digits, uint16_t *port, struct gp_err *err)
{
	unsigned value = 0;
	const char *p = digits;
	for (; *p >= '0' && *p <= '9' && value <= UINT16_MAX; p++)
		value = value * 10 + (unsigned)(*p - '0');
	if (p == digits || *p || value > UINT16_MAX)
		GP_FAIL(err, GP_USAGE, "'%s': the port must be a number from 0 to 65535, not '%s'", text, digits);
	*port = (uint16_t)value;
	return GP_OK;
}

/* *host and *len get the host without brackets; returns the colon before the port, NULL when there is none. */
static const char *split_host(const char *text, const char **host, size_t *len)
{
	if (text[0] == '[') {
		const char *end = strchr(text, ']');
		*host = text + 1;
		*len = end ? (size_t)(end - text - 1) : 0;
		return end && end[1] == ':' ? end + 1 : NULL;
	}
	const char *colon = strrchr(text, ':');
	*host = text;
	*len = colon ? (size_t)(colon - text) : strlen(text);
	return colon;
}

enum gp_status gp_addr_parse(const char *text, char host[HOST_BYTES], uint16_t *port, struct gp_err *err)
{
	const char *begin;
	size_t len;
	const char *colon = split_host(text, &begin, &len), *scheme = strstr(text, "://");
	if (strchr(text, ','))
		GP_FAIL(err, GP_USAGE, "'%s': one HOST:PORT is wanted here, not a list", text);
	if (scheme)
		GP_FAIL(err, GP_USAGE, "'%s': write HOST:PORT alone, without '%.*s', for example 127.0.0.1:4400", text,
			(int)(scheme + 3 - text), text);
	if (!colon && text[0] && strspn(text, "0123456789") == strlen(text))
		GP_FAIL(err, GP_USAGE, "'%s' has no host: write HOST:PORT, for example 127.0.0.1:4400", text);
	if (!colon)
		GP_FAIL(err, GP_USAGE, "'%s' has no port: write HOST:PORT, for example 127.0.0.1:4400 or [::1]:4400",
			text);
	if (len == 0)
		GP_FAIL(err, GP_USAGE, "'%s' has no host: write HOST:PORT, for example 127.0.0.1:4400", text);
	if (len >= HOST_BYTES)
		GP_FAIL(err, GP_USAGE, "the host name is longer than %d characters", HOST_BYTES - 1);
	if (text[0] != '[' && memchr(text, ':', len))
		GP_FAIL(err, GP_USAGE, "'%s': write an IPv6 address in brackets, for example [::1]:4400", text);
	uint16_t value = 0;
	GP_TRY(parse_port(text, colon + 1, &value, err));
	memcpy(host, begin, len);
	host[len] = '\0';
	*port = value;
	return GP_OK;
}

enum gp_status gp_addr_parse_remote(const char *text, char host[HOST_BYTES], uint16_t *port, struct gp_err *err)
{
	GP_TRY(gp_addr_parse(text, host, port, err));
	if (*port == 0)
		GP_FAIL(err, GP_USAGE, "'%s': nothing can be connected to at port 0: give the port that the server has",
			text);
	return GP_OK;
}

bool gp_addr_is_plain(const char *text)
{
	static const char host_bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:%";
	char host[HOST_BYTES];
	uint16_t port;
	struct gp_err ignored;
	return gp_addr_parse(text, host, &port, &ignored) == GP_OK && port > 0 && host[0] != '-' &&
	       strspn(host, host_bytes) == strlen(host);
}

bool gp_addr_is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;
	if (strcasecmp(host, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &v6) != 1)
		return false;
	return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

void gp_addr_format(const char *host, uint16_t port, char *out, size_t size)
{
	const bool v6 = strchr(host, ':') != NULL;
	snprintf(out, size, v6 ? "[%s]:%u" : "%s:%u", host, port);
}
