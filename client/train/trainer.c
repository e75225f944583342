/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop. See trainer.h; what it tells of itself is in trainer_tell.c. Tests: tests/unit/test_trainer.c, tests/e2e
 */
#include "client/train/trainer_impl.h"

#include <math.h>
#include <stdlib.h>

#include "client/log/figures.h"
#include "client/monitor/run_monitor.h"
#include "client/train/run_state.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "client/train/recalibrate.h"
#include "client/trace/timeline.h"
#include "client/log/value_log.h"

#define PLAIN_PROGRESS_S 5 /* between two lines where standard error is not a terminal */

#define RATE_WINDOW_S  5.0
#define STEP_TIMES_MAX (1u << 20) /* the newest ones make the median */

static uint64_t remembered_steps(uint64_t steps)
{
	return steps < STEP_TIMES_MAX ? steps : STEP_TIMES_MAX;
}

static void add_result(struct gp_step_result *sum, const struct gp_step_result *r)
{
	sum->loss_sum += r->loss_sum;
	sum->correct += r->correct;
	sum->samples += r->samples;
}

/* --- steps ----------------------------------------------------------------------------------------------------------- */

/* As PyTorch (error_if_nonfinite=False) we go on; but a user should learn where the NaN in the parameters came from. */
static void warn_of_norm(struct gp_training *r)
{
	r->norm_warned = true;
	gp_progress_clear(&r->progress);
	gp_log(model, GP_LOG_WARN,
	       "step %llu: the norm of the gradients is not finite, and --clip-norm cannot mend that; they make the "
	       "parameters NaN (said once)",
	       (unsigned long long)r->step + 1);
}

/* What clipping by norm did. */
static void note_norm(struct gp_training *r, const struct gp_step_result *result)
{
	if (!gp_training_clips_norm(r))
		return;
	r->report->clipped_steps += result->grad_norm > r->spec->engine->spec.session.optim.clip_norm;
	if (!isfinite(result->grad_norm) && !r->norm_warned)
		warn_of_norm(r);
}

static bool stop_asked(const struct gp_training *r)
{
	return r->spec->stop && *r->spec->stop;
}

/* Whether the engine has a use for the batch of the step behind the one that begins now: no evaluation comes between. */
static bool is_followed(const struct gp_training *r)
{
	const struct gp_trainer_spec *spec = r->spec;
	return spec->engine->looks_ahead && !stop_asked(r) && r->step + 1 < spec->total_steps &&
	       (r->step + 1) % spec->steps_per_epoch != 0;
}

static uint64_t first_chunk(const struct gp_training *r)
{
	return r->step * (uint64_t)r->spec->engine->spec.session.chunks;
}

/* What comes behind a step is drawn as of that step. */
static uint64_t last_chunk_of(const struct gp_training *r)
{
	const uint64_t first = first_chunk(r);
	return first > 0 ? first - 1 : 0;
}

/* The step's batch, and the following one's, which the engine may begin with: it then has to be run. */
static enum gp_status take_batches(struct gp_training *r, struct gp_err *err)
{
	struct gp_engine *e = r->spec->engine;
	if (!r->batch)
		GP_TRY(e->ops->next(e, r->spec->train, &r->batch, err));
	return is_followed(r) ? e->ops->next(e, r->spec->train, &r->following, err) : GP_OK;
}

static void give_back_batches(struct gp_training *r)
{
	if (r->batch)
		gp_loader_give_back(r->spec->train, r->batch);
	if (r->following)
		gp_loader_give_back(r->spec->train, r->following);
	r->batch = r->following = NULL;
}

/* The newest checkpoint from before the step under way; 0: there is none. One from after it, which the engine has
 * written by now, is taken back: nothing good goes on from there. */
static uint64_t last_good_checkpoint(struct gp_training *r)
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

/* A loss that is no number, or a hundred times that of the first step, does not come back. Squared errors are of any size:
 * one label far from the others makes a step's loss a thousand times that of another. */
