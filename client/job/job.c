/* SPDX-License-Identifier: Apache-2.0
 *
 * From flags to an engine. See job.h; the flags are in job_options.c.
 * Test: tests/e2e
 */
#include "client/job/job.h"

#include <string.h>

#include "client/engine/batch_map.h"
#include "client/session/client_session.h"
#include "client/session/server_list.h"
#include "client/codecs/codec_fit.h"
#include "client/job/compress.h"
#include "client/job/freeze.h"
#include "client/insert/insert_decay.h"
#include "client/job/job_init.h"
#include "client/job/job_precision.h"
#include "client/job/no_decay.h"
#include "client/engine/padding.h"
#include "client/costs/partitions.h"
#include "client/log/progress.h"
#include "common/base/log.h"
#include "common/base/threads.h"
#include "client/models/models.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/graph_part.h"
#include "common/wire/control.h"

#define AHEAD_MOST       3         /* batches that are read while others are trained on */
#define AHEAD_BYTES      (8 << 20) /* of all of them, if they are more than one: devices may be small */
#define PLAIN_PROGRESS_S 5
#define BATCH_BYTES      (1 << 30) /* of pictures whose size is a file's alone */

/* Flags. */

static enum gp_status check_where(const struct gp_job_settings *s, struct gp_err *err)
{
	if (!s->local && !s->server)
		GP_FAIL(err, GP_USAGE, "--server HOST:PORT is missing (or --local to run without one)");
	if (s->local && s->server)
		GP_FAIL(err, GP_USAGE, "--server and --local exclude each other");
	if (s->local && (s->security.tls || s->security.ca || s->security.cert || s->security.token))
		GP_FAIL(err, GP_USAGE, "--tls, --tls-ca and --token-file are for a --server");
	if (s->server)
		GP_TRY(gp_server_list_check(s->server, err));
	if (s->init_skip && !s->init)
		GP_FAIL(err, GP_USAGE, "--init-skip says what to leave out of --init FILE, which is missing");
	if (s->init_anyway && !s->init)
		GP_FAIL(err, GP_USAGE, "--init-anyway is about the weights of --init FILE, which is missing");
	return GP_OK;
}

static enum gp_status check_settings(const struct gp_job *j, struct gp_err *err)
{
	const struct gp_job_settings *s = j->set;
	if (!s->model && s->init)
		GP_FAIL(err, GP_USAGE,
			"--model is missing, and %s does not say of which model it is; 'gpclient model list' shows "
			"them",
			s->init);
	if (!s->model)
		GP_FAIL(err, GP_USAGE, "--model is missing; 'gpclient model list' shows them");
	if (!s->data && s->purpose == GP_JOB_INFER && j->saved.tokens > 0)
		GP_FAIL(err, GP_USAGE,
			"--tokenizer DIR is missing, which makes tokens of lines of text; or --data: it names the "
			"texts, of which %s takes %lld tokens each",
			s->init, (long long)j->saved.tokens);
	if (!s->data && s->init && s->purpose == GP_JOB_INFER)
		GP_FAIL(err, GP_USAGE, "--data is missing, and %s does not say how its pictures were prepared",
			s->init);
	if (!s->data)
		GP_FAIL(err, GP_USAGE, "--data is missing, for example --data fashion-mnist");
	if (s->chunks > s->batch || s->batch % s->chunks != 0)
		GP_FAIL(err, GP_USAGE, "--batch %lld cannot be cut into %lld equal chunks", (long long)s->batch,
			(long long)s->chunks);
	return gp_threads_check(s->threads, err);
}

static enum gp_status settle_precision(struct gp_job *j, struct gp_err *err)
{
	const struct gp_job_settings *s = j->set;
	const struct gp_client_precision p = {.device = s->device,
					      .threads = gp_threads_count(s->threads),
					      .local = s->local,
					      .body = s->precision,
					      .choice = s->client_precision};
	return gp_client_precision_settle(&p, &j->client_precision, &j->tries_client, err);
}

