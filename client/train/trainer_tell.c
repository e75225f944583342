/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training tells of itself: the progress line, the JSON log, the monitor of --metrics. See trainer_impl.h.
 * Tests: tests/unit/test_trainer.c, tests/e2e/json_keys.sh
 */
#include "client/train/trainer_impl.h"

#include <math.h>

#include "client/codecs/codec_events.h"
#include "client/log/figures.h"
#include "client/log/value_log.h"
#include "client/monitor/run_monitor.h"
#include "client/train/run_state.h"
#include "common/base/log.h"

#define RECENT_KEEPS 8 /* of what bounded the steps before, seven eighths count on */

double gp_training_mean(double sum, uint64_t n)
{
	return n ? sum / (double)n : NAN;
}

/* Values to predict are neither right nor wrong. */
bool gp_training_has_values(const struct gp_training *r)
{
	return r->spec->engine->spec.loss == GP_LOSS_SQUARED_ERROR;
}

double gp_training_accuracy(const struct gp_training *r, const struct gp_step_result *sum)
{
	return gp_training_has_values(r) ? NAN : gp_training_mean((double)sum->correct, sum->samples);
}

bool gp_training_clips_norm(const struct gp_training *r)
{
	return r->spec->engine->spec.session.optim.clip_norm > 0.0;
}

/* Behind the codecs, or before, with the padding that chunks have. */
static uint64_t payload_bytes(const struct gp_account *a, bool tensors)
{
	static const enum gp_frame_type up[] = {GP_FRAME_ACT_UP, GP_FRAME_GRAD_UP};
	static const enum gp_frame_type down[] = {GP_FRAME_ACT_DOWN, GP_FRAME_GRAD_DOWN};
	uint64_t sum = 0;
	for (int i = 0; i < 2; i++) {
		const struct gp_kind_account *u = &a->sent.kind[up[i]], *d = &a->received.kind[down[i]];
		sum += tensors ? u->uncompressed_bytes + d->uncompressed_bytes : u->payload_bytes + d->payload_bytes;
	}
	return sum;
}

/* --- progress line -------------------------------------------------------------------------------------------------- */

void gp_training_note_rate(struct gp_training *r, const struct gp_engine_figures *now, uint64_t now_ns)
{
	const uint64_t bytes[GP_RATE_SERIES] = {now->tcp.bytes_acked, now->tcp.bytes_received};
	if (now->tcp.valid)
		gp_rate_note(&r->rate, now_ns, bytes);
}

/* What the kernel knows to have arrived in the last seconds; nothing where there is no TCP. */
static void rate_text(const struct gp_training *r, char text[64])
{
	text[0] = '\0';
	const double up = gp_rate_per_s(&r->rate, 0), down = gp_rate_per_s(&r->rate, 1);
	if (isfinite(up) && isfinite(down))
		snprintf(text, 64, "  up %.1f MB/s down %.1f MB/s", up * 1e-6, down * 1e-6);
}

/* What most of the time of the last steps went to. */
static void note_bound(struct gp_training *r, const struct gp_bound_by *b)
{
	for (int i = 0; i < GP_BOUND_COUNT; i++)
		r->recent.ns[i] = r->recent.ns[i] / RECENT_KEEPS * (RECENT_KEEPS - 1) + b->ns[i];
	r->recent.steps += b->steps;
}

static void bound_text(const struct gp_training *r, char text[48])
{
	const uint64_t total = gp_bound_by_total_ns(&r->recent);
	const enum gp_bound most = gp_bound_by_largest(&r->recent);
	text[0] = '\0';
	if (total > 0 && r->spec->engine->spec.server)
		snprintf(text, 48, "  %.0f%% %s", 100.0 * (double)r->recent.ns[most] / (double)total,
			 gp_bound_name(most));
}

static void show_progress(struct gp_training *r, const struct gp_engine_figures *now, double step_s)
{
	const struct gp_trainer_spec *spec = r->spec;
	char text[320], rate[64], acc[32] = "", smaller[32] = "", cuts[32] = "", bound[48], at[48] = "";
	const uint64_t now_ns = gp_now_ns();
	uint64_t epoch = (r->step - 1) / spec->steps_per_epoch,
		 epochs = (spec->total_steps - 1) / spec->steps_per_epoch;
	uint64_t payload = payload_bytes(&now->account, false);
	double left = (double)(spec->total_steps - r->step) * (double)(now_ns - r->begin_ns - r->eval_ns) * 1e-9 /
		      (double)r->here;
	gp_training_note_rate(r, now, now_ns);
	rate_text(r, rate);
	bound_text(r, bound);
	if (payload > 0)
		snprintf(smaller, sizeof smaller, "  %.2fx smaller",
			 (double)payload_bytes(&now->account, true) / (double)payload);
	if (now->reconnects > 0)
		snprintf(cuts, sizeof cuts, "  %u %s", now->reconnects,
			 now->reconnects == 1 ? "reconnect" : "reconnects");
	if (now->of_several)
		snprintf(at, sizeof at, "  at %.40s", now->server);
	if (!gp_training_has_values(r))
		snprintf(acc, sizeof acc, "  acc %.2f%%", 100 * gp_training_accuracy(r, &r->epoch));
	snprintf(text, sizeof text, "epoch %llu/%llu  step %llu/%llu  loss %.4f%s  %.3f s/batch%s%s%s%s%s  %.0f s left",
		 (unsigned long long)epoch + 1, (unsigned long long)epochs + 1, (unsigned long long)r->step,
		 (unsigned long long)spec->total_steps, gp_training_mean(r->epoch.loss_sum, r->epoch.samples), acc,
		 step_s, bound, rate, smaller, cuts, at, left);
	gp_progress_update(&r->progress, now_ns, text);
}

