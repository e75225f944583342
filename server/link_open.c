/* SPDX-License-Identifier: Apache-2.0
 *
 * OPEN makes the session's body where there is room for it; what the body reports
 * is told to the client. PROTOCOL.md section 5. What OPEN asks for is read in open.c,
 * what is computed is in body.c. Test: tests/unit/test_server.c, tests/unit/test_server_devices.c
 */
#include "server/link.h"

#include "common/base/log.h"
#include "common/wire/interval.h"
#include "server/handover.h"
#include "server/session_status.h"
#include "server/usage.h"

/* What the body reports. */

static struct gp_server_link *link_of(void *session)
{
	return ((struct gp_server_session *)session)->link;
}

static void body_failed(void *arg, enum gp_status status, struct gp_err *err)
{
	struct gp_server_session *s = arg;
	if (status == GP_DEVICE) {
		char title[GP_DEVICE_TITLE];
		gp_err_prefix(err, "%s", gp_device_title(s->device->dev, title));
		gp_server_device_failed(s->device);
	}
	if (status == GP_DAMAGED)
		gp_server_link_lose(s->link, status, err->text);
	else
		gp_server_link_stop(s->link, status, err->text);
}

static void body_idle(void *arg)
{
	gp_server_session_settle(arg);
}

/* What of READY lies in messages of its own. */
struct choice {
	Gpsplit__Choice message;
	Gpsplit__Trial trial[GP_PRECISIONS], *trials[GP_PRECISIONS];
};

static void log_choice(const struct gp_server_session *s, const struct gp_precision_trial *trial)
{
	char text[GP_PRECISION_TRIAL_TEXT];
	gp_precision_trial_text(trial, text);
	gp_client_log_write(&s->srv->log, &s->client, GP_LOG_INFO, "session %llu: chosen: %s (%s)",
			    (unsigned long long)s->id, gp_precision_name(s->precision),
			    text[0] ? text : "the device has no other");
}

/* NULL where OPEN has named the precision. */
static Gpsplit__Choice *describe_choice(struct gp_server_session *s, struct choice *out)
{
	const struct gp_precision_trial *trial;
	s->precision = gp_body_precision(s->body, &trial);
	if (!trial)
		return NULL;
	log_choice(s, trial);
	gpsplit__choice__init(&out->message);
	out->message.precision = (uint32_t)s->precision;
	out->message.trial = out->trials;
	for (uint32_t p = 0; p < GP_PRECISIONS; p++) {
		if (trial->pass_s[p] <= 0)
			continue;
		Gpsplit__Trial *t = &out->trial[out->message.n_trial];
		gpsplit__trial__init(t);
		t->precision = p;
		t->pass_s = trial->pass_s[p];
		out->trials[out->message.n_trial++] = t;
	}
	return &out->message;
}

static void body_ready(void *arg)
{
	struct gp_server_session *s = arg;
	struct gp_server_link *l = s->link;
	struct gp_err err;
	Gpsplit__Ready ready = GPSPLIT__READY__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	char device[GP_DEVICE_TITLE], title[GP_SESSION_TITLE];
	ready.memory_bytes = s->memory_bytes;
	ready.device_memory_bytes = s->device_bytes;
	ready.threads = (uint32_t)s->device->dev->threads;
	ready.device = (char *)gp_device_title(s->device->dev, device);
	ready.clips = true;
	ready.calibrates = true;
	ready.decays = true;
	ready.intervals = true;
	ready.ladders = true;
	ready.recomputes = true;
	ready.encodes_maps = true;
	ready.codes = (1u << GP_STRUCTS) - 1;
	ready.lengths = gp_body_takes_lengths(s->body);
	struct choice choice;
	ready.choice = describe_choice(s, &choice);
	m.body_case = GPSPLIT__CONTROL__BODY_READY;
	m.ready = &ready;
	l->state = GP_LINK_RUN;
	s->ready = true;
	gp_usage_follow(s);
	gp_tally_opened(s);
	if (s->restored_step > 0)
		gp_server_session_event(s, GP_LOG_INFO, "session_opened", "checkpoint",
					"%s goes on from the checkpoint of step %llu",
					gp_server_session_title(s, title), (unsigned long long)s->restored_step);
	else
		gp_server_session_event(s, GP_LOG_INFO, "session_opened", "new", "%s is open",
					gp_server_session_title(s, title));
	l->progress_ns = gp_now_ns();
	gp_server_link_sent(l, gp_control_send(l->ch, &m, &err), &err);
}