const char *const gp_job_codec_flags[4] = {"codec-act-up", "codec-act-down", "codec-grad-up", "codec-grad-down"};

static enum gp_status parse_auto(struct gp_job *j, int i, const char *text, struct gp_err *err)
{
	struct gp_codec_auto *a = &j->codec_auto[i];
	if (j->set->purpose != GP_JOB_TRAIN)
		GP_TRY(gp_codec_auto_refuse(text, err));
	GP_TRY(gp_codec_auto_parse(text, a, err));
	j->session.ladder[i] = a->ladder;
	gp_codec_ladder_rung(&a->ladder, a->first, &j->session.codec[i]);
	if (j->session.survey_every == 0 || a->every < j->session.survey_every)
		j->session.survey_every = a->every;
	return GP_OK;
}

static enum gp_status parse_codec(struct gp_job *j, int i, const char *text, struct gp_err *err)
{
	return gp_codec_auto_is(text) ? parse_auto(j, i, text, err)
				      : gp_codec_spec_parse(text, &j->session.codec[i], err);
}

static bool chooses_codecs(const struct gp_job *j)
{
	return j->codec_auto[0].on || j->codec_auto[1].on || j->codec_auto[2].on || j->codec_auto[3].on;
}

static enum gp_status parse_codecs(struct gp_job *j, struct gp_err *err)
{
	for (int i = 0; i < 4; i++) {
		const char *own = j->set->codec_dir[i];
		enum gp_status status = parse_codec(j, i, own ? own : j->set->codec, err);
		if (status != GP_OK)
			return gp_err_prefix(err, "--%s", own ? gp_job_codec_flags[i] : "codec");
		if (j->set->local && j->codec_auto[i].on)
			GP_FAIL(err, GP_USAGE, "--codec auto needs --server: a local run has no link");
		if (j->set->local && strcmp(j->session.codec[i].text, "raw") != 0)
			GP_FAIL(err, GP_USAGE, "--codec needs --server: a local run has no link");
		if (i % 2 == 1 && strncmp(j->session.codec[i].text, "delta", 5) == 0)
			GP_FAIL(err, GP_USAGE,
				"--%s: delta works up the link only, because the server does not know the samples; "
				"give --codec-act-up",
				own ? gp_job_codec_flags[i] : "codec");
	}
	return GP_OK;
}

static enum gp_status check_memory(struct gp_job *j, struct gp_err *err)
{
	GP_TRY(gp_compress_parse(j->set->compress, &j->session, err));
	if (j->session.maps.stages > 0 && j->set->recompute)
		GP_FAIL(err, GP_USAGE, "--compress maps=... and --recompute exclude each other");
	return GP_OK;
}

enum gp_status gp_job_begin(struct gp_job *j, struct gp_job_settings *set, struct gp_err *err)
{
	const int window = set->window > 0 ? (int)set->window : GP_WINDOW_FIRST;
	const bool tries = set->precision == GP_PRECISION_AUTO;
	*j = (struct gp_job){.set = set,
			     .session = {.precision = tries ? GP_PRECISION_FP32 : (enum gp_precision)set->precision,
					 .choose_precision = tries,
					 .seed = (uint64_t)set->seed,
					 .chunk_samples = (int)(set->batch / set->chunks),
					 .chunks = (int)set->chunks,
					 .window = window < set->chunks ? window : (int)set->chunks}};
	GP_TRY(gp_log_configure(set->log, err));
	GP_TRY(check_where(set, err));
	GP_TRY(gp_job_read_init(j, set, err));
	GP_TRY(check_settings(j, err));
	GP_TRY(gp_job_init_insertion(j, set, err));
	if (!set->cut)
		set->cut = GP_JOB_CUT;
	GP_TRY(gp_client_security_load(&j->security, &set->security, err));
	GP_TRY(parse_codecs(j, err));
	GP_TRY(check_memory(j, err));
	if (set->batch_norm)
		GP_TRY(gp_norm_mode_parse(set->batch_norm, &j->norm_mode, err));
	return settle_precision(j, err);
}

