/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient eval: accuracy and loss of given weights over a dataset's validation
 * samples, split or local; no gradients, no memory for them.
 * Test: tests/e2e/eval_infer.sh
 */
#include <math.h>
#include <stddef.h>

#include "client/train/bad_data.h"
#include "client/commands/commands.h"
#include "client/log/figures.h"
#include "client/job/job.h"
#include "client/job/job_insert.h"
#include "client/engine/eval_metrics.h"
#include "client/log/progress.h"
#include "client/train/recalibrate.h"
#include "common/store/safetensors.h"

#define PROGRAM "gpclient eval"

#define PLAIN_PROGRESS_S 5

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "(--server HOST:PORT | --local) --data NAME --init FILE [--model NAME] [OPTION...]",
	.about = "Measures accuracy and loss of weights on a dataset's validation samples. With --server the first\n"
		 "and last blocks run here and the rest on gpserverd; with --local everything runs here. Weights\n"
		 "that gpclient has saved say which model they are of, and how pictures are normalised and sized\n"
		 "where --data and --input do not.",
	.examples = "  gpclient eval --local --data fashion-mnist --init cnn.safetensors\n"
		    "  gpclient eval --server 127.0.0.1:4400 --cut 1:-1 --data fashion-mnist \\\n"
		    "      --init cnn.safetensors --codec uniform:bits=8 --json\n",
};

static const struct gp_opt save_rows[] = {
	{.name = "save",
	 .type = GP_OPT_TEXT,
	 .offset = offsetof(struct gp_job_settings, recalibrated),
	 .value = "FILE",
	 .help = "with --recalibrate: write the weights with their new statistics there (safetensors)"},
};

struct evaluation {
	struct gp_job_settings set;
	struct gp_job job;
	struct gp_dataset *data;
	struct gp_left_out left_out;
	struct gp_loader *loader;
	struct gp_recalibration recalibration;
	uint32_t batches;
	uint32_t samples;          /* evaluated so far */
	struct gp_step_result sum; /* its `samples` are labels: of a masked language model, masked tokens */
	struct gp_metrics metrics;
	struct gp_scores scores; /* of `sum` */
	double seconds;
	struct gp_engine_figures figures;
	struct gp_account account; /* of the evaluation alone, without the weights' way to the server */
};

static enum gp_status parse(int argc, char **argv, struct gp_job_settings *set, struct gp_options_result *r,
			    struct gp_err *err)
{
	const struct gp_opt_rows parts[] = {gp_job_where_rows,       gp_job_security_rows,  gp_job_model_rows,
					    gp_job_skip_rows,        gp_job_batch_rows,     gp_job_codec_rows,
					    gp_job_insert_rows,      gp_job_output_rows,    gp_job_progress_rows,
					    gp_job_recalibrate_rows, GP_OPT_ROWS(save_rows)};
	*set = (struct gp_job_settings){0};
	return gp_options_parse_parts(&table, parts, sizeof parts / sizeof parts[0], argc, argv, set, r, err);
}

/* Before minutes of evaluation, not after: can a file be made there? */
static enum gp_status check_save(const struct gp_job_settings *s, struct gp_err *err)
{
	if (!s->recalibrated)
		return GP_OK;
	if (s->recalibrate == 0)
		GP_FAIL(err, GP_USAGE,
			"--save is of weights that --recalibrate has changed; without it they are those of --init");
	return gp_st_check_target(s->recalibrated, err) == GP_OK ? GP_OK : gp_err_prefix(err, "--save");
}

static enum gp_status prepare(struct evaluation *e, struct gp_err *err)
{
	e->set.purpose = GP_JOB_EVAL;
	GP_TRY(gp_job_begin(&e->job, &e->set, err));
	if (!e->set.init)
		GP_FAIL(err, GP_USAGE, "--init FILE is missing: the weights to evaluate");
	GP_TRY(check_save(&e->set, err));
	if (e->set.recalibrate > 0)
		GP_TRY(gp_recalibration_open(&e->recalibration, &e->job, &e->left_out, err));
	GP_TRY(gp_job_open_data(&e->job, GP_SPLIT_VAL, false, &e->data, err));
	GP_TRY(gp_leave_out_bad(&e->set, GP_SPLIT_VAL, e->data, &e->left_out, err));
	GP_TRY(gp_job_open_loader(&e->job, e->data, GP_SPLIT_VAL, &e->loader, err));
	e->batches = gp_loader_batches_per_epoch(e->loader);
	GP_TRY(gp_job_build(&e->job, e->data, err));
	GP_TRY(gp_job_check_started(&e->job, "eval", err));
	GP_TRY(gp_metrics_init(&e->metrics, e->data, (int)gp_graph_output_shape(e->job.graph)->dim[0], err));
	gp_warn_of_data(e->set.data, e->data, "validation");
	return gp_job_open_engine(&e->job, NULL, NULL, err);
}

