/* SPDX-License-Identifier: Apache-2.0
 *
 * `gpclient codec compare` between its three parts: what was measured of which codec on which tensor (cmd_codec_compare.c),
 * what follows from it (codec_compare_rank.c), and how it is shown (codec_compare_show.c).
 *
 * Threads: the main thread. Test: tests/unit/test_cmd_codec.c, test_cmd_codec_bits.c
 */
#ifndef GP_CODEC_COMPARE_H
#define GP_CODEC_COMPARE_H

#include "client/codecs/codec_best.h"
#include "client/codecs/codec_rank.h"
#include "client/codecs/codec_trip.h"
#include "client/log/progress.h"
#include "common/wire/direction.h"

enum {
	GP_COMPARED_CODECS = GP_BEST_CHAINS,
	GP_COMPARED_TENSORS = 32,
	GP_COMPARED_NAME = 128,
	GP_COMPARED_WINDOW = 4 /* of train */
};
/* What a mean over tensors is of: those of one direction (enum gp_direction), or all. */
#define GP_COMPARED_ALL GP_DIRECTIONS

struct gp_comparison_settings {
	const char *codecs, *in, *tensor, *link;
	double max_error, bits; /* bits 0: none were given */
	int64_t warmup;
	bool json, channels_last, padding;
};

/* One codec on one tensor. */
struct gp_compared_cell {
	bool fits;
	struct gp_trip trip;
	char why[GP_ERR_TEXT]; /* it does not fit */
	struct gp_rank_range range;
};

struct gp_compared_column {
	char name[GP_COMPARED_NAME];
	int direction; /* enum gp_direction, or -1: another tensor */
	struct gp_shape shape;
	int64_t positions; /* of texts without their padding; 0: nothing was left out */
	double raw_bits;
	struct gp_compared_cell cell[GP_COMPARED_CODECS];
	int order[GP_COMPARED_CODECS]; /* of all codecs, for its table */
	int within; /* --bits B: how many codecs, the first of `order`, have at most B bits per element */
};

/* One codec over all tensors, on the link. */
struct gp_compared_place {
	int codec;
	const struct gp_compared_column *unfit; /* the first tensor that it does not fit; NULL: it fits all */
	struct gp_rank_time time;
	double error; /* the largest */
};

struct gp_comparison {
	struct gp_comparison_settings set;
	int codecs, tensors;
	bool named; /* the user named the codecs; else they are those of codec_best.h */
	struct gp_progress progress;
	uint64_t begun_ns;
	struct gp_codec_spec spec[GP_COMPARED_CODECS];
	char asked[GP_COMPARED_CODECS]
		  [GP_CODEC_SPEC_MAX]; /* as they were written: with every key, tables would be too wide */
	struct gp_compared_column column[GP_COMPARED_TENSORS];
	double plain_bits[2];     /* of integers, which cross as they are: down, up */
	struct gp_rank_link link; /* bps 0: none was given */
	struct gp_compared_place place[GP_COMPARED_CODECS];
	struct gp_rank_time raw; /* without any codec */
	int recommended;         /* of `place`; -1: none; `codecs`: raw */
	char sentence[640];
	/* --bits: the best by direction, in all its tensors together, and [GP_COMPARED_ALL] in all tensors; -1: none. */
	int best[GP_DIRECTIONS + 1];
};

/* From what was measured: ranges of rates, the order of the codecs, and, with a link, the recommendation. */
void gp_comparison_evaluate(struct gp_comparison *c);
/* One codec over all tensors of `direction`: the bits of all payloads for the elements of all, and the largest error. */
struct gp_best_row gp_comparison_together(const struct gp_comparison *c, int codec, int direction);
/* Whether the file has a tensor of this direction that is not empty. */
bool gp_comparison_has(const struct gp_comparison *c, int direction);
/* The codec with the least error that fits all tensors; NULL: none does. */
const struct gp_compared_place *gp_comparison_most_exact(const struct gp_comparison *c);
bool gp_comparison_goes_up(int direction);
/* "12.3 ms"; returns text. */
const char *gp_comparison_time_text(double s, char text[32]);
/* A relative error, or "none"; returns text. */
const char *gp_comparison_lossy_text(double error, char text[32]);

void gp_comparison_print(const struct gp_comparison *c);
enum gp_status gp_comparison_print_json(const struct gp_comparison *c, struct gp_err *err);

#endif
