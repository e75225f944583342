/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient plan: how long a batch will take, split over a link, before anything is trained; and with --sweep, where to cut, with
 * which codec and into how many chunks. Options and the order of things; what is measured and predicted: plan_study.h,
 * plan_schedule.h. Test: tests/e2e/plan.sh
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "client/codecs/codec_specs.h"
#include "client/commands/commands.h"
#include "client/job/job.h"
#include "client/measure/link_measure.h"
#include "client/costs/partitions.h"
#include "client/plan/plan_rank.h"
#include "client/plan/plan_report.h"
#include "client/plan/plan_server.h"
#include "client/log/progress.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/base/threads.h"
#include "common/net/conn.h"
#include "kernels/device_registry.h"

#define PROGRAM "gpclient plan"

#define PLAIN_PROGRESS_S  5
#define LINK_SECONDS      6.0
#define SERVER_STEPS      4
#define SERVER_SECONDS    30.0
#define LOAD_BATCHES      5
#define LOAD_SECONDS      2.0
#define GPU_CODEC_THREADS 4 /* of a server with a GPU */

/* What --sweep codec tries: codecs that lose little, the more exact ones first. */
static const char *const usual_codecs[] = {"raw",
					   "fp16",
					   "uniform:bits=8",
					   "sortquant:bits=6,split=2",
					   "block:bits=6,size=32",
					   "uniform:bits=6+rans",
					   "block:bits=4,size=32",
					   "topk:ratio=0.25+uniform:bits=8"};

struct settings {
	struct gp_job_settings job; /* first: the shared rows know its offsets */
	const char *link, *sweep, *codecs;
	double server_speed, max_error, seconds, momentum, clip_norm;
	int64_t client_memory, server_memory, top;
	int optimizer, same_machine; /* of SAME_MACHINE */
};

enum { SAME_AUTO, SAME_YES, SAME_NO };
#define SAME_MACHINE "auto|yes|no"

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt where_rows[] = {
	{.name = "link",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(link),
	 .value = "RATE[,DELAY[,DOWN]]",
	 .group = "Where",
	 .help = "the link, as in 100mbit,10ms: payload each way, and the delay each way (or rtt=20ms); a third part "
		 "is "
		 "the rate from the server. Default: that to --server is measured, as by 'gpclient link'"},
	{.name = "server",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(job.server),
	 .value = "HOST:PORT",
	 .help = "gpserverd whose speed is measured, by a few steps of a training; default: none is asked"},
	{.name = "server-speed",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(server_speed),
	 .value = "X",
	 .initial = "1",
	 .min = 1e-3,
	 .max = 1e6,
	 .help = "without --server: take the server for X times as fast as this machine with --threads, computing and "
		 "in "
		 "codecs"},
	{.name = "same-machine",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(same_machine),
	 .initial = "auto",
	 .choices = SAME_MACHINE,
	 .help = "whether both ends run on this machine and share its processors; auto: yes where --server is on "
		 "loopback"},
	{.name = "device",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(job.device),
	 .value = "auto|cpu|cuda[:N]",
	 .initial = "cpu",
	 .help = "device of this side"},
	{.name = "threads",
	 .type = GP_OPT_INT,
	 .offset = FIELD(job.threads),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 1024,
	 .help = "compute threads of this side, as for train; 0 = one for each processor"},
	{.name = "connect-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(job.connect_timeout_s),
	 .value = "TIME",
	 .initial = "10s",
	 .min = 0.1,
	 .max = 3600,
	 .help = "give up reaching the server after this time"},
};

