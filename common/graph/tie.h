/* SPDX-License-Identifier: Apache-2.0
 *
 * Two parameters of a model that are one (gp_graph_tie), in the plan or the two
 * plans that have them: a local run has both in one, a split one the first in the
 * head and the second in the tail. The follower gets the values of the one that
 * leads when training begins and after every update; before the update its
 * gradient is added to that of the other. So both stay equal to the last bit, and
 * the norm of the gradients, weight decay and the optimizer know of one alone.
 *
 * Where a graph has no such pair, or it is frozen, calls do nothing.
 *
 * Threads: that of the plans. Test: tests/unit/test_tie.c
 */
#ifndef GP_TIE_H
#define GP_TIE_H

#include "common/graph/device.h"

struct gp_tie {
	struct gp_plan *plan[2]; /* of the one that leads, and of the follower; NULL: there is no pair */
	int index[2];
	bool gathered; /* the gradient is the sum, since the last update */
};

/*
 * `g` is the whole graph; `first` and `last` may be one plan. GP_INVALID where they do not have the pair, as with a cut that
 * leaves one of them to the server; GP_DEVICE where the device cannot.
 */
enum gp_status gp_tie_find(const struct gp_graph *g, struct gp_plan *first, struct gp_plan *last, struct gp_tie *out,
			   struct gp_err *err);
/* The follower gets the values of the other: after parameters were set. */
enum gp_status gp_tie_values(const struct gp_tie *t, struct gp_err *err);
/* Behind the last chunk of a step, before the norm of the gradients or the update: once, however often it is called. */
enum gp_status gp_tie_gradients(struct gp_tie *t, struct gp_err *err);
/* Behind the update, which has been waited for. */
enum gp_status gp_tie_updated(struct gp_tie *t, struct gp_err *err);
/* The step was taken back: there are no gradients. */
static inline void gp_tie_undo(struct gp_tie *t)
{
	t->gathered = false;
}

#endif
