/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient train: from the settings (train_options.h) to a trained model. Puts
 * dataset, model, engine and trainer together; none of them is here.
 * Test: tests/e2e
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/train/bad_data.h"
#include "client/commands/commands.h"
#include "client/commands/stop_signal.h"
#include "client/commands/train_options.h"
#include "client/log/figures.h"
#include "client/job/job.h"
#include "client/job/job_insert.h"
#include "client/job/job_precision.h"
#include "client/log/run_log.h"
#include "client/monitor/run_monitor.h"
#include "client/job/run_spec.h"
#include "client/train/run_state.h"
#include "client/weights/save_weights.h"
#include "client/trace/trace.h"
#include "client/train/trainer.h"
#include "common/base/mem.h"
#include "common/store/safetensors.h"

/* Everything that a run owns, freed in one place. */
struct training {
	struct gp_train_settings set;
	struct gp_job job;
	struct gp_dataset *train_data, *val_data;
	struct gp_left_out left_out; /* of both */
	struct gp_loader *train, *val;
	struct gp_metrics metrics; /* of evaluations */
	struct gp_weights *weights;
	struct gp_json_log *log;
	struct gp_trace *trace;           /* NULL without --trace */
	struct gp_privacy_meter *privacy; /* NULL without --privacy-every */
	struct gp_run_monitor *monitor;   /* NULL without --metrics */
	struct gp_run_spec run_spec;
	struct gp_saved_model description; /* of the trained weights, for --save and checkpoints */
	struct gp_saved_pairs described;   /* the same, as metadata */
	struct gp_run_state *run;          /* NULL without --checkpoint */
	struct gp_optim optim;
	struct gp_schedule schedule;
	uint64_t total_steps;
	uint32_t steps_per_epoch;
	int argc; /* the command line, for the log's header */
	char **argv;
	struct gp_train_report report;
	bool ended; /* the log has the event "end" */
};

/* Before hours of training, not after: can a file be made there? */
static enum gp_status check_save(const char *path, struct gp_err *err)
{
	if (!path)
		return GP_OK;
	if (!*path)
		GP_FAIL(err, GP_USAGE, "--save needs the name of a file");
	return gp_st_check_target(path, err) == GP_OK ? GP_OK : gp_err_prefix(err, "--save");
}

static enum gp_status check_augment(const struct gp_train_settings *s, const struct gp_dataset *d, struct gp_err *err)
{
	if (s->augment_given && s->augment && !gp_dataset_has_pictures(d))
		GP_FAIL(err, GP_USAGE, "--augment is for pictures; --data %s has none", s->job.data);
	if (s->augment_given && gp_dataset_has_pictures(d) && gp_dataset_augments(d) != s->augment)
		GP_FAIL(err, GP_USAGE,
			"--%saugment and augment=%d of --data contradict each other: leave one of them out",
			s->augment ? "" : "no-", !s->augment);
	return GP_OK;
}

static enum gp_status open_data(struct training *t, struct gp_err *err)
{
	const struct gp_job_settings *s = &t->set.job;
	GP_TRY(gp_job_open_data(&t->job, GP_SPLIT_TRAIN, t->set.augment, &t->train_data, err));
	GP_TRY(check_augment(&t->set, t->train_data, err));
	GP_TRY(gp_leave_out_bad(s, GP_SPLIT_TRAIN, t->train_data, &t->left_out, err));
	uint32_t samples = gp_dataset_samples(t->train_data);
	if (samples < (uint32_t)s->batch)
		GP_FAIL(err, GP_INVALID, "--data %s has %u training sample%s, fewer than one batch of %lld", s->data,
			samples, samples == 1 ? "" : "s", (long long)s->batch);
	GP_TRY(gp_job_open_loader(&t->job, t->train_data, GP_SPLIT_TRAIN, &t->train, err));
	t->steps_per_epoch = gp_loader_batches_per_epoch(t->train);
	t->total_steps = t->set.steps > 0 ? (uint64_t)t->set.steps : (uint64_t)t->set.epochs * t->steps_per_epoch;
	if (!t->set.eval)
		return GP_OK;
	GP_TRY(gp_job_open_data(&t->job, GP_SPLIT_VAL, false, &t->val_data, err));
	GP_TRY(gp_leave_out_bad(s, GP_SPLIT_VAL, t->val_data, &t->left_out, err));
	return gp_job_open_loader(&t->job, t->val_data, GP_SPLIT_VAL, &t->val, err);
}