static const struct gp_opt what_rows[] = {
	{.name = "cut",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(job.cut),
	 .value = "H:T",
	 .group = "What",
	 .help = "where the model is divided, as for train (see 'gpclient model show'); default: the cut at which the "
		 "weights of --init have an insertion, else " GP_JOB_CUT},
	{.name = "sweep",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(sweep),
	 .value = "WHAT,...",
	 .help = "cut, codec, chunks, or several of them: predict all cuts of the model, several codecs, 1 to 16 "
		 "chunks, "
		 "and rank them by time"},
	{.name = "codecs",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codecs),
	 .value = "A,B,...",
	 .help = "the codecs of --sweep codec, separated by commas, semicolons or spaces; default: eight usual ones"},
	{.name = "max-error",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(max_error),
	 .value = "X",
	 .initial = "0.1",
	 .min = 0,
	 .max = 1e6,
	 .help = "with --sweep codec: leave out codecs whose relative error is above X in a tensor"},
	{.name = "client-memory",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(client_memory),
	 .value = "BYTES",
	 .initial = "0",
	 .min = 0,
	 .max = 0x1p62,
	 .help = "strike out what needs more memory here; 0 = no limit"},
	{.name = "server-memory",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(server_memory),
	 .value = "BYTES",
	 .initial = "0",
	 .min = 0,
	 .max = 0x1p62,
	 .help = "the same of the server; 0 = what --server says that it allows a session"},
	{.name = "top",
	 .type = GP_OPT_INT,
	 .offset = FIELD(top),
	 .value = "N",
	 .initial = "20",
	 .min = 1,
	 .max = 100000,
	 .help = "how many of a sweep's choices to show"},
	{.name = "optimizer",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(optimizer),
	 .value = "NAME",
	 .initial = "sgd",
	 .choices = "sgd|adam|adamw",
	 .help = "as for train: updates and memory depend on it"},
	{.name = "momentum",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(momentum),
	 .value = "X",
	 .initial = "0.9",
	 .min = 0,
	 .max = 1,
	 .below_max = true,
	 .help = "of --optimizer sgd: without it less memory is needed"},
	{.name = "clip-norm",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(clip_norm),
	 .value = "X",
	 .initial = "0",
	 .min = 0,
	 .max = 1e30,
	 .help = "as for train: a step then waits for the norm of the server's gradients; 0 = off"},
	{.name = "time",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(seconds),
	 .value = "TIME",
	 .initial = "1s",
	 .min = 0.01,
	 .max = 3600,
	 .help = "measure computing for about so long, for each size of a chunk: give more on a machine that has other "
		 "work"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "--model NAME --data NAME --link RATE,DELAY | --server HOST:PORT [--sweep cut,codec,chunks] "
		    "[OPTION...]",
	.about =
		"Predicts the time of a batch, its bytes and the memory of both sides, before anything is trained. "
		"What\n"
		"each layer and codec takes is measured here, on real samples; what the server takes is measured "
		"there\n"
		"(--server), or taken from here (--server-speed); the link is measured or given. A simulated step "
		"then\n"
		"says how long all of it takes together, and what bounds it.\n"
		"With --sweep it ranks cuts, codecs and numbers of chunks. A codec's relative error says nothing sure\n"
		"about accuracy: try the winner with train.",
	.examples = "  gpclient plan --model cnn --data fashion-mnist --link 100mbit,10ms --codec uniform:bits=8 "
		    "--chunks 8\n"
		    "  gpclient plan --model mobilenetv2 --data synthetic --server 192.0.2.7:4400 --sweep "
		    "cut,codec,chunks\n"
		    "  gpclient plan --model resnet18 --data folder:photos --link 20mbit,rtt=40ms,down=4mbit "
		    "--server-speed "
		    "30\n",
};

struct planning {
	struct settings set;
	const char *codec, *codec_dir[GP_DIRECTIONS]; /* as given */
	bool sweeps_cut, sweeps_codec, sweeps_chunks, link_measured;
	struct gp_job job;
	struct gp_optim optim;
	struct gp_dataset *data;
	struct gp_loader *loader;
	struct gp_device *device;
	struct gp_plan_study study;
	struct gp_plan_ranking ranking;
	struct gp_progress progress;
};

/* --- options ------------------------------------------------------------------------------------------------------ */

static enum gp_status parse(int argc, char **argv, struct settings *set, struct gp_options_result *r,
			    struct gp_err *err)
{
	const struct gp_opt_rows own = {where_rows, sizeof where_rows / sizeof where_rows[0]};
	const struct gp_opt_rows what = {what_rows, sizeof what_rows / sizeof what_rows[0]};
	const struct gp_opt_rows parts[] = {own,
					    what,
					    gp_job_model_rows,
					    gp_job_freeze_rows,
					    gp_job_batch_rows,
					    gp_job_codec_rows,
					    gp_job_grad_rows,
					    gp_job_insert_rows,
					    gp_job_security_rows,
					    gp_job_output_rows,
					    gp_job_progress_rows};
	struct gp_opt rows[GP_OPT_MAX];
	struct gp_opt_table t = table;
	t.opt = rows;
	t.count = gp_opt_join(parts, sizeof parts / sizeof parts[0], rows);
	*set = (struct settings){0};
	return gp_options_parse(&t, argc, argv, set, r, err);
}

