/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient train: from the command line to a trained model. Puts dataset,
 * model, engine and trainer together; none of them is here.
 * Test: tests/e2e
 */
#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands.h"
#include "client/trainer.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/models.h"
#include "common/options.h"

#define PROGRAM        "gpclient train"
#define DEFAULT_WINDOW 4
#define PREFETCH       3

struct settings {
	const char *server, *model, *data, *input, *cut;
	bool local;
	int64_t batch, chunks, window, epochs, steps, threads;
	const char *device;
	int optimizer, schedule;
	double lr, final_lr, momentum, weight_decay, warmup, step_every, step_gamma, poly_power;
	bool nesterov;
	int64_t seed;
	const char *codec, *codec_dir[4];
	const char *init, *save, *log_json;
	bool json, eval, progress, augment;
	double connect_timeout_s, idle_timeout_s;
	const char *log, *config;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt options[] = {
	{.name = "server",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server),
	 .value = "HOST:PORT",
	 .group = "Where",
	 .help = "gpserverd that runs the body"},
	{.name = "local",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(local),
	 .help = "train the whole model here, without a link: the reference"},
	{.name = "cut",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(cut),
	 .value = "H:T",
	 .initial = "1:-1",
	 .help = "first H blocks and last -T blocks here, the rest on the server (see 'gpclient model show')"},
	{.name = "device",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(device),
	 .value = "auto|cpu",
	 .initial = "cpu",
	 .help = "device of this side"},
	{.name = "threads",
	 .type = GP_OPT_INT,
	 .offset = FIELD(threads),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 1024,
	 .help = "compute threads of this side; 0 = one per processor"},
	{.name = "connect-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(connect_timeout_s),
	 .value = "TIME",
	 .initial = "10s",
	 .min = 0.1,
	 .max = 3600,
	 .help = "give up connecting after so long"},
	{.name = "idle-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(idle_timeout_s),
	 .value = "TIME",
	 .initial = "15s",
	 .min = 1,
	 .max = 86400,
	 .help = "a server that sends nothing, not even heartbeats, is gone"},

	{.name = "model",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(model),
	 .value = "NAME[:K=V,...]",
	 .group = "Model and data",
	 .help = "for example mobilenetv2:width=0.5,stem=cifar (see 'gpclient model list')"},
	{.name = "data",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(data),
	 .value = "NAME[:DIR][,K=V]",
	 .help = "fashion-mnist, idx:DIR, cifar10:DIR, cifar100:DIR, folder:DIR,size=N, synthetic:shape=CxHxW"},
	{.name = "input",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(input),
	 .value = "CxHxW",
	 .help = "image size the model gets; default: the dataset's own"},
	{.name = "augment",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(augment),
	 .initial = "true",
	 .help = "random crops and flips while training (--no-augment: off)"},
	{.name = "init",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(init),
	 .value = "FILE",
	 .help = "start from these weights (safetensors, PyTorch names)"},
	{.name = "save",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(save),
	 .value = "FILE",
	 .help = "write the trained weights there (safetensors)"},

