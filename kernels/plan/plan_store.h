/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans with spec.maps: what a chunk keeps from forward to backward lies
 * encoded. Part of the walk (plan_walk.h); the coding of an array is
 * common/codec/codec_store.h, and when to call it, in kernels/cpu/plan/cpu_plan_store.c.
 *
 * A kept piece of floats has three places then: scratch memory while forward makes and reads it; the slot's arena, encoded,
 * from behind its last reader's forward on; scratch memory again (gp_buf.again), decoded, from its first reader's
 * backward to that of the node that made it. What lies in an IO buffer stays there and is replaced by what decoding its
 * code gives when backward begins. So the values that backward reads do not depend on where the model is cut.
 *
 * Not encoded: data (inputs that are no maps, integers), what nodes save beside maps (statistics, indices), and the `plain_in` of
 * a node, whose gradients would not be those of the decoded values. Where another node keeps such a value as well, what that one
 * reads would depend on whether a cut lies between the two; no model has that.
 *
 * Threads: one. Tests: tests/unit/test_plan_walk.c, tests/unit/test_plan_store.c
 */
#ifndef GP_PLAN_STORE_H
#define GP_PLAN_STORE_H

#include "kernels/plan/plan_walk.h"

/* One piece that is encoded. */
struct gp_stored {
	int buf;       /* where forward has it */
	int coded;     /* the piece of the arena; GP_WALK_NONE: it lies in an IO buffer */
	int node;      /* whose first value, or saved floats, these are: as many as the value has elements */
	int value;     /* of which piece: the value; GP_WALK_NONE: what the node saves */
	int after;     /* encoded behind the forward of this node */
	int before;    /* decoded ahead of the backward of this node */
	uint64_t rest; /* bytes behind the floats that are kept as they are */
};

static inline bool gp_walk_stores(const struct gp_walk *w)
{
	return w->spec->train && w->spec->maps;
}

/* After forward and backward were laid out, before offsets are. GP_UNSUPPORTED: spec.recompute is set as well. */
enum gp_status gp_walk_layout_stored(struct gp_walk *w, struct gp_err *err);
/* Floats of a stored piece in a chunk of the walk's length. */
int64_t gp_walk_stored_floats(const struct gp_walk *w, const struct gp_stored *s);

#endif