static enum gp_status read_sweep(struct planning *p, struct gp_err *err)
{
	struct gp_text rest = gp_text_of(p->set.sweep ? p->set.sweep : ""), word;
	while (p->set.sweep && gp_text_cut(&rest, ',', &word)) {
		if (gp_text_is(word, "cut"))
			p->sweeps_cut = true;
		else if (gp_text_is(word, "codec"))
			p->sweeps_codec = true;
		else if (gp_text_is(word, "chunks"))
			p->sweeps_chunks = true;
		else
			GP_FAIL(err, GP_USAGE, "--sweep '%.60s': it takes cut, codec and chunks, separated by commas",
				p->set.sweep);
	}
	return GP_OK;
}

static enum gp_status check_flags(struct planning *p, struct gp_err *err)
{
	const struct settings *s = &p->set;
	if (!s->link && !s->job.server)
		GP_FAIL(err, GP_USAGE,
			"--link RATE,DELAY is missing, as in 100mbit,10ms; or --server HOST:PORT, to which the link is "
			"measured");
	if (s->job.server && s->server_speed != 1)
		GP_FAIL(err, GP_USAGE, "--server-speed is for when there is no --server, whose speed is measured");
	GP_TRY(read_sweep(p, err));
	if (s->codecs && !p->sweeps_codec)
		GP_FAIL(err, GP_USAGE, "--codecs names those of --sweep codec; one for a single prediction is --codec");
	if (p->sweeps_cut && (s->job.insert || s->job.insert_end[GP_INSERT_UP] || s->job.insert_end[GP_INSERT_DOWN]))
		GP_FAIL(err, GP_USAGE, "--insert puts layers at one cut: it cannot go with --sweep cut");
	return s->link ? gp_plan_link_parse(s->link, &p->study.world.link, err) : GP_OK;
}

/* Without a server the job is a local one, which has no codecs. */
static void settle_job(struct planning *p)
{
	struct gp_job_settings *j = &p->set.job;
	p->codec = j->codec;
	memcpy(p->codec_dir, j->codec_dir, sizeof p->codec_dir);
	j->local = !j->server;
	j->codec = "raw";
	memset(j->codec_dir, 0, sizeof j->codec_dir);
	if (j->idle_timeout_s <= 0)
		j->idle_timeout_s = 15;
}

/* --- codecs, cuts and chunks -------------------------------------------------------------------------------------- */

static enum gp_status add_codec(struct planning *p, const char *text, struct gp_err *err)
{
	struct gp_plan_study *s = &p->study;
	struct gp_plan_codec_set *set = &s->codec[s->codecs];
	if (s->codecs == GP_PLAN_CODECS_MAX)
		GP_FAIL(err, GP_USAGE, "--codecs: at most %d can be tried at once", GP_PLAN_CODECS_MAX);
	snprintf(set->text, sizeof set->text, "%s", text);
	set->same = true;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		GP_TRY(gp_codec_spec_parse(text, &set->spec[d], err));
	s->codecs++;
	return GP_OK;
}

/* --codec, and what directions have of their own. */
static enum gp_status add_given_codec(struct planning *p, struct gp_err *err)
{
	struct gp_plan_codec_set *set = &p->study.codec[0];
	if (gp_codec_spec_parse(p->codec, &set->spec[0], err) != GP_OK)
		return gp_err_prefix(err, "--codec");
	GP_TRY(add_codec(p, p->codec, err));
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		if (!p->codec_dir[d])
			continue;
		set->same = false;
		if (gp_codec_spec_parse(p->codec_dir[d], &set->spec[d], err) != GP_OK)
			return gp_err_prefix(err, "--%s", gp_job_codec_flags[d]);
	}
	if (!set->same)
		gp_text_append(set->text, sizeof set->text, " and others");
	for (int d = 1; d < GP_DIRECTIONS; d += 2)
		if (strncmp(set->spec[d].text, "delta", 5) == 0)
			GP_FAIL(err, GP_USAGE,
				"--%s: delta works up the link only, because the server does not know the samples; "
				"give "
				"--codec-act-up",
				p->codec_dir[d] ? gp_job_codec_flags[d] : "codec");
	return GP_OK;
}

static enum gp_status add_listed_codec(void *arg, const char *text, struct gp_err *err)
{
	if (add_codec(arg, text, err) != GP_OK)
		return gp_err_prefix(err, "--codecs: %s", text);
	return GP_OK;
}

