/* SPDX-License-Identifier: Apache-2.0
 *
 * What `--codec auto` has done in a step, for log and figures: changes of codec with their reasons and numbers,
 * errors that were measured, and how long each codec was used.
 *
 * Threads: the engine's own. Test: tests/e2e/codec_auto.sh
 */
#ifndef GP_CODEC_EVENTS_H
#define GP_CODEC_EVENTS_H

#include <jansson.h>
#include <stdio.h>

#include "client/codecs/codec_decide.h"

struct gp_codec_change {
	enum gp_direction direction;
	char from[GP_CODEC_SPEC_MAX], to[GP_CODEC_SPEC_MAX], reason[GP_DECIDE_REASON];
	double rate, compute_s, wire_s, wire_before_s; /* of the way; 0: not measured */
	double error, cosine;                          /* of the new codec; NaN: not measured */
};

struct gp_codec_error {
	uint64_t step; /* that it was measured in, counted from 1 */
	enum gp_direction direction;
	double error, cosine;
};

struct gp_codec_events {
	uint64_t step; /* steps done */
	int changes, errors;
	struct gp_codec_change change[GP_DIRECTIONS];
	struct gp_codec_error error[GP_DIRECTIONS];
};

/* Steps of this process by rung; a direction without a ladder has no rungs. */
struct gp_codec_use {
	struct gp_codec_ladder ladder;
	uint64_t steps[GP_LADDER_RUNGS];
};

/* Lines on `to`: "codec of act_up from step 7 on: ... instead of ...: why". */
void gp_codec_events_print(const struct gp_codec_events *e, FILE *to);
/* The keys of a "codec" event, and of a "codec_error" event. New references. */
json_t *gp_codec_change_json(const struct gp_codec_events *e, int change);
json_t *gp_codec_error_json(const struct gp_codec_events *e, int error);
/* {"act_up":[{"codec":"raw","steps":12},...],...}, without rungs that were not used; null without codec_auto. */
json_t *gp_codec_use_json(const struct gp_codec_use *use);
/* "act_up: raw 60 %, bf16 40 %", a line for each direction that has a ladder. */
void gp_codec_use_print(const struct gp_codec_use *use, FILE *to);

#endif