static enum gp_status configure_optimizer(struct training *t, struct gp_err *err)
{
	const struct gp_train_settings *s = &t->set;
	double warmup = s->warmup < 1 ? s->warmup * (double)t->total_steps : s->warmup;
	t->optim = gp_train_optim_of(s);
	t->schedule = (struct gp_schedule){.kind = (enum gp_schedule_kind)s->schedule,
					   .base_lr = s->lr,
					   .final_lr = s->final_lr,
					   .total_steps = (int64_t)t->total_steps,
					   .warmup_steps = (int64_t)warmup,
					   .gamma = s->step_gamma,
					   .every = (int64_t)ceil(s->step_every * t->steps_per_epoch),
					   .power = s->poly_power};
	GP_TRY(gp_optim_check(&t->optim, err));
	if (t->job.session.coded[GP_STRUCT_STATE].stages > 0 && gp_optim_states(&t->optim) == 0)
		GP_FAIL(err, GP_USAGE,
			"--compress state=...: --optimizer sgd keeps no state with --momentum 0, so nothing would be "
			"compressed");
	return gp_schedule_check(&t->schedule, err);
}

/* Statistics that are taken anew before each evaluation are then those that the next epoch is trained with. */
static bool trains_with_recalibrated(const struct training *t)
{
	return t->set.job.recalibrate > 0 &&
	       (t->job.norm_mode.mode == GP_BN_RUNNING || t->job.norm_mode.mode == GP_BN_RENORM);
}

static enum gp_run_eval eval_of(const struct training *t)
{
	return t->set.eval ? GP_RUN_EVAL_YES : GP_RUN_EVAL_NO;
}

/* Collects what must be the same for a run to go on. Its length may change, and so may what only decides where and
 * how fast it runs. */
static enum gp_status describe_run(struct training *t, struct gp_err *err)
{
	static const char *const flags[] = {"model",      "input",    "seed",         "batch",      "chunks",
					    "precision",  "freeze",   "augment",      "optimizer",  "lr",
					    "momentum",   "nesterov", "weight-decay", "clip-norm",  "clip-value",
					    "schedule",   "warmup",   "final-lr",     "step-every", "step-gamma",
					    "poly-power", "adam-eps", "adam-betas",   "no-decay"};
	static const char *const later[] = {"recalibrate"};
	char data[GP_MANIFEST_VALUE + 128]; /* of what is cut off here nothing is kept: that is refused */
	GP_TRY(gp_train_options_add(&t->set, flags, sizeof flags / sizeof flags[0], &t->run_spec, err));
	gp_left_out_text(&t->left_out, t->set.job.data, data, sizeof data);
	GP_TRY(gp_run_spec_add(&t->run_spec, "data", data, err));
	if (gp_dataset_tokenizer(t->train_data)) {
		char tokenizer[24];
		snprintf(tokenizer, sizeof tokenizer, "%016" PRIx64, gp_dataset_tokenizer(t->train_data));
		GP_TRY(gp_run_spec_add(&t->run_spec, "tokenizer", tokenizer, err));
	}
	GP_TRY(gp_train_options_add(&t->set, later, 1, &t->run_spec, err));
	GP_TRY(gp_run_spec_add(&t->run_spec, "pad", t->job.drop_padding ? "drop" : "max", err));
	char mode[GP_NORM_MODE_TEXT];
	GP_TRY(gp_run_spec_add(&t->run_spec, "batch-norm", gp_norm_mode_text(&t->job.norm_mode, mode), err));
	return gp_run_spec_add_job(&t->run_spec, &t->job, err);
}

