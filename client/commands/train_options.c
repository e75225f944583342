/* SPDX-License-Identifier: Apache-2.0
 *
 * See train_options.h. Test: tests/e2e/bad_input.sh, tests/e2e/resume.sh
 */
#include "client/commands/train_options.h"

#include <string.h>

#include "client/commands/commands.h"
#include "client/privacy/distance_correlation.h"
#include "common/base/mem.h"

#define FIELD(name) offsetof(struct gp_train_settings, name)

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
	 .help = "L2 penalty, added to the gradient; adamw subtracts it from the weights instead"},
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
	 .help = "with --optimizer adam and adamw: epsilon, which is added to the denominator"},
	{.name = "adam-betas",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(adam_betas),
	 .value = "B1,B2",
	 .initial = "0.9,0.999",
	 .help = "with --optimizer adam and adamw: decay rates of the averages of gradients and of their squares"},
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

const struct gp_opt_rows gp_train_rows = GP_OPT_ROWS(training_rows);

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
	 .help = "end the training when a checkpoint cannot be written, in place of a warning"},
	{.name = "resume",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(resume),
	 .value = "if-any",
	 .choices = "no|yes|if-any", /* in the order of enum gp_resume */
	 .bare = true,
	 .help = "go on from the newest checkpoint that both sides have, and end with status 3 where there is none; "
		 "=if-any: begin the run where no checkpoint was ever complete, as at a service's first start. "
		 "--steps and --epochs may grow (from there on cosine, poly, linear and a --warmup below 1 follow "
		 "the new number)"},
};

static const struct gp_opt log_rows[] = {
	{.name = "log-json",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(log_json),
	 .value = "FILE",
	 .help = "write events there, one JSON object a line: header, steps, evaluations, end (client/JSON.md); "
		 "'gpclient report' makes a page of them. A file that holds events is refused, except with --resume, "
		 "which adds to it, or where its run ended before its first step"},
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
	 .help = "write a timeline there: every stage of every chunk at both ends, for ui.perfetto.dev or Chrome's "
		 "trace viewer; a file that holds something is refused; with --resume, FILE.2, FILE.3, ... is "
		 "written instead"},
	{.name = "trace-steps",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(trace_steps),
	 .value = "A:B",
	 .initial = "1:",
	 .help = "with --trace: only steps A to B, counted from 1; A: means to the end, :B from the beginning, A a "
		 "single step"},
	{.name = "trace-limit",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(trace_limit),
	 .value = "BYTES",
	 .initial = "256M",
	 .min = 4096,
	 .max = 9e15,
	 .help = "with --trace: the largest size of the file; the training goes on without it"},
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
	{.name = "share-loss",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(share_loss),
	 .help = "tell the server the loss of each step, for its --metrics and live page; otherwise it stays here, "
		 "like the labels from which it is computed (client/PRIVACY.md)"},
	{.name = "profile",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(job.profile),
	 .help = "at the end, a table of times, GFLOP/s and GB/s per node of this side, on standard error"},
};

const struct gp_opt_rows gp_train_log_rows = GP_OPT_ROWS(log_rows);

static const struct gp_opt metrics_rows[] = {
	{.name = "metrics",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(metrics.address),
	 .value = "ADDR:PORT",
	 .group = "Figures over HTTP",
	 .help = "serve figures of this training there over HTTP: /metrics for Prometheus, /healthz; an address "
		 "other than loopback needs a certificate, and tokens or a CA of clients; port 0 takes a free one, "
		 "and standard error tells which"},
	{.name = "metrics-cert",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(metrics.cert),
	 .value = "FILE",
	 .help = "certificate for --metrics at an address that is not loopback (PEM)"},
	{.name = "metrics-key",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(metrics.key),
	 .value = "FILE",
	 .help = "its key (PEM, no passphrase)"},
	{.name = "metrics-tokens",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(metrics.tokens),
	 .value = "FILE",
	 .help = "file of the tokens that may read --metrics there: lines of NAME TOKEN, as in the server's --tokens"},
	{.name = "metrics-client-ca",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(metrics.ca),
	 .value = "FILE",
	 .help = "whoever reads --metrics there must have a certificate of this CA (PEM)"},
};

