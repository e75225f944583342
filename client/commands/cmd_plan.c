/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient plan: how long a batch will take, split over a link, before anything is trained; and with --sweep, where to cut, with
 * which codec and into how many chunks. Options and the order of things; what is measured and predicted: plan_study.h,
 * plan_schedule.h. Test: tests/e2e/plan.sh
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "client/codecs/codec_auto.h"
#include "client/codecs/codec_specs.h"
#include "client/commands/commands.h"
#include "client/commands/train_options.h"
#include "client/job/job.h"
#include "client/costs/partitions.h"
#include "client/plan/plan_rank.h"
#include "client/plan/plan_report.h"
#include "client/plan/plan_site.h"
#include "client/log/progress.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/text.h"

#define PROGRAM "gpclient plan"

#define PLAIN_PROGRESS_S 5
#define LINK_SECONDS     6.0

/* What --sweep codec tries: codecs that lose little, the more exact ones first. */
static const char *const usual_codecs[] = {"raw",
					   "fp16",
					   "uniform:bits=8",
					   "uniform:bits=8+rans:predict=map,tables=channel",
					   "sortquant:bits=6,split=2",
					   "block:bits=6,size=32",
					   "block:bits=6,size=128+rans:tables=channel",
					   "uniform:bits=6+rans",
					   "block:bits=4,size=32",
					   "topk:ratio=0.25+uniform:bits=8"};

struct settings {
	struct gp_job_settings job; /* first: the shared rows know its offsets */
	const char *link, *sweep, *codecs;
	double server_speed, max_error, seconds, momentum, clip_norm, step_timeout_s;
	int64_t client_memory, server_memory, top;
	int optimizer, same_machine; /* enum gp_plan_same_machine */
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt where_rows[] = {
	{.name = "link",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(link),
	 .value = "RATE[,DELAY[,DOWN]]",
	 .group = "Where",
	 .help = "the link, as in 100mbit,10ms: payload each way, and the delay each way (or rtt=20ms); a third part "
		 "is the rate from the server. Default: that to --server is measured, as by 'gpclient link'"},
	{.name = "server",
	 .like = &gp_job_where_rows,
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
		 "in codecs"},
	{.name = "same-machine",
	 .like = &gp_plan_same_machine_rows,
	 .offset = FIELD(same_machine),
	 .help = "whether both ends run on this machine and share its processors; auto: yes where --server is on "
		 "loopback"},
	{.name = "device", .like = &gp_job_where_rows},
	{.name = "threads",
	 .like = &gp_job_where_rows,
	 .help = "compute threads of this side, as for train; 0 = one for each processor"},
	{.name = "connect-timeout", .like = &gp_job_where_rows, .help = "give up reaching the server after this time"},
	{.name = "step-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(step_timeout_s),
	 .value = "TIME",
	 .initial = "120s",
	 .min = 0.1,
	 .max = 86400,
	 .help = "give up a server that answers, but does nothing for a step for so long"},
};

static const struct gp_opt what_rows[] = {
	{.name = "cut", .like = &gp_job_alone_rows, .group = "What"},
	{.name = "sweep",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(sweep),
	 .value = "WHAT,...",
	 .help = "cut, codec, chunks, or several of them: predict all cuts of the model, several codecs, 1 to 16 "
		 "chunks, and rank them by time"},
	{.name = "codecs",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codecs),
	 .value = "A,B,...",
	 .help = "the codecs of --sweep codec, separated by commas, semicolons or spaces; default: ten usual ones"},
	{.name = "max-error",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(max_error),
	 .value = "X",
	 .initial = "0.1",
	 .min = 0,
	 .max = 1e6,
	 .help = "with --sweep codec, or with another sweep where it is given: leave out choices whose codec has a "
		 "relative error above X in a tensor"},
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
	 .help = "the same at the server, where what --server allows a session counts, too; 0 = only that"},
	{.name = "top",
	 .type = GP_OPT_INT,
	 .offset = FIELD(top),
	 .value = "N",
	 .initial = "20",
	 .min = 1,
	 .max = 100000,
	 .help = "how many of a sweep's choices to show"},
	{.name = "optimizer",
	 .like = &gp_train_rows,
	 .offset = FIELD(optimizer),
	 .help = "as for train: updates and memory depend on it"},
	{.name = "momentum",
	 .like = &gp_train_rows,
	 .offset = FIELD(momentum),
	 .help = "of --optimizer sgd: without it less memory is needed"},
	{.name = "clip-norm",
	 .like = &gp_train_rows,
	 .offset = FIELD(clip_norm),
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
	.synopsis = "--model NAME --data NAME (--link RATE,DELAY | --server HOST:PORT) [--sweep cut,codec,chunks] "
		    "[OPTION...]",
	.about = "Predicts the time of a batch, its bytes and the memory of both sides, before anything is\n"
		 "trained. What each layer and codec takes is measured here, on real samples; what the server\n"
		 "takes is measured there (--server), or taken to be as here (--server-speed); the link is\n"
		 "measured or given. Then a simulated step says how long all of it takes together, and what bounds\n"
		 "it.\n"
		 "With --sweep it ranks cuts, codecs and numbers of chunks. A codec's relative error says nothing\n"
		 "certain about accuracy: try the winner with train.",
	.examples = "  gpclient plan --model cnn --data fashion-mnist --link 100mbit,10ms --codec uniform:bits=8 "
		    "--chunks 8\n"
		    "  gpclient plan --model mobilenetv2 --data synthetic --server 192.0.2.7:4400 --sweep "
		    "cut,codec,chunks\n"
		    "  gpclient plan --model resnet18 --data folder:photos --link 20mbit,rtt=40ms,down=4mbit "
		    "--server-speed 30\n",
};

