/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the devices that this build has, and opening one by its name.
 * What a device does: common/graph/device.h.
 *
 * Threads: any. Test: tests/unit/test_cpu_plan.c
 */
#ifndef GP_DEVICE_REGISTRY_H
#define GP_DEVICE_REGISTRY_H

#include "common/graph/device.h"

/*
 * "auto", "cpu", "cuda", "cuda:1", and where a build has it "cuda-emulated". auto takes the first that opens, and never
 * an emulated one. GP_DEVICE when it cannot be had.
 */
enum gp_status gp_device_open(const char *spec, int threads, struct gp_device **out, struct gp_err *err);

#endif