static void note_eval(struct gp_training *r, double seconds)
{
	char text[GP_SCORES_TEXT];
	if (!r->spec->progress)
		return;
	gp_progress_clear(&r->progress);
	fprintf(stderr, "epoch %llu: validation %s (%.1f s)\n",
		(unsigned long long)((r->step + r->spec->steps_per_epoch - 1) / r->spec->steps_per_epoch),
		gp_scores_and_loss(&r->report->val, r->spec->tells_matthews, text), seconds);
}

/* --- JSON log -------------------------------------------------------------------------------------------------------- */

/* A run of hours does not end because its log cannot be written: closing the log fails, in the end. */

static void write_line(struct gp_training *r, const char *event, json_t *line)
{
	struct gp_err err;
	if (gp_json_log_write(r->spec->log, event, line, &err) == GP_OK)
		return;
	gp_progress_clear(&r->progress);
	gp_log(main, GP_LOG_WARN, "%s", err.text);
}

/* Which epoch the newest step is in; the first has number 1. */
static uint64_t epoch_of(const struct gp_training *r)
{
	return (r->step - 1) / r->spec->steps_per_epoch + 1;
}

static json_t *integer_or_null(bool known, uint64_t n)
{
	return known ? json_integer((json_int_t)n) : json_null();
}

static void log_step(struct gp_training *r, const struct gp_step_result *result, float lr, double seconds,
		     const struct gp_bound_by *bound, const struct gp_engine_figures *now)
{
	if (!r->spec->log) /* a JSON line allocates: a steady step without --log-json does not */
		return;
	struct gp_account delta = now->account;
	const bool linked = now->flows != NULL;
	const struct gp_link_rate rate = gp_link_rate(&r->before.tcp, &now->tcp, seconds);
	gp_account_subtract(&delta, &r->before.account);
	json_t *line = json_pack("{s:I, s:I, s:o, s:o, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "step",
				 (json_int_t)r->step, "epoch", (json_int_t)epoch_of(r), "loss",
				 gp_json_number(gp_training_mean(result->loss_sum, result->samples)), "acc",
				 gp_json_number(gp_training_accuracy(r, result)), "lr", (double)lr, "seconds", seconds,
				 "compute_s", (double)(now->compute_ns - r->before.compute_ns) * 1e-9, "wire_up_bytes",
				 integer_or_null(linked, delta.sent.wire_bytes), "wire_down_bytes",
				 integer_or_null(linked, delta.received.wire_bytes), "up_bytes_per_s",
				 gp_json_number(rate.up), "down_bytes_per_s", gp_json_number(rate.down), "rtt_us",
				 integer_or_null(now->rtt_us > 0, now->rtt_us), "reconnects",
				 integer_or_null(linked, now->reconnects - r->before.reconnects), "link",
				 linked ? gp_account_json(&delta) : json_null());
	json_object_set_new(line, "bound_by", gp_bound_by_json(bound, linked));
	if (gp_training_clips_norm(r))
		json_object_set_new(line, "grad_norm", gp_json_number(result->grad_norm));
	write_line(r, "step", line);
}

static void log_eval(struct gp_training *r, double seconds)
{
	if (!r->spec->log)
		return;
	json_t *line = json_pack("{s:I, s:I, s:f}", "step", (json_int_t)r->step, "epoch", (json_int_t)epoch_of(r),
				 "seconds", seconds);
	write_line(r, "eval", gp_scores_json(line, &r->report->val));
}

/* `ended`: all of the newest step has been told. */
static void log_timeline(struct gp_training *r, bool ended)
{
	json_t *line = gp_timeline_record_take(r->times, r->step, ended);
	if (line)
		write_line(r, "timeline", line);
}

/* Histograms, and what codecs lose. */
static void log_values(struct gp_training *r)
{
	const char *event;
	json_t *line;
	while ((line = gp_value_log_take(r->spec->engine->values, r->step, &event)))
		write_line(r, event, line);
}