static enum gp_status check_files(const struct gp_train_settings *s, struct gp_err *err)
{
	if (s->checkpoint && !*s->checkpoint)
		GP_FAIL(err, GP_USAGE, "--checkpoint needs the name of a folder");
	if (s->log_json && !*s->log_json)
		GP_FAIL(err, GP_USAGE, "--log-json needs the name of a file");
	if (s->trace && !*s->trace)
		GP_FAIL(err, GP_USAGE, "--trace needs the name of a file");
	if (!s->checkpoint && (s->resume || s->checkpoint_required))
		GP_FAIL(err, GP_USAGE, "--%s needs --checkpoint DIR", s->resume ? "resume" : "checkpoint-required");
	return GP_OK;
}

static enum gp_status open_run(struct training *t, struct gp_err *err)
{
	const struct gp_train_settings *s = &t->set;
	if (!s->checkpoint)
		return GP_OK;
	GP_TRY(describe_run(t, err));
	const struct gp_run_state_options o = {.dir = s->checkpoint,
					       .every = (uint64_t)s->checkpoint_every,
					       .total_steps = t->total_steps,
					       .resume = (enum gp_resume)s->resume,
					       .required = s->checkpoint_required,
					       .spec = &t->run_spec.pairs,
					       .samples = gp_dataset_samples(t->train_data),
					       .eval = trains_with_recalibrated(t) ? eval_of(t) : GP_RUN_EVAL_ANY,
					       .stop = &gp_stop_signal,
					       .meta = t->described.pair,
					       .meta_count = t->described.count};
	GP_TRY(gp_run_state_open(&o, &t->run, err));
	if (gp_run_state_newest(t->run) > t->total_steps)
		GP_FAIL(err, GP_INVALID, "--resume: the run is at step %llu already, past the %llu of --%s",
			(unsigned long long)gp_run_state_newest(t->run), (unsigned long long)t->total_steps,
			s->steps > 0 ? "steps" : "epochs");
	return GP_OK;
}

static enum gp_status open_log(struct training *t, struct gp_err *err)
{
	const struct gp_run_log_head head = {.job = &t->job,
					     .run = t->run,
					     .total_steps = t->total_steps,
					     .steps_per_epoch = t->steps_per_epoch,
					     .argc = t->argc,
					     .argv = t->argv};
	if (!t->set.log_json)
		return GP_OK;
	GP_TRY(gp_json_log_open(t->set.log_json, t->set.resume, &t->log, err));
	return gp_run_log_head(t->log, &head, err);
}

/* A resumed run's trace is a file of its own, so that one that a crash has cut stays as it is. */
static enum gp_status open_trace(struct training *t, struct gp_err *err)
{
	const struct gp_train_settings *s = &t->set;
	struct gp_trace_spec spec = {.path = s->trace,
				     .resumed = s->resume,
				     .limit_bytes = (uint64_t)s->trace_limit,
				     .split = !s->job.local};
	GP_TRY(gp_trace_steps_read(s->trace_steps, &spec.first, &spec.last, err));
	if (!s->trace)
		return GP_OK;
	GP_TRY(gp_trace_open(&spec, &t->trace, err));
	if (strcmp(gp_trace_path(t->trace), s->trace) != 0)
		fprintf(stderr, "--trace: %s is there already; this part of the run is traced to %s\n", s->trace,
			gp_trace_path(t->trace));
	t->job.trace = t->trace;
	return GP_OK;
}

/* A run that goes on has a precision, whatever would be the fastest now. */
static enum gp_status keep_precision(struct training *t, struct gp_err *err)
{
	struct gp_train_settings *s = &t->set;
	if (s->job.precision != GP_PRECISION_AUTO || s->resume == GP_RESUME_NO || !s->checkpoint || !*s->checkpoint)
		return GP_OK;
	return gp_job_keep_precision(&s->job, s->checkpoint, err);
}

/* Its checkpoints are those of a run that was given the precisions that were found to be the fastest. */
static enum gp_status open_engine(struct training *t, struct gp_err *err)
{
	GP_TRY(gp_job_open_engine(&t->job, &t->optim, t->run, err));
	if (t->set.job.precision != GP_PRECISION_AUTO)
		return GP_OK;
	const char *client = t->set.job.local ? "" : gp_precision_name(t->job.client_precision);
	GP_TRY(gp_run_spec_set(&t->run_spec, "precision", gp_precision_name(t->job.session.precision), err));
	return gp_run_spec_set(&t->run_spec, "client-precision", client, err);
}

