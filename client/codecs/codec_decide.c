/* SPDX-License-Identifier: Apache-2.0
 *
 * See codec_decide.h. Test: tests/unit/test_codec_decide.c
 */
#include "client/codecs/codec_decide.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define IN_USE       0.8  /* of the time that is computed in, a wire can be in use: chunks do not come evenly */
#define SLOWER       1.03 /* than with the fewest bytes a step may be for the sake of less loss */
#define CALM_STEPS   3    /* in which a less lossy rung has to be fast enough */
#define REST_STEPS   5    /* from one change to a less lossy rung, at first */
#define REST_MOST    320
#define SAME_LINK    0.3  /* a rate that differs by less is of the same link */
#define LESS_LOSS    0.95 /* anything above is as lossy */
#define BARRED_TIMES 10   /* surveys */
#define BARRED_MOST  6    /* times that doubles */

/* Found with what crosses the cuts 1:-1, 1:-2 and 3:-1 of MobileNetV2 with ImageNet's weights on flowers, and with
 * the accuracies of tests/bench/RESULTS.md. uniform:bits=4, which destroys that training, has errors of 0.04 to 0.24
 * in activations and 0.14 to 1.5 in gradients; uniform:bits=6 and sortquant:bits=4,split=2, which cost nothing there,
 * 0.01 to 0.06 and 0.03 to 0.33; hadamard+block with 5 bits in all directions costs nothing either, with 4 bits in activations a
 * point. */
double gp_decide_max_error(enum gp_direction d)
{
	return gp_direction_info[d].gradient ? 0.15 : 0.06;
}

double gp_decide_min_cosine(enum gp_direction d)
{
	return gp_direction_info[d].gradient ? 0.985 : 0.998;
}

static double limit_of(const struct gp_decide_direction *in, enum gp_direction d)
{
	return in->budget > 0 ? in->budget : gp_decide_max_error(d);
}

/* Whoever names a budget has chosen. */
static double least_cosine(const struct gp_decide_direction *in, enum gp_direction d)
{
	return in->budget > 0 ? 1 - in->budget * in->budget : gp_decide_min_cosine(d);
}

/* --- what was measured -------------------------------------------------------------------------------------------- */

static void push(double *ring, int room, int *count, double x)
{
	if (*count == room)
		memmove(ring, ring + 1, (size_t)(room - 1) * sizeof *ring);
	else
		++*count;
	ring[*count - 1] = x;
}