/* What the privacy meter has found in the newest step, if anything. */
static void log_privacy(struct gp_training *r)
{
	const struct gp_privacy_report *p = &r->report->privacy;
	for (int d = 0; r->spec->log && p->step == r->step && d < GP_DIRECTIONS; d++) {
		json_t *line = gp_privacy_event_json(p, (enum gp_direction)d);
		if (line)
			write_line(r, "privacy", line);
	}
}

/* What --codec auto did behind the step. */
static void tell_codecs(struct gp_training *r)
{
	const struct gp_codec_events *e = r->spec->engine->codec_events;
	if (!e || (e->changes == 0 && e->errors == 0))
		return;
	for (int i = 0; r->spec->log && i < e->errors; i++)
		write_line(r, "codec_error", gp_codec_error_json(e, i));
	for (int i = 0; r->spec->log && i < e->changes; i++)
		write_line(r, "codec", gp_codec_change_json(e, i));
	if (e->changes > 0) {
		gp_progress_clear(&r->progress);
		gp_codec_events_print(e, stderr);
	}
}

/* The pairs whose rank the step has changed. */
static void tell_ranks(struct gp_training *r)
{
	const struct gp_engine_spec *spec = &r->spec->engine->spec;
	const struct gp_decays *all = &spec->session.decays;
	const struct gp_decay_ranks now = gp_decays_ranks_at(all, spec->graph, r->step);
	for (int i = 0; i < now.count; i++) {
		const struct gp_decays one = {.count = 1, .decay = {all->decay[i]}};
		if (!gp_decays_change_at(&one, r->step))
			continue;
		gp_progress_clear(&r->progress);
		fprintf(stderr, "step %llu: the rank of %s is %u from here on\n", (unsigned long long)r->step,
			one.decay[0].encoder, now.rank[i]);
		if (r->spec->log)
			write_line(r, "rank",
				   json_pack("{s:I, s:s, s:s, s:I}", "step", (json_int_t)r->step, "encoder",
					     one.decay[0].encoder, "decoder", one.decay[0].decoder, "rank",
					     (json_int_t)now.rank[i]));
	}
}

static uint64_t raw_fallbacks(const struct gp_engine_figures *f)
{
	uint64_t sum = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		sum += f->codec[d].raw_fallbacks;
	return sum;
}

/* For --metrics. */
static void tell_monitor(const struct gp_training *r, const struct gp_step_result *result, float lr, double seconds,
			 const struct gp_engine_figures *now)
{
	if (!r->spec->monitor)
		return;
	const struct gp_run_checkpoints c = gp_run_state_checkpoints(r->spec->run);
	const struct gp_run_step step = {.step = r->step,
					 .epoch = epoch_of(r),
					 .loss = gp_training_mean(result->loss_sum, result->samples),
					 .acc = gp_training_accuracy(r, result),
					 .epoch_loss = gp_training_mean(r->epoch.loss_sum, r->epoch.samples),
					 .epoch_acc = gp_training_accuracy(r, &r->epoch),
					 .lr = (double)lr,
					 .grad_norm = result->grad_norm,
					 .seconds = seconds,
					 .bound_by = r->report->bound_by,
					 .compute_ns = now->compute_ns,
					 .memory_bytes = now->memory_bytes,
					 .server_memory_bytes = now->server_memory_bytes,
					 .server_device_bytes = now->server_device_bytes,
					 .raw_fallbacks = raw_fallbacks(now),
					 .checkpoints = c.written,
					 .checkpoint_failures = c.failed};
	gp_run_monitor_step(r->spec->monitor, &step);
}

/* --- together ------------------------------------------------------------------------------------------------------- */

void gp_training_tell_step(struct gp_training *r, const struct gp_step_result *result, float lr, double seconds,
			   const struct gp_bound_by *bound, const struct gp_engine_figures *now)
{
	note_bound(r, bound);
	show_progress(r, now, seconds);
	tell_monitor(r, result, lr, seconds, now);
	log_step(r, result, lr, seconds, bound, now);
	log_timeline(r, false);
	log_values(r);
	log_privacy(r);
	tell_codecs(r);
	tell_ranks(r);
}

void gp_training_tell_eval(struct gp_training *r, double seconds)
{
	gp_run_monitor_evaluated(r->spec->monitor, r->report->val.loss, r->report->val.acc, seconds);
	note_eval(r, seconds);
	log_eval(r, seconds);
}

void gp_training_tell_resumed(struct gp_training *r)
{
	if (r->spec->log)
		write_line(r, "resume", json_pack("{s:I}", "step", (json_int_t)r->step));
}

void gp_training_tell_end(struct gp_training *r)
{
	log_timeline(r, true);
}