struct planning {
	struct settings set;
	const char *codec, *codec_dir[GP_DIRECTIONS]; /* as given */
	bool sweeps_cut, sweeps_codec, sweeps_chunks, link_measured;
	struct gp_opt rows[GP_OPT_MAX];
	struct gp_opt_table table;
	struct gp_options_result given;
	struct gp_plan_site site;
	struct gp_plan_ranking ranking;
	struct gp_progress progress;
};

/* --- options ------------------------------------------------------------------------------------------------------ */

static enum gp_status parse(struct planning *p, int argc, char **argv, struct gp_err *err)
{
	const struct gp_opt_rows parts[] = {GP_OPT_ROWS(where_rows), GP_OPT_ROWS(what_rows), gp_job_model_rows,
					    gp_job_freeze_rows,      gp_job_batch_rows,      gp_job_codec_rows,
					    gp_job_grad_rows,        gp_job_insert_rows,     gp_job_memory_rows,
					    gp_job_security_rows,    gp_job_output_rows,     gp_job_progress_rows};
	p->table = table;
	p->table.opt = p->rows;
	p->table.count = gp_opt_join(parts, sizeof parts / sizeof parts[0], p->rows);
	p->set = (struct settings){0};
	return gp_options_parse(&p->table, argc, argv, &p->set, &p->given, err);
}

static bool is_given(const struct planning *p, const char *flag)
{
	return gp_options_given(&p->table, &p->given, flag);
}

static bool sweeps(const struct planning *p)
{
	return p->sweeps_cut || p->sweeps_codec || p->sweeps_chunks;
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

/* What a sweep tries several of has no single value. */
static enum gp_status refuse_single(const struct planning *p, const char *flag, const char *sweep, struct gp_err *err)
{
	if (is_given(p, flag))
		GP_FAIL(err, GP_USAGE, "--%s says which one, and --sweep %s tries several: leave one of the two out",
			flag, sweep);
	return GP_OK;
}

static enum gp_status check_sweep(const struct planning *p, struct gp_err *err)
{
	static const char *const chooses[] = {"max-error", "top"};
	if (p->sweeps_cut)
		GP_TRY(refuse_single(p, "cut", "cut", err));
	if (p->sweeps_codec)
		GP_TRY(refuse_single(p, "codec", "codec", err));
	for (int d = 0; p->sweeps_codec && d < GP_DIRECTIONS; d++)
		GP_TRY(refuse_single(p, gp_job_codec_flags[d], "codec", err));
	if (p->sweeps_chunks)
		GP_TRY(refuse_single(p, "chunks", "chunks", err));
	for (size_t i = 0; !sweeps(p) && i < sizeof chooses / sizeof chooses[0]; i++)
		if (is_given(p, chooses[i]))
			GP_FAIL(err, GP_USAGE,
				"--%s chooses among what --sweep tries: a single prediction is shown as it is",
				chooses[i]);
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
	GP_TRY(check_sweep(p, err));
	if (s->codecs && !p->sweeps_codec)
		GP_FAIL(err, GP_USAGE, "--codecs names those of --sweep codec; one for a single prediction is --codec");
	if (p->sweeps_cut && (s->job.insert || s->job.insert_end[GP_INSERT_UP] || s->job.insert_end[GP_INSERT_DOWN]))
		GP_FAIL(err, GP_USAGE, "--insert puts layers at one cut: it cannot go with --sweep cut");
	return s->link ? gp_plan_link_parse(s->link, &p->site.study.world.link, err) : GP_OK;
}

/* Without a server the job is a local one, which has no codecs. */
static void settle_job(struct planning *p)
{
	struct gp_job_settings *j = &p->site.set;
	*j = p->set.job;
	p->codec = j->codec;
	memcpy(p->codec_dir, j->codec_dir, sizeof p->codec_dir);
	j->local = !j->server;
	j->codec = "raw";
	memset(j->codec_dir, 0, sizeof j->codec_dir);
	if (p->sweeps_chunks) /* a number that the batch has to be divided by would be none of those that are tried */
		j->chunks = 1;
	if (j->idle_timeout_s <= 0)
		j->idle_timeout_s = 15;
}

/* --- codecs, cuts and chunks -------------------------------------------------------------------------------------- */

/* --codec, and what directions have of their own. */
static enum gp_status add_given_codec(struct planning *p, struct gp_err *err)
{
	struct gp_plan_codec_set *set = &p->site.study.codec[0];
	if (gp_codec_auto_refuse(p->codec, err) != GP_OK || gp_codec_spec_parse(p->codec, &set->spec[0], err) != GP_OK)
		return gp_err_prefix(err, "--codec");
	GP_TRY(gp_plan_study_add_codec(&p->site.study, p->codec, err));
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		if (!p->codec_dir[d])
			continue;
		set->same = false;
		if (gp_codec_auto_refuse(p->codec_dir[d], err) != GP_OK ||
		    gp_codec_spec_parse(p->codec_dir[d], &set->spec[d], err) != GP_OK)
			return gp_err_prefix(err, "--%s", gp_job_codec_flags[d]);
	}
	if (!set->same)
		gp_text_append(set->text, sizeof set->text, " and others");
	for (int d = 1; d < GP_DIRECTIONS; d += 2)
		if (strncmp(set->spec[d].text, "delta", 5) == 0)
			GP_FAIL(err, GP_USAGE,
				"--%s: delta works up the link only, because the server does not know the samples; "
				"give --codec-act-up",
				p->codec_dir[d] ? gp_job_codec_flags[d] : "codec");
	return GP_OK;
}

