/* SPDX-License-Identifier: Apache-2.0
 *
 * A link emulated in user space: listens, connects every connection on to one
 * target, and passes bytes with a rate, a delay and the faults that were asked
 * for. `gpclient link --listen` is this with a command line. TCP on both sides
 * is the kernel's: what is late or lost is late or lost to the processes, and
 * TCP_INFO does not see it.
 *
 * Threads: loop thread. Test: tests/unit/test_link_relay.c
 */
#ifndef GP_LINK_RELAY_H
#define GP_LINK_RELAY_H

#include "client/link/link_tunnel.h"

struct gp_link_spec {
	const char *listen, *to;       /* "ADDR:PORT", "HOST:PORT" */
	struct gp_link_shape shape[2]; /* up, down */
	struct gp_link_faults faults;
	double connect_timeout_s;
};

struct gp_link_relay {
	uv_loop_t *loop;
	struct gp_link_spec spec; /* the texts stay the caller's */
	struct gp_link_counts counts;
	/* private */
	struct gp_listener *listener;
	struct gp_link_tunnel *tunnels;
	struct gp_link_joining *joining;
	char to_host[256];
	uint16_t to_port;
};

/* On failure nothing is left open. */
enum gp_status gp_link_relay_start(struct gp_link_relay *r, uv_loop_t *loop, const struct gp_link_spec *spec,
				   struct gp_err *err);
uint16_t gp_link_relay_port(const struct gp_link_relay *r);
/* Closes everything; run the loop until it has nothing left. `counts` stay. */
void gp_link_relay_stop(struct gp_link_relay *r);

#endif
