/* SPDX-License-Identifier: Apache-2.0
 *
 * Between two steps, replaces a plan by one of another graph that has the same parameters, some of which may be smaller
 * matrices: the ranks of decaying insertions (decay.h). The new plan goes on with what the old one had: values, running
 * statistics, the optimizer's state, and the number of updates. The two plans never exist at the same time; in between the
 * host holds a copy of all that (gp_plan_replace_bytes).
 *
 * Threads: as for the plan. Test: tests/unit/test_decay.c
 */
#ifndef GP_PLAN_REPLACE_H
#define GP_PLAN_REPLACE_H

#include "common/graph/device.h"

/*
 * Replaces *plan by a plan of `spec`, which is taken as if it had params_given. On failure *plan is NULL, or the old plan,
 * unchanged.
 */
enum gp_status gp_plan_replace(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **plan,
			       struct gp_err *err);
/* The same, but the new plan is as plan_new makes it, with 0 updates. */
enum gp_status gp_plan_renew(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **plan,
			     struct gp_err *err);
/* How many bytes gp_plan_replace needs at most beside the plans, where the old one is of this graph and its state is encoded by
 * `state`, or not (NULL). */
uint64_t gp_plan_replace_bytes(const struct gp_graph *g, const struct gp_codec_spec *state);

#endif