/* Before anything that takes long: whoever starts many trainings learns at once that a port is taken. */
static enum gp_status open_monitor(struct training *t, struct gp_err *err)
{
	char url[GP_METRICS_SITE_URL];
	if (!t->set.metrics.address)
		return GP_OK;
	GP_TRY(gp_run_monitor_new(&t->set.metrics, &t->monitor, err));
	t->job.monitor = t->monitor;
	fprintf(stderr, "figures are at %smetrics (--metrics)\n", gp_run_monitor_url(t->monitor, url));
	return GP_OK;
}

static uint64_t epochs_of(const struct training *t)
{
	return (t->total_steps + t->steps_per_epoch - 1) / t->steps_per_epoch;
}

/* Everything that can be wrong on this side is found before the server is asked for anything. */
static enum gp_status prepare(struct training *t, struct gp_err *err)
{
	GP_TRY(keep_precision(t, err));
	GP_TRY(gp_job_begin(&t->job, &t->set.job, err));
	GP_TRY(check_files(&t->set, err));
	GP_TRY(check_save(t->set.save, err));
	GP_TRY(open_monitor(t, err));
	GP_TRY(open_data(t, err));
	gp_run_monitor_plan(t->monitor, t->total_steps, epochs_of(t), !t->set.job.local);
	GP_TRY(gp_job_build(&t->job, t->train_data, err));
	GP_TRY(gp_job_start_insertions(&t->job, t->train_data, err));
	if (t->val)
		GP_TRY(gp_metrics_init(&t->metrics, t->val_data, (int)gp_graph_output_shape(t->job.graph)->dim[0],
				       err));
	GP_TRY(gp_weights_new(t->job.graph, &t->weights, err));
	GP_TRY(configure_optimizer(t, err));
	GP_TRY(gp_saved_model_describe(t->job.model, t->train_data, t->set.job.data, &t->description, err));
	gp_saved_model_add_insertion(&t->description, t->job.graph, &t->job.cut, &t->job.insertion);
	GP_TRY(gp_saved_pairs_make(&t->description, &t->described, err));
	GP_TRY(open_run(t, err));
	t->job.stop = &gp_stop_signal;
	GP_TRY(open_trace(t, err));
	GP_TRY(open_log(t, err));
	gp_warn_of_data(t->set.job.data, t->train_data, "training");
	gp_job_warn_of_ranks(&t->job, t->total_steps);
	if (t->set.privacy_every > 0)
		GP_TRY(gp_privacy_meter_new((uint64_t)t->set.privacy_every, &t->privacy, err));
	t->job.privacy = t->privacy;
	t->job.shares_loss = t->set.share_loss;
	gp_run_monitor_stage(t->monitor, GP_RUN_OPENS);
	return open_engine(t, err);
}

static void print_checkpoints(const struct gp_run_checkpoints *c)
{
	if (c->written + c->failed == 0)
		return;
	fprintf(stderr, "checkpoints: %llu written, %llu failed", (unsigned long long)c->written,
		(unsigned long long)c->failed);
	if (c->newest > 0)
		fprintf(stderr, "; --resume goes on at step %llu\n", (unsigned long long)c->newest);
	else
		fprintf(stderr, "; none of this run to go on from\n");
}

static void print_privacy(const struct gp_train_report *r, int64_t every)
{
	const struct gp_privacy_report *p = &r->privacy;
	char text[GP_PRIVACY_TEXT];
	if (every > 0 && r->privacy_measured == 0)
		fprintf(stderr,
			"no distance correlation was measured: --privacy-every %lld asks for step %lld, %lld, ..., and "
			"none of them was taken\n",
			(long long)every, (long long)every, (long long)(2 * every));
	if (r->privacy_measured == 0)
		return;
	fprintf(stderr, "distance correlation with the inputs (bias-corrected, %d samples of step %llu): %s\n",
		p->samples, (unsigned long long)p->step, gp_privacy_text(p, false, text));
	if (p->labels)
		fprintf(stderr, "with the labels: %s\n", gp_privacy_text(p, true, text));
	fprintf(stderr, "it was measured after %llu step%s, in %.2g s in all\n",
		(unsigned long long)r->privacy_measured, r->privacy_measured == 1 ? "" : "s", r->privacy_s);
}