static void body_measured(void *arg, uint64_t step, const double *sum, int n)
{
	struct gp_server_link *l = link_of(arg);
	struct gp_err err;
	gp_server_link_sent(l, gp_control_send_grad_squares(l->ch, step, sum, n, &err), &err);
}

static void body_chunk_done(void *arg, uint64_t step, uint32_t chunk)
{
	struct gp_server_link *l = link_of(arg);
	struct gp_err err;
	gp_server_link_sent(l, gp_control_send_chunk_done(l->ch, step, chunk, &err), &err);
}

static void body_intervals(void *arg, uint64_t step, uint32_t chunks, const struct gp_interval *interval, int count)
{
	struct gp_server_link *l = link_of(arg);
	struct gp_err err;
	gp_server_link_sent(l, gp_control_send_intervals(l->ch, step, chunks, interval, count, &err), &err);
}

static void tell_commit(const struct gp_server_link *l, struct gp_committed *c)
{
	struct gp_tcp_figures tcp;
	*c = *gp_body_committed(l->session->body);
	gp_channel_figures(l->ch, &tcp);
	if (!gp_body_has_ladder(l->session->body) || !tcp.valid)
		return;
	c->link_bytes = tcp.bytes_acked;
	c->link_busy_us = tcp.busy_us;
}

static void body_committed(void *arg, uint64_t step)
{
	struct gp_server_link *l = link_of(arg);
	struct gp_err err;
	gp_log(session, GP_LOG_DEBUG, "session %llu committed step %llu", (unsigned long long)l->session->id,
	       (unsigned long long)step + 1);
	struct gp_committed c;
	tell_commit(l, &c);
	gp_server_link_sent(l, gp_control_send_committed(l->ch, step, &c, &err), &err);
	gp_server_link_stepped(l);
}

static void body_checkpointed(void *arg, uint64_t step, const char *why)
{
	struct gp_server_link *l = link_of(arg);
	struct gp_err err;
	if (why && gp_server_handover_lost(arg)) /* else a client that wants checkpoints would give up */
		return;
	gp_log(session, GP_LOG_DEBUG, "session %llu committed step %llu, %s a checkpoint",
	       (unsigned long long)l->session->id, (unsigned long long)step + 1, why ? "without" : "with");
	struct gp_committed c;
	tell_commit(l, &c);
	gp_server_link_sent(l, gp_control_send_checkpointed(l->ch, step, &c, why, &err), &err);
	gp_server_link_stepped(l);
}

/* The client may have gone. A server that stops says which step the run falls back to, and why. */
static void body_checkpoint_failed(void *arg, uint64_t step, const char *why)
{
	struct gp_server_session *s = arg;
	char title[GP_SESSION_TITLE], run[GP_RUN_ID_HEX];
	if (s->ending && (s->srv->draining || s->srv->stopping))
		return;
	gp_run_id_text(s->stored_as, run);
	gp_server_session_event(s, s->srv->state ? GP_LOG_WARN : GP_LOG_DEBUG, "checkpoint_failed", NULL,
				"%s: no checkpoint of step %llu (run %.*s): %s", gp_server_session_title(s, title),
				(unsigned long long)step, GP_RUN_DIGITS_SHOWN, run, why);
}

static void body_params_sent(void *arg, uint32_t count)
{
	struct gp_server_link *l = link_of(arg);
	struct gp_err err;
	gp_server_link_sent(l, gp_control_send_params_done(l->ch, count, &err), &err);
}

/* OPEN. */

static struct gp_body_site site_of(const struct gp_server_session *s)
{
	return (struct gp_body_site){s->device->dev, s->device->compute};
}

