/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA device: cuBLAS for matrix products, own kernels for the rest. All
 * that others need is its vtable; the rest is for who measures. See common/graph/device.h.
 *
 * Threads: as common/graph/device.h says. Test: tests/unit/test_cuda_plan.c
 */
#ifndef GP_DEV_CUDA_H
#define GP_DEV_CUDA_H

#include "common/graph/device.h"

/* The table of the devices that this build has: "cuda", or "cuda-emulated" where the kernels run on the host. */
const struct gp_device_ops *gp_cuda_ops(void);
/* Why the plan's calls are queued one by one, which is slower; NULL while no graph has failed. Its thread. */
const char *gp_cuda_without_graphs(const struct gp_plan *plan);

#endif
