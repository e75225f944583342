/* SPDX-License-Identifier: Apache-2.0
 *
 * SRV records: where the servers behind a name are, _gpsplit._tcp.NAME (RFC 2782), asked of the system's resolver. What it
 * answers decides where a client connects to, and nothing else: a certificate has to have the name that was asked for.
 *
 * Threads: loop thread; the question itself is asked on one of libuv's. Test: tests/unit/test_srv.c, tests/e2e/servers.sh
 */
#ifndef GP_SRV_H
#define GP_SRV_H

#include <uv.h>

#include "common/base/status.h"

#define GP_SRV_MAX 16 /* records of one answer that are looked at */

struct gp_srv_target {
	char host[256];
	uint16_t port, priority, weight;
};

struct gp_srv_answer {
	struct gp_srv_target target[GP_SRV_MAX];
	int count;
};

/* A message of DNS. GP_PEER: it is none, or has no record of a server. */
enum gp_status gp_srv_read(const uint8_t *message, size_t len, struct gp_srv_answer *out, struct gp_err *err);
/* In the order in which they are to be tried: by priority, and within one at random by weight. `draw` gives 0 to `below` - 1. */
void gp_srv_order(struct gp_srv_answer *a, uint32_t (*draw)(void *arg, uint32_t below), void *arg);

struct gp_srv_lookup;
/* `done` runs once, with the servers in their order, or NULL and why there are none (GP_PEER). When this call itself fails,
 * `done` does not run. */
enum gp_status gp_srv_look_up(uv_loop_t *loop, const char *name,
			      void (*done)(void *arg, const struct gp_srv_answer *a, const struct gp_err *err),
			      void *arg, struct gp_srv_lookup **out, struct gp_err *err);
/* Before `done`, which then never runs. The question that is under way ends by itself. */
void gp_srv_cancel(struct gp_srv_lookup *l);

#endif