	{.name = "batch",
	 .type = GP_OPT_INT,
	 .offset = FIELD(batch),
	 .value = "N",
	 .initial = "64",
	 .min = 1,
	 .max = 1 << 20,
	 .group = "Training",
	 .help = "samples per step"},
	{.name = "chunks",
	 .type = GP_OPT_INT,
	 .offset = FIELD(chunks),
	 .value = "N",
	 .initial = "4",
	 .min = 1,
	 .max = 1 << 20,
	 .help = "micro-batches a step is cut into; divides --batch"},
	{.name = "window",
	 .type = GP_OPT_INT,
	 .offset = FIELD(window),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 4096,
	 .help = "chunks in flight at once; 0 = the smaller of 4 and --chunks"},
	{.name = "epochs",
	 .type = GP_OPT_INT,
	 .offset = FIELD(epochs),
	 .value = "N",
	 .initial = "1",
	 .min = 1,
	 .max = 1 << 20,
	 .help = "passes over the training images"},
	{.name = "steps",
	 .type = GP_OPT_INT,
	 .offset = FIELD(steps),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 1e9,
	 .help = "steps instead of epochs"},
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
	 .help = "of sgd"},
	{.name = "nesterov", .type = GP_OPT_FLAG, .offset = FIELD(nesterov), .help = "Nesterov momentum"},
	{.name = "weight-decay",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(weight_decay),
	 .value = "X",
	 .initial = "0.0005",
	 .min = 0,
	 .max = 10,
	 .help = "L2 penalty"},
	{.name = "schedule",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(schedule),
	 .value = "NAME",
	 .initial = "cosine",
	 .choices = "const|cosine|step|poly",
	 .help = "of the learning rate: const, cosine, step or poly"},
	{.name = "warmup",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(warmup),
	 .value = "STEPS",
	 .initial = "0",
	 .min = 0,
	 .max = 1e9,
	 .help = "steps of linear warm-up; below 1: a share of all steps"},
	{.name = "final-lr",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(final_lr),
	 .value = "X",
	 .initial = "0",
	 .min = 0,
	 .max = 1e3,
	 .help = "what cosine and poly end at"},
	{.name = "step-every",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(step_every),
	 .value = "EPOCHS",
	 .initial = "30",
	 .min = 1e-6,
	 .max = 1e9,
	 .help = "step: epochs between two drops"},
	{.name = "step-gamma",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(step_gamma),
	 .value = "X",
	 .initial = "0.1",
	 .min = 1e-6,
	 .max = 1,
	 .help = "step: factor of a drop"},
	{.name = "poly-power",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(poly_power),
	 .value = "X",
	 .initial = "1",
	 .min = 1e-3,
	 .max = 100,
	 .help = "poly: exponent"},
	{.name = "seed",
	 .type = GP_OPT_INT,
	 .offset = FIELD(seed),
	 .value = "N",
	 .initial = "1",
	 .min = 0,
	 .max = 9e15,
	 .help = "of weights, order, augmentation and dropout"},
	{.name = "eval",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(eval),
	 .initial = "true",
	 .help = "validation accuracy after each epoch (--no-eval: off)"},

	{.name = "codec",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec),
	 .value = "SPEC",
	 .initial = "raw",
	 .group = "Compression",
	 .help = "of every direction, for example sortquant:bits=6,split=2 (see 'gpclient codec list')"},
	{.name = "codec-act-up",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec_dir[0]),
	 .value = "SPEC",
	 .help = "of activations to the server, instead of --codec"},
	{.name = "codec-act-down",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec_dir[1]),
	 .value = "SPEC",
	 .help = "of activations from the server"},
	{.name = "codec-grad-up",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec_dir[2]),
	 .value = "SPEC",
	 .help = "of gradients to the server"},
	{.name = "codec-grad-down",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec_dir[3]),
	 .value = "SPEC",
	 .help = "of gradients from the server"},

	{.name = "json",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(json),
	 .group = "Output",
	 .help = "print one JSON object at the end on standard output"},
	{.name = "log-json",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(log_json),
	 .value = "FILE",
	 .help = "write one JSON line per step and evaluation there"},
	{.name = "progress",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(progress),
	 .initial = "true",
	 .help = "progress line on standard error (--no-progress: off)"},
	{.name = "log",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(log),
	 .value = "SPEC",
	 .initial = "all=warn",
	 .help = "log levels, for example all=info,net=debug"},
	{.name = "config",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(config),
	 .value = "FILE",
	 .help = "read options from FILE (name = value lines); the command line wins"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "(--server HOST:PORT | --local) --model NAME --data NAME [OPTION...]",
	.about = "Trains a model. With --server the first and last blocks run here and the rest on\n"
		 "gpserverd; with --local everything runs here.",
	.examples = "  gpclient train --server 127.0.0.1:4400 --model mobilenetv2:width=0.5,stem=cifar \\\n"
		    "      --data fashion-mnist --cut 1:-1 --codec sortquant:bits=6,split=2\n"
		    "  gpclient train --local --model cnn --data fashion-mnist --epochs 3 --save cnn.safetensors\n",
	.opt = options,
	.count = sizeof options / sizeof options[0],
};

/* Everything that a run owns, freed in one place. */
struct job {
	struct settings set;
	struct gp_dataset *train_data, *val_data;
	struct gp_loader *train, *val;
	struct gp_graph *graph;
	struct gp_weights *init, *weights;
	struct gp_engine *engine;
	struct gp_json_log *log;
	struct gp_cut cut;
	struct gp_codec_spec codec[4];
	struct gp_optim optim;
	struct gp_schedule schedule;
	uint64_t total_steps;
	uint32_t steps_per_epoch;
};

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
	if (stop_signal)
		_exit(128 + number); /* asked twice */
	stop_signal = number;
}

