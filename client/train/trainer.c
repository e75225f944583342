/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop. See trainer.h. Tests: tests/unit/test_trainer.c, tests/e2e
 */
#include "client/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/codecs/codec_events.h"
#include "client/log/figures.h"
#include "client/monitor/run_monitor.h"
#include "client/train/run_state.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/rate.h"
#include "client/log/progress.h"
#include "client/train/recalibrate.h"
#include "client/trace/timeline.h"
#include "client/trace/timeline_record.h"
#include "client/log/value_log.h"

#define PLAIN_PROGRESS_S 5 /* between two lines where standard error is not a terminal */

#define RATE_WINDOW_S  5.0
#define RECENT_KEEPS   8          /* of what bounded the steps before, seven eighths count on */
#define STEP_TIMES_MAX (1u << 20) /* the newest ones make the median */

struct run {
	const struct gp_trainer_spec *spec;
	struct gp_progress progress;
	struct gp_rate rate; /* of bytes: up, down */
	struct gp_train_report *report;
	struct gp_timeline_record *times; /* of a few steps, for the log; NULL without one */
	float *step_s;                    /* a ring of remembered_steps(total_steps) */
	uint64_t step, here;              /* done of the run; done in this process */
	struct gp_step_result epoch;      /* sums over the epoch under way */
	struct gp_step_result last;       /* the newest finished or unfinished epoch */
	struct gp_engine_figures first;   /* at the start of all */
	struct gp_engine_figures before;  /* at the start of the step under way */
	double first_loss;                /* of the first step in this process */
	struct gp_bound_by recent;        /* what bounded the steps, those of late counting most */
	uint64_t begin_ns, eval_ns;
	struct gp_batch *batch, *following; /* of the step to come, and of the one behind it; NULL: not taken yet */
	bool norm_warned;
	bool eval_cut; /* the last evaluation was ended by a signal */
};

static uint64_t remembered_steps(uint64_t steps)
{
	return steps < STEP_TIMES_MAX ? steps : STEP_TIMES_MAX;
}

static double mean(double sum, uint64_t n)
{
	return n ? sum / (double)n : NAN;
}

static void add_result(struct gp_step_result *sum, const struct gp_step_result *r)
{
	sum->loss_sum += r->loss_sum;
	sum->correct += r->correct;
	sum->samples += r->samples;
}

/* Values to predict are neither right nor wrong. */
static bool has_values(const struct run *r)
{
	return r->spec->engine->spec.loss == GP_LOSS_SQUARED_ERROR;
}

