/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training with `--codec auto` (codec_auto.h): measures what codecs, link and both ends do in a step, has the
 * codecs of the next one decided (codec_decide.h) or takes them from a script, writes a change down
 * (codec_history.h), and makes it between two steps. PROTOCOL.md section 5.3. Steps that are done again go through
 * the codecs that are written down.
 * Test: tests/e2e/codec_auto.sh
 */
#include "client/engine/engine_split.h"

#include <math.h>
#include <string.h>

#include "client/codecs/codec_auto.h"
#include "client/codecs/codec_decide.h"
#include "client/codecs/codec_events.h"
#include "client/codecs/codec_history.h"
#include "client/train/run_state.h"
#include "common/base/log.h"
#include "common/base/loop.h"

#define BUSY_LEAST_US 10000 /* the kernel counts in ticks of some milliseconds */
#define STEPS_MOST    5     /* from one sample to the next, however short the link was busy */

/* Counters of one way, at its last sample, and the steps since. */
struct way_mark {
	uint64_t bytes, busy_us;
	int steps;
};

struct gp_split_codecs {
	const struct gp_codec_auto *of; /* by direction */
	struct gp_codec_history *history;
	struct gp_decider decider;
	uint32_t rung[GP_DIRECTIONS]; /* in use */
	struct gp_decide_rung known[GP_DIRECTIONS][GP_LADDER_RUNGS];
	bool surveyed[GP_DIRECTIONS];          /* since the last decision, */
	uint64_t surveyed_step[GP_DIRECTIONS]; /* in this one, counted from 1 */
	double rate[2];                        /* up, down: of the newest sample since the last decision; 0: none */
	struct way_mark mark[2];
	uint64_t compute_ns, body_ns, payload[GP_DIRECTIONS]; /* when the step under way began */
	bool write_warned;
	struct gp_codec_events events;
	struct gp_codec_use use[GP_DIRECTIONS];
};

/* --- life --------------------------------------------------------------------------------------------------------- */

static void set_codecs(struct split_engine *e)
{
	struct gp_session_spec *s = &e->base.spec.session;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		if (s->ladder[d].rungs > 0)
			gp_codec_ladder_rung(&s->ladder[d], (int)e->codecs->rung[d], &s->codec[d]);
}

static enum gp_status open_history(struct split_engine *e, struct gp_err *err)
{
	struct gp_run_state *run = e->base.spec.run;
	struct gp_codec_history_spec h = {.dir = run ? gp_run_state_dir(run) : NULL,
					  .run_id = run ? gp_run_state_id(run) : NULL,
					  .resumes = run && gp_run_state_newest(run) > 0};
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		h.rungs[d] = e->base.spec.session.ladder[d].rungs;
		h.first[d] = (uint32_t)e->codecs->of[d].first;
	}
	return gp_codec_history_new(&h, &e->codecs->history, err);
}

enum gp_status gp_split_codecs_init(struct split_engine *e, struct gp_err *err)
{
	if (!e->base.spec.codec_auto || e->base.spec.session.eval_only)
		return GP_OK;
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof *e->codecs, err));
	memset(p, 0, sizeof *e->codecs);
	e->codecs = p;
	e->codecs->of = e->base.spec.codec_auto;
	e->base.codec_events = &e->codecs->events;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		e->codecs->use[d].ladder = e->base.spec.session.ladder[d];
	GP_TRY(open_history(e, err));
	gp_codec_history_at(e->codecs->history, 0, e->codecs->rung);
	set_codecs(e);
	return GP_OK;
}

void gp_split_codecs_deinit(struct split_engine *e)
{
	if (e->codecs)
		gp_codec_history_free(e->codecs->history);
	gp_free(e->codecs);
	e->codecs = NULL;
}

const struct gp_codec_use *gp_split_codecs_use(const struct split_engine *e)
{
	return e->codecs ? e->codecs->use : NULL;
}

enum gp_status gp_split_codecs_renew(struct split_engine *e, uint64_t steps, struct gp_err *err)
{
	if (!e->codecs)
		return GP_OK;
	gp_codec_history_at(e->codecs->history, steps, e->codecs->rung);
	set_codecs(e);
	return gp_split_renew_flows(e, err);
}

/* --- measuring ---------------------------------------------------------------------------------------------------- */

static uint64_t payload_of(const struct split_engine *e, int d)
{
	uint64_t sum = 0;
	for (int i = 0; i < e->flows.tensors[d]; i++)
		sum += e->flows.flow[d][i].total.payload_bytes;
	return sum;
}

