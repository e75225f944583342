/* SPDX-License-Identifier: Apache-2.0
 *
 * A link emulated in user space: the listener and its connections. See
 * link_relay.h. Test: tests/unit/test_link_relay.c
 */
#include "client/link/link_relay.h"

#include <string.h>

#include "common/base/log.h"

#define LISTEN_BACKLOG 128
#define SEGMENT_BYTES  1448 /* of an Ethernet */

static void on_gone(void *arg, struct gp_link_tunnel *t)
{
	struct gp_link_relay *r = arg;
	struct gp_link_tunnel **at = &r->tunnels;
	while (*at != t)
		at = gp_link_tunnel_next(*at);
	*at = *gp_link_tunnel_next(t);
}

/* A tunnel whose far end is being connected. */
struct gp_link_joining {
	struct gp_link_relay *relay;
	struct gp_link_tunnel *tunnel;
	struct gp_connector *connector;
	struct gp_link_joining *next;
};

static void on_connected(void *arg, struct gp_conn *far, const struct gp_err *why)
{
	struct gp_link_joining *j = arg, **at = &j->relay->joining;
	while (*at != j)
		at = &(*at)->next;
	*at = j->next;
	if (!far && why->code != GP_CANCELED) {
		j->relay->counts.refused++;
		gp_log(net, GP_LOG_WARN, "%s", why->text);
	}
	gp_link_tunnel_join(j->tunnel, far);
	gp_free(j);
}

static bool has_rate(const struct gp_link_relay *r)
{
	return r->spec.shape[GP_LINK_UP].rate_bps > 0 || r->spec.shape[GP_LINK_DOWN].rate_bps > 0;
}

static void connect_on(struct gp_link_relay *r, struct gp_link_tunnel *t)
{
	struct gp_err err = {0};
	struct gp_link_joining *j = NULL;
	enum gp_status status = gp_alloc_array((void **)&j, 1, sizeof *j, &err);
	if (status == GP_OK) {
		*j = (struct gp_link_joining){.relay = r, .tunnel = t};
		status = gp_tcp_connect(r->loop, r->to_host, r->to_port, (uint64_t)(r->spec.connect_timeout_s * 1e3),
					on_connected, j, &j->connector, &err);
	}
	if (status == GP_OK) {
		if (has_rate(r))
			gp_tcp_connect_segment(j->connector, SEGMENT_BYTES);
		j->next = r->joining;
		r->joining = j;
		return;
	}
	gp_log(net, GP_LOG_ERROR, "%s", err.text);
	gp_link_tunnel_join(t, NULL);
	gp_free(j);
}

static void on_accepted(void *arg, struct gp_conn *near)
{
	struct gp_link_relay *r = arg;
	struct gp_err err = {0};
	struct gp_link_tunnel *t;
	struct gp_link_tunnel_spec spec = {.number = r->counts.connections++,
					   .shape = r->spec.shape,
					   .stall_ns = (uint64_t)(r->spec.faults.stall_s * 1e9),
					   .drop_mode = r->spec.faults.drop_mode,
					   .seed = r->spec.faults.seed,
					   .counts = &r->counts,
					   .gone = on_gone,
					   .arg = r};
	gp_link_plan_draw(&r->spec.faults, spec.number, &spec.plan);
	gp_log(net, GP_LOG_DEBUG, "connection %llu from %s", (unsigned long long)spec.number, near->peer);
	if (gp_link_tunnel_new(r->loop, near, &spec, &t, &err) != GP_OK) {
		gp_log(net, GP_LOG_ERROR, "%s", err.text);
		return;
	}
	*gp_link_tunnel_next(t) = r->tunnels;
	r->tunnels = t;
	connect_on(r, t);
}

enum gp_status gp_link_relay_start(struct gp_link_relay *r, uv_loop_t *loop, const struct gp_link_spec *spec,
				   struct gp_err *err)
{
	char host[256];
	uint16_t port;
	memset(r, 0, sizeof *r);
	r->loop = loop;
	r->spec = *spec;
	if (gp_addr_parse_remote(spec->to, r->to_host, &r->to_port, err) != GP_OK)
		return gp_err_prefix(err, "--to");
	if (gp_addr_parse(spec->listen, host, &port, err) != GP_OK)
		return gp_err_prefix(err, "--listen");
	GP_TRY(gp_tcp_listen(loop, host, port, LISTEN_BACKLOG, on_accepted, r, &r->listener, err));
	if (has_rate(r))
		gp_listener_segment(r->listener, SEGMENT_BYTES);
	return GP_OK;
}

uint16_t gp_link_relay_port(const struct gp_link_relay *r)
{
	return gp_listener_port(r->listener);
}

void gp_link_relay_stop(struct gp_link_relay *r)
{
	if (r->listener)
		gp_listener_close(r->listener);
	r->listener = NULL;
	for (struct gp_link_tunnel *t = r->tunnels, *next; t; t = next) {
		next = *gp_link_tunnel_next(t);
		gp_link_tunnel_close(t);
	}
	while (r->joining) /* `done` takes it out of the list */
		gp_tcp_connect_cancel(r->joining->connector);
}