static double accuracy(const struct run *r, const struct gp_step_result *sum)
{
	return has_values(r) ? NAN : mean((double)sum->correct, sum->samples);
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

/* Progress line. */

static void note_rate(struct run *r, const struct gp_engine_figures *now, uint64_t now_ns)
{
	const uint64_t bytes[GP_RATE_SERIES] = {now->tcp.bytes_acked, now->tcp.bytes_received};
	if (now->tcp.valid)
		gp_rate_note(&r->rate, now_ns, bytes);
}

/* What the kernel knows to have arrived in the last seconds; nothing where there is no TCP. */
static void rate_text(const struct run *r, char text[64])
{
	text[0] = '\0';
	const double up = gp_rate_per_s(&r->rate, 0), down = gp_rate_per_s(&r->rate, 1);
	if (isfinite(up) && isfinite(down))
		snprintf(text, 64, "  up %.1f MB/s down %.1f MB/s", up * 1e-6, down * 1e-6);
}

/* What most of the time of the last steps went to. */
static void note_bound(struct run *r, const struct gp_bound_by *b)
{
	for (int i = 0; i < GP_BOUND_COUNT; i++)
		r->recent.ns[i] = r->recent.ns[i] / RECENT_KEEPS * (RECENT_KEEPS - 1) + b->ns[i];
	r->recent.steps += b->steps;
	gp_bound_by_add(&r->report->bound_by, b);
}

static void bound_text(const struct run *r, char text[48])
{
	const uint64_t total = gp_bound_by_total_ns(&r->recent);
	const enum gp_bound most = gp_bound_by_largest(&r->recent);
	text[0] = '\0';
	if (total > 0 && r->spec->engine->spec.server)
		snprintf(text, 48, "  %.0f%% %s", 100.0 * (double)r->recent.ns[most] / (double)total,
			 gp_bound_name(most));
}

static void show_progress(struct run *r, const struct gp_engine_figures *now, double step_s)
{
	const struct gp_trainer_spec *spec = r->spec;
	char text[320], rate[64], acc[32] = "", smaller[32] = "", cuts[32] = "", bound[48], at[48] = "";
	const uint64_t now_ns = gp_now_ns();
	uint64_t epoch = (r->step - 1) / spec->steps_per_epoch,
		 epochs = (spec->total_steps - 1) / spec->steps_per_epoch;
	uint64_t payload = payload_bytes(&now->account, false);
	double left = (double)(spec->total_steps - r->step) * (double)(now_ns - r->begin_ns - r->eval_ns) * 1e-9 /
		      (double)r->here;
	note_rate(r, now, now_ns);
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
	if (!has_values(r))
		snprintf(acc, sizeof acc, "  acc %.2f%%", 100 * accuracy(r, &r->epoch));
	snprintf(text, sizeof text, "epoch %llu/%llu  step %llu/%llu  loss %.4f%s  %.3f s/batch%s%s%s%s%s  %.0f s left",
		 (unsigned long long)epoch + 1, (unsigned long long)epochs + 1, (unsigned long long)r->step,
		 (unsigned long long)spec->total_steps, mean(r->epoch.loss_sum, r->epoch.samples), acc, step_s, bound,
		 rate, smaller, cuts, at, left);
	gp_progress_update(&r->progress, now_ns, text);
}

static void note_eval(struct run *r, double seconds)
{
	char text[GP_SCORES_TEXT];
	if (!r->spec->progress)
		return;
	gp_progress_clear(&r->progress);
	fprintf(stderr, "epoch %llu: validation %s (%.1f s)\n",
		(unsigned long long)((r->step + r->spec->steps_per_epoch - 1) / r->spec->steps_per_epoch),
		gp_scores_and_loss(&r->report->val, r->spec->tells_matthews, text), seconds);
}

/* JSON log. A run of hours does not end because its log cannot be written: closing the log fails, in the end. */

static void write_line(struct run *r, const char *event, json_t *line)
{
	struct gp_err err;
	if (gp_json_log_write(r->spec->log, event, line, &err) == GP_OK)
		return;
	gp_progress_clear(&r->progress);
	gp_log(main, GP_LOG_WARN, "%s", err.text);
}

static bool clips_norm(const struct run *r)
{
	return r->spec->engine->spec.session.optim.clip_norm > 0.0;
}

/* Which epoch the newest step is in; the first has number 1. */
static uint64_t epoch_of(const struct run *r)
{
	return (r->step - 1) / r->spec->steps_per_epoch + 1;
}

static json_t *integer_or_null(bool known, uint64_t n)
{
	return known ? json_integer((json_int_t)n) : json_null();
}

static void log_step(struct run *r, const struct gp_step_result *result, float lr, double seconds,
		     const struct gp_bound_by *bound, const struct gp_engine_figures *now)
{
	if (!r->spec->log) /* a JSON line allocates: a steady step without --log-json does not */
		return;
	struct gp_account delta = now->account;
	const bool linked = now->flows != NULL;
	const struct gp_link_rate rate = gp_link_rate(&r->before.tcp, &now->tcp, seconds);
	gp_account_subtract(&delta, &r->before.account);
	json_t *line = json_pack(
		"{s:I, s:I, s:o, s:o, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "step", (json_int_t)r->step,
		"epoch", (json_int_t)epoch_of(r), "loss", gp_json_number(mean(result->loss_sum, result->samples)),
		"acc", gp_json_number(accuracy(r, result)), "lr", (double)lr, "seconds", seconds, "compute_s",
		(double)(now->compute_ns - r->before.compute_ns) * 1e-9, "wire_up_bytes",
		integer_or_null(linked, delta.sent.wire_bytes), "wire_down_bytes",
		integer_or_null(linked, delta.received.wire_bytes), "up_bytes_per_s", gp_json_number(rate.up),
		"down_bytes_per_s", gp_json_number(rate.down), "rtt_us", integer_or_null(now->rtt_us > 0, now->rtt_us),
		"reconnects", integer_or_null(linked, now->reconnects - r->before.reconnects), "link",
		linked ? gp_account_json(&delta) : json_null());
	json_object_set_new(line, "bound_by", gp_bound_by_json(bound, linked));
	if (clips_norm(r))
		json_object_set_new(line, "grad_norm", gp_json_number(result->grad_norm));
	write_line(r, "step", line);
}

static void log_eval(struct run *r, double seconds)
{
	if (!r->spec->log)
		return;
	json_t *line = json_pack("{s:I, s:I, s:f}", "step", (json_int_t)r->step, "epoch", (json_int_t)epoch_of(r),
				 "seconds", seconds);
	write_line(r, "eval", gp_scores_json(line, &r->report->val));
}

/* `ended`: all of the newest step has been told. */
static void log_timeline(struct run *r, bool ended)
{
	json_t *line = gp_timeline_record_take(r->times, r->step, ended);
	if (line)
		write_line(r, "timeline", line);
}

/* Histograms, and what codecs lose. */
static void log_values(struct run *r)
{
	const char *event;
	json_t *line;
	while ((line = gp_value_log_take(r->spec->engine->values, r->step, &event)))
		write_line(r, event, line);
}

static void log_resumed(struct run *r)
{
	if (r->spec->log)
		write_line(r, "resume", json_pack("{s:I}", "step", (json_int_t)r->step));
}

/* What the privacy meter has found in the newest step, if anything. */
static void log_privacy(struct run *r)
{
	const struct gp_privacy_report *p = &r->report->privacy;
	for (int d = 0; r->spec->log && p->step == r->step && d < GP_DIRECTIONS; d++) {
		json_t *line = gp_privacy_event_json(p, (enum gp_direction)d);
		if (line)
			write_line(r, "privacy", line);
	}
}

/* What --codec auto did behind the step. */
static void tell_codecs(struct run *r)
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

static uint64_t raw_fallbacks(const struct gp_engine_figures *f)
{
	uint64_t sum = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		sum += f->codec[d].raw_fallbacks;
	return sum;
}

/* For --metrics. */
static void tell_monitor(const struct run *r, const struct gp_step_result *result, float lr, double seconds,
			 const struct gp_engine_figures *now)
{
	if (!r->spec->monitor)
		return;
	const struct gp_run_checkpoints c = gp_run_state_checkpoints(r->spec->run);
	const struct gp_run_step step = {.step = r->step,
					 .epoch = epoch_of(r),
					 .loss = mean(result->loss_sum, result->samples),
					 .acc = accuracy(r, result),
					 .epoch_loss = mean(r->epoch.loss_sum, r->epoch.samples),
					 .epoch_acc = accuracy(r, &r->epoch),
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

/* Steps. */

/* As PyTorch (error_if_nonfinite=False) we go on; but a user should learn where the NaN in the parameters came from. */
static void warn_of_norm(struct run *r)
{
	r->norm_warned = true;
	gp_progress_clear(&r->progress);
	gp_log(model, GP_LOG_WARN,
	       "step %llu: the norm of the gradients is not finite, and --clip-norm cannot mend that; they make the "
	       "parameters NaN (said once)",
	       (unsigned long long)r->step + 1);
}

/* What clipping by norm did. */
static void note_norm(struct run *r, const struct gp_step_result *result)
{
	if (!clips_norm(r))
		return;
	r->report->clipped_steps += result->grad_norm > r->spec->engine->spec.session.optim.clip_norm;
	if (!isfinite(result->grad_norm) && !r->norm_warned)
		warn_of_norm(r);
}

static bool stop_asked(const struct run *r)
{
	return r->spec->stop && *r->spec->stop;
}

/* Whether the engine has a use for the batch of the step behind the one that begins now: no evaluation comes between. */
static bool is_followed(const struct run *r)
{
	const struct gp_trainer_spec *spec = r->spec;
	return spec->engine->looks_ahead && !stop_asked(r) && r->step + 1 < spec->total_steps &&
	       (r->step + 1) % spec->steps_per_epoch != 0;
}

static uint64_t first_chunk(const struct run *r)
{
	return r->step * (uint64_t)r->spec->engine->spec.session.chunks;
}

/* What comes behind a step is drawn as of that step. */
static uint64_t last_chunk_of(const struct run *r)
{
	const uint64_t first = first_chunk(r);
	return first > 0 ? first - 1 : 0;
}

/* The step's batch, and the following one's, which the engine may begin with: it then has to be run. */
static enum gp_status take_batches(struct run *r, struct gp_err *err)
{
	struct gp_engine *e = r->spec->engine;
	if (!r->batch)
		GP_TRY(e->ops->next(e, r->spec->train, &r->batch, err));
	return is_followed(r) ? e->ops->next(e, r->spec->train, &r->following, err) : GP_OK;
}

static void give_back_batches(struct run *r)
{
	if (r->batch)
		gp_loader_give_back(r->spec->train, r->batch);
	if (r->following)
		gp_loader_give_back(r->spec->train, r->following);
	r->batch = r->following = NULL;
}

/* The newest checkpoint from before the step under way; 0: there is none. One from after it, which the engine has
 * written by now, is taken back: nothing good goes on from there. */
static uint64_t last_good_checkpoint(struct run *r)
{
	uint64_t step[GP_CHECKPOINTS_MAX];
	if (!r->spec->run)
		return 0;
	gp_run_state_take_back(r->spec->run, r->step + 1);
	const int count = gp_run_state_list(r->spec->run, step);
	for (int i = 0; i < count; i++)
		if (step[i] <= r->step)
			return step[i];
	return 0;
}

/* A loss that is no number, or a hundred times that of the first step, does not come back. */
static enum gp_status check_loss(struct run *r, const struct gp_step_result *result, struct gp_err *err)
{
	enum { TIMES = 100 };
	const double loss = mean(result->loss_sum, result->samples);
	if (result->samples == 0) /* no text of the batch has a word to guess */
		return GP_OK;
	char from[64] = "there is none (--checkpoint)";
	if (r->here == 0)
		r->first_loss = loss;
	if (isfinite(loss) && loss <= TIMES * fmax(r->first_loss, 1))
		return GP_OK;
	const uint64_t good = last_good_checkpoint(r);
	if (good > 0)
		snprintf(from, sizeof from, "it is of step %llu (--resume)", (unsigned long long)good);
	GP_FAIL(err, GP_CANCELED,
		"the training diverged at step %llu: its loss is %.4g, that of the first step was %.4g; try a lower "
		"--lr or a --warmup; the last good checkpoint: %s",
		(unsigned long long)r->step + 1, loss, r->first_loss, from);
}

/* Between two steps: what it takes counts for neither. */
static enum gp_status measure_privacy(struct run *r, struct gp_err *err)
{
	struct gp_engine *e = r->spec->engine;
	struct gp_train_report *report = r->report;
	if (!e->ops->measure || !gp_privacy_due(e->spec.privacy, r->step))
		return GP_OK;
	GP_TRY(e->ops->measure(e, r->batch, &report->privacy, err));
	report->privacy_measured++;
	report->privacy_s += report->privacy.seconds;
	return GP_OK;
}

static enum gp_status run_step(struct run *r, struct gp_err *err)
{
	const struct gp_trainer_spec *spec = r->spec;
	struct gp_engine *e = spec->engine;
	struct gp_step_result result;
	struct gp_engine_figures now;
	struct gp_bound_by bound;
	const uint64_t begin = gp_now_ns();
	float lr = gp_schedule_lr(&spec->schedule, (int64_t)r->step);
	if (spec->run)
		*gp_run_state_progress(spec->run) =
			(struct gp_run_progress){r->epoch.loss_sum, r->epoch.correct, r->epoch.samples};
	GP_TRY(take_batches(r, err));
	gp_timeline_note_times(e->timeline, GP_AT_BATCH, first_chunk(r), begin, gp_now_ns());
	enum gp_status status = e->ops->step(e, r->batch, r->following, lr, &result, err);
	const uint64_t end = gp_now_ns();
	if (status == GP_OK)
		status = measure_privacy(r, err);
	gp_loader_give_back(spec->train, r->batch);
	r->batch = r->following;
	r->following = NULL;
	GP_TRY(status);
	GP_TRY(check_loss(r, &result, err));
	note_norm(r, &result);
	double seconds = (double)(end - begin) * 1e-9;
	gp_timeline_end_step(e->timeline, first_chunk(r), begin, end, &bound);
	note_bound(r, &bound);
	r->step_s[r->here++ % remembered_steps(spec->total_steps)] = (float)seconds;
	r->report->steps = ++r->step;
	add_result(&r->epoch, &result);
	r->last = r->epoch;
	e->ops->figures(e, &now);
	struct gp_account delta = now.account;
	gp_account_subtract(&delta, &r->before.account);
	gp_account_add(&r->report->train_account, &delta);
	show_progress(r, &now, seconds);
	tell_monitor(r, &result, lr, seconds, &now);
	log_step(r, &result, lr, seconds, &bound, &now);
	log_timeline(r, false);
	log_values(r);
	log_privacy(r);
	tell_codecs(r);
	r->before = now;
	return GP_OK;
}

/* Evaluates in slices, so that a signal need not wait for the end of the evaluation. */
static enum gp_status evaluate(struct run *r, struct gp_step_result *sum, struct gp_err *err)
{
	const struct gp_trainer_spec *spec = r->spec;
	if (spec->metrics)
		gp_metrics_begin(spec->metrics);
	spec->engine->metrics = spec->metrics;
	GP_TRY(gp_loader_seek(spec->val, 0, 0, err));
	for (uint32_t done = 0; done < spec->val_batches && !stop_asked(r); done += GP_EVAL_SLICE) {
		const uint32_t left = spec->val_batches - done;
		struct gp_step_result part;
		GP_TRY(spec->engine->ops->evaluate(spec->engine, spec->val, left < GP_EVAL_SLICE ? left : GP_EVAL_SLICE,
						   &part, err));
		add_result(sum, &part);
		gp_run_monitor_beat(spec->monitor);
	}
	return GP_OK;
}

/*
 * The loader goes on where it was: between two epochs, with no batch handed out. A signal ends it where nothing but the end
 * of this process follows. Where one more step does, for the checkpoint behind it, that step has to see the statistics that
 * it would have seen without the signal.
 */
static enum gp_status recalibrate(struct run *r, struct gp_err *err)
{
	const struct gp_trainer_spec *spec = r->spec;
	const bool may_end = gp_run_state_settled(spec->run, r->step) || r->step >= spec->total_steps;
	if (spec->recalibrate == 0 || (!spec->val && r->step < spec->total_steps) || (may_end && stop_asked(r)))
		return GP_OK;
	const uint64_t begin = gp_now_ns();
	GP_TRY(gp_recalibrate(spec->engine, spec->train, spec->recalibrate, &r->progress, may_end ? spec->stop : NULL,
			      err));
	gp_timeline_note_times(spec->engine->timeline, GP_AT_STATISTICS, last_chunk_of(r), begin, gp_now_ns());
	r->eval_cut = may_end && stop_asked(r);
	return gp_loader_seek(spec->train, (uint32_t)(r->step / spec->steps_per_epoch),
			      (uint32_t)(r->step % spec->steps_per_epoch), err);
}

/* One that a signal ended has no accuracy. */
static enum gp_status run_eval(struct run *r, struct gp_err *err)
{
	const struct gp_trainer_spec *spec = r->spec;
	struct gp_step_result result = {0};
	if (!spec->val)
		return GP_OK;
	uint64_t begin = gp_now_ns();
	GP_TRY(evaluate(r, &result, err));
	r->eval_cut = stop_asked(r);
	if (r->eval_cut)
		return GP_OK;
	r->report->val = gp_scores_of(spec->metrics, has_values(r), result.loss_sum, result.correct, result.samples);
	uint64_t took = gp_now_ns() - begin;
	gp_timeline_note_times(spec->engine->timeline, GP_AT_VALIDATION, last_chunk_of(r), begin, begin + took);
	r->eval_ns += took;
	spec->engine->ops->figures(spec->engine, &r->before);
	gp_run_monitor_evaluated(spec->monitor, r->report->val.loss, r->report->val.acc, (double)took * 1e-9);
	note_eval(r, (double)took * 1e-9);
	log_eval(r, (double)took * 1e-9);
	return GP_OK;
}

/* Begins where the engine is: at step 0, or where a checkpoint was written. */
static enum gp_status begin(struct run *r, struct gp_err *err)
{
	const struct gp_trainer_spec *spec = r->spec;
	const bool moved = r->here == 0 || r->step != spec->engine->steps;
	r->step = r->report->steps = spec->engine->steps;
	gp_timeline_record_begin(r->times, r->step);
	if (!spec->run)
		return GP_OK;
	if (r->step > 0 || r->here > 0)
		log_resumed(r);
	const struct gp_run_progress *p = gp_run_state_progress(spec->run);
	if (moved)
		r->last = r->epoch =
			(struct gp_step_result){.loss_sum = p->loss_sum, .correct = p->correct, .samples = p->samples};
	return gp_loader_seek(spec->train, (uint32_t)(r->step / spec->steps_per_epoch),
			      (uint32_t)(r->step % spec->steps_per_epoch), err);
}

/* With checkpoints, the step after which one was written is the last. A step that may have begun is run. */
static bool goes_on(const struct run *r)
{
	const struct gp_trainer_spec *spec = r->spec;
	return r->step < spec->total_steps &&
	       (r->batch || !(stop_asked(r) && gp_run_state_settled(spec->run, r->step)));
}

static enum gp_status end_epoch(struct run *r, struct gp_err *err)
{
	if (r->step == 0 || (r->step % r->spec->steps_per_epoch != 0 && r->step != r->spec->total_steps))
		return GP_OK;
	gp_run_monitor_stage(r->spec->monitor, GP_RUN_EVALUATES);
	GP_TRY(recalibrate(r, err));
	GP_TRY(run_eval(r, err));
	gp_run_monitor_stage(r->spec->monitor, GP_RUN_TRAINS);
	r->epoch = (struct gp_step_result){0};
	return GP_OK;
}

/* A resumed run may have been killed in the evaluation: it is done again. */
static enum gp_status run_all(struct run *r, struct gp_err *err)
{
	GP_TRY(begin(r, err));
	gp_run_monitor_stage(r->spec->monitor, GP_RUN_TRAINS);
	GP_TRY(end_epoch(r, err));
	while (goes_on(r)) {
		GP_TRY(run_step(r, err));
		GP_TRY(end_epoch(r, err));
	}
	return GP_OK;
}

/* Report. */

static int compare_floats(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static double median(float *values, uint64_t n)
{
	if (n == 0)
		return 0;
	qsort(values, n, sizeof *values, compare_floats);
	return n % 2 ? values[n / 2] : ((double)values[n / 2 - 1] + (double)values[n / 2]) / 2;
}

static enum gp_status finish(struct run *r, struct gp_err *err)
{
	struct gp_engine *e = r->spec->engine;
	struct gp_train_report *report = r->report;
	const uint64_t remembered = remembered_steps(r->spec->total_steps);
	gp_run_monitor_stage(r->spec->monitor, GP_RUN_ENDS);
	report->steps = r->step;
	report->steps_here = r->here;
	report->stopped = stop_asked(r) && (r->step < r->spec->total_steps || r->eval_cut);
	report->seconds = (double)(gp_now_ns() - r->begin_ns) * 1e-9;
	report->loss = mean(r->last.loss_sum, r->last.samples);
	report->train_acc = accuracy(r, &r->last);
	report->samples = r->step * (uint64_t)gp_session_batch(&e->spec.session);
	report->time_per_batch_s = median(r->step_s, r->here < remembered ? r->here : remembered);
	GP_TRY(e->ops->get_weights(e, r->spec->weights, err));
	log_timeline(r, true);
	report->checkpoints = gp_run_state_checkpoints(r->spec->run); /* the last COMMITTED has come by now */
	return GP_OK;
}

/* Runs again as often as the engine has to go back to a checkpoint. */
static enum gp_status run_to_the_end(struct run *r, struct gp_err *err)
{
	struct gp_engine *e = r->spec->engine;
	for (;;) {
		e->rewound = false;
		enum gp_status status = run_all(r, err);
		give_back_batches(r);
		if (status == GP_OK)
			status = finish(r, err);
		if (status == GP_OK || !e->rewound)
			return status;
	}
}

/* What the log has beside figures of steps. */
static enum gp_status begin_records(struct run *r, struct gp_err *err)
{
	struct gp_engine *e = r->spec->engine;
	if (!r->spec->log)
		return GP_OK;
	GP_TRY(gp_timeline_record_new((uint32_t)e->spec.session.chunks, &r->times, err));
	gp_timeline_watch(e->timeline, gp_timeline_record_note, r->times);
	return r->spec->histograms_every ? gp_value_log_new(r->spec->histograms_every, &e->values, err) : GP_OK;
}

/* A task of the engine may still be under way where the session has failed: the engine keeps the log of values. */
static void end_records(struct run *r)
{
	gp_timeline_watch(r->spec->engine->timeline, NULL, NULL);
	gp_timeline_record_free(r->times);
}

enum gp_status gp_train(const struct gp_trainer_spec *spec, struct gp_train_report *out, struct gp_err *err)
{
	struct run r = {.spec = spec, .report = out, .begin_ns = gp_now_ns()};
	*out = (struct gp_train_report){.left_out = spec->left_out, .val = GP_NO_SCORES};
	r.step_s = gp_calloc(remembered_steps(spec->total_steps), sizeof *r.step_s);
	if (!r.step_s)
		GP_FAIL(err, GP_NOMEM, "out of memory for %llu steps", (unsigned long long)spec->total_steps);
	gp_progress_init(&r.progress, spec->progress ? stderr : NULL, PLAIN_PROGRESS_S);
	gp_rate_init(&r.rate, RATE_WINDOW_S);
	spec->engine->ops->figures(spec->engine, &r.first);
	r.before = r.first;
	note_rate(&r, &r.first, r.begin_ns);
	enum gp_status status = begin_records(&r, err);
	if (status == GP_OK)
		status = run_to_the_end(&r, err);
	end_records(&r);
	gp_progress_finish(&r.progress, NULL);
	if (status == GP_OK)
		spec->engine->ops->figures(spec->engine, &out->figures);
	out->figures.rate = gp_link_rate(&r.first.tcp, &out->figures.tcp, out->seconds);
	gp_free(r.step_s);
	return status;
}

/* What the kind has no use for is null. */
static json_t *optimizer_json(const struct gp_train_report *r)
{
	static const char *const name[] = {"sgd", "adam", "adamw"};
	const struct gp_optim *o = &r->optim;
	const bool adam = o->kind != GP_OPTIM_SGD;
	json_t *json = json_pack("{s:s, s:f, s:i, s:o, s:o, s:o}", "name", name[o->kind], "weight_decay",
				 (double)o->weight_decay, "without_decay", r->without_decay, "momentum",
				 adam ? json_null() : json_real((double)o->momentum), "eps",
				 adam ? json_real((double)o->eps) : json_null(), "betas",
				 adam ? json_pack("[f, f]", o->beta1, o->beta2) : json_null());
	if (json)
		json_object_set_new(json, "no_decay", r->no_decay ? json_string(r->no_decay) : json_null());
	return json;
}

json_t *gp_train_report_json(const struct gp_train_report *r)
{
	json_t *o = json_pack(
		"{s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:s, s:b, s:I, s:I, s:o}", "steps", (json_int_t)r->steps,
		"steps_here", (json_int_t)r->steps_here, "clipped_steps", (json_int_t)r->clipped_steps, "seconds",
		r->seconds, "time_per_batch_s", r->steps_here > 0 ? json_real(r->time_per_batch_s) : json_null(),
		"loss", gp_json_number(r->loss), "train_acc", gp_json_number(r->train_acc), "param_sha256",
		r->param_sha256, "stopped", r->stopped, "checkpoints_written", (json_int_t)r->checkpoints.written,
		"checkpoints_failed", (json_int_t)r->checkpoints.failed, "checkpoint_step",
		r->checkpoints.newest > 0 ? json_integer((json_int_t)r->checkpoints.newest) : json_null());
	o = gp_scores_json(o, &r->val);
	if (o)
		json_object_set_new(o, "samples_left_out", json_integer(r->left_out));
	if (o)
		json_object_set_new(o, "batch_norm", json_string(r->batch_norm));
	if (o)
		json_object_set_new(o, "recompute", json_boolean(r->recompute));
	if (o)
		json_object_set_new(o, "compress", r->compress[0] ? json_string(r->compress) : json_null());
	if (o)
		json_object_set_new(o, "bound_by", gp_bound_by_json(&r->bound_by, r->figures.flows != NULL));
	if (o)
		json_object_set_new(o, "optimizer", optimizer_json(r));
	if (o)
		json_object_set_new(o, "privacy", gp_privacy_json(&r->privacy, r->privacy_measured, r->privacy_s));
	return gp_figures_json(o, &r->figures, &r->train_account, r->steps_here);
}
