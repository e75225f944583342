/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a value is kept for backward by somebody else than its maker. An
 * activation whose value is not may keep a bit of each element instead, which
 * says where its gradient passes; for plans of every device.
 *
 * Threads: one. Test: tests/unit/test_plan_masks.c
 */
#ifndef GP_PLAN_MASKS_H
#define GP_PLAN_MASKS_H

#include "kernels/plan/plan_walk.h"

/* Whether no cut of spec.cuts lies between two nodes, or that makes no difference, as neither maps lie encoded nor their
 * gradients are coded: else what lies on both sides has to be what it is in plans of the parts. */
bool gp_walk_same_part(const struct gp_walk *w, const struct gp_walk_node *before, const struct gp_walk_node *behind);

/* Whether the value stays until backward although its maker does not read it there. When all nodes have been prepared. */
bool gp_walk_keeps_value(const struct gp_walk *w, const struct gp_walk_node *maker, int value);

#endif
