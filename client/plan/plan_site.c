/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_site.h. Test: tests/e2e/plan.sh, tests/e2e/bench.sh
 */
#include "client/plan/plan_site.h"

#include <string.h>

#include "client/measure/link_measure.h"
#include "common/base/clock.h"
#include "common/base/threads.h"
#include "common/net/conn.h"
#include "kernels/device_registry.h"

#define FAST_BYTES_S      6.25e6 /* 50 Mbit/s: below it, moving bytes takes some percent of a processor */
#define MOVING_SECONDS    1.0
#define SERVER_STEPS      4
#define SERVER_SECONDS    30.0
#define LOAD_BATCHES      5
#define LOAD_SECONDS      2.0
#define GPU_CODEC_THREADS 4 /* of a server with a GPU */

static const struct gp_opt same_machine_rows[] = {
	{.name = "same-machine", .type = GP_OPT_CHOICE, .initial = "auto", .choices = "auto|yes|no"},
};
const struct gp_opt_rows gp_plan_same_machine_rows = GP_OPT_ROWS(same_machine_rows);

bool gp_plan_is_same_machine(int choice, const char *server)
{
	char host[256];
	uint16_t port;
	struct gp_err ignored;
	if (choice != GP_SAME_MACHINE_AUTO)
		return choice == GP_SAME_MACHINE_YES;
	return server && gp_addr_parse(server, host, &port, &ignored) == GP_OK && gp_addr_is_loopback(host);
}

