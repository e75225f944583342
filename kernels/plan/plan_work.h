/* SPDX-License-Identifier: Apache-2.0
 *
 * What a node of a plan has to do in one call, for profiles: the least bytes it
 * can move, and its arithmetic. As the graph and the walk say it, the same on
 * every device; of a chunk with fewer positions while the walk has its length. Threads: any. Test: tests/unit/test_cpu_profile.c
 */
#ifndef GP_PLAN_WORK_H
#define GP_PLAN_WORK_H

#include "kernels/plan/plan_walk.h"

/* Every tensor once: values and parameters that are read, values and gradients that are written. */
uint64_t gp_plan_work_bytes(const struct gp_walk *w, const struct gp_walk_node *n, bool backward);
/* Two per multiply-accumulate of convolutions and matrix products; backward has one product or two for
 * each. What attention computes a second time because it did not keep it is not in it. */
double gp_plan_work_flops(const struct gp_walk *w, const struct gp_walk_node *n, bool backward);

#endif
