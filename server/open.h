/* SPDX-License-Identifier: Apache-2.0
 *
 * From the message OPEN to what a body is made by: every number, name and graph
 * in it is checked against what this server allows, and nothing but the graph
 * is allocated. Not here: whether there is room for it (link_open.c), and its
 * restore_step (session.h).
 *
 * Threads: any; what it reads of the server stays as it was at the start. Test: tests/unit/test_server.c
 */
#ifndef GP_SERVER_OPEN_H
#define GP_SERVER_OPEN_H

#include "common/wire/control.h"
#include "server/body.h"
#include "server/server.h"

/* spec->graph is the caller's. GP_INVALID, GP_UNSUPPORTED, GP_PROTO say what of the message cannot be; *spec is then
 * of no use. */
enum gp_status gp_server_open_read(const struct gp_server *srv, uint64_t id, const Gpsplit__Open *m,
				   struct gp_body_spec *spec, struct gp_err *err);

/* The longer of the forward and the backward pass over a chunk, in seconds, on a device of this speed. GP_INVALID: it is over
 * the limit; the text has what it takes, what is allowed, and the --chunks that would fit. Or an update is, by its codecs. */
enum gp_status gp_server_open_check_time(const struct gp_graph *graph, const struct gp_session_spec *session,
					 const struct gp_speed *speed, double limit_s, double *task_s,
					 struct gp_err *err);

#endif
