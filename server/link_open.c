/* SPDX-License-Identifier: Apache-2.0
 *
 * A session's body: made at OPEN where there is room for it, and what it reports
 * told to the client. PROTOCOL.md section 5. What OPEN asks for is read in open.c,
 * what is computed is in body.c. Test: tests/unit/test_server.c, tests/unit/test_server_devices.c
 */
#include "server/link.h"

#include "common/base/log.h"
#include "server/open.h"

/* What the body reports. */

static struct gp_server_session *session_of(void *run)
{
	return ((struct gp_server_run *)run)->session;
}

static void body_failed(void *arg, enum gp_status status, struct gp_err *err)
{
	struct gp_server_run *r = arg;
	if (status == GP_DEVICE) {
		char title[GP_DEVICE_TITLE];
		gp_err_prefix(err, "%s", gp_device_title(r->device->dev, title));
		gp_server_device_failed(r->device);
	}
	gp_server_session_stop(r->session, status, err->text);
}

static void body_idle(void *arg)
{
	gp_server_run_settle(arg);
}

static void body_ready(void *arg)
{
	struct gp_server_run *r = arg;
	struct gp_server_session *s = r->session;
	struct gp_err err;
	Gpsplit__Ready ready = GPSPLIT__READY__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	char device[GP_DEVICE_TITLE];
	ready.memory_bytes = r->memory_bytes;
	ready.device_memory_bytes = r->device_bytes;
	ready.threads = (uint32_t)r->device->dev->threads;
	ready.device = (char *)gp_device_title(r->device->dev, device);
	ready.clips = true;
	m.body_case = GPSPLIT__CONTROL__BODY_READY;
	m.ready = &ready;
	s->state = STATE_RUN;
	r->ready = true;
	s->progress_ns = gp_now_ns();
	gp_server_session_sent(s, gp_control_send(s->ch, &m, &err), &err);
}

static void body_measured(void *arg, uint64_t step, const double *sum, int n)
{
	struct gp_server_session *s = session_of(arg);
	struct gp_err err;
	gp_server_session_sent(s, gp_control_send_grad_squares(s->ch, step, sum, n, &err), &err);
}

static void body_committed(void *arg, uint64_t step)
{
	struct gp_server_session *s = session_of(arg);
	struct gp_err err;
	gp_log(session, GP_LOG_DEBUG, "session %llu committed step %llu", (unsigned long long)s->id,
	       (unsigned long long)step);
	gp_server_session_sent(s, gp_control_send_committed(s->ch, step, &err), &err);
}

static void body_kept(void *arg, uint64_t step, const char *why)
{
	struct gp_server_session *s = session_of(arg);
	struct gp_err err;
	gp_log(session, why && s->srv->state ? GP_LOG_WARN : GP_LOG_DEBUG, "session %llu committed step %llu, %s %s",
	       (unsigned long long)s->id, (unsigned long long)step, why ? "without a checkpoint:" : "with",
	       why ? why : "a checkpoint");
	gp_server_session_sent(s, gp_control_send_kept(s->ch, step, why, &err), &err);
}

static void body_params_sent(void *arg, uint32_t count)
{
	struct gp_server_session *s = session_of(arg);
	struct gp_err err;
	gp_server_session_sent(s, gp_control_send_params_done(s->ch, count, &err), &err);
}

/* OPEN. */

/* Of the server's account, `bytes` for this session in all. */
static enum gp_status reserve_memory(struct gp_server_run *r, uint64_t bytes, struct gp_err *err)
{
	struct gp_server *srv = r->srv;
	if (bytes > srv->session_memory_bytes)
		GP_FAIL(err, GP_NOMEM,
			"this session needs %.0f MiB, the server allows %.0f MiB; use smaller chunks or a smaller "
			"window",
			(double)bytes / 1048576, (double)srv->session_memory_bytes / 1048576);
	if (bytes > srv->memory_limit_bytes - (srv->memory_used_bytes - r->memory_bytes))
		GP_FAIL(err, GP_BUSY, "this session needs %.0f MiB, but other sessions have taken the server's memory",
			(double)bytes / 1048576);
	srv->memory_used_bytes += bytes - r->memory_bytes;
	r->memory_bytes = bytes;
	return GP_OK;
}

