/* SPDX-License-Identifier: Apache-2.0
 *
 * What --advertise names. See advertise.h. Test: tests/unit/test_advertise.c
 */
#include "server/advertise.h"

#include <string.h>

#include "common/net/conn.h"

static enum gp_status add(struct gp_advertise *a, const char *text, size_t len, struct gp_err *err)
{
	char one[GP_ADVERTISE_TEXT], host[256];
	uint16_t port;
	if (len >= sizeof one)
		GP_FAIL(err, GP_USAGE, "an address of %zu characters is too long", len);
	snprintf(one, sizeof one, "%.*s", (int)len, text);
	GP_TRY(gp_addr_parse(one, host, &port, err));
	if (!gp_addr_is_plain(one))
		GP_FAIL(err, GP_USAGE,
			"clients cannot connect to '%s': a host has letters, digits, '.', '-' and '_', "
			"and a port is not 0",
			one);
	if (a->count == GP_ERROR_SERVERS)
		GP_FAIL(err, GP_USAGE, "%d servers may be named at most", GP_ERROR_SERVERS);
	memcpy(a->text[a->count++], one, sizeof one);
	return GP_OK;
}

enum gp_status gp_advertise_parse(struct gp_advertise *a, const char *text, struct gp_err *err)
{
	a->count = 0;
	while (text && *text) {
		const size_t len = strcspn(text, ",");
		if (add(a, text, len, err) != GP_OK)
			return gp_err_prefix(err, "--advertise");
		text += len;
		if (*text == ',' && !*++text)
			GP_FAIL(err, GP_USAGE, "--advertise: a comma with no HOST:PORT behind it");
	}
	return GP_OK;
}

size_t gp_advertise_names(const struct gp_advertise *a, const char *out[GP_ERROR_SERVERS])
{
	for (int i = 0; i < a->count; i++)
		out[i] = a->text[i];
	return (size_t)a->count;
}
