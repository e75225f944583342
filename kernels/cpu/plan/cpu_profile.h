/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring a CPU plan's nodes. Off, it costs one comparison per call; on, two
 * clock readings. Only for this folder.
 *
 * Threads: one at a time calls into a plan (common/graph/device.h). Test:
 * tests/unit/test_cpu_profile.c
 */
#ifndef GP_CPU_PROFILE_H
#define GP_CPU_PROFILE_H

#include "kernels/cpu/plan/cpu_plan.h"

enum { CPU_PROFILE_FORWARD, CPU_PROFILE_BACKWARD };
enum cpu_profile_other { CPU_PROFILE_LOSS, CPU_PROFILE_UPDATE, CPU_PROFILE_PACK };

enum gp_status gp_cpu_profile(struct gp_plan *plan, const struct gp_plan_profile **out, struct gp_err *err);
void gp_cpu_profile_free(struct cpu_plan *p);

/* Now, in nanoseconds; 0 when the plan is not measured. */
uint64_t gp_cpu_profile_start(const struct cpu_plan *p);
/* One call that began at `start` has ended; nothing when that is 0. */
void gp_cpu_profile_node(struct cpu_plan *p, const struct cpu_node *n, int way, uint64_t start);
void gp_cpu_profile_other(struct cpu_plan *p, enum cpu_profile_other which, uint64_t start);

#endif