struct gp_optim gp_plan_optim_of(int optimizer, double momentum, double clip_norm)
{
	return (struct gp_optim){.kind = (enum gp_optim_kind)optimizer,
				 .momentum = optimizer == GP_OPTIM_SGD ? (float)momentum : 0,
				 .beta1 = 0.9,
				 .beta2 = 0.999,
				 .eps = 1e-8f,
				 .clip_norm = clip_norm};
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

enum gp_status gp_plan_site_open(struct gp_plan_site *s, struct gp_err *err)
{
	GP_TRY(gp_job_open_data(&s->job, GP_SPLIT_TRAIN, false, &s->data, err));
	GP_TRY(gp_job_check_batch(&s->set, s->data, err));
	for (int i = 0; i < s->study.codecs; i++)
		for (int d = 0; d < GP_DIRECTIONS; d++)
			GP_TRY(gp_codec_spec_set_samples(&s->study.codec[i].spec[d], gp_dataset_samples(s->data), err));
	return gp_job_build(&s->job, s->data, err);
}

static void settle_world(struct gp_plan_site *s, int same_machine)
{
	struct gp_plan_world *w = &s->study.world;
	w->graph = s->job.graph;
	w->device = s->device;
	w->session = s->job.session;
	w->session.optim = s->optim;
	w->session.recompute = s->set.recompute;
	w->session.precision = s->job.client_precision;
	w->server = (struct gp_plan_speed){1, 1, 1, 1};
	w->threads = w->server_threads = gp_threads_count(s->set.threads);
	w->processors = gp_threads_count(0);
	w->same_machine = gp_plan_is_same_machine(same_machine, s->set.server);
	w->server_codec_threads = 1;
}

enum gp_status gp_plan_site_settle(struct gp_plan_site *s, int same_machine, double seconds, struct gp_err *err)
{
	struct gp_plan_study *study = &s->study;
	GP_TRY(gp_device_open(s->set.device, gp_threads_count(s->set.threads), &s->device, err));
	settle_world(s, same_machine);
	study->batch = (int)s->set.batch;
	study->window = (int)s->set.window;
	study->weights = s->job.init;
	study->loss = s->job.values ? GP_LOSS_SQUARED_ERROR : GP_LOSS_CROSS_ENTROPY;
	study->block_seconds = seconds;
	study->codec_seconds = seconds / 50;
	return GP_OK;
}

void gp_plan_site_deinit(struct gp_plan_site *s)
{
	gp_plan_study_deinit(&s->study);
	if (s->device)
		s->device->ops->close(s->device);
	gp_job_deinit(&s->job);
	gp_loader_free(s->loader);
	gp_dataset_free(s->data);
	*s = (struct gp_plan_site){0};
}

/* --- the link and the server -------------------------------------------------------------------------------------- */

enum gp_status gp_plan_site_measure_link(struct gp_plan_site *s, double seconds, struct gp_plan_link *out,
					 struct gp_err *err)
{
	const struct gp_link_measure_spec spec = {.server = s->set.server,
						  .security = &s->job.security,
						  .connect_timeout_s = s->set.connect_timeout_s,
						  .seconds = seconds};
	struct gp_link_figures f;
	s->tell(s->arg, "the link", 0, 1);
	GP_TRY(gp_link_measure(&spec, &f, err));
	return gp_plan_link_of(&f, s->study.world.same_machine, out, err);
}

static bool is_fast(const struct gp_plan_way *w)
{
	return w->bytes_per_s <= 0 || w->bytes_per_s >= FAST_BYTES_S;
}

void gp_plan_site_measure_moving(struct gp_plan_site *s, struct gp_plan_link *link)
{
	struct gp_plan_link measured;
	struct gp_err ignored;
	if ((is_fast(&link->up) || is_fast(&link->down)) &&
	    gp_plan_site_measure_link(s, MOVING_SECONDS, &measured, &ignored) == GP_OK)
		link->byte_s = measured.byte_s;
}

struct gp_plan_pick gp_plan_site_reference(const struct gp_plan_site *s)
{
	const struct gp_plan_study *study = &s->study;
	struct gp_plan_pick pick = {.chunking = 0};
	for (int i = 1; i < study->chunkings; i++)
		if (study->chunks[i] > study->chunks[pick.chunking])
			pick.chunking = i;
	for (int i = study->codecs - 1; i >= 0; i--)
		if (strncmp(study->codec[i].text, "uniform", strlen("uniform")) == 0)
			pick.codec = i;
	for (int i = 0; i < study->cuts; i++)
		if (study->cut[i].head == s->job.cut.head && study->cut[i].tail == s->job.cut.tail)
			pick.cut = i;
	return pick;
}

/* One chunk is in flight, so that no stage disturbs another. */
static enum gp_status open_session(struct gp_plan_site *s, const struct gp_plan_pick *pick, struct gp_err *err)
{
	struct gp_session_spec *session = &s->job.session;
	const int chunks = s->study.chunks[pick->chunking];
	session->chunk_samples = s->study.batch / chunks;
	session->chunks = chunks > 1 ? 2 : 1;
	session->window = 1;
	memcpy(session->codec, s->study.codec[pick->codec].spec, sizeof session->codec);
	s->job.cut = s->study.cut[pick->cut];
	s->set.window = 1;
	s->set.batch = gp_session_batch(session);
	s->tell(s->arg, "the server", 0, 1);
	return gp_job_open_engine(&s->job, &s->optim, NULL, err);
}

static enum gp_status do_steps(struct gp_plan_site *s, struct gp_plan_server *out, struct gp_err *err)
{
	struct gp_loader *loader;
	GP_TRY(gp_job_open_loader(&s->job, s->data, GP_SPLIT_TRAIN, &loader, err));
	const enum gp_status status =
		gp_plan_server_measure(s->job.engine, loader, SERVER_STEPS, SERVER_SECONDS, out, err);
	s->job.engine->ops->free(s->job.engine); /* it may still read from the loader */
	s->job.engine = NULL;
	gp_loader_free(loader);
	return status;
}

enum gp_status gp_plan_site_measure_server(struct gp_plan_site *s, const struct gp_plan_pick *pick,
					   struct gp_plan_server *out, struct gp_err *err)
{
	GP_TRY(open_session(s, pick, err));
	const enum gp_status status = do_steps(s, out, err);
	s->set.batch = s->study.batch;
	return status;
}

void gp_plan_site_serve(struct gp_plan_site *s, const struct gp_plan_server *server, const struct gp_plan_pick *pick)
{
	gp_plan_study_serve(&s->study, server, pick);
	if (strncmp(server->device, "cuda", strlen("cuda")) == 0)
		s->study.world.server_codec_threads = GPU_CODEC_THREADS;
}

/* --- this side ---------------------------------------------------------------------------------------------------- */

/* How long a thread takes to make a batch, and one of them. */
static enum gp_status load(struct gp_plan_site *s, struct gp_batch **out, struct gp_err *err)
{
	GP_TRY(gp_job_open_loader(&s->job, s->data, GP_SPLIT_TRAIN, &s->loader, err));
	const uint64_t begin = gp_now_ns();
	for (int i = 1;; i++) {
		GP_TRY(gp_loader_next(s->loader, out, err));
		const double taken_s = (double)(gp_now_ns() - begin) * 1e-9;
		s->study.world.load_s = taken_s / i;
		if (i == LOAD_BATCHES || taken_s > LOAD_SECONDS)
			return GP_OK;
		gp_loader_give_back(s->loader, *out);
	}
}

enum gp_status gp_plan_site_measure_here(struct gp_plan_site *s, struct gp_err *err)
{
	struct gp_batch *batch;
	GP_TRY(load(s, &batch, err));
	const enum gp_status status = gp_plan_study_measure(&s->study, batch, s->tell, s->arg, err);
	gp_loader_give_back(s->loader, batch);
	return status;
}
