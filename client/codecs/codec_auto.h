/* SPDX-License-Identifier: Apache-2.0
 *
 * `--codec auto[:KEY=VALUE,...]`: what it asks for in one direction. Keys: budget, every, script and, last, ladder.
 * Not here: how a codec is chosen (codec_decide.h), and the change between two steps (engine_split_codec.c).
 *
 * Threads: any; pure functions. Test: tests/unit/test_codec_auto.c, tests/e2e/codec_auto.sh
 */
#ifndef GP_CODEC_AUTO_H
#define GP_CODEC_AUTO_H

#include "common/codec/codec_ladder.h"
#include "common/wire/direction.h"

#define GP_AUTO_SCRIPT 16
#define GP_AUTO_TEXT   (GP_LADDER_TEXT + 512)

/* Plain data. Zeroed: the direction has a codec of its own, which stays. */
struct gp_codec_auto {
	bool on;
	double budget;  /* largest relative error, and the fastest codec within it; 0: the least lossy that hides */
	uint32_t every; /* steps between two surveys */
	struct gp_codec_ladder ladder;
	int first;    /* the rung that a run begins with */
	int scripted; /* changes that are given in advance, by rising steps; 0: the codec is chosen */
	struct {
		uint64_t step; /* so many steps are done */
		int rung;
	} script[GP_AUTO_SCRIPT];
	char text[GP_AUTO_TEXT]; /* all of it, in one form: what must be the same to go on with a run */
};

/* Whether a --codec is `auto`, with or without keys. */
bool gp_codec_auto_is(const char *text);
/* Reads a text for which gp_codec_auto_is. GP_USAGE. */
enum gp_status gp_codec_auto_parse(const char *text, struct gp_codec_auto *out, struct gp_err *err);
/* For a command that does not train. GP_USAGE where `text` is `auto`. */
enum gp_status gp_codec_auto_refuse(const char *text, struct gp_err *err);
/* The rung that the script has behind so many steps. */
int gp_codec_auto_scripted(const struct gp_codec_auto *a, uint64_t steps);

#endif