static enum gp_status choose_codecs(struct planning *p, struct gp_err *err)
{
	if (!p->sweeps_codec)
		return add_given_codec(p, err);
	if (p->set.codecs)
		GP_TRY(gp_codec_specs_each(p->set.codecs, "--codecs", add_listed_codec, p, err));
	for (size_t i = 0; !p->set.codecs && i < sizeof usual_codecs / sizeof usual_codecs[0]; i++)
		GP_TRY(add_codec(p, usual_codecs[i], err));
	if (p->study.codecs == 0)
		GP_FAIL(err, GP_USAGE, "--codecs names no codec");
	return GP_OK;
}

static void choose_chunks(struct planning *p)
{
	struct gp_plan_study *s = &p->study;
	for (int n = 1; p->sweeps_chunks && n <= 16; n *= 2)
		if (s->batch % n == 0)
			s->chunks[s->chunkings++] = n;
	if (!p->sweeps_chunks)
		s->chunks[s->chunkings++] = (int)p->set.job.chunks;
}

/* Tied weights have their ends in head and tail. */
static bool keeps_ties(const struct gp_graph *g, const struct gp_cut *cut)
{
	if (!gp_graph_is_tied(g))
		return true;
	return gp_graph_block_of(g, g->param[g->tied[0]].node) < cut->head &&
	       gp_graph_block_of(g, g->param[g->tied[1]].node) >= cut->tail;
}