static enum gp_status check_loss(struct gp_training *r, const struct gp_step_result *result, struct gp_err *err)
{
	enum { TIMES = 100 };
	const double loss = gp_training_mean(result->loss_sum, result->samples);
	if (result->samples == 0) /* no text of the batch has a word to guess */
		return GP_OK;
	char from[64] = "there is none (--checkpoint)";
	if (r->here == 0)
		r->first_loss = loss;
	if (isfinite(loss) && (gp_training_has_values(r) || loss <= TIMES * fmax(r->first_loss, 1)))
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
static enum gp_status measure_privacy(struct gp_training *r, struct gp_err *err)
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

static enum gp_status run_step(struct gp_training *r, struct gp_err *err)
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
	gp_bound_by_add(&r->report->bound_by, &bound);
	r->step_s[r->here++ % remembered_steps(spec->total_steps)] = (float)seconds;
	r->report->steps = ++r->step;
	add_result(&r->epoch, &result);
	r->last = r->epoch;
	e->ops->figures(e, &now);
	struct gp_account delta = now.account;
	gp_account_subtract(&delta, &r->before.account);
	gp_account_add(&r->report->train_account, &delta);
	gp_training_tell_step(r, &result, lr, seconds, &bound, &now);
	r->before = now;
	return GP_OK;
}

/* Evaluates in slices, so that a signal need not wait for the end of the evaluation. */
static enum gp_status evaluate(struct gp_training *r, struct gp_step_result *sum, struct gp_err *err)
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
static enum gp_status recalibrate(struct gp_training *r, struct gp_err *err)
{
	const struct gp_trainer_spec *spec = r->spec;
	const bool may_end = gp_run_state_settled(spec->run, r->step) || r->step >= spec->total_steps;
	if (spec->recalibrate == 0 || (!spec->val && r->step < spec->total_steps) || (may_end && stop_asked(r)))
		return GP_OK;
	const uint64_t begin = gp_now_ns();
	GP_TRY(gp_recalibrate(spec->engine, spec->train, spec->recalibrate, &r->progress, spec->monitor,
			      may_end ? spec->stop : NULL, err));
	gp_timeline_note_times(spec->engine->timeline, GP_AT_STATISTICS, last_chunk_of(r), begin, gp_now_ns());
	r->eval_cut = may_end && stop_asked(r);
	return gp_loader_seek(spec->train, (uint32_t)(r->step / spec->steps_per_epoch),
			      (uint32_t)(r->step % spec->steps_per_epoch), err);
}

/* One that a signal ended has no accuracy. */
static enum gp_status run_eval(struct gp_training *r, struct gp_err *err)
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
	r->report->val =
		gp_scores_of(spec->metrics, gp_training_has_values(r), result.loss_sum, result.correct, result.samples);
	uint64_t took = gp_now_ns() - begin;
	gp_timeline_note_times(spec->engine->timeline, GP_AT_VALIDATION, last_chunk_of(r), begin, begin + took);
	r->eval_ns += took;
	spec->engine->ops->figures(spec->engine, &r->before);
	gp_training_tell_eval(r, (double)took * 1e-9);
	return GP_OK;
}

/* Begins where the engine is: at step 0, or where a checkpoint was written. */
static enum gp_status begin(struct gp_training *r, struct gp_err *err)
{
	const struct gp_trainer_spec *spec = r->spec;
	const bool moved = r->here == 0 || r->step != spec->engine->steps;
	r->step = r->report->steps = spec->engine->steps;
	gp_timeline_record_begin(r->times, r->step);
	if (!spec->run)
		return GP_OK;
	if (r->step > 0 || r->here > 0)
		gp_training_tell_resumed(r);
	const struct gp_run_progress *p = gp_run_state_progress(spec->run);
	if (moved)
		r->last = r->epoch =
			(struct gp_step_result){.loss_sum = p->loss_sum, .correct = p->correct, .samples = p->samples};
	return gp_loader_seek(spec->train, (uint32_t)(r->step / spec->steps_per_epoch),
			      (uint32_t)(r->step % spec->steps_per_epoch), err);
}