/* Data. */

static enum gp_status parse_input(const char *text, struct gp_shape *shape, struct gp_err *err)
{
	if (!gp_shape_parse_chw(text, shape))
		GP_FAIL(err, GP_USAGE, "--input '%.40s' is not channels x height x width, for example 3x32x32", text);
	return GP_OK;
}

/* How the file of --init says that pictures are prepared, where that counts: not for a training of another model. */
static const struct gp_preparation *preparation(const struct gp_job *j)
{
	const bool counts = j->set->purpose != GP_JOB_TRAIN || j->model_of_file;
	return counts && j->saved.pictures.shape.ndim ? &j->saved.pictures : NULL;
}

/* The first input of the model as its text alone makes it. */
static enum gp_status own_input(const char *model, struct gp_shape *shape, struct gp_err *err)
{
	struct gp_graph *g;
	GP_TRY(gp_model_build(model, NULL, &g, err));
	*shape = *gp_graph_input_shape(g);
	gp_graph_free(g);
	return GP_OK;
}

/* The shape of a picture: --input, else the dataset's, else that of --init, else the model's. A model of something else
 * is refused when it meets the data. */
static enum gp_status wanted_shape(const struct gp_job *j, struct gp_shape *shape, struct gp_err *err)
{
	const struct gp_job_settings *s = j->set;
	*shape = (struct gp_shape){0};
	if (s->input)
		return parse_input(s->input, shape, err);
	if (!gp_dataset_takes_any_shape(s->data))
		return GP_OK;
	if (preparation(j)) {
		*shape = preparation(j)->shape;
		return GP_OK;
	}
	struct gp_shape own;
	GP_TRY(own_input(s->model, &own, err));
	if (own.ndim == 3)
		*shape = own;
	return GP_OK;
}

static bool finds_embedding(const struct gp_graph *g, int64_t *vocab)
{
	for (int i = g->inputs; i < g->nodes; i++)
		if (g->node[i].op == GP_OP_EMBEDDING && g->node[i].in[0] == 0) {
			*vocab = gp_embedding_attr(&g->node[i]).vocab;
			return true;
		}
	return false;
}

/* The rows of tokens that synthetic data has for a model that reads such. */
static enum gp_status wanted_row(const struct gp_job *j, struct gp_dataset_options *o, struct gp_err *err)
{
	struct gp_graph *g;
	if (j->set->input || preparation(j) || !gp_dataset_takes_any_shape(j->set->data))
		return GP_OK;
	GP_TRY(gp_model_build(j->set->model, NULL, &g, err));
	if (gp_graph_input_shape(g)->ndim == 1 && finds_embedding(g, &o->row_values))
		o->row = gp_graph_input_shape(g)->dim[0];
	gp_graph_free(g);
	return GP_OK;
}

/* How many tokens a text has where --data says no max=: as many as the model's text alone makes it take. */
static enum gp_status wanted_tokens(const struct gp_job *j, int64_t *tokens, struct gp_err *err)
{
	struct gp_shape own;
	*tokens = 0;
	if (!j->set->tokenizer)
		return GP_OK;
	if (j->model_of_file && j->saved.tokens > 0) {
		*tokens = j->saved.tokens;
		return GP_OK;
	}
	GP_TRY(own_input(j->set->model, &own, err));
	if (own.ndim == 1)
		*tokens = own.dim[0];
	return GP_OK;
}

static void show_tokenizing(void *arg, uint32_t done, uint32_t of)
{
	struct gp_progress *p = arg;
	const uint64_t now = gp_now_ns();
	char text[80];
	snprintf(text, sizeof text, "tokenizing: %u/%u texts", done, of);
	gp_progress_update(p, now, text);
}

