/* SPDX-License-Identifier: Apache-2.0
 *
 * See bench_predict.h. Test: tests/e2e/bench.sh
 */
#include "client/bench/bench_predict.h"

#include <math.h>
#include <string.h>

#include "client/measure/link_measure.h"
#include "client/plan/plan_study.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/threads.h"
#include "common/net/conn.h"
#include "kernels/device_registry.h"

#define LINK_SECONDS      6.0 /* for each second of computing, between 1 and this */
#define SERVER_STEPS      4
#define SERVER_SECONDS    30.0
#define LOAD_BATCHES      5
#define LOAD_SECONDS      2.0
#define GPU_CODEC_THREADS 4 /* of a server with a GPU */

/* Everything that belongs to one cut. */
struct cut {
	const struct gp_bench_predict_spec *spec;
	int number;
	struct gp_job_settings set;
	struct gp_job job;
	struct gp_dataset *data;
	struct gp_loader *loader;
	struct gp_device *device;
	struct gp_plan_study study;
	struct gp_plan_link link;  /* as it is */
	char no_link[GP_ERR_TEXT]; /* it could not be measured */
};

static void tell(void *arg, const char *what, int done, int of)
{
	const struct cut *c = arg;
	char text[128];
	snprintf(text, sizeof text, "measuring for predictions, cut %s: %s %d/%d", c->spec->sweep->cut[c->number], what,
		 done + 1, of);
	gp_progress_update(c->spec->progress, gp_now_ns(), text);
}

