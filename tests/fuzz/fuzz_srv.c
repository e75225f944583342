/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any bytes as the answer of a name server (common/net/srv.h) are refused, or become servers that can be connected
 * to, as many as there is room for; putting them in order loses none.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/conn.h"
#include "common/net/srv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t draw(void *arg, uint32_t below)
{
	uint32_t *state = arg;
	gp_require(below > 0);
	*state = *state * 1664525u + 1013904223u;
	return *state % below;
}

static uint32_t ports(const struct gp_srv_answer *a)
{
	uint32_t sum = 0;
	for (int i = 0; i < a->count; i++)
		sum += a->target[i].port;
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_srv_answer a;
	struct gp_err err = {0};
	char text[300];
	uint32_t state = 1;
	if (gp_srv_read(data, size, &a, &err) != GP_OK) {
		gp_require(err.text[0]);
		return 0;
	}
	gp_require(a.count > 0 && a.count <= GP_SRV_MAX);
	const uint32_t sum = ports(&a);
	gp_srv_order(&a, draw, &state);
	gp_require(ports(&a) == sum);
	for (int i = 0; i < a.count; i++) {
		gp_addr_format(a.target[i].host, a.target[i].port, text, sizeof text);
		gp_require(gp_addr_is_plain(text));
		gp_require(i == 0 || a.target[i - 1].priority <= a.target[i].priority);
	}
	return 0;
}
