/* SPDX-License-Identifier: Apache-2.0
 *
 * A ladder: codec chains of one direction, its rungs, from the least to the most lossy, of which a session uses one
 * at a time and may change to another between two steps. PROTOCOL.md section 5.3. Rungs remember nothing, so that a
 * change forgets nothing. Not here: which rung is used when (client/codecs/codec_decide.h), and the change itself
 * (common/wire/flows.h).
 *
 * Text form: "raw|uniform:bits=8|uniform:bits=4".
 *
 * Threads: any (plain data, pure functions); safe on text from a peer. Test: tests/unit/test_codec_ladder.c
 */
#ifndef GP_CODEC_LADDER_H
#define GP_CODEC_LADDER_H

#include "common/codec/codec.h"

#define GP_LADDER_RUNGS 16
#define GP_LADDER_TEXT  1024

/* Plain data: may be copied. Zeroed: there is none. */
struct gp_codec_ladder {
	int rungs; /* 0: there is no ladder */
	char text[GP_LADDER_TEXT];
};

/* GP_USAGE: a rung is no codec, remembers something, or comes twice; or there are fewer than two, or too many. */
enum gp_status gp_codec_ladder_parse(const char *text, struct gp_codec_ladder *out, struct gp_err *err);
/* Rung i, which exists. */
void gp_codec_ladder_rung(const struct gp_codec_ladder *l, int i, struct gp_codec_spec *out);
/* The same as its text in the ladder. Returns text. */
const char *gp_codec_ladder_name(const struct gp_codec_ladder *l, int i, char text[GP_CODEC_SPEC_MAX]);
/* The rung that is this chain; -1: none is. */
int gp_codec_ladder_find(const struct gp_codec_ladder *l, const struct gp_codec_spec *spec);
/* Which smaller tensors all rungs code. */
enum gp_codec_lengths gp_codec_ladder_lengths(const struct gp_codec_ladder *l);

#endif