static enum gp_status choose_cuts(struct planning *p, struct gp_err *err)
{
	const struct gp_graph *g = p->job.graph;
	struct gp_plan_study *s = &p->study;
	const size_t pairs = (size_t)(g->blocks - 1) * (size_t)(g->blocks - 2) / 2;
	GP_TRY(gp_alloc_array((void **)&s->cut, p->sweeps_cut ? pairs : 1, sizeof *s->cut, err));
	if (!p->sweeps_cut) {
		s->cut[s->cuts++] = p->job.cut;
		return GP_OK;
	}
	for (int head = 1; head < g->blocks - 1; head++)
		for (int tail = head + 1; tail < g->blocks; tail++) {
			const struct gp_cut cut = {head, tail};
			if (keeps_ties(g, &cut))
				s->cut[s->cuts++] = cut;
		}
	if (s->cuts == 0)
		GP_FAIL(err, GP_INVALID, "%s has no cut that leaves its tied weights on this side", p->job.model);
	return GP_OK;
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

static struct gp_optim optimizer_of(const struct settings *s)
{
	return (struct gp_optim){.kind = (enum gp_optim_kind)s->optimizer,
				 .momentum = s->optimizer == GP_OPTIM_SGD ? (float)s->momentum : 0,
				 .beta1 = 0.9,
				 .beta2 = 0.999,
				 .eps = 1e-8f,
				 .clip_norm = s->clip_norm};
}

static void settle_world(struct planning *p)
{
	struct gp_plan_world *w = &p->study.world;
	const struct settings *s = &p->set;
	char host[256];
	uint16_t port;
	struct gp_err ignored;
	const bool here = s->job.server && gp_addr_parse(s->job.server, host, &port, &ignored) == GP_OK &&
			  gp_addr_is_loopback(host);
	w->graph = p->job.graph;
	w->device = p->device;
	w->session = p->job.session;
	w->session.optim = p->optim;
	w->session.precision = p->job.client_precision;
	w->server = (struct gp_plan_speed){s->server_speed, s->server_speed, s->server_speed, s->server_speed};
	w->threads = gp_threads_count(s->job.threads);
	w->processors = gp_threads_count(0);
	w->same_machine = s->same_machine == SAME_YES || (s->same_machine == SAME_AUTO && here);
	w->server_threads = w->threads;
	w->server_processors = s->job.server ? 0 : w->processors;
	w->server_codec_threads = 1;
}

static enum gp_status prepare(struct planning *p, struct gp_err *err)
{
	struct gp_job_settings *s = &p->set.job;
	GP_TRY(check_flags(p, err));
	settle_job(p);
	GP_TRY(gp_job_begin(&p->job, s, err));
	p->study.batch = (int)s->batch;
	p->study.window = (int)s->window;
	GP_TRY(choose_codecs(p, err));
	p->optim = optimizer_of(&p->set);
	GP_TRY(gp_optim_check(&p->optim, err));
	GP_TRY(gp_job_open_data(&p->job, GP_SPLIT_TRAIN, false, &p->data, err));
	if (gp_dataset_samples(p->data) < s->batch)
		GP_FAIL(err, GP_INVALID, "--data %s has %u training samples, fewer than the %lld of --batch", s->data,
			gp_dataset_samples(p->data), (long long)s->batch);
	for (int i = 0; i < p->study.codecs; i++)
		for (int d = 0; d < GP_DIRECTIONS; d++)
			GP_TRY(gp_codec_spec_set_samples(&p->study.codec[i].spec[d], gp_dataset_samples(p->data), err));
	GP_TRY(gp_job_build(&p->job, p->data, err));
	if (p->job.graph->blocks < 3)
		GP_FAIL(err, GP_INVALID, "%s has %d blocks, and a cut needs three", p->job.model, p->job.graph->blocks);
	GP_TRY(gp_device_open(s->device, gp_threads_count(s->threads), &p->device, err));
	choose_chunks(p);
	GP_TRY(choose_cuts(p, err));
	settle_world(p);
	p->study.weights = p->job.init;
	p->study.loss = p->job.values ? GP_LOSS_SQUARED_ERROR : GP_LOSS_CROSS_ENTROPY;
	p->study.block_seconds = p->set.seconds;
	p->study.codec_seconds = p->set.seconds / 50;
	return GP_OK;
}

/* --- measuring ---------------------------------------------------------------------------------------------------- */

static void tell(void *arg, const char *what, int done, int of)
{
	struct planning *p = arg;
	char text[80];
	snprintf(text, sizeof text, "measuring: %s %d/%d", what, done + 1, of);
	gp_progress_update(&p->progress, gp_now_ns(), text);
}

static enum gp_status measure_link(struct planning *p, struct gp_err *err)
{
	const struct gp_link_measure_spec spec = {.server = p->set.job.server,
						  .security = &p->job.security,
						  .connect_timeout_s = p->set.job.connect_timeout_s,
						  .seconds = LINK_SECONDS};
	struct gp_link_figures f;
	tell(p, "the link", 0, 1);
	if (gp_link_measure(&spec, &f, err) != GP_OK)
		return gp_err_prefix(err, "the link is not measured (give --link RATE,DELAY where it is known)");
	GP_TRY(gp_plan_link_of(&f, &p->study.world.link, err));
	p->link_measured = true;
	return GP_OK;
}

/* The choice whose steps the server is to do: with a codec that computes, where there is one. */
static struct gp_plan_pick choose_reference(const struct planning *p)
{
	const struct gp_plan_study *s = &p->study;
	struct gp_plan_pick pick = {.chunking = s->chunkings - 1};
	for (int i = 0; i < s->codecs && p->sweeps_codec; i++)
		if (strncmp(s->codec[i].text, "uniform", 7) == 0) {
			pick.codec = i;
			break;
		}
	for (int i = 0; i < s->cuts; i++)
		if (s->cut[i].head == p->job.cut.head && s->cut[i].tail == p->job.cut.tail)
			pick.cut = i;
	return pick;
}

/* One chunk is in flight, so that no stage disturbs another. */
static enum gp_status open_session(struct planning *p, const struct gp_plan_pick *pick, struct gp_err *err)
{
	struct gp_session_spec *s = &p->job.session;
	const int chunks = p->study.chunks[pick->chunking];
	s->chunk_samples = p->study.batch / chunks;
	s->chunks = chunks > 1 ? 2 : 1;
	s->window = 1;
	p->job.cut = p->study.cut[pick->cut];
	p->set.job.window = 1;
	memcpy(s->codec, p->study.codec[pick->codec].spec, sizeof s->codec);
	p->set.job.batch = gp_session_batch(s);
	tell(p, "the server", 0, 1);
	return gp_job_open_engine(&p->job, &p->optim, NULL, err);
}

static enum gp_status measure_server(struct planning *p, struct gp_plan_server *out, struct gp_err *err)
{
	const struct gp_plan_pick pick = choose_reference(p);
	struct gp_loader *loader;
	GP_TRY(open_session(p, &pick, err));
	enum gp_status status = gp_job_open_loader(&p->job, p->data, GP_SPLIT_TRAIN, &loader, err);
	if (status != GP_OK)
		return status;
	status = gp_plan_server_measure(p->job.engine, loader, SERVER_STEPS, SERVER_SECONDS, out, err);
	p->job.engine->ops->free(p->job.engine); /* it may still read from the loader */
	p->job.engine = NULL;
	gp_loader_free(loader);
	p->set.job.batch = p->study.batch;
	return status;
}

/* How long a thread takes to make a batch, and one of them. */
static enum gp_status load(struct planning *p, struct gp_batch **out, struct gp_err *err)
{
	GP_TRY(gp_job_open_loader(&p->job, p->data, GP_SPLIT_TRAIN, &p->loader, err));
	const uint64_t begin = gp_now_ns();
	for (int i = 1;; i++) {
		GP_TRY(gp_loader_next(p->loader, out, err));
		const double taken_s = (double)(gp_now_ns() - begin) * 1e-9;
		p->study.world.load_s = taken_s / i;
		if (i == LOAD_BATCHES || taken_s > LOAD_SECONDS)
			return GP_OK;
		gp_loader_give_back(p->loader, *out);
	}
}

static enum gp_status measure_here(struct planning *p, struct gp_err *err)
{
	struct gp_batch *batch;
	GP_TRY(load(p, &batch, err));
	const enum gp_status status = gp_plan_study_measure(&p->study, batch, tell, p, err);
	gp_loader_give_back(p->loader, batch);
	return status;
}

/* The server first: whatever it refuses is known soon. */
static enum gp_status measure(struct planning *p, struct gp_err *err)
{
	struct gp_plan_server server;
	const struct gp_plan_pick pick = choose_reference(p);
	if (p->set.job.server && !p->set.link)
		GP_TRY(measure_link(p, err));
	if (p->set.job.server)
		GP_TRY(measure_server(p, &server, err));
	GP_TRY(measure_here(p, err));
	if (!p->set.job.server)
		return GP_OK;
	gp_plan_study_serve(&p->study, &server, &pick);
	if (strncmp(server.device, "cuda", 4) == 0)
		p->study.world.server_codec_threads = GPU_CODEC_THREADS;
	return GP_OK;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

static bool sweeps(const struct planning *p)
{
	return p->sweeps_cut || p->sweeps_codec || p->sweeps_chunks;
}

static enum gp_status predict(struct planning *p, struct gp_err *err)
{
	const struct settings *s = &p->set;
	const struct gp_plan_limits limits = {.client_bytes = (uint64_t)s->client_memory,
					      .server_bytes = s->server_memory > 0 ? (uint64_t)s->server_memory
										   : p->study.server.limit_bytes,
					      .max_error = p->sweeps_codec ? s->max_error : INFINITY,
					      .most = sweeps(p) ? (int)s->top : 1};
	const struct gp_plan_pick only = {0};
	struct gp_prediction ignored;
	gp_progress_update(&p->progress, gp_now_ns(), "predicting");
	GP_TRY(gp_plan_rank(&p->study, &limits, &p->ranking, err));
	if (!sweeps(p) && p->ranking.rows == 0) /* says why it is none */
		return gp_plan_study_predict(&p->study, &only, NULL, &ignored, err);
	return GP_OK;
}

static enum gp_status report(const struct planning *p, struct gp_err *err)
{
	const struct gp_plan_report r = {.study = &p->study,
					 .ranking = &p->ranking,
					 .model = p->job.model,
					 .server = p->set.job.server,
					 .link_measured = p->link_measured,
					 .swept = sweeps(p),
					 .padded = p->job.drop_padding};
	if (p->set.job.json)
		return gp_job_print_json(gp_plan_report_json(&r), err);
	gp_plan_report_print(&r, stdout);
	return GP_OK;
}

static void clean_up(struct planning *p)
{
	gp_plan_ranking_deinit(&p->ranking);
	gp_plan_study_deinit(&p->study);
	if (p->device)
		p->device->ops->close(p->device);
	gp_job_deinit(&p->job);
	gp_loader_free(p->loader);
	gp_dataset_free(p->data);
}

int gp_cmd_plan(int argc, char **argv)
{
	static struct planning p;
	struct gp_options_result given;
	struct gp_err err = {0};
	enum gp_status status = parse(argc, argv, &p.set, &given, &err);
	if (status == GP_OK && !given.help) {
		gp_progress_init(&p.progress, p.set.job.progress ? stderr : NULL, PLAIN_PROGRESS_S);
		p.progress.shown = true; /* what takes no time is not told */
		p.progress.shown_ns = gp_now_ns();
		status = prepare(&p, &err);
		status = status == GP_OK ? measure(&p, &err) : status;
		status = status == GP_OK ? predict(&p, &err) : status;
		gp_progress_clear(&p.progress);
		status = status == GP_OK ? report(&p, &err) : status;
		clean_up(&p);
	}
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&given);
	return gp_status_exit(status);
}
