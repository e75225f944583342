/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's listener and what the sessions share. See server.h.
 * Test: tests/unit/test_server.c
 */
#include "server/server.h"

#include <string.h>

#include "common/log.h"

#define LISTEN_BACKLOG 128

/* What this process may use: of the machine, or of its control group. */
static uint64_t physical_memory_bytes(void)
{
	uint64_t total = uv_get_total_memory(), group = uv_get_constrained_memory();
	return group > 0 && group < total ? group : total;
}

static void on_accepted(void *arg, struct gp_conn *conn)
{
	gp_server_session_new(arg, conn);
}

static enum gp_status open_listener(struct gp_server *srv, struct gp_err *err)
{
	char host[256];
	uint16_t port;
	GP_TRY(gp_addr_parse(srv->set.listen, host, &port, err));
	if (!srv->set.insecure && !gp_addr_is_loopback(host))
		GP_FAIL(err, GP_USAGE,
			"--listen %s: anyone who reaches this address could use the server; listen on 127.0.0.1, or "
			"say "
			"--insecure on a network you trust",
			srv->set.listen);
	return gp_tcp_listen(srv->loop, host, port, LISTEN_BACKLOG, on_accepted, srv, &srv->listener, err);
}

static enum gp_status open_workers(struct gp_server *srv, struct gp_err *err)
{
	GP_TRY(gp_worker_new(srv->loop, "gp-compute", 1, &srv->compute, err));
	return gp_worker_new(srv->loop, "gp-codec", (int)srv->set.codec_threads, &srv->codec, err);
}

enum gp_status gp_server_start(struct gp_server *srv, uv_loop_t *loop, const struct gp_server_settings *set,
			       struct gp_err *err)
{
	memset(srv, 0, sizeof *srv);
	srv->loop = loop;
	srv->set = *set;
	srv->memory_limit_bytes = physical_memory_bytes() / 10 * 9;
	srv->session_memory_bytes =
		set->session_memory_bytes > 0 ? (uint64_t)set->session_memory_bytes : physical_memory_bytes() / 2;
	int threads = set->threads > 0 ? (int)set->threads : (int)uv_available_parallelism();
	enum gp_status status = gp_device_open(set->device, threads, &srv->device, err);
	if (status == GP_OK)
		status = open_workers(srv, err);
	if (status == GP_OK)
		status = open_listener(srv, err);
	if (status != GP_OK)
		gp_server_deinit(srv);
	return status;
}

static void maybe_stopped(struct gp_server *srv)
{
	if (srv->stopping && srv->session_count == 0 && srv->stopped) {
		void (*stopped)(void *arg) = srv->stopped;
		srv->stopped = NULL;
		stopped(srv->arg);
	}
}

void gp_server_session_gone(struct gp_server *srv)
{
	srv->session_count--;
	maybe_stopped(srv);
}

void gp_server_stop(struct gp_server *srv, void (*stopped)(void *arg), void *arg)
{
	srv->stopping = true;
	srv->stopped = stopped;
	srv->arg = arg;
	if (srv->listener)
		gp_listener_close(srv->listener);
	srv->listener = NULL;
	for (struct gp_server_session *s = srv->sessions, *next; s; s = next) {
		next = gp_server_session_next(s);
		gp_server_session_stop(s, GP_CANCELED, "the server is stopping");
	}
	maybe_stopped(srv);
}

void gp_server_deinit(struct gp_server *srv)
{
	if (srv->listener)
		gp_listener_close(srv->listener);
	gp_worker_free(srv->compute);
	gp_worker_free(srv->codec);
	if (srv->device)
		srv->device->ops->close(srv->device);
	srv->listener = NULL;
	srv->compute = srv->codec = NULL;
	srv->device = NULL;
}

uint16_t gp_server_port(const struct gp_server *srv)
{
	return gp_listener_port(srv->listener);
}
