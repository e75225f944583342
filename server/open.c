/* SPDX-License-Identifier: Apache-2.0
 *
 * What OPEN asks for, checked. See open.h; PROTOCOL.md section 5.2.
 * Test: tests/unit/test_server.c; fuzz: tests/fuzz/fuzz_server_session.c
 */
#include "server/open.h"

#include "common/wire/graph_msg.h"

static enum gp_status read_spec(const struct gp_server *srv, uint64_t id, const Gpsplit__Open *m,
				struct gp_body_spec *spec, struct gp_err *err)
{
	*spec = (struct gp_body_spec){.id = id, .weights = m->weights, .state_hash = m->state_hash};
	GP_TRY(gp_session_spec_read(m, srv->set.window, &spec->session, err));
	spec->session.undo = srv->set.resume_window_s > 0;
	if (!m->graph)
		GP_FAIL(err, GP_PROTO, "open: no graph");
	return gp_graph_from_msg(m->graph, srv->session_memory_bytes / sizeof(float), &spec->graph, err);
}

/* A task of the compute thread cannot be stopped, so how long it may take is settled before it begins. */
static enum gp_status check_work(const struct gp_server *srv, const struct gp_body_spec *spec, struct gp_err *err)
{
	const double work = (double)gp_graph_work(spec->graph) * spec->session.chunk_samples;
	if (work > srv->set.chunk_work)
		GP_FAIL(err, GP_INVALID,
			"open: a chunk takes %.3g multiply-accumulates, the server allows %.3g (--chunk-work); use "
			"smaller "
			"chunks",
			work, srv->set.chunk_work);
	return GP_OK;
}

enum gp_status gp_server_open_read(const struct gp_server *srv, uint64_t id, const Gpsplit__Open *m,
				   struct gp_body_spec *spec, struct gp_err *err)
{
	GP_TRY(read_spec(srv, id, m, spec, err));
	enum gp_status status = check_work(srv, spec, err);
	if (status != GP_OK)
		gp_graph_free(spec->graph);
	return status;
}
