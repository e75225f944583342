/* SPDX-License-Identifier: Apache-2.0
 *
 * `rans:tables=channel`: which channels have a table of frequencies in common. The
 * codes of a sample are counted for each channel; channels whose codes take about
 * as many bits follow each other, and neighbours become one group as long as their
 * tables take more bytes than they save. All in integers, so that every
 * machine makes the same groups.
 *
 * Threads: one at a time. Test: tests/unit/test_codec_rans_planes.c
 */
#ifndef GP_RANS_CHANNELS_H
#define GP_RANS_CHANNELS_H

#include "common/codec/codec_impl.h"

enum { GP_RANS_CHANNELS_MOST = 1024, GP_RANS_RUNS = 64 };

/* The codes themselves, and their residuals where they are foretold. */
enum { GP_RANS_AS_IS, GP_RANS_RESIDUALS, GP_RANS_KINDS };

struct gp_rans_plan {
	uint16_t *order; /* the channels, in the order in which their planes come */
	uint16_t *end;   /* of each group: how many planes come before its end */
	size_t groups;
	uint64_t cost; /* bits that all codes take, tables included, times 256; UINT64_MAX: nothing was counted */
};

/* Channels that follow each other in the order: a group in the end. */
struct gp_rans_run {
	uint32_t count[256];  /* of the symbols of all */
	uint64_t cost, table; /* bits that they take, and their table, times 256 */
	int64_t gain;         /* bits that they take more in one group with the run before, times 256 */
	size_t end;           /* channels up to here */
};

struct gp_rans_channels {
	size_t channels;
	struct gp_rans_run *run; /* GP_RANS_RUNS */
	uint64_t *ranks;         /* of the channels, by their bits */
	uint16_t *counts
		[GP_RANS_KINDS]; /* of the 256 symbols of each channel; GP_RANS_RESIDUALS: NULL where nothing is foretold */
	uint64_t counted[GP_RANS_KINDS]; /* symbols of a channel */
	uint8_t *begun[GP_RANS_KINDS];   /* of each channel: a symbol with the first `pixels` of its codes */
	size_t pixels[GP_RANS_KINDS];
	struct gp_rans_plan plan[GP_RANS_KINDS];
	uint8_t fraction[256]; /* log2(1 + i / 256) * 256 */
};

/* Bytes that open takes. `predicts`: residuals are counted, too. */
size_t gp_rans_channels_bytes(size_t channels, bool predicts);
/* 2 to GP_RANS_CHANNELS_MOST channels. GP_NOMEM; *c may be closed then, too. */
enum gp_status gp_rans_channels_open(struct gp_rans_channels *c, size_t channels, bool predicts, struct gp_err *err);
void gp_rans_channels_close(struct gp_rans_channels *c);
/* Forgets what was counted. */
void gp_rans_channels_begin(struct gp_rans_channels *c);
/* Counts the n codes of a row of pixels, of `width` 1..8 bits: in each channel, as many pixels as have room in 8 bits make a
 * symbol, as in a plane; what a row has too few for is the begin of the next row's first. */
void gp_rans_channels_count(struct gp_rans_channels *c, int kind, int width, const uint8_t *row, size_t n);
/* Makes plan[kind] from what was counted, for `pixels` codes of each channel, of the width with which they were counted. It stays
 * until the next call. */
void gp_rans_channels_plan(struct gp_rans_channels *c, int kind, int width, uint64_t pixels);

#endif