/* With checkpoints, the step after which one was written is the last. A step that may have begun is run. */
static bool goes_on(const struct gp_training *r)
{
	const struct gp_trainer_spec *spec = r->spec;
	return r->step < spec->total_steps &&
	       (r->batch || !(stop_asked(r) && gp_run_state_settled(spec->run, r->step)));
}

static enum gp_status end_epoch(struct gp_training *r, struct gp_err *err)
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
static enum gp_status run_all(struct gp_training *r, struct gp_err *err)
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

/* --- report ---------------------------------------------------------------------------------------------------------- */

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

static enum gp_status finish(struct gp_training *r, struct gp_err *err)
{
	struct gp_engine *e = r->spec->engine;
	struct gp_train_report *report = r->report;
	const uint64_t remembered = remembered_steps(r->spec->total_steps);
	gp_run_monitor_stage(r->spec->monitor, GP_RUN_ENDS);
	report->steps = r->step;
	report->steps_here = r->here;
	report->stopped = stop_asked(r) && (r->step < r->spec->total_steps || r->eval_cut);
	report->seconds = (double)(gp_now_ns() - r->begin_ns) * 1e-9;
	report->loss = gp_training_mean(r->last.loss_sum, r->last.samples);
	report->train_acc = gp_training_accuracy(r, &r->last);
	report->samples = r->step * (uint64_t)gp_session_batch(&e->spec.session);
	report->time_per_batch_s = median(r->step_s, r->here < remembered ? r->here : remembered);
	GP_TRY(e->ops->get_weights(e, r->spec->weights, err));
	gp_training_tell_end(r);
	report->checkpoints = gp_run_state_checkpoints(r->spec->run); /* the last COMMITTED has come by now */
	return GP_OK;
}

/* Runs again as often as the engine has to go back to a checkpoint. */
static enum gp_status run_to_the_end(struct gp_training *r, struct gp_err *err)
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
static enum gp_status begin_records(struct gp_training *r, struct gp_err *err)
{
	struct gp_engine *e = r->spec->engine;
	if (!r->spec->log)
		return GP_OK;
	GP_TRY(gp_timeline_record_new((uint32_t)e->spec.session.chunks, &r->times, err));
	gp_timeline_watch(e->timeline, gp_timeline_record_note, r->times);
	return r->spec->histograms_every ? gp_value_log_new(r->spec->histograms_every, &e->values, err) : GP_OK;
}

/* A task of the engine may still be under way where the session has failed: the engine keeps the log of values. */
static void end_records(struct gp_training *r)
{
	gp_timeline_watch(r->spec->engine->timeline, NULL, NULL);
	gp_timeline_record_free(r->times);
}

enum gp_status gp_train(const struct gp_trainer_spec *spec, struct gp_train_report *out, struct gp_err *err)
{
	struct gp_training r = {.spec = spec, .report = out, .begin_ns = gp_now_ns()};
	*out = (struct gp_train_report){.left_out = spec->left_out, .val = GP_NO_SCORES};
	r.step_s = gp_calloc(remembered_steps(spec->total_steps), sizeof *r.step_s);
	if (!r.step_s)
		GP_FAIL(err, GP_NOMEM, "out of memory for %llu steps", (unsigned long long)spec->total_steps);
	gp_progress_init(&r.progress, spec->progress ? stderr : NULL, PLAIN_PROGRESS_S);
	gp_rate_init(&r.rate, RATE_WINDOW_S);
	spec->engine->ops->figures(spec->engine, &r.first);
	r.before = r.first;
	gp_training_note_rate(&r, &r.first, r.begin_ns);
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
