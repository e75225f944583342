/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient insert-fit: trains the layers of --insert alone, before the model is
 * trained with them: the model runs forward on samples, whose labels are not used,
 * and the receiver's layers learn to reconstruct the value that the sender's layers
 * have compressed. Writes weights that `train --init` takes.
 * Test: tests/e2e/insert.sh
 */
#include <math.h>
#include <stddef.h>

#include "client/commands/commands.h"
#include "client/commands/train_options.h"
#include "client/log/figures.h"
#include "client/insert/insert_fit.h"
#include "client/job/job_insert.h"
#include "client/log/progress.h"
#include "common/base/mem.h"

#define PROGRAM          "gpclient insert-fit"
#define PLAIN_PROGRESS_S 5
#define CHECK_BATCHES    8

struct settings {
	struct gp_job_settings job; /* first: the shared rows know its offsets */
	const char *save;
	int64_t steps;
	double lr;
	int optimizer;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt own_rows[] = {
	{.name = "save",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(save),
	 .value = "FILE",
	 .group = "What",
	 .help = "write the weights of the model and of the insertions to this file (safetensors), for train --init"},
	{.name = "steps",
	 .like = &gp_train_rows,
	 .offset = FIELD(steps),
	 .initial = "200",
	 .help = "steps for each cut, with a batch each; 0 = the layers keep the weights that they start with"},
	{.name = "optimizer",
	 .like = &gp_train_rows,
	 .offset = FIELD(optimizer),
	 .initial = "adam",
	 .choices = "sgd|adam", /* as in enum gp_optim_kind */
	 .help = "adam, or sgd (with momentum 0.9)"},
	{.name = "lr",
	 .like = &gp_train_rows,
	 .offset = FIELD(lr),
	 .initial = "0.003",
	 .help = "learning rate of the first step; it falls to nothing along a cosine"},
	{.name = "batch", .like = &gp_job_batch_rows, .initial = "32"},
	{.name = "cut",
	 .like = &gp_job_where_rows,
	 .help = "where the model is divided, as for train; default: that of the insertions in --init, "
		 "else " GP_JOB_CUT},
	{.name = "device", .like = &gp_job_alone_rows},
	{.name = "threads", .like = &gp_job_alone_rows},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "--init FILE --insert SPEC --data NAME --save FILE [--model NAME] [--cut H:T] [OPTION...]",
	.about = "Trains the layers that --insert puts at the cuts, and nothing else: the receiver's layers learn to\n"
		 "reconstruct the value that the sender's layers have compressed, by least squares on the training\n"
		 "samples, without labels. The model's own weights stay as they are. A training that begins with the\n"
		 "file of --save has no untrained layers between trained ones. No server is needed.",
	.examples =
		"  gpclient insert-fit --init flowers.safetensors --data folder:flowers,size=224 --cut 1:-2 \\\n"
		"      --insert origin-0 --save fitted.safetensors\n"
		"  gpclient train --server 127.0.0.1:4400 --init fitted.safetensors --data folder:flowers,size=224\n",
};

struct fitting {
	struct settings set;
	struct gp_job job;
	struct gp_dataset *data, *check_data;
	struct gp_loader *loader, *checks;
	struct gp_graph *plain;
	struct gp_insert_error error[GP_INSERT_ENDS];
	struct gp_progress progress;
};

static enum gp_status parse(int argc, char **argv, struct settings *set, struct gp_options_result *r,
			    struct gp_err *err)
{
	const struct gp_opt_rows parts[] = {GP_OPT_ROWS(own_rows), gp_job_model_rows, gp_job_insert_rows,
					    gp_job_output_rows, gp_job_progress_rows};
	GP_TRY(gp_options_parse_parts(&table, parts, sizeof parts / sizeof parts[0], argc, argv, set, r, err));
	set->job.local = true;
	set->job.codec = "raw";
	set->job.chunks = 1;
	return GP_OK;
}

static enum gp_status check(const struct fitting *f, struct gp_err *err)
{
	if (!f->set.job.init)
		GP_FAIL(err, GP_USAGE,
			"--init FILE is missing: the weights of the model that the layers are fitted to");
	if (!f->set.save || !*f->set.save)
		GP_FAIL(err, GP_USAGE, "--save FILE is missing: where the weights go");
	if (!gp_insertion_any(&f->job.insertion))
		GP_FAIL(err, GP_USAGE, "--insert SPEC is missing: the layers to fit, for example conv:out=20,k=3,s=3");
	return gp_st_check_target(f->set.save, err) == GP_OK ? GP_OK : gp_err_prefix(err, "--save");
}

/* The samples for the errors before and after: those of validation, or of training where those do not fill a batch. */
static enum gp_status open_checks(struct fitting *f, struct gp_err *err)
{
	const struct gp_job_settings *s = &f->set.job;
	const struct gp_loader_spec spec = {
		.batch = (int)s->batch, .drop_last = true, .seed = (uint64_t)s->seed, .prefetch = 1};
	GP_TRY(gp_job_open_data(&f->job, GP_SPLIT_VAL, false, &f->check_data, err));
	const bool enough = gp_dataset_samples(f->check_data) >= s->batch;
	return gp_loader_new(enough ? f->check_data : f->data, &spec, &f->checks, err);
}

static enum gp_status prepare(struct fitting *f, struct gp_err *err)
{
	struct gp_job_settings *s = &f->set.job;
	GP_TRY(gp_job_begin(&f->job, s, err));
	GP_TRY(check(f, err));
	GP_TRY(gp_job_open_data(&f->job, GP_SPLIT_TRAIN, false, &f->data, err));
	GP_TRY(gp_job_check_batch(s, f->data, err));
	GP_TRY(gp_job_open_loader(&f->job, f->data, GP_SPLIT_TRAIN, &f->loader, err));
	GP_TRY(open_checks(f, err));
	GP_TRY(gp_job_build(&f->job, f->data, err));
	GP_TRY(gp_job_start_insertions(&f->job, f->data, err));
	return gp_job_plain_graph(&f->job, f->data, &f->plain, err);
}

static void show_step(void *arg, enum gp_insert_end end, int step, double error)
{
	struct fitting *f = arg;
	char text[120];
	snprintf(text, sizeof text, "insert-%s: step %d/%lld  relative error %.4f", gp_insert_end_name[end], step,
		 (long long)f->set.steps, error);
	gp_progress_update(&f->progress, gp_now_ns(), text);
}

/* The upper cut first: the values at the lower cut are then those of a model with the insertion at the upper one. */
static enum gp_status fit(struct fitting *f, struct gp_err *err)
{
	const struct settings *s = &f->set;
	const uint32_t batches = gp_loader_batches_per_epoch(f->checks);
	const struct gp_insert_fit spec = {.from = gp_job_insert_source(&f->job, f->plain, f->loader),
					   .checks = f->checks,
					   .check_batches = batches < CHECK_BATCHES ? (int)batches : CHECK_BATCHES,
					   .steps = (int)s->steps,
					   .lr = (float)s->lr,
					   .optim = {.kind = s->optimizer ? GP_OPTIM_ADAM : GP_OPTIM_SGD,
						     .momentum = s->optimizer ? 0 : 0.9f,
						     .beta1 = 0.9,
						     .beta2 = 0.999,
						     .eps = 1e-8f},
					   .progress = show_step,
					   .arg = f};
	gp_progress_init(&f->progress, s->job.progress ? stderr : NULL, PLAIN_PROGRESS_S);
	for (int e = 0; e < GP_INSERT_ENDS; e++) {
		if (f->job.insertion.end[e].spec.sets == 0)
			continue;
		const enum gp_status status = gp_insert_fit(&spec, (enum gp_insert_end)e, &f->error[e], err);
		gp_progress_clear(&f->progress);
		if (status != GP_OK)
			return gp_err_prefix(err, "--%s", f->job.insertion.end[e].flag);
	}
	return GP_OK;
}

static enum gp_status save(const struct fitting *f, struct gp_err *err)
{
	struct gp_saved_model description;
	struct gp_saved_pairs pairs;
	GP_TRY(gp_saved_model_describe(f->job.model, f->data, f->set.job.data, &description, err));
	gp_saved_model_add_insertion(&description, f->job.graph, &f->job.cut, &f->job.insertion);
	enum gp_status status = gp_saved_pairs_make(&description, &pairs, err);
	if (status == GP_OK)
		status = gp_weights_save_with(f->job.init, f->set.save, pairs.pair, pairs.count, err);
	gp_saved_pairs_deinit(&pairs);
	gp_saved_model_deinit(&description);
	return status;
}

static json_t *report_json(const struct fitting *f)
{
	json_t *o = json_pack("{s:o, s:I}", "out", gp_job_text_json(f->set.save), "steps", (json_int_t)f->set.steps);
	for (int e = 0; o && e < GP_INSERT_ENDS; e++) {
		const struct gp_insertion_end *end = &f->job.insertion.end[e];
		char text[GP_INSERT_TEXT], key[32];
		snprintf(key, sizeof key, "insert_%s", gp_insert_end_name[e]);
		json_object_set_new(o, key,
				    end->spec.sets == 0 ? json_null()
							: json_pack("{s:s, s:o, s:o}", "layers",
								    gp_insert_spec_text(&end->spec, text),
								    "error_before", gp_json_number(f->error[e].before),
								    "error_after", gp_json_number(f->error[e].after)));
	}
	return o;
}

static enum gp_status report(const struct fitting *f, struct gp_err *err)
{
	char text[GP_INSERT_TEXT];
	if (f->set.job.json)
		return gp_job_print_json(report_json(f), err);
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		if (f->job.insertion.end[e].spec.sets > 0)
			printf("insert-%s %s: relative error %.4f before, %.4f after %lld steps%s\n",
			       gp_insert_end_name[e], gp_insert_spec_text(&f->job.insertion.end[e].spec, text),
			       f->error[e].before, f->error[e].after, (long long)f->set.steps,
			       f->set.steps > 0 && f->error[e].after >= f->error[e].before
				       ? " (they made it no smaller: the weights before them are kept)"
				       : "");
	return GP_OK;
}

static enum gp_status run(struct fitting *f, struct gp_err *err)
{
	GP_TRY(prepare(f, err));
	GP_TRY(fit(f, err));
	GP_TRY(save(f, err));
	return report(f, err);
}

int gp_cmd_insert_fit(int argc, char **argv)
{
	struct fitting f = {.plain = NULL};
	struct gp_options_result given;
	struct gp_err err = {0};
	enum gp_status status = parse(argc, argv, &f.set, &given, &err);
	if (status == GP_OK && !given.help)
		status = run(&f, &err);
	gp_job_deinit(&f.job);
	gp_graph_free(f.plain);
	gp_loader_free(f.loader);
	gp_loader_free(f.checks);
	gp_dataset_free(f.data);
	gp_dataset_free(f.check_data);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&given);
	return gp_status_exit(status);
}