static enum gp_status check_settings(const struct settings *s, struct gp_err *err)
{
	if (!s->local && !s->server)
		GP_FAIL(err, GP_USAGE, "--server HOST:PORT is missing (or --local to train without one)");
	if (s->local && s->server)
		GP_FAIL(err, GP_USAGE, "--server and --local exclude each other");
	if (!s->model)
		GP_FAIL(err, GP_USAGE, "--model is missing; 'gpclient model list' shows them");
	if (!s->data)
		GP_FAIL(err, GP_USAGE, "--data is missing, for example --data fashion-mnist");
	if (s->chunks > s->batch || s->batch % s->chunks != 0)
		GP_FAIL(err, GP_USAGE, "--batch %lld cannot be cut into %lld equal chunks", (long long)s->batch,
			(long long)s->chunks);
	return GP_OK;
}

/* Before hours of training, not after: can a file be made there? */
static enum gp_status check_save(const char *path, struct gp_err *err)
{
	char folder[4096];
	if (!path)
		return GP_OK;
	snprintf(folder, sizeof folder, "%s", path);
	struct stat st;
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		GP_FAIL(err, GP_INVALID, "--save %s: there is something else than a file", path);
	if (access(dirname(folder), W_OK | X_OK) != 0)
		GP_FAIL(err, GP_INVALID, "--save %s: the folder cannot be written to: %s", path, strerror(errno));
	return GP_OK;
}

static enum gp_status parse_codecs(struct job *j, struct gp_err *err)
{
	static const char *const names[4] = {"codec-act-up", "codec-act-down", "codec-grad-up", "codec-grad-down"};
	for (int i = 0; i < 4; i++) {
		const char *own = j->set.codec_dir[i];
		enum gp_status status = gp_codec_spec_parse(own ? own : j->set.codec, &j->codec[i], err);
		if (status != GP_OK)
			return gp_err_prefix(err, "--%s", own ? names[i] : "codec");
		if (j->set.local && strcmp(j->codec[i].text, "raw") != 0)
			GP_FAIL(err, GP_USAGE, "--codec needs --server: a local run has no link");
	}
	return GP_OK;
}

static enum gp_status parse_input(const char *text, struct gp_shape *shape, struct gp_err *err)
{
	long long c, h, w;
	char rest;
	if (sscanf(text, "%lldx%lldx%lld%c", &c, &h, &w, &rest) != 3 || c < 1 || h < 1 || w < 1 || c > 4096 ||
	    h > 65536 || w > 65536)
		GP_FAIL(err, GP_USAGE, "--input '%s' is not channels x height x width, for example 3x32x32", text);
	*shape = (struct gp_shape){.ndim = 3, .dim = {h, w, c}};
	return GP_OK;
}

/* The shape of a sample: --input, else the dataset's; a dataset without one of its own gets the model's. */
static enum gp_status wanted_shape(struct job *j, struct gp_shape *shape, struct gp_err *err)
{
	*shape = (struct gp_shape){0};
	if (j->set.input)
		return parse_input(j->set.input, shape, err);
	if (strncmp(j->set.data, "synthetic", 9) != 0 || strstr(j->set.data, "shape="))
		return GP_OK;
	struct gp_graph *g;
	struct gp_model_options none = {0};
	GP_TRY(gp_model_build(j->set.model, &none, &g, err));
	*shape = *gp_graph_input_shape(g);
	gp_graph_free(g);
	return GP_OK;
}

static enum gp_status open_data(struct job *j, struct gp_err *err)
{
	struct gp_dataset_options o = {.augment = j->set.augment};
	GP_TRY(wanted_shape(j, &o.shape, err));
	GP_TRY(gp_dataset_open(j->set.data, GP_SPLIT_TRAIN, &o, &j->train_data, err));
	struct gp_loader_spec ls = {.batch = (int)j->set.batch,
				    .shuffle = true,
				    .drop_last = true,
				    .seed = (uint64_t)j->set.seed,
				    .prefetch = PREFETCH};
	uint32_t samples = gp_dataset_samples(j->train_data);
	if (samples < (uint32_t)j->set.batch)
		GP_FAIL(err, GP_INVALID, "--data %s has %u training samples, fewer than one batch of %lld", j->set.data,
			samples, (long long)j->set.batch);
	GP_TRY(gp_loader_new(j->train_data, &ls, &j->train, err));
	j->steps_per_epoch = gp_loader_batches_per_epoch(j->train);
	j->total_steps = j->set.steps > 0 ? (uint64_t)j->set.steps : (uint64_t)j->set.epochs * j->steps_per_epoch;
	if (!j->set.eval)
		return GP_OK;
	o.augment = false;
	GP_TRY(gp_dataset_open(j->set.data, GP_SPLIT_VAL, &o, &j->val_data, err));
	ls.shuffle = ls.drop_last = false;
	return gp_loader_new(j->val_data, &ls, &j->val, err);
}

