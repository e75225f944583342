/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan refuses on every device, in the same words: sizes that no memory
 * has, labels that are no class. What a device alone refuses is in its own files.
 *
 * Threads: any (pure functions). Tests: tests/unit/test_cpu_plan.c,
 * tests/unit/test_cuda_plan.c, tests/unit/test_cuda_train.c
 */
#ifndef GP_PLAN_CHECK_H
#define GP_PLAN_CHECK_H

#include "common/graph/device.h"

/* Checks a spec that may come from a peer: then no product of its sizes can overflow. GP_INVALID, GP_NOMEM,
 * GP_UNSUPPORTED. */
enum gp_status gp_plan_check_spec(const struct gp_plan_spec *spec, struct gp_err *err);
/* Labels of a sample: 1 of an output (K), P of one (P,K), 0 of any other, which no loss is taken of. */
int64_t gp_plan_label_rows(const struct gp_plan *plan);
/* Labels of the first `valid` samples of a chunk, for `loss` of the plan's kind. GP_INVALID: one is no class, or no finite
 * value, or the output has no rows of scores, or is not one number. */
enum gp_status gp_plan_check_labels(const struct gp_plan *plan, const void *labels, int valid, struct gp_err *err);

#endif