static struct gp_body_place place_of(const struct gp_server_run *r)
{
	return (struct gp_body_place){r->device->dev, r->device->compute};
}

static void log_memory(const struct gp_server_run *r)
{
	char title[GP_DEVICE_TITLE], own[64] = "";
	if (r->device->memory_bytes > 0)
		snprintf(own, sizeof own, "%.0f MiB of its memory, ", (double)r->device_bytes / 1048576);
	gp_log(session, GP_LOG_INFO, "session %llu: %s, %s%.0f MiB", (unsigned long long)r->session->id,
	       gp_device_title(r->device->dev, title), own, (double)r->memory_bytes / 1048576);
}

/*
 * What no device took is refused for good only where every device refused it so: one that had no room now may have it
 * later, and that is what the client has to hear.
 */
static enum gp_status refuse(struct gp_server_run *r, enum gp_status status, struct gp_err *err)
{
	if (status == GP_NOMEM && r->busy.code == GP_BUSY) {
		*err = r->busy;
		return GP_BUSY;
	}
	return status;
}

/* A device that has no room for it does not matter where another one has. */
static enum gp_status body_estimated(void *arg, const struct gp_body_need *need, struct gp_body_place *at,
				     struct gp_err *err)
{
	struct gp_server_run *r = arg;
	struct gp_err none;
	enum gp_status status = reserve_memory(r, need->host, err);
	if (status != GP_OK)
		return refuse(r, status, err);
	status = gp_server_device_reserve(&r->srv->devices, r->device, r->device_bytes, need->device, err);
	if (status == GP_OK) {
		r->device_bytes = need->device;
		log_memory(r);
		return GP_OK;
	}
	if (status == GP_BUSY)
		r->busy = *err;
	if (gp_server_run_place(r, &none) != GP_OK)
		return refuse(r, status, err);
	*at = place_of(r);
	return GP_OK;
}

enum gp_status gp_server_session_open(struct gp_server_session *s, const Gpsplit__Open *m, struct gp_err *err)
{
	static const struct gp_body_cbs cbs = {.estimated = body_estimated,
					       .ready = body_ready,
					       .failed = body_failed,
					       .measured = body_measured,
					       .committed = body_committed,
					       .kept = body_kept,
					       .params_sent = body_params_sent,
					       .idle = body_idle};
	struct gp_server *srv = s->srv;
	struct gp_body_spec spec;
	const struct gp_body_workers workers = {.build = srv->build, .codec = srv->codec, .disk = srv->disk};
	GP_TRY(gp_server_open_read(srv, s->id, m, &spec, err));
	enum gp_status status = gp_server_run_use_state(s->run, m->restore_step, &spec, err);
	if (status == GP_OK)
		status = reserve_memory(s->run, gp_body_staging_bytes(&spec), err);
	s->run->precision = spec.precision;
	if (status == GP_OK)
		status = gp_server_run_place(s->run, err);
	if (status != GP_OK) {
		gp_graph_free(spec.graph);
		return status;
	}
	gp_log(session, GP_LOG_INFO, "session %llu: %d nodes, %llu parameters, %d samples a chunk, window %d, %s",
	       (unsigned long long)s->id, spec.graph->nodes, (unsigned long long)spec.graph->param_elements,
	       spec.chunk_samples, spec.window, gp_precision_name(spec.precision));
	const struct gp_body_place at = place_of(s->run);
	GP_TRY(gp_body_new(&at, &workers, s->ch, &spec, &cbs, s->run, &s->run->body, err));
	s->state = STATE_BUILD;
	gp_channel_set_control_max(s->ch, GP_CONTROL_STEADY_BYTES);
	return GP_OK;
}
