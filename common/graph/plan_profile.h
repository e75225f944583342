/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan's profile as a table for people: one row per node that took time,
 * most expensive first, with milliseconds per call (mean and fastest), GFLOP/s and GB/s forward
 * and backward, and a line of sums. Measuring is the device's part (device.h).
 *
 * Threads: that of the plan, not during a call into it. Test:
 * tests/unit/test_cpu_profile.c
 */
#ifndef GP_PLAN_PROFILE_H
#define GP_PLAN_PROFILE_H

#include <stdio.h>

#include "common/graph/device.h"

/* Switches measuring on; *out is NULL when the device cannot. */
enum gp_status gp_plan_profile_begin(struct gp_plan *plan, const struct gp_plan_profile **out, struct gp_err *err);
/* `title` stands above the table; `profile` may be NULL: nothing is printed. */
void gp_plan_profile_print(FILE *f, const char *title, const struct gp_plan *plan,
			   const struct gp_plan_profile *profile);

#endif
