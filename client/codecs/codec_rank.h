/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of several measured codecs pays on a link: against the others that lose
 * no more, and in a step whose chunks follow one another over a given link.
 * Arithmetic alone; what is measured: codec_trip.h.
 *
 * Threads: any (pure functions). Test: tests/unit/test_codec_rank.c
 */
#ifndef GP_CODEC_RANK_H
#define GP_CODEC_RANK_H

#include <stdbool.h>

/* One codec on one tensor. */
struct gp_rank_row {
	bool fits;
	double bits, seconds; /* of the payload; of encoding and decoding */
	double error;
};

#define GP_RANK_RAW (-1) /* sent as it is: 32 bits per element, no time */

struct gp_rank_range {
	bool pays; /* somewhere */
	double above,
		below; /* bits per second between which it is the fastest; below: INFINITY where there is no end */
	int against;   /* who is as fast at `below`, or always faster; an index or GP_RANK_RAW */
};

/*
 * Link rates at which row `index` is faster than every other that loses no more, and than no codec at all. `raw_bits`: of
 * the tensor as it is. Of two that are alike the first counts.
 */
struct gp_rank_range gp_rank_find(const struct gp_rank_row *row, int count, int index, double raw_bits);

struct gp_rank_link {
	double bps, delay_s; /* each way */
	int window;          /* chunks in flight */
};

/* What one codec makes of a chunk, over all tensors that cross. */
struct gp_rank_chunk {
	double up_bits, down_bits;
	double here_s, there_s; /* coding on this side and on the server, each on one thread */
	int ways;               /* directions in which something crosses, one after the other */
};

enum gp_rank_bound { GP_BOUND_UP, GP_BOUND_DOWN, GP_BOUND_CODEC, GP_BOUND_DELAY };
extern const char *const gp_rank_bound_name[4];

struct gp_rank_time {
	double seconds; /* a chunk, in a row of many: the longest of those below */
	double up_s, down_s, codec_s;
	double delay_s; /* of one chunk alone, all ways and delays, over the chunks in flight */
	enum gp_rank_bound bound;
};
struct gp_rank_time gp_rank_chunk_time(const struct gp_rank_chunk *c, const struct gp_rank_link *l);

#endif