/* A cache that nothing would ever be put into is no wish that came true. */
static enum gp_status check_cache(const struct gp_job *j, struct gp_dataset **d, struct gp_err *err)
{
	if (!j->set->token_cache || gp_dataset_tokenizer(*d))
		return GP_OK;
	gp_dataset_free(*d);
	*d = NULL;
	GP_FAIL(err, GP_USAGE, "--token-cache is for texts; --data %s has none", j->set->data);
}

enum gp_status gp_job_open_data(const struct gp_job *j, enum gp_split split, bool augment, struct gp_dataset **out,
				struct gp_err *err)
{
	struct gp_dataset_options o = {.augment = augment, .tokenizer = j->set->tokenizer, .like = preparation(j)};
	struct gp_progress progress;
	o.token_cache = j->set->token_cache;
	o.threads = j->set->threads;
	o.progress = show_tokenizing;
	o.progress_arg = &progress;
	GP_TRY(wanted_shape(j, &o.shape, err));
	GP_TRY(wanted_tokens(j, &o.tokens, err));
	GP_TRY(wanted_row(j, &o, err));
	gp_progress_init(&progress, j->set->progress ? stderr : NULL, PLAIN_PROGRESS_S);
	progress.shown = true; /* the first line comes after a while: what takes no time is not told */
	progress.shown_ns = gp_now_ns();
	const enum gp_status status = gp_dataset_open(j->set->data, split, &o, out, err);
	gp_progress_clear(&progress);
	return status == GP_OK ? check_cache(j, out, err) : status;
}

/* A file's text may ask for pictures of any size. Those that take much memory have to be asked for by the user. */
static enum gp_status check_batch(const struct gp_job *j, const struct gp_dataset *d, struct gp_err *err)
{
	const struct gp_job_settings *s = j->set;
	const struct gp_shape *shape = gp_dataset_shape(d);
	const bool from_file = s->data == j->data || (!j->lines && gp_dataset_takes_any_shape(s->data));
	if (!from_file || !preparation(j) || s->input)
		return GP_OK;
	const uint64_t most = BATCH_BYTES / sizeof(float) / (uint64_t)s->batch;
	if (gp_shape_elements(shape) > most)
		GP_FAIL(err, GP_INVALID,
			"%s says that its pictures are %lldx%lldx%lld: a batch of %lld takes more than %d MiB; give a "
			"smaller --batch, or --input with that size if it is meant",
			s->init, (long long)shape->dim[2], (long long)shape->dim[0], (long long)shape->dim[1],
			(long long)s->batch, BATCH_BYTES >> 20);
	return GP_OK;
}

enum gp_status gp_job_check_batch(const struct gp_job_settings *s, const struct gp_dataset *d, struct gp_err *err)
{
	if (gp_dataset_samples(d) < s->batch)
		GP_FAIL(err, GP_INVALID, "--data %s has %u training sample%s, fewer than the %lld of --batch", s->data,
			gp_dataset_samples(d), gp_dataset_samples(d) == 1 ? "" : "s", (long long)s->batch);
	return GP_OK;
}

/* One is enough to read while the batch before it is computed; more make up for what takes longer to read. */
static int batches_ahead(const struct gp_dataset *d, int64_t batch, bool train)
{
	uint64_t bytes = 0;
	for (int k = 0; k < gp_dataset_tensors(d); k++)
		bytes += gp_tensor_bytes(&gp_dataset_tensor_info(d)[k]);
	const uint64_t fit = AHEAD_BYTES / (uint64_t)batch / (bytes ? bytes : 1);
	return !train || fit < 1 ? 1 : fit < AHEAD_MOST ? (int)fit : AHEAD_MOST;
}