static double median(const double *x, int count)
{
	double sorted[5];
	for (int i = 0; i < count; i++) {
		int at = i;
		for (; at > 0 && sorted[at - 1] > x[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = x[i];
	}
	return count == 0 ? 0 : sorted[count / 2];
}

static void note_step(struct gp_decider *s, const struct gp_decide_step *step)
{
	const double rate[2] = {step->up_rate, step->down_rate};
	for (int way = 0; way < 2; way++)
		if (rate[way] > 0 && isfinite(rate[way]))
			push(s->rate[way], 3, &s->rates[way], rate[way]);
	if (step->compute_s > 0 && isfinite(step->compute_s))
		push(s->compute, 5, &s->computes, step->compute_s);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static bool is_over(const struct gp_decide_direction *in, enum gp_direction d, int rung)
{
	const struct gp_decide_rung *r = &in->rung[rung];
	return r->known && (!(r->error <= limit_of(in, d)) || !(r->cosine >= least_cosine(in, d)));
}

/* A survey in which a rung is over its limit keeps it barred. */
static void note_errors(struct gp_decider *s, const struct gp_decide_step *step, enum gp_direction d)
{
	const struct gp_decide_direction *in = &step->direction[d];
	for (int r = 0; in->surveyed && r < in->rungs; r++) {
		if (!is_over(in, d, r))
			continue;
		if (r == in->now && s->times[d][r] < BARRED_MOST)
			s->times[d][r]++;
		s->barred[d][r] = step->steps + ((uint64_t)BARRED_TIMES * step->every << s->times[d][r]);
	}
}

/* The first rung is what everything else is measured by: it is never barred. */
static bool may_use(const struct gp_decider *s, const struct gp_decide_step *step, enum gp_direction d, int r)
{
	const struct gp_decide_direction *in = &step->direction[d];
	if (in->rungs == 0)
		return r == in->now;
	return r == 0 || (in->rung[r].known && !is_over(in, d, r) && s->barred[d][r] <= step->steps);
}

/* How lossy, by what is allowed. */
static double loss_of(const struct gp_decide_direction *in, enum gp_direction d, int r)
{
	return in->rungs > 0 && in->rung[r].known ? in->rung[r].error / gp_decide_max_error(d) : 0;
}

/* Bytes of a step; those of a rung that nothing is known of are as now. */
static double bytes_of(const struct gp_decide_direction *in, int r)
{
	if (in->rungs == 0 || r == in->now || !in->rung[r].known || !in->rung[in->now].known)
		return in->bytes;
	return in->bytes * in->rung[r].ratio / in->rung[in->now].ratio;
}

/* --- one way ------------------------------------------------------------------------------------------------------ */

/* The directions that go the same way, and one choice. */
static const enum gp_direction ways[2][2] = {{GP_ACT_UP, GP_GRAD_UP}, {GP_ACT_DOWN, GP_GRAD_DOWN}};

struct pair {
	int rung[2];
	double bytes, loss, sum;
};

static struct pair pair_of(const struct gp_decide_step *step, int way, int a, int b)
{
	const enum gp_direction *d = ways[way];
	const struct gp_decide_direction *in[2] = {&step->direction[d[0]], &step->direction[d[1]]};
	const double x = loss_of(in[0], d[0], a), y = loss_of(in[1], d[1], b);
	return (struct pair){{a, b}, bytes_of(in[0], a) + bytes_of(in[1], b), fmax(x, y), x + y};
}

/* Where both have no more than `most` bytes, the less lossy one is better; else the one with fewer. */
static bool is_better(const struct pair *a, const struct pair *b, double most)
{
	const bool fits = a->bytes <= most, other = b->bytes <= most;
	if (fits != other)
		return fits;
	if (!fits)
		return a->bytes < b->bytes || (a->bytes == b->bytes && a->loss < b->loss);
	if (a->loss != b->loss)
		return a->loss < b->loss;
	return a->sum < b->sum || (a->sum == b->sum && a->bytes < b->bytes);
}

/* With a budget: the fewest bytes within it. */
static int within_budget(const struct gp_decider *s, const struct gp_decide_step *step, enum gp_direction d)
{
	const struct gp_decide_direction *in = &step->direction[d];
	int best = 0;
	for (int r = 0; r < in->rungs; r++)
		if (may_use(s, step, d, r) && bytes_of(in, r) < bytes_of(in, best))
			best = r;
	return best;
}

static bool is_candidate(const struct gp_decider *s, const struct gp_decide_step *step, enum gp_direction d, int r)
{
	if (step->direction[d].budget > 0)
		return r == within_budget(s, step, d);
	return may_use(s, step, d, r);
}

static int choices(const struct gp_decide_direction *in)
{
	return in->rungs > 0 ? in->rungs : in->now + 1;
}

static struct pair best_pair(const struct gp_decider *s, const struct gp_decide_step *step, int way, double most)
{
	const enum gp_direction *d = ways[way];
	struct pair best = {.rung = {-1, -1}};
	for (int a = 0; a < choices(&step->direction[d[0]]); a++)
		for (int b = 0; is_candidate(s, step, d[0], a) && b < choices(&step->direction[d[1]]); b++) {
			const struct pair p = pair_of(step, way, a, b);
			if (is_candidate(s, step, d[1], b) && (best.rung[0] < 0 || is_better(&p, &best, most)))
				best = p;
		}
	return best;
}

/* --- time of a step ----------------------------------------------------------------------------------------------- */

/* What a step takes if nothing but this way's wire and computing were there. */
struct pace {
	double compute, rate; /* seconds; bytes a second */
	int chunks;
};

static double time_of(const struct pace *p, double bytes)
{
	const double wire = bytes / p->rate;
	return fmax(p->compute, wire / IN_USE) + wire / p->chunks;
}

/* The most bytes with which a step takes no more than that. */
static double bytes_within(const struct pace *p, double time)
{
	const double hidden = (time - p->compute) * p->chunks; /* as long as computing is the longer part */
	return p->rate * fmin(hidden, time / (1 / IN_USE + 1.0 / p->chunks));
}

/* Without a measurement no pair is too slow. */
static struct pair find_target(const struct gp_decider *s, const struct gp_decide_step *step, int way, bool measured,
			       const struct pace *p)
{
	if (!measured)
		return best_pair(s, step, way, INFINITY);
	const struct pair fewest = best_pair(s, step, way, 0);
	const double most = bytes_within(p, SLOWER * time_of(p, fewest.bytes));
	return best_pair(s, step, way, fmax(most, fewest.bytes));
}

/* --- the decision ------------------------------------------------------------------------------------------------- */

#define IN_BUDGET "it has the fewest bytes within the budget"

/* One for each direction of a way. */
struct reasons {
	char why[2][GP_DECIDE_REASON];
};

/* One reason for both, but a direction with a budget is chosen by its bytes alone. */
static struct reasons reasons_of(const struct gp_decide_step *step, int way, const char *why)
{
	struct reasons r;
	for (int i = 0; i < 2; i++)
		snprintf(r.why[i], sizeof r.why[i], "%s", step->direction[ways[way][i]].budget > 0 ? IN_BUDGET : why);
	return r;
}

static void take(struct gp_decider *s, const struct gp_decide_step *step, int way, const struct pair *p,
		 const struct reasons *r, struct gp_decision *out)
{
	for (int i = 0; i < 2; i++) {
		const enum gp_direction d = ways[way][i];
		if (p->rung[i] == step->direction[d].now)
			continue;
		out->changes = true;
		out->rung[d] = p->rung[i];
		snprintf(out->reason[d], sizeof out->reason[d], "%s", r->why[i]);
	}
	s->changed[way] = step->steps;
	s->calm[way] = 0;
}

static bool must_leave(const struct gp_decider *s, const struct gp_decide_step *step, enum gp_direction d)
{
	const struct gp_decide_direction *in = &step->direction[d];
	return in->rungs > 0 && in->rung[in->now].known && !may_use(s, step, d, in->now);
}

/* Error first: whatever the link is like, a rung that must not be used is left. */
static bool leave_barred(struct gp_decider *s, const struct gp_decide_step *step, int way, const struct pair *target,
			 struct gp_decision *out)
{
	struct reasons r = reasons_of(step, way, "chosen anew together with the direction that goes the same way");
	bool leaves = false;
	for (int i = 0; i < 2; i++) {
		const enum gp_direction d = ways[way][i];
		const struct gp_decide_direction *in = &step->direction[d];
		if (!must_leave(s, step, d))
			continue;
		leaves = true;
		snprintf(r.why[i], sizeof r.why[i],
			 "its relative error is %.3g and its cosine %.4f; at most %.3g and at least %.4g are "
			 "allowed",
			 in->rung[in->now].error, in->rung[in->now].cosine, limit_of(in, d), least_cosine(in, d));
	}
	if (leaves)
		take(s, step, way, target, &r, out);
	return leaves;
}

static bool same_as_calm(const struct gp_decider *s, int way, const struct pair *p)
{
	return s->calm_rung[ways[way][0]] == p->rung[0] && s->calm_rung[ways[way][1]] == p->rung[1];
}

/* Steps one after the other in which the same pair would have been better. */
static bool is_calm(struct gp_decider *s, const struct gp_decide_step *step, int way, const struct pair *p)
{
	s->calm[way] = same_as_calm(s, way, p) ? s->calm[way] + 1 : 1;
	for (int i = 0; i < 2; i++)
		s->calm_rung[ways[way][i]] = p->rung[i];
	const uint64_t rest = s->rest[way] > 0 ? s->rest[way] : REST_STEPS;
	return s->calm[way] >= CALM_STEPS && step->steps >= s->changed[way] + rest;
}

/* The last change to a less lossy rung made the step slower, on the same link: the next one waits for longer. */
static void note_taken_back(struct gp_decider *s, int way, double rate)
{
	const uint64_t rest = s->rest[way] > 0 ? s->rest[way] : REST_STEPS;
	if (s->rate_then[way] > 0 && fabs(rate / s->rate_then[way] - 1) < SAME_LINK)
		s->rest[way] = rest < REST_MOST ? 2 * rest : rest;
	else
		s->rest[way] = REST_STEPS;
	s->rate_then[way] = 0;
}

static bool has_budget(const struct gp_decide_step *step, int way)
{
	return step->direction[ways[way][0]].budget > 0 || step->direction[ways[way][1]].budget > 0;
}

static void decide_way(struct gp_decider *s, const struct gp_decide_step *step, int way, struct gp_decision *out)
{
	const struct pace pace = {median(s->compute, s->computes), median(s->rate[way], s->rates[way]),
				  step->chunks > 0 ? step->chunks : 1};
	const double rate = pace.rate, compute = pace.compute;
	const struct pair now =
		pair_of(step, way, step->direction[ways[way][0]].now, step->direction[ways[way][1]].now);
	const bool measured = rate > 0 && compute > 0;
	const struct pair target = find_target(s, step, way, measured, &pace);
	const double wire = measured ? target.bytes / rate : 0, before = measured ? now.bytes / rate : 0;
	char why[GP_DECIDE_REASON];
	out->wire_s[way] = wire;
	out->wire_before_s[way] = before;
	if (target.rung[0] < 0 || leave_barred(s, step, way, &target, out))
		return;
	if ((target.rung[0] == now.rung[0] && target.rung[1] == now.rung[1]) || (!measured && !has_budget(step, way))) {
		s->calm[way] = 0;
		return;
	}
	if (measured && time_of(&pace, target.bytes) < (1 - GP_DECIDE_GAIN) * time_of(&pace, now.bytes)) {
		snprintf(why, sizeof why,
			 "%s at %.3g Mbit/s takes %.3g s a step, computing %.3g s; this way it takes %.3g s",
			 way ? "what goes down" : "what goes up", rate * 8e-6, before, compute, wire);
		note_taken_back(s, way, rate);
		const struct reasons r = reasons_of(step, way, why);
		take(s, step, way, &target, &r, out);
		return;
	}
	const bool better = has_budget(step, way) ? target.bytes < now.bytes : target.loss < LESS_LOSS * now.loss;
	if (!better) {
		s->calm[way] = 0;
		return;
	}
	if (!is_calm(s, step, way, &target))
		return;
	snprintf(why, sizeof why, "the least lossy one, as long as nothing is known of the link");
	if (measured)
		snprintf(why, sizeof why,
			 "%s at %.3g Mbit/s takes %.3g s a step with it, computing %.3g s: a step is at most 3 %% "
			 "longer than with the fewest bytes",
			 way ? "what goes down" : "what goes up", rate * 8e-6, wire, compute);
	const struct reasons r = reasons_of(step, way, why);
	s->rate_then[way] = rate;
	take(s, step, way, &target, &r, out);
}

void gp_decide(struct gp_decider *s, const struct gp_decide_step *step, struct gp_decision *out)
{
	*out = (struct gp_decision){0};
	note_step(s, step);
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		out->rung[d] = step->direction[d].now;
		note_errors(s, step, (enum gp_direction)d);
	}
	out->up_rate = median(s->rate[0], s->rates[0]);
	out->down_rate = median(s->rate[1], s->rates[1]);
	out->compute_s = median(s->compute, s->computes);
	decide_way(s, step, 0, out);
	decide_way(s, step, 1, out);
}
