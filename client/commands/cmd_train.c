/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient train: from the command line to a trained model. Puts dataset,
 * model, engine and trainer together; none of them is here.
 * Test: tests/e2e
 */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#include "client/train/bad_data.h"
#include "client/commands/commands.h"
#include "client/commands/train_command.h"
#include "client/log/figures.h"
#include "client/job/job.h"
#include "client/job/job_insert.h"
#include "client/log/run_log.h"
#include "client/job/run_spec.h"
#include "client/train/run_state.h"
#include "client/weights/save_weights.h"
#include "client/trace/trace.h"
#include "client/train/trainer.h"
#include "common/base/mem.h"
#include "common/store/safetensors.h"

struct settings {
	struct gp_job_settings job; /* first: the shared rows know its offsets */
	int64_t epochs, steps;
	int optimizer, schedule;
	double lr, final_lr, momentum, weight_decay, warmup, step_every, step_gamma, poly_power;
	double clip_norm, clip_value, adam_eps;
	const char *adam_betas;
	double beta[2]; /* what that says */
	bool nesterov, eval, augment;
	bool augment_asked; /* not the default, but --augment of the user */
	const char *save, *log_json, *trace, *trace_steps;
	int64_t log_histograms, trace_limit, privacy_every;
	const char *checkpoint;
	int64_t checkpoint_every;
	bool checkpoint_required;
	int resume; /* enum gp_resume */
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt data_rows[] = {
	{.name = "augment",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(augment),
	 .initial = "true",
	 .help = "random crops and flips of pictures while training (--no-augment: off)"},
	{.name = "save",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(save),
	 .value = "FILE",
	 .help = "write the trained weights there (safetensors); where that fails at the end they go to the folder of "
		 "--checkpoint, the current one or $TMPDIR, which an error names, and the exit status is 1"},
};

static const struct gp_opt norm_rows[] = {
	{.name = "batch-norm",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(job.batch_norm),
	 .value = "MODE",
	 .initial = "chunk",
	 .help = GP_NORM_MODE_CHOICES ": by which statistics batch norm normalizes in training: chunk = the chunk's; "
				      "deferred = the chunk's, but the "
				      "running ones move once a step; running = the running ones, which stay as they "
				      "are (fine-tuning); renorm = the "
				      "chunk's, corrected towards the running ones (small chunks from scratch)"},
};

static const struct gp_opt training_rows[] = {
	{.name = "epochs",
	 .type = GP_OPT_INT,
	 .offset = FIELD(epochs),
	 .value = "N",
	 .initial = "1",
	 .min = 1,
	 .max = 1 << 20,
	 .group = "Training",
	 .help = "passes over the training samples"},
	{.name = "steps",
	 .type = GP_OPT_INT,
	 .offset = FIELD(steps),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 1e9,
	 .help = "steps in place of epochs; 0 = as many as --epochs says"},
	{.name = "optimizer",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(optimizer),
	 .value = "NAME",
	 .initial = "sgd",
	 .choices = "sgd|adam|adamw",
	 .help = "sgd, adam or adamw"},
	{.name = "lr",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(lr),
	 .value = "X",
	 .initial = "0.05",
	 .min = 1e-12,
	 .max = 1e3,
	 .help = "learning rate"},
	{.name = "momentum",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(momentum),
	 .value = "X",
	 .initial = "0.9",
	 .min = 0,
	 .max = 1,
	 .below_max = true,
	 .help = "momentum of --optimizer sgd; refused with adam and adamw, which have their own"},
	{.name = "nesterov",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(nesterov),
	 .help = "Nesterov momentum, with --optimizer sgd"},
	{.name = "weight-decay",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(weight_decay),
	 .value = "X",
	 .initial = "0.0005",
	 .min = 0,
	 .max = 10,
	 .help = "L2 penalty; of adamw apart from the gradient"},
	{.name = "no-decay",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(job.no_decay),
	 .value = "PATTERN[,PATTERN]",
	 .help = "no --weight-decay for these parameters (names with wildcards: '*.bias,*.LayerNorm.*')"},
	{.name = "adam-eps",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(adam_eps),
	 .value = "X",
	 .initial = "1e-8",
	 .min = 1e-30,
	 .max = 1,
	 .help = "with --optimizer adam and adamw: what is added to the root below the fraction"},
	{.name = "adam-betas",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(adam_betas),
	 .value = "B1,B2",
	 .initial = "0.9,0.999",
	 .help = "with --optimizer adam and adamw: how slowly its averages of gradients and of their squares move"},
	{.name = "clip-norm",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(clip_norm),
	 .value = "X",
	 .initial = "0",
	 .min = 0,
	 .max = 1e30,
	 .help = "scale gradients whose norm, over all parts of the model, is above X; 0 = off; not with --clip-value"},
	{.name = "clip-value",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(clip_value),
	 .value = "X",
	 .initial = "0",
	 .min = 0,
	 .max = 1e30,
	 .help = "limit every element of a gradient to -X..X; 0 = off; not with --clip-norm"},
	{.name = "schedule",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(schedule),
	 .value = "NAME",
	 .initial = "cosine",
	 .choices = "const|cosine|step|poly|linear", /* in the order of enum gp_schedule_kind */
	 .help = "how the learning rate changes: const, cosine, step, poly or linear (poly with the exponent 1)"},
	{.name = "warmup",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(warmup),
	 .value = "STEPS",
	 .initial = "0",
	 .min = 0,
	 .max = 1e9,
	 .help = "the learning rate rises linearly for so many steps; a number below 1 is a share of all"},
	{.name = "final-lr",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(final_lr),
	 .value = "X",
	 .initial = "0",
	 .min = 0,
	 .max = 1e3,
	 .help = "learning rate at the end of --schedule cosine, poly and linear"},
	{.name = "step-every",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(step_every),
	 .value = "EPOCHS",
	 .initial = "30",
	 .min = 1e-6,
	 .max = 1e9,
	 .help = "with --schedule step: epochs between two drops of the learning rate"},
	{.name = "step-gamma",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(step_gamma),
	 .value = "X",
	 .initial = "0.1",
	 .min = 1e-6,
	 .max = 1,
	 .help = "with --schedule step: what a drop multiplies the learning rate by"},
	{.name = "poly-power",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(poly_power),
	 .value = "X",
	 .initial = "1",
	 .min = 1e-3,
	 .max = 100,
	 .help = "with --schedule poly: its exponent"},
	{.name = "eval",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(eval),
	 .initial = "true",
	 .help = "validation accuracy after each epoch (--no-eval: off)"},
};

static const struct gp_opt checkpoint_rows[] = {
	{.name = "checkpoint",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(checkpoint),
	 .value = "DIR",
	 .group = "Checkpoints",
	 .help = "write checkpoints of this side to this folder, and have the server write its own (its "
		 "--state-dir)"},
	{.name = "checkpoint-every",
	 .type = GP_OPT_INT,
	 .offset = FIELD(checkpoint_every),
	 .value = "STEPS",
	 .initial = "100",
	 .min = 1,
	 .max = 1e9,
	 .help = "write one every STEPS steps, at the end, and when a signal stops the training"},
	{.name = "checkpoint-required",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(checkpoint_required),
	 .help = "end training when a checkpoint cannot be written; else that is a warning"},
	{.name = "resume",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(resume),
	 .value = "if-any",
	 .choices = "no|yes|if-any", /* in the order of enum gp_resume */
	 .bare = true,
	 .help = "go on from the newest checkpoint that both sides have, and end with status 3 where there is none; "
		 "=if-any: begin a run where no checkpoint was ever whole, as at a service's first start. --steps and "
		 "--epochs may grow (cosine, poly, linear and a --warmup below 1 then follow the new number from there "
		 "on, as if it had been so all along)"},
};

static const struct gp_opt log_rows[] = {
	{.name = "log-json",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(log_json),
	 .value = "FILE",
	 .help = "write events there, one JSON object a line: header, steps, evaluations, end (client/JSON.md); "
		 "'gpclient report' makes a page of them. A file that holds some already is refused, unless by "
		 "--resume, which adds to it, or where its run ended before its first step"},
	{.name = "log-histograms",
	 .type = GP_OPT_INT,
	 .offset = FIELD(log_histograms),
	 .value = "N",
	 .initial = "100",
	 .min = 0,
	 .max = 1e9,
	 .help = "with --log-json: at the first step and every N steps, log histograms of this side's activations, "
		 "gradients, weights and what the optimizer remembers, and how much the codec loses of what is sent; "
		 "0 = none"},
	{.name = "trace",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(trace),
	 .value = "FILE",
	 .help = "write there when both ends did what, every stage of every chunk, for ui.perfetto.dev or Chrome's "
		 "trace viewer; a file that holds something is refused; with --resume, FILE.2, FILE.3, ... is written "
		 "instead"},
	{.name = "trace-steps",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(trace_steps),
	 .value = "A:B",
	 .initial = "1:",
	 .help = "with --trace: only steps A to B, counted from 1; A: is to the end, :B from the beginning, A one "
		 "step"},
	{.name = "trace-limit",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(trace_limit),
	 .value = "BYTES",
	 .initial = "256M",
	 .min = 4096,
	 .max = 9e15,
	 .help = "with --trace: the file ends there, and the training goes on"},
	{.name = "privacy-every",
	 .type = GP_OPT_INT,
	 .offset = FIELD(privacy_every),
	 .value = "STEPS",
	 .initial = "0",
	 .min = 0,
	 .max = 1e9,
	 .help = "after every STEPS steps, measure how far what crosses the link in each direction, behind the codec, "
		 "depends on the batch's inputs and on its labels (distance correlation, 0 to 1; client/PRIVACY.md), "
		 "for --log-json and the closing lines; 0 = never"},
	{.name = "profile",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(job.profile),
	 .help = "at the end, a table of times, GFLOP/s and GB/s per node of this side, on standard error"},
};

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

#define ROWS(rows)                                                                                                     \
	{                                                                                                              \
		rows, sizeof rows / sizeof rows[0]                                                                     \
	}

static enum gp_status parse_betas(struct settings *set, struct gp_err *err)
{
	const struct gp_value_form form = {.type = GP_VALUE_REAL, .min = 0, .max = 1, .below_max = true};
	struct gp_text rest = gp_text_of(set->adam_betas), piece;
	char why[GP_VALUE_WHY];
	union gp_value v;
	int n = 0;
	for (; n <= 2 && gp_text_cut(&rest, ',', &piece); n++) {
		if (n == 2 || !gp_value_parse(&form, piece, &v, why))
			n = 2; /* and one more: too many, or none at all */
		else
			set->beta[n] = v.real;
	}
	if (n != 2)
		GP_FAIL(err, GP_USAGE, "--adam-betas '%.40s' are not two numbers from 0 to below 1, as in 0.9,0.999",
			set->adam_betas);
	return GP_OK;
}

/* A flag that only one optimizer knows is refused with another, not silently dropped. */
static enum gp_status check_optimizer_flags(const struct gp_opt_table *t, struct settings *set,
					    const struct gp_options_result *r, struct gp_err *err)
{
	const char *flag = set->nesterov ? "nesterov" : gp_options_given(t, r, "momentum") ? "momentum" : NULL;
	if (flag && set->optimizer != GP_OPTIM_SGD)
		GP_FAIL(err, GP_USAGE, "--%s is of sgd; --optimizer %s has averages of its own and would ignore it",
			flag, set->optimizer == GP_OPTIM_ADAM ? "adam" : "adamw");
	flag = gp_options_given(t, r, "adam-eps")     ? "adam-eps"
	       : gp_options_given(t, r, "adam-betas") ? "adam-betas"
						      : NULL;
	if (flag && set->optimizer == GP_OPTIM_SGD)
		GP_FAIL(err, GP_USAGE, "--%s is of --optimizer adam and adamw; sgd has none and would ignore it", flag);
	return parse_betas(set, err);
}

static struct gp_opt_table join_rows(struct gp_opt rows[GP_OPT_MAX])
{
	const struct gp_opt_rows parts[] = {gp_job_where_rows,    gp_job_security_rows,    gp_job_model_rows,
					    gp_job_freeze_rows,   gp_job_skip_rows,        ROWS(data_rows),
					    ROWS(norm_rows),      gp_job_recalibrate_rows, gp_job_batch_rows,
					    ROWS(training_rows),  gp_job_codec_rows,       gp_job_grad_rows,
					    gp_job_insert_rows,   ROWS(checkpoint_rows),   gp_job_output_rows,
					    gp_job_progress_rows, ROWS(log_rows)};
	struct gp_opt_table t = {.command = train_command.about.command};
	t.opt = rows;
	t.count = gp_opt_join(parts, sizeof parts / sizeof parts[0], rows);
	return t;
}

static bool is_left_out(const struct gp_train_command *c, const char *name)
{
	for (int i = 0; c->left_out && c->left_out[i]; i++)
		if (strcmp(c->left_out[i], name) == 0)
			return true;
	return false;
}

static void set_initial(const struct gp_train_command *c, struct gp_opt *row)
{
	for (int i = 0; c->initial && c->initial[i].name; i++) {
		if (strcmp(c->initial[i].name, row->name) != 0)
			continue;
		row->initial = c->initial[i].initial;
		row->help = c->initial[i].help ? c->initial[i].help : row->help;
	}
}

/* The rows of `train` as the command has them. */
static struct gp_opt_table rows_of(const struct gp_train_command *c, struct gp_opt rows[GP_OPT_MAX])
{
	struct gp_opt_table t = join_rows(rows);
	int kept = 0;
	for (int i = 0; i < t.count; i++)
		if (!is_left_out(c, rows[i].name)) {
			rows[kept] = rows[i];
			set_initial(c, &rows[kept++]);
		}
	t.command = c->about.command;
	t.synopsis = c->about.synopsis;
	t.about = c->about.about;
	t.examples = c->about.examples;
	t.count = kept;
	return t;
}

static enum gp_status check_flags_of_files(const struct gp_opt_table *t, const struct settings *set,
					   const struct gp_options_result *r, struct gp_err *err)
{
	const char *flag = gp_options_given(t, r, "trace-steps")   ? "trace-steps"
			   : gp_options_given(t, r, "trace-limit") ? "trace-limit"
								   : NULL;
	if (flag && !set->trace)
		GP_FAIL(err, GP_USAGE, "--%s needs --trace FILE", flag);
	if (gp_options_given(t, r, "log-histograms") && set->log_histograms > 0 && !set->log_json)
		GP_FAIL(err, GP_USAGE, "--log-histograms needs --log-json FILE, where the histograms go");
	return GP_OK;
}

/* What the server has of the tensors that go up is found by decoding them here. */
static enum gp_status check_privacy(const struct settings *s, struct gp_err *err)
{
	const char *up[] = {s->job.codec_dir[GP_ACT_UP], s->job.codec_dir[GP_GRAD_UP]};
	if (s->privacy_every == 0)
		return GP_OK;
	if (s->job.local)
		GP_FAIL(err, GP_USAGE,
			"--privacy-every measures what crosses the link, and a local run has none: give --server");
	if (s->job.batch < GP_DISTANCE_LEAST)
		GP_FAIL(err, GP_USAGE, "--privacy-every compares the samples of a batch: --batch %lld is fewer than %d",
			(long long)s->job.batch, GP_DISTANCE_LEAST);
	for (size_t i = 0; i < sizeof up / sizeof up[0]; i++)
		if (strncmp(up[i] ? up[i] : s->job.codec, "delta", 5) == 0)
			GP_FAIL(err, GP_USAGE,
				"--privacy-every does not go with the codec delta: what arrives depends on all that "
				"the "
				"server remembers of each sample");
	return GP_OK;
}

static enum gp_status parse(const struct gp_train_command *c, int argc, char **argv, struct settings *set,
			    struct gp_options_result *r, struct gp_err *err)
{
	struct gp_opt rows[GP_OPT_MAX];
	const struct gp_opt_table t = rows_of(c, rows);
	GP_TRY(gp_options_parse(&t, argc, argv, set, r, err));
	set->job.masked_words = c->masked_words;
	set->augment_asked = set->augment && gp_options_given(&t, r, "augment");
	GP_TRY(check_flags_of_files(&t, set, r, err));
	GP_TRY(check_privacy(set, err));
	return check_optimizer_flags(&t, set, r, err);
}

/* Everything that a run owns, freed in one place. */
struct training {
	struct settings set;
	struct gp_job job;
	struct gp_dataset *train_data, *val_data;
	struct gp_left_out left_out; /* of both */
	struct gp_loader *train, *val;
	struct gp_metrics metrics; /* of evaluations */
	struct gp_weights *weights;
	struct gp_json_log *log;
	struct gp_trace *trace;           /* NULL without --trace */
	struct gp_privacy_meter *privacy; /* NULL without --privacy-every */
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

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
	if (stop_signal)
		_exit(128 + number); /* asked twice */
	stop_signal = number;
}

/* Before hours of training, not after: can a file be made there? */
static enum gp_status check_save(const char *path, struct gp_err *err)
{
	if (!path)
		return GP_OK;
	if (!*path)
		GP_FAIL(err, GP_USAGE, "--save needs the name of a file");
	return gp_st_check_target(path, err) == GP_OK ? GP_OK : gp_err_prefix(err, "--save");
}

static enum gp_status open_data(struct training *t, struct gp_err *err)
{
	const struct gp_job_settings *s = &t->set.job;
	GP_TRY(gp_job_open_data(&t->job, GP_SPLIT_TRAIN, t->set.augment, &t->train_data, err));
	if (t->set.augment_asked && !gp_dataset_has_pictures(t->train_data))
		GP_FAIL(err, GP_USAGE, "--augment is for pictures; --data %s has none", s->data);
	GP_TRY(gp_leave_out_bad(s, GP_SPLIT_TRAIN, t->train_data, &t->left_out, err));
	uint32_t samples = gp_dataset_samples(t->train_data);
	if (samples < (uint32_t)s->batch)
		GP_FAIL(err, GP_INVALID, "--data %s has %u training samples, fewer than one batch of %lld", s->data,
			samples, (long long)s->batch);
	GP_TRY(gp_job_open_loader(&t->job, t->train_data, GP_SPLIT_TRAIN, &t->train, err));
	t->steps_per_epoch = gp_loader_batches_per_epoch(t->train);
	t->total_steps = t->set.steps > 0 ? (uint64_t)t->set.steps : (uint64_t)t->set.epochs * t->steps_per_epoch;
	if (!t->set.eval)
		return GP_OK;
	GP_TRY(gp_job_open_data(&t->job, GP_SPLIT_VAL, false, &t->val_data, err));
	GP_TRY(gp_leave_out_bad(s, GP_SPLIT_VAL, t->val_data, &t->left_out, err));
	return gp_job_open_loader(&t->job, t->val_data, GP_SPLIT_VAL, &t->val, err);
}

static struct gp_optim optimizer_of(const struct settings *s)
{
	return (struct gp_optim){.kind = (enum gp_optim_kind)s->optimizer,
				 .momentum = (float)s->momentum,
				 .nesterov = s->nesterov,
				 .weight_decay = (float)s->weight_decay,
				 .beta1 = s->beta[0],
				 .beta2 = s->beta[1],
				 .eps = (float)s->adam_eps,
				 .clip_norm = s->clip_norm,
				 .clip_value = s->clip_value};
}

static enum gp_status configure_optimizer(struct training *t, struct gp_err *err)
{
	const struct settings *s = &t->set;
	double warmup = s->warmup < 1 ? s->warmup * (double)t->total_steps : s->warmup;
	t->optim = optimizer_of(s);
	t->schedule = (struct gp_schedule){.kind = (enum gp_schedule_kind)s->schedule,
					   .base_lr = s->lr,
					   .final_lr = s->final_lr,
					   .total_steps = (int64_t)t->total_steps,
					   .warmup_steps = (int64_t)warmup,
					   .gamma = s->step_gamma,
					   .every = (int64_t)ceil(s->step_every * t->steps_per_epoch),
					   .power = s->poly_power};
	GP_TRY(gp_optim_check(&t->optim, err));
	return gp_schedule_check(&t->schedule, err);
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
	char data[1024];
	struct gp_opt rows[GP_OPT_MAX];
	const struct gp_opt_table all = join_rows(rows);
	for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
		GP_TRY(gp_run_spec_add_flag(&t->run_spec, &all, &t->set, flags[i], err));
	gp_left_out_text(&t->left_out, t->set.job.data, data, sizeof data);
	GP_TRY(gp_run_spec_add(&t->run_spec, "data", data, err));
	if (gp_dataset_tokenizer(t->train_data)) {
		char tokenizer[24];
		snprintf(tokenizer, sizeof tokenizer, "%016" PRIx64, gp_dataset_tokenizer(t->train_data));
		GP_TRY(gp_run_spec_add(&t->run_spec, "tokenizer", tokenizer, err));
	}
	GP_TRY(gp_run_spec_add_flag(&t->run_spec, &all, &t->set, "recalibrate", err));
	GP_TRY(gp_run_spec_add(&t->run_spec, "pad", t->job.drop_padding ? "drop" : "max", err));
	char mode[GP_NORM_MODE_TEXT];
	GP_TRY(gp_run_spec_add(&t->run_spec, "batch-norm", gp_norm_mode_text(&t->job.norm_mode, mode), err));
	return gp_run_spec_add_job(&t->run_spec, &t->job, err);
}

/* What of a run's spec is a flag of train; the rest is of its data and of where it ran. */
static bool is_flag(const struct gp_opt_table *all, const struct gp_st_pair *p)
{
	static const char *const others[] = {"data", "tokenizer", "init", "client-precision", "config", "log"};
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (strcmp(p->key, others[i]) == 0)
			return false;
	for (int i = 0; i < all->count; i++)
		if (strcmp(p->key, all->opt[i].name) == 0)
			return p->value[0] != '\0';
	return false;
}

static enum gp_status parse_words(const struct gp_opt_table *all, const struct gp_pairs *spec, char **word,
				  struct settings *set, struct gp_options_result *r, struct gp_err *err)
{
	int n = 0;
	for (int i = 0; i < spec->count; i++) {
		const struct gp_st_pair *p = &spec->pair[i];
		if (!is_flag(all, p))
			continue;
		const size_t size = strlen(p->key) + strlen(p->value) + sizeof "--=";
		GP_TRY(gp_alloc_array((void **)&word[n], size, 1, err));
		snprintf(word[n++], size, "--%s=%s", p->key, p->value);
	}
	return gp_options_parse(all, n, word, set, r, err);
}

enum gp_status gp_cmd_train_read_run(const struct gp_pairs *spec, struct gp_job_settings *job, struct gp_optim *optim,
				     struct gp_options_result *r, struct gp_err *err)
{
	struct gp_opt rows[GP_OPT_MAX];
	struct settings set = {0};
	char *word[GP_MANIFEST_PAIRS] = {NULL};
	const struct gp_opt_table all = join_rows(rows);
	enum gp_status status = parse_words(&all, spec, word, &set, r, err);
	for (int i = 0; i < GP_MANIFEST_PAIRS; i++)
		gp_free(word[i]);
	if (status == GP_OK)
		status = parse_betas(&set, err);
	if (status != GP_OK) {
		err->code = GP_INVALID;
		return gp_err_prefix(err, "what the checkpoint says of its run cannot be");
	}
	*job = set.job;
	*optim = optimizer_of(&set);
	return gp_optim_check(optim, err);
}

static enum gp_status check_files(const struct settings *s, struct gp_err *err)
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
	const struct settings *s = &t->set;
	if (!s->checkpoint)
		return GP_OK;
	GP_TRY(describe_run(t, err));
	const struct gp_run_state_options o = {.dir = s->checkpoint,
					       .every = (uint64_t)s->checkpoint_every,
					       .total_steps = t->total_steps,
					       .resume = (enum gp_resume)s->resume,
					       .required = s->checkpoint_required,
					       .spec = &t->run_spec.pairs,
					       .stop = &stop_signal,
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
	const struct settings *s = &t->set;
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

/* Everything that can be wrong on this side is found before the server is asked for anything. */
static enum gp_status prepare(struct training *t, struct gp_err *err)
{
	GP_TRY(gp_job_begin(&t->job, &t->set.job, err));
	GP_TRY(check_files(&t->set, err));
	GP_TRY(check_save(t->set.save, err));
	GP_TRY(open_data(t, err));
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
	t->job.stop = &stop_signal;
	GP_TRY(open_trace(t, err));
	GP_TRY(open_log(t, err));
	gp_warn_of_data(t->set.job.data, t->train_data, "training");
	if (t->set.privacy_every > 0)
		GP_TRY(gp_privacy_meter_new((uint64_t)t->set.privacy_every, &t->privacy, err));
	t->job.privacy = t->privacy;
	return gp_job_open_engine(&t->job, &t->optim, t->run, err);
}

/* SIGHUP, of a terminal that closes, stays ignored where it is: under nohup. */
static void watch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal}, before;
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &action, NULL);
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

