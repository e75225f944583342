/* SPDX-License-Identifier: Apache-2.0
 *
 * See bench_predict.h. Test: tests/e2e/bench.sh
 */
#include "client/bench/bench_predict.h"

#include <math.h>
#include <string.h>

#include "client/plan/plan_site.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

#define LINK_SECONDS 6.0   /* for each second of computing, between 1 and this */
#define PATIENCE_S   120.0 /* as of plan's --step-timeout */

/* Everything that belongs to one cut. */
struct cut {
	const struct gp_bench_predict_spec *spec;
	int number;
	struct gp_plan_site site;
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
	struct gp_job_settings *set = &c->site.set;
	*set = *c->spec->job;
	set->cut = sweep->cut[c->number];
	set->codec = "raw";
	set->chunks = most_chunks(sweep);
	set->window = 1; /* of the session in which the server is measured: no stage disturbs another */
	c->site.optim = c->spec->optim;
	c->site.tell = tell;
	c->site.arg = c;
	GP_TRY(gp_job_begin(&c->site.job, set, err));
	c->site.job.stop = c->spec->stop;
	c->site.job.patience_s = PATIENCE_S;
	for (int i = 0; i < sweep->codecs; i++)
		GP_TRY(gp_plan_study_add_codec(&c->site.study, sweep->codec[i], err));
	return gp_plan_site_open(&c->site, err);
}

static enum gp_status begin_study(struct cut *c, struct gp_err *err)
{
	const struct gp_bench_sweep *sweep = c->spec->sweep;
	struct gp_plan_study *s = &c->site.study;
	GP_TRY(gp_alloc_array((void **)&s->cut, 1, sizeof *s->cut, err));
	s->cut[s->cuts++] = c->site.job.cut;
	for (int i = 0; i < sweep->chunkings; i++)
		s->chunks[s->chunkings++] = sweep->chunks[i];
	GP_TRY(gp_plan_site_settle(&c->site, c->spec->same_machine, c->spec->seconds, err));
	s->window = (int)c->spec->job->window;
	return GP_OK;
}

/* --- measuring ---------------------------------------------------------------------------------------------------- */

/* What lies below a simulated link counts, too, unless it is loopback, which is faster than any that can be
 * simulated. */
static bool lies_below(const struct cut *c)
{
	return !gp_plan_is_same_machine(GP_SAME_MACHINE_AUTO, c->site.set.server);
}

static bool needs_link(const struct cut *c)
{
	for (int i = 0; i < c->spec->sweep->links; i++)
		if (c->spec->sweep->link[i].as_is)
			return true;
	return lies_below(c);
}

/* A link that cannot be measured, as of a server that measures nothing, leaves rows without a prediction. */
static void measure_link(struct cut *c)
{
	struct gp_err err;
	const double seconds = fmin(fmax(LINK_SECONDS * c->spec->seconds, 1), LINK_SECONDS);
	if (gp_plan_site_measure_link(&c->site, seconds, &c->link, &err) != GP_OK)
		snprintf(c->no_link, sizeof c->no_link, "%s", err.text);
}

static enum gp_status measure(struct cut *c, struct gp_err *err)
{
	struct gp_plan_server server;
	GP_TRY(begin_study(c, err));
	const struct gp_plan_pick pick = gp_plan_site_reference(&c->site);
	GP_TRY(gp_plan_site_measure_server(&c->site, &pick, &server, err)); /* what it refuses is known soon */
	if (needs_link(c))
		measure_link(c);
	if (stopped(c))
		GP_FAIL(err, GP_CANCELED, "stopped by a signal");
	GP_TRY(gp_plan_site_measure_here(&c->site, err));
	gp_plan_site_serve(&c->site, &server, &pick);
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
	return (struct gp_plan_link){way_of(l->shape.up, &c->link.up), way_of(l->shape.down, &c->link.down),
				     c->link.byte_s};
}

static void predict(struct cut *c, const struct gp_bench_place *at, struct gp_bench_prediction *out)
{
	const struct gp_plan_pick pick = {.codec = at->codec, .chunking = at->chunking};
	const struct gp_bench_link *link = &c->spec->sweep->link[at->link];
	struct gp_prediction p;
	struct gp_err err;
	out->time_s = NAN;
	c->site.study.world.link = link_of(c, link);
	if (c->no_link[0] && (link->as_is || lies_below(c))) {
		snprintf(out->why, sizeof out->why, "%s", c->no_link);
	} else if (gp_plan_study_predict(&c->site.study, &pick, NULL, &p, &err) != GP_OK) {
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
		const struct gp_bench_prediction *known = gp_bench_results_predicted(results, &p.key);
		if (at.cut != c->number || (known && !known->why[0]))
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
	gp_plan_site_deinit(&c->site);
	gp_free(c);
	return status;
}