static enum gp_status add_listed_codec(void *arg, const char *text, struct gp_err *err)
{
	struct planning *p = arg;
	if (gp_codec_auto_refuse(text, err) != GP_OK || gp_plan_study_add_codec(&p->site.study, text, err) != GP_OK)
		return gp_err_prefix(err, "--codecs: %s", text);
	if (strncmp(text, "delta", 5) == 0)
		GP_FAIL(err, GP_USAGE,
			"--codecs: %.60s: delta works up the link only, because the server does not know the samples, "
			"and "
			"a codec of this list goes both ways",
			text);
	return GP_OK;
}

static enum gp_status choose_codecs(struct planning *p, struct gp_err *err)
{
	if (!p->sweeps_codec)
		return add_given_codec(p, err);
	if (p->set.codecs)
		GP_TRY(gp_codec_specs_each(p->set.codecs, "--codecs", add_listed_codec, p, err));
	for (size_t i = 0; !p->set.codecs && i < sizeof usual_codecs / sizeof usual_codecs[0]; i++)
		GP_TRY(gp_plan_study_add_codec(&p->site.study, usual_codecs[i], err));
	if (p->site.study.codecs == 0)
		GP_FAIL(err, GP_USAGE, "--codecs names no codec");
	return GP_OK;
}

static void choose_chunks(struct planning *p)
{
	struct gp_plan_study *s = &p->site.study;
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
	const struct gp_graph *g = p->site.job.graph;
	struct gp_plan_study *s = &p->site.study;
	const size_t pairs = (size_t)(g->blocks - 1) * (size_t)(g->blocks - 2) / 2;
	GP_TRY(gp_alloc_array((void **)&s->cut, p->sweeps_cut ? pairs : 1, sizeof *s->cut, err));
	if (!p->sweeps_cut) {
		s->cut[s->cuts++] = p->site.job.cut;
		return GP_OK;
	}
	for (int head = 1; head < g->blocks - 1; head++)
		for (int tail = head + 1; tail < g->blocks; tail++) {
			const struct gp_cut cut = {head, tail};
			if (keeps_ties(g, &cut))
				s->cut[s->cuts++] = cut;
		}
	if (s->cuts == 0)
		GP_FAIL(err, GP_INVALID, "%s has no cut that leaves its tied weights on this side", p->site.job.model);
	return GP_OK;
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

static enum gp_status prepare(struct planning *p, struct gp_err *err)
{
	struct gp_plan_site *site = &p->site;
	const struct settings *s = &p->set;
	struct gp_plan_world *w = &site->study.world;
	GP_TRY(check_flags(p, err));
	settle_job(p);
	GP_TRY(gp_job_begin(&site->job, &site->set, err));
	site->job.patience_s = s->step_timeout_s;
	GP_TRY(choose_codecs(p, err));
	site->optim = gp_plan_optim_of(s->optimizer, s->momentum, s->clip_norm);
	GP_TRY(gp_optim_check(&site->optim, err));
	GP_TRY(gp_plan_site_open(site, err));
	if (site->job.graph->blocks < 3)
		GP_FAIL(err, GP_INVALID, "%s has %d blocks, and a cut needs three", site->job.model,
			site->job.graph->blocks);
	GP_TRY(gp_plan_site_settle(site, s->same_machine, s->seconds, err));
	if (site->job.session.decays.count > 0)
		fprintf(stderr,
			"note: ranks shrink in the training (--insert decay); what is predicted is its first steps\n");
	choose_chunks(p);
	GP_TRY(choose_cuts(p, err));
	w->server = (struct gp_plan_speed){s->server_speed, s->server_speed, s->server_speed, s->server_speed};
	w->server_processors = s->job.server ? 0 : w->processors;
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

/* The server first: whatever it refuses is known soon. */
static enum gp_status measure(struct planning *p, struct gp_err *err)
{
	struct gp_plan_site *site = &p->site;
	struct gp_plan_server server;
	const struct gp_plan_pick pick = gp_plan_site_reference(site);
	if (p->set.job.server && !p->set.link) {
		if (gp_plan_site_measure_link(site, LINK_SECONDS, &site->study.world.link, err) != GP_OK)
			return gp_err_prefix(err,
					     "the link is not measured (give --link RATE,DELAY where it is known)");
		p->link_measured = true;
	}
	if (p->set.job.server)
		GP_TRY(gp_plan_site_measure_server(site, &pick, &server, err));
	if (p->set.job.server && p->set.link)
		gp_plan_site_measure_moving(site, &site->study.world.link);
	GP_TRY(gp_plan_site_measure_here(site, err));
	if (p->set.job.server)
		gp_plan_site_serve(site, &server, &pick);
	return GP_OK;
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

/* What a session may take there: as much as the server says, or less where --server-memory says so; 0 = not known. */
static uint64_t server_limit(const struct planning *p)
{
	const uint64_t said = (uint64_t)p->set.server_memory, its = p->site.study.server.limit_bytes;
	return said > 0 && (its == 0 || said < its) ? said : its;
}

static enum gp_status predict(struct planning *p, struct gp_err *err)
{
	const struct settings *s = &p->set;
	const struct gp_plan_limits limits = {.client_bytes = (uint64_t)s->client_memory,
					      .server_bytes = server_limit(p),
					      .max_error = p->sweeps_codec || is_given(p, "max-error") ? s->max_error
												       : INFINITY,
					      .most = sweeps(p) ? (int)s->top : 1};
	const struct gp_plan_pick only = {0};
	struct gp_prediction ignored;
	gp_progress_update(&p->progress, gp_now_ns(), "predicting");
	GP_TRY(gp_plan_rank(&p->site.study, &limits, &p->ranking, err));
	if (!sweeps(p) && p->ranking.rows == 0) /* says why it is none */
		return gp_plan_study_predict(&p->site.study, &only, NULL, &ignored, err);
	return GP_OK;
}

static enum gp_status report(const struct planning *p, struct gp_err *err)
{
	const struct gp_plan_report r = {.study = &p->site.study,
					 .ranking = &p->ranking,
					 .model = p->site.job.model,
					 .server = p->set.job.server,
					 .link_measured = p->link_measured,
					 .swept = sweeps(p),
					 .padded = p->site.job.drop_padding};
	if (p->set.job.json)
		GP_TRY(gp_job_print_json(gp_plan_report_json(&r), err));
	else
		gp_plan_report_print(&r, stdout);
	if (p->ranking.possible == 0)
		GP_FAIL(err, GP_INVALID, "nothing of this is possible: %s", gp_plan_report_obstacle(&r));
	return GP_OK;
}

int gp_cmd_plan(int argc, char **argv)
{
	static struct planning p;
	struct gp_err err = {0};
	enum gp_status status = parse(&p, argc, argv, &err);
	if (status == GP_OK && !p.given.help) {
		gp_progress_init(&p.progress, p.set.job.progress ? stderr : NULL, PLAIN_PROGRESS_S);
		p.progress.shown = true; /* what takes no time is not told */
		p.progress.shown_ns = gp_now_ns();
		p.site.tell = tell;
		p.site.arg = &p;
		status = prepare(&p, &err);
		status = status == GP_OK ? measure(&p, &err) : status;
		status = status == GP_OK ? predict(&p, &err) : status;
		gp_progress_clear(&p.progress);
		status = status == GP_OK ? report(&p, &err) : status;
		gp_plan_ranking_deinit(&p.ranking);
		gp_plan_site_deinit(&p.site);
	}
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&p.given);
	return gp_status_exit(status);
}