enum gp_status gp_job_open_loader(const struct gp_job *j, struct gp_dataset *d, enum gp_split split,
				  struct gp_loader **out, struct gp_err *err)
{
	bool train = split == GP_SPLIT_TRAIN;
	struct gp_loader_spec spec = {.batch = (int)j->set->batch,
				      .shuffle = train,
				      .drop_last = train,
				      .seed = (uint64_t)j->set->seed,
				      .prefetch = batches_ahead(d, j->set->batch, train),
				      .on_bad = j->on_bad,
				      .on_bad_arg = j->on_bad_arg};
	GP_TRY(check_batch(j, d, err));
	return gp_loader_new(d, &spec, out, err);
}

/* Model and weights. */

static enum gp_status check_words(const struct gp_job *j, const struct gp_dataset *d, struct gp_err *err)
{
	const struct gp_job_settings *s = j->set;
	const bool words = gp_dataset_labels(d) > 0;
	if (s->masked_words && !words)
		GP_FAIL(err, GP_USAGE, "pretrain takes plain text, --data text:FILE, not %s", s->data);
	if (words && s->purpose == GP_JOB_INFER)
		GP_FAIL(err, GP_USAGE,
			"infer prints classes and values; a masked language model has neither ('gpclient eval' "
			"measures it)");
	if (words && !gp_model_guesses_words(j->model))
		GP_FAIL(err, GP_USAGE,
			"--data %s is for masked language models: use 'gpclient pretrain', or a --model with lm=1 "
			"(roberta, bert)",
			s->data);
	if (!words && gp_model_guesses_words(j->model))
		GP_FAIL(err, GP_USAGE,
			"--model %s is a masked language model (lm=1), which takes --data text:FILE, not %s", s->model,
			s->data);
	return GP_OK;
}

static enum gp_status check_model(const struct gp_job *j, const struct gp_dataset *d, struct gp_err *err)
{
	const struct gp_shape *out = gp_graph_output_shape(j->graph);
	const int64_t outputs = out->dim[out->ndim - 1];
	GP_TRY(check_words(j, d, err));
	if (gp_dataset_has_values(d) && (out->ndim != 1 || out->dim[0] != 1))
		GP_FAIL(err, GP_INVALID,
			"--model %s ends in %lld outputs, but the data has a value to predict (regression): that takes "
			"one output, classes=1",
			j->set->model, (long long)outputs);
	if (j->model_of_file && gp_dataset_labels(d) == 0 && (out->ndim != 1 || out->dim[0] < gp_dataset_classes(d)))
		GP_FAIL(err, GP_INVALID, "%s has a model of %lld output%s, but --data %s has %d classes", j->set->init,
			(long long)outputs, outputs == 1 ? "" : "s", j->set->data, gp_dataset_classes(d));
	if (gp_dataset_labels(d) == 0 && (out->ndim != 1 || out->dim[0] < gp_dataset_classes(d)))
		GP_FAIL(err, GP_INVALID, "--model %s ends in %lld output%s, but the data has %d classes", j->set->model,
			(long long)outputs, outputs == 1 ? "" : "s", gp_dataset_classes(d));
	const struct gp_tensor_info *info = gp_dataset_tensor_info(d);
	struct gp_batch_map map;
	if (gp_batch_map_make(j->graph, info, gp_dataset_tensors(d), &map, err) != GP_OK ||
	    gp_batch_map_check_values(j->graph, info, &map, err) != GP_OK)
		return gp_err_prefix(err, "--model %s, --data %s", j->set->model, j->set->data);
	return GP_OK;
}

static enum gp_status set_norm_mode(struct gp_job *j, struct gp_err *err)
{
	const int norms = gp_graph_set_batch_norm(j->graph, &j->norm_mode, err);
	if (norms < 0)
		return err->code;
	if (norms == 0 && j->norm_mode.mode != GP_BN_CHUNK)
		GP_FAIL(err, GP_USAGE, "--batch-norm %s: --model %s has no batch norm", j->set->batch_norm,
			j->set->model);
	if (norms == 0 && j->set->recalibrate > 0)
		GP_FAIL(err, GP_USAGE, "--recalibrate: --model %s has no batch norm", j->set->model);
	return GP_OK;
}

