/* SPDX-License-Identifier: Apache-2.0
 *
 * Between two steps, a plan makes room for one of another graph that has the same parameters, of which matrices may be
 * smaller: the ranks of decaying insertions (decay.h). The new plan goes on with what the old one had: values, running
 * statistics, what the optimizer remembers, and the number of updates. For a while the host holds a copy of all that
 * (gp_replace_bytes); the two plans are never there together.
 *
 * Threads: as for the plan. Test: tests/unit/test_decay.c
 */
#ifndef GP_PLAN_REPLACE_H
#define GP_PLAN_REPLACE_H

#include "common/graph/device.h"

/*
 * Makes *plan one of `spec`, whose params_given is presumed. On failure *plan is NULL, or the old one where nothing has
 * changed.
 */
enum gp_status gp_plan_replace(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **plan,
			       struct gp_err *err);
/* The same, but that the new plan begins with what plan_new gives it, 0 updates old. */
enum gp_status gp_plan_renew(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **plan,
			     struct gp_err *err);
/* Most bytes that gp_plan_replace takes beside the plans, where the old one is of this graph. */
uint64_t gp_plan_replace_bytes(const struct gp_graph *g);

#endif
