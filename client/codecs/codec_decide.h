/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rung of its ladder each direction should use, from what was measured: numbers in, a decision with its reason
 * out. Nothing here measures, waits or sends (engine_split_codec.c).
 *
 * Both directions that go the same way share its wire. A step takes
 *
 *     max(computing, wire / 0.8) + wire / chunks
 *
 * because a wire beside computing is not in use all the time, and because nothing hides what the first chunk takes to come, or
 * the last one to go. Of the pairs of rungs with which this is at most 3 % more than with the fewest bytes, the one with the
 * least error is chosen. A rung whose error was over its limit in a survey is barred for a while, for twice as long each time
 * that this happens while it was in use. A direction with a budget uses the rung with the fewest bytes whose error is within
 * the budget.
 *
 * So that decisions do not swing with noise: rates are medians of the last three steps, computing times of the last
 * five; a rung with more error is taken at once where the step gets faster by GP_DECIDE_GAIN, one with less error
 * only in three steps one after the other, and some steps after the last change; twice as many each time that such a
 * change had to be taken back though the link was as it had been.
 *
 * Threads: one at a time; pure functions of their arguments. Test: tests/unit/test_codec_decide.c
 */
#ifndef GP_CODEC_DECIDE_H
#define GP_CODEC_DECIDE_H

#include "common/codec/codec_ladder.h"
#include "common/wire/direction.h"

#define GP_DECIDE_GAIN 0.10

/* What the newest survey found of one rung. */
struct gp_decide_rung {
	bool known;
	double ratio;         /* payload by tensor, in bytes */
	double error, cosine; /* relative error; between tensor and what is decoded */
};

struct gp_decide_direction {
	int rungs; /* 0: no choice here; `bytes` still take time */
	int now;
	double budget; /* 0: none */
	double bytes;  /* of a step's payloads, with the rung of now */
	struct gp_decide_rung rung[GP_LADDER_RUNGS];
	bool surveyed; /* in this step */
};

/* What one step has brought. */
struct gp_decide_step {
	uint64_t steps;            /* done, this one included */
	uint32_t every;            /* steps between two surveys */
	int chunks;                /* of a step */
	double up_rate, down_rate; /* bytes/s while the link was busy; 0: not measured */
	double compute_s;          /* of the end that computed for longer; 0: not measured */
	struct gp_decide_direction direction[GP_DIRECTIONS];
};

#define GP_DECIDE_REASON 200

struct gp_decision {
	bool changes;
	int rung[GP_DIRECTIONS];
	char reason[GP_DIRECTIONS][GP_DECIDE_REASON]; /* of a direction that changes */
	double up_rate, down_rate, compute_s;         /* that it was decided by; 0: not known */
	double wire_s[2], wire_before_s[2]; /* up, down: of a step, with the new rungs and with the old ones */
};

/* Zeroed: nothing was seen. */
struct gp_decider {
	double rate[2][3], compute[5]; /* the newest last */
	int rates[2], computes;
	uint64_t changed[2];                   /* steps at the last change, by way */
	int calm[2], calm_rung[GP_DIRECTIONS]; /* steps in which the same less lossy rungs would have hidden */
	uint64_t rest[2];                      /* steps from a change to one that is less lossy; 0: the fewest */
	double rate_then[2];                   /* when the last less lossy one was taken; 0: taken back, or none was */
	uint64_t barred[GP_DIRECTIONS][GP_LADDER_RUNGS]; /* until so many steps are done */
	int times[GP_DIRECTIONS][GP_LADDER_RUNGS];       /* that it was barred while in use */
};

/* Largest relative error and least cosine of a direction without a budget. */
double gp_decide_max_error(enum gp_direction d);
double gp_decide_min_cosine(enum gp_direction d);
void gp_decide(struct gp_decider *s, const struct gp_decide_step *step, struct gp_decision *out);

#endif
