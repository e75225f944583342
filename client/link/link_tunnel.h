/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection through the emulated link: bytes of both directions by rate
 * and delay, and the faults of its plan. Not here: the listener and the list of
 * connections (link_relay.h).
 *
 * Threads: loop thread. Test: tests/unit/test_link_relay.c
 */
#ifndef GP_LINK_TUNNEL_H
#define GP_LINK_TUNNEL_H

#include "client/link/link_pace.h"
#include "client/link/link_plan.h"
#include "common/net/conn.h"

/* Counts over all connections together; pairs are by direction. */
struct gp_link_counts {
	uint64_t connections, refused;
	uint64_t bytes[2];     /* passed on */
	uint64_t swallowed[2]; /* taken and not passed on, behind a drop */
	uint64_t corrupted[2]; /* bytes */
	uint64_t stalls, drops;
};

struct gp_link_tunnel;

struct gp_link_tunnel_spec {
	uint64_t number;                   /* of the connection, from 0 */
	const struct gp_link_shape *shape; /* 2 */
	struct gp_link_plan plan;
	uint64_t stall_ns; /* 0 = for ever */
	enum gp_link_drop_mode drop_mode;
	uint64_t seed;
	struct gp_link_counts *counts; /* outlives the tunnel */
	/* The connections are closed; the tunnel is freed behind this call. */
	void (*gone)(void *arg, struct gp_link_tunnel *t);
	void *arg;
};

/* Takes `near` (also on failure), not reading yet. Nothing is read before gp_link_tunnel_join. */
enum gp_status gp_link_tunnel_new(uv_loop_t *loop, struct gp_conn *near, const struct gp_link_tunnel_spec *spec,
				  struct gp_link_tunnel **out, struct gp_err *err);
/* Hands over the connection to the target; takes `far`. NULL: there is none, and the tunnel closes. Called once,
 * also on a closed tunnel, which lives until then. */
void gp_link_tunnel_join(struct gp_link_tunnel *t, struct gp_conn *far);
void gp_link_tunnel_close(struct gp_link_tunnel *t);

/* The owner's list. */
struct gp_link_tunnel **gp_link_tunnel_next(struct gp_link_tunnel *t);

#endif