static enum gp_status build_model(struct job *j, struct gp_err *err)
{
	struct gp_model_options o = {.classes = gp_dataset_classes(j->train_data),
				     .input = *gp_dataset_shape(j->train_data)};
	GP_TRY(gp_model_build(j->set.model, &o, &j->graph, err));
	const struct gp_shape *out = gp_graph_output_shape(j->graph);
	if (out->ndim != 1 || out->dim[0] < o.classes)
		GP_FAIL(err, GP_INVALID, "--model %s ends in %lld outputs, but the data has %d classes", j->set.model,
			(long long)out->dim[out->ndim - 1], o.classes);
	if (!gp_shape_equal(gp_graph_input_shape(j->graph), &o.input)) {
		char want[64], have[64];
		GP_FAIL(err, GP_INVALID, "--model %s takes %s (HxWxC), the data gives %s; set --input", j->set.model,
			gp_shape_text(gp_graph_input_shape(j->graph), want, sizeof want),
			gp_shape_text(&o.input, have, sizeof have));
	}
	if (!j->set.local)
		GP_TRY(gp_cut_parse(j->graph, j->set.cut, &j->cut, err));
	GP_TRY(gp_weights_new(j->graph, &j->weights, err));
	if (!j->set.init)
		return GP_OK;
	GP_TRY(gp_weights_new(j->graph, &j->init, err));
	return gp_weights_load(j->init, j->set.init, true, NULL, err);
}

static enum gp_status configure_optimizer(struct job *j, struct gp_err *err)
{
	const struct settings *s = &j->set;
	double warmup = s->warmup < 1 ? s->warmup * (double)j->total_steps : s->warmup;
	j->optim = (struct gp_optim){.kind = (enum gp_optim_kind)s->optimizer,
				     .momentum = (float)s->momentum,
				     .nesterov = s->nesterov,
				     .weight_decay = (float)s->weight_decay,
				     .beta1 = 0.9f,
				     .beta2 = 0.999f,
				     .eps = 1e-8f};
	j->schedule = (struct gp_schedule){.kind = (enum gp_schedule_kind)s->schedule,
					   .base_lr = s->lr,
					   .final_lr = s->final_lr,
					   .total_steps = (int64_t)j->total_steps,
					   .warmup_steps = (int64_t)warmup,
					   .gamma = s->step_gamma,
					   .every = (int64_t)ceil(s->step_every * j->steps_per_epoch),
					   .power = s->poly_power};
	GP_TRY(gp_optim_check(&j->optim, err));
	return gp_schedule_check(&j->schedule, err);
}

static enum gp_status open_engine(struct job *j, struct gp_err *err)
{
	const struct settings *s = &j->set;
	int window = s->window > 0 ? (int)s->window : DEFAULT_WINDOW;
	struct gp_engine_spec spec = {.graph = j->graph,
				      .device = s->device,
				      .threads = s->threads > 0 ? (int)s->threads : (int)uv_available_parallelism(),
				      .batch = (int)s->batch,
				      .chunks = (int)s->chunks,
				      .window = window < s->chunks ? window : (int)s->chunks,
				      .train = true,
				      .seed = (uint64_t)s->seed,
				      .optim = j->optim,
				      .init = j->init,
				      .server = s->server,
				      .cut = j->cut,
				      .connect_timeout_s = s->connect_timeout_s,
				      .idle_timeout_s = s->idle_timeout_s};
	memcpy(spec.codec, j->codec, sizeof spec.codec);
	return s->local ? gp_engine_new_local(&spec, &j->engine, err) : gp_engine_new_split(&spec, &j->engine, err);
}

/* Everything that can be wrong on this side is found before the server is asked for anything. */
static enum gp_status prepare(struct job *j, struct gp_err *err)
{
	GP_TRY(gp_log_configure(j->set.log, err));
	GP_TRY(check_settings(&j->set, err));
	GP_TRY(check_save(j->set.save, err));
	GP_TRY(parse_codecs(j, err));
	GP_TRY(open_data(j, err));
	GP_TRY(build_model(j, err));
	GP_TRY(configure_optimizer(j, err));
	GP_TRY(open_engine(j, err));
	return j->set.log_json ? gp_json_log_open(j->set.log_json, &j->log, err) : GP_OK;
}