void gp_job_warn_of_norms(const struct gp_job *j)
{
	if (j->norm_mode.mode == GP_BN_RUNNING && !j->set->init)
		gp_log(model, GP_LOG_WARN,
		       "--batch-norm running without --init: the running statistics stay at 0 and 1, so that nothing "
		       "is normalized; deferred or renorm are for training from scratch");
	if (gp_norm_mode_suffers(j->graph, j->session.chunk_samples))
		gp_log(model, GP_LOG_WARN,
		       "batch norm takes its statistics from chunks of %d sample%s, which is less than the %d that it "
		       "needs to train well: a fine-tuning lost 9 points of accuracy with chunks of 8 beside one chunk "
		       "of 32; fewer --chunks help, or --batch-norm running (fine-tuning), deferred or renorm (from "
		       "scratch)",
		       j->session.chunk_samples, j->session.chunk_samples == 1 ? "" : "s", GP_NORM_FEW_SAMPLES);
}

static enum gp_status freeze(struct gp_job *j, struct gp_err *err)
{
	int frozen;
	GP_TRY(gp_freeze(j->graph, &j->cut, j->set->freeze, &frozen, err));
	if (j->set->progress)
		fprintf(stderr, "%d parameters are frozen; %llu of %llu numbers are trained\n", frozen,
			(unsigned long long)j->graph->trained_elements, (unsigned long long)j->graph->param_elements);
	return GP_OK;
}

/* Layers along the sequence have a weight for each position. */
static enum gp_status check_padding(const struct gp_job *j, struct gp_err *err)
{
	for (int e = 0; e < GP_INSERT_ENDS && j->set->pad == GP_PAD_DROP; e++)
		for (int i = 0; i < j->insertion.end[e].spec.sets; i++) {
			const struct gp_insert_set *s = &j->insertion.end[e].spec.set[i];
			if (s->kind != GP_INSERT_CONV && s->dim == GP_INSERT_SEQUENCE)
				GP_FAIL(err, GP_USAGE,
					"--%s: a layer with dim=sequence has a weight for each position, "
					"padding included: it needs --pad max, not --pad drop",
					j->insertion.end[e].flag);
		}
	return GP_OK;
}

/* What flags have asked for; engines check it, too. */
static enum gp_status check_decays(const struct gp_job *j, struct gp_err *err)
{
	if (j->session.decays.count > 0 && gp_graph_is_tied(j->graph))
		GP_FAIL(err, GP_USAGE,
			"--insert decay: %s has tied weights, and a plan that is replaced when a rank shrinks cannot "
			"keep them tied; use linear, whose rank stays the same",
			j->model);
	if (gp_decays_check(&j->session.decays, j->graph, err) == GP_OK)
		return GP_OK;
	err->code = err->code == GP_INVALID ? GP_USAGE : err->code;
	return gp_err_prefix(err, "--insert");
}

enum gp_status gp_job_settle_graph(struct gp_job *j, struct gp_err *err)
{
	GP_TRY(gp_job_read_cut(j, err));
	GP_TRY(gp_job_put_insertions(j, err));
	gp_insertion_decays(&j->insertion, &j->session.decays);
	GP_TRY(check_decays(j, err));
	GP_TRY(check_padding(j, err));
	GP_TRY(set_norm_mode(j, err));
	if (j->set->freeze)
		GP_TRY(freeze(j, err));
	return j->set->no_decay ? gp_no_decay(j->graph, j->set->no_decay, &j->without_decay, err) : GP_OK;
}

