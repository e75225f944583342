/* SPDX-License-Identifier: Apache-2.0
 *
 * What crosses a cut: one chunk goes forward and back through head, body and
 * tail in this process, as a training step takes it, and the four tensors that
 * would travel are kept. For trying codecs on them (`gpclient capture`).
 * Nothing is updated, no link is involved.
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

enum gp_capture_tensor {
	GP_CAPTURE_ACT_UP,
	GP_CAPTURE_ACT_DOWN,
	GP_CAPTURE_GRAD_UP,
	GP_CAPTURE_GRAD_DOWN,
	GP_CAPTURES
};

struct gp_capture_spec {
	const struct gp_graph *graph; /* the whole model */
	struct gp_cut cut;
	const struct gp_weights *weights; /* NULL: drawn from seed */
	const char *device;
	int threads;
	uint64_t seed; /* dropout, too */
};

struct gp_capture {
	struct gp_shape shape[GP_CAPTURES]; /* with batch, channels last: as a codec gets it */
	float *tensor[GP_CAPTURES];
	double loss; /* mean of the chunk */
};

/* Takes the batch as one chunk; all of its samples have to be there (batch->valid). Gradients are those of their
 * mean loss. On failure `out` is as it was. */
enum gp_status gp_capture_run(const struct gp_capture_spec *spec, const struct gp_batch *batch, struct gp_capture *out,
			      struct gp_err *err);
/* Safe on a zeroed struct. */
void gp_capture_deinit(struct gp_capture *c);
const char *gp_capture_name(enum gp_capture_tensor which); /* "act_up" */

#endif