static void watch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static void print_summary(const struct gp_train_report *r)
{
	const struct gp_account *t = &r->train_account;
	uint64_t tensor = 0, payload = 0;
	for (int i = 0; i < GP_FRAME_TYPE_COUNT; i++) {
		tensor += t->sent.kind[i].tensor_bytes + t->received.kind[i].tensor_bytes;
		payload += t->sent.kind[i].payload_bytes + t->received.kind[i].payload_bytes;
	}
	double steps = r->steps ? (double)r->steps : 1;
	fprintf(stderr, "%llu steps in %.1f s, %.3f s per batch (median), loss %.4f, training accuracy %.2f %%\n",
		(unsigned long long)r->steps, r->seconds, r->time_per_batch_s, r->loss, 100 * r->train_acc);
	if (isfinite(r->val_acc))
		fprintf(stderr, "validation accuracy %.2f %%\n", 100 * r->val_acc);
	if (payload > 0)
		fprintf(stderr,
			"per batch %.2f MB of tensors travelled as %.2f MB (%.2fx smaller); on the wire %.2f MB up, "
			"%.2f MB "
			"down\n",
			(double)tensor / steps * 1e-6, (double)payload / steps * 1e-6, (double)tensor / (double)payload,
			(double)t->sent.wire_bytes / steps * 1e-6, (double)t->received.wire_bytes / steps * 1e-6);
	fprintf(stderr, "memory: peak %.0f MiB here (plans and frames %.0f MiB)",
		(double)gp_mem_peak_rss_bytes() / 1048576, (double)r->figures.memory_bytes / 1048576);
	if (r->figures.server_memory_bytes > 0)
		fprintf(stderr, ", session on the server %.0f MiB", (double)r->figures.server_memory_bytes / 1048576);
	fputc('\n', stderr);
	if (r->figures.raw_fallbacks > 0)
		fprintf(stderr, "%llu tensors were not finite and travelled raw\n",
			(unsigned long long)r->figures.raw_fallbacks);
}

static enum gp_status print_json(const struct gp_train_report *r, struct gp_err *err)
{
	json_t *o = gp_train_report_json(r);
	if (!o)
		GP_FAIL(err, GP_NOMEM, "out of memory for the report");
	int failed = json_dumpf(o, stdout, JSON_REAL_PRECISION(10));
	json_decref(o);
	if (failed != 0 || putchar('\n') == EOF || fflush(stdout) != 0)
		GP_FAIL(err, GP_IO, "the report cannot be written to standard output");
	return GP_OK;
}

static enum gp_status run(struct job *j, struct gp_err *err)
{
	struct gp_train_report report;
	struct gp_trainer_spec spec = {.engine = j->engine,
				       .train = j->train,
				       .val = j->val,
				       .schedule = j->schedule,
				       .total_steps = j->total_steps,
				       .steps_per_epoch = j->steps_per_epoch,
				       .val_batches = j->val ? gp_loader_batches_per_epoch(j->val) : 0,
				       .log = j->log,
				       .weights = j->weights,
				       .progress = j->set.progress,
				       .stop = &stop_signal};
	watch_signals();
	GP_TRY(gp_train(&spec, &report, err));
	GP_TRY(gp_weights_sha256(j->weights, report.param_sha256, err));
	print_summary(&report);
	if (j->set.save)
		GP_TRY(gp_weights_save(j->weights, j->set.save, err));
	if (j->log)
		GP_TRY(gp_json_log_write(
			j->log, json_pack("{s:s, s:o}", "event", "end", "report", gp_train_report_json(&report)), err));
	if (j->set.json)
		GP_TRY(print_json(&report, err));
	if (report.stopped)
		GP_FAIL(err, GP_CANCELED, "stopped by a signal after %llu of %llu steps",
			(unsigned long long)report.steps, (unsigned long long)j->total_steps);
	return GP_OK;
}

static enum gp_status clean_up(struct job *j, enum gp_status status, struct gp_err *err)
{
	if (j->engine)
		j->engine->ops->free(j->engine);
	gp_loader_free(j->train);
	gp_loader_free(j->val);
	gp_dataset_free(j->train_data);
	gp_dataset_free(j->val_data);
	gp_weights_free(j->init);
	gp_weights_free(j->weights);
	gp_graph_free(j->graph);
	struct gp_err close_err;
	if (j->log && gp_json_log_close(j->log, &close_err) != GP_OK && status == GP_OK) {
		*err = close_err;
		status = close_err.code;
	}
	return status;
}

int gp_cmd_train(int argc, char **argv)
{
	struct job job = {0};
	struct gp_options_result given;
	struct gp_err err = {0};
	enum gp_status status = gp_options_parse(&table, argc, argv, &job.set, &given, &err);
	if (status == GP_OK && !given.help) {
		status = prepare(&job, &err);
		if (status == GP_OK)
			status = run(&job, &err);
		status = clean_up(&job, status, &err);
	}
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&given);
	return gp_status_exit(status);
}