void gp_split_codecs_begin_step(struct split_engine *e)
{
	struct gp_split_codecs *c = e->codecs;
	if (!c)
		return;
	c->compute_ns = e->compute_ns;
	c->body_ns = e->session.body_ns;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		c->payload[d] = payload_of(e, d);
}

/* Bytes by the time in which some were on their way. A fast link is busy for less than the kernel can count: after some steps
 * it is taken as BUSY_LEAST_US, so that the rate is a lower bound. Counters of a new link begin at 0. */
static void sample_rate(struct gp_split_codecs *c, int way, uint64_t bytes, uint64_t busy_us)
{
	struct way_mark *m = &c->mark[way];
	if (bytes < m->bytes || busy_us < m->busy_us)
		*m = (struct way_mark){0};
	const uint64_t busy = busy_us - m->busy_us;
	m->steps++;
	if (bytes == m->bytes || (busy < BUSY_LEAST_US && m->steps < STEPS_MOST))
		return;
	c->rate[way] = (double)(bytes - m->bytes) * 1e6 / (double)(busy > BUSY_LEAST_US ? busy : BUSY_LEAST_US);
	*m = (struct way_mark){bytes, busy_us, 0};
}

static void take_survey(struct gp_split_codecs *c, enum gp_direction d, uint64_t step, int rung, double ratio,
			double error, double cosine)
{
	c->surveyed_step[d] = step + 1;
	c->known[d][rung] = (struct gp_decide_rung){.known = true, .ratio = ratio, .error = error, .cosine = cosine};
	c->surveyed[d] = true;
}

void gp_split_codecs_committed(void *arg, uint64_t step, const struct gp_committed *m)
{
	struct split_engine *e = arg;
	if (!e->codecs)
		return;
	sample_rate(e->codecs, 1, m->link_bytes, m->link_busy_us);
	for (int i = 0; i < m->surveyed; i++)
		take_survey(e->codecs, m->survey[i].direction, step, m->survey[i].rung,
			    (double)m->survey[i].payload_bytes / (double)m->survey[i].tensor_bytes, m->survey[i].error,
			    m->survey[i].cosine);
}

static void take_own_surveys(struct split_engine *e)
{
	struct gp_surveyed s;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; i < e->base.spec.session.ladder[d].rungs; i++)
			if (gp_flows_surveyed(&e->flows, (enum gp_direction)d, e->step, i, &s) && s.tensor_bytes > 0)
				take_survey(e->codecs, (enum gp_direction)d, e->step, i,
					    (double)s.payload_bytes / (double)s.tensor_bytes, gp_surveyed_error(&s),
					    gp_surveyed_cosine(&s));
}

static double larger(uint64_t a_ns, uint64_t b_ns)
{
	return (double)(a_ns > b_ns ? a_ns : b_ns) * 1e-9;
}

static void measure(struct split_engine *e, struct gp_decide_step *out)
{
	struct gp_split_codecs *c = e->codecs;
	struct gp_account account;
	struct gp_tcp_figures tcp;
	uint32_t rtt_us;
	gp_client_session_figures(&e->session, &account, &tcp, &rtt_us);
	if (tcp.valid)
		sample_rate(c, 0, tcp.bytes_acked, tcp.busy_us);
	take_own_surveys(e);
	*out = (struct gp_decide_step){.steps = e->step + 1,
				       .every = e->base.spec.session.survey_every,
				       .chunks = e->base.spec.session.chunks,
				       .up_rate = c->rate[0],
				       .down_rate = c->rate[1],
				       .compute_s =
					       larger(e->compute_ns - c->compute_ns, e->session.body_ns - c->body_ns)};
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		struct gp_decide_direction *in = &out->direction[d];
		in->rungs = e->flows.used[d] > 0 ? e->base.spec.session.ladder[d].rungs : 0;
		in->now = in->rungs > 0 ? (int)c->rung[d] : 0;
		in->budget = c->of[d].budget;
		in->bytes = (double)(payload_of(e, d) - c->payload[d]);
		in->surveyed = c->surveyed[d];
		memcpy(in->rung, c->known[d], sizeof in->rung);
	}
	c->rate[0] = c->rate[1] = 0;
}

/* --- deciding ----------------------------------------------------------------------------------------------------- */

