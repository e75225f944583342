/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device: oneDNN for convolutions and matrix products, own loops for
 * the rest. All that others need is its vtable. See common/graph/device.h.
 *
 * Threads: as common/graph/device.h says. Test: tests/unit/test_cpu_plan.c
 */
#ifndef GP_DEV_CPU_H
#define GP_DEV_CPU_H

#include "common/graph/device.h"

extern const struct gp_device_ops gp_cpu_device_ops;

#endif