static void print_summary(const struct gp_train_report *r, const struct gp_train_settings *set, bool tells_matthews)
{
	char text[GP_SCORES_TEXT], acc[48] = "", bound[GP_BOUND_BY_TEXT];
	if (isfinite(r->train_acc))
		snprintf(acc, sizeof acc, ", training accuracy %.2f %%", 100 * r->train_acc);
	fprintf(stderr, "%llu step%s in %.1f s, %.3f s per batch (median), loss %.4f%s\n", (unsigned long long)r->steps,
		r->steps == 1 ? "" : "s", r->seconds, r->time_per_batch_s, r->loss, acc);
	if (isfinite(r->val.acc) || isfinite(r->val.pearson))
		fprintf(stderr, "validation %s\n", gp_scores_text(&r->val, tells_matthews, text));
	if (r->clipped_steps > 0)
		fprintf(stderr, "gradients scaled down in %llu steps (--clip-norm)\n",
			(unsigned long long)r->clipped_steps);
	if (r->bound_by.steps > 0 && r->figures.flows)
		fprintf(stderr, "a step's time went to: %s\n", gp_bound_by_text(&r->bound_by, bound));
	gp_figures_print(&r->figures, &r->train_account, r->steps_here, stderr);
	print_privacy(r, set->privacy_every);
	print_checkpoints(&r->checkpoints);
}

/* With the run that made them. Once a training has ended, what it has come to is not lost to a full disk. */
static enum gp_status save(struct training *t, uint64_t steps, struct gp_err *err)
{
	char id[GP_RUN_ID_HEX];
	struct gp_saved_pairs pairs;
	if (!t->set.save)
		return GP_OK;
	t->description.steps = steps;
	if (t->run) {
		gp_run_id_text(gp_run_state_id(t->run), id);
		/* The rest of it opens the run's checkpoints. */
		snprintf(t->description.run, sizeof t->description.run, "%.8s", id);
	}
	GP_TRY(gp_saved_pairs_make(&t->description, &pairs, err));
	const enum gp_status status =
		gp_save_somewhere(t->weights, t->set.save, t->set.checkpoint, pairs.pair, pairs.count, err);
	gp_saved_pairs_deinit(&pairs);
	return status;
}

/* What a training has come to, on standard output and in the log. */
static enum gp_status report_end(struct training *t, struct gp_err *err)
{
	struct gp_train_report *const report = &t->report;
	if (t->set.job.json)
		GP_TRY(gp_job_print_json(gp_train_report_json(report), err));
	t->ended = true;
	if (!t->log)
		return GP_OK;
	return gp_json_log_write(
		t->log, "end",
		json_pack("{s:I, s:o}", "step", (json_int_t)report->steps, "report", gp_train_report_json(report)),
		err);
}