/* What the server has surveyed is known a step later, when another codec may be in use. */
static void note_errors(struct gp_split_codecs *c)
{
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		uint32_t then[GP_DIRECTIONS];
		if (!c->surveyed[d])
			continue;
		gp_codec_history_at(c->history, c->surveyed_step[d] - 1, then);
		const struct gp_decide_rung *used = &c->known[d][then[d]];
		if (!used->known)
			continue;
		c->events.error[c->events.errors++] =
			(struct gp_codec_error){c->surveyed_step[d], (enum gp_direction)d, used->error, used->cosine};
		c->surveyed[d] = false;
	}
}

/* NULL: nothing was measured for it. */
static void note_change(struct split_engine *e, enum gp_direction d, int to, const char *reason,
			const struct gp_decision *by)
{
	struct gp_split_codecs *c = e->codecs;
	const struct gp_codec_ladder *l = &e->base.spec.session.ladder[d];
	struct gp_codec_change *x = &c->events.change[c->events.changes++];
	const struct gp_decide_rung *known = &c->known[d][to];
	const int way = gp_direction_info[d].up ? 0 : 1;
	*x = (struct gp_codec_change){.direction = d,
				      .error = known->known ? known->error : NAN,
				      .cosine = known->known ? known->cosine : NAN};
	if (by) {
		x->rate = way ? by->down_rate : by->up_rate;
		x->compute_s = by->compute_s;
		x->wire_s = by->wire_s[way];
		x->wire_before_s = by->wire_before_s[way];
	}
	gp_codec_ladder_name(l, (int)c->rung[d], x->from);
	gp_codec_ladder_name(l, to, x->to);
	snprintf(x->reason, sizeof x->reason, "%s", reason);
}

static void decide(struct split_engine *e, const struct gp_decide_step *step, uint32_t next[GP_DIRECTIONS])
{
	struct gp_split_codecs *c = e->codecs;
	struct gp_decision by;
	gp_decide(&c->decider, step, &by);
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const bool scripted = c->of[d].scripted > 0;
		const int to = scripted ? gp_codec_auto_scripted(&c->of[d], step->steps) : by.rung[d];
		if (step->direction[d].rungs == 0 || to == (int)c->rung[d]) /* also where nothing goes that way */
			continue;
		next[d] = (uint32_t)to;
		note_change(e, (enum gp_direction)d, to, scripted ? "the script says so" : by.reason[d],
			    scripted ? NULL : &by);
	}
}

static void replay(struct split_engine *e, uint64_t steps, uint32_t next[GP_DIRECTIONS])
{
	gp_codec_history_at(e->codecs->history, steps, next);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		if (next[d] != e->codecs->rung[d])
			note_change(e, (enum gp_direction)d, (int)next[d], "this step was done before, and changed it",
				    NULL);
}

/* A change that cannot be written down is not made: a run that is resumed would not know of it. */
static bool write_down(struct split_engine *e, uint64_t steps, const uint32_t next[GP_DIRECTIONS])
{
	struct gp_split_codecs *c = e->codecs;
	struct gp_err err;
	if (gp_codec_history_add(c->history, steps, next, &err) == GP_OK)
		return true;
	gp_log(main, c->write_warned ? GP_LOG_DEBUG : GP_LOG_WARN, "codecs stay as they are: %s", err.text);
	c->write_warned = true;
	c->events.changes = 0;
	return false;
}

struct gp_rungs gp_split_decide_codecs(struct split_engine *e)
{
	struct gp_split_codecs *c = e->codecs;
	struct gp_rungs none = {0}, out = {.count = GP_DIRECTIONS};
	struct gp_decide_step step;
	if (!c)
		return none;
	measure(e, &step);
	c->events = (struct gp_codec_events){.step = step.steps};
	memcpy(out.rung, c->rung, sizeof out.rung);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		c->use[d].steps[c->rung[d]] += e->flows.used[d] > 0;
	note_errors(c);
	const bool known = gp_codec_history_newest(c->history) >= step.steps;
	if (known)
		replay(e, step.steps, out.rung);
	else
		decide(e, &step, out.rung);
	if (c->events.changes == 0 || (!known && !write_down(e, step.steps, out.rung)))
		return none;
	memcpy(c->rung, out.rung, sizeof c->rung);
	return out;
}

/* --- the change --------------------------------------------------------------------------------------------------- */

void gp_split_take_codecs(struct split_engine *e)
{
	while (gp_flows_pending(&e->flows) > 0)
		gp_loop_turn(&e->loop);
	set_codecs(e);
}

enum gp_status gp_split_change_codecs(struct split_engine *e, struct gp_err *err)
{
	const struct gp_flow_options all = gp_split_flow_options(e);
	return gp_flows_reshape(&e->flows, &e->cross->list, &all, err);
}