static void print_summary(const struct gp_train_report *r, const struct settings *set, bool tells_matthews)
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
				       .left_out = t->left_out.samples,
				       .progress = t->set.job.progress,
				       .stop = &stop_signal};
	gp_job_warn_of_norms(&t->job);
	watch_signals();
	GP_TRY(gp_train(&spec, report, err));
	GP_TRY(gp_weights_sha256(t->weights, report->param_sha256, err));
	gp_norm_mode_text(&t->job.norm_mode, report->batch_norm);
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

/* As a shell reports a program that a signal has ended, which is how this one ends before its first step. */
static int exit_of(enum gp_status status)
{
	return status == GP_CANCELED && stop_signal ? 128 + stop_signal : gp_status_exit(status);
}

int gp_train_command(const struct gp_train_command *c, int argc, char **argv)
{
	struct training t = {.argc = argc, .argv = argv};
	struct gp_options_result given;
	struct gp_err err = {0};
	enum gp_status status = parse(c, argc, argv, &t.set, &given, &err);
	if (status == GP_OK && !given.help) {
		status = prepare(&t, &err);
		if (status == GP_OK)
			status = run(&t, &err);
		if (status != GP_OK && !t.ended)
			gp_run_log_error(t.log, exit_of(status), &err, t.report.steps);
		status = clean_up(&t, status, &err);
	}
	if (status != GP_OK)
		gp_err_print(&err, c->about.command);
	gp_options_free(&given);
	return exit_of(status);
}

int gp_cmd_train(int argc, char **argv)
{
	return gp_train_command(&train_command, argc, argv);
}