static enum gp_status run(struct training *t, struct gp_err *err)
{
	struct gp_train_report *const report = &t->report;
	struct gp_err unsaved;
	struct gp_trainer_spec spec = {.engine = t->job.engine,
				       .train = t->train,
				       .val = t->val,
				       .schedule = t->schedule,
				       .total_steps = t->total_steps,
				       .steps_per_epoch = t->steps_per_epoch,
				       .val_batches = t->val ? gp_loader_batches_per_epoch(t->val) : 0,
				       .recalibrate = (uint32_t)t->set.job.recalibrate,
				       .metrics = t->val ? &t->metrics : NULL,
				       .tells_matthews = !gp_dataset_has_pictures(t->train_data),
				       .log = t->log,
				       .histograms_every = (uint64_t)t->set.log_histograms,
				       .weights = t->weights,
				       .run = t->run,
				       .monitor = t->monitor,
				       .left_out = t->left_out.samples,
				       .progress = t->set.job.progress,
				       .stop = &gp_stop_signal};
	gp_job_warn_of_norms(&t->job);
	gp_stop_watch();
	GP_TRY(gp_train(&spec, report, err));
	GP_TRY(gp_weights_sha256(t->weights, report->param_sha256, err));
	gp_norm_mode_text(&t->job.norm_mode, report->batch_norm);
	report->recompute = t->job.session.recompute;
	gp_compress_text(&t->job.session, report->compress);
	report->optim = t->optim;
	report->no_decay = t->set.job.no_decay;
	report->without_decay = t->job.without_decay;
	print_summary(report, &t->set, spec.tells_matthews);
	if (t->set.job.profile && t->job.engine->ops->print_profile)
		t->job.engine->ops->print_profile(t->job.engine, stderr);
	const enum gp_status saved = save(t, report->steps, &unsaved);
	const enum gp_status reported = report_end(t, err);
	if (saved != GP_OK) { /* that weights are not where they should be matters more */
		*err = unsaved;
		return saved;
	}
	GP_TRY(reported);
	if (report->stopped)
		GP_FAIL(err, GP_CANCELED, "stopped by a signal after %llu of %llu steps",
			(unsigned long long)report->steps, (unsigned long long)t->total_steps);
	return GP_OK;
}

static enum gp_status clean_up(struct training *t, enum gp_status status, struct gp_err *err)
{
	gp_weights_free(t->weights);
	gp_job_deinit(&t->job);
	gp_run_monitor_free(t->monitor);
	gp_metrics_deinit(&t->metrics);
	gp_run_state_close(t->run);
	gp_run_spec_deinit(&t->run_spec);
	gp_saved_pairs_deinit(&t->described);
	gp_saved_model_deinit(&t->description);
	gp_loader_free(t->train);
	gp_loader_free(t->val);
	gp_privacy_meter_free(t->privacy);
	gp_dataset_free(t->train_data);
	gp_dataset_free(t->val_data);
	struct gp_err close_err;
	if (gp_trace_close(t->trace, &close_err) != GP_OK && status == GP_OK) {
		*err = close_err;
		status = close_err.code;
	}
	if (t->log && gp_json_log_close(t->log, &close_err) != GP_OK && status == GP_OK) {
		*err = close_err;
		status = close_err.code;
	}
	return status;
}

int gp_train_command(const struct gp_train_command *c, int argc, char **argv)
{
	struct training t = {.argc = argc, .argv = argv};
	struct gp_options_result given;
	struct gp_err err = {0};
	enum gp_status status = gp_train_options_parse(c, argc, argv, &t.set, &given, &err);
	if (status == GP_OK && !given.help) {
		status = prepare(&t, &err);
		if (status == GP_OK)
			status = run(&t, &err);
		if (status != GP_OK && !t.ended)
			gp_run_log_error(t.log, gp_stop_exit(status), &err, t.report.steps);
		status = clean_up(&t, status, &err);
	}
	if (status != GP_OK)
		gp_err_print(&err, c->about.command);
	gp_options_free(&given);
	return gp_stop_exit(status);
}

static const struct gp_train_command train_command = {
	.about =
		{
			.command = "gpclient train",
			.synopsis =
				"(--server HOST:PORT | --local) (--model NAME | --init FILE) --data NAME [OPTION...]",
			.about = "Trains a model. With --server the first and last blocks run here and the rest on\n"
				 "gpserverd; with --local everything runs here.",
			.examples =
				"  gpclient train --server 127.0.0.1:4400 --model mobilenetv2:width=0.5,stem=cifar \\\n"
				"      --data fashion-mnist --cut 1:-1 --codec sortquant:bits=6,split=2\n"
				"  gpclient train --local --model cnn --data fashion-mnist --epochs 3 --save "
				"cnn.safetensors\n",
		},
};

int gp_cmd_train(int argc, char **argv)
{
	return gp_train_command(&train_command, argc, argv);
}
