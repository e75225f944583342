/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring a CUDA plan's nodes, by events of the device around what each of
 * them queues; while it is on, calls are queued by hand instead of launched as
 * graphs. Only for kernels/cuda.
 *
 * Threads: one at a time calls into a plan (common/graph/device.h). Test:
 * tests/unit/test_cuda_plan.c
 */
#ifndef GP_CUDA_PROFILE_H
#define GP_CUDA_PROFILE_H

#include "kernels/cuda/plan/cuda_plan.h"

enum { CUDA_PROFILE_FORWARD, CUDA_PROFILE_BACKWARD };
enum cuda_profile_other { CUDA_PROFILE_LOSS, CUDA_PROFILE_UPDATE };

/* Before and after what a node queues; nothing when the plan is not measured. */
void gp_cuda_profile_start(struct cuda_plan *p, const struct cuda_node *n, struct gp_rt_stream *s);
void gp_cuda_profile_stop(struct cuda_plan *p, const struct cuda_node *n, struct gp_rt_stream *s);
/* Everything queued has been done: adds up the nodes that ran. */
void gp_cuda_profile_collect(struct cuda_plan *p, int way);
/* Now, in nanoseconds, 0 when the plan is not measured; what was queued since then has been done. */
uint64_t gp_cuda_profile_clock(const struct cuda_plan *p);
void gp_cuda_profile_other(struct cuda_plan *p, enum cuda_profile_other which, uint64_t start);

#endif
