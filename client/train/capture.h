/* SPDX-License-Identifier: Apache-2.0
 *
 * What crosses the cuts: one chunk goes forward and back through head, body and
 * tail in this process, as a training step takes it, and every tensor that a
 * split run would send is copied (crossing.h says which those are). For trying
 * codecs on them (`gpclient capture`). Nothing is updated, no link is involved.
 *
 * Threads: the caller's; the call blocks until all is computed. Test:
 * tests/unit/test_capture.c
 */
#ifndef GP_CAPTURE_H
#define GP_CAPTURE_H

#include "client/data/dataset.h"
#include "common/graph/device.h"
#include "common/graph/weights.h"
#include "common/graph/graph_part.h"
#include "common/wire/direction.h"

struct gp_capture_spec {
	const struct gp_graph *graph; /* the whole model, with what is frozen */
	struct gp_cut cut;
	const struct gp_weights *weights; /* NULL: drawn from seed */
	const char *device;
	int threads;
	uint64_t seed; /* dropout, too */
};

struct gp_captured {
	enum gp_direction direction;
	/* The direction ("act_up") where one tensor crosses in it, else the direction and the value: "act_up.mask". */
	char name[GP_NAME_MAX + 16];
	struct gp_type type; /* with batch, channels last: as a codec gets it */
	void *data;          /* gp_alloc_aligned */
};

struct gp_capture {
	int count;
	struct gp_captured *tensor; /* by direction, then as the body has its inputs or outputs */
	double loss;                /* mean of the chunk */
};

/* Takes the batch as one chunk; all of its samples have to be there (batch->valid). Gradients are those of their
 * mean loss. On failure `out` is as it was. */
enum gp_status gp_capture_run(const struct gp_capture_spec *spec, const struct gp_batch *batch, struct gp_capture *out,
			      struct gp_err *err);
/* Safe on a zeroed struct. */
void gp_capture_deinit(struct gp_capture *c);
/* NULL: there is none of that name. */
const struct gp_captured *gp_capture_find(const struct gp_capture *c, const char *name);

#endif