static void log_memory(const struct gp_server_session *s)
{
	char title[GP_DEVICE_TITLE], own[64] = "";
	if (s->device->memory_bytes > 0)
		snprintf(own, sizeof own, "%.0f MiB of its memory, ", (double)s->device_bytes / 1048576);
	gp_client_log_write(&s->srv->log, &s->client, GP_LOG_INFO, "session %llu: %s, %s%.0f MiB",
			    (unsigned long long)s->id, gp_device_title(s->device->dev, title), own,
			    (double)s->memory_bytes / 1048576);
}

/*
 * What no device took is refused for good only where every device refused it so: one that had no room now may have it
 * later, and that is what the client has to hear.
 */
static enum gp_status refuse(struct gp_server_session *s, enum gp_status status, struct gp_err *err)
{
	if (status == GP_NOMEM && s->busy.code == GP_BUSY) {
		*err = s->busy;
		return GP_BUSY;
	}
	return status;
}

/* What a name may have of the devices' memory counts on all of them together: another one does not help. */
static enum gp_status check_device_quota(const struct gp_server_session *s, uint64_t bytes, struct gp_err *err)
{
	const struct gp_usage others = gp_usage_of(s->srv, s->who, s);
	return gp_usage_check_device(gp_limits_find(s->srv->limits, s->who), &others, s->who, bytes, err);
}

/* A device that has no room for it does not matter where another one has. */
static enum gp_status body_estimated(void *arg, const struct gp_body_need *need, struct gp_body_site *at,
				     struct gp_err *err)
{
	struct gp_server_session *s = arg;
	struct gp_err none;
	enum gp_status status = gp_usage_reserve_memory(s, need->host, err);
	if (status == GP_OK)
		status = check_device_quota(s, need->device, err);
	if (status != GP_OK)
		return refuse(s, status, err);
	status = gp_server_device_reserve(&s->srv->devices, s->device, s->device_bytes, need->device, err);
	if (status == GP_OK) {
		s->device_bytes = need->device;
		log_memory(s);
		return GP_OK;
	}
	if (status == GP_BUSY)
		s->busy = *err;
	if (gp_server_session_choose_device(s, &none) != GP_OK)
		return refuse(s, status, err);
	*at = site_of(s);
	return GP_OK;
}

enum gp_status gp_server_link_open(struct gp_server_link *l, const struct gp_body_spec *asked, uint64_t restore_step,
				   struct gp_err *err)
{
	static const struct gp_body_cbs cbs = {.estimated = body_estimated,
					       .ready = body_ready,
					       .failed = body_failed,
					       .measured = body_measured,
					       .chunk_done = body_chunk_done,
					       .intervals = body_intervals,
					       .committed = body_committed,
					       .checkpointed = body_checkpointed,
					       .checkpoint_failed = body_checkpoint_failed,
					       .params_sent = body_params_sent,
					       .idle = body_idle};
	struct gp_server *srv = l->srv;
	struct gp_body_spec spec = *asked;
	const struct gp_body_workers workers = {
		.build = srv->build, .codec = srv->codec, .slow_codec = srv->slow_codec, .disk = srv->disk};
	enum gp_status status = gp_server_session_use_state(l->session, restore_step, &spec, err);
	if (status == GP_OK)
		status = gp_usage_reserve_memory(l->session, gp_graph_bytes(spec.graph) + gp_body_staging_bytes(&spec),
						 err);
	l->session->precision = spec.session.precision;
	if (status == GP_OK)
		status = gp_server_session_choose_device(l->session, err);
	if (status != GP_OK) {
		gp_graph_free(spec.graph);
		return status;
	}
	gp_client_log_write(
		&srv->log, &l->client, GP_LOG_INFO,
		"session %llu: %d nodes, %llu parameters, %d samples a chunk, window %d, %s, passes of %.3g s at most",
		(unsigned long long)l->session->id, spec.graph->nodes, (unsigned long long)spec.graph->param_elements,
		spec.session.chunk_samples, spec.session.window,
		spec.session.choose_precision ? "the fastest precision" : gp_precision_name(spec.session.precision),
		spec.task_s);
	const struct gp_body_site at = site_of(l->session);
	spec.share = l->session->device_share;
	GP_TRY(gp_body_new(&at, &workers, l->ch, &spec, &cbs, l->session, &l->session->body, err));
	l->state = GP_LINK_LOAD;
	return GP_OK;
}