static bool stopped(const struct cut *c)
{
	return c->spec->stop && *c->spec->stop;
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

static int most_chunks(const struct gp_bench_sweep *s)
{
	int most = s->chunks[0];
	for (int i = 1; i < s->chunkings; i++)
		most = s->chunks[i] > most ? s->chunks[i] : most;
	return most;
}

static enum gp_status prepare(struct cut *c, struct gp_err *err)
{
	const struct gp_bench_sweep *sweep = c->spec->sweep;
	c->set = *c->spec->job;
	c->set.cut = sweep->cut[c->number];
	c->set.codec = "raw";
	c->set.chunks = most_chunks(sweep);
	c->set.window = 1; /* of the session in which the server is measured: no stage disturbs another */
	GP_TRY(gp_job_begin(&c->job, &c->set, err));
	GP_TRY(gp_job_open_data(&c->job, GP_SPLIT_TRAIN, false, &c->data, err));
	if (gp_dataset_samples(c->data) < c->set.batch)
		GP_FAIL(err, GP_INVALID, "--data %s has %u training samples, fewer than the %lld of --batch",
			c->set.data, gp_dataset_samples(c->data), (long long)c->set.batch);
	return gp_job_build(&c->job, c->data, err);
}

static enum gp_status take_lists(struct cut *c, struct gp_err *err)
{
	const struct gp_bench_sweep *sweep = c->spec->sweep;
	struct gp_plan_study *s = &c->study;
	GP_TRY(gp_alloc_array((void **)&s->cut, 1, sizeof *s->cut, err));
	s->cut[s->cuts++] = c->job.cut;
	for (int i = 0; i < sweep->chunkings; i++)
		s->chunks[s->chunkings++] = sweep->chunks[i];
	for (int i = 0; i < sweep->codecs; i++) {
		struct gp_plan_codec_set *set = &s->codec[s->codecs++];
		snprintf(set->text, sizeof set->text, "%s", sweep->codec[i]);
		set->same = true;
		for (int d = 0; d < GP_DIRECTIONS; d++) {
			GP_TRY(gp_codec_spec_parse(sweep->codec[i], &set->spec[d], err));
			GP_TRY(gp_codec_spec_set_samples(&set->spec[d], gp_dataset_samples(c->data), err));
		}
	}
	return GP_OK;
}

static void settle_world(struct cut *c)
{
	struct gp_plan_world *w = &c->study.world;
	w->graph = c->job.graph;
	w->device = c->device;
	w->session = c->job.session;
	w->session.optim = c->spec->optim;
	w->session.precision = c->job.client_precision;
	w->server = (struct gp_plan_speed){1, 1, 1, 1};
	w->threads = w->server_threads = gp_threads_count(c->set.threads);
	w->processors = gp_threads_count(0);
	w->same_machine = c->spec->same_machine;
	w->server_codec_threads = 1;
}

static enum gp_status begin_study(struct cut *c, struct gp_err *err)
{
	struct gp_plan_study *s = &c->study;
	GP_TRY(gp_device_open(c->set.device, gp_threads_count(c->set.threads), &c->device, err));
	GP_TRY(take_lists(c, err));
	settle_world(c);
	s->batch = (int)c->set.batch;
	s->window = (int)c->spec->job->window;
	s->weights = c->job.init;
	s->loss = c->job.values ? GP_LOSS_SQUARED_ERROR : GP_LOSS_CROSS_ENTROPY;
	s->block_seconds = c->spec->seconds;
	s->codec_seconds = c->spec->seconds / 50;
	return GP_OK;
}

/* --- measuring ---------------------------------------------------------------------------------------------------- */

static bool is_near(const char *server)
{
	char host[256];
	uint16_t port;
	struct gp_err ignored;
	return gp_addr_parse(server, host, &port, &ignored) == GP_OK && gp_addr_is_loopback(host);
}

/* What lies below a simulated link counts, too, unless it is loopback, which is faster than any that can be
 * simulated. */
static bool needs_link(const struct cut *c)
{
	for (int i = 0; i < c->spec->sweep->links; i++)
		if (c->spec->sweep->link[i].as_is)
			return true;
	return !is_near(c->set.server);
}

/* A link that cannot be measured, as of a server that measures nothing, leaves rows without a prediction. */
static void measure_link(struct cut *c)
{
	struct gp_link_figures f;
	struct gp_err err;
	const struct gp_link_measure_spec spec = {.server = c->set.server,
						  .security = &c->job.security,
						  .connect_timeout_s = c->set.connect_timeout_s,
						  .seconds =
							  fmin(fmax(LINK_SECONDS * c->spec->seconds, 1), LINK_SECONDS)};
	tell(c, "the link", 0, 1);
	if (gp_link_measure(&spec, &f, &err) != GP_OK) {
		snprintf(c->no_link, sizeof c->no_link, "%s", err.text);
		return;
	}
	if (gp_plan_link_of(&f, &c->link, &err) != GP_OK)
		snprintf(c->no_link, sizeof c->no_link, "%s", err.text);
}

/* The codec of the steps that the server does: one that computes, where there is one. */
static struct gp_plan_pick choose_reference(const struct gp_plan_study *s)
{
	struct gp_plan_pick pick = {.chunking = 0};
	for (int i = 1; i < s->chunkings; i++)
		if (s->chunks[i] > s->chunks[pick.chunking])
			pick.chunking = i;
	for (int i = 0; i < s->codecs; i++)
		if (strncmp(s->codec[i].text, "uniform", strlen("uniform")) == 0) {
			pick.codec = i;
			break;
		}
	return pick;
}

static enum gp_status open_session(struct cut *c, const struct gp_plan_pick *pick, struct gp_err *err)
{
	struct gp_session_spec *s = &c->job.session;
	const int chunks = c->study.chunks[pick->chunking];
	s->chunk_samples = c->study.batch / chunks;
	s->chunks = chunks > 1 ? 2 : 1;
	s->window = 1;
	memcpy(s->codec, c->study.codec[pick->codec].spec, sizeof s->codec);
	c->set.batch = gp_session_batch(s);
	c->job.stop = c->spec->stop;
	tell(c, "the server", 0, 1);
	return gp_job_open_engine(&c->job, &c->spec->optim, NULL, err);
}

static enum gp_status measure_server(struct cut *c, struct gp_plan_server *out, struct gp_err *err)
{
	const struct gp_plan_pick pick = choose_reference(&c->study);
	struct gp_loader *loader = NULL;
	GP_TRY(open_session(c, &pick, err));
	enum gp_status status = gp_job_open_loader(&c->job, c->data, GP_SPLIT_TRAIN, &loader, err);
	if (status == GP_OK)
		status = gp_plan_server_measure(c->job.engine, loader, SERVER_STEPS, SERVER_SECONDS, out, err);
	c->job.engine->ops->free(c->job.engine); /* it may still read from the loader */
	c->job.engine = NULL;
	gp_loader_free(loader);
	c->set.batch = c->study.batch;
	return status;
}

/* How long a thread takes to make a batch, and one of them. */
static enum gp_status load(struct cut *c, struct gp_batch **out, struct gp_err *err)
{
	GP_TRY(gp_job_open_loader(&c->job, c->data, GP_SPLIT_TRAIN, &c->loader, err));
	const uint64_t begin = gp_now_ns();
	for (int i = 1;; i++) {
		GP_TRY(gp_loader_next(c->loader, out, err));
		const double taken_s = (double)(gp_now_ns() - begin) * 1e-9;
		c->study.world.load_s = taken_s / i;
		if (i == LOAD_BATCHES || taken_s > LOAD_SECONDS)
			return GP_OK;
		gp_loader_give_back(c->loader, *out);
	}
}

static enum gp_status measure_here(struct cut *c, struct gp_err *err)
{
	struct gp_batch *batch;
	GP_TRY(load(c, &batch, err));
	const enum gp_status status = gp_plan_study_measure(&c->study, batch, tell, c, err);
	gp_loader_give_back(c->loader, batch);
	return status;
}

static enum gp_status measure(struct cut *c, struct gp_err *err)
{
	struct gp_plan_server server;
	GP_TRY(begin_study(c, err));
	GP_TRY(measure_server(c, &server, err)); /* first: whatever it refuses is known soon */
	if (needs_link(c))
		measure_link(c);
	if (stopped(c))
		GP_FAIL(err, GP_CANCELED, "stopped by a signal");
	GP_TRY(measure_here(c, err));
	const struct gp_plan_pick pick = choose_reference(&c->study);
	gp_plan_study_serve(&c->study, &server, &pick);
	if (strncmp(server.device, "cuda", strlen("cuda")) == 0)
		c->study.world.server_codec_threads = GPU_CODEC_THREADS;
	return GP_OK;
}

/* --- predicting --------------------------------------------------------------------------------------------------- */

static struct gp_plan_way way_of(struct gp_plan_way shape, const struct gp_plan_way *below)
{
	if (below->bytes_per_s > 0 && (shape.bytes_per_s == 0 || below->bytes_per_s < shape.bytes_per_s))
		shape.bytes_per_s = below->bytes_per_s;
	shape.delay_s += below->delay_s;
	return shape;
}

static struct gp_plan_link link_of(const struct cut *c, const struct gp_bench_link *l)
{
	if (l->as_is)
		return c->link;
	return (struct gp_plan_link){way_of(l->shape.up, &c->link.up), way_of(l->shape.down, &c->link.down)};
}

static void predict(struct cut *c, const struct gp_bench_place *at, struct gp_bench_prediction *out)
{
	const struct gp_plan_pick pick = {.codec = at->codec, .chunking = at->chunking};
	const struct gp_bench_link *link = &c->spec->sweep->link[at->link];
	struct gp_prediction p;
	struct gp_err err;
	out->time_s = NAN;
	c->study.world.link = link_of(c, link);
	if (link->as_is && c->no_link[0]) {
		snprintf(out->why, sizeof out->why, "%s", c->no_link);
	} else if (gp_plan_study_predict(&c->study, &pick, NULL, &p, &err) != GP_OK) {
		snprintf(out->why, sizeof out->why, "%s", err.text);
	} else {
		out->time_s = p.time.time_per_batch_s;
		if (p.time.bound.steps > 0)
			snprintf(out->bound_by, sizeof out->bound_by, "%s",
				 gp_bound_name(gp_bound_by_largest(&p.time.bound)));
	}
}

static enum gp_status predict_rows(struct cut *c, struct gp_bench_results *results, struct gp_err *err)
{
	const struct gp_bench_sweep *s = c->spec->sweep;
	for (int row = 0; row < gp_bench_count(s); row++) {
		const struct gp_bench_place at = gp_bench_place_of(s, row);
		struct gp_bench_prediction p = {0};
		gp_bench_key_of(s, row, &p.key);
		if (at.cut != c->number || gp_bench_results_predicted(results, &p.key))
			continue;
		predict(c, &at, &p);
		GP_TRY(gp_bench_results_add_prediction(results, &p, err));
	}
	return GP_OK;
}

/* The server did not tell what was asked, or a part of this machine cannot: the rows run all the same. */
static bool leaves_rows(enum gp_status status)
{
	return status == GP_UNSUPPORTED || status == GP_NOMEM || status == GP_BUSY;
}

static enum gp_status measure_and_predict(struct cut *c, struct gp_bench_results *results, struct gp_err *err)
{
	const enum gp_status status = measure(c, err);
	if (status == GP_OK)
		return predict_rows(c, results, err);
	if (!leaves_rows(status))
		return status;
	gp_progress_clear(c->spec->progress);
	fprintf(stderr, "no predictions for the cut %s: %s\n", c->spec->sweep->cut[c->number], err->text);
	return GP_OK;
}

static void clean_up(struct cut *c)
{
	gp_plan_study_deinit(&c->study);
	if (c->device)
		c->device->ops->close(c->device);
	gp_job_deinit(&c->job);
	gp_loader_free(c->loader);
	gp_dataset_free(c->data);
	gp_free(c);
}

enum gp_status gp_bench_predict_cut(const struct gp_bench_predict_spec *spec, int cut, struct gp_bench_results *results,
				    struct gp_err *err)
{
	struct cut *c;
	GP_TRY(gp_alloc_array((void **)&c, 1, sizeof *c, err));
	c->spec = spec;
	c->number = cut;
	enum gp_status status = prepare(c, err);
	if (status == GP_OK && spec->measure)
		status = measure_and_predict(c, results, err);
	clean_up(c);
	return status;
}