static enum gp_status parse_betas(struct gp_train_settings *set, struct gp_err *err)
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
static enum gp_status check_optimizer_flags(const struct gp_opt_table *t, struct gp_train_settings *set,
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

/* So is one that only some schedules know. */
static enum gp_status check_schedule_flags(const struct gp_opt_table *t, const struct gp_train_settings *set,
					   const struct gp_options_result *r, struct gp_err *err)
{
	static const char *const names[] = {"const", "cosine", "step", "poly", "linear"};
	static const struct {
		const char *flag, *of;
		unsigned kinds;
	} known[] = {{"final-lr", "cosine, poly and linear",
		      1u << GP_SCHEDULE_COSINE | 1u << GP_SCHEDULE_POLY | 1u << GP_SCHEDULE_LINEAR},
		     {"step-every", "step", 1u << GP_SCHEDULE_STEP},
		     {"step-gamma", "step", 1u << GP_SCHEDULE_STEP},
		     {"poly-power", "poly", 1u << GP_SCHEDULE_POLY}};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (gp_options_given(t, r, known[i].flag) && !(known[i].kinds >> set->schedule & 1))
			GP_FAIL(err, GP_USAGE, "--%s is of --schedule %s; --schedule %s would ignore it", known[i].flag,
				known[i].of, names[set->schedule]);
	return GP_OK;
}

static struct gp_opt_table join_rows(struct gp_opt rows[GP_OPT_MAX])
{
	const struct gp_opt_rows parts[] = {
		gp_job_where_rows,        gp_job_security_rows,    gp_job_model_rows,
		gp_job_freeze_rows,       gp_job_skip_rows,        GP_OPT_ROWS(data_rows),
		GP_OPT_ROWS(norm_rows),   gp_job_recalibrate_rows, gp_job_batch_rows,
		gp_job_memory_rows,       gp_train_rows,           gp_job_codec_rows,
		gp_job_grad_rows,         gp_job_insert_rows,      GP_OPT_ROWS(checkpoint_rows),
		gp_job_output_rows,       gp_job_progress_rows,    gp_train_log_rows,
		GP_OPT_ROWS(metrics_rows)};
	struct gp_opt_table t = {.command = "gpclient train"};
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

static enum gp_status check_flags_of_files(const struct gp_opt_table *t, const struct gp_train_settings *set,
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

static enum gp_status check_metrics(const struct gp_opt_table *t, struct gp_train_settings *s,
				    const struct gp_options_result *r, struct gp_err *err)
{
	static const char *const files[] = {"metrics-cert", "metrics-key", "metrics-tokens", "metrics-client-ca"};
	for (size_t i = 0; i < sizeof files / sizeof files[0] && !s->metrics.address; i++)
		if (gp_options_given(t, r, files[i]))
			GP_FAIL(err, GP_USAGE, "--%s needs --metrics ADDR:PORT", files[i]);
	s->metrics.tls_options = "--metrics-cert and --metrics-key";
	s->metrics.proof_options = "--metrics-tokens or --metrics-client-ca";
	s->metrics.what = "figures of this training";
	if (!s->metrics.address)
		return GP_OK;
	GP_TRY(gp_metrics_site_check(&s->metrics, err));
	for (size_t i = 0; i < sizeof files / sizeof files[0] && gp_metrics_site_is_open(&s->metrics); i++)
		if (gp_options_given(t, r, files[i]))
			GP_FAIL(err, GP_USAGE,
				"--%s: on loopback, as at --metrics %s, the figures are plain HTTP and open to every "
				"user of "
				"this machine; give another address of it",
				files[i], s->metrics.address);
	return GP_OK;
}

static enum gp_status check_share_loss(const struct gp_train_settings *s, struct gp_err *err)
{
	if (s->share_loss && s->job.local)
		GP_FAIL(err, GP_USAGE, "--share-loss tells a server the loss, and a local run has none: give --server");
	return GP_OK;
}

/* What the server has of the tensors that go up is found by decoding them here. */
static enum gp_status check_privacy(const struct gp_train_settings *s, struct gp_err *err)
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
				"the server remembers of each sample");
	return GP_OK;
}

enum gp_status gp_train_options_parse(const struct gp_train_command *c, int argc, char **argv,
				      struct gp_train_settings *set, struct gp_options_result *r, struct gp_err *err)
{
	struct gp_opt rows[GP_OPT_MAX];
	const struct gp_opt_table t = rows_of(c, rows);
	GP_TRY(gp_options_parse(&t, argc, argv, set, r, err));
	set->job.masked_words = c->masked_words;
	set->augment_given = !c->masked_words && gp_options_given(&t, r, "augment"); /* pretrain has no such flag */
	GP_TRY(check_flags_of_files(&t, set, r, err));
	GP_TRY(check_privacy(set, err));
	GP_TRY(check_share_loss(set, err));
	GP_TRY(check_metrics(&t, set, r, err));
	GP_TRY(check_schedule_flags(&t, set, r, err));
	return check_optimizer_flags(&t, set, r, err);
}

struct gp_optim gp_train_optim_of(const struct gp_train_settings *s)
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
				  struct gp_train_settings *set, struct gp_options_result *r, struct gp_err *err)
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
	struct gp_train_settings set = {0};
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
	*optim = gp_train_optim_of(&set);
	return gp_optim_check(optim, err);
}

enum gp_status gp_train_options_add(const struct gp_train_settings *set, const char *const *flag, int count,
				    struct gp_run_spec *spec, struct gp_err *err)
{
	struct gp_opt rows[GP_OPT_MAX];
	const struct gp_opt_table all = join_rows(rows);
	for (int i = 0; i < count; i++)
		GP_TRY(gp_run_spec_add_flag(spec, &all, set, flag[i], err));
	return GP_OK;
}
