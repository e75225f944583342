/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any bytes give a refused message or a graph that goes back onto the
 * wire and returns as the same bytes (common/wire/graph_msg.h). Seeds: packed bodies
 * of the models.
 */
#include <string.h>

#include "common/wire/graph_msg.h"
#include "common/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct gp_graph *graph_of(const uint8_t *data, size_t size)
{
	struct gp_err err = {0};
	struct gp_graph *g = NULL;
	Gpsplit__Graph *m = gpsplit__graph__unpack(NULL, size, data);
	if (!m)
		return NULL;
	if (gp_graph_from_msg(m, (uint64_t)1 << 32, &g, &err) != GP_OK)
		gp_require(!g && err.text[0]);
	gpsplit__graph__free_unpacked(m, NULL);
	return g;
}

static uint8_t *bytes_of(const struct gp_graph *g, size_t *len)
{
	struct gp_err err;
	Gpsplit__Graph *m;
	gp_require(gp_graph_to_msg(g, &m, &err) == GP_OK);
	*len = gpsplit__graph__get_packed_size(m);
	uint8_t *bytes = gp_calloc(*len, 1);
	gp_require(bytes);
	gpsplit__graph__pack(m, bytes);
	gp_graph_msg_free(m);
	return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len, again;
	struct gp_graph *g = graph_of(data, size);
	if (!g)
		return 0;
	uint8_t *first = bytes_of(g, &len);
	struct gp_graph *back = graph_of(first, len);
	gp_require(back && back->nodes == g->nodes && back->param_elements == g->param_elements);
	uint8_t *second = bytes_of(back, &again);
	gp_require(len == again && memcmp(first, second, len) == 0);
	gp_free(first);
	gp_free(second);
	gp_graph_free(g);
	gp_graph_free(back);
	return 0;
}