enum gp_status gp_job_build(struct gp_job *j, const struct gp_dataset *d, struct gp_err *err)
{
	struct gp_model_options o = {.classes = gp_dataset_classes(d),
				     .input = *gp_dataset_shape(d),
				     .values = gp_dataset_tensor_info(d)[0].values};
	GP_TRY(gp_model_build_settled(j->set->model, &o, &j->graph, j->model, err));
	GP_TRY(check_model(j, d, err));
	j->values = gp_dataset_has_values(d);
	GP_TRY(gp_job_check_init(j, d, err));
	for (int i = 0; i < 4; i++)
		GP_TRY(gp_codec_spec_set_samples(&j->session.codec[i], gp_dataset_samples(d), err));
	GP_TRY(gp_job_settle_graph(j, err));
	GP_TRY(gp_padding_settle(j, d, err));
	if (j->set->tokenizer && !gp_dataset_tokenizer(d))
		gp_log(data, GP_LOG_WARN, "--tokenizer makes tokens of texts; --data %s has none, so it is not used",
		       j->set->data);
	return j->set->init ? gp_job_load_init(j, err) : GP_OK;
}

/* Engine. */

enum gp_status gp_job_open_engine(struct gp_job *j, const struct gp_optim *optim, struct gp_run_state *run,
				  struct gp_err *err)
{
	const struct gp_job_settings *s = j->set;
	j->session.eval_only = !optim;
	j->session.calibrates = s->recalibrate > 0;
	j->session.recompute = optim && s->recompute;
	if (optim)
		j->session.optim = *optim;
	if (!s->local)
		GP_TRY(gp_codecs_fit(j, err));
	struct gp_engine_spec spec = {.graph = j->graph,
				      .device = s->device,
				      .threads = gp_threads_count(s->threads),
				      .session = j->session,
				      .window_given = s->window > 0,
				      .window_grows = s->window == 0,
				      .client_precision = j->client_precision,
				      .tries_client = j->tries_client,
				      .loss = j->values ? GP_LOSS_SQUARED_ERROR : GP_LOSS_CROSS_ENTROPY,
				      .drop_padding = j->drop_padding,
				      .profile = s->profile,
				      .init = j->init,
				      .run = run,
				      .trace = j->trace,
				      .monitor = j->monitor,
				      .privacy = j->privacy,
				      .server = s->server,
				      .cut = j->cut,
				      .codec_auto = chooses_codecs(j) ? j->codec_auto : NULL,
				      .insertion = gp_insertion_any(&j->insertion) ? &j->insertion : NULL,
				      .connect_timeout_s = s->connect_timeout_s,
				      .idle_timeout_s = s->idle_timeout_s,
				      .reconnect_for_s = s->reconnect_for_s,
				      .shares_loss = j->shares_loss,
				      .patience_s = j->patience_s,
				      .stop = j->stop,
				      .security = &j->security};
	GP_TRY(s->local ? gp_engine_new_local(&spec, &j->engine, err) : gp_engine_new_split(&spec, &j->engine, err));
	gp_job_take_precision(j);
	return GP_OK;
}

void gp_job_deinit(struct gp_job *j)
{
	if (j->engine)
		j->engine->ops->free(j->engine);
	gp_weights_free(j->init);
	gp_graph_free(j->graph);
	gp_saved_model_deinit(&j->saved);
	gp_client_security_deinit(&j->security);
	*j = (struct gp_job){0};
}

json_t *gp_job_text_json(const char *text)
{
	char plain[1200];
	json_t *t = json_string(text);
	if (t)
		return t;
	return json_string(gp_text_sanitize(text, plain, sizeof plain));
}

enum gp_status gp_job_print_json(json_t *object, struct gp_err *err)
{
	if (!object)
		GP_FAIL(err, GP_NOMEM, "out of memory for the report");
	int failed = json_dumpf(object, stdout, JSON_REAL_PRECISION(10));
	json_decref(object);
	if (failed != 0 || putchar('\n') == EOF || fflush(stdout) != 0)
		GP_FAIL(err, GP_IO, "the report cannot be written to standard output");
	return GP_OK;
}
