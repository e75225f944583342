/* SPDX-License-Identifier: Apache-2.0
 *
 * Tied weights: two parameters of a model that share their values (gp_graph_tie), such
 * as a word embedding and the output layer. A local run has both in one plan; a split
 * run has the first, the leader, in the head and the second, the follower, in the tail.
 * The follower gets the leader's values when training begins and after every update;
 * before the update its gradient is added to the leader's. So both stay equal to the
 * last bit, and the norm of the gradients, weight decay and the optimizer count one
 * parameter.
 *
 * Where a graph has no tied weights, or they are frozen, the calls do nothing.
 *
 * Threads: that of the plans. Test: tests/unit/test_tie.c
 */
#ifndef GP_TIE_H
#define GP_TIE_H

#include "common/graph/device.h"

struct gp_tie {
	struct gp_plan *plan[2]; /* of the leader and of the follower; NULL: there are no tied weights */
	int index[2];
	bool gathered; /* the leader's gradient has been added up since the last update */
};

/*
 * `g` is the whole graph; `first` and `last` may be one plan. GP_INVALID where the plans do not have both parameters, as with a
 * cut that leaves one of them to the server; GP_DEVICE where the device cannot train tied weights.
 */
enum gp_status gp_tie_find(const struct gp_graph *g, struct gp_plan *first, struct gp_plan *last, struct gp_tie *out,
			   struct gp_err *err);
/* Copies the leader's values to the follower: after parameters were set. */
enum gp_status gp_tie_values(const struct gp_tie *t, struct gp_err *err);
/* Adds the follower's gradient to the leader's, after the last chunk of a step and before the norm of the gradients or the
 * update. Further calls in the same step do nothing. */
enum gp_status gp_tie_gradients(struct gp_tie *t, struct gp_err *err);
/* Copies the new values to the follower, after the update is done. */
enum gp_status gp_tie_updated(struct gp_tie *t, struct gp_err *err);
/* The step was taken back: there are no gradients. */
static inline void gp_tie_undo(struct gp_tie *t)
{
	t->gathered = false;
}

#endif
