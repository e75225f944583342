/* SPDX-License-Identifier: Apache-2.0
 *
 * How long each block of a model takes on a device, forward and backward, for a chunk: measured once, with the
 * engine's own plans and threads, so that the parts of any cut are sums. Not here: what these times make of a step
 * (plan_schedule.h).
 *
 * The whole model runs as one plan on real samples. A node's time belongs to its block; the middle one of the
 * repetitions counts. A part has a plan of its own in a training, which fuses the same layers but for those on both
 * sides of a cut.
 *
 * Threads: the caller's; blocks until all is measured. Test: tests/unit/test_plan_measure.c
 */
#ifndef GP_PLAN_BLOCKS_H
#define GP_PLAN_BLOCKS_H

#include "client/data/dataset.h"
#include "common/graph/device.h"
#include "common/graph/graph_part.h"
#include "common/graph/weights.h"
#include "common/wire/session_spec.h"

struct gp_plan_blocks_spec {
	const struct gp_graph *graph;
	const struct gp_weights *weights; /* NULL: drawn from seed */
	struct gp_device *device;
	uint64_t seed;
	struct gp_optim optim;
	enum gp_precision precision;
	bool recompute; /* backward then has the second forward of its block */
	const struct gp_codec_spec
		*maps; /* NULL: maps lie as they are; else with what encoding and decoding them takes */
	const struct gp_session_spec *coding; /* NULL: nothing else is coded; else that of gp_session_coded */
	enum gp_loss_kind loss;
	double seconds;        /* to repeat for; three times at least */
	uint64_t memory_bytes; /* the plan takes no more than so much: fewer samples are measured, and times scaled */
};

struct gp_plan_block {
	double forward_s, backward_s; /* of a chunk */
	double update_s;              /* of a step */
};

struct gp_plan_blocks {
	int blocks;
	int samples;  /* of a chunk */
	int measured; /* samples that were measured at a time: fewer where memory is short */
	struct gp_plan_block *block;
	double loss_s;
};

/* The first `samples` samples of the batch, which has them. GP_UNSUPPORTED: the device cannot measure its nodes. */
enum gp_status gp_plan_blocks_measure(const struct gp_plan_blocks_spec *spec, const struct gp_batch *batch, int samples,
				      struct gp_plan_blocks *out, struct gp_err *err);
/* Safe on a zeroed struct. */
void gp_plan_blocks_deinit(struct gp_plan_blocks *b);
/* The sum of blocks [first, end), whose first ones stand at the beginning. */
struct gp_plan_block gp_plan_blocks_sum(const struct gp_plan_blocks *b, int first, int end);

/* The middle one of `count` numbers above 0, which are sorted. */
double gp_plan_median(double *x, int count);

#endif