static bool tells_matthews(const struct evaluation *e)
{
	return !gp_dataset_has_pictures(e->data);
}

static void set_scores(struct evaluation *e)
{
	e->scores = gp_scores_of(&e->metrics, e->job.values, e->sum.loss_sum, e->sum.correct, e->sum.samples);
}

static void show_progress(struct evaluation *e, struct gp_progress *p)
{
	char text[240], scores[GP_SCORES_TEXT];
	const uint64_t now = gp_now_ns();
	set_scores(e);
	snprintf(text, sizeof text, "%u/%u samples  %s", e->samples, gp_dataset_samples(e->data),
		 gp_scores_and_loss(&e->scores, tells_matthews(e), scores));
	gp_progress_update(p, now, text);
}

/* After so many batches, of which the last may have fewer. */
static uint32_t samples_of(const struct evaluation *e, uint32_t batches)
{
	const uint64_t full = (uint64_t)batches * (uint64_t)e->set.batch;
	const uint32_t all = gp_dataset_samples(e->data);
	return full < all ? (uint32_t)full : all;
}

static enum gp_status evaluate(struct evaluation *e, struct gp_progress *p, struct gp_err *err)
{
	struct gp_engine *engine = e->job.engine;
	gp_metrics_begin(&e->metrics);
	engine->metrics = &e->metrics;
	for (uint32_t done = 0; done < e->batches; done += GP_EVAL_SLICE) {
		struct gp_step_result part;
		const uint32_t left = e->batches - done, slice = left < GP_EVAL_SLICE ? left : GP_EVAL_SLICE;
		GP_TRY(engine->ops->evaluate(engine, e->loader, slice, &part, err));
		e->samples = samples_of(e, done + slice);
		e->sum.loss_sum += part.loss_sum;
		e->sum.correct += part.correct;
		e->sum.samples += part.samples;
		show_progress(e, p);
	}
	set_scores(e);
	return GP_OK;
}

static enum gp_status print_report(const struct evaluation *e, struct gp_err *err)
{
	char text[GP_SCORES_TEXT], masked[48] = "";
	const double rate = (double)e->samples / e->seconds;
	if (e->metrics.words)
		snprintf(masked, sizeof masked, " with %llu masked tokens", (unsigned long long)e->sum.samples);
	fprintf(stderr, "%u %s%s in %.1f s, %.1f samples/s\n", e->samples, e->samples == 1 ? "sample" : "samples",
		masked, e->seconds, rate);
	gp_figures_print(&e->figures, &e->account, e->batches, stderr);
	if (!e->set.json) {
		printf("%s\n", gp_scores_and_loss(&e->scores, tells_matthews(e), text));
		return GP_OK;
	}
	json_t *o = json_pack("{s:I, s:I, s:f, s:f}", "samples", (json_int_t)e->samples, "samples_left_out",
			      (json_int_t)e->left_out.samples, "seconds", e->seconds, "samples_per_s", rate);
	json_object_set_new(o, "masked_tokens",
			    e->metrics.words ? json_integer((json_int_t)e->sum.samples) : json_null());
	o = gp_scores_json(o, &e->scores);
	return gp_job_print_json(gp_figures_json(o, &e->figures, &e->account, e->batches), err);
}

static enum gp_status run(struct evaluation *e, struct gp_err *err)
{
	struct gp_progress progress;
	struct gp_engine_figures before;
	struct gp_engine *engine = e->job.engine;
	gp_progress_init(&progress, e->set.progress ? stderr : NULL, PLAIN_PROGRESS_S);
	if (e->set.recalibrate > 0 && gp_recalibration_run(&e->recalibration, &e->job, &progress, err) != GP_OK) {
		gp_progress_finish(&progress, NULL);
		return err->code;
	}
	engine->ops->figures(engine, &before);
	uint64_t begin = gp_now_ns();
	enum gp_status status = evaluate(e, &progress, err);
	e->seconds = (double)(gp_now_ns() - begin) * 1e-9;
	gp_progress_finish(&progress, NULL);
	GP_TRY(status);
	engine->ops->figures(engine, &e->figures);
	e->account = e->figures.account;
	gp_account_subtract(&e->account, &before.account);
	e->figures.rate = gp_link_rate(&before.tcp, &e->figures.tcp, e->seconds);
	return print_report(e, err);
}

int gp_cmd_eval(int argc, char **argv)
{
	struct evaluation e = {0};
	struct gp_options_result given;
	struct gp_err err = {0};
	enum gp_status status = parse(argc, argv, &e.set, &given, &err);
	if (status == GP_OK && !given.help) {
		status = prepare(&e, &err);
		if (status == GP_OK)
			status = run(&e, &err);
	}
	gp_job_deinit(&e.job);
	gp_metrics_deinit(&e.metrics);
	gp_recalibration_deinit(&e.recalibration);
	gp_loader_free(e.loader);
	gp_dataset_free(e.data);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&given);
	return gp_status_exit(status);
}
